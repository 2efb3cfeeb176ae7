"""Arguments that torch takes work as in torch: eagerly, as a graph, and exported for every target."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lucid
from lucid import Tensor, nn
from lucid.core.graph.types import Array
from lucid.export import to_onnx
from lucid.nn import functional as F
from lucid.runtime import Session
from lucid.testing import assert_parity

TARGETS = ("any", "cpu", "portable")

WHOLE = lucid.spec("N", 3, dtype="int64")
FLAGS = lucid.spec("N", 3, dtype="bool")
CODES = lucid.spec("N", 3, dtype="uint8")

OF_OTHER_KINDS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], str]] = {
    "exp of integers": (lambda x: x.exp(), (WHOLE,), "float32"),
    "sqrt of booleans": (lambda x: x.sqrt(), (FLAGS,), "float32"),
    "sigmoid of integers": (lambda x: lucid.sigmoid(x), (WHOLE,), "float32"),
    "floor of integers": (lambda x: x.floor() + 1, (WHOLE,), "int64"),
    "isnan of integers": (lambda x: x.isnan(), (WHOLE,), "bool"),
    "not of integers": (lambda x: ~x, (WHOLE,), "int64"),
    "not of bytes": (lambda x: ~x, (CODES,), "uint8"),
    "and of integers": (lambda x, y: x & y, (WHOLE, WHOLE), "int64"),
    "or of bytes": (lambda x, y: x | y, (CODES, CODES), "uint8"),
    "xor of integers and booleans": (lambda x, y: x ^ y, (WHOLE, FLAGS), "int64"),
    "and with a number": (lambda x: x & 1, (WHOLE,), "int64"),
    "and of booleans": (lambda x, y: x & y & True, (FLAGS, FLAGS), "bool"),
    "logical and of integers": (lambda x, y: lucid.logical_and(x, y), (WHOLE, FLAGS), "bool"),
    "any of integers": (lambda x: x.any(-1), (WHOLE,), "bool"),
    "all of bytes": (lambda x: x.all(-1), (CODES,), "uint8"),
    "sum of booleans": (lambda x, y: x + y, (FLAGS, FLAGS), "bool"),
    "product of booleans": (lambda x, y: x * y, (FLAGS, FLAGS), "bool"),
    "maximum of booleans": (lambda x, y: lucid.maximum(x, y), (FLAGS, FLAGS), "bool"),
    "amax of booleans": (lambda x: x.amax(-1), (FLAGS,), "bool"),
    "less of booleans": (lambda x, y: x < y, (FLAGS, FLAGS), "bool"),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", OF_OTHER_KINDS)
def test_integers_and_booleans_where_torch_takes_them(name: str, target: str) -> None:
    """tests/test_torch_lines.py compares the numbers with torch's; here the exported models give the same."""
    function, specs, dtype = OF_OTHER_KINDS[name]
    graph = lucid.trace(function, *specs)
    assert str(graph.outputs[0].type.dtype) == dtype
    assert_parity(function, *specs, target=target)


def test_bits_at_the_ends_of_their_types() -> None:
    for dtype in ("int8", "uint8", "int32", "int64"):
        ends = np.iinfo(dtype)
        x, y = (np.array(v, dtype) for v in ([ends.min, ends.max, 0, 5], [ends.max, ends.min, 7, ends.min]))
        for call in (lambda a, b: a & b, lambda a, b: a | b, lambda a, b: a ^ b):
            graph = lucid.trace(call, lucid.spec(4, dtype=dtype), lucid.spec(4, dtype=dtype))
            for opset in (17, 23):  # without and with ONNX's own operators
                session = lucid.runtime.Session(lucid.export.to_onnx(graph, opset=opset), threads=1)
                (output,) = session.run(dict(zip(session.inputs, (x, y), strict=True))).values()
                np.testing.assert_array_equal(output, call(x, y))


@pytest.mark.parametrize("function", [F.gelu, F.silu, F.softplus, F.log_softmax, F.softmax, F.logsigmoid, Tensor.norm])
def test_functions_that_torch_has_for_floats_alone_say_so(function: Callable[[Tensor], Tensor]) -> None:
    for x in (lucid.tensor([1, 2]), lucid.tensor([True, False])):
        with pytest.raises(TypeError, match=r"convert it with \.astype\(\.\.\.\)|expected a floating-point tensor"):
            function(x)


