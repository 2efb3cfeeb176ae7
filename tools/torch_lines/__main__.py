"""Run all lines in torch, store the results, and print how Lucid's differ.

    python -m tools.torch_lines                  the counts
    python -m tools.torch_lines --show value     also the lines that differ in this way
    python -m tools.torch_lines --freeze         also write tests/goldens/torch_lines

Needs torch 2.13.
"""

from __future__ import annotations

import argparse
from collections import Counter
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from tests.test_torch_lines import FILE, Outcome, lucid_names, opened
from tests.torch_lines import Tensorlike, arrays, difference, element_type, run
from tools.torch_lines.draw import lines


def torch_names() -> dict[str, Any]:
    """What the lines mention, in torch."""
    tensors = {
        name: torch.from_numpy(array.copy()).to(getattr(torch, element_type(name))) for name, array in arrays().items()
    }
    return {"torch": torch, "nn": nn, "F": functional, **tensors}


def opened_torch(result: Any) -> Tensorlike | None:
    if not isinstance(result, torch.Tensor):
        return None
    plain = result.detach()
    wide = plain.float() if plain.dtype == torch.bfloat16 else plain
    return Tensorlike(str(plain.dtype).removeprefix("torch."), wide.numpy())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--freeze", action="store_true", help="write the results of torch")
    parser.add_argument(
        "--show", default="", help="print the lines that differ in this way: value, shape, type, accepted or refused"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    theirs, ours = torch_names(), lucid_names()
    counts: Counter[str] = Counter()
    stored: list[str] = []
    for line in lines():
        expected, reason = run(line, theirs, opened_torch)
        value, message = run(line, ours, opened)
        kind = difference(value, expected)
        outcome = Outcome(line, kind, message)
        kind = "refused with advice" if outcome.advised else f"{kind}, listed" if outcome.rule else kind
        counts[kind or ("same" if expected != "refused" else "refused by both")] += 1
        if options.show and kind == options.show:
            print(f"{kind}\t{line}\n\ttorch {expected} {reason[:150]!r}\n\tLucid {value} {message[:200]!r}")
        stored.append(f"{line}\t{expected}\n")
    if options.freeze:
        FILE.parent.mkdir(exist_ok=True)
        FILE.write_text("".join(stored), encoding="utf-8")
    print(f"torch {torch.__version__}: {len(stored)} lines, {FILE.stat().st_size / 1000:.0f} kB")
    for kind, count in counts.most_common():
        print(f"{count:6} {kind}")


if __name__ == "__main__":
    main()
