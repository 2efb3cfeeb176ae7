"""onnxruntime and its providers: which are available, and what to do about a missing one."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import metadata, util
from pathlib import Path
from typing import Any

from lucid.core.targets.runtimes import CPU, CUDA, RUNTIMES, WEBGPU
from lucid.core.words.suggestions import did_you_mean
from lucid.runtime.requirements import webgpu_plugin_path


class ProviderError(RuntimeError):
    """onnxruntime, or one of its providers, is missing or does not work."""


class UnknownProviderError(ProviderError, ValueError):
    """No onnxruntime has a provider of this name."""


_WHEELS = ("onnxruntime", "onnxruntime-gpu", "onnxruntime-webgpu")
_PLUGIN = "onnxruntime-ep-webgpu"  # a library with the WebGPU provider, for a wheel without it


def check_installation() -> None:
    """Make sure that exactly one onnxruntime wheel is installed.

    Raises:
        ProviderError: for no installation, or two that overwrite each other's files.
    """
    installed = wheels()
    if len(installed) > 1:
        raise ProviderError(
            f"{' and '.join(installed)} are installed together and overwrite each other's files: "
            f"pip uninstall -y {' '.join(installed)}, then install the one you need again"
        )
    if util.find_spec("onnxruntime") is None:
        raise ProviderError("onnxruntime is not installed: pip install onnxruntime, or onnxruntime-gpu for CUDA")


def wheels() -> list[str]:
    """The installed wheels of onnxruntime."""
    return [name for name in _WHEELS if _installed(name)]


def _installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


check_installation()

import onnxruntime  # noqa: E402  # after the check, whose message is clearer than an ImportError
from onnxruntime.capi.onnxruntime_pybind11_state import Fail  # noqa: E402

_SUFFIX = "ExecutionProvider"
REMOTE = "AzureExecutionProvider"  # calls a web service; computes nothing on this machine

_MEANT = {"gpu": "cuda", "nvidia": "cuda"}  # words that no provider has as its name


def full_name(provider: str) -> str:
    """onnxruntime's name of a provider: "cpu" is "CPUExecutionProvider".

    Raises:
        UnknownProviderError: for a name that onnxruntime does not know; the message lists those that are available.
    """
    known = onnxruntime.get_all_providers()
    by_short = {short_name(full): full for full in known}
    name = by_short.get(provider.lower(), provider)
    if name not in known:
        shown = ", ".join(short_name(name) for name in available() if name != REMOTE)
        similar = did_you_mean(_MEANT.get(provider.lower(), provider), by_short)
        raise UnknownProviderError(f"provider {provider!r} does not exist; available here: {shown}{similar}")
    return str(name)


def short_name(provider: str) -> str:
    """The short name of a provider: "cpu" for "CPUExecutionProvider"."""
    return provider.removesuffix(_SUFFIX).lower()


def memory(provider: str) -> str:
    """The device with the tensors of a provider of this full name, as onnxruntime names devices."""
    return next((runtime.memory for runtime in RUNTIMES.values() if runtime.provider == provider), "cpu")


def available() -> list[str]:
    """The providers that this onnxruntime was built with, and those of plugins with a device, by full name."""
    return [*([WEBGPU] if plugin_devices() else []), *onnxruntime.get_available_providers()]


@cache
def plugin_devices() -> tuple[Any, ...]:
    """The devices of the WebGPU plugin, which is registered if it is installed.

    Raises:
        ProviderError: for a plugin that this onnxruntime does not load.
    """
    if WEBGPU in onnxruntime.get_available_providers() or util.find_spec(_PLUGIN.replace("-", "_")) is None:
        return ()
    try:
        onnxruntime.register_execution_provider_library(WEBGPU, webgpu_plugin_path())
    except Fail as error:
        raise ProviderError(
            f"onnxruntime {onnxruntime.__version__} does not load its plugin {_PLUGIN}: {error}; "
            "install releases of both that fit"
        ) from error
    return tuple(device for device in onnxruntime.get_ep_devices() if device.ep_name == WEBGPU)


def register(
    options: onnxruntime.SessionOptions, providers: Mapping[str, Mapping[str, str]]
) -> list[tuple[str, Mapping[str, str]]] | None:
    """Give the options of a session the device of a plugin's provider; returns the providers to name to the session.

    Raises:
        ProviderError: for the plugin's provider with others than the CPU's after it.
    """
    if WEBGPU not in providers or not plugin_devices():
        return list(providers.items())
    if [*providers] not in ([WEBGPU], [WEBGPU, CPU]):
        raise ProviderError(
            f"the provider of the plugin {_PLUGIN} comes first and goes with cpu only; got {[*providers]}"
        )
    options.add_provider_for_devices([plugin_devices()[0]], dict(providers[WEBGPU]))
    return None


def check_available(names: Sequence[str]) -> None:
    """Make sure that the installed wheel has the providers.

    Raises:
        ProviderError: saying what to install.
    """
    for name in names:
        if name not in available():
            wheel = next(iter(wheels()), "onnxruntime")
            raise ProviderError(
                f"{name} is not in the installed {wheel} {onnxruntime.__version__}, "
                f"which has {', '.join(available())}: {_remedy(name, wheel)}"
            )


def _remedy(name: str, wheel: str) -> str:
    """The remedy for a provider that the installed wheel lacks."""
    if name == CUDA:
        return f"pip uninstall -y {wheel} && pip install onnxruntime-gpu"
    if name != WEBGPU:
        return "see onnxruntime's documentation of it"
    if _installed(_PLUGIN):
        return f"its plugin {_PLUGIN} found no GPU; check its driver, on Linux also Vulkan's loader (libvulkan1)"
    return f"pip install {_PLUGIN}, its plugin for GPUs"


def why_inactive(name: str) -> str:
    """Why a provider that is built in does not start: a library it cannot load, if that is the reason."""
    library = Path(onnxruntime.__file__).parent / "capi" / f"libonnxruntime_providers_{short_name(name)}.so"
    if not library.exists():
        return "onnxruntime gives no reason; set its log level to verbose"
    try:
        ctypes.CDLL(str(library))
    except OSError as error:
        return f"a library is missing: {error}; install it, or call onnxruntime.preload_dlls() first"
    return "its libraries load, so the device or its driver does not respond: check nvidia-smi"


def installed() -> str:
    """The installed release as `lucid.export.Target` takes it, such as "1.31"."""
    return ".".join(onnxruntime.__version__.split(".")[:2])
