"""Running an exported training step: weights and the optimizer's state stay in onnxruntime's memory between steps."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from lucid.core.graph.types import Array, show_shape
from lucid.core.process.interrupts import uninterrupted
from lucid.files.checksums import checked, with_checksum
from lucid.files.weights import load, save
from lucid.ops.tensor.tensor import Tensor
from lucid.runtime.changed_models import Model, copied, inner_values, with_inner_values
from lucid.runtime.model_file import bytes_of, stored_tensors
from lucid.runtime.ort_values import numpy_of, ort_value, placed
from lucid.runtime.requirements import outside, table_rows
from lucid.runtime.session import Provider, Session
from lucid.runtime.stepping import Carried
from lucid.runtime.update_file import in_two, overwritten

LOSS, NORM, STEP = "loss", "gradient_norm", "step"
FILE, NOTES = "step_file", "notes"
"""Further entries of a checkpoint: a hash of its step's file, and the writer's notes."""
NEW = ("new_weights.", "new_state.")
_AT_ONCE = 128  # inner values of a step that are looked at in one run


class TrainingError(FloatingPointError):
    """A loss or a gradient that is not finite; the weights and the state are those before the step."""


class Training:
    """Trains by a file of `lucid.export.training_step`.

    ::

        training = lucid.runtime.Training("step.onnx", model.state_dict())
        for batch in batches:
            loss = training.step(**batch)
        training.save("checkpoint.safetensors")
        model.load_state_dict(training.weights(), strict=False)

    Args:
        model: the file, its bytes, or the model.
        start: the weights by name; those that are not trained are ignored, and the state begins with zeros. Or
            the path of a checkpoint of `save`, which is continued.
        providers, options: as for `Session`.

    Attributes:
        steps: how many steps have been made, which schedules count.
        notes: what the checkpoint was saved with.

    Raises:
        ValueError: for a model that is no training step, or a checkpoint of another one.
        KeyError: listing weights, and of a checkpoint parts of the state, that are missing.
        TypeError, ValueError: for one of another element type or shape.
        ModelError, ProviderError, WeightsError, OSError: as `Session` and `lucid.load`; WeightsError also for a
            checkpoint in which a byte has changed since it was written.
    """

    def __init__(
        self,
        model: Model,
        start: Mapping[str, Tensor | Array] | str | os.PathLike[str],
        providers: str | Sequence[Provider] | None = None,
        **options: Any,
    ) -> None:
        parts = in_two(model, (LOSS, NORM))
        if parts is None:
            raise ValueError(f"Training: got {Session(model)!r}, expected a file of lucid.export.training_step")
        gradients, update, folder = parts
        # A pattern of memory is a second copy of what the first step took.
        options = {"memory_pattern": False, **options, "config": {**(options.get("config") or {}), **folder}}
        self._model, self._settings = model, {"providers": providers, **options}
        self._gradients = Session(_as_bytes(gradients), **self._settings)
        self._update = Session(_as_bytes(update), **self._settings)
        self._weights, self._state = (
            [name.removeprefix(group) for name in self._update.outputs if name.startswith(group)] for group in NEW
        )
        self._new = {name: f"{NEW[0]}{name}" for name in self._weights} | {
            name: f"{NEW[1]}{name}" for name in self._state
        }
        in_place = overwritten(update, self._new) if self._update.memory == "cpu" else ()
        self._in_place = [name for name in self._new if name in in_place]
        self._rows = table_rows(gradients)
        if isinstance(start, Mapping):
            zeros = {name: np.zeros(self._shape(name), np.float32) for name in self._state}
            arrays = {**{name: np.asarray(value) for name, value in start.items()}, **zeros}
            self.steps, self.notes = 0, ""
        elif not isinstance(start, (str, os.PathLike)):
            raise TypeError(
                f"Training: start is {type(start).__name__}, expected weights by name, as model.state_dict(), or a path"
            )
        else:
            arrays = load(Path(start))
            if STEP not in arrays:
                raise KeyError(f"{os.fspath(start)}: lacks {STEP}, expected a checkpoint of Training.save")
            arrays = checked(arrays, start)
            if bytes(arrays.get(FILE, b"")) != self._file:
                raise ValueError(
                    f"{os.fspath(start)}: is a checkpoint of another training step: its file has other frozen weights "
                    "or nodes; give the file that it was trained by, of which only numbers such as rates may differ"
                )
            self.steps, self.notes = int(arrays[STEP]), bytes(arrays[NOTES]).decode()
        self._carried = Carried(dict(self._placed(arrays, self._new)))

    def _shape(self, name: str) -> tuple[Any, ...]:
        return self._update.outputs[self._new[name]][1]

    def _placed(self, arrays: Mapping[str, Array], names: Mapping[str, str]) -> Iterator[tuple[str, Any]]:
        missing = [name for name in names if name not in arrays]
        if missing:
            raise KeyError(
                f"Training: start lacks {', '.join(missing)}; give model.state_dict(), or a checkpoint of save"
            )
        for name in names:
            array = arrays[name]
            if array.dtype != np.float32 or array.shape != self._shape(name):
                expected = show_shape(self._shape(name))
                raise ValueError(f"Training: {name} is {array.dtype}{list(array.shape)}, expected float32{expected}")
            yield (
                name,
                placed(array.copy(), self._update.memory),
            )  # a copy: a run may not read memory that others change

    def step(self, **inputs: Tensor | Array) -> float:
        """Make one step, and return the loss before it.

        Args:
            inputs: those of the loss, by name.

        Raises:
            TrainingError: for a loss or gradients with NaN or infinity; it names the step and the first layer that gave
                it. Nothing is changed then.
            KeyError, TypeError, ValueError, RunCancelled: as `Session.run`. ValueError also for an id, such as -1, of
                which a table has no row.
        """
        arrays = {name: np.asarray(value) for name, value in inputs.items()} | {STEP: np.array(self.steps)}
        if wrong := outside(self._rows, arrays):
            raise ValueError(f"Training: {wrong}")
        carried = {**self._carried.values, STEP: ort_value(arrays[STEP])}
        values = {name: ort_value(array) for name, array in arrays.items() if name != STEP}
        values |= {name: value for name, value in carried.items() if name in self._gradients.inputs}
        results = self._gradients.run_values(values, kept=self._update.inputs.keys() - {LOSS, NORM})
        loss, norm = (float(numpy_of(results[name])) for name in (LOSS, NORM))
        if not (math.isfinite(loss) and math.isfinite(norm)):
            what = f"the loss is {loss:g}" if not math.isfinite(loss) else f"the norm of the gradients is {norm:g}"
            where = self._first_not_finite(arrays)
            raise TrainingError(
                f"Training: at step {self.steps} {what}{where and ', first in ' + where}; weights and state are those "
                "before the step; look at its inputs, take a lower rate, or clip the gradients"
            )
        values = {name: (carried | results)[name] for name in self._update.inputs}
        in_place = {name: carried[name] for name in self._in_place}
        places = {new: in_place.get(name, self._update.memory) for name, new in self._new.items()}
        bound = self._update.bind(values, places)
        with uninterrupted():  # of a half step, some weights would be new
            bound.run()
            new = bound.outputs()
            values = {name: new[output] for name, output in self._new.items()} | in_place
            self._carried, self.steps = Carried(values), self.steps + 1
        return loss

    def weights(self) -> dict[str, Array]:
        """The trained weights by name, as `Module.load_state_dict(..., strict=False)` takes them."""
        return {name: numpy_of(self._carried.values[name]).copy() for name in self._weights}

    def evaluate(self, session: Session, **inputs: Tensor | Array) -> dict[str, Array]:
        """The outputs of a file of `lucid.export.evaluation_step` with the weights as they are now, by name.

        Args:
            session: of the file.
            inputs: those of its function, by name.

        Raises:
            KeyError, TypeError, ValueError, RunCancelled: as `Session.run`.
        """
        values = {name: value for name, value in self._carried.values.items() if name in session.inputs}
        values |= {name: ort_value(np.asarray(value)) for name, value in inputs.items()}
        return {name: numpy_of(value) for name, value in session.run_values(values, kept=()).items()}

    def save(self, path: str | os.PathLike[str], notes: str = "") -> None:
        """Write weights, state and the number of steps as a safetensors file, which appears whole or not at all.

        It has a checksum, so that a damaged file is not continued.

        Args:
            path: where to write.
            notes: what `notes` of a training has that continues it.

        Raises:
            OSError: if it cannot be written, as on a full disk; an earlier file is then unchanged.
        """
        arrays = {name: numpy_of(value) for name, value in self._carried.values.items()}
        about = {FILE: np.frombuffer(self._file, np.uint8), NOTES: np.frombuffer(notes.encode(), np.uint8)}
        save(path, with_checksum({**arrays, **about, STEP: np.array(self.steps)}))

    @cached_property
    def _file(self) -> bytes:
        """The SHA-256 of the step: the kinds of its nodes, and its tensors except single numbers, such as rates."""
        model: onnx.ModelProto
        if isinstance(self._model, (str, os.PathLike)):
            model, stored = stored_tensors(self._model)
        else:
            model = onnx.ModelProto.FromString(self._model) if isinstance(self._model, bytes) else self._model
            stored = {tensor.name: bytes_of(tensor) for tensor in model.graph.initializer}
        digest = hashlib.sha256(" ".join(node.op_type for node in model.graph.node).encode())
        for tensor in model.graph.initializer:
            if math.prod(tensor.dims) > 1:
                digest.update(f"\0{tensor.name} {tensor.data_type} {tensor.dims}\0".encode())
                digest.update(stored[tensor.name])
        return digest.digest()

    def _first_not_finite(self, arrays: Mapping[str, Array]) -> str:
        """The first value with NaN or positive infinity: an input, or a node's. Negative infinity may be a mask."""
        inputs = [name for name, array in arrays.items() if _not_finite(array)]
        if inputs:
            return f"the input {inputs[0]}"
        names = inner_values(self._model)
        feeds = {**arrays, **{name: numpy_of(value) for name, value in self._carried.values.items()}}
        for first in range(0, len(names), _AT_ONCE):
            model, config, shown = with_inner_values(self._model, names[first : first + _AT_ONCE])
            results = Session(model, **{**self._settings, "config": {**self._settings["config"], **config}}).run(feeds)
            for name in shown:
                if _not_finite(results[name]):
                    return self._input_below_0(name, arrays) or name
        return ""

    def _input_below_0(self, name: str, arrays: Mapping[str, Array]) -> str:
        """The input with a negative index, for which a loss chooses NaN; empty if the value is no such choice."""
        nodes = {output: node for node in copied(self._model)[0].graph.node for output in node.output}
        seen, waiting = set[str](), list(nodes[name].input[:1]) if nodes[name].op_type == "Where" else []
        while waiting:
            value = waiting.pop()
            if value in nodes and value not in seen:
                waiting += nodes[value].input
            elif value in arrays and arrays[value].dtype.kind == "i" and (arrays[value] < 0).any():
                below = sorted({*arrays[value][arrays[value] < 0].tolist()})
                return f"the input {value}: {' or '.join(map(str, below[-3:]))} is the index of nothing"
            seen.add(value)
        return ""


def _as_bytes(model: onnx.ModelProto) -> bytes:
    serialized: bytes = model.SerializeToString()
    return serialized


def _not_finite(array: Array) -> bool:
    return array.dtype.kind == "f" and not (array < np.inf).all()
