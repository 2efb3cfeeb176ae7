"""Samples from torch: of every mapped operator and module, in every element type, with torch's result.

Each of torch's samples is used as it is. If torch makes no such variants itself, the first few are repeated as
non-contiguous tensors, and with special values among their numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_modules import module_db
from torch.testing._internal.opinfo.core import OpInfo, SampleInput

from lucid.core.graph.types import Array
from tests.torch_calls import SINGLE, Call
from tools.torch_samples import layouts, neural
from tools.torch_samples.calls import DTYPES, NotMappedError, array_of, as_call, needs
from tools.torch_samples.modules import MODULES, module_call
from tools.torch_samples.operators import OPERATORS

_REGISTERED = (layouts, neural)  # their mappings are in OPERATORS

LARGEST = 5_000  # numbers in a tensor; torch has samples of a million, which show nothing that small ones do not
MOST = 25  # samples of one operator in one element type; pooling has 1,440
CREATIONS = ("zeros", "ones", "full", "eye", "arange", "scalar_tensor")  # calls without a tensor
SPECIAL = [float("nan"), float("inf"), -float("inf"), -0.0, 0.0, 1.0, -1.0]


@dataclass(frozen=True)
class Drawn:
    """A sample: the call of Lucid and torch's results, or why there is none."""

    torch_name: str
    dtype: str
    number: int  # within the samples of one operator in one element type: the same in every run
    kind: str  # "plain", "empty", "apart", "special", "error"
    call: Call | None = None
    expected: tuple[Array, ...] = ()
    reason: str = ""

    @property
    def made(self) -> Call:
        """The call, of a sample that has one."""
        assert self.call is not None, self.reason
        return self.call


def torch_name(info: OpInfo) -> str:
    return f"{info.name}.{info.variant_test_name}" if info.variant_test_name else info.name


def operators() -> Iterator[tuple[str, OpInfo]]:
    """The operators that Lucid has under the same name, by name."""
    for info in op_db:
        if torch_name(info) in OPERATORS:
            yield torch_name(info), info


