"""Numbers of bytes as people write them: 4194304, 4 MiB, 0.5GB."""

from __future__ import annotations

import re

_SIZE = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*([KMGT]?)(I?)B", re.ASCII | re.IGNORECASE)


def bytes_of(text: str, unit: str = "B") -> float:
    """The number of bytes that a text means.

    Args:
        text: a number, perhaps with a unit: B, powers of 1000 (kB, MB, GB, TB) or of 1024 (KiB, MiB, GiB, TiB).
        unit: of a number without one.

    Raises:
        ValueError: for any other text; the message says what is expected.
    """
    try:
        return float(text) * bytes_of(f"1{unit}") if unit != "B" else float(text)
    except ValueError:
        match = _SIZE.fullmatch(text.strip())
    if match is None:
        of_unit = "bytes" if unit == "B" else unit
        raise ValueError(f"{text[:40]!r}, expected a number of {of_unit}, or one with a unit, such as 4MiB or 1.5GB")
    number, prefix, binary = match.groups()
    return float(number) * (1024.0 if binary else 1000.0) ** " KMGT".index(prefix.upper() or " ")
