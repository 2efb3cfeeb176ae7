"""Reading config.json option by option: each is checked against its range, and none that matters is ignored.

::

    options = Config.read(folder, "gpt2")                     # an error if it is the config of another architecture
    width = options.size("n_embd")                            # required, and no larger than the weights' longest axis
    heads = options.heads("n_head", width)                    # must divide the width
    inner = options.size("n_inner", 4 * width)                # the default if it is absent or null
    act = options.activation("activation_function")           # a name in ACTIVATIONS; transformers' default
    options.only("add_cross_attention", False)                # if it is given, it must be this
    options.done(ignore=["summary_.*"])                       # what else transformers reads is an error

What decides is what transformers' code of the model_type reads (`options_read.py`). An option that it reads and this
model does not is refused, unless it has a value that changes nothing; one that it does not read is ignored, and listed
in `Config.ignored`. A reader that names no default gets transformers'. Where it is not known who reads an option, as
for a model_type that transformers does not have, everything must be asked for.

A config.json is untrusted: each number is checked against a range, and those that give the size of the model against
the names and shapes of the weights, before anything is built.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, overload

import lucid
from lucid import Tensor
from lucid.core.words.name_patterns import name_list
from lucid.core.words.safe_text import cut, listed, show
from lucid.models.checkpoints.config_file import MAX_CONFIG as MAX_CONFIG
from lucid.models.checkpoints.config_file import MAX_NAMED, OptionError, by_torch, shown, without_options
from lucid.models.checkpoints.config_file import ConfigError as ConfigError
from lucid.models.checkpoints.config_file import names_of as names_of
from lucid.models.checkpoints.config_file import parse_json as parse_json
from lucid.models.checkpoints.config_file import read_json as read_json
from lucid.models.checkpoints.config_file import read_optional_json as read_optional_json
from lucid.models.checkpoints.config_file import write_json as write_json
from lucid.models.checkpoints.options_read import HARMLESS, OptionsRead, options_read
from lucid.models.checkpoints.quantized_weights import Array as Array
from lucid.models.checkpoints.quantized_weights import QuantizedFormat, QuantizedWeights, Weight
from lucid.models.checkpoints.registry import find_family, known_types
from lucid.models.checkpoints.static_files import with_sizes
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
    "relu2": lambda x: F.relu(x) ** 2,
    "silu": F.silu,
    "swish": F.silu,
    "tanh": lambda x: x.tanh(),
}
"""Activation functions by the names that configs use."""

QUANTIZATION = "quantization_config"
"""The option that describes quantized weights."""
MAX_NUMBER = (1 << 31) - 1  # for numbers that are not the length of a weight's axis, such as a window
# Up to these sizes the error of `load_into` is the most helpful one: it lists the weights.
_USUAL_SIZE, _USUAL_LAYERS = 1 << 16, 100


class Config:
    """The options of a config.json, or of one object inside it; it records which of them were asked for.

    Attributes:
        reads: what transformers reads of them; None where that is not known.
        ignored: the options that nobody reads, once `done` has been called.
        dropped: those that were left out as the caller asked.
    """

    def __init__(
        self,
        options: Mapping[str, Any],
        where: str,
        weights: Callable[[], Mapping[str, Weight]] = dict,
        shapes: Callable[[], Mapping[str, tuple[int, ...]]] | None = None,
        reads: OptionsRead | None = None,
        strict: bool = False,
    ) -> None:
        """`where` starts the messages; `weights` loads the checkpoint that these options describe.

        `shapes` gives the shapes of the weights where these themselves have to be computed; `strict` says that options
        which nobody is known to read are refused all the same.
        """
        self.options, self.where, self._weights = dict(options), where, weights
        self._shapes = shapes or (lambda: {name: weight.shape for name, weight in weights().items()})
        self.reads, self._strict = reads, strict or reads is None
        self.ignored: tuple[str, ...] = ()
        self.dropped: tuple[str, ...] = ()
        self._asked, self._path = set[str](), ""  # of an object inside: its name and a dot
        self._sections: dict[str, Config] = {}

    @staticmethod
    def read(folder: str | os.PathLike[str], *model_types: str, ignore: Sequence[str] = ()) -> Config:
        """The config.json of a folder, whose model_type must be one of those given, or without any be known.

        Folders of static embeddings need not have the file (`static_files.py`).

        Args:
            ignore: options that are read as if the file did not have them; see `without`.

        Raises:
            ConfigError: for another architecture, a file that is not a JSON object, or nothing to `ignore`.
            OSError: if there is no such file.
        """
        path = Path(folder) / "config.json"
        options = with_sizes(read_optional_json(path), Path(folder)) or read_json(path)
        kind = str(options.get("model_type"))
        family = find_family(kind)
        reads = options_read(family.types[kind].like or kind) if family else None
        where = str(path if path.exists() else folder)
        config = Config(options, where, cache(lambda: lucid.load(folder)), reads=reads).without(ignore)
        config.expect_type(model_types)
        return config

    def again(self) -> Config:
        """The same options; none of them counts as read yet."""
        return self.with_weights(self._weights, self._shapes, self.options)

    def without(self, names: str | Sequence[str]) -> Config:
        """These options as if the file did not have some: ``hidden_size``, or ``text_config.hidden_act`` of an object.

        Args:
            names: of the options; a string is one name.

        Raises:
            ConfigError: for one that it does not have.
        """
        names = name_list("ignore", names, alone=True)
        options = without_options(self.options, names, self.where)
        config = self.with_weights(self._weights, self._shapes, options)
        config.dropped = (*self.dropped, *names)
        return config

    def with_weights(
        self,
        weights: Callable[[], Mapping[str, Weight]],
        shapes: Callable[[], Mapping[str, tuple[int, ...]]],
        options: Mapping[str, Any],
    ) -> Config:
        """Other options and weights of the same file."""
        config = Config(options, self.where, weights, shapes, self.reads, self._strict)
        config.dropped = self.dropped
        return config

    def with_formats(
        self,
        formats: Callable[[], Mapping[str, tuple[QuantizedFormat, str]]],
        remedy: str = "get an intact copy of the checkpoint",
    ) -> Config:
        """These options without `QUANTIZATION`, and the weights that it describes; see `QuantizedWeights`."""
        weights = cache(lambda: QuantizedWeights(self.weights, formats(), self.where, remedy))
        options = {name: value for name, value in self.options.items() if name != QUANTIZATION}
        return self.with_weights(weights, lambda: weights().shapes, options)

    def expect_type(self, model_types: Sequence[str]) -> None:
        """Require one of these architectures; without any, one that some model reads.

        Raises:
            ConfigError: for another one, listing those that are; the message says where to read how one is added.
        """
        kind = self.get("model_type", str)
        known = find_family(kind)
        if kind in model_types or (known and not model_types):
            return
        remedy = f"supported: {', '.join(model_types or known_types())}; lucid.models.register adds one of your own"
        if known is None and self.where.endswith(".json"):
            remedy = f"{by_torch()}; {remedy}"  # first: the command shows the beginning of a long message
        raise self.wrong("model_type", remedy)

    @property
    def model_type(self) -> str:
        """The architecture."""
        return str(self.options["model_type"])

    @property
    def weights(self) -> Mapping[str, Weight]:
        """The checkpoint that these options describe; it is mapped, and read from the file when used."""
        return self._weights()

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The shapes of these weights; nothing is unpacked."""
        return self._shapes()

    def has(self, name: str) -> bool:
        """Whether an option is given and not null."""
        self._asked.add(name)
        return self.options.get(name) is not None

    def is_null(self, name: str) -> bool:
        """Whether an option is given as null, where null and absence differ."""
        self._asked.add(name)
        return name in self.options and self.options[name] is None

    def is_known(self, name: str) -> bool:
        """Whether an option is given and not null, or else has a default in transformers."""
        return self.has(name) or self._default(name) is not None

    def _default(self, name: str) -> Any:
        """transformers' value for an absent option; None if that is null or not known."""
        return None if self.reads is None else self.reads.default(name)

    def whole_or_none(self, name: str, low: int = 1, high: int = MAX_NUMBER) -> int | None:
        """An integer in a range, or None for null; transformers' default if the option is absent."""
        return self.whole(name, low=low, high=high) if self.is_known(name) and not self.is_null(name) else None

    @overload
    def get(self, name: str, kind: type[T], /) -> T: ...

    @overload
    def get(self, name: str, kind: type[T], default: D, /) -> T | D: ...

    def get(self, name: str, kind: type[Any], /, *default: Any) -> Any:
        """The value of an option, of the given type (int, float, bool, str, list); if it is absent, the default.

        Without a default it is that of transformers; null then counts as that only where it is 0, false or empty.

        Raises:
            ConfigError: if it is absent and there is no default, or if it has another type.
        """
        if not self.has(name):
            if default:
                return default[0]
            known = self._default(name)
            if known is None:
                raise self._refused(f"option {name} is missing, expected {kind.__name__}", name)
            if name in self.options and known:
                raise self._refused(f"option {name} is null, expected {kind.__name__}", name)
            return list(known) if kind is list else kind(known)
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
        usual = default[0] if default else self._default(name)
        if not isinstance(value, int) or not self.has(name) or value == usual:  # which may be outside the range
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
        """A list of sizes, each at least 1 and not unusually large; `count` of them if it is given.

        It cannot be ignored: the length of the default would not fit the file's other lists.
        """
        if name in self.dropped:
            raise self._refused(f"option {name} cannot be ignored, expected as many sizes as the checkpoint has", name)
        values = self.get(name, list)
        many = 1 <= len(values) <= _USUAL_LAYERS if count is None else len(values) == count
        if not many or any(type(value) is not int or not 1 <= value <= _USUAL_SIZE for value in values):
            of = f"1 to {_USUAL_LAYERS}" if count is None else str(count)
            raise self.wrong(name, f"expected a list of {of} whole numbers from 1 to {_USUAL_SIZE}")
        return tuple(values)

    def layers(self, name: str, /, *default: D, within: str = "", numbered: bool = True) -> int | D:
        """The number of layers; the checkpoint must have weights for each.

        If it is unusually large, and no weight has a number of a layer, there must be at least as many weights.

        Args:
            within: what the names of the layers' weights contain, such as "encoder.".
            numbered: whether each layer has weights, whose names begin with its place and its number.
        """
        value = self.whole(name, *default)
        count = self._numbered_layers(within) if numbered else 0
        if isinstance(value, int) and 0 < count < value:
            raise self.asks_in_vain(name, value, f"expected at most {count}, the layers that the checkpoint has")
        if isinstance(value, int) and not count and value > _USUAL_LAYERS:
            held = len(self.weights)
            self.whole(name, *default, high=held, why=", the number of weights in the checkpoint")
        return value

    def _numbered_layers(self, within: str) -> int:
        """The number of layers by the names of weights: ``encoder.layer.3.output.bias`` counts four."""
        numbers = (re.search(r"(?:^|\.)(\d{1,9})\.", key) for key in self.weights if within in key)
        return max((int(number[1]) + 1 for number in numbers if number), default=0)

    def has_weights(self, pattern: str) -> bool:
        """Whether a name of the checkpoint's weights contains a regular expression, or the names are not known."""
        names = self.weights
        return not names or any(re.search(pattern, name) for name in names)

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

    def wrong(self, name: str, remedy: str) -> OptionError:
        """The error for an invalid value; the remedy says which are valid: "expected ..."."""
        return self._refused(f"option {name} is {show(self.options.get(name))}, {remedy}", name)

    def asks_in_vain(self, name: str, value: object, problem: str) -> OptionError:
        """The error for an option, given or absent, that needs weights which the checkpoint lacks."""
        what = show(self.options[name]) if self.has(name) else f"absent, which means {value}"
        return self._refused(f"option {name} is {what}, {problem}", name)

    def not_null(self, *names: str) -> None:
        """Refuse null for options that may be absent, where transformers takes no default for null."""
        for name in names:
            if self.is_null(name):
                raise self._refused(f"option {name} is null, expected a value, or no such option", name)

    def _refused(self, problem: str, *names: str) -> OptionError:
        return OptionError(self.where, problem, [self._path + name for name in names])

    def one_of(self, name: str, known: Collection[str], default: str | None = None) -> str:
        """The name that the option gives.

        Raises:
            ConfigError: for one that is not known; the message lists those that are.
        """
        value = self.get(name, str, default) if default is not None else self.get(name, str)
        if value not in known:
            raise self.wrong(name, f"supported: {', '.join(known)}")
        return value

    def choose(self, name: str, table: Mapping[str, T], default: str | None = None) -> T:
        """The entry of a table under the name that the option gives. Raises as `one_of`."""
        return table[self.one_of(name, table, default)]

    def activation(self, name: str, default: str | None = None) -> str:
        """The name of an activation function, one of ACTIVATIONS."""
        return self.one_of(name, ACTIVATIONS, default)

    def only(self, name: str, *values: Any) -> None:
        """Require that an option, if it is given, has one of these values; null counts as not given."""
        if self.has(name) and self.options[name] not in values:
            supported = " or ".join(map(repr, values))
            raise self.wrong(name, f"supported: {supported}")

    @property
    def text(self) -> Config:
        """The options of the model that reads texts: all, or their own object in models that also read images."""
        inside = self.reads is not None and "text_config" in self.reads.sections
        return self.section("text_config") if inside else self

    def section(self, name: str) -> Config:
        """The options of an object inside this one; empty if it is absent. `done` checks them too."""
        if name in self._sections:
            return self._sections[name]
        reads = None if self.reads is None else self.reads.section(name)
        where = f"{self.where}, {name}"
        section = type(self)(self.get(name, dict, {}), where, self._weights, self._shapes, reads, self._strict)
        section._path = f"{self._path}{name}."
        self._sections[name] = section
        return section

    def done(self, ignore: Sequence[str] = ()) -> None:
        """Call after all options have been read: the others must be known to change nothing.

        Args:
            ignore: further harmless options, as regular expressions for the whole name.

        Raises:
            ConfigError: naming every other option that transformers reads, or may read, with a value that may matter.
        """
        self._check_labels()
        harmless = re.compile("|".join([*HARMLESS, *ignore]))
        left, ignored = list[str](), list[str]()
        for name, value in self.options.items():
            read = self.reads is not None and name in self.reads.read
            if name in self._asked or harmless.fullmatch(name) or (not read and value in (None, {}, [])):
                continue
            if self._matters(name, value):
                left.append(name)
            elif not read and self.reads is not None and name not in self.reads.aliases:
                ignored.append(name)
        if left:
            raise self._refused(f"not supported here, so the results could be wrong: {self._shown(left)}", *left)
        for name, section in self._sections.items():
            section.done(ignore)
            ignored += [f"{name}.{inner}" for inner in section.ignored]
        self.ignored = tuple(ignored)

    def _check_labels(self) -> None:
        """Names and number of labels change nothing, but transformers must be able to read them."""
        names, count = self.options.get("id2label"), self.options.get("num_labels", 0)
        if names is not None and not (isinstance(names, dict) and all(map(_is_whole, names))):
            raise self.wrong("id2label", "expected an object of whole numbers and names")
        if not isinstance(count, int) and (count is not None or names is None):
            raise self.wrong("num_labels", "expected a whole number")

    def _matters(self, name: str, value: object) -> bool:
        """Whether an option that was not asked for can change what transformers computes."""
        if self.reads is None:
            return True
        if name in self.reads.aliases:
            real = self.reads.aliases[name]
            return real not in self.options or value != self.options[real]
        return not self.reads.changes_nothing(name, value) if name in self.reads.read else self._strict

    def _shown(self, names: Sequence[str]) -> str:
        return listed([cut(f"{shown(name)} = {show(self.options[name])}") for name in names], MAX_NAMED, "; ")


def _is_whole(text: str) -> bool:
    """Whether a key of a JSON object is a whole number."""
    return re.fullmatch(r"\s*[+-]?\d+\s*", text) is not None
