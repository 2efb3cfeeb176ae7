"""Caches tell calls apart whose arguments are equal but of other types, and remember no failures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lucid
from lucid import Tensor, nn, ops
from lucid.core.process.cache_keys import type_key
from lucid.export import to_onnx
from lucid.nn import functional as F
from lucid.ops import checked_calls
from lucid.ops import op as op_module
from lucid.ops.attention import call as attention_call
from lucid.ops.op import REGISTERED
from tests.cases import case

X = Tensor(np.linspace(-2, 3, 24, dtype=np.float32).reshape(2, 3, 4))
PLACES = Tensor(np.zeros((2, 3, 4), np.int64))
HEADS = X.reshape(1, 2, 3, 4)
ZEROS: tuple[Any, ...] = (0, 0.0, -0.0, False, np.int64(0), np.float32(-0.0), np.bool_(False), "0")
ONES: tuple[Any, ...] = (1, 1.0, True, np.int64(1), np.float64(1), np.bool_(True), "1")
CALLS: dict[str, Callable[[Any], Any]] = {
    "sum": lambda a: X.sum(a),
    "sums of several axes": lambda a: X.sum((a, 2)),
    "sums with axes kept": lambda a: X.sum(1, a),
    "mean": lambda a: X.mean(a),
    "amax": lambda a: X.amax(a),
    "std": lambda a: X.std(a),
    "argmax": lambda a: X.argmax(a),
    "cumsum": lambda a: X.cumsum(a),
    "softmax": lambda a: X.softmax(a),
    "log_softmax": lambda a: X.log_softmax(a),
    "sort": lambda a: X.sort(a)[0],
    "topk": lambda a: X.topk(a)[0],
    "gather": lambda a: X.gather(a, PLACES),
    "transpose": lambda a: X.transpose(a, 2),
    "permute": lambda a: X.permute((a, 2, 1) if a == "0" or not a else (a, 0, 2)),
    "unsqueeze": lambda a: X.unsqueeze(a),
    "unbind": lambda a: X.unbind(a)[0],
    "flip": lambda a: X.flip((a,)),
    "slices": lambda a: X[a:2],
    "cat": lambda a: lucid.cat([X, X], a),
    "reshape": lambda a: X.reshape(a, -1),
    "full": lambda a: lucid.full((2,), a),
    "pad": lambda a: F.pad(X, (1, 1), value=a),
    "reciprocals of pads": lambda a: 1 / F.pad(X, (1, 1), value=a),
    "tril": lambda a: X.tril(a),
    "layer_norm": lambda a: ops.layer_norm(X, eps=a),
    "rms_norm": lambda a: ops.rms_norm(X, eps=a),
    "leaky_relu": lambda a: F.leaky_relu(X, a),
    "reciprocals of leaky_relu": lambda a: 1 / F.leaky_relu(X * 0 - 1, a),
    "attention": lambda a: ops.attention(HEADS, HEADS, HEADS, scale=a),
    "causal attention": lambda a: ops.attention(HEADS, HEADS, HEADS, is_causal=a),
    "attention in a window": lambda a: ops.attention(HEADS, HEADS, HEADS, is_causal=True, window=a),
}


def forget() -> None:
    """A process that has computed nothing yet."""
    for op in REGISTERED.values():
        op._known.clear()
    op_module._infer_body.cache_clear()
    attention_call.remembered_options.cache_clear()


def outcome(call: Callable[[Any], Any], argument: Any) -> tuple[Any, ...]:
    """The bits and the type of a result, or the error."""
    try:
        result = call(argument).numpy()
    except Exception as error:  # noqa: BLE001  # whatever it is, it must be the same
        return type(error), str(error)
    return result.dtype, result.shape, result.tobytes()


def fresh(name: str, argument: Any) -> tuple[Any, ...]:
    forget()
    return outcome(CALLS[name], argument)


def in_turn(name: str, arguments: Sequence[Any]) -> list[tuple[Any, ...]]:
    forget()
    return [outcome(CALLS[name], argument) for argument in arguments]


@settings(max_examples=150)
@given(st.sampled_from([*CALLS]), st.sampled_from([ZEROS, ONES]), st.data())
def test_calls_do_not_depend_on_earlier_ones_with_equal_arguments(
    name: str, equal: tuple[Any, ...], data: st.DataObject
) -> None:
    sequence = data.draw(st.lists(st.sampled_from(equal), min_size=2, max_size=5))
    assert in_turn(name, sequence) == [fresh(name, argument) for argument in sequence]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda value: None,
        type,  # at the top level only
        lambda value: tuple(map(type, value)) if isinstance(value, tuple) else type(value),  # the two zeros are one
    ],
)
def test_planted_keys_that_tell_too_little_are_found(
    monkeypatch: pytest.MonkeyPatch, wrong: Callable[[Any], Any]
) -> None:
    pairs = [(name, pair) for name in CALLS for equal in (ZEROS, ONES) for pair in permutations(equal, 2)]
    monkeypatch.setattr(checked_calls, "type_key", wrong)
    assert any(in_turn(name, pair) != [fresh(name, argument) for argument in pair] for name, pair in pairs)
    forget()


def test_a_call_that_fails_leaves_others_as_they_are() -> None:
    forget()
    for _ in range(2):
        with pytest.raises(TypeError, match="sum: axis is True, expected a whole number; give flags by name"):
            X.sum(True)
    assert X.sum(1).shape == (2, 4)
    assert X.amax(1).shape == (2, 4)
    with pytest.raises(TypeError, match="max: axis is True"):
        X.amax(True)


@pytest.mark.parametrize(
    "call",
    [
        *(CALLS[name] for name in ("sum", "sums of several axes", "mean", "amax", "argmax", "cumsum", "softmax")),
        *(CALLS[name] for name in ("sort", "gather", "transpose", "unsqueeze", "unbind", "flip", "cat", "topk")),
        *(CALLS[name] for name in ("log_softmax", "reshape")),
        lambda a: X.size(a),
        lambda a: X.norm(2, a),
        lambda a: X.prod(a),
        lambda a: X.argmin(a),
        lambda a: X.var((a,)),
        lambda a: X.flatten(0, a),
        lambda a: X.split(1, a),
        lambda a: X.split(a, 1),
        lambda a: X.chunk(2, a),
        lambda a: X.roll(1, a),
        lambda a: X.squeeze(a),
        lambda a: X.select(a, 0),
        lambda a: X.index_select(a, PLACES[0, 0]),
        lambda a: lucid.stack([X, X], a),
        lambda a: lucid.movedim(X, a, 0),
        lambda a: np.sum(X, a),
        lambda a: F.normalize(X, 2.0, a),
        lambda a: F.glu(X, a),
        lambda a: nn.Softmax(a)(X),
    ],
)
def test_booleans_are_no_axes_and_no_sizes(call: Callable[[Any], Any]) -> None:
    for flag in (True, False, np.bool_(True)):
        with case(flag), pytest.raises(TypeError, match=r"(axis|size) (is )?(np\.)?(True|False)"):
            call(flag)


def test_a_flag_in_the_place_of_the_axes_of_std_is_unbiased_as_in_torch() -> None:
    np.testing.assert_allclose(X.std(False).item(), X.numpy().std(), rtol=1e-6)
    np.testing.assert_allclose(X.var(False).item(), X.numpy().var(), rtol=1e-6)
    np.testing.assert_allclose(lucid.std(X, True).item(), X.numpy().std(ddof=1), rtol=1e-6)


@dataclass(frozen=True)
class Held:
    """Options of a model, as programs pass them: equal to others with equal values."""

    value: Any


@pytest.mark.parametrize("values", [ZEROS, ONES], ids=["zeros", "ones"])
def test_kinds_tell_equal_values_apart_however_deep_they_are(values: tuple[Any, ...]) -> None:
    values = (*values, *(value.encode() for value in values if isinstance(value, str)))
    wraps = (lambda v: v, lambda v: (v,), lambda v: (1, (v, 2), "x"), lambda v: ("name", v), Held, lambda v: Held((v,)))
    for wrap in wraps:
        assert len({(wrap(value), type_key(wrap(value))) for value in values}) == len(values)


@pytest.mark.parametrize("transform", [lucid.compile, lucid.value_and_grad])
def test_programs_tell_equal_arguments_of_other_types_apart(transform: Any) -> None:
    def model(x: Tensor, divisor: Any) -> Tensor:
        inner = divisor.value if isinstance(divisor, Held) else divisor
        number = next(iter(inner)) if isinstance(inner, (tuple, frozenset)) else inner
        return ((x * 0 + 1) / number).sum() if number is not True else x.sum()

    def outcome_of(value: Any) -> float:
        result = program(X, value)
        return float((result[0] if isinstance(result, tuple) else result).item())

    program = transform(model)
    wraps = (lambda v: v, np.float32, lambda v: (v,), lambda v: frozenset({v}), Held, lambda v: Held((v,)))
    assert [outcome_of(wrap(zero)) for wrap in wraps for zero in (0.0, -0.0)] == [np.inf, -np.inf] * 6
    assert [outcome_of(wrap(one)) for wrap in wraps if wrap is not np.float32 for one in (1, True)] == pytest.approx(
        [24, 12] * 5
    )


def test_nodes_of_a_model_with_equal_attributes_of_other_types_are_not_one() -> None:
    def call(x: Tensor) -> tuple[Tensor, ...]:
        return tuple(1 / F.leaky_relu(x, slope) for slope in (0.0, -0.0))

    positive, negative = (
        eager_array for eager_array in lucid.runtime.Session(to_onnx(call, ("N",)))(np.array([-1.0], np.float32))
    )
    assert (positive, negative) == (-np.inf, np.inf)
