"""Reading config.json option by option: each is checked against its range, and none is silently ignored.

::

    options = Config.read(folder, "gpt2")                     # an error if it is the config of another architecture
    width = options.size("n_embd")                            # required, and no larger than the weights' longest axis
    heads = options.heads("n_head", width)                    # must divide the width
    inner = options.size("n_inner", 4 * width)                # the default if it is absent or null
    act = options.activation("activation_function")           # a name in ACTIVATIONS
    options.only("add_cross_attention", False)                # if it is given, it must be this
    options.done(ignore=["summary_.*"])                       # any option not asked for by now is an error

A config.json is untrusted: each number is checked against a range, and those that give the size of the model against
the names and shapes of the weights, before anything is built.
"""

from __future__ import annotations

import copy
import json
import math
import os
import re
import reprlib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, overload

import lucid
from lucid import Tensor
from lucid.files import NotAFileError, open_regular
from lucid.models._held_weights import Array as Array
from lucid.models._held_weights import Held
from lucid.nn import functional as F

T = TypeVar("T")
D = TypeVar("D")

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_new": lambda x: F.gelu(x, "tanh"),
    "gelu_pytorch_tanh": lambda x: F.gelu(x, "tanh"),
    "gelu_fast": lambda x: F.gelu(x, "tanh"),
    "quick_gelu": lambda x: x * (1.702 * x).sigmoid(),
    "relu": F.relu,
    "silu": F.silu,
    "swish": F.silu,
    "tanh": lambda x: x.tanh(),
}
"""Activation functions by the names that configs use."""

# Options that do not change what a forward pass computes, in any config: where a checkpoint comes from, how it is
# trained, how text is generated from it, what transformers returns. Regular expressions for the whole name.
_HARMLESS = [
    "_.*|architectures|name_or_path|transformers(_js)?_version|transformers\\.js_config|torch_dtype|dtype|model_type|auto_map",
    ".*dropout(_p|_prob|_rate)?|.*_pdrop|drop_path_rate|initializer_(range|factor)|init_std|.*layerdrop|gradient_checkpointing",
    "(id2label|label2id|problem_type|finetuning_task|task_specific_params|tokenizer_class|prefix|num_labels)",
    "(bos|eos|pad|sep|cls|mask|unk|decoder_start|forced_bos|forced_eos)_token_id",
    "use_cache|return_dict(_in_generate)?|output_(hidden_states|attentions|past|scores)|chunk_size_feed_forward",
    "(max|min)_length|do_sample|early_stopping|num_beams|num_beam_groups|diversity_penalty|temperature|top_[kp]|typical_p",
    "(repetition|length)_penalty|(encoder_)?no_repeat_ngram_size|(bad_words|suppress_tokens|begin_suppress_tokens)(_ids)?",
    "num_return_sequences|remove_invalid_values|exponential_decay_length_penalty|torchscript|tf_legacy_loss|use_bfloat16",
]


MAX_CONFIG = 4 << 20  # bytes of a config.json: twice the largest one published, which names 21,000 classes
MAX_NUMBER = (1 << 31) - 1  # for numbers that are not the length of a weight's axis, such as a window
# Up to these sizes the error of `load_into` is the most helpful one: it lists the weights.
_USUAL_SIZE, _USUAL_LAYERS = 1 << 16, 100
_MAX_NAMED = 20  # options that one message lists


class ConfigError(ValueError):
    """A config.json asks for something that the model does not support, or lacks a required option."""


def read_json(path: Path) -> dict[str, Any]:
    """The options in an untrusted JSON file.

    Raises:
        ConfigError: for a file that is not a JSON object.
        OSError: if there is no such file.
    """
    options = parse_json(path)
    if not isinstance(options, dict):
        raise ConfigError(f"{path}: holds a JSON {type(options).__name__}, expected an object of options")
    return options


def parse_json(path: Path) -> Any:
    """What an untrusted JSON file holds.

    Raises:
        ConfigError: for a file that is not valid JSON, or too large for a config.
        OSError: if there is no such file.
    """
    try:
        with open_regular(path) as file:
            text = file.read(MAX_CONFIG + 1)
        if len(text) > MAX_CONFIG:
            raise ConfigError(f"{path}: more than {MAX_CONFIG} bytes, expected a config of a few kilobytes")
        return json.loads(text.decode("utf-8"))
    except NotAFileError as error:
        raise ConfigError(str(error)) from None
    except RecursionError:
        raise ConfigError(f"{path}: not valid JSON (nested too deeply); download it again") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not valid JSON ({_cut(str(error))}); download it again") from None
    except ValueError as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"{path}: holds a number of thousands of digits; download it again") from None


