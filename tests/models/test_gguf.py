"""GGUF checkpoints: the same model as from config.json and safetensors, and SmolLM2 against transformers."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFReader, GGUFWriter
from gguf.quants import dequantize, quantize

import lucid
from lucid import WeightsError, nn
from lucid.export import Target
from lucid.generation import Generator
from lucid.models.checkpoints.gguf import read_config
from lucid.models.checkpoints.gguf_file import read_header
from lucid.models.checkpoints.gguf_tokenizer import read_tokenizer, tokenizer_in
from lucid.models.checkpoints.pretrained import ConfigError
from lucid.models.gpt2 import GPT2
from lucid.models.llama import Llama
from lucid.nn.model_parts import CacheKind
from lucid.quantization import Blocks
from lucid.runtime import Session, installed
from tests.models import goldens
from tests.smollm2 import smollm2

Array = np.ndarray[Any, Any]

GOLDENS = goldens.ROOT / "smollm2"
NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.o_proj": "attn_output",
    **{f"self_attn.{x}_proj": f"attn_{x}" for x in "qkv"},
    **{f"self_attn.{x}_norm": f"attn_{x}_norm" for x in "qk"},
    **{f"mlp.{x}_proj": f"ffn_{x}" for x in ("gate", "up", "down")},
}


def converted(variant: str, path: Path, named: str | None = None, **metadata: object) -> Path:
    """A checkpoint of Hugging Face's as llama.cpp converts it, with more metadata: two underscores for a dot.

    `named` is the file's architecture, by default that of the checkpoint.
    """
    options = json.loads((goldens.folder(variant) / "config.json").read_text())
    name = {"mistral": "llama"}.get(options["model_type"], options["model_type"])
    heads = {"q": options["num_attention_heads"], "k": options["num_key_value_heads"]}
    writer = GGUFWriter(path, named or name)
    writer.add_context_length(options["max_position_embeddings"])
    writer.add_embedding_length(options["hidden_size"])
    writer.add_feed_forward_length(options["intermediate_size"])
    writer.add_block_count(options["num_hidden_layers"])
    writer.add_head_count(heads["q"])
    writer.add_head_count_kv(heads["k"])
    writer.add_layer_norm_rms_eps(options["rms_norm_eps"])
    writer.add_rope_freq_base(options["rope_parameters"]["rope_theta"])
    if "head_dim" in options:
        writer.add_key_length(options["head_dim"])
        writer.add_value_length(options["head_dim"])
        writer.add_rope_dimension_count(options["head_dim"])
    for key, value in metadata.items():
        add = {int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}[type(value)]
        add(key.replace("__", "."), value)
    for key, array in lucid.load(goldens.folder(variant)).items():
        stem, suffix = key.rsplit(".", 1)
        layer = ""
        if stem.startswith("model.layers."):
            number, stem = stem.removeprefix("model.layers.").split(".", 1)
            layer = f"blk.{number}."
        if name == "llama" and stem in ("self_attn.q_proj", "self_attn.k_proj"):
            halves = array.reshape(heads[stem[-6]], 2, -1, *array.shape[1:])
            array = np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(array.shape)
        writer.add_tensor(f"{layer}{NAMES[stem]}.{suffix}", np.array(array))
    return write(writer, path)


def write(writer: GGUFWriter, path: Path) -> Path:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


# The reader -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", ["llama/llama2", "mistral/full", "qwen2/tied", "qwen3/base"])
def test_the_file_is_the_model_of_config_json_and_safetensors(variant: str, tmp_path: Path) -> None:
    path = converted(variant, tmp_path / "model.gguf")
    expected, model = Llama.from_pretrained(goldens.folder(variant)), Llama.from_pretrained(path)
    assert model.config == expected.config
    assert model.state_dict().keys() == expected.state_dict().keys()
    for key, tensor in expected.state_dict().items():
        np.testing.assert_array_equal(model.state_dict()[key].numpy(), tensor.numpy())


def test_a_folder_with_one_gguf_file_and_no_config_json_is_read(tmp_path: Path) -> None:
    converted("llama/llama2", tmp_path / "model.gguf")
    assert Llama.from_pretrained(tmp_path, lucid.float16).model.embed_tokens.weight.dtype == lucid.float16


def test_config_json_comes_first(tmp_path: Path) -> None:
    converted("llama/llama2", tmp_path / "model.gguf")
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ConfigError, match="option model_type is missing"):
        Llama.from_pretrained(tmp_path)


def test_a_file_without_the_suffix_is_read(tmp_path: Path) -> None:
    path = converted("llama/llama2", tmp_path / "model.gguf")
    assert Llama.from_pretrained(path.rename(tmp_path / "0123abcd")).config.hidden_size == 16


def test_another_model_refuses_the_file(tmp_path: Path) -> None:
    path = converted("llama/llama2", tmp_path / "model.gguf")
    with pytest.raises(ConfigError, match=r"model\.gguf: option model_type is 'llama', supported: gpt2"):
        GPT2.from_pretrained(path)


def test_the_message_without_the_library_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lucid.models.checkpoints.pretrained.find_spec", lambda name: None)
    with pytest.raises(FileNotFoundError, match=r"there is no file '.*model\.gguf'; check the path"):
        Llama.from_pretrained(tmp_path / "model.gguf")
    (tmp_path / "model.gguf").touch()
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'lucid-onnx\[gguf\]'"):
        Llama.from_pretrained(tmp_path / "model.gguf")


def test_models_do_not_load_the_library() -> None:
    check = "import sys, lucid.models.llama; assert not {'gguf', 'tokenizers'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", check], cwd=goldens.ROOT.parents[1], check=True)


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({}, None),
        ({"scaling__type": "none"}, None),
        ({"scale_linear": 4.0}, {"rope_type": "linear", "factor": 4.0}),
        ({"scaling__type": "linear", "scaling__factor": 2.0}, {"rope_type": "linear", "factor": 2.0}),
        (
            {"scaling__type": "yarn", "scaling__factor": 2.0, "scaling__original_context_length": 32},
            {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 32},
        ),
    ],
)
def test_scaled_positions(metadata: dict[str, object], expected: object, tmp_path: Path) -> None:
    fields = {f"llama__rope__{key}": value for key, value in metadata.items()}
    path = converted("llama/llama2", tmp_path / "model.gguf", **fields)
    assert read_config(path, "llama").options.get("rope_scaling") == expected
    Llama.from_pretrained(path)


@pytest.mark.parametrize("factor", [8.0, 32.0])
def test_llama_3_tells_its_scaling_by_a_tensor(factor: float, tmp_path: Path) -> None:
    frequencies = 500000.0 ** (-np.arange(0, 64, 2) / 64)
    expected = {"rope_type": "llama3", "factor": factor, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    expected["original_max_position_embeddings"] = 8192
    path = tmp_path / "model.gguf"
    writer = GGUFWriter(path, "llama")
    for add in (writer.add_context_length, writer.add_feed_forward_length, writer.add_embedding_length):
        add(64)
    writer.add_block_count(1)
    writer.add_head_count(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(500000.0)
    writer.add_tensor("token_embd.weight", np.zeros((8, 64), np.float32))
    # As llama.cpp's converter writes it: a division of each frequency.
    factors = []
    for wavelength in 2 * np.pi / frequencies:
        smooth = (8192 / wavelength - 1) / 3
        between = 1 / ((1 - smooth) / factor + smooth)
        factors.append(1.0 if wavelength < 2048 else factor if wavelength > 8192 else between)
    writer.add_tensor("rope_freqs.weight", np.array(factors, np.float32))
    config = read_config(write(writer, path), "llama")
    assert config.options["rope_scaling"] == expected
    assert list(config.weights) == ["model.embed_tokens.weight"]


# Types of tensors -----------------------------------------------------------------------------------------------------

TYPES = ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"]


@pytest.mark.parametrize("kind", TYPES)
def test_tensors_are_what_the_library_reads(kind: str, tmp_path: Path) -> None:
    number = GGMLQuantizationType[kind]
    block, size = GGML_QUANT_SIZES[number]
    raw = np.random.default_rng(0).integers(0, 60, (6, 512 // block * size), np.uint8)  # any byte, no NaN
    path = tmp_path / "model.gguf"
    writer = GGUFWriter(path, "llama")
    writer.add_tensor("a", raw, raw_dtype=number)
    writer.add_tensor("b", np.arange(3, dtype=np.float32))
    header = read_header(write(writer, path))
    assert header.tensors["a"].shape == (6, 512)
    for tensor in GGUFReader(path).tensors:
        array = header.array(tensor.name)
        assert array.dtype == np.float32
        np.testing.assert_array_equal(array, dequantize(tensor.data, tensor.tensor_type))


def test_the_numbers_of_a_block_by_hand(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    writer = GGUFWriter(path, "llama")
    scale, least = np.array([0.5, -1.0], np.float16).view(np.uint8).reshape(2, 2)
    nibbles = np.arange(16, dtype=np.uint8) | (15 - np.arange(16, dtype=np.uint8)) << 4  # one of each, up and down
    writer.add_tensor("a", np.concatenate([scale, least, nibbles])[None], raw_dtype=GGMLQuantizationType.Q4_1)
    expected = np.concatenate([np.arange(16), 15 - np.arange(16)]) * 0.5 - 1
    np.testing.assert_array_equal(read_header(write(writer, path)).array("a"), expected[None])


K_QUANTS = {"Q2_K": (80, 82), "Q3_K": (108,), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,)}
HALVES = {**K_QUANTS, "IQ4_NL": (0,)}  # where d and m of a block are, of types that the library does not write
KEPT = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", *K_QUANTS]


def of_type(kind: GGMLQuantizationType, rows: int, size: int, seed: int = 0) -> Array:
    """The bytes of a tensor (rows, size), small numbers."""
    random = np.random.default_rng(seed)
    if kind.name not in HALVES:
        return quantize(random.standard_normal((rows, size)).astype(np.float32), kind)
    block, length = GGML_QUANT_SIZES[kind]
    raw = random.integers(0, 256, (rows, size // block, length), np.uint8)
    for at in HALVES[kind.name]:
        raw[..., at : at + 2] = random.uniform(-0.002, 0.002, (rows, size // block, 1)).astype("<f2").view(np.uint8)
    return raw.reshape(rows, -1)


@pytest.mark.parametrize("kind", KEPT)
def test_quantized_types_are_kept(kind: str, tmp_path: Path) -> None:
    number = GGMLQuantizationType[kind]
    raw = of_type(number, 6, 768)
    path = tmp_path / "model.gguf"
    writer = GGUFWriter(path, "llama")
    writer.add_tensor("a", raw, raw_dtype=number)
    writer.add_tensor("b", raw[0], raw_dtype=number)  # not a matrix
    header = read_header(write(writer, path))
    weight = header.weight("a")
    assert isinstance(weight, Blocks) and weight.bits == (4 if int(kind[1]) <= 4 else 8) and weight.shape == (6, 768)
    np.testing.assert_array_equal(weight.dequantized(), dequantize(raw, number))
    np.testing.assert_array_equal(header.weight("b"), dequantize(raw[0], number))


def quantised(path: Path, kind: str) -> Path:
    """Llama with a layer and tied tables of 40 tokens, all of its matrices in one type."""
    number = GGMLQuantizationType[kind]
    width = 256 if kind in K_QUANTS else 32
    writer = GGUFWriter(path, "llama")
    writer.add_context_length(64)
    writer.add_embedding_length(width)
    writer.add_feed_forward_length(2 * width)
    writer.add_block_count(1)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-5)
    square, half, double = (width, width), (width // 2, width), (2 * width, width)
    matrices = {"attn_q": square, "attn_k": half, "attn_v": half, "attn_output": square}
    matrices |= {"ffn_gate": double, "ffn_up": double, "ffn_down": double[::-1]}
    for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
        writer.add_tensor(f"{name}.weight", np.ones(width, np.float32))
    for seed, (name, (rows, size)) in enumerate({"token_embd": (40, width), **matrices}.items()):
        name = f"{name if seed == 0 else f'blk.0.{name}'}.weight"
        writer.add_tensor(name, of_type(number, rows, size, seed), raw_dtype=number)
    return write(writer, path)


@pytest.mark.parametrize("kind", [*KEPT, "IQ4_NL"])
def test_a_model_keeps_the_weights_of_its_file(kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Also the rows of queries and keys, whose order differs; IQ4_NL is dequantized."""
    path = quantised(tmp_path / "model.gguf", kind)
    caplog.set_level("INFO", "lucid.models")
    model, floats = Llama.from_pretrained(path), Llama.from_pretrained(path, dequantize=True)
    kept = [name for name, module in model.named_modules() if isinstance(module, nn.QuantizedWeight)]
    assert len(kept) == (8 if kind in KEPT else 0)
    assert ("model.gguf: dequantized to float32: 8 tensors of IQ4_NL" in caplog.text) is (kind == "IQ4_NL")
    assert not any(isinstance(module, nn.QuantizedWeight) for module in floats.modules())
    ids = lucid.tensor([[3, 1, 39]])
    expected = floats(ids).numpy()
    np.testing.assert_allclose(model(ids), expected, atol=1e-6 * np.abs(expected).max())
    for target in (Target("any", accuracy_level=0), Target("cpu", accuracy_level=0), "portable"):
        session = Session(lucid.export.to_onnx(model, target=target))
        logits = session(ids, np.ones((1, 3), np.int64))
        assert np.abs(logits.numpy() - expected).max() < 1e-5 * np.abs(expected).max()


