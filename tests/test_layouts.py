"""Folders for other runtimes: the names of files, of inputs and of axes, what configs say, and the card.

tests/consumers loads such folders with the runtimes themselves (`make test-consumers`).
"""

from __future__ import annotations

import ast
import hashlib
import json
import resource
from functools import cache
from pathlib import Path
from typing import Any, get_args

import numpy as np
import onnx
import pytest

import lucid
from lucid.cli.options.commands import LayoutName
from lucid.layouts import LAYOUTS, write_folder
from lucid.runtime import Session
from lucid.testing.part_parity import part_parity
from tests.layout_checkpoints import whole
from tests.models import goldens


@cache
def model(variant: str, task: str | None = None) -> Any:
    return lucid.models.load(goldens.folder(variant), task)


def written(tmp_path: Path, variant: str, layout: str, **options: Any) -> Path:
    """A folder for a model of the goldens, which is not compared with NumPy unless `check` asks for it."""
    source = tmp_path / "tiny"
    if not source.exists():
        whole(source, variant)
    write_folder(model(variant), source, tmp_path / "made", layout=layout, **{"check": False, **options})
    return tmp_path / "made"


def names(folder: Path) -> list[str]:
    """The files except those that every folder has: the card, the list of files, and what is copied."""
    common = {"README.md", "lucid_export.json", "tokenizer.json", "tokenizer_config.json", "preprocessor_config.json"}
    files = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    return sorted(name for name in files if name not in common)


def types(values: Any) -> dict[str, list[Any]]:
    """The sizes of inputs or outputs by name."""
    return {v.name: [d.dim_param or d.dim_value for d in v.type.tensor_type.shape.dim] for v in values}


TEXT = ["batch_size", "sequence_length"]


# Files ----------------------------------------------------------------------------------------------------------------


def test_a_tokenizer_with_more_tokens_than_the_table_is_refused(tmp_path: Path) -> None:
    """Those added to its vocabulary do not count, as some of Gemma 3 stand for images."""
    file = whole(tmp_path / "tiny", "bert/base") / "tokenizer.json"
    content, rows = json.loads(file.read_text()), model("bert/base").config.vocab_size
    added = {**content["added_tokens"][0], "id": rows + 5, "content": "<image>"}
    file.write_text(json.dumps({**content, "added_tokens": [*content["added_tokens"], added]}))
    written(tmp_path, "bert/base", "onnxruntime")
    content["model"]["vocab"]["zebra"] = rows
    file.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=f"ids up to {rows}, and the model's table has {rows} rows"):
        written(tmp_path, "bert/base", "onnxruntime")


@pytest.mark.parametrize(
    ("variant", "layout", "expected"),
    [
        ("bert/base", "onnxruntime", ["config.json", "model.onnx"]),
        ("bert/base", "optimum", ["config.json", "model.onnx"]),
        ("bert/base", "transformers.js", ["config.json", "onnx/model.onnx"]),
        ("llama/llama3", "transformers.js", ["config.json", "onnx/model.onnx"]),
        (
            "t5/v1_1",
            "transformers.js",
            ["config.json", "onnx/decoder_model_merged.onnx", "onnx/encoder_model.onnx"],
        ),
        ("t5/v1_0", "optimum", ["config.json", "decoder_model_merged.onnx", "encoder_model.onnx"]),
        ("vit/classifier", "transformers.js", ["config.json", "onnx/model.onnx"]),
        (
            "sentences/cls",
            "sentence-transformers",
            ["1_Pooling/config.json", "config.json", "modules.json", "onnx/model.onnx"],
        ),
        (
            "sentences/dense",
            "sentence-transformers",
            [
                "1_Pooling/config.json",
                "2_Dense/config.json",
                "2_Dense/model.safetensors",
                "config.json",
                "modules.json",
                "onnx/model.onnx",
            ],
        ),
        ("tasks/bert_reranking", "sentence-transformers", ["config.json", "onnx/model.onnx"]),
    ],
)
def test_a_folder_has_the_files_that_its_runtime_looks_for(
    variant: str, layout: str, expected: list[str], tmp_path: Path
) -> None:
    assert names(written(tmp_path, variant, layout)) == expected


