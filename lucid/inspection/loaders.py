"""Which runtimes load a model and compute it correctly: releases of onnxruntime, and other runtimes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from onnx import NodeProto

from lucid.core.targets.file_readers import READERS
from lucid.core.targets.record import Outcome, Release, Runtime, Trial, release_text
from lucid.core.targets.runtimes import GENERAL, RELEASES, RUNTIMES
from lucid.core.words.safe_text import listed
from lucid.inspection.patterns import PATTERNS, Pattern, of_types
from lucid.inspection.values import ORT_OWN, STANDARD, Values


@dataclass(frozen=True)
class Loader:
    """A runtime and whether it runs the model."""

    name: str  # the runtime's, with the release where that matters
    loads: bool | None  # whether it runs the model; None if that is not known
    reason: str  # why it does or does not
    # op, node: the op that is the reason, and the name of the first such node; empty if no op is.
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
    opset, foreign = _standard_opset(opsets), _foreign(opsets)
    loading = next((since for since, (newest, ir) in RELEASES.items() if newest >= opset and ir >= ir_version), None)
    own = sorted(domain for domain in opsets if domain in ORT_OWN)
    versions = f"opset {opset}, IR {ir_version}"
    others = []
    if foreign:
        others.append(Loader("onnxruntime", None, foreign))
    elif loading is None:
        newest = release_text(max(RELEASES))
        others.append(
            Loader("onnxruntime", False, f"opset {opset} with IR {ir_version} is newer than release {newest} loads")
        )
    else:
        oldest, why = _first_correct(operators, declared)
        also = f"{versions}, which {release_text(loading)} loads; {why}" if oldest > loading else versions
        others.append(Loader(f"onnxruntime {release_text(max(oldest, loading))} or newer", True, also))
    if own:
        others.append(Loader("other ONNX runtimes", False, f"{', '.join(own)} is onnxruntime's own"))
    elif not foreign:
        others.append(Loader("other ONNX runtimes", None, f"those with {versions}"))
    return tuple(others)


def _standard_opset(opsets: Mapping[str, int]) -> int:
    return max((version for domain, version in opsets.items() if domain in ("", "ai.onnx")), default=1)


def _foreign(opsets: Mapping[str, int]) -> str:
    """The libraries that a model needs for operators neither standard nor onnxruntime's; empty without such."""
    domains = sorted(domain for domain in opsets if domain not in STANDARD + ORT_OWN)
    return f"needs the library of custom operators for {', '.join(domains)}" if domains else ""


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


def other_loaders(opsets: Mapping[str, int], values: Values, declared: Release | None) -> tuple[Loader, ...]:
    """Whether other runtimes run a model, with the op that is the reason if one does not.

    Args:
        opsets: by domain, of those that nodes use.
        values: of the model.
        declared: the oldest onnxruntime that it was exported for, if the file says so.
    """
    return tuple(_other_loader(runtime, opsets, values, declared) for runtime in READERS)


def _other_loader(runtime: Runtime, opsets: Mapping[str, int], values: Values, declared: Release | None) -> Loader:
    trial = runtime.trial
    assert trial is not None, "a reader was tried"
    opset = _standard_opset(opsets)
    if opset > trial.opset:
        return Loader(trial.name, None, f"opset {opset} was not tried, {trial.opset} and older ones were")
    if foreign := _foreign(opsets):
        return Loader(trial.name, None, foreign)
    if trial.release is not None and declared is not None and declared > trial.release:
        return Loader(trial.name, None, f"exported for onnxruntime {release_text(declared)} and newer ones")
    findings = list(_findings(runtime, values))
    for outcome in ("fails", "may fail"):
        if here := [each for each in findings if each.outcome == outcome]:
            return _loader(trial, here[0])
    if unknown := _not_compared(trial, values):
        return Loader(trial.name, None, f"not compared: {listed(unknown, 4)}", unknown[0])
    return _loader(trial, findings[0]) if findings else Loader(trial.name, trial.run or None, trial.verdict)


class _Finding(NamedTuple):
    """A reason in a runtime's record why some nodes of a model fail or differ."""

    outcome: Outcome
    reason: str
    nodes: list[NodeProto]


def _findings(runtime: Runtime, values: Values) -> Iterator[_Finding]:
    """The faults, missing kernels and differences in a runtime's record that concern a model."""
    recorded: list[tuple[Outcome, str, Pattern]] = [
        (known.outcome, f"{fault.what}: it {known.how}", PATTERNS[fault])
        for fault, known in runtime.faults.items()
        if known.outcome
    ]
    for gap in runtime.lacks:
        reason = gap.reason or gap.instead or "has no kernel: computed on the CPU, with copies"
        recorded += [(gap.outcome, reason, of_types(gap.kernels, gap.types, gap.but))] * bool(gap.outcome)
    recorded += [("runs", d.how, of_types(d.kernels, d.types)) for d in runtime.differs if d.kernels != "*"]
    for outcome, reason, pattern in recorded:
        yield from (_Finding(outcome, reason, nodes) for nodes in pattern.nodes(values))


def _loader(trial: Trial, finding: _Finding) -> Loader:
    """The reason: op, how many nodes, where the first one is, and what the record says."""
    first = finding.nodes[0]
    count = f"{len(finding.nodes)} nodes, first " if len(finding.nodes) > 1 else ""
    where = f" ({count}{first.name})" if first.name else ""
    loads = {"fails": False, "may fail": None}.get(finding.outcome, True)
    return Loader(trial.name, loads, f"{first.op_type}{where}: {finding.reason}", first.op_type, first.name)


def _not_compared(trial: Trial, values: Values) -> list[str]:
    """The ops of a model that a runtime was not compared with, the most frequent one first."""
    counts = Counter[str]()
    for node in values.nodes:
        if node.domain in ORT_OWN and node.op_type not in trial.own:
            counts[f"{node.domain}.{node.op_type}"] += 1
        elif node.domain in STANDARD and trial.standard and node.op_type not in trial.standard:
            counts[node.op_type] += 1
    return [name for name, _ in counts.most_common()]
