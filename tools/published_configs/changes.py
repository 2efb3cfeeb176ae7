"""One-option changes of a config: each option absent, null, and with other values."""

from __future__ import annotations

import copy
from collections.abc import Container, Iterator, Mapping
from typing import Any, NamedTuple

from lucid.models.checkpoints.options_read import COMPUTED, options_read
from tests.published import DECODER, SIZES, tiny
from tools.published_configs.reference import Refused, difference, ours, theirs

TOLERANCE = 2e-5
_ACTIVATIONS = ("gelu", "gelu_new", "relu", "silu", "tanh")
_WORDS = {
    "position_embedding_type": ("absolute", "relative_key"),
    "feed_forward_proj": ("relu", "gelu", "gated-gelu", "gated-silu", "silu"),
    "feat_extract_norm": ("group", "layer"),
    "norm_rel_ebd": ("none", "layer_norm"),
    "classifier_pooling": ("cls", "mean"),
    "rope_type": ("default", "linear", "dynamic"),
}
_SIZES = ("vocab", "layers", "hidden_size", "d_model", "image_size", "_dim", "intermediate", "_positions", "size")


class Finding(NamedTuple):
    """What became of a change."""

    option: str
    value: object
    verdict: str  # equal, refused, misfit (an error about weights or inputs), transformers refused, WRONG
    detail: str


def changes(options: Mapping[str, Any]) -> Iterator[tuple[str, object, dict[str, Any]]]:
    """The options with one change each, the option's name and its value."""
    reads = options_read(options["model_type"])
    assert reads is not None
    names = [*options, *(name for name in reads.read if name not in options)]
    for name in names:
        if name == "model_type" or name.startswith("_"):
            continue
        old = options.get(name, reads.read.get(name))
        if name in options and name not in SIZES.get(options["model_type"], DECODER):
            yield name, "absent", {other: value for other, value in options.items() if other != name}
        # A section that is null has the sizes of a large model.
        for value in _others(name, old) if isinstance(old, dict) else (None, *_others(name, old)):
            if name not in options or options[name] != value or type(options[name]) is not type(value):
                yield name, value, {**copy.deepcopy(dict(options)), name: value}
        if isinstance(options.get(name), dict):
            for inner, value, changed in _inside(
                options[name], SIZES.get(options["model_type"], DECODER).get(name, ())
            ):
                yield f"{name}.{inner}", value, {**copy.deepcopy(dict(options)), name: changed}


def _inside(options: Mapping[str, Any], sizes: Container[str]) -> Iterator[tuple[str, object, dict[str, Any]]]:
    for name, old in options.items():
        if name not in sizes:
            yield name, "absent", {other: value for other, value in options.items() if other != name}
        for value in (None, *_others(name, old)):
            if value != old:
                yield name, value, {**options, name: value}


def _others(name: str, old: object) -> tuple[object, ...]:
    """Other values of an option than the one it has."""
    if name in _WORDS:
        return _WORDS[name]
    if isinstance(old, bool):
        return (not old,)
    if isinstance(old, (int, float)):
        if any(part in name for part in _SIZES) and isinstance(old, int):
            return (0, 2 * old)
        return (0, 1, 2 * old, 0.5) if isinstance(old, float) or old in (0, 1) else (0, 1, 2, old + 1)
    if isinstance(old, str):
        return _ACTIVATIONS if old in _ACTIVATIONS or old.startswith(("gelu", "quick")) else ("other",)
    if isinstance(old, list):
        return (old[::-1], old[:1])
    return (True, 1, 2) if old is None or old == COMPUTED else ()


def judged(options: Mapping[str, Any]) -> tuple[str, str]:
    """The verdict on a config, and what tells about it."""
    try:
        answer = theirs(options)
    except Refused as error:
        return "transformers refused", str(error)
    try:
        output, _ = ours(options, answer.shapes)
    except Refused as error:
        return "refused", str(error)
    except (
        IndexError,
        KeyError,
        ValueError,
    ) as error:  # weights that do not fit the options: refused as well, less clearly
        return "misfit", str(error)[:200]
    gap = difference(output, answer.output)
    if gap > TOLERANCE:  # by rounding alone if not in float64
        output, _ = ours(options, answer.shapes, "float64")
        gap = difference(output, theirs(options, dtype="float64").output)
    return ("equal", f"{gap:.1e}") if gap <= TOLERANCE else ("WRONG", f"{gap:.1e}")


def findings(options: Mapping[str, Any]) -> Iterator[Finding]:
    """The verdicts on all changes of a tiny config."""
    for name, value, changed in changes(tiny(options)):
        yield Finding(name, value, *judged(changed))
