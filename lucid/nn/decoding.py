"""Decoders: modules from token ids to logits, for all tokens at once or step by step with a cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, overload

import numpy as np

from lucid import ops
from lucid.core.graph.types import Array, TensorType, int64, show_shape, spec
from lucid.core.number_ranges import is_whole
from lucid.core.process import random
from lucid.core.process.context import evaluating
from lucid.core.sizes.dims import Size, dim, evaluate, names_of, same, sym_min
from lucid.nn.cache import Cache, CacheShape, KeyValueBuffer, KeyValueCache, check_cache, empty_caches
from lucid.nn.model_parts import CacheKind, ModelPart, Step, Steps, buffer_sizes, carried_outputs, consecutive
from lucid.nn.module import Module
from lucid.ops.tensor.tensor import Tensor

# The names that optimum gives to the axes of a step; transformers.js makes the first, empty cache by that of the batch.
BATCH, NEW, PAST, TOTAL = "batch_size", "sequence_length", "past_sequence_length", "total_sequence_length"
_CAPACITY = "capacity"
_DRAWN = 8  # positions of a buffer that a comparison fills


class CausalDecoder(Module):
    """A module from token ids to logits that can continue from a cache.

    A subclass defines `cache_shape` and::

        def forward(self, input_ids, attention_mask=None, position_ids=None, past_key_values=None): ...

    which returns the logits (N, L, vocabulary) of the next token for each position; with `past_key_values`, a pair of
    the logits and the new list of caches. Attention layers use `nn.functional.cached_attention` for both. A prompt
    needs logits for its last token only, so a forward may also take `logits_to_keep`, the number of last positions or
    the position of each row that get logits (`kept_positions`); the class then sets `takes_logits_to_keep = True`.

    ::

        cache = decoder.empty_cache(1)
        logits, cache = decoder(prompt, past_key_values=cache)                 # all tokens of the prompt at once
        logits, cache = decoder(logits[:, -1:].argmax(-1), past_key_values=cache)       # then one at a time
    """

    output_names: ClassVar[Sequence[str]] = ("logits",)
    takes_logits_to_keep: ClassVar[bool] = False
    takes_fixed_cache: bool = True
    """Whether the cache may be buffers of a fixed capacity; otherwise it grows."""

    @property
    def cache_shape(self) -> CacheShape:
        """The number of layers, of heads of keys and values, their width and element type."""
        raise NotImplementedError(f"{type(self).__name__} has no cache_shape: define the property to give it a cache")

    def empty_cache(self, batch: int, capacity: int | None = None) -> list[Cache]:
        """The cache before the first step, one for each layer: growing from no positions, or buffers of a capacity."""
        return empty_caches(self.cache_shape, batch, capacity)

    def check_cache(self, caches: Sequence[Cache] | None) -> None:
        """Raise ValueError for a cache of another model."""
        check_cache(type(self).__name__, self.cache_shape, caches)

    def input_specs(self) -> Mapping[str, TensorType]:
        ids = spec("N", "L", dtype=int64)
        return {"input_ids": ids, "attention_mask": ids}

    def cached_input_specs(self, cache: CacheKind = "growing", capacity: Size | None = None) -> Mapping[str, Any]:
        """The inputs of a step: L new tokens after P earlier ones, or in buffers of C slots, all of dynamic size."""
        shape = self.cache_shape
        grows = cache == "growing"
        slots: Size | str = PAST if grows else _slots(capacity)
        ids, mask = spec(BATCH, NEW, dtype=int64), spec(BATCH, f"{PAST} + {NEW}" if grows else TOTAL, dtype=int64)
        past: Any = [spec(BATCH, shape.kv_heads, slots, width, dtype=shape.dtype) for width in shape.widths]
        cache_class = KeyValueCache if grows else KeyValueBuffer
        caches = [cache_class(*past)] * shape.layers
        return {"input_ids": ids, "attention_mask": mask, "position_ids": ids, "past_key_values": caches}

    def cached_output_names(self) -> list[str]:
        """The names of the outputs of an exported step."""
        caches = [f"present.{layer}.{name}" for layer in range(self.cache_shape.layers) for name in ("key", "value")]
        return ["logits", *caches]

    def part(self, cache: CacheKind, capacity: Size | None = None) -> ModelPart:
        """The part to export with a cache."""
        inputs, outputs = self.cached_input_specs(cache, capacity), self.cached_output_names()
        sizes, draw = self._compared_sizes(cache, capacity), partial(self._drawn, inputs)
        steps = partial(self._compared_steps, cache, capacity)
        return ModelPart(self, inputs, outputs, sizes=sizes, draw=draw, steps=steps)

    def _compared_sizes(self, cache: CacheKind, capacity: Size | None) -> list[dict[str, int]] | None:
        """Sizes for comparing a step; None if any will do."""
        return buffer_sizes(BATCH, (NEW, TOTAL), _CAPACITY, capacity) if cache == "fixed" else None

    def _compared_steps(self, cache: CacheKind, capacity: Size | None, prompt: int) -> Steps:
        """A prompt and tokens after it, in two rows; with a growing cache, one row is padded on the left."""
        steps, runs = consecutive(prompt, capacity), []
        room = sum(steps[-1]) + prompt
        for before, new in steps:
            total = before + new
            sizes = {BATCH: 2, NEW: new}
            inputs = {"position_ids": np.tile(np.arange(before, total), (2, 1))}
            if cache == "growing":
                sizes[PAST] = before
                inputs["attention_mask"] = (np.arange(total) >= [[0], [min(1, total - 1)]]).astype(np.int64)
            else:
                sizes |= {TOTAL: total, **dict.fromkeys(names_of([_slots(capacity)]), room)}
            runs.append(Step(sizes, inputs))
        return Steps(carried_outputs(self.cached_output_names()), runs)

    def _drawn_tokens(self, *shape: int) -> Array:
        """Random tokens of the whole vocabulary."""
        vocabulary = self(Tensor.from_array(np.zeros((1, 1), np.int64))).numpy().shape[-1]
        return random.generator().integers(0, vocabulary, shape)

    def _drawn(self, inputs: Mapping[str, Any], sizes: Mapping[str, int]) -> dict[str, Array]:
        """Random tokens, and a cache that the model itself computed, for a comparison.

        Random numbers in a cache are unlike the keys of a trained model, which may answer them with numbers so large
        that rounding shows.
        """
        batch, new = sizes[BATCH], sizes[NEW]
        past = inputs["past_key_values"][0].key
        slots = evaluate(past.shape[2], sizes)
        grows = isinstance(inputs["past_key_values"][0], KeyValueCache)
        filled = slots if grows else max(0, min(slots - new, _DRAWN))
        with evaluating():
            ids = self._drawn_tokens(batch, filled + new)
            drawn = {"input_ids": ids[:, filled:]}
            if not grows:  # the rows of the batch are filled to different positions
                starts = filled - np.arange(batch) % (filled + 1)
                drawn["position_ids"] = starts[:, None] + np.arange(new)
            if not filled:
                return drawn
            _, caches = self(Tensor.from_array(ids[:, :filled]), past_key_values=self.empty_cache(batch))
        for layer, cache in enumerate(caches):
            for name, tensor in (("key", cache.key), ("value", cache.value)):
                array = np.zeros((*tensor.shape[:2], slots, tensor.shape[3]), tensor.dtype.numpy)
                array[:, :, :filled] = tensor.numpy()
                drawn[f"past_key_values.{layer}.{name}"] = array
        if grows:
            drawn["position_ids"] = np.tile(np.arange(filled, filled + new), (batch, 1))
            drawn["attention_mask"] = padded_left(batch, filled, new)
        return drawn

    # The return type depends on past_key_values, which a ParamSpec cannot express.
    @overload
    def __call__(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        *,
        past_key_values: None = None,
        logits_to_keep: int | Tensor | None = None,
        **more: Tensor | None,
    ) -> Tensor: ...

    @overload
    def __call__(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        *,
        past_key_values: Sequence[Cache],
        logits_to_keep: int | Tensor | None = None,
        **more: Tensor | None,
    ) -> tuple[Tensor, list[Cache]]: ...

    def __call__(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: Sequence[Cache] | None = None,
        logits_to_keep: int | Tensor | None = None,
        **more: Tensor | None,
    ) -> Any:
        self.check_cache(past_key_values)
        kept: Any = {} if logits_to_keep is None else {"logits_to_keep": logits_to_keep}  # not every decoder takes it
        return super().__call__(input_ids, attention_mask, position_ids, past_key_values, **kept, **more)


def _slots(capacity: Size | None) -> Size:
    """The number of slots of a buffer."""
    return dim(_CAPACITY) if capacity is None else capacity


def padded_left(batch: int, earlier: int, new: int) -> Array:
    """The mask of a step, with left padding of different lengths among the earlier tokens of each row."""
    padding = np.arange(batch)[:, None] % (earlier + 1)
    return (np.arange(earlier + new) >= padding).astype(np.int64)


def kept_positions(x: Tensor, keep: int | Tensor | None) -> Tensor:
    """Some positions of (N, L, width).

    Args:
        keep: the number of last positions, or all if there are fewer; or (N,) int64, the position to keep of each row,
            which gives (N, 1, width); or None for all.

    Raises:
        ValueError: for less than 1, or unless there is one position for each row.
        IndexError: eagerly, for a position that does not exist.
    """
    if keep is None:
        return x
    if isinstance(keep, Tensor):
        if keep.ndim != 1 or not same(keep.shape[0], x.shape[0]):
            raise ValueError(
                f"logits_to_keep has shape {show_shape(keep.shape)}, expected ({x.shape[0]},): a position for each row"
            )
        return ops.take_along(x, ops.unsqueeze(keep, (1, 2)), axis=1)
    if not is_whole(keep) or keep < 1:
        raise ValueError(
            f"logits_to_keep is {keep!r}, expected a whole number of 1 or more, one position for each row, or None"
        )
    return x[:, -1:] if keep == 1 else x[:, x.shape[1] - sym_min(x.shape[1], int(keep)) :]
