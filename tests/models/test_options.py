"""What decides about an option of config.json: whether transformers' own code of the model_type reads it."""

from __future__ import annotations

import json
import logging
import re
import shutil
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import onnx
import pytest

import lucid
from lucid.layouts import write_folder
from lucid.models.bart import Bart
from lucid.models.checkpoints.config import Config, ConfigError
from lucid.models.checkpoints.families import FAMILIES, MODEL_TYPES
from lucid.models.checkpoints.options_read import OptionsRead, options_read
from lucid.models.checkpoints.registry import family_of
from lucid.models.checkpoints.tasks import class_of
from lucid.models.gpt2 import GPT2
from lucid.models.llama import Llama
from lucid.models.modernbert import ModernBert, ModernBertForMaskedLM
from lucid.models.parts.options import rope
from lucid.models.t5 import T5
from tests.cases import in_one_test
from tests.console import in_process
from tests.models import goldens
from tests.models import test_published_configs as published
from tests.models.architectures import outcomes, write
from tests.published import NEEDED, tiny

KINDS = list(MODEL_TYPES)


def edited(folder: Path, variant: str = "bert/base", without: str = "", **changes: object) -> Path:
    """A copy of a golden checkpoint with other options."""
    target = folder / "model"
    shutil.copytree(goldens.folder(variant), target)
    options = json.loads((target / "config.json").read_text()) | changes
    options.pop(without, None)
    (target / "config.json").write_text(json.dumps(options))
    return target


def states(model: Any) -> Any:
    return model(lucid.tensor([[5, 6, 7]])).numpy()


# The rule -------------------------------------------------------------------------------------------------------------


def test_options_that_nobody_reads_are_ignored_and_listed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = edited(tmp_path, directionality="bidi", use_something_new=True, unsloth_version="2024.9")
    with caplog.at_level(logging.INFO, "lucid.models"):
        model = lucid.models.load(folder)
    assert model.unread.ignored == ("directionality", "use_something_new", "unsloth_version")
    assert re.search(
        r"ignored, as transformers \S+ does not read them for model_type bert: directionality, ", caplog.text
    )
    np.testing.assert_array_equal(states(model), states(lucid.models.load(goldens.folder("bert/base"))))


def test_an_option_that_is_read_and_not_implemented_is_refused_unless_it_changes_nothing(tmp_path: Path) -> None:
    idle = {"is_causal": True, "partial_rotary_factor": 1.0, "sliding_window": None, "per_layer_config": {}}
    for name, value in idle.items():
        folder = tmp_path / name
        folder.mkdir()
        Llama.from_pretrained(edited(folder, "llama/llama2", **{name: value}))
    way_out = r"ignore=\(.is_causal.,\) or --ignore-option is_causal"
    with pytest.raises(ConfigError, match=rf"could be wrong: is_causal = False; .*{way_out}"):
        Llama.from_pretrained(edited(tmp_path, "llama/llama2", is_causal=False))


def test_null_is_the_default_only_where_that_is_false_or_empty(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is_causal = None"):
        Llama.from_pretrained(edited(tmp_path, "llama/llama2", is_causal=None))


def test_another_name_of_an_option_says_the_same_or_is_refused(tmp_path: Path) -> None:
    folder = edited(tmp_path, "gpt2/base", num_hidden_layers=99)
    with pytest.raises(ConfigError, match="could be wrong: num_hidden_layers = 99"):
        GPT2.from_pretrained(folder)
    options = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(options | {"num_hidden_layers": options["n_layer"]}))
    assert GPT2.from_pretrained(folder).unread.ignored == ()


def test_a_model_that_transformers_does_not_have_must_ask_for_every_option() -> None:
    options = Config({"model_type": "averager", "word_order": True}, "config.json")
    with pytest.raises(ConfigError, match="word_order = True"):
        options.done()


