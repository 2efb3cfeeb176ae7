"""Recurrent layers with torch's arguments, results and names of parameters: RNN, GRU, LSTM.

Each direction of each layer is a scan (`ops.scan`). Its step holds only what depends on the previous step: the products
with the elements are one product for all elements.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias, TypeVar, overload

from lucid import ops
from lucid.core.graph.types import DTypeLike, TensorType, same_shape, show_shape, spec
from lucid.core.number_ranges import is_whole
from lucid.core.sizes.dims import same
from lucid.core.torch_names.argument_names import torch_names_and
from lucid.nn import functional as F
from lucid.nn import init
from lucid.nn._checks import check_positive, check_probability
from lucid.nn.module import Module
from lucid.nn.utils.rnn import PackedSequence, element_mask, lengths_of
from lucid.ops.creation import full
from lucid.ops.operand_conversion import check_tensors
from lucid.ops.tensor.tensor import Tensor

E = TypeVar("E", Tensor, PackedSequence)
State: TypeAlias = tuple[Tensor, ...]  # the hidden state, and for an LSTM that of its cells


class _Weights(NamedTuple):
    """The parameters of one direction of one layer."""

    weight_ih: Tensor
    weight_hh: Tensor
    bias_ih: Tensor | None
    bias_hh: Tensor | None
    weight_hr: Tensor | None


class _Recurrent(Module):
    """The common base: layers, directions, and the order of axes."""

    gates = 1
    states = 1  # the number of carried tensors

    @torch_names_and("device")
    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        dtype: DTypeLike | None = None,
        *,
        reverse: bool = False,
    ) -> None:
        name = type(self).__name__
        check_positive(name, input_size=input_size, hidden_size=hidden_size, num_layers=num_layers)
        check_probability(name, "dropout", dropout)
        if not is_whole(proj_size) or not 0 <= proj_size < hidden_size:
            raise ValueError(f"{name}: proj_size is {proj_size!r}, expected 0 (none) to {hidden_size - 1}")
        if reverse and bidirectional:
            raise ValueError(
                f"{name}: got reverse and bidirectional, expected one of them: both ways are bidirectional"
            )
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        self.bias, self.batch_first, self.dropout = bias, batch_first, float(dropout)
        self.bidirectional, self.proj_size, self.reverse = bidirectional, proj_size, reverse
        self.out_size = proj_size or hidden_size
        bound = 1 / math.sqrt(hidden_size)
        rows = self.gates * hidden_size
        for layer in range(num_layers):
            width = input_size if layer == 0 else self.out_size * self.directions
            shapes: dict[str, tuple[int, ...]] = {"weight_ih": (rows, width), "weight_hh": (rows, self.out_size)}
            shapes |= {"bias_ih": (rows,), "bias_hh": (rows,)} if bias else {}
            shapes |= {"weight_hr": (proj_size, hidden_size)} if proj_size else {}
            for end in self._ends(layer):
                for name, shape in shapes.items():
                    parameter = init.uniform_(init.new_parameter(*shape, dtype=dtype), -bound, bound)
                    setattr(self, name + end, parameter)

    @property
    def directions(self) -> int:
        """2 if it also reads backwards, else 1."""
        return 2 if self.bidirectional else 1

    def _ends(self, layer: int) -> list[str]:
        """The endings of the names of a layer's parameters, by direction."""
        return [f"_l{layer}", f"_l{layer}_reverse"][: self.directions]

    def _weights(self, end: str) -> _Weights:
        parameters: list[Any] = [getattr(self, name + end, None) for name in _Weights._fields]
        return _Weights(*parameters)

    def _entered(self, x: Tensor, weights: _Weights) -> Tensor:
        """The contribution of each element to the gates."""
        entered = F.linear(x, weights.weight_ih, weights.bias_ih)
        return entered if weights.bias_hh is None else entered + weights.bias_hh

    def _step(self, state: State, entered: Tensor, weights: _Weights) -> State:
        raise NotImplementedError

    @overload
    def _outputs(self, x: Tensor, start: State | None, lengths: Any) -> tuple[Tensor, State]: ...
    @overload
    def _outputs(self, x: PackedSequence, start: State | None, lengths: Any) -> tuple[PackedSequence, State]: ...
    def _outputs(self, x: Any, start: State | None, lengths: Any) -> tuple[Any, State]:
        """The results of `_run` for what `forward` is given: packed sequences give packed ones."""
        if not isinstance(x, PackedSequence):
            return self._run(x, start, lengths)
        if lengths is not None:
            raise ValueError(f"{type(self).__name__}: got a PackedSequence and lengths, which it has already")
        outputs, states = self._run(x.padded, start, x.lengths, batch_first=False)
        return PackedSequence(outputs, x.lengths), states

    def _run(
        self, x: Tensor, initial: State | None, lengths: Any = None, *, batch_first: bool | None = None
    ) -> tuple[Tensor, State]:
        """The outputs of the last layer, and the states after the last step, of all layers and directions."""
        name = type(self).__name__
        batch_first = self.batch_first if batch_first is None else batch_first
        check_tensors(name, x=x)
        single = x.ndim == 2
        if x.ndim not in (2, 3) or not same(x.shape[-1], self.input_size):
            order = "N, L" if batch_first else "L, N"
            raise ValueError(
                f"{name}: input has shape {show_shape(x.shape)}, expected ({order}, {self.input_size}), "
                f"or (L, {self.input_size}) for one sequence"
            )
        x = x.unsqueeze(1) if single else x.transpose(0, 1) if batch_first else x
        states = self._starts(x, initial, single)
        seen = None
        if lengths is not None:
            seen = element_mask(x.shape[0], lengths_of(name, lengths, *x.shape[:2])).unsqueeze(2)
        after: list[list[Tensor]] = [[] for _ in range(self.states)]
        for layer in range(self.num_layers):
            outputs = []
            for direction, end in enumerate(self._ends(layer)):
                index = layer * self.directions + direction
                start = tuple(state[index] for state in states)
                backwards = self.reverse or direction == 1
                output, last = self._direction(x, start, self._weights(end), seen, backwards)
                outputs.append(output)
                for tensors, tensor in zip(after, last, strict=True):
                    tensors.append(tensor)
            x = ops.concat(outputs, -1)
            if layer < self.num_layers - 1:
                x = F.dropout(x, self.dropout, self.training)
        ends = tuple(ops.stack(tensors) for tensors in after)
        if single:
            return x.squeeze(1), tuple(end.squeeze(1) for end in ends)
        return (x.transpose(0, 1) if batch_first else x), ends

    def _direction(
        self, x: Tensor, start: State, weights: _Weights, seen: Tensor | None, reverse: bool
    ) -> tuple[Tensor, State]:
        """The outputs and the last states of one direction. Padding, where (L, N, 1) `seen` is false, is passed by."""

        def step(state: State, entered: Tensor) -> tuple[State, Tensor]:
            state = self._step(state, entered, weights)
            return state, state[0]

        def step_or_pass(state: State, element: tuple[Tensor, Tensor]) -> tuple[State, Tensor]:
            entered, seen = element
            after, output = step(state, entered)
            return tuple(map(ops.where, [seen] * self.states, after, state)), ops.where(seen, output, 0.0)

        entered = self._entered(x, weights)
        if seen is None:
            last, outputs = ops.scan(step, start, entered, reverse=reverse)
        else:
            last, outputs = ops.scan(step_or_pass, start, (entered, seen), reverse=reverse)
        return outputs, last

    def _cell(self, x: Tensor, state: State) -> State:
        """The states of the first layer after one element."""
        weights = self._weights(self._ends(0)[0])
        return self._step(state, self._entered(x, weights), weights)

    def _starts(self, x: Tensor, start: State | None, single: bool) -> State:
        """The states before the first step, (layers * directions, N, width) each."""
        count = self.num_layers * self.directions
        shapes = [(count, x.shape[1], size) for size in (self.out_size, self.hidden_size)[: self.states]]
        if start is None:
            return tuple(full(shape, 0, x.dtype) for shape in shapes)
        start = tuple(state.unsqueeze(1) if single and state.ndim == 2 else state for state in start)
        for state, shape in zip(start, shapes, strict=True):
            if not same_shape(state.shape, shape):
                raise ValueError(
                    f"{type(self).__name__}: a first state has shape {show_shape(state.shape)}, expected "
                    f"{show_shape(shape)}: layers times directions, the batch, the width of the state"
                )
        return start

    def flatten_parameters(self) -> None:
        """Nothing: torch arranges its memory by this."""

    def input_specs(self) -> Mapping[str, TensorType]:
        order = ("N", "L") if self.batch_first else ("L", "N")
        return {"x": spec(*order, self.input_size, dtype=self._weights("_l0").weight_ih.dtype)}

    def extra_repr(self) -> str:
        usual = {"num_layers": 1, "bias": True, "batch_first": False, "dropout": 0.0, "bidirectional": False}
        changed = {name: getattr(self, name) for name in (*usual, "proj_size", "reverse")}
        shown = [f"{name}={value}" for name, value in changed.items() if value != usual.get(name, 0)]
        return ", ".join([str(self.input_size), str(self.hidden_size), *shown])


