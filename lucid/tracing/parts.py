"""Parts of a model traced for export: a step with a cache, an encoder, a decoder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from lucid.core.graph.graph import Graph
from lucid.core.graph.types import TensorType
from lucid.core.sizes.dims import dim, same
from lucid.nn.decoding import CausalDecoder
from lucid.nn.encoder_decoder import EncoderDecoder
from lucid.nn.parts import CACHE_KINDS, PART_NAMES
from lucid.nn.parts import CacheKind as CacheKind
from lucid.nn.parts import ModelPart as ModelPart
from lucid.nn.parts import PartName as PartName
from lucid.tracing.trace import Model, owner_of, trace


@dataclass(frozen=True)
class TracedPart:
    """A traced part of a model, or all of it. With a `condition` the graph has the outputs of two alternatives, one
    after the other.
    """

    graph: Graph
    output_names: tuple[str, ...]
    condition: str | None = None
    notes: Mapping[str, str] = field(default_factory=dict)  # for the file's metadata

    @classmethod
    def whole(cls, graph: Graph, notes: Mapping[str, str] | None = None) -> Self:
        """A model that is not exported in parts."""
        return cls(graph, graph.output_names, notes=notes or {})

    def output_types(self) -> dict[str, TensorType]:
        """The types of the outputs by name. Where those of the alternatives differ in a size, it has a name of its own.

        Raises:
            ValueError: for alternatives that differ in more than sizes.
        """
        types = [value.type for value in self.graph.outputs]
        if self.condition is not None:
            half = len(self.output_names)
            types = [_joint(*pair) for pair in zip(types[:half], types[half:], strict=True)]
        return dict(zip(self.output_names, types, strict=True))


def _joint(then: TensorType, otherwise: TensorType) -> TensorType:
    if then.dtype != otherwise.dtype or then.rank != otherwise.rank:
        raise ValueError(f"the alternatives give {then} and {otherwise}, expected one element type and number of axes")
    pairs = zip(then.shape, otherwise.shape, strict=True)
    return then.with_shape(tuple(b if same(a, b) else dim(f"{b}_out") for a, b in pairs))


def part_of(
    model: Model | Graph | TracedPart,
    part: PartName | None = None,
    cache: CacheKind | None = None,
    capacity: int | None = None,
    kwargs: Mapping[str, Any] | None = None,
) -> ModelPart:
    """What is exported as a part of a model or with a cache, where `kwargs` replaces some of the inputs.

    Raises:
        ValueError: for a part or a kind of cache that does not exist, or that the model does not have.
    """
    for name, given, known in (("cache", cache, CACHE_KINDS), ("part", part, PART_NAMES)):
        if given is not None and given not in known:
            raise ValueError(f"{name} {given!r} does not exist: choose one of {', '.join(known)}")
    if capacity is not None and (cache != "fixed" or isinstance(capacity, bool) or capacity < 1):
        raise ValueError(f'capacity is {capacity!r}, expected a whole number of 1 or more, and cache="fixed"')
    if part == "decoder_merged" and cache == "fixed":
        raise ValueError('part "decoder_merged" has a growing cache, got cache="fixed"; use part="decoder"')
    if isinstance(model, EncoderDecoder):
        found = model.part(part or "decoder", cache, capacity)
    elif part is not None:
        raise ValueError(
            f"part={part!r}: {type(model).__name__} has no parts; expected a lucid.nn.EncoderDecoder, such as "
            "lucid.models.t5.T5"
        )
    elif isinstance(model, CausalDecoder) and cache is not None:
        found = model.part(cache, capacity)
    else:
        raise ValueError(
            f"cache={cache!r}: {type(model).__name__} takes no cache; expected a lucid.nn.CausalDecoder, such as "
            "lucid.models.llama.Llama, or a lucid.nn.EncoderDecoder"
        )
    return found._replace(inputs={**found.inputs, **(kwargs or {})})


def trace_part(part: ModelPart) -> TracedPart:
    """The graph of a part.

    Raises:
        TypeError, ValueError: as `lucid.trace`.
    """
    graph = trace(part.function, kwargs=part.inputs)
    names = graph.output_names if part.outputs is None else tuple(part.outputs)
    expected = len(graph.outputs) // (1 if part.condition is None else 2)
    if len(names) != expected:
        raise ValueError(f"a part of {part.function!r} has {expected} outputs and {len(names)} names for them")
    return TracedPart(graph, names, part.condition, notes_of(part.function))


def notes_of(model: Model) -> Mapping[str, str]:
    """What the file of a model, or of one of its methods, says about it."""
    owner = owner_of(model)
    return {} if owner is None else owner.file_notes()
