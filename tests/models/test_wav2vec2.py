"""models/wav2vec2.py and its heads against transformers: wav2vec 2.0 and HuBERT."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import lucid
from lucid.models.checkpoints.pretrained import ConfigError
from lucid.models.wav2vec2 import (
    Wav2Vec2,
    Wav2Vec2ForCTC,
    Wav2Vec2ForSequenceClassification,
    Wav2Vec2ForXVector,
    XVectorConfig,
)
from lucid.testing import assert_parity
from tests.models import goldens


@pytest.mark.parametrize(
    "variant",
    ["wav2vec2/base", "wav2vec2/ctc", "wav2vec2/classifier", "hubert/base", "hubert/ctc", "wavlm/base", "wavlm/ctc"],
)
def test_hidden_states_are_those_of_transformers(variant: str) -> None:
    model = Wav2Vec2.from_pretrained(goldens.folder(variant))
    for case in goldens.cases(variant):
        states = model.encoder.hidden_states(*model.frames(**{k: lucid.Tensor(v) for k, v in case.inputs.items()}))
        for index, state in enumerate(states):
            case._replace(kept=None).close(f"hidden_states.{index}", state, rtol=5e-6)


def test_with_a_mask_a_padded_sound_is_the_sound_alone() -> None:
    model = Wav2Vec2ForCTC.from_pretrained(goldens.folder("wav2vec2/ctc"))
    sound, mask = np.zeros((1, 200), np.float32), np.zeros((1, 200), np.int64)
    sound[:, :101], mask[:, :101] = np.random.default_rng(0).normal(size=101), 1
    alone, padded = model(lucid.Tensor(sound[:, :101])), model(lucid.Tensor(sound), lucid.Tensor(mask))
    np.testing.assert_allclose(padded[:, : alone.shape[1]].numpy(), alone.numpy(), atol=2e-5)


def test_both_names_of_the_weight_norm_are_read(tmp_path: Path) -> None:
    folder = goldens.copied("wav2vec2/ctc", tmp_path)
    stored = dict(lucid.load(folder))
    at = "wav2vec2.encoder.pos_conv_embed.conv."
    stored[f"{at}parametrizations.weight.original0"] = stored.pop(f"{at}weight_g")
    stored[f"{at}parametrizations.weight.original1"] = stored.pop(f"{at}weight_v")
    lucid.save(folder / "model.safetensors", stored)
    new, old = (lucid.models.load(source).state_dict() for source in (folder, goldens.folder("wav2vec2/ctc")))
    assert new.keys() == old.keys()
    assert all(np.array_equal(new[name].numpy(), old[name].numpy()) for name in new)


def test_a_filter_has_its_length_and_its_direction() -> None:
    norm = Wav2Vec2.from_pretrained(goldens.folder("wav2vec2/base")).encoder.pos_conv_embed.conv.parametrizations[
        "weight"
    ]
    weight, length, direction = (x.numpy() for x in (norm(), norm.original0, norm.original1))
    np.testing.assert_allclose(np.sqrt((weight**2).sum((0, 1))), abs(length[0, 0]), rtol=1e-6)
    assert (np.sign(weight) == np.sign(direction) * np.sign(length)).all()


@pytest.mark.parametrize(
    ("variant", "inputs"), [("hubert/base", ["input_values"]), ("hubert/ctc", ["input_values", "attention_mask"])]
)
def test_a_mask_is_an_input_of_models_that_are_trained_with_one(variant: str, inputs: list[str]) -> None:
    assert list(lucid.models.load(goldens.folder(variant)).input_specs()) == inputs


def test_sound_of_several_channels_is_refused() -> None:
    model = Wav2Vec2.from_pretrained(goldens.folder("wav2vec2/base"))
    with pytest.raises(ValueError, match=r"input_values have shape \[1, 2, 90\], expected \(N, samples\)"):
        model(lucid.zeros(1, 2, 90))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"add_adapter": True}, "add_adapter is True, supported: False"),
        ({"conv_pos_batch_norm": True}, "conv_pos_batch_norm is True, supported: False"),
        ({"adapter_attn_dim": 16}, "adapter_attn_dim = 16"),
        ({"feat_extract_norm": "batch"}, "feat_extract_norm is 'batch', supported: group, layer"),
        ({"conv_kernel": [5]}, r"conv_kernel is \[5\], expected a list of 2 whole numbers"),
        ({"num_conv_pos_embedding_groups": 3}, "embedding_groups is 3, expected a divisor of the width 16"),
        ({"do_stable_layer_norm": True}, "do_stable_layer_norm is True, supported: False"),  # with weighted layers
    ],
)
def test_an_option_that_is_not_supported_is_named(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Wav2Vec2ForSequenceClassification.from_pretrained(goldens.copied("wav2vec2/classifier", tmp_path, **changes))


def test_a_sound_without_a_frame_has_the_classes_of_zeros_in_a_batch() -> None:
    config = Wav2Vec2.from_pretrained(goldens.folder("wav2vec2/ctc")).config
    model = Wav2Vec2ForSequenceClassification(replace(config, num_labels=3, projector_size=5))
    mask = np.ones((2, 200), np.int64)
    mask[1] = 0
    logits = model(lucid.randn(2, 200), lucid.Tensor(mask)).numpy()
    np.testing.assert_allclose(logits[1], model.classifier.bias.numpy(), atol=1e-6)
    assert np.isfinite(logits).all()


def test_the_vector_of_a_speaker_is_that_of_the_sound_alone_and_of_a_file() -> None:
    config = Wav2Vec2.from_pretrained(goldens.folder("wav2vec2/ctc")).config
    xvector = XVectorConfig((12, 8), (3, 2), (1, 1), 6)
    model = Wav2Vec2ForXVector(replace(config, xvector=xvector))
    assert_parity(model, target="portable")
    sound, mask = np.zeros((1, 200), np.float32), np.zeros((1, 200), np.int64)
    sound[:, :101], mask[:, :101] = np.random.default_rng(0).normal(size=101), 1
    alone, padded = model(lucid.Tensor(sound[:, :101])), model(lucid.Tensor(sound), lucid.Tensor(mask))
    for one, other in zip(alone, padded, strict=True):
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-4, atol=1e-6)
