"""Folders for onnxruntime-genai: it loads them as they are, and continues texts with the tokens of `Generator`."""

from __future__ import annotations

import json
import wave
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime_genai as og
import pytest

import lucid
from lucid import nn
from lucid.generation import EncoderDecoderGenerator, Generator
from lucid.generation.chat import load_language_model, load_tokenizer
from lucid.layouts import write_folder
from lucid.models.whisper import Whisper
from tests.chat.checkpoints import checkpoint
from tests.console import in_process
from tests.models import goldens
from tests.smollm2 import smollm2

FAMILIES = {
    "llama/llama3": "llama",
    "mistral/window": "mistral",
    "qwen2/window": "qwen2",
    "qwen3/base": "qwen3",
    "olmo/base": "olmo",
    "nemotron/base": "nemotron",
    "phi/base": "phi",
    "gpt_neox/base": "decoder",
    "gpt2/base": "decoder",
}
RAGGED = [[20, 21, 22, 23, 24, 25, 26], [7], [5, 9, 3]]


@cache
def decoder(variant: str) -> nn.CausalDecoder:
    model = lucid.models.load(goldens.folder(variant))
    assert isinstance(model, nn.CausalDecoder)
    return model


def written(tmp_path: Path, variant: str = "llama/llama3", **options: Any) -> Path:
    """A folder for a model of the goldens."""
    source = checkpoint(tmp_path / "checkpoint", variant)
    write_folder(decoder(variant), source, tmp_path / "genai", layout="genai", check=False, **options)
    return tmp_path / "genai"


def section(folder: Path, name: str = "model") -> dict[str, Any]:
    settings: dict[str, Any] = json.loads((folder / "genai_config.json").read_text())[name]
    return settings


def started(model: og.Model, batch: int, most: int, **options: Any) -> og.Generator:
    parameters = og.GeneratorParams(model)
    parameters.set_search_options(batch_size=batch, max_length=most, **options)
    return og.Generator(model, parameters)


def continued(
    folder: Path, prompts: list[list[int]], new: int, model: og.Model | None = None, **options: Any
) -> list[list[int]]:
    """The tokens that onnxruntime-genai adds to a batch of prompts, padded on the right as it wants them."""
    pad, longest = section(folder)["pad_token_id"], max(map(len, prompts))
    generator = started(model or og.Model(str(folder)), len(prompts), longest + new, **options)
    generator.append_tokens(np.array([[*row, *[pad] * (longest - len(row))] for row in prompts], np.int32))
    while not generator.is_done():
        generator.generate_next_token()
    return [cut(folder, generator.get_sequence(row).tolist()[longest:]) for row in range(len(prompts))]


def ours(folder: Path, model: nn.CausalDecoder, prompts: list[list[int]], new: int, **options: Any) -> list[list[int]]:
    """The tokens that `Generator` adds to each prompt alone."""
    ends = section(folder)["eos_token_id"]
    generator = Generator(model)
    rows = [generator.generate([row], max_new_tokens=new, eos_token_id=ends, **options)[0] for row in prompts]
    return [cut(folder, row.tolist()) for row in rows]


def cut(folder: Path, row: list[int]) -> list[int]:
    """The tokens before the one that ends a text."""
    ends = np.isin(row, section(folder)["eos_token_id"])
    return row[: int(ends.argmax())] if ends.any() else row


@pytest.mark.parametrize("variant", FAMILIES)
def test_the_tokens_are_ours_for_texts_of_several_lengths_at_once(variant: str, tmp_path: Path) -> None:
    """Also over windows, which onnxruntime-genai's padding must not be counted in."""
    folder = written(tmp_path, variant)
    assert section(folder)["type"] == FAMILIES[variant]
    expected = ours(folder, decoder(variant), RAGGED, 8)
    assert continued(folder, RAGGED, 8) == expected
    assert max(map(len, expected)) > 4


