"""Parts of a model traced for export: a step with a cache, an encoder, a decoder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self

from lucid.core.graph.graph import Graph
from lucid.core.graph.types import TensorType
from lucid.core.graph.values import Input
from lucid.core.number_ranges import is_whole
from lucid.core.sizes.dims import dim, same
from lucid.nn.decoding import CausalDecoder
from lucid.nn.encoder_decoder import EncoderDecoder
from lucid.nn.model_parts import CACHE_KINDS, PART_NAMES, Steps
from lucid.nn.model_parts import CacheKind as CacheKind
from lucid.nn.model_parts import ModelPart as ModelPart
from lucid.nn.model_parts import PartName as PartName
from lucid.nn.weights.adapter_inputs import RANK, adapter_inputs
from lucid.tracing.trace import Model, owner_of, trace_all


class TracedAlternative(NamedTuple):
    """The graph that is computed instead of another one where a boolean input of both is false."""

    condition: Input
    graph: Graph


@dataclass(frozen=True)
class TracedPart:
    """A traced part of a model, or all of it: a graph, or two with the same inputs and names of outputs."""

    graph: Graph
    otherwise: TracedAlternative | None = None
    notes: Mapping[str, str] = field(default_factory=dict)  # for the file's metadata

    @property
    def graphs(self) -> list[Graph]:
        """The graph, and the one that is computed otherwise."""
        return [self.graph] if self.otherwise is None else [self.graph, self.otherwise.graph]

    def with_graphs(self, graphs: Sequence[Graph]) -> Self:
        """The part with rewritten graphs."""
        otherwise = None if self.otherwise is None else self.otherwise._replace(graph=graphs[-1])
        return replace(self, graph=graphs[0], otherwise=otherwise)

    def joint(self) -> Graph:
        """One graph with the nodes of all graphs."""
        if self.otherwise is None:
            return self.graph
        outputs = enumerate(value for graph in self.graphs for value in graph.outputs)
        return self.graph.with_outputs({f"output_{index}": value for index, value in outputs})

    def output_types(self) -> dict[str, TensorType]:
        """The types of the outputs by name. Where those of two graphs differ in a size, it has a name of its own.

        Raises:
            ValueError: for graphs that differ in more than sizes.
        """
        first, last = ([value.type for value in graph.outputs] for graph in (self.graphs[0], self.graphs[-1]))
        return dict(zip(self.graph.output_names, map(_joint, first, last), strict=True))


def _joint(then: TensorType, otherwise: TensorType) -> TensorType:
    if then.dtype != otherwise.dtype or then.rank != otherwise.rank:
        raise ValueError(f"the two graphs give {then} and {otherwise}, expected one element type and number of axes")
    pairs = zip(then.shape, otherwise.shape, strict=True)
    return then.with_shape(tuple(b if same(a, b) else dim(f"{b}_out") for a, b in pairs))


def part_of(
    model: Model | Graph | TracedPart,
    part: PartName | None = None,
    cache: CacheKind | None = None,
    capacity: int | None = None,
    kwargs: Mapping[str, Any] | None = None,
) -> ModelPart:
    """The part of a model, or its step with a cache. `kwargs` replaces some of the inputs.

    Raises:
        ValueError: for a part or a kind of cache that does not exist, or that the model does not have.
    """
    check_cache(cache, capacity)
    if part is not None and part not in PART_NAMES:
        raise ValueError(f"part {part!r} does not exist: choose one of {', '.join(PART_NAMES)}")
    capacity = None if capacity is None else int(capacity)
    if part == "decoder_merged" and cache == "fixed":
        raise ValueError('part "decoder_merged" has a growing cache, got cache="fixed"; use part="decoder"')
    if isinstance(model, EncoderDecoder):
        chosen = model.part(part or "decoder", cache, capacity)
    elif part is not None:
        raise ValueError(
            f"part={part!r}: {type(model).__name__} has no parts; expected a lucid.nn.EncoderDecoder, such as "
            "lucid.models.t5.T5"
        )
    elif isinstance(model, CausalDecoder) and cache is not None:
        chosen = model.part(cache, capacity)
    else:
        raise ValueError(
            f"cache={cache!r}: {type(model).__name__} takes no cache; expected a lucid.nn.CausalDecoder, such as "
            "lucid.models.llama.Llama, or a lucid.nn.EncoderDecoder"
        )
    return chosen._replace(inputs={**chosen.inputs, **(kwargs or {})})


def check_cache(cache: str | None, capacity: int | None) -> None:
    """Check the options of a decoder's cache.

    Raises:
        ValueError: for a kind that does not exist, and for a capacity that is no number or not of a fixed cache.
    """
    if cache is not None and cache not in CACHE_KINDS:
        raise ValueError(f"cache {cache!r} does not exist: choose one of {', '.join(CACHE_KINDS)}")
    if capacity is not None and (cache != "fixed" or not is_whole(capacity) or capacity < 1):
        raise ValueError(f'capacity is {capacity!r}, expected a whole number of 1 or more, and cache="fixed"')


def trace_part(part: ModelPart) -> TracedPart:
    """The graph of a part.

    Raises:
        TypeError, ValueError: as `lucid.trace`.
    """
    functions = [part.function] if part.otherwise is None else [part.function, part.otherwise.function]
    traced = trace_all(functions, kwargs=part.inputs)
    names = traced[0].output_names if part.outputs is None else tuple(part.outputs)
    for function, graph in zip(functions, traced, strict=True):
        if len(graph.outputs) != len(names):
            raise ValueError(f"a part of {function!r} has {len(graph.outputs)} outputs and {len(names)} names for them")
    graphs = [graph.with_outputs(dict(zip(names, graph.outputs, strict=True))) for graph in traced]
    otherwise = None
    if part.otherwise is not None:
        condition = next(value for value in graphs[0].inputs if value.name == part.otherwise.condition)
        otherwise = TracedAlternative(condition, graphs[1])
    return TracedPart(graphs[0], otherwise, notes_of(part.function))


def with_ranks(part: ModelPart) -> ModelPart:
    """A part whose own sizes, if it has any, also say the rank of the adapters that its model takes."""
    if not adapter_inputs(owner_of(part.function)):
        return part
    sizes, steps = part.sizes, part.steps
    more = None if sizes is None else [{RANK: number + 1, **values} for number, values in enumerate(sizes)]

    def ranked(prompt: int) -> Steps:
        assert steps is not None
        compared = steps(prompt)
        return compared._replace(runs=[step._replace(sizes={RANK: 2, **step.sizes}) for step in compared.runs])

    return part._replace(sizes=more, steps=None if steps is None else ranked)


def notes_of(model: Model) -> Mapping[str, str]:
    """The notes for the metadata of a model's file; `model` may be one of its methods."""
    owner = owner_of(model)
    return {} if owner is None else owner.file_notes()
