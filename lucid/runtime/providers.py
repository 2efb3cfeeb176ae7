"""onnxruntime and its providers: which are available, and what to do about a missing one."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from importlib import metadata, util
from pathlib import Path

from lucid.core.targets.runtimes import CUDA, RUNTIMES


class ProviderError(RuntimeError):
    """onnxruntime, or one of its providers, is missing or does not work."""


_WHEELS = ("onnxruntime", "onnxruntime-gpu")


def check_installation() -> None:
    """Make sure that exactly one onnxruntime wheel is installed.

    Raises:
        ProviderError: for none, or two that overwrite each other's files.
    """
    found = [name for name in _WHEELS if _installed(name)]
    if len(found) == 2:
        raise ProviderError(
            "onnxruntime and onnxruntime-gpu are both installed and overwrite each other's files: "
            "pip uninstall -y onnxruntime onnxruntime-gpu, then install the one you need again"
        )
    if util.find_spec("onnxruntime") is None:
        raise ProviderError("onnxruntime is not installed: pip install onnxruntime, or onnxruntime-gpu for CUDA")


def _installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


check_installation()

import onnxruntime  # noqa: E402  # after the check, whose message is clearer than an ImportError

_SUFFIX = "ExecutionProvider"
REMOTE = "AzureExecutionProvider"  # calls a web service; computes nothing on this machine


def full_name(provider: str) -> str:
    """onnxruntime's name of a provider: "cpu" is "CPUExecutionProvider".

    Raises:
        ProviderError: for a name that onnxruntime does not know; the message lists those that are available.
    """
    known = onnxruntime.get_all_providers()
    by_short = {short_name(full): full for full in known}
    name = by_short.get(provider.lower(), provider)
    if name not in known:
        shown = ", ".join(short_name(name) for name in available() if name != REMOTE)
        raise ProviderError(f"provider {provider!r} does not exist; available here: {shown}")
    return str(name)


def short_name(provider: str) -> str:
    """The short name of a provider: "cpu" for "CPUExecutionProvider"."""
    return provider.removesuffix(_SUFFIX).lower()


def memory(provider: str) -> str:
    """Where a provider of this full name keeps its tensors, as onnxruntime names devices."""
    return next((runtime.memory for runtime in RUNTIMES.values() if runtime.provider == provider), "cpu")


def available() -> list[str]:
    """The providers that this onnxruntime was built with, by full name."""
    return list(onnxruntime.get_available_providers())


def check_available(names: Sequence[str]) -> None:
    """Make sure that the installed wheel has the providers.

    Raises:
        ProviderError: saying what to install.
    """
    for name in names:
        if name not in available():
            wheel = "onnxruntime-gpu" if _installed("onnxruntime-gpu") else "onnxruntime"
            hint = (
                "pip uninstall -y onnxruntime && pip install onnxruntime-gpu"
                if name == CUDA
                else "see onnxruntime's documentation of it"
            )
            raise ProviderError(
                f"{name} is not in the installed {wheel} {onnxruntime.__version__}, "
                f"which has {', '.join(available())}: {hint}"
            )


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