def test_adapters_beside_the_model_are_taken(tmp_path: Path) -> None:
    adapters, plain = goldens.ROOT / "adapters", decoder("llama/llama3")
    source, folder = checkpoint(tmp_path / "source"), tmp_path / "genai"
    names = ["patterns", "one_layer"]
    kept = lucid.models.with_adapter_inputs(plain, [adapters / name for name in names])
    write_folder(kept, source, folder, layout="genai", check=False)
    model, prompt = og.Model(str(folder)), [5, 9, 3, 11]
    loaded, answers = og.Adapters(model), []
    for name in (None, *names):
        generator = started(model, 1, 12)
        if name is not None:
            loaded.load(str(folder / f"{name}.onnx_adapter"), name)
            generator.set_active_adapter(loaded, name)
        generator.append_tokens(np.array(prompt, np.int32))
        while not generator.is_done():
            generator.generate_next_token()
        merged: Any = plain if name is None else lucid.models.load(source, adapters=adapters / name)
        answers.append(cut(folder, generator.get_sequence(0).tolist()[4:]))
        assert answers[-1] == ours(folder, merged, [prompt], 8)[0]
    assert len({tuple(row) for row in answers}) == 3


@pytest.mark.parametrize("variant", ["llama/llama3", "mistral/window"])
def test_texts_may_come_in_pieces_and_be_rewound(variant: str, tmp_path: Path) -> None:
    folder = written(tmp_path, variant)
    text = [5, 9, 3, 11, 7, 8, 15]
    expected = ours(folder, decoder(variant), [text, [*text, 6]], 4)
    generator = started(og.Model(str(folder)), 1, 20)
    for piece in (text[:3], text[3:4], text[4:]):
        generator.append_tokens(np.array(piece, np.int32))
    for tokens in expected:
        for token in tokens:
            generator.generate_next_token()
            assert generator.get_next_tokens()[0] == token
        generator.rewind_to(len(text))
        generator.append_tokens(np.array([6], np.int32))
    assert continued(folder, [text], 4, chunk_size=3) == expected[:1]


def test_a_text_may_end_in_the_token_of_padding(tmp_path: Path) -> None:
    folder = written(tmp_path)
    text = [5, 9, section(folder)["pad_token_id"]]
    assert continued(folder, [text], 4) == ours(folder, decoder("llama/llama3"), [text], 4)


def test_a_growing_cache_is_for_beams(tmp_path: Path) -> None:
    folder, model = written(tmp_path, "gpt2/base", cache="growing"), decoder("gpt2/base")
    assert continued(folder, RAGGED, 6) == ours(folder, model, RAGGED, 6)
    assert continued(folder, RAGGED[:1], 6, num_beams=3) == ours(folder, model, RAGGED[:1], 6, num_beams=3)


def test_a_decoder_that_takes_no_buffers_has_a_growing_cache_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nn.CausalDecoder, "takes_fixed_cache", False)  # as those that torch read
    config = json.loads((written(tmp_path) / "genai_config.json").read_text())
    assert config["search"]["past_present_share_buffer"] is False


def test_a_folder_of_standard_ops_writes_our_tokens(tmp_path: Path) -> None:
    folder = written(tmp_path, "qwen3/base", target="any")
    assert continued(folder, RAGGED, 4) == ours(folder, decoder("qwen3/base"), RAGGED, 4)


def test_a_decoder_of_ones_own_is_one_of_no_known_type(tmp_path: Path) -> None:
    """It may take no logits_to_keep, either."""

    class Own(nn.CausalDecoder):
        def __init__(self) -> None:
            self.inner = decoder("llama/llama3")

        @property
        def cache_shape(self) -> nn.CacheShape:
            return self.inner.cache_shape

        def forward(self, input_ids, attention_mask=None, position_ids=None, past_key_values=None):  # type: ignore[no-untyped-def]
            return self.inner(input_ids, attention_mask, position_ids, past_key_values=past_key_values)

    folder, source = tmp_path / "genai", checkpoint(tmp_path / "checkpoint")
    write_folder(Own(), source, folder, layout="genai", check=False)
    assert section(folder)["type"] == "decoder"
    assert continued(folder, RAGGED, 4) == ours(folder, decoder("llama/llama3"), RAGGED, 4)


