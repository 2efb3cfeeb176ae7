"""Decode steps over an eager model or a session, with one interface.

A step takes a cache and returns a longer one; it does not change the first. The names of a session's inputs and outputs
are those of `to_onnx(model, cache="growing")`, optimum and onnxruntime-genai.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from lucid.generation.prompts import Ids
from lucid.nn import Cache, CausalDecoder
from lucid.ops.tensor import Tensor
from lucid.runtime.session import Session
from lucid.runtime.stepping import Carried, Stepping

StepLogits = npt.NDArray[np.floating[Any]]
C = TypeVar("C")


class Stepper(Protocol[C]):
    """A decoder that takes some tokens at a time, over a growing cache."""

    def empty_cache(self, batch: int) -> C:
        """The cache before the first token."""
        ...

    def step(self, input_ids: Ids, attention_mask: Ids, position_ids: Ids, cache: C) -> tuple[StepLogits, C]:
        """Take the next tokens.

        Args:
            input_ids: (N, L), the new tokens only.
            attention_mask: (N, P + L), of the tokens in the cache and the new ones.
            position_ids: (N, L).
            cache: of P tokens.

        Returns:
            The logits after the last token (N, vocab), and the cache of P + L tokens.

        Raises:
            ValueError: for a cache of another model or batch.
        """
        ...

    def reordered(self, cache: C, rows: Ids) -> C:
        """The cache whose row i is row rows[i] of this one."""
        ...


class EagerStepper:
    """Steps of a model that runs on NumPy."""

    def __init__(self, model: CausalDecoder) -> None:
        self._model = model

    def empty_cache(self, batch: int) -> list[Cache]:
        return self._model.empty_cache(batch)

    def step(
        self, input_ids: Ids, attention_mask: Ids, position_ids: Ids, cache: list[Cache]
    ) -> tuple[StepLogits, list[Cache]]:
        ids, mask, positions = map(Tensor.from_array, (input_ids, attention_mask, position_ids))
        logits, cache = self._model(ids, mask, positions, past_key_values=cache)
        return logits.numpy()[:, -1], cache

    def reordered(self, cache: list[Cache], rows: Ids) -> list[Cache]:
        def taken(part: Tensor) -> Tensor:
            return Tensor.from_array(part.numpy()[rows])

        return [layer._replace(key=taken(layer.key), value=taken(layer.value)) for layer in cache]


class SessionStepper:
    """Steps of an exported model in onnxruntime; the cache stays in onnxruntime's memory."""

    def __init__(self, session: Session) -> None:
        past = [name for name in session.inputs if re.fullmatch(r"past_key_values\.\d+\.(key|value)", name)]
        carried = {name: name.replace("past_key_values", "present") for name in past}
        needed, known = {"input_ids", "attention_mask"}, {"input_ids", "attention_mask", "position_ids", *past}
        inputs, outputs = session.inputs.keys(), session.outputs.keys()
        if not past or not needed <= inputs <= known or not {"logits", *carried.values()} <= outputs:
            raise ValueError(
                f"Generator: the session takes {_some(session.inputs)} and gives {_some(session.outputs)}; expected "
                "input_ids, attention_mask, position_ids, past_key_values.{i}.key and .value, and logits, "
                'present.{i}.key and .value; export with to_onnx(model, cache="growing")'
            )
        fixed = [name for name in past if session.inputs[name][1][2:3] == session.outputs[carried[name]][1][2:3]]
        if fixed:
            raise ValueError(
                f"Generator: the session's input {fixed[0]} has a fixed capacity, expected a cache that grows; export "
                'with to_onnx(model, cache="growing")'
            )
        self._stepping = Stepping(session, carried)
        self._types = {name: kind.numpy for name, (kind, _) in session.inputs.items() if kind is not None}
        self._heads = {name: _heads_of(name, session.inputs[name][1]) for name in past}

    def empty_cache(self, batch: int) -> Carried:
        return self._stepping.zeros({name: (batch, heads, 0, width) for name, (heads, width) in self._heads.items()})

    def step(
        self, input_ids: Ids, attention_mask: Ids, position_ids: Ids, cache: Carried
    ) -> tuple[StepLogits, Carried]:
        given = {"input_ids": input_ids, "attention_mask": attention_mask, "position_ids": position_ids}
        inputs = {name: array.astype(self._types[name]) for name, array in given.items() if name in self._types}
        outputs, cache = self._stepping.run(inputs, cache)
        return outputs["logits"][:, -1], cache

    def reordered(self, cache: Carried, rows: Ids) -> Carried:
        return self._stepping.rows(cache, rows)


def stepper(model: CausalDecoder | Session) -> Stepper[Any]:  # Any: a stepper is handed only caches of its own
    """The stepper of a model.

    Raises:
        TypeError: for anything but a decoder or a session. ValueError: for a session of another kind of model.
    """
    if isinstance(model, Session):
        return SessionStepper(model)
    if isinstance(model, CausalDecoder):
        return EagerStepper(model)
    raise TypeError(
        f"Generator: got {type(model).__name__}, expected an nn.CausalDecoder or a lucid.runtime.Session; "
        'open a file with lucid.runtime.Session("model.onnx")'
    )


def _heads_of(name: str, shape: tuple[int | str | None, ...]) -> tuple[int, int]:
    """The number of heads and their width in a cache (N, H, P, d)."""
    match shape:
        case (_, int(heads), _, int(width)):
            return heads, width
    raise ValueError(
        f"Generator: the session's input {name} has shape {list(shape)}, expected [N, H, P, d] with fixed H and d; "
        'export with to_onnx(model, cache="growing")'
    )


def _some(names: Mapping[str, object]) -> str:
    """The first names of many."""
    return ", ".join([*list(names)[:4], *(["..."] if len(names) > 4 else [])])