class RNN(_Recurrent):
    """h' = tanh(W_ih x + b_ih + W_hh h + b_hh), or relu (Elman 1990).

    Takes x (L, N, input_size), or (N, L, input_size) with `batch_first`, or (L, input_size), and the first state h_0
    (num_layers * directions, N, hidden_size), by default zeros. Returns the outputs of the last layer,
    (L, N, directions * hidden_size), and the last state of every layer. As in torch, the outputs of two directions are
    side by side, and `dropout` is between layers.

    `lengths` (N,) are the lengths of sequences that are padded at their ends: outputs of padding are 0, the last state
    is that after the last element, and the way back starts there. A `PackedSequence` of `nn.utils.rnn` has lengths.
    With `reverse` it reads backwards alone; outputs stay at the places of their elements.

    Raises:
        ValueError: for sizes that are not positive, another nonlinearity, and inputs, states or lengths that do not
            fit.
    """

    @torch_names_and("device")
    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        dtype: DTypeLike | None = None,
        *,
        reverse: bool = False,
    ) -> None:
        if nonlinearity not in _NONLINEAR:
            raise ValueError(f'RNN: nonlinearity is {nonlinearity!r}, expected "tanh" or "relu"')
        self.nonlinearity = nonlinearity
        places = (input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional)
        super().__init__(*places, dtype=dtype, reverse=reverse)

    def forward(self, x: E, hx: Tensor | None = None, *, lengths: Any = None) -> tuple[E, Tensor]:
        """The outputs, and h_n."""
        outputs, (last,) = self._outputs(x, None if hx is None else (_tensor("RNN", hx),), lengths)
        return outputs, last

    def _step(self, state: State, entered: Tensor, weights: _Weights) -> State:
        return (_NONLINEAR[self.nonlinearity](entered + F.linear(state[0], weights.weight_hh)),)


