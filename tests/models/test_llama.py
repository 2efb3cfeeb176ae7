"""models/llama.py against transformers: Llama and its variations."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import lucid
from lucid import Tensor, nn
from lucid.export import to_onnx
from lucid.models.checkpoints.pretrained import ConfigError
from lucid.models.llama import Llama
from lucid.models.parts.demonstration import continue_text
from lucid.runtime import Session
from tests.models import goldens

VARIANTS = [
    *("llama/llama2", "llama/llama3", "llama/linear", "llama/dynamic", "llama/yarn", "llama/bfloat16_sharded"),
    *("mistral/full", "mistral/window", "qwen2/tied", "qwen2/window", "qwen3/base", "qwen3/yarn"),
    *("smollm3/base", "granite/base", "helium/base", "olmo2/base"),
]


class Everything(nn.Module):
    """Logits and hidden states of one run, all as outputs of one exported model."""

    def __init__(self, llama: Llama) -> None:
        self.llama = llama

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> dict[str, Tensor]:
        states = self.llama.hidden_states(input_ids, attention_mask)
        named = {f"hidden_states.{i}": state for i, state in enumerate(states)}
        return {"logits": self.llama(input_ids, attention_mask), **named}

    def input_specs(self):  # type: ignore[no-untyped-def]
        return self.llama.input_specs()


def compare(case: goldens.Case, answers: dict[str, object]) -> None:
    """All hidden states within 1e-5, logits within 2e-5."""
    assert answers.keys() == {name for name in case.outputs if re.match("logits|hidden_states", name)}
    for name, answer in answers.items():
        case.close(name, answer, rtol=2e-5 if name == "logits" else 1e-5)


@pytest.mark.parametrize("variant", VARIANTS)
def test_hidden_states_and_logits_are_those_of_transformers(variant: str) -> None:
    model = Everything(Llama.from_pretrained(goldens.folder(variant)))
    for case in goldens.cases(variant):
        compare(case, model(**{name: Tensor(array) for name, array in case.inputs.items()}))


@pytest.mark.parametrize("target", ["any", "portable"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_model_exported_once_gives_the_same_at_all_sizes(variant: str, target: str) -> None:
    session = Session(to_onnx(Everything(Llama.from_pretrained(goldens.folder(variant))), target=target))
    for case in goldens.cases(variant):
        compare(case, session.run(goldens.with_mask(case.inputs)))


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_exported_model_carries_the_names_of_the_checkpoint(variant: str) -> None:
    model = to_onnx(Llama.from_pretrained(goldens.folder(variant)))
    names = {initializer.name.removesuffix(".T") for initializer in model.graph.initializer}
    assert set(lucid.load(goldens.folder(variant))) <= names


@pytest.mark.parametrize(
    ("variant", "most"),
    # More than Llama: one Add for each bias, and two reshapes and a norm each for the heads of queries and keys.
    [("llama/llama2", 17), ("llama/llama3", 17), ("mistral/window", 17), ("qwen2/tied", 20), ("qwen3/base", 23)],
)
def test_a_layer_is_lean(variant: str, most: int) -> None:
    nodes = to_onnx(Llama.from_pretrained(goldens.folder(variant))).graph.node
    layer = Counter(node.op_type for node in nodes if node.name.startswith("model.layers.1"))
    assert 0 < layer.total() <= most, layer
    assert sum(node.op_type == "Shape" for node in nodes) <= 2


def test_half_precision_weights_stay_as_they_are() -> None:
    llama = Llama.from_pretrained(goldens.folder("llama/llama3"), dtype=lucid.float16)
    assert {parameter.dtype for parameter in llama.parameters()} == {lucid.float16}
    exact = Llama.from_pretrained(goldens.folder("llama/llama3"))
    ids = lucid.tensor([[3, 1, 4, 1, 5]])
    assert llama(ids).dtype == lucid.float16
    difference = abs(llama(ids).astype(lucid.float32) - exact(ids)).max().item()
    assert difference < 0.02 * abs(exact(ids)).max().item()
    session = Session(to_onnx(llama))
    assert abs(session(ids, lucid.ones(1, 5, dtype=lucid.int64)) - llama(ids)).max().item() < 0.02


def test_a_query_sees_no_more_than_its_window() -> None:
    """Two layers of window 4 reach 6 tokens back: an earlier token changes nothing."""
    mistral = Llama.from_pretrained(goldens.folder("mistral/window"))
    ids = np.arange(13)[None] + 1
    other = np.concatenate([[[30] * 6], ids[:, 6:]], 1)
    np.testing.assert_array_equal(mistral(lucid.tensor(ids))[:, -1], mistral(lucid.tensor(other))[:, -1])
    other[:, 6] = 30
    assert abs(mistral(lucid.tensor(ids)) - mistral(lucid.tensor(other)))[:, -1].max().item() > 1e-6


@pytest.mark.parametrize(
    ("variant", "changes", "message"),
    [
        ("llama/llama2", {"model_type": "gpt2"}, "model_type is 'gpt2', supported: llama, mistral, qwen2, qwen3"),
        ("llama/llama2", {"hidden_act": "mish"}, "hidden_act is 'mish', supported: gelu"),
        ("llama/llama2", {"vocab_size": None}, "vocab_size is null, expected int"),
        ("llama/llama2", {"attention_bias": "yes"}, "attention_bias is 'yes', expected bool"),
        ("llama/llama2", {"sliding_window": 8}, "sliding_window is 8, supported for llama: null, or 64 and"),
        ("llama/llama2", {"quantization_config": {"bits": 4}}, "quantization_config: option quant_method is missing"),
        ("llama/llama2", {"rope_parameters": {"rope_type": "longrope", "factor": 2.0}}, "rope_type is 'longrope'"),
        (
            "llama/llama2",
            {"rope_parameters": {"partial_rotary_factor": 0.5}},
            "partial_rotary_factor is 0.5, supported: 1.0",
        ),
        ("llama/llama2", {"rope_parameters": {"rope_type": "linear"}}, "rope_parameters: option factor is missing"),
        ("llama/llama2", {"rope_scaling": {"rope_type": "linear", "factor": 2.0}}, "rope_parameters = "),
        ("llama/llama2", {"is_causal": False}, "not supported here.*is_causal = False"),
        (
            "llama/llama2",
            {"layer_types": ["sliding_attention"] * 2},
            "layer_types is .*, supported for llama: 2 of full",
        ),
        ("mistral/full", {"num_key_value_heads": None}, "num_key_value_heads is null, expected int"),
        ("qwen2/window", {"sliding_window": None}, "sliding_window is null, expected int"),
        ("qwen2/window", {"layer_types": ["full_attention"]}, "layer_types is .*, supported: 2 of full_attention or"),
        ("qwen3/base", {"layer_types": ["chunked_attention"] * 2}, "layer_types is .'chunked_attention'"),
        ("qwen3/base", {"head_dim": None}, "head_dim is null, expected int"),
        ("smollm3/base", {"no_rope_layers": [1, 0]}, r"no_rope_layers is \[1, 0\], expected 3 of 0 or 1"),
        ("granite/base", {"logits_scaling": 0}, "logits_scaling is 0, expected a number from 1e-09"),
    ],
)
def test_an_option_that_is_not_supported_is_named(
    tmp_path: Path, variant: str, changes: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        Llama.from_pretrained(goldens.copied(variant, tmp_path, **changes))


@pytest.mark.parametrize("slides", [False, True])
def test_layers_of_smollm3_that_are_named_slide_whatever_the_default_is(tmp_path: Path, slides: bool) -> None:
    """As in transformers, where use_sliding_window says which layers slide if none are named."""
    kinds = ["sliding_attention", "full_attention", "full_attention"]
    options = {"layer_types": kinds, "sliding_window": 3, "use_sliding_window": slides}
    folder = goldens.copied("smollm3/base", tmp_path, **options)
    assert Llama.from_pretrained(folder).config.windows == (3, None, None)


def test_mistral_without_a_word_on_its_window_has_that_of_transformers(tmp_path: Path) -> None:
    folder = goldens.copied("mistral/full", tmp_path)
    config = json.loads((folder / "config.json").read_text())
    del config["sliding_window"]
    (folder / "config.json").write_text(json.dumps(config))
    assert set(Llama.from_pretrained(folder).config.windows) == {4096}


def test_all_keys_that_do_not_fit_are_listed_at_once(tmp_path: Path) -> None:
    folder = goldens.folder("qwen3/base")
    shutil.copy(folder / "config.json", tmp_path / "config.json")
    arrays = dict(lucid.load(folder))
    del arrays["model.norm.weight"]
    arrays["model.layers.0.self_attn.q_proj.bias"] = np.zeros(32, np.float32)
    arrays["model.layers.1.self_attn.k_norm.weight"] = np.zeros(7, np.float32)
    lucid.save(tmp_path / "model.safetensors", arrays)
    with pytest.raises(KeyError) as error:
        Llama.from_pretrained(tmp_path)
    for part in (
        "missing: model.norm.weight",
        "unexpected: model.layers.0.self_attn.q_proj.bias",
        "model.layers.1.self_attn.k_norm.weight has shape [7], expected [8]",
    ):
        assert part in str(error.value)


def test_a_checkpoint_of_the_decoder_alone_and_a_stored_copy_of_the_tied_table_are_read(tmp_path: Path) -> None:
    folder = goldens.folder("llama/llama3")
    shutil.copy(folder / "config.json", tmp_path / "config.json")
    stored = lucid.load(folder)
    bare = {name.removeprefix("model."): array for name, array in stored.items()}
    bare |= {"lm_head.weight": bare["embed_tokens.weight"], "layers.0.self_attn.rotary_emb.inv_freq": np.zeros(4)}
    lucid.save(tmp_path / "model.safetensors", bare)
    for name, tensor in Llama.from_pretrained(tmp_path).state_dict().items():
        np.testing.assert_array_equal(tensor, stored[name])


def test_a_token_outside_the_vocabulary_is_refused() -> None:
    llama = Llama.from_pretrained(goldens.folder("llama/llama2"))
    with pytest.raises(IndexError, match="the table has 40 rows"):
        llama(lucid.tensor([[3, 40]]))


def test_the_program_continues_a_text(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["llama"])
    continue_text(Llama, "llama/llama3", 1, 11, 7)
    assert re.match(r"token ids \[1, 11, 7(, \d+){8}\], largest difference .* \d\.\de-0[678]$", capsys.readouterr().out)
