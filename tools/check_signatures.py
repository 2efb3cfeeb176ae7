"""Compare Lucid's signatures with torch's of the same names, and store torch's in tests/goldens/torch_signatures.json.

    python -m tools.check_signatures

Needs torch; `tests/test_signatures.py` compares with the stored table without it. Fails if a difference is not listed, with
its reason, in `tests/signatures.py`.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from tests.signatures import CLASSES, DELIBERATE, OTHER_THINGS, Parameter, differences, namesakes, signature

TABLE = Path(__file__).parents[1] / "tests" / "goldens" / "torch_signatures.json"


def torchs(name: str) -> Callable[..., Any] | None:
    """torch's object for a name such as "nn.Linear.forward"."""
    room, _, rest = name.partition(".")
    first, _, method = rest.partition(".")
    rooms = {"nn": torch.nn, "functional": torch.nn.functional, "Tensor": torch.Tensor, "lucid": torch}
    if name in {f"lucid.{other}" for other in OTHER_THINGS}:
        return None
    thing = getattr(rooms[room], CLASSES.get(first, first), None)
    if room == "Tensor" and thing is None:  # Tensor.zeros is torch.zeros
        thing = getattr(torch, first, None)
    return getattr(thing, method, None) if method else thing


def parameters(name: str, thing: Callable[..., Any]) -> list[Parameter]:
    """By inspection, or for built-in functions from the first line of their documentation."""
    try:
        named = [p for p in signature(thing) if p.name not in ("_stacklevel", "_weight", "_freeze")]
        dispatcher = name.startswith("functional.") and [p.name for p in named] == ["args"]  # such as max_pool1d
        return [] if dispatcher else named
    except ValueError:
        text = re.search(rf"{name.rpartition('.')[2]}\((.*?)\)\s*(?:->|:)", thing.__doc__ or "", re.DOTALL)
    if text is None:
        print(f"{name}: torch does not say")
        return []
    names, positional = [], True
    for part in filter(None, (part.strip() for part in text[1].split(","))):
        parameter, _, default = part.partition("=")
        if parameter == "*":
            positional = False
        elif re.fullmatch(r"\*?\w+ *", parameter):
            names.append(Parameter(parameter.strip("* "), positional, default.strip(" '\"") or None))
    return names


def main() -> int:
    table: dict[str, list[Parameter]] = {}
    failed = 0
    for name, ours in namesakes():
        thing = torchs(name)
        if thing is None:
            continue
        table[name] = parameters(name, thing)
        for difference in differences(signature(ours, name.startswith("lucid.")), table[name]):
            if difference not in DELIBERATE.get(name, {}):
                failed += 1
                print(f"{name}: {difference}")
    lines = [f"{json.dumps(name)}: {json.dumps(table[name])}" for name in sorted(table)]
    TABLE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    print(f"torch {torch.__version__}: {len(table)} signatures, {failed} differences without a reason")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
