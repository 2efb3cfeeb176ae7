"""Modules that commands load only when needed, because they take time or need an extra."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def command_module(name: str) -> Any:
    """A module of `lucid.cli` by name."""
    return import_module(f"lucid.cli.{name}")


def check_extra(room: str) -> None:
    """Load a room that needs an extra; without its packages the error of the room names the extra."""
    import_module(room)
