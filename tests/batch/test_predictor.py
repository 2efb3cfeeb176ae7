"""A predictor computes each row as the model does alone, and says why a row has no result."""

from __future__ import annotations

import io
import json
import os
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest

import lucid
from lucid.generation import EncoderDecoderGenerator, Generator
from lucid.generation.chat.language_model import NEW_TOKENS
from lucid.layouts import write_folder
from lucid.runtime import Session
from tests.batch.folders import exported
from tests.chat.checkpoints import TEMPLATE, tokenizer
from tests.layout_checkpoints import whole

tokenizers = pytest.importorskip("tokenizers")
processors = pytest.importorskip("tokenizers.processors")
batch = pytest.importorskip("lucid.batch", reason="needs the extra batch", exc_type=ModuleNotFoundError)
open_model = pytest.importorskip("lucid.batch.open_models").open_model
task_name = pytest.importorskip("lucid.batch.tasks").task_name
padded_batches = pytest.importorskip("lucid.batch.batches").padded_batches
pa = pytest.importorskip("pyarrow")
Image = pytest.importorskip("PIL.Image")

TEXTS = ["a cat", "b", "interest rates rose", "a cat", "the bank said so"]


@pytest.fixture(scope="module")
def sentences(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sentence encoder that takes the state of the first token."""
    return exported(tmp_path_factory.mktemp("sentences"), "sentences/cls")


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    names = {"id2label": {"0": "good", "1": "bad", "2": "ugly"}}
    return exported(tmp_path_factory.mktemp("labels"), "tasks/bert_text_classification", config=names)


def alone(folder: Path, text: str, pair: str | None = None) -> np.ndarray:
    """The first output of the model for one text, without padding."""
    encoding = tokenizer().encode(text, pair)
    session = Session(folder / "model.onnx")
    known = {"input_ids": encoding.ids, "attention_mask": encoding.attention_mask, "token_type_ids": encoding.type_ids}
    (output,) = session.run({name: np.array([known[name]]) for name in session.inputs}).values()
    return output[0]


def with_nan(folder: Path, variant: str) -> Path:
    """The folder of a model that makes NaN of a text with the letter q."""
    source, target = whole(folder / "checkpoint", variant), folder / "exported"
    weights = {name: np.array(array) for name, array in lucid.load(source / "model.safetensors").items()}
    (table,) = [name for name in weights if name.endswith("word_embeddings.weight")]
    weights[table][tokenizer().token_to_id("q")] = np.nan
    lucid.save(source / "model.safetensors", weights)
    write_folder(lucid.models.load(source), source, target, layout="onnxruntime", check=False)
    return target


# Rows -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch_tokens", [1, 12, 4096])
def test_each_row_has_the_result_that_it_has_alone(sentences, batch_tokens):
    columns = batch.Predictor(sentences, batch_tokens=batch_tokens)({"text": np.array(TEXTS), "id": np.arange(5)})
    assert list(columns) == ["text", "id", "embedding", "error"]
    expected = np.stack([alone(sentences, text) for text in TEXTS])
    np.testing.assert_allclose(columns["embedding"], expected, atol=1e-6)
    assert columns["embedding"].dtype == np.float32 and columns["error"].tolist() == [None] * 5


def test_results_do_not_depend_on_threads(sentences):
    one, two = (batch.Predictor(sentences, batch_tokens=16, threads=n)({"text": TEXTS}) for n in (1, 2))
    assert (one["embedding"] == two["embedding"]).all()


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "the text is null"),
        (float("nan"), "the text is null"),
        ("", "the text is empty"),
        (" \n", "the text is empty"),
        (7, "expected text, got int"),
        (b"bytes", "expected text, got bytes"),
        (["a list"], "expected text, got list"),
        ("a" * 101, "the text has 101 characters, at most 100 are read (max_characters)"),
        ("a\ud800", "the text is not valid Unicode: surrogates not allowed at character 1; give it in UTF-8"),
    ],
)
def test_a_bad_row_says_why_and_the_others_are_computed(sentences, value, reason):
    columns = batch.Predictor(sentences, max_characters=100)({"text": ["a", value, "b"]})
    assert columns["error"].tolist() == [None, reason, None]
    assert np.isnan(columns["embedding"]).all(axis=1).tolist() == [False, True, False]
    np.testing.assert_allclose(columns["embedding"][2], alone(sentences, "b"), atol=1e-6)


@pytest.mark.filterwarnings("ignore:weights with NaN")
def test_a_row_of_which_the_model_makes_nan_says_so_and_the_others_are_computed(tmp_path):
    folder = with_nan(tmp_path, "sentences/cls")
    columns = batch.Predictor(folder)({"text": ["a", "q", "b", "aq"]})
    advice = "leave it out, or check the weights, and the element type, which may have overflowed"
    reason = f"the model makes NaN or infinity of it in embedding; {advice}"
    assert columns["error"].tolist() == [None, reason, None, reason]
    assert np.isnan(columns["embedding"]).all(axis=1).tolist() == [False, True, False, True]
    (tmp_path / "labels").mkdir()
    columns = batch.Predictor(with_nan(tmp_path / "labels", "tasks/bert_text_classification"))({"text": ["a", "q"]})
    reason = f"the model makes NaN or infinity of it in score; {advice}"
    assert columns["error"].tolist() == [None, reason] and columns["label"][1] is None
    assert np.isnan(columns["score"]).tolist() == [False, True]


def test_columns_of_arrow_are_columns_and_what_are_none_is_refused(sentences):
    predictor = batch.Predictor(sentences)
    expected = predictor({"text": ["a", None, "b"]})
    for column in (pa.array(["a", None, "b"]), pa.chunked_array([["a", None], ["b"]])):
        columns = predictor({"text": column})
        np.testing.assert_array_equal(columns["embedding"], expected["embedding"])
        assert columns["error"].tolist() == [None, "the text is null", None]
    table = pa.table({"id": [1, 2, 3], "text": ["a", None, "b"]})
    for columns in (predictor(table), predictor(table.to_batches()[0])):
        assert list(columns) == ["id", "text", "embedding", "error"] and columns["id"].to_pylist() == [1, 2, 3]
        np.testing.assert_array_equal(columns["embedding"], expected["embedding"])
    with pytest.raises(TypeError, match="the column text is str, expected a value for each row; give a list"):
        predictor({"text": "a cat"})
    with pytest.raises(ValueError, match="the column id has 1 rows, and text has 2; give as many"):
        predictor({"text": ["a", "b"], "id": [1]})
    with pytest.raises(ValueError, match="a column 'error' already, .*; drop or rename it; the results of an"):
        predictor({"text": ["a"], "error": [None]})


@pytest.mark.filterwarnings("ignore:weights with NaN")
@pytest.mark.parametrize("variant", ["sentences/cls", "llama/llama3", "t5/v1_1"])
def test_a_row_with_a_token_that_the_model_lacks_says_so_and_the_others_are_computed(tmp_path, variant):
    folder = exported(tmp_path, variant)
    words = tokenizer()
    words.add_special_tokens([f"<{number}>" for number in range(300)])
    words.save(str(folder / "tokenizer.json"))
    options = {} if variant == "sentences/cls" else {"generation": {"max_new_tokens": 2}}
    columns = batch.Predictor(folder, **options)({"text": ["a", "b <299>", "c", "<298>"]})
    reasons = columns["error"].tolist()
    assert [reason is None for reason in reasons] == [True, False, True, False]
    assert "got index" in reasons[1] and "of input input_ids, expected 0 to" in reasons[3]
    assert list(columns)[1] in ("embedding", "answer") and columns[list(columns)[1]][2] is not None


@pytest.mark.filterwarnings("ignore:weights with NaN")
@pytest.mark.parametrize("beams", [1, 2])
def test_a_prompt_of_which_the_model_makes_nan_says_so_and_the_others_are_answered(tmp_path, beams):
    source = whole(tmp_path / "checkpoint", "llama/llama2")
    weights = {name: np.array(array) for name, array in lucid.load(source / "model.safetensors").items()}
    weights["model.embed_tokens.weight"][tokenizer().token_to_id("q")] = np.nan
    lucid.save(source / "model.safetensors", weights)
    write_folder(lucid.models.load(source), source, tmp_path / "exported", layout="onnxruntime", check=False)
    options = {"max_new_tokens": 2, "num_beams": beams}
    columns = batch.Predictor(tmp_path / "exported", generation=options)({"text": ["a", "q", "b"]})
    assert [answer is None for answer in columns["answer"]] == [False, True, False]
    assert columns["error"][1].startswith("generate: the model gave NaN for ")


class Frame:
    """What a predictor reads of a frame of pandas, which is no Mapping."""

    def __init__(self, columns):
        self._columns = columns
        self.keys, self.items = columns.keys, columns.items

    def __contains__(self, name):
        return name in self._columns

    def __getitem__(self, name):
        return self._columns[name]


def test_a_frame_is_columns_by_name(sentences):
    columns = batch.Predictor(sentences)(Frame({"text": ["a", None], "id": [1, 2]}))
    assert list(columns) == ["text", "id", "embedding", "error"]
    assert columns["error"].tolist() == [None, "the text is null"]


def test_no_rows_and_only_bad_rows_have_the_same_columns(sentences):
    predictor = batch.Predictor(sentences, output="vector")
    assert predictor({"text": []})["vector"].shape == (0, 16)
    assert predictor({"text": [None]})["vector"].shape == (1, 16)


def test_batches_keep_to_the_budget_and_hold_each_row_once():
    sizes = [3, 9, 1, 1, 40, 9, 2]
    batches = padded_batches(sizes, 20)
    assert sorted(row for group in batches for row in group) == list(range(7))
    assert [len(group) * max(sizes[row] for row in group) for group in batches] == [40, 18, 12]


def test_a_batch_ends_where_too_much_of_it_would_be_padding():
    batches = padded_batches([100] * 6 + [96] * 4 + [50] * 12, 4096)
    assert [len(group) for group in batches] == [10, 12]


# What the checkpoint says ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "option"), [("sentence_bert_config.json", "max_seq_length"), ("tokenizer_config.json", "model_max_length")]
)
def test_texts_are_cut_off_where_the_checkpoint_says(sentences, tmp_path, file, option):
    folder = shutil.copytree(sentences, tmp_path / "copy")
    (folder / file).write_text(json.dumps({option: 4}))
    long, short = batch.Predictor(folder)({"text": ["abcdefgh", "abcd"]})["embedding"]
    np.testing.assert_allclose(long, short, atol=1e-6)
    longer = batch.Predictor(folder, max_length=8)({"text": ["abcdefgh"]})["embedding"][0]
    np.testing.assert_allclose(longer, alone(sentences, "abcdefgh"), atol=1e-6)


def test_a_length_beyond_the_positions_is_refused(sentences):
    with pytest.raises(ValueError, match=r"max_length is 999, and the model has \d+ positions"):
        batch.Predictor(sentences, max_length=999)({"text": ["a"]})


def test_a_length_that_leaves_special_tokens_alone_is_refused(sentences, tmp_path):
    """All texts would have one vector, and of fewer the tokenizers library would cut off nothing."""
    folder = shutil.copytree(sentences, tmp_path / "copy")
    library = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    library.post_processor = tokenizers.processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    library.save(str(folder / "tokenizer.json"))
    for length in (1, 2):
        message = f"max_length is {length}, and each row has 2 special tokens; give more than that"
        with pytest.raises(ValueError, match=message):
            batch.Predictor(folder, max_length=length)({"text": ["abc"]})
    assert batch.Predictor(folder, max_length=3)({"text": ["abc"]})["error"].tolist() == [None]


@pytest.mark.parametrize("output", ["error", "", 5])
def test_an_output_that_is_no_name_of_its_own_is_refused(sentences, output):
    with pytest.raises(ValueError, match="output is .*, expected the name of a column; 'error' says why"):
        batch.Predictor(sentences, output=output)({"text": ["a"]})


def test_labels_do_not_take_the_column_of_their_scores(classifier):
    with pytest.raises(ValueError, match="output is 'score', the column of the probabilities; give the labels another"):
        batch.Predictor(classifier, output="score")({"text": ["a"]})


def test_every_layout_keeps_where_sentences_are_cut_off(tmp_path):
    (tmp_path / "a").mkdir()
    source = exported(tmp_path / "a", "sentences/cls").parent / "checkpoint"
    (source / "sentence_bert_config.json").write_text('{"max_seq_length": 4}')
    model = lucid.models.load(source)
    for layout in ("onnxruntime", "transformers.js", "sentence-transformers"):
        lucid.layouts.write_folder(model, source, tmp_path / layout, layout=layout, check=False)
        long, short = batch.Predictor(tmp_path / layout)({"text": ["abcdefgh", "abcd"]})["embedding"]
        np.testing.assert_allclose(long, short, atol=1e-6)


PROMPTS = {"prompts": {"query": "look for ", "document": ""}, "default_prompt_name": "query"}


def test_the_prompt_of_the_checkpoint_is_before_each_text_in_every_layout(tmp_path):
    (tmp_path / "a").mkdir()
    source = exported(tmp_path / "a", "sentences/cls").parent / "checkpoint"
    (source / "config_sentence_transformers.json").write_text(json.dumps(PROMPTS))
    model = lucid.models.load(source)
    for layout in ("onnxruntime", "transformers.js", "sentence-transformers", "optimum"):
        folder = tmp_path / layout
        lucid.layouts.write_folder(model, source, folder, layout=layout, check=False)
        plain, whole = batch.Predictor(folder, prompt="")({"text": ["a cat", "look for a cat"]})["embedding"]
        for prompt, expected in ((None, whole), ("query", whole), ("document", plain)):
            embedding = batch.Predictor(folder, prompt=prompt)({"text": ["a cat"]})["embedding"][0]
            np.testing.assert_allclose(embedding, expected, atol=1e-6)
    with pytest.raises(ValueError, match="has no prompt 'queries'; there are 'query', 'document'"):
        batch.Predictor(tmp_path / "onnxruntime", prompt="queries")({"text": ["a"]})
    assert batch.Predictor(tmp_path / "onnxruntime")({"text": [""]})["error"] == ["the text is empty"]


def test_prompts_that_the_checkpoint_does_not_have_are_refused(sentences, tmp_path):
    folder = shutil.copytree(sentences, tmp_path / "copy")
    (folder / "config_sentence_transformers.json").write_text('{"prompts": ["query: "]}')
    with pytest.raises(ValueError, match=r"prompts are \['query: '\], expected an object of names and texts"):
        batch.Predictor(folder)({"text": ["a"]})
    with pytest.raises(ValueError, match="has no prompt 'query'; there are none"):
        batch.Predictor(sentences, prompt="query")({"text": ["a"]})


# Tasks ----------------------------------------------------------------------------------------------------------------


def test_a_classifier_gives_the_name_of_the_label_and_its_probability(classifier):
    columns = batch.Predictor(classifier)({"text": ["a cat", None]})
    logits = alone(classifier, "a cat").astype(np.float64)
    powers = np.exp(logits - logits.max())
    assert columns["label"].tolist() == [["good", "bad", "ugly"][int(logits.argmax())], None]
    np.testing.assert_allclose(columns["score"], [(powers / powers.sum()).max(), np.nan], rtol=1e-5)


def test_a_text_without_the_end_where_its_class_is_read_is_a_bad_row(tmp_path):
    """transformers' BART and T5 refuse such texts; the class of the first token would be no answer."""
    folder = exported(tmp_path, "bart/text_classification")
    reason = "its tokens lack the end, id 2, at which the model reads the class"
    columns = batch.Predictor(folder)({"text": ["abc"]})
    assert columns["label"].tolist() == [None] and columns["error"][0].startswith(reason)
    file = str(folder / "tokenizer.json")
    ending = tokenizers.Tokenizer.from_file(file)
    end = ending.id_to_token(2)
    ending.post_processor = processors.TemplateProcessing(f"$A {end}", special_tokens=[(end, 2)])
    ending.save(file)
    columns = batch.Predictor(folder)({"text": ["abc"]})
    assert columns["label"].tolist() != [None] and columns["error"].tolist() == [None]


@pytest.mark.parametrize(
    ("config", "activation"),
    [({}, lambda x: 1 / (1 + np.exp(-x))), ({"sentence_transformers": {"activation_fn": "torch.nn.Identity"}}, float)],
)
def test_a_cross_encoder_reads_two_columns(tmp_path, config, activation):
    folder = exported(tmp_path, "tasks/bert_reranking", config=config)
    columns = batch.Predictor(folder, input=("query", "text"))({"query": ["a", "b"], "text": ["cat", "dogs"]})
    expected = [activation(alone(folder, *pair)[0]) for pair in (("a", "cat"), ("b", "dogs"))]
    np.testing.assert_allclose(columns["score"], expected, rtol=1e-5)
    with pytest.raises(ValueError, match="its model reads 2 columns, got 1: text"):
        batch.Predictor(folder)({"text": ["a"]})


def test_states_are_pooled_as_the_caller_says(tmp_path):
    folder = exported(tmp_path, "bert/base")
    with pytest.raises(
        ValueError, match="the checkpoint does not say how they are pooled; give pooling 'cls' or 'mean'"
    ):
        batch.Predictor(folder)({"text": ["a"]})
    for pooling, expected in (("cls", alone(folder, "a cat")[0]), ("mean", alone(folder, "a cat").mean(axis=0))):
        embedding = batch.Predictor(folder, pooling=pooling)({"text": ["a longer text", "a cat"]})["embedding"][1]
        np.testing.assert_allclose(embedding, expected, atol=1e-5)


def test_a_decoder_answers_prompts_of_several_lengths_as_each_alone(tmp_path):
    folder = exported(tmp_path, "llama/llama3")
    prompts = ["a cat", None, "b", "the bank", "x" * 1000, "x" * 100_000]
    columns = batch.Predictor(folder, generation={"max_new_tokens": 5})({"text": prompts})
    generator, words = Generator(Session(folder / "model.onnx")), tokenizer()
    end = words.token_to_id("</s>")
    for row in (0, 2, 3):
        new = generator.generate(words.encode(prompts[row]).ids, max_new_tokens=5, eos_token_id=end)[0].tolist()
        assert columns["answer"][row] == words.decode(new[: new.index(end)] if end in new else new)
        assert columns["ended_by"][row] == ("eos" if end in new else "length")
    assert [columns[name][1] for name in ("answer", "ended_by", "error")] == [None, None, "the text is null"]
    assert columns["error"][4].startswith("a prompt of 1000 tokens and 5 new ones take more positions than the model")
    assert columns["error"][5].startswith("the text has 100,000 characters, at most ")  # before it has tokens


@pytest.mark.parametrize("options", [{"eos_token_id": 27}, {"stop": "x", "pad_token_id": 9}, {"eos_token_id": [7, 27]}])
def test_an_answer_ends_where_the_options_say_whatever_else_is_in_the_batch(tmp_path, options):
    predictor = batch.Predictor(exported(tmp_path, "llama/llama3"), generation={"max_new_tokens": 12, **options})
    prompts = ["abc", "xyz qq", "b", "the bank", "interest"]
    columns = predictor({"text": prompts})
    together = columns["answer"].tolist()
    reasons = set(columns["ended_by"])
    assert reasons <= {"stop" if "stop" in options else "eos", "length"} and reasons != {"length"}
    assert together == [predictor({"text": [prompt]})["answer"][0] for prompt in prompts]
    assert len({len(text) for text in together}) > 1, "they end at several places"


def test_answers_match_a_schema_or_an_expression(tmp_path):
    pytest.importorskip("llguidance")
    folder = exported(tmp_path, "llama/llama3")
    columns = batch.Predictor(folder, generation={"regex": "ab{2}"})({"text": ["a cat", "b"]})
    assert columns["answer"].tolist() == ["abb", "abb"] and columns["ended_by"].tolist() == ["eos", "eos"]
    columns = batch.Predictor(folder, generation={"json_schema": {"type": "null"}})({"text": ["a cat"]})
    assert columns["answer"].tolist() == ["null"], columns["error"]
    with pytest.raises(ValueError, match="got json_schema and regex, expected one of them"):
        batch.Predictor(folder, generation={"json_schema": {}, "regex": "a"})({"text": ["a"]})


def test_options_may_hold_lists_and_tables(tmp_path):
    """A plan is a key of the open models, whatever the options are."""
    predictor = batch.Predictor(
        exported(tmp_path, "llama/llama3"),
        generation=(options := {"max_new_tokens": 2, "bad_words_ids": [[5, 6]], "logit_bias": {7: 50.0}}),
    )
    options["logit_bias"][7] = -50.0
    assert predictor({"text": ["ab"]})["answer"].tolist() == ["dd"]
    assert pickle.loads(pickle.dumps(predictor)).plan == predictor.plan


def test_prompts_may_be_messages_of_a_conversation(tmp_path):
    folder = exported(tmp_path, "llama/llama3")
    with pytest.raises(ValueError, match="has no chat template, so the model was not trained on conversations"):
        batch.Predictor(folder, generation={"chat": True})({"text": ["a"]})
    template = {**json.loads((folder / "tokenizer_config.json").read_text()), "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(template))
    options = {"max_new_tokens": 4}
    answer = batch.Predictor(folder, generation={**options, "chat": True})({"text": ["a cat"]})["answer"][0]
    written = batch.Predictor(folder, generation=options)({"text": ["<s><|user|>a cat\n"]})["answer"][0]
    assert answer == written
    with pytest.raises(TypeError, match="unexpected keyword argument 'temprature'"):
        batch.Predictor(folder, generation={"temprature": 0.5})({"text": ["a"]})


@pytest.mark.parametrize("variant", ["t5/v1_1", "bart/base", "marian/base"])
@pytest.mark.parametrize("options", [{}, {"num_beams": 3}], ids=str)
def test_an_encoder_and_a_decoder_rewrite_texts_of_several_lengths_as_each_alone(tmp_path, variant, options):
    folder = exported(tmp_path, variant)
    texts = ["a cat", None, "b", "the bank"]
    columns = batch.Predictor(folder, generation={"max_new_tokens": 6, **options})({"text": texts})
    model, words = lucid.models.load(folder.parent / "checkpoint"), tokenizer()
    config = json.loads((folder / "config.json").read_text())
    end, forced = config["eos_token_id"], config.get("forced_eos_token_id")
    generator = EncoderDecoderGenerator(model)
    for row in (0, 2, 3):
        ids = [words.encode(texts[row]).ids]
        settings = {"max_new_tokens": 6, "eos_token_id": end, "forced_eos_token_id": forced, **options}
        new = generator.generate(ids, **settings)[0].tolist()
        assert columns["answer"][row] == words.decode(new[: new.index(end)] if end in new else new)
        assert columns["ended_by"][row] == ("eos" if end in new[: 6 - (forced is not None)] else "length")
    assert columns["answer"][1] is None and columns["error"][1] == "the text is null"


def test_the_most_tokens_of_an_answer_are_those_of_lucid_chat(tmp_path):
    folder = exported(tmp_path, "t5/v1_1")  # without a limit of positions
    (folder / "generation_config.json").unlink(missing_ok=True)
    with pytest.raises(ValueError, match="output is 'ended_by', the column of why a text ends"):
        batch.Predictor(folder, output="ended_by")({"text": ["a"]})
    assert open_model(batch.Predictor(folder).plan).task.ready(["a"]).size == 1 + NEW_TOKENS


def test_what_an_encoder_and_a_decoder_do_not_take(tmp_path):
    folder = exported(tmp_path, "bart/base")
    assert batch.Predictor(folder)({"text": ["x" * 30]})["error"][0].endswith(
        "a text of 30 tokens takes more positions than the model has: 24"
    )
    assert batch.Predictor(folder)({"text": ["x" * 800]})["error"] == [
        "the text has 800 characters, at most 768 are read: 32 for each of the model's 24 positions"
    ]
    assert batch.Predictor(folder)({"text": ["a cat"]})["error"] == [None]
    with pytest.raises(ValueError, match="max_new_tokens is 24, and its decoder has 24 positions .* at most 23"):
        batch.Predictor(folder, generation={"max_new_tokens": 24})({"text": ["a"]})
    with pytest.raises(ValueError, match="has an encoder, which reads no conversations; leave out chat"):
        batch.Predictor(folder, generation={"chat": True})({"text": ["a"]})
    with pytest.raises(ValueError, match="has an encoder and a decoder, which are not served; lucid map runs them"):
        pytest.importorskip("lucid.serving").application(folder)
    with pytest.raises(ValueError, match="for text-generation, which cuts off no rows; leave out max_length"):
        batch.Predictor(folder, max_length=5)({"text": ["a"]})
    with pytest.raises(ValueError, match="has an encoder, whose texts match no regex; leave it out"):
        batch.Predictor(folder, generation={"regex": "a"})({"text": ["a"]})
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "decoder_start_token_id": None}))
    with pytest.raises(ValueError, match="decoder_start_token_id is None in config.json, expected the number of a"):
        batch.Predictor(folder)({"text": ["a"]})
    (folder / "decoder_model_merged.onnx").unlink()
    with pytest.raises(
        ValueError, match="has 0 pairs of encoder_model and decoder_model_merged, expected one; got enc"
    ):
        batch.Predictor(folder)


