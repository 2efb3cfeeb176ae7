"""torch_meanings.json: the lines of `tests/torch_meanings.py` with torch's results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from tests.torch_meanings import OPERANDS, array_of, lines


def tensors_of(result: Any) -> list[list[Any]]:
    """Element type, shape and elements of each tensor of a result."""
    if isinstance(result, torch.Tensor):
        elements = result.flatten().double() if result.is_floating_point() else result.flatten()
        return [[str(result.dtype).removeprefix("torch."), list(result.shape), elements.tolist()]]
    return [each for part in result for each in tensors_of(part)]


def answer(line: str, names: dict[str, Any]) -> dict[str, Any]:
    """The tensors that a line gives, its value if that is none, or its error."""
    try:
        result = eval(line, names)  # our own lines
    except (RuntimeError, TypeError, IndexError, ValueError, NotImplementedError) as error:
        return {"error": type(error).__name__}
    return {"tensors": tensors_of(result)} if isinstance(result, (torch.Tensor, tuple, list)) else {"value": result}


def store_all(folder: Path) -> None:
    operands = {
        name: torch.tensor(array_of(name), dtype=getattr(torch, dtype)) for name, (_, _, dtype) in OPERANDS.items()
    }
    names = {"torch": torch, "F": torch.nn.functional, "inf": float("inf"), **operands}
    table = {line: answer(line, names) for line in lines()}
    text = ",\n".join(f"{json.dumps(line)}: {json.dumps(meaning)}" for line, meaning in table.items())
    folder.with_suffix(".json").write_text("{\n" + text + "\n}\n", encoding="utf-8")
