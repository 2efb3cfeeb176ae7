"""docs/coverage.md (models) and docs/coverage-ops.md (modules and ops) from the code: ONNX forms and parity figures.

    python tools/make_coverage.py
    python tools/make_coverage.py --new       # measures only rows that are not on the pages yet: seconds instead of half a minute
    python tools/make_coverage.py --times     # measures how long exports take, too

Parity and nodes are measured each time, times of exports only for new rows. A figure on a page is kept as long as it is true and not more than ten times larger than
needed, so that another machine's rounding changes nothing. `.ci/run` compares the pages with the result, and tests/test_coverage_page.py
all but the figures.
"""

from __future__ import annotations

import inspect
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT)] if str(ROOT) not in sys.path else []

import lucid  # noqa: E402
from lucid import Tensor, nn  # noqa: E402
from lucid.export import Target, to_onnx  # noqa: E402
from lucid.export.target import OPSETS, TARGET_NAMES  # noqa: E402
from lucid.gradients import CONSTANT, RULES  # noqa: E402
from lucid.models.delightful_tts import ConformerBlock  # noqa: E402
from lucid.models.transformer import Transformer  # noqa: E402
from lucid.ops.op import REGISTERED, Op  # noqa: E402
from lucid.ops.tensor.tensor import OPS  # noqa: E402
from lucid.testing import assert_parity  # noqa: E402
from tests.models.goldens import TARGETS  # noqa: E402
from tests.models.zoo import Entry  # noqa: E402
from tests.module_samples import MODULES  # noqa: E402
from tests.samples import SAMPLES, Sample  # noqa: E402
from tools import cache_tables, model_tables, precision_tables  # noqa: E402
from tools.figures import Figures  # noqa: E402

PAGE, OPS_PAGE = ROOT / "docs" / "coverage.md", ROOT / "docs" / "coverage-ops.md"

TOP = """\
# Coverage

All models, the caches and weights that they take, and how exact they are. [A second page](coverage-ops.md) has the modules and ops.
`tools/make_coverage.py` makes this page from the code; a test keeps it current, and CI measures its figures again.
"""

OPS_TOP = """\
# Coverage of modules and ops

All modules and ops, the ONNX forms they take by opset and target, and how exact they are. [A second page](coverage.md) has the models.
`tools/make_coverage.py` makes this page from the code; a test keeps it current, and CI measures its figures again.
"""

TARGETS_TEXT = """\
Targets: `any` (standard ops, opset 23 by default), `cpu` and `cuda` (tuned for onnxruntime's provider), `portable`
(opset 18, for runtimes without Attention), `openvino` and `webgpu` ([other runtimes](portable.md)). Figures are bounds on
the largest difference in float32, measured when the page was made and rounded up.
"""

TYPES_TEXT = """\
[Model types through torch](from-torch-types.md) lists the model types of transformers by way: native, by `lucid.from_torch`, or refused, with the reason.
"""

MODELS_TEXT = """\
Each is one file of `models/` that reads like the paper, and knows its inputs: `to_onnx(model)` needs no specs, and batch
size and length are dynamic. All but the last two read Hugging Face's `config.json` and safetensors or `pytorch_model.bin`
(`Bert.from_pretrained(folder)`); an option that is not supported is an error that names it. Figures: eager and exported
models compared with transformers, over `tests/goldens`, relative to the largest number of the output; for the last two,
exported compared with eager, absolute. Nodes are those of the second layer for target `any` (of the only one where the golden has one), of encoder and
decoder or of both towers where there are two. The time is that of an export of the golden, of one to three layers, to memory, on the machine of
[the benchmarks](benchmarks.md); the width of a model only adds what its weights take to write. For `cuda` all are exported and pass
ONNX's checker; [the GPU page](gpu.md) says what has been run there.
"""

