"""A model's config as a table: each field says which option of config.json it is read from, and what is valid there.

::

    from lucid.models.checkpoints import option_table as option

    @dataclass(frozen=True)
    class AlbertConfig(option.OptionTable):
        vocab_size: int = option.size("vocab_size")
        hidden_size: int = option.size("hidden_size")
        num_heads: int = option.heads("num_attention_heads")      # a divisor of hidden_size
        eps: float = option.real("layer_norm_eps", 1e-12)         # the default of a config that is made in Python
        start: int | None = option.whole("start", absent=None)    # what an absent option means, and that default
        num_labels: int = 0                                       # no option

An absent option without `absent` means what transformers takes. Rows are read in their order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, Self

from lucid.models.checkpoints.config import MAX_NUMBER, Config

_ROW = "option"


@dataclass(frozen=True)
class OptionTable:
    """The base of configs."""

    @classmethod
    def read(cls, options: Config) -> Self:
        """From config.json.

        Raises:
            ConfigError: for an option that is missing or not valid.
        """
        return cls.from_rows(options)

    @classmethod
    def from_rows(cls, options: Config, names: Mapping[str, str] | None = None, **known: Any) -> Self:
        """From the rows, except the fields that the caller knows already.

        Args:
            names: what this model_type calls an option, by the name in the table.
        """
        values = dict(known)
        for one in fields(cls):
            if one.name not in known and _ROW in one.metadata:
                values[one.name] = one.metadata[_ROW](options, values, names or {})
        return cls(**values)


def row(
    read: Callable[..., Any],
    name: str,
    default: Any = MISSING,
    absent: Any = MISSING,
    of: str | None = None,
    **how: Any,
) -> Any:
    """A field that is read by a function of the options and the name, such as a method of `Config`.

    Args:
        of: the field whose value the function gets after the name.
        how: further arguments of the function.
    """

    def read_row(options: Config, values: Mapping[str, Any], names: Mapping[str, str]) -> Any:
        first = [] if of is None else [values[of]]
        return read(options, names.get(name, name), *first, *([] if absent is MISSING else [absent]), **how)

    return field(default=absent if default is MISSING else default, metadata={_ROW: read_row})


def derived() -> Any:
    """A field that `read` makes of several options."""
    return field()


def size(name: str, default: Any = MISSING, *, absent: Any = MISSING, low: int = 1) -> Any:
    """The length of an axis of some weight."""
    return row(Config.size, name, default, absent, low=low)


def sizes(name: str, default: Any = MISSING, *, like: str | None = None) -> Any:
    """A list of sizes, as many as the field `like` has."""

    def read(options: Config, name: str, *others: tuple[int, ...]) -> tuple[int, ...]:
        return options.sizes(name, count=len(others[0]) if others else None)

    return row(read, name, default, MISSING, like)


def whole(
    name: str, default: Any = MISSING, *, absent: Any = MISSING, low: int = 1, high: int = MAX_NUMBER, why: str = ""
) -> Any:
    """An integer in a range."""
    return row(Config.whole, name, default, absent, low=low, high=high, why=why)


def layers(name: str, default: Any = MISSING, *, absent: Any = MISSING, within: str = "", numbered: bool = True) -> Any:
    """A number of layers; the checkpoint must have weights for each. See `Config.layers`."""
    return row(Config.layers, name, default, absent, within=within, numbered=numbered)


def heads(name: str, default: Any = MISSING, *, absent: Any = MISSING, of: str = "hidden_size") -> Any:
    """A divisor of the width that another field has."""
    return row(Config.heads, name, default, absent, of)


def real(name: str, default: Any = MISSING, *, absent: Any = MISSING, low: float = 0.0, high: float = 1e30) -> Any:
    """A finite number in a range."""
    return row(Config.real, name, default, absent, low=low, high=high)


def flag(name: str, default: Any = MISSING, *, absent: Any = MISSING) -> Any:
    """A boolean."""
    return row(lambda options, name, *default: options.get(name, bool, *default), name, default, absent)


def activation(name: str, default: Any = MISSING, *, absent: Any = MISSING) -> Any:
    """The name of an activation function, one of ACTIVATIONS."""
    return row(Config.activation, name, default, absent)


def choice(name: str, table: Mapping[str, Any], default: Any = MISSING, *, absent: Any = MISSING) -> Any:
    """The entry of a table under the name that the option gives; `absent` is a name too."""

    def read(options: Config, name: str, *default: str) -> Any:
        return options.choose(name, table, *default)

    first = table[absent] if default is MISSING and absent is not MISSING else default
    return row(read, name, first, absent)
