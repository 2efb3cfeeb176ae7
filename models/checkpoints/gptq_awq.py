"""Quantized weights of GPTQ and AWQ: safetensors with codes of 4 or 8 bits in 32-bit integers, read as blocks.

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

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from lucid.models.checkpoints.config import QUANTIZATION, Array, Config, ConfigError
from lucid.models.checkpoints.quantized_weights import Parts, QuantizedFormat
from lucid.quantization import Blocks
from lucid.quantization.blocks import BLOCKS, blocks_of, middle, unpack

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
class GroupFormat:
    """How a checkpoint stores its quantized weights."""

    parts: ClassVar[tuple[str, ...]] = ("qweight", "qzeros", "scales", "g_idx")
    method: str  # "gptq" or "awq"
    bits: int  # of a code
    group: int  # how many inputs share a scale; -1: all
    shift: int  # what is added to a stored zero
    where: str  # starts the messages of errors about the options

    def shape(self, parts: Parts) -> tuple[int, int]:
        rows, columns = parts.shape("qweight", axes=2)
        codes = 32 // self.bits
        return (columns * codes, rows) if self.method == "awq" else (columns, rows * codes)

    def read(self, parts: Parts) -> Blocks:
        outputs, inputs = self.shape(parts)
        group = inputs if self.group == -1 else self.group
        groups, codes_each = blocks_of(inputs, group), 32 // self.bits
        self._check_order(parts, inputs, group)
        reason = f"{self.method} in {self.bits} bits and groups of {self.group}"
        integers = parts.need("qweight", "int32", parts.shape("qweight", axes=2), reason)
        stored = parts.need("qzeros", "int32", (groups, blocks_of(outputs, codes_each)), reason)
        scales = parts.need("scales", "float", (groups, outputs), reason).T.astype(np.float32)
        codes, zeros = _codes(integers, self.bits), _codes(stored, self.bits)
        if self.method == "awq":
            codes, zeros = (array[..., _AWQ_ORDER].reshape(len(array), -1) for array in (codes, zeros))
            codes = codes.T
        else:  # (K / codes, N, codes)
            codes, zeros = codes.swapaxes(0, 1).reshape(outputs, inputs), zeros.reshape(groups, -1)
        zeros = zeros[:, :outputs].T
        if self.shift and (zeros == 2**self.bits - 1).any():
            raise parts.wrong(
                f".qzeros stores the zero point {2**self.bits - 1} + 1, which programs read as {2**self.bits} or 0; "
                "get a checkpoint of checkpoint_format gptq_v2"
            )
        zeros = zeros + np.uint8(self.shift)
        block = self._block(parts, group)
        if block != group:  # several blocks of a group have its scale
            of = np.arange(blocks_of(inputs, block)) * block // group
            scales, zeros = scales[:, of], zeros[:, of]
        same = bool((zeros == middle(self.bits)).all())
        try:
            return Blocks(
                np.ascontiguousarray(codes),
                np.ascontiguousarray(scales),
                None if same else np.ascontiguousarray(zeros),
                self.bits,
                block,
            )
        except ValueError as error:
            raise parts.wrong(f": {error}") from error

    def _block(self, parts: Parts, group: int) -> int:
        if group in BLOCKS:
            return group
        for block in reversed(BLOCKS):
            if block <= _SMALLER and group % block == 0:
                return int(block)
        raise ConfigError(
            f"{self.where}: {parts.name} has groups of {group} inputs, supported: multiples of {BLOCKS[0]}; {_OTHER}"
        )

    def _check_order(self, parts: Parts, inputs: int, group: int) -> None:
        """With desc_act=True inputs of one group may be anywhere in a row; a block has neighbours."""
        order = parts.get("g_idx", "int32", (inputs,), f"{inputs} inputs")
        if order is not None and not np.array_equal(order, np.arange(inputs) // group):
            raise ConfigError(
                f"{self.where}: {parts.name}.g_idx does not count up by groups of {group} inputs (desc_act), which "
                f"blocks cannot hold; get the checkpoint quantized with desc_act=false, or {_OTHER}"
            )


def with_group_weights(config: Config) -> Config:
    """The same options without `quantization_config`, which tells how the weights are quantized; these as blocks.

    Raises:
        ConfigError: for a method, or a variant of it, that blocks cannot hold.
    """
    known = _read_format(config.section(QUANTIZATION))

    def formats() -> dict[str, tuple[QuantizedFormat, str]]:
        layers = [key.removesuffix(".qweight") for key in config.weights if key.endswith(".qweight")]
        return {f"{layer}.weight": (known, layer) for layer in layers}

    return config.with_formats(formats)


def _read_format(options: Config) -> GroupFormat:
    method = options.get("quant_method", str)
    if method not in ("gptq", "awq"):
        raise options.wrong("quant_method", f"supported: awq, fp8, gptq, mxfp4; {_OTHER}")
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
        for name, value in zip(("checkpoint_format", "format"), formats, strict=True):
            if value not in ("gptq", "gptq_v2"):
                raise options.wrong(name, f"supported: gptq, gptq_v2; {_OTHER}, or one of these formats")
        shift = 0 if "gptq_v2" in formats else 1
        options.only("is_marlin_format", False)
        options.only("pack_dtype", "int32")
        options.get("desc_act", bool, False)  # g_idx tells whether it matters
    group = options.whole("group_size", low=-1)
    if group == 0:
        raise options.wrong("group_size", "expected 1 and more, or -1 for one group")
    options.done(_HARMLESS)
    return GroupFormat(method, bits, group, shift, options.where)


def _codes(integers: Array, bits: int) -> Array:
    """The codes in each integer, low bits first: (...) int32 to (..., 32 / bits) uint8."""
    stored = np.ascontiguousarray(integers, "<i4")
    return unpack(stored.view(np.uint8).reshape(*stored.shape, 4), bits)
