"""F.unfold, F.grid_sample and F.affine_grid; groups.py says how the values are made."""

from __future__ import annotations

from itertools import product

from torch.nn import functional as F

from .core import normal
from .groups import Group

ABOUT = "The function is the case's name up to the first space; places go beyond the images."

WINDOWS: dict[str, dict[str, object]] = {
    "plain": {"kernel_size": 2},
    "all options": {"kernel_size": [2, 3], "dilation": [1, 2], "padding": [1, 2], "stride": [2, 1]},
}


def sampling() -> Group:
    group = Group(ABOUT)
    x = group.tensor("x", normal((2, 3, 5, 4), 1))
    grid = group.tensor("grid", normal((2, 4, 6, 2), 2) * 1.3)
    theta = group.tensor("theta", normal((2, 2, 3), 3))

    def add(name: str, function: object, inputs: dict[str, str], options: dict[str, object]) -> None:
        output = function(*map(group.get, inputs.values()), **options)  # type: ignore[operator]
        group.add(name, arguments={}, weights=None, inputs=inputs, options=options, outputs={"output": output})

    for name, options in WINDOWS.items():
        add(f"unfold {name}", F.unfold, {"x": x}, options)
    for mode, padding, align in product(("bilinear", "nearest"), ("zeros", "border", "reflection"), (False, True)):
        options = {"mode": mode, "padding_mode": padding, "align_corners": align}
        add(f"grid_sample {mode} {padding} {align}", F.grid_sample, {"x": x, "grid": grid}, options)
    volume = group.tensor("volume", normal((2, 2, 3, 4, 5), 4))
    places = group.tensor("places", normal((2, 2, 3, 2, 3), 5) * 1.3)
    volume_theta = group.tensor("volume_theta", normal((2, 3, 4), 6))
    for padding, align in product(("zeros", "border", "reflection"), (False, True)):
        options = {"padding_mode": padding, "align_corners": align}
        add(
            f"grid_sample bicubic {padding} {align}",
            F.grid_sample,
            {"x": x, "grid": grid},
            {"mode": "bicubic", **options},
        )
        for mode in ("bilinear", "nearest"):
            inputs = {"x": volume, "grid": places}
            add(f"grid_sample volume {mode} {padding} {align}", F.grid_sample, inputs, {"mode": mode, **options})
    for align in (False, True):
        options = {"size": [2, 2, 2, 1 + 2 * align, 3], "align_corners": align}
        add(f"affine_grid volume {align}", F.affine_grid, {"theta": volume_theta}, options)
    for align in (False, True):
        add(
            f"affine_grid {align}",
            F.affine_grid,
            {"theta": theta},
            {"size": [2, 3, 4, 1 + 2 * align], "align_corners": align},
        )
    return group
