"""nn.TransformerEncoderLayer, DecoderLayer, Encoder, Decoder, Transformer; groups.py says how the values are made."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

import torch
from torch import Tensor, nn

from .core import first, normal
from .groups import Group

N, T, S, E, H, FF = 2, 4, 5, 16, 4, 24
SHARED = {"d_model": E, "nhead": H, "dim_feedforward": FF, "dropout": 0.0}
ABOUT = (
    "Boolean masks: True = not allowed. Cases with an is_causal option also store the mask torch wants "
    "beside it: pass "
    "either, the answer is the same. batch_first is always among the arguments."
)


def masks(group: Group) -> None:
    source = torch.tensor([[0, 0, 0, 1, 1], [0, 1, 0, 0, 0]]).bool()
    target = torch.tensor([[0, 0, 0, 0], [0, 0, 1, 1]]).bool()
    infinity = float("-inf")
    tensors = {
        "src_float": normal((S, S), 500),
        "src_bool": torch.rand((S, S), generator=torch.Generator().manual_seed(13)) < 0.4,
        "src_causal": torch.zeros(S, S).masked_fill(torch.ones(S, S).triu(1).bool(), infinity),
        "src_padding": source,
        "src_padding_float": normal((N, S), 501).masked_fill(source, infinity),
        "tgt_causal": torch.zeros(T, T).masked_fill(torch.ones(T, T).triu(1).bool(), infinity),
        "tgt_causal_bool": torch.ones(T, T).triu(1).bool(),
        "tgt_float": normal((T, T), 502),
        "tgt_padding": target,
        "memory_float": normal((T, S), 503),
        "memory_bool": torch.rand((T, S), generator=torch.Generator().manual_seed(14)) < 0.4,
    }
    for name in ("src_bool", "memory_bool"):
        tensors[name][:, 0] = False  # a key that every query sees, in both rows of src_padding too
    for name, value in tensors.items():
        group.tensor(f"mask.{name}", value)


def layer_grid() -> dict[str, dict[str, object]]:
    """norm_first x activation x bias, batch first; two sequence first; one with a large layer_norm_eps."""
    grid: dict[str, dict[str, object]] = {}
    for early, activation, bias in product((False, True), ("relu", "gelu"), (True, False)):
        name = f"{'pre' if early else 'post'}_{activation}{'' if bias else '_bare'}"
        grid[name] = {"norm_first": early, "activation": activation, "bias": bias, "batch_first": True}
    for name in ("post_relu", "pre_gelu"):
        grid[f"{name}_sequence_first"] = grid[name] | {"batch_first": False}
    return grid | {"post_gelu_eps": grid["post_gelu"] | {"layer_norm_eps": 0.1}}


def sequence(group: Group, name: str, length: int, batch_first: bool, seed: int) -> str:
    key = name if batch_first else f"{name}_sequence_first"
    value = normal((N, length, E), seed)
    return group.tensor(key, value if batch_first else value.transpose(0, 1))


def run(
    group: Group,
    case: str,
    module: nn.Module,
    arguments: Mapping[str, object],
    weights: str,
    inputs: Mapping[str, str],
    options: Mapping[str, object],
    layers: Mapping[str, nn.ModuleList] | None = None,
) -> None:
    """Run one case; the output of the i-th of `layers` is recorded as hidden_states.<i>, from 1 on."""
    seen: dict[str, Tensor] = {}
    hooks = []
    for prefix, stack in (layers or {}).items():
        for i, layer in enumerate(stack, start=1):
            key = f"{prefix}hidden_states.{i}"
            hooks.append(layer.register_forward_hook(lambda _m, _a, out, key=key: seen.__setitem__(key, first(out))))
    output = module(**{name: group.get(key) for name, key in inputs.items()}, **options)
    for hook in hooks:
        hook.remove()
    outputs = {"output": output, **seen}
    group.add(case, arguments=arguments, weights=weights, inputs=inputs, options=options, outputs=outputs)


def source_cases(prefix: str, padding: str) -> dict[str, tuple[dict[str, str], dict[str, object]]]:
    """Masks of an encoder; the stack calls src_mask `mask`."""
    return {
        "none": ({}, {}),
        "float": ({prefix: "mask.src_float"}, {}),
        "bool": ({prefix: "mask.src_bool"}, {}),
        "causal": ({prefix: "mask.src_causal"}, {"is_causal": True}),
        "padding": ({padding: "mask.src_padding"}, {}),
        "float_and_padding": ({prefix: "mask.src_float", padding: "mask.src_padding_float"}, {}),
        "bool_and_padding": ({prefix: "mask.src_bool", padding: "mask.src_padding"}, {}),
    }


def target_cases() -> dict[str, tuple[dict[str, str], dict[str, object]]]:
    causal = {"tgt_mask": "mask.tgt_causal"}
    return {
        "none": ({}, {}),
        "causal": (causal, {"tgt_is_causal": True}),
        "tgt_float": ({"tgt_mask": "mask.tgt_float"}, {}),
        "memory_float": ({"memory_mask": "mask.memory_float"}, {}),
        "memory_bool": ({"memory_mask": "mask.memory_bool"}, {}),
        "tgt_padding": ({"tgt_key_padding_mask": "mask.tgt_padding"}, {}),
        "memory_padding": ({"memory_key_padding_mask": "mask.src_padding"}, {}),
        "all_bool": (
            {
                "tgt_mask": "mask.tgt_causal_bool",
                "memory_mask": "mask.memory_bool",
                "tgt_key_padding_mask": "mask.tgt_padding",
                "memory_key_padding_mask": "mask.src_padding",
            },
            {},
        ),
    }


def encoder_layer() -> Group:
    group = Group(f"nn.TransformerEncoderLayer(**arguments), src (N, 5, 16). {ABOUT}")
    masks(group)
    for i, (config, flags) in enumerate(layer_grid().items()):
        arguments = SHARED | flags
        module = nn.TransformerEncoderLayer(**arguments)
        weights = group.weights(config, module, 600 + i)
        src = {"src": sequence(group, "src", S, bool(flags["batch_first"]), 510)}
        for name, (inputs, options) in source_cases("src_mask", "src_key_padding_mask").items():
            run(group, f"{config}/{name}", module, arguments, weights, src | inputs, options)
    return group


def decoder_layer() -> Group:
    group = Group(f"nn.TransformerDecoderLayer(**arguments), tgt (N, 4, 16), memory (N, 5, 16). {ABOUT}")
    masks(group)
    for i, (config, flags) in enumerate(layer_grid().items()):
        arguments = SHARED | flags
        module = nn.TransformerDecoderLayer(**arguments)
        weights = group.weights(config, module, 650 + i)
        early = bool(flags["batch_first"])
        both = {"tgt": sequence(group, "tgt", T, early, 511), "memory": sequence(group, "memory", S, early, 512)}
        for name, (inputs, options) in target_cases().items():
            run(group, f"{config}/{name}", module, arguments, weights, both | inputs, options)
    return group


def stack_grid() -> dict[str, tuple[dict[str, object], bool]]:
    """Arguments of the layer, and whether a final norm follows the two layers."""
    grid = layer_grid()
    return {
        "post_relu": (grid["post_relu"], False),
        "post_gelu_norm": (grid["post_gelu"], True),
        "pre_relu_bare": (grid["pre_relu_bare"], False),
        "pre_gelu_norm": (grid["pre_gelu"], True),
        "pre_gelu_norm_sequence_first": (grid["pre_gelu_sequence_first"], True),
    }


def encoder() -> Group:
    group = Group(
        "nn.TransformerEncoder(nn.TransformerEncoderLayer(**arguments['layer']), num_layers, "
        "norm=LayerNorm(16) if "
        f"arguments['norm'] else None), src (N, 5, 16); hidden_states.<i> is what the i-th layer returns. "
        f"{ABOUT}"
    )
    masks(group)
    for i, (config, (flags, normed)) in enumerate(stack_grid().items()):
        layer = SHARED | flags
        norm = nn.LayerNorm(E) if normed else None
        module = nn.TransformerEncoder(nn.TransformerEncoderLayer(**layer), 2, norm, enable_nested_tensor=False)
        weights = group.weights(config, module, 700 + i)
        src = {"src": sequence(group, "src", S, bool(flags["batch_first"]), 513)}
        arguments = {"layer": layer, "num_layers": 2, "norm": normed}
        for name, (inputs, options) in source_cases("mask", "src_key_padding_mask").items():
            run(group, f"{config}/{name}", module, arguments, weights, src | inputs, options, {"": module.layers})
    return group


def decoder() -> Group:
    group = Group(
        "nn.TransformerDecoder(nn.TransformerDecoderLayer(**arguments['layer']), num_layers, "
        "norm=LayerNorm(16) if "
        "arguments['norm'] else None), tgt (N, 4, 16), memory (N, 5, 16); hidden_states.<i> is what the i-th "
        "layer "
        f"returns. {ABOUT}"
    )
    masks(group)
    for i, (config, (flags, normed)) in enumerate(stack_grid().items()):
        layer = SHARED | flags
        norm = nn.LayerNorm(E) if normed else None
        module = nn.TransformerDecoder(nn.TransformerDecoderLayer(**layer), 2, norm)
        weights = group.weights(config, module, 750 + i)
        early = bool(flags["batch_first"])
        both = {"tgt": sequence(group, "tgt", T, early, 514), "memory": sequence(group, "memory", S, early, 515)}
        arguments = {"layer": layer, "num_layers": 2, "norm": normed}
        for name, (inputs, options) in target_cases().items():
            run(group, f"{config}/{name}", module, arguments, weights, both | inputs, options, {"": module.layers})
    return group


def transformer() -> Group:
    group = Group(
        "nn.Transformer(**arguments): both stacks end in a LayerNorm of their own (encoder.norm, "
        "decoder.norm), "
        "whatever norm_first is. src (N, 5, 16), tgt (N, 4, 16); encoder.hidden_states.<i> and "
        f"decoder.hidden_states.<i> are what the i-th layer returns. {ABOUT}"
    )
    masks(group)
    grid = layer_grid()
    chosen = {
        "post_relu": grid["post_relu"] | {"num_decoder_layers": 1},
        "pre_gelu": grid["pre_gelu"] | {"num_encoder_layers": 1},
        "pre_relu_bare": grid["pre_relu_bare"] | {"num_encoder_layers": 1, "num_decoder_layers": 1},
        "post_relu_sequence_first": grid["post_relu_sequence_first"]
        | {"num_encoder_layers": 1, "num_decoder_layers": 1},
    }
    cases = target_cases() | {
        "src_float": ({"src_mask": "mask.src_float", "src_key_padding_mask": "mask.src_padding_float"}, {}),
        "src_causal": ({"src_mask": "mask.src_causal"}, {"src_is_causal": True}),
    }
    everything, options = cases["all_bool"]
    extra = {"src_mask": "mask.src_bool", "src_key_padding_mask": "mask.src_padding"}
    cases["all_bool"] = (everything | extra, options)
    for i, (config, flags) in enumerate(chosen.items()):
        arguments = SHARED | {"num_encoder_layers": 2, "num_decoder_layers": 2} | flags
        module = nn.Transformer(**arguments)
        weights = group.weights(config, module, 800 + i)
        early = bool(flags["batch_first"])
        both = {"src": sequence(group, "src", S, early, 516), "tgt": sequence(group, "tgt", T, early, 517)}
        stacks = {"encoder.": module.encoder.layers, "decoder.": module.decoder.layers}
        for name, (inputs, case_options) in cases.items():
            run(group, f"{config}/{name}", module, arguments, weights, both | inputs, case_options, stacks)
    return group
