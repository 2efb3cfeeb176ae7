"""What masks exclude and what NaN and infinity do (docs/attention.md), on every path: the eager body and kernel, the
graph on NumPy, and each exported form, with and without onnxruntime's graph optimizations."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import lucid
import lucid.nn.functional as F
from lucid.ops import attention
from lucid.ops.attention import tiles as attention_tiles
from tests.combinations import covering, in_pairs
from tests.reference import attention as reference

H, D = 2, 8
SMALL, LARGE, SQUARE = (2, 5, 6), (1, 40, 600), (1, 70, 70)  # the body's, the tiled kernel's, several blocks on a CPU
BRAIN = np.dtype(ml_dtypes.bfloat16)

# Options of to_onnx, and whether onnxruntime may optimize the graph.
EXPORTS: dict[str, tuple[dict[str, Any], bool]] = {
    "any, opset 17": ({"opset": 17}, True),
    "any": ({"opset": 24}, True),
    "any, not rewritten": ({"opset": 24}, False),
    "cpu": ({"target": "cpu"}, True),
    "cpu, not rewritten": ({"target": "cpu"}, False),
    "cpu, one node": ({"target": "cpu", "attention": "standard"}, True),
    "expanded": ({"opset": 24, "attention": "expanded"}, True),
    "expanded, not rewritten": ({"opset": 24, "attention": "expanded"}, False),
    "portable": ({"target": "portable"}, True),
}
PATHS = ["eager", "graph", *EXPORTS]
Arrays = dict[str, np.ndarray]


def lowest(dtype: Any) -> float:
    return float(ml_dtypes.finfo(dtype).min)


@cache
def compiled(path: str, shapes: tuple[tuple[str, tuple[Any, ...], str], ...], attributes: tuple[Any, ...]) -> Any:
    def run(query: Any, key: Any, value: Any, mask: Any = None, key_mask: Any = None) -> Any:
        return attention(query, key, value, mask, key_mask, **dict(attributes))

    specs = {name: lucid.spec(*shape, dtype=dtype) for name, shape, dtype in shapes}
    graph = lucid.trace(run, kwargs=specs)
    if path == "graph":
        return lambda arrays: graph(*arrays.values())
    options, optimize = EXPORTS[path]
    session = lucid.runtime.Session(lucid.export.to_onnx(graph, **options), threads=1, optimize=optimize)
    return lambda arrays: session.run(arrays)["output"]


def run(path: str, arrays: Arrays, **attributes: Any) -> np.ndarray:
    """The output of a path, in float64."""
    if path == "eager":
        tensors = {name: lucid.tensor(array) for name, array in arrays.items()}
        inputs = [tensors.get(name) for name in ("query", "key", "value", "mask", "key_mask")]
        output = attention(*inputs, **attributes).numpy()  # type: ignore[arg-type]
    else:
        l, s = arrays["query"].shape[2], arrays["key"].shape[2]
        named = {
            "query": ("N", H, "L", D),
            "key": ("N", H, "S", D),
            "value": ("N", H, "S", D),
            "mask": ("L", "S"),
            "key_mask": ("N", "S"),
        }
        if l == s:
            named["key"] = named["value"] = ("N", H, "L", D)
            named["mask"], named["key_mask"] = ("L", "L"), ("N", "L")
        shapes = tuple((name, named[name], array.dtype.name) for name, array in arrays.items())
        output = compiled(path, shapes, tuple(attributes.items()))(arrays)
    return np.asarray(output).astype(np.float64)


def inputs(sizes: tuple[int, int, int], dtype: Any = np.float32, seed: int = 0) -> Arrays:
    n, l, s = sizes
    rng = np.random.default_rng([seed, l, s])
    shapes = {"query": (n, H, l, D), "key": (n, H, s, D), "value": (n, H, s, D)}
    return {name: rng.standard_normal(shape).astype(dtype) for name, shape in shapes.items()}


def expected(arrays: Arrays, **attributes: Any) -> np.ndarray:
    with np.errstate(all="ignore"):
        return reference(**arrays, **attributes)[0]


TOLERANCE = {"float32": 2e-6, "float64": 1e-13, "float16": 4e-3, "bfloat16": 3e-2}


def paths_of(dtype: Any) -> list[str]:
    """The paths for queries of a type: the node on the CPU takes only these types."""
    return [p for p in PATHS if p != "cpu, one node" or np.dtype(dtype) in (np.float32, np.float16)]


def check(path: str, arrays: Arrays, want: np.ndarray | None = None, **attributes: Any) -> None:
    """A path agrees with the reference, with NaN and infinities in the same positions."""
    want = expected(arrays, **attributes) if want is None else want
    got = run(path, arrays, **attributes)
    np.testing.assert_allclose(got, want, rtol=0, atol=TOLERANCE[arrays["query"].dtype.name], err_msg=path)


# Masks of another element type than the scores -------------------------------------------------------------------


def masked(sizes: tuple[int, int, int], dtype: Any, value: float, seed: int = 0) -> np.ndarray:
    """(L, S): half of the entries small numbers, the others `value`, which fills the first two rows."""
    _, l, s = sizes
    rng = np.random.default_rng([9, seed, l, s])
    mask = np.where(rng.random((l, s)) < 0.5, rng.standard_normal((l, s)), value)
    mask[:, 0] = 0.5
    mask[:2] = value
    return mask.astype(dtype)


TYPES = [np.dtype(np.float16), BRAIN, np.dtype(np.float32), np.dtype(np.float64)]


@pytest.mark.parametrize(
    ("dtype", "mask_type", "path"),
    covering([(t, m, p) for t, m in product(TYPES, TYPES) for p in paths_of(t)], lambda row: row),
    ids=str,
)
def test_a_mask_excludes_by_the_lowest_number_of_its_own_type(
    dtype: np.dtype[Any], mask_type: np.dtype[Any], path: str
) -> None:
    for sizes, value in ((SMALL, lowest(mask_type)), (SMALL, -np.inf), (LARGE, lowest(mask_type))):
        arrays = inputs(sizes, dtype) | {"mask": masked(sizes, mask_type, value)}
        assert not expected(arrays)[:, :, :2].any()
        check(path, arrays)


@pytest.mark.parametrize(
    ("dtype", "mask_type", "number"),
    [
        (np.float32, np.float64, lowest(np.float32)),
        (np.float32, np.float64, -1e300),
        (np.float16, np.float32, lowest(np.float16)),
        (np.float16, BRAIN, float(np.float32(-65504).astype(BRAIN))),
        (np.float16, np.float32, -1e30),
        (np.float16, np.float64, -1e300),
        (BRAIN, np.float32, lowest(BRAIN)),
    ],
)
def test_the_lowest_number_of_a_narrower_type_is_added(dtype: Any, mask_type: Any, number: float) -> None:
    """A query for which every key has it sees all keys with equal weight: the number is so large that scores vanish."""
    for sizes in (SMALL, LARGE):
        arrays = inputs(sizes, dtype) | {"mask": masked(sizes, mask_type, number)}
        arrays["query"] = np.zeros_like(arrays["query"])
        want = expected(arrays)
        assert want[:, :, :2].any()
        for path in paths_of(dtype):
            check(path, arrays, want)


@dataclass(frozen=True)
class Two:
    """Two masks: the types of queries, mask and key mask, and their values for the keys they exclude."""

    dtype: Any
    mask: Any
    key_mask: Any
    excluded: tuple[float | None, float | None] = (None, None)  # None: the lowest of its type
    attributes: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        names = [np.dtype(t).name for t in (self.dtype, self.mask, self.key_mask)]
        return " ".join([*names, *map(str, self.attributes)])

    def features(self) -> tuple[Any, ...]:
        """A name for what the paths may treat differently."""
        return self.dtype, self.mask, self.key_mask, self.excluded, *self.attributes

    def arrays(self, sizes: tuple[int, int, int]) -> Arrays:
        n, l, s = sizes
        arrays = inputs(sizes, self.dtype)
        for i, (name, dtype) in enumerate((("mask", self.mask), ("key_mask", self.key_mask))):
            hidden = np.random.default_rng([i, l, s]).random((l, s) if name == "mask" else (n, s)) < 0.4
            if name == "mask":
                hidden[:2] = True
            if np.dtype(dtype) == np.bool_:
                arrays[name] = ~hidden
            else:
                fill = self.excluded[i]
                value = lowest(dtype) if fill is None else fill
                added = np.random.default_rng([7, i]).standard_normal(hidden.shape)
                arrays[name] = np.where(hidden, value, added).astype(dtype)
        return arrays


TWO = [
    Two(np.float32, np.float32, np.float32),
    Two(np.float32, np.float16, np.float32),
    Two(np.float32, np.float16, BRAIN, (None, -np.inf)),
    Two(np.float32, np.float64, np.float16),
    Two(np.float32, np.float16, np.bool_),
    Two(np.float32, np.bool_, BRAIN),
    Two(np.float64, np.float64, np.float64, (None, -np.inf)),
    Two(np.float64, np.float64, np.bool_),
    Two(np.float64, np.bool_, np.float64),
    Two(np.float64, np.float32, np.float16),
    Two(np.float16, np.float16, np.float16),
    Two(np.float16, np.float32, np.float16),
    Two(np.float16, np.float16, np.bool_),
    Two(BRAIN, np.float16, np.float32),
    Two(np.float32, np.float16, np.float32, attributes={"is_causal": True}),
    Two(np.float32, np.float16, np.bool_, attributes={"window": 3, "is_causal": True}),
]


@pytest.mark.parametrize(
    ("two", "path"),
    covering([(two, p) for two in TWO for p in paths_of(two.dtype)], lambda row: (*row[0].features(), row[1])),
    ids=str,
)
def test_two_masks(two: Two, path: str) -> None:
    """float64 keeps its precision; a key that one of them excludes is excluded, whatever the other adds."""
    for sizes in (SMALL, LARGE):
        check(path, two.arrays(sizes), **two.attributes)


@pytest.mark.parametrize(
    ("dtype", "path"), [(t, p) for t in (np.dtype("f2"), np.dtype("f4"), np.dtype("f8")) for p in paths_of(t)], ids=str
)
def test_sums_of_two_masks(dtype: Any, path: str) -> None:
    """No number undoes an exclusion; a sum that is not above the lowest number of the scores excludes."""
    for sizes in (SMALL, LARGE):
        n, l, s = sizes
        arrays = inputs(sizes, dtype)
        arrays["mask"], arrays["key_mask"] = np.zeros((l, s), dtype), np.zeros((n, s), dtype)
        arrays["mask"][0, 1:] = lowest(dtype)
        arrays["key_mask"][:, 1] = -lowest(dtype) / 4
        arrays["mask"][1] = lowest(dtype)
        check(path, arrays, np.where(np.arange(l)[:, None] == 1, 0, expected(arrays)))
        below = arrays | {"mask": np.full((l, s), 0.6 * lowest(dtype), dtype)}
        below["key_mask"] = np.full((n, s), 0.6 * lowest(dtype), dtype)
        if dtype == np.float16:  # scores are float32 there: these numbers are within their range
            below["query"] = np.zeros_like(below["query"])
            check(path, below)
        else:
            assert not run(path, below).any()


@pytest.mark.parametrize("path", PATHS[2:])
@pytest.mark.parametrize(("padding", "attend"), [(np.float16, np.float32), (np.float32, np.float16), (BRAIN, bool)])
def test_multi_head_attention_joins_masks_of_any_type(padding: Any, attend: Any, path: str) -> None:
    n, l, s = SMALL
    width = H * D
    rng = np.random.default_rng(0)
    arrays = {name: rng.standard_normal((n, length, width)).astype(np.float32) for name, length in (("q", l), ("k", s))}
    hidden = rng.random((l, s)) < 0.4
    hidden[1] = True
    arrays["attn_mask"] = hidden if attend is bool else np.where(hidden, lowest(attend), 0.25).astype(attend)
    padded = np.arange(s) >= np.array([[s - 2], [s]])
    arrays["padding"] = np.where(padded, lowest(padding), 0.5).astype(padding)
    weight = lucid.tensor(rng.standard_normal((3 * width, width)).astype(np.float32) / 4)

    def model(q: Any, k: Any, attn_mask: Any, padding: Any) -> Any:
        return F.multi_head_attention_forward(
            q,
            k,
            k,
            width,
            H,
            weight,
            key_padding_mask=padding,
            attn_mask=attn_mask,
            batch_first=True,
            add_zero_attn=True,
            need_weights=False,
        )[0]

    shapes = {"q": ("N", "L", width), "k": ("N", "S", width), "attn_mask": ("L", "S"), "padding": ("N", "S")}
    specs = {name: lucid.spec(*shape, dtype=arrays[name].dtype.name) for name, shape in shapes.items()}
    options, optimize = EXPORTS[path]
    session = lucid.runtime.Session(lucid.export.to_onnx(model, kwargs=specs, **options), optimize=optimize)
    together = np.where(hidden | padded[:, None], -np.inf, 0.5 if attend is bool else 0.75)[:, None]
    one = lucid.tensor(together.astype(np.float32))
    want = model(*map(lucid.tensor, (arrays["q"], arrays["k"])), one, lucid.zeros(n, s)).numpy()
    for got in (session.run(arrays)["output"], model(*map(lucid.tensor, arrays.values())).numpy()):
        np.testing.assert_allclose(got, want, rtol=0, atol=2e-6)


# NaN and infinity ------------------------------------------------------------------------------------------------


@pytest.fixture
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles so small that the kernel skips blocks of keys."""
    for name, size in (("ROWS", 16), ("KEYS", 32), ("EDGE", 16), ("TILE", 1024), ("FEW", 0)):
        monkeypatch.setattr(attention_tiles, name, size)


