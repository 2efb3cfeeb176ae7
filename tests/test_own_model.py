"""A type of checkpoints from outside, as docs/howto/own-model.md installs it, is one like Lucid's own."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lucid
from lucid.batch import Predictor
from lucid.generation.chat import load_language_model
from lucid.models.checkpoints import ConfigError, Family, ModelType, registry
from lucid.testing import assert_parity
from tests.chat.checkpoints import checkpoint, tokenizer
from tests.console import in_process
from tests.distributions import installed
from tests.models.goldens import folder as golden
from tests.models.test_gguf import converted
from tests.pages import blocks

ROOT = Path(__file__).parents[1]
PAGE = {block.title: block.text for block in blocks(ROOT / "docs" / "howto" / "own-model.md") if block.title}
MEGATRON = PAGE["pyproject.toml"], {"megatron_bert.py": PAGE["megatron_bert.py"]}
DATA = ROOT / "tests" / "data" / "megatron_bert"
STATES = Family(tasks={"feature-extraction": "megatron_bert:MegatronBert"}, types={"megatron-bert": ModelType()})


def project(name: str, **types: str) -> str:
    """The pyproject.toml of a distribution with entry points."""
    points = "".join(f'"{kind}" = "{value}"\n' for kind, value in types.items())
    return f'[project]\nname = "{name}"\nversion = "1"\n[project.entry-points."lucid.models"]\n{points}'


@pytest.fixture
def megatron(tmp_path: Path) -> Iterator[Path]:
    """The golden of transformers with a tokenizer, and the page's distribution."""
    folder = tmp_path / "megatron"
    shutil.copytree(DATA, folder, ignore=shutil.ignore_patterns("io.*"))
    tokenizer().save(str(folder / "tokenizer.json"))
    with installed(tmp_path / "site", MEGATRON):
        yield folder


def test_the_port_computes_what_transformers_computes(megatron: Path) -> None:
    io = lucid.load(DATA / "io.safetensors")
    inputs = {name: lucid.Tensor(io[name]) for name in ("input_ids", "attention_mask", "token_type_ids")}
    kept = io["attention_mask"] != 0
    for task, output in {"feature-extraction": "last_hidden_state", None: "logits"}.items():
        model = lucid.models.load(megatron, task)
        np.testing.assert_allclose(model(**inputs).numpy()[kept], io[output][kept], rtol=1e-5, atol=1e-6)
    assert type(model).__name__ == "MegatronBertForTokenClassification", "as architectures of config.json say"


@pytest.mark.parametrize("target", ["any", "cpu", "portable"])
def test_every_target_agrees(megatron: Path, target: str) -> None:
    assert_parity(lucid.models.load(megatron, "sentence-similarity"), target=target)


def test_the_command_exports_a_folder_of_the_type(
    megatron: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert in_process(["export", megatron], monkeypatch, megatron.parent) == 0
    assert re.search(r"logits +float32\[N, L, 3\]", capsys.readouterr().out)
    layout = ["--for", "onnxruntime", "--task", "sentence-similarity", "-o", "out"]
    assert in_process(["export", megatron, *layout], monkeypatch, megatron.parent) == 0
    vectors = Predictor(megatron.parent / "out")({"text": ["hello", "a"]})["embedding"]
    assert len(vectors) == 2 and len(vectors[0]) == 8


def test_an_option_that_the_port_does_not_read_is_an_error(megatron: Path) -> None:
    config = json.loads((megatron / "config.json").read_text())
    (megatron / "config.json").write_text(json.dumps(config | {"layer_types": ["full"], "is_decoder": True}))
    with pytest.raises(ConfigError, match=r"option is_decoder is True, supported: False; .*layer_types = \['full'\]"):
        lucid.models.load(megatron)
    lucid.models.load(megatron, ignore=("layer_types", "is_decoder"))
    del config["hidden_act"]
    (megatron / "config.json").write_text(json.dumps(config))
    with pytest.raises(ConfigError, match="option hidden_act is missing, expected str"):
        lucid.models.load(megatron)


def test_architectures_may_name_the_class_itself(megatron: Path) -> None:
    config = json.loads((megatron / "config.json").read_text())
    (megatron / "config.json").write_text(json.dumps(config | {"architectures": ["MegatronBertSentenceEncoder"]}))
    assert type(lucid.models.load(megatron)).__name__ == "MegatronBertSentenceEncoder"


# Decoders -------------------------------------------------------------------------------------------------------------

DECODER = """
from dataclasses import replace
from lucid.models.checkpoints import Family, ModelType
from lucid.models.llama import Llama

FAMILY = Family(tasks={"text-generation": "ours:Ours"}, types={"ours": ModelType(like="llama")})

class Ours(Llama):
    checkpoint = replace(Llama.checkpoint, family=FAMILY)
"""


def test_a_decoder_is_one_class_and_chats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = checkpoint(tmp_path / "folder")
    expected = list(load_language_model(folder).answer(tokenizer().encode("hello").ids, max_new_tokens=4))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "ours"}))
    with installed(tmp_path / "site", (project("ours", ours="ours:FAMILY"), {"ours.py": DECODER})):
        assert list(load_language_model(folder).answer(tokenizer().encode("hello").ids, max_new_tokens=4)) == expected
        assert in_process(["export", folder, "--for", "genai", "-o", "out"], monkeypatch, tmp_path) == 0
    assert json.loads((tmp_path / "out" / "genai_config.json").read_text())["model"]["type"] == "decoder"


