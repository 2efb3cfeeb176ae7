"""The cache folder of exported checkpoints: where it is, which of its folders are used, and how large it may become."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

from lucid.cli.errors import CommandError, short, usage
from lucid.core.words.byte_sizes import bytes_of
from lucid.files.atomic import explaining
from lucid.files.locks import exclusively, lock

CACHE = "LUCID_CACHE"
"""The environment variable with the folder of exported checkpoints."""
MOST = "LUCID_CACHE_GB"
"""The environment variable with the size of that folder in GB, beyond which exports are removed."""
_USUAL = 50.0
_NAME = re.compile(r".+-[0-9a-f]{16}")


def cache_folder() -> Path:
    """Make the folder of exported checkpoints: LUCID_CACHE, or `lucid` in the user's cache folder.

    Raises:
        CommandError: if it cannot be made.
    """
    folder = _place()
    if folder.parts[0] == "~":  # what stands for no home
        raise CommandError(f"this user has no home folder to keep exports in; {CACHE} names another folder")
    try:
        with explaining(folder):
            folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CommandError(
            f"{short(error)}. Exports of checkpoints are kept there; {CACHE} names another folder"
        ) from error
    return folder


def _place() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA") or "~/.cache"
    return Path(os.path.expanduser(os.environ.get(CACHE) or os.path.join(home, "lucid")))


def by_checkpoint(message: str) -> str:
    """A message that names the checkpoint instead of its export, which users have not named."""
    return re.sub(rf"{re.escape(str(_place()))}[/\\](.+?)-[0-9a-f]{{16}}", r"\1", message)


def use(folder: Path) -> None:
    """Protect a folder until this process ends, and mark it as the most recently used."""
    os.utime(folder)
    if sys.platform != "win32":
        lock(os.open(folder, os.O_RDONLY), wait=True, shared=True)  # the system closes it


def make_room(room: float) -> None:
    """Remove unused folders, the least recently used first, until the others have at most so many bytes.

    Without file locks, as on Windows, all folders stay.
    """
    with exclusively(cache_folder() / "room") as alone:
        for half in cache_folder().glob(".*.removed") if alone else ():  # of a process that was killed meanwhile
            shutil.rmtree(half)
        kept = [path for path in cache_folder().iterdir() if path.is_dir() and _NAME.fullmatch(path.name)]
        for folder in sorted(kept, key=lambda path: -path.stat().st_mtime_ns):
            room -= sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
            if room < 0:
                _remove(folder)


def room_of_cache() -> float:
    """The most bytes of the cache.

    Raises:
        CommandError: for a size that is not a number.
    """
    setting = os.environ.get(MOST) or str(_USUAL)
    try:
        most = bytes_of(setting, "GB")
    except ValueError as error:
        raise usage(f"{MOST} is {error}") from None
    if not most >= 0:
        raise usage(f"{MOST} is {setting!r}, expected 0 GB or more")
    return most


def _remove(folder: Path) -> None:
    if sys.platform == "win32":
        return
    with exclusively(folder) as alone:  # a process that looks for it waits, and then exports it again
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            if alone and lock(descriptor):
                unnamed = folder.with_name(f".{folder.name}.removed")  # half of it is never taken for the whole
                folder.rename(unnamed)
                shutil.rmtree(unnamed)
        finally:
            os.close(descriptor)
