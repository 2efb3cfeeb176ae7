"""Which ONNX files a model becomes, with the names that other programs expect, and which part a file holds."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from types import MethodType
from typing import Any

from lucid.core.graph.types import TensorType
from lucid.core.sizes.dims import Dim, Size, dim
from lucid.generation.models import logits_of
from lucid.layouts.images import with_preprocessor
from lucid.layouts.layout import Options
from lucid.models.parts.sentences import PooledEncoder
from lucid.nn.cache import Cache
from lucid.nn.decoding import CausalDecoder
from lucid.nn.encoder_decoder import EncoderDecoder
from lucid.nn.model_parts import PART_NAMES, CacheKind, ModelPart
from lucid.nn.module import Module
from lucid.nn.published_model import PublishedModel
from lucid.ops.tensor.tensor import Tensor
from lucid.tracing.inner_outputs import part_with_outputs
from lucid.tracing.parts import check_cache, part_of
from lucid.tracing.trace import Model, input_types

MODEL = "model"
# optimum's names for the sizes of our models.
_AXES = {"N": "batch_size", "L": "sequence_length", "M": "image_batch_size", "H": "height", "W": "width"}


def parts_of(model: Module, options: Options, *, states: bool, cached: bool = True) -> dict[str, ModelPart]:
    """The parts by the names of their files, without ending.

    Args:
        model: an encoder, a model with a head, a decoder or an encoder-decoder.
        options: `cache`, `capacity`, `logits_to_keep` and `preprocessor` are obeyed.
        states: whether a sentence encoder also returns the states of its tokens, for runtimes that pool themselves.
        cached: whether a decoder has a cache where `options` do not ask for one.

    Raises:
        ValueError: for a cache that the model does not have or that does not exist, a capacity of another cache than a
            fixed one, and a preprocessor for a model that takes no pixels.
    """
    if options.preprocessor is not None:
        whole = replace(options, preprocessor=None)
        parts = parts_of(model, whole, states=states, cached=cached)
        return {name: with_preprocessor(part, part.inputs, options.preprocessor) for name, part in parts.items()}
    if parts := file_parts(model):
        if options.cache == "fixed" or options.capacity is not None:
            raise ValueError(
                "cache='fixed': a model of several files has a growing cache; leave out cache and capacity"
            )
        return parts
    if isinstance(model, (CausalDecoder, EncoderDecoder)):
        check_cache(options.cache, options.capacity)
    elif options.cache is not None or options.capacity is not None:
        raise ValueError(f"cache and capacity are for decoders, got a {type(model).__name__}; leave them out")
    if isinstance(model, CausalDecoder) and (cached or options.cache is not None):
        part = model.part(options.cache or "growing", options.capacity)
        if options.logits_to_keep is not None and model.takes_logits_to_keep:
            part = _with_logits(part, options.logits_to_keep)
        return {MODEL: part}
    if isinstance(model, EncoderDecoder):
        if options.cache == "fixed":
            raise ValueError("cache='fixed': the decoder in one file with its first step has a growing cache")
        return {"encoder_model": model.part("encoder"), "decoder_model_merged": model.part("decoder_merged")}
    inputs = with_known_axes(model.full_input_specs() if isinstance(model, PublishedModel) else model.input_specs())
    if isinstance(model, PooledEncoder) and states:
        return {MODEL: states_and_embedding(model, inputs)}
    return {MODEL: ModelPart(model, inputs)}


def file_parts(model: Model) -> dict[str, ModelPart]:
    """The parts of a model that programs expect as several files; {} for others, also for encoder-decoders."""
    return dict(model.file_parts()) if isinstance(model, PublishedModel) else {}


def states_and_embedding(model: PooledEncoder[Any], inputs: Mapping[str, Any]) -> ModelPart:
    """A sentence encoder that also returns the states of its tokens."""
    return ModelPart(model.states_and_embedding, inputs, ("last_hidden_state", "sentence_embedding"))


def with_last_logits(part: ModelPart, model: CausalDecoder | EncoderDecoder) -> ModelPart:
    """A step of a model that gives the logits of the last token of each row alone, as onnxruntime-genai calls it."""
    if isinstance(model, EncoderDecoder):
        return _with_logits(part, 1)  # all prompts of a batch are of one length
    return part._replace(function=MethodType(_last_tokens, model))


def _with_logits(part: ModelPart, count: int) -> ModelPart:
    """A step that gives the logits of so many last tokens."""
    return part._replace(inputs={**part.inputs, "logits_to_keep": count})


def _last_tokens(
    decoder: CausalDecoder,
    input_ids: Tensor,
    attention_mask: Tensor,
    position_ids: Tensor,
    past_key_values: Sequence[Cache],
) -> tuple[Tensor, list[Cache]]:
    """A step with logits (N, 1, vocabulary): of the last token of each row, which has the largest position.

    onnxruntime-genai gives padding, which comes after a text, position 0.
    """
    last = position_ids.argmax(1)
    return decoder(input_ids, attention_mask, position_ids, past_key_values=past_key_values, logits_to_keep=last)


def with_known_axes(specs: Mapping[str, TensorType]) -> dict[str, Any]:
    """Inputs whose sizes have the names that optimum gives them: batch_size, sequence_length."""
    return {name: spec.with_shape(tuple(map(_known, spec.shape))) for name, spec in specs.items()}


def _known(size: int | Dim) -> int | Dim:
    return size if isinstance(size, int) else dim(_AXES.get(str(size), str(size)))


_Shape = tuple[Size | None, ...]


def part_in_file(
    model: Model, inputs: Mapping[str, Sequence[int | str]], outputs: Mapping[str, Sequence[int | str]]
) -> ModelPart | None:
    """The part of a model that a file holds, with the inputs and sizes of the file.

    Args:
        model: the model.
        inputs: by the names of the file's inputs the sizes of their axes: numbers and names, "" for one without a name.
        outputs: the same of the file's outputs.

    Returns:
        A step with a cache, an encoder, a decoder, or the model as it is called; None if the file fits no part.
    """
    shapes = {name: tuple(map(_size, sizes)) for name, sizes in inputs.items()}
    for part in _parts(model, shapes):
        if list(part.outputs or ()) == list(outputs) and _fits(input_types(part.function, kwargs=part.inputs), shapes):
            if "logits" not in outputs or not isinstance(model, (CausalDecoder, EncoderDecoder)):
                return part
            count = logits_of(outputs["logits"])
            if count == 1:
                return with_last_logits(part, model)
            return part if count is None else _with_logits(part, count)
    known = known_inputs(model)
    if not shapes.keys() <= known.keys():
        return None
    taken = {name: _resized(known[name], shape) for name, shape in shapes.items()}
    if isinstance(model, PooledEncoder) and "last_hidden_state" in outputs:
        return states_and_embedding(model, taken)
    part = ModelPart(model, taken)
    return part_with_outputs(part, ["attentions"]) if any(map(_is_attention, outputs)) else part


def _is_attention(output: str) -> bool:
    """Whether an output is one of those that `outputs=["attentions"]` adds, as in a page."""
    return output.startswith("attentions.")


def _parts(model: Model, shapes: Mapping[str, _Shape]) -> Iterator[ModelPart]:
    """All parts that have names for their outputs."""
    caches: list[tuple[CacheKind | None, int | None]] = [(None, None), ("growing", None), ("fixed", None)]
    caches += [("fixed", size) for size in dict.fromkeys(_slots(shapes)) if isinstance(size, int) and size > 0]
    yield from file_parts(model).values()
    names: tuple[Any, ...] = PART_NAMES if isinstance(model, EncoderDecoder) else (None,)
    for name in names:
        for cache, capacity in caches:
            if isinstance(model, EncoderDecoder) or (isinstance(model, CausalDecoder) and cache is not None):
                with suppress(ValueError):  # a cache that the model does not have
                    yield part_of(model, name, cache, capacity)


def _slots(shapes: Mapping[str, _Shape]) -> Iterator[Size | None]:
    """How many positions the caches of a file have."""
    return (shape[2] for name, shape in shapes.items() if name.startswith("past_key_values.") and len(shape) == 4)


def known_inputs(model: Model) -> dict[str, TensorType]:
    """All inputs that a model knows, in the order of its arguments."""
    if not isinstance(model, Module):
        return {}
    inputs = dict(model.full_input_specs() if isinstance(model, PublishedModel) else model.input_specs())
    order = {name: index for index, name in enumerate(inspect.signature(model.forward).parameters)}
    return dict(sorted(inputs.items(), key=lambda item: order.get(item[0], len(order))))


def _fits(types: Mapping[str, TensorType], shapes: Mapping[str, _Shape]) -> bool:
    """Whether a file has these inputs."""
    written = {name: tuple(map(str, kind.shape)) for name, kind in types.items()}
    return written == {name: tuple(map(str, shape)) for name, shape in shapes.items()}


def _size(size: int | str) -> Size | None:
    """A size of a file; None for one without a name, or with one that no exporter of ours writes."""
    if isinstance(size, int):
        return size
    with suppress(ValueError):
        return dim(size)
    return None


def _resized(kind: TensorType, shape: _Shape) -> TensorType:
    """A type with the sizes of a file where the model leaves them open."""
    if len(shape) != kind.rank:
        return kind
    pairs = zip(kind.shape, shape, strict=True)
    return kind.with_shape([own if isinstance(own, int) or size is None else size for own, size in pairs])
