"""Which runtimes load a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

_STANDARD = ("", "ai.onnx", "ai.onnx.ml")
_ORT_OWN = ("com.microsoft", "com.microsoft.nchwc", "com.microsoft.experimental", "com.ms.internal.nhwc")

# The newest opset and IR version that each release loads: measured with one Identity node; a release missing here
# is as the one before it.
_RELEASES: dict[str, tuple[int, int]] = {
    "1.15": (18, 9),
    "1.16": (19, 9),
    "1.17": (20, 9),
    "1.18": (21, 10),
    "1.21": (22, 10),
    "1.23": (23, 11),
    "1.24": (25, 13),
    "1.25": (26, 13),
}


@dataclass(frozen=True)
class Loader:
    """A runtime and whether it loads the model; `loads` is None where that cannot be told."""

    name: str
    loads: bool | None
    reason: str


def loaders(opsets: Mapping[str, int], ir_version: int) -> tuple[Loader, ...]:
    """What loads a model, by its versions and the domains of its operators."""
    opset = max((version for domain, version in opsets.items() if domain in ("", "ai.onnx")), default=1)
    oldest = next((name for name, (newest, ir) in _RELEASES.items() if newest >= opset and ir >= ir_version), None)
    foreign = sorted(domain for domain in opsets if domain not in _STANDARD + _ORT_OWN)
    own = sorted(domain for domain in opsets if domain in _ORT_OWN)
    found = []
    if foreign:
        found.append(Loader("onnxruntime", None, f"needs the library of custom operators for {', '.join(foreign)}"))
    elif oldest is None:
        newest = list(_RELEASES)[-1]
        found.append(
            Loader(
                "onnxruntime",
                False,
                f"opset {opset} with IR {ir_version} is newer than release {newest} loads",
            )
        )
    else:
        found.append(Loader(f"onnxruntime {oldest} or newer", True, f"opset {opset}, IR {ir_version}"))
    if own:
        found.append(Loader("other ONNX runtimes", False, f"{', '.join(own)} is onnxruntime's own"))
    elif not foreign:
        found.append(Loader("other ONNX runtimes", None, f"those with opset {opset}, IR {ir_version}"))
    return tuple(found)
