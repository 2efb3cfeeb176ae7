"""tract, a runtime in Rust: it computes what NumPy does, and `lucid inspect` names the op where it does not."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tract

import lucid
from lucid.generation import Generator
from lucid.inspection import inspect_model
from lucid.inspection.loaders import Loader
from tests.consumers.folders import close, computed, eager, exported, tokens
from tests.models import goldens
from tests.samples import SAMPLES, Sample
from tests.test_ops import arrays_of, traced
from tests.test_ops import eager as eager_op

# Ops of target "portable" that tract does not compute, and why; `inspect` names all of them except the last.
REFUSED = {
    "cast-bfloat16": "Unknown DatumType Bfloat16",
    "full-bfloat16": "Unknown DatumType Bfloat16",
    "split": "Split",
    "topk-all, least first": "TopK",
    "batch_norm": "Params are not const",
    "batch_norm-plain": "Params are not const",
    "slice": "Streaming dimensions with strides are not supported",
    "int8_linear_rows": "y_scale must be a const",
    "int8_linear_static": "y_scale must be a const",
    "grouped_mm": "Need splits to be a constant",
    "gated_experts": "Need splits to be a constant",
    "gated_experts-many": "Need splits to be a constant",
    "mixture_of_experts": "Need splits to be a constant",
    "mixture_of_experts-biases, 3": "Need splits to be a constant",
    "mixture_of_experts-biases, 17": "Need splits to be a constant",
    "resize-bicubic, halves": "Can not compute output shape",
    "cast-int64": "Unsupported DatumType in the public API TDim",  # of the Python package, for a model that is one Cast
}
IN_FLOAT32 = [s for s in SAMPLES if s.exported and lucid.float32 in s.dtypes]


def run(path: Path, *inputs: Mapping[str, Any]) -> list[list[Any]]:
    """The outputs of a file, for each of some inputs."""
    model = tract.onnx().load(path)
    names = [model.input_name(place) for place in range(model.input_count())]
    ready = model.into_model().into_runnable()
    return [[array.to_numpy() for array in ready.run([arrays[name] for name in names])] for arrays in inputs]


def tract_loader(path: Path) -> Loader:
    (loader,) = (each for each in inspect_model(path).loaders if each.name.startswith("tract "))
    return loader


def written(variant: str, target: Any, folder: Path) -> tuple[Path, dict[str, Any]]:
    """A model of the goldens as a file, and inputs for it."""
    model, path = eager(variant), folder / "model.onnx"
    lucid.export.to_onnx(model, target=target, path=path)
    names = model.input_specs()
    inputs = goldens.as_exported(goldens.cases(variant)[0].inputs, names)
    return path, {name: inputs[name] for name in names}


@pytest.mark.parametrize(
    "variant",
    [
        "bert/base", "albert/base", "deberta/v3", "modernbert/base", "sentences/cls", "sentences/last_then_max",
        "gpt2/base", "llama/llama3", "qwen3/base", "gemma3/base", "phi3/base", "tasks/qwen2_reranking",
        "t5/v1_1", "bart/base", "whisper/base", "wav2vec2/ctc",
        "vit/classifier", "swin/base", "convnext/base", "clip/gelu",
    ],
)  # fmt: skip
def test_files_for_any_runtime_give_what_numpy_gives(variant: str, tmp_path: Path) -> None:
    path, inputs = written(variant, "portable", tmp_path)
    loader = tract_loader(path)
    assert loader.loads or loader.op == "If", loader
    expected = computed(variant, inputs)
    (outputs,) = run(path, inputs)
    for one, other in zip(outputs, expected if isinstance(expected, tuple) else (expected,), strict=True):
        close(one, other)


@pytest.mark.parametrize(
    ("variant", "target", "op", "message"),
    [
        ("bert/base", "any", "Attention", "Mask must be floating point"),
        ("gpt2/base", "any", "Attention", "Mask cannot be provided if is_causal=true"),
        ("gpt2/base", "openvino", "LessOrEqual", "Can not broadcast"),
        ("qwen3_moe/base", "portable", "Split", "Need splits to be a constant"),
    ],
)
def test_what_it_does_not_run_is_said_by_inspect(
    variant: str, target: str, op: str, message: str, tmp_path: Path
) -> None:
    path, inputs = written(variant, target, tmp_path)
    loader = tract_loader(path)
    assert loader.loads is False
    assert loader.op == op
    assert any(node.name == loader.node for node in onnx.load(path).graph.node)
    with pytest.raises(tract.TractError, match=message):
        run(path, inputs)


def test_a_step_with_a_cache_writes_our_tokens(tmp_path: Path) -> None:
    """Prompt and steps of one file, whose sizes are all open."""
    path = next(exported("llama/llama3", "transformers.js", "--target", "portable").rglob("*.onnx"))
    model = tract.onnx().load(path)
    names = [model.input_name(place) for place in range(model.input_count())]
    output_names = [value.name for value in onnx.load(path).graph.output]  # tract has names of its own for them
    ready = model.into_model().into_runnable()
    shape = eager("llama/llama3").cache_shape
    caches = [name for name in names if name.startswith("past_key_values")]
    known = dict.fromkeys(caches, np.zeros((1, shape.kv_heads, 0, shape.head_dim), np.float32))
    prompt = np.array([[5, 9, 3, 11, 7]])
    ids, past, written = prompt, 0, []
    for _ in range(8):
        total = past + ids.shape[1]
        inputs = {
            **known,
            "input_ids": ids,
            "attention_mask": np.ones((1, total), np.int64),
            "position_ids": np.arange(past, total)[None],
        }
        arrays = [array.to_numpy() for array in ready.run([inputs[name] for name in names])]
        outputs = dict(zip(output_names, arrays, strict=True))
        known = {name: outputs[name.replace("past_key_values", "present")] for name in caches}
        ids, past = outputs["logits"][:, -1:].argmax(-1), total
        written.append(int(ids[0, 0]))
    assert [written] == Generator(eager("llama/llama3")).generate(prompt, max_new_tokens=8).tolist()


@pytest.mark.parametrize("options", [(), ("--bits", "8"), ("--bits", "4"), ("--dtype", "float16")], ids=str)
def test_quantized_embeddings_are_ours(options: tuple[str, ...]) -> None:
    folder = exported("minilm", "onnxruntime", "--target", "portable", *options)
    inputs = tokens("minilm")
    ((embeddings,),) = run(folder / "model.onnx", {**inputs, "token_type_ids": 0 * inputs["input_ids"]})
    assert (embeddings * computed("minilm", inputs)).sum(1).min() > (0.95 if "4" in options else 0.99)


@pytest.mark.parametrize("s", IN_FLOAT32, ids=lambda s: s.name)
def test_tract_computes_every_op(s: Sample, tmp_path: Path) -> None:
    graph, path = traced(s, lucid.float32), tmp_path / "op.onnx"
    lucid.export.to_onnx(graph, target="portable", path=path)
    arrays = [arrays_of(s, lucid.float32, sizes) for sizes in s.sizes]
    names = [value.name for value in graph.inputs]
    inputs = [dict(zip(names, (array for array in each if array is not None), strict=True)) for each in arrays]
    if s.name in REFUSED:
        with pytest.raises((tract.TractError, AssertionError, ValueError), match=REFUSED[s.name]):
            _same(run(path, *inputs), s, arrays)
        assert not tract_loader(path).loads or list(REFUSED).index(s.name) >= len(REFUSED) - 1
    else:
        _same(run(path, *inputs), s, arrays)
        assert tract_loader(path).loads is not False


def _same(results: list[list[Any]], s: Sample, arrays: list[Any]) -> None:
    for outputs, inputs, sizes in zip(results, arrays, s.sizes, strict=True):
        for output, expected in zip(outputs, eager_op(s, inputs, sizes), strict=True):
            np.testing.assert_allclose(output, expected, rtol=1e-4, atol=1e-5)
