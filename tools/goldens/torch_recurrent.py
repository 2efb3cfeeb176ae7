"""nn.RNN, nn.GRU and nn.LSTM; groups.py says how the values are made."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from .core import normal
from .groups import Group

L, N, E, H = 5, 3, 4, 6
LENGTHS = [3, 5, 1]
ABOUT = (
    "The class is the case's name up to the first space; h_0 and c_0 are given where they are among the inputs. Cases of "
    "lengths are packed sequences; those of reverse are the layer for flipped elements, whose outputs are flipped."
)

CASES: dict[str, dict[str, object]] = {
    "RNN": {},
    "RNN relu": {"nonlinearity": "relu", "num_layers": 2},
    "RNN reads both ways": {"bidirectional": True, "bias": False},
    "GRU": {},
    "GRU batch first": {"batch_first": True, "num_layers": 2},
    "GRU without bias": {"bias": False},
    "GRU reads both ways": {"bidirectional": True, "num_layers": 2},
    "LSTM": {},
    "LSTM batch first": {"batch_first": True, "num_layers": 2},
    "LSTM without bias": {"bias": False},
    "LSTM reads both ways": {"bidirectional": True, "num_layers": 2},
    "LSTM projects": {"bidirectional": True, "num_layers": 2, "proj_size": 2},
}


def recurrent() -> Group:
    group = Group(ABOUT)
    group.tensor("x", normal((L, N, E), 1))
    group.tensor("x_batch_first", group.tensors["x"].transpose(0, 1))
    group.tensor("x_single", group.tensors["x"][:, 0])
    for seed, (case, changes) in enumerate(CASES.items()):
        kind = getattr(nn, case.split()[0])
        arguments = {"input_size": E, "hidden_size": H, **changes}
        module = kind(**arguments)
        weights = group.weights(f"weights.{seed}", module, 100 + seed)
        count = module.num_layers * (2 if module.bidirectional else 1)
        starts = {"h_0": group.tensor(f"h_0.{seed}", normal((count, N, module.proj_size or H), 200 + seed))}
        if kind is nn.LSTM:
            starts["c_0"] = group.tensor(f"c_0.{seed}", normal((count, N, H), 300 + seed))
        x = {"x": "x_batch_first" if module.batch_first else "x"}
        ways = {case: x, f"{case}, states": x | starts, f"{case}, single": {"x": "x_single"}}
        ways |= {f"{case}, lengths": x | starts}
        ways |= {} if module.bidirectional else {f"{case}, reverse": x | starts}
        for name, inputs in ways.items():
            if name.endswith("single") and changes:
                continue
            states = tuple(group.get(inputs[key]) for key in starts if key in inputs)
            hx = (states if kind is nn.LSTM else states[0]) if states else None
            output, last, options, own = run(module, group.get(inputs["x"]), hx, name.rpartition(", ")[2])
            last = last if isinstance(last, tuple) else (last,)
            outputs = {"output": output, **dict(zip(("h_n", "c_n"), last, strict=False))}
            group.add(name, arguments=arguments | own, weights=weights, inputs=inputs, options=options, outputs=outputs)
    assert all(torch.isfinite(value).all() for value in group.tensors.values())
    return group


def run(
    module: nn.Module, x: torch.Tensor, hx: object, way: str
) -> tuple[torch.Tensor, object, dict[str, Any], dict[str, Any]]:
    """The outputs and the last states, and the options of the call and of the constructor that mean them in Lucid."""
    if way == "lengths":
        packed, last = module(pack_padded_sequence(x, LENGTHS, module.batch_first, enforce_sorted=False), hx)
        return pad_packed_sequence(packed, module.batch_first)[0], last, {"lengths": LENGTHS}, {}
    axis = 1 if module.batch_first else 0
    if way == "reverse":
        output, last = module(x.flip(axis), hx)
        return output.flip(axis), last, {}, {"reverse": True}
    return *module(x, hx), {}, {}
