"""Mixture of experts: a product for each expert, a Scan over them, or onnxruntime's own op. None computes all of them.

Measured with onnxruntime 1.31 (the page "Benchmarks"): a product for each expert, whose weight is packed when the model
is loaded, takes 0.5 to 0.9 of the time of the others, but is two nodes for each. So it is for few experts, and the
others are for many: their graphs are the same for any number. MoE shares the experts between threads, Scan does not.
"""

from __future__ import annotations

import numpy as np

from lucid.core.graph.types import DType, TensorType, float32, int64
from lucid.core.graph.values import Constant, Input, Node, Operation, Value, operand
from lucid.core.sizes.dims import Dim, Size, product
from lucid.core.targets.runtimes import EXPERTS, OUTER_VALUES, OWN
from lucid.export.builder import Builder, Operand, computed
from lucid.export.form import Taken, contrib_form, form, refuse, refuse_slower, refuse_wrong
from lucid.export.onnx_file.element_codes import onnx_code
from lucid.export.run_time_sizes import sizes_vector
from lucid.ops import arange, concat, experts, flip, softmax
from lucid.ops.reduction import sum_
from lucid.ops.tensor.tensor import Tensor

_FEW = 16
"""Up to so many experts each has products of its own."""
_ROWS = Dim({("rows of an expert",): 1})  # no size of a model has a name with spaces


@form(experts.grouped_mm, takes="", name="ai.onnx Split, MatMul, Concat", kernel="MatMul")
def split_products(build: Builder, node: Node) -> str:
    """The matrix of each group is a weight of its own, which onnxruntime packs when it loads the model."""
    x, weight, ends = (operand(node, index) for index in range(3))
    groups = weight.type.shape[0]
    if not isinstance(groups, int) or not groups:
        refuse("the number of groups is known only when the model runs, or there are none")
    stops = Tensor.from_value(ends).astype(int64)
    counts = stops - concat([np.zeros(1, np.int64), stops[:-1]])
    rows = build.ops("Split", x, counts, outputs=groups, axis=0)
    each = [build.op("MatMul", own, _matrix(build, weight, group)) for group, own in enumerate(rows)]
    return build.op("Concat", *each, axis=0)


def _refuse_few(build: Builder, op: Operation, count: Size) -> None:
    if isinstance(count, int) and count <= _FEW:
        refuse_slower(build.target, op, f"with {count} experts, a product for each is faster")


def _matrix(build: Builder, weight: Value, group: int) -> Tensor | str:
    if isinstance(weight, Constant):
        whole = Tensor.from_value(weight)
        return whole[group].named_after(whole, f"[{group}]")
    return build.op("Gather", weight, np.asarray(group, np.int64), axis=0)


