"""Text files that users write: in UTF-8, with or without a byte order mark, and none in UTF-16."""

from __future__ import annotations

import os

MARK = b"\xef\xbb\xbf"  # some programs begin a file in UTF-8 with it
_MARKS_OF_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_WHAT_TO_DO = "save it as UTF-8, in PowerShell with Set-Content -Encoding utf8"


def refuse_utf16(data: bytes, path: str | os.PathLike[str]) -> None:
    """Check the first bytes of a file.

    Raises:
        ValueError: for the byte order mark of UTF-16, which some programs of Windows write.
    """
    if data.startswith(_MARKS_OF_UTF16):
        raise ValueError(f"{os.fspath(path)}: is text in UTF-16, expected UTF-8; {_WHAT_TO_DO}")


def utf8_text(data: bytes, path: str | os.PathLike[str]) -> str:
    """The bytes of a file as text, without the mark.

    Raises:
        ValueError: for text in another encoding.
    """
    refuse_utf16(data, path)
    try:
        return data.removeprefix(MARK).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{os.fspath(path)}: not text in UTF-8 (byte {error.start}); {_WHAT_TO_DO}") from None