@pytest.mark.parametrize("bits", [4, 8, {"*.mlp.*": 8, "*": 4}], ids=str)
def test_weights_in_few_bits_give_the_tokens_of_the_same_model(bits: Any, tmp_path: Path) -> None:
    small = lucid.quantize(decoder("llama/llama3"), bits, block=16)
    source = checkpoint(tmp_path / "checkpoint")
    write_folder(small, source, tmp_path / "genai", layout="genai")
    kinds = [node.op_type for node in onnx.load(tmp_path / "genai" / "model.onnx").graph.node]
    assert kinds.count("MatMulNBits") == 15 and "MatMul" not in kinds  # the output layer is a table of 40 rows
    expected = ours(tmp_path / "genai", small, RAGGED, 8)
    assert continued(tmp_path / "genai", RAGGED, 8) == expected
    assert max(map(len, expected)) > 4


def test_the_command_writes_weights_in_few_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, folder = checkpoint(tmp_path / "checkpoint"), tmp_path / "genai"
    few = ["--bits", "4", "--block", "16"]
    assert in_process(["export", source, "--for", "genai", *few, "-o", folder], monkeypatch) == 0
    small = lucid.quantize(decoder("llama/llama3"), 4, block=16)
    assert continued(folder, RAGGED, 8) == ours(folder, small, RAGGED, 8)


def test_the_folder_is_all_that_lucid_needs_too(tmp_path: Path) -> None:
    folder = written(tmp_path)
    assert sorted(path.name for path in folder.iterdir()) == [
        "README.md",
        "genai_config.json",
        "generation_config.json",
        "lucid_export.json",
        "model.onnx",
        "tokenizer.json",
        "tokenizer_config.json",
    ]
    answer = load_language_model(folder).answer([5, 9, 3], max_new_tokens=4)
    list(answer)
    assert [answer.ids] == continued(folder, [[5, 9, 3]], 4)


# Whisper --------------------------------------------------------------------------------------------------------------


@cache
def whisper() -> Whisper:
    """That of the goldens, with as many positions as 30 seconds have and weights that write different texts."""
    small = Whisper.from_pretrained(goldens.folder("whisper/base"))
    model, generator = Whisper(replace(small.config, max_source_positions=1500)), np.random.default_rng(0)
    drawn = {
        name: 0.6 * generator.standard_normal(array.shape).astype(np.float32) if array.ndim > 1 else array
        for name, array in model.state_dict().items()
    }
    model.load_state_dict(drawn)
    return model


@pytest.mark.parametrize("beams", [1, 3])
def test_whisper_writes_our_tokens(beams: int, tmp_path: Path) -> None:
    folder = tmp_path / "genai"
    write_folder(whisper(), checkpoint(tmp_path / "checkpoint", "whisper/base"), folder, layout="genai", check=False)
    sound = np.random.default_rng(1).standard_normal((2, 8, 3000)).astype(np.float32)
    generator = started(og.Model(str(folder)), 2, 14, num_beams=beams)
    generator.set_model_input("input_features", sound)
    prompts = np.array([[1, 5, 6], [1, 7, 6]])
    generator.append_tokens(prompts.astype(np.int32))
    while not generator.is_done():
        generator.generate_next_token()
    tokens = [generator.get_sequence(row).tolist()[3:] for row in range(2)]
    ours = EncoderDecoderGenerator(whisper(), decoder_start_token_id=1).encode(lucid.tensor(sound))
    assert tokens == ours.generate(prompts, max_new_tokens=11, num_beams=beams, eos_token_id=2).tolist()