# Attention with any leading axes ---------------------------------------------------------------------------------


def dot_product_attention(
    query: Array, key: Array, value: Array, mask: Array | None = None, is_causal: bool = False, enable_gqa: bool = False
) -> Array:
    """The definition in float64, with NumPy's broadcasting."""
    query, key, value = (np.asarray(x, np.float64) for x in (query, key, value))
    if enable_gqa:
        key, value = (np.repeat(x, query.shape[-3] // x.shape[-3], -3) for x in (key, value))
    scores = query @ np.swapaxes(key, -1, -2) / np.sqrt(query.shape[-1])
    seen = np.ones(scores.shape, bool)
    if mask is not None and mask.dtype == bool:
        seen = seen & mask
    elif mask is not None:
        scores = scores + mask
    if is_causal:
        seen &= np.tril(np.ones(scores.shape[-2:], bool))
    weights = np.where(seen, np.exp(scores - scores.max(-1, keepdims=True)), 0)
    return weights / np.maximum(weights.sum(-1, keepdims=True), 1e-300) @ value


# Shapes of query, key, value and mask, and options. N and L stay open in exports.
ATTENTION: dict[str, tuple[tuple[Any, ...], ...]] = {
    "five axes": (("N", 2, 2, "L", 4), ("N", 2, 2, "S", 4), ("N", 2, 2, "S", 4)),
    "six axes and a mask for all": ((1, "N", 3, 2, "L", 4), (1, "N", 3, 2, "S", 4), (1, "N", 3, 2, "S", 4), ("L", "S")),
    "a mask of its own for each": (
        ("N", 3, 2, "L", 4),
        ("N", 3, 2, "S", 4),
        ("N", 3, 2, "S", 4),
        ("N", 3, 1, "L", "S"),
    ),
    "a mask of five axes": ((2, "N", 2, "L", 4), (2, "N", 2, "S", 4), (2, "N", 2, "S", 4), (2, 1, 1, "L", "S")),
    "a batch of one": (("N", 2, "L", 4), (1, 2, "S", 4), (1, 2, "S", 4), ("N", 1, "L", "S")),
    "queries of one": ((1, 2, "L", 4), ("N", 2, "S", 4), ("N", 2, "S", 4)),
    "keys of one head": (("N", 2, "L", 4), ("N", 1, "S", 4), ("N", 1, "S", 4)),
    "queries of one head": (("N", 1, "L", 4), ("N", 3, "S", 4), ("N", 3, "S", 4)),
    "values alone of one head": (("N", 2, "L", 4), ("N", 2, "S", 4), ("N", 1, "S", 4)),
    "fewer axes of keys": (("N", 2, "L", 4), (2, "S", 4), ("S", 4)),
    "three and four axes": ((2, "L", 4), ("N", 2, "S", 4), ("N", 2, "S", 4)),
}
GROUPED: dict[str, tuple[tuple[Any, ...], ...]] = {
    "five axes": (("N", 2, 4, "L", 4), ("N", 2, 2, "S", 4), ("N", 2, 2, "S", 4)),
    "three axes": ((4, "L", 4), (2, "S", 4), (2, "S", 4)),
    "a batch of one": (("N", 4, "L", 4), (1, 2, "S", 4), (1, 2, "S", 4)),
    "other heads of values": (("N", 4, "L", 4), ("N", 2, "S", 4), ("N", 4, "S", 4)),
}


def arrays_for(shapes: tuple[tuple[Any, ...], ...], flags: bool) -> list[Array]:
    draws = np.random.default_rng(4)
    sizes = {"N": 2, "L": 3, "S": 5}
    arrays = [draws.standard_normal([sizes.get(s, s) for s in shape]).astype(np.float32) for shape in shapes]
    return [*arrays[:3], *(array > -0.5 if flags else array for array in arrays[3:])]


@pytest.mark.parametrize("options", [{}, {"is_causal": True}], ids=["", "causal"])
@pytest.mark.parametrize(("name", "grouped"), [*((n, False) for n in ATTENTION), *((n, True) for n in GROUPED)])
def test_attention_over_leading_axes_that_broadcast(name: str, grouped: bool, options: dict[str, bool]) -> None:
    shapes = (GROUPED if grouped else ATTENTION)[name]
    options = options | {"enable_gqa": grouped}
    for flags in (True, False):
        arrays = arrays_for(shapes, flags)
        expected = dot_product_attention(*arrays, **options)

        def model(*tensors: Tensor) -> Tensor:
            return F.scaled_dot_product_attention(*tensors, **options)

        eager = model(*map(lucid.tensor, arrays)).numpy()
        assert eager.shape == expected.shape
        np.testing.assert_allclose(eager, expected, atol=2e-6)
        specs = [lucid.spec(*shape, dtype=str(a.dtype)) for shape, a in zip(shapes, arrays, strict=True)]
        graph = lucid.trace(model, *specs)
        for target in TARGETS:
            session = lucid.runtime.Session(lucid.export.to_onnx(graph, target=target), threads=1)
            (output,) = session.run(dict(zip(session.inputs, arrays, strict=True))).values()
            np.testing.assert_allclose(output, expected, atol=2e-6, err_msg=target)


@pytest.mark.parametrize(
    ("message", "shapes", "options"),
    [
        ("grouped heads need enable_gqa=True", [(2, 4, 3, 8), (2, 2, 3, 8), (2, 2, 3, 8)], {}),
        ("do not broadcast: 2 and 3", [(2, 4, 3, 8), (3, 4, 3, 8), (3, 4, 3, 8)], {}),
        ("must be a multiple of the heads of keys", [(2, 4, 3, 8), (2, 3, 3, 8), (2, 2, 3, 8)], {"enable_gqa": True}),
        (r"expected \(..., length, width\) each", [(8,), (3, 8), (3, 8)], {}),
        ("expected at most 5 axes", [(2, 1, 4, 3, 8)] * 3, {"attn_mask": (1, 1, 1, 1, 3, 3)}),
    ],
)
def test_attention_names_what_does_not_fit(
    message: str, shapes: list[tuple[int, ...]], options: dict[str, Any]
) -> None:
    if "attn_mask" in options:
        options = options | {"attn_mask": lucid.zeros(options["attn_mask"])}
    with pytest.raises(ValueError, match=message):
        F.scaled_dot_product_attention(*(lucid.zeros(shape) for shape in shapes), **options)


def test_causality_and_a_mask_both_apply() -> None:
    q = lucid.randn(2, 2, 4, 8)
    mask = lucid.tensor(np.random.default_rng(1).random((4, 4)) > 0.4)
    both = F.scaled_dot_product_attention(q, q, q, mask & lucid.tril(lucid.ones(4, 4, dtype=bool)))
    np.testing.assert_array_equal(F.scaled_dot_product_attention(q, q, q, mask, is_causal=True), both)
    np.testing.assert_array_equal(nn.ScaledDotProductAttention(mask, is_causal=True)(q, q, q), both)


def test_is_causal_beside_a_mask_is_a_hint_for_modules() -> None:
    """As in torch, where the mask says everything: tests/goldens have its numbers for masks."""
    x, mask = lucid.randn(2, 4, 8), lucid.tensor(np.random.default_rng(1).random((4, 4)) > 0.6)
    mha = nn.MultiheadAttention(8, 2, batch_first=True).eval()
    np.testing.assert_array_equal(mha(x, x, x, attn_mask=mask, is_causal=True)[0], mha(x, x, x, attn_mask=mask)[0])
    layer = nn.TransformerDecoderLayer(8, 2, 16).eval()
    np.testing.assert_array_equal(layer(x, x, mask, tgt_is_causal=True), layer(x, x, mask))


# Shapes -----------------------------------------------------------------------------------------------------------


def one_by_one(module: nn.Module) -> Callable[[Tensor], Tensor]:
    return lambda x: module(x)


SHAPES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], Callable[..., Any] | None]] = {
    "squeeze leaves an axis that is not 1": (
        lambda x: x.squeeze(1).squeeze((0, 2)),
        ((1, 3, 1),),
        lambda v: v[0, :, 0],
    ),
    "diagonal of a matrix": (lambda x: lucid.einsum("ii->i", x), ((3, 3),), lambda v: np.einsum("ii->i", v)),
    "trace of a matrix": (lambda x: lucid.einsum("ii", x), ((3, 3),), lambda v: np.einsum("ii", v)),
    "diagonals": (lambda x: lucid.einsum("bii->bi", x), (("N", "L", "L"),), lambda v: np.einsum("bii->bi", v)),
    "diagonals of three": (lambda x: lucid.einsum("iji->ji", x), ((3, "L", 3),), lambda v: np.einsum("iji->ji", v)),
    "diagonals of one name": (lambda x: lucid.einsum("iii->i", x), ((3, 3, 3),), lambda v: np.einsum("iii->i", v)),
    "diagonals in a product": (
        lambda x, y: lucid.einsum("bii,ij->bj", x, y),
        (("N", 3, 3), (3, "L")),
        lambda v, w: np.einsum("bii,ij->bj", v, w),
    ),
    "rms_norm of torch's list": (lambda x: F.rms_norm(x, [4]), (("N", 3, 4),), None),
    "rms_norm of two axes": (lambda x, w: F.rms_norm(x, (3, 4), w, 1e-5), (("N", 3, 4), (3, 4)), None),
    "one image": (one_by_one(nn.Conv2d(3, 4, 2)), ((3, "H", "W"),), None),
    "one sound": (one_by_one(nn.Conv1d(3, 4, 2, stride=2)), ((3, "L"),), None),
    "one transposed": (one_by_one(nn.ConvTranspose1d(3, 4, 2)), ((3, "L"),), None),
    "one pool": (one_by_one(nn.MaxPool2d(2)), ((3, 4, 6),), None),
    "one mean": (one_by_one(nn.AvgPool1d(2)), ((3, "L"),), None),
    "one adaptive mean": (one_by_one(nn.AdaptiveAvgPool2d(2)), ((3, 4, 6),), None),
    "windows of one image": (lambda x: F.unfold(x, 2), ((3, 4, 5),), None),
}


