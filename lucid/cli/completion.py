"""What a shell offers for arguments; where this is nothing, it offers files and folders itself."""

from __future__ import annotations

from lucid.cli.dispatch import command_module


def sources(incomplete: str) -> list[str]:
    """For SOURCE: the modules of `lucid.nn`, once its name is there. They load NumPy."""
    if not incomplete.startswith("nn."):
        return []
    return [name for name in command_module("named").modules_of_nn() if name.startswith(incomplete)]
