"""Count which names of torch the modeling files of transformers use, and list the names that torch documents.

    python -m tools.count_torch_names [names]

The counts are stored in tests/goldens/torch_names.json, the names in tests/goldens/torch_public_names.json; with `names`, only these.
Needs torch and transformers. A name counts once for each model folder that uses it; those of fewer than `FEWEST` folders are left
out. A method is counted by its name, whatever it is called on. `tools/make_torch_names.py` makes the page from the counts.
"""

from __future__ import annotations

import ast
import inspect
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import torch
import transformers

TABLE = Path(__file__).parents[1] / "tests" / "goldens" / "torch_names.json"
PUBLIC = TABLE.with_name("torch_public_names.json")
FEWEST = 10

ROOMS = {"Tensor": torch.Tensor, "torch": torch, "functional": torch.nn.functional, "nn": torch.nn}
SPELLINGS = {
    "torch": "torch",
    "F": "functional",
    "nn.functional": "functional",
    "torch.nn.functional": "functional",
    "nn": "nn",
    "torch.nn": "nn",
}


def names_in(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """The room and name of everything of torch that a file calls, and of the element types that it names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            room = SPELLINGS.get(ast.unparse(node.func.value), "Tensor")
            yield room, node.func.attr


# Where torch has names that models use, by what Lucid calls the place.
PLACES = {
    "lucid": torch,
    "lucid.Tensor": torch.Tensor,
    "lucid.nn": torch.nn,
    "lucid.nn.functional": torch.nn.functional,
    "lucid.linalg": torch.linalg,
    "lucid.special": torch.special,
    "lucid.optim": torch.optim,
    "lucid.nn.utils": torch.nn.utils,
    "lucid.nn.init": torch.nn.init,
}


def documented(place: str, name: str) -> bool:
    """Whether torch has a text about a function, a method, a layer or an element type of its own; no other classes."""
    thing = getattr(PLACES[place], name, None)
    if name.startswith("_") or inspect.ismodule(thing) or isinstance(thing, (str, dict, int, float)):
        return False
    if (getattr(thing, "__module__", "") or "torch").split(".")[0] != "torch":
        return False
    if inspect.isclass(thing) and place not in ("lucid.nn", "lucid.optim"):
        return False
    if isinstance(thing, torch.dtype):
        return True
    return bool(thing.__doc__) and (callable(thing) or place == "lucid.Tensor")


def main() -> None:
    names = {place: [name for name in dir(home) if documented(place, name)] for place, home in PLACES.items()}
    rows = [f'"{place}": "{" ".join(names[place])}"' for place in names]
    PUBLIC.write_text("{\n" + ",\n".join(rows) + "\n}\n", encoding="utf-8")
    if sys.argv[1:] == ["names"]:
        return
    models = Path(transformers.__file__).parent / "models"
    folders = sorted(path for path in models.iterdir() if any(path.glob("modeling_*.py")))
    counts: dict[str, Counter[str]] = {room: Counter() for room in ROOMS}
    for folder in folders:
        used = {use for path in folder.glob("modeling_*.py") for use in names_in(ast.parse(path.read_text("utf-8")))}
        for room, name in used:
            if hasattr(ROOMS[room], name):
                counts[room][name] += 1
    table = {
        room: {name: n for name, n in sorted(uses.items(), key=lambda item: (-item[1], item[0])) if n >= FEWEST}
        for room, uses in counts.items()
    }
    header = {"transformers": transformers.__version__, "torch": torch.__version__, "folders": len(folders)}
    TABLE.write_text(json.dumps({**header, **table}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
