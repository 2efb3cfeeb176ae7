"""Checks of exported files find planted faults: a flipped number, zeroed rows of tables, a cache wrong after steps."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import lucid
from lucid import Tensor, nn, ops
from lucid.cli.options.groups import ModelOptions
from lucid.cli.source import load_model
from lucid.core.graph.graph import Graph
from lucid.core.process import random
from lucid.export import Target
from lucid.export.exporter import Lowered, lower
from lucid.export.options import ExportOptions
from lucid.models.bert import Bert, BertForSequenceClassification
from lucid.models.llama import Llama
from lucid.models.t5 import T5
from lucid.testing import bisect
from lucid.testing.part_parity import part_parity
from lucid.testing.random_inputs import random_inputs
from lucid.testing.report import WeightReport
from lucid.testing.run_sizes import default_sizes
from lucid.testing.weights import compare_weights, export_again
from lucid.tracing.index_ranges import IndexRanges
from lucid.tracing.parts import ModelPart, TracedPart, part_of, trace_part
from tests.combinations import some
from tests.console import in_process
from tests.models import goldens

BERT = goldens.folder("bert/base")
LLAMA = goldens.folder("llama/llama3")
T5_BASE = goldens.folder("t5/v1_1")


@pytest.fixture(scope="module")
def bert() -> Bert:
    return Bert.from_pretrained(BERT)


def changed(model: onnx.ModelProto, name: str, change: Callable[[Any], None]) -> onnx.ModelProto:
    """The model with a changed initializer."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    (tensor,) = (tensor for tensor in copy.graph.initializer if tensor.name == name)
    array = onnx.numpy_helper.to_array(tensor).copy()
    change(array)
    tensor.CopyFrom(onnx.numpy_helper.from_array(array, name))
    return copy


# What is compared by running ------------------------------------------------------------------------------------------


def zeroed(rows: slice) -> Callable[[Any], None]:
    def change(array: Any) -> None:
        array[rows] = 0

    return change


@pytest.mark.parametrize(
    ("table", "rows"),
    [("word_embeddings", slice(2, None)), ("position_embeddings", slice(5, None)), ("word_embeddings", slice(20, 30))],
)
def test_zeroed_rows_of_a_table_are_found_by_running(bert: Bert, table: str, rows: slice) -> None:
    wrong = changed(lucid.export.to_onnx(bert), f"embeddings.{table}.weight", zeroed(rows))
    report = part_parity(ModelPart(bert, {}), wrong)
    assert not report.agrees
    assert report.weights is not None and not report.weights.passed


