"""Reading published checkpoints: config.json option by option, weights key by key, nothing silently ignored.

::

    config = Config.read(folder, "gpt2")                      # an error if it is the config of another architecture
    width = config.get("n_embd", int)                         # must be there
    inner = config.get("n_inner", int, 4 * width)             # where absent or null: the given default
    act = config.choose("activation_function", ACTIVATIONS)   # one of a table's names; its value comes back
    config.only("add_cross_attention", False)                 # if there, it must be this
    config.done(ignore=["summary_.*"])                        # whatever has not been asked for by now is an error
    load_into(model, arrays, renames=[(r"^h\\.", "transformer.h.")], ignore=[r"attn\\.bias$"])
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, overload

import numpy as np

from lucid import Tensor, nn
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

# Options of every config that say nothing about what a forward pass computes: where a checkpoint comes from, how it was
# or is to be trained, how text is generated from it, what Python gets back. Regular expressions for the whole name.
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


class ConfigError(ValueError):
    """A config.json asks for something that the model here does not do, or lacks what it needs."""


class Config:
    """The options of a config.json, or of one object inside it, and a memory of which of them were asked for."""

    def __init__(self, options: Mapping[str, Any], where: str) -> None:
        self.options, self.where = dict(options), where
        self._asked: set[str] = set()
        self._sections: list[Config] = []

    @staticmethod
    def read(folder: str | os.PathLike[str], *model_types: str) -> Config:
        """The config.json of a folder, whose model_type must be one of those given.

        Raises:
            ConfigError: for another architecture, or a file that is no JSON object.
            OSError: when there is no such file.
        """
        path = Path(folder) / "config.json"
        try:
            options = json.loads(path.read_text(encoding="utf-8"))
        except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ConfigError(f"{path}: not valid JSON ({error}); download it again") from None
        if not isinstance(options, dict):
            raise ConfigError(f"{path}: holds a JSON {type(options).__name__}, expected an object of options")
        config = Config(options, str(path))
        config.choose("model_type", {name: name for name in model_types})
        return config

    @property
    def model_type(self) -> str:
        """The architecture."""
        return str(self.options["model_type"])

    def has(self, name: str) -> bool:
        """Whether an option is given and not null."""
        self._asked.add(name)
        return self.options.get(name) is not None

    @overload
    def get(self, name: str, kind: type[T], /) -> T: ...

    @overload
    def get(self, name: str, kind: type[T], default: D, /) -> T | D: ...

    def get(self, name: str, kind: type[Any], /, *default: Any) -> Any:
        """The value of an option, of the given type (int, float, bool, str, list); where it is absent, the default.

        Raises:
            ConfigError: when it is absent and there is no default, or of another type.
        """
        if not self.has(name):
            if default:
                return default[0]
            raise ConfigError(f"{self.where}: option {name} is missing, expected {kind.__name__}")
        value = self.options[name]
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if kind is float and number:
            return float(value)
        if not isinstance(value, kind) or (kind is int and not number):
            raise ConfigError(f"{self.where}: option {name} is {value!r}, expected {kind.__name__}")
        return value

    def choose(self, name: str, table: Mapping[str, T], default: str | None = None) -> T:
        """What a table holds under the name that the option gives.

        Raises:
            ConfigError: for a name that the table lacks; the message lists those it has.
        """
        value = self.get(name, str, default) if default is not None else self.get(name, str)
        if value not in table:
            raise ConfigError(f"{self.where}: option {name} is {value!r}, supported: {', '.join(table)}")
        return table[value]

    def only(self, name: str, *values: Any) -> None:
        """Require that an option, where it is given, has one of these values; null counts as not given."""
        if self.has(name) and self.options[name] not in values:
            shown = " or ".join(map(repr, values))
            raise ConfigError(f"{self.where}: option {name} is {self.options[name]!r}, supported: {shown}")

    def section(self, name: str) -> Config:
        """The options of an object inside this one; none where it is absent. `done` looks at them as well."""
        section = Config(self.get(name, dict, {}), f"{self.where}, {name}")
        self._sections.append(section)
        return section

    def done(self, ignore: Sequence[str] = ()) -> None:
        """Call when all options have been read: those left over must be known to change nothing.

        Args:
            ignore: further harmless options, as regular expressions for the whole name.

        Raises:
            ConfigError: naming every other option that is left and is not null or empty.
        """
        harmless = re.compile("|".join([*_HARMLESS, *ignore]))
        left = [
            f"{name} = {value!r}"
            for name, value in self.options.items()
            if name not in self._asked and value not in (None, {}, []) and not harmless.fullmatch(name)
        ]
        if left:
            raise ConfigError(f"{self.where}: not supported here, so the results could be wrong: {'; '.join(left)}")
        for section in self._sections:
            section.done(ignore)


def load_into(
    module: nn.Module,
    arrays: Mapping[str, np.ndarray[Any, Any]],
    renames: Sequence[tuple[str, str]] = (),
    ignore: Sequence[str] = (),
    tied: Mapping[str, str] | None = None,
) -> None:
    """Load a checkpoint's arrays into a module: every key must have its place, and every place its key.

    Args:
        renames: pairs (regular expression, replacement), applied in order to each of the checkpoint's keys.
        ignore: regular expressions found in keys (as renamed) of arrays that the model does not use.
        tied: key -> key of the same weight. A stored copy under the first must equal the second, and is then dropped.

    Raises:
        KeyError: listing all missing, unexpected and mis-shaped keys at once; nothing is loaded then.
        ValueError: where two keys get the same name, or a tied copy differs.
    """
    sources: dict[str, str] = {}
    for key in arrays:
        name = key
        for pattern, replacement in renames:
            name = re.sub(pattern, replacement, name)
        if any(re.search(pattern, name) for pattern in ignore):
            continue
        if name in sources:
            raise ValueError(f"{type(module).__name__}: both {sources[name]} and {key} would be loaded as {name}")
        sources[name] = key
    state = {name: arrays[key] for name, key in sources.items()}
    for copy, original in (tied or {}).items():
        if copy in state and original in state and not np.array_equal(state[copy], state[original]):
            raise ValueError(
                f"{type(module).__name__}: {sources[copy]} differs from {sources[original]}, expected one weight"
            )
        if copy in state:
            held = state.pop(copy)
            state.setdefault(original, held)
    module.load_state_dict(state)