def test_a_decoder_that_changes_ends_the_job(tmp_path):
    folder = exported(tmp_path, "t5/v1_1")
    predictor = batch.Predictor(folder, generation={"max_new_tokens": 2})
    predictor({"text": ["a"]})
    file = folder / "decoder_model_merged.onnx"
    file.write_bytes(file.read_bytes()[:-3])
    with pytest.raises(batch.FolderChangedError, match="is not what it was when the job began|have changed since"):
        predictor({"text": ["a"]})


def test_images_become_pixels_as_the_preprocessor_says(tmp_path):
    folder = exported(tmp_path, "vit/classifier")
    _, channels, height, width = Session(folder / "model.onnx").inputs["pixel_values"][1]
    assert channels == 3
    options = {"size": {"height": height, "width": width}, "image_mean": [0.5, 0.4, 0.3], "image_std": [0.2, 0.3, 0.4]}
    (folder / "preprocessor_config.json").write_text(json.dumps(options))
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "image.png")
    rows = [
        str(tmp_path / "image.png"),
        pixels,
        (tmp_path / "image.png").read_bytes(),
        b"no image",
        None,
        "missing.png",
        {"bytes": b"", "path": "a.png"},
        7,
    ]
    columns = batch.Predictor(folder, input="image")({"image": rows})
    values = (pixels / 255 - options["image_mean"]) / options["image_std"]
    (logits,) = (
        Session(folder / "model.onnx")
        .run({"pixel_values": values.transpose(2, 0, 1)[None].astype(np.float32)})
        .values()
    )
    powers = np.exp(logits[0].astype(np.float64))
    np.testing.assert_allclose(columns["score"][:3], (powers / powers.sum()).max(), rtol=1e-5)
    assert columns["error"][:3].tolist() == [None] * 3
    formats = "PNG, JPEG, WEBP, GIF, BMP, TIFF"
    assert columns["error"][3] == f"it is not an image in a supported format: {formats}; convert it"
    assert columns["error"][4] == "the image is null"
    assert columns["error"][5].startswith("the image cannot be read: ")
    expected = "expected an image: a path, bytes or an array, got"
    assert columns["error"][6:].tolist() == [f"{expected} dict; give its field bytes as the column", f"{expected} int"]