@in_pairs(number=[np.nan, np.inf], mask_type=[np.float16, np.float32, np.float64], path=PATHS)
def test_nan_or_infinity_in_a_mask_is_nan_for_its_queries(number: float, mask_type: Any, path: str) -> None:
    """Also if all other keys are excluded; not if another mask, or the position, excludes that key."""
    for arrays, attributes, want in not_numbers(number, mask_type):
        check(path, arrays, want, **attributes)


@cache
def not_numbers(number: float, mask_type: Any) -> list[tuple[Arrays, dict[str, Any], np.ndarray]]:
    """Masks that are NaN or infinite for two queries, with the reference's output, computed once for all paths."""
    cases = []
    for sizes in (SMALL, LARGE, SQUARE):
        _, l, s = sizes
        arrays = inputs(sizes) | {"mask": masked(sizes, mask_type, -np.inf)}
        arrays["mask"][1, 2] = arrays["mask"][3, 0] = number
        assert np.isnan(expected(arrays)).all(-1)[0, 0].tolist() == [i in (1, 3) for i in range(l)]
        kept = np.ones((sizes[0], s), bool)
        kept[0, 2] = False
        cases += [(arrays, {}), (arrays, {"is_causal": True}), (arrays | {"key_mask": kept}, {})]
        cases += [(arrays | {"key_mask": np.where(kept, 0, -np.inf).astype(np.float32)}, {})]
    return [(arrays, attributes, expected(arrays, **attributes)) for arrays, attributes in cases]


