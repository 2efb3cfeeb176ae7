"""Options that the configs of many models share: rotary positions, tied outputs, windows of layers, image sizes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from lucid.models.checkpoints.config import MAX_NUMBER, Config, ConfigError
from lucid.models.checkpoints.option_table import row
from lucid.models.checkpoints.quantized_weights import as_array
from lucid.nn import rope_scaling as scalings

FULL, SLIDING = "full_attention", "sliding_attention"


class Rope(NamedTuple):
    """Base and scaling of rotary positions."""

    theta: float
    scaling: scalings.RopeScaling | None = None


USUAL_ROPE = Rope(10000.0)


def declared_flag(options: Config, flag: bool | str) -> bool:
    """A flag that is the same for all models of a type, or the value of the option of this name."""
    return options.get(flag, bool) if isinstance(flag, str) else flag


def layer_types(
    options: Config, layers: int, default: Sequence[str], known: Sequence[str] = (FULL, SLIDING)
) -> tuple[str, ...]:
    """The type of each layer, one of those known; the default where the config does not say."""
    kinds = options.get("layer_types", list, list(default))
    if len(kinds) != layers or not all(kind in known for kind in kinds):
        raise options.wrong("layer_types", f"supported: {layers} of {' or '.join(known)}")
    return tuple(kinds)


def tied_output(
    options: Config,
    head: str = r"(?:language_model\.)?(?:lm_head|embed_out)\.weight",
    table: str = r"(?:(?:model|language_model)\.){0,2}embed_tokens\.weight",
) -> bool:
    """Whether the output layer is the table of token vectors: as the config says, unless the checkpoint has both.

    As in transformers 5, a stored output layer with other numbers than the table counts, whatever the config says.

    Args:
        head, table: regular expressions for the whole keys of the output layer and of the table.
    """
    if not options.get("tie_word_embeddings", bool):
        return False
    keys = (next((key for key in options.weights if re.fullmatch(each, key)), None) for each in (head, table))
    return equal_weights(options, *keys)


def equal_weights(options: Config, first: str | None, second: str | None) -> bool:
    """Whether the checkpoint's weights of two keys have the same numbers, or one of them is None."""
    weights = options.weights
    return first is None or second is None or np.array_equal(as_array(weights[first]), as_array(weights[second]))


def tied(default: bool = False, **keys: str) -> Any:
    """A field of a config for `tied_output`."""
    return row(lambda options, _: tied_output(options, **keys), "tie_word_embeddings", default)


def read_head_dim(options: Config, name: str) -> int:
    """The width of a head with rotary positions: the option, or an equal share of the hidden size without one."""
    if options.is_known(name):
        head_dim = options.size(name)
    else:
        width = options.size("hidden_size")
        head_dim = width // options.heads("num_attention_heads", width)
    check_pairs(options, head_dim)
    return head_dim


def check_pairs(options: Config, head_dim: int) -> None:
    """Require that heads have features in pairs, which rotary positions turn."""
    if head_dim % 2:
        raise ConfigError(
            f"{options.where}: heads are {head_dim} wide, expected an even number: rotary positions turn pairs"
        )


def rope_section(options: Config) -> Config:
    """The object that holds a model's rotary positions, under its name in transformers 5 or earlier."""
    return options.section("rope_scaling" if options.options.get("rope_scaling") else "rope_parameters")


def rope(options: Config, older: str | float = "rope_theta", section: Config | None = None, whole: bool = True) -> Rope:
    """The rotary positions of a model, in the spelling of transformers 5 or earlier.

    Args:
        older: what earlier versions call the base, or the base that they always take.
        section: the `rope_section`, where the caller reads more of it.
        whole: whether all of a head must be rotated; `rotary_dim` reads which part is.
    """
    section = rope_section(options) if section is None else section
    if whole:
        _whole_heads(options, section)
    theta = rope_theta(section, options, older)
    trained = options.whole("original_max_position_embeddings", None)  # of the model, before that of the section
    return Rope(theta, rope_scaling(section, options.whole("max_position_embeddings"), trained))


def ropes(options: Config, older: Mapping[str, str | float]) -> dict[str, Rope]:
    """The rotary positions of each type of layer.

    `older` has for each type the earlier name of the base, or the base that earlier versions always take. Their
    rope_scaling applies to FULL.
    """
    longest, sections = options.whole("max_position_embeddings"), options.section("rope_parameters")
    ropes = {}
    for kind, name in older.items():
        section = options if kind == FULL and options.has("rope_scaling") else sections
        section = section.section("rope_scaling" if section is options else kind)
        _whole_heads(options, section)
        ropes[kind] = Rope(rope_theta(section, options, name), rope_scaling(section, longest))
    return ropes


