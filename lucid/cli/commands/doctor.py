"""`lucid doctor`: it also works when some of Lucid's dependencies are missing or broken, and names them."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib import import_module, metadata
from types import ModuleType

from lucid.cli import terminal
from lucid.cli.errors import FAILED, OK
from lucid.cli.on_demand import command_module
from lucid.cli.options.commands import Doctor
from lucid.core.targets.runtimes import CUDA, RUNTIMES, WEBGPU
from lucid.core.version import __version__
from lucid.core.words.progress import phase

_NEEDED = ("numpy", "onnx", "ml_dtypes", "threadpoolctl", "typer", "rich")
EXTRAS = {
    "chat": ("tokenizers", "jinja2"),
    "structured": ("llguidance",),
    "batch": ("pyarrow", "fsspec", "pillow"),
    "ray": ("ray",),
    "serve": ("uvicorn", "starlette", "prometheus-client"),
    "extensions": ("onnxruntime-extensions",),
    "hub": ("huggingface_hub",),
    "gguf": ("gguf",),
    "torch": ("torch",),
    "plot": ("matplotlib",),
}
"""The packages that each extra adds, without the extras for work on Lucid itself."""

_CPU, _GPU, _WEBGPU = "onnxruntime", "onnxruntime-gpu", "onnxruntime-webgpu"
_PLUGIN = "onnxruntime-ep-webgpu"
_ABSENT = {
    CUDA: f"with an NVIDIA GPU: pip uninstall -y {_CPU} && pip install 'lucid-onnx[gpu]'",
    WEBGPU: f"with any GPU: pip install {_PLUGIN}",
}
"""What to install for the providers that the wheel for processors lacks."""


@dataclass(frozen=True)
class Finding:
    """The result of one check; `good` is None for an optional part that is missing."""

    name: str
    good: bool | None
    text: str
    remedy: str = ""


def run(options: Doctor) -> int:
    """Check everything; the exit code says whether models can be exported and run."""
    with phase("trying what is installed"):
        findings = list(_findings())
    healthy = all(finding.good is not False for finding in findings)
    if options.json:
        terminal.print_json({"healthy": healthy, "findings": [asdict(finding) for finding in findings]})
        return OK if healthy else FAILED
    out = terminal.console()
    marks = {True: ("ok", "green"), False: ("WRONG", "bold red"), None: ("-", "dim")}
    for finding in findings:
        mark, style = marks[finding.good]
        out.line(terminal.Styled(f"{mark:<6}", style), f"{finding.name:<26}{finding.text}")
        if finding.remedy:
            out.line(f"{'':<32}-> {finding.remedy}")
    return OK if healthy else FAILED


def _findings() -> Iterator[Finding]:
    yield Finding("lucid", True, __version__)
    yield Finding("python", True, f"{platform.python_version()} ({sys.executable}), {platform.platform()}")
    for name in _NEEDED:
        yield _package(name)
    for extra, names in EXTRAS.items():
        for name in names:
            version = _version(name)
            missing = f"not installed: pip install 'lucid-onnx[{extra}]'"
            yield Finding(name, True if version else None, version or missing)
    yield from _runtime()
    yield from _model_types()


def _model_types() -> Iterator[Finding]:
    """The types of checkpoints that other distributions read."""
    if not metadata.entry_points(group="lucid.models"):
        return
    try:
        registry = import_module("lucid.models.checkpoints.registry")
    except ImportError:  # of a package that is reported above
        return
    for name, where, problem in registry.installed_types():
        yield Finding(f"model type {name}", not problem, problem or where, where if problem else "")


def _package(name: str) -> Finding:
    version = _version(name)
    if version is None:
        return Finding(name, False, "not installed", f"pip install {name}")
    broken = _broken(name)
    return Finding(name, not broken, f"{version}{broken}", f"pip install --force-reinstall {name}" if broken else "")


def _broken(name: str) -> str:
    try:
        import_module(name)
    except ImportError as error:
        return f", does not import: {error}"
    return ""


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _runtime() -> Iterator[Finding]:
    """onnxruntime: exactly one wheel, which can be imported; its providers; the newest opset that it loads."""
    wheels = {name: version for name in (_CPU, _GPU, _WEBGPU) if (version := _version(name))}
    if len(wheels) > 1:
        text = f"{_show(wheels)} are installed together and overwrite each other's files"
        remedy = f"pip uninstall -y {' '.join(wheels)}, then install one: lucid-onnx[cpu], [gpu] or [webgpu]"
        yield Finding("onnxruntime", False, text, remedy)
        return
    broken = _broken("onnxruntime")
    if broken:
        text = f"{_show(wheels)}{broken}" if wheels else "not installed: models can be exported, but not run or checked"
        yield Finding(
            "onnxruntime", False, text, "pip install 'lucid-onnx[cpu]', or 'lucid-onnx[gpu]' for an NVIDIA GPU"
        )
        return
    runtime = import_module("onnxruntime")
    yield Finding("onnxruntime", True, _show(wheels) or f"onnxruntime {runtime.__version__}, from an unknown wheel")
    trials = command_module("runtime_trials")
    yield from _providers(runtime, trials)
    newest = trials.newest_opset()
    yield Finding("newest opset", True, f"{newest} (Lucid exports 17 to 26; default 23)")


def _show(wheels: dict[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in wheels.items())


def _providers(runtime: ModuleType, trials: ModuleType) -> Iterator[Finding]:
    built_in = runtime.get_available_providers()
    names = [*built_in, *([WEBGPU] if _version(_PLUGIN) and WEBGPU not in built_in else [])]
    for name in names:
        reason = trials.why_not(name)
        unused = name not in {runtime.provider for runtime in RUNTIMES.values()}
        remedy = "" if not reason or unused else "the models still run with --provider cpu"
        yield Finding(name, True if not reason else None if unused else False, reason or "runs", remedy)
    if _version(_CPU):
        for name in sorted(_ABSENT.keys() - set(names)):
            yield Finding(name, None, f"not in the wheel {_CPU}", _ABSENT[name])
