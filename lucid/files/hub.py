"""Checkpoints of Hugging Face's hub by name: in its cache on this machine, downloaded if they are not yet there.

The library `huggingface_hub` (extra `hub`) downloads and caches: the variables HF_HOME, HF_HUB_OFFLINE, HF_TOKEN,
HF_ENDPOINT and others mean what its documentation says.
"""

from __future__ import annotations

import os
import re
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path, PurePath
from typing import NamedTuple

from lucid.core.words.safe_text import show
from lucid.core.words.suggestions import paths_near

_PART = r"[A-Za-z0-9][\w.-]*"
_INNER = r"\w[\w.-]*(?:/\w[\w.-]*)*"  # of a file or branch: no part is "..", which would lead out of the cache
_NAME = re.compile(rf"({_PART}/{_PART})(?:/({_INNER}\.gguf))?(?:@({_INNER}))?", re.ASCII)
_FILE = re.compile(r"\.(onnx|py|safetensors|bin|pth?|gguf|json|npz|html)$")  # ends the name of a file, not of a model


class HubName(NamedTuple):
    """``owner/name``, ``owner/name@revision``, or ``owner/name/file.gguf`` of a model with several GGUF files."""

    model: str
    file: str | None
    revision: str | None


def hub_name(source: str | os.PathLike[str]) -> HubName | None:
    """The parts of a source that may be a name of the hub; None for existing files and folders, and for other texts."""
    text = source if isinstance(source, str) else PurePath(source).as_posix()  # "./a/b" is a path
    match = _NAME.fullmatch(text)
    if match is None or os.path.lexists(source) or _FILE.search(match[1]):
        return None
    return HubName(*match.groups())


def local_checkpoint(source: str | os.PathLike[str]) -> Path:
    """The path of a checkpoint: of a file or folder as it is, of a name of the hub where the model is cached.

    Only the files that Lucid reads are downloaded: configs, the tokenizer and safetensors; torch's pickles only for
    checkpoints without safetensors, and a GGUF file only if it is named. Files that are cached already are not
    downloaded again.

    Args:
        source: a path, or ``owner/name``, also with ``@`` and a branch, tag or commit. A file or folder of this name on
            this machine comes first.

    Raises:
        TypeError: for what is neither.
        ModuleNotFoundError: for a name of the hub without the extra `hub`; the message has the commands that help.
        FileNotFoundError: for a model, revision or file that the hub does not have, that needs a licence or login, or
            that is not cached when the hub cannot be reached.
    """
    if not isinstance(source, (str, os.PathLike)):
        raise TypeError(f"got {show(source)}, expected the path of a checkpoint, or owner/name of Hugging Face's hub")
    name = hub_name(source)
    if name is None:
        return Path(source)
    near = "".join(f"; did you mean {path}?" for path in paths_near(source)[:1])
    absent = f"there is no file or folder {os.fspath(source)!r} here{near}"
    if find_spec("huggingface_hub") is None:
        revision = f" --revision {name.revision}" if name.revision else ""
        raise ModuleNotFoundError(
            f"{absent}; to download it from Hugging Face's hub: pip install 'lucid-onnx[hub]', or "
            f"hf download {name.model}{revision} --local-dir {name.model.rpartition('/')[2]}"
        )
    path: Path = import_module("lucid.files.hub_download").download(name, absent)
    return path


def folder_name(path: Path) -> str:
    """The name of a checkpoint for people: that of its folder, or in a cache of the hub that of the model."""
    path = Path(os.path.abspath(path))
    published = published_name(path)
    return path.name if published is None else published.rpartition("/")[2]


def published_name(path: Path) -> str | None:
    """The name ``owner/name`` of a model in a cache of the hub, where each revision has a folder; None elsewhere."""
    for folder in (path, *path.parents):
        if folder.parent.name == "snapshots" and folder.parent.parent.name.startswith("models--"):
            return folder.parent.parent.name.removeprefix("models--").replace("--", "/", 1)
    return None