LEAST = lowest(np.float32)


@cache
def hidden_by_a_mask(number: float, hide: str) -> list[tuple[Arrays, np.ndarray]]:
    """A number in the fourth query, key or value, of which a mask hides the keys; the second query sees none."""
    cases = []
    for sizes in (SMALL, LARGE):
        n, l, s = sizes
        seen = np.ones((l, s), bool)
        seen[:, 3:] = False  # whole blocks of keys
        seen[1] = False
        attention_mask = {"mask": seen}
        if hide != "bool":
            attention_mask["mask"] = np.where(seen, 0, LEAST if hide == "finfo.min" else -np.inf).astype(np.float32)
        for where in ("query", "key", "value"):
            for masks in (attention_mask, {"key_mask": np.tile(seen[0], (n, 1))}):
                arrays = inputs(sizes) | masks
                arrays[where][0, :, 3, 1] = number
                cases.append((arrays, expected(arrays)))
    return cases


@pytest.mark.usefixtures("small_tiles")
@in_pairs(number=[np.nan, np.inf, -np.inf], hide=["bool", "-inf", "finfo.min"], path=PATHS)
def test_a_mask_hides_numbers_only(number: float, hide: str, path: str) -> None:
    """NaN and infinity under a mask follow arithmetic: -inf is added to a score, a value is multiplied by 0."""
    for arrays, want in hidden_by_a_mask(number, hide):
        got = run(path, arrays)
        if "mask" in arrays:  # all that the contract requires for a query without keys
            assert set(np.unique(np.nan_to_num(got[:, :, 1]))) == {0}
            got[:, :, 1] = want[:, :, 1]
        np.testing.assert_allclose(got, want, rtol=0, atol=2e-6)


