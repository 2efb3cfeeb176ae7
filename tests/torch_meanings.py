"""Lines of torch code that ran, and what they gave: each is run with Lucid in torch's place.

`tools/goldens/torch_meanings.py` runs them with torch and stores the results, or the error that torch raises.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

TYPES = ("float16", "bfloat16", "float32", "float64", "int8", "uint8", "int32", "int64", "bool")
# (2, 3) of each type, and a number of each.
NAMES = dict(zip(TYPES, ("half", "brain", "single", "double", "int8", "uint8", "int32", "int64", "flags"), strict=True))

OPERANDS = {
    **{NAMES[name]: ("arange", (2, 3), name) for name in TYPES},
    **{f"{NAMES[name]}_number": ("number", (), name) for name in TYPES},
    "block": ("arange", (2, 3, 4, 2), "int64"),
    "picks": ("picks", (2,), "int64"),
    "pairs": ("picks", (2, 1), "int64"),
}

_NUMBERS = [f"{name}_number" for name in NAMES.values()]

# Numbers beside tensors with axes, and alone: every pair of types but one, which has torch's int16.
PROMOTION = [
    *(f"{array} * {number}" for array, number in itertools.product(NAMES.values(), _NUMBERS)),
    *(f"{number} + {array}" for array, number in itertools.product(list(NAMES.values())[:8:3], _NUMBERS)),
    *(f"{a} * {b}" for a, b in itertools.combinations(_NUMBERS, 2) if {a, b} != {"int8_number", "uint8_number"}),
    *(f"{name} * {number}" for name, number in itertools.product([*NAMES.values(), *_NUMBERS], ("2", "2.5"))),
    "half / single_number",
    "int32 / int64_number",
    "half // single_number",
    "int32 % int64_number",
    "half ** single_number",
    "half > double_number",
    "int32 == double_number",
    "torch.maximum(half, single_number)",
    "torch.where(flags, half, single_number)",
    "torch.where(flags, single_number, half)",
    "torch.where(flags, int64, half_number)",
    "torch.where(flags, half_number, single_number)",
    "half.clamp(min=single_number)",
    "(half * single_number).softmax(-1) * double_number",
    "half.sum() * single[0]",
    "half.mean() + single",
]

FILLING = [
    "half.masked_fill(flags, 1.5)",
    "half.masked_fill(flags, single_number)",
    "half.masked_fill(flags, double_number)",
    "int64.masked_fill(flags, 1.5)",
    "int64.masked_fill(flags, -2.5)",
    "int32.masked_fill(flags, True)",
    "int32.masked_fill(flags, single_number)",
    "uint8.masked_fill(flags, int64_number)",
    "flags.masked_fill(flags, 0)",
    "flags.masked_fill(~flags, 5.5)",
    "flags.masked_fill(flags, single_number)",
    "torch.masked_fill(brain, flags, 2)",
    "single.masked_fill(flags[0], -inf)",
    "single[0].masked_fill(flags, 0)",
    "single_number.masked_fill(flags, 0)",
    "flags.masked_fill(flags, -inf)",
    "int64.masked_fill(flags, -inf)",
    "int32.masked_fill(flags, 2**40)",
    "half.masked_fill(flags, -1e9)",
    "single.masked_fill(int64, 0)",
]
SUMS = [
    *(f"{name}.cumsum(0, dtype=torch.{kind})" for name in ("int64", "uint8", "half") for kind in ("int32", "float32")),
    "int64.cumsum(1)",
    "int32.cumsum(dim=1)",
    "flags.cumsum(-1)",
    "flags.cumsum(-1, dtype=torch.int32)",
    "torch.cumsum(int8, dim=0, dtype=torch.int8)",
    "single.cumsum(0, dtype=torch.half)",
    "int64.sum(0, dtype=torch.int32)",
    "int64.sum(dtype=torch.float16)",
    "int64.prod(dtype=torch.int32)",
    "torch.prod(half, dtype=torch.float32)",
    "int32.prod(1, dtype=torch.int32)",
    "flags.sum(dtype=torch.int32)",
    "half.mean(dtype=torch.float32)",
    "int64.mean(dtype=torch.float32)",
    "half.norm(dtype=torch.float32)",
    "half.log_softmax(-1, dtype=torch.float32)",
    "half.softmax(-1, dtype=torch.float32)",
]
NO_AXES = [
    *(
        f"single.{name}({spelling})"
        for name in ("sum", "mean", "amax", "amin", "std", "var")
        for spelling in ("()", "dim=()", "dim=[]", "dim=None", "dim=(), keepdim=True", "dim=(0, 1)")
    ),
    "torch.sum(int64, ())",
    "torch.mean(single, dim=(), keepdim=True)",
    "torch.norm(single, dim=())",
    "single.norm(dim=[])",
    "(single > 1).any(dim=())",
    "(single > 1).all(dim=[])",
    "(single > 1).all(())",
]
INDEXING = [
    *(
        f"block[{index}]"
        for index in (
            "0, :, picks",
            "picks, :, 0",
            ":, picks, :, 0",
            "0, :, picks, 1",
            "0, :, :, picks",
            ":, 0, picks",
            ":, 0, :, picks",
            "..., 0, picks",
            "0, ..., picks",
            "picks, 0",
            "0, picks",
            "picks, :, picks",
            "picks, 0, picks",
            "picks, 0, :, picks",
            ":, picks, 0, picks",
            "0, picks, :, picks",
            "0, None, picks",
            "None, 0, :, picks",
            "-1, :, pairs",
            "pairs, :, 0",
            "pairs, 0, picks",
            "int64_number - 2, :, picks",
            ":, int64_number - 2, :, picks",
            "picks, :, int64_number - 2",
            "int64_number - 3, :, int64_number - 2",
            "picks, int64_number - 2, :, picks",
            "1, 0:1, picks",
            "1:, :, picks, 0",
            "0, :, [1, 0]",
            "[1, 0], :, 0",
            "picks, None, 0",
            ":, None, picks, 0",
            "picks, :, :, 1",
            "0, :2, picks, ::2",
        )
    ),
]
EXTREMES = [
    *(
        f"{line.format(name=name)}"
        for name in ("max", "min")
        for line in (
            "block.{name}()",
            "block.{name}(1)",
            "block.{name}(-1)[0]",
            "block.{name}(1).values",
            "block.{name}(1).indices",
            "block.{name}(1, True)",
            "block.{name}(dim=2, keepdim=True)",
            "single.{name}(0, keepdim=True)[1]",
            "torch.{name}(half, 1)",
            "torch.{name}(half, dim=-1, keepdim=True).values",
            "torch.{name}(single, double_number)",
            "torch.{name}(int64, other=int64_number)",
            "int64.{name}(torch.tensor(2))",
            "single.{name}((0, 1))",
            "single.arg{name}()",
            "block.arg{name}()",
            "block.arg{name}(keepdim=True)",
            "block.arg{name}(dim=None)",
            "block.arg{name}(1)",
            "block.arg{name}(dim=-1, keepdim=True)",
            "torch.arg{name}(single)",
            "single_number.arg{name}()",
        )
    ),
    "single.sort(0, True)",
    "torch.sort(single, descending=True).indices",
    "single.topk(2)",
    "torch.topk(single, 1, dim=0).values",
]
EINSUM = [
    f"torch.einsum({line})"
    for line in (
        "'ij->i', flags",
        "'ij->', flags",
        "'ij->ji', flags",
        "'ij,ij->ij', flags, flags",
        "'ij,kj->ik', flags, flags",
        "'ij->i', int32",
        "'ij,ij->i', int32, int32",
        "'ij,kj->ik', uint8, uint8",
        "'ij,kl->il', int32, int32",
        "'ij,kl->jk', half, half",
        "'ij,ij', int64, int64",
        "'ij,k->ijk', half, single[0]",
        "'ij,k->ijk', int64, half[0]",
    )
]
MADE = [
    "torch.full((2,), 3)",
    "torch.full((2,), True)",
    "torch.full((2,), 0.5)",
    "torch.full((2, 1), fill_value=int32_number)",
    "torch.full(size=(2,), fill_value=half_number, dtype=torch.float32)",
    "torch.full((2,), 3, dtype=torch.float16)",
    "half.new_full((2,), 3)",
    "torch.full_like(half, 3)",
    "torch.arange(2.5, dtype=torch.int64)",
    "torch.arange(0.5, 3, 1, dtype=torch.int32)",
    "torch.arange(0.5, 3)",
    "torch.arange(2.5, dtype=torch.int32)",
    "torch.ones(3, dtype=None)",
    "torch.eye(2, dtype=None)",
    "torch.linspace(0, 1, 3, dtype=None)",
    "torch.arange(end=4)",
    "torch.arange(end=2.5)",
    "torch.arange(start=1, end=4)",
    "+single",
    "+int32_number",
]
SCALED = [
    "half.add(int32, alpha=0.5)",
    "torch.sub(half, uint8, alpha=2)",
    "half.add(single_number, alpha=2)",
    "int32.sub(int64_number, alpha=3)",
    "single.add(2, alpha=0.5)",
    "torch.add(single, single, alpha=2.5)",
    "torch.add(flags, True, alpha=-1)",
    "int32.add(int32, alpha=0.5)",
]
TAKEN = [
    "torch.take(block, picks)",
    "torch.take(input=single, index=pairs)",
    "torch.take(single, int64_number)",
    "torch.index_select(block, 1, picks)",
    "torch.gather(input=int64, dim=1, index=pairs)",
    "int64.gather(1, pairs)",
    "torch.where(condition=flags, input=half, other=half)",
    "torch.permute(input=block, dims=(3, 1, 0, 2))",
    "torch.split(tensor=single, split_size_or_sections=2, dim=1)",
    "single.reshape(shape=(3, 2))",
    "torch.pow(input=single, exponent=2)",
    "torch.maximum(input=single, other=single_number)",
]

# Numbers that half precision does not hold, whose results it does.
OUTSIDE_HALF = [
    *(
        f"half * 20000 * {number} * 1000"
        for number in ("1e-8", "torch.tensor(1e-8)", "torch.tensor(1e-8, dtype=torch.float64)")
    ),
    *(f"half / 6 * {number}" for number in ("70000.", "70000", "torch.tensor(70000.)", "torch.tensor(70000)")),
    "70000. * (half / 6)",
    "(half * 20000).mul(1e-8) * 1000",
    "half * 1e-8 * 1e8",
    "half * 20000 / 1e5",
    "half * 20000 / torch.tensor(1e5)",
    "torch.div(half * 20000, 100000)",
    "1e5 / (half * 20000)",
    "half - 70000.0",
    "70000.0 - half",
    "half + torch.tensor(70000.)",
    *(f"half {sign} {number}" for sign in ("<", "<=", ">", ">=", "==", "!=") for number in ("70000.0", "-70000")),
    "half * 0 > -1e-8",
    "half * 0 == torch.tensor(1e-8)",
    "half_number * 20000 * 1e-8 * 1000",
    "half_number / 6 * 70000.",
    "F.leaky_relu(half * -20000, 1e-8) * 1000",
    "torch.where(flags, half, torch.tensor(70000.))",
    "torch.maximum(half, torch.tensor(70000.))",
    "torch.where(flags, half, 70000.)",
    "half.clamp(max=70000.)",
    "brain * torch.tensor(0.1) * 1000",
]
SMALL_RESULTS = [
    *(
        line
        for operand in ("single", "double", "brain.float()", "half.float()", "single.double()")
        for line in (f"torch.log(F.softplus({operand} * -10))", f"torch.log(-F.logsigmoid({operand} * 10))")
    ),
    *(f"F.softplus({operand} * -4) * 1000" for operand in ("half", "brain")),
    "F.softplus(double * -30, beta=0.5).log()",
    *(
        f"{name}({operand})"
        for name in ("F.softplus", "F.logsigmoid")
        for kind in ("half", "single", "double")
        for operand in (
            f"{kind} / 0.0",
            f"-{kind} / 0.0",
            f"{kind} / 0.0 - {kind} / 0.0",
            f"{kind} * 0",
            f"{kind} * -200",
        )
    ),
]
REFUSED = [
    "int64 // 0",
    "int64 % 0",
    "uint8 // int32_number.sub(3)",
    "int32 // torch.tensor([[0], [1]], dtype=torch.int32)",
    "torch.div(int64, 0, rounding_mode='trunc')",
    "torch.div(int64, 0, rounding_mode='floor')",
    "torch.zeros((0, 2), dtype=torch.int64) // 0",
    "int64 / 0",
    "single.std(True)",
    *(
        f"single.{name}({argument}=True)"
        for name in ("sum", "mean", "amax", "var", "std", "norm")
        for argument in ("dim", "axis")
    ),
    "torch.std(single, dim=True)",
    "single.std(dim=False, unbiased=True)",
    "single.add(2, single)",
    "torch.sub(single, 2, single)",
]
FORWARDS = [
    f"torch.nn.{line}"
    for line in (
        "ReLU()(input=single)",
        "Softmax(dim=-1)(input=single)",
        "LayerNorm(3)(input=single)",
        "Identity()(input=single)",
        "Flatten(0)(input=single)",
        "Sequential(torch.nn.ReLU())(input=single)",
        "AvgPool1d(2)(input=single)",
        "Dropout(0.5).eval()(input=single)",
        "Linear(3, 2, bias=False)(input=single).shape[1]",
        "Embedding(30, 4)(input=int64).shape[2]",
        "ReLU()(single, input=single)",
        "ReLU()(inputs=single)",
    )
]

EDGES = [
    "torch.xlogy(half, int64)",
    "torch.xlogy(double_number, int64)",
    "torch.xlogy(single, double_number)",
    "torch.logit(uint8 * 3)",
    "torch.cummax(flags, 1)",
    "torch.cummin(flags, 0)",
    "torch.isinf(flags)",
    "torch.isfinite(flags)",
    "single[[]]",
    "single[:, []]",
    "torch.diff(single, 1, 5)",
    "torch.diff(single_number)",
    "torch.diff(single, -1)",
    "torch.median(int64, 5)",
    "torch.diag_embed(single_number)",
    "torch.outer(single[0], 2)",
    "torch.cdist(single[0], single)",
    "torch.randint(3, 3, (2,))",
    "torch.repeat_interleave(single, 1.5)",
    "torch.index_select(single, 0, pairs)",
    "torch.randperm(-1)",
    "torch.hann_window(-1)",
    "torch.eye(-1)",
    "torch.rand(2, dtype=torch.int64)",
    "torch.nonzero_static(single, size=-1)",
    "torch.full((2,), 'a')",
    "torch.hstack([])",
    "single.norm('x')",
    "single.tile(2)",
    "torch.tile(single, (2,))",
    "single.tile(2, 1, 2)",
    "F.interpolate(single[None], size=0)",
    "F.interpolate(single[None], scale_factor=0.2)",
    "F.multi_margin_loss(single, torch.tensor([0]))",
    "F.gaussian_nll_loss(single, single, -single)",
]


SECTIONS: dict[str, list[str]] = {
    "a number beside a tensor": PROMOTION,
    "masked_fill keeps the type": FILLING,
    "sums of a given type": SUMS,
    "no axes are all axes": NO_AXES,
    "integers beside tensors as indices": INDEXING,
    "the largest and the least": EXTREMES,
    "einsum": EINSUM,
    "tensors of one number and of rows of them": MADE,
    "multiples added": SCALED,
    "arguments by name, and elements of the flattened tensor": TAKEN,
    "numbers that half precision does not hold": OUTSIDE_HALF,
    "small results": SMALL_RESULTS,
    "divisions by 0, flags as axes and operands in another order": REFUSED,
    "the input of modules by name": FORWARDS,
    "empty lists, booleans, and axes that are not there": EDGES,
}

# Lines that Lucid refuses although torch runs them, and what the error says.
ELSEWHERE: dict[str, str] = {
    "torch.where(flags, half, 70000.)": "70000.0 does not fit float16",
    "single.add(2, single)": r"x\.add\(y, alpha=alpha\)",
    "torch.sub(single, 2, single)": r"x\.sub\(y, alpha=alpha\)",
}


def lines() -> Iterator[str]:
    """All lines."""
    return itertools.chain.from_iterable(SECTIONS.values())


def array_of(name: str) -> np.ndarray[Any, Any]:
    """An operand in float64 or int64, which its own element type holds exactly."""
    kind, shape, dtype = OPERANDS[name]
    if kind == "picks":
        return np.array([1, 0]).reshape(shape)
    values = np.arange(1, math.prod(shape) + 1).reshape(shape) if kind == "arange" else np.array(3)
    return values % 2 if dtype == "bool" else values / 2 if "float" in dtype else values
