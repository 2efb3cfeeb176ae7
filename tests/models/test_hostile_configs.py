"""Every number of every config.json, replaced by hostile values: a model, or an error that names the fault.

Each option gets a quarter of the values; the next option, and the next kind of checkpoint of a class, gets the next.
Also config.json itself as something other than a file: a pipe, a device, a link to one.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lucid
from benchmarks.memory import Peak
from lucid.models.bert import Bert
from lucid.models.checkpoints.pretrained import MAX_CONFIG, Config, ConfigError
from lucid.models.t5 import T5
from lucid.nn.module import StateError
from tests.combinations import turns
from tests.models import goldens
from tests.models.zoo import ZOO, Entry

ENTRIES = list({e.name: e for e in reversed(ZOO) if not e.is_head}.values())[::-1]  # heads read the same options
ENTRIES += [e for e in ZOO if e.variant in ("llama/llama3", "llama/dynamic", "llama/yarn", "qwen2/window")]

NASTY = [
    "0", "-1", "3", "1000000", "1000000000", "9223372036854775808", "1e400", "-1e400", "NaN", "1e-400", "1.5",
    "9" * 400, '"7"', "true", "[]", "[1]", "[1, [2]]", '[1e9, "x"]', '{"a": {"b": 1}}', "null",
]  # fmt: skip

LISTS = ("layer_types", "hidden_sizes", "depths", "num_heads", "conv_dim", "conv_kernel", "conv_stride")


def numbers(options: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    """The paths of the numbers in a config, those in its sections included."""
    for name, value in options.items():
        if isinstance(value, dict):
            yield from numbers(value)
        elif (isinstance(value, (int, float)) and not isinstance(value, bool)) or name in LISTS:
            yield options, name


def quarters(entry: Entry) -> list[list[str]]:
    """The hostile values in four parts, beginning with that of an entry's place among those of its class."""
    place = [other for other in ENTRIES if other.read is entry.read].index(entry)
    return [NASTY[(place + number) % 4 :: 4] for number in range(4)]


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.variant)
def test_any_value_in_the_place_of_a_number_makes_a_model_or_a_clear_error(
    entry: Entry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lucid.save(tmp_path / "model.safetensors", lucid.load(goldens.folder(entry.variant)))
    arrays = lucid.load(tmp_path)
    monkeypatch.setattr(lucid, "load", lambda _: dict(arrays))  # reading them each time takes a quarter of the test
    options = json.loads((goldens.folder(entry.variant) / "config.json").read_text())
    config, refused = tmp_path / "config.json", set[str]()
    ignored = re.compile("|".join(entry.read.checkpoint.ignored_options) or "-")  # type: ignore[attr-defined]
    with Peak() as peak:
        for (place, name), values in turns(numbers(options), quarters(entry)):
            right = place[name]
            for nasty in NASTY[-1:] if ignored.fullmatch(name) else values:
                place[name] = "<here>"
                config.unlink(missing_ok=True)  # a new file is made at once; one that is cut to nothing is waited for
                config.write_text(json.dumps(options).replace('"<here>"', nasty))
                try:
                    entry.read.from_pretrained(tmp_path)  # type: ignore[attr-defined]
                except ConfigError as error:
                    message = str(error)
                    assert "config.json" in message and ("expected" in message or "supported" in message), message
                    assert message.isprintable() and len(message) < 1000, message
                    refused.add(name)
                except StateError as error:
                    assert "nothing loaded" in str(error)  # the message lists what does not fit
                    refused.add(name)
            place[name] = right
    assert peak.bytes < 200 << 20
    assert len(refused) >= (4 if entry.name == "ResNet" else 5), refused  # it has four in all


# The file itself ------------------------------------------------------------------------------------------------------


def bert(folder: Path) -> Path:
    for name in ("config.json", "model.safetensors"):
        shutil.copy(goldens.folder("bert/base") / name, folder)
    return folder / "config.json"


@pytest.mark.parametrize("kind", ["pipe", "device", "link to a device", "folder"])
def test_a_config_that_is_no_file_is_refused_unread(kind: str, tmp_path: Path) -> None:
    path = bert(tmp_path)
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero" if kind == "device" else tmp_path / "link")
        (tmp_path / "link").symlink_to("/dev/zero")
    with Peak() as peak, pytest.raises(ConfigError, match=r"config\.json.*: expected a regular file, got a"):
        Bert.from_pretrained(tmp_path)
    assert peak.bytes < 50 << 20


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (" " * (MAX_CONFIG + 1), "more than 4 MiB, the most that is read of it; download it again"),
        ('{"model_type": "bert", "vocab_size": ' + "9" * 5000 + "}", "a number of thousands of digits"),
        ('{"model_type": "bert", "_x": ' + "[" * 100_000 + "]" * 100_000 + "}", "nested too deeply"),
        ('{"model_type": "bert", "_x": ' + "[" * 100 + "]" * 100 + "}", "nested too deeply"),
        ('{"model_type": ' + "[" * 99 + "]" * 99 + "}", r"option model_type is \[\[\["),
        (
            "{" + ",".join(f'"{i}\\u001b[2J": 1' for i in range(5000)) + ', "model_type": "bert", "vocab_size": null}',
            "is null",
        ),
        ('{"model_type": "bert\\u001b[2J"}', r"option model_type is 'bert\\x1b"),
        ('{"model_type": "bert", "model_type": "gpt2"}', "option model_type is 'gpt2', supported: bert"),
    ],
    ids=["long", "digits", "deep", "one too deep", "as deep as may be", "many names", "escapes", "twice"],
)
def test_a_config_of_any_text_ends_in_a_short_error(text: str, message: str, tmp_path: Path) -> None:
    bert(tmp_path).write_text(text)
    with Peak() as peak, pytest.raises(ConfigError, match=message) as caught:
        Bert.from_pretrained(tmp_path)
    assert peak.bytes < 200 << 20
    assert len(str(caught.value)) < 1000 and str(caught.value).isprintable()


