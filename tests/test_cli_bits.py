"""`--bits` and what goes with it, on every command that takes a model."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import lucid
from lucid.export import Target
from lucid.generation.chat import load_tokenizer, text_calls
from lucid.layouts import write_folder
from tests.chat.checkpoints import checkpoint
from tests.console import in_process
from tests.layout_checkpoints import whole

LEARNT = ("--bits", "4", "--method", "gptq")
TEXT = "the quick brown fox\njumps over the lazy dog\n\nabc def ghi jkl mno\n"


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkpoint(tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("texts") / "texts.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """A command in this process: its exit code, what it prints, and what it says on stderr."""

    def run(*arguments: object) -> tuple[int, str, str]:
        code = in_process(arguments, monkeypatch)
        out, err = capsys.readouterr()
        return code, out, " ".join(err.split())

    return run


def test_export_and_verify(call: Any, llama: Path, tmp_path: Path) -> None:
    path = tmp_path / "small.onnx"
    code, out, _ = call("export", llama, "--bits", "4", "--block", "16", "--target", "cpu", "-o", path)
    assert code == 0 and "parity with NumPy" in out
    model = onnx.load(path)
    kinds = Counter(node.op_type for node in model.graph.node)
    assert kinds["MatMulNBits"] == 15 and not kinds["MatMul"]  # the output layer is a table of 40 rows
    products = [node for node in model.graph.node if node.op_type == "MatMulNBits"]
    assert {next(a.i for a in node.attribute if a.name == "block_size") for node in products} == {16}
    code, out, _ = call("verify", llama, path, "--bits", "4", "--block", "16", "--target", "cpu")
    assert code == 0 and "compared at accuracy level 0; level 4 adds up to" in out
    code, out, _ = call("verify", llama, path, "--bits", "8", "--block", "16", "--target", "cpu")
    assert code == 1 and "FAIL" in out


def levels(path: Path) -> set[int]:
    """The accuracy levels of a file's products."""
    nodes = [node for node in onnx.load(path).graph.node if node.op_type == "MatMulNBits"]
    return {next((a.i for a in node.attribute if a.name == "accuracy_level"), 0) for node in nodes}


def test_the_accuracy_level_is_that_of_files_and_folders(call: Any, llama: Path, tmp_path: Path) -> None:
    path, folder, bits = tmp_path / "small.onnx", tmp_path / "genai", ("--bits", "4", "--block", "16")
    assert call("export", llama, *bits, "--target", "cpu", "--accuracy-level", "0", "-o", path)[0] == 0
    assert levels(path) == {0}
    code, out, _ = call("verify", llama, path, *bits, "--target", "cpu")
    assert code == 0 and "level 4 adds" not in out
    assert call("export", llama, "--for", "genai", *bits, "--accuracy-level", "0", "-o", folder)[0] == 0
    assert levels(folder / "model.onnx") == {0}
    code, _, error = call("export", llama, *bits, "--accuracy-level", "3", "-o", tmp_path / "other.onnx")
    assert code == 2 and "accuracy_level 3 is not supported: choose 4" in error
    model = lucid.quantize(lucid.models.load(llama), bits=4)
    with pytest.raises(ValueError, match="accuracy_level is given next to a Target"):
        write_folder(model, llama, folder, layout="genai", target=Target("cpu"), accuracy_level=0)


def test_agreement_with_the_quantised_model_and_the_cost_against_the_source_are_two_lines(
    call: Any, llama: Path, tmp_path: Path
) -> None:
    code, out, _ = call("export", llama, "--bits", "4", "-o", tmp_path / "small.onnx")
    (cost,) = re.findall(
        r"^cost  of quantizing \(NumPy, [^)]*\): logits: cosine (\S+) in the mean, ", out, re.MULTILINE
    )
    assert code == 0 and "ok    parity with NumPy" in out and 0.5 < float(cost) < 0.9995
    *_, report = call("export", llama, "--bits", "8", "-o", tmp_path / "8.onnx", "--json")[:2]
    (output,) = json.loads(report)["quantizing"]["outputs"]
    assert output["output"] == "logits" and 0.999 < output["cosine_worst"] <= output["cosine_mean"] < 1
    assert float(cost) < output["cosine_mean"] and 0 < output["relative_error"] < 0.05
    code, out, _ = call("export", llama, "-o", tmp_path / "float.onnx")
    assert "of quantizing" not in out
    code, out, _ = call("export", llama, "--bits", "4", "-o", tmp_path / "small.onnx", "--no-check")
    assert code == 0 and "cost" not in out and "parity" not in out