class Forgetful(Llama):
    """A Llama whose keys are lost from a position on, which only the third step after a prompt of 32 reaches."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        logits, caches = super().forward(*args, **kwargs)
        held = caches[0].key.shape[2]
        kept = (ops.arange(held) < 34).astype(lucid.float32).unsqueeze(-1)
        return logits, [cache._replace(key=cache.key * kept) for cache in caches]


@pytest.mark.parametrize("cache", ["growing", "fixed"])
def test_a_cache_that_goes_wrong_at_the_third_step_is_found(cache: Any) -> None:
    right, wrong = (kind.from_pretrained(LLAMA).part(cache) for kind in (Llama, Forgetful))
    assert part_parity(right, lucid.export.to_onnx(trace_part(right))).passed
    report = part_parity(right, lucid.export.to_onnx(trace_part(wrong)))
    failed = [c.sizes["sequence_length"] for c in report.comparisons if not c.passed]
    assert failed and set(failed) == {1}, "the prompt agrees, and steps after it do not"


def test_an_encoder_decoder_steps_through_its_cache() -> None:
    part = part_of(T5.from_pretrained(T5_BASE), "decoder", "growing")
    report = part_parity(part, lucid.export.to_onnx(trace_part(part)))
    past = [c.sizes["past_decoder_sequence_length"] for c in report.comparisons if c.output == "logits"]
    assert report.passed
    assert past[-5:] == [0, past[-4], past[-4] + 1, past[-4] + 2, past[-4] + 3]
    assert past[-4] >= 16, "a long prompt"


def uses_of(forward: Callable[[Tensor], Any], dtype: str = "int64") -> Any:
    graph = lucid.trace(forward, lucid.spec("N", "L", dtype=dtype))
    (use,) = IndexRanges(graph).uses({"N": 2, "L": 5}).values()
    return use


TABLE = Tensor(np.ones((10, 4), np.float32))


@pytest.mark.parametrize(
    ("forward", "allowed"),
    [
        (lambda x: ops.take(TABLE, x), (0, 9)),
        (lambda x: nn.functional.embedding(x, TABLE), (0, 9)),
        (lambda x: ops.take(TABLE, x.astype("int32")), (0, 9)),
        (lambda x: ops.take(TABLE, x + 2), (-2, 7)),
        (lambda x: ops.take(TABLE, x + ops.arange(x.shape[1])), (0, 5)),
        (lambda x: ops.take(TABLE, 3 - x), (-6, 3)),
        (lambda x: ops.take(TABLE, x.clip(1, 4)), (0, 5)),
        (lambda x: ops.take(TABLE, x[:, :1]) + ops.take(TABLE[:3], x), (0, 2)),
        (lambda x: ops.take(TABLE, ops.where(x == -100, 0, x)), (0, 9)),
        (lambda x: x + 1, None),
    ],
)
def test_integers_are_drawn_from_the_tables_that_they_index(forward: Any, allowed: Any) -> None:
    assert uses_of(forward).allowed == allowed


def test_integers_of_a_small_type_are_drawn_from_what_it_holds() -> None:
    table = nn.Embedding(1000, 2)
    graph = lucid.trace(lambda x: table(x.astype("int64")), lucid.spec(500, dtype="int8"))
    drawn = random_inputs(graph, {})["x"]
    assert drawn.min() >= 0 and drawn.max() > 100


def test_boxes_have_no_negative_width() -> None:
    table = nn.Embedding(100, 2)

    def sizes(bbox: lucid.Tensor) -> lucid.Tensor:
        return table(bbox[..., 2] - bbox[..., 0]) + table(bbox[..., 3] - bbox[..., 1]) + table(bbox[..., 0])

    graph = lucid.trace(sizes, lucid.spec("N", "L", 4, dtype="int64"))
    drawn = random_inputs(graph, {"N": 20, "L": 30})["bbox"]
    assert (drawn[..., 2:] >= drawn[..., :2]).all() and drawn.max() > 50


def test_ids_come_from_the_whole_vocabulary_and_one_run_is_long(bert: Bert) -> None:
    graph = lucid.trace(bert)
    runs = default_sizes(graph)
    assert runs[-1] == {"L": 24, "N": 1}, "the positions of the table"
    ids = random_inputs(graph, runs[-1], 3)["input_ids"]
    assert len(np.unique(ids)) > 10 and ids.max() > 20


def test_masks_pad_at_either_end() -> None:
    graph = lucid.trace(Bert.from_pretrained(BERT))
    left, right = (random_inputs(graph, {"N": 4, "L": 6}, run)["attention_mask"] for run in (1, 2))
    np.testing.assert_array_equal(left[[0, 1, 3]], [[1] * 6, [0] + [1] * 5, [0] * 3 + [1] * 3])
    np.testing.assert_array_equal(right[[0, 1, 3]], [[1] * 6, [1] * 5 + [0], [1] * 3 + [0] * 3])
    for run in range(4):
        drawn = [random_inputs(graph, {"N": 2, "L": 1}, run)["attention_mask"] for _ in range(20)]
        assert np.all(drawn), "a mean over nothing is NaN"


def test_lengths_are_drawn_from_all_positions() -> None:
    graph = lucid.trace(
        lambda x, lengths: x * (ops.arange(x.shape[1]) < lengths.unsqueeze(1)),
        lucid.spec("N", "L"),
        lucid.spec("N", dtype="int64"),
    )
    drawn = random_inputs(graph, {"N": 200, "L": 30})["lengths"]
    assert drawn.min() <= 1 and 25 < drawn.max() <= 30


# What is compared bit by bit ------------------------------------------------------------------------------------------


def part_named(kind: str) -> tuple[ModelPart, dict[str, Any]]:
    """A part of a small model, and options of its export."""
    match kind.split():
        case ["encoder", *rest]:
            return ModelPart(Bert.from_pretrained(BERT), {}), {"dtype": "float16"} if rest else {}
        case ["decoder", cache]:
            return Llama.from_pretrained(LLAMA).part(cache), {}
        case ["bits", bits]:
            return ModelPart(lucid.quantize(Llama.from_pretrained(LLAMA), bits=int(bits), block=16), {}), {
                "target": "cpu"
            }
        case ["t5", name]:
            return part_of(T5.from_pretrained(T5_BASE), name), {}  # type: ignore[arg-type]
    raise AssertionError(kind)


KINDS = ["encoder", "encoder half", "decoder growing", "decoder fixed", "bits 4", "bits 8", "t5 encoder", "t5 decoder"]


def exported(kind: str, path: Path, external: bool = False) -> Lowered:
    part, options = part_named(kind)
    lowered = lower(trace_part(part), ExportOptions(**options))
    lowered.write(path, external)
    return lowered


def flip(path: Path, tensor: onnx.TensorProto, model: onnx.ModelProto, at: int) -> None:
    """Change one bit of a byte of an initializer, in the file or in its side file; twice changes nothing."""
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        entries = {entry.key: entry.value for entry in tensor.external_data}
        side = path.with_name(entries["location"])
        data = bytearray(side.read_bytes())
        data[int(entries["offset"]) + at] ^= 1
        side.write_bytes(data)
        return
    data = bytearray(tensor.raw_data)
    data[at] ^= 1
    tensor.raw_data = bytes(data)
    path.write_bytes(model.SerializeToString())


@pytest.mark.parametrize("external", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_every_flipped_bit_is_found(kind: str, external: bool, tmp_path: Path) -> None:
    path, random = tmp_path / "model.onnx", np.random.default_rng(0)
    lowered = exported(kind, path, external)
    report = compare_weights(path, lowered)
    assert report.passed and report.compared == report.stored == len(lowered.assembled.initializers) and not report.note
    model = onnx.load(path, load_external_data=False)
    sizes = {name: array.nbytes for name, array in lowered.assembled.initializers.items()}
    tensors = [tensor for tensor in model.graph.initializer if sizes[tensor.name]]
    for index in random.integers(len(tensors), size=some(25)):
        tensor = tensors[index]
        at = int(random.integers(sizes[tensor.name]))
        flip(path, tensor, model, at)
        report = compare_weights(path, lowered)
        assert [item.name for item in report.different] == [tensor.name]
        assert sum(item.count for item in report.different) == 1
        flip(path, tensor, model, at)
    assert compare_weights(path, lowered).passed


def test_a_changed_attribute_of_a_node_is_found(bert: Bert, tmp_path: Path) -> None:
    lowered = exported("encoder", tmp_path / "model.onnx")
    model = onnx.load(tmp_path / "model.onnx")
    norm = next(node for node in model.graph.node if node.op_type == "LayerNormalization")
    next(attribute for attribute in norm.attribute if attribute.name == "epsilon").f = 0.5
    report = compare_weights(model, lowered)
    assert not report.passed and report.changed_nodes == (norm.name,)
    assert "FAIL  nodes with other attributes: " in "\n".join(report.lines())


def test_a_file_whose_constants_are_damaged_is_not_run(call: Any, bert: Bert, tmp_path: Path) -> None:
    lucid.export.to_onnx(bert, path=tmp_path / "model.onnx")
    model = onnx.load(tmp_path / "model.onnx")
    onnx.save(changed(model, "constant", lambda array: array.fill(1 << 40)), tmp_path / "model.onnx")
    code, out = call("verify", BERT, tmp_path / "model.onnx")
    assert code == 1 and "constant: 1 number, the first at [0]: 1099511627776, expected" in out
    assert "note  the file was not run: nodes or constants that it computes with are not the model's" in out
    assert "nothing was compared" not in out and "check the names" not in out
    report = part_parity(ModelPart(bert, {}), tmp_path / "model.onnx")
    assert not report.passed and not report.comparisons
    with pytest.raises(lucid.testing.ParityError, match="the file was not run"):
        lucid.testing.assert_parity(bert, exported=tmp_path / "model.onnx")


def again(model: Any, changed: onnx.ModelProto, **options: Any) -> WeightReport:
    return compare_weights(
        changed,
        export_again(
            TracedPart(model if isinstance(model, Graph) else lucid.trace(model)), changed, ExportOptions(**options)
        ),
    )


def test_a_file_of_another_target_opset_and_release_is_exported_for_these(bert: Bert) -> None:
    for target in ("portable", "cpu", Target("any", opset=21), Target("any", onnxruntime="1.29")):
        report = again(bert, lucid.export.to_onnx(bert, target=target))
        assert report.passed and report.compared == report.stored and not report.note


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("target", ["any", "cpu", "cuda"])
def test_a_file_of_another_accuracy_level_is_exported_for_it(bits: int, target: Any) -> None:
    small = lucid.quantize(Bert.from_pretrained(BERT), bits=bits, block=16)
    report = again(small, lucid.export.to_onnx(small, target=Target(target, accuracy_level=0)))
    assert report.passed and report.compared == report.stored and not report.note


def test_what_another_tool_made_of_a_file_is_compared_as_far_as_it_goes(bert: Bert) -> None:
    model = lucid.export.to_onnx(bert)
    model.producer_name, model.producer_version = "optimizer", "3"
    first = model.graph.initializer[0]
    half = onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(first).astype(np.float16), first.name)
    first.CopyFrom(half)
    model.graph.initializer[1].name = "renamed"
    model.graph.node[0].name = "other"
    model.graph.node[0].op_type = "Other"
    report = again(bert, model)
    assert report.passed
    lines = "\n".join(report.lines())
    assert "renamed (it is not in the export)" in lines
    assert "1 of the export are not in the file" in lines
    assert "the file's nodes are not those of this export: optimizer 3 made it, this is Lucid" in lines
    array = onnx.numpy_helper.to_array(half).copy()
    array.flat[3] += 1
    first.CopyFrom(onnx.numpy_helper.from_array(array, first.name))
    assert [item.name for item in again(bert, model).different] == [first.name]


def test_a_file_that_cannot_be_exported_again_says_so(bert: Bert) -> None:
    model = lucid.export.to_onnx(bert)
    model.opset_import[0].version = 13
    report = again(bert, model)
    assert report.passed and report.compared == 0
    assert "the model cannot be exported as the file was: opset 13 is not supported" in report.lines()[-1]


# The commands ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    """A command in this process: its exit code, and what it prints."""

    def run(*arguments: object) -> tuple[int, str]:
        code = in_process(arguments, monkeypatch)
        return code, capsys.readouterr().out

    return run


def test_export_and_verify_say_how_many_weights_were_compared(call: Any, bert: Bert, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    code, out = call("export", BERT, "-o", path)
    stored = len(onnx.load(path).graph.initializer)
    assert code == 0 and f"ok    weights: {stored} of {stored} equal the model's, bit for bit" in out
    code, out = call("verify", BERT, path)
    assert code == 0 and f"ok    weights: {stored} of {stored} equal the model's, bit for bit" in out
    name = "encoder.layer.0.output.dense.bias"
    onnx.save(changed(onnx.load(path), name, lambda array: array.__setitem__(3, np.nextafter(array[3], 1))), path)
    code, out = call("verify", BERT, path)
    assert code == 1 and f"FAIL  {name}: 1 number, the first at [3]: " in out
    assert "first difference" not in out and "check the names" not in out
    code, out = call("verify", BERT, path, "--json")
    assert code == 1 and json.loads(out)["weights"]["different"][0]["name"] == name


def test_bisect_looks_at_the_inputs_that_failed(call: Any, bert: Bert, tmp_path: Path) -> None:
    """Position 20 is read by the long run only."""
    path = tmp_path / "model.onnx"
    onnx.save(changed(lucid.export.to_onnx(bert), "embeddings.position_embeddings.weight", zeroed(slice(20, 21))), path)
    code, out = call("verify", BERT, path)
    assert code == 1 and "first difference: embeddings/Slice in embeddings, " in out
    assert "check the names" not in out
    report = part_parity(ModelPart(bert, {}), path)
    assert set(report.failing) == {"input_ids", "attention_mask"}
    difference = bisect(bert, exported=onnx.load(path), arrays=report.failing)
    assert difference is not None and difference.module == "embeddings"
    assert bisect(bert, exported=onnx.load(path)) is not None, "by itself it looks at the long run too"


@pytest.mark.parametrize("command", ["verify", "export"])
def test_the_seed_changes_the_inputs(command: str, call: Any, bert: Bert, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    lucid.export.to_onnx(bert, path=path)
    arguments = ["verify", BERT, path] if command == "verify" else ["export", BERT, "-o", tmp_path / "other.onnx"]

    def runs(*seed: object) -> Sequence[Any]:
        code, out = call(*arguments, "--json", *seed)
        assert code == 0
        report = json.loads(out)
        return [run["max_abs"] for run in (report if command == "verify" else report["parity"])["runs"]]

    assert runs() == runs("--seed", 0) == runs()
    assert runs() != runs("--seed", 1)


def test_every_command_that_loads_a_checkpoint_seeds_the_inputs() -> None:
    def first(seed: int) -> float:
        load_model(ModelOptions(source=str(BERT), ignore_option=[], adapter=[], arguments=[], seed=seed))
        return float(random.generator().random())

    assert first(1) == first(1) != first(2)


def test_a_head_with_token_types_reads_all_their_rows() -> None:
    model = BertForSequenceClassification.from_pretrained(goldens.folder("tasks/bert_text_classification"))
    graph = lucid.trace(model)
    use = IndexRanges(graph).uses({"N": 1, "L": 3})["token_type_ids"]
    assert use.allowed == (0, 1)


def test_what_is_loaded_from_a_folder_is_checked_as_it_is_written(call: Any, tmp_path: Path) -> None:
    code, out = call("export", BERT, "--for", "onnxruntime", "-o", tmp_path / "folder", "--json")
    (parity,) = json.loads(out)["parity"].values()
    assert code == 0 and parity["weights"]["equal"] == parity["weights"]["stored"] > 30
    card = (tmp_path / "folder" / "README.md").read_text(encoding="utf-8")
    assert "equal weights" in card and f"{parity['weights']['stored']} of {parity['weights']['stored']}" in card


# Files with other nodes -----------------------------------------------------------------------------------------------


def doubled_above_50(x: Tensor) -> Tensor:
    return lucid.where(x > 50, x * 2, x)


def with_identity_last(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with one more node, which changes no result."""
    last = next(node for node in model.graph.node if node.output[0] == model.graph.output[0].name)
    last.output[0] = "before identity"
    model.graph.node.append(onnx.helper.make_node("Identity", ["before identity"], [model.graph.output[0].name]))
    return model


