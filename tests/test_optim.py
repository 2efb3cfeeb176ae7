"""`lucid.optim`: torch's optimizers as pure functions, and schedules as functions of a step."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lucid
from lucid import nn, optim
from lucid.nn import functional as F
from lucid.runtime import Session

STORED = lucid.load(Path(__file__).parent / "goldens" / "optimizers.safetensors")
STEPS = 5


def stored(case: str) -> dict[str, Any]:
    return {name.partition("/")[2]: array for name, array in STORED.items() if name.partition("/")[0] == case}


START = stored("start")

# The golden of each is what torch made of the same start and gradients: tools/goldens/optimizers.py.
OPTIMIZERS: Mapping[str, optim.Optimizer] = {
    "sgd": optim.SGD(0.1),
    "sgd_momentum": optim.SGD(0.1, momentum=0.9, weight_decay=0.02),
    "sgd_nesterov": optim.SGD(0.1, momentum=0.8, nesterov=True, weight_decay=0.02),
    "adamw": optim.AdamW(0.05),
    "adamw_clipped": optim.AdamW(0.05, betas=(0.8, 0.95), eps=1e-3, weight_decay=0.1, clip=1.0),
    "adamw_by_name": optim.AdamW(0.05, weight_decay={"*.bias": 0, "*": 0.3}),
    "adafactor": optim.Adafactor(),
    "adafactor_options": optim.Adafactor(0.7, beta2_decay=-0.6, limit=1.5, weight_decay=0.1),
    "linear": optim.AdamW(optim.linear(0.05, 6, warmup=2)),
    "cosine": optim.SGD(optim.cosine(0.05, 5, warmup=1)),
    "constant": optim.SGD(optim.constant(0.05, warmup=3)),
}


def close(tensors: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    assert tensors.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_allclose(np.asarray(tensors[name]), array, rtol=2e-6, atol=2e-6, err_msg=name)


@pytest.mark.parametrize("case", OPTIMIZERS)
def test_five_steps_end_where_those_of_torch_do(case: str) -> None:
    optimizer, parameters = OPTIMIZERS[case], dict(START)
    state = optimizer.init(parameters)
    for step in range(STEPS):
        parameters, state = optimizer.update(stored(f"gradient {step}"), state, parameters, step)
    close(parameters, stored(case))


@pytest.mark.parametrize("case", ["sgd_momentum", "adamw_clipped", "adafactor", "linear"])
@pytest.mark.parametrize("target", ["any", "portable"])
def test_an_update_is_exported_with_the_step_as_an_input(case: str, target: str) -> None:
    optimizer = OPTIMIZERS[case]
    parameters, state = dict(START), dict(optimizer.init(START))

    def update(gradients: Any, state: Any, parameters: Any, step: Any) -> Any:
        after, state = optimizer.update(gradients, state, parameters, step)
        return {"parameters": after, "state": state}

    examples = stored("gradient 0"), state, parameters, lucid.spec(dtype=lucid.int64)
    session = Session(lucid.export.to_onnx(update, *examples, target=target))
    for step in range(STEPS):
        feeds = {f"gradients.{name}": array for name, array in stored(f"gradient {step}").items()}
        feeds |= {f"state.{name}": np.asarray(value) for name, value in state.items()}
        feeds |= {f"parameters.{name}": value for name, value in parameters.items()}
        outputs = session.run({**feeds, "step": np.array(step)})
        parameters = {name: outputs[f"parameters_{name}"] for name in parameters}
        state = {name: outputs[f"state_{name}"] for name in state}
    close(parameters, stored(case))


def test_vectors_are_updated_together_to_the_same_bits() -> None:
    optimizer = optim.AdamW(0.05, weight_decay={"*.bias": 0, "*": 0.3})
    random = np.random.default_rng(0)
    shapes = {"table": (100, 100), **{f"{i}.weight": (3, 4) for i in range(4)}, **{f"{i}.bias": (3,) for i in range(9)}}
    parameters, gradients = ({n: random.standard_normal(s, np.float32) for n, s in shapes.items()} for _ in range(2))
    after, state = optimizer.update(gradients, optimizer.init(parameters), parameters, 0)
    assert list(after) == list(shapes) and list(state) == list(optimizer.init(parameters))
    for name, value in parameters.items():
        one = {name: value}
        own, parts = optim.AdamW(0.05, weight_decay=0 if name.endswith("bias") else 0.3).update(
            gradients, optim.AdamW(0.05).init(one), one, 0
        )
        for got, expected in ((after, own), *((state, parts) for _ in parts)):
            assert all(np.array_equal(got[key].numpy(), new.numpy()) for key, new in expected.items())

    def update(gradients: Any, state: Any, parameters: Any) -> Any:
        return optimizer.update(gradients, state, parameters, 0)

    graph = lucid.trace(update, gradients, optimizer.init(parameters), parameters)
    counts = Counter(node.op.name for node in graph.nodes())
    assert (counts["concat"], counts["split"], counts["sqrt"]) == (8, 6, 1 + 4 + 2)  # nine biases: six, and three
    wide = {"a": np.zeros(3, np.float32), "b": np.zeros(3, np.float64)}
    assert {n: x.dtype for n, x in optimizer_of_both(wide).items()} == {"a": lucid.float32, "b": lucid.float64}


def optimizer_of_both(parameters: Any) -> Any:
    return optim.SGD(0.1).update(parameters, {}, parameters, 0)[0]


def test_nothing_is_changed_in_place() -> None:
    optimizer = optim.AdamW(0.1)
    before = {name: array.copy() for name, array in START.items()}
    state = optimizer.init(START)
    optimizer.update(stored("gradient 0"), state, START, 0)
    close(START, before)
    assert all(not value.numpy().any() for value in state.values())


def test_states_have_the_names_of_torch() -> None:
    one = {"w": START["layer.weight"]}
    assert {name: value.shape for name, value in optim.AdamW(0.1).init(one).items()} == {
        "w.exp_avg": (3, 4),
        "w.exp_avg_sq": (3, 4),
    }
    assert list(optim.SGD(0.1).init(one)) == [] and list(optim.SGD(0.1, momentum=0.9).init(one)) == [
        "w.momentum_buffer"
    ]
    factored = optim.Adafactor().init(one)
    assert {name: value.shape for name, value in factored.items()} == {"w.row_var": (3, 1), "w.col_var": (1, 4)}


def test_frozen_parameters_stay_and_need_neither_gradient_nor_state() -> None:
    optimizer = optim.AdamW(0.1, frozen=["table", "layer.bias"])
    state = optimizer.init(START)
    assert list(state) == ["layer.weight.exp_avg", "layer.weight.exp_avg_sq"]
    after, _ = optimizer.update({"layer.weight": START["layer.weight"]}, state, START, 0)
    assert [name for name in START if not np.array_equal(after[name], START[name])] == ["layer.weight"]


@pytest.mark.parametrize("betas", [(0.0, 0.9), (0.9, 0.0), (0.0, 0.0)])
def test_betas_may_be_0(betas: tuple[float, float]) -> None:
    """Gradients that stay the same have themselves as their means, of whatever part."""
    optimizer, gradient = optim.AdamW(0.25, betas=betas, weight_decay=0), {"x": np.float32([3, -2, 0])}
    parameters, state = {"x": lucid.zeros(3)}, optimizer.init({"x": lucid.zeros(3)})
    for step in range(3):
        parameters, state = optimizer.update(gradient, state, parameters, step)
    np.testing.assert_allclose(parameters["x"].numpy(), [-0.75, 0.75, 0], rtol=1e-5)


def test_the_first_steps_of_adamw_keep_their_digits() -> None:
    """1 - 0.999 in float32 has lost four of its seven digits."""
    one = {"w": np.zeros(1, np.float32)}
    optimizer = optim.AdamW(1.0, weight_decay=0, eps=0)
    after, _ = optimizer.update({"w": np.full(1, 3e-3, np.float32)}, optimizer.init(one), one, 0)
    assert after["w"].item() == pytest.approx(-1, abs=3e-7)


def test_schedules_are_functions_of_a_step() -> None:
    linear, cosine = optim.linear(2.0, 10, warmup=4), optim.cosine(2.0, 8, end=0.5)
    assert [float(linear(lucid.tensor(n))) for n in (0, 1, 4, 7, 10, 99)] == pytest.approx([0, 0.5, 2, 1, 0, 0])
    assert [float(cosine(lucid.tensor(n))) for n in (0, 4, 8, 99)] == pytest.approx([2, 1.25, 0.5, 0.5])
    assert float(optim.constant(0.3)(lucid.tensor(7))) == pytest.approx(0.3)


def test_steps_may_be_whole_numbers_written_as_floats() -> None:
    for schedule in (optim.linear, optim.cosine):
        rate, expected = schedule(1e-3, 1e4, warmup=1e2), schedule(1e-3, 10_000, warmup=100)  # type: ignore[arg-type]
        assert [float(rate(lucid.tensor(n))) for n in (50, 5000)] == [
            float(expected(lucid.tensor(n))) for n in (50, 5000)
        ]


def test_a_schedule_may_be_any_function() -> None:
    optimizer = optim.SGD(lambda step: 0.1 * 0.5**step)
    after, _ = optimizer.update({"w": np.ones(1, np.float32)}, {}, {"w": np.zeros(1, np.float32)}, 2)
    assert after["w"].item() == pytest.approx(-0.025)


def test_clipping_makes_large_gradients_smaller_by_one_factor() -> None:
    gradients = {"a": np.array([3.0], np.float32), "b": np.array([[4.0]], np.float32)}
    assert float(optim.global_norm(gradients)) == 5
    clipped = optim.clip_by_global_norm(gradients, 1.0)
    assert [value.numpy().item() for value in clipped.values()] == pytest.approx([0.6, 0.8])
    close(optim.clip_by_global_norm(gradients, 5.1), gradients)
    close(optim.clip_by_global_norm(gradients, float("inf")), gradients)  # as torch is asked for the norm alone
    for clip in (float("nan"), -float("inf"), 0.0):
        with pytest.raises(ValueError, match=f"AdamW: clip is {clip}, expected a "):
            optim.AdamW(0.1, clip=clip)
    assert optim.AdamW(0.1, clip=float("inf")).clip == float("inf")


def test_parameters_keep_their_types_and_are_computed_in_float32_at_least() -> None:
    gradient = np.array([1e-4, 300.0], np.float16)  # whose squares are beyond the type
    for optimizer in (optim.AdamW(0.1, clip=1e3), optim.SGD(optim.constant(0.1), momentum=0.5), optim.Adafactor(0.1)):
        changes = dict[Any, Any]()
        for dtype in (np.float16, np.float32, np.float64):
            parameters = {"w": np.ones(2, dtype)}
            state = optimizer.init(parameters)
            assert {x.dtype.numpy for x in state.values()} == {np.dtype(np.promote_types(dtype, np.float32))}
            for step in range(3):
                parameters, after = optimizer.update({"w": gradient}, state, parameters, step)
                assert {n: x.spec for n, x in after.items()} == {n: x.spec for n, x in state.items()}
                state = after
            assert parameters["w"].dtype.numpy == dtype
            changes[dtype] = parameters["w"].numpy()
        np.testing.assert_allclose(changes[np.float16], changes[np.float32], rtol=2e-3)
        np.testing.assert_allclose(changes[np.float32], changes[np.float64], rtol=1e-5)
    assert float(optim.global_norm({"w": gradient})) == pytest.approx(300) and float(optim.global_norm({})) == 0


def test_parameters_that_need_no_gradient_stay_and_a_model_takes_the_new_ones() -> None:
    model: Any = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))
    model[0].requires_grad_(False)
    x, labels = lucid.randn(6, 3), lucid.tensor([0, 1, 0, 1, 1, 0])
    step = lucid.value_and_grad(lambda: F.cross_entropy(model(x), labels), wrt=model)
    before = {name: array.numpy().copy() for name, array in model.state_dict().items()}
    optimizer, parameters = optim.AdamW(0.05), dict(model.named_parameters())
    state, losses = optimizer.init(parameters), []
    for number in range(20):
        value, gradients = step()
        parameters, state = optimizer.update(gradients, state, parameters, number)
        model.load_state_dict(parameters, strict=False)
        losses.append(value.item())
    changed = [name for name, array in model.state_dict().items() if not np.array_equal(array.numpy(), before[name])]
    assert changed == ["1.weight", "1.bias", "2.weight", "2.bias"] and losses[-1] < 0.95 * losses[0]
    assert list(state) == [f"{name}.{part}" for name in changed for part in ("exp_avg", "exp_avg_sq")]


LAYER = nn.Linear(2, 2)
WEIGHT = {"head.weight": np.zeros((2, 3), np.float32)}


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        (lambda: optim.AdamW(-1.0), ValueError, r"AdamW: learning_rate is -1\.0, expected a number of 0 or more"),
        (
            lambda: optim.AdamW(1e-3, weight_decay={"*": math.nan}),
            ValueError,
            "AdamW: weight_decay is nan, expected a finite number",
        ),
        (
            lambda: optim.AdamW(1e-3, betas=(0.9, 1.0)),
            ValueError,
            r"AdamW: betas is 1\.0, expected at least 0 and below 1",
        ),
        (lambda: optim.AdamW(1e-3, clip=0.0), ValueError, "AdamW: clip is 0.0, expected a number above 0"),
        (
            lambda: optim.SGD(0.1, nesterov=True),
            ValueError,
            "nesterov is True and momentum 0, expected a momentum above 0",
        ),
        (lambda: optim.Adafactor(limit=0.5), ValueError, "Adafactor: limit is 0.5, expected 1 or more"),
        (lambda: optim.Adafactor(eps=1e-3), TypeError, "Adafactor: eps is 0.001, expected two numbers"),  # type: ignore[arg-type]
        (lambda: optim.SGD("fast"), TypeError, "SGD: learning_rate is 'fast', expected a number"),
        (lambda: optim.SGD(0.1, weight_decay=None), TypeError, "SGD: weight_decay is None, expected a number"),  # type: ignore[arg-type]
        (lambda: optim.linear(0.1, 100, warmup=0.1), ValueError, "schedule: warmup is 0.1, expected a whole number"),  # type: ignore[arg-type]
        (lambda: optim.cosine(0.1, 99.5), ValueError, "steps is 99.5, expected a whole number above the warm-up of 0"),  # type: ignore[arg-type]
        (lambda: optim.cosine(0.1, "9"), TypeError, "schedule: steps is '9', expected a number"),  # type: ignore[arg-type]
        (lambda: optim.constant(-1), ValueError, "schedule: the learning rate is -1, expected a number of 0 or more"),
        (lambda: optim.cosine(0.1, 9, end=-1), ValueError, "schedule: end is -1, expected a number of 0 or more"),
        (lambda: optim.clip_by_global_norm(WEIGHT, -1), ValueError, "limit is -1, expected a number above 0"),
        (
            lambda: optim.linear(0.1, 5, warmup=5),
            ValueError,
            "steps is 5, expected a whole number above the warm-up of 5",
        ),
        (
            lambda: optim.SGD(0.1, frozen="head.wieght").init(WEIGHT),
            ValueError,
            "SGD: frozen: 'head.wieght' matches no parameter; did you mean head.weight.; there are head.weight",
        ),
        (lambda: optim.SGD(0.1).init({"w": np.zeros(2, np.int64)}), TypeError, r"parameter w is int64\[2\], expected"),
        (
            lambda: optim.SGD(0.1).update({}, {}, WEIGHT, 0),
            KeyError,
            "gradients lacks head.weight; leave out parameters without",
        ),
        (lambda: optim.AdamW(0.1).update(WEIGHT, {}, WEIGHT, 0), KeyError, "state lacks head.weight.exp_avg;"),
        (lambda: optim.AdamW(LAYER), TypeError, r"AdamW: got parameters or lr=, .*: write AdamW\(1e-3\); wrt= of"),  # type: ignore[arg-type]
        (lambda: optim.SGD(learning_rate=LAYER.state_dict()), TypeError, "SGD: got parameters or lr="),  # type: ignore[arg-type]
        (lambda: optim.AdamW(1e-3, betas=(0.9,)), TypeError, r"betas is \(0.9,\), expected two numbers"),  # type: ignore[arg-type]
        (
            lambda: optim.SGD(0.1).init(nn.BatchNorm1d(2).state_dict()),
            TypeError,
            r"num_batches_tracked is int64\[\], .*; leave buffers out, as dict\(model\.named_parameters\(\)\) does",
        ),
        (
            lambda: optim.SGD(0.1).init(LAYER),
            TypeError,
            r"Linear, expected .* by name, such as dict\(model.named_param",
        ),  # type: ignore[arg-type]
        (
            lambda: optim.SGD(0.1).update({"head.weight": np.zeros(3, np.float32)}, {}, WEIGHT, 0),
            ValueError,
            r"gradients has head.weight of shape \[3\], expected \[2, 3\]",
        ),
        (lambda: optim.SGD(0.1).init([np.zeros(2)]), TypeError, "parameters: got list, expected tensors or arrays"),
    ],
)
def test_what_does_not_fit_is_an_error(wrong: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        wrong()
