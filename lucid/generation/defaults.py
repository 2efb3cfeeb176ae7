"""The options that a checkpoint recommends, and a request's options over them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lucid.core.words.safe_text import visible
from lucid.generation.options import Options

SAMPLING = ("temperature", "top_k", "top_p", "min_p", "typical_p")
"""Options that have an effect where tokens are drawn."""
_OTHERS = (
    *("do_sample", "max_new_tokens", "repetition_penalty", "no_repeat_ngram_size"),
    *("bad_words_ids", "suppress_tokens"),
)
_GGUF = {
    "general.sampling.temp": "temperature",
    "general.sampling.top_k": "top_k",
    "general.sampling.top_p": "top_p",
    "general.sampling.min_p": "min_p",
    "general.sampling.penalty_repeat": "repetition_penalty",
}


def from_config(config: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The options of a generation_config.json for a single sequence that have an effect.

    Raises:
        ValueError: for a value out of range, naming the file.
    """
    options = {name: config[name] for name in (*SAMPLING, *_OTHERS) if config.get(name) is not None}
    if options.get("top_k") == 0:  # transformers' "all tokens"
        del options["top_k"]
    options = over({}, {"do_sample": False, **options})
    try:
        checked = Options(**{"max_new_tokens": 1, **options})
    except (TypeError, ValueError) as error:
        raise ValueError(f"{where}: {visible(str(error).removeprefix('generate: '))[:200]}") from None
    plain = Options(max_new_tokens=checked.max_new_tokens)
    names = [name for name in options if name == "max_new_tokens" or vars(checked)[name] != vars(plain)[name]]
    return {name: options[name] for name in names}


def from_gguf(metadata: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The options of a GGUF file's metadata; a temperature draws tokens.

    Raises:
        ValueError: for a value out of range, naming the file.
    """
    options = {name: metadata[key] for key, name in _GGUF.items() if metadata.get(key) is not None}
    return from_config({"do_sample": options.get("temperature", 0) != 0, **options}, where)


def over(defaults: Mapping[str, Any], chosen: Mapping[str, Any]) -> dict[str, Any]:
    """A request's options over a checkpoint's; options that have no effect are left out.

    A temperature of 0 takes the likeliest token. Any other option for sampling draws tokens, unless `do_sample` is
    False.
    """
    chosen = {name: value for name, value in chosen.items() if value is not None}
    if chosen.get("temperature") == 0:
        chosen["do_sample"] = False
    elif any(name in chosen for name in SAMPLING):
        chosen.setdefault("do_sample", True)
    options = {**defaults, **chosen}
    if not options.get("do_sample"):
        options = {name: value for name, value in options.items() if name not in (*SAMPLING, "seed")}
    return options


def shown(options: Mapping[str, Any]) -> str:
    """Options as people read them, such as "do_sample=True, temperature=0.6"."""
    return ", ".join(f"{name}={visible(str(value))[:40]}" for name, value in options.items())
