"""``python -m benchmarks.on_gpu``: attention, whole models and generation on CUDA, compared with torch on the same GPU.

Inputs and outputs stay in the GPU's memory, and every call ends when the GPU has finished. It needs onnxruntime-gpu,
torch with CUDA and transformers. The results of each GPU are a file in docs/benchmarks/gpus, and the tables of
docs/gpu.md are made from these files; ``--pages`` does only that. ``--device cpu`` tries everything without a GPU.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import platform
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime

import lucid
from benchmarks import peers, report
from benchmarks.attention import TORCH
from benchmarks.bench import LUCID, Bench
from benchmarks.graphs import Array, exact, unit_normal
from benchmarks.harness import Effort, Work
from benchmarks.machine import LIBRARIES
from benchmarks.results import Line, Results
from benchmarks.zoo import Entry
from lucid import ops
from lucid.export import to_onnx
from lucid.generation import Generator
from lucid.models import load
from lucid.runtime import Session

DOCS = Path(__file__).parents[1] / "docs"
GPUS = DOCS / "benchmarks" / "gpus"
EXPANDED, TORCH_EXPORT = "Lucid, portable", "torch export"
EFFORT = Effort(rounds=7, least=3, limit=4.0, seconds=0.4, pause=0.01, warm_up=0.3)
NEW = 64

# Shape (N, H, L, d) of queries, keys and values; dtype; whether causal; whether keys are masked.
ATTENTION = [
    ((8, 12, 512, 64), "float16", False, False),
    ((8, 12, 512, 64), "float16", True, False),
    ((8, 12, 512, 64), "float16", True, True),
    ((1, 32, 4096, 128), "float16", True, False),
    ((8, 12, 512, 64), "float32", True, False),
    ((8, 12, 512, 64), "float32", False, True),
]


def _text(batch: int, length: int) -> dict[str, tuple[int, ...]]:
    return {"input_ids": (batch, length), "attention_mask": (batch, length)}


_SMOLLM2_360M = {
    **{"hidden_size": 960, "intermediate_size": 2560, "num_hidden_layers": 32, "num_attention_heads": 15},
    **{"num_key_value_heads": 5, "vocab_size": 32000, "tie_word_embeddings": True, "max_position_embeddings": 8192},
}
# At their published depth: a GPU takes as long to be told of a layer as to compute it.
MODELS = [
    (Entry("BERT base, 1 x 128", "bert", "BertModel", _text(1, 128)), "float16"),
    (Entry("BERT base, 32 x 128", "bert", "BertModel", _text(32, 128)), "float16"),
    (Entry("BERT base, 32 x 128", "bert", "BertModel", _text(32, 128)), "float32"),
    (Entry("ViT-B/16, 8 images", "vit", "ViTModel", {"pixel_values": (8, 3, 224, 224)}), "float16"),
    (Entry("ViT-B/16, 8 images", "vit", "ViTModel", {"pixel_values": (8, 3, 224, 224)}), "float32"),
    (Entry("SmolLM2-360M, 1 x 512", "llama", "LlamaForCausalLM", _text(1, 512), _SMOLLM2_360M), "float16"),
]


class OnDevice:
    """What a run left in the device's memory, as an array for those who ask."""

    def __init__(self, value: onnxruntime.OrtValue) -> None:
        self._value = value

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        array: Array = self._value.numpy()
        return array if dtype is None else array.astype(dtype)


