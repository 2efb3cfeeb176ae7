"""Sessions on each device: what is carried stays in its memory, providers are strict, tokens are those of a CPU."""

from __future__ import annotations

import numpy as np
import pytest

import lucid
from lucid import nn
from lucid.export import to_onnx
from lucid.generation import Generator
from lucid.models.llama import Llama
from lucid.runtime import ProviderError, Session
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
        (got,) = bound.outputs().values()
        assert got.numpy().tolist() == np.maximum(numbers, 0).tolist()


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
