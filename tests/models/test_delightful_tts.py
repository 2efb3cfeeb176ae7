"""models/delightful_tts.py compared with the formulas, written out in float64."""

from __future__ import annotations

import math

import numpy as np
import pytest

import lucid
from lucid import Tensor, nn
from lucid.export import to_onnx
from lucid.models import delightful_tts as program
from lucid.models.delightful_tts import ConformerBlock, MultiHeadAttention, RelativeAttention, StyleTokens
from lucid.runtime import Session

Array = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


def exact(tensor: Tensor) -> Array:
    """The numbers in float64."""
    return tensor.numpy().astype(np.float64)


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def randomised(module: nn.Module) -> nn.Module:
    """Every parameter random, so that none is 0 or 1; in evaluation mode."""
    for parameter in module.parameters():
        parameter.assign(parameter.numpy() + 0.1 * lucid.randn(*parameter.numpy().shape).numpy())
    return module.eval()


# MultiHeadAttention ---------------------------------------------------------------------------------------------


def attended(attention: MultiHeadAttention, query: Tensor, key: Tensor) -> Array:
    """Head by head, position by position."""
    q, k, v = (
        exact(x) @ exact(layer.weight).T
        for x, layer in ((query, attention.W_query), (key, attention.W_key), (key, attention.W_value))
    )
    width = attention.num_units // attention.num_heads
    result = np.zeros(q.shape)
    for head in range(attention.num_heads):
        part = slice(head * width, (head + 1) * width)
        weights = softmax(q[..., part] @ k[..., part].swapaxes(1, 2) / math.sqrt(attention.key_dim))
        result[..., part] = weights @ v[..., part]
    return result


SIZES = [(1, 1, 1), (3, 7, 2), (2, 5, 33)]


@pytest.mark.parametrize(
    ("query_dim", "key_dim", "num_units", "num_heads"), [(12, 20, 32, 4), (8, 8, 8, 1), (6, 3, 10, 5)]
)
def test_scores_are_divided_by_the_root_of_the_key_width(
    query_dim: int, key_dim: int, num_units: int, num_heads: int
) -> None:
    attention = MultiHeadAttention(query_dim, key_dim, num_units, num_heads)
    sessions = [Session(to_onnx(attention, target=target)) for target in ("any", "portable")]
    for n, queries, keys in SIZES:
        query, key = lucid.randn(n, queries, query_dim), lucid.randn(n, keys, key_dim)
        expected = attended(attention, query, key)
        assert expected.shape == (n, queries, num_units)
        for run in (attention, *sessions):
            np.testing.assert_allclose(run(query, key), expected, rtol=2e-6, atol=2e-6)


def test_its_state_is_three_weights() -> None:
    shapes = {name: tensor.shape for name, tensor in MultiHeadAttention(12, 20, 32, 4).state_dict().items()}
    assert shapes == {"W_query.weight": (32, 12), "W_key.weight": (32, 20), "W_value.weight": (32, 20)}