def test_code_beside_the_checkpoint_may_read_what_transformers_does_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = edited(tmp_path, auto_map={"AutoModel": "own.Model"}, use_something_new=True)
    lucid.models.load(folder, architecture="BertModel")
    (record,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert "auto_map names code of the checkpoint's own" in record.getMessage()
    assert "use_something_new" in record.getMessage()


def test_of_many_options_the_first_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = edited(tmp_path, **{f"strange_{i}\x1b": "x" * 500 for i in range(1000)})
    with caplog.at_level(logging.INFO, "lucid.models"):
        lucid.models.load(folder)
    assert "and 980 more" in caplog.text
    assert all(record.getMessage().isprintable() for record in caplog.records)


# The way out ----------------------------------------------------------------------------------------------------------


def test_an_option_is_ignored_on_request_and_files_say_so(tmp_path: Path) -> None:
    folder = edited(tmp_path, is_causal=False)
    model = lucid.models.load(folder, ignore=("is_causal",))
    assert model.unread.on_request == ("is_causal",)
    exported = lucid.export.to_onnx(model)
    assert {entry.key: entry.value for entry in exported.metadata_props}["lucid.ignored_options"] == "is_causal"
    plain = lucid.export.to_onnx(lucid.models.load(goldens.folder("bert/base")))
    assert "lucid.ignored_options" not in {entry.key for entry in plain.metadata_props}
    np.testing.assert_array_equal(states(model), states(lucid.models.load(goldens.folder("bert/base"))))
    lucid.models.save(model, folder, tmp_path)
    assert "is_causal" not in json.loads((tmp_path / "config.json").read_text())


def test_a_saved_model_keeps_the_record_of_options_that_were_ignored(tmp_path: Path) -> None:
    folder, first, second = edited(tmp_path / "a", is_causal=False), tmp_path / "first", tmp_path / "second"
    model = lucid.models.load(folder, ignore=("is_causal",))
    first.mkdir()
    second.mkdir()
    lucid.models.save(lucid.quantize(model, 4, block=16), folder, first)
    saved = lucid.models.load(first)
    assert saved.unread.on_request == ("is_causal",)
    exported = lucid.export.to_onnx(saved)
    assert {entry.key: entry.value for entry in exported.metadata_props}["lucid.ignored_options"] == "is_causal"
    lucid.models.save(saved, first, second)
    assert lucid.models.load(second).unread.on_request == ("is_causal",)
    lucid.models.save(model, folder, first)  # without quantized weights
    assert lucid.models.load(first).unread.on_request == ("is_causal",)
    about = json.loads((first / "config.json").read_text())
    about["quantization_config"]["ignored_options"] = [3]
    (first / "config.json").write_text(json.dumps(about))
    with pytest.raises(ConfigError, match="ignored_options is .*expected a list of names"):
        lucid.models.load(first)


def test_an_option_of_an_object_is_ignored_on_request(tmp_path: Path) -> None:
    towers = json.loads((goldens.folder("clip/quick_gelu") / "config.json").read_text())["text_config"]
    folder = edited(tmp_path, "clip/quick_gelu", text_config=towers | {"is_causal": False})
    with pytest.raises(
        ConfigError, match="text_config: not supported here.*is_causal = False; .*--ignore-option text_config.is_c"
    ):
        lucid.models.load(folder)
    assert lucid.models.load(folder, ignore=("text_config.is_causal",)).unread.on_request == ("text_config.is_causal",)


def test_all_refused_options_are_named_at_once_with_the_way_out(tmp_path: Path) -> None:
    changes = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 4, "is_causal": False}
    folder = edited(tmp_path, "llama/llama2", **changes)
    with pytest.raises(ConfigError) as caught:
        lucid.models.load(folder)
    expected = (
        f"{folder / 'config.json'}: option layer_types is ['sliding_attention', 'full_attention'], "
        "supported for llama: 2 of full_attention; option sliding_window is 4, supported for llama: null, or 64 and "
        "more; not supported here, so the results could be wrong: is_causal = False; if you know that they change "
        'nothing, load with ignore=("layer_types", "sliding_window", "is_causal") or --ignore-option layer_types '
        "--ignore-option sliding_window --ignore-option is_causal"
    )
    assert str(caught.value) == expected
    assert lucid.models.load(folder, ignore=tuple(changes)).unread.on_request == tuple(changes)


