"""The target of an exported model: its runtime, opset, the oldest onnxruntime."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, Self, TypeAlias, get_args

from lucid.core.graph.types import DType
from lucid.core.number_ranges import is_whole
from lucid.core.targets.record import Fault, Release, Runtime, release_of, release_text
from lucid.core.targets.runtimes import DEFAULT_LEVEL, OLDEST, RELEASES, RUNTIMES

AttentionForm: TypeAlias = Literal["auto", "standard", "contrib", "expanded"]
TargetName: TypeAlias = str
"""The name of a record in `lucid.core.targets.runtimes`."""

ATTENTION_FORMS: tuple[str, ...] = get_args(AttentionForm)
TARGET_NAMES: tuple[str, ...] = tuple(RUNTIMES)
OPSETS = range(17, 27)
ACCURACY_LEVELS = (0, 4)


class ExportError(ValueError):
    """A model cannot be exported as asked."""


@dataclass(frozen=True)
class Target:
    """Where an exported model is to run.

    Args:
        name: "any" (only standard ops), "cpu", "cuda" (forms tuned for that onnxruntime provider, including
            com.microsoft ops), "portable" (primitive ops of opset 18, for runtimes without Attention), or another name
            in `lucid.core.targets.runtimes`.
        opset: the ONNX opset; by default 23, or 24 for models with caches of a fixed capacity, and 18 for "portable".
        onnxruntime: the oldest release that must compute the model correctly, such as "1.28" or "1.23.2". Forms that it
            would compute wrongly are not taken.
        attention: "auto", or a form to insist on: "standard" (ONNX Attention), "contrib" (com.microsoft), "expanded".
        forms: the same for any op, by name: `{"rms_norm": "expanded"}`.
        accuracy_level: how products with quantized weights are computed: 4 rounds their inputs to 8 bits, in blocks
            of a row; 0 computes in float32.
        lengths: the fewest and the most queries of an attention that the model is expected to see, such as (1, 512):
            what only other lengths need is left out. Other lengths still work, but not the fastest way.
        rows_apart: whether a run over caches of a fixed capacity has one new token a row, or several of a single row,
            or those of prompts from position 0 on, as in `lucid.generation`. On target "cpu" the kernel of attention
            then writes the caches: bind each as input and output. onnxruntime refuses other runs with an error.

    Raises:
        ExportError: for a value that does not exist, an opset that the onnxruntime release cannot load, or lengths that
            are no range.
    """

    name: TargetName = "any"
    opset: int = 0
    onnxruntime: str = "1.28"
    attention: AttentionForm = "auto"
    forms: Mapping[str, str] = field(default_factory=dict, hash=False)
    accuracy_level: int = DEFAULT_LEVEL
    lengths: tuple[int, int] | None = None
    rows_apart: bool = False
    _by_default: bool = field(default=False, init=False, repr=False, compare=False)  # nobody asked for the opset

    def __post_init__(self) -> None:
        _one_of("target", self.name, TARGET_NAMES)
        _one_of("attention", self.attention, ATTENTION_FORMS)
        if not is_whole(self.accuracy_level) or self.accuracy_level not in ACCURACY_LEVELS:
            raise ExportError(
                f"accuracy_level {self.accuracy_level!r} is not supported: choose 4, inputs of products rounded to 8 "
                "bits, or 0, float32"
            )
        object.__setattr__(self, "accuracy_level", int(self.accuracy_level))
        if self.lengths is not None:
            object.__setattr__(self, "lengths", _range(self.lengths))
        if self.opset == 0:
            object.__setattr__(self, "opset", min(self.runtime.opset, newest_opset(self.release)))
            object.__setattr__(self, "_by_default", True)
        _check_opset(self.opset)
        object.__setattr__(self, "opset", int(self.opset))
        newest = newest_opset(self.release)
        if self.opset > newest:
            raise ExportError(
                f"opset {self.opset}: onnxruntime {self.onnxruntime} loads up to opset {newest}; "
                f"ask for opset={newest} or a newer onnxruntime"
            )

    @property
    def runtime(self) -> Runtime:
        """The record of the runtime."""
        return RUNTIMES[self.name]

    @cached_property
    def release(self) -> Release:
        """The onnxruntime release as numbers: (1, 28) for "1.28"."""
        release = release_of(self.onnxruntime) if isinstance(self.onnxruntime, str) else None
        if release is None:
            raise ExportError(
                f'onnxruntime is {self.onnxruntime!r}, expected a version as text, such as "1.28" or "1.23.2"'
            )
        return release

    def for_ops(self, ops: Iterable[str]) -> Self:
        """The target for a model with these ops: some raise the default opset."""
        if not self._by_default:
            return self
        newest = max([self.opset, *(self.runtime.newer.get(op, 0) for op in ops)])
        opset = min(newest, newest_opset(self.release))
        return self if opset == self.opset else replace(self, opset=opset)

    def missing(self, kernel: str, dtype: DType) -> str:
        """Why an ONNX op has no kernel for an element type; empty if it has one."""
        return self.runtime.missing(kernel, dtype.name, self.release, self.opset)

    def wrong(self, fault: Fault) -> str:
        """How a fault shows in the oldest release allowed; empty if it is mended there."""
        return self.runtime.wrong(fault, self.release)

    def insisted(self, op: str) -> str:
        """The kind of form to insist on for an op; "auto" for the best one."""
        return self.attention if op == "attention" and self.attention != "auto" else self.forms.get(op, "auto")

    @property
    def ir_version(self) -> int:
        """The IR version of the model: the lowest that the opset allows, so that old runtimes load it."""
        return 8 if self.opset <= 18 else 9 if self.opset <= 20 else 10 if self.opset <= 22 else 11

    def with_lengths(self, lengths: tuple[int, int]) -> Self:
        """The target where only so many queries are expected."""
        return replace(self, opset=0 if self._by_default else self.opset, lengths=lengths)

    def expects(self, fewest: int, most: int | None = None) -> bool:
        """Whether a number of queries in this range is expected."""
        low, high = self.lengths or (0, None)
        return (most is None or low <= most) and (high is None or high >= fewest)

    @classmethod
    def of(cls, target: Target | str, opset: int | None, attention: str | None) -> Self:
        """A target from the arguments of an export call; "auto" keeps the target's own form of attention."""
        if opset is not None:
            _check_opset(opset)
        if isinstance(target, cls):
            result = target
        else:
            result = cls(name=_one_of("target", str(target), TARGET_NAMES), opset=opset or 0)
        if opset is not None:
            result = replace(result, opset=opset)
        if attention is None or _one_of("attention", attention, ATTENTION_FORMS) == "auto":
            return result
        return replace(result, attention=attention, opset=0 if result._by_default else result.opset)  # type: ignore[arg-type]


def newest_opset(release: Release) -> int:
    """The newest opset that an onnxruntime release loads."""
    if release < OLDEST:
        raise ExportError(
            f"onnxruntime {release_text(release)} is older than {release_text(OLDEST)}, the oldest that Lucid "
            "exports for"
        )
    return max(opset for since, (opset, _) in RELEASES.items() if since <= release)


def _check_opset(opset: int) -> None:
    if not is_whole(opset) or opset not in OPSETS:
        raise ExportError(f"opset {opset!r} is not supported: choose one from {OPSETS[0]} to {OPSETS[-1]}")


def _range(lengths: object) -> tuple[int, int]:
    """Two whole numbers in ascending order."""
    match lengths:
        case (low, high) if is_whole(low) and is_whole(high) and 0 <= low <= high:
            return int(low), int(high)
    raise ExportError(
        f"lengths is {lengths!r}, expected the fewest and the most queries of an attention, such as (1, 512)"
    )


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise ExportError(f"{name} {value!r} does not exist: choose one of {', '.join(allowed)}")
    return value
