"""models/whisper.py against transformers."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import lucid
from lucid import Tensor, nn
from lucid.export import to_onnx
from lucid.models import whisper as program
from lucid.models.checkpoints.pretrained import ConfigError
from lucid.models.whisper import Whisper
from lucid.runtime import Session
from tests.models import goldens

VARIANTS = ["whisper/base", "whisper/uneven"]


class Everything(nn.Module):
    """Logits and hidden states of one run, all as outputs of one exported model."""

    def __init__(self, whisper: Whisper) -> None:
        self.whisper = whisper

    def forward(self, input_features: Tensor, decoder_input_ids: Tensor) -> dict[str, Tensor]:
        encoder, decoder = self.whisper.model.encoder, self.whisper.model.decoder
        speech = encoder(input_features)
        halves = {
            "encoder": encoder.hidden_states(input_features),
            "decoder": decoder.hidden_states(decoder_input_ids, speech),
        }
        return {
            "logits": self.whisper(input_features, decoder_input_ids),
            "encoder.last_hidden_state": speech,
            "decoder.last_hidden_state": decoder(decoder_input_ids, speech),
            **{f"{side}.hidden_states.{i}": x for side, states in halves.items() for i, x in enumerate(states)},
        }

    def input_specs(self):  # type: ignore[no-untyped-def]
        return self.whisper.input_specs()


def compare(case: goldens.Case, answers: dict[str, object]) -> None:
    """All hidden states within 1e-5, logits within 2e-5."""
    assert answers.keys() == case.outputs.keys()
    for name, answer in answers.items():
        case.close(name, answer, rtol=2e-5 if name == "logits" else 1e-5)


@pytest.mark.parametrize("variant", VARIANTS)
def test_hidden_states_and_logits_are_those_of_transformers(variant: str) -> None:
    model = Everything(Whisper.from_pretrained(goldens.folder(variant)))
    for case in goldens.cases(variant):
        compare(case, model(**{name: Tensor(array) for name, array in case.inputs.items()}))


@pytest.mark.parametrize("target", ["any", "portable"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_model_exported_once_gives_the_same_at_all_sizes(variant: str, target: str) -> None:
    session = Session(to_onnx(Everything(Whisper.from_pretrained(goldens.folder(variant))), target=target))
    for case in goldens.cases(variant):
        compare(case, session.run(case.inputs))


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_exported_model_carries_the_names_of_the_checkpoint(variant: str) -> None:
    model = to_onnx(Whisper.from_pretrained(goldens.folder(variant)))
    names = {initializer.name.removesuffix(".T") for initializer in model.graph.initializer}
    assert set(lucid.load(goldens.folder(variant))) <= names


def test_a_layer_is_lean() -> None:
    nodes = to_onnx(Whisper.from_pretrained(goldens.folder("whisper/base"))).graph.node
    for half, most in (("encoder", 17), ("decoder", 27)):
        layer = Counter(node.op_type for node in nodes if node.name.startswith(f"model.{half}.layers.1"))
        assert 0 < layer.total() <= most, layer


def test_a_token_sees_those_before_it_and_all_of_the_speech() -> None:
    whisper = Whisper.from_pretrained(goldens.folder("whisper/base"))
    speech, ids = lucid.randn(1, 8, 20), lucid.tensor([[1, 5, 9]])
    logits = whisper(speech, ids)
    np.testing.assert_allclose(whisper(speech, ids[:, :2]), logits[:, :2], rtol=1e-4, atol=1e-5)
    louder = lucid.ops.concat([speech[..., :-1], speech[..., -1:] + 1], 2)
    assert abs(whisper(louder, ids) - logits).amax(-1).min().item() > 1e-5


def test_the_output_layer_is_the_table_of_tokens_unless_the_checkpoint_has_another(tmp_path: Path) -> None:
    """As in transformers 5, a stored layer with other numbers counts, whatever tie_word_embeddings says."""
    folder = goldens.copied("whisper/base", tmp_path)
    arrays = dict(lucid.load(folder))
    table = arrays["model.decoder.embed_tokens.weight"]
    lucid.save(folder / "model.safetensors", arrays | {"proj_out.weight": table})
    assert "proj_out.weight" not in Whisper.from_pretrained(folder).state_dict()
    lucid.save(folder / "model.safetensors", arrays | {"proj_out.weight": 2 * table})
    features, ids = lucid.randn(1, 8, 20), lucid.tensor([[1, 5]])
    logits = Whisper.from_pretrained(goldens.folder("whisper/base"))(features, ids)
    options = json.loads((config := folder / "config.json").read_text())
    for tied in (True, False):
        config.write_text(json.dumps(options | {"tie_word_embeddings": tied}))
        np.testing.assert_allclose(Whisper.from_pretrained(folder)(features, ids), 2 * logits, rtol=1e-6)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "wav2vec2"}, "model_type is 'wav2vec2', supported: whisper"),
        ({"activation_function": "mish"}, "activation_function is 'mish', supported: gelu"),
        ({"is_encoder_decoder": False}, "is_encoder_decoder is False, supported: True"),
        ({"d_model": None}, "d_model is null, expected int"),
        ({"num_mel_bins": 8.5}, "num_mel_bins is 8.5, expected int"),
    ],
)
def test_an_option_that_is_not_supported_is_named(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Whisper.from_pretrained(goldens.copied("whisper/base", tmp_path, **changes))


def test_an_option_that_no_implementation_reads_changes_nothing(tmp_path: Path) -> None:
    scaled = Whisper.from_pretrained(goldens.copied("whisper/base", tmp_path, scale_embedding=True))
    (case, *_) = goldens.cases("whisper/base")
    inputs = {name: Tensor(array) for name, array in case.inputs.items()}
    case.close("logits", scaled(**inputs), rtol=2e-5)


def test_all_keys_that_do_not_fit_are_listed_at_once(tmp_path: Path) -> None:
    folder = goldens.copied("whisper/base", tmp_path)
    arrays = dict(lucid.load(folder))
    del arrays["model.encoder.conv1.bias"]
    arrays["model.decoder.layers.0.self_attn.k_proj.bias"] = np.zeros(16, np.float32)
    arrays["model.encoder.embed_positions.weight"] = np.zeros((9, 16), np.float32)
    lucid.save(folder / "model.safetensors", arrays)
    with pytest.raises(KeyError) as error:
        Whisper.from_pretrained(folder)
    for part in (
        "missing: model.encoder.conv1.bias",
        "unexpected: model.decoder.layers.0.self_attn.k_proj.bias",
        "model.encoder.embed_positions.weight has shape [9, 16], expected [10, 16]",
    ):
        assert part in str(error.value)


def test_inputs_that_do_not_fit_are_refused() -> None:
    whisper = Whisper.from_pretrained(goldens.folder("whisper/base"))
    features = lucid.zeros(1, 8, 20)
    with pytest.raises(
        ValueError, match=r"input_features has shape \[1, 8, 19\], expected \(N, 8, 20\): pad the sound"
    ):
        whisper(lucid.zeros(1, 8, 19), lucid.tensor([[1]]))
    with pytest.raises(ValueError, match="17 positions, the table 16"):
        whisper(features, lucid.zeros(1, 17, dtype=lucid.int64))
    with pytest.raises(IndexError, match="the table has 40 rows"):
        whisper(features, lucid.tensor([[-1]]))


def test_the_program_writes_a_text(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["whisper"])
    program.main()
    assert re.match(r"token ids \[1(, \d+){8}\], largest difference .* \d\.\de-0[678]$", capsys.readouterr().out)
