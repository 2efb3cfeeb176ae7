"""Further outputs: states between layers, attention weights, and the results of modules by their paths."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import lucid
from lucid import nn
from lucid.export import to_onnx
from lucid.testing import assert_parity
from tests.console import in_process
from tests.models import goldens


def names_of(variant: str, *outputs: str, **how: Any) -> list[str]:
    model = lucid.models.load(goldens.folder(variant))
    return [value.name for value in to_onnx(model, outputs=outputs, **how).graph.output]


@pytest.mark.parametrize("variant", ["bert/base", "llama/llama3", "t5/v1_1", "bart/base", "gpt2/base"])
def test_hidden_states_are_those_of_transformers(variant: str) -> None:
    session = lucid.runtime.Session(to_onnx(lucid.models.load(goldens.folder(variant)), outputs=["hidden_states"]))
    case = next(case for case in goldens.cases(variant) if "attention_mask" in case.inputs)
    outputs = session.run(goldens.as_exported(case.inputs, session.inputs))
    named = {name for name in outputs if "hidden_states." in name}
    assert named == {name for name in case.outputs if "hidden_states." in name}
    for name in named:
        expected = case.outputs[name]
        kept = np.ones(expected.shape[:2], bool) if case.kept is None or "decoder." in name else case.kept
        np.testing.assert_allclose(outputs[name][kept], expected[kept], rtol=0, atol=1e-5 * np.abs(expected).max())


def test_attentions_are_the_softmax_of_the_scores() -> None:
    model: Any = lucid.models.load(goldens.folder("bert/base"))
    session = lucid.runtime.Session(to_onnx(model, outputs=["hidden_states.0", "attentions"]))
    ids = np.array([[5, 6, 7, 0]])
    outputs = session.run({"input_ids": ids, "attention_mask": np.array([[1, 1, 1, 0]])})
    attention, x = model.encoder.layer[0].attention.self, outputs["hidden_states.0"][0]
    q, k = (
        (layer(lucid.tensor(x)).numpy().reshape(4, model.config.num_heads, -1))
        for layer in (attention.query, attention.key)
    )
    scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(q.shape[-1])
    shares = np.exp(scores[:, :, :3]) / np.exp(scores[:, :, :3]).sum(-1, keepdims=True)
    np.testing.assert_allclose(outputs["attentions.0"][0, :, :, :3], shares, atol=1e-5)
    np.testing.assert_array_equal(outputs["attentions.0"][0, :, :, 3], 0)


@pytest.mark.parametrize("target", goldens.TARGETS)
def test_every_target_gives_what_the_graph_gives(target: str) -> None:
    model = lucid.models.load(goldens.folder("bart/base"))
    assert_parity(model, outputs=["attentions", "encoder.hidden_states.1", "model.decoder.layers.0.fc1"], target=target)


def test_an_encoder_and_a_decoder_have_names_of_their_own() -> None:
    names = names_of("bart/base", "attentions")
    encoder, decoder = (
        [f"encoder.attentions.{i}" for i in (0, 1)],
        ["decoder.attentions.0", "decoder.cross_attentions.0"],
    )
    assert names == ["logits", decoder[0], *encoder, decoder[1]]


def test_a_step_with_a_cache_has_further_outputs_too() -> None:
    names = names_of("llama/llama3", "hidden_states.2", "model.layers.0", cache="growing")
    assert names[0] == "logits"
    assert names[-2:] == ["hidden_states.2", "model.layers.0"]
    part = names_of("whisper/base", "attentions", part="decoder")
    assert [name for name in part if "cross_attentions" in name] == ["cross_attentions.0", "cross_attentions.1"]


def test_a_function_has_the_results_of_its_modules() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    exported = to_onnx(model, ("N", 4), outputs=["0"])
    inner, x = (
        lucid.runtime.Session(exported).run({exported.graph.input[0].name: np.ones((2, 4), np.float32)})["0"],
        lucid.ones(2, 4),
    )
    np.testing.assert_allclose(inner, model[0](x).numpy(), rtol=1e-6)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["encoder.layer.9"], r"no module 'encoder\.layer\.9' computes anything; did you mean encoder\.layer"),
        (["atentions"], r"no module 'atentions' computes anything; did you mean attentions\?"),
        (["last_hidden_state.1"], r"did you mean hidden_states\.1"),
        (["hidden_states.5"], r"there is no hidden_states\.5; there are hidden_states\.0, hidden_states\.1, hidden_"),
    ],
)
def test_a_name_that_the_model_does_not_have_is_an_error(names: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        names_of("bert/base", *names)


def test_what_has_no_layers_or_attention_says_so() -> None:
    for name, message in (("hidden_states", "has no list of layers"), ("attentions", "has no attention")):
        with pytest.raises(ValueError, match=message):
            to_onnx(nn.Linear(2, 2), ("N", 2), outputs=[name])
    with pytest.raises(TypeError, match="got the text 'attentions', expected a list"):
        to_onnx(nn.Linear(2, 2), ("N", 2), outputs="attentions")


def test_a_model_is_loaded_with_them_for_all_its_exports() -> None:
    folder = goldens.folder("bert/base")
    model = lucid.models.load(folder, outputs=("hidden_states.1", "attentions"))
    added = ["hidden_states.1", "attentions.0", "attentions.1"]
    assert [value.name for value in to_onnx(model).graph.output] == ["last_hidden_state", *added]
    assert [value.name for value in to_onnx(lucid.quantize(model, 8)).graph.output] == ["last_hidden_state", *added]
    assert [value.name for value in to_onnx(model, outputs=["attentions"]).graph.output][1:] == added[1:]
    assert_parity(model)
    assert isinstance(model(lucid.tensor([[5, 6, 7]])), lucid.Tensor)
    with pytest.raises(TypeError, match="got the text 'attentions', expected a list"):
        lucid.models.load(folder, outputs="attentions")


def test_a_merged_decoder_says_what_to_export_instead() -> None:
    with pytest.raises(ValueError, match="export the part decoder instead"):
        names_of("t5/v1_1", "attentions", part="decoder_merged")


def test_the_command_exports_and_verifies_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, file = str(goldens.folder("bert/base")), tmp_path / "bert.onnx"
    more = ("--outputs", "hidden_states.1", "--outputs", "attentions")
    for command in (("export", source, "-o", str(file)), ("verify", source, str(file))):
        assert in_process([*command, *more], monkeypatch) == 0
    names = [value.name for value in onnx.load(file).graph.output]
    assert names == ["last_hidden_state", "hidden_states.1", "attentions.0", "attentions.1"]
