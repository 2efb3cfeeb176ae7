"""docs/howto/torch-names.md from the counts of tools/count_torch_names.py and from the names that Lucid has.

    python tools/make_torch_names.py

tests/test_torch_names.py compares the page with the result.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT)] if str(ROOT) not in sys.path else []

import lucid  # noqa: E402
from lucid import Tensor, nn  # noqa: E402
from lucid.absent import why_absent  # noqa: E402
from lucid.nn import functional  # noqa: E402

COUNTS = ROOT / "tests" / "goldens" / "torch_names.json"
PAGE = ROOT / "docs" / "howto" / "torch-names.md"

# The heading, how a name is written in torch and in Lucid, and where Lucid has it.
ROOMS: dict[str, tuple[str, str, str, Any]] = {
    "Tensor": ("Methods of tensors", "x.{}", "x.{}", Tensor),
    "torch": ("Functions", "torch.{}", "lucid.{}", lucid),
    "functional": ("torch.nn.functional", "F.{}", "F.{}", functional),
    "nn": ("Modules", "nn.{}", "nn.{}", nn),
}

# Names that Lucid has with another meaning, or not at all, and what to write.
INSTEAD: dict[str, dict[str, str]] = {
    "Tensor": {
        "max": "`x.max(axis)`: the values alone; `x.amax`, `x.argmax`",
        "min": "`x.min(axis)`: the values alone; `x.amin`, `x.argmin`",
        "argmax": "`x.argmax(dim)`; without `dim`, of the last axis",
        "nonzero": "`x.nonzero()` of known tensors; else `lucid.where`, `x.masked_scatter`",
        "type": "`x.astype(dtype)`",
        "unfold": "slices or `x.gather(axis, indices)`",
        "index": "`x[index]`",
        "__init__": "",
    },
    "torch": {
        "max": "`lucid.max(x, axis)`: the values alone; `lucid.amax`, `lucid.maximum`",
        "min": "`lucid.min(x, axis)`: the values alone; `lucid.amin`, `lucid.minimum`",
        "argmax": "`lucid.argmax(x, dim)`; without `dim`, of the last axis",
        "nonzero": "`x.nonzero()` of known tensors; else `lucid.where`, `x.masked_scatter`",
        "as_tensor": "`lucid.tensor(data)`",
        "FloatTensor": "`lucid.tensor(data)`",
        "get_default_dtype": "`lucid.float32`",
        "empty_like": "`lucid.zeros_like(x)`",
        "expm1": "`lucid.exp(x) - 1`",
        "histc": "one-hot vectors, summed: `F.one_hot(x, n).sum(0)`",
    },
    "functional": {},
    "nn": {},
}


def ours(room: str, name: str) -> str:
    """What stands beside a name of torch's."""
    _, _, written, place = ROOMS[room]
    if name in INSTEAD[room]:
        return INSTEAD[room][name]
    if hasattr(place, name):
        return f"`{written.format(name)}`"
    reason = why_absent({"torch": "lucid"}.get(room, room), name).removeprefix(": ")
    return reason or "-"


def page() -> str:
    """The whole page."""
    counts = json.loads(COUNTS.read_text(encoding="utf-8"))
    lines = [
        "# torch's names by use",
        "",
        f"How many of the {counts['folders']} model folders of transformers {counts['transformers']} use each name of torch "
        "in their modeling files,",
        "and what to write here. A name stands for itself where both have it; arguments are taken under torch's names too",
        "(`dim`, `keepdim`), and [coming from torch](coming-from.md) lists what differs. A method is counted by its name,",
        "whatever it is called on. `tools/make_torch_names.py` makes this page; a test keeps it current.",
    ]
    for room, (heading, written, _, _) in ROOMS.items():
        rows = [(name, n) for name, n in counts[room].items() if INSTEAD[room].get(name) != ""]
        there = sum(ours(room, name) != "-" for name, _ in rows)
        lines += ["", f"## {heading}", "", f"{there} of {len(rows)} have an answer.", "", "| torch | folders | here |"]
        lines += ["|---|---|---|"]
        lines += [f"| `{written.format(name)}` | {n} | {ours(room, name)} |" for name, n in rows]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