def test_the_way_out_keeps_what_is_ignored_already(tmp_path: Path) -> None:
    folder = edited(tmp_path, "llama/llama2", is_causal=False, hidden_act="gelu_foo")
    with pytest.raises(
        ConfigError, match=r"hidden_act is 'gelu_foo', .*ignore=\(.is_causal., .hidden_act.\) or --ignore"
    ):
        lucid.models.load(folder, ignore=("is_causal",))


@pytest.mark.parametrize(
    ("changes", "way_out"),
    [
        ({"hidden_act": "gelu_foo"}, "hidden_act"),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "rope_parameters.partial_rotary_factor"),
        ({"model_type": "foo"}, None),
        ({"hidden_size": 1 << 40}, "hidden_size"),
    ],
)
def test_the_way_out_names_options_without_which_the_checkpoint_is_read(
    tmp_path: Path, changes: dict[str, object], way_out: str | None
) -> None:
    with pytest.raises(ConfigError) as caught:
        lucid.models.load(edited(tmp_path, "llama/llama2", **changes))
    message = str(caught.value)
    hint = f"--ignore-option {way_out}"
    way_out_end = f'; if you know that it changes nothing, load with ignore=("{way_out}",) or {hint}'
    assert message.endswith(way_out_end) is bool(way_out), message
    assert ("--ignore-option" in message) is bool(way_out), message


def test_one_name_to_ignore_may_be_a_string(tmp_path: Path) -> None:
    folder = edited(tmp_path, is_causal=False)
    assert lucid.models.load(folder, ignore="is_causal").unread.on_request == ("is_causal",)


@pytest.mark.parametrize(("name", "hint"), [("iscausal", "did you mean is_causal?"), ("text_config.x", "in the file")])
def test_what_is_not_there_cannot_be_ignored(name: str, hint: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"has no option '{re.escape(name)}' to ignore.*{re.escape(hint)}"):
        lucid.models.load(edited(tmp_path, is_causal=False), ignore=(name,))