def test_a_vector_with_axes_of_one_place_is_a_vector(tmp_path):
    """ResNet's is (N, E, 1, 1): the job ended at the first image."""
    folder = exported(tmp_path, "resnet/features")
    options = {"image_processor_type": "ViTImageProcessor", "size": {"height": 32, "width": 32}, "do_normalize": False}
    (folder / "preprocessor_config.json").write_text(json.dumps(options))
    images = np.random.default_rng(0).integers(0, 256, (2, 32, 32, 3), dtype=np.uint8)
    columns = batch.Predictor(folder, input="image")({"image": list(images)})
    pixels = (images / 255).transpose(0, 3, 1, 2).astype(np.float32)
    expected = Session(folder / "model.onnx").run({"pixel_values": pixels})["pooler_output"]
    assert expected.shape == (2, 16, 1, 1)
    np.testing.assert_allclose(columns["embedding"], expected[:, :, 0, 0], rtol=1e-5)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "MPO", "WEBP", "GIF", "BMP", "TIFF", "PPM", "ICO", "EPS", "PDF"])
def test_images_are_decoded_by_their_content_and_only_those_that_people_send(tmp_path, monkeypatch, kind):
    """Pillow has decoders that start other programs; the name of a file says nothing."""
    images = pytest.importorskip("lucid.batch.images")
    rows = pytest.importorskip("lucid.batch.rows")
    options = {"image_processor_type": "ViTImageProcessor", "size": {"height": 8, "width": 8}}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(options))
    Image.new("RGB", (16, 16), "red").save(tmp_path / "image.png", format=kind)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)  # before the true one
    program = tmp_path / "gs"
    program.write_text(f"#!/bin/sh\necho started > {tmp_path / 'started'}\n")
    program.chmod(0o700)
    reader = images.ImageReader(tmp_path, ("N", 3, 8, 8))
    for value in (str(tmp_path / "image.png"), (tmp_path / "image.png").read_bytes()):
        if kind in ("PNG", "JPEG", "MPO", "WEBP", "GIF", "BMP", "TIFF"):
            assert reader.ready([value]).data.shape == (3, 8, 8)
        else:
            with pytest.raises(rows.RowError, match="not an image in a supported format: PNG, JPEG, "):
                reader.ready([value])
    assert not (tmp_path / "started").exists()


