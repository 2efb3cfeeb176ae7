"""docs/from-torch-types.md: model types of transformers, small and random, through `lucid.from_torch` and `torch.onnx.export`.

Both are held to torch at three sizes, and their files are counted after onnxruntime's optimization. The types are those
of optimum's, onnxruntime-genai's and transformers.js's own tables. A run takes hours; it keeps its results in a file and goes on where it
stopped. Without types only the page is written.

python -m tools.from_torch_types RESULTS.json [all | TYPE ...]     needs torch, onnxscript and transformers 5
python -m tools.from_torch_types RESULTS.json times TYPE ...       run times at realistic widths
"""

from __future__ import annotations

import gc
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
import transformers
from torch.export import ExportedProgram

import lucid
from lucid.models.checkpoints.families import MODEL_TYPES
from tools.small_models import WIDE, inputs_of, outputs_of, small_model, types

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "from-torch-types.md"
SIZES = ((2, 7), (3, 11), (1, 5))
TOLERANCE = 2e-5


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

    torch.export.export, ExportedProgram.run_decompositions = timed(export), timed(decompose)  # type: ignore[method-assign]
    try:
        yield seconds
    finally:
        torch.export.export, ExportedProgram.run_decompositions = export, decompose  # type: ignore[method-assign]


class _OtherProgramError(Exception):
    """torch's exported program and its module differ."""


def tried(kind: str) -> dict[str, Any]:
    """What happens to a type: the stage at which it ends, and figures."""
    stage, outcome = "build", {}
    try:
        signal.setitimer(signal.ITIMER_PROF, 60)
        model, way = small_model(kind, SIZES)
        runs = [inputs_of(kind, model, *sizes, way)[0] for sizes in SIZES]
        with torch.no_grad():
            expected = [outputs_of(model(**inputs)) for inputs in runs]
        inputs, axes = inputs_of(kind, model, *SIZES[0], way)
        outcome["inputs"] = list(inputs)
        signal.setitimer(signal.ITIMER_PROF, 180)
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
        lines = str(error).strip().splitlines() or [""]
        if isinstance(error, _OtherProgramError):
            stage = "torch"
        elif stage == "torch" and any(words in lines[0] for words in ("no function for", "draws random numbers")):
            stage = "operator"
        outcome["error"] = f"{type(error).__name__}: {lines[0]}"[:300]
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return {"stage": stage, **outcome}


