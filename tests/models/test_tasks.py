"""The task of a checkpoint: what its files say, what is asked for, and what it does not hold."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lucid
from lucid.export import to_onnx
from lucid.models.bert import Bert, BertConfig, BertForSequenceClassification
from lucid.models.checkpoints import families
from lucid.models.checkpoints.labels import write_with_labels
from lucid.models.checkpoints.pretrained import ConfigError
from lucid.models.checkpoints.tasks import class_of
from lucid.models.parts.on_model import Reranker
from tests.models import goldens

TASKS = ["text_classification", "reranking", "token_classification", "question_answering", "fill_mask"]
FAMILIES = ["bert", "roberta", "distilbert"]


def name_of(source: Path, task: str | None = None) -> str:
    return type(lucid.models.load(source, task)).__name__


@pytest.mark.parametrize(
    ("variant", "expected"),
    [
        ("bert/base", "Bert"),
        ("bert/masked_lm", "BertForMaskedLM"),
        ("tasks/bert_text_classification", "BertForSequenceClassification"),
        ("tasks/roberta_token_classification", "BertForTokenClassification"),
        ("tasks/distilbert_question_answering", "BertForQuestionAnswering"),
        ("sentences/cls", "SentenceEncoder"),
        ("sentences/dense", "SentenceEncoder"),
        ("vit/base", "ViT"),
        ("vit/classifier", "ViTForImageClassification"),
        ("deit/with_teacher", "ViTForImageClassification"),
        ("clip/gelu", "CLIP"),
        ("dinov2/classifier", "ViTForImageClassification"),
        ("swin/classifier", "SwinForImageClassification"),
        ("convnext/v2_classifier", "ConvNextForImageClassification"),
        ("wav2vec2/base", "Wav2Vec2"),
        ("hubert/ctc", "Wav2Vec2ForCTC"),
        ("wav2vec2/classifier", "Wav2Vec2ForSequenceClassification"),
        ("gpt2/base", "GPT2"),
    ],
)
def test_the_files_say_what_a_checkpoint_is_for(variant: str, expected: str) -> None:
    assert name_of(goldens.folder(variant)) == expected


@pytest.mark.parametrize(
    ("variant", "task", "expected"),
    [
        ("bert/masked_lm", "feature-extraction", "Bert"),
        ("bert/base", "sentence-similarity", "SentenceEncoder"),
        ("sentences/cls", "feature-extraction", "Bert"),
        ("tasks/bert_reranking", "reranking", "BertForReranking"),
        ("tasks/distilbert_fill_mask", "feature-extraction", "Bert"),
        ("vit/classifier", "image-feature-extraction", "ViT"),
        ("clip/gelu", "image-feature-extraction", "CLIPVisionModel"),
        ("siglip/base", "feature-extraction", "SigLIPTextModel"),
        ("wav2vec2/ctc", "feature-extraction", "Wav2Vec2"),
        ("whisper/base", "automatic-speech-recognition", "Whisper"),
        ("gpt2/base", "text-generation", "GPT2"),
    ],
)
def test_another_task_of_the_same_weights_may_be_asked_for(variant: str, task: str, expected: str) -> None:
    assert name_of(goldens.folder(variant), task) == expected


@pytest.mark.parametrize("family", families.FAMILIES.values(), ids=families.FAMILIES)
def test_the_classes_of_all_tasks_exist_and_read_the_same_checkpoints(family: families.Family) -> None:
    for task, place in family.tasks.items():
        assert (class_of(place).checkpoint.task, class_of(place).checkpoint.family) == (task, family)


@pytest.mark.parametrize(
    ("variant", "first", "second"),
    [
        ("bert/base", "bert.pooler.dense", "classifier"),
        ("distilbert/base", "pre_classifier", "classifier"),
        ("albert/base", "albert.pooler", "classifier"),
        ("deberta/v3", "pooler.dense", "classifier"),
        ("layoutlm/base", "layoutlm.pooler.dense", "classifier"),
        ("nomic_bert/base", "nomic_bert.pooler.dense", "classifier"),
        ("xlm_roberta/base", "classifier.dense", "classifier.out_proj"),
        ("modernbert/base", "head.norm", "classifier"),
    ],
)
def test_a_new_head_has_the_names_of_transformers(variant: str, first: str, second: str, tmp_path: Path) -> None:
    write_with_labels(goldens.folder(variant), ["no", "yes"], tmp_path)
    assert {f"{first}.weight", f"{second}.weight"} <= lucid.load(tmp_path).keys()
    assert name_of(tmp_path).endswith("ForSequenceClassification")


SIMILARITIES = ["logits_per_image", "logits_per_text", "text_embeds", "image_embeds"]
ALWAYS = "feature-extraction, sentence-similarity"


@pytest.mark.parametrize(
    ("variant", "task", "message"),
    [
        ("bert/base", "question-answering", f"has no weights for task 'question-answering'; .*: {ALWAYS}$"),
        ("bert/masked_lm", "text-classification", f"task 'text-classification'; .*: {ALWAYS}, fill-mask$"),
        # The last layers of both have one name and shape.
        ("tasks/bert_text_classification", "token-classification", f": {ALWAYS}, text-classification$"),
        ("tasks/distilbert_token_classification", "text-classification", f": {ALWAYS}, token-classification$"),
        (
            "tasks/bert_fill_mask",
            "fill-masks",
            f"task 'fill-masks' is not known for model_type bert; .*: {ALWAYS}, fill-mask; did you mean fill-mask.$",
        ),
        (
            "gpt2/base",
            "fill-mask",
            "'fill-mask' is not known for model_type gpt2; .*: text-generation, feature-extraction$",
        ),
        (
            "vit/base",
            "image-classification",
            "no weights for task 'image-classification'; .*: image-feature-extraction$",
        ),
        (
            "static_embedding/normalized",
            "feature-extraction",
            "task 'feature-extraction' is not known for model_type static_embedding; give a task .*: sentence-sim",
        ),
        ("tasks/bert_text_classification", "reranking", "has 3 labels, expected 1"),
    ],
)
def test_a_task_that_the_weights_do_not_hold_is_an_error_that_lists_those_that_there_are(
    variant: str, task: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        lucid.models.load(goldens.folder(variant), task)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (
            ["BertForMaskedLM", "BertModel"],
            "architectures are 'BertForMaskedLM', 'BertModel', expected one; give a task",
        ),
        (
            ["BertForPreTraining"],
            "has 'BertForPreTraining', which is not supported; torch may read .*; give a task that it has: feature",
        ),
        ("BertModel", "option architectures is 'BertModel', expected a list of names"),
        ([3], "expected a list of names"),
        (
            ["BertForQuestionAnswering"],
            "'BertForQuestionAnswering', but there are no weights for task 'question",
        ),
    ],
    ids=str,
)
def test_architectures_that_tell_no_task_or_several_are_an_error(tmp_path: Path, names: object, message: str) -> None:
    source = goldens.copied("bert/masked_lm", tmp_path, architectures=names)
    with pytest.raises(ConfigError, match=message):
        lucid.models.load(source)


def test_a_name_twice_and_none_at_all_are_fine(tmp_path: Path) -> None:
    names = ["BertForMaskedLM", "BertForMaskedLM"]
    assert name_of(goldens.copied("bert/masked_lm", tmp_path, architectures=names)) == "BertForMaskedLM"
    assert name_of(goldens.copied("bert/masked_lm", tmp_path, architectures=None)) == "Bert"
    source = goldens.copied("bert/masked_lm", tmp_path, architectures=["BertForMaskedLM", "BertModel"])
    assert name_of(source, "fill-mask") == "BertForMaskedLM"


def test_a_pooler_that_a_classifier_of_tokens_was_saved_with_changes_nothing(tmp_path: Path) -> None:
    source = goldens.copied("tasks/bert_token_classification", tmp_path)
    stored = dict(lucid.load(source))
    stored["bert.pooler.dense.weight"] = np.zeros((16, 16), np.float32)
    lucid.save(source / "model.safetensors", stored)
    assert name_of(source) == "BertForTokenClassification"
    with pytest.raises(ConfigError, match="no weights for task 'text-classification'"):
        lucid.models.load(source, "text-classification")


def test_a_head_without_its_weights_says_which_are_missing() -> None:
    classifier = class_of("bert.BertForSequenceClassification")
    with pytest.raises(KeyError, match=r"has no classifier\.weight; load it for another task"):
        classifier.from_pretrained(goldens.folder("bert/base"))


def test_images_are_features_by_the_general_name_of_the_task_as_well() -> None:
    assert name_of(goldens.folder("vit/classifier"), "feature-extraction") == "ViT"


def test_an_output_layer_that_is_not_the_embedding_counts(tmp_path: Path) -> None:
    source = goldens.copied("tasks/distilbert_fill_mask", tmp_path)
    stored = dict(lucid.load(source))
    case = goldens.cases("tasks/distilbert_fill_mask")[0]
    inputs: Mapping[str, Any] = {k: lucid.tensor(v) for k, v in case.inputs.items()}
    tied: Any = lucid.models.load(source)
    bias = stored["vocab_projector.bias"]
    table = stored["distilbert.embeddings.word_embeddings.weight"]
    lucid.save(source / "model.safetensors", {**stored, "vocab_projector.weight": table[::-1].copy()})
    own: Any = lucid.models.load(source)
    expected = (tied(**inputs).numpy() - bias)[..., ::-1] + bias
    np.testing.assert_allclose(own(**inputs).numpy(), expected, rtol=1e-5, atol=1e-6)
    lucid.save(source / "model.safetensors", {**stored, "vocab_projector.weight": table})
    assert "lm_head.decoder.weight" not in lucid.models.load(source).state_dict()


@pytest.mark.parametrize("option", ["sentence_transformers", "sbert_ce_default_activation_function"])
def test_what_a_cross_encoder_does_with_its_logits_changes_nothing_here(tmp_path: Path, option: str) -> None:
    folders = (
        goldens.copied("tasks/bert_reranking", tmp_path, **{option: "Sigmoid"}),
        goldens.folder("tasks/bert_reranking"),
    )
    models: list[Any] = [lucid.models.load(folder, "reranking") for folder in folders]
    assert type(models[0]).__name__ == "BertForReranking"
    logits, expected = (model(lucid.tensor([[5, 6, 7]])).numpy() for model in models)
    np.testing.assert_array_equal(logits, expected)


@pytest.mark.parametrize(
    ("variant", "inputs", "outputs"),
    [
        ("bert/base", ["input_ids", "attention_mask"], ["last_hidden_state"]),
        ("sentences/cls", ["input_ids", "attention_mask"], ["sentence_embedding"]),
        ("tasks/bert_reranking", ["input_ids", "attention_mask", "token_type_ids"], ["logits"]),
        ("tasks/roberta_fill_mask", ["input_ids", "attention_mask"], ["logits"]),
        ("tasks/distilbert_token_classification", ["input_ids", "attention_mask"], ["logits"]),
        (
            "tasks/bert_question_answering",
            ["input_ids", "attention_mask", "token_type_ids"],
            ["start_logits", "end_logits"],
        ),
        ("vit/classifier", ["pixel_values"], ["logits"]),
        ("wav2vec2/ctc", ["input_values", "attention_mask"], ["logits"]),
        ("clip/gelu", ["input_ids", "pixel_values", "attention_mask"], SIMILARITIES),
        ("siglip/base", ["input_ids", "pixel_values"], SIMILARITIES),
    ],
)
def test_inputs_and_outputs_have_the_names_of_transformers(variant: str, inputs: list[str], outputs: list[str]) -> None:
    graph = to_onnx(lucid.models.load(goldens.folder(variant))).graph
    assert [value.name for value in graph.input] == inputs
    assert [value.name for value in graph.output] == outputs


@pytest.mark.parametrize("variant", ["tasks/bert_text_classification", "tasks/roberta_fill_mask"])
def test_a_quantized_head_is_saved_and_read_again(tmp_path: Path, variant: str) -> None:
    source = goldens.folder(variant)
    model: Any = lucid.quantize(lucid.models.load(source), 8, block=16)
    lucid.models.save(model, source, tmp_path)
    again: Any = lucid.models.load(tmp_path)
    inputs: Mapping[str, Any] = {k: lucid.tensor(v) for k, v in goldens.cases(variant)[0].inputs.items()}
    assert type(again) is type(model)
    np.testing.assert_array_equal(again(**inputs).numpy(), model(**inputs).numpy())


def test_a_head_reads_the_checkpoints_of_its_model_that_have_the_head() -> None:
    """By the declaration of the head alone; a class derived from it inherits what is read."""

    class Scores(Reranker[BertConfig], BertForSequenceClassification, on=Bert):
        head_renames = ((r"^scores\.", "classifier.out_proj."),)

    class Derived(Scores):
        pass

    known = Scores.checkpoint
    assert (known.task, known.family, Derived.checkpoint) == ("reranking", Bert.checkpoint.family, known)
    assert known.renamed("scores.weight") == "classifier.out_proj.weight"
    assert known.renamed("bert.embeddings.LayerNorm.gamma") == "embeddings.LayerNorm.weight", "the model's renames hold"
    assert Bert.checkpoint.renamed("scores.weight") == "scores.weight"
