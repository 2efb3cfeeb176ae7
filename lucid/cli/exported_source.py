"""SOURCE of the commands that run exported models: an export, or a checkpoint that is exported once, to a cache."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from lucid import models
from lucid.cli.errors import usage
from lucid.cli.kept_exports import cache_folder, make_room, room_of_cache, use
from lucid.cli.options.groups import DeployedOptions, WeightOptions, values_of
from lucid.cli.quantizing import check_quantization, quantize_arguments
from lucid.cli.source import adapters_of, checkpoint_of, noting_second_rounding
from lucid.cli.terminal import Output
from lucid.core.version import __version__
from lucid.core.words.progress import phase
from lucid.export.target import Target
from lucid.files.locks import exclusively
from lucid.generation.chat.loading import adapter_file, as_decoder, quickest_cache, runtime_of
from lucid.generation.lookup import VERIFIED
from lucid.layouts import write_folder
from lucid.layouts.checkpoint_files import name_of, onnx_files
from lucid.nn import CausalDecoder, Module
from lucid.nn.quantizing.quantize import quantize
from lucid.runtime.providers import installed


class ExportedSource(NamedTuple):
    """The path of a model, its name, and the file of an adapter for its runs."""

    folder: Path
    name: str
    adapter: Path | None


def exported_source(
    options: DeployedOptions,
    task: str | None,
    providers: Sequence[str],
    decoder: bool = False,
    check: Callable[[Path, Module], None] | None = None,
) -> ExportedSource:
    """The exported model of SOURCE. A checkpoint is exported first, unless the cache has it, and a line says so.

    The folder of an export is named after a hash of everything that it depends on: the names, sizes and times of the
    checkpoint's files, the options, the version of Lucid and the release of onnxruntime. If several processes need the
    same export, one makes it and the others wait.

    `check` may refuse a checkpoint and its model before they are exported.

    Raises:
        ValueError: with `decoder`, for the checkpoint of a model that does not continue texts.
    """
    check_quantization(options)
    path = options.folder
    checkpoint = checkpoint_of(str(path))
    if checkpoint is None or any(file.parent == path or not decoder for file in onnx_files(path)):
        if options.bits is not None:
            raise usage(f"--bits {options.bits}: {path} is no checkpoint; the weights of an exported folder stay as is")
        if options.ignore_option:
            shown = f"--ignore-option {options.ignore_option[0]}"
            raise usage(f"{shown}: {path} is no checkpoint, of which config.json would be read; leave it out")
        return ExportedSource(path, path.resolve().name, adapter_file(adapters_of(options), path))
    room, name, digest = room_of_cache(), name_of(path), _digest(options, path, task, providers)
    folder, notes = cache_folder() / f"{name}-{digest[:16]}", Output(error=True)
    with exclusively(folder):
        if not folder.is_dir():
            start = time.monotonic()
            _export(options, path, task, providers, folder, decoder, check)
            notes.line(f"exported    to {folder} in {time.monotonic() - start:.1f} s; the next start finds it there")
        use(folder)
    make_room(room)
    return ExportedSource(folder, name, None)


def _digest(options: DeployedOptions, checkpoint: Path, task: str | None, providers: Sequence[str]) -> str:
    """The SHA-256 of everything that an export depends on."""
    adapters = adapters_of(options)
    texts = [] if options.text is None else [options.text]
    decides = {
        "versions": [__version__, installed()],
        "files": _seen([checkpoint, *map(Path, adapters), *texts]),
        "runtime": runtime_of(providers).name,
        "options": [task, options.ignore_option, list(adapters.values())],
        "quantization": {**values_of(options, WeightOptions), "text": None},
    }
    return hashlib.sha256(json.dumps(decides).encode()).hexdigest()


def _seen(paths: Iterable[Path]) -> list[tuple[Any, ...]]:
    """The path, size, time of change and inode of each file, also in subfolders."""
    seen = []
    for path in map(Path.resolve, paths):
        inside = [path] if path.is_file() else [each for each in sorted(path.rglob("*")) if each.is_file()]
        for file in inside:
            status = file.stat()
            seen.append((os.fsencode(file).hex(), status.st_size, status.st_mtime_ns, status.st_ino))
    return seen


def _export(
    options: DeployedOptions,
    checkpoint: Path,
    task: str | None,
    providers: Sequence[str],
    folder: Path,
    decoder: bool,
    check: Callable[[Path, Module], None] | None,
) -> None:
    """Write the folder for serving: for the first provider, with the fastest cache, and weights in a side file."""
    with phase("reading weights"):
        load = partial(models.load, checkpoint, task, ignore=options.ignore_option, adapters=adapters_of(options))
        model = load() if options.bits is None else noting_second_rounding(load, checkpoint)
    if check is not None:
        check(checkpoint, model)
    continues = isinstance(as_decoder(model, checkpoint) if decoder else model, CausalDecoder)
    quantization = quantize_arguments(options, checkpoint, continues)
    if quantization is not None:
        model = quantize(model, **quantization)
    runtime = runtime_of(providers)
    write_folder(
        model,
        checkpoint,
        folder,
        layout="onnxruntime",
        target=Target(runtime.name, onnxruntime=installed(), rows_apart=True),
        cache=quickest_cache(model, runtime) if isinstance(model, CausalDecoder) else None,
        external_data=True,
        logits_to_keep=1 + VERIFIED if continues else None,
        check=False,
    )
