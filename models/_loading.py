"""From a checkpoint of any known type to its model."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

from lucid import DType, float32
from lucid.models._pretrained import Auto, Pretrained, read_model_type, read_options
from lucid.models._stored_weights import write_checkpoint

READERS = {  # a line for each class: its file and name, and the model_type of the checkpoints that it reads
    "bert.Bert": ("bert", "roberta", "distilbert", "xlm-roberta", "camembert", "electra", "ernie"),
    "clip.CLIP": ("clip",),
    "gemma.Gemma": ("gemma2", "gemma3_text"),
    "gpt2.GPT2": ("gpt2",),
    "llama.Llama": ("llama", "mistral", "qwen2", "qwen3", "smollm3", "granite", "helium", "olmo2"),
    "modernbert.ModernBert": ("modernbert",),
    "t5.T5": ("t5", "mt5"),
    "vit.ViT": ("vit", "deit", "dinov2"),
    "whisper.Whisper": ("whisper",),
}
_CLASSES = {kind: name for name, kinds in READERS.items() for kind in kinds}


def load(
    source: str | os.PathLike[str], dtype: DType | Auto | None = None, *, dequantize: bool = False
) -> Pretrained[object]:
    """Read a checkpoint with the model that its model_type asks for; `Llama.from_pretrained` and its kin read one type.

    Args:
        source: a folder with config.json and safetensors, a GGUF file, or a folder with one.
        dtype: the element type of the parameters; float32 by default, whatever the checkpoint stores. "auto": as it
            stores each, without a copy.
        dequantize: whether weights that the checkpoint has in few bits become parameters too. By default each is an
            `nn.QuantizedWeight` or `nn.Int8Weight`, exactly as stored, where its type is one that Lucid has.

    Raises:
        ConfigError: for an unknown type, listing those that are known, or an option that is not supported.
        ModuleNotFoundError: for a GGUF file if the extra `gguf` is not installed.
        KeyError: listing all weights that are missing, unexpected or of another shape.
        WeightsError: for an invalid weights file.
        OSError: if a file is missing.
    """
    file, _, name = _CLASSES[read_model_type(source, *_CLASSES)].partition(".")
    reader: type[Pretrained[object]] = vars(import_module(f"lucid.models.{file}"))[name]
    return reader.from_pretrained(source, dtype or float32, dequantize=dequantize)


def save(model: Pretrained[Any], source: str | os.PathLike[str], folder: str | os.PathLike[str]) -> None:
    """Write a model of a checkpoint, such as `lucid.quantize` makes of it, as one that `load` reads as it is.

    Args:
        model: with or without weights in few bits.
        source: the checkpoint that it was loaded from, which has its options.
        folder: one that exists. It gets config.json and model.safetensors; copy the files of the tokenizer too.

    Raises:
        ValueError: for a weight that is stored in another way than as `nn.QuantizedWeight` or `nn.Int8Weight`.
        ConfigError, ModuleNotFoundError, WeightsError: as `load`.
        OSError: if a file is missing or cannot be written.
    """
    write_checkpoint(model, read_options(source, *_CLASSES).options, folder)