def test_the_command_line_ignores_and_lists(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, file = edited(tmp_path, is_causal=False, directionality="bidi"), tmp_path / "model.onnx"
    assert in_process(["export", folder, "-o", file], monkeypatch) == 2
    assert "--ignore-option is_causal" in capsys.readouterr().err
    options = ["--ignore-option", "is_causal", "--no-check"]
    assert in_process(["export", folder, "-o", file, *options], monkeypatch) == 0
    assert "directionality" not in capsys.readouterr().err
    assert in_process(["export", folder, "-o", file, *options, "--verbose"], monkeypatch) == 0
    assert "not read them for model_type bert: directionality" in capsys.readouterr().err
    assert onnx.load(file).metadata_props[-1].value == "is_causal"
    assert in_process(["export", "nn.Linear", "--ignore-option", "x", "-o", file], monkeypatch) == 2
    assert "--ignore-option x: SOURCE" in capsys.readouterr().err


def test_the_card_names_options_without_effect(tmp_path: Path) -> None:
    folder = edited(tmp_path, is_causal=False, directionality="bidi")
    model = lucid.models.load(folder, ignore=("is_causal",))
    write_folder(model, folder, tmp_path / "out", layout="onnxruntime")
    card = (tmp_path / "out" / "README.md").read_text()
    assert "ignored on request: is_causal." in card
    assert "no code of the model reads: directionality." in card


# Defaults -------------------------------------------------------------------------------------------------------------


class Recording(Config):
    """Options that record the defaults which a reader names by itself, each with transformers'."""

    named: ClassVar[dict[str, tuple[Any, Any]]] = {}

    def get(self, name: str, kind: type[Any], /, *default: Any) -> Any:
        if default and self.reads is not None and name in self.reads.read:
            self.named[self._path + name] = default[0], self.reads.read[name]
        return super().get(name, kind, *default)


def other_defaults(kind: str, reader: Any, options: dict[str, Any], weights: dict[str, Any]) -> list[str]:
    """The options for which a reader names another default than transformers; computed ones are not known."""
    recording = Recording(options, "config.json", lambda: weights, reads=options_read(kind))
    recording.named.clear()
    reader.checkpoint.read(recording)
    return [
        name
        for name, (ours, theirs) in recording.named.items()
        if theirs not in (ours, None, "computed") and (kind, name) not in KNOWN
    ]


@in_one_test(KINDS)
def test_defaults_that_a_reader_names_are_those_of_transformers(kind: str) -> None:
    """A reader that names none gets the table's; the others are 0, none or empty as in transformers, or computed."""
    config = tiny({"model_type": kind, **NEEDED.get(kind, {})})
    assert not other_defaults(kind, class_of(family_of(kind).model), config, ALWAYS.get(kind, {}))


@pytest.mark.parametrize("kind", sorted({each.kind for each in outcomes()}))
def test_defaults_that_a_head_names_are_those_of_transformers(kind: str) -> None:
    """Those that the model does not read, which the test before does not see."""
    family = family_of(kind)
    for each in outcomes():
        if each.kind == kind and each.exact:
            weights = {name: np.broadcast_to(np.float32(0), shape) for name, shape in each.weights.items()}
            whole = {name: value for name, value in each.config.items() if name not in PARTS}
            of_model = other_defaults(kind, class_of(family.model), whole, weights)
            of_head = other_defaults(kind, class_of(family.tasks[each.task]), each.config, weights)
            assert not {*of_head} - {*of_model}, each.name


PARTS = ("is_encoder_decoder", "is_decoder")
"""Options that say that a checkpoint is of an encoder or a decoder alone."""
ALWAYS = {_kind: {"model.enc_score_head.weight": np.zeros((3, 4))} for _kind in ("rt_detr", "rt_detr_v2")}
"""Weights without which a config is not read."""
KNOWN = {("deberta-v2", "conv_kernel_size")}  # code asks for it twice, with the defaults 0 and 3: the first decides
KNOWN |= {("t5", "tie_word_embeddings"), ("umt5", "tie_word_embeddings")}  # absent is not false, for the scale
for _kind in ("marian", "whisper", "mt5", "umt5"):
    KNOWN.add((_kind, "decoder_start_token_id"))  # what generation begins with, and its own config says


@pytest.mark.parametrize(
    ("variant", "option", "field", "expected"),
    [
        ("mixtral/base", "rms_norm_eps", "eps", 1e-5),
        ("olmo2/base", "rms_norm_eps", "eps", 1e-5),
        ("helium/base", "rms_norm_eps", "eps", 1e-8),
        ("mixtral/base", "rope_parameters", "rope", (1e6, None)),
        ("smollm3/base", "rope_parameters", "rope", (2e6, None)),
        ("mistral/full", "sliding_window", "windows", (4096, 4096)),
    ],
)
def test_an_absent_option_has_transformers_default(
    variant: str, option: str, field: str, expected: object, tmp_path: Path
) -> None:
    model: Any = lucid.models.load(edited(tmp_path, variant, without=option))
    assert getattr(model.config, field) == expected


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"summary_type": "last"}, "option summary_type is 'last', supported: 'first'"),
        ({"summary_activation": "tanh"}, "option summary_activation is 'tanh', supported: 'gelu'"),
        ({"summary_activation": None}, "option summary_activation is null"),
        ({"summary_use_proj": False}, "option summary_use_proj is False, supported: True"),
        ({"summary_proj_to_labels": True}, "option summary_proj_to_labels is True, supported: False"),
    ],
)
def test_options_that_one_head_alone_reads_are_refused_there(
    changes: dict[str, object], message: str, tmp_path: Path
) -> None:
    head = next(each for each in outcomes() if each.name == "ElectraForMultipleChoice")
    write(tmp_path, {**head.config, **changes}, head.weights)
    with pytest.raises(ConfigError, match=re.escape(message)):
        lucid.models.load(tmp_path)
    lucid.models.load(tmp_path, "feature-extraction")