@pytest.mark.parametrize("more", [with_identity_last, lambda model: model])
def test_a_constant_is_compared_in_its_place_whatever_other_nodes_there_are(more: Any) -> None:
    model = lucid.export.to_onnx(doubled_above_50, ("N",))
    lucid.testing.assert_parity(doubled_above_50, ("N",), exported=more(model))
    wrong = more(changed(lucid.export.to_onnx(doubled_above_50, ("N",)), "constant", lambda array: array.fill(60)))
    with pytest.raises(lucid.testing.ParityError, match=r"constant.*: 1 .*: 60.0, expected 50.0"):
        lucid.testing.assert_parity(doubled_above_50, ("N",), exported=wrong)


def test_a_constant_exchanged_for_another_is_found() -> None:
    model = lucid.export.to_onnx(doubled_above_50, ("N",))
    node = next(node for node in model.graph.node if "constant" in node.input)
    node.input[list(node.input).index("constant")] = "constant_2"
    with pytest.raises(lucid.testing.ParityError, match=r"constant_2: 1 .*: 2.0, expected 50.0"):
        lucid.testing.assert_parity(doubled_above_50, ("N",), exported=model)


def test_a_changed_attribute_is_found_beside_other_nodes(bert: Bert) -> None:
    model = lucid.export.to_onnx(bert)
    norm = [node for node in model.graph.node if node.op_type == "LayerNormalization"][-1]
    next(attribute for attribute in norm.attribute if attribute.name == "epsilon").f = 1e-4
    assert again(bert, with_identity_last(model)).changed_nodes == (norm.name,)