def test_a_state_with_minimums_goes_to_a_file_and_back(tmp_path: Path) -> None:
    model = Llama.from_pretrained(quantised(tmp_path / "model.gguf", "Q4_1"))
    lucid.save(tmp_path / "model.safetensors", model.state_dict())
    other = Llama.from_pretrained(tmp_path / "model.gguf")
    other.model.embed_tokens.weight.minimums.assign(np.zeros((40, 1), np.float32))  # type: ignore[attr-defined]
    other.load_state_dict(lucid.load(tmp_path / "model.safetensors"))
    np.testing.assert_array_equal(other(lucid.tensor([[3]])), model(lucid.tensor([[3]])))


def test_a_model_of_such_a_file_is_quantised_from_its_float_weights(tmp_path: Path) -> None:
    path = quantised(tmp_path / "model.gguf", "Q4_0")
    with pytest.raises(ValueError, match="quantized before; quantize the one with float weights .*dequantize=True"):
        lucid.quantize(lucid.models.load(path))
    lucid.quantize(lucid.models.load(path, dequantize=True))


@pytest.mark.parametrize("name", ["scales", "minimums"])
def test_blocks_with_nan_or_infinity_are_refused(name: str, tmp_path: Path) -> None:
    path = quantised(tmp_path / "model.gguf", "Q4_1")
    header = read_header(path)
    content = bytearray(path.read_bytes())
    at = header.tensors["blk.0.ffn_up.weight"].begin + 20 * 5 + (2 if name == "minimums" else 0)
    content[at : at + 2] = np.float16(np.inf).tobytes()
    path.write_bytes(content)
    for dequantized in (False, True):
        with pytest.raises(
            WeightsError, match=rf"model.gguf': tensor 'blk.0.ffn_up.weight': Blocks: {name} are inf at \[5, 0\]"
        ):
            Llama.from_pretrained(path, dequantize=dequantized)


