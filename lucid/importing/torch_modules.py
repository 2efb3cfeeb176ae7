"""Exported torch programs as modules: their operators as calls, their weights as parameters and buffers."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike
from typing import Any

import numpy as np
import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind
from torch.fx import Graph, Node
from torch.utils import _pytree as pytree

from lucid.core.graph.types import DType, as_dtype, bfloat16, spec
from lucid.core.sizes.bounds import Bound
from lucid.core.sizes.dims import dim, evaluate, names_of
from lucid.core.words.other_libraries import type_name
from lucid.importing.complex_numbers import OF_COMPLEX, Complex
from lucid.importing.exporting import REFUSALS, axes_by_name, exported, fixed_axis, quiet, short
from lucid.importing.guards import decide_extremes, limits_of_sums, steps
from lucid.importing.patterns import LARGER, with_larger_operations
from lucid.importing.program import Call, Program, Slot, Step, Weight
from lucid.importing.program_files import load
from lucid.importing.table import FOR_FLOATS, TABLE, remedy
from lucid.importing.torch_import import TorchImportError
from lucid.nn.module import Module, WeightUse
from lucid.nn.parameters import Parameter
from lucid.ops.tensor.tensor import Tensor


class TorchPart(Module):
    """A torch module: its parameters, buffers and parts. The outermost one has the program as its `forward`."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._specs: Mapping[str, Any] = {}
        self._constants: Sequence[Tensor] = ()
        self.quantizable: dict[str, WeightUse] = {}  # type: ignore[misc]  # each part has weights of its own

    def input_specs(self) -> Mapping[str, Any]:
        """The inputs of torch's `forward`, with their dynamic axes."""
        return self._specs

    def __repr__(self) -> str:
        return super().__repr__().replace(type(self).__name__, self._kind, 1)


@quiet()
def imported_module(module: Any, examples: Sequence[Any], kwargs: Mapping[str, Any] | None, dynamic: Any) -> TorchPart:
    """The module that `from_torch` returns."""
    if isinstance(module, torch.nn.Module):
        module = getattr(module, "_orig_mod", module)  # of `torch.compile`
        _check_module(module)
        return _imported(TorchPart(type(module).__name__), *exported(module, examples, kwargs or {}, dynamic))
    if isinstance(module, ExportedProgram):
        program = module
    elif isinstance(module, (str, PathLike)):
        program = load(module)
    else:
        raise TypeError(
            f"from_torch: got {type_name(module)}, expected a torch.nn.Module, an exported program or the path of a "
            ".pt2 file"
        )
    if examples or kwargs:
        raise TorchImportError("from_torch: an exported program has its inputs already: leave the examples out")
    axes = axes_by_name(_inputs(program, _user_inputs(program, program.graph)), dynamic)
    return _imported(TorchPart("ExportedProgram"), program, axes)


def _check_module(module: torch.nn.Module) -> None:
    """Refuse what torch exports as something else, or with an error that names no cause."""
    kind = type(module).__name__
    if isinstance(module, torch.jit.ScriptModule):
        raise TorchImportError(
            f"from_torch: {kind} is TorchScript, expected the module of Python that it was made from"
        )
    for path, part in module.named_modules():
        if part.training:
            raise TorchImportError(
                f"from_torch: {'.'.join(filter(None, (kind, path)))} is in training mode, in which dropout and batch "
                "norms compute something else: call module.eval() first"
            )
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        if tensor.device.type != "cpu":
            remedy = "holds no numbers: load the weights" if tensor.is_meta else "NumPy cannot read: call module.cpu()"
            raise TorchImportError(f"from_torch: {name} is on device {tensor.device}, which {remedy} first")


def _imported(module: TorchPart, program: ExportedProgram, axes: Mapping[str, Any]) -> TorchPart:
    """A module that computes a program."""
    module.forward, module._specs = added(module, program, axes)  # type: ignore[method-assign]  # torch's signature
    return module