def test_what_is_not_compared_is_not_ok() -> None:
    model = lucid.export.to_onnx(doubled_above_50, ("N",))
    node = next(node for node in model.graph.node if "constant" in node.input)
    model.graph.node.insert(0, onnx.helper.make_node("Abs", [model.graph.input[0].name], ["abs"]))
    node.input[0] = "abs"
    report = again(lucid.trace(doubled_above_50, ("N",)), model)
    first, second, third = report.lines()
    assert report.passed and first == "note  weights: 1 of 2 equal the model's, bit for bit"
    assert second == "note  1 were not compared: constant (the nodes that take it are not those of the export)"
    assert third.endswith("it was exported with other options, or changed afterwards; 2 of 4 nodes were compared")


def optimized(model: onnx.ModelProto, path: Path, level: str) -> onnx.ModelProto:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    options.optimized_model_filepath = str(path)
    onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return onnx.load(path)


MODELS = ["bert/base", "llama/llama3", "camembert/masked_lm", "whisper/base", "qwen3_moe/base", "mamba2/base"]


@pytest.mark.parametrize("target", ["any", "cpu"])
@pytest.mark.parametrize("model", MODELS)
def test_what_tools_make_of_a_file_raises_no_false_alarm(model: str, target: str, tmp_path: Path) -> None:
    graph = lucid.trace(lucid.models.load(goldens.folder(model)))
    model_file = lucid.export.to_onnx(graph, target=target)
    onnx.save(model_file, tmp_path / "saved.onnx")
    for same in (onnx.load(tmp_path / "saved.onnx"), onnx.shape_inference.infer_shapes(model_file, data_prop=True)):
        report = again(graph, same)
        assert report.passed and report.whole
    for level in ("ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED"):
        report = again(graph, optimized(model_file, tmp_path / "optimized.onnx", level))
        assert report.passed and report.compared > 10