def test_arrays_are_made_when_they_are_asked_for(tmp_path: Path) -> None:
    weights = read_config(converted("llama/llama2", tmp_path / "model.gguf"), "llama").weights
    stored = weights["model.norm.weight"]
    assert not stored.flags.owndata and not stored.flags.writeable  # a view of the file
    assert weights["model.layers.0.self_attn.q_proj.weight"] is not weights["model.layers.0.self_attn.q_proj.weight"]


# SmolLM2 --------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def file() -> Path:
    return smollm2()


@pytest.fixture(scope="module")
def model(file: Path) -> Llama:
    return Llama.from_pretrained(file, dequantize=True)


def test_the_metadata_is_what_the_library_reads(file: Path) -> None:
    header = read_header(file)
    with np.errstate(over="ignore"):
        fields = {key: field for key, field in GGUFReader(file).fields.items() if not key.startswith("GGUF.")}
    assert header.metadata.keys() == fields.keys()
    for key, value in header.metadata.items():
        if isinstance(value, (str, bool, int)):
            assert value == fields[key].contents(), key
    for key in ("tokenizer.ggml.tokens", "tokenizer.ggml.merges"):
        strings = header.metadata[key]
        assert not isinstance(strings, (str, bool, int, float, np.ndarray))
        assert list(strings.read()) == fields[key].contents()


