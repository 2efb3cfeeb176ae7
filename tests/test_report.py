"""The report page: its contents, and that it works in a real browser without a network."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from ml_dtypes import bfloat16

import lucid
from lucid import nn
from lucid.inspection.report import graph_page, report
from lucid.inspection.report.page import render

TOKENS = ["the", "<cat>", "sat", "on", "it"]


class Encoder(nn.Module):
    """Two layers in a submodule, as in models."""

    def __init__(self) -> None:
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32), 2)

    def forward(self, x: lucid.Tensor) -> lucid.Tensor:
        return self.encoder(x)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    lucid.manual_seed(0)
    path = tmp_path_factory.mktemp("report") / "report.html"
    x = np.random.default_rng(0).standard_normal((1, 5, 16), np.float32)
    report(
        Encoder(), ("N", "L", 16), path=path, data={"x": x}, tokens=TOKENS, targets=("any", "portable"), seconds=0.02,
        name="an <encoder>",
    )  # fmt: skip
    return path


def data_of(page: Path) -> dict[str, Any]:
    match = re.search(
        r'<script id="data" type="application/json">(.*?)</script>', page.read_text(encoding="utf-8"), re.S
    )
    assert match is not None
    data: dict[str, Any] = json.loads(match[1])
    return data


def test_the_page_is_whole_and_small(page):
    text = page.read_text(encoding="utf-8")
    assert len(text) < 2_000_000
    assert "default-src 'none'" in text
    assert "an &lt;encoder&gt;" in text
    assert "Apache License" in text
    assert not re.search(r'(src|href)="(?!#)', text.split("<script>")[0])


def test_nodes_have_modules_types_forms_and_errors(page):
    nodes = data_of(page)["graph"]["nodes"]
    attention = next(node for node in nodes if node["op"] == "attention")
    assert attention["module"] == "encoder.layers.0.self_attn"
    assert attention["outputs"] == ["float32[N, L, 16]"]
    assert attention["form"].startswith("ai.onnx Attention: ")
    assert attention["attributes"]["heads"] == "2"
    assert re.fullmatch(r"in Encoder\.forward, .*test_report\.py:\d+: return self\.encoder\(x\)", attention["line"])
    assert 0 <= attention["error"] < 1e-5
    weights = [i["name"] for node in nodes for i in node["inputs"] if node["module"] == "encoder.layers.0.linear1"]
    assert "encoder.layers.0.linear1.weight" in weights


def test_attention_maps_are_the_weights_of_the_modules(tmp_path):
    mha = nn.MultiHeadAttention(16, 4)
    x = lucid.randn(2, 6, 16)
    report(mha, ("N", "L", 16), path=tmp_path / "r.html", data={"query": x.numpy()}, targets=())
    (layer,) = data_of(tmp_path / "r.html")["attention"]["layers"]
    levels = np.frombuffer(base64.b64decode(layer["data"]), np.uint8).reshape(
        layer["heads"], layer["queries"], layer["keys"]
    )
    _, weights = mha(x, need_weights=True, average_attn_weights=False)
    np.testing.assert_allclose(levels * (layer["top"] / 255), weights.numpy()[0], atol=layer["top"] / 500)


def test_a_module_of_lucid_alone_has_no_line_of_the_user(tmp_path):
    report(nn.Linear(3, 4), ("N", 3), path=tmp_path / "r.html", targets=())
    assert [node["line"] for node in data_of(tmp_path / "r.html")["graph"]["nodes"]] == [""]


def test_what_is_not_on_the_page_has_a_reason(page, tmp_path):
    assert data_of(page)["missing"] == {"precision-section": "no weights are quantized; --bits 4 shows what that costs"}
    report(nn.Linear(3, 4), ("N", 3), path=tmp_path / "r.html", targets=())
    missing = data_of(tmp_path / "r.html")["missing"]
    assert missing["attention-section"] == "the model computes no attention"
    sections = ("summary", "cost", "target", "form")
    assert {missing[f"{name}-section"] for name in sections} == {"no target was asked for"}
    report(nn.Linear(3, 4), ("N", 3), path=tmp_path / "r.html", targets=["any"], seconds=0.01)
    missing = data_of(tmp_path / "r.html")["missing"]
    assert missing.keys() == {"attention-section", "precision-section", "form-section"}
    assert missing["form-section"] == "the model computes no attention"


def test_long_inputs_are_cut_and_it_is_said(tmp_path):
    mha = nn.MultiHeadAttention(32, 16)
    report(mha, ("N", "L", 32), path=tmp_path / "r.html", sizes={"L": 600}, targets=())
    maps = data_of(tmp_path / "r.html")["attention"]
    assert maps["cut"] == 600
    assert (tmp_path / "r.html").stat().st_size < 6_500_000


def test_random_inputs_are_as_long_as_the_model_takes(tmp_path):
    table = nn.Embedding(7, 4)
    for size, shape in (("L", [1, 7]), ("2 <= L <= 5", [1, 5]), ("20 <= L", [1, 48])):
        model = (lambda x: x + table.weight[: x.shape[1], 0]) if size == "L" else (lambda x: x * 2)
        report(model, lucid.spec("N", size), path=tmp_path / "r.html", targets=())
        assert data_of(tmp_path / "r.html")["shapes"] == {"x": shape}


def test_targets_are_measured_in_their_own_process(page):
    targets = {target["target"]: target for target in data_of(page)["targets"]}
    assert targets["any"]["opset"] == 23
    assert targets["portable"]["forms"][0]["form"].startswith("expanded")
    for target in targets.values():
        assert 0 < target["p50"] <= target["p90"] <= target["p99"]
        assert target["model_memory"] > 0


def test_a_target_that_takes_too_long_is_a_problem_of_that_target(tmp_path, monkeypatch):
    monkeypatch.setattr("lucid.inspection.report.targets._TIMEOUT", 0)
    report(nn.Linear(3, 4), ("N", 3), path=tmp_path / "r.html", targets=["any"], seconds=0.01)
    page = data_of(tmp_path / "r.html")
    assert page["targets"][0]["problem"] == "its runs took more than 0.01 seconds, and were ended"
    assert page["cost"] is None


def test_each_file_is_compared_with_numpy_and_the_first_is_measured_by_module(page):
    data = data_of(page)
    for target in data["targets"]:
        assert target["agrees"] and 0 < target["max_abs"] < 1e-5 < target["of"]
    cost = data["cost"]
    assert (cost["target"], cost["sizes"]) == ("any", {"N": 1, "L": 5})
    modules = {row["module"]: row for row in cost["modules"]}
    whole, layer = modules[""], modules["encoder.layers.0"]
    assert whole["parameters"] == cost["parameters"] == 2 * layer["parameters"] == 2 * 2224
    assert whole["bytes"] == 4 * whole["parameters"] < cost["bytes"]
    assert layer["flops"] * 2 == whole["flops"]
    assert 0 < layer["seconds"] < whole["seconds"]
    assert whole["seconds"] == pytest.approx(sum(modules[f"encoder.layers.{i}"]["seconds"] for i in (0, 1)))


def test_inputs_that_are_no_numbers_or_bfloat16_have_a_page_too(tmp_path):
    attention, layer = nn.MultiHeadAttention(16, 4), nn.Linear(8, 8).to("bfloat16")
    kwargs = {"x": lucid.spec("N", 3, 16), "allow_pickle": lucid.spec("N", 8, dtype="bfloat16")}
    data = {"x": np.full((1, 3, 16), np.nan, np.float32), "allow_pickle": np.ones((1, 8), bfloat16)}
    report(
        lambda x, allow_pickle: (attention(x), layer(allow_pickle)),
        kwargs=kwargs,
        path=tmp_path / "a.html",
        data=data,
        targets=["any"],
        seconds=0.01,
    )
    page = data_of(tmp_path / "a.html")
    assert page["attention"]["layers"][0]["top"] == 1.0
    assert page["targets"][0]["problem"] == "" and page["targets"][0]["max_abs"] is None


def test_what_does_not_fit_is_an_error(tmp_path):
    mha = nn.MultiHeadAttention(16, 4)
    with pytest.raises(ValueError, match=r"got 3 tokens \(--tokens\), expected a label for each of the 2 positions"):
        report(mha, ("N", "L", 16), path=tmp_path / "r.html", sizes={"N": 1, "L": 2}, tokens=["a", "b", "c"])
    with pytest.raises(KeyError, match="inputs missing: query; unknown: x"):
        report(mha, ("N", "L", 16), path=tmp_path / "r.html", data={"x": np.zeros(3, np.float32)})
    with pytest.raises(ValueError, match="size K: the model's symbolic sizes are L, N"):
        report(mha, ("N", "L", 16), path=tmp_path / "r.html", sizes={"K": 3})
    assert not (tmp_path / "r.html").exists()


def test_the_graph_of_any_file(tmp_path):
    lucid.export.to_onnx(nn.Linear(3, 4).to("float64"), lucid.spec("N", 3, dtype="float64"), path=tmp_path / "m.onnx")
    model = onnx.load(tmp_path / "m.onnx")
    model.producer_name = "another"
    for node in model.graph.node:
        node.name = f"/block/{node.op_type}"
    onnx.save(model, tmp_path / "m.onnx")
    graph_page(tmp_path / "m.onnx", tmp_path / "g.html")
    graph = data_of(tmp_path / "g.html")["graph"]
    assert {node["module"] for node in graph["nodes"]} == {"block"}
    assert graph["inputs"] == [{"id": "i:x", "name": "x", "type": "float64[N, 3]"}]
    assert graph["outputs"][0]["from"] == "n1"
    types = {read["type"] for node in graph["nodes"] for read in node["inputs"]}
    assert {"float64[3, 4]", "float64[4]"} <= types, "weights too"
    assert "without running it; lucid report SOURCE" in data_of(tmp_path / "g.html")["missing"]["attention-section"]


def test_data_cannot_break_out_of_its_place():
    empty: dict[str, Any] = {"version": "0", "shapes": {}, "random": False, "errors": [], "targets": []}
    graph = {
        "nodes": [],
        "inputs": [{"id": "i:</script><script>alert(1)", "name": "{{STYLE}}", "type": ""}],
        "outputs": [],
    }
    text = render({**empty, "title": "</title>{{DATA}}", "graph": graph, "attention": {"layers": [], "tokens": []}})
    assert "<script>alert(1)" not in text
    assert "</title>{{DATA}}" not in text
    assert '"name":"{{STYLE}}"' in text