@pytest.mark.parametrize(
    ("options", "shape", "resized"),
    [
        ({"size": {"shortest_edge": 8}, "do_center_crop": True, "crop_size": 8}, (1, 4_000_000), "8 x 32000000"),
        ({"size": {"shortest_edge": 8}, "do_center_crop": True, "crop_size": 8}, (4_000_000, 1), "32000000 x 8"),
        ({"size": {"height": 224, "width": 224}}, (1, 4_000_000), "224 x 4000000"),  # between Pillow's two passes
    ],
)
def test_an_image_too_large_once_it_is_resized_is_the_error_of_its_row(tmp_path, options, shape, resized):
    images = pytest.importorskip("lucid.batch.images")
    rows = pytest.importorskip("lucid.batch.rows")
    config = {
        "image_processor_type": "CLIPImageProcessor",
        "do_center_crop": False,
        "resample": 3,
        "do_normalize": False,
    }
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({**config, **options}))
    reader = images.ImageReader(tmp_path, ("N", 3, "H", "W"))
    png = io.BytesIO()
    Image.new("L", shape).save(png, "PNG")
    message = (
        f"the image has {shape[0]} x {shape[1]} pixels, and {resized} while it is resized; at most 89,000,000 are "
        "computed"
    )
    with pytest.raises(rows.RowError, match=message):
        reader.ready([png.getvalue()])
    assert reader.ready([np.zeros((40, 2, 3), np.uint8)]).data.shape[0] == 3


