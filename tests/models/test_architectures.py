"""Which class a checkpoint is of: transformers' own by name, never one of somebody's own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lucid
from lucid.models.checkpoints.families import MODEL_TYPES
from lucid.models.checkpoints.options_read import CLASSES
from lucid.models.checkpoints.pretrained import ConfigError
from lucid.models.checkpoints.registry import family_of
from lucid.models.checkpoints.tasks import _FORMER
from tests.cases import case
from tests.combinations import first_of_each
from tests.models import goldens
from tests.models.architectures import answers, error, outcomes, plain, proposed, write
from tests.models.test_tasks import name_of
from tools import compare_architectures

TYPES = list(MODEL_TYPES)
PHI3 = {"AutoConfig": "configuration_phi3.Phi3Config", "AutoModelForCausalLM": "modeling_phi3.Phi3ForCausalLM"}
GTE = {"AutoModel": "modeling_qwen.Qwen2Model", "AutoModelForCausalLM": "modeling_qwen.Qwen2ForCausalLM"}
JINA = {"AutoConfig": "jinaai/jina-bert--configuration_bert.JinaBertConfig", "AutoModel": "jinaai/j--m.JinaBertModel"}


def test_every_type_has_its_classes() -> None:
    assert sorted(TYPES) == sorted(CLASSES), "run tools/make_architectures.py"
    assert {"BertModel", "BertForMaskedLM"} <= set(CLASSES["bert"])
    assert set(_FORMER.values()) <= {name for names in CLASSES.values() for name in names}


@pytest.mark.parametrize(
    ("variant", "name"),
    [
        ("llama/llama3", "LlamaBiModel"),  # LLM2Vec: attends to both sides
        ("bert/base", "JinaBertModel"),  # ALiBi and gated layers
        ("t5/v1_1", "ChronosBoltModelForForecasting"),
        ("bert/base", "RobertaModel"),
        ("clip/gelu", "CLIPVisionModel"),  # of another model_type
    ],
)
@pytest.mark.parametrize("task", [None, "feature-extraction"])
def test_a_class_that_transformers_does_not_have_is_refused_with_the_way_round(
    tmp_path: Path, variant: str, name: str, task: str | None
) -> None:
    source = goldens.copied(variant, tmp_path, architectures=[name])
    with pytest.raises(ConfigError, match=rf"architectures has '{name}', which transformers .* does not have.*NAME: "):
        lucid.models.load(source, task)


@pytest.mark.parametrize(
    ("variant", "code", "name"),
    [
        ("qwen2/tied", GTE, "Qwen2Model"),  # GTE, stella: native names, but attention to both sides
        ("mistral/full", {"AutoModel": "modeling_gritlm7b.MistralModel"}, "MistralModel"),
        ("bert/base", JINA, "JinaBertModel"),
        ("phi3/base", {"AutoModelForCausalLM": "modeling_phi3.Phi3BiForCausalLM"}, "Phi3BiForCausalLM"),
    ],
)
def test_code_of_its_own_is_refused_with_the_way_round(
    tmp_path: Path, variant: str, code: dict[str, str], name: str
) -> None:
    source = goldens.copied(variant, tmp_path, auto_map=code)
    with pytest.raises(ConfigError, match=rf"auto_map has 'AutoModel.*{name}', code of .*--architecture NAME: \w+"):
        lucid.models.load(source)


@pytest.mark.parametrize(
    ("variant", "code"),
    [
        ("phi3/base", PHI3),  # published before transformers had the type, with the same classes
        ("qwen2/tied", {"AutoTokenizer": ["tokenization_own.OwnTokenizer", None], "AutoConfig": "configuration.Own"}),
        ("qwen2/tied", {}),
        ("qwen2/tied", None),
    ],
)
def test_code_that_transformers_has_too_and_code_of_tokenizers_change_nothing(
    tmp_path: Path, variant: str, code: object
) -> None:
    assert name_of(goldens.copied(variant, tmp_path, auto_map=code)) == name_of(goldens.folder(variant))


def test_a_class_that_the_caller_names_is_taken(tmp_path: Path) -> None:
    source = goldens.copied(
        "llama/llama3", tmp_path, architectures=["LlamaBiModel"], auto_map={"AutoModel": "m.LlamaBiModel"}
    )
    assert type(lucid.models.load(source, architecture="LlamaForCausalLM")).__name__ == "Llama"
    with pytest.raises(ConfigError, match="architecture 'LlamaForCausalLm' is not known for .*; known: Llama"):
        lucid.models.load(source, architecture="LlamaForCausalLm")


def test_a_checkpoint_that_was_saved_has_no_code_of_its_own(tmp_path: Path) -> None:
    source = goldens.copied("llama/llama3", tmp_path / "a", architectures=["Own"], auto_map={"AutoModel": "m.Own"})
    (tmp_path / "b").mkdir()
    lucid.models.save(lucid.models.load(source, architecture="LlamaForCausalLM"), source, tmp_path / "b")
    written = json.loads((tmp_path / "b" / "config.json").read_text())
    assert written["architectures"] == ["LlamaForCausalLM"]
    assert "auto_map" not in written
    assert name_of(tmp_path / "b") == "Llama"


@pytest.mark.parametrize("name", _FORMER)
def test_former_names_of_transformers_are_read(tmp_path: Path, name: str) -> None:
    variant = {"T5WithLMHeadModel": "t5/v1_0", "LLaMAForCausalLM": "llama/llama2"}[name]
    assert name_of(goldens.copied(variant, tmp_path, architectures=[name])) == name_of(goldens.folder(variant))


def test_a_mistyped_architecture_is_answered_with_the_class_that_is_read() -> None:
    with pytest.raises(ConfigError) as caught:
        lucid.models.load(goldens.folder("bert/base"), architecture="BertForSequenceClasification")
    message = str(caught.value)
    assert "for model_type bert; known: BertForMaskedLM, " in message
    assert message.endswith("; did you mean BertForSequenceClassification?")
    assert "BertLMHeadModel" not in message and "BertForNextSentencePrediction" not in message


# Every class of transformers ------------------------------------------------------------------------------------------


def test_every_class_has_its_outcome() -> None:
    classes = {(kind, name) for kind, names in CLASSES.items() for name in names}
    assert {(each.kind, each.name) for each in outcomes()} == classes


@pytest.mark.parametrize("kind", sorted(CLASSES))
def test_a_class_is_what_transformers_has_or_is_refused_by_its_name(tmp_path: Path, kind: str) -> None:
    for each in outcomes():
        if each.kind != kind:
            continue
        folder = tmp_path / each.name
        folder.mkdir()
        write(folder, each.config, each.weights)
        if each.exact:
            model: Any = lucid.models.load(folder)
            assert (type(model).__name__, model.checkpoint.task) == (each.reader, each.task), each.name
            assert error(answers(model, each.inputs), each.outputs) < 2e-5, each.name
        else:
            with pytest.raises(ConfigError) as caught:
                lucid.models.load(folder)
            assert plain(caught.value, folder) == each.message
            assert f"architectures has '{each.name}'" in each.message


@pytest.mark.parametrize("kind", sorted(CLASSES))
def test_every_task_that_an_error_proposes_loads_and_others_are_refused(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each task once where it is proposed and once where it is not, and each class with a task."""
    tried: list[tuple[Path, str, bool]] = []
    for number, each in enumerate(each for each in outcomes() if each.kind == kind):
        folder = tmp_path / each.name
        folder.mkdir()
        write(folder, each.config, each.weights)
        with pytest.raises(ConfigError, match="task 'none' is not known") as caught:
            lucid.models.load(folder, "none")
        loads, tasks = proposed(str(caught.value)), list(family_of(kind).tasks)
        begin = number % len(tasks)
        tried += [(folder, task, task in loads) for task in tasks[begin:] + tasks[:begin]]
    # Each refusal would list the same tasks again.
    monkeypatch.setattr("lucid.models.checkpoints.tasks._none", lambda options, problem: ConfigError(problem))
    ways = [*first_of_each(tried, lambda way: way[1:]), *first_of_each(tried, lambda way: way[0])]
    for folder, task, is_proposed in dict.fromkeys(ways):
        with case(f"{folder.name} for {task}"):
            if is_proposed:
                reader: Any = lucid.models.load(folder, task)
                assert reader.checkpoint.task == task
            else:
                with pytest.raises((ConfigError, KeyError)):
                    lucid.models.load(folder, task)