@pytest.mark.parametrize(
    "options", [{"attention": "expanded"}, {"dtype": "float16"}, {"target": "cuda", "dtype": "float16"}]
)
@pytest.mark.parametrize("model", MODELS)
def test_options_of_the_export_raise_no_false_alarm(model: str, options: dict[str, Any]) -> None:
    graph = lucid.trace(lucid.models.load(goldens.folder(model)))
    report = again(graph, lucid.export.to_onnx(graph, **options))
    assert not report.changed_nodes and not report.damaged


@pytest.mark.parametrize("read", ["file", "model"])
def test_a_weight_that_is_stored_twice_is_refused(read: str, bert: Bert, tmp_path: Path) -> None:
    model = lucid.export.to_onnx(bert)
    model.graph.initializer.append(model.graph.initializer[3])
    onnx.save(model, tmp_path / "model.onnx")
    with pytest.raises(lucid.runtime.ModelError, match=f"{model.graph.initializer[3].name}' is stored twice"):
        lucid.testing.assert_parity(bert, exported=model if read == "model" else tmp_path / "model.onnx")


def outputs_of_type(model: onnx.ModelProto) -> None:
    model.graph.output[0].type.tensor_type.shape.dim[2].dim_value = 99


def renamed_axis(model: onnx.ModelProto) -> None:
    model.graph.output[0].type.tensor_type.shape.dim[0].dim_param = "M"


