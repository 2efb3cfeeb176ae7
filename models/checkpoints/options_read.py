"""What transformers has for each model_type: the options of config.json that its code reads, and its classes.

Options that it does not read change nothing. `options_read.json` is generated from transformers' sources, and has for
each model_type

- ``read``: the options that its modeling, configuration and rotary code looks at, and their defaults;
- ``unread``: those that the class of its configs declares and no code of the model looks at;
- ``aliases``: other names of options, which set them;
- ``sections``: the same for objects inside the config;
- ``rope``: the keys of rotary parameters that its own code reads. Those of each rope_type are in the table's ``rope``.

`architectures.json` is generated from them too: the names that `architectures` may have.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

_ARCHITECTURES: Mapping[str, Any] = json.loads(Path(__file__).with_name("architectures.json").read_text("utf-8"))
CLASSES: Mapping[str, Sequence[str]] = _ARCHITECTURES["classes"]
"""The classes of each type."""
TRANSFORMERS: str = _ARCHITECTURES["transformers"]
"""The version of the sources of the classes."""
COMPUTED = "computed"
"""In the table: a default that follows from other options."""


# Options that transformers reads and that do not change what a forward pass computes, in any config: where a checkpoint
# comes from, how it is trained, how text is generated from it, what transformers returns, with which kernels. Regular
# expressions for the whole name.
HARMLESS = [
    "_.*|architectures|name_or_path|transformers(_js)?_version|transformers\\.js_config|torch_dtype|dtype|model_type|auto_map",
    "(attn|experts)_implementation",
    ".*dropout(_p|_prob|_rate)?|.*_pdrop|drop_path_rate|initializer_(range|factor)|init_std|.*layerdrop|gradient_checkpointing",
    "(id2label|label2id|problem_type|finetuning_task|task_specific_params|tokenizer_class|prefix|num_labels)",
    "(bos|eos|pad|sep|cls|mask|unk|decoder_start|forced_bos|forced_eos)_token_id",
    "use_cache|return_dict(_in_generate)?|output_(hidden_states|attentions|past|scores)|chunk_size_feed_forward",
    "(max|min)_length|do_sample|early_stopping|num_beams|num_beam_groups|diversity_penalty|temperature|top_[kp]|typical_p",
    "(repetition|length)_penalty|(encoder_)?no_repeat_ngram_size|(bad_words|suppress_tokens|begin_suppress_tokens)(_ids)?",
    "num_return_sequences|remove_invalid_values|exponential_decay_length_penalty|torchscript|tf_legacy_loss|use_bfloat16",
]


@dataclass(frozen=True)
class OptionsRead:
    """The options of one kind of object in a config.json."""

    model_type: str
    read: Mapping[str, Any]
    unread: frozenset[str] = frozenset()
    aliases: Mapping[str, str] = field(default_factory=dict)
    sections: Mapping[str, OptionsRead] = field(default_factory=dict)

    def default(self, name: str) -> Any:
        """transformers' value for an absent option; None if that is null or follows from others."""
        value = self.read.get(name)
        return None if value == COMPUTED else tuple(value) if isinstance(value, list) else value

    def changes_nothing(self, name: str, value: object) -> bool:
        """Whether an option that is read has a value that computes what its default computes."""
        default = self.read[name]
        return default != COMPUTED and (value == default or (value in (None, {}, []) and not default))

    def section(self, name: str) -> OptionsRead | None:
        """The options of an object inside this one; None if the table does not know it."""
        return self.sections.get(name)


def options_read(model_type: object) -> OptionsRead | None:
    """The options of a model_type; None for a type that is not in the table."""
    return _known().get(model_type) if isinstance(model_type, str) else None


def transformers_version() -> str:
    """The version of the sources that the table was made from."""
    return str(_table()["transformers"])


@cache
def _table() -> dict[str, Any]:
    table: dict[str, Any] = json.loads(Path(__file__).with_suffix(".json").read_text("utf-8"))
    return table


@cache
def _known() -> dict[str, OptionsRead]:
    return {name: _entry(name, entry) for name, entry in _table()["types"].items()}


def _entry(model_type: str, entry: Mapping[str, Any]) -> OptionsRead:
    of_any = _table()["any"]
    sections = {name: _entry(model_type, section) for name, section in entry.get("sections", {}).items()}
    if "rope_parameters" in entry["read"]:
        positions = _rope(model_type, entry.get("rope", ()))
        sections |= {"rope_parameters": positions, "rope_scaling": positions}
    return OptionsRead(
        model_type,
        {**of_any["read"], **entry["read"]},
        frozenset((*of_any["unread"], *entry["unread"])),
        entry.get("aliases", {}),
        sections,
    )


def _rope(model_type: str, own: Sequence[str]) -> OptionsRead:
    """The rotary parameters of all rope_types together, so that a key of another type is refused, not ignored."""
    keys = {key for keys in _table()["rope"].values() for key in keys} | {"type", "rope_type", *own}
    inner = OptionsRead(model_type, dict.fromkeys(sorted(keys)))
    return OptionsRead(model_type, inner.read, sections={"full_attention": inner, "sliding_attention": inner})
