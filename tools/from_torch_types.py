"""Model types of transformers, small and random, through `lucid.from_torch` and `torch.onnx.export`: docs/from-torch-types.md.

Both are held to torch at three sizes, and their files are counted after onnxruntime's optimization. All types take hours;
each is kept in tools/from_torch_types.json as soon as it is measured, with its day, and the page is made from that file.

python -m tools.from_torch_types TYPE ...         measure these types
python -m tools.from_torch_types --oldest 20      measure those whose records are oldest
    --by torch_onnx | times                       by torch's exporter; run times at realistic widths
    --tables                                      with the types of optimum's, onnxruntime-genai's and transformers.js's
                                                  tables, which have to be installed

It needs torch, onnxscript and transformers 5.
"""

from __future__ import annotations

import argparse
import gc
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from torch.export import ExportedProgram

import lucid
from tools import from_torch_pages
from tools.from_torch_pages import TOLERANCE, TYPES
from tools.records import Records, described
from tools.small_models import WIDE, inputs_of, outputs_of, small_model, types

SIZES = ((2, 7), (3, 11), (1, 5))
PACKAGES = ("torch", "transformers", "onnxruntime")
LIMIT = 600  # seconds of the processor, for a type by one of the ways


@contextmanager
def torch_timed() -> Iterator[list[float]]:
    """The seconds that torch takes for each of its parts within the block."""
    export, decompose = torch.export.export, ExportedProgram.run_decompositions
    seconds: list[float] = []

    def timed(function: Any) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            start = time.process_time()
            result = function(*arguments, **options)
            seconds.append(time.process_time() - start)
            return result

        return call

    torch.export.export, ExportedProgram.run_decompositions = timed(export), timed(decompose)
    try:
        yield seconds
    finally:
        torch.export.export, ExportedProgram.run_decompositions = export, decompose


class _OtherProgramError(Exception):
    """torch's exported program and its module differ."""


def tried(kind: str) -> dict[str, Any]:
    """What happens to a type: the stage at which it ends, and figures."""
    stage, outcome = "build", dict[str, Any]()
    try:
        signal.setitimer(signal.ITIMER_PROF, LIMIT)
        model, way = small_model(kind, SIZES)
        runs = [inputs_of(kind, model, *sizes, way)[0] for sizes in SIZES]
        with torch.no_grad():
            expected = [outputs_of(model(**inputs)) for inputs in runs]
        inputs, axes = inputs_of(kind, model, *SIZES[0], way)
        signal.setitimer(signal.ITIMER_PROF, LIMIT)
        stage = "torch"
        start = time.process_time()
        with torch_timed() as seconds:
            module = lucid.from_torch(model, kwargs=inputs, dynamic=axes)
            exported = None
            try:
                exported = lucid.export.to_onnx(module)
            except Exception as error:  # noqa: BLE001  # any library's error is a result here
                failure = error
        outcome["torch_s"], outcome["own_s"] = sum(seconds), time.process_time() - start - sum(seconds)
        stage = "eager"
        outcome["eager"] = max(
            difference(outputs_of(module(**{k: lucid.tensor(v.numpy()) for k, v in own.items()})), theirs)
            for own, theirs in zip(runs, expected, strict=True)
        )
        stage = "exported"
        if exported is None:
            raise failure
        outcome["nodes"] = optimized_nodes(lucid.export.to_onnx(module, target="cpu"))
        session = lucid.runtime.Session(exported)
        outcome["exported"] = max(
            difference(dict(session.run({k: v.numpy() for k, v in own.items() if k in session.inputs})), theirs)
            for own, theirs in zip(runs, expected, strict=True)
        )
        stage = "agrees" if max(outcome["eager"], outcome["exported"]) <= TOLERANCE else "differs"
        if stage == "differs":
            program = torch.export.export(model, (), inputs, dynamic_shapes=open_axes(axes), strict=False)
            with torch.no_grad():
                theirs, own = outputs_of(model(**inputs)), outputs_of(program.module()(**inputs))
            if difference(own, theirs) > TOLERANCE:
                raise _OtherProgramError("torch.export's program computes something else than the module")
    except Exception as error:  # noqa: BLE001
        outcome["error"] = described(error)
        if isinstance(error, _OtherProgramError):
            stage = "torch"
        elif stage == "torch" and any(
            words in outcome["error"] for words in ("no function for", "draws random numbers")
        ):
            stage = "operator"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return {"stage": stage, **outcome}


