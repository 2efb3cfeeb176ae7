"""torch's samples of every operator through `lucid.from_torch`: each is exported by torch, imported, run and exported.

python -m tools.torch_samples.imported RESULTS.json [OPERATOR ...]     all operators by default; writes the page

Each operator is called on tensors of float32 and int64, as a module whose inputs are the tensors of the sample. The
page is docs/from-torch-operators.md. Needs torch 2.13 and expecttest.
"""

from __future__ import annotations

import json
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo, SampleInput
from torch.utils import _pytree as pytree

import lucid
from lucid.importing import TorchImportError
from lucid.importing.table import TABLE
from lucid.ops.tensor.tensor import TracedValueError
from lucid.runtime import Session

PAGE = Path(__file__).parents[2] / "docs" / "from-torch-operators.md"
MOST = {torch.float32: 2, torch.int64: 1}  # samples of an operator by element type
LARGEST = 5_000  # numbers in a tensor
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
            small = [s for s in every if s.tensors and all(t.numel() <= LARGEST for t in s.tensors)]
            yield from small[:: max(1, -(-len(small) // most))][:most]


def outcome_of(sample: Sample) -> tuple[str, str, set[str]]:
    """What happens to a sample, the reason if it does not agree, and the rows of the table that it reads."""
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
        if problem := difference(eager, expected):
            return "differs", f"eager: {problem}", rows
        session = Session(lucid.export.to_onnx(module), threads=1)
        named = {f"tensors.{place}": array for place, array in enumerate(arrays)}
        exported = list(session.run({name: named[name] for name in session.inputs}).values())
        if problem := difference([np.asarray(array) for array in exported], expected):
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


def difference(own: list[np.ndarray], theirs: list[np.ndarray]) -> str:
    """The first difference; empty if all results agree within 2e-5 of their scale."""
    if len(own) != len(theirs):
        return f"{len(own)} results, expected {len(theirs)}"
    for a, b in zip(own, theirs, strict=True):
        if (a.dtype, a.shape) != (b.dtype, b.shape):
            return f"{a.dtype}{list(a.shape)}, expected {b.dtype}{list(b.shape)}"
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
    """The counts of an operator, the first reason of each result, and the rows that it reads."""
    counts: Counter[str] = Counter()
    reasons: dict[str, str] = {}
    rows: set[str] = set()
    for sample in samples_of(info):
        result, reason, read = outcome_of(sample)
        counts[result] += 1
        reasons.setdefault(result, reason)
        rows |= read
    return {"counts": counts, "reasons": reasons, "rows": sorted(rows)}


TITLES = {
    "agrees": "agree with torch within 2e-5 of their scale, eagerly and exported",
    "refused": "are refused with an error that names what is missing",
    "differs": "differ, or fail where torch computes",
    "torch": "are not exported by torch, or have no tensors among their results",
}
_UNDEFINED = "its numbers are not defined"
ACCEPTED = {
    "empty_like": _UNDEFINED,
    "new_empty": _UNDEFINED,
    "new_empty_strided": _UNDEFINED,
    "kthvalue": "which of equal elements gives the place is not defined",
    "median": "which of equal elements gives the place is not defined",
    "mode": "which of equal elements gives the place is not defined",
    "topk": "which of equal elements gives the place is not defined",
}


def page(results: dict[str, dict[str, Any]]) -> str:
    """The page of a run."""
    total: Counter[str] = Counter()
    for result in results.values():
        total.update(result["counts"])
    read = {row for result in results.values() for row in result["rows"]} & set(TABLE)
    rows = sum(name.startswith("aten.") for name in TABLE)
    whole = [name for name, result in results.items() if set(result["counts"]) == {"agrees"}]
    lines = [
        "# torch's operators through from_torch",
        "",
        "Look up whether an operator of torch goes through [`lucid.from_torch`](howto/from-torch.md). The page is generated by",
        f"`python -m tools.torch_samples.imported` with torch {torch.__version__.split('+')[0]}: a few of its own samples of each operator, in float32 and int64, exported",
        "by torch, imported, and run by NumPy and by onnxruntime.",
        "",
        f"Of {total.total()} samples of {len(results)} operators:",
        "",
        *(f"- {total[result]} {title};" for result, title in TITLES.items()),
        "",
        f"They read {sum(row.startswith('aten.') for row in read)} of the table's {rows} rows of ATen operators.",
        "",
        "## Operators that agree in every sample",
        "",
        ", ".join(f"`{name}`" for name in sorted(whole)),
        "",
        "## Others",
        "",
        "| Operator | Agree | Refused | Differ | Reason |",
        "|---|---|---|---|---|",
    ]
    for name, result in sorted(results.items()):
        counts, reasons = result["counts"], result["reasons"]
        if counts.get("refused") or counts.get("differs"):
            reason = reasons.get("differs") or reasons.get("refused", "")
            reason = reason.partition(": write one of")[0].removeprefix("from_torch: ").replace("|", "/")[:140]
            reason = ACCEPTED.get(name, reason) if counts.get("differs") else reason
            figures = " | ".join(str(counts.get(key, 0)) for key in ("agrees", "refused", "differs"))
            lines.append(f"| `{name}` | {figures} | {reason} |")
    return "\n".join([*lines, ""])


def main() -> None:
    warnings.simplefilter("ignore")  # torch's own, about its samples
    torch.set_num_threads(1)
    path, chosen = Path(sys.argv[1]), sys.argv[2:]
    results = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    for info in op_db:
        name = name_of(info)
        if name not in results if not chosen else name in chosen:
            results[name] = tried(info)
            print(name, dict(results[name]["counts"]), results[name]["reasons"].get("differs", ""), flush=True)
            path.write_text(json.dumps(results, indent=1), encoding="utf-8")
    PAGE.write_text(page(results), encoding="utf-8")


if __name__ == "__main__":
    main()