def by_torch(kind: str) -> dict[str, Any]:
    """The same by `torch.onnx.export`: whether the file agrees, its nodes, and the seconds that the export took."""
    try:
        signal.setitimer(signal.ITIMER_PROF, 240)
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
        outcome["difference"] = max(
            difference(dict(enumerate(own)), dict(enumerate(theirs)))
            for own, theirs in zip(results, expected, strict=True)
        )
        return outcome
    except Exception as error:  # noqa: BLE001
        return {"error": f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"[:300]}
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


STAGES = {
    "agrees": "agree with torch within 2e-5, eagerly and exported, at three sizes",
    "differs": "differ by more",
    "eager": "are imported and do not run at other sizes",
    "exported": "run on NumPy and are not exported",
    "operator": "have an operator without a function",
    "torch": "are not exported by torch, or not with these axes",
    "build": "cannot be built from a small config, or need inputs that the tool does not make",
    "untried": "have not been run: a run of all types takes hours",
}


def page(results: dict[str, dict[str, Any]]) -> str:
    """The page of a run."""
    count = Counter(result["stage"] for result in results.values())
    known = sum(count[stage] for stage in STAGES if stage not in ("build", "torch", "untried"))
    lines = [
        "# Model types through torch",
        "",
        "Look up whether a model type of transformers goes through [`lucid.from_torch`](howto/from-torch.md), and whether Lucid reads it natively.",
        f"The page is generated by `python -m tools.from_torch_types` with torch {torch.__version__.split('+')[0]} and transformers {transformers.__version__}: small random models,",
        "compared with torch eagerly and in onnxruntime at sizes that torch did not see. The types are those that optimum, onnxruntime-genai and",
        "transformers.js name in their own tables, and some more.",
        "",
        f"Of the {known} types that torch exports, {count['agrees']} agree ({100 * count['agrees'] // max(1, known)} %).",
        "",
        "| Types | |",
        "|---|---|",
        *(f"| {count[stage]} | {text} |" for stage, text in STAGES.items() if count[stage]),
        "",
        *compared(results),
        "",
        "| Type | Native | Result | Difference: eager, exported | Nodes: Lucid, torch | Time by torch's, optimum's |",
        "|---|---|---|---|---|---|",
    ]
    for name, result in sorted(results.items()):
        native = "yes" if name in MODEL_TYPES else ""
        if result["stage"] == "agrees":
            nodes = ", ".join(map(str, filter(None, (result.get("nodes"), by_other(result).get("nodes")))))
            ratio = ", ".join(f"{ratio:.2f}" for ratio in timed(result).values())
            lines.append(
                f"| `{name}` | {native} | agrees | {result['eager']:.0e}, {result['exported']:.0e} | {nodes} | {ratio} |"
            )
        else:
            error = re.sub(r"/\S*/", "", result.get("error", "")).replace("|", "/").replace("<", "&lt;")
            lines.append(f"| `{name}` | {native} | {': '.join(filter(None, (result['stage'], error[:160])))} | | | |")
    return "\n".join([*lines, ""])


def by_other(result: dict[str, Any]) -> dict[str, Any]:
    """What `torch.onnx.export` makes of a type."""
    other: dict[str, Any] = result.get("torch_onnx", {})
    return other


def timed(result: dict[str, Any]) -> dict[str, float]:
    """The time of Lucid's file by those of the others."""
    return {name: ratio for name, ratio in result.get("times", {}).items() if name in ("torch", "optimum")}


def compared(results: dict[str, dict[str, Any]]) -> list[str]:
    """What the comparison with torch.onnx comes to."""
    tried_by_both = {name: result for name, result in results.items() if by_other(result)}
    passed = {name for name, result in tried_by_both.items() if by_other(result).get("difference", 1) <= TOLERANCE}
    own = {name for name, result in tried_by_both.items() if result["stage"] == "agrees"}
    nodes = {name: results[name]["nodes"] / by_other(results[name])["nodes"] for name in sorted(passed & own)}
    more = [f"`{name}` ({ratio:.2f})" for name, ratio in nodes.items() if ratio > 1]
    ratios = {name: timed(result)["torch"] for name, result in results.items() if "torch" in timed(result)}
    beside = {name: timed(result)["optimum"] for name, result in results.items() if "optimum" in timed(result)}
    shares = [
        result["own_s"] / (result["own_s"] + result["torch_s"]) for result in results.values() if "own_s" in result
    ]
    lines = [
        f"`torch.onnx.export(dynamo=True)` was run for {len(tried_by_both)} of the types. Of these {len(passed)} agree by torch.onnx and {len(own)} by Lucid"
        + (
            f"; torch.onnx alone passes {', '.join(sorted(passed - own))}."
            if passed - own
            else "; none by torch.onnx alone."
        )
    ]
    if nodes:
        lines.append(
            f"After onnxruntime's optimization, Lucid's file for target \"cpu\" has {median(nodes.values()):.2f} times the nodes of torch's in the median"
            + (f", and more for {', '.join(more)}." if more else ", and never more.")
            + " Lucid keeps a sum and the layer norm that follows it apart, by a reshape: onnxruntime would fuse them into a slower kernel, of fewer nodes."
        )
    if ratios:
        slow = [f"`{name}`" for name, ratio in ratios.items() if ratio > 1.05]
        lines.append(
            f"At a width of 384, with 4 layers, length 128 and one thread, {len(ratios)} types run in {median(ratios.values()):.2f} times the time of torch's file in the median"
            + (f"; slower by more than 5 %: {', '.join(slow)}." if slow else "; none is slower by more than 5 %.")
            + " Times are of the processor, of the shortest of runs in turns."
        )
    if beside:
        shown = ", ".join(
            f"`{name}` {nodes['lucid']} nodes for {nodes['optimum']}"
            for name, nodes in ((name, results[name]["times"]["nodes"]) for name in beside)
        )
        lines.append(
            f"optimum's files of {len(beside)} of them, where it exports the type, take as long as Lucid's within {100 * max(abs(1 - r) for r in beside.values()):.0f} %, "
            f"{median(beside.values()):.2f} times in the median: {shown}."
        )
    if shares:
        lines.append(
            f"Of the time from a module to a file, {100 * median(shares):.0f} % is Lucid's own in the median; torch takes the rest."
        )
    return lines


def stopped(*_: Any) -> None:
    """A type that takes too long is given up."""
    raise TimeoutError("took too long")


def main() -> None:
    signal.signal(signal.SIGPROF, stopped)
    torch.set_num_threads(1)
    path = Path(sys.argv[1])
    results = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    for kind in types() if sys.argv[2:] == ["all"] else sys.argv[2:]:
        if kind == "times":
            continue
        if sys.argv[2] == "times" and "times" not in results[kind]:
            results[kind]["times"] = times(kind)
        elif kind not in results:
            results[kind] = tried(kind)
        elif results[kind]["stage"] not in ("build", "torch") and "torch_onnx" not in results[kind]:
            results[kind]["torch_onnx"] = by_torch(kind)
        else:
            continue
        print(kind, results[kind], flush=True)
        path.write_text(json.dumps(results, indent=1), encoding="utf-8")
        gc.collect()
    PAGE.write_text(page({kind: {"stage": "untried"} for kind in types()} | results), encoding="utf-8")


if __name__ == "__main__":
    main()