def _whole_heads(options: Config, section: Config) -> None:
    """Require that all of a head is rotated."""
    options.only("partial_rotary_factor", 1.0)
    section.only("partial_rotary_factor", 1.0)


def rotary_dim(options: Config, section: Config, head_dim: int, name: str = "partial_rotary_factor") -> int:
    """How many features of a head are rotated: `name` says which part, unless the section does."""
    options.not_null(name)
    section.not_null("partial_rotary_factor")
    outside = options.real(name, high=1.0)
    turned = int(head_dim * section.real("partial_rotary_factor", outside, high=1.0))
    if turned < 2 or turned % 2:
        place = (section, "partial_rotary_factor") if section.has("partial_rotary_factor") else (options, name)
        raise place[0].wrong(place[1], f"expected an even number of the {head_dim} features of a head")
    return turned


def rope_theta(section: Config, options: Config, older: str | float = "rope_theta") -> float:
    """The base of rotary positions: from their section, from the older name outside it, or the number `older`."""
    section.not_null("rope_theta")
    if isinstance(older, float):
        return section.real("rope_theta", older, low=1.001)
    if section.has("rope_theta"):
        options.real(older, None, low=1.001)  # valid, though it does not count then
        return section.real("rope_theta", low=1.001)
    return options.real(older, low=1.001)


def rope_scaling(rope: Config, longest: int, trained: int | None = None) -> scalings.RopeScaling | None:
    """The scaling that an object of options describes.

    Args:
        rope: the object.
        longest: the number of positions of the model.
        trained: the number that it was first trained for, if the config says so outside the object.
    """
    kind, name = rope_type(rope)
    if kind == "default":
        return None
    factor = rope.real("factor", low=1.0)
    if kind == "linear":
        return scalings.LinearScaling(factor)
    if kind == "dynamic":
        return scalings.DynamicNTKScaling(factor, longest)
    rope.not_null("original_max_position_embeddings")
    inner = rope.whole("original_max_position_embeddings", longest)
    trained = inner if trained is None else trained
    if kind == "llama3":
        low, high = rope.real("low_freq_factor", low=1e-3), rope.real("high_freq_factor", low=1e-3)
        if low >= high:
            raise rope.wrong("low_freq_factor", f"expected less than high_freq_factor, which is {high:g}")
        return scalings.Llama3Scaling(factor, low, high, trained)
    if kind == "yarn":
        names = ("beta_fast", "beta_slow", "attention_factor", "mscale", "mscale_all_dim")
        chosen = {
            each: rope.real(each, low=1e-3 if each.startswith("beta") else 0.0) for each in names if rope.has(each)
        }
        return scalings.YarnScaling(factor, trained, truncate=rope.get("truncate", bool, True), **chosen)
    raise rope.wrong(name, "supported: default, linear, dynamic, llama3, yarn")


def rope_type(rope: Config) -> tuple[str, str]:
    """The kind of a scaling, and the option that says it: newer releases of transformers write both names."""
    name = "rope_type" if rope.has("rope_type") else "type"
    if name == "type":
        rope.not_null("rope_type", "type")
    return rope.get("rope_type", str, rope.get("type", str, "default")), name


def read_image_size(options: Config, name: str) -> tuple[int, int]:
    """Height and width of an image: one number for both, or a list of two."""
    size = options.options.get(name)
    if not isinstance(size, list):
        side = options.whole(name)
        return side, side
    sides = options.get(name, list)
    if len(sides) != 2 or any(type(side) is not int or not 0 < side <= MAX_NUMBER for side in sides):
        raise options.wrong(name, f"expected a whole number from 1 to {MAX_NUMBER}, or a list of two")
    return sides[0], sides[1]


def read_patch_size(options: Config, name: str, image_size: int | tuple[int, int], *default: int) -> int:
    """The height and width of a patch; an image must hold at least one."""
    side = image_size if isinstance(image_size, int) else min(image_size)
    size = options.whole(name, *default, high=side, why=", the size of an image")
    if size > side:  # the default of the type
        raise options.asks_in_vain(name, size, f"expected at most {side}, the size of an image")
    return size
