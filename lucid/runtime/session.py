"""A session: an exported model ready to run, on the requested providers only."""

from __future__ import annotations

import os
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from pathlib import Path
from typing import Any, Never, TypeAlias

import numpy as np
import onnx
import onnxruntime
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidProtobuf

from lucid.core.graph.types import Array, bfloat16
from lucid.core.sizes.dims import dim, evaluate, names_of
from lucid.core.sizes.readings import Reading, readings
from lucid.core.targets.runtimes import CPU
from lucid.core.words.other_libraries import type_name
from lucid.core.words.progress import phase
from lucid.core.words.safe_text import listed
from lucid.files.utf8_paths import utf8_path
from lucid.ops.tensor.tensor import Tensor
from lucid.runtime import denormals
from lucid.runtime import providers as _providers
from lucid.runtime.adapters import Adapters
from lucid.runtime.changed_models import Model
from lucid.runtime.huge_pages import in_huge_pages
from lucid.runtime.model_file import ModelError, check_model_file, check_names
from lucid.runtime.options import session_options
from lucid.runtime.ort_values import RowsOf, numpy_of, numpy_type, ort_value, read_type, shown_type
from lucid.runtime.requirements import Limits, config_of, extensions_path, limits_of, needs_extensions, without_data
from lucid.runtime.runs import NOT_COMPUTED, NOT_COMPUTED_BOUND, BoundRun, Runs, refuse_index

Provider: TypeAlias = str | tuple[str, Mapping[str, Any]]
"""A provider's name, or its name and onnxruntime's options for it."""

_OPTIONS = (
    "threads",
    "spinning",
    "memory_arena",
    "memory_pattern",
    "prepack",
    "optimize",
    "flush_denormals",
    "huge_pages",
    "config",
    "profile",
    "adapter",
)
_HALF_FLUSHED = (
    "Session: flush_denormals reaches only onnxruntime's worker threads, not the calling one, because another session "
    "was created first in this process and this platform has no other way; create this session first"
)