GOLDEN = json.loads((Path(__file__).parents[1] / "goldens" / "images.json").read_text())


@pytest.mark.parametrize("case", GOLDEN["cases"], ids=lambda case: case["config"]["image_processor_type"])
def test_pixels_are_those_of_transformers(tmp_path, case):
    images = pytest.importorskip("lucid.batch.images")
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(case["config"]))
    pixels = images.ImageReader(tmp_path, ("N", 3, "H", "W")).ready([np.array(GOLDEN["image"], np.uint8)]).data
    np.testing.assert_allclose(pixels, case["pixels"], atol=1e-6)


def test_pixels_of_another_size_than_the_model_takes(tmp_path):
    images = pytest.importorskip("lucid.batch.images")
    (tmp_path / "preprocessor_config.json").write_text('{"image_processor_type": "ViTImageProcessor", "size": 8}')
    with pytest.raises(ValueError, match=r"makes pixels \[3, 8, 8\], and the model takes \[3, 12, 12\]"):
        images.ImageReader(tmp_path, ("N", 3, 12, 12))


# Pickles and folders that change --------------------------------------------------------------------------------------


def test_a_pickle_has_no_weights_and_computes_the_same(sentences):
    predictor = batch.Predictor(sentences)
    stored = pickle.dumps(predictor)
    assert len(stored) < 1000
    expected = predictor({"text": TEXTS})["embedding"]
    assert (pickle.loads(stored)({"text": TEXTS})["embedding"] == expected).all()


