"""No argument of torch silently means something else here, except where coming-from.md says so."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

import lucid
from lucid import nn
from lucid.nn import functional as F
from tests.signatures import DELIBERATE, NOT_TAKEN, Parameter, differences, namesakes, signature, taken

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "howto" / "coming-from.md").read_text(encoding="utf-8")
TORCH = {
    name: [Parameter(*p) for p in parameters]
    for name, parameters in json.loads((ROOT / "tests" / "goldens" / "torch_signatures.json").read_text()).items()
}
OURS = {name: signature(thing, name.startswith("lucid.")) for name, thing in namesakes() if name in TORCH}


def test_the_table_holds_what_both_have() -> None:
    assert OURS.keys() == TORCH.keys()  # else: python -m tools.check_signatures
    assert len(OURS) > 100


def test_a_signature_is_torchs_or_the_difference_has_a_reason() -> None:
    reasons = {name: sorted(differences(OURS[name], TORCH[name])) for name in sorted(OURS)}
    assert {name: each for name, each in reasons.items() if each} == {
        name: sorted(each) for name, each in DELIBERATE.items() if each and name in OURS
    }


def test_torchs_longer_names_of_methods_are_those_of_arithmetic() -> None:
    """`multiply` called a function that was not there."""
    x, y = lucid.tensor([1.0, -2.0]), lucid.tensor([4.0, 8.0])
    assert x.multiply(y).tolist() == (x * y).tolist() and x.divide(y).tolist() == (x / y).tolist()
    assert x.subtract(y).tolist() == (x - y).tolist() and x.negative().tolist() == (-x).tolist()
    assert x.absolute().tolist() == abs(x).tolist()


UNKNOWN = re.compile("unexpected keyword argument|unknown argument|given twice")


def test_arguments_are_taken_by_torchs_names() -> None:
    """Python and the ops name an argument that they do not know before they look at any value."""
    functions = dict(namesakes())
    for name in sorted(OURS):
        parameters = [p.name for p in TORCH[name] if taken(name, p.name)]
        for names in (parameters, *([each] for each in parameters)):
            try:
                functions[name](**{each: object() for each in names})
            except (TypeError, ValueError, AttributeError, IndexError, NotImplementedError) as error:
                assert not UNKNOWN.search(str(error)), f"{name}, {names}: {error}"


def test_what_is_not_taken_exists_and_is_refused() -> None:
    listed = {(name, p) for name, rows in NOT_TAKEN.items() if "*" not in name for p in rows}
    functions = dict(namesakes())
    for name, parameter in listed:
        assert parameter in {p.name for p in TORCH[name]}, f"{name} has no {parameter} in torch"
        with pytest.raises(TypeError, match=parameter):
            functions[name](**{parameter: object()})


@pytest.mark.parametrize("name", sorted(DELIBERATE))
def test_the_page_names_every_difference(name: str) -> None:
    assert f"`{name.removeprefix('functional.').removesuffix('.forward')}`" in PAGE
    for difference in DELIBERATE[name]:
        assert f"`{difference.partition(' for ')[0]}`" in PAGE


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        ("abc", "abc", []),
        ("ac", "abc", ["c for b"]),
        ("ab", "abc", []),
        ("abc", "ab", []),
        ("xb", [("input", True, None), ("b", True, "3")], ["b=None for 3"]),
    ],
)
def test_what_counts_as_a_difference(ours: str, theirs: object, expected: list[str]) -> None:
    mine = [Parameter(name, True, None if name == "x" else "None") for name in ours]
    other = [Parameter(*p) if isinstance(p, tuple) else Parameter(p, True, "None") for p in theirs]  # type: ignore[attr-defined]
    assert differences(mine, other) == expected


def test_what_stands_in_the_place_of_another_argument_of_torchs_is_refused() -> None:
    for port in (
        lambda: nn.Linear(8, 8, True, "cpu"),
        lambda: nn.LayerNorm(8, 1e-5, True, True, "cpu"),
        lambda: nn.BatchNorm1d(8, 1e-5, 0.1, True, True),
    ):
        with pytest.raises(TypeError):
            port()
    assert not nn.AvgPool1d(3, 2, 1, False, False).count_include_pad
    with pytest.raises(ValueError, match="Conv1d: padding_mode is 'zero', expected one of 'zeros', 'reflect'"):
        nn.Conv1d(8, 8, 3, padding_mode="zero")
    assert nn.MaxPool2d(2, ceil_mode=False).dilation == (1, 1)


@pytest.mark.parametrize(("dtype", "eps"), [("float32", 2.0**-23), ("float64", 2.0**-52), ("float16", 2.0**-23)])
def test_rms_norm_without_eps_takes_that_of_its_type(dtype: str, eps: float) -> None:
    x = np.linspace(-1e-3, 1e-3, 8).astype(dtype)
    wide = x.astype(np.float64)
    expected = wide / np.sqrt((wide**2).mean() + eps)
    for got in (nn.RMSNorm(8, dtype=dtype)(lucid.Tensor(x)), F.rms_norm(lucid.Tensor(x))):
        np.testing.assert_allclose(got.numpy().astype(np.float64), expected, rtol=2 * float(np.finfo(dtype).eps))
