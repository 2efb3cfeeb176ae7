"""`to_onnx` and `explain`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import onnx

from lucid.core.graph.graph import Graph
from lucid.core.graph.names import unused_name
from lucid.core.graph.types import DTypeLike, TensorType
from lucid.core.graph.values import Value
from lucid.core.torch_names.argument_names import EXPORTER, torch_names, torch_names_and
from lucid.core.version import __version__
from lucid.core.words.progress import phase
from lucid.export.builder import Builder, Strings, computed
from lucid.export.explain import Explanation, promotions
from lucid.export.half_precision import Halved, halved
from lucid.export.lowering import Lowering
from lucid.export.onnx_file.assemble import Assembled, assemble
from lucid.export.onnx_file.check import check_model, warn_of_weights
from lucid.export.onnx_file.writer import fits_one_file, in_memory, write
from lucid.export.options import ExportOptions
from lucid.export.preprocessing import Preprocessing
from lucid.export.target import ExportError, Target
from lucid.export.widening import refuse_wide_integers
from lucid.tracing.inner_outputs import further_outputs, part_with_outputs, with_outputs
from lucid.tracing.parts import CacheKind, PartName, TracedPart, notes_of, part_of, trace_part
from lucid.tracing.trace import Model, trace, with_known_inputs


@torch_names_and(*EXPORTER)
def to_onnx(
    model: Model | Graph | TracedPart,
    *inputs: Any,
    kwargs: Mapping[str, Any] | None = None,
    part: PartName | None = None,
    cache: CacheKind | None = None,
    capacity: int | None = None,
    outputs: Sequence[str] = (),
    path: str | os.PathLike[str] | None = None,
    target: Target | str = "any",
    opset: int | None = None,
    attention: str = "auto",
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    external_data: bool | Literal["auto"] = "auto",
    dtype: DTypeLike | None = None,
    keep_io_types: bool = True,
    preprocessing: Preprocessing | None = None,
) -> onnx.ModelProto:
    """Export a module, a function or a traced graph to ONNX. Modules are exported in evaluation mode.

    Args:
        model: what to export.
        inputs: one for each positional argument: `lucid.spec("N", "L", 512)`, the tuple alone for float32, or an
            example tensor or array, whose exact shape is then fixed. May be left out for a module that knows its inputs
            (`input_specs()`), such as `nn.MultiHeadAttention`.
        kwargs: arguments by name: specs or examples, which become inputs too, and plain Python values, which become
            part of the model.
        part: of an `nn.EncoderDecoder`, with the names that optimum and transformers.js expect: "encoder", "decoder",
            or "decoder_merged", in which ``use_cache_branch`` says whether there is a cache. Without `cache` the
            decoder is the first step, which takes the encoder's output; with it, any step, and the encoder also
            returns the keys and values that it takes. The page "Key-value cache" has the inputs and outputs of each.
        cache: "growing": export a step of a decoder (`nn.CausalDecoder`), which takes and returns the keys and values
            of earlier positions: inputs ``input_ids``, ``attention_mask``, ``position_ids`` and
            ``past_key_values.{i}.key`` and ``.value``, outputs ``logits``, ``present.{i}.key`` and ``.value``. "fixed":
            the same over buffers of a capacity, position j in slot j; texts padded on the right. For an
            `nn.EncoderDecoder`, the step of its decoder.
        capacity: of "fixed": how many positions the buffers hold; by default symbolic.
        outputs: further outputs: "hidden_states", "hidden_states.7", "attentions", or paths of modules, such as
            "encoder.layer.7"; see `lucid.tracing.inner_outputs.with_outputs`.
        path: write the model to this file. It appears whole or not at all.
        target: "any", "cpu", "cuda", "portable", or a `Target`.
        opset: 17 to 26; by default the target's own (23, and 24 for a fixed cache; 18 for "portable").
        attention: "auto", or insist on "standard" (ONNX Attention), "contrib" (com.microsoft), "expanded" (primitive
            ops).
        input_names, output_names: names for all inputs and outputs; by default those of the arguments, and ``output``.
        external_data: whether weights go to a separate file in the model's folder: True, False, or "auto", which is
            True only beyond 2 GiB.
        dtype: "float16" or "bfloat16": float32 weights are rounded to it, so the file is half as large. On "cuda" the
            model is computed in it; elsewhere, where that gains nothing, in float32, with weights that the runtime
            widens once, when it loads the file. A `WeightWarning` names weights that it cannot hold.
        keep_io_types: with `dtype`, whether float32 inputs and outputs, caches included, stay float32; otherwise they
            are of that type too.
        preprocessing: what computes some of the inputs within the file, such as a tokenizer from texts
            (`lucid.layouts.tokenizing.text_preprocessing`).

    Returns:
        The model. Weights written to a file are not kept in memory as well: with a separate file, or more than 64 MiB
        of weights in the model's own, the larger ones refer to that file (ONNX's external data); ``onnx.load(path)``
        reads them all.

    Raises:
        ExportError: for an option that does not exist or a model that cannot be computed exactly as asked.
        TypeError: for inputs that do not fit `forward`, and options of torch's exporter that are not taken here.
        SymbolicSizeError, TracedValueError: for a forward that needs a number known only at run time.
        OSError: if the file cannot be written; an earlier file is then unchanged.
    """
    for value in inputs:
        if isinstance(value, os.PathLike) or (isinstance(value, str) and value.endswith(".onnx")):
            raise ExportError(
                f"to_onnx: {os.fspath(value)!r} is in the place of an input; write path={os.fspath(value)!r}"
            )
    check_file(path, external_data)
    resolved = Target.of(target, opset, attention)
    traced = traced_part(model, inputs, kwargs, part, cache, capacity, outputs)
    options = ExportOptions(resolved, dtype, keep_io_types, input_names, output_names, preprocessing)
    return lower(traced, options).write(path, external_data)


@torch_names
def explain(
    model: Model | Graph | TracedPart,
    *inputs: Any,
    kwargs: Mapping[str, Any] | None = None,
    part: PartName | None = None,
    cache: CacheKind | None = None,
    capacity: int | None = None,
    target: Target | str = "any",
    opset: int | None = None,
    attention: str = "auto",
    dtype: DTypeLike | None = None,
    keep_io_types: bool = True,
) -> Explanation:
    """Explain the nodes of an export with the same arguments as `to_onnx`, without writing it.

    Returns:
        The form taken for each op that has several, and why the others were refused; where the model computes in
        float64 because of one operand; in which type weights are stored; attention that is written out; and the limits
        of the runtime. It counts no memory, which depends on sizes: `lucid inspect FILE --size N=32` does, also for
        a training step.

    Raises:
        ExportError, SymbolicSizeError, TracedValueError: as `to_onnx`.
    """
    resolved = Target.of(target, opset, attention)
    traced = traced_part(model, inputs, kwargs, part, cache, capacity)
    return lower(traced, ExportOptions(resolved, dtype, keep_io_types)).explain()


@dataclass(frozen=True)
class Lowered:
    """A traced model as a checked ONNX model, which is still to be written."""

    traced: TracedPart
    options: ExportOptions
    half: Halved | None
    assembled: Assembled
    lowering: Lowering

    @property
    def inputs(self) -> Mapping[str, TensorType | Strings]:
        """The types of the inputs by name that a run of the file needs: those without a default."""
        build = self.lowering.build
        return {name: kind for name, kind in build.inputs.items() if name not in build.initializers}

    def explain(self) -> Explanation:
        """The explanation of this export, as the function `explain` returns it."""
        return Explanation(
            self.lowering.build.target,
            tuple(self.lowering.decisions),
            tuple(promotions(self.traced.joint())),
            "" if self.half is None else self.half.note,
            self._limits(),
            tuple(remark for graph in self.traced.graphs for remark in graph.remarks),
        )

    def _limits(self) -> tuple[str, ...]:
        build = self.lowering.build
        return tuple(
            f"{op}: {build.target.runtime.engine} {difference.how}"
            for difference in build.target.runtime.differs
            for op in difference.kernels.split()
            if any((op, kind) in build.operands for kind in difference.types.split())
        )

    def write(self, path: str | os.PathLike[str] | None, external_data: bool | Literal["auto"]) -> onnx.ModelProto:
        """Write the model, if there is a path, and return it, as `to_onnx`."""
        if self.half is not None:
            self.half.warn()
        assembled = self.assembled
        warn_of_weights(assembled.initializers, self.lowering.build.parameters)
        if path is None:
            return in_memory(assembled)
        large = not fits_one_file(assembled)
        if large and external_data is False:
            raise ExportError(
                f"{assembled.weight_bytes / 2**30:.1f} GiB of weights exceed what one ONNX file can hold (2 GiB): "
                'leave external_data="auto"'
            )
        return write(assembled, Path(path), external=large or external_data is True)


def lower(traced: TracedPart, options: ExportOptions) -> Lowered:
    """Choose a form for each op. `Lowered.write` writes the model, `Lowered.explain` reports the choices."""
    half = halved(traced, options)
    with phase("lowering"):
        assembled, lowering = _assembled(traced if half is None else half.traced, options)
    return Lowered(traced, options, half, assembled, lowering)


def traced_part(
    model: Model | Graph | TracedPart,
    inputs: Sequence[Any],
    kwargs: Mapping[str, Any] | None,
    part: PartName | None,
    cache: CacheKind | None,
    capacity: int | None,
    outputs: Sequence[str] = (),
) -> TracedPart:
    outputs = further_outputs(model, outputs)
    if part is not None or cache is not None or capacity is not None:
        chosen = part_of(model, part, cache, capacity, kwargs)
        return trace_part(part_with_outputs(chosen, outputs) if outputs else chosen)
    if outputs:
        if isinstance(model, (TracedPart, Graph)):
            raise ExportError("outputs: got a graph, expected a model, which is traced with them")
        kwargs, model = with_known_inputs(model, inputs, kwargs), with_outputs(model, outputs)
    if isinstance(model, (TracedPart, Graph)) and (inputs or kwargs):
        raise ExportError("to_onnx: got a graph, which has inputs of its own, and others; trace the model with these")
    if isinstance(model, TracedPart):
        return model
    if isinstance(model, Graph):
        return TracedPart(model)
    return TracedPart(trace(model, *inputs, kwargs=kwargs), notes=notes_of(model))


def export_graph(graph: Graph, target: Target) -> tuple[Assembled, Lowering]:
    """A traced graph as a checked model without its weights, and the lowering that made it."""
    lowered = lower(TracedPart(graph), ExportOptions(target))
    return lowered.assembled, lowered.lowering


def _assembled(traced: TracedPart, options: ExportOptions) -> tuple[Assembled, Lowering]:
    graph = traced.joint()
    ins = _names("input_names", [value.name for value in graph.inputs], options.input_names)
    outs = _names("output_names", traced.graph.output_names, options.output_names)
    if options.output_names is None:  # an input may be called "output"
        taken = dict.fromkeys([*ins, *outs], 1)
        outs = [unused_name(f"{name}_out", taken) if name in ins else name for name in outs]
    clash = sorted(set(ins) & set(outs))
    if clash:
        raise ExportError(f"output_names: {', '.join(clash)} are names of inputs too; choose others")
    build = Builder(graph, options.where().for_ops(graph.op_names()), ins, outs)
    lowering = Lowering(build)
    refuse_wide_integers(graph.outputs, build.target)
    if options.preprocessing is not None:
        options.preprocessing.precede(build)
    results = _results(build, traced)
    lowering.lower(results)
    assembled = assemble(build, build.name_outputs(results, outs), __version__, traced.notes)
    check_model(assembled)
    return assembled, lowering


def _results(build: Builder, traced: TracedPart) -> Sequence[Value]:
    """The outputs of the graph; of two graphs the outputs of an If node."""
    if traced.otherwise is None:
        return traced.graph.outputs
    condition, other = traced.otherwise
    names = build.either(
        condition, lambda: build.block_outputs(traced.graph.outputs), lambda: build.block_outputs(other.outputs)
    )
    types = traced.output_types().values()
    return [computed(build, name, kind).to_value() for name, kind in zip(names, types, strict=True)]


def _names(what: str, default: Sequence[str], names: Sequence[str] | None) -> list[str]:
    if names is None:
        return list(default)
    if isinstance(names, str):
        raise ExportError(f"{what}: got the text {names!r}, expected a list of names")
    chosen = list(names)
    if len(chosen) != len(default):
        raise ExportError(f"{what}: got {len(chosen)} names, expected {len(default)} (for {', '.join(default)})")
    repeated = sorted({name for name in chosen if chosen.count(name) > 1})
    if repeated:
        raise ExportError(f"{what}: {', '.join(repeated)} appears more than once; names must be unique")
    if not all(isinstance(name, str) and name for name in chosen):
        raise ExportError(f"{what}: {chosen!r}: expected non-empty strings")
    return chosen


def check_file(path: str | os.PathLike[str] | None, external_data: object) -> None:
    """Refuse where a model cannot be written, before it is traced.

    Raises:
        ExportError: unless `external_data` is True, False or "auto"; for True without a path.
        OSError: for a path that is a folder, or in a folder that does not exist.
    """
    if not isinstance(external_data, bool) and external_data != "auto":
        raise ExportError(f'external_data is {external_data!r}, expected True, False or "auto"')
    if path is not None:
        check_folder(Path(path))
    elif external_data is True:
        raise ExportError("external_data=True writes weights to a file next to the model's: give its path=")


def check_folder(path: Path, example: str = "model.onnx") -> None:
    """Refuse a path that is a folder, or in a folder that does not exist."""
    if not path.parent.is_dir():
        raise FileNotFoundError(f"path {str(path)!r}: the folder {str(path.parent)!r} does not exist; create it first")
    if path.is_dir():
        raise IsADirectoryError(
            f"path {str(path)!r} is a folder, expected the name of a file, such as {str(path / example)!r}"
        )
