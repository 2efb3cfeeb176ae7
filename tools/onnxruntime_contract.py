"""The contract in the installed onnxruntime; `check_onnxruntime_versions.py` runs this for each release.

Prints JSON: for each kind of export how many results are exact, and what the unguarded ops compute wrongly.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from itertools import product
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnxruntime.capi import onnxruntime_pybind11_state as state

import lucid
from lucid import ops
from lucid.export import ExportError, Target, to_onnx
from lucid.export.exporter import export_graph
from lucid.export.onnx_file.writer import in_memory
from lucid.export.target import newest_opset
from tests.reference import attention as reference
from tests.reference import pack
from tests.samples import SAMPLES
from tests.test_attention import (
    BATCHES,
    CASES,
    TOLERANCE,
    WEIGHTS,
    Case,
    D,
    H,
    arrays_of,
    expected,
    function_of,
    packed_arrays,
    random_mask,
    sizes,
    specs_of,
)
from tests.test_attention_cpu import SELF
from tests.test_attention_cpu import specs_of as self_specs
from tests.test_element_types import drawn, runs_of
from tests.test_ops import UNITS, eager, traced

RUNS = [run for op in sorted({sample.op.name for sample in SAMPLES}) for run in runs_of(op)]
Arrays = Mapping[str, np.ndarray]
REFUSED = "refused"  # by the export
Run = tuple[Arrays, Arrays]  # inputs, expected outputs
ERRORS = (state.Fail, state.InvalidArgument, state.InvalidGraph, state.NotImplemented, state.RuntimeException)


def outcome(model: onnx.ModelProto, runs: list[Run]) -> list[str]:
    """A word for each output of each run: exact, or how it differs."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except ERRORS:
        return ["does not load"] * sum(len(right) for _, right in runs)
    names = [output.name for output in session.get_outputs()]
    words = []
    for feeds, right in runs:
        try:
            outputs = dict(zip(names, session.run(None, dict(feeds)), strict=True))
        except ERRORS:
            words += ["run error"] * len(right)
            continue
        words += [word(outputs[name], want) for name, want in right.items()]
    return words


def word(got: np.ndarray, want: np.ndarray) -> str:
    if got.shape != want.shape:
        return "wrong shape"
    if np.isnan(got.astype(np.float64)).any() and not np.isnan(want.astype(np.float64)).any():
        return "NaN"
    units = UNITS.get(str(want.dtype), 0.0) if want.dtype != np.float64 or got.dtype == np.float64 else TOLERANCE
    near = np.allclose(got.astype(np.float64), want.astype(np.float64), rtol=units, atol=units, equal_nan=True)
    return "exact" if near else "wrong"


def attention_runs(case: Case, packed: bool, weights: bool = False) -> list[Run]:
    runs: list[Run] = []
    for n, l, s in sizes():
        arrays = arrays_of(case, n, l, s)
        want, probabilities = expected(case.name, n, l, s)
        output = pack(want) if packed else want
        outputs = {"output_0": output, "output_1": probabilities} if weights else {"output": output}
        runs.append((packed_arrays(arrays) if packed else arrays, outputs))
    return runs


def exported(
    function: Callable[..., Any], specs: Mapping[str, Any], target: Target, **names: Any
) -> onnx.ModelProto | None:
    """A model for the target; None if no form is exact."""
    try:
        return to_onnx(function, kwargs=specs, target=target, **names)
    except ExportError:
        return None


def grid(target: Target) -> Iterator[tuple[str, list[str]]]:
    """Every case of the contract on a target, by name."""
    for case, packed in product(CASES, (False, True)):
        model = exported(function_of(case, packed), specs_of(case, packed), target)
        if model is not None:
            yield case.name, outcome(model, attention_runs(case, packed))
    for case in WEIGHTS:
        model = exported(function_of(case, True, need_weights=True), specs_of(case, True), target)
        if model is not None:
            yield f"{case.name}, weights", outcome(model, attention_runs(case, True, weights=True))
    for causal, masked in product((False, True), repeat=2):
        name = f"cache{', causal' if causal else ''}{', mask' if masked else ''}"
        verdicts = cached(causal, masked, target)
        if verdicts is not None:
            yield name, verdicts
    if target.name == "cpu":
        for case, packed in product(SELF, (False, True)):
            model = exported(function_of(case, packed), self_specs(case, packed), target)
            runs: list[Run] = []
            for n, length in ((3, 1), (2, 7), (1, 33), (2, 64), (1, 257)):
                arrays: dict[str, Any] = arrays_of(case, n, length, length)
                want, _ = reference(**arrays, **case.attributes)
                runs.append((packed_arrays(arrays) if packed else arrays, {"output": pack(want) if packed else want}))
            assert model is not None
            yield f"self-attention, {case.name}", outcome(model, runs)


