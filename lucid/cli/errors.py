"""Exit codes, and errors that are reported in a line or two."""

from __future__ import annotations

import re

OK, FAILED, USAGE = 0, 1, 2  # success; failure, or results differ; a wrong command line


class CommandError(Exception):
    """An error to show to the user: any function of the commands raises it for a wrong value of an option.

    Args:
        message: what is wrong and what to do.
        code: FAILED, or USAGE if the command line itself is wrong.
    """

    def __init__(self, message: str, code: int = FAILED) -> None:
        super().__init__(message)
        self.code = code


def usage(message: str) -> CommandError:
    """An error in the command line itself."""
    return CommandError(message, USAGE)


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
    text = "\n".join(lines[:2]) if lines else type(error).__name__
    return text if len(text) <= 600 else text[:600] + "..."
