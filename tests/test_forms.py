"""Forms are closed: a form never silently drops an attribute or input that it does not know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest

import lucid
from lucid import nn, ops
from lucid.core.graph.graph import Graph
from lucid.core.graph.scope import new_node
from lucid.core.graph.values import Input, Node
from lucid.core.sizes.dims import dim
from lucid.core.targets.runtimes import RUNTIMES
from lucid.export import Builder, ExportError, Target, explain, lowers
from lucid.export.form import Refused, form
from lucid.export.forms import FORMS
from lucid.export.lowering import Decision
from lucid.export.registry import forms_of
from lucid.export.target import TARGET_NAMES
from lucid.ops import Op, composite
from tests.cases import case
from tests.samples import SAMPLES, Sample

EXPORTED = [s for s in {s.op.name: s for s in reversed(SAMPLES)}.values() if s.exported]


def with_planted(op: Op[..., Any]) -> Op[..., Any]:
    """The same op with one more attribute, 0 by default, that its forms do not know yet."""
    planted: Op[..., Any] = Op.__new__(Op)  # a copy of an op is the op itself
    vars(planted).update(vars(op))
    planted.attributes, planted.defaults = (*op.attributes, "planted"), {**op.defaults, "planted": 0}

    def without(attributes: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in attributes.items() if name != "planted"}

    planted.infer = lambda types, attributes: op.infer(types, without(attributes))  # type: ignore[method-assign]
    planted.expand = lambda tensors, attributes: op.expand(tensors, without(attributes))  # type: ignore[method-assign]
    return planted


def node_of(s: Sample, planted: int) -> tuple[Node, list[Input]]:
    """A sample's node with the planted attribute, and the inputs of its graph."""
    inputs = [None if a is None else Input(f"input_{i}", a.type(s.dtypes[0])) for i, a in enumerate(s.inputs)]
    carriers = [Input(f"carrier_{i}", a.type(s.dtypes[0])) for i, a in enumerate(s.carriers)]
    absent = [] if s.op.variadic else [None] * (len(s.op.arguments) - len(inputs))
    node = new_node(with_planted(s.op), [*inputs, *absent], {**s.attributes, "planted": planted})
    return node, [*(i for i in inputs if i is not None), *carriers]


def decided(s: Sample, planted: int, target: Target) -> Decision | None:
    """The decision over such a node."""
    node, inputs = node_of(s, planted)
    graph = Graph(inputs, {f"output_{i}": result for i, result in enumerate(node.results)})
    own = [d for d in explain(graph, target=target).decisions if d.op == s.op.name]
    return own[-1] if own else None


@pytest.mark.parametrize("s", EXPORTED, ids=lambda s: s.op.name)
def test_an_attribute_that_no_form_has_heard_of_is_refused_or_left_to_the_body(s: Sample) -> None:
    for target in TARGET_NAMES:
        with case(target):
            _refused_or_left_to_the_body(s, target)


def _refused_or_left_to_the_body(s: Sample, target: str) -> None:
    chosen = Target.of(target, None, None)
    if s.op.body is None:
        with pytest.raises(ExportError, match=r"it does not take planted \(here 1\)"):
            decided(s, 1, chosen)
        return
    for closed in (f for f in forms_of(s.op, chosen) if f.takes is not None):
        with pytest.raises(Refused, match="it does not take "):
            closed.check(node_of(s, 1)[0], replace(chosen, opset=26))
    decision = decided(s, 1, chosen)
    assert decision is None or decision.taken.startswith("expanded")


@pytest.mark.parametrize("s", EXPORTED, ids=lambda s: s.op.name)
def test_an_attribute_at_its_default_changes_nothing(s: Sample) -> None:
    today = [d for d in explain(_graph(s)).decisions if d.op == s.op.name]
    decision = decided(s, 0, Target())
    assert (decision and decision.taken) == (today[-1].taken if today else None)


def _graph(s: Sample) -> Graph:
    def model(*tensors: lucid.Tensor) -> Any:
        rest = iter(tensors)
        return s.op(*(None if a is None else next(rest) for a in s.inputs), **s.attributes)

    return lucid.trace(model, *(a.type(s.dtypes[0]) for a in (*s.inputs, *s.carriers) if a is not None))