def test_whisper_reads_sound_files(tmp_path: Path) -> None:
    """One second of a tone: a line in the spectrogram, and silence after it."""
    folder = tmp_path / "genai"
    write_folder(whisper(), checkpoint(tmp_path / "checkpoint", "whisper/base"), folder, layout="genai", check=False)
    tone = 9000 * np.sin(2 * np.pi * 440 * np.arange(16000) / 16000)
    with wave.open(str(tmp_path / "tone.wav"), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16000)
        file.writeframes(tone.astype("<i2").tobytes())
    processor = og.Model(str(folder)).create_multimodal_processor()
    inputs = processor(["<s>ab"], audios=og.Audios.open(str(tmp_path / "tone.wav")))
    features = inputs["audio_features"].as_numpy()
    assert features.shape == (1, 8, 3000) and inputs["input_ids"].as_numpy().tolist() == [[1, 4, 5]]
    assert np.ptp(features[0, :, 10:90], axis=1).max() < 0.01 < np.ptp(features[0, :, 50])
    assert (features[0, :, 110:] == features.min()).all()


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (whisper, {"cache": "fixed"}, "onnxruntime-genai runs Whisper over a growing cache; use cache='growing'"),
        (
            lambda: Whisper.from_pretrained(goldens.folder("whisper/base")),
            {},
            "the encoder has 10 positions, onnxruntime-genai runs a Whisper with 1500, those of 30 seconds",
        ),
    ],
)
def test_what_cannot_be_written_of_whisper(
    model: Callable[[], Whisper], options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        write_folder(model(), goldens.folder("whisper/base"), tmp_path / "genai", layout="genai", **options)


# Configs --------------------------------------------------------------------------------------------------------------


def test_the_config_says_what_the_checkpoint_says(tmp_path: Path) -> None:
    source = checkpoint(tmp_path / "checkpoint", pad_token="<unk>")
    (source / "generation_config.json").write_text('{"eos_token_id": [2, 3]}')
    write_folder(decoder("llama/llama3"), source, tmp_path / "genai", layout="genai", check=False, capacity=9)
    model = section(tmp_path / "genai")
    assert {name: model[name] for name in model if name not in ("decoder", "type")} == {
        "vocab_size": 40,
        "context_length": 64,
        "bos_token_id": 1,
        "eos_token_id": [2, 3],
        "pad_token_id": 0,
    }
    assert section(tmp_path / "genai", "search") == {
        "max_length": 9,
        "do_sample": False,
        "past_present_share_buffer": True,
    }


def test_a_cache_is_no_larger_than_2048_positions_unless_it_is_asked_for(tmp_path: Path) -> None:
    source = checkpoint(tmp_path / "checkpoint")
    about = json.loads((source / "config.json").read_text())
    (source / "config.json").write_text(json.dumps({**about, "max_position_embeddings": 8192}))
    for capacity, expected in ((None, 2048), (8192, 8192)):
        folder = tmp_path / f"{capacity}"
        write_folder(decoder("llama/llama3"), source, folder, layout="genai", check=False, capacity=capacity)
        assert section(folder)["context_length"] == 8192 and section(folder, "search")["max_length"] == expected


@pytest.mark.parametrize(
    ("config", "options", "message"),
    [
        ({"max_position_embeddings": None}, {}, "does not say how many positions the model has"),
        ({"eos_token_id": 40}, {}, r"the ids that end a text are \[40\], expected one or more below 40"),
        ({}, {"capacity": 65}, "capacity is 65, and the model has 64 positions"),
        ({}, {"capacity": 0}, "capacity is 0, expected 1 or more"),
        ({}, {"target": "cuda"}, "target 'cuda': onnxruntime-genai on a CPU takes models for any and cpu"),
        ({}, {"cache": "none"}, "cache 'none' does not exist: choose one of growing, fixed"),
        ({}, {"layout": "gena"}, "layout 'gena' does not exist: choose one of onnxruntime, "),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_cannot_be_written(config: dict[str, Any], options: dict[str, Any], message: str, tmp_path: Path) -> None:
    source = checkpoint(tmp_path / "checkpoint")
    about = json.loads((source / "config.json").read_text())
    (source / "config.json").write_text(json.dumps({**about, **config}))
    with pytest.raises(ValueError, match=message):
        write_folder(decoder("llama/llama3"), source, tmp_path / "genai", **{"layout": "genai", **options})
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint"]


def test_windows_over_a_growing_cache_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="the model has sliding windows, .*; use cache='fixed'"):
        written(tmp_path, "mistral/window", cache="growing")


@pytest.mark.parametrize(
    ("variant", "name"), [("bert/base", "Bert"), ("mamba2/base", "Mamba2"), ("deepseek_v3/base", "Deepseek")]
)
def test_only_decoders_over_keys_and_values_continue_texts(variant: str, name: str, tmp_path: Path) -> None:
    folder = goldens.folder(variant)
    with pytest.raises(
        ValueError, match=rf"is the checkpoint of a {name}, which onnxruntime-genai does not run; expected an nn"
    ):
        write_folder(lucid.models.load(folder), folder, tmp_path / "genai", layout="genai")


# Texts ----------------------------------------------------------------------------------------------------------------

CHAT = [
    {"role": "user", "content": "hi there"},
    {"role": "assistant", "content": "hi"},
    {"role": "user", "content": "a"},
]


def check_texts(model: og.Model, source: Path, texts: list[str]) -> None:
    """onnxruntime-genai reads and writes texts as the library tokenizers does, and conversations as Jinja does."""
    known, theirs = load_tokenizer(source), og.Tokenizer(model)
    assert known.chat_template is not None
    for text in texts:
        ids = known.library.encode(text, add_special_tokens=False).ids
        assert theirs.encode(text).tolist() == ids, text
        assert theirs.decode(ids) == known.decode(ids)
    assert theirs.apply_chat_template(json.dumps(CHAT), add_generation_prompt=True) == known.chat_template.render(CHAT)
    theirs.update_options(add_special_tokens="true")
    assert theirs.encode(texts[0]).tolist() == known.encode(texts[0])


@pytest.mark.parametrize(
    "about",
    [
        {},
        {"tokenizer_class": "Qwen2Tokenizer"},
        {"chat_template": [{"name": "default", "template": "{{ bos_token }}"}]},
    ],
    ids=["no class", "a class", "named chat templates"],
)
def test_the_tokenizer_of_a_folder(about: dict[str, Any], tmp_path: Path) -> None:
    source = checkpoint(tmp_path / "checkpoint", **about)
    write_folder(decoder("llama/llama3"), source, tmp_path / "genai", layout="genai", check=False)
    check_texts(og.Model(str(tmp_path / "genai")), source, ["hello", "é 東\n.?", "<s>hi<|user|> </s>"])


def test_the_tokenizer_of_a_gguf_file(tmp_path: Path) -> None:
    """SmolLM2's; docs/howto/genai.md runs its weights."""
    source = smollm2()
    write_folder(decoder("llama/llama3"), source, tmp_path / "genai", layout="genai", check=False)
    texts = json.loads((goldens.ROOT / "smollm2" / "tokenizer.json").read_text(encoding="utf-8"))["texts"]
    texts += ["<|im_start|>user\nIt's 12345 é\u0301<|im_end|> \n\t x"]
    check_texts(og.Model(str(tmp_path / "genai")), source, texts)


# The command ----------------------------------------------------------------------------------------------------------


def test_the_command_writes_checks_and_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = checkpoint(tmp_path / "checkpoint")
    command = ["export", source, "--for", "genai", "-o", tmp_path / "genai"]
    assert in_process([*command, "--json"], monkeypatch) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["for"] == "onnxruntime-genai" and report["parity"]["model.onnx"]["passed"]
    assert [Path(file["name"]).name for file in report["files"]][1:3] == ["genai_config.json", "generation_config.json"]
    assert f"lucid {' '.join(map(str, command))} --json" in (tmp_path / "genai" / "README.md").read_text()
    (tmp_path / "genai" / "notes.txt").write_text("mine")
    for arguments, code, message in [
        (command, 2, "it holds notes.txt, which Lucid did not write; give the name"),
        ([*command, "--opset", 20, "--call", "a=1"], 2, "--for genai: the layout decides call, opset; leave it out"),
        (["export", f"{source}x", *command[2:]], 2, f"there is no such file or folder; did you mean {source}?"),
        (["export", "nn.Linear", *command[2:]], 2, "SOURCE 'nn.Linear' has no config and tokenizer; give a checkpoint"),
        (["export", goldens.folder("t5/v1_0"), *command[2:-1], tmp_path / "t5"], 2, "expected an nn.CausalDecoder"),
    ]:
        assert in_process(arguments, monkeypatch) == code
        assert message in " ".join(capsys.readouterr().err.split())
    options = ["--weights", source, *command[2:-1], tmp_path / "again", "--no-check"]
    assert in_process(["export", "lucid.models.llama:Llama", *options], monkeypatch) == 0
    assert f"{tmp_path / 'again'}, 7 files" in capsys.readouterr().out
    (tmp_path / "genai" / "notes.txt").unlink()
    names = sorted(path.name for path in (tmp_path / "again").iterdir())
    assert names == sorted(path.name for path in (tmp_path / "genai").iterdir())
