"""torch's samples of every operator through `lucid.from_torch`: each is exported by torch, imported, run and exported.

python -m tools.torch_samples.imported OPERATOR ...      try these operators
python -m tools.torch_samples.imported --oldest 700      try those whose records are oldest

Each operator is called on tensors of float32 and int64, as a module whose inputs are the tensors of the sample. Results
are kept in tools/torch_samples/imported.json, from which docs/from-torch-operators.md is made. It needs torch 2.13 and
expecttest.
"""

from __future__ import annotations

import argparse
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo, SampleInput
from torch.utils import _pytree as pytree

import lucid
from lucid.importing import TorchImportError
from lucid.ops.tensor.tensor import TracedValueError
from lucid.runtime import Session
from tools import from_torch_pages
from tools.from_torch_pages import OPERATORS
from tools.records import Records

MOST = {torch.float32: 2, torch.int64: 1}  # samples of an operator by element type
LARGEST = 5_000  # numbers in a tensor, where an operator has such samples
NUMBERS = "types and shapes are compared, since torch defines no numbers"
PLACES = "the values are compared, since torch does not define which of equal elements gives the place"
UNDEFINED = {
    **dict.fromkeys(("empty_like", "new_empty", "new_empty_strided"), NUMBERS),
    **dict.fromkeys(("kthvalue", "median", "mode", "topk"), PLACES),
}
"""What is compared of operators whose results torch does not define whole: of places their types and shapes."""
FAULTS = (ArithmeticError, AttributeError, LookupError, NotImplementedError, RuntimeError, TypeError, ValueError)


class Sample(torch.nn.Module):
    """A call of an operator: a module of the tensors among its arguments."""

    def __init__(self, operator: Callable[..., Any], sample: SampleInput) -> None:
        super().__init__()
        self.operator = operator
        self.leaves, self.tree = pytree.tree_flatten(((sample.input, *sample.args), dict(sample.kwargs)))
        self.tensors = [leaf for leaf in self.leaves if isinstance(leaf, torch.Tensor)]

    def forward(self, tensors: Sequence[torch.Tensor]) -> Any:
        values = iter(tensors)
        leaves = [next(values) if isinstance(leaf, torch.Tensor) else leaf for leaf in self.leaves]
        arguments, options = pytree.tree_unflatten(leaves, self.tree)
        return pytree.tree_map_only(torch.Tensor, _as_real, self.operator(*arguments, **options))


def _as_real(x: torch.Tensor) -> torch.Tensor:
    """Pairs in the places of complex numbers, which no graph returns."""
    return torch.view_as_real(x.resolve_conj()) if x.is_complex() else x


def name_of(info: OpInfo) -> str:
    return f"{info.name}.{info.variant_test_name}" if info.variant_test_name else info.name