@pytest.mark.parametrize("name", ["model.onnx_data", "tokenizer.json"])
def test_a_folder_that_changes_under_a_running_job_is_refused(sentences, tmp_path, name):
    folder = shutil.copytree(sentences, tmp_path / "copy")
    predictor = batch.Predictor(folder)
    stored = pickle.dumps(predictor)
    predictor({"text": ["a"]})
    data = (folder / name).read_bytes()
    (folder / name).write_bytes(data)
    os.utime(folder / name, ns=(1, 1))
    predictor({"text": ["a"]})  # the same contents, written again
    (folder / name).write_bytes(data[:-2] + b"\n\n")
    for each in (predictor, pickle.loads(stored)):
        with pytest.raises(batch.FolderChangedError, match="have changed since the job began"):
            each({"text": ["a"]})
    (folder / name).unlink()
    with pytest.raises(batch.FolderChangedError, match=r"is not what it was when|have changed since"):
        predictor({"text": ["a"]})


def test_many_models_are_open_at_a_time_but_not_all_of_them(sentences, classifier, monkeypatch):
    opened = pytest.importorskip("lucid.batch.open_models")
    monkeypatch.setattr(opened, "_MOST", 2)
    predictors = [batch.Predictor(folder, max_length=n) for folder in (sentences, classifier) for n in (7, 8)]
    for each in (*predictors, *predictors):
        assert each({"text": ["a"]})["error"].tolist() == [None]
    assert [plan.folder for plan in list(opened._open)] == [str(classifier)] * 2


