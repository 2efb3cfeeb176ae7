"""Tokenizers in ONNX files: texts in, the same tokens as outside."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import lucid
from lucid.batch import Predictor
from lucid.export import ExportError, Preprocessing, to_onnx
from lucid.layouts import write_folder
from lucid.runtime import Session
from tests.console import in_process
from tests.layout_checkpoints import whole
from tests.models import goldens

pytest.importorskip("onnxruntime_extensions")

from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, processors

from lucid.layouts.checkpoint_files import max_tokens
from lucid.layouts.tokenizing import NotExpressedError, text_parity, text_preprocessing, texts
from lucid.layouts.tokenizing.reference import reference_of

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PIECES = ["a", "b", "c", "d", "##a", "##b", "##c", "##d", "ab", "##cd", "!", ",", "é", "##é", "中", "😀", "ᄒ", "##ᅡ"]
BYTES = sorted(pre_tokenizers.ByteLevel.alphabet())


def bert(**options: Any) -> Tokenizer:
    """A tokenizer as BERT's, with 23 tokens."""
    tokenizer = Tokenizer(models.WordPiece({t: n for n, t in enumerate([*SPECIAL, *PIECES])}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(**options)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer.add_special_tokens(SPECIAL)
    return tokenizer


def roberta(**options: Any) -> Tokenizer:
    """A tokenizer as RoBERTa's: the bytes and two pairs of them."""
    tokens = ["<s>", "<pad>", "</s>", "<unk>", *BYTES, "ab", "Ġa"]
    tokenizer = Tokenizer(models.BPE({token: number for number, token in enumerate(tokens)}, [("a", "b"), ("Ġ", "a")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, **options)
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), trim_offsets=True)
    tokenizer.add_special_tokens([*tokens[:4], AddedToken("<mask>", lstrip=True, normalized=False)])
    return tokenizer


def folder(path: Path, tokenizer: Tokenizer, **options: Any) -> Path:
    """A folder with a tokenizer of 12 tokens a text."""
    path.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(path / "tokenizer.json"))
    about = {"model_max_length": 12, "pad_token": tokenizer.id_to_token(0), **options}
    (path / "tokenizer_config.json").write_text(json.dumps(about))
    return path


def checkpoint(path: Path, variant: str = "sentences/cls") -> Path:
    """A checkpoint of the goldens with BERT's tokenizer."""
    copy = whole(path, variant)
    folder(copy / "0_Transformer" if (copy / "0_Transformer").is_dir() else copy, bert())
    return copy


@pytest.fixture(scope="module")
def in_bert(tmp_path_factory: pytest.TempPathFactory) -> Preprocessing:
    return text_preprocessing(folder(tmp_path_factory.mktemp("bert"), bert()))


@pytest.fixture
def few_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exports that compare the difficult texts only, and not every kind of character."""

    def none() -> Iterator[str]:
        yield "a"

    monkeypatch.setattr(texts, "of_every_kind", none)


def inputs_of(preprocessing: Preprocessing, sentences: list[str]) -> dict[str, list[list[int]]]:
    """The token ids, masks and types that an exported file computes from texts."""
    kind = lucid.spec("N", "L", dtype=lucid.int64)
    exported = to_onnx(
        lambda input_ids, attention_mask, token_type_ids: (input_ids, attention_mask, token_type_ids),
        *(kind, kind, kind),
        preprocessing=preprocessing,
        output_names=["ids", "mask", "types"],
    )
    return {
        name: array.tolist() for name, array in Session(exported).run({"text": np.array(sentences, object)}).items()
    }


# Tokens ---------------------------------------------------------------------------------------------------------------


def test_texts_are_padded_to_the_longest_and_told_from_padding(in_bert: Preprocessing) -> None:
    arrays = inputs_of(in_bert, ["ab!", ""])
    assert arrays["ids"] == [[2, 13, 15, 3], [2, 3, 0, 0]]
    assert arrays["mask"] == [[1, 1, 1, 1], [1, 1, 0, 0]]
    assert arrays["types"] == [[0] * 4, [0] * 4]


def test_a_long_text_keeps_its_beginning_and_the_last_token(in_bert: Preprocessing) -> None:
    assert inputs_of(in_bert, ["a " * 30])["ids"] == [[2, *[5] * 10, 3]]


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("a😀", "[UNK]"),  # the operator BertTokenizer gives a, then [UNK]
        ("하", "ᄒ ##ᅡ"),  # the letters that a Korean syllable is made of
        ("ÁB, Ab", "ab , ab"),
        ("a中b", "a 中 b"),
        ("a[MASK]b [mask]", "a [MASK] b [UNK] [UNK] [UNK]"),
        ("[MA\U0010fffdSK]", "[UNK] [UNK] [UNK]"),  # the characters that stand for special tokens within are removed
        ("a\U0010fffdb \u200bc\tc", "ab c c"),
        ("a" * 100 + " " + "a" * 101, "a" + " ##a" * 10),
    ],
)
def test_berts_tokens_are_those_of_its_own_tokenizer(text: str, tokens: str, in_bert: Preprocessing) -> None:
    names = [*SPECIAL, *PIECES]
    pieces = [names[number] for number in inputs_of(in_bert, [text])["ids"][0][1:-1]]
    assert pieces == tokens.split()[:10]


def test_cased_letters_stay(tmp_path: Path, few_texts: None) -> None:
    preprocessing = text_preprocessing(folder(tmp_path / "cased", bert(lowercase=False)))
    assert inputs_of(preprocessing, ["ab Ab é"])["ids"] == [[2, 13, 1, 17, 3]]


def test_a_tokenizer_without_special_tokens_looks_for_none(tmp_path: Path, few_texts: None, capfd: Any) -> None:
    """RE2 refuses a class without characters, in a line for each text, and replaces nothing."""
    place = folder(tmp_path / "plain", bert())
    content = json.loads((place / "tokenizer.json").read_text())
    (place / "tokenizer.json").write_text(json.dumps(content | {"added_tokens": []}))
    assert inputs_of(text_preprocessing(place), ["a [MASK]"])["ids"] == [[2, 5, 1, 1, 1, 3]]
    assert "Error parsing" not in capfd.readouterr().err


def test_robertas_tokens_are_those_of_its_own_tokenizer(tmp_path: Path) -> None:
    tokenizer = roberta()
    preprocessing = text_preprocessing(folder(tmp_path / "roberta", tokenizer))
    texts_read = ["ab a<mask> <s", "  é\n", ""]
    arrays = inputs_of(preprocessing, texts_read)
    for ids, mask, text in zip(arrays["ids"], arrays["mask"], texts_read, strict=True):
        assert [number for number, kept in zip(ids, mask, strict=True) if kept] == tokenizer.encode(text).ids


# What is refused ------------------------------------------------------------------------------------------------------


def prefixed() -> Tokenizer:
    tokenizer = roberta()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    return tokenizer


def composed() -> Tokenizer:
    tokenizer = bert()
    tokenizer.normalizer = normalizers.NFKC()
    return tokenizer


def greedy() -> Tokenizer:
    tokenizer = bert()
    tokenizer.add_special_tokens([AddedToken("[E]", rstrip=True)])
    return tokenizer


def without_unknown() -> Tokenizer:
    tokenizer = bert()
    tokenizer.model.unk_token = "[NONE]"
    return tokenizer


def unigram() -> Tokenizer:
    return Tokenizer(models.Unigram([("<unk>", 0.0), ("a", -1.0)], 0, False))


@pytest.mark.parametrize("config", [{}, {"model_max_length": 7}])
@pytest.mark.parametrize("variant", ["normalized", "model2vec"])
def test_static_embeddings_say_their_length_in_tokenizer_json(
    variant: str, config: dict[str, Any], tmp_path: Path
) -> None:
    place = shutil.copytree(goldens.folder(f"static_embedding/{variant}"), tmp_path / variant)
    file, options = place / "tokenizer.json", place / "tokenizer_config.json"
    options.write_text(json.dumps(config))
    content = json.loads(file.read_text())
    length = content["truncation"]["max_length"]
    assert max_tokens(place) == reference_of(place).length == length
    file.write_text(json.dumps(content | {"truncation": None}))
    with pytest.raises(NotExpressedError, match="does not say how many tokens .*; write a truncation into tokenizer"):
        reference_of(place)


@pytest.mark.parametrize(
    ("tokenizer", "options", "why"),
    [
        (unigram, {}, "its model is Unigram; onnxruntime-extensions 0.15 gives no mask for such models"),
        (composed, {}, "its normalizer is NFKC, and a WordPiece tokenizer is written with BertNormalizer only"),
        (greedy, {}, r"its added token '\[E\]' is not found as BERT's special tokens are"),
        (without_unknown, {}, r"its unk_token '\[NONE\]' is not in its vocabulary"),
        (
            prefixed,
            {},
            "at 'Hello, world!' onnxruntime-extensions finds the tokens <s> H .*, the checkpoint's .* <s> Ġ H",
        ),
        (bert, {"padding_side": "left"}, "padding_side is 'left', expected 'right'"),
        (bert, {"model_max_length": 10**30}, "does not say how many tokens .*; write model_max_length"),
    ],
)
def test_a_tokenizer_that_would_differ_is_refused(
    tokenizer: Any, options: dict[str, Any], why: str, tmp_path: Path
) -> None:
    with pytest.raises(NotExpressedError, match=why):
        text_preprocessing(folder(tmp_path / "made", tokenizer(), **options))


def test_models_without_these_inputs_and_other_runtimes_are_refused(in_bert: Preprocessing) -> None:
    with pytest.raises(ExportError, match="preprocessing computes input_ids, .*; the model takes x"):
        to_onnx(lambda x: x + 1, lucid.spec("N"), preprocessing=in_bert)
    kind = lucid.spec("N", "L", dtype=lucid.int64)
    with pytest.raises(
        ExportError, match="operators of onnxruntime, got target 'openvino'; choose one of any, cpu, cuda"
    ):
        to_onnx(lambda input_ids: input_ids + 1, kind, preprocessing=in_bert, target="openvino")
    with pytest.raises(ExportError, match="preprocessing reads text, which is a name in the model"):
        to_onnx(lambda input_ids, text: input_ids + text, kind, kind, preprocessing=in_bert)


@pytest.mark.parametrize(
    ("variant", "layout", "why"),
    [
        (
            "sentences/cls",
            "transformers.js",
            "transformers.js runs the tokenizer or preprocessor itself; .* is for layout 'onnxruntime'",
        ),
        ("llama/llama3", "onnxruntime", "takes position_ids, .*; a decoder continues a text token by token"),
        ("t5/v1_0", "onnxruntime", "models that read one text at once; this one takes"),
        ("vit/base", "onnxruntime", "this one takes pixel_values"),
    ],
)
def test_models_that_a_text_alone_does_not_feed_are_refused(
    variant: str, layout: str, why: str, tmp_path: Path
) -> None:
    model = lucid.models.load(goldens.folder(variant))
    with pytest.raises(ValueError, match=why):
        write_folder(model, goldens.folder(variant), tmp_path / "made", layout=layout, with_tokenizer=True)
    assert not (tmp_path / "made").exists()


# Folders and the command line -----------------------------------------------------------------------------------------


def test_a_folder_takes_texts_and_its_card_runs(
    tmp_path: Path, few_texts: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = checkpoint(tmp_path / "tiny")
    model = lucid.models.load(source)
    (file,) = write_folder(model, source, tmp_path / "made", layout="onnxruntime", with_tokenizer=True)
    assert {name: str(kind) for name, kind in file.inputs.items()} == {"text": "string[batch_size]"}
    assert file.parity is not None and file.parity.passed and len(file.parity.comparisons) == 3
    card = (tmp_path / "made" / "README.md").read_text()
    assert "Each file was run on texts, read by the checkpoint's own tokenizer" in card
    with pytest.raises(ValueError, match="its model takes text, .* export it without --with-tokenizer"):
        Predictor(tmp_path / "made", input="text")({"text": np.array(["a"])})
    monkeypatch.chdir(tmp_path)
    exec(card.split("```python\n")[1].split("```")[0], {})
    assert capsys.readouterr().out.startswith("[[")


def test_the_command_writes_verifies_and_runs_a_file_that_takes_texts(
    tmp_path: Path, few_texts: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*arguments: object, code: int = 0) -> str:
        assert in_process(arguments, monkeypatch, tmp_path) == code
        return " ".join("".join(capsys.readouterr()).split())

    checkpoint(tmp_path / "tiny")
    out = run("export", "tiny", "--with-tokenizer", "-o", "texts.onnx")
    assert "input text string[N]" in out and "parity with NumPy in 3 runs" in out
    assert run("verify", "tiny", "texts.onnx").count("ok ") == 3 + 1  # runs, and the weights
    run("export", "tiny", "--for", "onnxruntime", "--with-tokenizer", "-o", "texts")
    whole_file = run("verify", "tiny", "texts")  # with token_type_ids, which the plain export leaves out
    assert whole_file.count("ok ") == 3 + 1 and "note" not in whole_file
    np.savez(tmp_path / "in.npz", text=np.array(["ab", "a b"]))
    assert "sentence_embedding float32[2, 16]" in run("run", "texts.onnx", "in.npz")
    assert "string[N]" in run("inspect", "texts.onnx")
    assert "whose sizes are those of their tokens" in run("verify", "tiny", "texts.onnx", "--size", "N=1", code=2)
    linear = ("nn.Linear", "--set", "in_features=2", "--set", "out_features=2", "-i", "x:N,2", "-o", "l.onnx")
    assert "has no tokenizer; give the folder" in run("export", *linear, "--with-tokenizer", code=2)


def test_a_file_with_another_tokenizer_is_found(tmp_path: Path, in_bert: Preprocessing) -> None:
    source = checkpoint(tmp_path / "tiny")
    model = lucid.models.load(source)
    exported = to_onnx(model, preprocessing=in_bert)
    node = next(node for node in exported.graph.node if node.op_type == "LabelEncoder")
    for attribute in node.attribute:
        if attribute.name == "values_int64s":
            attribute.ints[5], attribute.ints[6] = attribute.ints[6], attribute.ints[5]
    part = lucid.tracing.parts.ModelPart(model, model.input_specs())
    assert not text_parity(part, exported, source).passed


def test_without_the_library_a_session_says_what_to_install(
    in_bert: Preprocessing, monkeypatch: pytest.MonkeyPatch
) -> None:
    exported = onnx.ModelProto()
    kind = lucid.spec("N", "L", dtype=lucid.int64)
    exported.CopyFrom(to_onnx(lambda input_ids: input_ids + 1, kind, preprocessing=in_bert))
    monkeypatch.setitem(sys.modules, "onnxruntime_extensions", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'lucid-onnx\[extensions\]'"):
        Session(exported)


def test_a_tokenizer_in_few_bits_and_half_precision(tmp_path: Path, in_bert: Preprocessing) -> None:
    source = checkpoint(tmp_path / "tiny")
    small = lucid.quantize(lucid.models.load(source), 4, block=16)
    part = lucid.tracing.parts.ModelPart(small, small.input_specs())
    exported = to_onnx(small, preprocessing=in_bert, dtype="float16")
    assert text_parity(part, exported, source, dtype="float16").passed
