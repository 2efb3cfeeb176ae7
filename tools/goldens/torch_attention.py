"""nn.MultiheadAttention over its flags and masks; groups.py says how the values are made."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from .core import normal
from .groups import Group

N, L, S, E, H = 2, 3, 5, 16, 4


def attention_masks(group: Group) -> dict[str, dict[str, str]]:
    """The masks of each case. Boolean: True = not allowed. Where masks combine, key 0 stays visible."""
    generator = torch.Generator().manual_seed(11)

    def hidden(*shape: int) -> Tensor:
        mask = torch.rand(shape, generator=generator) < 0.45
        mask[..., 0] = False
        return mask

    infinite = torch.randn(L, S, generator=generator).masked_fill(hidden(L, S), float("-inf"))
    padding = torch.tensor([[False, False, False, True, True], [False, True, False, False, True]])
    leading = torch.tensor([[True, True, False, False, False], [False, False, False, False, False]])
    masks = {
        "bool": hidden(L, S),
        "float": torch.randn(L, S, generator=generator),
        "infinite": infinite,
        "bool_3d": hidden(N * H, L, S),
        "float_3d": torch.randn(N * H, L, S, generator=generator),
        "causal": torch.ones(L, S, dtype=torch.bool).triu(1),
        "padding": padding,
        "padding_leading": leading,
        "padding_float": torch.randn(N, S, generator=generator).masked_fill(padding, float("-inf")),
    }
    key = {name: group.tensor(f"mask.{name}", mask) for name, mask in masks.items()}
    return {
        "none": {},
        "attn_bool": {"attn_mask": key["bool"]},
        "attn_float": {"attn_mask": key["float"]},
        "attn_infinite": {"attn_mask": key["infinite"]},
        "attn_bool_3d": {"attn_mask": key["bool_3d"]},
        "attn_float_3d": {"attn_mask": key["float_3d"]},
        "causal": {"attn_mask": key["causal"]},
        "padding_bool": {"key_padding_mask": key["padding"]},
        "padding_leading": {"key_padding_mask": key["padding_leading"]},
        "padding_float": {"key_padding_mask": key["padding_float"]},
        "attn_and_padding_bool": {"attn_mask": key["bool"], "key_padding_mask": key["padding"]},
        "attn_3d_and_padding_float": {"attn_mask": key["float_3d"], "key_padding_mask": key["padding_float"]},
        "causal_and_padding": {"attn_mask": key["causal"], "key_padding_mask": key["padding"]},
    }


def constructor_grid() -> dict[str, dict[str, object]]:
    """All of bias x add_bias_kv x add_zero_attn x kdim/vdim batch first; four of them sequence first."""
    grid: dict[str, dict[str, object]] = {}
    for number in range(16):
        bias, kv, zero, sizes = (bool(number >> i & 1) for i in range(4))
        arguments: dict[str, object] = {"bias": bias, "add_bias_kv": kv, "add_zero_attn": zero}
        arguments |= {"kdim": 12, "vdim": 20} if sizes else {}
        name = "_".join(word for word, on in (("bias", bias), ("kv", kv), ("zero", zero), ("sizes", sizes)) if on)
        grid[name or "bare"] = arguments | {"batch_first": True}
    for name in ("bare", "bias_kv_zero", "bias_sizes", "bias_kv_zero_sizes"):
        grid[f"{name}_sequence_first"] = grid[name] | {"batch_first": False}
    return grid


def multihead_attention() -> Group:
    group = Group(
        "nn.MultiheadAttention(16, 4, **arguments). `output`: (N, L, 16), or (L, N, 16) sequence first; "
        "`weights`: "
        "(N, heads, L, S'), average_attn_weights=False; `weights_average`: (N, L, S'). S' counts the bias_k "
        "row and "
        "the zero row. Boolean masks: True = not allowed. `causal` cases store the mask torch wants beside "
        "is_causal: "
        "pass either the mask or is_causal, the answer is the same."
    )
    masks = attention_masks(group)
    for i, (config, arguments) in enumerate(constructor_grid().items()):
        module = nn.MultiheadAttention(E, H, dropout=0.0, **arguments)
        prefix = group.weights(config, module, seed=1000 + i)
        first = bool(arguments["batch_first"])

        def shape(length: int, width: int, first: bool = first) -> tuple[int, int, int]:
            return (N, length, width) if first else (length, N, width)

        keys = {
            "query": group.tensor(f"{config}.query", normal(shape(L, E), 10 + i)),
            "key": group.tensor(f"{config}.key", normal(shape(S, int(str(arguments.get("kdim", E)))), 40 + i)),
            "value": group.tensor(f"{config}.value", normal(shape(S, int(str(arguments.get("vdim", E)))), 70 + i)),
        }
        for mask_name, mask in masks.items():
            run_attention(group, f"{config}/{mask_name}", module, arguments, prefix, keys | mask, mask_name)
        if "sizes" not in config:
            special_attention(group, config, module, arguments, prefix)
    return group


def special_attention(
    group: Group, config: str, module: nn.MultiheadAttention, arguments: Mapping[str, object], prefix: str
) -> None:
    """Self-attention, in which query, key and value are one tensor, and 2-D inputs without a batch."""
    shape = (N, S, E) if arguments["batch_first"] else (S, N, E)
    own = group.tensor(f"{config}.self", normal(shape, 200))
    causal = group.tensor("mask.self_causal", torch.ones(S, S, dtype=torch.bool).triu(1))
    same = {"query": own, "key": own, "value": own}
    run_attention(group, f"{config}/self", module, arguments, prefix, same, "self")
    run_attention(
        group, f"{config}/self_causal", module, arguments, prefix, same | {"attn_mask": causal}, "self_causal"
    )
    flat = {
        "query": group.tensor("flat.query", normal((L, E), 201)),
        "key": group.tensor("flat.key", normal((S, E), 202)),
        "value": group.tensor("flat.value", normal((S, E), 203)),
    }
    padding = group.tensor("mask.flat_padding", torch.tensor([False, True, False, False, True]))
    masked = flat | {"attn_mask": "mask.bool", "key_padding_mask": padding}
    run_attention(group, f"{config}/unbatched", module, arguments, prefix, flat, "unbatched")
    run_attention(group, f"{config}/unbatched_masked", module, arguments, prefix, masked, "unbatched_masked")


def run_attention(
    group: Group,
    case: str,
    module: nn.MultiheadAttention,
    arguments: Mapping[str, object],
    prefix: str,
    inputs: Mapping[str, str],
    mask_name: str,
) -> None:
    values = {name: group.get(key) for name, key in inputs.items()}
    output, weights = module(**values, need_weights=True, average_attn_weights=False)
    again, average = module(**values, need_weights=True, average_attn_weights=True)
    plain, nothing = module(**values, need_weights=False)
    assert nothing is None and torch.allclose(output, again) and torch.allclose(output, plain, atol=1e-12)
    group.add(
        case,
        arguments={"embed_dim": E, "num_heads": H, **arguments},
        weights=prefix,
        inputs=inputs,
        options={"is_causal": True} if "causal" in mask_name else {},
        outputs={"output": output, "weights": weights, "weights_average": average},
    )
