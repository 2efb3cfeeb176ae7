"""Decoders whose layers carry states of a fixed size from token to token instead of keys and values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lucid import ops
from lucid.core.graph.types import Array, DType, int64, spec
from lucid.core.process.context import evaluating
from lucid.core.sizes.dims import Size, same
from lucid.nn.cache import check_states
from lucid.nn.decoding import CausalDecoder, padded_left
from lucid.nn.model_parts import CacheKind, Step, Steps, carried_outputs, consecutive
from lucid.ops.creation import zeros
from lucid.ops.tensor.tensor import Tensor

_BATCH, _NEW, _TOTAL = "batch_size", "sequence_length", "total_sequence_length"


class RecurrentDecoder(CausalDecoder):
    """A `CausalDecoder` of layers such as Mamba's, whose state has the same size after any number of tokens.

    A subclass defines `state_types` and `layer_count`, and its forward takes and returns, as `past_key_values`, a list
    of such tuples, one for each layer. Padding comes before a text: padding after it would change its state.
    """

    @property
    def state_types(self) -> Any:
        """A named tuple of the types of a layer's state, without the batch: ``State(conv=spec(8, 3), ...)``."""
        raise NotImplementedError(f"{type(self).__name__} has no state_types: define the property")

    @property
    def layer_count(self) -> int:
        """The number of layers."""
        raise NotImplementedError(f"{type(self).__name__} has no layer_count: define the property")

    def empty_cache(self, batch: Size, capacity: int | None = None) -> list[Any]:
        """The states before the first token: zeros.

        Raises:
            ValueError: for a capacity, which states do not have.
        """
        if capacity is not None:
            raise ValueError(f"{type(self).__name__}: states have no capacity, got {capacity}; leave it out")
        types = self.state_types
        return [
            types._make(zeros(batch, *type_.shape, dtype=type_.dtype) for type_ in types)
            for _ in range(self.layer_count)
        ]

    def check_cache(self, caches: Sequence[Any] | None) -> None:
        if caches is not None:
            check_states(type(self).__name__, self.layer_count, self.state_types._asdict(), caches)

    def cached_input_specs(self, cache: CacheKind = "growing", capacity: Size | None = None) -> Mapping[str, Any]:
        """The inputs of a step of any number of tokens. The mask may also cover earlier tokens.

        Raises:
            ValueError: for a cache other than "growing".
        """
        if cache != "growing":
            raise ValueError(
                f'{type(self).__name__}: cache is "{cache}", expected "growing": its states are of one size'
            )
        ids, types = spec(_BATCH, _NEW, dtype=int64), self.state_types
        states = types._make(spec(_BATCH, *type_.shape, dtype=type_.dtype) for type_ in types)
        mask = spec(_BATCH, _TOTAL, dtype=int64)
        return {"input_ids": ids, "attention_mask": mask, "past_key_values": [states] * self.layer_count}

    def _compared_sizes(self, cache: CacheKind, capacity: Size | None) -> list[dict[str, int]]:
        runs = ((1, 1, 0), (2, 3, 4), (3, 1, 2))
        return [{_BATCH: batch, _NEW: new, _TOTAL: earlier + new} for batch, new, earlier in runs]

    def _compared_steps(self, cache: CacheKind, capacity: Size | None, prompt: int) -> Steps:
        runs = []
        for before, new in consecutive(prompt):
            mask = (np.arange(before + new) >= [[0], [min(1, before + new - 1)]]).astype(np.int64)
            runs.append(Step({_BATCH: 2, _NEW: new, _TOTAL: before + new}, {"attention_mask": mask}))
        return Steps(carried_outputs(self.cached_output_names()), runs)

    def _drawn(self, inputs: Mapping[str, Any], sizes: Mapping[str, int]) -> dict[str, Array]:
        batch, new = sizes[_BATCH], sizes[_NEW]
        earlier = max(0, sizes[_TOTAL] - new)
        mask, states = padded_left(batch, earlier, new), self.empty_cache(batch)
        with evaluating():
            ids = self._drawn_tokens(batch, earlier + new)
            if earlier:
                first, hidden = (Tensor.from_array(x[:, :earlier]) for x in (ids, mask))
                _, states = self(first, hidden, past_key_values=states)
        drawn = {"input_ids": ids[:, earlier:], "attention_mask": mask}
        for layer, state in enumerate(states):
            drawn |= {f"past_key_values.{layer}.{name}": x.numpy() for name, x in state._asdict().items()}
        return drawn

    def cached_output_names(self) -> list[str]:
        names = self.state_types._fields
        return ["logits", *(f"present.{layer}.{name}" for layer in range(self.layer_count) for name in names)]


def mask_of_new_tokens(attention_mask: Tensor, new: Size, dtype: DType) -> Tensor:
    """The mask (N, P + L) of the last L tokens, as numbers (N, L, 1) to multiply by."""
    total = attention_mask.shape[1]
    if not same(total, new):
        attention_mask = ops.take(attention_mask, ops.arange(total - new, total), 1)
    return attention_mask.astype(dtype).unsqueeze(-1)
