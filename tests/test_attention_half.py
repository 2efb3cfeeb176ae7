"""Attention in half precision: on every target that runs on a CPU, the float32 result, rounded once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lucid
from lucid import ops
from lucid.export import Target, explain, to_onnx
from lucid.runtime import Session
from tests.combinations import in_pairs

HALF = ["float16", "bfloat16"]
EXPORTS = [{"target": "any"}, {"target": "cpu"}, {"target": "portable"}, {"target": "any", "attention": "standard"}]
EXPORTS += [{"target": "any", "attention": "expanded"}, {"target": "cpu", "opset": 18}]
ROUNDING = {"float16": 2.0**-11, "bfloat16": 2.0**-8}

OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "causal": {"is_causal": True},
    "window": {"is_causal": True, "window": 5},
    "softcap": {"softcap": 30.0},
    "scale": {"scale": 0.3, "is_causal": True},
}


def inputs(dtype: str, factor: float, length: int = 40) -> list[lucid.Tensor]:
    """Queries and keys of that size, 64 wide."""
    rng = np.random.default_rng(0)
    sizes = (factor, factor, 1.0)
    return [lucid.tensor(size * rng.standard_normal((1, 2, length, 64))).astype(dtype) for size in sizes]


def held(got: Any, want: Any, dtype: str) -> None:
    assert got.dtype.name == dtype
    got, want = got.astype(np.float64), want.astype(np.float64)
    np.testing.assert_allclose(got, want, rtol=1.01 * ROUNDING[dtype], atol=1e-3)


@in_pairs(export=EXPORTS, dtype=HALF, name=OPTIONS, factor=[1.0, 20.0, 60.0])
def test_the_result_is_that_of_float32_rounded_once(
    export: dict[str, Any], dtype: str, name: str, factor: float
) -> None:
    """Also if raw scores exceed 65504, the largest float16: at 60 times unit normal they reach 200,000."""
    arrays = inputs(dtype, factor)
    want = ops.attention(*(x.astype("float64") for x in arrays), **OPTIONS[name]).numpy()
    exported = to_onnx(ops.attention, *[lucid.spec("N", 2, "L", 64, dtype=dtype)] * 3, kwargs=OPTIONS[name], **export)
    held(Session(exported, threads=1)(*arrays).numpy(), want, dtype)
    held(ops.attention(*arrays, **OPTIONS[name]).numpy(), want, dtype)


@pytest.mark.parametrize("target", ["any", "cpu"])
@pytest.mark.parametrize("dtype", HALF)
def test_caches_and_weights_keep_the_type(dtype: str, target: str) -> None:
    arrays = inputs(dtype, 20, 4)
    past = inputs(dtype, 20, 7)[1:]

    def model(query: Any, key: Any, value: Any, past_key: Any, past_value: Any) -> Any:
        return ops.attention(query, key, value, None, None, past_key, past_value, is_causal=True, need_weights=True)

    exported = to_onnx(model, *arrays, *past, target=target)
    for got, eager in zip(Session(exported, threads=1)(*arrays, *past), model(*arrays, *past), strict=True):
        held(got.numpy(), eager.numpy(), dtype)


@pytest.mark.parametrize("attention", ["auto", "standard", "contrib"])
def test_grouped_and_packed_heads(attention: str) -> None:
    grouped = {} if attention == "contrib" else {"kv_heads": 2}
    shapes = [(2, 9, 128), *[(2, 9, 32 * (2 if grouped else 4))] * 2]
    rng = np.random.default_rng(0)
    sizes = zip(shapes, (60, 60, 1), strict=True)
    arrays = [lucid.tensor(factor * rng.standard_normal(shape)).astype("float16") for shape, factor in sizes]
    options: dict[str, Any] = {"heads": 4, **grouped, "is_causal": True}
    want = ops.attention(*(x.astype("float64") for x in arrays), **options).numpy()
    exported = to_onnx(ops.attention, *arrays, kwargs=options, attention=attention)
    held(Session(exported, threads=1)(*arrays).numpy(), want, "float16")


@pytest.mark.parametrize("dtype", HALF)
def test_explain_says_what_form_it_takes_and_why(dtype: str) -> None:
    specs = [lucid.spec("N", 2, "L", 64, dtype=dtype)] * 3
    for target, form in (("any", "ai.onnx Attention"), ("cpu", "query blocks"), (Target("any", opset=18), "expanded")):
        (decision,) = explain(ops.attention, *specs, kwargs={"is_causal": True}, target=target).attention
        assert decision.taken == "float32 between casts"
        assert decision.note.startswith("onnxruntime's CPU provider rounds scores to float16")
        assert [inner.taken for inner in decision.inside if inner.op == "attention"] == [form]