class Session:
    """A model loaded into onnxruntime. It may be used from many threads at once.

    Args:
        model: a model, its bytes, or the path of a file. A file is checked before onnxruntime reads it; external
            weights must be in its folder.
        providers: "cpu", "cuda" or onnxruntime's full names, in order of preference; the CPU by default. A pair of a
            name and a mapping gives a provider onnxruntime's options for it: ``[("cuda", {"use_tf32": 0})]``.
        threads: threads that compute one op; by default one per physical core.
        spinning: whether threads busy-wait for the next op: faster alone, slower with other thread pools.
        memory_arena: whether freed memory is kept for the next run.
        memory_pattern: whether the memory of a run is planned from the last one with the same sizes.
        prepack: whether weights are copied into the layout that products read fastest. Without it, and with a path,
            weights stay in the file and are mapped into memory: loading is instant, products take longer.
        optimize: whether onnxruntime may rewrite the graph.
        flush_denormals: whether numbers below 1.2e-38 (float32) count as zero, which is faster if there are many. It
            applies while the session runs, in all threads, and not to NumPy. Without glibc on x86-64 it may not reach
            the calling thread; a warning says so.
        huge_pages: whether loaded weights are put into memory pages of 2 MB, which steps of a decoder read faster;
            loading takes longer. Where the system has none (Linux before 6.1, others), nothing changes.
        config: onnxruntime's own config entries, such as ``{"session.qdq_matmulnbits_accuracy_level": "0"}``; unknown
            keys, which onnxruntime would ignore, are errors.
        profile: onnxruntime measures each node and writes the times to a file, whose name begins with this path;
            `end_profile` closes it.
        adapter: a file of `lucid.layouts.write_adapter`, which gives optional inputs to every run, also of a
            `Generator` and of `bind`, unless the run has another one.

    Raises:
        ProviderError: for a provider that does not exist or does not become active; the message says what is missing.
        ModelError: for a file or bytes that are not a model, or a file that refers to data outside its folder; for an
            adapter of another model.
        ModuleNotFoundError: for a model with operators of onnxruntime-extensions, if that is not installed.
        TypeError, ValueError: for an option or config key that does not exist, or a value it cannot have.
    """

    def __init__(
        self,
        model: Model,
        providers: str | Sequence[Provider] | None = None,
        *,
        threads: int | None = None,
        spinning: bool = True,
        memory_arena: bool = True,
        memory_pattern: bool = True,
        prepack: bool = True,
        optimize: bool = True,
        flush_denormals: bool = False,
        huge_pages: bool = False,
        config: Mapping[str, str] | None = None,
        profile: str | os.PathLike[str] | None = None,
        adapter: str | os.PathLike[str] | None = None,
        **unknown: Never,
    ) -> None:
        if unknown:
            raise TypeError(f"Session: option {', '.join(unknown)} does not exist; choose from {', '.join(_OPTIONS)}")
        settings = _options_by_provider(providers)
        chosen = list(settings)
        options = session_options(
            threads=threads,
            spinning=spinning,
            memory_arena=memory_arena,
            memory_pattern=memory_pattern,
            prepack=prepack,
            optimize=optimize,
            flush_denormals=flush_denormals,
            config=config,
            profile=profile,
        )

        self._runs = Runs(flush_denormals)
        with self._runs.mode(), phase("loading into onnxruntime"), in_huge_pages(huge_pages):
            self._session, self._limits = _load(model, options, settings, config or {})
        if flush_denormals and not denormals.AVAILABLE and not denormals.flushing():
            warnings.warn(_HALF_FLUSHED, RuntimeWarning, stacklevel=2)
        inactive = [name for name in chosen if name not in self._session.get_providers()]
        if inactive:
            raise _providers.ProviderError(f"{inactive[0]} did not start: {_providers.why_inactive(inactive[0])}")
        self.providers: tuple[str, ...] = tuple(chosen)
        self.inputs = {value.name: read_type(value) for value in self._session.get_inputs()}
        self.optional = {value.name: read_type(value) for value in self._session.get_overridable_initializers()}
        self.outputs = {value.name: read_type(value) for value in self._session.get_outputs()}
        self._names = list(self.outputs)
        bounded = names_of(bound.size for bound in self._limits.refusing)
        self._readings = _readings((size for _, shape in self.inputs.values() for size in shape), bounded)
        self._adapters, self.adapter = Adapters(self.optional), adapter
        self._adapters.values(adapter)
        self.memory = _providers.memory(chosen[0])

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Run on tensors or arrays, by position or name.

        Returns:
            A Tensor, or a tuple of Tensors if the model has several outputs.
        """
        if len(arguments) > len(self.inputs):
            raise TypeError(
                f"Session: got {len(arguments)} inputs, expected {len(self.inputs)} ({', '.join(self.inputs)})"
            )
        feeds = dict(zip(self.inputs, arguments, strict=False))
        repeated = feeds.keys() & named.keys()
        if repeated:
            raise TypeError(f"Session: input {', '.join(sorted(repeated))} is given both by position and by name")
        results = self.run(feeds | named)
        tensors = tuple(map(Tensor.from_array, results.values()))
        return tensors[0] if len(tensors) == 1 else tensors

    def __repr__(self) -> str:
        inputs, outputs = (
            ", ".join(map(shown_type, values)) for values in (self._session.get_inputs(), self._session.get_outputs())
        )
        return f"Session({inputs}) -> ({outputs}) on {', '.join(self.providers)}"

    def run(
        self, inputs: Mapping[str, Tensor | Array], adapter: str | os.PathLike[str] | None = None
    ) -> dict[str, Array]:
        """Run on arrays or tensors by input name; returns arrays by output name.

        Args:
            inputs: those of the model. Those in `optional` may be left out: the file has a default for each.
            adapter: a file of `lucid.layouts.write_adapter`, which gives optional inputs; by default that of the
                session. It stays mapped for later runs.

        Raises:
            KeyError: for missing or unknown input names.
            TypeError: for inputs that are not given by name.
            ModelError: for a file that holds no adapter for this model.
            TypeError, ValueError: for an array of another type or shape than its input, different sizes for one
                symbolic size, a size for which the model has no positions, one outside of the bounds in its file, a
                size of 0 where onnxruntime does not compute the model for it, or an index outside of its table.
            RunCancelled: if another thread called `cancel`.
        """
        if not isinstance(inputs, Mapping):
            raise TypeError(self._misplaced(inputs, adapter))
        arrays = {name: np.asarray(value) for name, value in inputs.items()}
        self._check({name: (array.dtype, array.shape) for name, array in arrays.items()})
        try:
            options = self._adapters.options(self.adapter if adapter is None else adapter)
            results = self._runs.run(lambda options: self._results(arrays, options), options)
        except NOT_COMPUTED as error:
            if unfit := self._beyond_limits(arrays) or self._empty(arrays):
                raise ValueError(f"Session: {unfit}") from error
            refuse_index(error, arrays)
            raise
        return dict(zip(self.outputs, results, strict=True))

    def _misplaced(self, inputs: object, adapter: object) -> str:
        """The message about inputs that are not given by name, or behind the outputs as onnxruntime has them."""
        shown = f"session.run({{{', '.join(f'{name!r}: array' for name in self.inputs)}}})"
        if isinstance(adapter, Mapping):
            names = ", ".join(map(repr, self.outputs))
            return (
                f"Session.run: inputs come first, outputs are not chosen: write {shown}; it gives all by name: {names}"
            )
        by_place = f"session({', '.join(self.inputs)})"
        return f"Session.run: got {type_name(inputs)}, expected arrays by input name: {shown}; by place: {by_place}"

    def _beyond_limits(self, arrays: Mapping[str, Array]) -> str:
        """Which input is larger than the file says it may be, and by how much; empty if none is."""
        for name, (_, shape) in self.inputs.items():
            for axis, (size, count) in enumerate(zip(shape, arrays[name].shape, strict=True)):
                if isinstance(size, str) and count > self._limits.explaining.get(size, count):
                    most = f"at most {self._limits.explaining[size]} positions"
                    return f"input {name} has {size} = {count} at axis {axis}, {most}; truncate the input"
        return ""

    def _empty(self, arrays: Mapping[str, Array]) -> str:
        """The message about an empty input; an empty text if none is."""
        for name, (_, shape) in self.inputs.items():
            for axis, (size, count) in enumerate(zip(shape, arrays[name].shape, strict=True)):
                if not count:
                    return (
                        f"input {name} has {size} = 0 at axis {axis}, and onnxruntime computes this model for no empty "
                        'inputs; if attention is the reason, export it with to_onnx(..., attention="expanded")'
                    )
        return ""

    def run_unchecked(self, inputs: Mapping[str, Array]) -> list[Array]:
        """Run on arrays by input name without any check; arrays in the order of the outputs.

        For callers whose arrays are right and whose runs may be as short as the checks. Inputs with a default may be
        left out; the session's adapter gives none of them.
        """
        with self._runs.mode():
            results: list[Array] = self._session.run(self._names, inputs)  # None would list the names again
        return results

    def _results(self, arrays: Mapping[str, Array], options: onnxruntime.RunOptions) -> list[Array]:
        if any(kind == bfloat16 for kind, _ in (*self.inputs.values(), *self.outputs.values())):
            values = {name: ort_value(array) for name, array in arrays.items()}
            return list(map(numpy_of, self._session.run_with_ort_values(list(self.outputs), values, options)))
        results: list[Array] = self._session.run(None, arrays, options)
        return results

    def run_values(self, inputs: Mapping[str, Any], kept: Collection[str]) -> dict[str, Any]:
        """Run on onnxruntime's OrtValues by input name; OrtValues by output name.

        Outputs named in `kept` stay in the memory of the provider that computed them; the others come to the CPU's.

        Raises:
            KeyError, TypeError, ValueError, RunCancelled: as `run`.
        """
        outputs = {name: self.memory if name in kept else "cpu" for name in self.outputs}
        bound = self.bind(inputs, outputs)
        try:
            bound.run()
        except NOT_COMPUTED_BOUND as error:
            refuse_index(error, {name: numpy_of(inputs[name]) for name in self.inputs})
            raise
        return bound.outputs()

    def bind(self, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> BoundRun:
        """Bind OrtValues once, for any number of runs that read and write their memory where it is.

        Args:
            inputs: OrtValues by input name, or rows of one (`ort_values.RowsOf`), which must be kept as long as the
                binding. One that shares memory with an array (`ort_values.ort_value`) is changed by writing to the
                array.
            outputs: by output name, an OrtValue or rows of one that receive it, which may be one of the inputs if the
                model writes it in place; or the name of a device, on which each run makes a new one.

        Raises:
            KeyError, TypeError, ValueError: as `run`.
        """
        inputs = {**self._adapters.values(self.adapter), **inputs}
        whole = {name: value.value if isinstance(value, RowsOf) else value for name, value in inputs.items()}
        self._check({name: (numpy_type(whole[name]), tuple(value.shape())) for name, value in inputs.items()})
        binding = self._session.io_binding()
        copied = {}
        for name, value in inputs.items():
            if isinstance(value, RowsOf):
                binding.bind_input(name, *value.place)
            elif value.device_name() == "cpu" != self.memory:
                copied[name] = value
            else:
                binding.bind_ortvalue_input(name, value)
        for name, place in outputs.items():
            if isinstance(place, str):
                binding.bind_output(name, place)
            elif isinstance(place, RowsOf):
                binding.bind_output(name, *place.place)
            else:
                binding.bind_ortvalue_output(name, place)
        return BoundRun(tuple(outputs), binding, self._session, self._runs, copied)

    def cancel(self) -> None:
        """Stop all current runs, between two nodes. Later runs are not affected."""
        self._runs.cancel()

    def end_profile(self) -> Path:
        """Stop measuring, and return the file with the times, in the format of Chrome's traces. Needs `profile`."""
        return Path(self._session.end_profiling())

    def placement(self) -> dict[str, str]:
        """The provider that computes each node, by node name, after onnxruntime has rewritten the graph."""
        parts = self._session.get_provider_graph_assignment_info()
        return {node.name: part.ep_name for part in parts for node in part.get_nodes()}

    def elsewhere(self) -> dict[str, str]:
        """The nodes that are not computed by the first provider requested: a fallback that costs copies."""
        return {node: provider for node, provider in self.placement().items() if provider != self.providers[0]}

    def _check(self, inputs: Mapping[str, tuple[np.dtype[Any], tuple[int, ...]]]) -> None:
        types = self.inputs | {name: kind for name, kind in self.optional.items() if name in inputs}
        missing, unknown = sorted(types.keys() - inputs.keys()), sorted(inputs.keys() - types.keys())
        if missing or unknown:
            raise KeyError(
                f"Session: inputs missing: {listed(missing, 9) or 'none'}; unknown: {listed(unknown, 9) or 'none'}; "
                f"the model takes {listed(self.inputs, 9)}"
            )
        sizes: dict[str, tuple[int, str]] = {}
        for name, (dtype, shape) in types.items():
            given_type, lengths = inputs[name]
            if dtype is not None and given_type != dtype.numpy:
                raise TypeError(f"Session: input {name} has dtype {given_type}, expected {dtype}; use .astype(...)")
            fits = len(lengths) == len(shape) and all(
                n == size for n, size in zip(lengths, shape, strict=True) if isinstance(size, int)
            )
            if not fits:
                shown = ", ".join(str(size) for size in shape)
                raise ValueError(f"Session: input {name} has shape {list(lengths)}, expected [{shown}]")
            for axis, (size, n) in enumerate(zip(shape, lengths, strict=True)):
                known, where = sizes.setdefault(size, (n, f"{name} axis {axis}")) if isinstance(size, str) else (n, "")
                if known != n:
                    raise ValueError(
                        f"Session: input {name} has size {n} at axis {axis}, expected {size} = {known}, as in {where}"
                    )
        for text, reading in self._readings.items():
            n, where = sizes[text]
            try:
                value = reading.value(n, {})
            except ValueError as error:
                raise ValueError(f"Session: input {where} has size {n}, {error}") from None
            known, other = sizes.setdefault(reading.name, (value, where))
            if known != value:
                raise ValueError(
                    f"Session: input {where} has size {n}, expected {text} with {reading.name} = {known}, as in {other}"
                )
        for bound in self._limits.refusing:
            if names_of(bound[:1]) <= sizes.keys():
                bound.check("Session", evaluate(bound.size, {name: n for name, (n, _) in sizes.items()}))