def test_the_layer_is_exported_as_three_products_and_one_attention() -> None:
    model = to_onnx(MultiHeadAttention(12, 20, 32, 4))
    assert [node.op_type for node in model.graph.node] == ["MatMul", "MatMul", "MatMul", "Attention"]
    assert {initializer.name for initializer in model.graph.initializer} == {
        "W_query.weight.T",
        "W_key.weight.T",
        "W_value.weight.T",
    }


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ((12, 20, 30, 4), "num_units 30 is not divisible by num_heads 4"),
        ((0, 20, 32, 4), "query_dim is 0, expected 1 or more"),
        ((12, -1, 32, 4), "key_dim is -1, expected 1 or more"),
        ((12, 20, 0, 4), "num_units is 0, expected 1 or more"),
        ((12, 20, 32, 0), "num_heads is 0, expected 1 or more"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(sizes: tuple[int, int, int, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MultiHeadAttention(*sizes)


def test_inputs_that_do_not_fit_are_refused() -> None:
    attention = MultiHeadAttention(12, 20, 32, 4)
    query, key = lucid.randn(2, 5, 12), lucid.randn(2, 7, 20)
    with pytest.raises(ValueError, match=r"query has shape \[2, 5, 11\], expected \(N, length, 12\)"):
        attention(query[..., :11], key)
    with pytest.raises(ValueError, match=r"key has shape \[7, 20\], expected \(N, length, 20\)"):
        attention(query, key[0])
    with pytest.raises(ValueError, match="batch sizes differ"):
        attention(query, key[:1])


# StyleTokens ----------------------------------------------------------------------------------------------------


def test_a_style_is_a_mixture_of_the_tokens() -> None:
    styles = StyleTokens(query_dim=16, num_units=24, num_heads=4, num_tokens=5)
    assert styles.state_dict()["tokens"].shape == (5, 6)
    session = Session(to_onnx(styles))
    for n in (1, 3):
        reference = lucid.randn(n, 16)
        keys = Tensor(np.broadcast_to(np.tanh(styles.tokens.numpy()), (n, 5, 6)))
        expected = attended(styles.attention, reference.unsqueeze(1), keys)[:, 0]
        np.testing.assert_allclose(styles(reference), expected, rtol=2e-6, atol=2e-6)
        np.testing.assert_allclose(session(reference), expected, rtol=2e-6, atol=2e-6)


# RelativeAttention ----------------------------------------------------------------------------------------------


def relatively_attended(attention: RelativeAttention, x: Tensor, padding: Array | None = None) -> Array:
    """The scores of Dai et al. (2019), section 3.3, one pair of positions at a time."""

    def project(layer: nn.Linear, value: Array) -> Array:
        return value @ exact(layer.weight).T + (0 if layer.bias is None else exact(layer.bias))

    dim, heads = attention.dim, attention.num_heads
    n, length, _ = x.shape
    q, k, v = (project(layer, exact(x)) for layer in (attention.query, attention.key, attention.value))
    u, w = exact(attention.content_bias), exact(attention.position_bias)
    frequencies = 10000.0 ** (-np.arange(0, dim, 2) / dim)
    result = np.zeros((n, length, dim))
    for head in range(heads):
        part = slice(head * (dim // heads), (head + 1) * (dim // heads))
        scores = np.zeros((n, length, length))
        for i in range(length):
            for j in range(length):
                r = project(attention.position, np.concatenate([f((i - j) * frequencies) for f in (np.sin, np.cos)]))
                content = ((q[:, i] + u) * k[:, j])[:, part].sum(-1)
                position = ((q[:, i] + w) * r)[:, part].sum(-1)
                scores[:, i, j] = (content + position) / math.sqrt(dim // heads)
        if padding is not None:
            scores = np.where(padding[:, None], -np.inf, scores)
        result[..., part] = softmax(scores) @ v[..., part]
    return project(attention.output, result)


@pytest.mark.parametrize("target", ["any", "portable"])
def test_relative_attention_scores_contents_and_distances(target: str) -> None:
    attention = randomised(RelativeAttention(dim=12, num_heads=3))
    assert isinstance(attention, RelativeAttention)
    session = Session(to_onnx(attention, target=target))
    for n, length in ((1, 1), (2, 2), (3, 9)):
        x = lucid.randn(n, length, 12)
        expected = relatively_attended(attention, x)
        np.testing.assert_allclose(attention(x), expected, rtol=5e-6, atol=5e-6)
        np.testing.assert_allclose(session(x), expected, rtol=5e-6, atol=5e-6)


def test_relative_attention_ignores_padding() -> None:
    attention = randomised(RelativeAttention(dim=8, num_heads=2))
    assert isinstance(attention, RelativeAttention)
    x, padding = lucid.randn(2, 5, 8), np.array([[False] * 5, [False, False, True, False, True]])
    np.testing.assert_allclose(
        attention(x, Tensor(padding)), relatively_attended(attention, x, padding), rtol=5e-6, atol=5e-6
    )


def test_relative_attention_does_not_see_where_a_sentence_begins() -> None:
    """The same words later in a sentence, after padding, give the same result."""
    attention = randomised(RelativeAttention(dim=8, num_heads=2))
    x = lucid.randn(1, 4, 8)
    moved = lucid.ops.concat([lucid.randn(1, 3, 8), x], 1)
    padding = lucid.tensor([[True] * 3 + [False] * 4])
    np.testing.assert_allclose(attention(moved, padding)[:, 3:], attention(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("dim", "heads", "message"), [(9, 3, "even"), (8, 3, "multiple of num_heads 3"), (0, 1, "1 or more")]
)
def test_sizes_that_no_head_fits_are_refused(dim: int, heads: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RelativeAttention(dim, heads)


# ConformerBlock -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["any", "portable"])
def test_a_block_exported_once_gives_the_same_at_all_sizes(target: str) -> None:
    block = randomised(ConformerBlock(dim=12, num_heads=3, kernel_size=5))
    session = Session(to_onnx(block, target=target))
    for n, length in ((1, 1), (2, 3), (3, 20)):
        x = lucid.randn(n, length, 12)
        np.testing.assert_allclose(session(x), block(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("target", ["any", "portable"])
def test_padding_touches_no_other_position(target: str) -> None:
    block = randomised(ConformerBlock(dim=12, num_heads=3))
    mask = lucid.spec("N", "L", dtype=lucid.bool_)
    session = Session(to_onnx(block, ("N", "L", 12), kwargs={"key_padding_mask": mask}, target=target))
    x = lucid.randn(1, 6, 12)
    padded = lucid.ops.concat([x, 100 * lucid.randn(1, 4, 12)], 1)
    padding = lucid.tensor([[False] * 6 + [True] * 4])
    np.testing.assert_allclose(block(padded, padding)[:, :6], block(x), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(session(padded, padding)[:, :6], block(x), rtol=1e-5, atol=1e-5)


def test_the_modules_stand_in_the_order_of_the_paper_each_beside_the_stream() -> None:
    block = randomised(ConformerBlock(dim=8, num_heads=2))
    assert isinstance(block, ConformerBlock)
    x = y = lucid.randn(1, 5, 8)
    y = y + 0.5 * block.feed_forward1(y, None)
    y = y + block.convolution(y, None)
    y = y + block.attention(block.attention_norm(y))
    y = y + 0.5 * block.feed_forward2(y, None)
    np.testing.assert_array_equal(block(x), block.norm(y))


@pytest.mark.parametrize("name", ["kernel_size", "feed_forward_kernel_size"])
def test_an_even_kernel_would_change_the_length_and_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} is 4, expected an odd number"):
        ConformerBlock(8, 2, **{name: 4})


def test_the_program_compares_three_lengths(capsys: pytest.CaptureFixture[str]) -> None:
    program.main()
    assert [line.split(":")[0] for line in capsys.readouterr().out.splitlines()] == [
        "length 1",
        "length 20",
        "length 173",
    ]


def test_a_block_in_half_precision_stays_in_it() -> None:
    exact = randomised(ConformerBlock(dim=8, num_heads=2))
    x = lucid.randn(2, 5, 8)
    expected = exact(x).numpy()
    block = exact.to(lucid.float16)
    for run in (block, Session(to_onnx(block))):
        output = run(x.astype(lucid.float16))
        assert output.dtype == lucid.float16
        np.testing.assert_allclose(output, expected, atol=0.02)
