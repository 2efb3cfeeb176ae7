"""Sessions on each device: what is carried stays in its memory, providers are strict, tokens are those of a CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lucid
from lucid import nn, optim
from lucid.export import to_onnx, training_step
from lucid.generation import Generator
from lucid.models.llama import Llama
from lucid.nn import functional as F
from lucid.runtime import ProviderError, Session, Training
from lucid.runtime.ort_values import ort_value
from lucid.runtime.stepping import Stepping
from tests.devices.device import DEVICES, Device, on_devices
from tests.models import goldens
from tests.test_stepping import column, running_sums


@on_devices
def test_what_is_carried_stays_on_the_device(device: Device) -> None:
    x, past = lucid.spec("N", "L", 3), lucid.spec("N", "P", 3)
    model = to_onnx(running_sums, x, past, output_names=["total", "present"], target=device.name)
    steps = Stepping(Session(model, device.name), {"past": "present"})
    carried = steps.zeros({"past": (2, 0, 3)})
    for value, total in ((1, 1), (10, 11)):
        outputs, carried = steps.run({"x": column(value, 2 * value)}, carried)
        assert outputs["total"][:, 0].tolist() == [total, 2 * total]
    carried = steps.rows(carried, np.array([1, 0]))
    assert "cpu" not in {value.device_name() for value in carried.values.values()}
    outputs, _ = steps.run({"x": column(0, 0)}, carried)
    assert outputs["total"][:, 0].tolist() == [22, 11]


@on_devices
def test_bound_arrays_are_read_in_each_run(device: Device) -> None:
    """onnxruntime copies them to a device when they are bound, and not again."""
    session = Session(to_onnx(nn.ReLU(), ("N",), target=device.name), device.name)
    array = np.array([1, -1], np.float32)
    bound = session.bind({next(iter(session.inputs)): ort_value(array)}, dict.fromkeys(session.outputs, "cpu"))
    for numbers in ([1, -1], [-2, 3]):
        array[:] = numbers
        bound.run()
        (output,) = bound.outputs().values()
        assert output.numpy().tolist() == np.maximum(numbers, 0).tolist()


@on_devices
def test_values_outlive_their_session(device: Device) -> None:
    """A device's memory belongs to a session of onnxruntime, which ended the process when it went first."""
    x, past = lucid.spec("N", "L", 3), lucid.spec("N", "P", 3)
    model = to_onnx(running_sums, x, past, output_names=["total", "present"], target=device.name)
    steps = Stepping(Session(model, device.name), {"past": "present"})
    _, carried = steps.run({"x": column(1, 2)}, steps.zeros({"past": (2, 0, 3)}))
    del steps
    assert carried.values["past"].numpy()[:, 0, 0].tolist() == [1, 2]


@on_devices
@pytest.mark.parametrize("capacity", [None, 16], ids=["growing", "fixed"])
def test_tokens_are_those_of_a_cpu(device: Device, capacity: int | None) -> None:
    model = Llama.from_pretrained(goldens.folder("llama/llama3"))
    prompts = np.array([[3, 5, 7, 11], [2, 4, 6, 8]])
    tokens = []
    for target, place in (("cpu", "cpu"), (device.name, device.exact)):
        exported = to_onnx(model, cache="fixed" if capacity else "growing", capacity=capacity, target=target)
        tokens.append(Generator(Session(exported, place)).generate(prompts, max_new_tokens=6).tolist())
    assert tokens[0] == tokens[1]


@on_devices
def test_nothing_is_left_to_the_cpu(device: Device) -> None:
    """Of models whose sizes are those of their inputs."""
    block = nn.TransformerEncoderLayer(32, 4, 64, norm_first=True)
    session = Session(to_onnx(block, ("N", "L", 32), target=device.name), device.name)
    assert session.elsewhere() == {}
    assert session.providers == (f"{session.providers[0]}",)


@on_devices
def test_a_provider_that_is_missing_is_an_error_beside_one_that_is_not(device: Device) -> None:
    (other,) = (each.name for each in DEVICES if each is not device)
    with pytest.raises(ProviderError, match=r"ExecutionProvider is not in the installed"):
        Session(to_onnx(nn.Linear(2, 2)), [device.name, other])


@on_devices
def test_steps_of_training_are_those_of_a_cpu(device: Device) -> None:
    """Two sessions, whose weights and state stay on the device."""
    lucid.manual_seed(0)
    block: Any = nn.TransformerEncoderLayer(16, 2, 32, activation="gelu", batch_first=True)
    x, labels = np.random.default_rng(0).standard_normal((4, 5, 16), np.float32), np.array([0, 1, 2, 3])

    def loss(x: lucid.Tensor, labels: lucid.Tensor) -> lucid.Tensor:
        return F.cross_entropy(block(x)[:, 0], labels)

    specs = ("N", "L", 16), lucid.spec("N", dtype=lucid.int64)
    losses, weights = [], []
    for target, place in (("cpu", "cpu"), (device.name, device.exact)):
        step = training_step(block, loss, optim.AdamW(0.01, clip=1.0), *specs, target=target)
        training = Training(step, block.state_dict(), place)
        losses.append([training.step(x=x, labels=labels) for _ in range(5)])
        weights.append(training.weights())
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-4)
    assert losses[0][-1] < 0.9 * losses[0][0]
    for name, array in weights[0].items():
        if name != "self_attn.in_proj_bias":  # the gradient of a bias of keys is rounding, of which AdamW makes steps
            np.testing.assert_allclose(weights[1][name], array, atol=1e-3, err_msg=name)
