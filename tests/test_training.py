"""A training step as an ONNX file, and `Training`, which runs it from step to step."""

from __future__ import annotations

import errno
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import lucid
from lucid import nn, optim
from lucid.export import ExportError, evaluation_step, training_step
from lucid.gradients import GradientError
from lucid.inspection import inspect_model
from lucid.nn import functional as F
from lucid.runtime import ModelError, Session, Training, TrainingError
from tests.models import goldens

TORCH = lucid.load(Path(__file__).parent / "goldens" / "optimizers.safetensors")["bert/losses"]
IDS, LABELS = lucid.spec("N", "L", dtype=lucid.int64), lucid.spec("N", dtype=lucid.int64)
X = np.random.default_rng(4).standard_normal((16, 4)).astype(np.float32)
BATCH = {"x": X, "labels": X[:, :3].argmax(1)}


def network() -> Any:
    lucid.manual_seed(4)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))


def step_of(model: Any, optimizer: optim.Optimizer | None = None, **options: Any) -> onnx.ModelProto:
    def loss(x: Any, labels: Any) -> Any:
        return F.cross_entropy(model(x), labels)

    return training_step(model, loss, optimizer or optim.AdamW(1e-2), ("N", 4), LABELS, **options)


@pytest.mark.parametrize("target", ["any", "cpu", "portable"])
def test_100_steps_have_the_losses_of_torch(tmp_path: Path, target: str) -> None:
    """tools/goldens/optimizers.py trains the same checkpoint in torch, on these texts."""
    model: Any = lucid.models.load(goldens.folder("tasks/bert_text_classification"))
    random = np.random.default_rng(44)
    batch = {"input_ids": random.integers(1, 40, (8, 10)), "labels": random.integers(0, 3, 8)}
    batch["attention_mask"] = (np.arange(10) < np.array([10, 9, 8, 7, 6, 5, 3, 1])[:, None]).astype(np.int64)

    def loss(input_ids: Any, attention_mask: Any, labels: Any) -> Any:
        return F.cross_entropy(model(input_ids, attention_mask), labels)

    path = tmp_path / "step.onnx"
    training_step(model, loss, optim.AdamW(1e-3), IDS, IDS, LABELS, path=path, target=target)
    training = Training(path, model.state_dict())
    np.testing.assert_allclose([training.step(**batch) for _ in TORCH], TORCH, atol=1e-4)


def test_a_step_takes_what_the_step_before_gave() -> None:
    session = Session(step_of(network(), wrt="2"))
    weights = ["2.weight", "2.bias"]
    state = [f"{name}.{part}" for name in weights for part in ("exp_avg", "exp_avg_sq")]
    assert list(session.inputs) == ["x", "labels", *weights, *state, "step"]
    new = [f"new_weights.{name}" for name in weights] + [f"new_state.{name}" for name in state]
    assert list(session.outputs) == ["loss", "gradient_norm", *new]
    assert session.inputs["x"][1] == ("N", 4)


def test_frozen_weights_are_in_the_file_and_stay_as_they_are() -> None:
    model = network()
    for options in ({"wrt": "2"}, {"optimizer": optim.SGD(0.1, frozen="0")}):
        step = step_of(model, **options)
        stored = {tensor.name for tensor in step.graph.initializer}
        assert {"0.bias"} <= stored and not {"2.weight", "2.bias"} & stored
        training = Training(step, model.state_dict())
        before = training.step(**BATCH)
        assert training.step(**BATCH) < before and training.weights().keys() == {"2.weight", "2.bias"}


def test_an_interrupt_at_any_line_leaves_a_whole_step() -> None:
    step = step_of(network(), optim.SGD(1.0))
    training, expected = Training(step, network().state_dict()), Training(step, network().state_dict())
    states, line = [expected.weights()], 0
    while True:
        line, seen = line + 1, 0

        def trace(frame: Any, event: str, _: Any, line: int = line) -> Any:
            """Press Ctrl-C at a line of `Training`."""
            nonlocal seen
            if Path(frame.f_code.co_filename).name != "training.py":
                return None
            seen += event == "line"
            if event == "line" and seen == line:
                signal.raise_signal(signal.SIGINT)
            return trace

        before, interrupted = sys.gettrace(), False
        handler = signal.signal(signal.SIGINT, signal.default_int_handler)  # programs in the background ignore it
        try:
            sys.settrace(trace)
            training.step(**BATCH)
        except KeyboardInterrupt:
            interrupted = True
        finally:
            sys.settrace(before)
            signal.signal(signal.SIGINT, handler)
        if len(states) <= training.steps:
            expected.step(**BATCH)
            states.append(expected.weights())
        weights = training.weights()
        assert all((weights[name] == value).all() for name, value in states[training.steps].items()), f"line {line}"
        if not interrupted:
            break
    assert line > 20 and 1 < training.steps < line