def _readings(sizes: Iterable[int | str | None], bounded: Set[str]) -> dict[str, Reading]:
    """How the value of a name is read from sizes such as ``2*L + 1``, by their text.

    Sums such as ``L + 1`` are read if the name has bounds: other exporters write some that do not hold.
    """
    by_text: dict[str, Reading] = {}
    for text in dict.fromkeys(size for size in sizes if isinstance(size, str)):
        with suppress(ValueError):  # files of other exporters may have any text
            for reading in readings([(dim(text),)]):
                holds = reading.times > 1 or (reading.name in bounded and text != reading.name)
                if holds and isinstance(reading.rest, int):
                    by_text[text] = reading
    return by_text


def _options_by_provider(providers: str | Sequence[Provider] | None) -> dict[str, dict[str, str]]:
    """The full names of the providers, which are all available, each with its options."""
    requested: Sequence[Provider] = (
        ["cpu"] if providers is None else [providers] if isinstance(providers, str) else providers
    )
    if not requested:
        raise _providers.ProviderError('Session: providers is empty; name at least one, such as "cpu"')
    chosen: dict[str, dict[str, str]] = {}
    for one in requested:
        match one:
            case str(name) | [str(name), {}]:
                settings = {} if isinstance(one, str) else {key: str(value) for key, value in one[1].items()}
                chosen[_providers.full_name(name)] = settings
                if settings and _providers.full_name(name) == CPU:
                    raise ValueError(
                        f"Session: {CPU} has no option {', '.join(settings)}, and onnxruntime would ignore it; "
                        f"Session's own arguments are {', '.join(_OPTIONS)}"
                    )
            case _:
                raise TypeError(
                    f'Session: providers has {one!r}, expected a name such as "cpu", or a pair of a name and a '
                    'mapping of its options, such as ("cuda", {"use_tf32": 0})'
                )
    _providers.check_available(list(chosen))
    return chosen