def test_a_repository_of_triton_has_one_model_named_after_the_checkpoint(tmp_path: Path) -> None:
    folder = written(tmp_path, "sentences/cls", "triton")
    assert {path.name for path in folder.iterdir()} == {"README.md", "lucid_export.json", "tiny"}
    assert {"config.pbtxt", "config.json", "tokenizer.json", "1"} <= {path.name for path in (folder / "tiny").iterdir()}
    assert (folder / "tiny" / "config.pbtxt").read_text() == (
        'name: "tiny"\n'
        'backend: "onnxruntime"\n'
        'default_model_filename: "model.onnx"\n'
        "max_batch_size: 32\n"
        'input [ { name: "input_ids" data_type: TYPE_INT64 dims: [ -1 ] } ]\n'
        'input [ { name: "attention_mask" data_type: TYPE_INT64 dims: [ -1 ] } ]\n'
        'input [ { name: "token_type_ids" data_type: TYPE_INT64 dims: [ -1 ] } ]\n'
        'output [ { name: "sentence_embedding" data_type: TYPE_FP32 dims: [ 16 ] } ]\n'
        "dynamic_batching { }\n"
        "instance_group [ { count: 1 kind: KIND_CPU } ]\n"
    )


def test_triton_batches_what_has_one_batch_axis_and_uses_the_gpu_for_its_target(tmp_path: Path) -> None:
    text = (written(tmp_path, "clip/gelu", "triton", target="cuda") / "tiny" / "config.pbtxt").read_text()
    assert "max_batch_size: 0\n" in text and "dynamic_batching" not in text and "kind: KIND_GPU" in text
    assert '"pixel_values" data_type: TYPE_FP32 dims: [ -1, 3, ' in text


def test_a_checkpoint_in_a_folder_of_its_own_moves_to_the_top(tmp_path: Path) -> None:
    folder = written(tmp_path, "sentences/dense", "sentence-transformers")
    assert [line["path"] for line in json.loads((folder / "modules.json").read_text())] == ["", "1_Pooling", "2_Dense"]
    stored = lucid.load(folder / "2_Dense" / "model.safetensors")
    dense = model("sentences/dense").sentence_layers["2_Dense"].linear
    assert np.array_equal(stored["linear.weight"], dense.weight.numpy())


# Names of inputs, outputs and axes ------------------------------------------------------------------------------------


def test_encoders_take_what_tokenizers_give(tmp_path: Path) -> None:
    graph = onnx.load(written(tmp_path, "sentences/cls", "transformers.js") / "onnx" / "model.onnx").graph
    assert types(graph.input) == {"input_ids": TEXT, "attention_mask": TEXT, "token_type_ids": TEXT}
    assert types(graph.output) == {"last_hidden_state": [*TEXT, 16], "sentence_embedding": ["batch_size", 16]}


def test_what_has_no_segments_takes_no_token_types(tmp_path: Path) -> None:
    graph = onnx.load(written(tmp_path, "roberta/base", "optimum") / "model.onnx").graph
    assert list(types(graph.input)) == ["input_ids", "attention_mask"]


def test_onnxruntime_alone_gets_the_embedding_only(tmp_path: Path) -> None:
    graph = onnx.load(written(tmp_path, "sentences/cls", "onnxruntime") / "model.onnx").graph
    assert list(types(graph.output)) == ["sentence_embedding"]


def test_decoders_continue_from_a_cache_that_is_made_by_its_axes(tmp_path: Path) -> None:
    graph = onnx.load(written(tmp_path, "llama/llama3", "onnxruntime") / "model.onnx").graph
    inputs, cache = types(graph.input), ["batch_size", 2, "past_sequence_length", 8]
    assert inputs["input_ids"] == inputs["position_ids"] == TEXT
    assert inputs["attention_mask"] == ["batch_size", "past_sequence_length + sequence_length"]
    assert inputs["past_key_values.0.key"] == inputs["past_key_values.1.value"] == cache
    assert {"logits", "present.0.key", "present.1.value"} <= set(types(graph.output))


