"""`lucid.quantize` with 8-bit activations: weights as signed bytes with a scale for each row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeAlias, get_args

from lucid.nn.module import Module
from lucid.nn.quantized import Activations, Int8Weight
from lucid.nn.quantizing.calibration import Call, histograms
from lucid.nn.weights.layer_weights import Identity, LayerWeight
from lucid.quantization import Grid8, Histogram, by_row, entropy, grid_between, minmax, percentile

Ranges: TypeAlias = Literal["minmax", "percentile", "entropy"]
_RANGES = {"minmax": minmax, "percentile": percentile, "entropy": entropy}


def check_activations(
    activations: str | None, ranges: str | None, calibration: object, others: Mapping[str, Any], method: str | None
) -> None:
    """Refuse options that do not exist, or cannot be combined.

    Args:
        activations, ranges, calibration, method: as for `quantize`.
        others: the options of block-quantized weights, by name; None or False if not given.

    Raises:
        ValueError: with advice.
    """
    if activations is None:
        if ranges is not None:
            raise ValueError(f'quantize: ranges is {ranges!r}, which is for activations="static"')
        return
    if activations not in get_args(Activations):
        raise ValueError(
            f"quantize: activations is {activations!r}, expected one of {', '.join(get_args(Activations))}, or None: "
            "float inputs"
        )
    named = [name for name, value in others.items() if value not in (None, False)]
    named += [] if method in (None, "rtn") else ["method"]
    if named:
        raise ValueError(
            f"quantize: {', '.join(named)} with activations={activations!r}, where each row of a weight has one scale "
            f"and is rounded; leave out {', '.join(named)}"
        )
    if (activations == "static") != (calibration is not None):
        state = "no calibration" if calibration is None else "calibration"
        raise ValueError(
            f'quantize: activations={activations!r} with {state}; "static" needs calibration, the others take none'
        )
    if ranges is not None and (activations != "static" or ranges not in _RANGES):
        raise ValueError(
            f"quantize: ranges is {ranges!r} with activations={activations!r}, expected one of {', '.join(_RANGES)} "
            'with activations="static"'
        )


class Int8Quantizer:
    """Quantizes the weights of a model, with the ranges of their inputs from a calibration."""

    def __init__(
        self,
        model: Module,
        chosen: Mapping[Identity, int],
        activations: Activations,
        ranges: Ranges | None,
        calibration: Iterable[Call] | None,
    ) -> None:
        """Arguments as for `quantize`; `chosen`: the bits of the weights to make.

        Raises:
            ValueError: for other bits than 8, and calls that the model cannot be run on.
        """
        if any(bits != 8 for bits in chosen.values()):
            raise ValueError(
                f"quantize: activations={activations!r} goes with weights in 8 bits, and bits is "
                f"{min(chosen.values())}; give bits=8"
            )
        self._activations, self._range = activations, _RANGES[ranges or "minmax"]
        self._seen = {} if calibration is None else histograms(model, set(chosen), calibration)

    def __call__(self, layer: LayerWeight) -> Int8Weight:
        """The weight in the place of a parameter.

        Raises:
            ValueError: for numbers that are not finite, and a layer that no call of the calibration reaches.
        """
        rows = by_row(layer.tensor.numpy())
        if self._activations != "static":
            return Int8Weight(rows, layer.parameter.dtype, self._activations)
        seen = self._seen[layer.identity]
        if layer.use == "table" and not seen.count:  # which is only indexed
            return Int8Weight(rows, layer.parameter.dtype, None)
        return Int8Weight(rows, layer.parameter.dtype, "static", self._grid(seen))

    def _grid(self, seen: Histogram) -> Grid8:
        if not seen.count:
            raise ValueError("no call of the calibration reaches it; give others, or skip it")
        return grid_between(*self._range(seen))