def metadata(key: str, value: str | None) -> Callable[[onnx.ModelProto], None]:
    def change(model: onnx.ModelProto) -> None:
        (place,) = (i for i, entry in enumerate(model.metadata_props) if entry.key == key)
        if value is None:
            del model.metadata_props[place]
        else:
            model.metadata_props[place].value = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (outputs_of_type, "output last_hidden_state: declared as float32[N, L, 99], expected float32[N, L, 16]"),
        (renamed_axis, "output last_hidden_state: declared as float32[M, L, 16], expected float32[N, L, 16]"),
        (metadata("lucid.limits", '{"L": 99}'), 'metadata lucid.limits: {"L": 99}, expected {"L": 24}'),
        (metadata("lucid.limits", None), 'metadata lucid.limits: nothing, expected {"L": 24}'),
        (metadata("lucid.onnxruntime", None), "metadata lucid.onnxruntime: nothing, expected "),
    ],
)
def test_a_damaged_declaration_is_named(change: Any, message: str, bert: Bert) -> None:
    model = lucid.export.to_onnx(bert)
    change(model)
    report = again(bert, model)
    (problem,) = report.declared
    assert not report.passed and problem.startswith(message) and f"FAIL  {problem}" in report.lines()
    model.producer_version = "0.0"
    assert again(bert, model).passed, "another release may declare otherwise"
