"""Steps through caches, and the same by definition: one attention over all positions, without a cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from lucid import Tensor, nn, ops
from lucid.core.graph.types import bool_, float32, int64
from lucid.core.sizes.dims import dim, same
from lucid.nn import functional as F
from lucid.ops.creation import full, zeros
from tests.fuzz.layers import filled, has_width, mask_type
from tests.fuzz.programs import FLOATS, Drafting, Maker, Step, among
from tests.fuzz.values import mask_recipe

CACHES: list[Maker] = []


@dataclass(frozen=True)
class DecoderInputs:
    """The inputs of a decoder: texts to read one after the other, a cache, and masks.

    With a growing cache there may be masks of keys: for its positions, if it has any, then for each text. With a buffer
    there may be one mask, (1 or N, 1 or H, 1, C).
    """

    texts: Sequence[Tensor]
    cache: nn.Cache
    mask: Tensor | None = None
    key_masks: Sequence[Tensor] = ()


class Decoder(nn.Module):
    """A layer of attention that reads in steps: a prompt, more of it, single tokens."""

    def __init__(self, heads: tuple[int, int], width: int, project: nn.Module, packed: bool, **options: Any) -> None:
        """`heads` of queries and of keys; `project` makes a text's queries, keys and values, side by side."""
        self.heads, self.width, self.project, self.packed, self.options = heads, width, project, packed, options

    def stepped(self, inputs: DecoderInputs) -> tuple[Tensor, Tensor, Tensor]:
        """The outputs of all steps, and the keys and values after the last."""
        cache: Any = inputs.cache
        layout = {"heads": self.heads[0], "kv_heads": self.heads[1]} if self.packed else {}
        outputs = []
        for number, text in enumerate(inputs.texts):
            parts = self._parts(text) if self.packed else self._split(text)
            masks = inputs.key_masks[: len(inputs.key_masks) - len(inputs.texts) + number + 1]
            key_mask = ops.concat(masks, 1) if masks else None
            output, cache = F.cached_attention(*parts, cache, inputs.mask, key_mask, **layout, **self.options)
            outputs.append(output)
        return ops.concat(outputs, -2), cache.key, cache.value

    def at_once(self, inputs: DecoderInputs) -> tuple[Tensor, Tensor, Tensor]:
        """The same by definition: attention to what the cache holds and, behind it, to all new positions."""
        query, key, value = (ops.concat(parts, 2) for parts in zip(*map(self._split, inputs.texts), strict=True))
        batch, _, old, _ = inputs.cache.key.shape
        filled = inputs.cache.filled if isinstance(inputs.cache, nn.KeyValueBuffer) else None
        first = (full(batch, 0, int64) + old if filled is None else filled).reshape(-1, 1, 1, 1)
        positions = first + ops.arange(query.shape[2])  # the new ones, (N, 1, 1, T)
        seen = self._seen(inputs.texts, ops.arange(old), first, positions)
        if inputs.mask is not None:  # that of a new position is the one of its slot
            mask = ops.expand(inputs.mask, (batch, *inputs.mask.shape[1:]))
            mask = ops.concat([mask, ops.take_along(mask, positions, axis=3)], 3)
            seen = seen & mask if mask.dtype == bool_ else ops.where(seen, mask, mask.dtype.lowest)
        keys, values = ops.concat([inputs.cache.key, key], 2), ops.concat([inputs.cache.value, value], 2)
        key_mask = ops.concat(inputs.key_masks, 1) if inputs.key_masks else None
        scores = {name: self.options[name] for name in ("scale", "softcap")}
        output = ops.attention(query, keys, values, seen, key_mask, **scores)
        output = output.permute(0, 2, 1, 3).flatten(2, 3) if self.packed else output
        if filled is None:
            return output, keys, values
        return output, written(inputs.cache.key, key, filled, 2), written(inputs.cache.value, value, filled, 2)

    def _seen(self, texts: Sequence[Tensor], slots: Tensor, first: Tensor, positions: Tensor) -> Tensor:
        """(N, 1, T, old + T): what new positions see of the cache, whose positions come before, and of each other."""
        row = positions.mT
        step = ops.concat([full(text.shape[1], number, int64) for number, text in enumerate(texts)], 0)
        old = ops.expand(slots < first, (*row.shape[:3], slots.shape[0]))
        new = positions <= row if self.options["is_causal"] else step <= step.unsqueeze(1)
        new = ops.expand(new, (*row.shape[:3], row.shape[2]))
        window = self.options["window"]
        if window is not None:
            old, new = old & (slots > row - window), new & (positions > row - window)
        return ops.concat([old, new], 3)

    def _parts(self, text: Tensor) -> tuple[Tensor, ...]:
        (heads, kv_heads), width = self.heads, self.width
        return ops.split(self.project(text), [heads * width, kv_heads * width, kv_heads * width], -1)

    def _split(self, text: Tensor) -> list[Tensor]:
        parts = zip(self._parts(text), (self.heads[0], self.heads[1], self.heads[1]), strict=True)
        return [x.reshape(*x.shape[:2], heads, self.width).permute(0, 2, 1, 3) for x, heads in parts]


def written(buffer: Tensor, new: Tensor, starts: Tensor, axis: int) -> Tensor:
    """`write_at` by definition: slot s holds the new element s - starts, if there is one."""
    count, others = new.shape[axis], [1] * (buffer.ndim - 1)
    slots = ops.arange(buffer.shape[axis]).reshape([-1 if i == axis else 1 for i in range(buffer.ndim)])
    which = slots - starts.reshape(-1, *others)
    inside = (which >= 0) & (which < count)
    spare = zeros(*(1 if i == axis else size for i, size in enumerate(new.shape)), dtype=new.dtype)
    taken = ops.take_along(ops.concat([new, spare], axis), ops.where(inside, which, count), axis=axis)
    return ops.where(inside, taken, buffer)


