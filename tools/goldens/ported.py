"""ported.safetensors: the lines of tests/ported.py with torch's results."""

from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.attention.bias  # not imported with torch
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional

from tests.ported import LINES, inputs


def store_all(folder: Path) -> None:
    tensors = {name: torch.from_numpy(array) for name, array in inputs().items()}
    arrays = {f"input.{name}": tensor for name, tensor in tensors.items()}
    for name, (needs, line) in LINES.items():
        results = line(torch, functional, nn, *(tensors[need].clone() for need in needs.split()))
        for i, tensor in enumerate(results if isinstance(results, tuple) else (results,)):
            arrays[f"{name}.{i}"] = tensor.detach().contiguous().clone()
    save_file(arrays, folder.with_suffix(".safetensors"), {"torch": torch.__version__})
