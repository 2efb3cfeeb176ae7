"""Compare the gradients of Lucid with torch.autograd over torch's own operator samples, in float64.

    python -m tools.torch_samples.gradients                  every operator that Lucid has under the same name
    python -m tools.torch_samples.gradients atan2 softmax    only these

A sample is compared where its call of Lucid takes the very tensors that torch's takes. Needs torch 2.13 and expecttest.
"""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

import lucid
from lucid import Tensor
from lucid.core.graph.types import Array
from tests.torch_calls import Call
from tools.torch_samples.calls import NotMappedError, as_call
from tools.torch_samples.draw import LARGEST, operators, tensors_in
from tools.torch_samples.operators import OPERATORS
from tools.torch_samples.run import REFUSALS

RTOL = 1e-9


def compared(info: Any, name: str, sample: Any) -> str:
    """How a sample turned out: "agrees", why it is not compared, or the difference."""
    arguments, options = (sample.input, *sample.args), sample.kwargs
    try:
        mapped = OPERATORS[name](*arguments, **options)
        mapping = mapped[0] if isinstance(mapped, list) else mapped
        call = as_call(mapping)
    except NotMappedError:
        return "not in Lucid"
    used = tensors_in([list(mapping.arguments), list(mapping.options.values())])
    own = {id(t) for t in tensors_in([list(arguments), options])}
    if len(used) != len(call.tensors) or any(t.requires_grad and id(t) not in own for t in used):
        return "takes other tensors"
    result = info(*arguments, **options)
    picked = tensors_in(result if mapping.pick is None else result[mapping.pick])
    outputs = [t for t in picked if t.requires_grad]
    real = [i for i, t in enumerate(used) if t.requires_grad]
    if not outputs or not real:
        return "no real results"
    generator = np.random.default_rng(0)
    seeds = [generator.standard_normal(tuple(t.shape)) for t in outputs]
    total = sum((t * torch.tensor(seed)).sum() for t, seed in zip(outputs, seeds, strict=True))
    expected = torch.autograd.grad(total, [used[i] for i in real], allow_unused=True)
    try:
        gradients = _found(call, real, seeds)
    except lucid.gradients.GradientError as error:
        return f"has no derivative: {error}"
    except REFUSALS as error:
        return f"refused as without gradients: {type(error).__name__}: {error}"
    for got, want, i in zip(gradients, expected, real, strict=True):
        wide = np.zeros(got.shape) if want is None else want.numpy()
        if not np.allclose(
            got, wide, rtol=RTOL, atol=RTOL * (np.abs(wide[np.isfinite(wide)]).max(initial=0) + 1), equal_nan=True
        ):
            return f"differs: input {i}, {got.ravel()[:4]} instead of {wide.ravel()[:4]}"
    return "agrees"


def _found(call: Call, real: Sequence[int], seeds: Sequence[Array]) -> list[Array]:
    """Lucid's gradients with respect to the real tensors of a call."""

    def value(*tensors: Tensor) -> Tensor:
        traced = dict(zip(real, tensors, strict=True))
        results = call.model()(*(traced.get(i, Tensor.from_array(a)) for i, a in enumerate(call.tensors)))
        each = [x for x in (results if isinstance(results, (tuple, list)) else [results]) if x.dtype.kind == "float"]
        return sum(((x * seed).sum() for x, seed in zip(each, seeds, strict=True)), start=lucid.tensor(0.0, "float64"))

    gradients = lucid.grad(value)(*(Tensor.from_array(np.array(call.tensors[i])) for i in real))
    return [x.numpy() for x in (gradients if isinstance(gradients, tuple) else (gradients,))]


def samples(info: Any) -> Iterator[Any]:
    """Torch's samples whose gradients it tests itself, without the large ones."""
    torch.manual_seed(0)
    np.random.seed(0)
    for sample in info.sample_inputs("cpu", torch.float64, requires_grad=True):
        if all(t.numel() <= LARGEST for t in tensors_in(sample)):
            yield sample


def main() -> int:
    """Print the counts, and what differs."""
    warnings.simplefilter("ignore")
    counts, shown = Counter[str](), Counter[str]()
    for name, info in operators():
        if (
            (sys.argv[1:] and name not in sys.argv[1:])
            or not info.supports_autograd
            or torch.float64 not in info.dtypes
        ):
            continue
        for sample in samples(info):
            outcome = compared(info, name, sample)
            kind = outcome.partition(":")[0]
            counts[kind] += 1
            if kind in ("differs", "has no derivative") and shown[name] < 2:
                shown[name] += 1
                print(f"{name}: {outcome}", flush=True)
    print(", ".join(f"{kind}: {count}" for kind, count in counts.most_common()))
    return 1 if counts["differs"] else 0


if __name__ == "__main__":
    sys.exit(main())
