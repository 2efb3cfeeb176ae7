"""`lucid report`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from lucid.cli import calls, show
from lucid.cli.bits_options import FewBits
from lucid.cli.dispatch import command_module
from lucid.cli.errors import OK, usage
from lucid.cli.few_bits import in_few_bits, text_calls
from lucid.cli.options import Reading
from lucid.cli.run import read_arrays
from lucid.cli.source import beside, checkpoint_of, load_model
from lucid.cli.values import check_known, settings
from lucid.cli.values import sizes as read_sizes
from lucid.core.graph.graph import Graph
from lucid.core.graph.types import Array
from lucid.files.atomic import open_regular
from lucid.inspection.report.report import TARGETS
from lucid.inspection.report.report import report as write_report
from lucid.nn.decoding import CausalDecoder
from lucid.nn.module import Module
from lucid.tracing.trace import trace


def run(
    *,
    source: str,
    output: Path | None,
    weights: Path | None,
    reading: Reading,
    arguments: list[str],
    inputs: list[str],
    call: list[str],
    seed: int,
    data: Path | None,
    tokens: Path | None,
    sizes: list[str],
    targets: list[str],
    seconds: float,
    few_bits: FewBits,
    json: bool,
) -> int:
    """Collect and write; returns the exit code."""
    output = output or beside(source, ".html")
    if not output.parent.is_dir():
        raise usage(f"--output: the folder {str(output.parent)!r} does not exist; create it first")
    show.check_apart(output, json)
    given = read_sizes(sizes)
    if given and data is not None:
        raise usage("got both --size and --data, expected one: the data determine the sizes")
    labels = _labels(tokens) if tokens is not None else []
    arrays = read_arrays(data) if data is not None else None
    model = load_model(
        source, settings("--set", arguments), weights, seed, dequantize=few_bits.bits is not None, reading=reading
    )
    small = in_few_bits(model, few_bits, weights or checkpoint_of(source))
    kwargs = calls.arguments(small, inputs, call)
    graph = trace(small, kwargs=kwargs)
    check_known(given, graph.sizes())
    checkpoint, decoder = weights or checkpoint_of(source), isinstance(model, CausalDecoder)
    if arrays is None and not given and checkpoint is not None:
        arrays, known = _sentence(graph, checkpoint)
        labels = labels or known
    chosen = targets or list(TARGETS)
    floating = model if isinstance(model, Module) and small is not model else None
    write_report(
        graph if floating is None else small,
        kwargs=kwargs,
        path=output,
        data=arrays,
        sizes=given,
        tokens=labels,
        targets=chosen,
        seconds=seconds,
        name=source,
        floating=floating,
        calls=None if floating is None else text_calls(few_bits.text, checkpoint, decoder),
    )
    if json:
        show.print_json({"file": str(output), "bytes": show.bytes_of(output), "targets": chosen})
    else:
        show.written(show.console(beside=output), [output])
    return OK


def _sentence(graph: Graph, checkpoint: Path) -> tuple[dict[str, Array] | None, list[str]]:
    """A sentence as the inputs of a model of texts, and its tokens; None for other models, and without a tokenizer."""
    types = {value.name: value.type.dtype.numpy for value in graph.inputs}
    if "input_ids" not in types or not types.keys() <= _OF_TEXTS.keys() or not all(map(find_spec, _NEEDED)):
        return None, []
    try:
        ids, tokens = command_module("texts").sentence(checkpoint)
    except (ValueError, OSError):  # random inputs do, and the page says so
        return None, []
    return {name: _OF_TEXTS[name](ids).astype(dtype) for name, dtype in types.items()}, tokens


_NEEDED = ("tokenizers", "jinja2")  # the extra `chat`
_OF_TEXTS: Mapping[str, Callable[[Array], Array]] = {
    "input_ids": np.asarray,
    "attention_mask": np.ones_like,
    "token_type_ids": np.zeros_like,
}


def _labels(path: Path) -> list[str]:
    with open_regular(path) as file:
        return file.read().decode("utf-8").splitlines()