def test_who_plans_a_job_needs_no_device_of_the_model(sentences):
    predictor = batch.Predictor(sentences, providers="cuda")
    assert list(predictor.columns) == ["embedding"]
    with pytest.raises(lucid.runtime.ProviderError):
        predictor({"text": ["a"]})


# Errors ---------------------------------------------------------------------------------------------------------------


def test_a_checkpoint_that_is_not_exported_names_the_command(sentences):
    folder = sentences.parent / "checkpoint"
    with pytest.raises(FileNotFoundError, match=f"write one: lucid export {folder} --for onnxruntime --external-data"):
        batch.Predictor(folder)


@pytest.mark.parametrize(
    ("options", "columns", "error", "message"),
    [
        ({}, {"body": ["a"]}, KeyError, "there is no column text; the columns are body"),
        ({}, {"text": ["a"], "error": ["b"]}, ValueError, "the input has a column 'error' already"),
        ({"batch_tokens": 0}, {}, ValueError, "Predictor: batch_tokens is 0, expected 1 or more"),
        ({"threads": True}, {}, TypeError, "Predictor: threads is True, expected a whole number"),
        ({"max_characters": -1}, {}, ValueError, "Predictor: max_characters is -1, expected 1 or more"),
        ({"input": ("text", "text")}, {}, ValueError, "input is text, text, expected each column once"),
        (
            {"task": "text-generation"},
            {"text": []},
            ValueError,
            "is exported for sentence-similarity, not for 'text-gen",
        ),
        ({"prompt": 3}, {"text": ["a"]}, ValueError, "has no prompt 3; there are none"),
        ({"pooling": "cls"}, {"text": []}, ValueError, "gives sentence_embedding, which is a vector for each row"),
        ({"generation": {"max_new_tokens": 3}}, {"text": []}, ValueError, "which writes no text"),
    ],
)
def test_wrong_options_and_columns(sentences, options, columns, error, message):
    with pytest.raises(error, match=message):
        batch.Predictor(sentences, **options)(columns)


