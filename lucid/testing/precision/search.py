"""The fewest bits of a model whose outputs stay within an error."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Generic, NamedTuple, TypeVar

from lucid.core.words.progress import Advance, phase, unheard
from lucid.nn.module import Module
from lucid.nn.quantized import WeightModule
from lucid.nn.quantizing.calibration import BoundCall, Call, bound_call
from lucid.nn.weights.layer_weights import WeightPlace, weight_modules, with_weights
from lucid.ops.tensor.tensor import Tensor
from lucid.testing.precision.measuring import outputs_for, precision_report
from lucid.testing.precision.outputs import OutputSums
from lucid.testing.precision.report import PrecisionReport, worst_of

M = TypeVar("M", bound=Module)
# How much of the room below the target to use up by taking steps back: their noises do not simply add up.
_SHARES = (1.0, 0.5, 0.25, 0.125)
_ENOUGH = 256  # numbers in the inputs of calls, such as tokens


class Step(NamedTuple):
    """A weight that gets more bits: 8, or None for the float one."""

    path: str
    bits: int | None
    noise: float  # of the outputs, that it takes away
    gain: float  # for each byte


class Found(NamedTuple, Generic[M]):
    """What the search found."""

    model: M  # with these bits
    bits: dict[str, int | None]  # as `lucid.quantize` takes them
    error: float  # of its outputs


class TargetError(ValueError):
    """No quantized model stays below the error."""


@phase("searching bits")
def fewest_bits(model: M, quantized: Callable[[int], M], calls: Sequence[Call], target: float) -> Found[M]:
    """Begin with 4 bits for all weights; raise some to 8, then keep some in float, until the error is at most `target`.

    The error is that of the outputs over all calls: the root of the sum of the squared differences, relative to that of
    the float outputs' squares; of several outputs the largest. It is defined for every model, and needs no labels.

    Weights are raised in the order of the noise that the outputs lose for each byte. That of a weight in 4 bits is
    measured with all others as they are, on the first calls; that in 8 bits follows from the layers' own noise. The
    fewest steps that reach the target are found by bisection. If they end far below it, because the last was a large
    one, those that gained least are taken back. The result is the same each time.

    Args:
        model: the float model.
        quantized: makes the model with all weights in so many bits, 4 or 8.
        calls: the data to measure with.
        target: the largest error allowed.

    Raises:
        TargetError: for a target that no model with a quantized weight reaches; it says what 8 bits reach.
        ValueError: for a target that is not above 0, and as `precision_report`.
    """
    if not target > 0:
        raise ValueError(f"the target error is {target}, expected a number above 0, such as 0.02")
    narrow, wide = quantized(4), quantized(8)
    in_4, in_8 = precision_report(model, narrow, calls), precision_report(model, wide, calls)
    search = _Search(model, narrow, wide, in_4, calls)
    steps = _steps(in_4, in_8, search.noises())
    errors = {0: in_4.error, len(steps) // 2: in_8.error}
    low, high = 0, len(steps) - 1  # the last step leaves no quantized weight
    while low < high:
        middle = (low + high) // 2
        if middle not in errors:
            errors[middle] = search.error_after(steps[:middle])
        low, high = (low, middle) if errors[middle] <= target else (middle + 1, high)
    error = errors[low] if low in errors else search.error_after(steps[:low])
    if not error <= target:  # also where it is NaN
        raise TargetError(
            f"no quantized model has an error of {target:g} or less: all weights in 8 bits reach {in_8.error:.2g}, "
            f"all but one in float {error:.2g}"
        )
    taken = steps[:low]
    for share in _SHARES:
        fewer = _without(taken, share * (target**2 - error**2))
        if len(fewer) < len(taken) and (reached := search.error_after(fewer)) <= target:
            taken, error = fewer, reached
            break
    return Found(search.model_after(taken), {**_bits(taken), "*": 4}, error)


class _Search(Generic[M]):
    """A model with weights in 4 bits, in 8 bits or as they are, and the error of its outputs over some calls."""

    def __init__(self, model: M, narrow: M, wide: M, in_4: PrecisionReport, calls: Sequence[Call]) -> None:
        self._model = model
        self._weights = {4: weight_modules(narrow), 8: weight_modules(wide)}
        self._places = _by_path(in_4, self._weights[4])
        self._calls = [bound_call(model, call, f"call {number} of the data") for number, call in enumerate(calls)]
        self._expected = [outputs_for(model, call) for call in self._calls]
        self._rounds = count(1)
        self._told = f"{in_4.error:.2g} in 4 bits"

    def noises(self) -> dict[str, float]:
        """The noise of the outputs that each weight alone causes in 4 bits, over the first calls."""
        first, stored = _first_calls(self._calls), self._weights[4]
        noises_by_path = {}
        with phase("each weight alone", len(self._places), "weights") as advance:
            for path, places in self._places.items():
                noises_by_path[path] = (
                    self._error(with_weights(self._model, {each: stored[each] for each in places}), first) ** 2
                )
                advance(1)
        return noises_by_path

    def model_after(self, steps: Sequence[Step]) -> M:
        """The model in 4 bits after these steps."""
        widths = {**dict.fromkeys(self._places, 4), **_bits(steps)}
        chosen = {
            place: self._weights[width][place]
            for path, width in widths.items()
            if width is not None
            for place in self._places[path]
        }
        return with_weights(self._model, chosen)

    def error_after(self, steps: Sequence[Step]) -> float:
        """The error of the model after these steps, over all calls: a round of the search."""
        with phase(f"round {next(self._rounds)} (error {self._told})", len(self._calls), "texts") as advance:
            error = self._error(self.model_after(steps), len(self._calls), advance)
        raised = sum(bits == 8 for bits in _bits(steps).values())
        self._told = f"{error:.2g} with {raised} weights in 8 bits, {len(_bits(steps)) - raised} in float"
        return error

    def _error(self, tried: Module, first: int, advance: Advance = unheard) -> float:
        """The error of the outputs over the first calls."""
        sums = {name: OutputSums() for name in self._expected[0]}
        for number, (call, expected) in enumerate(zip(self._calls[:first], self._expected, strict=False)):
            outputs = outputs_for(tried, call)
            for name, each in sums.items():
                each.add(number, expected[name], outputs[name])
            advance(1)
        return worst_of(each.relative for each in sums.values())


def _bits(steps: Sequence[Step]) -> dict[str, int | None]:
    """The bits of each weight that was raised, by its path."""
    return {step.path: step.bits for step in steps}


def _without(steps: Sequence[Step], noise: float) -> list[Step]:
    """The steps without the least useful ones, which together remove this much noise."""
    kept = list(steps)
    for step in sorted(steps, key=lambda step: (step.gain, step.path)):
        last = _bits(kept)[step.path] == step.bits  # not 8 bits of a weight that is kept as it is
        if last and step.noise <= noise:
            noise -= step.noise
            kept.remove(step)
    return kept


def _by_path(report: PrecisionReport, stored: Mapping[WeightPlace, WeightModule]) -> dict[str, list[WeightPlace]]:
    """The places of each weight, by the first layer that has it."""
    shares = {layer.path: layer.shares for layer in report.layers}
    places_by_path: dict[str, list[WeightPlace]] = {}
    for place in stored:
        places_by_path.setdefault(shares[place.layer], []).append(place)
    return places_by_path


def _first_calls(calls: Sequence[BoundCall]) -> int:
    """How many of the first calls have `_ENOUGH` numbers together to measure the effect of a weight on the outputs."""
    numbers = 0
    for number, call in enumerate(calls, 1):
        numbers += sum(value.numpy().size for value in call.by_name.values() if isinstance(value, Tensor))
        if numbers >= _ENOUGH:
            return number
    return len(calls)


def _steps(in_4: PrecisionReport, in_8: PrecisionReport, noises: Mapping[str, float]) -> list[Step]:
    """Steps that raise all weights to 8 bits, then all to float; each time those first that gain most for each byte."""
    ranked = {each.paths[0]: each for each in in_4.ranking}
    widened, kept = [], []
    for wide in in_8.ranking:
        path, narrow = wide.paths[0], ranked[wide.paths[0]]
        left = noises[path] * (wide.noise / narrow.noise if narrow.noise else 1.0)
        gone = noises[path] - left
        widened.append(Step(path, 8, gone, gone / max(narrow.bytes_more - wide.bytes_more, 1)))
        kept.append(Step(path, None, left, left / max(wide.bytes_more, 1)))
    return [*sorted(widened, key=_by_gain), *sorted(kept, key=_by_gain)]


def _by_gain(step: Step) -> tuple[float, str]:
    return -step.gain, step.path
