"""The pages of model types, vision models and operators through `lucid.from_torch`, from the records of their tools.

python -m tools.from_torch_pages     writes docs/from-torch-types.md, from-torch-vision.md and from-torch-operators.md

It needs no torch. `tools.from_torch_types`, `tools.from_torch_vision` and `tools.torch_samples.imported` renew the records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from lucid.importing.table import TABLE
from lucid.models.checkpoints.families import MODEL_TYPES
from tools.records import Records

ROOT = Path(__file__).parents[1]
TYPES, VISION, OPERATORS = (
    ROOT / "tools" / name for name in ("from_torch_types.json", "from_torch_vision.json", "torch_samples/imported.json")
)
TOLERANCE = 2e-5
STAGES = {
    "agrees": "agree with torch within 2e-5, eagerly and exported, at three sizes",
    "differs": "differ by more",
    "eager": "are imported and do not run at other sizes",
    "exported": "run on NumPy and are not exported",
    "operator": "have an operator without a function",
    "torch": "are not exported by torch, or not with these axes",
    "build": "cannot be built from a small config, or need inputs that the tool does not make",
}
Rows = dict[str, dict[str, Any]]


def types_page(records: Records) -> str:
    """Model types of transformers."""
    results = records.of("lucid")
    count = Counter(result["stage"] for result in results.values())
    exported = sum(count[stage] for stage in STAGES if stage not in ("build", "torch"))
    lines = [
        "# Model types through torch",
        "",
        "Look up whether a model type of transformers goes through [`lucid.from_torch`](howto/from-torch.md), and whether Lucid reads it natively.",
        f"Small random models of torch {records.releases('lucid', 'torch')} and transformers {records.releases('lucid', 'transformers')} are compared with torch, eagerly and in onnxruntime, at sizes that torch did not see.",
        "The types are those that optimum, onnxruntime-genai and transformers.js name in their own tables, and some more.",
        "",
        f"Of the {exported} types that torch exports, {count['agrees']} agree ({100 * count['agrees'] // max(1, exported)} %).",
        "",
        "| Types | |",
        "|---|---|",
        *(f"| {count[stage]} | {text} |" for stage, text in STAGES.items() if count[stage]),
        "",
        *_compared(records),
        "",
        "The page is generated from `tools/from_torch_types.json`, where each row has its day, releases and figures. A run of all types takes hours, so rows are",
        "renewed some at a time: `python -m tools.from_torch_types TYPE` measures types again, `--oldest 20` those whose rows are oldest. The last column is the day of a row.",
        "",
        "| Type | Native | Result | Difference: eager, exported | Nodes: Lucid, torch | Time by torch's, optimum's | Day |",
        "|---|---|---|---|---|---|---|",
    ]
    other, times = records.of("torch_onnx"), records.of("times")
    for name, result in sorted(results.items()):
        native = "yes" if name in MODEL_TYPES else ""
        if result["stage"] == "agrees":
            nodes = ", ".join(str(each["nodes"]) for each in (result, other.get(name, {})) if "nodes" in each)
            ratios = ", ".join(f"{times[name][by]:.2f}" for by in ("torch", "optimum") if by in times.get(name, {}))
            figures = f"agrees | {_differences(result)} | {nodes} | {ratios}"
        else:
            figures = f"{_reason(result)} | | |"
        lines.append(f"| `{name}` | {native} | {figures} | {result['date']} |")
    return "\n".join([*lines, ""])


def _differences(result: dict[str, Any]) -> str:
    return f"{result['eager']:.0e}, {result['exported']:.0e}"


def _reason(result: dict[str, Any]) -> str:
    """The stage at which a row ended, and its error, in a cell."""
    error = result.get("error", "").replace("|", "/").replace("<", "&lt;")
    return ": ".join(filter(None, (result["stage"], error[:160])))


def _compared(records: Records) -> list[str]:
    """What the comparison with torch.onnx and optimum comes to."""
    own, other, times = (records.of(name) for name in ("lucid", "torch_onnx", "times"))
    passed = {name for name, result in other.items() if result["agrees"]}
    agree = {name for name in other if own[name]["stage"] == "agrees"}
    alone = (
        f"torch.onnx alone passes {', '.join(sorted(passed - agree))}" if passed - agree else "none by torch.onnx alone"
    )
    nodes = {name: own[name]["nodes"] / other[name]["nodes"] for name in sorted(passed & agree)}
    more = ", ".join(f"`{name}` ({ratio:.2f})" for name, ratio in nodes.items() if ratio > 1)
    ratios = {name: result["torch"] for name, result in times.items() if "torch" in result}
    slow = ", ".join(f"`{name}`" for name, ratio in ratios.items() if ratio > 1.05)
    beside = {name: result for name, result in times.items() if "optimum" in result}
    shown = ", ".join(
        f"`{name}` {result['nodes']['lucid']} nodes for {result['nodes']['optimum']}" for name, result in beside.items()
    )
    largest = 100 * max(abs(1 - result["optimum"]) for result in beside.values())
    shares = [result["own_s"] / (result["own_s"] + result["torch_s"]) for result in own.values() if "own_s" in result]
    lines = [
        f"`torch.onnx.export(dynamo=True)` was run for {len(other)} of the types ({records.days('torch_onnx')}). Of these {len(passed)} agree by torch.onnx and {len(agree)} by Lucid; {alone}.",
        f"After onnxruntime's optimization, Lucid's file for target \"cpu\" has {median(nodes.values()):.2f} times the nodes of torch's in the median, and {f'more for {more}' if more else 'never more'}. "
        "Lucid keeps a sum and the layer norm that follows it apart, by a reshape: onnxruntime would fuse them into a slower kernel, of fewer nodes.",
        "Where it has more, they find NaN in max pools and maxima, which onnxruntime loses (hiera, resnet); take norms by sums of squares, which its ReduceL2 takes up to 2.8 times as long for "
        "(convnextv2, dac, swin2sr, swinv2); read images between points by gathers, for which torch's file has GridSample (rf_detr); or are products with tables for DFT (fnet).",
        f"At a width of 384, with 4 layers, length 128 and one thread, {len(ratios)} types run in {median(ratios.values()):.2f} times the time of torch's file in the median; {f'slower by more than 5 %: {slow}' if slow else 'none is slower by more than 5 %'}. "
        f"Times ({records.days('times')}) are of the processor, of the shortest of runs in turns.",
        f"optimum's files of {len(beside)} of them, where it exports the type, take as long as Lucid's within {largest:.0f} %, {median(result['optimum'] for result in beside.values()):.2f} times in the median: {shown}.",
    ]
    if shares:
        lines.append(
            f"Of the time from a module to a file, {100 * median(shares):.0f} % is Lucid's own in the median of {len(shares)} types whose seconds are recorded, {100 * max(shares):.0f} % at the most; torch takes the rest. The largest shares are of models that take seconds themselves: the import runs each twice, to compare torch's program with its module."
        )
    return lines


def vision_page(records: Records) -> str:
    """Models of torchvision and timm."""
    results, other = records.of("lucid"), records.of("torch_onnx")
    agree = [name for name, result in results.items() if result["stage"] == "agrees"]
    both = [name for name in agree if "nodes" in other.get(name, {})]
    fewer = sum(results[name]["nodes"] <= other[name]["nodes"] for name in both)
    failed = sum("error" in other.get(name, {}) for name in agree)
    torch, torchvision, timm = (records.releases("lucid", package) for package in ("torch", "torchvision", "timm"))
    lines = [
        "# Vision models through torch",
        "",
        "Look up whether a model of torchvision or timm goes through [`lucid.from_torch`](howto/from-torch.md).",
        f"Models of torchvision {torchvision} and timm {timm} with random weights are compared with torch {torch}, eagerly and in onnxruntime, at sizes that torch did not see.",
        "",
        f"Of {len(results)} models, {len(agree)} agree within 2e-5 of their outputs' scale. Nodes are counted after onnxruntime's optimisation (extended level).",
        f"Lucid's file has at most as many as that of `torch.onnx.export(dynamo=True)` for {fewer} of {len(both)} models; torch's export fails for {failed}.",
        "Max pooling takes two nodes more in Lucid's file, which [find NaN](limitations.md).",
        "A norm takes Mul, ReduceSum and Sqrt: over the last axis ReduceL2 takes 1.6 to 2.8 times as long (183 instead of 107 us for 64 x 4 x 49 x 32, one thread).",
        "Images are resized to sizes known at run time by gathers, some 25 nodes for an axis, since Resize rounds positions differently. Products with tables of weights would take about as",
        "many nodes, and infinity times 0 would make NaN of a whole row.",
        "",
        "The page is generated from `tools/from_torch_vision.json`. `python -m tools.from_torch_vision MODEL` measures models again, `--oldest 5` those whose rows are oldest. The last",
        "column is the day of a row.",
        "",
        "| Model | Dynamic axes | Result | Difference: eager, exported | Nodes | Nodes by `torch.onnx` | Day |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, result in sorted(results.items()):
        if "nodes" in result:
            theirs = other.get(name, {}).get("nodes", "fails")
            figures = f"{result['stage']} | {_differences(result)} | {result['nodes']} | {theirs}"
        else:
            figures = f"{_reason(result)} | | |"
        lines.append(f"| `{name}` | {result.get('axes', '')} | {figures} | {result['date']} |")
    return "\n".join([*lines, ""])


SAMPLES = {
    "agrees": "agree with torch within 2e-5 of their scale, eagerly and exported",
    "refused": "are refused with an error that names what is missing",
    "differs": "differ, or fail where torch computes",
    "torch": "are not exported by torch, or have no tensors among their results",
}


def operators_page(records: Records) -> str:
    """torch's own samples of its operators."""
    results = records.of("lucid")
    total: Counter[str] = Counter()
    for result in results.values():
        total.update(result["counts"])
    rows = {name for name in TABLE if name.startswith("aten.")}
    read = {row for result in results.values() for row in result["rows"]} & rows
    whole = [name for name, result in results.items() if set(result["counts"]) == {"agrees"}]
    none = [name for name, result in results.items() if not result["counts"]]
    undefined: dict[str, list[str]] = {}
    for name, result in sorted(results.items()):
        if "undefined" in result:
            undefined.setdefault(result["undefined"], []).append(f"`{name}`")
    lines = [
        "# torch's operators through from_torch",
        "",
        "Look up whether an operator of torch goes through [`lucid.from_torch`](howto/from-torch.md). A few of its own samples of each operator, in float32 and int64, are exported by torch",
        f"{records.releases('lucid', 'torch')}, imported, and run by NumPy and by onnxruntime ({records.days('lucid')}).",
        "",
        f"Of {total.total()} samples of {len(results) - len(none)} operators:",
        "",
        *(f"- {total[result]} {title};" for result, title in SAMPLES.items() if total[result]),
        "",
        f"They read {len(read)} of the table's {len(rows)} rows of ATen operators.",
        "",
        *(f"Of {', '.join(names)} {text}." for text, names in undefined.items()),
        f"{len(none)} operators have no samples with tensors of these types: {', '.join(f'`{name}`' for name in sorted(none))}.",
        "",
        "The page is generated from `tools/torch_samples/imported.json`; `python -m tools.torch_samples.imported OPERATOR` tries operators again.",
        "",
        "## Operators that agree in every sample",
        "",
        ", ".join(f"`{name}`" for name in sorted(whole)),
        "",
        "## Others",
        "",
        "| Operator | Agree | Refused | Differ | Reason |",
        "|---|---|---|---|---|",
    ]
    for name, result in sorted(results.items()):
        counts, reasons = result["counts"], result["reasons"]
        if counts.get("refused") or counts.get("differs"):
            reason = reasons.get("differs") or reasons.get("refused", "")
            reason = reason.partition(": write one of")[0].removeprefix("from_torch: ").replace("|", "/")[:140]
            figures = " | ".join(str(counts.get(key, 0)) for key in ("agrees", "refused", "differs"))
            lines.append(f"| `{name}` | {figures} | {reason} |")
    return "\n".join([*lines, ""])


PAGES: dict[str, tuple[Path, Callable[[Records], str]]] = {
    "from-torch-types.md": (TYPES, types_page),
    "from-torch-vision.md": (VISION, vision_page),
    "from-torch-operators.md": (OPERATORS, operators_page),
}
"""The records and the text of each page of docs/."""


def main() -> None:
    for name, (path, page) in PAGES.items():
        (ROOT / "docs" / name).write_text(page(Records(path)), encoding="utf-8")


if __name__ == "__main__":
    main()
