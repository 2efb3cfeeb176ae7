"""tests/data/torch_files: files of `torch.save`, before and since torch 1.6, and the same numbers as safetensors.

The keys of storages differ from run to run.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from .core import DATA

OLD = "float64 float32 float16 bfloat16 int64 int32 int16 int8 uint8 bool complex64"
NEW = "uint16 uint32 uint64 float8_e4m3fn float8_e5m2"  # since torch 1.6, and written in another way


def state(dtypes: str) -> dict[str, torch.Tensor]:
    """Tensors of these types, and views."""
    torch.manual_seed(0)
    table = torch.randn(4, 6)
    module = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    views = {
        "table": table,
        "tied": table,
        "transposed": table.T,
        "part": table[1:, 2:5],
        "every_second": table[:, ::2],
        "last_row": table[-1:],
        "scalar": torch.tensor(3.5),
        "empty": torch.zeros(0, 3),
        "expanded": torch.ones(1).expand(7),
        "parameter": torch.nn.Parameter(torch.randn(2, 2)),
    }
    state: dict[str, Any] = module.state_dict()  # an OrderedDict with versions of the modules
    state.update(views)
    state.update({name: torch.tensor([[1, 0], [3, 1]]).to(getattr(torch, name)) for name in dtypes.split()})
    return state


def store_all(folder: Path) -> None:
    folder = DATA / "torch_files"
    folder.mkdir(exist_ok=True)
    torch.save(state(OLD), folder / "old.bin", _use_new_zipfile_serialization=False)
    torch.save(state(f"{OLD} {NEW}"), folder / "zip.bin")
    numbers = {name: value.detach().clone().contiguous() for name, value in state(f"{OLD} {NEW}").items()}
    save_file(numbers, folder / "expected.safetensors")
