"""A distribution as pip installs it, in a folder of its own: its modules, and what its pyproject.toml says of it."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from lucid.models.checkpoints import registry


@contextmanager
def installed(site: Path, *distributions: tuple[str, Mapping[str, str]]) -> Iterator[None]:
    """Inside, these are installed: each the text of a pyproject.toml, and modules by the names of their files."""
    for project, files in distributions:
        about = tomllib.loads(project)["project"]
        info = site / f"{about['name'].replace('-', '_')}-{about['version']}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {about['name']}\nVersion: {about['version']}\n")
        groups = about.get("entry-points", {}).items()
        lines = [f"[{group}]\n" + "".join(f"{n} = {v}\n" for n, v in points.items()) for group, points in groups]
        (info / "entry_points.txt").write_text("".join(lines))
        for name, text in files.items():
            (site / name).write_text(text, encoding="utf-8")
    before = set(sys.modules)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(site)
        patch.setattr(registry, "_KNOWN", dict(registry._KNOWN))
        yield
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(site)):
            del sys.modules[name]