def test_triton_gets_decoders_without_a_cache_unless_it_is_asked_for(tmp_path: Path) -> None:
    path = Path("tiny", "1", "model.onnx")
    graph = onnx.load(written(tmp_path, "llama/llama3", "triton") / path).graph
    assert list(types(graph.input)) == ["input_ids", "attention_mask"]
    graph = onnx.load(written(tmp_path, "llama/llama3", "triton", cache="growing") / path).graph
    assert "past_key_values.0.key" in types(graph.input)


def test_images_have_known_axes(tmp_path: Path) -> None:
    graph = onnx.load(written(tmp_path, "dinov2/base", "transformers.js") / "onnx" / "model.onnx").graph
    assert types(graph.input) == {"pixel_values": ["batch_size", 3, "height", "width"]}


# How weights are stored -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bits", "dtype", "file", "precision"),
    [
        (None, None, "model.onnx", "fp32"),
        (None, "float16", "model_fp16.onnx", "fp16"),
        (8, None, "model_quantized.onnx", "q8"),
        (4, None, "model_q4.onnx", "q4"),
        (4, "float16", "model_q4f16.onnx", "q4f16"),
    ],
)
def test_transformers_js_finds_files_by_how_weights_are_stored(
    bits: int | None, dtype: str | None, file: str, precision: str, tmp_path: Path
) -> None:
    bert, source = model("bert/base"), whole(tmp_path / "tiny", "bert/base")
    small = bert if bits is None else lucid.quantize(bert, bits, block=16)
    (exported,) = write_folder(small, source, tmp_path / "made", layout="transformers.js", dtype=dtype)
    assert exported.file == f"onnx/{file}" and (tmp_path / "made" / exported.file).exists()
    assert exported.parity is not None and exported.parity.passed
    config = json.loads((tmp_path / "made" / "config.json").read_text())
    assert config["transformers.js_config"] == {"dtype": precision}


def test_a_folder_holds_each_precision_once(tmp_path: Path) -> None:
    bert, source = model("bert/base"), whole(tmp_path / "tiny", "bert/base")
    for layout, message in (("transformers.js", "two models would be onnx/model.onnx"), ("triton", "loads one precis")):
        with pytest.raises(ValueError, match=message):
            write_folder(bert, source, tmp_path / "made", layout=layout, also=[(bert, None)])
    assert not (tmp_path / "made").exists()


def test_weights_in_a_file_of_their_own_have_the_name_that_is_looked_for_and_are_announced(tmp_path: Path) -> None:
    folder = written(tmp_path, "bert/base", "transformers.js", external_data=True)
    assert names(folder) == ["config.json", "onnx/model.onnx", "onnx/model.onnx_data"]
    config = json.loads((folder / "config.json").read_text())
    assert config["transformers.js_config"]["use_external_data_format"] == {"model.onnx": 1}
    assert config["model_type"] == "bert"
    assert "last_hidden_state" in Session(folder / "onnx" / "model.onnx").outputs


def test_a_config_says_nothing_of_weights_that_are_not_there(tmp_path: Path) -> None:
    source = whole(tmp_path / "tiny", "bert/base")
    config = json.loads((source / "config.json").read_text())
    written(tmp_path, "bert/base", "optimum")
    assert (tmp_path / "made" / "config.json").read_bytes() == (source / "config.json").read_bytes()
    (source / "config.json").write_text(json.dumps({**config, "quantization_config": {"bits": 4}}))
    written(tmp_path, "bert/base", "optimum")
    assert json.loads((tmp_path / "made" / "config.json").read_text()) == config


# Cards ----------------------------------------------------------------------------------------------------------------


def test_the_card_says_how_the_folder_was_made_from_what_and_how_exact_it_is(tmp_path: Path) -> None:
    folder = written(tmp_path, "sentences/cls", "onnxruntime", check=True, command=["export", "tiny"])
    card = (folder / "README.md").read_text()
    weights = hashlib.sha256((tmp_path / "tiny" / "model.safetensors").read_bytes()).hexdigest()
    assert f"| model.safetensors | {weights} |" in card and "| 1_Pooling/config.json | " in card
    for part in (
        "pipeline_tag: sentence-similarity\n",
        "# tiny for onnxruntime\n",
        "```sh\nlucid export tiny\n```",
        f"| made by | Lucid {lucid.__version__} |",
        "| target | cpu |",
        "| opset | ai.onnx 23",
        "| input | `input_ids` | `int64[batch_size, sequence_length]` |",
        "| output | `sentence_embedding` | `float32[batch_size, 16]` |",
    ):
        assert part in card, part
    assert "| `model.onnx` | 4 | " in card and "% | 29 of 29 | yes |" in card
    assert str(tmp_path) not in card


