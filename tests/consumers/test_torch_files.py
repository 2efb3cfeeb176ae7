"""What torch saves is read as torch has it, in both of its formats, with any layout in memory."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import lucid


@pytest.mark.parametrize("zipped", [True, False])
def test_a_state_dict_is_read_as_torch_has_it(tmp_path: Path, zipped: bool) -> None:
    module = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.LSTM(4, 5)).half()
    module.to(memory_format=torch.channels_last)
    state = module.state_dict()
    torch.save(state, tmp_path / "pytorch_model.bin", _use_new_zipfile_serialization=zipped)
    loaded = lucid.load(tmp_path)
    assert list(loaded) == list(state)
    for name, expected in state.items():
        assert (loaded[name] == expected.numpy()).all() and loaded[name].dtype == expected.numpy().dtype, name