def runner(model: onnx.ModelProto | Path, inputs: Mapping[str, Array] | tuple[Array, ...], device: str) -> Work:
    """A call of onnxruntime on a device, with inputs and outputs in its memory."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    source = str(model) if isinstance(model, Path) else model.SerializeToString()
    provider = {"cuda": "CUDAExecutionProvider", "cpu": "CPUExecutionProvider"}[device]
    session = onnxruntime.InferenceSession(source, options, providers=[provider])
    assert session.get_providers()[0] == provider, session.get_providers()
    names = [value.name for value in session.get_inputs()]
    arrays = dict(zip(names, inputs, strict=True)) if isinstance(inputs, tuple) else inputs
    binding = session.io_binding()
    for name in names:
        binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(arrays[name], device))
    for value in session.get_outputs():
        binding.bind_output(value.name, device)

    def run() -> object:
        session.run_with_iobinding(binding)
        binding.synchronize_outputs()
        return OnDevice(binding.get_outputs()[0])

    return run


def attention(bench: Bench, device: str) -> Iterator[Line]:
    """Attention alone."""
    yield from (_attention(bench, device, *case) for case in ATTENTION)


def _attention(bench: Bench, device: str, shape: tuple[int, ...], dtype: str, causal: bool, masked: bool) -> Line:
    q, k, v = (array.astype(dtype) for array in unit_normal(shape, shape, shape))
    batch, _, length, _ = shape
    keep = np.arange(length) < np.linspace(length // 2, length, batch)[:, None]
    visible = np.tri(length, dtype=bool) if causal else np.ones((length, length), bool)
    visible = visible & keep[:, None, None] if masked else visible[None, None]

    def attend(
        query: lucid.Tensor, key: lucid.Tensor, value: lucid.Tensor, key_mask: lucid.Tensor | None = None
    ) -> Any:
        return ops.attention(query, key, value, None, key_mask, is_causal=causal)

    specs: dict[str, Any] = {
        name: lucid.spec("N", shape[1], "L", shape[3], dtype=dtype) for name in ("query", "key", "value")
    }
    feeds = {"query": q, "key": k, "value": v}
    if masked:
        specs["key_mask"], feeds["key_mask"] = lucid.spec("N", "L", dtype="bool"), keep
    ways = {
        way: runner(to_onnx(attend, kwargs=specs, target=target), feeds, device)
        for way, target in ((LUCID, "cuda"), (EXPANDED, "portable"))
    }
    assert peers.torch is not None
    mask = np.broadcast_to(visible, (batch, 1, length, length)) if masked else None
    base, theirs = peers.torch.attention_on(device, q, k, v, is_causal=causal and not masked, visible=mask)
    ways[TORCH] = base
    example = (q, k, v) if mask is None else (q, k, v, np.ascontiguousarray(mask))
    ways[TORCH_EXPORT] = runner(peers.torch.export(theirs, example, 23), example, device)
    kinds = "causal" if causal else "all keys"
    work = f"{shape}, {dtype}, {kinds}{', padding' if masked else ''}"
    return bench.line("gpu_attention", work, TORCH, ways, expected=exact(q, k, v, visible))


def models(bench: Bench, device: str) -> Iterator[Line]:
    """Whole models with random weights."""
    yield from (_model(bench, device, entry, dtype) for entry, dtype in MODELS)


def _model(bench: Bench, device: str, entry: Entry, dtype: str) -> Line:
    assert peers.torch is not None and peers.transformers is not None
    twin = peers.transformers.random_model(entry.kind, entry.twin, entry.options)
    with tempfile.TemporaryDirectory() as folder:
        twin.save_pretrained(folder)
        model = load(folder)
        specs = model.input_specs()
        inputs = {name: array for name, array in entry.inputs().items() if name in specs}
        typed = {name: array.astype(dtype) if array.dtype == np.float32 else array for name, array in inputs.items()}
        ways: dict[str, Work] = {}
        converted: dict[str, Any] = {} if dtype == "float32" else {"dtype": dtype, "keep_io_types": False}
        for way, target in ((LUCID, "cuda"), (EXPANDED, "portable")):
            file = Path(folder) / f"{target}.onnx"
            to_onnx(model, target=target, path=file, **converted)
            ways[way] = runner(file, typed, device)
        theirs = peers.transformers.Outputs(twin, list(inputs), model.output_names or ("logits",))
        fails = {}
        axes = [
            {axis: str(size) for axis, size in enumerate(specs[name].shape) if not isinstance(size, int)}
            for name in inputs
        ]
        example = tuple(array[[0, 0]] for array in typed.values())  # sizes of 1 are special to torch
        ways[TORCH] = peers.torch.call_on(device, theirs, dtype, *typed.values())
        try:
            exported = peers.torch.export(theirs.cpu(), example, 23, axes, Path(folder) / "torch.onnx")
        except peers.torch.ExportError as error:
            fails[TORCH_EXPORT] = str(error).splitlines()[0]
        else:
            del exported
            ways[TORCH_EXPORT] = runner(Path(folder) / "torch.onnx", tuple(typed.values()), device)
        theirs.to(device)
        _check(entry, np.asarray(ways[LUCID](), np.float64), np.asarray(ways[TORCH](), np.float64))
        return replace(bench.line("gpu_models", f"{entry.name}, {dtype}", TORCH, ways), fails=fails)


def _check(entry: Entry, outputs: Array, expected: Array) -> None:
    apart = np.abs(outputs - expected).max(-1) / np.abs(expected).max()
    assert np.median(apart) < 2e-2, f"{entry.name}: Lucid and torch differ by {np.median(apart):.0e}"


def generation(bench: Bench, device: str) -> Iterator[Line]:
    """`NEW` tokens behind prompts of 64, greedily, by `Generator` and by transformers' `generate`."""
    assert peers.torch is not None and peers.transformers is not None
    twin = peers.transformers.random_model("llama", "LlamaForCausalLM", _SMOLLM2_360M)
    with tempfile.TemporaryDirectory() as folder:
        twin.save_pretrained(folder)
        model = load(folder)
        sessions = {}
        for cache in ("growing", "fixed"):
            file = Path(folder) / f"{cache}.onnx"
            options: dict[str, Any] = {"cache": cache, "target": "cuda", "kwargs": {"logits_to_keep": 1}}
            to_onnx(model, path=file, dtype="float16", keep_io_types=False, **options)
            sessions[f"{LUCID}, {cache} cache"] = Session(file, device)
        theirs = peers.transformers.generation_on(device, twin)
        for batch in (1, 8):
            ids = np.random.default_rng(0).integers(5, 30000, (batch, 64))
            ways: dict[str, Work] = {way: _generation(session, ids) for way, session in sessions.items()}
            ways["torch + transformers"] = partial(theirs, ids, NEW)
            yield bench.line("gpu_generation", f"{batch} x 64", "torch + transformers", ways)