def samples_of(info: OpInfo) -> Iterator[Sample]:
    """Some of torch's samples of an operator, of each element type."""
    for dtype, most in MOST.items():
        if dtype in info.dtypes:
            torch.manual_seed(0)
            np.random.seed(0)  # torch's own samples draw from it
            every = [Sample(info.op, sample) for sample in info.sample_inputs("cpu", dtype, requires_grad=False)]
            every = [sample for sample in every if sample.tensors]
            small = [s for s in every if all(t.numel() <= LARGEST for t in s.tensors)] or every
            yield from small[:: max(1, -(-len(small) // most))][:most]


def outcome_of(sample: Sample, undefined: str = "") -> tuple[str, str, set[str]]:
    """What happens to a sample, the reason if it does not agree, and the rows of the table that it reads.

    `undefined` says which of its results are compared, of the texts of `UNDEFINED`.
    """
    rows: set[str] = set()
    try:
        with torch.no_grad():
            expected = arrays_of(sample([tensor.clone() for tensor in sample.tensors]))
            if not expected:
                return "torch", "no tensor", rows
            program = torch.export.export(sample.eval(), (list(sample.tensors),), strict=False)
    except Exception as error:  # noqa: BLE001  # whatever torch raises is torch's refusal
        return "torch", short(error), rows
    try:
        module = lucid.from_torch(program)
    except TorchImportError as error:
        return "refused", short(error), rows
    rows |= {call.operator for call in module.forward.calls}  # type: ignore[attr-defined]
    arrays = [np.array(tensor.resolve_conj().resolve_neg().numpy()) for tensor in sample.tensors]
    try:
        eager = arrays_of(module([lucid.tensor(array) for array in arrays]))
        if problem := difference(eager, expected, undefined):
            return "differs", f"eager: {problem}", rows
        session = Session(lucid.export.to_onnx(module), threads=1)
        named = {f"tensors.{place}": array for place, array in enumerate(arrays)}
        exported = list(session.run({name: named[name] for name in session.inputs}).values())
        if problem := difference([np.asarray(array) for array in exported], expected, undefined):
            return "differs", f"exported: {problem}", rows
    except (NotImplementedError, TracedValueError) as error:
        return "refused", short(error), rows
    except FAULTS as error:
        return "differs", f"{type(error).__name__}: {short(error)}", rows
    return "agrees", "", rows


def arrays_of(result: Any) -> list[np.ndarray]:
    """The tensors of a result, torch's or Lucid's, as arrays."""
    leaves = pytree.tree_leaves(result)
    return [np.asarray(leaf.numpy()) for leaf in leaves if isinstance(leaf, (torch.Tensor, lucid.Tensor))]


def difference(own: list[np.ndarray], theirs: list[np.ndarray], undefined: str = "") -> str:
    """The first difference; empty if all results agree within 2e-5 of their scale."""
    if len(own) != len(theirs):
        return f"{len(own)} results, expected {len(theirs)}"
    for place, (a, b) in enumerate(zip(own, theirs, strict=True)):
        if (a.dtype, a.shape) != (b.dtype, b.shape):
            return f"{a.dtype}{list(a.shape)}, expected {b.dtype}{list(b.shape)}"
        if undefined == NUMBERS or (undefined == PLACES and place == 1):
            continue
        scale = max(1.0, float(np.abs(np.where(np.isfinite(b), b, 0)).max(initial=0))) if b.dtype.kind == "f" else 0
        if not np.allclose(a, b, rtol=0, atol=2e-5 * scale, equal_nan=True):
            return f"{a.ravel()[:4]}, expected {b.ravel()[:4]}"
    return ""


def short(error: BaseException) -> str:
    """The first line of an error, without paths, and the operator that it is about."""
    notes = "".join(f" ({note.split(',')[0]})" for note in getattr(error, "__notes__", ()))
    line = (str(error).strip().splitlines() or [type(error).__name__])[0] + notes
    return re.sub(r"\(/\S*?([\w.-]+:\d+)\)", "", line)[:240]


def tried(info: OpInfo) -> dict[str, Any]:
    """The counts of an operator, the first reason of each other result than agreement, and the rows that it reads."""
    undefined = UNDEFINED.get(info.name, "")
    counts: Counter[str] = Counter()
    reasons: dict[str, str] = {}
    rows: set[str] = set()
    for sample in samples_of(info):
        result, reason, read = outcome_of(sample, undefined)
        counts[result] += 1
        if reason:
            reasons.setdefault(result, reason)
        rows |= read
    outcome = {"counts": counts, "reasons": reasons, "rows": sorted(rows)}
    return outcome | ({"undefined": undefined} if undefined else {})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("operators", nargs="*")
    parser.add_argument("--oldest", type=int, default=0)
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # torch's own, about its samples
    torch.set_num_threads(1)
    records, known = Records(OPERATORS), {name_of(info): info for info in op_db}
    for name in records.chosen("lucid", known, options.operators, options.oldest):
        records.renew(name, "lucid", tried(known[name]), ("torch", "onnxruntime"))
        print(name, records.rows[name]["lucid"], flush=True)
    from_torch_pages.main()


if __name__ == "__main__":
    main()