@pytest.mark.parametrize("name", SHAPES)
def test_shapes_that_torch_takes(name: str) -> None:
    function, shapes, reference = SHAPES[name]
    for target in TARGETS:
        assert_parity(function, *(lucid.spec(*shape) for shape in shapes), target=target)
    if reference is not None:
        draws = np.random.default_rng(3)
        arrays = [
            draws.standard_normal([s if isinstance(s, int) else 5 for s in shape]).astype("f4") for shape in shapes
        ]
        np.testing.assert_allclose(function(*map(lucid.tensor, arrays)), reference(*arrays), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("module", "shape"),
    [
        (nn.Conv1d(3, 4, 2), (3, 6)),
        (nn.Conv2d(3, 4, 2, padding=1), (3, 5, 6)),
        (nn.Conv3d(3, 4, 2), (3, 4, 5, 6)),
        (nn.ConvTranspose2d(3, 4, 2), (3, 5, 6)),
        (nn.MaxPool1d(2), (3, 6)),
        (nn.AvgPool2d(2), (3, 5, 6)),
        (nn.AdaptiveAvgPool1d(2), (3, 6)),
    ],
)
def test_one_without_its_batch_is_a_batch_of_one(module: nn.Module, shape: tuple[int, ...]) -> None:
    x = lucid.randn(*shape)
    np.testing.assert_array_equal(module(x), module(x.unsqueeze(0))[0])
    with pytest.raises(ValueError, match=r"expected \(N, [3C], .*\) or \([3C], "):
        module(x[0])


