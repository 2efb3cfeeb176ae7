"""Models of transformers as modules of Lucid, with the inputs and outputs of our own: called once, or with a cache."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from typing import Any

import torch
import transformers
from transformers import DynamicCache

from lucid.core.graph.types import Array, TensorType, int64
from lucid.core.sizes.dims import Size
from lucid.importing.buffered_steps import NoBuffersError, with_buffers
from lucid.importing.exporting import exported
from lucid.importing.program import Program, Weight
from lucid.importing.torch_import import TorchImportError
from lucid.importing.torch_modules import TorchPart, added, dtype_of
from lucid.importing.transformers_classes import Checkpoint, quiet
from lucid.importing.transformers_inputs import axes_of, example, example_sizes, input_specs
from lucid.nn.cache import CacheShape, KeyValueBuffer, KeyValueCache, cache_positions, empty_caches, layer_caches
from lucid.nn.decoding import CausalDecoder
from lucid.nn.model_parts import CacheKind, ModelPart
from lucid.nn.published_model import PublishedModel
from lucid.ops.creation import arange, ones
from lucid.ops.tensor.tensor import Tensor

_OUTPUTS = {  # of a task, as our own models have them; of another one all that are tensors
    **dict.fromkeys(("fill-mask", "text-classification", "token-classification", "reranking"), ("logits",)),
    **dict.fromkeys(("audio-classification", "image-classification", "image-segmentation"), ("logits",)),
    "automatic-speech-recognition": ("logits",),
    "question-answering": ("start_logits", "end_logits"),
    "feature-extraction": ("last_hidden_state",),
    "image-feature-extraction": ("last_hidden_state", "pooler_output"),
    "zero-shot-image-classification": ("logits_per_image", "logits_per_text", "text_embeds", "image_embeds"),
    "object-detection": ("logits", "pred_boxes"),
    "depth-estimation": ("predicted_depth",),
}
_BATCH, _NEW, _PAST = "batch_size", "sequence_length", "past_sequence_length"


class FromTransformers(TorchPart, PublishedModel):
    """A checkpoint that transformers read."""

    _computed_by_torch: Callable[[Mapping[str, Array]], list[torch.Tensor]]

    def __init__(self, checkpoint: Checkpoint) -> None:
        super().__init__(checkpoint.class_name)
        self._task = checkpoint.task
        self.keys_read: set[str] = set()

    @property
    def task(self) -> str:
        return self._task

    @property
    def class_name(self) -> str:
        return self._kind

    @property
    def read_by(self) -> str:
        return f"transformers {transformers.__version__} and torch {torch.__version__}"

    def file_notes(self) -> Mapping[str, str]:
        return {"lucid.via": "torch"}

    def take(self, checkpoint: Checkpoint, inputs: Mapping[str, TensorType]) -> None:
        """Import the model of a checkpoint, with specs for some of its inputs."""
        raise NotImplementedError

    def by_original(self, arrays: Mapping[str, Array]) -> Sequence[Array]:
        with torch.no_grad(), quiet():
            return [tensor.numpy() for tensor in self._computed_by_torch(arrays)]

    def _program_of(
        self, model: torch.nn.Module, step: Callable[..., Any], examples: Mapping[str, Any], axes: Mapping[str, Any]
    ) -> tuple[Program, Mapping[str, Any]]:
        """The program of a function that takes the place of a model's `forward`."""
        program, specs = added(self, *exported(model, (), examples, axes, step))
        self.keys_read |= {weight.key for weight in program.weights.values() if isinstance(weight, Weight)}
        return program, specs


class TorchModel(FromTransformers):
    """A model that is called once: of texts, images or sounds."""

    def take(self, checkpoint: Checkpoint, inputs: Mapping[str, TensorType]) -> None:
        model, parameters = checkpoint.model, signature(checkpoint.model.forward)
        if unknown := [name for name in inputs if name not in parameters.parameters]:
            names = ", ".join(parameters.parameters)
            raise TorchImportError(f"{self._kind} has no input {', '.join(unknown)}: it takes {names}")
        specs = {**input_specs(checkpoint, inputs), **inputs}
        call, kept = type(model).forward, _OUTPUTS.get(self._task, ())
        pooled = not any("pooler" in key for key in checkpoint.missing)
        model.config.use_cache, model.config.return_dict = False, True

        def step(**named: Any) -> dict[str, torch.Tensor]:
            outputs = {name: value for name, value in call(model, **named).items() if isinstance(value, torch.Tensor)}
            names = [name for name in kept if name in outputs and (pooled or name != "pooler_output")]
            return {name: outputs[name] for name in names or outputs}

        step.__signature__ = parameters  # type: ignore[attr-defined]
        sizes = example_sizes(specs)
        examples = {name: example(name, kind, sizes) for name, kind in specs.items()}
        axes = {name: axes_of(kind) for name, kind in specs.items()}
        program, self._specs = self._program_of(model, step, examples, axes)
        self.forward = program  # type: ignore[method-assign]  # with the signature of torch's
        self._computed_by_torch = lambda arrays: list(step(**tensors_of(arrays)).values())