@pytest.mark.parametrize("layout", ["onnxruntime", "genai"])
def test_the_card_of_a_quantised_model_says_both(call: Any, llama: Path, tmp_path: Path, layout: str) -> None:
    code, out, _ = call("export", llama, "--bits", "4", "--for", layout, "-o", tmp_path / "made")
    card = (tmp_path / "made" / "README.md").read_text()
    assert code == 0 and out.count("cost  of quantizing (NumPy, ") == 1
    assert "## Agreement with the quantized model" in card and "with the source\n" not in card
    assert re.search(r"## What quantizing cost\n(.|\n)*\| `model.onnx` \| `logits` \| 0\.\d{4} \| 0\.\d{4} \| \d", card)
    code, out, _ = call("export", llama, "--bits", "4", "--for", layout, "-o", tmp_path / "made", "--no-check")
    card = (tmp_path / "made" / "README.md").read_text()
    assert code == 0 and "cost" not in out + card and "compared" not in card and "Not measured (`--no-check`)" in card


def test_a_folder_of_several_precisions(call: Any, tmp_path: Path) -> None:
    source, folder = whole(tmp_path / "bert", "bert/base"), tmp_path / "made"
    options = ("--bits", "8,4,float", "--dtype", "float16", "--block", "16")
    code, out, _ = call("export", source, "--for", "transformers.js", *options, "-o", folder)
    files = ["model_quantized.onnx", "model_q4.onnx", "model.onnx", "model_fp16.onnx"]
    assert code == 0 and [line for line in out.split() if line.startswith("onnx/")] == [f"onnx/{f}" for f in files]
    assert sorted(path.name for path in (folder / "onnx").iterdir()) == sorted(files)
    assert json.loads((folder / "config.json").read_text())["transformers.js_config"] == {"dtype": "q8"}
    card = (folder / "README.md").read_text()
    agreement, cost = card.split("## Agreement")[1].split("## What quantizing cost")
    for file in files:
        assert re.search(rf"\| `onnx/{file}` \| .* \| yes \|", agreement)
        assert (f"| `onnx/{file}` | `last_hidden_state` |" in cost) == (file in files[:2])
    assert "Loaded without a `dtype` it is `q8`. The folder also has `q4`, `fp32`, `fp16`: a last" in card
    for file, kinds in zip(files, ("8 bits, float32", "4 bits, float32", "float32", "float16"), strict=True):
        assert f"| weights of `onnx/{file}` | {kinds} |" in card
    code, out, _ = call("verify", source, folder / "onnx" / "model_q4.onnx", "--bits", "4", "--block", "16")
    assert code == 0, out


def test_a_folder_of_several_precisions_is_verified_by_the_options_of_its_export(call: Any, tmp_path: Path) -> None:
    source, folder = whole(tmp_path / "bert", "bert/base"), tmp_path / "made"
    options = ("--bits", "8,4,float", "--dtype", "float16", "--block", "16")
    assert call("export", source, "--for", "transformers.js", *options, "-o", folder, "--no-check")[0] == 0
    code, out, _ = call("verify", source, folder, *options)
    assert code == 0 and out.count("equal the model's, bit for bit") == 4, out
    (folder / "lucid_export.json").unlink()  # which would tell the options
    code, _, message = call("verify", source, folder, "--bits", "8,4", "--block", "16")
    assert code == 2 and re.search(r"--bits 8,4: \S+model.onnx is in none of these precisions; give those", message)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--bits", "8,4,float", "--dtype", "float16"], "--bits 8,4,float --dtype float16"),
        (["--bits", "8"], "--bits 8"),
        (["--dtype", "float16"], "--dtype float16"),
        (["--bits", "encoder.layer.0*=8,*=4"], "--bits PATTERN=BITS,..."),
        ([], "no --bits and no --dtype"),
    ],
    ids=str,
)
def test_a_folder_tells_the_precision_of_its_export_before_anything_is_compared(
    call: Any, tmp_path: Path, options: list[str], told: str
) -> None:
    source, folder = whole(tmp_path / "bert", "bert/base"), tmp_path / "made"
    assert call("export", source, "--for", "transformers.js", *options, "-o", folder, "--no-check")[0] == 0
    code, out, message = call("verify", source, folder, *([] if options else ["--bits", "4"]))
    assert (code, out) == (2, "") and f"; give {told}, and the other options of the export" in message, message
    assert call("verify", source, folder, *options)[0] == 0


