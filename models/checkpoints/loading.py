"""From a checkpoint of any known type to its model."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lucid import DType, float32
from lucid.core.words.name_patterns import name_list
from lucid.core.words.safe_text import show
from lucid.files.hub import local_checkpoint
from lucid.models.checkpoints.adapters import Adapters
from lucid.models.checkpoints.lucid_format import write_checkpoint
from lucid.models.checkpoints.pretrained import Auto, Pretrained, check_pretrained, read_options
from lucid.models.checkpoints.sentence_files import TASKS, first_folder, read_modules
from lucid.models.checkpoints.tasks import reader_for, saved_options, with_architecture
from lucid.nn.quantized import WeightModule


def load(
    source: str | os.PathLike[str],
    task: str | None = None,
    dtype: DType | Auto | None = None,
    *,
    architecture: str | None = None,
    dequantize: bool = False,
    ignore: Sequence[str] = (),
    adapters: Adapters = None,
    outputs: Sequence[str] = (),
) -> Pretrained[object]:
    """Read a checkpoint with the model that its model_type asks for; `Llama.from_pretrained` and others read one type.

    Args:
        source: a folder with config.json and weights (safetensors, or else pytorch_model.bin), a GGUF file, a folder
            with one, or the folder of a LoRA adapter, if the `base_model_name_or_path` in it is a folder here; or the
            name of one on Hugging Face's hub: ``"owner/name"``, also with a revision, ``"owner/name@v1.0"``.
        task: what the model is for, as Hugging Face's hub calls it: feature-extraction, text-classification, fill-mask,
            ... By default that of the head that an adapter brings; or else sentence-similarity if the folder has a
            modules.json of sentence-transformers, and otherwise what `architectures` of config.json says.
        architecture: the class of transformers that the checkpoint is, such as "LlamaModel", where its config names
            another one (`architectures`) or code of its own (`auto_map`).
        dtype: the element type of the parameters; float32 by default, whatever the checkpoint stores. "auto": as it
            stores each, without a copy.
        dequantize: whether quantized weights of the checkpoint become parameters too. By default each is an
            `nn.QuantizedWeight` or `nn.Int8Weight`, exactly as stored, where its type is one that Lucid has.
        ignore: options of config.json that are read as if the file did not have them, such as one that is refused and
            that you know to change nothing: ``"hidden_act"``, or ``("text_config.hidden_act", ...)`` of objects.
        adapters: the folder of a LoRA adapter as PEFT saves it, several folders, or folders with weights, such as
            ``{"sql": 1.0, "polite": 0.5}``; they are merged into the weights in this order, in float32, or with "auto"
            rounded to what the checkpoint stores. A quantized weight that one changes is dequantized.
        outputs: what `to_onnx` and `assert_parity` add to the model's own outputs unless they are given others, such as
            ``("hidden_states", "attentions", "encoder.layer.7")``; see `lucid.export.to_onnx`. A call has its own.

    Raises:
        TypeError: for an argument of another type, such as `outputs` that are a text.
        ConfigError: for an unknown type, listing those that are known; an option that is not supported; a class or code
            that is not transformers'; a task that is unknown or that the weights do not hold, listing those that there
            are; an adapter that is not LoRA, or has an option that cannot be merged.
        ModuleNotFoundError: for a GGUF file without the extra `gguf`, and a name of the hub without the extra `hub`.
        KeyError: listing all weights that are missing, unexpected or of another shape.
        WeightsError: for an invalid weights file, or an adapter of another base model.
        OSError: if a file is missing.
    """
    for name, text in (("task", task), ("architecture", architecture)):
        if text is not None and not isinstance(text, str):
            raise TypeError(f"load: {name} is {show(text)}, expected its name as text")
    source = local_checkpoint(source)
    modules = read_modules(source) if task in (None, *TASKS) else None
    source = first_folder(source) if modules is None else source
    options = read_options(source if modules is None else modules.encoder, ignore=ignore, adapters=adapters)
    if modules is not None and task is None and adapters:
        base = read_options(modules.encoder, ignore=ignore)
        if options.options.get("architectures") != base.options.get("architectures"):  # a head that an adapter brings
            source, modules = modules.encoder, None
    if architecture is not None:
        options = with_architecture(options, architecture)
    reader = reader_for(task, options, None if modules is None else modules.task)
    model = reader.from_pretrained(source, dtype or float32, dequantize=dequantize, ignore=ignore, adapters=adapters)
    model.further_outputs = name_list("outputs", outputs)
    return model


def save(model: Pretrained[Any], source: str | os.PathLike[str], folder: str | os.PathLike[str]) -> None:
    """Write a model of a checkpoint, such as `lucid.quantize` or training makes, as one that `load` reads as it is.

    Weights have the names of the checkpoint, so transformers reads them as well, unless some are quantized or experts
    are joined.

    Args:
        model: with or without quantized weights.
        source: the checkpoint that it was loaded from, which has its options.
        folder: one that exists. It gets config.json and model.safetensors; copy the files of the tokenizer too.

    Raises:
        TypeError: for a model that no checkpoint has.
        ValueError: for a weight that is stored in another way than as `nn.QuantizedWeight` or `nn.Int8Weight`.
        ConfigError, ModuleNotFoundError, WeightsError: as `load`.
        OSError: if a file is missing or cannot be written.
    """
    check_pretrained("save", model)
    source = local_checkpoint(source)
    modules = read_modules(source) if model.checkpoint.task in TASKS else None
    encoder = first_folder(source) if modules is None else modules.encoder
    options = read_options(encoder, adapters=model.adapters)
    ignored = model.unread.on_request
    options = options.without([name for name in ignored if name not in options.dropped])
    known = model.checkpoint
    joined = known.converted is not None or known.weights(options).keys() != options.weights.keys()
    alike = not (joined or any(isinstance(each, WeightModule) for each in model.modules()))
    names = model.checkpoint_keys(options) if alike else None
    write_checkpoint(model, saved_options(model, options), folder, ignored, names)
    if modules is not None:
        modules.write(Path(folder), model.state_dict() if alike else {})
