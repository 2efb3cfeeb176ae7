"""Single lines of torch code, against torch's stored results: see goldens/README.md.

Each line gives what torch gives, or is refused with the words to write instead, or is one of the differences that
`RULES` lists with the place of the page that names them.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import lucid
from lucid import Tensor, nn
from lucid.nn import functional
from tests.torch_lines import REFUSED, Tensorlike, arrays, difference, element_type, run

ROOT = Path(__file__).parents[1]
FILE = ROOT / "tests" / "goldens" / "torch_lines" / "lines.txt"
ADVICE = re.compile(
    r"\b(write|use|give|convert|leave it out|pad the input|choose|did you mean|lucid\.\w+|train in torch)\b"
)


class Rule(NamedTuple):
    """Differences that stay: how they differ, in which lines, and the words of the page that says so."""

    kinds: str
    lines: str
    page: str  # a file of docs, and after "#" words in it


_MORE = "howto/torch-names.md#"
RULES: tuple[Rule, ...] = (
    Rule("type", r"\b(i8\b.*\bu8|u8\b.*\bi8)\b", _MORE + "`int8` with `uint8`"),
    Rule("type", r"Norm\w*\(.*\(half\)", _MORE + "`nn.LayerNorm(n)(x.half())`"),
    Rule("value", r"special.*sort|sort.*special", _MORE + "`x.sort()`, `x.argsort()`, `x.topk(k)` of NaN"),
    Rule("value", r"special.*sign|sign.*special", _MORE + "`x.sign()` of NaN"),
    Rule("value", r"gelu.*special", _MORE + "`F.gelu` of infinity"),
    Rule("value", r"GroupNorm\(3, 3\)", _MORE + "`nn.GroupNorm(n, n)` of one element"),
    Rule("accepted", r"arg(max|min)\(", _MORE + "`argmax`, `argmin` of booleans"),
    Rule(
        "accepted", r"(prod|sum|mean|var|std)\(.*keepdim=", _MORE + "`prod(keepdim=True)`, `sum`, `mean`, `var`, `std`"
    ),
    Rule("accepted", r"arange\(", _MORE + "`arange(-3)`, `arange(5, 0)`: empty"),
    Rule("accepted", r"(eye|linspace)\(", _MORE + "`eye(2, None, dtype)`, `linspace(0, 1, 3, dtype)`"),
    Rule("accepted", r"(max|min)\(.*dim=y", _MORE + "`max(dim=y)` with a tensor"),
    Rule("accepted", r"swapaxes\(", _MORE + "`swapaxes(x, dim0, dim1)`"),
    Rule("accepted", r"flip\(", _MORE + "`flip(dims=0)`"),
    Rule(
        "accepted",
        r"(matmul|outer|b?mm|linear)\(",
        _MORE + "`matmul`, `mm`, `bmm`, `outer`, `linear` with different dtypes",
    ),
    Rule("accepted", r"scatter\(.*src=\d", _MORE + "`scatter(src=2)`"),
    Rule("accepted", r"(zeros|ones)\(size=\d|full(_like)?\(", _MORE + "`zeros(size=3)`, `full(3, x)`"),
    Rule(
        "accepted",
        r"(relu|sub|clamp|clip|where)\(.*(input|other|max)=",
        _MORE + "`relu`, `sub`, `clamp`, `where` of booleans",
    ),
    Rule("accepted", r"logical_(and|or|not)\(", _MORE + "`logical_and(x, 1)`, `maximum(x, 1)`"),
    Rule("accepted", r"unsqueeze\(|flip\(", _MORE + "`unsqueeze([0, 1])`"),
    Rule("accepted", r"index_select\(|clamp\(|clip\(", _MORE + "`exp(1)`, `index_select(x, 0, 1)`, `clamp(x, y, 1)`"),
    Rule("accepted", r" - |sub\(", _MORE + "`x - mask`"),
    Rule(
        "accepted", r"(?i)(relu6?|elu|hardsigmoid|hardswish|logsigmoid|gelu|silu)\(", _MORE + "activations of integers"
    ),
    Rule("accepted", r"Linear\(|einsum\(| @ |meshgrid\(", _MORE + "`nn.Linear(3, 2)(i)`, `einsum`"),
    Rule("accepted", r"\[.*::-1", _MORE + "`x[::-1]`"),
    Rule("accepted", r"\*\*|pow\(", _MORE + "`2 ** -1` of integers"),
    Rule("accepted", r"(sum|mean|std|var)\(", _MORE + "`sum(keepdim=True)`"),
    Rule("accepted", r"(tensor|eye|linspace|new_full)\(", _MORE + "`tensor(data, dtype)`"),
    Rule("accepted", r"split\(", _MORE + "`split(x, split_size=2)`"),
    Rule("accepted", r"repeat(_interleave)?\(", _MORE + "`x.repeat(2)`"),
    Rule("accepted", r"one_hot\(", _MORE + "`F.one_hot(i)` of int32"),
    Rule("accepted", r"pad\(", _MORE + "`F.pad(x, pad, 'circular')`"),
    Rule("accepted", r"MaxPool", _MORE + "`nn.MaxPool1d(2)(x)` of an empty tensor"),
    Rule("accepted", r"scaled_dot_product", _MORE + "`F.scaled_dot_product_attention(..., attn_mask, is_causal=True)`"),
    Rule("refused", r"\.(add|sub)\([^=]*, [^=]*\)", _MORE + "`x.add(2, y)`"),
    Rule("refused", r"\[.*\.\.\., .*\.\.\.", _MORE + "`x[..., ...]`"),
    Rule("refused", r"softmax\(", _MORE + "`F.softmax(x, -1, 3)`"),
    Rule("refused", r"arange\((end=)?True", _MORE + "`arange(True)`"),
)


class Outcome(NamedTuple):
    """How a line differs from torch; empty if it does not."""

    line: str
    kind: str
    message: str

    @property
    def advised(self) -> bool:
        """Whether the line is refused with the words to write instead."""
        return self.kind == "refused" and ADVICE.search(self.message) is not None

    @property
    def rule(self) -> Rule | None:
        """What lists the difference as one that stays."""
        return next((r for r in RULES if self.kind in r.kinds.split() and re.search(r.lines, self.line)), None)


def lucid_names() -> dict[str, Any]:
    """What the lines mention, in Lucid."""
    tensors = {name: Tensor.from_array(array).to(element_type(name)) for name, array in arrays().items()}
    return {"torch": lucid, "nn": nn, "F": functional, **tensors}


def opened(result: Any) -> Tensorlike | None:
    return Tensorlike(str(result.dtype), np.asarray(result.numpy())) if isinstance(result, Tensor) else None


def stored() -> list[tuple[str, str]]:
    """The lines and torch's results."""
    return [tuple(row.split("\t")) for row in FILE.read_text(encoding="utf-8").splitlines()]  # type: ignore[misc]


