"""Steps of a session whose outputs are inputs of the next step, without a copy to NumPy: a decoder and its cache."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import helper

from lucid.core.graph.types import Array
from lucid.runtime.ort_values import numpy_of, ort_value
from lucid.runtime.session import Session


@dataclass(frozen=True)
class Carried:
    """The values that one step passes to the next: onnxruntime's OrtValues by input name. They never change."""

    values: Mapping[str, Any]


class Stepping:
    """A session that is run step by step.

    Args:
        session: the model.
        carried: which outputs become inputs of the next step, by input name: ``{"past_key_values.0.key":
            "present.0.key"}``. They are tensors whose first axis is the batch.
    """

    def __init__(self, session: Session, carried: Mapping[str, str]) -> None:
        self._session, self._carried = session, dict(carried)
        self._takes: Session | None = None

    def zeros(self, shapes: Mapping[str, tuple[int, ...]]) -> Carried:
        """Zeros of these shapes by input name, for the first step; a shape may have no elements."""
        return Carried({name: ort_value(np.zeros(shape, self._dtype(name))) for name, shape in shapes.items()})

    def run(self, inputs: Mapping[str, Array], carried: Carried) -> tuple[dict[str, Array], Carried]:
        """One step.

        Args:
            inputs: all inputs that are not carried, by name.
            carried: what the step before returned.

        Returns:
            All outputs that are not carried, by name; and what the next step needs.

        Raises:
            KeyError, TypeError, ValueError: for names, element types or shapes that are not the model's, such as values
                carried by another model.
        """
        values = {name: ort_value(array) for name, array in inputs.items()}
        results = self._session.run_values({**values, **carried.values}, kept=self._carried.values())
        following = Carried({name: results.pop(output) for name, output in self._carried.items()})
        return {name: numpy_of(value) for name, value in results.items()}, following

    def rows(self, carried: Carried, rows: npt.NDArray[np.int64]) -> Carried:
        """These rows (M,) of the carried values, in this order, as a batch of M: how beams are reordered.

        A Gather takes them in the provider's memory.
        """
        if self._takes is None:
            self._takes = self._row_taker()
        taken = self._takes.run_values({**carried.values, _ROWS: ort_value(rows)}, kept=self._takes.outputs)
        return Carried({name.removesuffix(_TAKEN): value for name, value in taken.items()})

    def _row_taker(self) -> Session:
        int64 = helper.np_dtype_to_tensor_dtype(np.dtype(np.int64))
        inputs, outputs, nodes = [helper.make_tensor_value_info(_ROWS, int64, ["M"])], [], []
        for name in self._carried:
            _, (_, *sizes) = self._session.inputs[name]
            code = helper.np_dtype_to_tensor_dtype(self._dtype(name))
            inputs.append(helper.make_tensor_value_info(name, code, ["N", *sizes]))
            outputs.append(helper.make_tensor_value_info(name + _TAKEN, code, ["M", *sizes]))
            nodes.append(helper.make_node("Gather", [name, _ROWS], [name + _TAKEN], axis=0))
        graph = helper.make_graph(nodes, "rows", inputs, outputs)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        return Session(model, self._session.providers, threads=1)  # it copies; more threads would only wait

    def _dtype(self, name: str) -> np.dtype[Any]:
        kind = self._session.inputs[name][0]
        if kind is None:
            raise TypeError(
                f"Stepping: input {name} has an element type that Lucid does not have; export it in another"
            )
        return kind.numpy


_ROWS, _TAKEN = "rows", ".taken"
