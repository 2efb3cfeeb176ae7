"""Exit codes, and errors that are reported in a line or two."""

from __future__ import annotations

import re
import traceback

from lucid.core.words.safe_text import cut

OK, FAILED, USAGE = 0, 1, 2  # success; failure, or results differ; what was asked is refused
_ABSENT = (FileNotFoundError, FileExistsError, NotADirectoryError, IsADirectoryError)


class CommandError(Exception):
    """An error to show to the user: any function of the commands raises it for a wrong value of an option.

    Args:
        message: what is wrong and what to do.
        code: FAILED, or USAGE if the command line itself is wrong, as `code_of` for other errors.
    """

    def __init__(self, message: str, code: int = FAILED) -> None:
        super().__init__(message)
        self.code = code


def usage(message: str) -> CommandError:
    """An error in the command line itself."""
    return CommandError(message, USAGE)


def code_of(error: BaseException) -> int:
    """The exit code for an error: USAGE for what Lucid refuses and for files that are not what the command names.

    Lucid refuses with errors of values, types and names. All others are failures, as are those that the user's own
    model causes, which have a note with its line.
    """
    if isinstance(error, _ABSENT):
        return USAGE
    refused = isinstance(error, (ValueError, TypeError, LookupError)) and not notes_of(error)
    own = type(error).__module__.startswith("lucid.") or raised_by_lucid(error)
    return USAGE if refused and own else FAILED


def notes_of(error: BaseException) -> list[str]:
    """The notes of an error, such as the line of the user's code."""
    notes: list[str] = vars(error).get("__notes__", [])
    return notes


def raised_by_lucid(error: BaseException) -> bool:
    """Whether a statement `raise` of Lucid made the error: its message says what to do, whatever its type."""
    frames = list(traceback.walk_tb(error.__traceback__))
    if not frames or not frames[-1][0].f_globals.get("__name__", "").startswith("lucid."):
        return False
    return (traceback.extract_tb(error.__traceback__)[-1].line or "").startswith("raise ")


def plain(text: str) -> str:
    """A message of onnxruntime without its codes and the place in its sources; other messages are unchanged."""
    if not text.startswith("[ONNXRuntimeError]"):
        return text
    text = re.sub(r"^\[ONNXRuntimeError\] : \d+ : [A-Z_]+ : ", "onnxruntime: ", text)
    text = re.sub(
        r"Non-zero status code returned while running (\S+) node\. Name:'(.*?)' Status Message: ",
        r"\1 node '\2': ",
        text,
    )
    return re.sub(r"/\S+\.(?:h|cc):\d+ .*? was false\. ", "", text).replace(" node ''", " node")


def short(error: BaseException) -> str:
    """An error's message in at most two lines, because some libraries put stack traces into theirs."""
    text = str(error)
    if isinstance(error, KeyError) and len(error.args) == 1:  # its str() is the repr of the message
        text = str(error.args[0])
    if isinstance(error, OSError) and error.strerror:  # without "[Errno 2]"
        text = f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    lines = [line.strip() for line in plain(text).splitlines() if line.strip()]
    return cut("\n".join(lines[:2]) if lines else type(error).__name__, 600)