FILES = {
    "one file or shards": "`model.safetensors` or `pytorch_model.bin`, or the index of either with its shards in the same folder",
    "memory": "files are mapped: an array that already has the model's element type is used as stored, without a copy",
    "float16, bfloat16": "are converted to the model's element type, float32 by default; "
    '`model.to("float16")` converts a loaded model, and `Llama.from_pretrained(folder, dtype=lucid.float16)` uses '
    "float16 weights as stored, without a copy",
    "keys": "every key of the file must be a parameter of the model and every parameter must have a key: missing, "
    "unexpected and mis-shaped keys are all listed at once, and nothing is loaded",
    "broken files": "truncated files, files with extra bytes or overlapping arrays, and indexes that point outside their "
    "folder are refused before anything is used",
    "GPTQ, AWQ": "weights in 4 bits, GPTQ's also in 8, stay as they are; in groups of neighbours (no `desc_act`), AWQ's of "
    "version gemm; anything else is an error ([how](howto/smaller.md#quantized-checkpoints))",
    "GGUF": "a GGUF file in the place of the folder: the decoders that llama.cpp has too; Q4_0 to Q8_0 and the "
    "K-quants as they are, other types in float32 ([how](howto/gguf.md))",
    "pytorch_model.bin": "what `torch.save` wrote, before and since torch 1.6, is read without torch; the pickle inside is never "
    "run, and anything but tensors is an error; safetensors come first",
    "names": "initializers of an exported model are named by the checkpoint's keys; `[q]` or similar follows for a part "
    "of one, `.T` for one that is stored transposed",
}


def page(before: str, times: Mapping[str, str] | None = None, again: bool = True) -> str:
    """The page of models. Figures of the page before are kept where they are still true, or without `again` as they are;
    its times unless others are given."""
    kept, times = Figures(before, again), dict(model_tables.kept_times(before)) if times is None else times
    parts = [
        TOP,
        TARGETS_TEXT,
        TYPES_TEXT,
        "## Models\n",
        MODELS_TEXT,
        _models(kept, times),
        "## Checkpoints\n",
        table(("what", "how"), FILES.items()),
    ]
    parts += ["## Caches\n", _CACHES_TEXT]
    parts += [table(*cache_tables.forms()), _CACHED_MODELS_TEXT, _cached_models(kept)]
    parts += [
        "## Precision\n",
        _PRECISION_TEXT,
        table(*precision_tables.forms()),
        _SMALL_MODELS_TEXT,
        _small_models(kept),
    ]
    return "\n".join(parts)


def ops_page(before: str, again: bool = True) -> str:
    """The page of modules and ops, with the figures of the page before as `page` keeps them."""
    parts = [OPS_TOP, TARGETS_TEXT, "## Modules\n", _MODULES_TEXT, _modules(Figures(before, again))]
    parts += ["## Ops\n", _OPS_TEXT, _ops(), _functions(), "## Attention by situation\n", _ATTENTION_TEXT, _attention()]
    return "\n".join(parts)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


# Models ---------------------------------------------------------------------------------------------------------------


def _models(kept: Figures, times: Mapping[str, str]) -> str:
    rows = []
    for architecture, task, entries in model_tables.groups():
        first = model_tables.measured(entries)
        entry = entries[0]
        name = f"{architecture}: {task}"
        figures = kept.of(name, partial(_model_errors, first))
        cells = [f"[`{entry.read.__name__}`](../{entry.file})", str(len(entries)), *figures]
        layers = model_tables.nodes_a_layer(entry.exported("any"))
        rows.append([name, *cells, layers, times.get(name) or model_tables.export_time(entry.load())])
    for name, file, model in (
        ("Transformer (2017)", "models/transformer.py", Transformer(50, 16, 2, 32, 2).eval()),
        ("DelightfulTTS", "models/delightful_tts.py", ConformerBlock(dim=12, num_heads=3).eval()),
    ):
        figures = kept.of(name, partial(_parity, model))
        layers = model_tables.nodes_a_layer(to_onnx(model))
        cells = [f"[`{type(model).__name__}`](../{file})", "", "", *figures, layers]
        rows.append([name, *cells, times.get(name) or model_tables.export_time(model)])
    heads = ("architecture: task", "class", "goldens", "eager", *TARGETS, "nodes a layer", "export")
    return table(heads, rows)


def _model_errors(entries: Collection[Entry]) -> list[float]:
    exported = [max(entry.exported_error(target) for entry in entries) for target in TARGETS]
    return [max(entry.eager_error() for entry in entries), *exported]


def _parity(module: nn.Module, *inputs: Any) -> list[float]:
    lucid.manual_seed(0)
    return [assert_parity(module, *inputs, target=target).max_abs for target in TARGETS]


# Modules --------------------------------------------------------------------------------------------------------------

_MODULES_TEXT = """\
Arguments, state keys and defaults are torch's where torch has the module (`batch_first=True` is the default here). The
nodes are those for target `any` at opset 23; the figure is absolute and covers `any`, `cpu` and `portable` at three sizes.
"""


