"""Encoder-decoders: modules whose decoder attends to an encoder's output, for all tokens at once or step by step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np

from lucid.core.graph.types import TensorType, bool_, int64, spec
from lucid.core.sizes.dims import Size, dim, names_of
from lucid.nn.cache import (
    Cache,
    CacheShape,
    KeyValueBuffer,
    KeyValueCache,
    cache_positions,
    check_cache,
    empty_caches,
    layer_caches,
    present_caches,
)
from lucid.nn.decoding import kept_positions
from lucid.nn.model_parts import (
    Alternative,
    CacheKind,
    ModelPart,
    PartName,
    Step,
    Steps,
    buffer_sizes,
    carried_outputs,
    consecutive,
)
from lucid.nn.module import Module
from lucid.ops.tensor.tensor import Tensor

# The names that optimum and transformers.js give to the axes: the second makes the first, empty cache by them.
_BATCH, _SOURCE, _NEW, _PAST = (
    "batch_size",
    "encoder_sequence_length",
    "decoder_sequence_length",
    "past_decoder_sequence_length",
)


_ENCODED = 5  # positions of the encoder, where steps are compared


class EncoderDecoderCache(NamedTuple):
    """The caches of one decoder layer: of the decoder's own positions, and of the encoder's, which stay the same."""

    decoder: Cache
    encoder: KeyValueCache


class EncoderDecoder(Module):
    """A module with an encoder and a decoder that can continue from a cache.

    The keys and values that the decoder's layers compute from the encoder's output are computed once and are part of
    the cache::

        states = model.encode(source_ids, attention_mask)
        cache = model.empty_cache(states)                                # or with capacity=64: buffers
        logits, cache = model.decode(start, cache, attention_mask)       # one token or several
        logits, cache = model.decode(logits[:, -1:].argmax(-1), cache, attention_mask)

    A subclass defines `forward` for all tokens at once, `cache_shape`, `encoder_width`, `encode`, `cross_caches`,
    `step`, `logits`, and for inputs other than token ids `encoder_input_specs`; `empty_cache`, `decode` and the
    exported parts follow from these. The decoder's texts have no mask of their own, so they are not padded on the left;
    with buffers they may be padded on the right.
    """

    output_names: ClassVar[Sequence[str]] = ("logits",)

    @property
    def cache_shape(self) -> CacheShape:
        """Layers of the decoder, heads of their keys and values, their width and element type."""
        raise NotImplementedError(f"{type(self).__name__} has no cache_shape: define the property to give it a cache")

    @property
    def encoder_width(self) -> int:
        """E, the width of the encoder's output."""
        raise NotImplementedError(f"{type(self).__name__} has no encoder_width: define the property")

    def encoder_input_specs(self) -> Mapping[str, TensorType]:
        """The inputs of `encode` by name. With `attention_mask`, the decoder takes one of the encoder's positions."""
        ids = spec(_BATCH, _SOURCE, dtype=int64)
        return {"input_ids": ids, "attention_mask": ids}

    def encode(self, *args: Any, **kwargs: Any) -> Tensor:
        """The encoder's output (N, S, E), from the inputs that `encoder_input_specs` names."""
        raise NotImplementedError(f"{type(self).__name__} has no encode(): define it with the encoder's computation")

    def cross_caches(self, encoder_hidden_states: Tensor) -> list[KeyValueCache]:
        """The keys and values of each decoder layer for the encoder's output (N, S, E)."""
        raise NotImplementedError(f"{type(self).__name__} has no cross_caches(): define it, one cache a layer")

    def step(
        self,
        input_ids: Tensor,
        positions: Tensor,
        caches: Sequence[EncoderDecoderCache],
        key_mask: Tensor | None,
    ) -> tuple[Tensor, Sequence[Cache | None]]:
        """The decoder's vectors (N, L, width) for new tokens, and each layer's cache of its positions, including these.

        Args:
            input_ids: (N, L) int64.
            positions: their positions, (L,), or (N, L) if each row of the batch has its own.
            caches: of each layer.
            key_mask: (N, S) booleans: the encoder's positions that count.
        """
        raise NotImplementedError(f"{type(self).__name__} has no step(): define it with the decoder's computation")

    def logits(self, x: Tensor) -> Tensor:
        """The output layer: the decoder's vectors (N, L, width) to (N, L, vocab_size)."""
        raise NotImplementedError(f"{type(self).__name__} has no logits(): define it with the output layer")

    def empty_cache(self, encoder_hidden_states: Tensor, capacity: int | None = None) -> list[EncoderDecoderCache]:
        """The cache before the first token: keys and values of the encoder's output (N, S, E), and none for the
        decoder.

        The decoder's cache grows, or consists of buffers of a capacity.
        """
        own = empty_caches(self.cache_shape, encoder_hidden_states.shape[0], capacity)
        return list(map(EncoderDecoderCache, own, self.cross_caches(encoder_hidden_states)))

    def decode(
        self,
        input_ids: Tensor,
        past_key_values: Sequence[EncoderDecoderCache],
        encoder_attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        logits_to_keep: int | Tensor | None = None,
    ) -> tuple[Tensor, list[EncoderDecoderCache]]:
        """The logits of the token that follows each new one, and the cache of all positions.

        Args:
            input_ids: (N, L) int64, the new tokens of the decoder.
            past_key_values: the cache of the earlier ones; see `empty_cache`.
            encoder_attention_mask: (N, S) int64, 1 = keep, 0 = padding of the encoder's input.
            position_ids: (N, L) int64, for buffers without `filled`; else positions are counted.
            logits_to_keep: the number of last positions that get logits, or (N,) the position of each row; default all.

        Returns:
            (N, L, vocab_size), and the new cache.

        Raises:
            ValueError: for a cache of another model, batch or element type, and `position_ids` with a cache that grows.
        """
        own = [cache.decoder for cache in past_key_values]
        self._check(own, [cache.encoder for cache in past_key_values])
        if position_ids is not None and own and isinstance(own[0], KeyValueCache):
            raise ValueError(
                f"{type(self).__name__}: got position_ids with a cache that grows, expected none: it counts them itself"
            )
        filled = layer_caches(own, position_ids, len(own))
        caches = [past._replace(decoder=c) for past, c in zip(past_key_values, filled, strict=True) if c is not None]
        key_mask = None if encoder_attention_mask is None else encoder_attention_mask.astype(bool_)
        positions = cache_positions(input_ids, position_ids, filled)
        x, present = self.step(input_ids, positions, caches, key_mask)
        kept = zip(past_key_values, present_caches(own, present), strict=True)
        return self.logits(kept_positions(x, logits_to_keep)), [past._replace(decoder=c) for past, c in kept]

    def _check(self, own: Sequence[Cache], cross: Sequence[KeyValueCache]) -> None:
        for side, caches in (("decoder", own), ("encoder", cross)):
            check_cache(type(self).__name__, self.cache_shape, caches, f"{side}.")

    # Exported parts ---------------------------------------------------------------------------------------------------

    def part(
        self, part: PartName = "decoder", cache: CacheKind | None = None, capacity: Size | None = None
    ) -> ModelPart:
        """The part that `lucid.export.to_onnx` exports with these arguments."""
        if part == "encoder":
            outputs = ["last_hidden_state"]
            if cache is None:
                return ModelPart(self.encode, self.encoder_input_specs(), outputs)
            return ModelPart(self._encode_with_cache, self.encoder_input_specs(), outputs + self._present("encoder"))
        own, both = ["logits", *self._present("decoder")], ["logits", *self._present("decoder", "encoder")]
        new, states = self._new_specs(), spec(_BATCH, _SOURCE, self.encoder_width, dtype=self.cache_shape.dtype)
        if part == "decoder" and cache is not None:
            sizes = None
            if cache == "fixed":
                new["position_ids"] = spec(_BATCH, _NEW, dtype=int64)
                sizes = buffer_sizes(_BATCH, (_NEW, _SOURCE), "capacity", capacity)
            inputs = {**new, "past_key_values": self._cache_specs(cache, capacity)}
            return ModelPart(self._step, inputs, own, sizes=sizes, steps=partial(self._compared_steps, cache, capacity))
        if part == "decoder":
            return ModelPart(self._first_step, {**new, "encoder_hidden_states": states}, both)
        # Before the first step the cache of the encoder's positions is empty, so its length has another name.
        caches = self._cache_specs("growing", None, f"{_SOURCE}_out")
        inputs = {**new, "encoder_hidden_states": states, "past_key_values": caches}
        inputs["use_cache_branch"] = spec(1, dtype=bool_)
        first = Alternative("use_cache_branch", self._merged_first_step)
        return ModelPart(self._merged_step, inputs, both, first, _merged_sizes())

    def _compared_steps(self, cache: CacheKind, capacity: Size | None, prompt: int) -> Steps:
        """A prompt and tokens after it, in two rows."""
        steps, runs = consecutive(prompt, capacity), []
        slots = names_of([dim("capacity") if capacity is None else capacity])
        for before, new in steps:
            sizes, inputs = {_BATCH: 2, _SOURCE: _ENCODED, _NEW: new}, {}
            if cache == "growing":
                sizes[_PAST] = before
            else:
                inputs["position_ids"] = np.tile(np.arange(before, before + new), (2, 1))
                sizes |= dict.fromkeys(slots, sum(steps[-1]) + prompt)
            runs.append(Step(sizes, inputs))
        return Steps(carried_outputs(["logits", *self._present("decoder")]), runs)

    def _new_specs(self) -> dict[str, Any]:
        inputs = {"input_ids": spec(_BATCH, _NEW, dtype=int64)}
        if "attention_mask" in self.encoder_input_specs():
            inputs["encoder_attention_mask"] = spec(_BATCH, _SOURCE, dtype=int64)
        return inputs

    def _cache_specs(self, cache: CacheKind, capacity: Size | None, source: str = _SOURCE) -> list[EncoderDecoderCache]:
        shape, grows = self.cache_shape, cache == "growing"
        slots: Size | str = _PAST if grows else "capacity" if capacity is None else capacity
        past: Any = spec(_BATCH, shape.kv_heads, slots, shape.head_dim, dtype=shape.dtype)
        cross: Any = spec(_BATCH, shape.kv_heads, source, shape.head_dim, dtype=shape.dtype)
        own = KeyValueCache(past, past) if grows else KeyValueBuffer(past, past)
        return [EncoderDecoderCache(own, KeyValueCache(cross, cross))] * shape.layers

    def _present(self, *sides: str) -> list[str]:
        layers = range(self.cache_shape.layers)
        return [f"present.{layer}.{side}.{name}" for layer in layers for side in sides for name in ("key", "value")]

    def _encode_with_cache(self, **inputs: Tensor) -> tuple[Tensor, list[KeyValueCache]]:
        states = self.encode(**inputs)
        return states, self.cross_caches(states)

    def _first_step(
        self,
        input_ids: Tensor,
        encoder_hidden_states: Tensor,
        encoder_attention_mask: Tensor | None = None,
        logits_to_keep: int | Tensor | None = None,
    ) -> tuple[Tensor, list[EncoderDecoderCache]]:
        cache = self.empty_cache(encoder_hidden_states)
        return self.decode(input_ids, cache, encoder_attention_mask, None, logits_to_keep)

    def _step(
        self,
        input_ids: Tensor,
        past_key_values: Sequence[EncoderDecoderCache],
        encoder_attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        logits_to_keep: int | Tensor | None = None,
    ) -> tuple[Tensor, list[Cache]]:
        logits, present = self.decode(input_ids, past_key_values, encoder_attention_mask, position_ids, logits_to_keep)
        return logits, [cache.decoder for cache in present]

    def _merged_step(
        self,
        input_ids: Tensor,
        past_key_values: Sequence[EncoderDecoderCache],
        encoder_hidden_states: Tensor,
        use_cache_branch: Tensor,
        encoder_attention_mask: Tensor | None = None,
        logits_to_keep: int | Tensor | None = None,
    ) -> tuple[Tensor, list[EncoderDecoderCache]]:
        """A step with a cache that returns all caches, as the first step does. Those of the encoder's positions are
        empty: the caller has them, and returning them would copy them at each step.
        """
        source = past_key_values[0].encoder.key.shape[2]
        mask = None if encoder_attention_mask is None else encoder_attention_mask[:, :source]
        logits, present = self.decode(input_ids, past_key_values, mask, None, logits_to_keep)
        return logits, [
            cache._replace(encoder=KeyValueCache(cache.encoder.key[:, :, :0], cache.encoder.value[:, :, :0]))
            for cache in present
        ]

    def _merged_first_step(
        self,
        input_ids: Tensor,
        past_key_values: Sequence[EncoderDecoderCache],
        encoder_hidden_states: Tensor,
        use_cache_branch: Tensor,
        encoder_attention_mask: Tensor | None = None,
        logits_to_keep: int | Tensor | None = None,
    ) -> tuple[Tensor, list[EncoderDecoderCache]]:
        """The first step, with the inputs of `_merged_step`."""
        return self._first_step(input_ids, encoder_hidden_states, encoder_attention_mask, logits_to_keep)


def _merged_sizes() -> list[dict[str, int]]:
    """Sizes to compare both steps on the same inputs: the cache has a part of the encoder's positions."""
    names = _BATCH, _SOURCE, f"{_SOURCE}_out", _NEW, _PAST
    return [dict(zip(names, sizes, strict=True)) for sizes in ((1, 1, 1, 1, 1), (2, 5, 3, 2, 4), (3, 4, 4, 1, 2))]
