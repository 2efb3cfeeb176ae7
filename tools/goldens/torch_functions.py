"""F.multi_head_attention_forward and F.scaled_dot_product_attention; groups.py says how the values are made."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional

from .core import normal
from .groups import Group

N, L, S, E, H, D = 2, 3, 5, 16, 4, 4


def forward_tensors(group: Group) -> None:
    """The inputs of multi_head_attention_forward, sequence first, and its masks (True = not allowed)."""
    shapes = {
        "query": (L, N, E),
        "key": (S, N, E),
        "value": (S, N, E),
        "narrow_key": (S, N, 12),
        "wide_value": (S, N, 20),
        "flat_query": (L, E),
        "flat_key": (S, E),
        "flat_value": (S, E),
        "static_k": (N * H, S, D),
        "static_v": (N * H, S, D),
        "static_k_longer": (N * H, S + 2, D),
        "static_v_longer": (N * H, S + 2, D),
        "bias_k": (1, 1, E),
        "bias_v": (1, 1, E),
        "in_proj_bias": (3 * E,),
        "out_proj_bias": (E,),
    }
    weights = {
        "in_proj_weight": (3 * E, E),
        "out_proj_weight": (E, E),
        "q_proj_weight": (E, E),
        "k_proj_weight": (E, E),
        "v_proj_weight": (E, E),
        "k_proj_weight_narrow": (E, 12),
        "v_proj_weight_wide": (E, 20),
    }
    for i, (name, shape) in enumerate(shapes.items()):
        group.tensor(name, normal(shape, 300 + i) * (0.5 if "bias" in name else 1.0))
    for i, (name, shape) in enumerate(weights.items()):
        group.tensor(name, normal(shape, 350 + i) / shape[1] ** 0.5)
    group.tensor("mask.bool", torch.tensor([[0, 0, 1, 0, 1], [0, 1, 1, 0, 0], [0, 0, 0, 1, 1]]).bool())
    group.tensor("mask.float", normal((L, S), 370))
    group.tensor("mask.float_3d", normal((N * H, L, S), 371))
    group.tensor("mask.causal", torch.ones(L, S, dtype=torch.bool).triu(1))
    group.tensor("mask.padding", torch.tensor([[0, 0, 0, 1, 1], [0, 1, 0, 0, 1]]).bool())
    group.tensor("mask.flat_padding", torch.tensor([0, 1, 0, 0, 1]).bool())


def multi_head_attention_forward() -> Group:
    group = Group(
        "F.multi_head_attention_forward, sequence first: query (L, N, 16), 4 heads, output (L, N, 16). Every "
        "tensor "
        "argument is named in `inputs`, the rest in `options`; what is absent is None (in_proj_weight and "
        "biases too). "
        "`weights` is (N, 4, L, S'), average_attn_weights=False; `weights_average` (N, L, S'). static_k and "
        "static_v are "
        "(N * 4, S, 4). Boolean masks: True = not allowed. The case `causal` stores the mask torch wants "
        "beside "
        "is_causal: pass either."
    )
    forward_tensors(group)

    def named(*names: str) -> dict[str, str]:
        return {name: name for name in names}

    own = named("query", "key", "value", "in_proj_weight", "in_proj_bias", "out_proj_weight", "out_proj_bias")
    bare = named("query", "key", "value", "in_proj_weight", "out_proj_weight")
    apart = named("query", "q_proj_weight", "out_proj_weight", "out_proj_bias")
    square = apart | named("key", "value", "k_proj_weight", "v_proj_weight")
    oblong = apart | {"key": "narrow_key", "value": "wide_value"}
    oblong |= {"k_proj_weight": "k_proj_weight_narrow", "v_proj_weight": "v_proj_weight_wide"}
    rows = named("bias_k", "bias_v")
    static = named("static_k", "static_v")
    longer = {"static_k": "static_k_longer", "static_v": "static_v_longer"}
    masked = {"attn_mask": "mask.bool", "key_padding_mask": "mask.padding"}
    flat = {"query": "flat_query", "key": "flat_key", "value": "flat_value"}
    separate, zero = {"use_separate_proj_weight": True}, {"add_zero_attn": True}
    cases: dict[str, tuple[Mapping[str, str], Mapping[str, object]]] = {
        "plain": (own, {}),
        "no_biases": (bare, {}),
        "bool_mask_and_padding": (own | masked, {}),
        "float_mask": (own | {"attn_mask": "mask.float"}, {}),
        "float_mask_3d": (own | {"attn_mask": "mask.float_3d"}, {}),
        "causal": (own | {"attn_mask": "mask.causal"}, {"is_causal": True}),
        "bias_rows": (own | rows, {}),
        "zero_row": (own, zero),
        "bias_rows_zero_row_masked": (own | rows | masked, zero),
        "separate": (square | named("in_proj_bias"), separate),
        "separate_no_in_bias": (square, separate),
        "separate_oblong": (oblong | named("in_proj_bias"), separate),
        "separate_oblong_all": (oblong | rows | masked | named("in_proj_bias"), separate | zero),
        "static_k": (own | named("static_k"), {}),
        "static_v": (own | named("static_v"), {}),
        "static_both": (own | static, {}),
        "static_longer": (own | longer, {}),
        "static_longer_zero_row": (own | longer, zero),
        "static_masked_zero_row": (own | static | masked, zero),
        "static_separate": (oblong | static | named("in_proj_bias"), separate),
        "static_k_separate_masked": (square | named("static_k") | masked, separate),
        "unbatched": (own | flat, {}),
        "unbatched_masked_zero_row": (
            own | flat | {"attn_mask": "mask.bool", "key_padding_mask": "mask.flat_padding"},
            zero,
        ),
    }
    for case, (inputs, options) in cases.items():
        output, weights = call_forward(group, inputs, options, need_weights=True, average_attn_weights=False)
        _, average = call_forward(group, inputs, options, need_weights=True, average_attn_weights=True)
        plain, nothing = call_forward(group, inputs, options, need_weights=False)
        assert nothing is None and torch.allclose(output, plain, atol=1e-12)
        group.add(
            case,
            arguments={},
            weights=None,
            inputs=inputs,
            options={"embed_dim_to_check": E, "num_heads": H, **options},
            outputs={"output": output, "weights": weights, "weights_average": average},
        )
    return group


def call_forward(
    group: Group, inputs: Mapping[str, str], options: Mapping[str, object], **more: object
) -> tuple[Tensor, Tensor]:
    optional = ("in_proj_weight", "in_proj_bias", "bias_k", "bias_v", "out_proj_weight", "out_proj_bias")
    arguments: dict[str, object] = dict.fromkeys(optional) | {"add_zero_attn": False, "dropout_p": 0.0}
    arguments |= {**{name: group.get(key) for name, key in inputs.items()}, **options, **more}
    arguments |= {"embed_dim_to_check": E, "num_heads": H}
    results: tuple[Tensor, Tensor] = functional.multi_head_attention_forward(**arguments)
    return results


def scaled_dot_product_attention() -> Group:
    group = Group(
        "F.scaled_dot_product_attention on (N, H, L, d). Boolean masks: True = attend. Scores are multiplied "
        "by scale, "
        "1/sqrt(d) by default; causal is top-left whatever L and S; with enable_gqa query head h reads key "
        "head "
        "h // (H / H_kv)."
    )
    shapes = {
        "query": (N, H, L, D),
        "key": (N, H, S, D),
        "value": (N, H, S, D),
        "value_wide": (N, H, S, 6),
        "query_long": (N, H, 7, D),
        "key_two_heads": (N, 2, S, D),
        "value_two_heads": (N, 2, S, 6),
        "key_one_head": (N, 1, S, D),
        "value_one_head": (N, 1, S, D),
        "query_3d": (N, L, D),
        "key_3d": (N, S, D),
        "value_3d": (N, S, 6),
    }
    for i, (name, shape) in enumerate(shapes.items()):
        group.tensor(name, normal(shape, 400 + i))
    generator = torch.Generator().manual_seed(12)
    masks = {
        "2d": (L, S),
        "4d": (N, H, L, S),
        "per_batch": (N, 1, L, S),
        "per_head": (1, H, L, S),
        "keys": (N, 1, 1, S),
    }
    for name, shape in masks.items():
        visible = torch.rand(shape, generator=generator) < 0.55
        visible[..., 0] = True
        group.tensor(f"mask.bool_{name}", visible)
        group.tensor(f"mask.float_{name}", torch.randn(shape, generator=generator))
    group.tensor(
        "mask.infinite", group.tensors["mask.float_2d"].masked_fill(~group.tensors["mask.bool_2d"], float("-inf"))
    )
    full = {"query": "query", "key": "key", "value": "value"}
    two = {"query": "query", "key": "key_two_heads", "value": "value_two_heads"}
    one = {"query": "query", "key": "key_one_head", "value": "value_one_head"}
    three = {"query": "query_3d", "key": "key_3d", "value": "value_3d"}
    causal, grouped = {"is_causal": True}, {"enable_gqa": True}
    cases: dict[str, tuple[Mapping[str, str], Mapping[str, object]]] = {
        "plain": (full, {}),
        "value_wide": (full | {"value": "value_wide"}, {}),
        "scale": (full, {"scale": 0.3}),
        "scale_negative": (full, {"scale": -1.0}),
        "causal_short_query": (full, causal),
        "causal_long_query": (full | {"query": "query_long"}, causal),
        "causal_square": (full | {"query": "key"}, causal),
        "infinite": (full | {"attn_mask": "mask.infinite"}, {}),
        **{
            f"{kind}_{name}": (full | {"attn_mask": f"mask.{kind}_{name}"}, {})
            for name in masks
            for kind in ("bool", "float")
        },
        "three_dimensions": (three, {}),
        "three_dimensions_masked": (three | {"attn_mask": "mask.bool_2d"}, {}),
        "three_dimensions_causal": (three, causal),
        "grouped_two": (two, grouped),
        "grouped_one": (one, grouped),
        "grouped_two_causal_scale": (two, grouped | causal | {"scale": 0.3}),
        "grouped_two_bool_4d": (two | {"attn_mask": "mask.bool_4d"}, grouped),
        "grouped_one_float_keys": (one | {"attn_mask": "mask.float_keys"}, grouped),
    }
    for case, (inputs, options) in cases.items():
        values = {name: group.get(key) for name, key in inputs.items()}
        output = functional.scaled_dot_product_attention(**values, **options)
        group.add(case, arguments={}, weights=None, inputs=inputs, options=options, outputs={"output": output})
    return group