@pytest.mark.parametrize("target", ["any", "cpu"])
def test_adapters_are_trained_over_a_base_in_4_bits(target: str) -> None:
    lucid.manual_seed(4)
    base = lucid.quantize(nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 32), nn.Linear(32, 3)), 4)
    model = nn.LoRA.add(base, 2, ("0", "3"))
    step = step_of(model, wrt="*.lora_*", target=target)
    trained = [f"{layer}.weight.lora_{part}" for layer in (0, 3) for part in "AB"]
    assert [v.name for v in step.graph.input if ".exp_" not in v.name] == ["x", "labels", *trained, "step"]
    floats = [t for t in step.graph.initializer if t.data_type == onnx.TensorProto.FLOAT and np.prod(t.dims) > 32]
    assert [tensor.name for tensor in floats] == []
    training = Training(step, model.state_dict())
    losses = [training.step(**BATCH) for _ in range(30)]
    assert losses[-1] < losses[0] * 0.9
    model.load_state_dict(training.weights(), strict=False)
    loss = F.cross_entropy(nn.LoRA.merge(model)(lucid.tensor(X)), lucid.tensor(BATCH["labels"]))
    assert loss.item() == pytest.approx(training.step(**BATCH), rel=1e-3)


def test_a_checkpoint_continues_where_it_was_written(tmp_path: Path) -> None:
    model, schedule = network(), optim.linear(0.05, 20, warmup=5)
    step = step_of(model, optim.AdamW(schedule, clip=0.1))
    training = Training(step, model.state_dict())
    for _ in range(7):
        training.step(**BATCH)
    training.save(tmp_path / "checkpoint.safetensors")
    again = Training(step, tmp_path / "checkpoint.safetensors")
    assert again.steps == 7
    assert [again.step(**BATCH) for _ in range(5)] == [training.step(**BATCH) for _ in range(5)]


def test_a_checkpoint_of_another_step_is_refused(tmp_path: Path) -> None:
    """Names and shapes are the same; other frozen weights, or another activation, are another model."""
    model, other = network(), network()
    path = tmp_path / "checkpoint.safetensors"
    Training(step_of(model, wrt="2"), model.state_dict()).save(path, notes="é")
    other[0].weight.fill_(0.5)
    relu = nn.Sequential(model[0], nn.ReLU(), model[2])
    written = tmp_path / "other.onnx"
    step_of(other, wrt="2", path=written, external_data=True)
    for step in (step_of(other, wrt="2"), step_of(relu, wrt="2").SerializeToString(), written):
        with pytest.raises(ValueError, match=r"checkpoint.safetensors: is a checkpoint of another training step"):
            Training(step, path)
    slower = Training(step_of(model, optim.AdamW(1e-4), wrt="2"), path)
    assert slower.notes == "é"


def test_a_label_of_no_class_is_named_with_its_input_and_changes_nothing() -> None:
    model = network()
    training, labels = Training(step_of(model), model.state_dict()), BATCH["labels"].copy()
    labels[3] = 7
    with pytest.raises(ValueError, match="Session: ScatterElements got index 7 of input labels, expected 0 to 2"):
        training.step(x=X, labels=labels)
    assert training.steps == 0 and training.step(**BATCH) > 0


@pytest.mark.parametrize("wrt", [(), "1.*"])
def test_an_id_without_a_row_is_an_error_and_does_not_count_from_the_end(wrt: Any) -> None:
    model = nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 3))

    def loss(ids: Any, labels: Any) -> Any:
        return F.cross_entropy(model(ids).mean(1), labels)

    training = Training(training_step(model, loss, optim.SGD(0.1), IDS, LABELS, wrt=wrt), model.state_dict())
    for wrong in (-1, 5):
        with pytest.raises(ValueError, match=rf"Training: ids\[1, 0\] is {wrong}, expected 0 to 4"):
            training.step(ids=np.array([[0, 4], [wrong, 1]]), labels=np.array([0, 2]))


