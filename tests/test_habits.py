"""Habits of torch that ported code has: names of arguments, devices, gradients; what is absent says what to write."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lucid
from lucid import Tensor, nn, ops
from lucid.nn import functional as F
from lucid.ops.tensor.tensor import TracedValueError

X = lucid.tensor(np.arange(24, dtype=np.float32).reshape(2, 3, 4))
MASK = X > 5


def test_both_names_of_an_argument_are_taken() -> None:
    assert (X.sum(dim=1, keepdim=True).numpy() == X.sum(axis=1, keepdims=True).numpy()).all()
    assert ops.softmax(X, dim=1).shape == ops.softmax(X, axis=1).shape  # type: ignore[call-arg]  # at run time
    assert F.softmax(input=X, dim=-1).shape == X.shape
    assert nn.Softmax(dim=1).axis == 1


WRONG: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "two names": (lambda: X.sum(axis=1, dim=1), TypeError, "^sum: axis is given twice, as axis and as dim$"),
    "unknown": (lambda: X.sum(dims=1, wide=True), TypeError, "unexpected keyword argument 'wide'"),
    "max of two axes": (
        lambda: X.max((0, 1)),
        TypeError,
        r"^max: dim is \(0, 1\), expected one.*; amax\(dim=...\)",
    ),
    "an optimizer of parameters": (
        lambda: lucid.optim.AdamW(nn.Linear(2, 2).parameters(), lr=1e-3),  # type: ignore[call-arg, arg-type]
        TypeError,
        r"^AdamW: got parameters or lr=, expected the learning rate first .*: write AdamW\(1e-3\); wrt= of",
    ),
    "a step of an optimizer": (
        lambda: lucid.optim.SGD(0.1).step(),  # type: ignore[attr-defined]
        AttributeError,
        r"^'SGD' object has no attribute 'step': it is a pure function: parameters, state = optimizer\.update\(",
    ),
    "two axes of max": (lambda: X.min(1, axis=0), TypeError, r"^min: dim is 1 and axis is \(0,\), expected one axis"),
    "keepdim of all": (
        lambda: X.max(keepdim=True),
        TypeError,
        r"^max: keepdim without dim; write max\(keepdims",
    ),
    "a filling": (
        lambda: X.long().masked_fill(MASK, np.inf),
        OverflowError,
        "^masked_fill: inf does not fit int64",
    ),
    "device": (lambda: X.to("cuda"), ValueError, "^to: device is 'cuda', but tensors have no device: leave it out"),
    "device of new": (lambda: lucid.zeros(2, device="cuda:0"), ValueError, "^zeros: device is 'cuda:0', but"),
    "device of a module": (lambda: nn.Linear(2, 2, device="cuda"), ValueError, "^Linear: device is 'cuda', but"),
    "gradient": (lambda: lucid.ones(2, requires_grad=True), ValueError, "^ones: requires_grad is true, but there"),
    "in place": (lambda: X.__setitem__(0, 1), TypeError, "never changed in place; write x = x.at"),
    "clamp": (lambda: X.clamp(), ValueError, "^clamp: got neither min nor max"),
    "rounding of sizes": (
        lambda: lucid.trace(lambda x: lucid.div(x.shape[0] - 9, 2, rounding_mode="trunc") * x, ("N",)),
        TypeError,
        '^div: rounding_mode="trunc" of the sizes N - 9 and 2, which may be negative; write x // y, which rounds down',
    ),
    "rounding": (lambda: X.div(2, rounding_mode="up"), ValueError, "^div: rounding_mode is 'up', expected None"),
    "topk": (lambda: X.topk(5), ValueError, r"^topk: k is 5, expected 0 to 4, the size of axis 2 of \[2, 3, 4\]"),
    "topk of flags": (lambda: MASK.topk(1), TypeError, r"^topk: got bool\[2, 3, 4\], expected numbers"),
    "gather": (lambda: X.gather(0, X), TypeError, r"^gather: indices are float32\[2, 3, 4\], expected integers"),
    "gather's axes": (lambda: X.gather(0, lucid.tensor([0])), ValueError, r"^gather: indices \[1\] have 1 axes, exp"),
    "scatter": (lambda: X.scatter(0, X.long(), X.half()), TypeError, "^scatter: got float32.* expected one element"),
    "index_add": (
        lambda: X.index_add(1, lucid.tensor([0]), X),
        ValueError,
        "^index_add: source has shape",
    ),
    "masked_scatter": (
        lambda: X.masked_scatter(MASK, X[0, 0]),
        ValueError,
        "the mask is true 18 times",
    ),
    "a mask": (lambda: X.masked_scatter(X, X), TypeError, "^masked_scatter: got a mask float32"),
    "repeats": (lambda: X.repeat_interleave(lucid.tensor([1, 2]), 2), ValueError, r"got repeats of shape \(2,\), exp"),
    "repeats, their sum": (
        lambda: X[0].repeat_interleave(lucid.tensor([1] * X.shape[1]), 0, output_size=99),
        ValueError,
        "^repeat_interleave: output_size is 99, but the repeats add up to",
    ),
    "a repeat, the sum": (
        lambda: X.repeat_interleave(2, 0, output_size=99),
        ValueError,
        "^repeat_interleave: output_size is 99, but the repeats add up to",
    ),
    "narrow": (lambda: X.narrow(1, 2, 2), IndexError, r"^narrow: 2 elements from 2 are outside axis 1"),
    "unflatten": (lambda: X.unflatten(1, (2, 2)), ValueError, "^unflatten: axis 1 of .* does not divide"),
    "movedim": (lambda: X.movedim((0, 1), 1), ValueError, "^movedim: got source"),
    "roll": (lambda: X.roll((1, 2), 1), ValueError, "^roll: got 2 shifts for 1 axes"),
    "t": (lambda: X.t(), ValueError, r"^t: got float32\[2, 3, 4\], expected at most 2 axes"),
    "meshgrid": (lambda: lucid.meshgrid(X), ValueError, r"^meshgrid: got shapes \[2, 3, 4\], expected vectors"),
    "outer": (lambda: lucid.outer(X, X), ValueError, "^outer: got float32.*expected two vectors"),
    "dot": (lambda: lucid.dot(X, X), ValueError, "^dot: got float32.* and float32.*, expected vectors"),
    "mv": (lambda: lucid.mv(X[0], X[0]), ValueError, "^mv: got float32.*, expected vectors"),
    "cross": (lambda: lucid.cross(X, X, 0), ValueError, "^cross: got float32.*, expected axes of 3 elements"),
    "diag": (lambda: lucid.diag(X), ValueError, "^diag: got float32.*, expected a vector or a matrix"),
    "tensordot": (lambda: lucid.tensordot(X, X), ValueError, r"^tensordot: axes \[1, 2\] of \[2, 3, 4\] and \[0, 1\]"),
    "linspace": (lambda: lucid.linspace(0, 1, -1), ValueError, "^linspace: steps is -1"),
    "finfo": (lambda: lucid.finfo("int64"), TypeError, "^finfo: got int64, expected a floating-point type"),
    "einsum, terms": (lambda: lucid.einsum("ij,jk->ik", X), ValueError, "has 2 terms for 1 tensors"),
    "einsum, axes": (lambda: lucid.einsum("ij->i", X), ValueError, r"'ij' in 'ij->i' does not fit the axes of \[2, 3"),
    "einsum, diagonal": (lambda: lucid.einsum("iij->j", X), ValueError, "axis i has sizes 2 and 3"),
    "einsum, sizes": (lambda: lucid.einsum("ijk,kji->i", X, X), ValueError, "axis k has sizes 4 and 2"),
    "interpolate": (lambda: F.interpolate(X, 5, mode="bilinear"), ValueError, "^interpolate: mode is 'bilinear' for"),
    "interpolate, both": (lambda: F.interpolate(X), ValueError, "expected one of size and scale_factor"),
    "interpolate, integers": (
        lambda: F.interpolate(X.long(), scale_factor=2, mode="linear"),
        TypeError,
        "mode 'linear' of int64.*expected floating-point numbers",
    ),
    "interpolate, part": (
        lambda: F.interpolate(X, 1.5),
        TypeError,
        "^interpolate: size: size 1.5 is float, expected a",
    ),
    "antialias": (lambda: F.interpolate(X, 5, antialias=True), ValueError, "=True is for modes bilinear and"),
    "pad": (lambda: F.pad(X, (1,)), ValueError, r"^pad: got 1 numbers for \[2, 3, 4\]"),
    "pad, mode": (lambda: F.pad(X, (1, 1), "mirror"), ValueError, "^pad: mode is 'mirror', expected"),
    "pad, reflect": (
        lambda: F.pad(X, (4, 0), "reflect"),
        ValueError,
        "mode 'reflect', expected at most 3",
    ),
    "pad, less": (lambda: F.pad(X, (-3, -2)), ValueError, r"^pad: \(-3, -2\) takes more elements than axis 2"),
    "one_hot": (lambda: F.one_hot(X), TypeError, "^one_hot: got float32.*expected integers"),
    "one_hot of nothing": (lambda: F.one_hot(lucid.zeros(0).long()), ValueError, "holds no index: give num_classes"),
    "topk, part": (lambda: X.topk(1.5), TypeError, r"^topk: k: size 1\.5 is float, expected a whole number"),
    "axis of an op": (
        lambda: lucid.ops.sum(X, axis=1),
        TypeError,
        "^sum: axis is 1, expected a tuple of axes, or None",
    ),
    "assign": (lambda: nn.Linear(2, 2).weight.assign(X), TypeError, "^parameter: got Tensor, expected a NumPy array"),
    "transposed": (
        lambda: F.conv_transpose1d(X, X),
        ValueError,
        "^conv_transpose: input .* 2 channels",
    ),
    "short": (lambda: F.conv_transpose1d(X, lucid.ones(3, 1, 1), padding=3), ValueError, "is too short: pads"),
    "conv": (lambda: F.conv2d(X[0], X), ValueError, r"^conv2d: got shape \[3, 4\], expected \(N, C\) and 2 more axes"),
    "statistics": (lambda: nn.BatchNorm2d(2, track_running_stats=False), ValueError, "track_running_stats is false"),
}


@pytest.mark.parametrize(("call", "error", "message"), WRONG.values(), ids=WRONG)
def test_wrong_arguments_are_named(call: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize(
    ("read", "message"),
    [
        (lambda: X.cuda, "'Tensor' object has no attribute 'cuda': tensors have no device; leave it out"),
        (lambda: X.backward, "no attribute 'backward': there is no tape; lucid.value_and_grad"),
        (lambda: X.add_, r"no attribute 'add_': tensors are never changed in place; write x = x.add\(...\)"),
        (
            lambda: X.max(axis=1).values,
            r"no attribute 'values': max\(axis=...\) gives the values alone",
        ),
        (lambda: X.sume, "no attribute 'sume'; did you mean sum?"),
        (lambda: X.fill_, r"changed in place; write x = lucid.full_like\(x, value\)$"),
        (lambda: X.index_copy_, r"changed in place; write x.scatter\(dim, indices, values\)"),
        (lambda: X.foo_, "changed in place; write what computes the new value$"),
        (lambda: X.int8, "no attribute 'int8'; did you mean int[?]$"),
        (lambda: X.nanmean, r"no attribute 'nanmean': write lucid.where"),
        (lambda: lucid.row_stack([X]), r"no attribute 'row_stack': write lucid.vstack\(tensors\)"),
        (lambda: lucid.rot90(X), r"no attribute 'rot90': write x.transpose\(0, 1\).flip\(0\)"),
        (lambda: X.char, r"no attribute 'char': write x.to\(lucid.int8\)"),
        (lambda: lucid.jit.trace, "lucid.jit has no attribute 'trace': write lucid.compile"),
        (lambda: lucid.cuda.synchronize, "lucid.cuda has no attribute 'synchronize': tensors have no device"),
        (lambda: F.ctc_loss, "module 'lucid.nn.functional' has no attribute 'ctc_loss': it sums over alignments"),
        (lambda: nn.Lineer, "no attribute 'Lineer'; did you mean Linear"),
    ],
)
def test_what_is_absent_says_what_to_write(read: Callable[[], Any], message: str) -> None:
    with pytest.raises(AttributeError, match=message):
        read()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (lambda x: x.nonzero(), r"^nonzero\(\) of a traced float32\[N, 4\]: how many elements it finds is known only"),
        (lambda x: x.repeat_interleave(x[0].long(), 1), "^repeat_interleave: repeats are a traced int64"),
        (lambda x: F.one_hot(x.long()), "^one_hot of a traced int64.*give num_classes"),
    ],
)
def test_sizes_that_depend_on_values_are_errors_while_tracing(line: Callable[[Tensor], Any], message: str) -> None:
    with pytest.raises(TracedValueError, match=message):
        lucid.trace(line, ("N", 4))


def test_sizes_that_depend_on_values_are_computed_eagerly() -> None:
    eye = lucid.eye(3)
    assert eye.nonzero().tolist() == [[0, 0], [1, 1], [2, 2]]
    assert [places.tolist() for places in eye.nonzero(as_tuple=True)] == [[0, 1, 2]] * 2
    assert F.one_hot(lucid.tensor([0, 2])).tolist() == [[1, 0, 0], [0, 0, 1]]


def test_gradients_and_memory_are_no_part_of_a_model() -> None:
    @lucid.no_grad()
    def model(x: Tensor) -> Tensor:
        with lucid.inference_mode():
            return x.detach().contiguous().clone().to(x.device, non_blocking=True)

    np.testing.assert_array_equal(model(X), X)
    assert [node.op.name for node in lucid.trace(model, ("N", 4)).nodes()] == []
    assert nn.Embedding(4, 2, padding_idx=0).weight.shape == (4, 2)


def test_buffers_are_attributes() -> None:
    module = nn.Module()
    module.register_buffer("scale", lucid.ones(3))
    module.register_buffer("_table", lucid.ones(3), persistent=False)
    module.register_buffer("places", lucid.arange(3), persistent=False)
    module.angles = nn.Buffer(lucid.ones(2), persistent=False)  # type: ignore[assignment]
    module.offset = nn.Buffer([1.0, 2.0])  # type: ignore[assignment]
    assert list(module.state_dict()) == ["scale", "offset"]
    assert [name for name, _ in module.named_buffers()] == ["scale", "places", "angles", "offset"]
    module.load_state_dict({"scale": lucid.zeros(3), "offset": lucid.zeros(2)})
    assert module.to("float16").angles.dtype == lucid.float16  # type: ignore[attr-defined]
    assert module.offset.tolist() == [0, 0]
    module.places = lucid.arange(4)  # a name stays persistent or not, whatever is assigned
    assert list(module.state_dict()) == ["scale", "offset"]
    assert module.places.shape == (4,)


def test_torchs_attention_gives_a_pair_sequence_first() -> None:
    ours, torchs = nn.MultiHeadAttention(8, 2), nn.MultiheadAttention(8, 2)
    torchs.load_state_dict(ours.state_dict())
    x = lucid.randn(5, 3, 8)
    output, weights = torchs(x, x, x)
    expected, expected_weights = ours(x.transpose(0, 1), need_weights=True)
    np.testing.assert_allclose(output.numpy(), expected.numpy().swapaxes(0, 1), rtol=1e-6)
    assert weights is not None
    np.testing.assert_allclose(weights.numpy(), expected_weights.numpy(), rtol=1e-6)
    assert torchs(x, x, x, need_weights=False)[1] is None


def test_triangles_take_the_diagonal_as_torchs_do() -> None:
    ones = np.ones((3, 3), np.float32)
    np.testing.assert_array_equal(lucid.triu(lucid.ones(3, 3), 1).numpy(), np.triu(ones, 1))
    np.testing.assert_array_equal(lucid.tril(lucid.ones(3, 3), diagonal=-1).numpy(), np.tril(ones, -1))


def test_empty_tensors_have_torchs_shapes() -> None:
    empty = lucid.zeros(0, 3)
    assert [part.shape for part in empty.split(2, 0)] == [(0, 3)]
    assert empty.roll(1, 0).shape == empty.flip(0).shape == empty.cumsum(0).shape == (0, 3)
    assert empty.topk(2).values.shape == (0, 2) and empty.unbind(0) == ()
    assert empty.masked_scatter(lucid.zeros(0, 3, dtype=bool), empty).shape == (0, 3)
    assert np.isnan(empty.var(dim=0).numpy()).all() and np.isnan(lucid.ones(1).std().numpy())
    assert lucid.linspace(0, 1, 0).shape == (0,) and lucid.einsum("ij,kj->ik", empty, empty).shape == (0, 0)


def test_equal_elements_keep_their_order() -> None:
    same = lucid.tensor([1, 0, 1, 0])
    assert same.sort(stable=True).indices.tolist() == [1, 3, 0, 2]
    assert same.argsort(descending=True).tolist() == [0, 2, 1, 3]
    assert lucid.tensor([-128, 127], dtype="int8").topk(1).values.tolist() == [127]
    assert lucid.tensor([-(2**63), 5]).argmin().item() == 0


def test_half_precision_is_rounded_once() -> None:
    many = lucid.ones(1, 4096, dtype="float16")
    total = lucid.zeros(1, 1, dtype="float16").scatter_add(1, lucid.zeros(1, 4096, dtype="int64"), many)
    assert total.item() == 4096 and total.dtype == lucid.float16


def test_a_tensor_with_a_message_for_every_name_is_copied_and_pickled() -> None:
    for other in (copy.deepcopy(X), pickle.loads(pickle.dumps(X))):
        assert (other.numpy() == X.numpy()).all()
    assert not hasattr(X, "cuda")


def test_calls_of_what_is_no_method_say_what_to_write() -> None:
    rounded: Any = X.round
    with pytest.raises(TypeError, match=r"^round: decimals= is not taken: write \(x \* 10\*\*decimals\).round\(\) /"):
        rounded(decimals=1)
    viewed: Any = X.view
    with pytest.raises(TypeError, match=r"^reshape: got the element type int32, .* x.to\(lucid.int32\) converts"):
        viewed(lucid.int32)


def test_the_type_of_a_tensor_is_torchs_name_and_a_conversion() -> None:
    names = {"float32": "Float", "float64": "Double", "float16": "Half", "bfloat16": "BFloat16", "int8": "Char"}
    names |= {"uint8": "Byte", "int32": "Int", "int64": "Long", "bool": "Bool"}
    for dtype, name in names.items():
        x = X.type(dtype)
        assert x.dtype == lucid.spec(dtype=dtype).dtype and x.type() == f"torch.{name}Tensor"
        assert X.type(x.type()).dtype == x.dtype
    assert X.type(lucid.LongTensor).dtype == lucid.int64
    with pytest.raises(ValueError, match=r"^type: device is 'cuda', but tensors have no device"):
        X.type("torch.cuda.FloatTensor")
    with pytest.raises(TypeError, match=r"^dtype 'torch.ShortTensor' is not one of float32, "):
        X.type("torch.ShortTensor")
    traced: Any = lucid.trace(lambda x: x.type(lucid.int64), ("N",))
    assert str(traced.outputs[0].type) == "int64[N]" and str(X.spec) == f"float32{list(X.shape)}"


def test_functions_of_one_line_are_methods_too() -> None:
    x, y = lucid.tensor([[1.5, -2.5], [3.0, 4.0]]), lucid.tensor([[2.0, 0.5], [-1.0, 1.5]])
    for method, function in (
        (x.trunc(), lucid.trunc(x)),
        (x.lerp(y, 0.25), lucid.lerp(x, y, 0.25)),
        (x.addcmul(y, y, value=2), lucid.addcmul(x, y, y, value=2)),
        (x.diagonal(offset=1), lucid.diagonal(x, 1)),
        (x.count_nonzero(dim=0), lucid.count_nonzero(x, 0)),
        (x.hypot(y), lucid.hypot(x, y)),
    ):
        np.testing.assert_array_equal(method.numpy(), function.numpy())


def test_what_is_to_be_written_instead_computes_the_same() -> None:
    x, y = lucid.tensor([[1.0, np.nan, -3.5], [3.0, 4.25, 0.0]]), lucid.tensor([[2.0, 2.0, 2.0], [-1.0, 1.5, 3.0]])
    a, b, dim = x.numpy(), y.numpy(), 1
    np.testing.assert_array_equal(lucid.where(x < 0, x.ceil(), x.floor()).numpy(), np.trunc(a))
    np.testing.assert_array_equal(lucid.where(x.isnan(), 0, x).sum(dim).numpy(), np.nansum(a, dim))
    np.testing.assert_array_equal((y % 2).numpy(), np.remainder(b, 2))
    np.testing.assert_allclose(lucid.hypot(x, y).numpy(), np.hypot(a, b), rtol=1e-6)
    np.testing.assert_array_equal(y.sort(dim)[0].select(dim, (y.shape[dim] - 1) // 2).numpy(), np.median(b, dim))
    mean = lucid.where(x.isnan(), 0, x).sum(dim) / (~x.isnan()).sum(dim)
    np.testing.assert_allclose(mean.numpy(), np.nanmean(a, dim), rtol=1e-6)