class Config:
    """The options of a config.json, or of one object inside it; it records which of them were asked for."""

    def __init__(
        self,
        options: Mapping[str, Any],
        where: str,
        weights: Callable[[], Mapping[str, Held]] = dict,
        shapes: Callable[[], Mapping[str, tuple[int, ...]]] | None = None,
    ) -> None:
        """`where` starts the messages; `weights` loads the checkpoint that these options describe.

        `shapes` gives the shapes of the weights where these themselves have to be computed.
        """
        self.options, self.where, self._weights = dict(options), where, weights
        self._shapes = shapes or (lambda: {name: weight.shape for name, weight in weights().items()})
        self._asked: set[str] = set()
        self._sections: list[Config] = []

    @staticmethod
    def read(folder: str | os.PathLike[str], *model_types: str) -> Config:
        """The config.json of a folder, whose model_type must be one of those given.

        Raises:
            ConfigError: for another architecture, or a file that is not a JSON object.
            OSError: if there is no such file.
        """
        path = Path(folder) / "config.json"
        config = Config(read_json(path), str(path), cache(lambda: lucid.load(folder)))
        config.expect_type(model_types)
        return config

    def again(self) -> Config:
        """The same options, none of which is asked for yet."""
        fresh = copy.copy(self)
        fresh._asked, fresh._sections = self._asked.copy(), self._sections.copy()
        fresh._asked.clear()
        fresh._sections.clear()
        return fresh

    def expect_type(self, model_types: Sequence[str]) -> None:
        """Require an architecture that is known.

        Raises:
            ConfigError: for another one, listing those that are; the message says where to read how one is added.
        """
        if self.get("model_type", str) not in model_types:
            known = ", ".join(model_types)
            raise self.wrong("model_type", f"supported: {known}; docs/extending.md shows how a model is added")

    @property
    def model_type(self) -> str:
        """The architecture."""
        return str(self.options["model_type"])

    @property
    def weights(self) -> Mapping[str, Held]:
        """The checkpoint that these options describe; it is mapped, and read from the file when used."""
        return self._weights()

    def has(self, name: str) -> bool:
        """Whether an option is given and not null."""
        self._asked.add(name)
        return self.options.get(name) is not None

    @overload
    def get(self, name: str, kind: type[T], /) -> T: ...

    @overload
    def get(self, name: str, kind: type[T], default: D, /) -> T | D: ...

    def get(self, name: str, kind: type[Any], /, *default: Any) -> Any:
        """The value of an option, of the given type (int, float, bool, str, list); if it is absent, the default.

        Raises:
            ConfigError: if it is absent and there is no default, or if it has another type.
        """
        if not self.has(name):
            if default:
                return default[0]
            raise ConfigError(f"{self.where}: option {name} is missing, expected {kind.__name__}")
        value = self.options[name]
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if kind is float and number:
            return self._float(name, value)
        if not isinstance(value, kind) or (kind is int and not number):
            raise self.wrong(name, f"expected {kind.__name__}")
        return value

    def _float(self, name: str, value: float) -> float:
        """A number that float can hold: untrusted JSON may have 1e400, NaN and integers of hundreds of digits."""
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            raise self.wrong(name, "expected a finite number")
        return number

    def whole(self, name: str, /, *default: D, low: int = 1, high: int = MAX_NUMBER, why: str = "") -> int | D:
        """An integer in a range. `why` explains the upper end in the message."""
        value: int | D = self.get(name, int, *default)
        if not isinstance(value, int) or (default and value == default[0]):  # the default may be outside the range
            return value
        if not low <= value <= high:
            raise self.wrong(name, f"expected a whole number from {low} to {high}{why}")
        return value

    def size(self, name: str, /, *default: D, low: int = 1) -> int | D:
        """The length of an axis of some weight, or part of one. If it is unusually large, a weight must be as long."""
        value = self.whole(name, *default, low=low)
        if isinstance(value, int) and value > _USUAL_SIZE:
            shapes = [shape for shape in self._shapes().values() if 0 not in shape]
            longest = max((size for shape in shapes for size in shape), default=1)
            self.whole(name, *default, low=low, high=longest, why=", the longest axis among the weights")
        return value

    def sizes(self, name: str, /, count: int | None = None) -> tuple[int, ...]:
        """A list of sizes, each at least 1 and not unusually large; `count` of them if it is given."""
        values = self.get(name, list)
        many = 1 <= len(values) <= _USUAL_LAYERS if count is None else len(values) == count
        if not many or any(type(value) is not int or not 1 <= value <= _USUAL_SIZE for value in values):
            of = f"1 to {_USUAL_LAYERS}" if count is None else str(count)
            raise self.wrong(name, f"expected a list of {of} whole numbers from 1 to {_USUAL_SIZE}")
        return tuple(values)

    def layers(self, name: str, /, *default: D) -> int | D:
        """The number of layers. If it is unusually large, the checkpoint must have at least as many weights."""
        value = self.whole(name, *default)
        if isinstance(value, int) and value > _USUAL_LAYERS:
            held = len(self.weights)
            self.whole(name, *default, high=held, why=", the number of weights in the checkpoint")
        return value

    def heads(self, name: str, width: int, /, *default: D) -> int | D:
        """The number of heads that share a width: a divisor of it, the default too."""
        value = self.size(name, *default)
        if isinstance(value, int) and width % value:
            raise self.wrong(name, f"expected a divisor of the width {width}")
        return value

    def real(self, name: str, /, *default: D, low: float = 0.0, high: float = 1e30) -> float | D:
        """A finite number in a range."""
        value: float | D = self.get(name, float, *default)
        if isinstance(value, float) and not low <= value <= high:
            raise self.wrong(name, f"expected a number from {low:g} to {high:g}")
        return value

    def wrong(self, name: str, remedy: str) -> ConfigError:
        """The error for an invalid value; the remedy says which are valid: "expected ..."."""
        return ConfigError(f"{self.where}: option {name} is {show(self.options.get(name))}, {remedy}")

    def choose(self, name: str, table: Mapping[str, T], default: str | None = None) -> T:
        """The entry of a table under the name that the option gives.

        Raises:
            ConfigError: for a name that is not in the table; the message lists those that are.
        """
        value = self.get(name, str, default) if default is not None else self.get(name, str)
        if value not in table:
            raise self.wrong(name, f"supported: {', '.join(table)}")
        return table[value]

    def activation(self, name: str, default: str | None = None) -> str:
        """The name of an activation function, one of ACTIVATIONS."""
        return self.choose(name, {known: known for known in ACTIVATIONS}, default)

    def only(self, name: str, *values: Any) -> None:
        """Require that an option, if it is given, has one of these values; null counts as not given."""
        if self.has(name) and self.options[name] not in values:
            shown = " or ".join(map(repr, values))
            raise self.wrong(name, f"supported: {shown}")

    def section(self, name: str) -> Config:
        """The options of an object inside this one; empty if it is absent. `done` checks them too."""
        section = Config(self.get(name, dict, {}), f"{self.where}, {name}", self._weights, self._shapes)
        self._sections.append(section)
        return section

    def done(self, ignore: Sequence[str] = ()) -> None:
        """Call after all options have been read: the others must be known to change nothing.

        Args:
            ignore: further harmless options, as regular expressions for the whole name.

        Raises:
            ConfigError: naming every other option that was not read and is not null or empty.
        """
        harmless = re.compile("|".join([*_HARMLESS, *ignore]))
        left = [
            f"{name if name.isidentifier() else show(name)} = {show(value)}"
            for name, value in self.options.items()
            if name not in self._asked and value not in (None, {}, []) and not harmless.fullmatch(name)
        ]
        if left:
            more = f"; and {len(left) - _MAX_NAMED} more" if len(left) > _MAX_NAMED else ""
            shown = "; ".join(map(_cut, left[:_MAX_NAMED])) + more
            raise ConfigError(f"{self.where}: not supported here, so the results could be wrong: {shown}")
        for section in self._sections:
            section.done(ignore)


_SHORT = reprlib.Repr()
_SHORT.maxlist, _SHORT.maxdict, _SHORT.maxstring, _SHORT.maxlong, _SHORT.maxother = 40, 12, 120, 40, 120


def show(value: object) -> str:
    """An untrusted value for a message: escaped, shortened, and of limited depth."""
    return _cut(_SHORT.repr(value))


def _cut(text: str) -> str:
    return text if len(text) <= 300 else text[:300] + "..."