OF_MAPS = (
    "which is none of the tasks over images: image-classification, image-feature-extraction; .*for maps and boxes "
    "export it with --with-preprocessor, and run the file over images with lucid.runtime.Session"
)


def test_a_file_that_takes_texts_or_images_is_told_what_its_rows_can_be():
    """Detection has no task over rows with its preprocessor in the file either: no message sends to the other one."""
    images, pixels = lucid.spec("N", 8, 8, 3, dtype=lucid.uint8), lucid.spec("N", 3, 8, 8)

    def boxes(images):
        return {"logits": images.float().flatten(2), "pred_boxes": images.float()}

    def labels(images):
        return {"logits": images.float().flatten(1)}

    def message(function, spec, name):
        session = Session(lucid.export.to_onnx(function, kwargs={name: spec}))
        with pytest.raises(ValueError, match=name) as error:
            task_name(session, "FOLDER")
        return str(error.value)

    run = "run the file over images with lucid.runtime.Session"
    assert message(boxes, images, "images").endswith(f"next to the model; for maps and boxes {run}")
    assert message(labels, images, "images").endswith("export it without --with-tokenizer and --with-preprocessor")
    outside = message(lambda pixel_values: boxes(pixel_values), pixels, "pixel_values")
    assert outside.endswith(f"; for maps and boxes export it with --with-preprocessor, and {run}")


@pytest.mark.parametrize(
    ("variant", "message"),
    [
        (
            "whisper/base",
            "its encoder reads input_features, and rows are texts; for speech see lucid.models.speech",
        ),
        ("tasks/bert_token_classification", "makes logits of input_ids, .* which is none of the tasks over rows"),
        ("segformer/segmentation", f"makes logits of pixel_values, {OF_MAPS}"),
        ("depth_anything/base", f"makes predicted_depth of pixel_values, {OF_MAPS}"),
        ("detr/objects", f"makes logits, pred_boxes of pixel_values, .*{OF_MAPS}"),
        ("detr/base", f"makes last_hidden_state, .* of pixel_values, pixel_mask, {OF_MAPS}"),
        ("segformer/base", f"makes last_hidden_state of pixel_values, {OF_MAPS}"),
    ],
)
def test_models_that_are_for_no_task_over_rows(tmp_path, variant, message):
    folder = exported(tmp_path, variant)
    with pytest.raises(ValueError, match=message):
        batch.Predictor(folder)({"text": ["a"]})