def test_an_optional_input_that_a_form_does_not_take_is_refused() -> None:
    def mask(x: lucid.Tensor) -> lucid.Tensor:
        return ops.attention(x, x, x, x[:, :1, :, :1] > 0)

    (decision,) = explain(mask, ("N", 2, 4, 4), target="cpu", opset=18).attention
    assert dict(decision.refused)["com.microsoft MultiHeadAttention"] == "it does not take mask"


def test_a_symbolic_size_is_never_the_default_of_an_attribute() -> None:
    padded = ops.pad(lucid.zeros(2, 3), before=(0, 0), after=(1, 0), value=2.0)
    assert padded.shape == (3, 3)
    closed = form(ops.OPS["tril"])(lambda build, node: build.op("Identity", *node.inputs))  # type: ignore[arg-type]
    node = new_node(ops.tril, [Input("x", lucid.spec(2, 2))], {"diagonal": dim("N")})
    with pytest.raises(Refused, match=r"it does not take diagonal \(here N\)"):
        closed.check(node, Target(opset=26))


def test_a_form_says_what_its_op_has() -> None:
    with pytest.raises(ValueError, match="a form of rms_norm takes shift, which the op does not have"):
        form(ops.rms_norm, takes="eps shift")


def test_the_forms_of_an_op_stand_in_one_place_best_first() -> None:
    assert [f.name for f in FORMS["attention"]][:12] == [
        "float32 between casts",
        "query blocks, in products",
        "query blocks, keys handed on",
        "query blocks",
        "MultiHeadAttention, in tiles",
        "MultiHeadAttention, in tiles if long",
        "three products",
        "window blocks",
        "products, on all threads",
        "products if long, on all threads",
        "products, with sinks",
        "products, for their tanh",
    ]
    assert all(f.op == name for name, forms in FORMS.items() for f in forms)


def test_a_form_of_ones_own_op_says_which_runtimes_it_is_for(monkeypatch: pytest.MonkeyPatch) -> None:
    @composite
    def doubled(x: lucid.Tensor) -> lucid.Tensor:
        return x * 2

    monkeypatch.setitem(FORMS, doubled.name, ())

    @lowers(doubled, name="own", domain="com.microsoft")
    def own(build: Builder, node: Node) -> str:
        return build.op("Add", *node.inputs, *node.inputs)

    @lowers(doubled, name="in blocks", strategy="blocks")
    def in_blocks(build: Builder, node: Node) -> str:
        return build.op("Sum", *node.inputs, *node.inputs)

    for target, runtime in RUNTIMES.items():
        tried = [f.name for f in forms_of(doubled, Target(target))]
        assert tried == ["own"] + ["in blocks"] * ("blocks" in runtime.strategies)
    decisions = explain(lambda x: doubled(x), ("N",), target="openvino").decisions
    (decision,) = (d for d in decisions if d.op == doubled.name)
    assert (decision.taken, decision.refused) == ("expanded", (("own", 'target "openvino" takes only standard ops'),))


def test_what_is_an_option_and_what_is_an_op_is_said_where_it_is_defined() -> None:
    def sharpened(x: lucid.Tensor, by: float = 2.0) -> lucid.Tensor:
        return x * by

    with pytest.raises(
        TypeError, match=r"op sharpened: by=2\.0 is the default .*; write a star .*: \.\.\., \*, by=2\.0"
    ):
        composite(sharpened)
    with pytest.raises(TypeError, match=r"lowers: expected an op, got function; make .* with @lucid\.ops\.composite"):
        lowers(cast(Any, sharpened))


def test_an_operator_of_an_unknown_domain_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    @composite
    def doubled(x: lucid.Tensor) -> lucid.Tensor:
        return x * 2

    monkeypatch.setitem(FORMS, doubled.name, ())

    @lowers(doubled)
    def own(build: Builder, node: Node) -> str:
        return build.op("Doubled", *node.inputs, domain="my.domain")

    with pytest.raises(ExportError, match=r"the domain 'my.domain', expected ONNX's own or one of com.microsoft, ai"):
        lucid.export.to_onnx(lambda x: doubled(x), ("N",))


@pytest.mark.parametrize("times", [None, 0, 2])
def test_a_form_that_does_not_name_each_result_is_an_error(times: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FORMS, "silu", ())

    @lowers(ops.silu, name="nameless")
    def nameless(build: Builder, node: Node) -> Any:
        name = build.op("Sigmoid", *node.inputs)
        return None if times is None else [name] * times

    message = f"the form nameless of silu returns {times or 0} names, expected 1: of each result the name that build.op"
    with pytest.raises(ExportError, match=message):
        lucid.export.to_onnx(lambda x: ops.silu(x), ("N",))


