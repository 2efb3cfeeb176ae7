"""docs/howto/torch-names.md from the counts of tools/count_torch_names.py and from the names that Lucid has.

    python tools/make_torch_names.py

tests/test_torch_names.py compares the page with the result.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT)] if str(ROOT) not in sys.path else []

import lucid  # noqa: E402
from lucid import Tensor, nn  # noqa: E402
from lucid.core.torch_names.missing_names import why_absent  # noqa: E402
from lucid.nn import functional  # noqa: E402

COUNTS = ROOT / "tests" / "goldens" / "torch_names.json"
PORTED = ROOT / "tests" / "goldens" / "ported_types.json"
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
        "nonzero": "`x.nonzero()`, `lucid.where(mask)` of known tensors; else `lucid.where`, `x.masked_scatter`",
        "index": "`x[index]`",
        "__init__": "",
    },
    "torch": {
        "nonzero": "`x.nonzero()`, `lucid.where(mask)` of known tensors; else `lucid.where`, `x.masked_scatter`",
        "histc": "one-hot vectors, summed: `F.one_hot(x, n).sum(0)`",
    },
    "functional": {},
    "nn": {},
}

MEANINGS_INTRODUCTION = (
    "A name that Lucid shares with torch has torch's meaning: tests compare dtypes, shapes, orders of axes and numbers with torch's",
    "(`tests/torch_meanings.py`). What Lucid lacks is an error. The exceptions are listed below; other defaults are listed in",
    "[coming from torch](coming-from.md#names-side-by-side).",
)

# Names that both have, with another meaning here, what they mean, and what torch means.
OTHER_MEANINGS: list[tuple[str, str, str]] = [
    (
        "`x.max(axis=1)`, `x.min(axis=1)`",
        "the values alone, as in NumPy",
        "`axis` is `dim`: a pair; `x.max(1)` and `x.max(dim=1)` are the pair",
    ),
    (
        "`x.sum(axis=())`, `mean`, `amax`, `amin`, `var`, `std`, `norm`",
        "reduces nothing, as in NumPy",
        "`axis` is `dim`: all axes; so are `x.sum(())` and `x.sum(dim=())` here",
    ),
    ("`np.max(x, 1)`, `np.einsum(...)` and other functions of NumPy", "NumPy's meaning", "none"),
    (
        "`lucid.ops.argmax(x)`, `lucid.ops.max(x, ...)`",
        "`lucid.ops` has Lucid's names: the last axis; the values alone",
        "none",
    ),
    (
        "`lucid.Tensor([1, 2])`, `lucid.Tensor(np.ones(2))`",
        "the element type of the data, int64 and float64, as in `lucid.tensor`",
        "float32",
    ),
    (
        "`half * 0.1`, `half + 1e-5`: a Python number and a half-precision tensor",
        "the number is rounded to half precision, unless that loses more than a tenth of it (1e-8 and 70000 in float16): "
        "then `+`, `-`, `*` and `/` are computed in float32",
        "`*` and `/` are computed in float32; on a CPU, `half - 70000` is -infinity",
    ),
    (
        "`nn.TransformerEncoderLayer(...)` and the other transformer layers",
        "`batch_first=True`",
        "False; `nn.MultiheadAttention` has torch's default",
    ),
    (
        "`nn.Softmax()`, `F.softmax(x)`, `lucid.softmax(x)`, `F.log_softmax(x)` without `dim`",
        "the last axis",
        "axis 0 or 1, with a warning; `torch.softmax` needs it",
    ),
    ("`int8` with `uint8`", "int32", "int16, which Lucid does not have"),
    ("`x.sort()`, `x.argsort()`, `x.topk(k)` of NaN", "NaN counts as infinity", "NaN is greater"),
    (
        '`x.div(y, rounding_mode="trunc")` of two tensors in half precision',
        "the quotient is cut off before it is rounded, as for a single number in torch",
        "it is rounded to half precision before",
    ),
    ("`x.sign()` of NaN", "NaN, as in NumPy and ONNX", "0"),
    ("`F.gelu` of infinity", "infinity, and -0.0 of its negative", "NaN in float32 and half precision"),
    ("`nn.LayerNorm(n)(x.half())` and other normalisations with float32 weights", "float32", "float16"),
    ("`nn.GroupNorm(n, n)` of one element in each group", "0", "rounding errors around 0"),
    ("`x.topk(k)`, `x.sort()`, of equal elements", "the first one comes first", "any, unless `stable=True`"),
]

# What Lucid takes of these names and torch does not.
MORE = (
    "`argmax`, `argmin` of booleans: the first true or false",
    "`relu`, `sub`, `clamp`, `where` of booleans and of Python numbers, by position or name",
    "`prod(keepdim=True)`, `sum`, `mean`, `var`, `std` of all axes; `prod((0, 1))`: several axes",
    "`unsqueeze([0, 1])`: several axes; `flip(x)`: all axes without `dims`",
    "`stack(x)`: the rows of a tensor; `x.repeat()`, `zeros()`, `ones()`, `arange()` without sizes",
    "`arange(-3)`, `arange(5, 0)`: empty, as in Python; `arange(start=5)`: from 0; `eye(2, None, dtype)`, `linspace(0, 1, 3, dtype)`: the dtype by position",
    "`max(dim=y)` with a tensor: `maximum`",
    "`swapaxes(x, dim0, dim1)`, which torch calls `axis0` and `axis1`",
    "`flip(dims=0)`; `zeros(size=3)`, `full(3, x)`: one number for one axis",
    "`matmul`, `mm`, `bmm`, `outer`, `linear` with different dtypes, which are promoted, and with axes that broadcast",
    "`scatter(src=2)`: a number, which torch calls `value`",
    "`logical_and(x, 1)`, `maximum(x, 1)`, `exp(1)`, `index_select(x, 0, 1)`, `clamp(x, y, 1)`: a number where torch expects a tensor",
    "`x - mask`: booleans as 0 and 1 in a subtraction",
    "activations of integers and booleans, such as `F.relu(mask)` and `F.elu(i)`",
    "`nn.Linear(3, 2)(i)`, `einsum`, `@`, `meshgrid` with different dtypes",
    "`x[::-1]`: a negative step",
    "`2 ** -1` of integers: the reciprocal, rounded towards 0",
    "`sum(keepdim=True)`, `mean(keepdim=True)`: all axes without `dim`; `x.std(0, 1)`: `correction` by position",
    "`tensor(data, dtype)`, `eye(2, None)`, `cumsum(x, 0, dtype)`, `F.gelu(x, 'tanh')`: arguments by position",
    "`split(x, split_size=2)`, in functions as in methods",
    "`x.repeat(2)`: fewer numbers than axes; `x.repeat_interleave([1, 2])`: a list",
    "`F.one_hot(i)` of int32",
    "`F.pad(x, pad, 'circular')` with any number of axes and any dtype",
    "`nn.MaxPool1d(2)(x)` of an empty tensor",
    "`F.scaled_dot_product_attention(..., attn_mask, is_causal=True)` with broadcast batches: both apply, as for one batch",
)

# What Lucid does not take and torch does.
LESS = (
    "`x.add(2, y)`, `x.sub(2, y)`: torch's former order, with `alpha` first; write `x.add(y, alpha=2)`",
    "`lucid.where(mask, half, 70000.)`, `lucid.maximum(half, 70000.)`: a number beyond the range of half precision",
    "`x[..., ...]`: write one `...`",
    "`F.softmax(x, -1, 3)`: the third argument is torch's `_stacklevel`",
    "`arange(True)`: write `arange(1)`",
)


def ours(room: str, name: str) -> str:
    """The answer for a name of torch."""
    _, _, written, place = ROOMS[room]
    if name in INSTEAD[room]:
        return INSTEAD[room][name]
    if hasattr(place, name):
        return f"`{written.format(name)}`"
    reason = why_absent({"torch": "lucid"}.get(room, room), name, dir(Tensor)).removeprefix(": ")
    return reason or "-"


def ported_types() -> list[str]:
    """How many model types of transformers run with only their imports changed, and what stops the others."""
    stages: dict[str, str] = json.loads(PORTED.read_text(encoding="utf-8"))
    exact = sum(stage == "exact" for stage in stages.values())
    stopped = Counter(stage for stage in stages.values() if stage != "exact")
    return [
        "## Modeling files with only their imports changed",
        "",
        f"transformers' own modeling files with Lucid imported in torch's place: {exact} of {len(stages)} model types that torch itself runs with a",
        "small random config compute what torch does within 2e-5, eagerly and exported with open sizes from 2 to 64 (samples of sound: 2,000 to 16,000). Imports of absent names are left out, and",
        "annotations are not evaluated. Activations, masks, rotary embeddings, attention and experts are transformers' own files too; what loads, saves,",
        "generates, caches or starts kernels is stood in for (`tools/ported_types/stand_ins.py`). `python -m tools.ported_types FOLDER` counts.",
        "",
        "| What stops the others | types |",
        "|---|---|",
        *(f"| {reason} | {n} |" for reason, n in stopped.most_common()),
    ]


def page() -> str:
    """The whole page."""
    counts = json.loads(COUNTS.read_text(encoding="utf-8"))
    lines = [
        "# torch's names by use",
        "",
        f"How many of the {counts['folders']} model folders of transformers {counts['transformers']} use each name of torch "
        "in their modeling files,",
        "and what to write in Lucid. Most names are the same, and torch's argument names (`dim`, `keepdim`) are accepted.",
        "[Coming from torch](coming-from.md) lists the differences. A method is counted by its name alone.",
        "`tools/make_torch_names.py` makes this page; a test keeps it current.",
    ]
    for room, (heading, written, _, _) in ROOMS.items():
        rows = [(name, n) for name, n in counts[room].items() if INSTEAD[room].get(name) != ""]
        there = sum(ours(room, name) != "-" for name, _ in rows)
        lines += ["", f"## {heading}", "", f"{there} of {len(rows)} have an answer.", "", "| torch | folders | here |"]
        lines += ["|---|---|---|"]
        lines += [f"| `{written.format(name)}` | {n} | {ours(room, name)} |" for name, n in rows]
    lines += ["", *ported_types()]
    lines += ["", "## Same name, other meaning", "", *MEANINGS_INTRODUCTION, "", "| | Lucid | torch |", "|---|---|---|"]
    lines += [f"| {name} | {here} | {there} |" for name, here, there in OTHER_MEANINGS]
    lines += ["", "Lucid also takes what torch refuses:", "", *(f"- {each}" for each in MORE)]
    lines += ["", "Lucid refuses what torch takes:", "", *(f"- {each}" for each in LESS)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