def by_torch(kind: str) -> dict[str, Any]:
    """The same by `torch.onnx.export`: whether the file agrees, its nodes, and the seconds that the export took."""
    try:
        signal.setitimer(signal.ITIMER_PROF, LIMIT)
        model, way = small_model(kind, SIZES)
        runs = [inputs_of(kind, model, *sizes, way)[0] for sizes in SIZES]
        with torch.no_grad():
            expected = [list(outputs_of(model(**inputs)).values()) for inputs in runs]
        inputs, axes = inputs_of(kind, model, *SIZES[0], way)
        start = time.process_time()
        program = torch_onnx(model, inputs, axes)
        outcome: dict[str, Any] = {"seconds": time.process_time() - start}
        with TemporaryDirectory() as folder:
            program.save(f"{folder}/model.onnx")
            outcome["nodes"] = optimized_nodes(f"{folder}/model.onnx")
            session = onnxruntime.InferenceSession(f"{folder}/model.onnx", providers=["CPUExecutionProvider"])
            names = [value.name for value in session.get_inputs()]
            results = [session.run(None, {k: v.numpy() for k, v in own.items() if k in names}) for own in runs]
        worst = max(
            difference(dict(enumerate(own)), dict(enumerate(theirs)))
            for own, theirs in zip(results, expected, strict=True)
        )
        return outcome | {"agrees": worst <= TOLERANCE, "difference": worst}
    except Exception as error:  # noqa: BLE001
        return {"agrees": False, "error": described(error)}
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def torch_onnx(model: Any, inputs: dict[str, torch.Tensor], axes: dict[str, tuple[Any, ...]]) -> Any:
    """What torch exports, with the axes that have names open."""
    return torch.onnx.export(model, (), kwargs=inputs, dynamic_shapes=open_axes(axes), dynamo=True, verbose=False)


def open_axes(axes: dict[str, tuple[Any, ...]]) -> dict[str, dict[int, Any]]:
    """The axes with names, as torch takes them."""
    open_axis = torch.export.Dim.DYNAMIC
    return {name: {place: open_axis for place, axis in enumerate(own) if axis} for name, own in axes.items()}


