"""models/bart.py against transformers: BART, Marian, mBART and M2M-100, and what they differ in."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import lucid
from lucid import Tensor
from lucid.generation import Generator
from lucid.models.bart import Bart, BartForCausalLM, BartForSequenceClassification
from lucid.models.checkpoints.pretrained import ConfigError
from lucid.runtime import Session
from lucid.testing import assert_parity
from tests.models import goldens

VARIANTS = ["bart/base", "marian/base", "mbart/base", "m2m_100/base"]


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_encoders_states_are_those_of_transformers(variant: str) -> None:
    bart = Bart.from_pretrained(goldens.folder(variant))
    for case in goldens.cases(variant):
        inputs = {name: Tensor(array) for name, array in case.inputs.items()}
        ids, mask = inputs["input_ids"], inputs.get("attention_mask")
        keep = None if mask is None else mask.astype(lucid.bool_)
        states = bart.model.encoder.hidden_states(bart.model.embed(ids), bart.model.places(ids), keep)
        for index, state in enumerate(states):
            case.close(f"encoder.hidden_states.{index}", state, rtol=1e-5)


def test_m2m_100_counts_positions_without_padding() -> None:
    """So padding on the left, which is masked too, changes nothing."""
    bart, target = Bart.from_pretrained(goldens.folder("m2m_100/base")), lucid.tensor([[2, 4]])
    short = bart(lucid.tensor([[5, 6, 2]]), target)
    padded = bart(lucid.tensor([[1, 1, 5, 6, 2]]), target, lucid.tensor([[0, 0, 1, 1, 1]]))
    np.testing.assert_allclose(padded, short, rtol=1e-5, atol=1e-6)


def test_copies_of_the_token_table_and_of_positions_are_accepted(tmp_path: Path) -> None:
    """The first published files of Marian and M2M-100 hold both; and those of a model without its head no prefix."""
    source = goldens.folder("marian/base")
    arrays = dict(lucid.load(source))
    names = ("lm_head.weight", "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight")
    arrays |= dict.fromkeys(names, arrays["model.shared.weight"])
    arrays |= {
        f"model.{side}.embed_positions.weight": np.zeros((24, 16), np.float32) for side in ("encoder", "decoder")
    }
    shutil.copy(source / "config.json", tmp_path)
    lucid.save(tmp_path / "model.safetensors", {name.removeprefix("model."): a for name, a in arrays.items()})
    case = goldens.cases("marian/base")[0]
    case.close("logits", Bart.from_pretrained(tmp_path)(**{k: Tensor(v) for k, v in case.inputs.items()}), rtol=1e-5)


@pytest.mark.parametrize(
    ("variant", "architecture", "expected"),
    [
        ("bart/base", "BartForConditionalGeneration", "Bart"),
        ("marian/base", "MarianMTModel", "Bart"),
        ("bart/base", "BartModel", "BartStates"),
        ("bart/text_classification", "BartForSequenceClassification", "BartForSequenceClassification"),
    ],
)
def test_the_architecture_says_what_a_checkpoint_is_for(
    tmp_path: Path, variant: str, architecture: str, expected: str
) -> None:
    folder = goldens.copied(variant, tmp_path, architectures=[architecture])
    assert type(lucid.models.load(folder)).__name__ == expected


def test_a_class_that_is_not_read_is_refused_with_the_tasks_that_load(tmp_path: Path) -> None:
    folder = goldens.copied("bart/base", tmp_path, architectures=["BartDecoder"])
    tasks = "text2text-generation, text-generation, feature-extraction"
    with pytest.raises(ConfigError, match=f"architectures has 'BartDecoder', .*has: {tasks}$"):
        lucid.models.load(folder)
    assert type(lucid.models.load(folder, "text2text-generation")).__name__ == "Bart"


@pytest.mark.parametrize("variant", VARIANTS[:3])
def test_a_decoder_without_its_encoder_continues_texts_token_by_token_and_from_a_file(variant: str) -> None:
    model = BartForCausalLM.from_pretrained(goldens.folder(variant))
    assert_parity(model)
    whole, cache = model(lucid.tensor([[2, 5, 6]])).numpy(), model.empty_cache(1)
    for place, token in enumerate((2, 5, 6)):
        logits, cache = model(lucid.tensor([[token]]), past_key_values=cache)
        np.testing.assert_allclose(logits.numpy()[:, 0], whole[:, place], rtol=1e-4, atol=1e-5)
    ids, file = np.array([[2, 5]]), lucid.export.to_onnx(model, cache="growing")
    tokens, expected = (Generator(decoder).generate(ids, max_new_tokens=4) for decoder in (Session(file), model))
    np.testing.assert_array_equal(tokens[0], expected[0])


def test_m2m_100_has_no_decoder_without_its_encoder() -> None:
    with pytest.raises(ConfigError, match="supported for text-generation: bart, marian, mbart"):
        BartForCausalLM.from_pretrained(goldens.folder("m2m_100/base"))


def test_a_classifier_reads_the_state_at_the_last_end_of_each_text() -> None:
    """Texts may have different numbers of ends, and padding after the last one changes nothing."""
    model = BartForSequenceClassification.from_pretrained(goldens.folder("bart/text_classification"))
    alone = [model(lucid.tensor([ids])).numpy()[0] for ids in ([5, 2, 6, 7, 2], [8, 9, 2])]
    ids = lucid.tensor([[5, 2, 6, 7, 2], [8, 9, 2, 1, 1]])
    together = model(ids, (ids != 1).astype(lucid.int64)).numpy()
    np.testing.assert_allclose(together, alone, rtol=1e-5, atol=1e-6)


def test_what_the_options_of_earlier_versions_say_follows_from_the_model_type(tmp_path: Path) -> None:
    """As in facebook/bart-large-cnn and Helsinki-NLP/opus-mt-en-de."""
    older = {"normalize_before": False, "normalize_embedding": True, "static_position_embeddings": False}
    older |= {"add_bias_logits": False, "add_final_layer_norm": False, "extra_pos_embeddings": 2, "output_past": True}
    older |= {"classif_dropout": 0.0, "num_hidden_layers": 2, "bad_words_ids": [[1]], "forced_bos_token_id": 0}
    config = Bart.from_pretrained(goldens.copied("bart/base", tmp_path, **older)).config
    assert config == Bart.from_pretrained(goldens.folder("bart/base")).config


@pytest.mark.parametrize(
    ("variant", "changes", "message"),
    [
        ("bart/base", {"activation_function": "mish"}, "activation_function is 'mish', supported: gelu"),
        (
            "bart/base",
            {"decoder_attention_heads": 3},
            "decoder_attention_heads is 3, expected a divisor of the width 16",
        ),
        ("marian/base", {"decoder_vocab_size": 41}, "decoder_vocab_size is 41, supported: 40"),
        ("marian/base", {"share_encoder_decoder_embeddings": False}, "share_encoder_decoder_embeddings is False"),
        ("marian/base", {"d_model": 2}, "d_model is 2, expected an even number from 4 on, for sines and cosines"),
        ("m2m_100/base", {"max_position_embeddings": 1 << 20}, "max_position_embeddings is 1048576, expected a whole"),
    ],
    ids=str,
)
def test_an_option_that_is_not_supported_is_named(
    tmp_path: Path, variant: str, changes: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        Bart.from_pretrained(goldens.copied(variant, tmp_path, **changes))


def test_an_untied_config_has_an_output_layer_in_the_file(tmp_path: Path) -> None:
    folder = goldens.copied("bart/base", tmp_path, tie_word_embeddings=False)
    with pytest.raises(KeyError, match=r"lm_head\.weight"):
        lucid.models.load(folder)
    stored = dict(lucid.load(folder))
    lucid.save(folder / "model.safetensors", {**stored, "lm_head.weight": 2 * stored["model.shared.weight"]})
    tied, untied = (Bart.from_pretrained(each) for each in (goldens.folder("bart/base"), folder))
    ids, bias = lucid.tensor([[5, 6, 2]]), stored["final_logits_bias"]
    expected = 2 * (tied(ids, ids).numpy() - bias) + bias
    np.testing.assert_allclose(untied(ids, ids).numpy(), expected, rtol=1e-5, atol=1e-5)


def test_a_classifier_needs_a_start_token() -> None:
    config = Bart.from_pretrained(goldens.folder("bart/base")).config
    with pytest.raises(ValueError, match="the config has no decoder_start_token_id, expected one"):
        BartForSequenceClassification(replace(config, decoder_start_token_id=None, num_labels=2))


def test_only_barts_texts_are_classified_by_their_end(tmp_path: Path) -> None:
    folder = goldens.copied("bart/text_classification", tmp_path, model_type="marian")
    with pytest.raises(
        ConfigError, match="model_type is 'marian', supported for text-classification and question-answ"
    ):
        BartForSequenceClassification.from_pretrained(folder)


@pytest.mark.parametrize("variant", ["bart/base", "marian/base"])
def test_too_many_tokens_are_an_error(variant: str) -> None:
    bart = Bart.from_pretrained(goldens.folder(variant))
    with pytest.raises(ValueError, match="25 (tokens|positions), .* 24.*; shorten the input"):
        bart.encode(lucid.ones(1, 25, dtype=lucid.int64))