@pytest.mark.parametrize("target", ["any", "cpu"])
def test_a_file_evaluates_with_the_weights_as_they_are(target: str) -> None:
    model = network()
    training = Training(step_of(model, wrt="2"), model.state_dict())

    def logits_and_loss(x: Any, labels: Any) -> dict[str, Any]:
        logits = model(x)
        return {"logits": logits, "mean": F.cross_entropy(logits, labels)}

    exported = evaluation_step(model, logits_and_loss, ("N", 4), LABELS, wrt="2", target=target)
    session = Session(exported)
    assert list(session.inputs) == ["x", "labels", "2.weight", "2.bias"]
    for _ in range(3):
        results = training.evaluate(session, **BATCH)
        assert results["logits"].shape == (16, 3)
        assert float(results["mean"]) == pytest.approx(training.step(**BATCH), rel=1e-5)


@pytest.mark.parametrize("wrt", ["2", ()])
def test_a_file_for_inference_reads_the_weights_that_a_training_writes(tmp_path: Path, wrt: Any) -> None:
    model = network()
    training = Training(step_of(model, wrt=wrt), model.state_dict())
    weights = tmp_path / "weights.safetensors"
    lucid.save(weights, training.weights())
    options: dict[str, Any] = {"wrt": wrt, "path": tmp_path / "model.onnx", "weights": weights}
    exported = evaluation_step(model, lambda x: {"logits": model(x)}, ("N", 4), **options)
    assert [value.name for value in exported.graph.input] == ["x"]
    for _ in range(3):
        logits = Session(tmp_path / "model.onnx").run({"x": X})["logits"]
        loss = F.cross_entropy(lucid.tensor(logits), lucid.tensor(BATCH["labels"])).item()
        assert loss == pytest.approx(training.step(**BATCH), rel=1e-5)
        lucid.save(weights, training.weights())
    lucid.save(weights, training.weights(), metadata={"note": "its header is longer"})
    with pytest.raises(ModelError, match="expected its place: write the file as when the model was exported"):
        Session(tmp_path / "model.onnx")
    lucid.save(weights, {})
    with pytest.raises(ModelError, match="no tensor of this name in weights.safetensors"):
        Session(tmp_path / "model.onnx")
    with pytest.raises(ExportError, match=r"has nothing for .\.weight, expected float32\[.*lucid.save"):
        evaluation_step(model, lambda x: model(x), ("N", 4), **options)
    with pytest.raises(ExportError, match="expected a file in the folder of path=None"):
        evaluation_step(model, lambda x: model(x), ("N", 4), wrt=wrt, weights=weights)


def test_a_checkpoint_that_cannot_be_written_leaves_the_last_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = network()
    training = Training(step_of(model), model.state_dict())
    training.save(tmp_path / "c.safetensors")
    before = (tmp_path / "c.safetensors").read_bytes()
    training.step(**BATCH)

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch, pytest.raises(OSError, match="c.safetensors"):
        patch.setattr(os, "fsync", full)
        training.save(tmp_path / "c.safetensors")
    assert (tmp_path / "c.safetensors").read_bytes() == before and os.listdir(tmp_path) == ["c.safetensors"]


def test_weights_that_were_trained_are_exported_under_their_names() -> None:
    model = network()
    names = {tensor.name for tensor in lucid.export.to_onnx(model, ("N", 4)).graph.initializer}
    training = Training(step_of(model), model.state_dict())
    for _ in range(3):
        training.step(**BATCH)
    model.load_state_dict(training.weights(), strict=False)
    exported = lucid.export.to_onnx(model, ("N", 4))
    assert {tensor.name for tensor in exported.graph.initializer} == names
    (logits,) = Session(exported).run({"x": X} if "x" in Session(exported).inputs else {"input": X}).values()
    loss = F.cross_entropy(lucid.tensor(logits), lucid.tensor(BATCH["labels"]))
    assert loss.item() == pytest.approx(training.step(**BATCH), rel=1e-5)