def test_rms_norm_has_torch_s_arguments() -> None:
    x, weight = lucid.randn(2, 3, 4), lucid.randn(4)
    expected = x / (x * x).mean(-1, keepdim=True).add(0.1).sqrt()
    np.testing.assert_allclose(F.rms_norm(x, [4], eps=0.1), expected, rtol=1e-6)
    np.testing.assert_allclose(
        F.rms_norm(input=x, normalized_shape=(4,), weight=weight, eps=0.1), expected * weight, rtol=1e-6
    )
    np.testing.assert_array_equal(F.rms_norm(x, weight, 0.1), F.rms_norm(x, [4], weight, 0.1))
    with pytest.raises(ValueError, match=r"input \[2, 3, 4\] does not end with the sizes \[3\]"):
        F.rms_norm(x, [3])
    with pytest.raises(TypeError, match=r"normalized_shape is 4, expected a list of sizes: write \[4\]"):
        F.rms_norm(x, 4)
    with pytest.raises(TypeError, match=r"normalized_shape is 4, expected a list of sizes: write \[4\]"):
        F.layer_norm(x, 4)


@pytest.mark.parametrize(
    ("message", "call"),
    [
        (
            r"\[2, 7, 3\] has 42 elements, \[2, 7, 5, -1\] does not hold as many: 42 is no multiple of 70",
            lambda x: x.view(2, 7, 5, -1),
        ),
        (r"\[-1, -1\] does not hold as many: only one size may be -1", lambda x: x.view(-1, -1)),
        (r"\[5, 8\] does not hold as many$", lambda x: x.reshape(5, 8)),
        ("axis i has sizes 7 and 3", lambda x: lucid.einsum("bii->bi", x)),
    ],
)
def test_messages_name_what_was_written(message: str, call: Callable[[Tensor], Tensor]) -> None:
    with pytest.raises(ValueError, match=message):
        call(lucid.zeros(2, 7, 3))