@cache
def outcomes() -> tuple[Outcome, ...]:
    """All lines, run once."""
    names = lucid_names()
    results = []
    for line, expected in stored():
        result, message = run(line, names, opened)
        results.append(Outcome(line, difference(result, expected), message))
    return tuple(results)


def unexplained() -> list[Outcome]:
    """The lines that differ, without advice or a rule."""
    return [o for o in outcomes() if o.kind and not o.advised and o.rule is None]


def test_every_line_is_right_or_refused_with_advice_or_on_the_page() -> None:
    new = unexplained()
    shown = "\n".join(f"{o.kind}: {o.line} {o.message[:120]}" for o in new[:20])
    assert not new, f"{len(new)} lines differ: {dict(Counter(o.kind for o in new))}\n{shown}"


def test_every_rule_has_lines_and_a_place_on_a_page() -> None:
    used = {o.rule for o in outcomes() if o.kind and not o.advised}
    for rule in RULES:
        assert rule in used, rule
        page, _, words = rule.page.partition("#")
        assert words in (ROOT / "docs" / page).read_text(encoding="utf-8"), rule


def test_the_lines_cover_what_they_should() -> None:
    rows = stored()
    taken = [line for line, expected in rows if expected != REFUSED]
    assert len(rows) >= 8_000
    assert len(taken) >= 5_000
    for text in ("input=", "dim=-1", "None", "()", "half", "mask", "x0", "e.", "nn.", "F.", "[0, 1]", "keepdim=True"):
        assert any(text in line for line in taken), text
