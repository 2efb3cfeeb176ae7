"""What an exported model must run on: provider, opset, the oldest onnxruntime."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, Self, TypeAlias, get_args

from lucid.export.facts import NEWEST_OPSET, Fact, Release

AttentionForm: TypeAlias = Literal["auto", "standard", "contrib", "expanded"]
Provider: TypeAlias = Literal["any", "cpu", "cuda", "portable"]

ATTENTION_FORMS: tuple[str, ...] = get_args(AttentionForm)
PROVIDERS: tuple[str, ...] = get_args(Provider)
OPSETS = range(17, 27)


class ExportError(ValueError):
    """A model cannot be exported as asked."""


@dataclass(frozen=True)
class Target:
    """Where an exported model is to run.

    Args:
        provider: "any" (standard ops only), "cpu", "cuda" (forms tuned for that onnxruntime provider, com.microsoft ops
            included), or "portable" (primitive ops of opset 18, for runtimes without Attention).
        opset: the ONNX opset; by default 23, and 18 for "portable".
        onnxruntime: the oldest release that must compute the model rightly, such as "1.28" or "1.23.2". Forms that it
            would compute wrongly are not taken.
        attention: "auto", or a form to insist on: "standard" (ONNX Attention), "contrib" (com.microsoft), "expanded".

    Raises:
        ExportError: for a value that does not exist, or an opset that the onnxruntime release cannot load.
    """

    provider: Provider = "any"
    opset: int = 0
    onnxruntime: str = "1.28"
    attention: AttentionForm = "auto"

    def __post_init__(self) -> None:
        _one_of("target", self.provider, PROVIDERS)
        _one_of("attention", self.attention, ATTENTION_FORMS)
        if self.opset == 0:
            default = 18 if self.provider == "portable" else min(23, newest_opset(self.release))
            object.__setattr__(self, "opset", default)
        _check_opset(self.opset)
        newest = newest_opset(self.release)
        if self.opset > newest:
            raise ExportError(
                f"opset {self.opset}: onnxruntime {self.onnxruntime} loads up to opset {newest}; "
                f"ask for opset={newest} or a newer onnxruntime"
            )

    @property
    def release(self) -> Release:
        """The onnxruntime release as numbers: (1, 28) for "1.28"."""
        parts = self.onnxruntime.split(".") if isinstance(self.onnxruntime, str) else []
        if len(parts) not in (2, 3) or not all(part.isascii() and part.isdigit() for part in parts):
            raise ExportError(
                f'onnxruntime version {self.onnxruntime!r} is not understood: give it as text, "1.28" or "1.23.2"'
            )
        return tuple(map(int, parts))

    def has(self, fact: Fact) -> bool:
        """Whether the oldest onnxruntime is new enough for something."""
        return self.release >= fact.since

    @property
    def ir_version(self) -> int:
        """The IR version to stamp: the lowest that goes with the opset, so that old runtimes load the model."""
        return 8 if self.opset <= 18 else 9 if self.opset <= 20 else 10 if self.opset <= 22 else 11

    @classmethod
    def of(cls, target: Target | str, opset: int | None, attention: str | None) -> Self:
        """A target from the arguments of an export call; "auto" leaves the target's own form of attention."""
        if opset is not None:
            _check_opset(opset)
        if isinstance(target, cls):
            made = target
        else:
            made = cls(provider=_one_of("target", str(target), PROVIDERS), opset=opset or 0)  # type: ignore[arg-type]
        if opset is not None:
            made = replace(made, opset=opset)
        if attention is None or _one_of("attention", attention, ATTENTION_FORMS) == "auto":
            return made
        return replace(made, attention=attention)  # type: ignore[arg-type]


def newest_opset(release: Release) -> int:
    """The newest opset that an onnxruntime release loads."""
    known = [opset for since, opset in NEWEST_OPSET.items() if since <= release]
    if not known:
        shown, oldest = (".".join(map(str, r)) for r in (release, min(NEWEST_OPSET)))
        raise ExportError(f"onnxruntime {shown} is older than {oldest}, the oldest that Lucid exports for")
    return known[-1]


def _check_opset(opset: int) -> None:
    if isinstance(opset, bool) or not isinstance(opset, int) or opset not in OPSETS:
        raise ExportError(f"opset {opset!r} is not supported: give one from {OPSETS[0]} to {OPSETS[-1]}")


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise ExportError(f"{name} {value!r} does not exist: choose one of {', '.join(allowed)}")
    return value
