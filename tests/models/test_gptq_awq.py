"""GPTQ and AWQ checkpoints: the numbers that the packed integers stand for, by packers written from the layouts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import pytest

import lucid
from lucid import WeightsError, nn
from lucid.export import Target, to_onnx
from lucid.generation.chat import load_language_model
from lucid.layouts import write_folder
from lucid.models.checkpoints.pretrained import ConfigError
from lucid.models.llama import Llama
from lucid.runtime import Session
from tests.chat.checkpoints import tokenizer
from tests.console import in_process

Array = np.ndarray[Any, Any]

CONFIG = {
    "model_type": "llama",
    "vocab_size": 40,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-6,
    "hidden_act": "silu",
}
LAYER = "model.layers.0."
SHAPES = {
    **{f"self_attn.{name}_proj": (rows, 64) for name, rows in {"q": 64, "k": 32, "v": 32, "o": 64}.items()},
    **{f"mlp.{name}_proj": (128, 64) for name in ("gate", "up")},
    "mlp.down_proj": (64, 128),
}


class Method(NamedTuple):
    """A way to pack weights, and what config.json says of it."""

    name: str
    bits: int = 4
    group: int = 32
    version: int = 1

    @property
    def config(self) -> dict[str, Any]:
        options: dict[str, Any] = {"quant_method": self.name, "bits": self.bits, "group_size": self.group}
        if self.name == "awq":
            return {**options, "zero_point": True, "version": "GEMM", "modules_to_not_convert": None}
        formats = {"checkpoint_format": "gptq_v2"} if self.version == 2 else {}
        return {**options, **formats, "desc_act": False, "sym": False, "damp_percent": 0.01, "meta": {"quantizer": "x"}}


def packed(values: Array, bits: int, order: list[int] | None = None) -> Array:
    """Values (a, b) as int32 (a, b * bits / 32): value order[i] of each group of 32 / bits in the i-th lowest bits."""
    each = 32 // bits
    integers = np.zeros((values.shape[0], values.shape[1] // each), np.uint32)
    for row, column in np.ndindex(integers.shape):
        for i, at in enumerate(order or range(each)):
            integers[row, column] |= np.uint32(int(values[row, column * each + at]) << (bits * i))
    return integers.view(np.int32)


def layer(method: Method, rows: int, size: int, seed: int) -> tuple[dict[str, Array], Array]:
    """The arrays of a layer, and the weight that they stand for."""
    random = np.random.default_rng(seed)
    group = size if method.group == -1 else method.group
    groups = -(-size // group)
    codes = random.integers(0, 2**method.bits, (rows, size))
    zeros = random.integers(1, 2**method.bits, (rows, groups))
    scales = random.uniform(0.01, 0.02, (rows, groups)).astype(np.float16)
    weight = np.zeros((rows, size), np.float32)
    for n, k in np.ndindex(rows, size):
        weight[n, k] = np.float32(scales[n, k // group]) * (codes[n, k] - zeros[n, k // group])
    if method.name == "awq":
        order = [0, 2, 4, 6, 1, 3, 5, 7]
        arrays = {"qweight": packed(codes.T, 4, order), "qzeros": packed(zeros.T, 4, order)}
    else:
        stored = zeros - (1 if method.version == 1 else 0)
        arrays = {"qweight": packed(codes, method.bits).T, "qzeros": packed(stored.T, method.bits)}
        arrays["g_idx"] = (np.arange(size) // group).astype(np.int32)
    return {**arrays, "scales": scales.T}, weight


def checkpoint(folder: Path, method: Method, **config: object) -> dict[str, Array]:
    """Write a checkpoint; the weights that it stands for."""
    model = Llama.from_pretrained(float_checkpoint(folder / "floats"))
    weights = {key: tensor.numpy() for key, tensor in model.state_dict().items()}
    arrays: dict[str, Array] = dict(weights)
    for seed, (name, (rows, size)) in enumerate(SHAPES.items()):
        parts, weights[f"{LAYER}{name}.weight"] = layer(method, rows, size, seed)
        del arrays[f"{LAYER}{name}.weight"]
        arrays |= {f"{LAYER}{name}.{part}": np.ascontiguousarray(array) for part, array in parts.items()}
    save(folder, arrays, quantization_config={**method.config, **config})
    return weights


def float_checkpoint(folder: Path) -> Path:
    folder.mkdir()
    random = np.random.default_rng(0)
    arrays = {f"{LAYER}{name}.weight": np.zeros(shape, np.float32) for name, shape in SHAPES.items()}
    arrays |= {f"{LAYER}{name}_layernorm.weight": np.ones(64, np.float32) for name in ("input", "post_attention")}
    arrays |= {
        f"{name}.weight": random.standard_normal((40, 64), np.float32) for name in ("model.embed_tokens", "lm_head")
    }
    save(folder, {**arrays, "model.norm.weight": np.ones(64, np.float32)})
    return folder


def save(folder: Path, arrays: dict[str, Array], **options: object) -> None:
    (folder / "config.json").write_text(json.dumps({**CONFIG, **options}))
    lucid.save(folder / "model.safetensors", arrays)


def change(folder: Path, **arrays: Array | None) -> None:
    """Change arrays of the first layer; None: remove one."""
    held = {key: np.array(array) for key, array in lucid.load(folder).items()}
    for part, array in arrays.items():
        held.pop(f"{LAYER}self_attn.q_proj.{part}", None)
        if array is not None:
            held[f"{LAYER}self_attn.q_proj.{part}"] = array
    lucid.save(folder / "model.safetensors", held)


METHODS = [
    Method("gptq"),
    Method("gptq", group=64, version=2),
    Method("gptq", bits=8),
    Method("gptq", group=-1),
    Method("gptq", group=48),
    Method("awq"),
    Method("awq", group=64),
]


@pytest.mark.parametrize("method", METHODS, ids=lambda m: f"{m.name}{m.version}-{m.bits}-{m.group}")
def test_a_checkpoint_is_the_model_that_its_integers_stand_for(method: Method, tmp_path: Path) -> None:
    weights = checkpoint(tmp_path, method)
    kept, floats = Llama.from_pretrained(tmp_path), lucid.models.load(tmp_path, dequantize=True)
    for key, tensor in floats.state_dict().items():
        np.testing.assert_array_equal(tensor, weights[key], err_msg=key)
    quantized = [module for module in kept.modules() if isinstance(module, nn.QuantizedWeight)]
    assert len(quantized) == len(SHAPES) and {weight.bits for weight in quantized} == {method.bits}
    ids = lucid.tensor([[3, 1, 39]])
    expected = floats(ids).numpy()
    np.testing.assert_allclose(kept(ids), expected, atol=1e-5 * np.abs(expected).max())


def test_quantized_experts_are_read_and_become_float32(tmp_path: Path) -> None:
    weights, expert = checkpoint(tmp_path, Method("gptq")), f"{LAYER}block_sparse_moe.experts.0."
    names = {"mlp.gate_proj": "w1", "mlp.up_proj": "w3", "mlp.down_proj": "w2"}
    arrays = {}
    for key, array in lucid.load(tmp_path).items():
        own = next((name for name in names if key.startswith(f"{LAYER}{name}.")), None)
        arrays[key if own is None else key.replace(f"{LAYER}{own}.", f"{expert}{names[own]}.")] = np.array(array)
    zeros = {f"{expert}w1.bias": np.zeros(128, np.float16), f"{LAYER}self_attn.q_proj.bias": np.zeros(64, np.float16)}
    router = {f"{LAYER}block_sparse_moe.gate.weight": np.ones((1, 64), np.float32)}
    options = {"model_type": "mixtral", "num_local_experts": 1, "num_experts_per_tok": 1}
    save(tmp_path, arrays | zeros | router, quantization_config=Method("gptq").config, **options)
    model = lucid.models.load(tmp_path)
    experts = model.state_dict()[f"{LAYER}mlp.experts.gate_up_proj"].numpy()
    np.testing.assert_array_equal(experts[0, :128], weights[f"{LAYER}mlp.gate_proj.weight"])
    assert sum(isinstance(module, nn.QuantizedWeight) for module in model.modules()) == 4  # those of attention


@pytest.mark.parametrize("name", ["gptq", "awq"])
@pytest.mark.parametrize("target", ["any", "cpu"])
def test_the_export_keeps_the_integers(name: str, target: str, tmp_path: Path) -> None:
    checkpoint(tmp_path, Method(name))
    kept = Llama.from_pretrained(tmp_path)
    ids = lucid.tensor([[3, 1, 39]])
    logits = Session(to_onnx(kept, target=Target(target, accuracy_level=0)))(ids, np.ones((1, 3), np.int64))
    expected = kept(ids).numpy()
    assert np.abs(logits.numpy() - expected).max() < 1e-5 * np.abs(expected).max()


def test_symmetric_weights_need_no_zero_points(tmp_path: Path) -> None:
    checkpoint(tmp_path, Method("gptq"))
    change(tmp_path, qzeros=np.full((2, 8), 0x77777777, np.int32))
    attention = Llama.from_pretrained(tmp_path).model.layers[0].self_attn
    assert attention.q_proj.weight.zero_points is None
    assert attention.k_proj.weight.zero_points is not None


def test_a_bias_of_zeros_that_the_model_does_not_have_is_left_out(tmp_path: Path) -> None:
    """AutoGPTQ gives one to every layer."""
    checkpoint(tmp_path, Method("gptq"))
    change(tmp_path, bias=np.zeros(64, np.float16))
    Llama.from_pretrained(tmp_path)
    change(tmp_path, bias=np.ones(64, np.float16))
    with pytest.raises(KeyError, match=r"unexpected: model.layers.0.self_attn.q_proj.bias"):
        Llama.from_pretrained(tmp_path)


FLOATS = "get the checkpoint in floating point; lucid.quantize makes it small"


@pytest.mark.parametrize(
    ("method", "config", "message"),
    [
        ("gptq", {"bits": 3}, f"option bits is 3, supported: 4 or 8; {FLOATS}"),
        ("awq", {"bits": 8}, f"option bits is 8, supported: 4; {FLOATS}"),
        (
            "gptq",
            {"quant_method": "bitsandbytes"},
            f"quant_method is 'bitsandbytes', supported: awq, fp8, gptq, mxfp4; {FLOATS}",
        ),
        ("gptq", {"checkpoint_format": "marlin"}, "checkpoint_format is 'marlin', supported: gptq, gptq_v2"),
        ("gptq", {"is_marlin_format": True}, "is_marlin_format is True, supported: False"),
        ("gptq", {"pack_dtype": "int64"}, "pack_dtype is 'int64', supported: 'int32'"),
        ("gptq", {"group_size": 0}, "group_size is 0, expected 1 and more, or -1"),
        ("gptq", {"dynamic": {"lm_head": {"bits": 8}}}, "not supported here, .*dynamic = "),
        ("awq", {"version": "gemv"}, f"version is 'gemv', supported: gemm; {FLOATS}"),
        ("awq", {"zero_point": False}, "zero_point is False, supported: True"),
    ],
)
def test_what_blocks_cannot_hold(method: str, config: dict[str, object], message: str, tmp_path: Path) -> None:
    checkpoint(tmp_path, Method(method), **config)
    with pytest.raises(ConfigError, match=rf"config.json, quantization_config: .*{message}"):
        Llama.from_pretrained(tmp_path)


def test_groups_that_are_no_blocks(tmp_path: Path) -> None:
    checkpoint(tmp_path, Method("gptq", group=8))
    with pytest.raises(ConfigError, match=rf"down_proj has groups of 8 inputs, supported: multiples of 16; {FLOATS}"):
        Llama.from_pretrained(tmp_path)


def test_an_order_of_inputs_that_is_no_sequence_of_groups(tmp_path: Path) -> None:
    checkpoint(tmp_path, Method("gptq"), desc_act=True)
    Llama.from_pretrained(tmp_path)  # the option alone changes nothing
    change(tmp_path, g_idx=(np.arange(64) % 2).astype(np.int32))
    with pytest.raises(ConfigError, match=r"q_proj.g_idx does not count up by groups of 32 inputs \(desc_act\)"):
        Llama.from_pretrained(tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"scales": np.ones((3, 64), np.float16)},
            r"q_proj.scales is float16 \[3, 64\], expected float \[2, 64\]",
        ),
        ({"scales": np.ones((2, 64), np.int32)}, r"q_proj.scales is int32 \[2, 64\], expected float"),
        ({"scales": np.full((2, 64), np.nan, np.float16)}, r"q_proj: Blocks: scales are nan at \[0, 0\]"),
        ({"scales": np.full((2, 64), np.inf, np.float16)}, r"q_proj: Blocks: scales are inf at \[0, 0\]"),
        ({"scales": None}, "q_proj has no scales; get an intact copy"),
        ({"qzeros": np.zeros((2, 7), np.int32)}, r"q_proj.qzeros is int32 \[2, 7\], expected int32 \[2, 8\]"),
        ({"qzeros": np.full((2, 8), -1, np.int32)}, r"q_proj.qzeros stores the zero point 15 \+ 1"),
        (
            {"qweight": np.zeros((8, 64), np.int64)},
            r"q_proj.qweight is int64 \[8, 64\], expected int32 \[8, 64\] for gptq in 4 bits",
        ),
        ({"qweight": np.zeros(8, np.int32)}, r"q_proj.qweight has shape \[8\], expected 2 axes"),
        ({"g_idx": np.zeros(8, np.int32)}, r"q_proj.g_idx is int32 \[8\], expected int32 \[64\]"),
    ],
)
def test_arrays_that_do_not_fit(changes: dict[str, Array | None], message: str, tmp_path: Path) -> None:
    checkpoint(tmp_path, Method("gptq"))
    change(tmp_path, **changes)
    for dequantize in (False, True):
        with pytest.raises(WeightsError, match=rf"config.json: model.layers.0.self_attn.{message}"):
            Llama.from_pretrained(tmp_path, dequantize=dequantize)


def test_a_weight_of_another_size_is_named(tmp_path: Path) -> None:
    checkpoint(tmp_path, Method("gptq"))
    change(tmp_path, qweight=np.zeros((8, 32), np.int32), qzeros=np.zeros((2, 4), np.int32))
    change(tmp_path, scales=np.ones((2, 32), np.float16))
    with pytest.raises(KeyError, match=r"nothing loaded; .*q_proj.weight has shape \[32, 64\], expected \[64, 64\]"):
        Llama.from_pretrained(tmp_path)


# Composed -------------------------------------------------------------------------------------------------------------


def test_the_commands_keep_them_or_find_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source, names = tmp_path / "model", {}
    source.mkdir()
    checkpoint(source, Method("gptq"))
    for bits in ([], ["--bits", 8]):
        path = tmp_path / f"{len(bits)}.onnx"
        assert in_process(["export", source, *bits, "--target", "cpu", "-o", path], monkeypatch) == 0
        assert in_process(["verify", source, path, *bits, "--target", "cpu"], monkeypatch) == 0
        nodes = onnx.load(path).graph.node
        names[len(bits)] = {a.i for n in nodes if n.op_type == "MatMulNBits" for a in n.attribute if a.name == "bits"}
    assert names == {0: {4}, 2: {8}}
    assert "level 4 adds up to" in capsys.readouterr().out


def with_tokenizer(folder: Path) -> Path:
    checkpoint(folder, Method("awq"))
    tokenizer().save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text("{}")
    (folder / "generation_config.json").write_text('{"eos_token_id": 2}')
    return folder


@pytest.mark.parametrize("bits", [None, 8])
def test_texts_are_continued_with_them_or_with_others(bits: int | None, tmp_path: Path) -> None:
    """`lucid.quantize` refuses weights that are quantized already."""
    model = load_language_model(with_tokenizer(tmp_path), bits=bits)
    answer = model.answer(model.tokenizer.encode("abc"), max_new_tokens=3)
    assert "".join(answer) == model.tokenizer.decode(answer.ids) != ""


def test_a_folder_for_another_runtime_has_the_integers(tmp_path: Path) -> None:
    source = with_tokenizer(tmp_path)
    write_folder(lucid.models.load(source), source, tmp_path / "genai", layout="genai")
    nodes = onnx.load(tmp_path / "genai" / "model.onnx").graph.node
    assert sum(node.op_type == "MatMulNBits" for node in nodes) == len(SHAPES)