@pytest.mark.parametrize("pre", ["smollm", "llama-bpe", "qwen2"])
def test_the_tokens_are_those_of_transformers(pre: str, file: Path) -> None:
    golden = json.loads((GOLDENS / "tokenizer.json").read_text(encoding="utf-8"))
    header = read_header(file)
    header = replace(header, metadata={**header.metadata, "tokenizer.ggml.pre": pre})
    tokenizer = tokenizer_in(header).tokenizer
    for text, ids in zip(golden["texts"], golden["ids"][pre], strict=True):
        encoded = tokenizer.encode(text)
        assert encoded.ids == ids, text
        if pre != "qwen2":  # it composes accents
            assert tokenizer.decode(ids, skip_special_tokens=False) == text


def test_the_default_cuts_punctuation_off_first_as_llama_cpp_does(file: Path) -> None:
    header = read_header(file)
    header = replace(header, metadata={**header.metadata, "tokenizer.ggml.pre": "default"})
    split = tokenizer_in(header).tokenizer.pre_tokenizer.pre_tokenize_str("It's 12345, (a) <<x>>  $y")
    words = "It|'|s|Ġ|123|45|,|Ġ|(|a|)|Ġ|<<|x|>>|ĠĠ|$|y"
    assert "|".join(word for word, _ in split) == words