def test_padding_of_a_classifier_has_transformers_default(tmp_path: Path) -> None:
    head = next(each for each in outcomes() if each.name == "GemmaForSequenceClassification")
    options = {name: value for name, value in head.config.items() if name != "pad_token_id"}
    model: Any = lucid.models.load(write(tmp_path, options, head.weights))
    assert model.config.pad_token_id == 0
    write(tmp_path, {**options, "pad_token_id": None}, head.weights)
    model = lucid.models.load(tmp_path)
    assert model.config.pad_token_id is None


def test_m2m_100_without_an_activation_has_relu(tmp_path: Path) -> None:
    model = Bart.from_pretrained(edited(tmp_path, "m2m_100/base", without="activation_function"))
    assert model.config.encoder.activation == "relu"


def test_m2m_100_beyond_its_table_names_the_option(tmp_path: Path) -> None:
    model = Bart.from_pretrained(goldens.folder("m2m_100/base"))
    long = lucid.full((1, model.config.max_positions + 1), 5, dtype=lucid.int64)
    with pytest.raises(ValueError, match=r"tokens, the model \d+ positions; .*raise max_position_embeddings"):
        model(long, lucid.tensor([[2]]))


@pytest.mark.parametrize(
    ("options", "scaled"),
    [
        ({}, True),
        ({"tie_word_embeddings": False}, False),
        ({"scale_decoder_outputs": None}, False),
        ({"scale_decoder_outputs": None, "tie_word_embeddings": True}, False),
        ({"scale_decoder_outputs": True, "tie_word_embeddings": False}, True),
        ({"tie_word_embeddings": None}, True),
    ],
)
@pytest.mark.parametrize("kind", ["t5", "umt5"])
def test_t5_scales_as_the_newer_option_or_else_the_older_one_says(
    kind: str, options: dict[str, Any], scaled: bool
) -> None:
    config = Config({**tiny({"model_type": kind}), **options}, "config.json", dict, reads=options_read(kind))
    assert T5.checkpoint.read(config).scale_outputs is scaled


def test_modernbert_with_a_decoder_without_bias(tmp_path: Path) -> None:
    folder = edited(tmp_path, "modernbert/masked_lm", decoder_bias=False)
    arrays = dict(lucid.load(goldens.folder("modernbert/masked_lm")))
    bias = arrays.pop("decoder.bias")
    lucid.save(folder / "model.safetensors", arrays)
    without = ModernBertForMaskedLM.from_pretrained(folder)
    full = ModernBertForMaskedLM.from_pretrained(goldens.folder("modernbert/masked_lm"))
    np.testing.assert_allclose(states(without), states(full) - bias, atol=1e-5)


def test_modernbert_whose_local_base_is_null_has_the_global_one(tmp_path: Path) -> None:
    base = {"model_type": "modernbert", "global_rope_theta": 1234.0, "local_rope_theta": None}
    config = Config(tiny(base), "config.json", dict, reads=options_read("modernbert"))
    assert {theta for theta, _ in ModernBert.checkpoint.read(config).ropes.values()} == {1234.0}


