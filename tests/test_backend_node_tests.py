"""ONNX's own node tests, from the onnx wheel, against Lucid's eager ops: the numbers that define each op.

Cases without a counterpart in Lucid are not silently left out: `inapplicable` gives the reason, and the reasons are
counted.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.backend.test.case import node as cases

from lucid import Tensor, ops
from lucid.types import Array

OPS = ("Attention", "RotaryEmbedding", "RMSNormalization", "LayerNormalization", "Gelu", "Softmax", "MatMul")

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # the wheel's own tests overflow on purpose
    for name in OPS:
        import_module(f"onnx.backend.test.case.node.{name.lower()}")

# One node each: the others are the same tests with the op replaced by its definition.
CASES = {
    case.name: case
    for case in cases._NodeTestCases
    if len(case.model.graph.node) == 1 and case.model.graph.node[0].op_type in OPS
}

Call = Callable[[list[Any], Mapping[str, Any], onnx.NodeProto], list[Tensor | None]]


def attention(inputs: list[Any], a: Mapping[str, Any], node: onnx.NodeProto) -> list[Tensor | None]:
    query, key, value, mask, past_key, past_value = (inputs + [None] * 6)[:6]
    left, right = a.get("left_window_size", -1), a.get("right_window_size", -1)
    result = ops.attention(
        query,
        key,
        value,
        mask,
        None,
        past_key,
        past_value,
        heads=a.get("q_num_heads"),
        kv_heads=a.get("kv_num_heads"),
        scale=a.get("scale"),
        is_causal=bool(a.get("is_causal", 0)),
        window=left + 1 if left >= 0 else None,
        window_after=right if right >= 0 else None,
        softcap=a.get("softcap", 0.0),
        need_weights=len(node.output) > 3,
    )
    results = list(result) if isinstance(result, tuple) else [result]
    output, rest = results[0], results[1:]
    present: list[Tensor | None] = rest[:2] if past_key is not None else [None, None]
    return [output, *present, *(rest[-1:] if len(node.output) > 3 else [])]


def rotary(inputs: list[Any], a: Mapping[str, Any], node: onnx.NodeProto) -> list[Tensor | None]:
    heads = a.get("num_heads") if inputs[0].ndim == 3 else None
    return [ops.rotary_embedding(*inputs, heads=heads, interleaved=bool(a.get("interleaved", 0)))]


def layer_norm(inputs: list[Any], a: Mapping[str, Any], node: onnx.NodeProto) -> list[Tensor | None]:
    rank = inputs[0].ndim
    return [ops.layer_norm(*inputs, axes=rank - a.get("axis", -1) % rank, eps=a.get("epsilon", 1e-5)), None, None]


def rms_norm(inputs: list[Any], a: Mapping[str, Any], node: onnx.NodeProto) -> list[Tensor | None]:
    """Lucid's op normalises the last axis; several axes are joined first."""
    x, weight = inputs
    flat = x.flatten(a.get("axis", -1))
    return [ops.rms_norm(flat, weight.flatten(), eps=a.get("epsilon", 1e-5)).reshape(x.shape)]


CALLS: dict[str, Call] = {
    "Attention": attention,
    "RotaryEmbedding": rotary,
    "LayerNormalization": layer_norm,
    "RMSNormalization": rms_norm,
    "Gelu": lambda inputs, a, node: [ops.gelu(*inputs, approximate=a.get("approximate", b"none").decode())],
    "Softmax": lambda inputs, a, node: [ops.softmax(*inputs, axis=a.get("axis", -1))],
    "MatMul": lambda inputs, a, node: [ops.matmul(*inputs)],
}


def attributes(node: onnx.NodeProto) -> dict[str, Any]:
    return {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}


def inapplicable(case: Any) -> str:
    """Why Lucid cannot run a case; empty if it can."""
    node = case.model.graph.node[0]
    a, arrays = attributes(node), case.data_sets[0][0]
    if node.op_type != "Attention":
        return ""
    if len(node.input) > 6 and node.input[6]:
        return "nonpad_kv_seqlen: Lucid's cache holds no padding; key_mask says which keys count"
    if len(node.output) > 3 and a.get("qk_matmul_output_mode", 0) != 3:
        return "Lucid returns the weights after the softmax, not the scores on the way"
    mask = dict(zip(node.input, arrays, strict=False)).get(node.input[3] if len(node.input) > 3 else "")
    past = arrays[4].shape[2] if len(node.input) > 4 and node.input[4] else 0
    if mask is not None and mask.shape[-1] not in (1, past + arrays[1].shape[-2]):
        return "a mask shorter than the keys: Lucid's masks broadcast or fit"
    return ""


RUNS = [name for name, case in CASES.items() if not inapplicable(case)]


def assert_close(got: Array, want: Array, case: Any) -> None:
    assert got.shape == want.shape
    assert got.dtype == want.dtype
    half = {"float16": 2e-3, "bfloat16": 2e-2}.get(str(want.dtype), 0.0)
    np.testing.assert_allclose(
        got.astype(np.float64), want.astype(np.float64), rtol=max(case.rtol, half), atol=max(case.atol, 1e-6, half)
    )


@pytest.mark.parametrize("name", RUNS)
def test_an_eager_op_gives_the_numbers_of_the_standard(name: str) -> None:
    case = CASES[name]
    node = case.model.graph.node[0]
    for arrays, wanted in case.data_sets:
        given = dict(zip([i for i in node.input if i], arrays, strict=True))
        inputs = [Tensor.from_array(np.asarray(given[i])) if i else None for i in node.input]
        results = CALLS[node.op_type](inputs, attributes(node), node)
        shown = iter(wanted)
        for output, result in zip(node.output, results, strict=False):
            if output:
                want = next(shown)
                if result is not None:  # LayerNormalization's statistics, and a cache that nobody gave
                    assert_close(result.numpy(), np.asarray(want), case)


def test_the_node_tests_of_every_op_are_run() -> None:
    """An op, or most of its cases, must not drop out unnoticed when the wheel changes."""
    run = Counter(CASES[name].model.graph.node[0].op_type for name in RUNS)
    found = Counter(case.model.graph.node[0].op_type for case in CASES.values())
    assert set(run) == set(OPS)
    assert all(run[op] >= 0.5 * found[op] for op in OPS), f"run {run} of {found}"
