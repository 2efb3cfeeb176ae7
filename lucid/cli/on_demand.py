"""Modules of the commands that are loaded only where they are needed: they take time, or need an extra."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def command_module(name: str) -> Any:
    """A module of `lucid.cli` by name."""
    return import_module(f"lucid.cli.{name}")
