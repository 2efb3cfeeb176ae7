"""nn.MultiHeadAttention and F.multi_head_attention_forward against the float64 reference, eager and exported, over all
flags."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lucid
import lucid.nn.functional as F
from lucid import nn
from tests import reference
from tests.test_attention import batches_and_lengths

E, H = 16, 4
TOLERANCE = 2e-6
OPSETS = (17, 18, 23, 24)

FLAGS = [
    {},
    {"bias": False},
    {"add_bias_kv": True},
    {"add_zero_attn": True},
    {"add_bias_kv": True, "add_zero_attn": True},
    {"bias": False, "add_bias_kv": True},
    {"kdim": 12},
    {"kdim": 12, "vdim": 20},
    {"vdim": 20, "bias": False, "add_bias_kv": True, "add_zero_attn": True},
    {"qdim": 6, "out_dim": 10},
    {"qdim": 6, "kdim": 12, "out_dim": 20, "num_kv_heads": 2},
    {"num_kv_heads": 2},
    {"num_kv_heads": 1, "add_bias_kv": True, "add_zero_attn": True},
    {"batch_first": False},
    {"batch_first": False, "add_zero_attn": True},
    {"dropout": 0.5},
]

# Masks as the module takes them: true = not allowed. Name, shape by size names, dtype; "is_causal" is an option.
MASKS: list[dict[str, Any]] = [
    {},
    {"is_causal": True},
    {"attn_mask": (("L", "S"), "bool")},
    {"attn_mask": (("L", "S"), "float32")},
    {"attn_mask": (("4*N", "L", "S"), "bool")},
    {"attn_mask": (("N", H, "L", "S"), "float32")},
    {"key_padding_mask": (("N", "S"), "bool")},
    {"key_padding_mask": (("N", "S"), "float32")},
    {"key_padding_mask": (("N", "S"), "bool"), "is_causal": True},
    {"key_padding_mask": (("N", "S"), "bool"), "attn_mask": (("L", "S"), "float32")},
]


def show(options: dict[str, Any]) -> str:
    return " ".join(f"{k}={v[1] + str(v[0]) if isinstance(v, tuple) else v}" for k, v in options.items()) or "defaults"


def make(flags: dict[str, Any]) -> nn.MultiHeadAttention:
    """A module whose biases are not zero."""
    mha = nn.MultiHeadAttention(E, H, **flags)
    for parameter in mha.parameters():
        if parameter.ndim == 1:
            nn.init.normal_(parameter, std=0.5)
    return mha.eval()


def inputs_of(mha: nn.MultiHeadAttention, n: int, l: int, s: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng([n, l, s])
    arrays = {}
    for name, length, width in (("query", l, mha.qdim), ("key", s, mha.kdim), ("value", s, mha.vdim)):
        shape = (n, length, width) if mha.batch_first else (length, n, width)
        arrays[name] = rng.standard_normal(shape).astype(np.float32)
    return arrays


def masks_of(masks: dict[str, Any], n: int, l: int, s: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng([7, n, l, s])
    values = {"N": n, "L": l, "S": s, "4*N": 4 * n}
    arrays = {}
    for name, spec in masks.items():
        if name == "is_causal":
            continue
        shape = tuple(values.get(size, size) for size in spec[0])
        excluded = rng.random(shape) < 0.4
        excluded[..., :1] &= rng.random(excluded[..., :1].shape) < 0.5
        numbers = np.where(excluded, -np.inf, rng.standard_normal(shape)).astype(np.float32)
        arrays[name] = excluded if spec[1] == "bool" else numbers
    return arrays


def expected_attention(
    mha: nn.MultiHeadAttention, arrays: dict[str, np.ndarray], masks: dict[str, np.ndarray], causal: bool
) -> Any:
    """The reference's output and weights for a module's own parameters."""
    state = {name: tensor.numpy() for name, tensor in mha.state_dict().items()}
    kv = E // H * mha.num_kv_heads
    bounds = [E, E + kv]
    if "in_proj_weight" in state:
        weights = np.split(state["in_proj_weight"], bounds)
    else:
        weights = [state[f"{part}_proj_weight"] for part in "qkv"]
    biases: list[Any] = np.split(state["in_proj_bias"], bounds) if "in_proj_bias" in state else [None] * 3
    turned = {name: a if mha.batch_first else a.transpose(1, 0, 2) for name, a in arrays.items()}
    n = turned["query"].shape[0]
    attn_mask = masks.get("attn_mask")
    if attn_mask is not None and attn_mask.ndim == 3:
        attn_mask = attn_mask.reshape(n, H, *attn_mask.shape[1:])
    both_masks = [
        None if m is None else ~m if m.dtype == bool else m for m in (attn_mask, masks.get("key_padding_mask"))
    ]
    output, attention = reference.multi_head_attention(
        **turned,
        heads=H,
        weights=tuple(weights),
        biases=tuple(biases),
        out_weight=state["out_proj.weight"],
        out_bias=state.get("out_proj.bias"),
        bias_kv=(state["bias_k"], state["bias_v"]) if "bias_k" in state else None,
        zero_row=mha.add_zero_attn,
        mask=both_masks[0],
        key_mask=both_masks[1],
        is_causal=causal,
    )
    return (output if mha.batch_first else output.transpose(1, 0, 2)), attention


def close(got: Any, want: np.ndarray, where: object = "") -> None:
    array = np.asarray(got)
    assert array.shape == want.shape, where
    assert np.abs(array - want).max(initial=0) <= TOLERANCE, where


SIZES = batches_and_lengths((1, 3), (1, 7, 33))


GRID = [
    (f, m)
    for f in FLAGS
    for m in MASKS
    if not f or f in (FLAGS[4], FLAGS[7], FLAGS[9], FLAGS[10], FLAGS[11]) or m in MASKS[:1]
]


@pytest.mark.parametrize(("flags", "masks"), GRID, ids=show)
def test_eager(flags: dict[str, Any], masks: dict[str, Any]) -> None:
    mha, causal = make(flags), bool(masks.get("is_causal"))
    for n, l, s in SIZES:
        arrays, mask_arrays = inputs_of(mha, n, l, s), masks_of(masks, n, l, s)
        tensors = {name: lucid.tensor(array) for name, array in (arrays | mask_arrays).items()}
        output, weights = expected_attention(mha, arrays, mask_arrays, causal)
        close(mha(**tensors, is_causal=causal), output)
        got, per_head = mha(**tensors, is_causal=causal, need_weights=True, average_attn_weights=False)
        close(got, output)
        close(per_head, weights)
        if (l, s) == (7, 33):  # the mean of the weights that were compared just before: one size shows it
            close(mha(**tensors, is_causal=causal, need_weights=True)[1], weights.mean(1))


@pytest.mark.parametrize(("flags", "masks"), GRID, ids=show)
def test_exported(flags: dict[str, Any], masks: dict[str, Any]) -> None:
    mha, causal = make(flags), bool(masks.get("is_causal"))
    specs: dict[str, Any] = {
        name: lucid.spec(*spec[0], dtype=spec[1]) for name, spec in masks.items() if name != "is_causal"
    }
    cases = []
    for n, l, s in ((1, 1, 1), (1, 7, 2), (3, 2, 7), (3, 33, 33), (3, 1, 7)):
        arrays, mask_arrays = inputs_of(mha, n, l, s), masks_of(masks, n, l, s)
        cases.append((arrays | mask_arrays, expected_attention(mha, arrays, mask_arrays, causal)[0], (n, l, s)))
    for opset in OPSETS:
        exported = lucid.export.to_onnx(mha, kwargs=specs | {"is_causal": causal}, opset=opset)
        session = lucid.runtime.Session(exported, threads=1)
        for feeds, output, size in cases:
            close(session.run(feeds)["output"], output, f"opset {opset}, {size}")


def test_every_argument_of_the_functional_form() -> None:
    """Static keys and values, separate weights, the zero row: sequence first, as torch has it."""
    l, n, s, d = 5, 2, 6, E // H
    q, k, v = lucid.randn(l, n, E), lucid.randn(s, n, E), lucid.randn(s, n, E)
    weights = [lucid.randn(E, E) * 0.3 for _ in range(3)]
    static_k, static_v = lucid.randn(n * H, s, d), lucid.randn(n * H, s, d)
    out_weight, out_bias = lucid.randn(E, E) * 0.3, lucid.randn(E)
    output, attention = F.multi_head_attention_forward(
        q,
        k,
        v,
        embed_dim_to_check=E,
        num_heads=H,
        in_proj_bias=lucid.zeros(3 * E),
        add_zero_attn=True,
        out_proj_weight=out_weight,
        out_proj_bias=out_bias,
        training=False,
        use_separate_proj_weight=True,
        q_proj_weight=weights[0],
        k_proj_weight=weights[1],
        v_proj_weight=weights[2],
        static_k=static_k,
        static_v=static_v,
    )

    def unsplit(x: lucid.Tensor) -> np.ndarray:
        return x.numpy().reshape(n, H, s, d).transpose(0, 2, 1, 3).reshape(n, s, E)

    want, per_head = reference.multi_head_attention(
        q.numpy().transpose(1, 0, 2),
        unsplit(static_k),
        unsplit(static_v),
        H,
        (weights[0].numpy(), np.eye(E), np.eye(E)),
        (None, None, None),
        out_weight.numpy(),
        out_bias.numpy(),
        zero_row=True,
    )
    np.testing.assert_allclose(output.numpy(), want.transpose(1, 0, 2), atol=1e-5)
    assert attention is not None
    np.testing.assert_allclose(attention.numpy(), per_head.mean(1), atol=1e-5)


def test_unbatched_inputs_give_unbatched_results() -> None:
    mha = make({})
    x = lucid.randn(5, E)
    mask = lucid.tensor([False, False, True, False, True])
    output, weights = mha(x, key_padding_mask=mask, need_weights=True)
    batched, batched_weights = mha(x.unsqueeze(0), key_padding_mask=mask.unsqueeze(0), need_weights=True)
    np.testing.assert_array_equal(output.numpy(), batched.numpy()[0])
    np.testing.assert_array_equal(weights.numpy(), batched_weights.numpy()[0])


def test_key_and_value_default_to_the_query() -> None:
    mha, x, y = make({}), lucid.randn(2, 5, E), lucid.randn(2, 3, E)
    np.testing.assert_array_equal(mha(x).numpy(), mha(x, x, x).numpy())
    np.testing.assert_array_equal(mha(x, y).numpy(), mha(x, y, y).numpy())


def test_dropout_acts_while_training_only() -> None:
    mha, x = make({"dropout": 0.5}), lucid.randn(2, 5, E)
    calm = mha(x).numpy()
    assert np.abs(mha.train()(x).numpy() - calm).max() > 0.01
    exported = lucid.runtime.Session(lucid.export.to_onnx(mha, ("N", "L", E)))  # though in training mode
    close(exported(x), calm.astype(np.float64))


def test_weights_are_returned_after_dropout() -> None:
    mha = make({"dropout": 0.5}).train()
    _, weights = mha(lucid.randn(2, 20, E), need_weights=True, average_attn_weights=False)
    assert (weights.numpy() == 0).mean() > 0.3


T, M = lucid.Tensor, nn.MultiHeadAttention


@pytest.mark.parametrize(
    ("message", "arguments", "flags"),
    [
        ("embed_dim 10 is not divisible by num_heads 4", (10, 4), {}),
        ("num_heads 4 is not divisible by num_kv_heads 3", (16, 4), {"num_kv_heads": 3}),
        ("embed_dim is 0, expected a whole number of 1 or more", (0, 4), {}),
        ("num_heads is -2", (16, -2), {}),
        ("kdim is 0", (16, 4), {"kdim": 0}),
        ("qdim is 0", (16, 4), {"qdim": 0}),
        ("out_dim is -1", (16, 4), {"out_dim": -1}),
        ("dropout is 1.5, expected a probability from 0 to 1", (16, 4), {"dropout": 1.5}),
        ("dropout is -0.1", (16, 4), {"dropout": -0.1}),
    ],
)
def test_bad_constructor_arguments(message: str, arguments: tuple[int, int], flags: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=message):
        nn.MultiHeadAttention(*arguments, **flags)


@pytest.mark.parametrize(
    ("error", "message", "shapes", "options"),
    [
        (ValueError, "query has last size 15, expected embed_dim 16", [(2, 5, 15)] * 3, {}),
        (ValueError, "key has length 4, value 3: expected the same", [(2, 5, 16), (2, 4, 16), (2, 3, 16)], {}),
        (ValueError, "batch sizes of query, key and value are 2, 3 and 3", [(2, 5, 16), (3, 4, 16), (3, 4, 16)], {}),
        (ValueError, "expected 3 axes each", [(1, 2, 5, 16)] * 3, {}),
        (ValueError, "last size of the input", [(2, 5, 16), (2, 5, 12), (2, 5, 12)], {}),
        (ValueError, r"attn_mask has shape \[5, 4\], expected \(5, 5\)", [(2, 5, 16)] * 3, {"attn_mask": (5, 4)}),
        (ValueError, r"attn_mask has shape \[7, 5, 5\]", [(2, 5, 16)] * 3, {"attn_mask": (7, 5, 5)}),
        (ValueError, r"attn_mask has shape \[5\]", [(2, 5, 16)] * 3, {"attn_mask": (5,)}),
        (
            ValueError,
            r"key_padding_mask has shape \[5, 2\], expected \(N, S\) = \(2, 5\)",
            [(2, 5, 16)] * 3,
            {"key_padding_mask": (5, 2)},
        ),
    ],
)
def test_bad_inputs(
    error: type[Exception], message: str, shapes: list[tuple[int, ...]], options: dict[str, Any]
) -> None:
    mha = make({})
    before = {name: tensor.numpy().copy() for name, tensor in mha.state_dict().items()}
    keywords = {name: lucid.zeros(*v, dtype=bool) if isinstance(v, tuple) else v for name, v in options.items()}
    with pytest.raises(error, match=message):
        mha(*(lucid.randn(*shape) for shape in shapes), **keywords)
    for name, tensor in mha.state_dict().items():
        np.testing.assert_array_equal(tensor.numpy(), before[name])


def test_lists_are_refused_with_a_remedy() -> None:
    for call in (make({}), nn.ScaledDotProductAttention()):
        with pytest.raises(TypeError, match=r"key has type list, expected a tensor or an array; lucid\.tensor"):
            call(lucid.randn(2, 5, E), [[1.0]], lucid.randn(2, 5, E))


@pytest.mark.parametrize("name", ["attn_mask", "key_padding_mask"])
def test_integer_masks_are_refused_with_a_remedy(name: str) -> None:
    shape = (5, 5) if name == "attn_mask" else (2, 5)
    with pytest.raises(TypeError, match=f"{name} == 0"):
        make({})(lucid.randn(2, 5, E), **{name: lucid.ones(*shape, dtype="int64")})


def test_static_keys_exclude_bias_keys() -> None:
    q, w = lucid.randn(5, 2, E), lucid.randn(3 * E, E)
    with pytest.raises(ValueError, match="got static_k or static_v with bias_k and bias_v"):
        F.multi_head_attention_forward(
            q,
            q,
            q,
            E,
            H,
            w,
            bias_k=lucid.randn(1, 1, E),
            bias_v=lucid.randn(1, 1, E),
            static_k=lucid.randn(2 * H, 5, E // H),
        )


@pytest.mark.parametrize("scale", [0.5, 0.5 + 0j])
def test_real_scales(scale: complex) -> None:
    q = lucid.randn(2, H, 5, 8)
    got = F.scaled_dot_product_attention(q, q, q, scale=scale).numpy()
    np.testing.assert_allclose(got, reference.attention(*[q.numpy()] * 3, scale=0.5)[0], atol=TOLERANCE)


@pytest.mark.parametrize(
    ("message", "options"),
    [
        ("scale is 1j, expected a real number", {"scale": 1j}),
        ("scale is nan, expected a finite number", {"scale": np.nan}),
        ("scale is 'a', expected a number", {"scale": "a"}),
        (r"scale is \[1\.0\], expected a number", {"scale": [1.0]}),
        ("dropout_p is 2", {"dropout_p": 2}),
    ],
)
def test_bad_options_of_scaled_dot_product_attention(message: str, options: dict[str, Any]) -> None:
    q = lucid.randn(2, H, 5, 8)
    with pytest.raises((TypeError, ValueError), match=message):
        F.scaled_dot_product_attention(q, q, q, **options)
    with pytest.raises((TypeError, ValueError), match=message):
        nn.ScaledDotProductAttention(**options)


def test_a_scale_that_is_learned_is_an_error_instead_of_a_constant() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            self.scale = nn.Parameter(0.5)

        def forward(self, q: lucid.Tensor, inside: bool) -> lucid.Tensor:
            options = {"scale": 1.0} if inside else {"scale": self.scale}
            return F.scaled_dot_product_attention(q * self.scale if inside else q, q, q, **options)

    module, q = Scaled(), lucid.randn(1, 2, 3, 4)
    for call in (module, lucid.grad(lambda *args: module(*args).sum(), wrt=module)):
        with pytest.raises(TypeError, match=r"scale is a (parameter|traced tensor), .* query \* scale, scale=1\.0"):
            call(q, False)
    fixed = F.scaled_dot_product_attention(q, q, q, scale=lucid.tensor(0.5))
    np.testing.assert_allclose(module(q, True).numpy(), fixed.numpy(), atol=TOLERANCE)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(
    ("message", "options"),
    [("multi_head_attention: dropout_p is 2, expected a probability from 0 to 1", {"dropout_p": 2})],
)
def test_bad_options_of_multi_head_attention_forward(message: str, options: dict[str, Any], training: bool) -> None:
    x, w, mask = lucid.randn(5, 2, E), lucid.randn(3 * E, E), lucid.zeros(5, 5, dtype=bool)
    with pytest.raises(ValueError, match=message):
        F.multi_head_attention_forward(x, x, x, E, H, w, attn_mask=mask, training=training, **options)


def test_a_query_of_another_width_than_the_module_names() -> None:
    with pytest.raises(ValueError, match="query has last size 16, expected qdim 6"):
        nn.MultiHeadAttention(E, H, qdim=6)(lucid.randn(2, 5, 16))


def test_projections_of_their_own_widths_are_loaded_by_their_names() -> None:
    mha, other = (nn.MultiHeadAttention(E, H, qdim=6, vdim=5, out_dim=3) for _ in range(2))
    state = {name.replace("_proj_weight", "_proj.weight"): tensor for name, tensor in mha.state_dict().items()}
    other.load_state_dict(state)
    inputs = [lucid.randn(2, 4, width) for width in (6, E, 5)]
    close(other(*inputs), mha(*inputs).numpy())


def lower_right(queries: int, keys: int) -> np.ndarray:
    return np.tri(queries, keys, keys - queries, dtype=bool)


@pytest.mark.parametrize("mask", [None, "bool", "float32"])
def test_causality_from_the_lower_right_is_a_mask(mask: str | None) -> None:
    for l, s in ((3, 5), (5, 5), (5, 3)):
        q, k = lucid.randn(2, H, l, 8), lucid.randn(2, H, s, 8)
        seen = lower_right(l, s)
        attn_mask: Any = None if mask is None else np.random.default_rng(0).random((l, s)) > 0.5
        joint = seen if attn_mask is None else seen & attn_mask
        if mask == "float32":
            attn_mask = np.where(attn_mask, 0, -np.inf).astype(np.float32)
        expected, _ = reference.attention(*(x.numpy() for x in (q, k, k)), mask=joint)
        got = F.scaled_dot_product_attention(
            q, k, k, None if attn_mask is None else lucid.tensor(attn_mask), 0.0, "lower_right"
        )
        close(got, expected)
        if mask is None:
            assert nn.attention.bias.causal_lower_right(l, s).tolist() == seen.tolist()
            close(nn.ScaledDotProductAttention(is_causal="lower_right")(q, k, k), expected)


def test_keys_have_lengths() -> None:
    q, k = lucid.randn(3, H, 2, 8), lucid.randn(3, H, 5, 8)
    lengths = lucid.tensor([5, 0, 3])
    seen = (np.arange(5) < lengths.numpy()[:, None])[:, None, None]
    expected, _ = reference.attention(*(x.numpy() for x in (q, k, k)), mask=seen & lower_right(2, 5))
    close(F.scaled_dot_product_attention(q, k, k, None, 0.0, "lower_right", key_lengths=lengths), expected)
    expected, _ = reference.attention(*(x.numpy() for x in (q, k, k)), mask=seen)
    one_head = (x[:, 0] for x in (q, k, k))
    close(F.scaled_dot_product_attention(*one_head, key_lengths=lucid.tensor(3))[2], expected[2, 0])
    more_axes = (x[None].expand(2, -1, -1, -1, -1) for x in (q, k, k))
    close(F.scaled_dot_product_attention(*more_axes, key_lengths=lengths)[1], expected)


@pytest.mark.parametrize("target", ["any", "cpu", "portable"])
def test_lengths_and_causality_by_name_are_exported(target: str) -> None:
    def model(q: lucid.Tensor, k: lucid.Tensor, lengths: lucid.Tensor) -> lucid.Tensor:
        return F.scaled_dot_product_attention(q, k, k, None, 0.0, "lower_right", key_lengths=lengths)

    specs = (("N", H, "L", 8), ("N", H, "S", 8), lucid.spec("N", dtype=lucid.int64))
    lucid.testing.assert_parity(
        model, *specs, sizes=[{"N": 2, "L": 3, "S": 5}, {"N": 1, "L": 4, "S": 2}], target=target
    )


@pytest.mark.parametrize(
    ("error", "message", "options"),
    [
        (ValueError, "is_causal is 'right', expected True, False or \"lower_right\"", {"is_causal": "right"}),
        (TypeError, r"key_lengths are float32\[2\], expected integers", {"key_lengths": lucid.ones(2)}),
        (ValueError, r"key_lengths for rows \[2\]", {"key_lengths": lucid.tensor([1, 2, 3])}),
        (ValueError, r"key_lengths for rows \[2\]: got int64\[1, 2\]", {"key_lengths": lucid.tensor([[1, 2]])}),
        (TypeError, "the mask is int64", {"is_causal": "lower_right", "attn_mask": lucid.tensor([1, 0, 1])}),
    ],
)
def test_bad_names_and_lengths(error: type[Exception], message: str, options: dict[str, Any]) -> None:
    q, k = lucid.randn(2, H, 2, 8), lucid.randn(2, H, 3, 8)
    with pytest.raises(error, match=message):
        F.scaled_dot_product_attention(q, k, k, **options)


def test_grouped_heads_need_to_be_asked_for() -> None:
    q, k = lucid.randn(2, 4, 5, 8), lucid.randn(2, 2, 5, 8)
    with pytest.raises(ValueError, match="enable_gqa=True"):
        F.scaled_dot_product_attention(q, k, k)
    got = F.scaled_dot_product_attention(q, k, k, enable_gqa=True).numpy()
    repeated = k.numpy().repeat(2, axis=1)
    np.testing.assert_allclose(got, reference.attention(q.numpy(), repeated, repeated)[0], atol=TOLERANCE)
