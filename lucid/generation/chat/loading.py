"""From a checkpoint or an exported folder to a language model."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lucid.core.targets.record import Runtime
from lucid.core.targets.runtimes import CPU, tuned_for
from lucid.core.words.progress import phase
from lucid.core.words.safe_text import listed
from lucid.core.words.suggestions import or_check
from lucid.export import Target, to_onnx
from lucid.files.hub import local_checkpoint
from lucid.generation.chat.language_model import LanguageModel
from lucid.generation.chat.tokenizer_files import decoder_name, load_tokenizer
from lucid.generation.lookup import VERIFIED
from lucid.generation.models import ENCODER
from lucid.models import load
from lucid.models.checkpoints.adapters import Adapters, weighted
from lucid.nn import CausalDecoder
from lucid.nn.model_parts import CacheKind
from lucid.nn.module import Module
from lucid.nn.quantizing.quantize import Bits, quantize
from lucid.runtime import Session
from lucid.runtime.providers import full_name, installed


def load_language_model(
    source: str | os.PathLike[str],
    *,
    eager: bool = False,
    providers: Sequence[str] | None = None,
    threads: int | None = None,
    ignore: Sequence[str] = (),
    adapters: Adapters = None,
    bits: Bits | None = None,
    **quantization: Any,
) -> LanguageModel:
    """Read a model that continues texts, with its tokenizer, ready to run.

    Args:
        source: a checkpoint (a folder with config.json and safetensors, a GGUF file, or a folder with one), which is
            exported with its cache for the first provider; or an exported model (an ONNX file, or a folder with one)
            with tokenizer.json and the checkpoint's configs next to it. A folder with both is an exported model. A
            checkpoint may also be the name of one on Hugging Face's hub, as for `lucid.models.load`.
        eager: run a checkpoint with NumPy instead of exporting it.
        providers, threads: of the `Session`.
        ignore: options of a checkpoint's config to read as absent, as for `lucid.models.load`.
        adapters: folders of LoRA adapters to merge into a checkpoint, as for `lucid.models.load`; for a model that was
            exported with inputs for adapters, one file of `lucid.layouts.write_adapter`.
        bits: the bits of the weights: 4, 8, or by layer, as for `lucid.quantize`. By default the weights stay as they
            are in the checkpoint, which may be quantized.
        quantization: further arguments of `lucid.quantize`, such as ``block=64``.

    Raises:
        ValueError: for a source that holds no decoder, or files that are not what their names say; `ConfigError` for an
            architecture or option that is not supported.
        OSError: if a file is missing.
        ModuleNotFoundError: for a GGUF file if the extra `gguf` is not installed.
        ProviderError: for a provider that does not exist or does not work.
    """
    path = local_checkpoint(source)
    if not path.exists():
        raise FileNotFoundError(f"there is no file or folder {os.fspath(source)!r}{or_check(source)}")
    exported = None if eager else _exported(path)
    tokenizer = load_tokenizer(path if exported is None else exported.parent)
    if exported is not None and bits is not None:
        raise ValueError(f"{exported}: is an exported model, whose weights stay as they are; leave out bits={bits}")
    if exported is not None:
        adapter = adapter_file(adapters, exported)
        model: CausalDecoder | Session = Session(exported, providers, threads=threads, huge_pages=True, adapter=adapter)
    else:
        with phase("reading weights"):
            model = as_decoder(load(path, dequantize=bits is not None, ignore=ignore, adapters=adapters), path)
        if bits is not None:
            model = quantize(model, bits, **quantization)
        if not eager:
            model = _session(model, providers, threads)
    return LanguageModel(model, tokenizer)


def runtime_of(providers: Sequence[str] | None) -> Runtime:
    """The runtime to export for, if a model runs on these providers: the first one counts."""
    return tuned_for(full_name(providers[0]) if providers else CPU)


def quickest_cache(model: CausalDecoder, runtime: Runtime) -> CacheKind:
    """The kind of cache with which steps of a decoder take the least time."""
    # Without partial reads, buffers would be read whole in each step. States of a fixed size, such as Mamba's, need
    # none.
    return "fixed" if "partial reads" in runtime.strategies and model.takes_fixed_cache else "growing"


def adapter_file(adapters: Adapters, exported: Path) -> Path | None:
    """The file of an adapter for an exported model.

    Raises:
        ValueError: for several adapters, a folder, and one with a weight.
    """
    files = list(weighted(adapters).items())
    if len(files) > 1 or any(weight != 1 or not file.is_file() for file, weight in files):
        raise ValueError(
            f"{exported}: is an exported model, into which no adapter is merged; give one file of write_adapter, "
            "NAME.onnx_adapter, without a weight, or export its checkpoint again"
        )
    return files[0][0] if files else None


def _exported(path: Path) -> Path | None:
    """The ONNX file that a source is or holds; None if it is a checkpoint."""
    if not path.is_dir():
        return path if path.suffix.lower() == ".onnx" else None
    named = decoder_name(path)
    files = [path / named] if named is not None else sorted(path.glob("*.onnx"))
    if len(files) > 1:
        files = [file for file in files if file.name == "model.onnx"] or files
    if any(file.name.startswith(ENCODER) for file in files):
        raise ValueError(
            f"{path}: has an encoder and a decoder, which do not continue texts; lucid map runs them over rows, and "
            "lucid.generation.EncoderDecoderGenerator in Python"
        )
    if len(files) > 1:
        shown = listed([file.name for file in files], 4)
        raise ValueError(f"{path}: holds {len(files)} ONNX files ({shown}), expected one; give the path of the decoder")
    return files[0] if files else None


def as_decoder(model: Module, path: Path) -> CausalDecoder:
    """The model of a checkpoint, as it is.

    Raises:
        ValueError: unless it continues texts.
    """
    if not isinstance(model, CausalDecoder):
        raise ValueError(
            f"{path}: is the checkpoint of a {type(model).__name__}, which does not continue texts; expected a "
            "decoder, such as GPT2 or Llama"
        )
    return model


def _session(model: CausalDecoder, providers: Sequence[str] | None, threads: int | None) -> Session:
    """A decoder exported with its cache for the first provider and this onnxruntime, and loaded.

    The files are removed again. Weights in a side file are mapped, not read: a table that an embedding and the output
    layer share is in memory once, in the layout of products.
    """
    runtime = runtime_of(providers)
    target = Target(runtime.name, onnxruntime=installed(), rows_apart=True)
    with tempfile.TemporaryDirectory(prefix="lucid-", ignore_cleanup_errors=True) as folder:
        file = Path(folder) / "model.onnx"
        kwargs = {"logits_to_keep": 1 + VERIFIED} if model.takes_logits_to_keep else None
        to_onnx(
            model, path=file, cache=quickest_cache(model, runtime), target=target, kwargs=kwargs, external_data=True
        )
        return Session(file, providers, threads=threads, huge_pages=True)