class TorchDecoder(FromTransformers, CausalDecoder):
    """A decoder with a cache of keys and values: transformers' DynamicCache, layer by layer, or buffers."""

    program: Program
    buffered_program: Program | None = None
    _no_buffers = ""
    _shape: CacheShape

    def take(self, checkpoint: Checkpoint, inputs: Mapping[str, TensorType]) -> None:
        if inputs:
            raise TorchImportError(f"{self._kind} has the inputs of every decoder: leave --input out")
        model = checkpoint.model
        self._shape, step = _cache_shape(self._kind, model), _step(self._kind, model)
        past = torch.zeros(2, self._shape.kv_heads, 5, self._shape.head_dim)
        ids, mask = torch.arange(6).reshape(2, 3), torch.ones(2, 8, dtype=torch.int64)
        layers = range(self._shape.layers)
        examples = {"input_ids": ids, "attention_mask": mask, "position_ids": torch.arange(5, 8).expand(2, 3)}
        axes: dict[str, Any] = {"input_ids": (_BATCH, _NEW), "attention_mask": (_BATCH, "total_sequence_length")}
        axes["position_ids"] = (_BATCH, _NEW)
        axes["past_key_values"] = [[(_BATCH, None, _PAST, None)] * 2 for _ in layers]
        caches = [[past.clone(), past.clone()] for _ in layers]
        self.program, _ = self._program_of(model, step, {**examples, "past_key_values": caches}, axes)
        try:
            self.buffered_program = with_buffers(self.program, self._shape)
        except NoBuffersError as error:
            self.takes_fixed_cache, self._no_buffers = False, str(error)

        def by_torch(arrays: Mapping[str, Array]) -> list[torch.Tensor]:
            tensors = tensors_of(arrays)
            key = tensors.get("past_key_values.0.key")
            if key is not None and tensors["attention_mask"].shape[1] <= key.shape[2]:
                return _over_buffers(step, tensors, self._shape.layers)
            ids, rows = tensors["input_ids"], len(tensors["input_ids"])
            empty = torch.zeros(rows, self._shape.kv_heads, 0, self._shape.head_dim)
            caches = [
                [tensors.get(f"past_key_values.{layer}.{name}", empty) for name in ("key", "value")] for layer in layers
            ]
            positions = torch.arange(ids.shape[1]).expand(rows, -1)
            out = step(ids, tensors["attention_mask"], tensors.get("position_ids", positions), caches)
            return [out["logits"], *(x for pair in out["present"] for x in pair if "past_key_values.0.key" in arrays)]

        self._computed_by_torch = by_torch

    @property
    def cache_shape(self) -> CacheShape:
        return self._shape

    def input_specs(self) -> Mapping[str, TensorType]:
        return CausalDecoder.input_specs(self)

    def part(self, cache: CacheKind, capacity: Size | None = None) -> ModelPart:
        if cache == "fixed":
            self._check_buffers()
        return super().part(cache, capacity)

    def _check_buffers(self) -> Program:
        if self.buffered_program is None:
            raise ValueError(f"cache='fixed': {self._kind} {self._no_buffers}; use cache='growing'")
        return self.buffered_program

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: Sequence[Any] | None = None,
    ) -> Any:
        """Logits (N, L, vocabulary); with a cache also the new one. See `nn.CausalDecoder`."""
        rows, new = input_ids.shape
        if past_key_values and isinstance(past_key_values[0], KeyValueBuffer):
            buffers = layer_caches(past_key_values, position_ids, self._shape.layers)
            positions = cache_positions(input_ids, position_ids, buffers)
            outputs = self._check_buffers()(input_ids, positions, [buffer[:2] for buffer in past_key_values])
            present = [
                KeyValueBuffer(key, value, None if buffer.filled is None else buffer.filled + new)
                for (key, value), buffer in zip(outputs["present"], past_key_values, strict=True)
                if isinstance(buffer, KeyValueBuffer)
            ]
            return outputs["logits"], present
        caches = empty_caches(self._shape, rows) if past_key_values is None else past_key_values
        past = caches[0].key.shape[2]
        if attention_mask is None:
            attention_mask = ones(rows, past + new, dtype=int64)
        if position_ids is None:
            position_ids = arange(past, past + new).unsqueeze(0).expand(rows, new)
        outputs = self.program(input_ids, attention_mask, position_ids, [cache[:2] for cache in caches])
        if past_key_values is None:
            return outputs["logits"]
        return outputs["logits"], [KeyValueCache(*pair) for pair in outputs["present"]]