def _largest(module: nn.Module, *inputs: Any) -> list[float]:
    return [max(_parity(module, *inputs))]


def _modules(kept: Figures) -> str:
    rows = []
    for name, (module, inputs) in MODULES.items():
        nodes = Counter(node.op_type for node in to_onnx(module, *inputs).graph.node)
        figures = kept.of(f"`{name}`", partial(_largest, module, *inputs))
        about = (inspect.getdoc(getattr(nn, name)) or "").split("\n\n")[0].replace("\n", " ").replace("|", "\\|")
        rows.append([f"`{name}`", about, _counted(nodes), *figures])
    return table(("module", "", "nodes", "parity"), rows)


def _counted(nodes: Counter[str]) -> str:
    if nodes.total() > 13:
        native = [f"{n} {kind}" for kind, n in nodes.items() if kind in _NATIVE]
        return f"{nodes.total()}" + (f", with {', '.join(native)}" if native else "")
    return ", ".join(kind if n == 1 else f"{n} {kind}" for kind, n in nodes.items())


_NATIVE = ("Attention", "LayerNormalization", "RMSNormalization", "RotaryEmbedding", "Gelu")


# Ops ------------------------------------------------------------------------------------------------------------------

_OPS_TEXT = """\
A primitive has a NumPy kernel and a form in ONNX; a composite has a body of other ops, which is used where there is no
better form. The forms are those that the exporter takes for each op's float32 sample, whose weights are inputs, at
opsets 17 to 26; a target that is not named takes the form of `any`. Element types that onnxruntime has no kernel for are
computed in a wider one.

[Gradients](howto/gradients.md) go through an op by a rule of its own or by the rules of its body; "0" is the gradient of a function
made of steps, and ops of integers or booleans, and those without inputs, have none.
"""


def traced(sample: Sample) -> lucid.Graph:
    """The graph of one op."""

    def model(*given: Tensor) -> Any:
        rest = iter(given)
        return sample.op(*(None if a is None else next(rest) for a in sample.inputs), **sample.attributes)

    return lucid.trace(model, *(a.type(sample.dtypes[0]) for a in (*sample.inputs, *sample.carriers) if a is not None))


def form(graph: lucid.Graph, op: str, target: str, opset: int) -> str:
    """How an op is exported: the ONNX op, a few of them, or the number of nodes of its body."""
    lowering = cache_tables.lowered(graph, Target.of(target, opset, None))
    build = lowering.build
    nodes = [node.op_type for node in build.nodes if "size " not in node.name]
    taken = [decision.taken for decision in lowering.decisions if decision.op == op]
    name = taken[-1] if taken else ""
    if len(nodes) == 1:
        return f"com.microsoft {nodes[0]}" if build.nodes[-1].domain else nodes[0]
    if name.startswith(("ai.onnx", "com.microsoft")):
        return f"{name.removeprefix('ai.onnx ')} ({len(nodes)} nodes)"
    named = "" if name in ("", "expanded") else f"{name}: "
    return f"{named}{', '.join(nodes)}" if len(nodes) <= 4 else f"{named}{len(nodes)} nodes"


def _by_opset(graph: lucid.Graph, op: str, target: str) -> str:
    """``7 nodes; from 23: RMSNormalization``."""
    since: dict[int, str] = {}
    for opset in OPSETS:
        row = form(graph, op, target, opset)
        if not since or row != list(since.values())[-1]:
            since[opset] = row
    if len(since) == 1:
        return since[OPSETS[0]]
    return "; ".join(f"from {opset}: {row}" if opset > OPSETS[0] else row for opset, row in since.items())


def _ops() -> str:
    rows = []
    for name, op in sorted(REGISTERED.items()):
        kind = "primitive" if op.body is None else "composite"
        samples = [sample for sample in SAMPLES if sample.op is op and sample.exported]
        if not samples:
            rows.append([f"`{name}`", kind, "none: only for training", _gradient(op)])
            continue
        graph = traced(samples[0])
        by_target = {target: _by_opset(graph, name, target) for target in TARGET_NAMES}
        others = [
            f"`{target}` {by_target[target]}" for target in TARGET_NAMES[1:] if by_target[target] != by_target["any"]
        ]
        rows.append([f"`{name}`", kind, ". ".join([by_target["any"], *others]), _gradient(op)])
    return table(("op", "kind", "ONNX", "gradient"), rows)


