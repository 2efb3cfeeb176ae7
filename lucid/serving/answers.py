"""Answers in JSON, whatever texts of clients, files and models they repeat."""

from __future__ import annotations

import json
import re
from typing import Any

from starlette.responses import JSONResponse

from lucid.core.words.safe_text import encodable

_HALVES = re.compile("[\ud800-\udfff]")


def json_bytes(content: Any, allow_nan: bool = False) -> bytes:
    """JSON that every client reads: half of a surrogate pair, which is no text, is shown by its escape."""
    text = json.dumps(content, ensure_ascii=False, allow_nan=allow_nan, separators=(",", ":"))
    return _HALVES.sub(lambda half: encodable(half[0]).replace("\\", "\\\\"), text).encode()


class JsonAnswer(JSONResponse):
    """An answer in JSON, as `json_bytes` writes it."""

    def render(self, content: Any) -> bytes:
        """The bytes of the answer."""
        return json_bytes(content)
