"""Export: lean graphs, meaningful names, every opset, whole files or none, errors that say what to do."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import lucid
from lucid import Tensor, nn
from lucid.core.sizes.dims import SymbolicSizeError
from lucid.export import ExportError, Target, WeightWarning, explain, to_onnx
from lucid.nn import functional as F
from lucid.ops.op import composite
from lucid.runtime import Session

Array = np.ndarray[Any, Any]
ROOT = Path(__file__).parents[1]


def ops(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


def shape(value: onnx.ValueInfoProto) -> list[int | str]:
    return [d.dim_param or d.dim_value for d in value.type.tensor_type.shape.dim]


def initializers(model: onnx.ModelProto) -> list[str]:
    return [tensor.name for tensor in model.graph.initializer]


class Block(nn.Module):
    """A small transformer block over token ids."""

    def __init__(self) -> None:
        self.embed = nn.Embedding(2, 8)
        self.norm = nn.LayerNorm(8)
        self.attn = nn.MultiHeadAttention(8, 2)
        self.mlp = nn.Sequential(
            nn.Linear(8, 16), nn.GELU(), nn.Dropout(0.1), nn.RMSNorm(16), nn.Linear(16, 8, bias=False)
        )

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        x = self.embed(ids)
        x = x + self.attn(self.norm(x), key_padding_mask=mask)
        return x + self.mlp(x)

    def input_specs(self) -> dict[str, lucid.TensorType]:
        return {"ids": lucid.spec("N", "L", dtype="int64"), "mask": lucid.spec("N", "L", dtype="bool")}


# Lean -----------------------------------------------------------------------------------------------------------------


def test_the_full_attention_takes_ten_nodes_at_most_and_no_shape() -> None:
    model = to_onnx(nn.MultiHeadAttention(512, 8))
    assert model.opset_import[0].version == 23
    assert len(ops(model)) <= 10
    assert "Shape" not in ops(model)
    assert ops(model).count("Attention") == 1


@pytest.mark.parametrize("opset", [17, 18, 20])
def test_expanded_attention_reads_no_shapes_either(opset: int) -> None:
    assert "Shape" not in ops(to_onnx(nn.MultiHeadAttention(16, 4), opset=opset))


def test_splitting_and_joining_heads_reads_no_shapes() -> None:
    def split_and_join(x: Tensor) -> Tensor:
        n, l, e = x.shape
        heads = x.reshape(n, l, 4, e // 4).transpose(1, 2)
        return heads.transpose(1, 2).reshape(n, l, e)

    assert ops(to_onnx(split_and_join, ("N", "L", 8))) == ["Reshape", "Transpose", "Transpose", "Reshape"]


def test_what_is_computed_twice_is_emitted_once() -> None:
    model = to_onnx(lambda x: x.exp() + x.exp() * x.exp(), ("N",))
    assert ops(model).count("Exp") == 1


def test_constants_are_folded() -> None:
    model = to_onnx(lambda x: x * (lucid.ones(3).exp() + 1), (3,))
    assert ops(model) == ["Mul"]


# Names ----------------------------------------------------------------------------------------------------------------


def test_initializers_are_state_keys_with_a_suffix_for_parts() -> None:
    assert initializers(to_onnx(nn.MultiHeadAttention(8, 2))) == [
        "in_proj_weight[q].T",
        "in_proj_bias[q]",
        "in_proj_weight[k].T",
        "in_proj_bias[k]",
        "in_proj_weight[v].T",
        "in_proj_bias[v]",
        "out_proj.weight.T",
        "out_proj.bias",
    ]


def test_every_weight_of_a_model_is_found_under_its_key() -> None:
    model = Block()
    exported = to_onnx(model, opset=23)
    named = {
        re.sub(r"(\[\w\])?(\.T)?$", "", name) for name in initializers(exported) if not name.startswith("constant")
    }
    assert named == set(model.state_dict())


def test_nodes_and_values_carry_the_path_of_their_module() -> None:
    exported = to_onnx(nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.LayerNorm(4))), ("N", 4))
    names = [node.name for node in exported.graph.node]
    assert names == ["0/linear/MatMul", "0/linear/Add", "1.0/layer_norm/LayerNormalization"]
    modules = {prop.value for node in exported.graph.node for prop in node.metadata_props}
    assert modules == {"0", "1.0"}
    assert {info.name: shape(info) for info in exported.graph.value_info} == {
        "0/linear/MatMul": ["N", 4],
        "0/linear/Add": ["N", 4],
    }


def test_inputs_and_outputs_are_named_after_arguments_and_results() -> None:
    exported = to_onnx(
        lambda x, past: {"logits": x + past["k"], "present": [x, past["k"] * 2]}, ("N", 3), {"k": ("N", 3)}
    )
    assert {value.name: shape(value) for value in exported.graph.input} == {"x": ["N", 3], "past.k": ["N", 3]}
    assert [value.name for value in exported.graph.output] == ["logits", "present_0", "present_1"]


def test_inputs_and_outputs_take_the_names_they_are_given() -> None:
    exported = to_onnx(nn.MultiHeadAttention(8, 2), input_names=["q", "k", "v"], output_names=["y"])
    assert [value.name for value in exported.graph.input] == ["q", "k", "v"]
    assert [value.name for value in exported.graph.output] == ["y"]
    assert "query" not in str(exported.graph.node)


def test_an_input_may_be_called_output() -> None:
    exported = to_onnx(lambda output: output * 2, ("N",))
    assert [value.name for value in exported.graph.output] == ["output_out"]


def test_outputs_that_are_inputs_constants_or_one_value_twice() -> None:
    def model(x: Tensor) -> tuple[Tensor, ...]:
        y = x + 1
        return x, y, y, lucid.ones(2)

    exported = to_onnx(model, ("N",))
    outputs = Session(exported).run({"x": np.array([1, 2], "f")})
    assert [array.tolist() for array in outputs.values()] == [[1, 2], [2, 3], [2, 3], [1, 1]]


def test_symbolic_sizes_keep_their_names() -> None:
    exported = to_onnx(lambda x, y: (x.reshape(-1), x @ y), ("N", "2*L + 1"), ("2*L + 1", "L"))
    assert shape(exported.graph.input[0]) == ["N", "2*L + 1"]
    assert [shape(output) for output in exported.graph.output] == [["2*L*N + N"], ["N", "L"]]
    assert shape(to_onnx(nn.MultiHeadAttention(8, 2)).graph.output[0]) == ["N", "L", 8]


# What can be exported -------------------------------------------------------------------------------------------------


def test_plain_functions_graphs_and_examples() -> None:
    graph = lucid.trace(lambda x: x * 2, ("N",))
    assert to_onnx(graph) == to_onnx(lambda x: x * 2, ("N",))
    fixed = to_onnx(lambda x: x * 2, lucid.ones(3, 4))
    assert shape(fixed.graph.input[0]) == [3, 4]
    assert shape(to_onnx(lambda x: x * 2, np.ones((3, 4))).graph.input[0]) == [3, 4]


def test_keyword_specs_become_inputs_and_plain_values_are_built_in() -> None:
    mask = lucid.spec("N", "S", dtype="bool")
    exported = to_onnx(nn.MultiHeadAttention(8, 2), kwargs={"key_padding_mask": mask, "need_weights": True})
    assert [value.name for value in exported.graph.input] == ["query", "key", "value", "key_padding_mask"]
    assert [value.name for value in exported.graph.output] == ["output_0", "output_1"]


def test_a_training_model_is_exported_for_evaluation() -> None:
    model = Block().train()
    assert "Dropout" not in ops(to_onnx(model))
    assert model.training


def test_a_training_model_inside_an_op_is_exported_for_evaluation() -> None:
    model = nn.Dropout(0.5).train()

    @composite
    def dropping(x: Tensor) -> Tensor:
        return model(x) + 1

    assert ops(to_onnx(dropping, ("N", 3))) == ["Add"]


@pytest.mark.parametrize(("dtype", "code"), [("float16", "FLOAT16"), ("bfloat16", "BFLOAT16"), ("float64", "DOUBLE")])
def test_models_of_other_element_types(dtype: str, code: str) -> None:
    exported = to_onnx(nn.Linear(3, 2, dtype=dtype))
    kinds = {value.type.tensor_type.elem_type for value in (*exported.graph.input, *exported.graph.output)}
    assert kinds == {onnx.TensorProto.DataType.Value(code)}


def test_a_very_deep_model() -> None:
    def deep(x: Tensor) -> Tensor:
        for _ in range(1000):
            x = x + 1
        return x

    exported = to_onnx(deep, ("N",))
    assert len(ops(exported)) == 1000
    assert Session(exported)(lucid.zeros(2)).tolist() == [1000, 1000]


# Sizes that were not traced with --------------------------------------------------------------------------------------


@pytest.mark.parametrize("opset", [17, 18, 23, 24])
def test_one_file_serves_all_sizes(opset: int) -> None:
    mha = nn.MultiHeadAttention(16, 4)
    session = Session(to_onnx(mha, opset=opset))
    for n, l, s in [(1, 1, 1), (1, 7, 2), (3, 2, 33), (2, 33, 1)]:
        inputs = lucid.randn(n, l, 16), lucid.randn(n, s, 16), lucid.randn(n, s, 16)
        np.testing.assert_allclose(session(*inputs).numpy(), mha(*inputs).numpy(), atol=2e-6, rtol=1e-5)


SIZES: list[Callable[[Tensor], Any]] = [
    lambda x: x.reshape(x.shape[0] * x.shape[1], -1),
    lambda x: x.reshape(x.shape[1], x.shape[0] * 4),
    lambda x: x.flatten(),
    lambda x: x.transpose(0, 1).reshape(-1, x.shape[0]),
    lambda x: lucid.arange(x.shape[1]),
    lambda x: lucid.arange(2, x.shape[1] + x.shape[0]),
    lambda x: lucid.zeros(x.shape[0], x.shape[1] + 1),
    lambda x: x[:, : x.shape[1] // 2],
    lambda x: x[:, x.shape[1] // 2 :],
    lambda x: x[:, -1],
    lambda x: x[:, : x.shape[1] - 1],
    lambda x: x[:, ::-1],
    lambda x: x.sum((0, 1)) / (x.shape[0] * x.shape[1]),
    lambda x: x[:, :, :1].expand(x.shape[0], x.shape[1], 5),
    lambda x: lucid.ones(1, 1, 4).expand(x.shape) * x,
    lambda x: x.repeat(1, 2, 1),
    lambda x: lucid.ops.concat([x, x[:, :1]], 1),
    lambda x: x + (x.shape[1] % 3) + (x.shape[0] - 2 * x.shape[1]),
    lambda x: lucid.ones(x.shape[1], x.shape[1]).tril() @ x,
]


@pytest.mark.parametrize("forward", SIZES, ids=range(len(SIZES)))
@pytest.mark.parametrize("opset", [17, 23])
def test_arithmetic_with_sizes_is_done_when_the_model_runs(forward: Callable[[Tensor], Any], opset: int) -> None:
    session = Session(to_onnx(forward, ("N", "L", 4), opset=opset))
    for n, l in [(1, 1), (2, 3), (3, 8)]:
        x = lucid.randn(n, l, 4)
        got, expected = session(x), forward(x)
        assert got.shape == expected.shape
        np.testing.assert_allclose(got.numpy(), expected.numpy(), rtol=1e-5, atol=1e-5)


# Opsets and targets ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("opset", range(17, 27))
def test_at_every_opset_the_model_is_valid_and_runs(opset: int) -> None:
    model = Block()
    exported = to_onnx(model, opset=opset)
    assert exported.opset_import[0].version == opset
    assert exported.ir_version == (8 if opset <= 18 else 9 if opset <= 20 else 10 if opset <= 22 else 11)
    onnx.checker.check_model(exported, full_check=True)
    onnx.shape_inference.infer_shapes(exported, check_type=True, strict_mode=True, data_prop=True)
    session = onnxruntime.InferenceSession(exported.SerializeToString(), providers=["CPUExecutionProvider"])
    ids, mask = np.array([[0, 1, 1], [1, 0, 0]]), np.array([[False, False, True], [False, True, True]])
    (got,) = session.run(None, {"ids": ids, "mask": mask})
    np.testing.assert_allclose(got, model.eval()(Tensor(ids), Tensor(mask)).numpy(), rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize(
    ("target", "opset", "domains"),
    [
        ("any", 23, {""}),
        ("portable", 18, {""}),
        (Target(onnxruntime="1.20"), 21, {""}),
        (Target("portable", opset=20), 20, {""}),
    ],
    ids=str,
)
def test_targets_choose_the_opset_and_standard_ops(target: Any, opset: int, domains: set[str]) -> None:
    exported = to_onnx(Block(), target=target)
    assert {entry.domain: entry.version for entry in exported.opset_import} == {"": opset}
    assert {node.domain for node in exported.graph.node} == domains


def test_the_portable_target_uses_no_attention_op() -> None:
    for opset in (None, 23):
        assert "Attention" not in ops(to_onnx(nn.MultiHeadAttention(8, 2), target="portable", opset=opset))


# The form of attention ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("form", "opset", "op", "domain"),
    [
        ("standard", 23, "Attention", ""),
        ("contrib", 18, "MultiHeadAttention", "com.microsoft"),
        ("expanded", 23, "Softmax", ""),
        ("expanded", 17, "Softmax", ""),
    ],
)
def test_a_form_that_is_insisted_on_is_taken_and_agrees(form: str, opset: int, op: str, domain: str) -> None:
    mha = nn.MultiHeadAttention(8, 2)
    exported = to_onnx(mha, attention=form, opset=opset)
    assert [node.domain for node in exported.graph.node if node.op_type == op] == [domain]
    if form == "expanded":
        assert {node.domain for node in exported.graph.node} == {""}
        assert "Attention" not in ops(exported)
    x = lucid.randn(2, 5, 8)
    np.testing.assert_allclose(Session(exported)(x, x, x).numpy(), mha(x).numpy(), rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize(
    ("form", "opset", "reason"),
    [
        ("standard", 18, "ai.onnx Attention: needs opset 23, this export asks for 18"),
        ("contrib", 23, "com.microsoft MultiHeadAttention: it does not take key_mask"),
    ],
)
def test_a_form_that_would_not_be_exact_is_an_error_with_the_reasons(form: str, opset: int, reason: str) -> None:
    with pytest.raises(ExportError) as caught:
        to_onnx(Block(), attention=form, opset=opset)
    assert f'attn/attention: no form of attention="{form}" is exact here' in str(caught.value)
    assert reason in str(caught.value)


def test_insisting_does_not_concern_models_without_attention() -> None:
    assert ops(to_onnx(nn.Linear(2, 2), attention="standard", opset=17)) == ["MatMul", "Add"]


def test_explain_tells_the_row_taken_and_why_the_others_were_refused() -> None:
    assert str(explain(nn.Sequential(nn.Linear(4, 4), nn.GELU()), ("N", 4), opset=18)) == textwrap.dedent(
        """\
        target any, opset 18, onnxruntime >= 1.28
        1/gelu  expanded: 5 nodes
                refused   ai.onnx Gelu: needs opset 20, this export asks for 18"""
    )
    head, end = str(explain(lambda x: x + 1, ("N",))).splitlines()
    assert head == "target any, opset 23, onnxruntime >= 1.28" and end.startswith("no form was refused: each node has ")


def test_explain_has_one_decision_for_each_attention() -> None:
    model = nn.Sequential(nn.MultiHeadAttention(8, 2), nn.MultiHeadAttention(8, 2))
    report = explain(model, ("N", "L", 8))
    assert [(decision.path, decision.taken) for decision in report.attention] == [
        ("0", "ai.onnx Attention"),
        ("1", "ai.onnx Attention"),
    ]
    assert all(decision.nodes == 1 for decision in report.attention)
    assert "(2 alike)" in str(report)
    (refused,) = explain(nn.MultiHeadAttention(8, 2), opset=18).attention
    assert refused.taken == "expanded"
    assert ("ai.onnx Attention", "needs opset 23, this export asks for 18") in refused.refused
    assert any("only standard ops" in reason for _, reason in refused.refused)


def test_explain_agrees_with_the_export() -> None:
    for opset in (18, 23):
        (decision,) = explain(nn.MultiHeadAttention(8, 2), opset=opset).attention
        exported = to_onnx(nn.MultiHeadAttention(8, 2), opset=opset)
        assert decision.nodes == sum("attention/" in node.name for node in exported.graph.node)


# Determinism ----------------------------------------------------------------------------------------------------------


def test_the_same_model_gives_the_same_bytes() -> None:
    model = Block()
    assert to_onnx(model).SerializeToString() == to_onnx(model).SerializeToString()


def test_another_process_gives_the_same_bytes() -> None:
    script = textwrap.dedent(
        """
        import hashlib, lucid, lucid.nn as nn
        lucid.manual_seed(1)
        model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.MultiHeadAttention(8, 2))
        data = lucid.export.to_onnx(model, opset=18).SerializeToString()
        print(hashlib.sha256(data).hexdigest())
        """
    )
    digests = set()
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
        digests.add(done.stdout)
    assert len(digests) == 1


# Files ----------------------------------------------------------------------------------------------------------------


def small() -> tuple[nn.Module, Tensor]:
    return nn.Linear(32, 32), lucid.randn(2, 32)


def test_a_file_holds_what_is_returned(tmp_path: Path) -> None:
    model, x = small()
    path = tmp_path / "model.onnx"
    exported = to_onnx(model, path=path)
    assert os.listdir(tmp_path) == ["model.onnx"]
    assert onnx.load(path) == exported == to_onnx(model)
    np.testing.assert_allclose(Session(path)(x).numpy(), model(x).numpy(), rtol=1e-5, atol=1e-6)
    assert to_onnx(model, path=str(path)) == exported  # again, as text, over the old file


def test_weights_go_to_one_side_file_with_a_relative_name(tmp_path: Path) -> None:
    model, x = small()
    exported = to_onnx(model, path=tmp_path / "model.onnx", external_data=True)
    (side,) = (name for name in os.listdir(tmp_path) if name != "model.onnx")
    assert re.fullmatch(r"model\.onnx\.[0-9a-f]{16}\.data", side)
    tensors = {
        tensor.name: tensor for tensor in onnx.load(tmp_path / "model.onnx", load_external_data=False).graph.initializer
    }
    entries = {entry.key: entry.value for entry in tensors["weight.T"].external_data}
    assert entries == {"location": side, "offset": "0", "length": "4096"}
    assert not tensors["bias"].external_data  # small ones stay in the model
    assert (tmp_path / side).stat().st_size == 4096
    (weight,) = (tensor for tensor in exported.graph.initializer if tensor.name == "weight.T")
    assert not weight.raw_data
    np.testing.assert_allclose(Session(tmp_path / "model.onnx")(x).numpy(), model(x).numpy(), rtol=1e-5, atol=1e-6)


def test_model_and_side_file_can_move_together(tmp_path: Path) -> None:
    model, x = small()
    to_onnx(model, path=tmp_path / "model.onnx", external_data=True)
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    for name in [name for name in os.listdir(tmp_path) if name != "elsewhere"]:
        (tmp_path / name).rename(moved / name)
    assert Session(moved / "model.onnx")(x).shape == (2, 32)


def test_a_new_export_replaces_the_old_side_file(tmp_path: Path) -> None:
    path, other = tmp_path / "model.onnx", tmp_path / "other.onnx.0123456789abcdef.data"
    other.write_bytes(b"not ours")
    to_onnx(nn.Linear(32, 32), path=path, external_data=True)
    before = set(os.listdir(tmp_path))
    model, x = small()
    to_onnx(model, path=path, external_data=True)
    after = set(os.listdir(tmp_path))
    assert len(after) == len(before) == 3
    assert after != before
    np.testing.assert_allclose(Session(path)(x).numpy(), model(x).numpy(), rtol=1e-5, atol=1e-6)
    to_onnx(model, path=path)
    assert set(os.listdir(tmp_path)) == {"model.onnx", other.name}


def test_the_side_file_is_the_same_for_the_same_weights(tmp_path: Path) -> None:
    model, _ = small()

    def digest() -> dict[str, str]:
        to_onnx(model, path=tmp_path / "model.onnx", external_data=True)
        return {name: hashlib.sha256((tmp_path / name).read_bytes()).hexdigest() for name in os.listdir(tmp_path)}

    assert digest() == digest()


def test_weights_beyond_the_limit_go_to_a_side_file_by_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, x = small()
    monkeypatch.setattr("lucid.export.onnx_file.writer.LIMIT", 4000)
    to_onnx(model, path=tmp_path / "model.onnx")
    assert len(os.listdir(tmp_path)) == 2
    assert Session(tmp_path / "model.onnx")(x).shape == (2, 32)
    with pytest.raises(ExportError, match=r'but a model in memory holds at most 2 GiB.* path="model.onnx"'):
        to_onnx(model)
    with pytest.raises(ExportError, match='leave external_data="auto"'):
        to_onnx(model, path=tmp_path / "model.onnx", external_data=False)


def test_an_export_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    to_onnx(nn.Linear(2, 2), path=path)
    before = path.read_bytes()
    with pytest.raises(ExportError):
        to_onnx(lambda x: F.dropout(x), ("N",), path=path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["model.onnx"]


# Errors ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"opset": 16}, ExportError, "opset 16 is not supported: choose one from 17 to 26"),
        ({"opset": 27}, ExportError, "opset 27 is not supported"),
        ({"opset": 0}, ExportError, "opset 0 is not supported"),
        ({"opset": "18"}, ExportError, "opset '18' is not supported"),
        ({"target": "tpu"}, ExportError, "target 'tpu' does not exist: choose one of any, cpu, cuda, portable"),
        (
            {"attention": "flash"},
            ExportError,
            "attention 'flash' does not exist: choose one of auto, standard, contrib",
        ),
        ({"external_data": "maybe"}, ExportError, "external_data is 'maybe', expected True, False or \"auto\""),
        ({"external_data": 1}, ExportError, 'external_data is 1, expected True, False or "auto"'),
        (
            {"external_data": True},
            ExportError,
            "external_data=True writes weights to a file next to the model's: give its path=",
        ),
        ({"input_names": ["a", "b"]}, ExportError, r"input_names: got 2 names, expected 3 \(for query, key, value\)"),
        ({"input_names": ["a", "b", "a"]}, ExportError, "input_names: a appears more than once"),
        ({"input_names": ["a", "", "b"]}, ExportError, "expected non-empty strings"),
        ({"input_names": "abc"}, ExportError, "input_names: got the text 'abc', expected a list of names"),
        ({"output_names": ["query"]}, ExportError, "output_names: query are names of inputs too; choose others"),
        ({"output_names": []}, ExportError, "output_names: got 0 names, expected 1"),
        ({"kwargs": {"maks": lucid.spec("N")}}, TypeError, "unexpected keyword argument 'maks'"),
        ({"path": "no/such/folder/model.onnx"}, FileNotFoundError, "'no/such/folder' does not exist; create it first"),
        ({"path": "."}, IsADirectoryError, "is a folder, expected the name of a file"),
    ],
    ids=str,
)
def test_wrong_options_are_errors(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        to_onnx(nn.MultiHeadAttention(8, 2), **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"onnxruntime": "1.5"}, "onnxruntime 1.5 is older than 1.20"),
        ({"onnxruntime": "new"}, "onnxruntime is 'new', expected a version as text"),
        ({"onnxruntime": "1.24", "opset": 26}, "opset 26: onnxruntime 1.24 loads up to opset 25; ask for opset=25"),
        ({"name": "tpu"}, "target 'tpu' does not exist"),
        ({"attention": "flash"}, "attention 'flash' does not exist"),
    ],
    ids=str,
)
def test_wrong_targets_are_errors(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ExportError, match=message):
        Target(**options)


@pytest.mark.parametrize(
    ("forward", "error", "message"),
    [
        (lambda x: x if x.sum() > 0 else -x, lucid.TracedValueError, r"lucid.where\(condition, a, b\)"),
        (lambda x: x.reshape(int(x.shape[0])), SymbolicSizeError, "the size N is known only at run time"),
        (lambda x: F.dropout(x, 0.5), ExportError, "^dropout has no ONNX form .*export in evaluation mode"),
        (
            lambda x: F.scaled_dot_product_attention(x, x, x, dropout_p=0.3),
            ExportError,
            r"attention: dropout has no ONNX form .*dropout_p=0",
        ),
    ],
    ids=["branch", "size to int", "dropout", "attention dropout"],
)
def test_a_model_that_cannot_be_exported_says_why(forward: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        to_onnx(forward, ("N", 2, "L", 8))


def test_a_size_that_no_input_tells_is_an_error() -> None:
    with pytest.raises(ValueError, match="size L cannot be computed from the sizes of the inputs"):
        to_onnx(lambda x: x * 2, ("N", "N*L"))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_weights_with_nan_or_infinity_are_named_in_a_warning(bad: float, dtype: str) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)).to(dtype)
    weight = np.zeros((2, 2))
    weight[1, 0] = bad
    model.load_state_dict({"1.weight": weight}, strict=False)
    with pytest.warns(WeightWarning, match=r"^weights with NaN or infinity: 1.weight.T; "):
        to_onnx(model, lucid.spec("N", 2, dtype=dtype))


def test_infinity_as_a_number_in_the_model_is_no_reason_to_warn() -> None:
    to_onnx(lambda x: x.masked_fill(x > 0, -float("inf")).softmax(), ("N", 3))


def test_indices_of_any_integer_type_can_be_exported() -> None:
    for dtype in ("int8", "uint8", "int32", "int64"):
        exported = to_onnx(lambda x, i: x[i], ("N", 3), lucid.spec("M", dtype=dtype))
        indices = np.array([1, 0, 1], dtype)
        x = lucid.randn(2, 3)
        np.testing.assert_array_equal(Session(exported)(x, indices).numpy(), x.numpy()[indices])


def test_a_graph_has_inputs_of_its_own() -> None:
    graph = lucid.trace(nn.Linear(2, 2), ("N", 2))
    for call in (lambda: to_onnx(graph, ("M", 2)), lambda: to_onnx(graph, kwargs={"x": 3})):
        with pytest.raises(ExportError, match="got a graph, which has inputs of its own, and others; trace the model"):
            call()