def test_a_form_gives_numbers_of_numpy_and_an_op_without_a_form_is_told_of_lowers() -> None:
    own = Op(lambda x: x, name="own_reverse", kernel=lambda x: 1 - x, rule=lambda x: x)
    with pytest.raises(ExportError, match=r"own_reverse has no ONNX form \(none is registered: write one with @lu"):
        lucid.export.to_onnx(lambda x: own(x), ("N",))

    one: Any = 1.0

    @lowers(own, name="Sub")
    def sub(build: Builder, node: Node) -> str:
        return build.op("Sub", one, *node.inputs)

    try:
        with pytest.raises(TypeError, match=r"takes 1\.0, which has no element type: write np\.float32\(1\.0\)"):
            lucid.export.to_onnx(lambda x: own(x), ("N",))
        one = np.float32(1)
        assert lucid.testing.assert_parity(lambda x: own(x), ("N",)).passed
    finally:
        del FORMS[own.name]


def test_dropout_has_a_form_that_says_why_there_is_none() -> None:
    with pytest.raises(ExportError, match=r"dropout has no ONNX form \(dropout: dropout is for training: export in"):
        lucid.export.to_onnx(lambda x: ops.dropout(x, p=0.5), ("N",))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: ops.cumsum(x), "cumsum: axis=... is missing and has no default"),
        (lambda x: ops.cumsum(x, axes=1), "cumsum: unknown argument axes; it takes axis"),
        (lambda x: ops.elu(x, alpha=nn.Parameter(0.5)), r"elu: alpha is a tensor, float32\[\], expected a number, whi"),
        (lambda x: ops.elu(x, alpha=lucid.ones(1)), r"elu: alpha is a tensor, float32\[1\], expected a number"),
        (lambda x: lucid.trace(lambda y: ops.elu(x, alpha=y), ()), "elu: alpha is a tensor, .* next to the op"),
    ],
)
def test_attributes_that_are_missing_unknown_or_tensors_that_may_change_are_refused(call: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        call(lucid.ones(2, 3))


def test_a_known_number_in_a_tensor_is_an_attribute_as_it_is_in_each_call() -> None:
    x, alpha = lucid.randn(2, 3), lucid.tensor(0.5)
    for number in (0.5, 0.25):
        alpha.numpy()[...] = number  # the call before is not remembered by the tensor
        np.testing.assert_array_equal(ops.elu(x, alpha=alpha).numpy(), ops.elu(x, alpha=number).numpy())
    assert lucid.testing.assert_parity(lambda x: lucid.tril(ops.elu(x, alpha=alpha), lucid.tensor(1)), ("N", 3)).passed
    np.testing.assert_array_equal(lucid.tril(x, lucid.tensor(1)).numpy(), np.tril(x.numpy(), 1))
    assert "alpha=0.25" in str(lucid.trace(lambda x: ops.elu(x, alpha=alpha), ("N",)))

    class Owner(nn.Module):
        def __init__(self) -> None:
            self.alpha = lucid.tensor(0.5)

        def forward(self, x: lucid.Tensor) -> lucid.Tensor:
            return ops.elu(x, alpha=self.alpha)

    owner = Owner()
    assert owner(x).shape == (2, 3)
    with pytest.raises(TypeError, match="elu: alpha is a tensor"):  # of the state, which may be loaded again
        lucid.export.to_onnx(owner, ("N", 3))
    with pytest.raises(TypeError, match="elu: alpha is a tensor"):
        lucid.grad(lambda x: owner(x).sum(), wrt=nn.ModuleList([owner, nn.Linear(1, 1)]))(x)


def test_a_list_is_an_attribute_as_a_tuple_is() -> None:
    x = lucid.randn(2, 3, 4)
    assert ops.mean(x, axis=[0, 1]).shape == lucid.trace(lambda x: ops.mean(x, axis=[0, 1]), x).outputs[0].type.shape
    assert ops.variance(x, -1).shape == ops.variance(x, [-1]).shape == (2, 3, 1)


@pytest.mark.parametrize("target", ["any", "cpu", "portable"])
def test_a_form_for_another_element_type_is_not_mentioned(target: str) -> None:
    layer = lucid.nn.MultiHeadAttention(16, 2)
    report = str(explain(layer, lucid.spec("N", "L", 16), target=target))
    assert "half precision" not in report and "between casts" not in report
