"""The forms for onnxruntime's CUDA provider: their structure. tests/devices runs them on a GPU (`make test-gpu`)."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import lucid
from lucid import nn, ops
from lucid.export import Target, explain, to_onnx
from lucid.runtime import Session
from tests.reference import attention as reference
from tests.reference import pack
from tests.test_attention import CASES, Case, arrays_of, function_of, packed_arrays, specs_of

PLAIN, CAUSAL = CASES[0], CASES[1]
KEY_MASK = next(case for case in CASES if case.name == "key mask, causal")
GROUPED = Case("grouped, causal", {"is_causal": True}, kv_heads=2)


def specs(dtype: str = "float16", length: Any = "L", width: int = 512) -> list[lucid.TensorType]:
    return [lucid.spec("N", length, width, dtype=dtype)] * 3


def attention_nodes(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    return [node for node in model.graph.node if node.op_type == "Attention"]


def attributes(node: onnx.NodeProto) -> dict[str, Any]:
    return {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}


# Structure ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_without_masks_it_is_one_node_and_causality_an_attribute(dtype: str, causal: bool) -> None:
    """Otherwise onnxruntime does not take its flash kernel."""
    exported = to_onnx(ops.attention, *specs(dtype), kwargs={"heads": 8, "is_causal": causal}, target="cuda")
    (node,) = exported.graph.node
    assert node.op_type == "Attention"
    assert list(node.input) == ["query", "key", "value"]
    assert attributes(node) == {"q_num_heads": 8, "kv_num_heads": 8, **({"is_causal": 1} if causal else {})}


def test_a_mask_is_made_where_there_is_one_and_no_triangle_is_put_in_it() -> None:
    exported = to_onnx(function_of(KEY_MASK, True), kwargs=specs_of(KEY_MASK, True), target="cuda")
    (node,) = attention_nodes(exported)
    assert attributes(node)["is_causal"] == 1
    assert node.input[3]
    assert not {"LessOrEqual", "Range", "Where", "Trilu"} & {node.op_type for node in exported.graph.node}


def kernel(dtype: str = "float16", length: Any = "L", width: int = 512, masked: bool = False, **options: Any) -> str:
    def model(query: Any, key: Any, value: Any, key_mask: Any = None) -> Any:
        return ops.attention(query, key, value, None, key_mask, heads=8, **options)

    mask = {"key_mask": lucid.spec("N", length, dtype="bool")} if masked else {}
    (decision,) = explain(model, *specs(dtype, length, width), kwargs=mask, target="cuda").attention
    assert decision.taken == "ai.onnx Attention"
    return decision.note


def test_explain_names_the_kernel_that_onnxruntime_can_take() -> None:
    assert kernel().startswith("flash kernel")
    assert kernel(is_causal=True).startswith("flash kernel")
    assert kernel("float32").startswith("memory-efficient kernel: ")
    assert kernel(width=8 * 264).startswith("memory-efficient kernel: ")  # too wide for flash
    assert "not a multiple of 8" in kernel("float32", width=8 * 12)
    assert kernel(masked=True).startswith("memory-efficient kernel where L is a multiple of 4")
    assert kernel(length=32, masked=True).startswith("memory-efficient kernel: ")


def test_explain_says_which_number_of_keys_a_mask_would_want() -> None:
    note = kernel(length=30, masked=True)
    assert "30 keys are not a multiple of 4" in note
    assert note.endswith("pad the keys to 32")


@pytest.mark.parametrize(
    ("options", "dtype", "reason"),
    [
        ({"need_weights": True}, "float16", "no kernel for Attention that returns weights"),
        ({}, "float64", "no float64 kernel"),
        ({"scale": -1.0}, "float16", "wants a positive one"),
    ],
)
def test_what_the_kernel_lacks_is_expanded(options: dict[str, Any], dtype: str, reason: str) -> None:
    (decision,) = explain(ops.attention, *specs(dtype), kwargs={"heads": 8, **options}, target="cuda").attention
    assert decision.taken == "expanded"
    assert reason in dict(decision.refused)["ai.onnx Attention"]


def over_past(dtype: str, width: int, value_width: int) -> tuple[Any, dict[str, lucid.TensorType]]:
    """Causal attention of new positions over a growing cache."""

    def model(query: Any, key: Any, value: Any, past_key: Any, past_value: Any) -> Any:
        return ops.attention(query, key, value, None, None, past_key, past_value, is_causal=True)

    shapes = {"query": ("L", width), "key": ("L", width), "value": ("L", value_width)}
    shapes |= {"past_key": ("P", width), "past_value": ("P", value_width)}
    return model, {name: lucid.spec("N", 4, *shape, dtype=dtype) for name, shape in shapes.items()}


@pytest.mark.parametrize(
    ("dtype", "width", "value_width", "node"),
    [
        *[("float16", 64, 64, True), ("float16", 8, 4, True), ("float16", 8, 6, False), ("float16", 6, 8, False)],
        *[("bfloat16", 64, 128, True), ("bfloat16", 64, 6, False), ("float32", 6, 6, True), ("float32", 5, 6, False)],
    ],
)
def test_past_keys_are_joined_in_steps_of_8_bytes(dtype: str, width: int, value_width: int, node: bool) -> None:
    """In other widths onnxruntime 1.31.1 reads other numbers; found on a GPU."""
    model, kinds = over_past(dtype, width, value_width)
    (decision,) = explain(model, kwargs=kinds, target="cuda").attention
    assert (decision.taken == "ai.onnx Attention") == node
    if not node:
        assert "joins past and new keys 8 bytes at a time" in dict(decision.refused)["ai.onnx Attention"]


def test_what_cuda_lacks_in_bfloat16_is_computed_in_float32() -> None:
    """onnxruntime would not load the file."""
    exported = to_onnx(lucid.log, lucid.spec("N", dtype="bfloat16"), target="cuda")
    assert [node.op_type for node in exported.graph.node] == ["Cast", "Log", "Cast"]


def test_releases_without_a_cuda_kernel_take_the_com_microsoft_ops() -> None:
    """Before 1.25 onnxruntime would compute Attention on the CPU, with copies."""
    old = Target("cuda", onnxruntime="1.24")
    for dtype, options, taken in [
        ("float16", {"is_causal": True}, "com.microsoft GroupQueryAttention"),
        ("bfloat16", {"is_causal": True}, "com.microsoft GroupQueryAttention"),
        ("float32", {"is_causal": True}, "com.microsoft MultiHeadAttention"),
        ("float16", {}, "com.microsoft MultiHeadAttention"),
        ("float16", {"window": 3}, "expanded"),
    ]:
        (decision,) = explain(ops.attention, *specs(dtype), kwargs={"heads": 8, **options}, target=old).attention
        assert decision.taken == taken
        assert "would run on the CPU" in dict(decision.refused)["ai.onnx Attention"]


@pytest.mark.parametrize("case", [CAUSAL, GROUPED], ids=str)
def test_group_query_attention_computes_the_contract(case: Case) -> None:
    """Its CPU kernel has the same semantics, so these can be checked without a GPU."""
    half = {name: lucid.spec("N", "L", spec.shape[2], dtype="float16") for name, spec in specs_of(case, True).items()}
    exported = to_onnx(function_of(case, True), kwargs=half, target=Target("cuda", onnxruntime="1.24"))
    assert "GroupQueryAttention" in {node.op_type for node in exported.graph.node}
    session = Session(exported, "cpu", threads=1)
    for n, length in ((1, 1), (3, 2), (2, 7), (1, 33)):
        arrays = arrays_of(case, n, length, length)
        got = session.run({name: array.astype(np.float16) for name, array in packed_arrays(arrays).items()})["output"]
        want, _ = reference(**arrays, **case.attributes)
        np.testing.assert_allclose(got, pack(want), atol=4e-3)


def test_a_whole_module() -> None:
    model = nn.MultiHeadAttention(64, 8, dtype="float16")
    exported = to_onnx(model, lucid.spec("N", "L", 64, dtype="float16"), kwargs={"is_causal": True}, target="cuda")
    (node,) = attention_nodes(exported)
    assert len(node.input) == 3


@pytest.mark.parametrize(
    ("shape", "approximate", "dtype", "node"),
    [
        *[(("N", 8), "tanh", "float16", True), (("N", 7), "tanh", "float16", False)],
        *[(("N", 7), "none", "float16", True), (("N", 7), "tanh", "float32", True)],
    ],
)
def test_gelu_by_tanh_needs_an_even_number_of_halves(shape: Any, approximate: str, dtype: str, node: bool) -> None:
    """onnxruntime 1.31.1 does not compute the last of an odd number; found on a GPU."""
    exported = to_onnx(ops.gelu, lucid.spec(*shape, dtype=dtype), kwargs={"approximate": approximate}, target="cuda")
    assert ("Gelu" in {node.op_type for node in exported.graph.node}) == node


@pytest.mark.gpu
@pytest.mark.parametrize("approximate", ["none", "tanh"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_gelu_of_any_number_of_elements_on_cuda(dtype: str, approximate: str) -> None:
    spec = lucid.spec("N", dtype=dtype)
    session = Session(to_onnx(ops.gelu, spec, kwargs={"approximate": approximate}, target="cuda"), "cuda")
    for count in (1, 2, 3, 7, 8, 255, 257, 4097):
        x = np.linspace(-3, 3, count).astype(spec.dtype.numpy)
        (got,) = session.run({"x": x}).values()
        want = ops.gelu(lucid.tensor(x), approximate=approximate).numpy()
        atol = {"float32": 1e-6, "float16": 4e-3, "bfloat16": 3e-2}[dtype]
        np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), atol=atol, err_msg=str(count))


@pytest.mark.gpu
@pytest.mark.parametrize("value_width", [6, 8, 64])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_past_keys_on_cuda(dtype: str, value_width: int) -> None:
    model, kinds = over_past(dtype, 64, value_width)
    session = Session(to_onnx(model, kwargs=kinds, target="cuda"), [("cuda", {"use_tf32": 0})])
    for n, new, past in ((1, 1, 5), (2, 3, 5), (2, 1, 12), (3, 5, 0)):
        rng = np.random.default_rng(past)
        sizes = {"N": n, "L": new, "P": past}
        feeds = {
            name: rng.standard_normal([sizes.get(str(size), size) for size in kind.shape]).astype(kind.dtype.numpy)
            for name, kind in kinds.items()
        }
        exact = {name: array.astype(np.float64) for name, array in feeds.items()}
        want, _ = reference(**exact, is_causal=True)
        got, _, _ = session.run(feeds).values()  # and the keys and values for the next step
        atol = {"float32": 1e-5, "float16": 4e-3, "bfloat16": 3e-2}[dtype]
        np.testing.assert_allclose(got.astype(np.float64), want, atol=atol, err_msg=str(sizes))
