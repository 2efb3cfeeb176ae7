"""The cost of quantizing: outputs of the source compared with those of the quantized model, on random inputs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lucid.core.process import random
from lucid.core.sizes.dims import bind
from lucid.core.words.progress import phase
from lucid.nn.model_parts import ModelPart
from lucid.nn.module import Module
from lucid.nn.weights.layer_weights import parameter_count
from lucid.testing.precision.outputs import OutputSums
from lucid.testing.precision.report import OutputError
from lucid.testing.random_inputs import random_inputs, run_eagerly
from lucid.testing.run_sizes import usual_sizes
from lucid.tracing.parts import trace_part, with_ranks

MOST = 1 << 30
"""Parameters of a source that is measured: in float32 they take 4 GiB."""
_ROWS, _LENGTH = 8, 24
_SEED, _SEGMENTS = 0, "token_type_ids"
_PADDED_RIGHT = 2  # the run of `random_inputs` whose masks pad on the right


@dataclass(frozen=True)
class QuantizingCost:
    """Errors of the outputs of a quantized model; the source, in float32, is what they are measured against."""

    outputs: tuple[OutputError, ...]  # those with floating-point numbers
    sizes: dict[str, int]  # the values of the symbolic sizes of the inputs

    @property
    def worst(self) -> OutputError | None:
        """The output with the lowest cosine."""
        return min(self.outputs, key=lambda each: each.cosine_worst, default=None)

    def __str__(self) -> str:
        worst = self.worst
        if worst is None:
            return "no output has numbers that could be compared"
        at = ", ".join(f"{name}={size}" for name, size in self.sizes.items())
        return (
            f"{worst.name}: cosine {worst.cosine_mean:.4f} in the mean, {worst.cosine_worst:.4f} at worst; relative "
            f"error {worst.error:.2g}" + (f" ({at})" if at else "")
        )


def measurable(source: Module) -> bool:
    """Whether a source is small enough to run in float32 next to the quantized model."""
    return parameter_count(source) <= MOST


@phase("measuring what quantizing costs")
def quantizing_cost(source: ModelPart, quantized: ModelPart) -> QuantizingCost:
    """Run a part of both models with NumPy, on the same inputs: token ids from all rows of their tables, masks that pad
    on the right, normal numbers, and segment 0. The inputs do not depend on earlier draws.

    Your own texts say more: `lucid.testing.precision_report`.

    Args:
        source: of the model in float32.
        quantized: the same part of the quantized model.
    """
    quantized = with_ranks(quantized)
    traced = trace_part(quantized)
    sizes = usual_sizes(traced.graph, _ROWS, _LENGTH) if quantized.sizes is None else dict(quantized.sizes[-1])
    with random.seeded(_SEED):
        drawn = {} if quantized.draw is None else dict(quantized.draw(sizes))
        for value in traced.graph.inputs:
            if value.name == _SEGMENTS:
                drawn[value.name] = np.zeros(bind(value.type.shape, sizes), value.type.dtype.numpy)
            elif value.default is not None:
                drawn[value.name] = value.default
        inputs = random_inputs(traced.graph, sizes, _PADDED_RIGHT, drawn)
    before, after = (run_eagerly(part.function, (), part.inputs, inputs, []) for part in (source, quantized))
    errors = []
    for name, expected, got in zip(traced.graph.output_names, before, after, strict=True):
        if expected.dtype.kind == "f":
            sums = OutputSums()
            sums.add(0, expected, got)
            errors.append(sums.error(name))
    return QuantizingCost(tuple(errors), sizes)
