"""The devices on which the same tests run, each with onnxruntime's provider for it, and how a test names them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

import pytest

from lucid import nn
from lucid.export import to_onnx
from lucid.runtime import ProviderError, Session
from tests.devices import software_adapter


@dataclass(frozen=True, eq=False)
class Device:
    """A device: the target of models for it, which is also the provider's name, and the marker of its tests.

    Args:
        name: the target and the provider.
        marker: pytest's, such as in `pytest -m webgpu`.
        attention: the floating-point types that it computes in, each with how far off attention may be.
        options: of the provider, for products of float32 that are not rounded.
        prepare: what makes it available to this process.
        small: whether a part of the tests is enough: on an adapter in software each new shader takes its time.
    """

    name: str
    marker: str
    attention: Mapping[str, float]
    options: Mapping[str, int]
    prepare: Callable[[], None] = lambda: None
    small: bool = False

    @property
    def exact(self) -> list[tuple[str, Mapping[str, int]]]:
        """The provider as a session takes it, with the options."""
        return [(self.name, self.options)]

    def __str__(self) -> str:
        return self.name


# With softcap float32 was off by 5.5e-6 on an H200, otherwise by less than 2e-6.
CUDA = Device("cuda", "gpu", {"float32": 1e-5, "float16": 4e-3}, {"use_tf32": 0})
# The software adapter has no float16 in shaders.
WEBGPU = Device("webgpu", "webgpu", {"float32": 2e-6}, {}, software_adapter.use, small=True)
DEVICES = (CUDA, WEBGPU)

on_devices = pytest.mark.parametrize(
    "device", [pytest.param(device, marks=getattr(pytest.mark, device.marker), id=device.name) for device in DEVICES]
)
IN_FLOATS = [
    pytest.param(device, dtype, marks=getattr(pytest.mark, device.marker), id=f"{device}-{dtype}")
    for device in DEVICES
    for dtype in device.attention
]


@cache
def why_missing(device: Device) -> str:
    """Why the tests of a device cannot run; empty if they can."""
    device.prepare()
    try:
        Session(to_onnx(nn.Linear(1, 1), ("N", 1)), device.name)
    except ProviderError as error:
        return str(error)
    return ""


def require(item: pytest.Item) -> None:
    """Skip a test of a device that is missing; fail it where just the tests of this device were asked for."""
    for device in DEVICES:
        if item.get_closest_marker(device.marker) and (why := why_missing(device)):
            asked = item.config.option.markexpr == device.marker
            (pytest.fail if asked else pytest.skip)(why)
