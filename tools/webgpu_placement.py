"""Which nodes of models for WebGPU onnxruntime leaves to the processor: the tables of docs/portable.md.

    python -m tools.webgpu_placement             fails if the page says otherwise
    python -m tools.webgpu_placement --freeze    writes the page

It runs in the environment of `make test-webgpu`. Sessions are loaded, but not run.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx

import lucid
from lucid.export import to_onnx
from lucid.models.bert import Bert
from lucid.models.gpt2 import GPT2
from lucid.models.llama import Llama
from lucid.models.t5 import T5
from lucid.models.vision.vit import ViT
from lucid.models.whisper import Whisper
from lucid.runtime import Session
from tests.devices.device import WEBGPU, why_missing
from tests.models import goldens
from tests.samples import SAMPLES
from tests.test_ops import traced

PAGE = Path(__file__).parent.parent / "docs/portable.md"
START, END = "<!-- placement: python -m tools.webgpu_placement --freeze -->\n", "<!-- end of placement -->"

MODELS: tuple[tuple[str, Any, str, dict[str, Any]], ...] = (
    ("BERT", Bert, "bert/base", {}),
    ("GPT-2", GPT2, "gpt2/base", {}),
    ("GPT-2, growing cache", GPT2, "gpt2/base", {"cache": "growing"}),
    ("Llama", Llama, "llama/llama3", {}),
    ("Llama, growing cache", Llama, "llama/llama3", {"cache": "growing"}),
    ("Llama, fixed cache", Llama, "llama/llama3", {"cache": "fixed"}),
    ("T5", T5, "t5/v1_1", {}),
    ("ViT", ViT, "vit/base", {}),
    ("Whisper", Whisper, "whisper/base", {}),
)


def left(model: onnx.ModelProto) -> Counter[str]:
    """How many nodes of each op are left to the processor; those that onnxruntime adds have the name of their op."""
    ops = {node.name: node.op_type for node in model.graph.node}
    names = Session(model, "webgpu").elsewhere()
    return Counter(ops.get(name, name.rpartition("/")[2].partition("_")[0]) for name in names)


def tables() -> Iterator[str]:
    """The lines of the tables."""
    yield "| Model | Nodes in the file | Left to the processor |"
    yield "|---|---|---|"
    for name, read, variant, options in MODELS:
        model = to_onnx(read.from_pretrained(goldens.folder(variant)), target="webgpu", **options)
        listed = ", ".join(f"{op} {count}" if count > 1 else op for op, count in sorted(left(model).items()))
        yield f"| {name} | {len(model.graph.node)} | {listed or 'nothing'} |"
    yield ""
    yield "| ONNX op | Lucid's ops of float32 in which it is left to the processor |"
    yield "|---|---|"
    users: dict[str, dict[str, None]] = {}
    for sample in SAMPLES:
        if sample.exported and lucid.float32 in sample.dtypes:
            for op in left(to_onnx(traced(sample, lucid.float32), target="webgpu")):
                users.setdefault(op, {})[sample.op.name] = None
    for op in sorted(users):
        yield f"| {op} | {', '.join(f'`{name}`' for name in users[op])} |"


def main() -> int:
    """Compare the page, or write it."""
    if why := why_missing(WEBGPU):
        print(why)
        return 1
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(START)
    text = before + START + "\n".join(tables()) + "\n" + END + rest.partition(END)[2]
    if "--freeze" in sys.argv:
        PAGE.write_text(text, encoding="utf-8")
    elif text != page:
        print("docs/portable.md says otherwise which nodes are left to the processor: make test-webgpu FLAGS=--freeze")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