@among(CACHES)
def decoded(draft: Drafting) -> Step | None:
    """One step or several through a cache that may hold positions before the first."""
    heads, width = draft.choose([(1, 1), (2, 1), (2, 2), (4, 2)]), draft.choose([8, 8, 8, 4])
    wide = width * (heads[0] + 2 * heads[1])
    last = draft.pick(has_width(3)) if draft.flag() else None
    if last is None:
        sizes = (draft.choose([dim("N"), dim("N"), 1, 2]), draft.choose([dim("L"), dim("L"), 1, 3]), wide)
        last = draft.input(draft.choose([float32, *FLOATS]), sizes)
    kind = draft.values[last].type
    n, _, e = kind.shape
    project = nn.Identity() if e == wide else filled(nn.Linear(e, wide), kind.dtype)  # type: ignore[arg-type]
    options = {
        "window": draft.choose([None, None, None, 1, 2, 5]),
        "softcap": draft.choose([0.0, 0.0, 0.0, 2.0]),
        "scale": draft.choose([*[None, 0.5, 0.1] * 3, 1e-20, 50.0]),
        "is_causal": draft.number(0, 4) > 0,
    }
    decoder = Decoder(heads, width, project, draft.flag(), **options)
    lengths = [draft.choose([dim("P"), dim("L"), 1, 1, 2, 3]) for _ in range(draft.number(0, 2))]
    texts = [*(draft.input(kind.dtype, (n, length, e)) for length in lengths), last]
    buffered = draft.number(0, 2) > 0
    more, read = (buffer if buffered else grown)(draft, decoder, texts)
    return Step(
        f"{read.__name__}: {heads} heads of {width} {options}",
        (*texts, *more),
        lambda *tensors: decoder.stepped(read(tensors[: len(texts)], tensors[len(texts) :])),
        layer=decoder,
        definition=lambda *tensors: decoder.at_once(read(tensors[: len(texts)], tensors[len(texts) :])),
        in_place={1: len(texts), 2: len(texts) + 1} if buffered else {},
    )


Read = Callable[[Sequence[Tensor], Sequence[Tensor]], DecoderInputs]


def grown(draft: Drafting, decoder: Decoder, texts: Sequence[int]) -> tuple[list[int], Read]:
    """A growing cache, of the same number of positions in each row; masks of keys pad texts anywhere."""
    kind, past = draft.values[texts[0]].type, draft.choose([0, dim("P"), 2])
    n, kv_heads = kind.shape[0], decoder.heads[1]
    held = [draft.input(kind.dtype, (n, kv_heads, past, decoder.width)) for _ in range(0 if same(past, 0) else 2)]
    masks: list[int] = []
    if draft.flag():
        masked = mask_type(draft, kind.dtype)
        lengths = [*[past][: len(held)], *(draft.values[i].type.shape[1] for i in texts)]
        masks = [draft.input(masked, (n, length), mask_recipe) for length in lengths]

    def growing(texts: Sequence[Tensor], more: Sequence[Tensor]) -> DecoderInputs:
        shape = nn.CacheShape(1, kv_heads, decoder.width, texts[0].dtype)
        cache = nn.KeyValueCache(*more[:2]) if held else nn.KeyValueCache.empty(shape, texts[0].shape[0])
        return DecoderInputs(texts, cache, key_masks=more[len(held) :])

    return [*held, *masks], growing


def buffer(draft: Drafting, decoder: Decoder, texts: Sequence[int]) -> tuple[list[int], Read]:
    """Buffers with some room at the end, or none, of which each row has filled another part."""
    kind, room = draft.values[texts[0]].type, draft.choose([0, 1, dim("S"), 4])
    n, (all_heads, kv_heads) = kind.shape[0], decoder.heads
    capacity = sum(draft.values[i].type.shape[1] for i in texts) + room
    more = [draft.input(kind.dtype, (n, kv_heads, capacity, decoder.width)) for _ in range(2)]
    more.append(draft.input(bool_, (n, room), mask_recipe))
    if not draft.number(0, 3):
        shape = draft.choose([(n, 1, 1, capacity), (1, all_heads, 1, capacity)])
        more.append(draft.input(mask_type(draft, kind.dtype), shape, mask_recipe))

    def fixed(texts: Sequence[Tensor], more: Sequence[Tensor]) -> DecoderInputs:
        keys, values, drawn, *mask = more
        return DecoderInputs(texts, nn.KeyValueBuffer(keys, values, counted(drawn)), *mask)

    return more, fixed


@among(CACHES)
def written_alone(draft: Drafting) -> Step | None:
    """A write into a buffer of any type, along any axis but the first."""
    new = draft.pick(lambda v: 2 <= v.rank <= 4)
    if new is None:
        return None
    kind = draft.values[new].type
    axis, room = draft.number(1, kind.rank - 1), draft.choose([0, 1, dim("S")])
    shape = [size + room if i == axis else size for i, size in enumerate(kind.shape)]
    arguments = (draft.input(kind.dtype, shape), new, draft.input(bool_, (kind.shape[0], room), mask_recipe))
    return Step(
        f"write_at axis {axis}",
        arguments,
        lambda b, x, drawn: ops.write_at(b, x, counted(drawn), axis=axis),
        exact=True,
        definition=lambda b, x, drawn: written(b, x, counted(drawn), axis),
        in_place={0: 0},
    )


def counted(drawn: Tensor) -> Tensor:
    """Where the rows of a buffer begin: numbers from 0 to the room in it, from as many booleans (N, room)."""
    return drawn.astype(int64).sum(1)