def samples_of(name: str, info: OpInfo) -> Iterator[Drawn]:
    for dtype in DTYPES:
        if dtype not in info.dtypes:
            continue
        torch.manual_seed(0)
        np.random.seed(0)  # torch's own samples draw from it
        samples = list(info.reference_inputs("cpu", dtype, requires_grad=False))
        small = [s for s in samples if all(t.numel() <= LARGEST for t in tensors_in(s))]
        filled = [s for s in small if all(t.numel() for t in tensors_in(s))][:3]
        variants = [
            ("empty" if any(t.numel() == 0 for t in tensors_in(s)) else "plain", s)
            for s in small[:: max(1, -(-len(small) // MOST))]
        ]
        variants += [("apart", s.noncontiguous()) for s in filled]
        if dtype.is_floating_point:
            variants += [("special", with_specials(s, dtype, extremal(name))) for s in filled]
        for number, (kind, sample) in enumerate(variants):
            blank = Drawn(name, str(dtype).removeprefix("torch."), number, kind)
            yield from drawn(blank, info, sample)


def extremal(name: str) -> bool:
    """Whether an operator is elementwise, so that the largest and smallest numbers of a type can be used."""
    return any(name.rsplit(".", 1)[-1] == single for single in SINGLE) or name in ("clamp_min", "clamp_max", "eq", "ne")


def tensors_in(tree: Any) -> list[torch.Tensor]:
    if isinstance(tree, torch.Tensor):
        return [tree]
    if isinstance(tree, SampleInput):
        return tensors_in((tree.input, tree.args, tree.kwargs))
    if isinstance(tree, dict):
        return tensors_in(list(tree.values()))
    return [t for item in tree for t in tensors_in(item)] if isinstance(tree, (tuple, list)) else []


def with_specials(sample: SampleInput, dtype: torch.dtype, extremes: bool) -> SampleInput:
    """The sample with NaN, infinities and zeros of both signs among its numbers, and the ends of the type's range."""
    generator = np.random.default_rng(0)
    limits = torch.finfo(dtype)
    values = [*SPECIAL, *([limits.max, limits.min, limits.tiny, limits.smallest_normal / 4] if extremes else [])]

    def put(x: Any) -> Any:
        if not isinstance(x, torch.Tensor) or x.dtype != dtype:
            return x
        places = torch.tensor(generator.random(tuple(x.shape)) < 0.3)
        chosen = torch.tensor(generator.choice(values, tuple(x.shape)), dtype=torch.float64).to(dtype)
        return torch.where(places, chosen, x)

    return sample.transform(put)


def drawn(blank: Drawn, info: OpInfo, sample: SampleInput) -> Iterator[Drawn]:
    """The sample as calls of Lucid, with torch's results."""
    arguments, options = (sample.input, *sample.args), sample.kwargs
    try:
        mapped = OPERATORS[blank.torch_name](*arguments, **options)
        mappings = mapped if isinstance(mapped, list) else [mapped]
        calls = [as_call(w) for w in mappings]
        needs(bool(calls[0].tensors) or blank.torch_name in CREATIONS, "operands that are numbers alone")
    except NotMappedError as reason:
        yield replace(blank, reason=str(reason))
        return
    result = info(*arguments, **options)
    for one, call in zip(mappings, calls, strict=True):
        yield answered(replace(blank, call=call), result if one.pick is None else result[one.pick])


def answered(sample: Drawn, result: Any) -> Drawn:
    try:
        return replace(sample, expected=tuple(array_of(t).copy() for t in tensors_in(result)))
    except NotMappedError as reason:
        return replace(sample, call=None, reason=f"torch answers in {reason}")


def errors_of(name: str, info: OpInfo) -> Iterator[Drawn]:
    """Calls that torch refuses."""
    if info.error_inputs_func is None:
        return
    for number, error in enumerate(info.error_inputs("cpu")):
        sample = error.sample_input
        if refused_by_torch(partial(info, sample.input, *sample.args, **sample.kwargs)):
            try:
                mapped = OPERATORS[name](sample.input, *sample.args, **sample.kwargs)
                calls = [as_call(w) for w in (mapped if isinstance(mapped, list) else [mapped])]
                needs(bool(calls[0].tensors) or name in CREATIONS, "operands that are numbers alone")
            except NotMappedError as reason:
                yield Drawn(name, "", number, "error", reason=str(reason))
                continue
            except (TypeError, AttributeError, ValueError, IndexError, ZeroDivisionError) as reason:
                # Arguments so wrong that they cannot be mapped to a call of Lucid.
                yield Drawn(name, "", number, "error", reason=f"cannot be written as a call: {type(reason).__name__}")
                continue
            yield from (Drawn(name, "", number, "error", call) for call in calls)


def refused_by_torch(run: Callable[[], Any]) -> bool:
    try:
        run()
    except (RuntimeError, TypeError, ValueError, IndexError, AttributeError, AssertionError, ZeroDivisionError):
        return True
    return False


def modules() -> Iterator[tuple[str, Any]]:
    """The modules that Lucid has under the same name, by name."""
    for info in module_db:
        if info.name.removeprefix("nn.") in MODULES:
            yield info.name, info


def module_samples_of(full_name: str, info: Any) -> Iterator[Drawn]:
    name = full_name.removeprefix("nn.")
    for dtype in info.dtypes:
        if dtype not in DTYPES:
            continue
        torch.manual_seed(0)
        inputs = info.module_inputs_func(info, device="cpu", dtype=dtype, requires_grad=False, training=False)
        for number, module_input in enumerate(inputs[:: max(1, -(-len(inputs) // MOST))]):
            constructor, forward = module_input.constructor_input, module_input.forward_input
            module = info.module_cls(*constructor.args, **constructor.kwargs).to(dtype).eval()
            kind = "empty" if any(t.numel() == 0 for t in tensors_in((forward.args, forward.kwargs))) else "plain"
            blank = Drawn(full_name, str(dtype).removeprefix("torch."), number, kind)
            try:
                call = module_call(name, module, forward.args, forward.kwargs)
            except NotMappedError as reason:
                yield replace(blank, reason=str(reason))
                continue
            with torch.no_grad():
                yield answered(replace(blank, call=call), module(*forward.args, **forward.kwargs))


def without_namesake() -> list[str]:
    """torch's operators and modules that are not drawn."""
    known = {*dict(operators()), *dict(modules())}
    every = [*map(torch_name, op_db), *(info.name for info in module_db)]
    return sorted(name for name in every if name not in known)