def cached(causal: bool, masked: bool, target: Target) -> list[str] | None:
    def step(query: Any, key: Any, value: Any, past_key: Any, past_value: Any, mask: Any = None) -> Any:
        return ops.attention(query, key, value, mask, None, past_key, past_value, is_causal=causal)

    specs = {name: lucid.spec("N", H, "L", D) for name in ("query", "key", "value")}
    specs |= {name: lucid.spec("N", H, "P", D) for name in ("past_key", "past_value")}
    if masked:
        specs["mask"] = lucid.spec("N", 1, "L", "P + L", dtype=lucid.bool_)
    model = exported(step, specs, target, output_names=["output", "present_key", "present_value"])
    if model is None:
        return None
    runs: list[Run] = []
    for n, l, past in product(BATCHES, (1, 3), (1, 6)):
        rng = np.random.default_rng([n, l, past])
        arrays: dict[str, Any] = {
            name: rng.standard_normal((n, H, l, D)).astype(np.float32) for name in ("query", "key", "value")
        }
        arrays |= {name: rng.standard_normal((n, H, past, D)).astype(np.float32) for name in ("past_key", "past_value")}
        if masked:
            arrays["mask"] = random_mask((n, 1, l, past + l), rng)
        want, _ = reference(**arrays, is_causal=causal)
        keys = np.concatenate([arrays["past_key"], arrays["key"]], 2)
        runs.append((arrays, {"output": want, "present_key": keys}))
    return outcome(model, runs)


def samples(target: Target) -> Iterator[tuple[str, list[str]]]:
    """Every op in every element type that it takes, by name; integers use all the digits of their type."""
    for sample, dtype in RUNS:
        try:
            model = in_memory(export_graph(traced(sample, dtype), target)[0])
        except ExportError:
            yield f"{sample.name} {dtype}", [REFUSED] * len(sample.sizes)
            continue
        values = (*model.graph.input, *model.graph.output)
        if any(value.type.tensor_type.elem_type == onnx.TensorProto.BFLOAT16 for value in values):
            continue  # onnxruntime's run() does not take such arrays; tests/test_element_types.py covers them
        runs: list[Run] = []
        for bound in sample.sizes:
            arrays = drawn(sample, dtype, bound)
            outputs = [value.name for value in model.graph.output]
            feeds = dict(zip((v.name for v in model.graph.input), (a for a in arrays if a is not None), strict=True))
            runs.append((feeds, dict(zip(outputs, eager(sample, arrays, bound), strict=True))))
        yield f"{sample.name} {dtype}", outcome(model, runs)


def summary(results: Iterator[tuple[str, list[str]]]) -> dict[str, Any]:
    words: dict[str, list[str]] = {}
    for name, verdicts in results:
        words.setdefault(name, []).extend(verdicts)
    wrong = {name: sorted({w for w in verdicts if w != "exact"}) for name, verdicts in words.items()}
    total = [w for verdicts in words.values() for w in verdicts]
    named = {name: w for name, w in wrong.items() if w}
    return {"exact": total.count("exact"), "of": len(total), "wrong": named, "tried": list(words)}


def main(floor: str) -> None:
    """Export for a floor, and run in this release."""
    newest = newest_opset(Target(onnxruntime=floor).release)
    targets = [Target("any", opset, floor) for opset in sorted({17, 18, min(newest, 23), newest})]
    targets += [Target("cpu", min(newest, 23), floor), Target("portable", 18, floor)]
    contract = {f"{target.name}, opset {target.opset}": summary(grid(target)) for target in targets}
    kernels = {f"opset {target.opset}": summary(samples(target)) for target in targets if target.name == "any"}
    # The results of Attention if it were used as for the newest release.
    trusting = summary(grid(Target("any", 23, attention="standard"))) if newest >= 23 else None
    results = {"contract": contract, "ops": kernels, "Attention": trusting}
    print(json.dumps({"onnxruntime": onnxruntime.__version__, "floor": floor, "newest opset": newest, **results}))


if __name__ == "__main__":
    main(sys.argv[1])