def test_a_source_too_large_to_be_run_is_not_measured_and_the_line_says_so(
    call: Any, llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lucid.testing.quantizing_cost.MOST", 1000)
    code, out, _ = call("export", llama, "--bits", "4", "-o", tmp_path / "small.onnx")
    assert code == 0 and "cost  of quantizing was not measured: the source has more than" in out


def test_a_checkpoint_in_half_precision_is_rounded_as_its_widened_weights(call: Any, tmp_path: Path) -> None:
    source = "tests/goldens/llama/bfloat16_sharded"
    assert (
        call("export", source, "--bits", "4", "--block", "16", "--target", "cpu", "-o", tmp_path / "one.onnx")[0] == 0
    )
    small = lucid.quantize(lucid.models.load(source), 4, block=16)
    lucid.export.to_onnx(small, target="cpu", path=tmp_path / "two.onnx")
    assert onnx.load(tmp_path / "one.onnx") == onnx.load(tmp_path / "two.onnx")


def test_bits_by_layer_and_layers_that_stay(call: Any, llama: Path, tmp_path: Path) -> None:
    path = tmp_path / "small.onnx"
    options = ["--bits", "model.layers.0.*.v_proj=8,*.mlp.*=float,*=4", "--skip", "*.q_proj", "--target", "cpu"]
    assert call("export", llama, *options, "-o", path)[0] == 0
    graph = onnx.load(path).graph
    products = [node for node in graph.node if node.op_type == "MatMulNBits"]
    assert Counter(a.i for node in products for a in node.attribute if a.name == "bits") == {8: 1, 4: 6}
    assert Counter(node.op_type for node in graph.node)["MatMul"] == 8  # two q_proj, six of mlp


@pytest.mark.parametrize("way", ["dynamic", "dynamic_rows", "static"])
def test_activations_in_8_bits(way: str, call: Any, llama: Path, text: Path, tmp_path: Path) -> None:
    arguments = ["--bits", "8", "--activations", way]
    arguments += ["--text", text, "--ranges", "percentile"] if way == "static" else []
    assert call("quantize", llama, *arguments, "-o", tmp_path / "small")[0] == 0
    calls = text_calls(load_tokenizer(llama), TEXT)
    learnt = {"calibration": calls, "ranges": "percentile"} if way == "static" else {}
    small: Any = lucid.quantize(lucid.models.load(llama), 8, activations=way, **learnt)
    again: Any = lucid.models.load(tmp_path / "small")
    assert again.state_dict().keys() == small.state_dict().keys()
    for name, tensor in small.state_dict().items():
        np.testing.assert_array_equal(again.state_dict()[name].numpy(), tensor.numpy())
    code, out, _ = call("export", llama, *arguments, "-o", tmp_path / "small.onnx")
    assert code == 0 and "parity with NumPy" in out
    code, out, _ = call("verify", llama, tmp_path / "small.onnx", *arguments)
    assert code == 0 and "inputs of products are rounded to 8 bits" in out
    assert call("verify", tmp_path / "small", tmp_path / "small.onnx")[0] == 0
    assert call("verify", llama, tmp_path / "small.onnx", "--bits", "8", "--block", "16")[0] == 1


def test_a_report_of_activations_in_8_bits(call: Any, llama: Path, text: Path, tmp_path: Path) -> None:
    arguments = ["--bits", "8", "--activations", "static", "--text", text, "--target", "any", "--seconds", "0.01"]
    assert call("report", llama, *arguments, "-o", tmp_path / "page.html")[0] == 0
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "model.layers.1.mlp.down_proj" in page and "signal to noise" in page.lower()


def test_gptq_learns_from_texts(call: Any, llama: Path, text: Path) -> None:
    code, out, _ = call(
        "generate", llama, "abc", "-n", "4", "--bits", "4", "--method", "gptq", "--text", text, "--json"
    )
    assert code == 0
    model: Any = lucid.models.load(llama)
    small = lucid.quantize(model, 4, method="gptq", calibration=text_calls(load_tokenizer(llama), TEXT))
    tokenizer = load_tokenizer(llama)
    ours = lucid.generation.Generator(small).generate([tokenizer.encode("abc")], max_new_tokens=4)[0]
    assert json.loads(out)["ids"] == ours.tolist()[: len(json.loads(out)["ids"])]


def test_texts_are_pieces_of_one_or_a_line_each(llama: Path) -> None:
    tokenizer = load_tokenizer(llama)
    pieces = text_calls(tokenizer, TEXT, length=20)
    assert [piece.shape for piece in pieces][:2] == [(1, 20), (1, 20)]
    assert [i for piece in pieces for i in piece[0].tolist()] == tokenizer.encode(TEXT)
    lines = text_calls(tokenizer, TEXT, by_line=True, length=10)
    assert [line[0].tolist() for line in lines] == [tokenizer.encode(line)[:10] for line in TEXT.splitlines() if line]
    assert text_calls(tokenizer, " \n") == []


def test_the_report_says_what_the_bits_cost(call: Any, llama: Path, text: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    few = ["--bits", "4", "--block", "16"]
    code, _, err = call("report", llama, *few, "--text", text, "--target", "cpu", "--seconds", "0.01", "-o", page)
    assert code == 0, err
    match = re.search(r'<script id="data" type="application/json">(.*?)</script>', page.read_text("utf-8"), re.S)
    assert match is not None
    whole = json.loads(match[1])
    assert "".join(whole["attention"]["tokens"]).startswith("he animal did not")  # the tokenizer knows no capitals
    assert not whole["random"] and whole["shapes"]["input_ids"] == [1, len(whole["attention"]["tokens"])]
    data = whole["precision"]
    small = lucid.quantize(lucid.models.load(llama), 4, block=16)
    report = lucid.testing.precision_report(lucid.models.load(llama), small, text_calls(load_tokenizer(llama), TEXT))
    assert [layer["module"] for layer in data["layers"]] == [layer.path for layer in report.layers]
    assert data["layers"][1]["alone"] == pytest.approx(report.layers[1].alone)
    assert any(line.startswith("perplexity of") for line in data["summary"])
    assert call("report", llama, *few, "--size", "L=4", "--target", "cpu", "--seconds", "0.01", "-o", page)[0] == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--bits", "5"], "quantize: bits is 5, expected one of 4, 8"),
        (["--bits", "4", "--block", "24"], "block is 24, expected a power of two from 16 to 2048"),
        (["--bits", "four"], '--bits four: expected 4, 8, or bits by pattern, each once, such as "lm_head=8,*=4"'),
        (["--bits", "a=4,a=8"], "--bits a=4,a=8: expected 4, 8, or bits by pattern, each once"),
        (["--bits", "8,4"], "several precisions, such as 8,4, are for lucid export --for transformers.js"),
        (["--bits", "8,4", "--for", "optimum"], "--bits 8,4: a folder for optimum holds the model in one precision"),
        (["--bits", "8,8", "--for", "transformers.js"], "--bits 8,8: expected each precision once"),
        (["--bits", "head=8,*=4"], "bits names 'head', which no layer has; there are model.embed_tokens"),
        (["--bits", "4", "--skip", "head"], "skip names 'head', which no layer has"),
        (["--activations", "dynamic"], "--activations: for quantized weights; give --bits 8 too"),
        (["--bits", "4", "--activations", "dynamic"], "goes with weights in 8 bits, and bits is 4; give bits=8"),
        (
            ["--bits", "8", "--activations", "static"],
            "--activations static learns from texts: give a file of some hundred sentences, as --text texts.txt",
        ),
        (["--bits", "8", "--ranges", "minmax"], "ranges is 'minmax', which is for activations=\"static\""),
        (["--bits", "8", "--activations", "dynamic", "--block", "32"], "leave out block"),
        (["--block", "32", "--search"], "--block, --search: for quantized weights; give --bits 4 too"),
        (
            ["--accuracy-level", "4"],
            "--accuracy-level: for products whose weights alone are quantized, of which the model has",
        ),
        (["--accuracy-level", "0", "--bits", "8", "--activations", "dynamic"], "give --bits 4, or leave it out"),
        (
            ["--accuracy-level", "0", "--for", "genai"],
            "--accuracy-level: for products whose weights alone are quantized, of which the model has",
        ),
        (["--bits", "4", "--method", "gptq"], "--method gptq learns from texts: give a file of some hundred sentences"),
        (["--bits", "4", "--method", "hqq", "--symmetric"], 'method="hqq" finds zero points'),
        (["--bits", "4", "--method", "gptq", "--text", "none.txt"], "there is no file 'none.txt'"),
    ],
)
def test_what_is_not_understood_is_an_error_and_writes_nothing(
    options: list[str], message: str, call: Any, llama: Path, tmp_path: Path
) -> None:
    code, _, err = call("export", llama, *options, "-o", tmp_path / "out")
    assert code in (1, 2) and message in err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "command",
    ["export --for genai -o OUT", "verify MODEL", "report -o OUT", "generate abc", "generate --eager abc", "chat"],
)
def test_every_command_says_so(command: str, call: Any, llama: Path, tmp_path: Path) -> None:
    lucid.export.to_onnx(lucid.nn.ReLU(), ("N",), path=tmp_path / "model.onnx")
    paths = {"OUT": tmp_path / "out", "MODEL": tmp_path / "model.onnx"}
    name, *others = (paths.get(word, word) for word in command.split())
    for options, message in (
        (["--bits", "5"], "quantize: bits is 5"),
        (["--block", "32"], "--block: for quantized weights"),
    ):
        code, _, err = call(name, llama, *others, *options)
        assert code in (1, 2) and message in err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("command", ["export -o OUT", "verify MODEL", "generate abc", "generate --eager abc", "chat"])