@pytest.mark.parametrize(
    ("variant", "base"),
    [
        ("mixtral/base", "mixtral.Mixtral"),
        ("deepseek_v3/base", "deepseek.Deepseek"),
        ("falcon/base", "falcon.Falcon"),
        ("lfm2/base", "lfm2.Lfm2"),
        ("qwen3_next/base", "qwen3_next.Qwen3Next"),
    ],
)
def test_what_a_type_declares_is_read_by_each_decoder(variant: str, base: str, tmp_path: Path) -> None:
    module, name = base.split(".")
    like = json.loads((golden(variant) / "config.json").read_text())["model_type"]
    source = DECODER.replace("models.llama import Llama", f"models.{module} import {name} as Llama")
    known = f'replace(Llama.checkpoint.family.types["{like}"], like="{like}")'
    source = source.replace('ModelType(like="llama")', known)
    shutil.copytree(golden(variant), tmp_path / "folder")
    config = json.loads((tmp_path / "folder" / "config.json").read_text())
    (tmp_path / "folder" / "config.json").write_text(json.dumps(config | {"model_type": "ours", "architectures": []}))
    with installed(tmp_path / "site", (project("ours", ours="ours:FAMILY"), {"ours.py": source})):
        assert type(lucid.models.load(tmp_path / "folder")).__name__ == "Ours"


def test_a_type_says_how_gguf_files_store_it(tmp_path: Path) -> None:
    file = converted("llama/llama2", tmp_path / "model.gguf", named="ours")
    source = DECODER.replace('like="llama"', 'like="llama", gguf=GGUF("ours", "neighbours")')
    source = source.replace("import Family", "import GGUF, Family")
    with pytest.raises(ConfigError, match="architecture is 'ours', supported: deepseek2, .* qwen35; get"):
        lucid.models.load(file)
    with installed(tmp_path / "site", (project("ours", ours="ours:FAMILY"), {"ours.py": source})):
        state = lucid.models.load(file).state_dict()
    for name, tensor in lucid.models.load(golden("llama/llama2")).state_dict().items():
        np.testing.assert_array_equal(state[name].numpy(), tensor.numpy())


# What goes wrong ------------------------------------------------------------------------------------------------------


