"""Losses: their errors, element types and files. `tests/ported_losses.py` compares their numbers with torch's."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lucid
from lucid import Tensor, nn
from lucid.nn import functional as F
from lucid.runtime import Session
from lucid.testing import assert_parity

X, IDS = lucid.ones(2, 3), lucid.tensor([0, 2])


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: F.cross_entropy(X, IDS + 1), IndexError, "target 3 is none of 3 classes; ignore_index=3 leaves"),
        (lambda: F.nll_loss(X, IDS - 1), IndexError, "^nll_loss: target -1 is none of 3 classes"),
        (
            lambda: F.cross_entropy(X, lucid.ones(3).long()),
            ValueError,
            r"int64\[3\] of float32\[2, 3\], expected",
        ),
        (lambda: F.cross_entropy(X, lucid.ones(2)), ValueError, r"x is \[2, 3\] and target \[2\], expected one shape"),
        (lambda: F.multi_margin_loss(X, IDS + 1), IndexError, "multi_margin_loss: target 3 is none of 3 classes$"),
        (lambda: F.multi_margin_loss(X, IDS[:1]), ValueError, r"got a target int64\[1\] of float32\[2, 3\], expected"),
        (lambda: F.multi_margin_loss(X, IDS.float()), ValueError, r"got a target float32\[2\] of float32\[2, 3\]"),
        (lambda: F.gaussian_nll_loss(X, X, -1.0), ValueError, r"the least var is -1\.0, expected 0 or more"),
        (lambda: F.cross_entropy(X, X, ignore_index=1), ValueError, "ignore_index is for class indices"),
        (lambda: F.cross_entropy(X, IDS, lucid.ones(2)), ValueError, r"weight \[2\], expected a number for each of 3"),
        (
            lambda: F.cross_entropy(X, IDS, label_smoothing=1.5),
            ValueError,
            "label_smoothing is 1.5, expected a probability",
        ),
        (lambda: F.cross_entropy(X, [0, 2]), TypeError, "target has type list, expected a tensor or an array"),
        (lambda: F.binary_cross_entropy(X, X[0]), ValueError, r"x is \[2, 3\] and target \[3\], expected"),
        (lambda: F.mse_loss(X, X, reduction="average"), ValueError, "reduction is 'average', expected 'none', 'mean'"),
        (lambda: F.mse_loss(X, X, reduce=False), TypeError, 'reduce= is not taken: write reduction="mean", "sum"'),
        (lambda: F.smooth_l1_loss(X, X, beta=-1.0), ValueError, "beta is -1.0, expected a number of 0 or more"),
        (lambda: F.huber_loss(X, X, delta=0.0), ValueError, "delta is 0.0, expected a number above 0"),
    ],
)
def test_wrong_arguments_are_named(call: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


def test_a_limit_may_be_infinite() -> None:
    y = X * 2 + 1
    assert F.huber_loss(X, y, delta=np.inf).item() == F.mse_loss(X, y).item() / 2
    assert F.smooth_l1_loss(X, y, beta=np.inf).item() == 0


@pytest.mark.parametrize("target", ["any", "cpu", "portable"])
def test_an_index_below_0_of_no_class_that_is_known_at_run_time_gives_nan(target: str) -> None:
    session = Session(lucid.export.to_onnx(F.cross_entropy, ("N", 3), lucid.spec("N", dtype="int64"), target=target))
    for indices, finite in (([0, 2], True), ([-100, 2], True), ([0, -1], False)):
        assert (
            np.isfinite(session.run(dict(zip(session.inputs, (X.numpy(), np.array(indices)), strict=True)))["output"])
            == finite
        )
    assert np.isnan(lucid.value_and_grad(F.cross_entropy)(X, lucid.tensor([0, -1]))[0].numpy())


def test_a_mean_in_half_precision_is_computed_in_float32() -> None:
    logits = lucid.zeros(70000, 2, dtype=lucid.float16)
    loss = F.cross_entropy(logits, lucid.zeros(70000, dtype=lucid.int64))
    assert (loss.dtype, loss.numpy()) == (lucid.float16, np.float16(np.log(2)))


def test_a_forward_that_returns_a_loss_is_exported() -> None:
    class Classifier(nn.Module):
        def __init__(self) -> None:
            self.score = nn.Linear(4, 2)

        def forward(self, x: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
            logits = self.score(x)
            loss = {} if labels is None else {"loss": nn.CrossEntropyLoss()(logits.view(-1, 2), labels.view(-1))}
            return {**loss, "logits": logits}

    for target in ("any", "cpu", "portable"):
        assert_parity(Classifier(), ("N", "L", 4), lucid.spec("N", "L", dtype="int64"), target=target)


def test_a_weight_is_a_buffer_and_options_are_shown() -> None:
    loss = nn.BCEWithLogitsLoss(pos_weight=lucid.ones(3))
    assert list(loss.state_dict()) == ["pos_weight"]
    assert repr(nn.CrossEntropyLoss()) == "CrossEntropyLoss(ignore_index=-100, reduction='mean', label_smoothing=0.0)"


@pytest.mark.parametrize("symmetric", [False, True])
def test_each_vector_is_to_find_its_own_positive_in_the_batch(symmetric: bool) -> None:
    rng = np.random.default_rng(3)
    x, positives, negatives = (rng.standard_normal((rows, 5)).astype(np.float32) for rows in (4, 4, 2))
    others = None if symmetric else lucid.tensor(negatives)
    loss = F.in_batch_contrastive_loss(lucid.tensor(x), lucid.tensor(positives), others, scale=7, symmetric=symmetric)

    def of_rows(a: Any, b: Any) -> Any:
        cosines = (a @ b.T) / np.linalg.norm(a, axis=1)[:, None] / np.linalg.norm(b, axis=1)
        parts = np.exp(7 * cosines)
        return -np.log(np.diag(parts) / parts.sum(1)).mean()

    there = of_rows(x, np.concatenate([positives, negatives][: 1 if symmetric else 2]))
    expected = (there + of_rows(positives, x)) / 2 if symmetric else there
    assert loss.numpy() == pytest.approx(expected, rel=1e-5)


def test_contrastive_losses_are_exported_with_an_open_batch() -> None:
    assert_parity(F.in_batch_contrastive_loss, ("N", 6), ("N", 6))
    with pytest.raises(ValueError, match=r"x is \[2, 6\] and positives \[3, 6\], expected one shape"):
        F.in_batch_contrastive_loss(lucid.ones(2, 6), lucid.ones(3, 6))


def test_a_target_that_is_no_probability_makes_its_divergence_nan() -> None:
    losses = F.kl_div(lucid.tensor([-1.0, -2.0, -3.0]), lucid.tensor([-0.5, 0.0, 0.5]), reduction="none")
    assert losses.numpy() == pytest.approx([math.nan, 0, 0.5 * math.log(0.5) + 1.5], nan_ok=True)


def test_lucid_losses_are_the_functions_of_nn_functional() -> None:
    assert {"cross_entropy", "mse_loss", "in_batch_contrastive_loss"} <= set(dir(lucid.losses))
    for name in dir(lucid.losses):
        assert getattr(lucid.losses, name) is getattr(F, name)
    with pytest.raises(AttributeError, match="has no attribute 'mse_los'; did you mean mse_loss"):
        lucid.losses.mse_los  # type: ignore[attr-defined]  # noqa: B018