def test_the_page_is_current() -> None:
    assert compare_architectures.PAGE.read_text() == compare_architectures.page(), "run tools/compare_architectures.py"


# Output layers --------------------------------------------------------------------------------------------------------

TIED = {  # by variant: the output layer, and the table of token vectors that it is by the config
    "qwen2/tied": ("lm_head.weight", "model.embed_tokens.weight"),
    "gemma2/base": ("lm_head.weight", "model.embed_tokens.weight"),
    "gpt2/base": ("lm_head.weight", "transformer.wte.weight"),
    "m2m_100/base": ("lm_head.weight", "model.shared.weight"),
    "whisper/base": ("proj_out.weight", "model.decoder.embed_tokens.weight"),
}


@pytest.mark.parametrize("variant", TIED)
def test_an_output_layer_of_its_own_counts_whatever_the_config_says(tmp_path: Path, variant: str) -> None:
    """As in transformers 5; equal copies are one weight."""
    head, table = TIED[variant]
    source = goldens.copied(variant, tmp_path, tie_word_embeddings=True)
    stored = dict(lucid.load(source))
    inputs = {name: lucid.tensor(array) for name, array in goldens.cases(variant)[0].inputs.items()}
    tied: Any = lucid.models.load(source)
    logits = tied(**inputs).numpy()
    lucid.save(source / "model.safetensors", {**stored, head: stored[table]})
    same: Any = lucid.models.load(source)
    np.testing.assert_array_equal(same(**inputs).numpy(), logits)
    assert head not in same.state_dict()
    lucid.save(source / "model.safetensors", {**stored, head: stored[table][::-1].copy()})
    own: Any = lucid.models.load(source)
    np.testing.assert_allclose(own(**inputs).numpy(), logits[..., ::-1], rtol=1e-5, atol=1e-6)
    assert head in own.state_dict()


def test_an_output_layer_under_the_name_of_gpt_neox_counts_too(tmp_path: Path) -> None:
    inputs = {name: lucid.tensor(array) for name, array in goldens.cases("gpt_neox/sequential")[0].inputs.items()}
    models: list[Any] = [
        lucid.models.load(goldens.copied("gpt_neox/sequential", tmp_path / str(tied), tie_word_embeddings=tied))
        for tied in (True, False)
    ]
    np.testing.assert_array_equal(*(model(**inputs).numpy() for model in models))


def test_a_table_of_its_own_that_a_model_cannot_have_is_an_error(tmp_path: Path) -> None:
    source = goldens.copied("bart/base", tmp_path)
    stored = dict(lucid.load(source))
    key, table = "model.encoder.embed_tokens.weight", stored["model.shared.weight"]
    lucid.save(source / "model.safetensors", {**stored, key: table[::-1].copy()})
    with pytest.raises(
        ValueError, match=r"embed_tokens\.weight differs from model\.shared.*one weight, as Bart shares"
    ):
        lucid.models.load(source)