def load_type(kind: str, folder: Path) -> Any:
    """A checkpoint of this type, without weights."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"model_type": kind}))
    return lucid.models.load(folder)


@pytest.mark.parametrize(
    ("value", "source", "message"),
    [
        ("broken:FAMILY", "import no_such_library", "does not import: No module named 'no_such_library'"),
        ("broken:FAMILY", "FAMILY =", r"does not import: invalid syntax \(broken.py, line 1\)"),
        ("broken:FAMILY", "", "does not import: module 'broken' has no attribute 'FAMILY'"),
        ("broken:FAMILY", "FAMILY = 3", "is a int, expected a lucid.models.checkpoints.Family with this type"),
        ("megatron_bert:FAMILY", "", "is a Family, expected a lucid.models.checkpoints.Family with this type"),
    ],
)
def test_an_entry_point_that_fails_names_its_distribution_and_stops_no_other_type(
    tmp_path: Path, value: str, source: str, message: str
) -> None:
    distribution = project("lucid-broken", broken=value), {"broken.py": source}
    with installed(tmp_path / "site", MEGATRON, distribution):
        where = f"the entry point '{value}' of the distribution lucid-broken for model_type broken {message}"
        with pytest.raises(ConfigError, match=where):
            load_type("broken", tmp_path / "a")
        assert type(lucid.models.load(DATA)).__name__ == "MegatronBertForTokenClassification"
        assert type(lucid.models.load(golden("bert/base"))).__name__ == "Bert"


def test_another_error_of_an_import_is_raised_with_the_distribution(tmp_path: Path) -> None:
    distribution = project("lucid-broken", broken="broken:FAMILY"), {"broken.py": "1 / 0"}
    with (
        installed(tmp_path / "site", distribution),
        pytest.raises(ZeroDivisionError) as caught,
    ):
        load_type("broken", tmp_path / "a")
    assert any("of the distribution lucid-broken" in note for note in caught.value.__notes__)


def test_an_unknown_type_lists_those_of_distributions_and_imports_none(tmp_path: Path) -> None:
    with (
        installed(tmp_path / "site", MEGATRON),
        pytest.raises(
            ConfigError, match="supported: albert, .* whisper, .*megatron-bert; lucid.models.register adds one"
        ),
    ):
        load_type("no_such_type", tmp_path / "a")
    assert "megatron_bert" not in sys.modules


def test_doctor_lists_the_types_of_distributions_and_what_is_wrong_with_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    own = project("ours", bert="megatron_bert:FAMILY", broken="no_such_module:FAMILY"), dict[str, str]()
    with installed(tmp_path / "site", MEGATRON, own):
        assert in_process(["doctor", "--json"], monkeypatch) == 1
    findings = {each["name"]: each for each in json.loads(capsys.readouterr().out)["findings"]}
    good, ignored, broken = (findings[f"model type {name}"] for name in ("megatron-bert", "bert", "broken"))
    assert good["good"] and "megatron_bert:MegatronBert, megatron_bert:FAMILY of " in good["text"]
    assert not ignored["good"] and "is ignored, as Lucid reads bert itself" in ignored["text"]
    assert not broken["good"] and "does not import: No module named 'no_such_module'" in broken["text"]


def test_two_distributions_with_one_type_are_an_error_that_names_both(tmp_path: Path) -> None:
    other = project("other-megatron", **{"megatron-bert": "megatron_bert:FAMILY"}), {}
    with (
        installed(tmp_path / "site", MEGATRON, other),
        pytest.raises(
            ConfigError, match="the distributions lucid-megatron-bert and other-megatron both read it; uninstall"
        ),
    ):
        lucid.models.load(DATA)


def test_a_type_of_lucids_own_stays_lucids(tmp_path: Path) -> None:
    with installed(tmp_path / "site", (project("own-bert", bert="broken:FAMILY"), {"broken.py": "1 / 0"})):
        assert type(lucid.models.load(golden("bert/base"))) is lucid.models.bert.Bert


def test_a_program_registers_a_type_for_itself(tmp_path: Path) -> None:
    with installed(tmp_path / "site", (project("nothing"), MEGATRON[1])):
        with pytest.raises(ConfigError, match="option model_type is 'megatron-bert', .*supported: "):
            lucid.models.load(DATA)
        lucid.models.register(STATES)
        lucid.models.register(STATES)  # the same again
        assert registry.known_types()[-1] == "megatron-bert"
        with pytest.raises(ConfigError, match="MegatronBertForTokenClassification.*feature-extraction"):
            lucid.models.load(DATA)


def test_a_type_that_has_a_model_is_replaced_on_request_only(tmp_path: Path) -> None:
    own = Family(tasks={"feature-extraction": "megatron_bert:MegatronBert"}, types={"bert": ModelType()})
    with installed(tmp_path / "site", MEGATRON):
        with pytest.raises(ValueError, match=r"model_type 'bert' are read by bert.Bert already; give replace=True"):
            lucid.models.register(own)
        lucid.models.register(own, replace=True)
        with pytest.raises(ConfigError, match="option model_type is 'bert', supported: megatron-bert"):
            lucid.models.load(golden("bert/base"))  # whose class was made for another family
    assert type(lucid.models.load(golden("bert/base"))) is lucid.models.bert.Bert


@pytest.mark.parametrize(
    ("family", "message"),
    [
        ("megatron_bert", "got a str, expected a lucid.models.checkpoints.Family"),
        (Family(tasks={"fill-mask": "Mine"}, types={"x": ModelType()}), "'Mine'}, expected classes by task"),
        (Family(tasks={}, types={"x": ModelType()}), "tasks {}, expected classes by task"),
        (Family(tasks={"fill-mask": "a:B"}, types={}), "and at least one type"),
    ],
)
def test_what_is_no_family_is_refused(family: Any, message: str) -> None:
    with pytest.raises(TypeError, match=re.escape(message)):
        lucid.models.register(family)


def test_a_class_that_is_no_model_is_an_error(tmp_path: Path) -> None:
    family = Family(tasks={"fill-mask": "megatron_bert:Layer"}, types={"megatron-bert": ModelType()})
    with installed(tmp_path / "site", (project("nothing"), MEGATRON[1])):
        lucid.models.register(family)
        with pytest.raises(
            TypeError, match="megatron_bert:Layer: expected a class derived from lucid.models.Pretrained"
        ):
            lucid.models.load(DATA, "fill-mask")