def added(module: TorchPart, program: ExportedProgram, axes: Mapping[str, Any]) -> tuple[Program, Mapping[str, Any]]:
    """A program that reads its weights from a module, which gets them, and the specs of its inputs.

    A module may get several programs of one torch module.
    """
    limits, fitting = limits_of_sums(program), steps(program)
    program = _decomposed(program)  # which adds guards that no result needs
    _check_outputs(program, module._kind)
    graph = copy.deepcopy(program.graph)
    inputs = _inputs(program, _user_inputs(program, graph))
    specs, symbols = _specs(inputs, axes, fitting)
    decide_extremes(graph)
    with_larger_operations(graph, symbols)
    graph.eliminate_dead_code()
    nodes = [node for node in graph.nodes if node.op != "output"]
    slots = {node: Slot(number) for number, node in enumerate(nodes)}
    weights = _weights(program, module, slots, _kinds(graph)) | _bodies(graph, program.graph_module, slots)
    _declare_uses(graph, weights, slots)
    output = next(node for node in graph.nodes if node.op == "output")
    result = pytree.tree_unflatten([_argument(value, slots) for value in output.args[0]], program.call_spec.out_spec)
    places = {key: _argument(value, slots) for key, value in inputs.items()}
    sizes = {
        str(size.node.expr): (slots[node], axis)
        for node in _leaves(inputs)
        for axis, size in enumerate(node.meta["val"].shape)
        if isinstance(size, torch.SymInt)
    }
    bounds = [
        ([sizes[symbol] for symbol in key], Bound(dim(" + ".join(symbols[symbol] for symbol in key)), *own))
        for key, own in limits.items()
    ]
    fixed = [Step(*sizes[symbol], *step, symbols[symbol]) for symbol, step in fitting.items() if symbol in sizes]
    parts = [part for value in weights.values() for part in (value if isinstance(value, Complex) else [value])]
    module._constants = [*module._constants, *(part for part in parts if isinstance(part, Tensor))]
    return Program(places, weights, _calls(graph, slots), _plain(result), len(nodes), bounds, specs, fixed), specs


def _decomposed(program: ExportedProgram) -> ExportedProgram:
    """A program in which views and in-place operators are plain ones, and layers are whole.

    torch writes operators that the table lacks by others, where it can.
    """
    written: dict[Any, Any] = {}
    while True:
        try:
            program = program.run_decompositions(written)
        except REFUSALS as error:
            raise TorchImportError(
                f"from_torch: torch cannot write the program without views: {short(error)}"
            ) from error
        lacking = {
            node.target
            for part in program.graph_module.modules()  # the branches of a cond and the steps of a scan among them
            for node in part.graph.nodes
            if isinstance(node.target, torch._ops.OpOverload) and operator_name(node) not in TABLE
            if not remedy(operator_name(node))
        } - set(written)
        known = torch.export.default_decompositions() if lacking else {}
        new = {operator: known[operator] for operator in lacking if operator in known}
        if not new:
            return program
        written |= new


# Inputs and outputs ---------------------------------------------------------------------------------------------------


def _check_outputs(program: ExportedProgram, name: str) -> None:
    for output in program.graph_signature.output_specs:
        if output.kind == OutputKind.USER_INPUT_MUTATION:
            raise TorchImportError(
                f"from_torch: {name} changes its input {output.target!r} in place, but a graph has no state: work on a "
                "copy, x.clone()"
            )
        if output.kind != OutputKind.USER_OUTPUT:
            raise TorchImportError(
                f"from_torch: {name} changes {output.target!r} ({output.kind.name.lower().replace('_', ' ')}), but a "
                "graph has no state: take it as an input and return the new value"
            )
    *_, last = program.graph.nodes
    if any(map(_is_complex, last.all_input_nodes)):
        raise TorchImportError(f"from_torch: {name} has complex outputs: return torch.view_as_real(x) instead of x")


def _user_inputs(program: ExportedProgram, graph: Graph) -> list[Node]:
    """The placeholders of what `forward` takes."""
    own = {item.arg.name: item for item in program.graph_signature.input_specs}
    return [node for node in graph.nodes if node.op == "placeholder" and own[node.target].kind == InputKind.USER_INPUT]