def test_a_card_without_a_comparison_says_so(tmp_path: Path) -> None:
    card = (written(tmp_path, "bert/base", "onnxruntime") / "README.md").read_text()
    assert "Not measured (`--no-check`)" in card and "compared" not in card.lower()


def test_the_card_keeps_what_the_source_says_to_the_hub(tmp_path: Path) -> None:
    whole(tmp_path / "tiny", "bert/base")
    (tmp_path / "tiny" / "README.md").write_text(
        "---\nlanguage:\n- en\nlicense: other\nlicense_name: tiny-1\nbase_model: some/base\ndatasets:\n- x\n"
        "tags: [legal, onnx]\nlibrary_name: keras\n---\n\nlicense: mit\n"
    )
    head = (written(tmp_path, "bert/base", "onnxruntime") / "README.md").read_text().split("---")[1]
    assert head.split("\n")[1:-1] == [
        "license: other", "license_name: tiny-1", "language:", "- en", "base_model: some/base",
        "pipeline_tag: feature-extraction", "tags:", "- onnx", "- legal",
    ]  # fmt: skip


@pytest.mark.parametrize("layout", ["onnxruntime", "optimum", "sentence-transformers", "triton"])
@pytest.mark.parametrize("variant", ["sentences/cls", "llama/llama2", "t5/v1_0", "whisper/base", "vit/classifier"])
def test_the_lines_of_a_card_are_python(layout: str, variant: str, tmp_path: Path) -> None:
    try:
        card = (written(tmp_path, variant, layout) / "README.md").read_text()
    except ValueError:  # not every runtime takes every model
        assert (layout, variant.split("/")[0]) not in TAKEN
        return
    lines = card.split("```python\n")[1].split("```")[0]
    compile(lines, "card", "exec")
    assert "made" in lines and not any(word in lines for word in ("FOLDER", "FILE", "ROWS", "CLASS", "RESULT", "START"))


def test_the_lines_of_a_card_name_a_folder_of_any_name(tmp_path: Path) -> None:
    source = whole(tmp_path / "tiny", "t5/v1_0")
    folder = tmp_path / 'the SECOND "FOLDER" of FILE\\1'
    write_folder(model("t5/v1_0"), source, folder, layout="onnxruntime", check=False)
    lines = (folder / "README.md").read_text().split("```python\n")[1].split("```")[0]
    texts = {node.value for node in ast.walk(ast.parse(lines)) if isinstance(node, ast.Constant)}
    files = ("encoder_model.onnx", "decoder_model_merged.onnx", "tokenizer.json")
    assert {f"{folder.name}/{file}" for file in files} <= texts


TAKEN = {
    ("sentence-transformers", "sentences"),
    *(("triton", kind) for kind in ("sentences", "llama", "vit")),
    *((layout, k) for layout in ("onnxruntime", "optimum") for k in ("sentences", "llama", "t5", "whisper", "vit")),
}


# Encoder-decoders -----------------------------------------------------------------------------------------------------


def test_both_steps_of_a_merged_decoder_are_compared(tmp_path: Path) -> None:
    source = whole(tmp_path / "tiny", "t5/v1_0")
    files = write_folder(model("t5/v1_0"), source, tmp_path / "made", layout="optimum")
    assert [file.file for file in files] == ["encoder_model.onnx", "decoder_model_merged.onnx"]
    assert all(file.parity is not None and file.parity.passed for file in files)
    merged = files[1]
    assert merged.parity is not None
    logits = [c for c in merged.parity.comparisons if c.output == "logits"]
    assert len(logits) == 6 and all(c.elements for c in logits)  # three sizes, with a cache and without


def test_a_merged_decoder_of_other_weights_fails_the_comparison(tmp_path: Path) -> None:
    source = whole(tmp_path / "tiny", "t5/v1_0")
    _, merged = write_folder(model("t5/v1_0"), source, tmp_path / "made", layout="optimum", check=False)
    other = lucid.models.load(source)
    other.load_state_dict({name: 1.01 * array for name, array in other.state_dict().items()})
    report = part_parity(other.part("decoder_merged"), tmp_path / "made" / merged.file)  # type: ignore[attr-defined]
    assert not report.passed


