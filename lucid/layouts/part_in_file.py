"""Which part of a model an ONNX file holds, by the names and shapes of its inputs and the names of its outputs."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from lucid.core.graph.types import TensorType
from lucid.core.sizes.dims import Size, dim
from lucid.layouts.parts import states_and_embedding, with_last_logits
from lucid.models.checkpoints.pretrained import Pretrained
from lucid.models.parts.sentences import PooledEncoder
from lucid.nn.decoding import CausalDecoder
from lucid.nn.encoder_decoder import EncoderDecoder
from lucid.nn.model_parts import PART_NAMES, CacheKind, ModelPart
from lucid.nn.module import Module
from lucid.tracing.parts import part_of
from lucid.tracing.trace import Model, input_types

_LONGEST = 256  # characters of a size that is read: the file may be untrusted, and parsing takes quadratic time
_Shape = tuple[Size | None, ...]


def part_in_file(
    model: Model, inputs: Mapping[str, Sequence[int | str]], outputs: Mapping[str, Sequence[int | str]]
) -> ModelPart | None:
    """The part of a model that a file was exported of, with the inputs and sizes of the file.

    Args:
        model: the model.
        inputs: by the names of the file's inputs the sizes of their axes: numbers and names, "" for one without a name.
        outputs: the same of the file's outputs.

    Returns:
        A step with a cache, an encoder, a decoder, or the model as it is called; None where the file fits none of them.
    """
    shapes = {name: tuple(map(_size, sizes)) for name, sizes in inputs.items()}
    for part in _parts(model, shapes):
        if list(part.outputs or ()) == list(outputs) and _fits(input_types(part.function, kwargs=part.inputs), shapes):
            return (
                with_last_logits(part, model)
                if isinstance(model, (CausalDecoder, EncoderDecoder)) and _last_only(outputs)
                else part
            )
    known = known_inputs(model)
    if not shapes.keys() <= known.keys():
        return None
    taken = {name: _resized(known[name], shape) for name, shape in shapes.items()}
    if isinstance(model, PooledEncoder) and len(outputs) > len(model.output_names):
        return states_and_embedding(model, taken)
    return ModelPart(model, taken)


def _last_only(outputs: Mapping[str, Sequence[int | str]]) -> bool:
    """Whether a step gives the logits of one token, however many it takes."""
    return "logits" in outputs and tuple(outputs["logits"][1:2]) == (1,)


def _parts(model: Model, shapes: Mapping[str, _Shape]) -> Iterator[ModelPart]:
    """All parts that have names for their outputs."""
    caches: list[tuple[CacheKind | None, int | None]] = [(None, None), ("growing", None), ("fixed", None)]
    caches += [("fixed", size) for size in dict.fromkeys(_slots(shapes)) if isinstance(size, int) and size > 0]
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
    found = dict(model.full_input_specs() if isinstance(model, Pretrained) else model.input_specs())
    order = {name: index for index, name in enumerate(inspect.signature(model.forward).parameters)}
    return dict(sorted(found.items(), key=lambda item: order.get(item[0], len(order))))


def _fits(types: Mapping[str, TensorType], shapes: Mapping[str, _Shape]) -> bool:
    """Whether the inputs are those of a file."""
    written = {name: tuple(map(str, kind.shape)) for name, kind in types.items()}
    return written == {name: tuple(map(str, shape)) for name, shape in shapes.items()}


def _size(size: int | str) -> Size | None:
    """A size of a file; None for one without a name, or with one that no exporter of ours writes."""
    if isinstance(size, int):
        return size
    with suppress(ValueError):
        return dim(size) if 0 < len(size) <= _LONGEST else None
    return None


def _resized(kind: TensorType, shape: _Shape) -> TensorType:
    """A type with the sizes of a file where the model leaves them open."""
    if len(shape) != kind.rank:
        return kind
    pairs = zip(kind.shape, shape, strict=True)
    return kind.with_shape([own if isinstance(own, int) or size is None else size for own, size in pairs])
