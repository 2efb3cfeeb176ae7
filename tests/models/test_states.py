"""Decoders whose layers carry states: against transformers and plain recurrences, step by step and in generation."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lucid
from lucid.export import to_onnx
from lucid.generation import Generator
from lucid.generation.chat.loading import _session
from lucid.models.checkpoints.pretrained import ConfigError
from lucid.models.mamba2 import state_space
from lucid.models.qwen3_next import delta_rule
from lucid.runtime import Session
from tests.console import in_process
from tests.models import goldens

VARIANTS = ["mamba2/base", "mamba2/limited", "lfm2/base", "lfm2/biased", "qwen3_next/base", "qwen3_5_text/base"]
FIRST = ["mamba2/base", "lfm2/base", "qwen3_next/base"]
TEXT = np.random.default_rng(0).integers(3, 40, (2, 41))


def load(variant: str = "mamba2/base") -> Any:
    return lucid.models.load(goldens.folder(variant))


@pytest.mark.parametrize("chunk", [1, 4, 7, 50])
def test_chunks_compute_the_recurrence(chunk: int) -> None:
    """h_t = exp(-dt_t a) h_(t-1) + dt_t B_t x_t, y_t = C_t h_t, token by token in float64."""
    generator = np.random.default_rng(1)
    n, length, heads, groups, width, states = 2, 11, 4, 2, 3, 5
    x, enter, leave = (generator.standard_normal((n, length, *s)) for s in ((heads, width), *[(groups, states)] * 2))
    dt, a = generator.random((n, length, heads)), np.arange(1.0, heads + 1)
    start = h = generator.standard_normal((n, heads, width, states))
    expected = np.empty(x.shape)
    for t in range(length):
        b, c = (np.repeat(part[:, t], heads // groups, axis=1) for part in (enter, leave))
        h = np.exp(-dt[:, t] * a)[..., None, None] * h + (dt[:, t, :, None] * x[:, t])[..., None] * b[:, :, None]
        expected[:, t] = (h * c[:, :, None]).sum(-1)
    tensors = [lucid.tensor(array, dtype="float64") for array in (x, dt, np.log(a), enter, leave, start)]
    y, last = state_space(*tensors, chunk=chunk)
    np.testing.assert_allclose(y.numpy(), expected, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(last.numpy(), h, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("chunk", [1, 4, 7, 50])
def test_chunks_compute_the_gated_delta_rule(chunk: int) -> None:
    """What a head answers to a key decays, and is corrected by a part of its error, token by token in float64."""
    generator = np.random.default_rng(2)
    n, length, heads, groups, keys, width = 2, 11, 4, 2, 3, 5
    query, key = (generator.standard_normal((n, length, groups, keys)) for _ in range(2))
    key /= np.linalg.norm(key, axis=-1, keepdims=True)
    value, start = generator.standard_normal((n, length, heads, width)), generator.random((n, heads, keys, width))
    decay, beta = -generator.random((n, length, heads)), generator.random((n, length, heads))
    expected, s = np.empty(value.shape), start
    for t in range(length):
        q, k = (np.repeat(part[:, t], heads // groups, axis=1)[..., None] for part in (query, key))
        s = np.exp(decay[:, t])[..., None, None] * s
        s = s + k * (beta[:, t, :, None] * (value[:, t] - (s * k).sum(-2)))[..., None, :]
        expected[:, t] = (s * q).sum(-2)
    tensors = [lucid.tensor(array, dtype="float64") for array in (query, key, value, decay, beta, start)]
    y, last = delta_rule(*tensors, chunk=chunk)
    np.testing.assert_allclose(y.numpy(), expected, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(last.numpy(), s, rtol=1e-9, atol=1e-11)


def stepped(call: Any, states: Any, cuts: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """The logits of all positions, from as many calls as there are cuts."""
    logits, start = [], 0
    for count in cuts:
        positions = np.tile(np.arange(start, start + count), (2, 1))
        output, states = call(TEXT[:, start : start + count], np.ones((2, start + count), np.int64), positions, states)
        logits.append(np.asarray(output))
        start += count
    return np.concatenate(logits, 1)


@pytest.mark.parametrize("variant", VARIANTS)
def test_step_by_step_eagerly_and_exported(variant: str) -> None:
    model = load(variant)
    whole = model(lucid.tensor(TEXT)).numpy()

    def eagerly(ids: Any, mask: Any, positions: Any, states: Any) -> Any:
        return model(lucid.tensor(ids), lucid.tensor(mask), lucid.tensor(positions), past_key_values=states)

    session = Session(to_onnx(model, cache="growing"))
    names = [name for name in session.inputs if name.startswith("past")]

    def exported(ids: Any, mask: Any, positions: Any, states: Any) -> Any:
        feeds = {"input_ids": ids, "attention_mask": mask, "position_ids": positions}
        feeds = {name: array for name, array in feeds.items() if name in session.inputs}
        logits, *after = session.run(feeds | dict(zip(names, states, strict=True))).values()
        return logits, after

    empty = model.empty_cache(2)
    for call, start in ((eagerly, empty), (exported, [part.numpy() for state in empty for part in state])):
        for cuts in ((41,), (1, 35, 1, 1, 3)):
            np.testing.assert_allclose(stepped(call, start, cuts), whole, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("variant", FIRST[:2])
def test_a_step_is_exported_and_verified(
    variant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    step, path = ["--cache", "growing", "-t", "cpu"], tmp_path / "step.onnx"
    assert in_process(["export", goldens.folder(variant), *step, "-o", path], monkeypatch) == 0
    assert "parity with NumPy in 8 runs" in capsys.readouterr().out
    assert in_process(["verify", goldens.folder(variant), path, *step], monkeypatch) == 0


@pytest.mark.parametrize(("variant", "state"), [("mamba2/base", "0.ssm"), ("lfm2/base", "1.key")])
def test_a_chat_exports_it_with_its_states(variant: str, state: str) -> None:
    model = load(variant)
    session = _session(model, None, 1)
    assert f"past_key_values.{state}" in session.inputs
    tokens = Generator(session).generate(TEXT[:1, :5], max_new_tokens=4, do_sample=False)
    assert tokens.tolist() == Generator(model).generate(TEXT[:1, :5], max_new_tokens=4, do_sample=False).tolist()


@pytest.mark.parametrize("variant", FIRST)
def test_generation_with_padding_on_the_left(variant: str) -> None:
    model = load(variant)
    prompts, mask = TEXT[:, :5], np.array([[1] * 5, [0, 0, 1, 1, 1]])
    session = Session(to_onnx(model, cache="growing"))
    for options in ({"do_sample": False}, {"do_sample": False, "num_beams": 3}):
        tokens = [
            Generator(m).generate(prompts, attention_mask=mask, max_new_tokens=6, **options).tolist()  # type: ignore[arg-type]
            for m in (model, session)
        ]
        assert tokens[0] == tokens[1]
        assert tokens[0][1] == Generator(model).generate(prompts[1:, 2:], max_new_tokens=6, **options).tolist()[0]  # type: ignore[arg-type]


def test_a_state_of_another_model_and_a_capacity_are_errors() -> None:
    model = load()
    states = load("mamba2/limited").empty_cache(2)
    with pytest.raises(ValueError, match=r"0.conv is float32\[2, 44, 2\], expected float32\[2, 56, 3\]"):
        model(lucid.tensor(TEXT), past_key_values=states)
    with pytest.raises(ValueError, match="past_key_values has 1 layers, expected 2"):
        model(lucid.tensor(TEXT), past_key_values=states[:1])
    mixed = load("lfm2/base")
    with pytest.raises(ValueError, match=r"past_key_values.0.conv is missing, expected float32\[2, 24, 2\]"):
        mixed(lucid.tensor(TEXT), past_key_values=mixed.empty_cache(2)[1:2] * 3)
    with pytest.raises(ValueError, match="states have no capacity, got 4"):
        model.empty_cache(1, capacity=4)
    with pytest.raises(ValueError, match='cache is "fixed", expected "growing"'):
        to_onnx(model, cache="fixed")


@pytest.mark.parametrize(
    ("variant", "changed", "message"),
    [
        ("mamba2/base", {"expand": 3}, r"expand is 3, expected num_heads \* head_dim = expand \* 16"),
        ("mamba2/base", {"time_step_limit": [0.0, 10**400]}, r"time_step_limit is \[0.0, 10+.*, expected two numbers"),
        ("mamba2/base", {"time_step_limit": [1.0, 0.5]}, r"time_step_limit is \[1.0, 0.5\], expected two numbers"),
        ("mamba2/base", {"n_groups": 3}, "n_groups is 3"),
        ("lfm2/base", {"layer_types": ["conv"]}, "supported: 3 of full_attention or conv"),
        ("qwen3_next/base", {"layer_types": ["conv"] * 2}, "supported: 2 of full_attention or linear_attention"),
        (
            "qwen3_next/base",
            {"linear_num_key_heads": 3},
            "linear_num_key_heads is 3, expected a divisor of the width 4",
        ),
        ("qwen3_next/base", {"hidden_act": "gelu"}, "hidden_act is 'gelu', supported: 'silu'"),
    ],
)
def test_options_that_are_wrong(variant: str, changed: dict[str, Any], message: str, tmp_path: Path) -> None:
    folder = shutil.copytree(goldens.folder(variant), tmp_path / "model")
    options = json.loads((folder / "config.json").read_text(encoding="utf-8")) | changed
    (folder / "config.json").write_text(json.dumps(options), encoding="utf-8")
    with pytest.raises(ConfigError, match=message):
        lucid.models.load(folder)
