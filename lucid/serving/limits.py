"""What one request, and all of them together, may take."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True)
class Limits:
    """What requests may take; one that wants more is refused with a message that names the limit.

    Args:
        body: the most bytes of a request.
        tokens: the most tokens of a request: of all its texts, or of a prompt and its answer.
        seconds: how long a request may wait and be computed. An answer that is being written ends there.
        requests: the most requests at a time; those beyond are refused at once.

    Raises:
        ValueError: for a number that is not above 0.
    """

    body: int = 4 << 20
    tokens: int = 32_768
    seconds: float = 60.0
    requests: int = 256

    def __post_init__(self) -> None:
        for field in fields(self):
            number = getattr(self, field.name)
            if not number > 0:
                raise ValueError(f"Limits: {field.name} is {number!r}, expected a number above 0")