def test_a_loss_that_is_not_finite_stops_and_changes_nothing() -> None:
    class Logarithm(nn.Module):
        def __init__(self) -> None:
            self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 3)

        def forward(self, x: Any) -> Any:
            return self.second(self.first(x).log())

    lucid.manual_seed(4)
    model = Logarithm()
    model.first.bias.fill_(10)
    training = Training(step_of(model, optim.SGD(1e-4)), model.state_dict())
    training.step(**BATCH)
    before = training.weights()
    with pytest.raises(TrainingError, match=r"at step 1 the loss is nan, first in .*[lL]og"):
        training.step(**{**BATCH, "x": X - 1e3})
    assert training.steps == 1
    for name, array in training.weights().items():
        np.testing.assert_array_equal(array, before[name])
    training.step(**BATCH)


def test_inputs_that_are_not_finite_are_named() -> None:
    model = network()
    training = Training(step_of(model), model.state_dict())
    with pytest.raises(TrainingError, match="at step 0 the loss is nan, first in the input x"):
        training.step(**{**BATCH, "x": X * np.nan})


def test_a_negative_label_is_named_with_its_input() -> None:
    model = network()
    training, labels = Training(step_of(model), model.state_dict()), BATCH["labels"].copy()
    labels[[3, 5]] = -1, -100  # of which one is the ignore_index
    with pytest.raises(TrainingError, match="the loss is nan, first in the input labels: -100 or -1 is the index of"):
        training.step(x=X, labels=labels)
    labels[3] = 0
    assert training.step(x=X, labels=labels) > 0


def test_gradients_that_are_not_finite_stop_too() -> None:
    layer = nn.Linear(1, 1, bias=False)
    layer.weight.fill_(0)
    step = training_step(layer, lambda x: layer(x).sqrt().sum(), optim.SGD(0.1), ("N", 1))
    training = Training(step, layer.state_dict())
    with pytest.raises(TrainingError, match="at step 0 the norm of the gradients is inf"):
        training.step(x=np.ones((2, 1), np.float32))


MODEL, LAYERS = network(), nn.ModuleDict({"x": nn.Linear(4, 3)})


def half() -> Any:
    return nn.Sequential(nn.Linear(4, 3)).half()


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        (lambda: step_of(MODEL, wrt="3.*"), GradientError, "'3.*' matches no parameter"),
        (lambda: step_of(half()), ExportError, r"0.weight is float16\[3, 4\], expected float32 weights: model.float"),
        (
            lambda: training_step(MODEL, lambda step: MODEL(step).sum(), optim.SGD(0.1), ("N", 4)),
            ExportError,
            "training_step: step is the name of an input, and of something else",
        ),
        (
            lambda: evaluation_step(LAYERS, lambda x: {"y": LAYERS.x(x["weight"])}, {"weight": lucid.spec("N", 4)}),
            ExportError,
            "evaluation_step: x.weight is the name of an input, and of something else",
        ),
        (
            lambda: training_step(MODEL, MODEL, optim.SGD(0.1), ("N", 4), external_data="no"),
            ExportError,
            "data is 'no'",
        ),
        (lambda: evaluation_step(MODEL, MODEL, ("N", 4), external_data=1), ExportError, "external_data is 1, expected"),
        (lambda: evaluation_step(MODEL, MODEL, ("N", 4), path="none/m.onnx"), FileNotFoundError, "does not exist"),
        (
            lambda: training_step(MODEL, MODEL, optim.SGD(0.1), ("N", 4)),
            GradientError,
            "expected a floating-point scalar",
        ),
        (
            lambda: Training(lucid.export.to_onnx(MODEL, ("N", 4)), {}),
            ValueError,
            "expected a file of lucid.export.training_step",
        ),
        (lambda: step_of(MODEL, optim.AdamW), TypeError, "optimizer is <class .*AdamW'>, expected one of lucid.optim"),
        (
            lambda: Training(step_of(MODEL), MODEL),
            TypeError,
            "start is Sequential, expected weights by name, as model.st",
        ),
        (lambda: Training(step_of(MODEL), {}), KeyError, "start lacks 0.weight, 0.bias, 2.weight, 2.bias; give"),
        (
            lambda: Training(step_of(MODEL), {**MODEL.state_dict(), "0.bias": np.zeros(3, np.float32)}),
            ValueError,
            r"0.bias is float32\[3\], expected float32\[8\]",
        ),
    ],
)
def test_what_does_not_fit_is_an_error(wrong: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message.replace("*", r"\*") if error is GradientError else message):
        wrong()


