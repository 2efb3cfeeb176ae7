"""Decoders whose layers carry states of a fixed size from token to token, alone or next to keys and values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lucid import ops
from lucid.core.graph.types import Array, DType, int64, spec
from lucid.core.process.context import evaluating
from lucid.core.sizes.dims import Size, same
from lucid.nn.cache import KeyValueCache, check_states
from lucid.nn.decoding import BATCH, NEW, PAST, TOTAL, CausalDecoder, padded_left
from lucid.nn.model_parts import CacheKind, Step, Steps, carried_outputs, consecutive
from lucid.ops.creation import zeros
from lucid.ops.tensor.tensor import Tensor


class RecurrentDecoder(CausalDecoder):
    """A `CausalDecoder` with layers such as Mamba's, whose state has the same size after any number of tokens.

    A subclass defines `state_types`, and its forward takes and returns, as `past_key_values`, a list of such tuples,
    one for each layer. Layers of attention among them have keys and values, which grow. Padding comes before a text:
    padding after it would change its state.
    """

    takes_fixed_cache = False

    @property
    def state_types(self) -> Sequence[Any]:
        """The types of each layer's state, as a named tuple without the batch axis: ``State(conv=spec(8, 3), ...)``.

        `KeyValueCache.types` makes those of a layer of attention.
        """
        raise NotImplementedError(f"{type(self).__name__} has no state_types: define the property")

    def _types(self, past: Size) -> list[Any]:
        """`state_types` after so many tokens: of all sizes, only the number of keys and values is symbolic."""
        return [
            types._make(
                one.with_shape([size if isinstance(size, int) else past for size in one.shape]) for one in types
            )
            for types in self.state_types
        ]

    def empty_cache(self, batch: Size, capacity: int | None = None) -> list[Any]:
        """The states before the first token: zeros, and no keys and values.

        Raises:
            ValueError: for a capacity, which states do not have.
        """
        if capacity is not None:
            raise ValueError(f"{type(self).__name__}: states have no capacity, got {capacity}; leave it out")
        return [
            types._make(zeros(batch, *type_.shape, dtype=type_.dtype) for type_ in types) for types in self._types(0)
        ]

    def check_cache(self, caches: Sequence[Any] | None) -> None:
        if caches is not None:
            past = next((cache.key.shape[2] for cache in caches if isinstance(cache, KeyValueCache)), 0)
            check_states(type(self).__name__, [types._asdict() for types in self._types(past)], caches)

    def cached_input_specs(self, cache: CacheKind = "growing", capacity: Size | None = None) -> Mapping[str, Any]:
        """The inputs of a step of any number of tokens. Without layers of attention there are no positions, and the
        mask may also cover earlier tokens.

        Raises:
            ValueError: for a cache other than "growing".
        """
        if cache != "growing":
            raise ValueError(
                f'{type(self).__name__}: cache is "{cache}", expected "growing": its states are of one size'
            )
        ids = spec(BATCH, NEW, dtype=int64)
        states = [
            types._make(spec(BATCH, *type_.shape, dtype=type_.dtype) for type_ in types) for types in self.state_types
        ]
        mask = spec(BATCH, f"{PAST} + {NEW}" if self.has_attention else TOTAL, dtype=int64)
        positions = {"position_ids": ids} if self.has_attention else {}
        return {"input_ids": ids, "attention_mask": mask, **positions, "past_key_values": states}

    @property
    def has_attention(self) -> bool:
        """Whether some layers have keys and values."""
        return any(isinstance(types, KeyValueCache) for types in self.state_types)

    def _sizes(self, batch: int, earlier: int, new: int) -> dict[str, int]:
        return {BATCH: batch, NEW: new, **({PAST: earlier} if self.has_attention else {TOTAL: earlier + new})}

    def _compared_sizes(self, cache: CacheKind, capacity: Size | None) -> list[dict[str, int]]:
        runs = ((1, 1, 0), (2, 3, 4), (3, 1, 2))
        return [self._sizes(batch, earlier, new) for batch, new, earlier in runs]

    def _compared_steps(self, cache: CacheKind, capacity: Size | None, prompt: int) -> Steps:
        runs = []
        for before, new in consecutive(prompt):
            mask = (np.arange(before + new) >= [[0], [min(1, before + new - 1)]]).astype(np.int64)
            runs.append(Step(self._sizes(2, before, new), {"attention_mask": mask, **self._positions(2, before, new)}))
        return Steps(carried_outputs(self.cached_output_names()), runs)

    def _drawn(self, inputs: Mapping[str, Any], sizes: Mapping[str, int]) -> dict[str, Array]:
        batch, new = sizes[BATCH], sizes[NEW]
        earlier = sizes[PAST] if PAST in sizes else max(0, sizes[TOTAL] - new)
        mask, states = padded_left(batch, earlier, new), self.empty_cache(batch)
        with evaluating():
            ids = self._drawn_tokens(batch, earlier + new)
            if earlier:
                first, hidden = (Tensor.from_array(x[:, :earlier]) for x in (ids, mask))
                _, states = self(first, hidden, past_key_values=states)
        drawn = {"input_ids": ids[:, earlier:], "attention_mask": mask, **self._positions(batch, earlier, new)}
        for layer, state in enumerate(states):
            drawn |= {f"past_key_values.{layer}.{name}": x.numpy() for name, x in state._asdict().items()}
        return drawn

    def _positions(self, batch: int, earlier: int, new: int) -> dict[str, Array]:
        """The position ids of new tokens; empty for a model without attention, which takes none."""
        return {"position_ids": np.tile(np.arange(earlier, earlier + new), (batch, 1))} if self.has_attention else {}

    def cached_output_names(self) -> list[str]:
        states = enumerate(self.state_types)
        return ["logits", *(f"present.{layer}.{name}" for layer, types in states for name in types._fields)]


def mask_of_new_tokens(attention_mask: Tensor, new: Size, dtype: DType) -> Tensor:
    """The mask (N, P + L) of the last L tokens, as numbers (N, L, 1) to multiply by."""
    total = attention_mask.shape[1]
    if not same(total, new):
        attention_mask = ops.take(attention_mask, ops.arange(total - new, total), 1)
    return attention_mask.astype(dtype).unsqueeze(-1)