def _gradient(op: Op[..., Any]) -> str:
    """How gradients go through an op."""
    name = op.name
    (sample, *_) = (sample for sample in SAMPLES if sample.op is op)
    real = any(dtype.kind == "float" for dtype in sample.dtypes) and sample.inputs
    if not real or not any(kind.dtype.kind == "float" for kind in traced(sample).nodes()[-1].types):
        return ""
    if name in CONSTANT:
        return "0"
    return "rule" if name in RULES else "body"


def _functions() -> str:
    names = sorted(OPS.keys() - REGISTERED.keys())
    return f"Functions made of other ops, without a form: {', '.join(f'`{name}`' for name in names)}.\n"


_ATTENTION_TEXT = """\
At each target's default opset. For your own model `lucid.export.explain(model, ...)` says which form each attention node
took and why the others were refused; [the contract](attention.md) says what all of them compute.
"""


def _attention() -> str:
    rows = []
    for sample in (sample for sample in SAMPLES if sample.op.name == "attention" and sample.exported):
        graph = traced(sample)
        forms = [form(graph, "attention", target, Target.of(target, None, None).opset) for target in TARGET_NAMES]
        rows.append([sample.label or "plain", *forms])
    return table(("attention", *(f"`{target}`" for target in TARGET_NAMES)), rows)


# Caches ---------------------------------------------------------------------------------------------------------------

_CACHES_TEXT = f"""\
The forms of a step with grouped heads, by the names that `explain` gives them, for onnxruntime {cache_tables.RELEASES[0]}, the
default, and where {cache_tables.RELEASES[1]} makes a difference, by opset. A growing cache is `attention` with past keys and
values; over a fixed one, `buffered_attention`, whose write into the buffers has a form of its own.
[The contract](attention.md#caches) says what each of them takes and costs.
"""

_CACHED_MODELS_TEXT = """\
The models that take caches, growing and fixed ones; `to_onnx(model, cache=...)` exports a step. Figures: a text read in steps,
the first half and then one token at a time, eager, compared with transformers' logits for the whole text, relative to the
largest; for the last one, with its own.
"""


def _cached_models(kept: Figures) -> str:
    rows = []
    for name, file, errors in cache_tables.models():
        cell = f"{name} with a cache"
        figures = kept.of(cell, errors)
        rows.append([cell, f"[{file}](../{file})", *figures])
    return table(("model", "file", "growing", "fixed"), rows)


# Precision ------------------------------------------------------------------------------------------------------------

_PRECISION_TEXT = """\
The form of a product at each target's default opset, by what its weight is stored in: float32; half precision
(`to_onnx(model, dtype="float16")`); 4 and 8 bits (`lucid.quantize`, [how](howto/smaller.md)) at both accuracy levels, for blocks
with minimums (GGUF's Q4_1), and for models of half precision; and 8 bits with inputs in 8 bits. "expanded" is the body, a product with a weight that is
widened when the model is loaded, or rows of a table.
"""

_SMALL_MODELS_TEXT = f"""\
A model of each file, with all its weights quantized, in blocks of {precision_tables.BLOCK}, tables of positions too. Figures: exported at accuracy
level 0 compared with eager, both quantized, relative to the largest number of the output. In 4 bits all are
exported for `cuda`, `openvino` and `webgpu`, too, and pass ONNX's checker.
"""


def _small_models(kept: Figures) -> str:
    def measured(small: precision_tables.Small) -> list[float]:
        small.check_other_targets()
        return small.errors()

    rows = []
    for small in precision_tables.models():
        cell = f"{small.name}, quantized"
        rows.append([cell, f"[{small.file}](../{small.file})", *kept.of(cell, partial(measured, small))])
    heads = [f"{bits} bits, {target}" for bits in (4, 8) for target in TARGETS]
    return table(("model", "file", *heads), rows)


if __name__ == "__main__":
    before, ops_before = (path.read_text(encoding="utf-8") if path.exists() else "" for path in (PAGE, OPS_PAGE))
    again = "--new" not in sys.argv
    PAGE.write_text(page(before, {} if "--times" in sys.argv else None, again), encoding="utf-8")
    OPS_PAGE.write_text(ops_page(ops_before, again), encoding="utf-8")