@cache
def hidden_by_position(number: float, window: int | None) -> list[tuple[Arrays, np.ndarray, np.ndarray, np.ndarray]]:
    """A number in one key or value: the output with it, the output without it, and the queries that see it."""
    cases = []
    for sizes in (SMALL, LARGE, SQUARE):
        clean, l = inputs(sizes), sizes[1]
        without = expected(clean, is_causal=True, window=window)
        for where, position in (("key", 2), ("value", l - 1)):
            arrays = {name: array.copy() for name, array in clean.items()}
            arrays[where][:, :, position, 1] = number
            behind = np.arange(l) - position
            sees = (behind >= 0) & (behind < (window or l))
            cases.append((arrays, expected(arrays, is_causal=True, window=window), without, sees))
    return cases


@pytest.mark.usefixtures("small_tiles")
@in_pairs(window=[None, 3], number=[np.nan, np.inf, -np.inf], path=PATHS)
def test_what_position_hides_is_nan_or_not_there(window: int | None, number: float, path: str) -> None:
    for arrays, want, without, sees in hidden_by_position(number, window):
        got = run(path, arrays, is_causal=True, window=window)
        allowed = np.where(np.isnan(got), np.nan, without)
        np.testing.assert_allclose(got, np.where(sees[:, None], want, allowed), rtol=0, atol=2e-6)


ONE_NODE = {"any", "any, not rewritten", "cpu", "cpu, not rewritten", "cpu, one node"}


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("path", [p for p in PATHS if p not in ONE_NODE])
@pytest.mark.parametrize("window", [None, 1])
def test_a_query_that_sees_scores_of_minus_infinity_alone_gets_nothing_that_is_hidden(
    window: int | None, path: str
) -> None:
    for sizes in (SMALL, SQUARE):
        arrays = inputs(sizes) | {"value": np.full((*sizes[:1], H, sizes[2], D), 7, np.float32)}
        arrays["key"][:, :, 1:, 0] = 0.0
        arrays["query"][:, :, 0, 0], arrays["key"][:, :, 0, 0] = -1e30, 1e30
        got = run(path, arrays, is_causal=True, window=window)[:, :, 0]
        assert np.isnan(got).all() or (window is not None and not got.any())