def test_squeeze_of_an_open_size_says_what_to_write() -> None:
    with pytest.raises(ValueError, match=r"axis 0 of \[N, 3\] has size N, .*write x.select\(axis, 0\)"):
        lucid.trace(lambda x: x.squeeze(0), ("N", 3))


@pytest.mark.parametrize(
    ("message", "call"),
    [
        ("'clip_grad_norm_': the optimizer clips: lucid.optim.AdamW", lambda: nn.utils.clip_grad_norm_),
        (r"'bincount': write one-hot vectors, summed: F\.one_hot", lambda: lucid.bincount),
        (r"'utils': nn\.utils is here. Batches are dicts of arrays", lambda: lucid.utils),
        ("'spectral_norm': it is for training: write the weight", lambda: nn.utils.spectral_norm),
        (r"no complex numbers; .* write ops.rotary_embedding\(x, cos, sin", lambda: lucid.view_as_complex),
        ("no complex numbers", lambda: lucid.ones(2).view_as_complex),
    ],
)
def test_absent_names_say_what_to_write(message: str, call: Callable[[], Any]) -> None:
    with pytest.raises(AttributeError, match=message):
        call()


@pytest.mark.parametrize("axes", [lambda x: x.reshape(-1, x.shape[1] // 4, 4), lambda x: x.unflatten(1, (-1, 4))])
def test_an_axis_that_may_not_divide_says_how_one_that_does_is_named(axes: Callable[[Tensor], Tensor]) -> None:
    assert lucid.trace(axes, ("N", "4*L")).outputs[0].type.shape[2] == 4
    with pytest.raises(ValueError, match='; if it always divides, say so in the input\'s shape: "4\\*L"'):
        lucid.trace(axes, ("N", "L"))


@pytest.mark.parametrize("p", [0, 1, 2, float("inf")])
def test_distances_in_no_dimensions_are_0(p: float) -> None:
    assert lucid.cdist(lucid.ones(2, 0), lucid.ones(3, 0), p=p).tolist() == [[0] * 3] * 2


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
@pytest.mark.parametrize(("shape", "pairs"), [((4,), 1), ((3, 4), 2), ((1, 2, 3, 4), 1), ((1, 1, 2, 3, 4), 2)])
def test_padding_with_elements_of_an_image_is_of_its_axes_as_in_torch(
    shape: tuple[int, ...], pairs: int, mode: str
) -> None:
    with pytest.raises(
        ValueError, match=rf"^pad: mode '{mode}' takes a pair for each axis .* got {pairs} pairs for \["
    ):
        F.pad(lucid.ones(*shape), [1] * 2 * pairs, mode)


@pytest.mark.parametrize(
    ("mode", "amounts", "expected"),  # by torch
    [
        ("replicate", (-4, 5), [3, 3, 3, 3, 3]),
        ("replicate", (2, -3), [0, 0, 0]),
        ("replicate", (-1, -1), [1, 2]),
        ("reflect", (-2, 3), [2, 3, 2, 1, 0]),
        ("circular", (-1, 2), [1, 2, 3, 1, 2]),
    ],
)
def test_padding_repeats_elements_that_it_takes_away(mode: str, amounts: list[int], expected: list[int]) -> None:
    x = lucid.arange(4.0).reshape(1, 1, 4)
    assert F.pad(x, amounts, mode).tolist() == [[expected]]
    with pytest.raises(ValueError, match=r"pad: \(-6, 1\) takes more elements than axis 2 of \[1, 1, 4\] has"):
        F.pad(x, (-6, 1), mode)


@pytest.mark.parametrize("mode", ["constant", "circular"])
def test_padding_that_takes_more_than_there_is_is_refused_whatever_it_adds(mode: str) -> None:
    with pytest.raises(ValueError, match=r"pad: \(-3, 5\) takes more elements than axis 2 of \[1, 1, 2\] has"):
        F.pad(lucid.ones(1, 1, 2), (-3, 5), mode)


def test_numbers_of_repeats_are_computed_where_their_sum_is_known() -> None:
    def repeated(x: lucid.Tensor, repeats: lucid.Tensor) -> lucid.Tensor:
        return x.repeat_interleave(repeats, 1, output_size=5)

    x, repeats = np.arange(6, dtype=np.float32).reshape(2, 3), np.array([1, 0, 4])
    session = Session(to_onnx(repeated, ("N", 3), lucid.spec(3, dtype="int64")))
    (result,) = session.run({"x": x, "repeats": repeats}).values()
    np.testing.assert_array_equal(result, np.repeat(x, repeats, 1))


@pytest.mark.parametrize(
    "function",
    [lambda x: x.repeat(1, 1), lambda x: x.roll(0, 1), lambda x: lucid.ops.unsqueeze(x, ()), lambda x: x.flip(())],
    ids=["repeat", "roll", "unsqueeze", "flip"],
)
def test_what_moves_nothing_is_no_node(function: Callable[[lucid.Tensor], lucid.Tensor]) -> None:
    x = lucid.trace(function, ("N", "L"))
    assert not list(x.nodes())


def test_an_image_is_resized_along_its_last_axis_without_new_axes() -> None:
    graph = lucid.trace(lambda x, y: F.interpolate(x, y.shape[2:], mode="bilinear"), (1, 2, 3, "w"), (1, 2, 3, "W"))
    assert "unsqueeze" not in {node.op.name for node in graph.nodes()}


def test_sizes_may_be_differences() -> None:
    """As relative positions have them: 2 * L - 1 rows for L queries."""
    specs = (lucid.spec("N", "L"), lucid.spec("N", "2*L - 1"))
    assert str(specs[1]) == "float32[N, 2*L - 1]"
    assert_parity(lambda x, y: (y[:, : x.shape[1]] + x, y.sum(-1)), *specs, sizes=[{"N": 2, "L": 3}, {"N": 3, "L": 1}])
    with pytest.raises(ValueError, match=r"2\*L - 1"):
        lucid.trace(lambda x, y: y.sum() + x, *specs).run([np.zeros((2, 3), "f4"), np.zeros((2, 6), "f4")])
    for text in ("L - ", "-L", "L / 2", "L--1"):
        with pytest.raises(ValueError, match="expected a name such as"):
            lucid.spec(text)


def test_integers_to_a_negative_power_are_rounded_towards_0() -> None:
    base, power = lucid.tensor([2, -1, -1, 1, 0, 5]), lucid.tensor([-1, -3, -2, -7, 2, 3])
    assert (base**power).tolist() == [0, -1, 1, 1, 0, 125]
    assert (base ** lucid.full((6,), -(2**63))).tolist() == [0, 1, 1, 1, 0, 0]
    specs = [lucid.spec(6, dtype="int64")] * 2
    session = lucid.runtime.Session(lucid.export.to_onnx(lambda x, y: x**y, *specs), threads=1)
    (output,) = session.run(dict(zip(session.inputs, (base.numpy(), power.numpy()), strict=True))).values()
    assert output.tolist() == [0, -1, 1, 1, 0, 125]


def test_small_things_that_torch_takes() -> None:
    x = lucid.randn(2, 3)
    np.testing.assert_array_equal(+x, x)
    assert lucid.arange(end=3).tolist() == [0, 1, 2]
    assert lucid.eye(2, dtype=None).dtype == lucid.float32
    assert lucid.tensor(3).nonzero().shape == (1, 0)
    np.testing.assert_allclose(F.linear(x, x[0]), (x * x[0]).sum(-1), rtol=1e-5)
    assert_parity(lambda x, w, b: F.linear(x, w, b), ("N", 3), (3,), ())
    with pytest.raises(ValueError, match="names an axis twice"):
        x.flip((0, 0))
    with pytest.raises(TypeError, match=r"got bool: True adds an axis in torch; write x\[None\]"):
        _ = x[True]
    with pytest.raises(IndexError, match="concat: axis 2 is out of range"):
        lucid.cat([x], 2)
