"""F.unfold, F.grid_sample and F.affine_grid exported, at strange places, and their errors; test_torch_nn_goldens.py has
torch's results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lucid
from lucid import Tensor, nn
from lucid.nn import functional as F
from lucid.testing import assert_parity

X = lucid.tensor(np.arange(1, 13, dtype=np.float32).reshape(1, 1, 3, 4))


def turned(x: Tensor, theta: Tensor) -> Tensor:
    """Images moved by affine maps."""
    grid = F.affine_grid(theta, (x.shape[0], x.shape[1], x.shape[2] + 1, x.shape[3]), align_corners=True)
    return F.grid_sample(x, grid, padding_mode="reflection", align_corners=True)


@pytest.mark.parametrize("target", ["any", "cpu", "portable"])
def test_exported_for_any_size(target: str) -> None:
    sizes = [{"N": 2, "H": 5, "W": 4}, {"N": 1, "H": 3, "W": 3}]
    images = ("N", 3, "H", "W")
    assert_parity(nn.Unfold((2, 3), padding=1, stride=2), images, target=target, sizes=sizes)
    assert_parity(turned, images, ("N", 2, 3), target=target, sizes=[*sizes, {"N": 2, "H": 1, "W": 1}])
    for mode, padding in (("bilinear", "zeros"), ("nearest", "border"), ("bicubic", "reflection")):

        def sampled(x: Tensor, grid: Tensor, mode: str = mode, padding: str = padding) -> Tensor:
            return F.grid_sample(x, grid, mode, padding)

        places = ("N", "P", 3, 2)
        assert_parity(
            sampled, images, places, target=target, sizes=[{**s, "P": p} for s, p in zip(sizes, (4, 0), strict=True)]
        )


@pytest.mark.parametrize("target", ["any", "cpu", "portable"])
def test_volumes_are_exported_for_any_size(target: str) -> None:
    def moved(x: Tensor, theta: Tensor) -> Tensor:
        return F.grid_sample(x, F.affine_grid(theta, x.shape), padding_mode="border")

    sizes = [{"N": 2, "D": 2, "H": 3, "W": 4}, {"N": 1, "D": 1, "H": 2, "W": 1}]
    assert_parity(moved, ("N", 2, "D", "H", "W"), ("N", 3, 4), target=target, sizes=sizes)


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_places_far_outside_and_nan(mode: str) -> None:
    far = lucid.tensor([[[[np.inf, 0.0], [-np.inf, 0.0], [1e30, -1e30], [np.nan, 0.0], [-1.0, -1.0]]]])
    zeros = F.grid_sample(X, far, mode, align_corners=True).numpy().ravel()
    np.testing.assert_array_equal(zeros, [0, 0, 0, 0, 1])
    border = F.grid_sample(X, far, mode, "border", align_corners=True).numpy().ravel()
    np.testing.assert_array_equal(border, [8, 5, 4, 5, 1])
    assert np.isfinite(F.grid_sample(X, far, mode, "reflection").numpy()).all()


def test_what_is_nan_in_an_image_stays_where_it_is() -> None:
    x = X.numpy().copy()
    x[0, 0, 0, 0] = np.nan
    corners = lucid.tensor([[[[-1.0, -1.0], [1.0, 1.0], [-3.0, -3.0]]]])
    output = F.grid_sample(lucid.tensor(x), corners, align_corners=True).numpy().ravel()
    assert np.isnan(output[0]) and output[1] == 12 and output[2] == 0


WRONG: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "window": (lambda: F.unfold(X, 5), ValueError, "^unfold: a window of 5 does not fit into a padded axis of 3"),
    "padding": (lambda: F.unfold(X, 2, padding=-1), ValueError, r"^unfold: padding is -1, expected 0 or more"),
    "stride": (lambda: F.unfold(X, 2, stride=0), ValueError, "^unfold: stride is 0, expected 1 or more"),
    "axes": (lambda: F.unfold(X[0, 0], 2), ValueError, r"^unfold: got shape \[3, 4\], expected images"),
    "places": (
        lambda: F.grid_sample(X, X),
        ValueError,
        r"^grid_sample: got shapes .* and places \(N, H_out, W_out, 2\)",
    ),
    "types": (
        lambda: F.grid_sample(X, lucid.zeros(1, 2, 2, 2, dtype="float64")),
        TypeError,
        "^grid_sample: images are float32 and places float64, expected one element type",
    ),
    "mode": (
        lambda: F.grid_sample(X.unsqueeze(2), lucid.zeros(1, 2, 2, 2, 3), mode="bicubic"),
        ValueError,
        "^grid_sample: mode is 'bicubic' .* expected one of bilinear, nearest and",
    ),
    "theta": (lambda: F.affine_grid(X[0], (1, 1, 2, 2)), ValueError, r"^affine_grid: theta has shape \[1, 3, 4\]"),
}


@pytest.mark.parametrize("name", WRONG)
def test_errors(name: str) -> None:
    call, error, message = WRONG[name]
    with pytest.raises(error, match=message):
        call()