# Folders that are there already ---------------------------------------------------------------------------------------


def test_a_folder_that_lucid_wrote_is_replaced_as_a_whole(tmp_path: Path) -> None:
    folder = written(tmp_path, "sentences/cls", "sentence-transformers")
    assert (folder / "1_Pooling").is_dir()
    assert names(written(tmp_path, "sentences/cls", "onnxruntime")) == ["config.json", "model.onnx"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["made", "tiny"]


def test_other_files_are_never_mixed_with_it_nor_lost(tmp_path: Path) -> None:
    folder = written(tmp_path, "bert/base", "onnxruntime")
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(FileExistsError, match=r"it holds notes.txt, which Lucid did not write; give .* or force"):
        written(tmp_path, "bert/base", "onnxruntime")
    (folder / "notes.txt").unlink()
    config = (folder / "config.json").read_text()
    (folder / "config.json").write_text(config.replace("bert", "BERT"))
    with pytest.raises(FileExistsError, match=r"its config.json was changed since Lucid wrote it"):
        written(tmp_path, "bert/base", "onnxruntime")
    (folder / "lucid_export.json").write_text("[]")
    with pytest.raises(FileExistsError, match=r"its lucid_export.json is not as Lucid wrote it"):
        written(tmp_path, "bert/base", "onnxruntime")
    (folder / "lucid_export.json").unlink()
    with pytest.raises(FileExistsError, match=r"the folder is not empty, and Lucid did not write it"):
        written(tmp_path, "bert/base", "onnxruntime")
    assert "BERT" in (folder / "config.json").read_text()
    written(tmp_path, "bert/base", "onnxruntime", force=True)
    assert (folder / "config.json").read_text() == config and (folder / "lucid_export.json").exists()


def test_a_folder_that_holds_the_checkpoint_is_never_replaced(tmp_path: Path) -> None:
    source = whole(tmp_path / "models" / "tiny", "bert/base")
    for place in (source, source.parent):
        with pytest.raises(FileExistsError, match=r"tiny is in it; give the name of another folder"):
            write_folder(model("bert/base"), source, place, layout="onnxruntime", force=True)
    assert (source / "model.safetensors").exists()


def test_a_disk_that_is_full_in_the_middle_leaves_the_folder_that_was_there(tmp_path: Path) -> None:
    folder = written(tmp_path, "bert/base", "onnxruntime")
    before = {path: path.read_bytes() for path in folder.iterdir()}
    limit, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))  # the tokenizer fits, the model does not
    try:
        with pytest.raises(OSError, match=r"cannot write .*made: the disk, quota or file size limit is full"):
            written(tmp_path, "bert/base", "onnxruntime", target="any")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    assert {path: path.read_bytes() for path in folder.iterdir()} == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["made", "tiny"]