def test_an_update_overwrites_weights_and_state_where_nothing_reads_them_later() -> None:
    for optimizer in (optim.AdamW(1e-2, clip=1.0), optim.SGD(0.1, momentum=0.9, nesterov=True), optim.Adafactor()):
        training = Training(step_of(network(), optimizer), network().state_dict())
        before = dict(training._carried.values)
        training.step(**BATCH)
        assert all(training._carried.values[name] is value for name, value in before.items())


def test_an_update_that_reads_another_old_weight_does_not_overwrite_it() -> None:
    """Each weight follows the other one, as a moving average of a second model would."""

    @dataclass(frozen=True)
    class Crossed(optim.SGD):
        def update(self, gradients: Any, state: Any, parameters: Any, step: Any) -> Any:
            (a, first), (b, second) = parameters.items()
            return {a: first - gradients[a] + second.sum(), b: second - first.sum()}, {}

    model = nn.Linear(2, 2)
    start = model.state_dict()
    step = training_step(model, lambda x: model(x).sum(), Crossed(0.1), ("N", 2), wrt=("weight", "bias"))
    training = Training(step, start)
    training.step(x=np.zeros((1, 2), np.float32))
    a, b = (start[name].numpy() for name in ("weight", "bias"))
    np.testing.assert_allclose(training.weights()["bias"], b - a.sum(), rtol=1e-6)
    np.testing.assert_allclose(training.weights()["weight"], a + b.sum(), rtol=1e-6)


def test_the_zeros_of_a_table_s_gradient_are_no_weights_of_the_file() -> None:
    table = nn.Embedding(8192, 64)
    step = training_step(table, lambda ids: table(ids).sum(), optim.SGD(0.1), lucid.spec("N", dtype=lucid.int64))
    assert step.ByteSize() < 1 << 14
    training = Training(step, table.state_dict())
    training.step(ids=np.array([3, 3]))
    changed = (training.weights()["weight"] != table.weight.numpy()).any(axis=1)
    assert changed.nonzero()[0].tolist() == [3]


def test_of_a_layer_little_is_kept_until_its_gradient(tmp_path: Path) -> None:
    """It keeps no attention weights or outputs, no outputs of norms or GELU, and no pending gradients."""

    def peak(layers: int) -> int:
        layer = nn.TransformerEncoderLayer(16, 2, 64, activation="gelu", batch_first=True)
        model, path = nn.TransformerEncoder(layer, layers), tmp_path / f"{layers}.onnx"
        training_step(model, lambda x: (model(x) ** 2).mean(), optim.SGD(0.1), (4, 32, 16), path=path, target="cpu")
        return inspect_model(path).memory.bytes

    weights = 4 * 16 * 16 + 2 * 16 * 64 + 9 * 16 + 64  # their gradients are outputs
    kept = (peak(6) - peak(2)) / 4 - 4 * weights
    assert kept <= 4 * (4 * 32) * (5 * 16 + 64), "query, key, value, the inputs of two norms and of GELU for each token"


def test_a_step_takes_one_node_for_the_norm_of_a_gradient_and_thirteen_for_an_update_which_six_vectors_share() -> None:
    def nodes(layers: int, optimizer: optim.Optimizer) -> int:
        model = nn.Sequential(*[nn.Linear(4, 4) for _ in range(layers)])
        return len(training_step(model, lambda x: model(x).sum(), optimizer, ("N", 4)).graph.node)

    for optimizer, each, parts in ((optim.SGD(0.1), 2, 0), (optim.AdamW(0.1), 13, 2)):
        gradients = 7  # of a layer, with its output
        joined, split = 2 + parts, 1 + parts  # six biases, their gradients and states
        assert nodes(12, optimizer) - nodes(6, optimizer) == 6 * gradients + 7 * (1 + each) + joined + split