class GRU(_Recurrent):
    """Gated recurrent units (Cho et al. 2014) as torch computes them: the reset gate after the product with the state.

    r, z = sigmoid(W_ih x + b_ih + W_hh h + b_hh), n = tanh(W_in x + b_in + r (W_hn h + b_hn)), h' = n + z (h - n).
    With ``reset_after=False``, as in the paper, the reset gate comes before the product: n = tanh(W_in x + b_in +
    W_hn (r h) + b_hn), which is ONNX's ``linear_before_reset=0``. Inputs and outputs are those of `RNN`.
    """

    gates = 3

    @torch_names_and("device")
    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        dtype: DTypeLike | None = None,
        *,
        reverse: bool = False,
        reset_after: bool = True,
    ) -> None:
        self.reset_after = reset_after
        places = (input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional)
        super().__init__(*places, dtype=dtype, reverse=reverse)

    def forward(self, x: E, hx: Tensor | None = None, *, lengths: Any = None) -> tuple[E, Tensor]:
        """The outputs, and h_n."""
        outputs, (last,) = self._outputs(x, None if hx is None else (_tensor("GRU", hx),), lengths)
        return outputs, last

    def extra_repr(self) -> str:
        return super().extra_repr() + ("" if self.reset_after else ", reset_after=False")

    def _entered(self, x: Tensor, weights: _Weights) -> Tensor:
        return F.linear(x, weights.weight_ih, weights.bias_ih)

    def _step(self, state: State, entered: Tensor, weights: _Weights) -> State:
        (h,) = state
        both = [2 * self.hidden_size, self.hidden_size]
        if self.reset_after:
            (first, new), (again, kept) = (
                gates.split(both, -1) for gates in (entered, F.linear(h, weights.weight_hh, weights.bias_hh))
            )
            reset, update = ops.sigmoid(first + again).chunk(2, -1)
            new = ops.tanh(new + reset * kept)
        else:
            first, new = entered.split(both, -1)
            of_gates, of_new = weights.weight_hh.split(both, 0)
            bias, new_bias = (None, None) if weights.bias_hh is None else weights.bias_hh.split(both, 0)
            reset, update = ops.sigmoid(first + F.linear(h, of_gates, bias)).chunk(2, -1)
            new = ops.tanh(new + F.linear(reset * h, of_new, new_bias))
        return (new + update * (h - new),)