@contrib_form(
    experts.mixture_of_experts, "MoE", "gate_up_bias down_bias k normalized activation", strategy="partial reads"
)
def moe(build: Builder, node: Node) -> Taken:
    """MoE prefers the last of equal experts, so their order is reversed. Gate and up projections alternate."""
    x, router_logits, gate_up, down = (Tensor.from_value(operand(node, index)) for index in range(4))
    biases = [None if value is None else Tensor.from_value(value) for value in node.inputs[4:]]
    clamped = node.attributes["activation"] == "clamped_swiglu"
    _refuse_few(build, node.op, down.shape[0])
    refuse_wrong(build.target, EXPERTS)
    if node.attributes["activation"] != "silu" and not clamped:
        refuse("it has no gate but silu and clamped_swiglu")
    if any(t is not None and t.dtype != float32 for t in (router_logits, gate_up, down, *biases)):
        refuse("it takes one element type")
    count, both, width = gate_up.shape

    def turned(x: Tensor | None, halves: bool) -> Tensor | None:
        """The experts in the other order; of gates and projections in two halves, these alternating."""
        if x is None:
            return None
        pairs = x.reshape(count, 2, both // 2, *x.shape[2:]).transpose(1, 2).reshape(x.shape) if halves else x
        return flip(pairs, 0).named_after(x, ".turned")

    result = build.op(
        "MoE",
        x if x.ndim in (2, 3) else x.reshape(-1, width),
        flip(router_logits.reshape(-1, count), -1),
        turned(gate_up, not clamped),
        turned(biases[0], not clamped),
        turned(down, False),
        turned(biases[1], False),
        domain=OWN,
        k=node.attributes["k"],
        activation_type="swiglu",
        swiglu_fusion=1,
        activation_alpha=experts.ALPHA if clamped else 1.0,
        activation_beta=1.0 if clamped else 0.0,
        swiglu_limit=experts.LIMIT if clamped else None,
        normalize_routing_weights=int(node.attributes["normalized"]),
    )
    kind = x.spec if x.ndim in (2, 3) else TensorType(x.dtype, (product(x.shape[:-1]), width))
    output = computed(build, result, kind).reshape(x.shape)
    # It gives 0 where a router's number is NaN or all of its weights are.
    output += sum_(softmax(router_logits), axis=(-1,), keepdims=True) * 0.0
    return Taken(output, "the graph is the same for any number of experts")


@form(experts.gated_experts, takes="gate_up_bias down_bias activation", name="ai.onnx Scan")
def scan(build: Builder, node: Node) -> Taken:
    """Scan reads the weights of each expert in place, without a copy."""
    x, indices, weights, gate_up, down = (Tensor.from_value(operand(node, index)) for index in range(5))
    _refuse_few(build, node.op, down.shape[0])
    refuse_wrong(build.target, OUTER_VALUES)
    kind = experts.compute_dtype(x, gate_up, down)
    count, k, width = down.shape[0], indices.shape[-1], x.shape[-1]
    tokens = x.reshape(-1, width)
    total = TensorType(kind, tokens.shape)
    names = build.names_of(
        [tokens.astype(kind), indices.reshape(-1, k).astype(int64), weights.reshape(-1, k).astype(kind)]
    )
    zeros = build.op("ConstantOfShape", sizes_vector(build, tokens.shape), value=np.zeros(1, kind.numpy))
    each = {"gate_up": gate_up, "down": down}
    for name, bias in zip(("gate_up_bias", "down_bias"), node.inputs[5:], strict=True):
        if bias is not None:
            each[name] = Tensor.from_value(bias)
    own = [
        Input("total", total),
        Input("expert", TensorType(int64, ())),
        *(Input(name, TensorType(kind, weight.shape[1:])) for name, weight in each.items()),
    ]

    def body() -> list[tuple[str, TensorType]]:
        return [(_added(build, names, own, kind, node.attributes["activation"]), total)]

    operands = build.names_of([zeros, arange(count), *(_as(build, weight, kind) for weight in each.values())])
    result = build.op("Scan", *operands, body=build.block(body, own), num_scan_inputs=1 + len(each))
    output = computed(build, result, total).reshape(x.shape).astype(x.dtype)
    return Taken(output, "the graph is the same for any number of experts")


def _as(build: Builder, weight: Tensor, kind: DType) -> Operand:
    """A weight in the type of the products. In half precision it is stored so, and cast when the model is loaded."""
    return weight if weight.dtype == kind else build.op("Cast", weight, to=onnx_code(kind))


def _added(build: Builder, names: list[str], own: list[Input], kind: DType, activation: str) -> str:
    """The total plus the weighted results of one expert."""
    tokens, indices, weights = names
    total, expert, gate_up, down = own[:4]
    biases = {value.name: value for value in own[4:]}
    places = build.op("NonZero", build.op("Equal", indices, expert))  # (2, rows): token and place among its experts
    factors = build.op("GatherND", weights, build.op("Transpose", places, perm=(1, 0)))
    rows = build.op("Gather", places, np.asarray(0), axis=0)
    both = build.op("Gemm", build.op("Gather", tokens, rows, axis=0), gate_up, biases.get("gate_up_bias"), transB=1)
    inner = experts.GATES[activation](computed(build, both, TensorType(kind, (_ROWS, gate_up.type.shape[0]))))
    product = build.op("Gemm", inner, down, biases.get("down_bias"), transB=1)
    last = np.asarray([-1])
    weighted = build.op("Mul", product, build.op("Unsqueeze", factors, last))
    return build.op("ScatterND", total, build.op("Unsqueeze", rows, last), weighted, reduction="add")


# Best first, of each op.
FORMS = (moe, scan, split_products)
