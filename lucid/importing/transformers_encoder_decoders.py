"""Encoder-decoders of transformers as modules: an encoder, keys and values of its output, a step with caches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from inspect import signature
from typing import Any

import torch
from transformers import DynamicCache, EncoderDecoderCache
from transformers.modeling_outputs import BaseModelOutput

from lucid.core.graph.types import Array, TensorType, int64, spec
from lucid.core.sizes.dims import Size
from lucid.importing.program import Program
from lucid.importing.torch_import import TorchImportError
from lucid.importing.torch_modules import dtype_of
from lucid.importing.transformers_classes import Checkpoint
from lucid.importing.transformers_inputs import axes_of, example, example_sizes, input_specs
from lucid.importing.transformers_modules import FromTransformers, cache_option, tensors_of
from lucid.nn.cache import CacheShape, KeyValueCache
from lucid.nn.encoder_decoder import EncoderDecoder
from lucid.nn.encoder_decoder import EncoderDecoderCache as Caches
from lucid.nn.model_parts import CacheKind, ModelPart, PartName
from lucid.ops.creation import ones
from lucid.ops.tensor.tensor import Tensor

_BATCH, _SOURCE = "batch_size", "encoder_sequence_length"


class TorchEncoderDecoder(FromTransformers, EncoderDecoder):
    """An encoder and a decoder with a cache that grows; the cache holds all that the decoder reads of the encoder."""

    encoder_program: Program
    cross_program: Program
    step_program: Program
    _shape: CacheShape
    _width: int
    _source: dict[str, TensorType]

    def take(self, checkpoint: Checkpoint, inputs: Mapping[str, TensorType]) -> None:
        main = checkpoint.model.main_input_name
        if set(inputs) - ({main} - {"input_ids"}):
            raise TorchImportError(f"{self._kind} has the inputs of every encoder-decoder: leave --input out")
        model, calls = checkpoint.model, _Calls(self._kind, checkpoint.model)
        self._source = {main: {**input_specs(checkpoint, inputs), **inputs}[main]}
        if main == "input_ids":
            self._source["attention_mask"] = self._source[main]
        sizes = example_sizes(self._source)
        examples = {name: example(name, kind, sizes) for name, kind in self._source.items()}
        axes = {name: axes_of(kind) for name, kind in self.encoder_input_specs().items()}
        with torch.no_grad():
            states = calls.encode(**examples)
            cross = calls.cross(states)
            rows = states.shape[0]
            ids = torch.arange(3).expand(rows, 3)
            past = [[key[:, :, :0], value[:, :, :0], key, value] for key, value in cross]
            own_cache = calls.step(ids, past)["present"]
        shapes = {(tuple(key.shape[1::2]), tuple(value.shape[1::2])) for key, value in [*cross, *own_cache]}
        if len(shapes) != 1 or len(set(next(iter(shapes)))) != 1:
            raise TorchImportError(f"{self._kind}: its caches have several sizes of heads, expected one in all layers")
        (heads, width), _ = shapes.pop()
        self._width = int(states.shape[2])
        self._shape = CacheShape(len(cross), heads, width, dtype_of(states.dtype))
        self.encoder_program, _ = self._program_of(model, calls.encode, examples, axes)
        states_axes = {"encoder_hidden_states": (_BATCH, _SOURCE, None)}
        self.cross_program, _ = self._program_of(model, calls.cross, {"encoder_hidden_states": states}, states_axes)
        of_self, of_cross = (_BATCH, None, "past", None), (_BATCH, None, _SOURCE, None)
        longer = [[torch.cat([tensor, tensor], 2) for tensor in pair] for pair in own_cache]
        past = [[*pair, *of_source] for pair, of_source in zip(longer, cross, strict=True)]
        step_axes: dict[str, Any] = {"input_ids": (_BATCH, "new")}
        step_axes["past_key_values"] = [[of_self, of_self, of_cross, of_cross]] * len(past)
        step_inputs: dict[str, Any] = {"input_ids": ids, "past_key_values": past}
        if "attention_mask" in self._source:
            step_inputs["encoder_attention_mask"] = torch.ones(states.shape[:2], dtype=torch.int64)
            step_axes["encoder_attention_mask"] = (_BATCH, _SOURCE)
        self.step_program, _ = self._program_of(model, calls.step, step_inputs, step_axes)
        self._computed_by_torch = calls.outputs

    @property
    def cache_shape(self) -> CacheShape:
        return self._shape

    @property
    def encoder_width(self) -> int:
        return self._width

    def input_specs(self) -> Mapping[str, TensorType]:
        main, *mask = self._source
        target = {"decoder_input_ids": spec("N", "T", dtype=int64)}
        return {main: self._source[main], **target, **{name: self._source[name] for name in mask}}

    def encoder_input_specs(self) -> Mapping[str, TensorType]:
        """Token ids and their mask, or sounds, which are whole."""
        names = {"N": _BATCH, "L": _SOURCE if "attention_mask" in self._source else "L"}
        return {
            key: spec(*(names.get(str(size), size) for size in kind.shape), dtype=kind.dtype)
            for key, kind in self._source.items()
        }

    def part(
        self, part: PartName = "decoder", cache: CacheKind | None = None, capacity: Size | None = None
    ) -> ModelPart:
        if cache == "fixed":
            raise ValueError("cache='fixed': a decoder that torch read has a growing cache; use cache='growing'")
        return super().part(part, cache, capacity)

    def forward(self, *inputs: Tensor, **named: Tensor) -> Tensor:
        """Logits (N, T, vocabulary) of the decoder's tokens (N, T) for the encoder's input."""
        by_name = dict(zip(self.input_specs(), inputs, strict=False)) | named
        ids = by_name.pop("decoder_input_ids")
        states = self.encode(**by_name)
        return self.decode(ids, self.empty_cache(states), by_name.get("attention_mask"))[0]

    def encode(self, *inputs: Tensor, **named: Tensor) -> Tensor:
        by_name = dict(zip(self._source, inputs, strict=False)) | named
        if "attention_mask" in self._source and by_name.get("attention_mask") is None:
            by_name["attention_mask"] = ones(*by_name["input_ids"].shape, dtype=int64)
        states: Tensor = self.encoder_program(*(by_name[name] for name in self._source))
        return states

    def cross_caches(self, encoder_hidden_states: Tensor) -> list[KeyValueCache]:
        return [KeyValueCache(*pair) for pair in self.cross_program(encoder_hidden_states)]

    def step(
        self, input_ids: Tensor, positions: Tensor, caches: Sequence[Caches], key_mask: Tensor | None
    ) -> tuple[Tensor, Sequence[Any]]:
        """Logits in the place of vectors; transformers counts the positions itself."""
        source = caches[0].encoder.key
        past: list[Any] = [[*cache.decoder[:2], *cache.encoder] for cache in caches]
        masks = []
        if "attention_mask" in self._source:
            whole = source.shape[0], source.shape[2]
            masks = [ones(*whole, dtype=int64) if key_mask is None else key_mask.astype(int64)]
        outputs = self.step_program(input_ids, past, *masks)
        return outputs["logits"], [KeyValueCache(*pair) for pair in outputs["present"]]

    def logits(self, x: Tensor) -> Tensor:
        return x


class _Calls:
    """Calls of a torch model with caches as tensors by layer."""

    def __init__(self, name: str, model: torch.nn.Module) -> None:
        self.model, self.forward = model, type(model).forward
        self.cache_name = cache_option(name, signature(model.forward).parameters)
        self.kind, self.width = BaseModelOutput, 0  # of the encoder's output

    def encode(self, **inputs: torch.Tensor) -> torch.Tensor:
        output = self.model.get_encoder()(**inputs)
        states: torch.Tensor = output.last_hidden_state
        self.kind, self.width = type(output), states.shape[2]
        return states

    def cross(self, encoder_hidden_states: torch.Tensor) -> list[list[torch.Tensor]]:
        """The keys and values of the encoder's output for the decoder's layers."""
        cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
        ids = torch.zeros(encoder_hidden_states.shape[0], 1, dtype=torch.int64)
        self._decoded(ids, encoder_hidden_states, None, cache)
        return [[layer.keys, layer.values] for layer in cache.cross_attention_cache.layers]

    def step(
        self,
        input_ids: torch.Tensor,
        past_key_values: Sequence[Sequence[torch.Tensor]],
        encoder_attention_mask: torch.Tensor | None = None,
    ) -> dict[str, Any]:
        own, cross = DynamicCache(), DynamicCache()
        for layer, (key, value, cross_key, cross_value) in enumerate(past_key_values):
            own.update(key, value, layer)
            cross.update(cross_key, cross_value, layer)
        source = past_key_values[0][2]
        if encoder_attention_mask is not None:
            torch._check(encoder_attention_mask.shape[1] == source.shape[2])
        states = torch.zeros(source.shape[0], source.shape[2], self.width)  # in the place of what is in the cache
        cache = EncoderDecoderCache(own, cross)
        logits = self._decoded(input_ids, states, encoder_attention_mask, cache)
        return {"logits": logits, "present": [[layer.keys, layer.values] for layer in own.layers]}

    def _decoded(
        self, ids: torch.Tensor, states: torch.Tensor, mask: torch.Tensor | None, cache: EncoderDecoderCache
    ) -> torch.Tensor:
        masks = {} if mask is None else {"attention_mask": mask}
        options = {"use_cache": True, self.cache_name: cache, **masks}
        encoded = self.kind(last_hidden_state=states)
        logits: torch.Tensor = self.forward(
            self.model, encoder_outputs=encoded, decoder_input_ids=ids, **options
        ).logits
        return logits

    def outputs(self, arrays: Mapping[str, Array]) -> list[torch.Tensor]:
        """The outputs of a part, found by its inputs; an encoder's with the caches."""
        tensors = tensors_of(arrays)
        mask = tensors.get("encoder_attention_mask", tensors.get("attention_mask"))
        if any(name.startswith("past_key_values.") for name in tensors):
            sides = [(side, name) for side in ("decoder", "encoder") for name in ("key", "value")]
            layers = sum(name.endswith(".decoder.key") for name in tensors)
            past = [[tensors[f"past_key_values.{i}.{side}.{name}"] for side, name in sides] for i in range(layers)]
            return _flat(self.step(tensors["input_ids"], past, mask))
        ids = tensors.pop("decoder_input_ids", None)
        states = tensors.get("encoder_hidden_states")
        if states is not None:
            ids = tensors["input_ids"]
        else:
            states = self.encode(**tensors)
        cross = self.cross(states)
        if ids is None:
            return [states, *(tensor for pair in cross for tensor in pair)]
        past = [[key[:, :, :0], value[:, :, :0], key, value] for key, value in cross]
        outputs = self.step(ids, past, mask)
        outputs["present"] = [[*own, *pair] for own, pair in zip(outputs["present"], cross, strict=True)]
        return _flat(outputs)


def _flat(outputs: Mapping[str, Any]) -> list[torch.Tensor]:
    return [outputs["logits"], *(tensor for pair in outputs["present"] for tensor in pair)]
