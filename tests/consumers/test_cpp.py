"""A program in C++ that runs files with OpenVINO's own API, compiled here, gives what NumPy gives."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import openvino
import pytest

import lucid
from lucid.inspection import inspect_model
from tests.consumers.folders import WORK, close, eager
from tests.models import goldens
from tests.waiting import PATIENCE

HERE, HOME = Path(__file__).parent, Path(openvino.__file__).parent
COMPILER = shutil.which("g++") or shutil.which("clang++")
if COMPILER is None:
    pytest.skip("needs a C++ compiler (Debian: g++)", allow_module_level=True)


@pytest.fixture(scope="module")
def program() -> Path:
    assert COMPILER is not None
    executable, (library,) = WORK / "program", (HOME / "libs").glob("libopenvino.so.*")
    place = f"-Wl,-rpath,{HOME / 'libs'}"
    command: list[str | Path] = [
        COMPILER,
        "-std=c++17",
        HERE / "program.cpp",
        "-I",
        HOME / "include",
        library,
        place,
        "-o",
        executable,
    ]
    subprocess.run(command, check=True, timeout=PATIENCE)
    return executable


@pytest.mark.parametrize("target", ["portable", "openvino"])
@pytest.mark.parametrize("variant", ["bert/base", "llama/llama3", "gemma3/base", "t5/v1_1", "vit/classifier"])
def test_a_program_in_cpp_gives_what_numpy_gives(program: Path, variant: str, target: Any, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    graph = lucid.trace(eager(variant))
    lucid.export.to_onnx(graph, target=target, path=path)
    (loader,) = (each for each in inspect_model(path).loaders if each.name.startswith("OpenVINO"))
    assert loader.loads, loader
    known = goldens.as_exported(goldens.cases(variant)[0].inputs, [value.name for value in graph.inputs])
    inputs = {value.name: known[value.name] for value in graph.inputs}
    arguments: list[str] = []
    for name, array in inputs.items():
        (tmp_path / name).write_bytes(np.ascontiguousarray(array).tobytes())
        arguments += [name, str(array.dtype), name, *map(str, array.shape), ","]
    command: list[str | Path] = [program, path, *arguments]
    printed = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True, timeout=PATIENCE).stdout
    outputs = {}
    for place, line in enumerate(printed.splitlines()):
        name, *sizes = line.split()
        outputs[name] = np.fromfile(tmp_path / f"output.{place}", np.float32).reshape([int(size) for size in sizes])
    for name, expected in zip(graph.output_names, graph.run(list(inputs.values())), strict=True):
        close(outputs[name], expected)
