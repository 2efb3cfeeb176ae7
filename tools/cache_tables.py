"""The tables of docs/coverage.md about caches: the forms that a step takes, and the models that have caches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np

import lucid
from lucid import Tensor, nn, ops
from lucid.core.graph.types import Array, DType, TensorType, float16, float32, int64
from lucid.core.sizes.dims import dim
from lucid.core.targets.record import release_text
from lucid.core.targets.runtimes import RUNTIMES
from lucid.export import Target
from lucid.export.builder import Builder
from lucid.export.lowering import Lowering
from lucid.export.target import OPSETS, TARGET_NAMES
from lucid.models.transformer import Transformer
from tests.models import goldens
from tests.models.zoo import ZOO

Row = list[str]

# Forms ----------------------------------------------------------------------------------------------------------------

_N, _L, _P, _C = map(dim, "NLPC")
FAULTS = [fault for runtime in RUNTIMES.values() for fault in runtime.faults.values()]
RELEASES = (Target().onnxruntime, release_text(max(fault.until for fault in FAULTS if fault.until is not None)))
"""The release of onnxruntime that is the default, and the newest that makes a difference."""


def _grown(dtype: DType) -> lucid.Graph:
    new, past = _parts(dtype, _P)
    return lucid.trace(lambda q, k, v, *cache: ops.attention(q, k, v, None, None, *cache, is_causal=True), *new, *past)


def _filled(dtype: DType, **options: Any) -> lucid.Graph:
    new, buffers = _parts(dtype, _C)
    starts = TensorType(int64, (_N,))
    return lucid.trace(lambda *given: ops.buffered_attention(*given, **options), *new, *buffers, starts)


def _parts(dtype: DType, slots: Any) -> tuple[list[TensorType], list[TensorType]]:
    """Queries, keys and values of L new positions, with grouped heads, and keys and values of a cache."""
    new = [TensorType(dtype, (_N, heads, _L, 8)) for heads in (4, 2, 2)]
    return new, [TensorType(dtype, (_N, 2, slots, 8))] * 2


def _written() -> lucid.Graph:
    (_, new, _), (buffer, _) = _parts(float32, _C)
    return lucid.trace(lambda *given: ops.write_at(*given, axis=2), buffer, new, TensorType(int64, (_N,)))


def forms() -> tuple[Row, Iterator[Row]]:
    """By kind of cache, the form that `explain` names, for each target."""
    asked = (
        ("growing", "float32", "attention", _grown(float32)),
        ("growing", "float16", "attention", _grown(float16)),
        ("fixed", "float32, causal", "buffered_attention", _filled(float32)),
        ("fixed", "float32, not causal", "buffered_attention", _filled(float32, is_causal=False)),
        ("fixed", "float16", "buffered_attention", _filled(float16)),
        ("fixed", "the write", "write_at", _written()),
    )
    rows = ([kind, what, *(_by_release(graph, op, to) for to in TARGET_NAMES)] for kind, what, op, graph in asked)
    return ["cache", "step", *(f"`{target}`" for target in TARGET_NAMES)], rows


def _by_release(graph: lucid.Graph, op: str, target: str) -> str:
    """``expanded; from 23: ai.onnx Attention``, and the same for the newest release if it differs."""
    default, newest = (_by_opset(graph, op, target, release) for release in RELEASES)
    return default if newest == default else f"{default}. onnxruntime {RELEASES[1]}: {newest}"


def _by_opset(graph: lucid.Graph, op: str, target: str, release: str) -> str:
    forms = [(opset, _form(graph, op, Target(target, opset, onnxruntime=release))) for opset in OPSETS]
    since = [(form, next(group)[0]) for form, group in groupby(forms, lambda pair: pair[1])]
    return "; ".join(form if opset == OPSETS[0] else f"from {opset}: {form}" for form, opset in since)


def _form(graph: lucid.Graph, op: str, target: Target) -> str:
    return next(decision.taken for decision in reversed(lowered(graph, target).decisions) if decision.op == op)


def lowered(graph: lucid.Graph, target: Target) -> Lowering:
    """A graph as ONNX nodes, without checks, and the forms that were decided on."""
    lowering = Lowering(Builder(graph, target, [value.name for value in graph.inputs], graph.output_names))
    lowering.lower(graph.outputs)
    return lowering


# Models ---------------------------------------------------------------------------------------------------------------


def models() -> Iterator[tuple[str, str, Callable[[], list[float]]]]:
    """Each model that takes caches, its file, and what measures the errors of its steps over a growing and over a fixed cache.

    Where the model has goldens, the error is the difference to the reference's logits for the whole text, relative to
    the largest; else that to its own.
    """
    for name in dict.fromkeys(entry.name for entry in ZOO):
        entry = next(entry for entry in ZOO if entry.name == name)
        kind: Any = entry.read
        if not issubclass(kind, (nn.CausalDecoder, nn.EncoderDecoder)) or issubclass(kind, nn.RecurrentDecoder):
            continue
        case = max((c for c in goldens.cases(entry.variant) if c.kept is None), key=lambda c: c.outputs["logits"].size)
        yield name, entry.file, partial(_errors, entry.load(), case.inputs, case.outputs["logits"])
    lucid.manual_seed(0)
    model = Transformer(50, 16, 2, 32, 2).eval()
    source, text = np.arange(10).reshape(2, 5), np.arange(12).reshape(2, 6)
    logits = model(Tensor(source), Tensor(text)).numpy()
    inputs = {"input_ids": source, "decoder_input_ids": text}
    yield "Transformer (2017)", "models/transformer.py", partial(_errors, model, inputs, logits)


def _errors(model: nn.Module, inputs: dict[str, Array], expected: Array) -> list[float]:
    """Of steps over each kind of cache: a prompt, then one token at a time."""
    largest = float(np.abs(expected).max())
    return [
        float(np.abs(_stepped(model, inputs, capacity) - expected).max()) / largest
        for capacity in (None, expected.shape[1] + 3)
    ]


def _stepped(model: nn.Module, inputs: dict[str, Array], capacity: int | None) -> Array:
    tensors = {name: Tensor(array) for name, array in inputs.items()}
    cache: Any  # of each kind of model its own
    if isinstance(model, nn.EncoderDecoder):
        ids, mask = tensors.pop("decoder_input_ids"), tensors.get("attention_mask")
        cache = model.empty_cache(model.encode(**tensors), capacity)
    else:
        assert isinstance(model, nn.CausalDecoder)
        ids, mask = tensors["input_ids"], None
        cache = model.empty_cache(ids.numpy().shape[0], capacity)
    logits = []
    length = ids.numpy().shape[1]
    prompt = max(1, length // 2)
    for start, end in ((0, prompt), *((i, i + 1) for i in range(prompt, length))):
        if isinstance(model, nn.EncoderDecoder):
            step, cache = model.decode(ids[:, start:end], cache, mask)
        else:
            step, cache = model(ids[:, start:end], past_key_values=cache)
        logits.append(step.numpy())
    return np.concatenate(logits, 1)