class LSTM(_Recurrent):
    """Long short-term memory (Hochreiter & Schmidhuber 1997) with forget gates (Gers et al. 2000).

    i, f, g, o = W_ih x + b_ih + W_hh h + b_hh, c' = sigmoid(f) c + sigmoid(i) tanh(g), h' = sigmoid(o) tanh(c'), which
    `proj_size` projects (Sak et al. 2014). Takes x as `RNN` does, and the first states (h_0, c_0); returns the outputs
    and (h_n, c_n).
    """

    gates = 4
    states = 2

    def forward(
        self, x: E, hx: tuple[Tensor, Tensor] | None = None, *, lengths: Any = None
    ) -> tuple[E, tuple[Tensor, Tensor]]:
        """The outputs, and (h_n, c_n)."""
        if hx is not None and not (isinstance(hx, (tuple, list)) and len(hx) == 2):
            raise TypeError(f"LSTM: hx is a {type(hx).__name__}, expected a pair (h_0, c_0)")
        start = None if hx is None else tuple(_tensor("LSTM", state) for state in hx)
        outputs, (hidden, cells) = self._outputs(x, start, lengths)
        return outputs, (hidden, cells)

    def _step(self, state: State, entered: Tensor, weights: _Weights) -> State:
        h, c = state
        enter, forget, new, out = (entered + F.linear(h, weights.weight_hh)).chunk(4, -1)
        c = ops.sigmoid(forget) * c + ops.sigmoid(enter) * ops.tanh(new)
        h = ops.sigmoid(out) * ops.tanh(c)
        return (h if weights.weight_hr is None else F.linear(h, weights.weight_hr)), c


class _Cell(_Recurrent):
    """One step of the layer that a class also derives from, with its parameters under names without a layer."""

    @torch_names_and("device")
    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, dtype: DTypeLike | None = None) -> None:
        super().__init__(input_size, hidden_size, bias=bias, dtype=dtype)

    def _ends(self, layer: int) -> list[str]:
        return [""]

    def _next(self, x: Tensor, states: State | None) -> State:
        name = type(self).__name__
        check_tensors(name, x=x)
        if x.ndim not in (1, 2) or not same(x.shape[-1], self.input_size):
            raise ValueError(
                f"{name}: input has shape {show_shape(x.shape)}, expected (N, {self.input_size}) or without N"
            )
        zeros = (full((*x.shape[:-1], self.hidden_size), 0, x.dtype),) * self.states
        for state in states or ():
            if not same_shape(state.shape, zeros[0].shape):
                shown = f"{show_shape(state.shape)}, expected {show_shape(zeros[0].shape)}"
                raise ValueError(f"{name}: a state has shape {shown}")
        return self._cell(x, states or zeros)

    def forward(self, x: Tensor, hx: Any = None) -> Any:
        """The state after one element."""
        (last,) = self._next(x, None if hx is None else (_tensor(type(self).__name__, hx),))
        return last

    def input_specs(self) -> Mapping[str, TensorType]:
        return {"x": spec("N", self.input_size, dtype=self._weights("").weight_ih.dtype)}


class RNNCell(_Cell, RNN):  # type: ignore[misc]  # its forward is a step
    """One step of an `RNN`: x (N, input_size) and a state (N, hidden_size), by default zeros, to the next state."""

    @torch_names_and("device")
    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        dtype: DTypeLike | None = None,
    ) -> None:
        RNN.__init__(self, input_size, hidden_size, nonlinearity=nonlinearity, bias=bias, dtype=dtype)


class GRUCell(_Cell, GRU):  # type: ignore[misc]  # its forward is a step
    """One step of a `GRU`: x (N, input_size) and a state (N, hidden_size), by default zeros, to the next state."""


class LSTMCell(_Cell, LSTM):
    """One step of an `LSTM`: x (N, input_size) and a pair of states (N, hidden_size) to the next pair."""

    def forward(self, x: Tensor, hx: Any = None) -> Any:  # type: ignore[override]  # a step
        """The pair of states after one element."""
        hidden, cells = self._next(x, None if hx is None else tuple(_tensor("LSTMCell", state) for state in hx))
        return hidden, cells


_NONLINEAR: dict[str, Callable[[Tensor], Tensor]] = {"tanh": ops.tanh, "relu": ops.relu}


def _tensor(where: str, state: Any) -> Tensor:
    check_tensors(where, hx=state)
    return state if isinstance(state, Tensor) else Tensor(state)
