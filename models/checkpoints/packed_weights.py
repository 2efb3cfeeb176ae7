"""Safetensors of GPTQ and AWQ: weights in 4 or 8 bits, packed in 32-bit integers, as blocks.

A layer has, in the place of ``weight``, several arrays; N outputs, K inputs, G groups of inputs with a scale each:

=======  ===========================  =========================================
name     GPTQ                         AWQ, version gemm
=======  ===========================  =========================================
qweight  int32 (K * bits / 32, N)     int32 (K, N / 8)
qzeros   int32 (G, N * bits / 32)     int32 (G, N / 8)
scales   (G, N)                       (G, N)
g_idx    int32 (K,), may be absent    absent
=======  ===========================  =========================================

A number is scale * (code - zero). The codes in an integer begin with the low bits; GPTQ packs along the inputs, AWQ
along the outputs, in the order 0, 2, 4, 6, 1, 3, 5, 7. GPTQ stores zero - 1, unless checkpoint_format is gptq_v2.

Sources: `qlinear` of AutoGPTQ and GPTQModel, `WQLinear_GEMM` of AutoAWQ; the papers (Frantar et al. 2022, Lin et al.
2023) define no files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np

from lucid import WeightsError
from lucid.models.checkpoints.config import Array, Config, ConfigError
from lucid.models.checkpoints.held_weights import Held
from lucid.quantization import Blocks
from lucid.quantization.blocks import BLOCKS, blocks_of, middle, unpack

OPTION = "quantization_config"
_PARTS = ("qweight", "qzeros", "scales", "g_idx")
_AWQ_ORDER = np.argsort([0, 2, 4, 6, 1, 3, 5, 7])  # where the codes of eight neighbours are in an integer
_SMALLER = 128  # blocks that divide a larger group, of a size that is not a power of two
_OTHER = "get the checkpoint in floating point; lucid.quantize makes it small"

# How the weights were found, and what other programs do with them; none changes what is stored.
_HARMLESS = [
    "damp_.*|true_sequential|static_groups|sym|mse|meta|quantizer|dataset|tokenizer|seqlen|nsamples|batch_size|act_group_aware",
    "model_(name_or_path|file_base_name)|block_name_to_quantize|module_name_preceding_first_block|cache_block_outputs",
    "modules_(to_not_convert|in_block_to_quantize|to_fuse)|lm_head|do_fuse|fuse_max_seq_len|max_input_length|pad_token_id",
    "backend|use_exllama|disable_exllama|exllama_config|use_cuda_fp16|pack_impl|offload_.*|failsafe|hessian|vram_strategy",
    "gptaq|v2|v2_alpha|hyb_act|mock_quantization|gc_mode|wait_for_submodule_finalizers|auto_forward_data_parallel",
]


@dataclass(frozen=True)
class Layout:
    """How a checkpoint packs its weights.

    Args:
        method: "gptq" or "awq".
        bits: of a code.
        group: how many inputs share a scale; -1: all.
        shift: what is added to a stored zero.
    """

    method: str
    bits: int
    group: int
    shift: int


def with_packed_weights(config: Config) -> Config:
    """The same options without `quantization_config`, which tells how the weights are packed; these as blocks.

    Raises:
        ConfigError: for a method, or a variant of it, that blocks cannot hold.
    """
    layout = _read_layout(config.section(OPTION))
    weights = cache(lambda: PackedWeights(config.weights, layout, config.where))
    options = {name: value for name, value in config.options.items() if name != OPTION}
    return config.with_weights(weights, lambda: weights().shapes, options)


def _read_layout(options: Config) -> Layout:
    method = options.get("quant_method", str)
    if method not in ("gptq", "awq"):
        raise options.wrong("quant_method", f"supported: awq, gptq; {_OTHER}")
    known = (4, 8) if method == "gptq" else (4,)
    bits = options.whole("bits")
    if bits not in known:
        raise options.wrong("bits", f"supported: {' or '.join(map(str, known))}; {_OTHER}")
    shift = 0
    if method == "awq":
        options.only("zero_point", True)
        if options.get("version", str, "gemm").lower() != "gemm":
            raise options.wrong("version", f"supported: gemm; {_OTHER}, or one of version gemm")
    else:
        formats = [options.get(name, str, "gptq") for name in ("checkpoint_format", "format")]
        for name, given in zip(("checkpoint_format", "format"), formats, strict=True):
            if given not in ("gptq", "gptq_v2"):
                raise options.wrong(name, f"supported: gptq, gptq_v2; {_OTHER}, or one of these formats")
        shift = 0 if "gptq_v2" in formats else 1
        options.only("is_marlin_format", False)
        options.only("pack_dtype", "int32")
        options.get("desc_act", bool, False)  # g_idx tells whether it matters
    group = options.whole("group_size", low=-1)
    if group == 0:
        raise options.wrong("group_size", "expected 1 and more, or -1 for one group")
    options.done(_HARMLESS)
    return Layout(method, bits, group, shift)


class PackedWeights(Mapping[str, Held]):
    """The weights of a checkpoint: ``X.weight`` as blocks where it has ``X.qweight``, and other arrays as they are."""

    def __init__(self, arrays: Mapping[str, Held], layout: Layout, where: str) -> None:
        self._arrays, self._layout, self._where = arrays, layout, where
        self._layers = {key.removesuffix(".qweight") for key in arrays if key.endswith(".qweight")}
        parts = {f"{layer}.{part}" for layer in self._layers for part in _PARTS}
        self._keys = [key for key in arrays if key not in parts] + [f"{layer}.weight" for layer in sorted(self._layers)]

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes by key; nothing is unpacked."""
        return {key: self._shape(self._layer(key)) if self._layer(key) else self._arrays[key].shape for key in self}

    def is_zero_bias(self, key: str) -> bool:
        """Whether this is a bias of zeros of a packed layer: AutoGPTQ gives one to all of them."""
        bias, layer = self._arrays[key], key.removesuffix(".bias")
        return layer != key and layer in self._layers and isinstance(bias, np.ndarray) and not bias.any()

    def __getitem__(self, key: str) -> Held:
        layer = self._layer(key)
        return self._blocks(layer) if layer else self._arrays[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)

    def _layer(self, key: str) -> str:
        """The layer whose weight is packed; empty for other keys."""
        layer = key.removesuffix(".weight")
        return layer if layer != key and layer in self._layers else ""

    def _shape(self, layer: str) -> tuple[int, int]:
        """(N, K)."""
        rows, columns = self._part(layer, "qweight", np.int32).shape
        codes = 32 // self._layout.bits
        return (columns * codes, rows) if self._layout.method == "awq" else (columns, rows * codes)

    def _blocks(self, layer: str) -> Blocks:
        layout, (outputs, inputs) = self._layout, self._shape(layer)
        group = inputs if layout.group == -1 else layout.group
        groups, codes_each = blocks_of(inputs, group), 32 // layout.bits
        self._check_order(layer, inputs, group)
        integers = self._part(layer, "qweight", np.int32)
        stored = self._part(layer, "qzeros", np.int32, (groups, blocks_of(outputs, codes_each)))
        scales = self._part(layer, "scales", np.floating, (groups, outputs)).T.astype(np.float32)
        codes, zeros = _codes(integers, layout.bits), _codes(stored, layout.bits)
        if layout.method == "awq":
            codes, zeros = (array[..., _AWQ_ORDER].reshape(len(array), -1) for array in (codes, zeros))
            codes = codes.T
        else:  # (K / codes, N, codes)
            codes, zeros = codes.swapaxes(0, 1).reshape(outputs, inputs), zeros.reshape(groups, -1)
        zeros = zeros[:, :outputs].T
        if layout.shift and (zeros == 2**layout.bits - 1).any():
            raise self._wrong(
                f"{layer}.qzeros stores the zero point {2**layout.bits - 1} + 1, which programs read as "
                f"{2**layout.bits} or 0; get a checkpoint of checkpoint_format gptq_v2"
            )
        zeros = zeros + np.uint8(layout.shift)
        block = self._block(layer, group)
        if block != group:  # several blocks of a group have its scale
            of = np.arange(blocks_of(inputs, block)) * block // group
            scales, zeros = scales[:, of], zeros[:, of]
        same = bool((zeros == middle(layout.bits)).all())
        try:
            return Blocks(
                np.ascontiguousarray(codes),
                np.ascontiguousarray(scales),
                None if same else np.ascontiguousarray(zeros),
                layout.bits,
                block,
            )
        except ValueError as error:
            raise self._wrong(f"{layer}: {error}; get an intact copy of the file") from error

    def _block(self, layer: str, group: int) -> int:
        if group in BLOCKS:
            return group
        for block in reversed(BLOCKS):
            if block <= _SMALLER and group % block == 0:
                return int(block)
        raise ConfigError(
            f"{self._where}, {OPTION}: {layer} has groups of {group} inputs, supported: multiples of {BLOCKS[0]}; "
            f"{_OTHER}"
        )

    def _check_order(self, layer: str, inputs: int, group: int) -> None:
        """With desc_act=True inputs of one group may be anywhere in a row; a block has neighbours."""
        if f"{layer}.g_idx" not in self._arrays:
            return
        order = self._part(layer, "g_idx", np.int32, (inputs,))
        if not np.array_equal(order, np.arange(inputs) // group):
            raise ConfigError(
                f"{self._where}, {OPTION}: {layer}.g_idx does not count up by groups of {group} inputs (desc_act), "
                f"which blocks cannot hold; get the checkpoint quantised with desc_act=false, or {_OTHER}"
            )

    def _part(self, layer: str, name: str, kind: type[np.generic], shape: tuple[int, ...] | None = None) -> Array:
        array = self._arrays.get(f"{layer}.{name}")
        if not isinstance(array, np.ndarray):
            raise self._wrong(f"{layer}.qweight has no {name}; get an intact copy of the checkpoint")
        right = array.ndim == 2 if shape is None else array.shape == shape
        floating = array.dtype.name in ("float16", "bfloat16", "float32")
        if not right or not (floating if kind is np.floating else array.dtype == kind):
            wanted = "two axes" if shape is None else str(list(shape))
            raise self._wrong(
                f"{layer}.{name} is {array.dtype} {list(array.shape)}, expected {kind.__name__} of {wanted} for "
                f"{self._layout.method} in {self._layout.bits} bits and groups of {self._layout.group}; get an intact "
                "copy of the checkpoint"
            )
        return array

    def _wrong(self, problem: str) -> WeightsError:
        return WeightsError(f"{self._where}: {problem}")


def _codes(integers: Array, bits: int) -> Array:
    """The codes in each integer, low bits first: (...) int32 to (..., 32 / bits) uint8."""
    stored = np.ascontiguousarray(integers, "<i4")
    return unpack(stored.view(np.uint8).reshape(*stored.shape, 4), bits)
