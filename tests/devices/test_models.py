"""Whole models on each device, compared with transformers; decoders step by step, with both kinds of cache."""

from __future__ import annotations

import pytest

from tests.devices.device import CUDA, WEBGPU, Device, on_devices
from tests.models.test_every_target import BASES, RTOL
from tests.models.zoo import ZOO, Entry
from tests.test_caches import TEXT, check_steps, check_steps_over_buffers

USUAL = "bert modernbert gpt2 llama gemma3 mixtral t5 bart vit clip convnext whisper wav2vec2".split()
STEPPED = [entry for entry in ZOO if entry.variant in ("gpt2/base", "llama/llama3", "qwen3/base", "gemma3/base")]


@pytest.mark.parametrize(
    ("device", "entry"),
    [
        pytest.param(device, entry, marks=getattr(pytest.mark, device.marker), id=f"{device}-{entry.variant}")
        for device, entries in (
            (CUDA, ZOO),
            (WEBGPU, [entry for entry in BASES if entry.variant.split("/")[0] in USUAL]),
        )
        for entry in entries
    ],
)
def test_models_compute_what_transformers_does(entry: Entry, device: Device) -> None:
    assert entry.exported_error(device.name, providers=device.exact) <= RTOL


stepped = pytest.mark.parametrize("entry", STEPPED, ids=lambda entry: entry.variant)


@on_devices
@stepped
def test_steps_with_a_growing_cache(entry: Entry, device: Device) -> None:
    check_steps(entry, device.name, device.exact)


@on_devices
@pytest.mark.parametrize("capacity", [None, TEXT + 2], ids=["symbolic", "given"])
@stepped
def test_steps_with_a_fixed_cache(entry: Entry, capacity: int | None, device: Device) -> None:
    check_steps_over_buffers(entry, capacity, device.name, device.exact)