def test_the_first_and_the_last_token_are_added_where_the_file_says_so(file: Path) -> None:
    header = read_header(file)
    for begin, end in [(False, False), (True, False), (False, True), (True, True)]:
        flags = {"tokenizer.ggml.add_bos_token": begin, "tokenizer.ggml.add_eos_token": end}
        result = tokenizer_in(replace(header, metadata={**header.metadata, **flags}))
        assert result.tokenizer.encode("Hello").ids == [1] * begin + [19556] + [2] * end
    assert result.special == {"bos": 1, "eos": 2, "unk": 0, "pad": 2}


def test_the_chat_template_and_special_tokens(file: Path) -> None:
    words = read_tokenizer(file)
    assert words.chat_template is not None and words.chat_template.startswith("{% for message in messages %}")
    assert words.tokenizer.decode([1, 19556, 2]) == "Hello"  # special tokens are left out
    assert words.tokenizer.get_vocab_size() == 49152


def test_logits_and_greedy_tokens_are_those_of_transformers(model: Llama) -> None:
    cases = json.loads((GOLDENS / "greedy.json").read_text(encoding="utf-8"))["cases"]
    expected = lucid.load(GOLDENS / "logits.safetensors")
    assert len(cases) == 20 and len(expected) == 2
    for key, row in expected.items():
        case = cases[int(key.removeprefix("logits."))]
        known = len(case["ids"])
        ids = case["ids"] + case["continuation"][:16]
        logits = model(lucid.tensor([ids])).numpy()[0, known - 1 :]
        error = np.abs(logits[0] - row).max() / np.abs(row).max()
        assert error < 2e-5
        assert logits[:-1].argmax(-1).tolist() == case["continuation"][:16]


@pytest.mark.parametrize(("cache", "number", "count"), [(None, 3, 6), ("growing", 0, 16), ("fixed", 15, 16)])
def test_greedy_tokens_over_a_cache_are_those_of_transformers(
    model: Llama, cache: CacheKind | None, number: int, count: int, tmp_path: Path
) -> None:
    """Eagerly, over a growing cache, and over buffers in the fastest form of this onnxruntime."""
    decoder: Llama | Session = model
    if cache is not None:
        target = Target("cpu", onnxruntime=installed()) if cache == "fixed" else "any"
        path = tmp_path / "smollm2.onnx"
        lucid.export.to_onnx(model, cache=cache, target=target, path=path, kwargs={"logits_to_keep": 1})
        decoder = Session(path)
    case = json.loads((GOLDENS / "greedy.json").read_text())["cases"][number]
    tokens = Generator(decoder).generate(np.array([case["ids"]]), max_new_tokens=count)
    assert tokens[0].tolist() == case["continuation"][:count], case["prompt"]


@pytest.mark.parametrize(("target", "number"), [("any", 3), ("cpu", 15)])
def test_the_blocks_of_the_file_give_the_tokens_of_the_dequantized_model(
    target: str, number: int, file: Path, tmp_path: Path
) -> None:
    """At accuracy level 0; docs/howto/gguf.md has all 20 prompts."""
    kept = Llama.from_pretrained(file)
    assert sum(isinstance(module, nn.QuantizedWeight) for module in kept.modules()) == 211
    path = tmp_path / "smollm2.onnx"
    level_0 = Target(target, onnxruntime=installed(), accuracy_level=0)
    lucid.export.to_onnx(kept, cache="growing", target=level_0, path=path, kwargs={"logits_to_keep": 1})
    assert sum(part.stat().st_size for part in tmp_path.iterdir()) < 150e6
    case = json.loads((GOLDENS / "greedy.json").read_text())["cases"][number]
    tokens = Generator(Session(path)).generate(np.array([case["ids"]]), max_new_tokens=16)
    assert tokens[0].tolist() == case["continuation"][:16], case["prompt"]
