"""The keys of a state dict compared with those of a module."""

from __future__ import annotations

from collections.abc import Set
from typing import NamedTuple


class OtherKeys(NamedTuple):
    """The keys that a module has and a state dict lacks, and those that only the state dict has."""

    missing_keys: list[str]
    unexpected_keys: list[str]


def differences(own: Set[str], keys: Set[str]) -> list[str]:
    """A line for each list of layers of another length, and one each for the other missing and unexpected keys."""
    missing, unexpected = set(own - keys), set(keys - own)
    lines = _other_lengths(own, keys, missing, unexpected)
    lines += [f"missing: {', '.join(sorted(missing))}"] if missing else []
    return lines + ([f"unexpected: {', '.join(sorted(unexpected))}"] if unexpected else [])


def _other_lengths(own: Set[str], keys: Set[str], missing: set[str], unexpected: set[str]) -> list[str]:
    """A line for each list of layers that has another length, whose keys are taken out of those that do not fit."""
    lines = []
    ours, theirs = _lengths(own), _lengths(keys)
    for path in sorted(ours.keys() & theirs.keys()):
        fewer, more = sorted((ours[path], theirs[path]))
        layers = tuple(f"{path}{place}." for place in range(fewer, more))
        if any(key.startswith(layers) for key in missing | unexpected):
            missing -= {key for key in missing if key.startswith(layers)}
            unexpected -= {key for key in unexpected if key.startswith(layers)}
            count = f"{theirs[path]} given, expected {ours[path]}, the number in the model, or in its config"
            lines.append(f"{path.rstrip('.') or 'layers'}: {count}")
    return lines


def _lengths(keys: Set[str]) -> dict[str, int]:
    """The number of layers in each complete list of layers, by its path."""
    places: dict[str, set[int]] = {}
    for key in keys:
        parts = key.split(".")
        for at, part in enumerate(parts):
            if part.isdecimal():
                places.setdefault("".join(f"{name}." for name in parts[:at]), set()).add(int(part))
    return {path: len(numbers) for path, numbers in places.items() if len(numbers) == max(numbers) + 1}