def _load(
    model: Model,
    options: onnxruntime.SessionOptions,
    providers: Mapping[str, Mapping[str, str]],
    config: Mapping[str, str],
) -> tuple[Any, Limits]:
    """onnxruntime's session, and the largest values of the model's symbolic sizes.

    It loads again if loading fails because an export has replaced the file meanwhile: that export may have removed
    the side file of the model that was opened first.
    """
    named = _providers.register(options, providers)
    registered = False
    while True:
        version = _version(model)
        try:
            source, about = _source(model)
            if needs_extensions(about) and not registered:
                options.register_custom_ops_library(extensions_path())  # once for an options object
                registered = True
            for key, value in config_of(about).items():
                if key not in config:  # the caller's own entries count
                    options.add_session_config_entry(key, value)
            return onnxruntime.InferenceSession(source, options, named), limits_of(about)
        except Exception as error:
            if version is None or version == _version(model):
                if isinstance(error, InvalidProtobuf):
                    raise ModelError(
                        "Session: the bytes are not an ONNX model; check that the file was read in full"
                    ) from error
                raise


def _version(model: Model) -> tuple[int, ...] | None:
    """The version of a file, by which a replacement is noticed; None if there is no file."""
    if not isinstance(model, (str, os.PathLike)):
        return None
    try:
        status = os.stat(model)
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _source(model: Model) -> tuple[bytes | str, onnx.ModelProto]:
    """The model as onnxruntime reads it, and without its large data."""
    if isinstance(model, onnx.ModelProto):
        if any(tensor.data_location == onnx.TensorProto.EXTERNAL for tensor in model.graph.initializer):
            raise ValueError(
                "Session: this model's weights are in a side file; give the path of the .onnx file instead"
            )
        serialized: bytes = model.SerializeToString()
        return serialized, model
    if isinstance(model, bytes):
        slim = without_data(model)
        check_names(slim, "Session")
        return model, slim
    if not isinstance(model, (str, os.PathLike)):
        raise TypeError(
            f"Session: the model has type {type(model).__name__}, expected an onnx.ModelProto, its bytes or a path"
        )
    about = check_model_file(Path(model))
    return utf8_path(model), about