def test_names_of_options_that_are_not_known_are_shown_escaped_and_not_all(tmp_path: Path) -> None:
    path = bert(tmp_path)
    strange = {f"{index}\x1b[2J": "x" * 500 for index in range(5000)}
    path.write_text(json.dumps({"model_type": "a model of one's own"} | strange))
    options = Config.read(tmp_path, "a model of one's own")
    with pytest.raises(ConfigError, match=r"could be wrong: '0\\x1b.*; and 4980 more") as caught:
        options.done()
    assert str(caught.value).isprintable() and len(str(caught.value)) < 10_000


# Weights that go along with the config --------------------------------------------------------------------------------


def bloated(folder: Path, arrays: dict[str, Any], **options: object) -> None:
    lucid.save(folder / "model.safetensors", arrays)
    base = json.loads((goldens.folder("t5/v1_0") / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(base | options))


def test_a_header_of_many_tiny_weights_does_not_buy_more_layers_than_it_could_fill(tmp_path: Path) -> None:
    byte = np.zeros((), np.uint8)
    bloated(tmp_path, {f"w{index}": byte for index in range(3000)}, num_layers=3000)
    with (
        Peak() as peak,
        pytest.raises(ConfigError, match="no model that fits 3000 weights: .* more than 7000 parameters"),
    ):
        T5.from_pretrained(tmp_path)
    assert peak.bytes < 100 << 20


def test_an_axis_without_elements_buys_no_size(tmp_path: Path) -> None:
    bloated(tmp_path, {"w": np.zeros((1_000_000, 0), np.uint8)}, vocab_size=1_000_000)
    with pytest.raises(
        ConfigError, match="vocab_size is 1000000, expected a whole number from 1 to 1, the longest axis"
    ):
        T5.from_pretrained(tmp_path)


def test_sizes_that_the_weights_have_cost_nothing_together(tmp_path: Path) -> None:
    sizes = dict.fromkeys(("vocab_size", "d_model", "d_kv", "d_ff"), 10_000_000)
    bloated(tmp_path, {"w": np.zeros(10_000_000, np.bool_)}, **sizes)
    with Peak() as peak, pytest.raises(StateError, match=r"nothing loaded; missing: decoder\.block"):
        T5.from_pretrained(tmp_path)
    assert peak.bytes < 100 << 20
