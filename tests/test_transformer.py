"""Transformer layers and stacks beyond the torch goldens: sizes, masks, training, export, and models/transformer.py."""

from __future__ import annotations

import numpy as np
import pytest

import lucid
from lucid import nn
from lucid.models.transformer import Transformer
from lucid.nn import functional as F
from lucid.runtime import Session
from lucid.testing import assert_parity


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("batch_first", [False, True])
def test_layers_export_with_any_sizes(norm_first: bool, batch_first: bool) -> None:
    options = {"norm_first": norm_first, "batch_first": batch_first, "activation": "gelu"}
    for opset in (18, 23):
        assert_parity(nn.TransformerEncoderLayer(8, 2, 16, **options), opset=opset)
        assert_parity(nn.TransformerDecoderLayer(8, 2, 16, **options), opset=opset)


def test_the_whole_transformer_exports_with_masks() -> None:
    model = nn.Transformer(8, 2, 1, 1, 16)
    masks = {name: lucid.spec("N", length, dtype=lucid.bool_) for name, length in (("src", "S"), ("memory", "S"))}
    kwargs = {f"{name}_key_padding_mask": mask for name, mask in masks.items()} | {"tgt_is_causal": True}
    assert_parity(model, kwargs={**model.input_specs(), **kwargs})


def test_a_pre_norm_layer_is_lean() -> None:
    exported = lucid.export.to_onnx(nn.TransformerEncoderLayer(16, 2, 32, norm_first=True))
    assert len(exported.graph.node) <= 18


def test_is_causal_and_the_triangular_mask_say_the_same() -> None:
    layer, x = nn.TransformerEncoderLayer(8, 2, 16).eval(), lucid.randn(2, 5, 8)
    mask = nn.Transformer.generate_square_subsequent_mask(5)
    assert mask.tolist()[1] == [0, 0, -np.inf, -np.inf, -np.inf]
    np.testing.assert_allclose(layer(x, mask), layer(x, is_causal=True), rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(layer(x, mask), layer(x, mask, is_causal=True))  # torch's hint changes nothing


def test_the_triangular_mask_is_that_of_torch() -> None:
    """Numbers to add to scores, which also hide keys in functions where booleans say what is attended to."""
    mask = nn.Transformer.generate_square_subsequent_mask(4, dtype="float16")
    assert mask.dtype == lucid.float16
    np.testing.assert_array_equal(mask, np.triu(np.full((4, 4), -np.inf, np.float16), 1))
    x = lucid.randn(2, 3, 4, 8)
    masked = F.scaled_dot_product_attention(x, x, x, mask.float())
    np.testing.assert_allclose(masked, F.scaled_dot_product_attention(x, x, x, is_causal=True), rtol=1e-6, atol=1e-6)

    def call(x: lucid.Tensor) -> lucid.Tensor:
        return F.scaled_dot_product_attention(x, x, x, nn.Transformer.generate_square_subsequent_mask(x.shape[2]))

    assert_parity(call, ("N", 3, "L", 8))


def test_layers_of_a_stack_are_copies_with_torch_s_keys() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16)
    stack = nn.TransformerEncoder(layer, 2, nn.LayerNorm(8))
    keys = [key for key in stack.state_dict() if key.startswith("layers.1.")]
    assert keys == [f"layers.1.{key}" for key in layer.state_dict()]
    assert list(layer.state_dict()) == [
        "self_attn.in_proj_weight",
        "self_attn.in_proj_bias",
        "self_attn.out_proj.weight",
        "self_attn.out_proj.bias",
        "linear1.weight",
        "linear1.bias",
        "linear2.weight",
        "linear2.bias",
        "norm1.weight",
        "norm1.bias",
        "norm2.weight",
        "norm2.bias",
    ]
    assert len(list(stack.parameters())) == 2 * 12 + 2


def test_dropout_is_for_training_alone() -> None:
    layer, x = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.5).train(), lucid.randn(1, 4, 8)
    assert not np.array_equal(layer(x), layer(x))
    layer.eval()
    np.testing.assert_array_equal(layer(x), layer(x))


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(
        ValueError, match=r"TransformerEncoderLayer: activation is 'swish', expected \"relu\", \"gelu\""
    ):
        nn.TransformerEncoderLayer(8, 2, activation="swish")
    with pytest.raises(ValueError, match="embed_dim 8 is not divisible by num_heads 3"):
        nn.TransformerDecoderLayer(8, 3)
    with pytest.raises(ValueError, match="num_layers is 0, expected a whole number of 1 or more"):
        nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2), 0)


# models/transformer.py --------------------------------------------------------------------------------------------


@pytest.fixture
def model() -> Transformer:
    return Transformer(30, hidden_size=16, num_heads=4, intermediate_size=32, num_layers=2, max_positions=40).eval()


def test_no_token_sees_a_later_one(model: Transformer) -> None:
    source, target = lucid.tensor([[4, 5, 6]]), lucid.tensor([[1, 7, 8, 9]])
    changed = lucid.tensor([[1, 7, 8, 10]])
    before, after = model(source, target), model(source, changed)
    np.testing.assert_array_equal(before[:, :3], after[:, :3])
    assert not np.array_equal(before[:, 3], after[:, 3])


def test_padding_of_the_source_has_no_effect(model: Transformer) -> None:
    source, target = lucid.tensor([[4, 5, 6]]), lucid.tensor([[1, 7]])
    padded, mask = lucid.tensor([[4, 5, 6, 0, 0]]), lucid.tensor([[1, 1, 1, 0, 0]])
    np.testing.assert_allclose(model(padded, target, mask), model(source, target), rtol=1e-5, atol=1e-6)


def test_order_matters(model: Transformer) -> None:
    target = lucid.tensor([[1]])
    assert not np.allclose(model(lucid.tensor([[4, 5]]), target), model(lucid.tensor([[5, 4]]), target), atol=1e-3)


def test_the_exported_model_gives_the_same_at_all_sizes(model: Transformer) -> None:
    session = Session(lucid.export.to_onnx(model))
    for n, s, t in ((1, 1, 1), (2, 5, 3), (3, 4, 9)):
        source, target = (lucid.Tensor(np.arange(n * length).reshape(n, length) % 30) for length in (s, t))
        mask = lucid.Tensor((np.arange(s) < np.arange(1, n + 1)[:, None]).astype(np.int64))
        np.testing.assert_allclose(session(source, target, mask), model(source, target, mask), rtol=1e-4, atol=1e-5)
