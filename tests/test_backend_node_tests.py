"""ONNX's own node tests, from the onnx wheel, against Lucid's eager ops: the numbers that define each op.

`onnx_node_calls.py` says what a node means in Lucid. Cases that Lucid cannot express are not silently left out: each
has a reason, and the reasons are counted.
"""

from __future__ import annotations

import pkgutil
import warnings
from collections import Counter
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
import onnx
from onnx.backend.test.case import node as cases

from lucid import Tensor
from lucid.core.graph.types import Array
from tests.cases import case
from tests.onnx_inputs import UNKNOWN_TYPE, Inexpressible
from tests.onnx_node_calls import CALLS, REASONS

MODULES = {
    info.name: info.name.replace("_", "").removeprefix("aionnx") for info in pkgutil.iter_modules(cases.__path__)
}
OTHER_NAMES = {"rangeop": "range", "if_": "if"}  # of modules
NO_OPERATORS = ("_image_decoder_data", "ai_onnx_ml")
HALF = {"float16": 2e-3, "bfloat16": 2e-2}


def modules_of(op: str) -> list[str]:
    """The wheel's modules with the tests of an operator."""
    return [module for module, name in MODULES.items() if OTHER_NAMES.get(module, name) == op.lower()]


@cache
def cases_of(op: str) -> list[Any]:
    """The tests of one node each: the others are the same tests with the op replaced by its definition.

    That may be one node of another op: CastLike's is a Cast, and is registered once CastLike's module was imported.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the wheel's own tests overflow on purpose
        for module in modules_of(op):
            import_module(f"onnx.backend.test.case.node.{module}")
    nodes = [(case, case.model.graph.node) for case in cases._NodeTestCases]
    own = [(case, node) for case, node in nodes if "_expanded" not in case.name]
    return [case for case, node in own if len(node) == 1 and node[0].op_type == op]


def assert_close(got: Array, want: Array, case: Any) -> None:
    assert got.shape == want.shape, case.name
    assert got.dtype == want.dtype, case.name
    half = HALF.get(str(want.dtype), 0.0)
    tolerance = {"rtol": max(case.rtol, half), "atol": max(case.atol, 1e-6, half)}
    np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), **tolerance, err_msg=case.name)


def array_of(value: Any) -> Array:
    """A value of a data set."""
    return onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else np.asarray(value)


def tensors(node: onnx.NodeProto, arrays: list[Any]) -> list[Tensor | None]:
    by_name = dict(zip([name for name in node.input if name], arrays, strict=True))
    try:
        return [Tensor.from_array(array_of(by_name[name])) if name else None for name in node.input]
    except (TypeError, KeyError) as error:
        raise Inexpressible(UNKNOWN_TYPE) from error


def run(case: Any) -> str:
    """Compare a case with Lucid; gives the reason if Lucid cannot express it."""
    node = case.model.graph.node[0]
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    for arrays, outputs in case.data_sets:
        try:
            results = CALLS[node.op_type](tensors(node, arrays), attributes, node)
        except Inexpressible as error:
            return str(error)
        shown = iter(outputs)
        for output, result in zip(node.output, results, strict=False):
            want = next(shown) if output else None
            if want is not None and result is not None:  # None: statistics of a norm, scores before a softmax
                assert_close(result.numpy(), array_of(want), case)
    return ""


@cache
def reasons_of(op: str) -> Counter[str]:
    """The cases of an operator by reason; those that agree have none."""
    return Counter(map(run, cases_of(op)))


def test_an_eager_op_gives_the_numbers_of_the_standard() -> None:
    """All cases are run or have a reason: an op, or many of its cases, must not drop out when the wheel changes."""
    for op in CALLS:
        with case(op):
            reasons = reasons_of(op)
            assert reasons[""], f"none of {len(cases_of(op))} cases can be expressed: {dict(reasons)}"
    named = {op.lower() for op in (*CALLS, *REASONS)}
    assert not [m for m, name in MODULES.items() if OTHER_NAMES.get(m, name) not in named and m not in NO_OPERATORS]
    assert not CALLS.keys() & REASONS.keys()
    total: Counter[str] = sum(map(reasons_of, CALLS), start=Counter())
    assert total[""] >= 850, total
    assert total[UNKNOWN_TYPE] <= 180  # codes of 2, 4 and 8 bits, other integers, strings
    assert sum(total.values()) - total[""] - total[UNKNOWN_TYPE] <= 95, total
    assert reasons_of("Attention") == {"": 93}
