"""The console script: runs the command and tells errors in a line or two."""

from __future__ import annotations

import json
import sys
import traceback
import warnings
from types import TracebackType

import typer

from lucid.cli.app import app
from lucid.cli.errors import FAILED, OK, CommandError, short
from lucid.cli.guard import supervise
from lucid.text import visible_lines

_INTERRUPTED = 130  # what shells say of a program that Ctrl-C ended


def main() -> None:
    """Run the command line of this process; ends it with the exit code."""
    supervise(_tell)
    warnings.showwarning = _show_warning
    try:
        result = app(standalone_mode=False)
        code = result if isinstance(result, int) else OK
        if code == _INTERRUPTED:  # how typer passes Ctrl-C on
            _tell("interrupted", code)
        sys.stdout.flush()
    except typer.TyperException as error:
        code = _tell(error.format_message().replace("\n", " ") + _where(error), error.exit_code)
    except CommandError as error:
        _trace(error)
        code = _tell(str(error), error.code)
    except KeyboardInterrupt:  # before or after typer's own watch
        code = _tell("interrupted", _INTERRUPTED)
    except BrokenPipeError:  # the reader of our output has seen enough
        sys.stderr.close()
        code = OK
    finally:
        sys.excepthook = _tell_other  # typer puts its own there
    sys.exit(code)


def _tell_other(kind: type[BaseException], error: BaseException, _: TracebackType | None) -> None:
    """What Python calls for an error that nobody caught, before it ends the process with exit code 1."""
    _trace(error)
    said = isinstance(error, (ValueError, OSError)) or kind.__module__.startswith("lucid.")
    hint = "" if said or "--debug" in sys.argv else f" ({kind.__name__}; --debug shows where)"
    _tell("\n".join([*vars(error).get("__notes__", []), short(error) + hint]), FAILED)


def _tell(message: str, code: int) -> int:
    if "--json" in sys.argv:
        print(json.dumps({"error": message, "exit_code": code}).replace("\x7f", "\\u007f"))
    _say(message)
    return code


def _say(message: object) -> None:
    """A message on the error output. Its first line alone begins like one of ours, whatever name stands in it."""
    print(f"lucid: {visible_lines(message)}".replace("\n", "\n  "), file=sys.stderr)


def _where(error: typer.TyperException) -> str:
    context = vars(error).get("ctx")
    return f" See {context.command_path} --help." if context is not None else ""


def _trace(error: BaseException) -> None:
    if "--debug" in sys.argv:
        print(visible_lines("".join(traceback.format_exception(error))), file=sys.stderr)


def _show_warning(message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
    _say(f"warning: {message}")