def _generation(session: Session, ids: Array) -> Work:
    generator = Generator(session)
    return lambda: generator.generate(ids, max_new_tokens=NEW)


SECTIONS: dict[str, Callable[[Bench, str], Iterator[Line]]] = {
    "gpu_attention": attention,
    "gpu_models": models,
    "gpu_generation": generation,
}


def describe(device: str) -> dict[str, Any]:
    """The GPU, its driver, the versions and the date."""
    name, driver = "no GPU", "none"
    if device == "cuda":
        query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
        name, driver = subprocess.run(query, check=True, capture_output=True, text=True).stdout.strip().split(", ")
    assert peers.torch is not None
    versions = {}
    for library in ("onnxruntime-gpu", *LIBRARIES):
        try:
            versions[library] = importlib.metadata.version(library)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "device": name,
        "driver": driver,
        "cuda": peers.torch.CUDA,
        "python": platform.python_version(),
        "versions": versions,
        "date": datetime.date.today().isoformat(),
    }


def update_page(page: Path, machines: Sequence[Results]) -> None:
    """Put each GPU's tables into a page, between ``<!-- gpu: SECTION -->`` and ``<!-- end -->``."""

    def fill(match: re.Match[str]) -> str:
        parts = [
            f"{_sentence(results)}\n\n{report.markdown(results, match[1])}"
            for results in machines
            if results.of(match[1])
        ]
        return f"<!-- gpu: {match[1]} -->\n" + "\n\n".join(parts) + "\n<!-- end -->"

    text = page.read_text(encoding="utf-8")
    page.write_text(re.sub(r"<!-- gpu: (\w+) -->(.*?)<!-- end -->", fill, text, flags=re.DOTALL), encoding="utf-8")


def _sentence(results: Results) -> str:
    m = results.machine
    versions = ", ".join(f"{name} {version}" for name, version in m["versions"].items())
    return f"{m['device']}, driver {m['driver']}, CUDA {m['cuda']}, Python {m['python']}, {versions}; {m['date']}:"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.on_gpu", description=__doc__)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=list(SECTIONS), metavar="SECTION")
    parser.add_argument("--output", type=Path, default=GPUS, help="folder for the results (docs/benchmarks/gpus)")
    parser.add_argument("--pages", action="store_true", help="measure nothing: write docs/gpu.md's tables")
    options = parser.parse_args(arguments)
    if not options.pages:
        if options.device == "cuda":
            onnxruntime.preload_dlls()
        machine = describe(options.device)
        file = options.output / f"{re.sub(r'[^a-z0-9]+', '-', machine['device'].lower()).strip('-')}.json"
        results = Results.load(file)
        results.machine = machine
        bench = Bench(EFFORT, threads=1)
        for section in options.only:
            results.replace(section, [])
            for line in SECTIONS[section](bench, options.device):
                results.lines.append(line)
                print(report.terminal(results, section), flush=True)
                results.save(file)
    if options.pages or options.output == GPUS:
        update_page(DOCS / "gpu.md", [Results.load(file) for file in sorted(GPUS.glob("*.json"))])
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