# What cannot be written -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variant", "layout", "options", "message"),
    [
        ("bert/base", "onnx", {}, "layout 'onnx' does not exist: choose one of onnxruntime, transformers.js, "),
        ("bert/base", "transformers.js", {"target": "cuda"}, "target 'cuda' is not for this layout; choose one of any"),
        ("bert/base", "transformers.js", {"dtype": "bfloat16"}, "no bfloat16 files; give dtype float16"),
        ("bert/base", "optimum", {"cache": "growing"}, "cache and capacity are for decoders, got a Bert"),
        (
            "llama/llama3",
            "onnxruntime",
            {"capacity": 8},
            'capacity is 8, expected a .* of 1 or more, and cache="fixed"',
        ),
        ("t5/v1_0", "onnxruntime", {"cache": "growing", "capacity": 8}, 'capacity is 8, .* cache="fixed"'),
        ("llama/llama3", "onnxruntime", {"cache": "fixed", "capacity": 0}, "capacity is 0, expected a whole number"),
        (
            "llama/llama3",
            "onnxruntime",
            {"cache": "sliding"},
            "cache 'sliding' does not exist: choose one of growing, fixed",
        ),
        ("bert/base", "sentence-transformers", {}, "takes sentence encoders, .* and cross-encoders; got a Bert"),
        ("t5/v1_0", "triton", {}, "Triton needs several models and a program between them for a T5"),
        ("t5/v1_0", "optimum", {"cache": "fixed"}, "the decoder in one file with its first step has a growing cache"),
        (
            "mamba2/base",
            "optimum",
            {},
            "of a Mamba2, whose states optimum 0.1 mistakes for keys and values; use layout",
        ),
        ("lfm2/base", "transformers.js", {}, "of a Lfm2, for whose cache transformers.js has names and sizes of its"),
        ("deepseek_v3/base", "transformers.js", {}, "of a Deepseek, for whose cache transformers.js has names and"),
        (
            "llama/llama3",
            "optimum",
            {},
            "2 heads of width 8, and optimum 0.1 always makes one with 2 heads of width 6 for",
        ),
        (
            "phi3/base",
            "optimum",
            {},
            "2 heads of width 6, and optimum 0.1 always makes one with 4 heads of width 6 for",
        ),
        ("llama/llama3", "genai", {"dtype": "float16"}, "onnxruntime-genai's folders are float32"),
    ],
)
def test_what_a_runtime_does_not_take_is_refused(
    variant: str, layout: str, options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        written(tmp_path, variant, layout, **options)
    assert [path.name for path in tmp_path.iterdir()] == ["tiny"]


@pytest.mark.parametrize("variant", ["cohere/base", "falcon/base", "stablelm/base"])
def test_optimum_reads_how_many_heads_a_cache_has(variant: str, tmp_path: Path) -> None:
    assert (written(tmp_path, variant, "optimum") / "model.onnx").exists()


def test_eight_bits_and_half_precision_have_no_name(tmp_path: Path) -> None:
    small = lucid.quantize(model("bert/base"), 8, block=16)
    source = whole(tmp_path / "tiny", "bert/base")
    with pytest.raises(ValueError, match="no files with both 8-bit weights and float16; leave out the dtype"):
        write_folder(small, source, tmp_path / "made", layout="transformers.js", dtype="float16")


@pytest.mark.parametrize(
    ("variant", "layout", "missing", "message"),
    [
        ("bert/base", "transformers.js", "tokenizer.json", "has no tokenizer.json, which transformers.js needs"),
        ("bert/base", "optimum", "tokenizer.json", "has no tokenizer.json, which optimum needs"),
        ("vit/base", "transformers.js", "preprocessor_config.json", "has no preprocessor_config.json, which transf"),
    ],
)
def test_a_file_that_the_runtime_needs_and_the_checkpoint_lacks_is_named(
    variant: str, layout: str, missing: str, message: str, tmp_path: Path
) -> None:
    (whole(tmp_path / "tiny", variant) / missing).unlink()
    with pytest.raises(FileNotFoundError, match=message):
        written(tmp_path, variant, layout)
    assert [path.name for path in tmp_path.iterdir()] == ["tiny"]


def test_a_dense_layer_in_few_bits_is_refused_where_the_runtime_computes_it(tmp_path: Path) -> None:
    """That of this checkpoint has its weights beside those of the encoder, as Lucid saves them."""
    source = whole(tmp_path / "tiny", "sentences/dense")
    small = lucid.quantize(model("sentences/dense"), 8, block=16)
    lucid.models.save(small, source, tmp_path)
    (tmp_path / "tokenizer.json").write_bytes((source / "0_Transformer" / "tokenizer.json").read_bytes())
    with pytest.raises(ValueError, match=r"sentence_layers.2_Dense.linear.weight is quantized"):
        write_folder(small, tmp_path, tmp_path / "made", layout="sentence-transformers")


def test_a_model_of_ones_own_has_no_class_in_these_libraries(tmp_path: Path) -> None:
    own = lucid.nn.Linear(3, 2)
    source = whole(tmp_path / "tiny", "bert/base")
    with pytest.raises(ValueError, match="optimum loads models of checkpoints only, got a Linear; use layout"):
        write_folder(own, source, tmp_path / "made", layout="optimum")


def test_the_command_knows_the_same_layouts() -> None:
    assert get_args(LayoutName) == tuple(LAYOUTS)
