"""Further outputs of a model: the results of its modules, the states between its layers, and attention weights.

A traced graph records the module of each node, so the result of any module can become an output.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MethodType
from typing import Any

from lucid.core.graph.scope import is_tracing
from lucid.core.graph.types import Array, TensorType
from lucid.core.graph.values import Node, Result, Value, in_order
from lucid.core.words.name_patterns import name_list
from lucid.core.words.suggestions import did_you_mean
from lucid.nn.model_parts import ModelPart
from lucid.nn.module import Module
from lucid.nn.published_model import PublishedModel
from lucid.ops.tensor.tensor import Tensor
from lucid.tracing.trace import Model, arguments_of, outputs_of, owner_of, trace, with_known_inputs

_LAYER = re.compile(r"(.*?(?:^|\.)(?:layers?|h|blocks?))\.(\d+)(?:\.|$)")
_CROSS = re.compile(r"(encoder_attn|EncDecAttention|crossattention|multihead_attn)(\.|$)")


def with_outputs(model: Model, names: Sequence[str], own: Sequence[str] | None = None) -> Callable[..., Any]:
    """A function, or a method of the same module, that returns a dict of the model's outputs and of further ones.

    It is for exports and comparisons: a call with tensors is slow, because it traces the model each time.

    Args:
        model: a module, a method of one, or a function.
        names: the further outputs:

            - "hidden_states": the input of the first layer and the result of each layer, before any last norm, as
              ``hidden_states.0``, ``hidden_states.1``, ...; "hidden_states.7" is one of these.
            - "attentions": the attention weights of each layer (N, H, L, S), as ``attentions.0``, ...; those of
              attention to an encoder as ``cross_attentions.0``, ...
            - the path of a module, for its result: "encoder.layer.7.attention".

            In a model with several lists of layers, the names begin with the path of a list:
            ``encoder.hidden_states.0``.
        own: the names of the model's own outputs; by default those of `lucid.trace`.

    Raises:
        ValueError: when it is traced, for a name that the model does not have.
    """
    names, owner = name_list("outputs", names), owner_of(model)

    def compute(*args: Any, **kwargs: Any) -> dict[str, Tensor]:
        args = args if owner is None else args[1:]
        if not is_tracing():
            return _run(function, args, kwargs)
        outputs = outputs_of(model(*args, **kwargs), model)
        if own is not None:
            outputs = dict(zip(own, outputs.values(), strict=True))
        values = [tensor.to_value() for tensor in outputs.values()]
        return outputs | {name: Tensor.from_value(value) for name, value in _Inside(values).named(names)}

    signature = inspect.signature(model.forward if isinstance(model, Module) else model)
    before = [] if owner is None else [inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)]
    compute.__signature__ = signature.replace(parameters=[*before, *signature.parameters.values()])  # type: ignore[attr-defined]
    function: Callable[..., Any] = compute if owner is None else MethodType(compute, owner)
    return function


def further_outputs(model: object, names: Sequence[str] = ()) -> Sequence[str]:
    """The names that a caller gives, or else those that a model was loaded with."""
    return names or (model.further_outputs if isinstance(model, PublishedModel) else ())


def part_with_outputs(part: ModelPart, names: Sequence[str]) -> ModelPart:
    """A part with further outputs; see `with_outputs`.

    Raises:
        ValueError: for a part in which an input chooses between two functions.
    """
    if part.otherwise is not None:
        raise ValueError("outputs: the merged decoder chooses between two functions; export the part decoder instead")
    inputs = with_known_inputs(part.function, (), part.inputs)
    function = with_outputs(part.function, names, part.outputs)
    outputs = None if part.outputs is None else trace(function, kwargs=inputs).output_names
    return part._replace(function=function, inputs=inputs, outputs=outputs)


def _run(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Tensor]:
    """The results for tensors, by the graph for their sizes."""
    arrays: list[Array] = []

    def kept(path: str, kind: TensorType, example: Array | None) -> Tensor:
        assert example is not None
        arrays.append(example)
        return Tensor.from_array(example)

    arguments_of(function, args, kwargs, kept)
    graph = trace(function, *args, kwargs=kwargs)
    return dict(zip(graph.output_names, map(Tensor.from_array, graph.run(arrays)), strict=True))


class _Inside:
    """The nodes that a model's results need, by the modules in which they were made."""

    def __init__(self, results: Sequence[Value]) -> None:
        self.results, self.nodes = results, in_order(results)
        lists: dict[str, set[int]] = {}
        for node in self.nodes:
            if (match := _LAYER.match(node.scope)) is not None:
                lists.setdefault(match[1], set()).add(int(match[2]))
        self.layers = {path: len(numbers) for path, numbers in lists.items() if numbers == set(range(len(numbers)))}

    def named(self, names: Sequence[str]) -> Iterator[tuple[str, Value]]:
        """The values by name, one or several for each of `names`."""
        for name in dict.fromkeys(names):
            kind, _, number = name.rpartition(".")
            if name == "hidden_states":
                yield from self.hidden_states().items()
            elif name == "attentions":
                yield from self.attentions().items()
            elif kind.endswith("hidden_states") and number.isdecimal():
                states = self.hidden_states()
                if name not in states:
                    raise ValueError(f"outputs: there is no {name}; there are {', '.join(states)}")
                yield name, states[name]
            else:
                yield name, self.result(name)

    def hidden_states(self) -> dict[str, Value]:
        """The input of the first layer of each list of layers, and the result of each layer."""
        states_by_name: dict[str, Value] = {}
        for path, count in self.layers.items():
            states: list[Value] = [self.result(f"{path}.{number}") for number in range(count)]
            states.insert(0, self.entering(f"{path}.0", states[0].type))
            states_by_name |= {f"{self.prefix(path)}hidden_states.{place}": state for place, state in enumerate(states)}
        if not states_by_name:
            raise ValueError("outputs: the model has no list of layers; give the path of a module instead")
        return states_by_name

    def attentions(self) -> dict[str, Value]:
        """The weights of each attention; its node becomes one that returns them."""
        weights_by_name: dict[str, Value] = {}
        for node in self.nodes:
            if node.op.name != "attention":
                continue
            match = _LAYER.match(node.scope)
            prefix = "" if match is None else self.prefix(match[1])
            kind = f"{prefix}{'cross_' if _CROSS.search(node.scope) else ''}attentions"
            weights_by_name[f"{kind}.{sum(name.startswith(f'{kind}.') for name in weights_by_name)}"] = _weights(node)
        if not weights_by_name:
            raise ValueError('outputs: the model has no attention whose weights are known; leave "attentions" out')
        return weights_by_name

    def prefix(self, path: str) -> str:
        """The prefix that distinguishes a list of layers from others; empty if there is one list."""
        if len(self.layers) < 2:
            return ""
        return re.sub(r"^model\.|[^.]*$", "", path)

    def result(self, path: str) -> Value:
        """The result of the module at a path: the last of its values that other modules read."""
        inside = {id(node) for node in self.nodes if f"{node.scope}.".startswith(f"{path}.")}
        if not inside:
            number = path.rpartition(".")[2]
            names = ["hidden_states", "attentions", *([f"hidden_states.{number}"] if number.isdecimal() else [])]
            known = [*names, *sorted({node.scope for node in self.nodes if node.scope})]
            raise ValueError(f"outputs: no module {path!r} computes anything{did_you_mean(path, known)}")
        read = [value for node in self.nodes if id(node) not in inside for value in node.inputs]
        values = {id(v): v for v in (*read, *self.results) if isinstance(v, Result) and id(v.node) in inside}
        last = [value for value in values.values() if len(values) == 1 or not _needed(value, values.values())]
        if len(last) != 1:
            raise ValueError(f"outputs: module {path!r} has {len(last)} results; give the path of one inside it")
        return last[0]

    def entering(self, path: str, kind: TensorType) -> Value:
        """The value from outside that a module reads and that has the type of its result."""
        inside = [node for node in self.nodes if f"{node.scope}.".startswith(f"{path}.")]
        for value in (value for node in inside for value in node.inputs if isinstance(value, Result)):
            if value.node not in inside and value.type == kind:
                return value
        raise ValueError(f"outputs: what enters module {path!r} is not known; give the paths of modules instead")


def _needed(value: Result, others: Iterable[Result]) -> bool:
    """Whether one of some values is computed from another one."""
    return any(
        other.node is not value.node and any(node is value.node for node in in_order([other])) for other in others
    )


def _weights(node: Node) -> Result:
    """The weights of an attention node that was traced just now; from here on it also returns them."""
    if not node.attributes["need_weights"]:
        node.attributes = {**node.attributes, "need_weights": True}
        node.types = node.op.infer([None if value is None else value.type for value in node.inputs], node.attributes)
        node.results = (*node.results, Result(node, len(node.results)))
    return node.results[-1]
