"""Compared with torch.nn over all flags, with torch's weights: see goldens/README.md."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from lucid import Tensor, nn
from lucid.files.weights import load
from lucid.nn import functional as F
from tests.cases import in_one_test

FOLDER = Path(__file__).parent / "goldens" / "torch_nn"
GROUPS = {path.stem: json.loads(path.read_text())["cases"] for path in sorted(FOLDER.glob("*.json"))}
ARRAYS = {group: load(FOLDER / f"{group}.safetensors") for group in GROUPS}
INPUTS = {group: {key for case in cases.values() for key in case["inputs"].values()} for group, cases in GROUPS.items()}
CASES = [(group, name) for group, cases in GROUPS.items() for name in cases]

# The causal mask is stored with the option, since torch needs both; here they cannot be combined.
CAUSAL = {
    "is_causal": ("attn_mask", "src_mask", "mask"),
    "src_is_causal": ("src_mask",),
    "tgt_is_causal": ("tgt_mask",),
}


class Case(NamedTuple):
    """One call of torch: its inputs and outputs."""

    arguments: dict[str, Any]
    state: dict[str, Any]
    inputs: dict[str, Any]
    options: dict[str, Any]
    outputs: dict[str, np.ndarray[Any, Any]]


def read(group: str, name: str) -> Case:
    entry, arrays = GROUPS[group][name], ARRAYS[group]
    prefix, input_keys = f"{entry['weights']}.", INPUTS[group]
    state = {
        key.removeprefix(prefix): arrays[key] for key in arrays if key.startswith(prefix) and key not in input_keys
    }
    inputs = {argument: Tensor(arrays[key]) for argument, key in entry["inputs"].items()}
    outputs = {output: arrays[key] for output, key in entry["outputs"].items()}
    return Case(entry["arguments"], state, inputs, entry["options"], outputs)


def without_second_mask(case: Case) -> dict[str, Any]:
    """The inputs without the masks that repeat an is_causal option."""
    doubled = {mask for option in CAUSAL if case.options.get(option) for mask in CAUSAL[option]}
    return {name: tensor for name, tensor in case.inputs.items() if name not in doubled}


def close(got: Tensor, expected: np.ndarray[Any, Any]) -> None:
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-5, atol=2e-6)


def named(group: str) -> list[str]:
    return list(GROUPS[group])


@in_one_test(named("scaled_dot_product_attention"))
def test_scaled_dot_product_attention(name: str) -> None:
    case = read("scaled_dot_product_attention", name)
    close(F.scaled_dot_product_attention(**without_second_mask(case), **case.options), case.outputs["output"])


@in_one_test(named("multi_head_attention_forward"))
def test_multi_head_attention_forward(name: str) -> None:
    case = read("multi_head_attention_forward", name)
    inputs = without_second_mask(case)
    output, weights = F.multi_head_attention_forward(**inputs, **case.options, average_attn_weights=False)
    close(output, case.outputs["output"])
    assert weights is not None
    close(weights, case.outputs["weights"])
    _, averaged = F.multi_head_attention_forward(**inputs, **case.options)
    assert averaged is not None
    close(averaged, case.outputs["weights_average"])


@in_one_test(named("multihead_attention"))
def test_multi_head_attention(name: str) -> None:
    case = read("multihead_attention", name)
    module = nn.MultiHeadAttention(**case.arguments)
    module.load_state_dict(case.state)
    inputs = without_second_mask(case)
    output, weights = module(**inputs, **case.options, need_weights=True, average_attn_weights=False)
    close(output, case.outputs["output"])
    close(weights, case.outputs["weights"])
    output, averaged = module(**inputs, **case.options, need_weights=True)
    close(averaged, case.outputs["weights_average"])
    close(module(**inputs, **case.options), case.outputs["output"])


MASKED_TWICE = [name for name in named("multihead_attention") if GROUPS["multihead_attention"][name]["options"]]


@in_one_test(MASKED_TWICE)
def test_causal_option_and_causal_mask_say_the_same(name: str) -> None:
    case = read("multihead_attention", name)
    module = nn.MultiHeadAttention(**case.arguments)
    module.load_state_dict(case.state)
    close(module(**case.inputs), case.outputs["output"])


LAYERS: dict[str, type[nn.Module]] = {
    "transformer": nn.Transformer,
    "transformer_encoder_layer": nn.TransformerEncoderLayer,
    "transformer_decoder_layer": nn.TransformerDecoderLayer,
}


@in_one_test([case for case in CASES if case[0] in LAYERS])
def test_transformer_layer(names: tuple[str, str]) -> None:
    group, case = names[0], read(*names)
    module = LAYERS[group](**case.arguments)
    module.load_state_dict(case.state)
    close(module.eval()(**without_second_mask(case), **case.options), case.outputs["output"])


@pytest.mark.parametrize("group", ["transformer_encoder", "transformer_decoder"])
def test_transformer_stack(group: str) -> None:
    for case_name in GROUPS[group]:
        case = read(group, case_name)
        options = case.arguments["layer"]
        norm = nn.LayerNorm(options["d_model"]) if case.arguments["norm"] else None
        count = case.arguments["num_layers"]
        stack: nn.TransformerEncoder | nn.TransformerDecoder
        if group == "transformer_encoder":
            stack = nn.TransformerEncoder(nn.TransformerEncoderLayer(**options), count, norm)
        else:
            stack = nn.TransformerDecoder(nn.TransformerDecoderLayer(**options), count, norm)
        stack.load_state_dict(case.state)
        inputs = without_second_mask(case)
        close(stack.eval()(**inputs, **case.options), case.outputs["output"])

        # Layer by layer: the goldens hold the output of each.
        first, *rest = inputs
        x = inputs[first]
        for index, layer in enumerate(stack.layers, start=1):
            arguments = {"src_mask" if name == "mask" else name: inputs[name] for name in rest}
            x = layer(x, **arguments, **case.options)
            close(x, case.outputs[f"hidden_states.{index}"])


@in_one_test(named("recurrent"))
def test_recurrent(name: str) -> None:
    case = read("recurrent", name)
    kind: type[nn.LSTM | nn.GRU | nn.RNN] = getattr(nn, name.replace(",", "").split()[0])
    module = kind(**case.arguments)
    module.load_state_dict(case.state)
    x, *states = case.inputs.values()
    hx = None if not states else tuple(states) if kind is nn.LSTM else states[0]
    output, last = module(x, hx, **case.options)
    last = last if isinstance(last, tuple) else (last,)
    for got, expected in zip((output, *last), case.outputs.values(), strict=True):
        close(got, expected)


@in_one_test(named("sampling"))
def test_windows_and_places_of_images(name: str) -> None:
    case = read("sampling", name)
    close(getattr(F, name.split()[0])(*case.inputs.values(), **case.options), case.outputs["output"])


def test_the_whole_grid_is_there() -> None:
    assert {group: len(cases) for group, cases in GROUPS.items()} == {
        "multi_head_attention_forward": 23,
        "multihead_attention": 300,
        "recurrent": 47,
        "sampling": 36,
        "scaled_dot_product_attention": 26,
        "transformer": 40,
        "transformer_decoder": 40,
        "transformer_decoder_layer": 88,
        "transformer_encoder": 35,
        "transformer_encoder_layer": 77,
    }