def _inputs(program: ExportedProgram, user: Sequence[Node]) -> dict[str, Any]:
    """The arguments of torch's `forward` by name, with placeholders in the places of tensors; without plain values,
    except those within a list, tuple or dict.
    """
    arguments = [item.arg for item in program.graph_signature.input_specs]
    plain = {arg.name: arg.value for arg in arguments if isinstance(arg, ConstantArgument)}
    leaves = [plain.get(node.target, node) for node in user]
    args, kwargs = pytree.tree_unflatten(leaves, program.call_spec.in_spec)
    names = program.module_call_graph[0].signature.forward_arg_names or [f"input_{place}" for place in range(len(args))]
    named = dict(zip(names, args, strict=False)) | kwargs
    return {name: value for name, value in named.items() if _leaves(value)}


def _leaves(value: Any) -> list[Node]:
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, Node)]


def _specs(
    inputs: Mapping[str, Any], axes: Mapping[str, Any], steps: Mapping[str, tuple[int, int]]
) -> tuple[dict[str, Any], dict[str, str]]:
    """The specs of the inputs, and a name for each of torch's symbols.

    Names that are given come first; other symbols are N and L for the first two axes of an input. Axes in one place
    whose examples have the same size share a name. A symbol that has a step is named by it, such as 3*L.
    """
    names: dict[str, str] = {}
    alike: dict[tuple[Any, ...], str] = {}

    def take_names(node: Node, own: Any, path: str) -> None:
        for axis, (size, name) in enumerate(zip(node.meta["val"].shape, own or (), strict=False)):
            if isinstance(name, str) and str(size).isdigit():  # also of a symbol that has one value
                raise TorchImportError(f"from_torch: {fixed_axis(axis, path, name, int(size))}")
            if isinstance(name, str):
                symbol = str(size.node.expr)
                if not _fits(name, *steps.get(symbol, (1, 0))):
                    raise TorchImportError(
                        f"from_torch: axis {axis} of {path} is named {name!r}, but the module works with sizes "
                        f"{_stepwise(name, *steps[symbol])} only{_dividing_line(node, symbol)}: name it "
                        f"{_stepwise(name, *steps[symbol])!r}, or mend the line that needs it"
                    )
                _take_name(names, symbol, name)

    def tensor_spec(node: Node, own: Any, path: str) -> Any:
        tensor = node.meta["val"]
        for axis, size in enumerate(tensor.shape):
            if not isinstance(size, int):
                for symbol in re.findall(_SYMBOL, str(size.node.expr)):
                    if symbol not in names:
                        step = steps.get(symbol, (1, 0))
                        place = (axis, size.node.hint, step)
                        alike.setdefault(place, _stepwise(_free_name(axis, path, names.values()), *step))
                        names[symbol] = alike[place]
        sizes = [size if isinstance(size, int) else named_size(str(size.node.expr), names) for size in tensor.shape]
        return spec(*sizes, dtype=dtype_of(tensor.dtype))

    def nested(of: Callable[[Node, Any, str], Any], value: Any, own: Any, path: str) -> Any:
        if isinstance(value, Mapping):
            return {key: nested(of, item, own[key] if own else None, f"{path}.{key}") for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [
                nested(of, item, own[place] if own else None, f"{path}.{place}") for place, item in enumerate(value)
            ]
        return of(value, own, path) if isinstance(value, Node) else value

    for name, value in inputs.items():
        nested(take_names, value, axes.get(name), name)
    return {name: nested(tensor_spec, value, axes.get(name), name) for name, value in inputs.items()}, names


_SYMBOL = r"\b[su]\d+\b"


def _take_name(names: dict[str, str], expression: str, name: str) -> None:
    """Give a symbol its name."""
    if re.fullmatch(_SYMBOL, expression) and names.setdefault(expression, name) != name:
        raise TorchImportError(
            f"from_torch: the axes {names[expression]} and {name} always have one size: give one name"
        )


def named_size(expression: str, names: Mapping[str, str]) -> str:
    """A size with names in the places of torch's symbols."""
    return re.sub(_SYMBOL, lambda symbol: names.get(symbol.group(), symbol.group()), expression)


def _free_name(axis: int, path: str, taken: Iterable[str]) -> str:
    usual = ("N", "L")[axis] if axis < 2 else ""
    used = names_of(map(dim, taken))
    return usual if usual and usual not in used else re.sub(r"\W", "_", f"{path}_{axis}")


def _fits(name: str, step: int, remainder: int) -> bool:
    """Whether a size has this remainder, whatever its names stand for."""
    size = dim(name)
    values = (evaluate(size, dict.fromkeys(names_of([size]), value)) for value in range(step))
    return all(value % step == remainder for value in values)


def _stepwise(name: str, step: int, remainder: int) -> str:
    """The sizes with a step, such as 3*L or 2*L + 1."""
    return (name if step == 1 else f"{step}*{name}") + (f" + {remainder}" if remainder else "")


def _dividing_line(node: Node, symbol: str) -> str:
    """The user's line that first divides a size, in brackets; nothing if none does."""
    for call in node.graph.nodes:
        value = call.meta.get("val")
        sizes = value.shape if isinstance(value, torch.Tensor) else [value]
        texts = [str(size.node.expr) for size in sizes if isinstance(size, torch.SymInt)]
        if any(re.search(rf"\b{symbol}\b.*(//|%)|Mod\({symbol}\b", text) for text in texts) and _line(call):
            return f" ({_line(call)})"
    return ""


def _bodies(graph: Graph, owner: torch.fx.GraphModule, slots: Mapping[Node, Slot]) -> dict[int, Program]:
    """The branches of a cond and the steps of a scan, by slot: programs of their own, with inputs in their order."""
    for node in graph.nodes:
        if node.target is torch.ops.higher_order.flex_attention:
            _check_functions(node, owner)
    return {slots[n].number: _body(getattr(owner, str(n.target))) for n in graph.nodes if n.op == "get_attr"}


def _check_functions(node: Node, owner: torch.fx.GraphModule) -> None:
    """Refuse functions of scores and masks that read several numbers at a place: Lucid calls them once, for all."""
    for function, first in ((node.args[3], 5), (node.args[4][-1], 4)):
        nodes = list(getattr(owner, str(function.target)).graph.nodes)
        of_place = set(nodes[:first])
        for call in nodes[first:]:
            if call.op == "call_function" and not of_place.isdisjoint(call.all_input_nodes):
                of_place.add(call)
                if axes := call.meta["val"].ndim:
                    raise TorchImportError(
                        f"from_torch: flex_attention calls a function that computes with {axes} axes of numbers at a "
                        f"place ({_line(call) or 'no line'}), but expected are single numbers: compute them before, in "
                        "a table that the function reads"
                    )


def _body(part: torch.fx.GraphModule) -> Program:
    nodes = [node for node in part.graph.nodes if node.op != "output"]
    slots = {node: Slot(number) for number, node in enumerate(nodes)}
    inputs = {node.name: slots[node] for node in nodes if node.op == "placeholder"}
    output = next(node for node in part.graph.nodes if node.op == "output")
    bodies = _bodies(part.graph, part, slots)
    return Program(inputs, bodies, _calls(part.graph, slots), _argument(output.args[0], slots), len(nodes))


def _plain(result: Any) -> Any:
    """The structure of an output in Python's own containers: torch's own classes are dicts of what is not None, and
    numbers are tensors.
    """
    if isinstance(result, (bool, int, float)):
        return Tensor(np.asarray(result, np.float32 if isinstance(result, float) else None))
    if isinstance(result, Mapping):
        return {str(key): _plain(value) for key, value in result.items() if value is not None}
    if isinstance(result, (list, tuple)) and not isinstance(result, Slot):
        return tuple(_plain(item) for item in result if item is not None)
    return result


# Calls ----------------------------------------------------------------------------------------------------------------


def _calls(graph: Graph, slots: Mapping[Node, Slot]) -> list[Call]:
    """The calls of a graph.

    Raises:
        TorchImportError: for operators that the table lacks, each with its line.
    """
    nodes = [node for node in graph.nodes if node.op == "call_function"]
    last = {used: node for node in nodes for used in node.all_input_nodes}
    kept = {node for output in graph.nodes if output.op == "output" for node in output.all_input_nodes}
    missing = {
        operator_name(node): node
        for node in reversed(nodes)
        if node.target not in LARGER and operator_name(node) not in TABLE
    }
    for node in nodes:
        if operator_name(node) in missing and torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
            raise TorchImportError(
                f"from_torch: {operator_name(node)} ({_line(node) or 'no line'}) draws random numbers: a graph has "
                "none, so take them as an input"
            )
        if TABLE.get(operator_name(node)) in FOR_FLOATS and not node.meta["val"].is_floating_point():
            raise TorchImportError(
                f"from_torch: {operator_name(node)} ({_line(node) or 'no line'}) of {node.meta['val'].dtype}: ONNX has "
                "it for floating-point numbers alone; convert its operands with .float(), which holds integers up to "
                "2**24 exactly"
            )
    for name, node in missing.items():
        if reason := _kept_parameter(_path(node)) or remedy(name):
            raise TorchImportError(f"from_torch: {name} ({_line(node) or 'no line'}) {reason}")
    if missing:
        listed = "; ".join(f"{name} ({_line(node) or 'no line'})" for name, node in missing.items())
        raise TorchImportError(
            f"from_torch: no function for {listed}: write one of Lucid's tensors and add it with "
            f'lucid.importing.register("{next(iter(missing))}", function)'
        )
    return [
        Call(
            slots[node].number,
            node.target if node.target in LARGER else TABLE[operator_name(node)],
            tuple(_argument(argument, slots) for argument in node.args),
            {key: _argument(value, slots) for key, value in node.kwargs.items() if key not in _PLACES},
            operator_name(node),
            _path(node),
            _line(node),
            tuple(slots[used].number for used in node.all_input_nodes if last[used] is node and used not in kept),
        )
        for node in nodes
    ]


def _kept_parameter(path: str) -> str:
    """Advice for an operator of a parametrization, which computes the same in each call; empty for others."""
    match = re.fullmatch(r"(?:(.+)\.)?parametrizations\.(\w+)\.\d+", path)
    if match is None:
        return ""
    owner = f'module.get_submodule("{match[1]}")' if match[1] else "module"
    return (
        f"computes the parametrized {match[2]} of a layer, which is the same in each call: keep its value by "
        f'torch.nn.utils.parametrize.remove_parametrizations({owner}, "{match[2]}")'
    )


_PLACES = ("device", "layout", "pin_memory", "memory_format", "non_blocking", "generator")


def operator_name(node: Node) -> str:
    """The name of an operator in the table: `aten.add.Tensor`, or that of a function of Python."""
    target: Any = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return str(target.__name__)
    return str(target) + (OF_COMPLEX if any(map(_is_complex, (node, *node.all_input_nodes))) else "")


def _is_complex(node: Node) -> bool:
    value = node.meta.get("val")
    tensors = value if isinstance(value, (list, tuple)) else [value]
    return any(isinstance(tensor, torch.Tensor) and tensor.is_complex() for tensor in tensors)


def _argument(argument: Any, slots: Mapping[Node, Slot]) -> Any:
    if isinstance(argument, Node):
        return slots[argument]
    if isinstance(argument, torch.dtype):
        return None if argument == torch.complex64 else dtype_of(argument)  # pairs of numbers have none
    if isinstance(argument, (list, tuple)):
        return [_argument(item, slots) for item in argument]
    if isinstance(argument, Mapping):
        return {key: _argument(item, slots) for key, item in argument.items()}
    return None if isinstance(argument, (torch.device, torch.layout, torch.memory_format)) else argument


def dtype_of(dtype: torch.dtype) -> DType:
    """Lucid's element type.

    Raises:
        TorchImportError: for one that Lucid does not have.
    """
    try:
        return as_dtype(str(dtype).removeprefix("torch."))
    except TypeError as error:
        raise TorchImportError(f"from_torch: {dtype} is an element type that Lucid does not have") from error


def _kinds(graph: Graph) -> dict[str, str]:
    """The classes of torch's modules by path."""
    stacks = [node.meta.get("nn_module_stack") or {} for node in graph.nodes]
    return {_module_path(path): str(kind).rpartition(".")[2] for stack in stacks for path, kind in stack.values()}


def _module_path(path: str) -> str:
    return re.sub(r"@\d+", "", path).removeprefix("L['self']").strip(".")


def _path(node: Node) -> str:
    """The path of the module that made a call."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    return "" if not stack or stack[-1][0].startswith("_empty") else _module_path(stack[-1][0])


def _line(node: Node) -> str:
    """The user's line: the innermost one of the trace."""
    lines = re.findall(r'File "([^"<]+)", line (\d+)', node.meta.get("stack_trace") or "")
    return f"{lines[-1][0]}:{lines[-1][1]}" if lines else ""


# Weights --------------------------------------------------------------------------------------------------------------


def _weights(
    program: ExportedProgram, module: TorchPart, slots: Mapping[Node, Slot], kinds: Mapping[str, str]
) -> dict[int, Weight | Tensor | Complex]:
    """The values of the placeholders of parameters, buffers and constants, by slot; the state is put in its places."""
    own = {item.arg.name: item for item in program.graph_signature.input_specs}
    known: dict[Any, Tensor] = {}
    weights: dict[int, Weight | Tensor | Complex] = {}
    state = {key: value for key, value in program.state_dict.items() if not value.is_complex()}
    for key, value in state.items():
        _place(module, key, _tensor(value, known), kinds)
    constants = program.constants | {key: value for key, value in program.state_dict.items() if key not in state}
    for node, slot in slots.items():
        if node.op != "placeholder" or own[node.target].kind == InputKind.USER_INPUT or not node.users:
            continue
        key = own[node.target].target
        if key in state:
            owner = module
            *path, name = key.split(".")
            for step in path:
                owner = vars(owner)[step]
            weights[slot.number] = Weight(owner, name, key)
        elif isinstance(constant := constants.get(key), torch.Tensor):
            weights[slot.number] = (
                Complex(*(_tensor(part, known) for part in torch.view_as_real(constant.resolve_conj()).unbind(-1)))
                if constant.is_complex()
                else _tensor(constant, known)
            )
        else:
            kind = own[node.target].kind.name.lower().replace("_", " ")
            raise TorchImportError(f"from_torch: {key!r} is a {kind}, which Lucid does not have")
    return weights


def _tensor(value: torch.Tensor, known: dict[Any, Tensor]) -> Tensor:
    """A tensor in torch's memory, the same one for the same memory."""
    key = (value.data_ptr(), tuple(value.shape), value.stride(), value.dtype)
    if key not in known or not value.numel():
        plain = value.detach()
        if plain.dtype == torch.bfloat16:
            array = plain.view(torch.int16).numpy().view(bfloat16.numpy)
        else:
            dtype_of(plain.dtype)
            array = plain.numpy()
        array = np.ascontiguousarray(array).reshape(array.shape)
        known[key] = Parameter(array) if isinstance(value, torch.nn.Parameter) else Tensor.from_array(array)
    return known[key]


def _place(module: TorchPart, key: str, tensor: Tensor, kinds: Mapping[str, str]) -> None:
    """Assign a tensor under its key, with the parts on the way."""
    *path, name = key.split(".")
    for depth, step in enumerate(path):
        if step not in vars(module):
            setattr(module, step, TorchPart(kinds.get(".".join(path[: depth + 1]), "")))
        module = vars(module)[step]
    setattr(module, name, tensor)


def _declare_uses(graph: Graph, weights: Mapping[int, Any], slots: Mapping[Node, Slot]) -> None:
    """Tell `lucid.quantize` which parameters are read by `linear` or as tables alone."""
    tensors = {node: weights[slot.number] for node, slot in slots.items() if slot.number in weights}
    uses: dict[int, set[str]] = {}
    for node in graph.nodes:
        for used in node.all_input_nodes:
            weight = tensors.get(used)
            if isinstance(weight, Weight):
                places = [place for place, argument in enumerate(node.args) if argument is used] or [-1]
                roles = {_USES.get((str(node.target), place), "other") for place in places}
                uses.setdefault(id(getattr(weight.owner, weight.name)), set()).update(roles)
    for weight in tensors.values():
        if isinstance(weight, Weight) and isinstance(weight.owner, TorchPart):
            own = uses.get(id(getattr(weight.owner, weight.name)), {"other"})
            if "other" not in own:
                weight.owner.quantizable[weight.name] = "linear" if "linear" in own else "table"


_USES = {("aten.linear.default", 1): "linear", ("aten.embedding.default", 0): "table"}