def times(kind: str) -> dict[str, Any]:
    """Nodes and run time of Lucid's file, torch's and, where it exports the type, optimum's, at realistic width.

    A time is that of Lucid's file by that of the other: of the shortest of runs in turns, in time of the processor, with
    one thread, the mean of (1, 128) and (4, 128).
    """
    model, way = small_model(kind, [(2, 128)], [WIDE])
    inputs, axes = inputs_of(kind, model, 2, 128, way)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    with TemporaryDirectory() as folder:
        paths = {name: f"{folder}/{name}.onnx" for name in ("lucid", "torch")}
        module = lucid.from_torch(model, kwargs=inputs, dynamic=axes)
        lucid.export.to_onnx(module, path=paths["lucid"], target="cpu")
        torch_onnx(model, inputs, axes).save(paths["torch"])
        if path := by_optimum(model, folder):
            paths["optimum"] = path
        nodes = {name: optimized_nodes(path) for name, path in paths.items()}
        sessions = {name: onnxruntime.InferenceSession(path, options) for name, path in paths.items()}
    ratios: dict[str, list[float]] = {name: [] for name in paths if name != "lucid"}
    for rows in (1, 4):
        arrays = {name: value.numpy() for name, value in inputs_of(kind, model, rows, 128, way)[0].items()}
        # Inputs that optimum's files have beside those of the call.
        arrays.setdefault("position_ids", np.arange(128, dtype=np.int64)[None].repeat(rows, 0))
        arrays.setdefault("token_type_ids", np.zeros((rows, 128), np.int64))
        seconds: dict[str, list[float]] = {name: [] for name in paths}
        for _ in range(40 // rows):
            results = {}
            for name, session in sessions.items():
                feeds = {value.name: arrays[value.name] for value in session.get_inputs()}
                start = time.process_time()
                results[name] = session.run(None, feeds)[0]
                seconds[name].append(time.process_time() - start)
        for name in list(ratios):
            if difference({0: results[name]}, {0: results["lucid"]}) > 1e-3:
                ratios.pop(name)
            else:
                ratios[name].append(min(seconds["lucid"]) / min(seconds[name]))
    return {"nodes": nodes, **{name: sum(each) / len(each) for name, each in ratios.items()}}


def by_optimum(model: Any, folder: str) -> str:
    """The path of optimum's file, by the Python that OPTIMUM names in the environment, since optimum needs an older
    transformers; empty without it, or where optimum does not export the model.
    """
    if "OPTIMUM" not in os.environ:
        return ""
    model.save_pretrained(f"{folder}/checkpoint")
    command = [os.environ["OPTIMUM"], "-m", "optimum.exporters.onnx", "--model", f"{folder}/checkpoint"]
    heads = type(model).__name__.endswith(("ForCausalLM", "LMHeadModel", "ForMaskedLM"))
    for task in ("text-generation", "fill-mask") if heads else ("feature-extraction",):
        options = ["--task", task, "--library", "transformers", "--no-post-process", f"{folder}/optimum"]
        subprocess.run([*command, *options], capture_output=True, check=False, timeout=300)
        if (path := Path(folder, "optimum", "model.onnx")).exists():
            return str(path)
    return ""


def optimized_nodes(model: Any) -> int:
    """The nodes that are left after onnxruntime's optimization."""
    with TemporaryDirectory() as folder:
        options = onnxruntime.SessionOptions()
        options.optimized_model_filepath, options.log_severity_level = f"{folder}/optimized.onnx", 4
        source = model if isinstance(model, str) else model.SerializeToString()
        onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
        return len(onnx.load(f"{folder}/optimized.onnx", load_external_data=False).graph.node)


def difference(own: dict[Any, np.ndarray], theirs: dict[Any, np.ndarray]) -> float:
    """The largest difference relative to the largest number of its output."""
    shared = [name for name in theirs if name in own]
    if not shared:
        raise ValueError(f"outputs {', '.join(own)}, expected {', '.join(theirs)}")
    return max(
        float(np.abs(own[name].astype(np.float64) - theirs[name]).max() / max(1e-9, np.abs(theirs[name]).max()))
        for name in shared
    )


def stopped(*_: Any) -> None:
    """A type that takes too long is given up."""
    raise TimeoutError("took too long")


MEASUREMENTS = {"lucid": tried, "torch_onnx": by_torch, "times": times}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("types", nargs="*")
    parser.add_argument("--oldest", type=int, default=0)
    parser.add_argument("--by", choices=MEASUREMENTS, default="lucid")
    parser.add_argument("--tables", action="store_true")
    options = parser.parse_args()
    signal.signal(signal.SIGPROF, stopped)
    torch.set_num_threads(1)
    records = Records(TYPES)
    every = {*records.rows, *options.types, *(types() if options.tables else ())}
    for kind in records.chosen(options.by, every, options.types, options.oldest):
        records.renew(kind, options.by, MEASUREMENTS[options.by](kind), PACKAGES)
        print(kind, records.rows[kind][options.by], flush=True)
        gc.collect()
    from_torch_pages.main()


if __name__ == "__main__":
    main()
