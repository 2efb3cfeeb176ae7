"""The classes that describe a runtime (the records themselves are in `runtimes`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import Literal, TypeAlias

Release: TypeAlias = tuple[int, ...]
"""A release of onnxruntime as numbers: (1, 23) is 1.23.0."""

Strategy: TypeAlias = Literal["blocks", "tiles", "products", "groups", "flash", "partial reads", "reshapes"]
"""A way to compute that is faster than plain nodes on some runtimes. Forms ask for one; the records list theirs.

- "blocks": attention in blocks of queries, whose scores stay in the caches
- "tiles": attention in an op that keeps a tile of the scores
- "products": attention as products, which all threads share
- "groups": the query heads of a group as queries of one head
- "flash": attention in the nodes and layouts for which the runtime has fused kernels
- "partial reads": kernels that read, without a copy, a part of a cache's buffer, a table of few bits or in half
  precision, or experts
- "reshapes": the same numbers in another shape, for which the runtime has a faster kernel
"""

Outcome: TypeAlias = Literal["", "fails", "may fail", "runs"]
"""What `lucid inspect` predicts for a file with nodes that a record lists; empty: it reports nothing."""


def release_text(release: Release) -> str:
    """A release as text."""
    return ".".join(map(str, release))


def release_of(text: str) -> Release | None:
    """The release from text such as "1.28" or "1.23.2"; None for other text."""
    numbers = text.split(".")
    if len(numbers) not in (2, 3) or not all(
        number.isascii() and number.isdigit() and len(number) < 10 for number in numbers
    ):
        return None
    return tuple(map(int, numbers))


@dataclass(frozen=True, eq=False)
class Fault:
    """Something that some runtime computes wrongly or slowly. Forms ask for it; the records say which releases have it,
    and `lucid.inspection.patterns` how it shows in a file.

    `op` is the ONNX op that has the fault, if any node of that op may be wrong.
    """

    what: str
    op: str = ""


@dataclass(frozen=True)
class KnownFault:
    """The behaviour of a runtime with a fault, the first release without it, and what happens to files with it."""

    how: str
    until: Release | None = None
    outcome: Outcome = ""
    engine: str = ""  # the runtime that has the fault, in a record for several


@dataclass(frozen=True)
class Missing:
    """Kernels that a runtime lacks for some element types."""

    kernels: str  # names of ONNX ops, separated by spaces; ``*``: all that `but` does not name
    types: str  # names of element types; ``*``: all
    instead: str = ""  # what the runtime does without the kernel, or the fault of its kernel
    until: Release | None = None  # the first release that has them
    but: str = ""  # with ``*`` for the kernels, the ones that the runtime has
    reason: str = ""  # the whole reason, instead of one composed of `types`, `kernels` and `instead`
    opset: int = 0  # the first that lacks them, where a newer version of an ONNX op has no kernel
    outcome: Outcome = ""  # what happens to a file that has such nodes
    engine: str = ""  # the runtime that lacks them, in a record for several

    def covers(self, kernel: str, dtype: str) -> bool:
        """Whether a kernel is among these for an element type."""
        kernels = kernel not in self.but.split() if self.kernels == "*" else kernel in self.kernels.split()
        return kernels and (self.types == "*" or dtype in self.types.split())


@dataclass(frozen=True)
class Difference:
    """Results that differ in a runtime, and that no form corrects."""

    kernels: str  # names of ONNX ops, separated by spaces; ``*``: all
    types: str  # names of element types; ``*``: all
    how: str  # what the runtime does
    reason: str  # why no form corrects it


@dataclass(frozen=True)
class Trial:
    """Which ops a runtime was compared with; `lucid inspect` derives from it whether the runtime runs a file."""

    name: str  # of the runtime, with the version that was tried
    opset: int  # the newest standard opset that it takes
    own: tuple[str, ...] = ()  # the ops of onnxruntime's own domain that were compared
    standard: frozenset[str] = frozenset()  # the standard ops that were compared; empty: all
    release: Release | None = None  # of onnxruntime, where the runtime is one of its builds
    run: bool = True  # whether the runtime was run at all; if not, a file without faults "may run"
    verdict: str = "all ops of the model have been compared"  # the facts about a file without faults


@dataclass(frozen=True, eq=False)
class Runtime:
    """The facts about a runtime."""

    name: str  # the name of the target
    about: str  # a short description of the target
    engine: str  # the name of the runtime in messages
    opset: int = 23  # the default opset of exports
    # Ops that have better forms in a newer opset, which is then the default of models that use them.
    newer: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    provider: str = "CPUExecutionProvider"  # onnxruntime's provider that runs them in a session
    memory: str = "cpu"  # where that provider keeps its tensors, as onnxruntime names devices
    device: bool = False  # whether that provider computes on a device other than the processor
    domains: tuple[str, ...] = ()  # the domains of operators, besides the standard one, that exports may use
    asked_for: tuple[str, ...] = ()  # further domains, for a form that the user asks for by name
    strategies: frozenset[Strategy] = frozenset()  # the ways to compute that were measured to be faster on it
    half_arithmetic: bool = False  # whether it gains from computing in half precision
    lacks: tuple[Missing, ...] = ()  # the kernels that are missing
    faults: Mapping[Fault, KnownFault] = field(default_factory=lambda: MappingProxyType({}))  # what it computes wrongly
    differs: tuple[Difference, ...] = ()  # results that differ in every form
    # The ops it was compared with, for `lucid inspect`; None: no row of its own among the file readers.
    trial: Trial | None = None

    def allows(self, domain: str, by_name: bool = True) -> bool:
        """Whether exports may use the operators of a domain; `by_name`: also of forms that the user names."""
        return not domain or domain in self.domains or (by_name and domain in self.asked_for)

    @lru_cache(maxsize=4096)  # noqa: B019  # records are never released
    def missing(self, kernel: str, dtype: str, release: Release, opset: int) -> str:
        """Why a kernel cannot be used for an element type on a release and all newer ones; empty if it can."""
        for gap in self.lacks:
            if gap.covers(kernel, dtype) and (gap.until is None or release < gap.until) and opset >= gap.opset:
                has_none = f"has no {dtype} kernel for {kernel}" + (
                    f" that is correct: it {gap.instead}" if gap.instead else ""
                )
                return gap.reason or self._reason(gap.engine, has_none, gap.until, release)
        return ""

    def wrong(self, fault: Fault, release: Release) -> str:
        """How a release, or a newer one, has a fault; empty if none has it."""
        known = self.faults.get(fault)
        if known is None or (known.until is not None and release >= known.until):
            return ""
        return self._reason(known.engine, known.how, known.until, release)

    def _reason(self, engine: str, what: str, until: Release | None, release: Release) -> str:
        engine = engine or self.engine
        if until is None:
            return f"{engine} {what}"
        return f"{engine} before {release_text(until)} {what}; this export is also for {release_text(release)}"
