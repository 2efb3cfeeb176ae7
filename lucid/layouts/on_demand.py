"""Layouts' modules that read text, and need the extra `chat` for it; they are imported when a folder needs them."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def text_module(name: str) -> Any:
    """A module of `lucid.layouts` that needs the extra `chat`.

    Raises:
        ModuleNotFoundError: naming the extra, if it is not installed.
    """
    return import_module(f"lucid.layouts.{name}")


def tokenizing_package() -> Any:
    """The package `lucid.layouts.tokenizing`, which needs the same extra.

    Raises:
        ModuleNotFoundError: naming the extra, if it is not installed.
    """
    return import_module("lucid.layouts.tokenizing")
