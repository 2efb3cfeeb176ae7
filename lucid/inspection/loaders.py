"""Which releases of onnxruntime load a model; `elsewhere` has the other runtimes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from lucid.core.targets.record import Release, release_text
from lucid.core.targets.runtimes import GENERAL, RELEASES, RUNTIMES

STANDARD = ("", "ai.onnx", "ai.onnx.ml")
ORT_OWN = ("com.microsoft", "com.microsoft.nchwc", "com.microsoft.experimental", "com.ms.internal.nhwc")


@dataclass(frozen=True)
class Loader:
    """A runtime and whether it runs the model.

    Args:
        name: of the runtime.
        loads: None if that is unknown.
        reason: why.
        op: the op that is the reason, if one is; `node` is the first of these.
    """

    name: str
    loads: bool | None
    reason: str
    op: str = ""
    node: str = ""


def loaders(
    opsets: Mapping[str, int], ir_version: int, operators: Collection[str], declared: Release | None
) -> tuple[Loader, ...]:
    """The runtimes that load a model and compute it correctly.

    Args:
        opsets: by domain.
        ir_version: that of the file.
        operators: the standard operators among its nodes.
        declared: the oldest onnxruntime that it was exported for, if the file says so.
    """
    opset = max((version for domain, version in opsets.items() if domain in ("", "ai.onnx")), default=1)
    loading = next((since for since, (newest, ir) in RELEASES.items() if newest >= opset and ir >= ir_version), None)
    foreign = sorted(domain for domain in opsets if domain not in STANDARD + ORT_OWN)
    own = sorted(domain for domain in opsets if domain in ORT_OWN)
    versions = f"opset {opset}, IR {ir_version}"
    found = []
    if foreign:
        found.append(Loader("onnxruntime", None, f"needs the library of custom operators for {', '.join(foreign)}"))
    elif loading is None:
        newest = release_text(max(RELEASES))
        found.append(
            Loader("onnxruntime", False, f"opset {opset} with IR {ir_version} is newer than release {newest} loads")
        )
    else:
        oldest, why = _first_correct(operators, declared)
        also = f"{versions}, which {release_text(loading)} loads; {why}" if oldest > loading else versions
        found.append(Loader(f"onnxruntime {release_text(max(oldest, loading))} or newer", True, also))
    if own:
        found.append(Loader("other ONNX runtimes", False, f"{', '.join(own)} is onnxruntime's own"))
    elif not foreign:
        found.append(Loader("other ONNX runtimes", None, f"those with {versions}"))
    return tuple(found)


def _first_correct(operators: Collection[str], declared: Release | None) -> tuple[Release, str]:
    """The first release that computes a model correctly, and why: as the file declares, else by its operators."""
    if declared is not None:
        return declared, "exported for this release and newer ones"
    faults = [
        (known.until, fault.op)
        for fault, known in RUNTIMES[GENERAL].faults.items()
        if fault.op in operators and known.until is not None
    ]
    until, op = max(faults, default=((0,), ""))
    return until, f"older ones compute {op} wrongly in some cases"