def tensors_of(arrays: Mapping[str, Array]) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


def _over_buffers(step: Callable[..., Any], tensors: Mapping[str, torch.Tensor], layers: int) -> list[torch.Tensor]:
    """A step over buffers by torch: each row by itself over the slots that are filled."""
    ids, positions = tensors["input_ids"], tensors["position_ids"]
    names = [f"past_key_values.{layer}.{name}" for layer in range(layers) for name in ("key", "value")]
    logits, buffers = [], {name: tensors[name].clone() for name in names}
    for row, filled in enumerate(positions[:, 0].tolist()):
        own = [tensors[name][row : row + 1, :, :filled] for name in names]
        caches = list(zip(own[::2], own[1::2], strict=True))
        total = filled + ids.shape[1]
        out = step(ids[row : row + 1], torch.ones(1, total, dtype=torch.int64), positions[row : row + 1], caches)
        logits.append(out["logits"])
        for name, tensor in zip(names, (x for pair in out["present"] for x in pair), strict=True):
            buffers[name][row, :, :total] = tensor[0]
    return [torch.cat(logits), *buffers.values()]


def cache_option(name: str, parameters: Mapping[str, Any]) -> str:
    """The name of the cache in a class of transformers."""
    option = next((each for each in ("past_key_values", "cache") if each in parameters), None)
    if option is None:
        raise _without_cache(name)
    return option


def _without_cache(name: str) -> TorchImportError:
    return TorchImportError(
        f"{name} takes no cache of keys and values, such as models that keep states, so it cannot continue a text step "
        "by step; lucid.from_torch(model, ...) imports one call of it"
    )


def _step(name: str, model: torch.nn.Module) -> Callable[..., Any]:
    """A decoder's call with keys and values by layer instead of an object that holds them."""
    call, parameters = type(model).forward, signature(model.forward).parameters
    cache_name = cache_option(name, parameters)

    def step(
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        position_ids: torch.Tensor,
        past_key_values: Sequence[Sequence[torch.Tensor]],
    ) -> dict[str, Any]:
        cache = DynamicCache()
        if past_key_values:
            torch._check(attention_mask.shape[1] == past_key_values[0][0].shape[2] + input_ids.shape[1])
        for layer, (key, value) in enumerate(past_key_values):
            cache.update(key, value, layer)
        positions = {"position_ids": position_ids} if "position_ids" in parameters else {}
        options = {"attention_mask": attention_mask, "use_cache": True, cache_name: cache, **positions}
        logits = call(model, input_ids=input_ids, **options).logits
        return {"logits": logits, "present": [[layer.keys, layer.values] for layer in cache.layers]}

    return step


def _cache_shape(name: str, model: torch.nn.Module) -> CacheShape:
    """The sizes of a decoder's cache, as a call fills it.

    Raises:
        TorchImportError: for layers without keys and values, such as those with states, and layers of different sizes.
    """
    ids = torch.zeros(1, 2, dtype=torch.int64)
    step = _step(name, model)
    try:
        with torch.no_grad():
            present = step(ids, torch.ones_like(ids), torch.arange(2).expand(1, 2), [])["present"]
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise _without_cache(name) from error
    shapes = {tuple(tensor.shape) for pair in present for tensor in pair if tensor is not None}
    if len(shapes) != 1 or any(tensor is None for pair in present for tensor in pair):
        got = ", ".join(map(str, sorted(shapes))) or "none"
        raise TorchImportError(
            f"{name}: its cache has keys and values of shapes {got}, expected one shape in all layers"
        )
    _, heads, _, width = shapes.pop()
    return CacheShape(len(present), heads, width, dtype_of(present[0][0].dtype))
