"""Downloading from Hugging Face's hub with `huggingface_hub`: which files, and what errors mean."""

from __future__ import annotations

from pathlib import Path

from huggingface_hub import snapshot_download
from huggingface_hub.errors import (
    GatedRepoError,
    HFValidationError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from lucid.files.hub import HubName

_DESCRIBES = ("*.json", "*.jinja", "*.txt", "*.model", "README.md", "LICENSE*")
_LAYERS = "[0-9]*/model.safetensors", "*_[0-9]_*/model.safetensors"  # of sentence-transformers, also in a Router
_WEIGHTS = ("model.safetensors", "model-*.safetensors", "adapter_model.safetensors", *_LAYERS)
_PICKLES = "pytorch_model*.bin"
_FOR_OTHERS = ("*onnx/*", "openvino/*", "coreml/*", "original/*", "checkpoint-*/*", "runs/*", "eval/*")


def download(name: HubName, absent: str) -> Path:
    """Where the checkpoint is cached. Its errors, as those of `local_checkpoint`, start with `absent`."""
    try:
        return _downloaded(name)
    except (OSError, HFValidationError) as error:
        raise FileNotFoundError(f"{absent}; of Hugging Face's hub: {_reason(name, error)}") from error


def _downloaded(name: HubName) -> Path:
    if name.file is not None:
        return _snapshot(name, name.file, *_DESCRIBES) / name.file
    folder = _snapshot(name, *_DESCRIBES, *_WEIGHTS)
    homes = [folder, *(config.parent for config in folder.glob("[0-9]*/config.json"))]
    without = [home for home in homes if not any(home.glob("*.safetensors"))]
    if without:  # also of a layer without weights, such as a pooling, which has none to download either
        _snapshot(name, *_DESCRIBES, *((home / _PICKLES).relative_to(folder).as_posix() for home in without))
    return folder


def _snapshot(name: HubName, *patterns: str) -> Path:
    """The folder of the revision in the cache, with the files of these patterns."""
    kept, left = list(patterns), list(_FOR_OTHERS)
    return Path(snapshot_download(name.model, revision=name.revision, allow_patterns=kept, ignore_patterns=left))


def _reason(name: HubName, error: Exception) -> str:
    """A sentence for the errors that people meet; others in the library's words."""
    match error:
        case GatedRepoError():
            return f"{name.model} asks you to accept its licence on its page, and to log in: hf auth login"
        case RepositoryNotFoundError():
            return f"it has no model {name.model}, or only for those who log in: hf auth login"
        case RevisionNotFoundError():
            return f"{name.model} has no revision {name.revision}"
        case LocalEntryNotFoundError():
            why = "HF_HUB_OFFLINE is set" if isinstance(error.__cause__, OfflineModeIsEnabled) else "no connection"
            return f"{name.model} is not in its cache as a whole, and cannot be downloaded ({why})"
    return f"{name.model}: {error}"
