"""The report on the cost of quantized weights: its figures, and how they are shown."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from lucid.core.words import html
from lucid.core.words.safe_text import visible_lines

_SHARE = 0.25  # of the noise, which the layers of `skip` hold
_SHOWN = 5  # layers that the text ranks


@dataclass(frozen=True)
class LayerError:
    """A layer whose weight is quantized, and what that adds to its outputs.

    Noise is the sum of the squared differences, divided by the sum of the squares of the float outputs; None for a
    layer that the data do not reach.

    Args:
        path: of the layer, as `skip` of `lucid.quantize` takes it.
        shares: the first layer with the same weight; its own path if that is this one.
        bits: of a weight.
        parameters: how many numbers the weight has.
        bytes_before, bytes_after: the size of the weight in both models.
        noise_alone: of this layer alone, on the inputs that it has in the float model.
        noise_in_model: of its outputs in the quantized model, with what earlier layers add.
    """

    path: str
    shares: str
    bits: int
    parameters: int
    bytes_before: int
    bytes_after: int
    noise_alone: float | None
    noise_in_model: float | None

    @property
    def alone(self) -> float | None:
        """Signal to noise of this layer alone, in dB: 20 dB are a tenth, 40 dB a hundredth of the output."""
        return decibels(self.noise_alone)

    @property
    def in_model(self) -> float | None:
        """Signal to noise of its outputs in the quantized model, in dB."""
        return decibels(self.noise_in_model)


@dataclass(frozen=True)
class OutputError:
    """An output of the model, over all calls.

    Args:
        name: as an exported model calls it.
        error: the root of its noise: the size of the difference relative to the output.
        cosine_mean, cosine_worst: of each row of the quantized batch with the row in float32.
        worst: the call and the row of the worst cosine.
    """

    name: str
    error: float
    cosine_mean: float
    cosine_worst: float
    worst: tuple[int, int]


@dataclass(frozen=True)
class TextError:
    """How well a decoder predicts the tokens of the given texts, each from those before it.

    Args:
        tokens: how many are predicted.
        perplexity_before, perplexity_after: in both models.
        divergence: the mean Kullback-Leibler divergence of the quantized predictions from those before, in nats.
        same_token: the share of the predictions whose likeliest token is the same.
    """

    tokens: int
    perplexity_before: float
    perplexity_after: float
    divergence: float
    same_token: float


@dataclass(frozen=True)
class Times:
    """Seconds of one call of the exported models, run in turns: medians.

    Args:
        before, after: the float model, and the quantized one.
        runs: of each.
    """

    before: float
    after: float
    runs: int


class Ranked(NamedTuple):
    """Layers that share a weight, and what keeping it in float would gain and cost."""

    paths: tuple[str, ...]
    noise: float
    bytes_more: int
    bytes_more_in_8: int  # with 8 bits, which leave out nearly as much: of 4 bits' noise a 289th is left

    @property
    def gain(self) -> float:
        """The noise that each byte more would take away."""
        return self.noise / max(self.bytes_more, 1)


@dataclass(frozen=True)
class PrecisionReport:
    """The measurements of `precision_report`. Print it to read it; `as_dict()` is the same as plain data.

    Args:
        layers: in the order of the model.
        outputs: those with floating-point numbers.
        texts: of decoders; None for other models, and for texts of one token.
        bytes_before, bytes_after: of all parameters and buffers.
        times: None if they were not asked for.
    """

    layers: tuple[LayerError, ...]
    outputs: tuple[OutputError, ...]
    texts: TextError | None
    bytes_before: int
    bytes_after: int
    times: Times | None = None

    @property
    def error(self) -> float:
        """The largest error of an output; NaN if one has no number."""
        return worst_of(output.error for output in self.outputs)

    @property
    def ranking(self) -> tuple[Ranked, ...]:
        """Weights by what keeping them in float would gain for each byte, the most first.

        The gain is the noise of the layer alone: it takes no account of how much later layers make of it.
        """
        groups: dict[str, list[LayerError]] = {}
        for layer in self.layers:
            groups.setdefault(layer.shares, []).append(layer)
        ranked = [
            Ranked(
                tuple(layer.path for layer in group),
                sum(layer.noise_alone or 0.0 for layer in group),
                group[0].bytes_before - group[0].bytes_after,
                max(group[0].parameters * (8 - group[0].bits) // 8, 0),
            )
            for group in groups.values()
        ]
        return tuple(sorted(ranked, key=lambda each: -each.gain))

    @property
    def skip(self) -> list[str]:
        """The first of the ranking that hold a quarter of the noise of all layers, as `lucid.quantize` takes them."""
        whole, held = sum(each.noise for each in self.ranking), 0.0
        paths: list[str] = []
        for each in self.ranking:
            if held >= _SHARE * whole:
                break
            held += each.noise
            paths.append(each.paths[0])
        return paths

    def as_dict(self) -> dict[str, Any]:
        """The figures as plain data."""
        layers = [asdict(layer) | {"alone": layer.alone, "in_model": layer.in_model} for layer in self.layers]
        ranking = [each._asdict() | {"gain": each.gain} for each in self.ranking]
        return asdict(self) | {"layers": layers, "error": self.error, "ranking": ranking, "skip": self.skip}

    def __str__(self) -> str:
        widths = [max(map(len, column)) for column in zip(_TITLES, *_rows(self.layers), strict=True)]
        lines = [
            "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])])
            for row in (_TITLES, *_rows(self.layers))
        ]
        return visible_lines("\n".join([*lines, "", *self.summary]))

    def _repr_html_(self) -> str:
        return html.table(_TITLES, _rows(self.layers)) + "".join(map(html.paragraph, self.summary))

    @property
    def summary(self) -> list[str]:
        """The lines that accompany the table of layers."""
        lines = [
            f"{output.name}: relative error {output.error:.2g}; cosine {output.cosine_mean:.5f} in the mean, "
            f"{output.cosine_worst:.5f} at worst (call {output.worst[0]}, row {output.worst[1]})"
            for output in self.outputs
        ]
        if self.texts is not None:
            before, after = self.texts.perplexity_before, self.texts.perplexity_after
            lines.append(
                f"perplexity of {self.texts.tokens:,} tokens: {before:.4g}, quantized {after:.4g} "
                f"({(after / before - 1):+.1%}); KL divergence {self.texts.divergence:.2g}; the same likeliest token "
                f"{self.texts.same_token:.1%}"
            )
        lines.append(
            f"size: {megabytes(self.bytes_before)}, quantized {megabytes(self.bytes_after)} "
            f"({self.bytes_after / max(self.bytes_before, 1):.0%})"
        )
        if self.times is not None:
            before, after = self.times.before, self.times.after
            lines.append(
                f"time of a call: {before * 1e3:.3g} ms, quantized {after * 1e3:.3g} ms ({after / before:.0%}); "
                f"medians of {self.times.runs} runs in turns, onnxruntime on the CPU"
            )
        return lines + self._advice()

    def _advice(self) -> list[str]:
        whole = sum(each.noise for each in self.ranking)
        if not whole > 0:
            return []
        lines = ["the most noise for each byte that keeping it in float32 would cost:"]
        for each in self.ranking[:_SHOWN]:
            in_8 = f" ({megabytes(each.bytes_more_in_8)} in 8 bits)" if each.bytes_more_in_8 else ""
            lines.append(
                f"  {', '.join(each.paths)}: {each.noise / whole:.1%}, for {megabytes(each.bytes_more)} more{in_8}"
            )
        chosen = [each for each in self.ranking if each.paths[0] in self.skip]
        share, cost = sum(each.noise for each in chosen) / whole, sum(each.bytes_more for each in chosen)
        lines.append(f"skip={json.dumps(self.skip)} leaves out {share:.0%} of the noise for {megabytes(cost)} more")
        return lines


_TITLES = ("layer", "bits", "weights", "bytes", "before", "alone, dB", "in the model, dB")


def _rows(layers: Sequence[LayerError]) -> list[tuple[str, ...]]:
    return [(*_about(layer), _db(layer.alone), _db(layer.in_model)) for layer in layers]


def _about(layer: LayerError) -> tuple[str, ...]:
    if layer.shares != layer.path:
        return f"{layer.path} (shares {layer.shares})", str(layer.bits), "", "", ""
    return (
        layer.path,
        str(layer.bits),
        f"{layer.parameters:,}",
        f"{layer.bytes_after:,}",
        f"{layer.bytes_before:,}",
    )


def _db(value: float | None) -> str:
    return "not run" if value is None else "exact" if value == math.inf else f"{value:.1f}"


def worst_of(errors: Iterable[float]) -> float:
    """The largest error; NaN if one is NaN, which `max` passes over behind another number; 0 of none."""
    return max(errors, key=lambda error: (math.isnan(error), error), default=0.0)


def decibels(noise: float | None) -> float | None:
    """Signal to noise in dB; infinite without noise."""
    return None if noise is None else math.inf if noise == 0 else -10 * math.log10(noise)


def megabytes(count: int) -> str:
    """A number of bytes as text."""
    return f"{count / 1e6:.2f} MB" if abs(count) < 1e8 else f"{count / 1e6:.0f} MB"