@pytest.mark.parametrize(
    ("variant", "changes", "message"),
    [
        ("llama/llama2", {"rope_parameters": {"rope_theta": None}}, "rope_parameters: option rope_theta is null"),
        ("mixtral/base", {"rope_parameters": {"rope_theta": None}}, "rope_parameters: option rope_theta is null"),
        ("gemma2/base", {"rope_parameters": {"rope_theta": None}}, "rope_parameters: option rope_theta is null"),
        ("llama/llama2", {"rope_parameters": {"rope_type": None}}, "rope_parameters: option rope_type is null"),
        ("llama/llama2", {"rope_scaling": {"type": None, "factor": 2.0}}, "rope_scaling: option type is null"),
        (
            "llama/llama2",
            {"rope_scaling": {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": None}},
            "option original_max_position_embeddings is null",
        ),
        ("bert/base", {"id2label": [1]}, r"option id2label is \[1\], expected an object of whole numbers"),
        ("bert/base", {"id2label": "float16"}, "option id2label is 'float16', expected an object"),
        ("bert/base", {"id2label": {"a": "b"}}, "option id2label is {'a': 'b'}, expected an object of whole numbers"),
        ("bert/base", {"num_labels": [0, 1]}, r"option num_labels is \[0, 1\], expected a whole number"),
        ("bert/base", {"num_labels": None}, "option num_labels is None, expected a whole number"),
    ],
)
def test_what_stops_transformers_is_refused_by_the_options_name(
    tmp_path: Path, variant: str, changes: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        lucid.models.load(edited(tmp_path, variant, **changes))


def test_labels_that_transformers_reads_change_nothing(tmp_path: Path) -> None:
    ids = lucid.tensor([[5, 6, 7]])
    expected: Any = lucid.models.load(goldens.folder("bert/base"))(ids)
    for number, changes in enumerate(
        ({"id2label": None}, {"id2label": {"0": 1}, "num_labels": None}, {"id2label": {}, "num_labels": 4})
    ):
        (folder := tmp_path / str(number)).mkdir()
        output: Any = lucid.models.load(edited(folder, **changes))(ids)
        np.testing.assert_array_equal(output.numpy(), expected.numpy())


@pytest.mark.parametrize(
    ("variant", "option", "value"),
    [
        ("bert/base", "num_hidden_layers", 5),
        ("bert/base", "num_hidden_layers", None),
        ("llama/llama2", "num_hidden_layers", 5),
        ("bart/base", "encoder_layers", 3),
        ("bart/base", "decoder_layers", 90),
        ("t5/v1_1", "num_layers", 5),
        ("t5/v1_1", "num_decoder_layers", 5),
        ("gpt2/base", "n_layer", 99),
        ("wav2vec2/base", "num_hidden_layers", 3),
        ("modernbert/base", "num_hidden_layers", 22),
        ("deberta/v3", "num_hidden_layers", 5),
    ],
)
def test_more_layers_than_the_checkpoint_has_name_the_option(
    tmp_path: Path, variant: str, option: str, value: int | None
) -> None:
    folder = edited(tmp_path, variant, **{"without": option} if value is None else {option: value})
    text = value or "absent, which means 12"
    with pytest.raises(ConfigError) as caught:
        lucid.models.load(folder)
    assert f"option {option} is {text}, expected at most " in str(caught.value)
    assert len(str(caught.value)) < 400


def test_layers_of_a_tower_are_counted_in_that_tower(tmp_path: Path) -> None:
    options = json.loads((goldens.folder("clip/quick_gelu") / "config.json").read_text())
    tower = options["vision_config"] | {"num_hidden_layers": 9}
    with pytest.raises(ConfigError, match="vision_config: option num_hidden_layers is 9, expected at most"):
        lucid.models.load(edited(tmp_path, "clip/quick_gelu", vision_config=tower))


def test_albert_shares_its_layers(tmp_path: Path) -> None:
    """So more layers are no more weights, and the checkpoint has all of them."""
    model = lucid.models.load(edited(tmp_path, "albert/base", num_hidden_layers=30))
    assert model.state_dict().keys() == lucid.models.load(goldens.folder("albert/base")).state_dict().keys()
    assert sum(node.op.name == "attention" for node in lucid.trace(model).nodes()) == 30


def test_projections_that_the_checkpoint_does_not_have_name_the_option(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="option share_att_key is absent, which means False, but the checkpoint has"):
        lucid.models.load(edited(tmp_path, "deberta/v3", without="share_att_key"))


def test_the_base_of_rotary_positions_stands_in_their_section_or_outside_it() -> None:
    """Of a model_type that transformers does not have, no option has a default."""

    def base(**options: object) -> float:
        return rope(Config({"max_position_embeddings": 8, **options}, "config.json")).theta

    section = {"rope_parameters": {"rope_theta": 5e5, "rope_type": "default"}}
    assert base(**section) == base(**section, rope_theta=1e4) == base(rope_theta=5e5) == 5e5
    with pytest.raises(ConfigError, match="rope_theta is 0.5, expected a number from 1"):
        base(**section, rope_theta=0.5)
    with pytest.raises(ConfigError, match="rope_theta is missing"):
        base()


# The lists that are kept by hand --------------------------------------------------------------------------------------


@in_one_test(FAMILIES)
def test_every_pattern_of_ignored_options_is_of_one_that_transformers_reads(name: str) -> None:
    family, parts = FAMILIES[name], list[OptionsRead]()
    for kind in family.types:
        reads = options_read(kind)
        assert reads is not None
        parts += [reads, *reads.sections.values()]
    names = {name for part in parts for name in part.read}
    for pattern in class_of(family.model).checkpoint.ignored_options:
        assert any(re.fullmatch(pattern, name) for name in names), pattern


# Planted faults: an option that is read is treated as if nobody read it ----------------------------------------------

PLANTED = [
    ("llama", "rope_theta"), ("llama", "rms_norm_eps"), ("llama", "is_causal"), ("mistral", "sliding_window"),
    ("qwen2", "use_sliding_window"), ("gemma2", "query_pre_attn_scalar"),
    ("gemma3_text", "use_bidirectional_attention"),
    ("granite", "logits_scaling"), ("gpt2", "scale_attn_by_inverse_layer_idx"), ("t5", "tie_word_embeddings"),
    ("t5", "feed_forward_proj"), ("marian", "activation_function"), ("mbart", "scale_embedding"),
    ("modernbert", "local_rope_theta"), ("deberta-v2", "pos_att_type"), ("albert", "hidden_act"),
    ("phi3", "partial_rotary_factor"), ("smollm3", "rope_theta"), ("wav2vec2", "do_stable_layer_norm"),
    ("dinov2", "use_swiglu_ffn"), ("helium", "rope_theta"), ("ernie", "use_task_id"), ("bert", "is_decoder"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "option"), PLANTED)
def test_an_option_that_is_read_and_taken_for_unread_is_found(
    kind: str, option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = Config.__init__

    def unread(self: Config, options: Any, *arguments: Any, **named: Any) -> None:
        """As a table without the option would have it, and a reader that does not ask for it."""
        right(self, {name: value for name, value in options.items() if name != option}, *arguments, **named)

    monkeypatch.setattr(Config, "__init__", unread)
    names = [name for name in published.SETS if published.SETS[name]["model_type"] == kind]
    failing = []
    for number, name in enumerate(name for name in names if option in published.SETS[name]):
        folder = tmp_path / str(number)
        folder.mkdir()
        test = (
            published.test_a_published_option_set_is_refused_by_name
            if "refused" in published.ANSWERS["sets"][name]
            else published.test_a_published_option_set_answers_as_in_transformers
        )
        try:
            test(name, folder)
        except (AssertionError, KeyError, ValueError, pytest.fail.Exception):
            failing.append(name)
    assert failing


def test_a_mistyped_folder_is_answered_with_the_one_that_is_there(tmp_path, monkeypatch):
    (tmp_path / "my-classifier").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"no file 'my-clasifier.+config.json'; did you mean my-classifier\?"):
        lucid.models.load("my-clasifier")