def test_texts_that_nothing_reads_are_refused(command: str, call: Any, llama: Path, text: Path, tmp_path: Path) -> None:
    lucid.export.to_onnx(lucid.nn.ReLU(), ("N",), path=tmp_path / "model.onnx")
    paths = {"OUT": tmp_path / "out", "MODEL": tmp_path / "model.onnx"}
    name, *others = (paths.get(word, word) for word in command.split())
    code, _, err = call(name, llama, *others, "--bits", "4", "--text", text)
    assert (code, "--text is for --method gptq and --activations static, for quantize --targ" in err) == (2, True), err
    assert not (tmp_path / "out").exists()


def test_texts_need_a_tokenizer_and_bits_a_module(call: Any, text: Path, tmp_path: Path) -> None:
    linear = ["nn.Linear", "--set", "in_features=32", "--set", "out_features=8", "-o", tmp_path / "model.onnx"]
    assert call("export", *linear, "--bits", "4")[0] == 0
    code, _, err = call("export", *linear, *LEARNT, "--text", text)
    assert code == 2 and "--text: SOURCE has no tokenizer; give a checkpoint" in err
    empty = tmp_path / "empty.txt"
    for content, message in (
        (b" \n", "has no text, expected some hundred"),
        (b"K\xe4se", "empty.txt: not text in UTF-8 (byte 1); save it as UTF-8"),
        ("Käse".encode("utf-16"), "empty.txt: is text in UTF-16, expected UTF-8; save it as UTF-8"),
    ):
        empty.write_bytes(content)
        source = checkpoint(tmp_path / "llama")
        code, _, err = call("generate", source, "abc", *LEARNT, "--text", empty)
        assert code == 2 and message in err
    code, _, err = call("export", "nn.functional.relu", "-i", "x:N,4", "--bits", "4", "-o", tmp_path / "relu.onnx")
    assert code == 2 and "--bits: SOURCE is a function, expected a Module" in err
