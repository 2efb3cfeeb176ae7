"""The console script: runs the command and reports errors in a line or two."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import sys
import traceback
import warnings
from types import TracebackType

import typer

from lucid.cli.app import parser, run_command
from lucid.cli.errors import FAILED, OK, CommandError, code_of, notes_of, raised_by_lucid, short
from lucid.cli.guard import supervise
from lucid.cli.kept_exports import by_checkpoint
from lucid.cli.options.groups import Command
from lucid.core.words.safe_text import visible_lines
from lucid.core.words.suggestions import did_you_mean

_INTERRUPTED = 130  # the exit code that shells give a program ended by Ctrl-C


def main() -> None:
    """Run the command line of this process and exit with its code."""
    _replace_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # what its encoding does not have is written as an escape
            stream.reconfigure(errors="backslashreplace")
    _expect_utf8()
    supervise(_report)
    warnings.showwarning = _show_warning
    sys.excepthook = _report_uncaught
    try:
        parsed = parser()(standalone_mode=False)
        code = run_command(parsed) if isinstance(parsed, Command) else int(parsed or OK)
        if code == _INTERRUPTED:  # how typer passes Ctrl-C on
            _report("interrupted", code)
        sys.stdout.flush()
    except typer.TyperException as error:
        code = _report(_told(error), error.exit_code)
    except CommandError as error:
        _trace(error)
        code = _report(str(error), error.code)
    except KeyboardInterrupt as error:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # a second one ends the threads' work at once, whatever it is
        code = _report("\n".join(["interrupted", *notes_of(error)]), _INTERRUPTED)
    except BrokenPipeError:  # the reader of the output has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what is still in its buffer
        code = OK
    except (ValueError, TypeError, LookupError, OSError) as error:
        code = _report_error(error, code_of(error))
    sys.exit(code)


def _replace_closed_streams() -> None:
    """Open the null device for standard streams that are closed: the first file would get their number otherwise."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free
    sys.stdin = sys.stdin or os.fdopen(0, encoding="utf-8", closefd=False)
    sys.stdout = sys.stdout or os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", encoding="utf-8", closefd=False)


def _expect_utf8() -> None:
    """Read a pipe of Windows as UTF-8, which has no fixed encoding there; bytes of another one are no valid text."""
    if isinstance(sys.stdin, io.TextIOWrapper) and "PYTHONIOENCODING" not in os.environ:
        sys.stdin.reconfigure(encoding="utf-8-sig" if sys.platform == "win32" else None, errors="surrogateescape")


def _report_uncaught(_: type[BaseException], error: BaseException, __: TracebackType | None) -> None:
    """Called by Python for an uncaught error, before it ends the process with exit code 1."""
    _report_error(error, FAILED)


def _report_error(error: BaseException, code: int) -> int:
    _trace(error)
    kind, notes = type(error), notes_of(error)
    clear = isinstance(error, (ValueError, OSError)) or kind.__module__.startswith(("lucid.", "onnxruntime."))
    clear |= raised_by_lucid(error)
    where = "" if notes or "--debug" in sys.argv else "; --debug shows where"
    hint = "" if clear else f" ({kind.__name__}{where})"
    return _report("\n".join([by_checkpoint(short(error)) + hint, *notes]), code)


def _report(message: str, code: int) -> int:
    if "--json" in sys.argv:
        print(json.dumps({"error": message, "exit_code": code}).replace("\x7f", "\\u007f"))
    _print_error(message)
    return code


def _print_error(message: object) -> None:
    """Print a message to stderr. Only its first line starts with "lucid:", whatever names it contains."""
    print(f"lucid: {visible_lines(message)}".replace("\n", "\n  "), file=sys.stderr)


def _told(error: typer.TyperException) -> str:
    """typer's message about a wrong command line, as one line with a suggestion and the command for help."""
    text = error.format_message().replace("\n", " ").replace("Value error, ", "")
    value = re.search("input_value=(.*), input_type=", str(error.__cause__))  # which the message leaves out
    text = text.replace("Input should", f"{value[1] if value else 'the value'} should", 1)
    choice = re.search("'([^']+)' is not one of ('.+')", text)
    suggestion = did_you_mean(choice[1], re.findall("'([^']+)'", choice[2])) if choice else ""
    text = text.removesuffix(".")
    context = vars(error).get("ctx")
    where = f" See {context.command_path} --help." if context is not None else ""
    if context is not None and text.startswith("Missing argument"):  # it may be another one that was left out
        suggestion = f": {' '.join(context.get_usage().removeprefix('Usage: ').split())}"
    sentence = f"{text}{suggestion}"
    return f"{sentence}{'' if sentence.endswith(('.', '?')) else '.'}{where}"


def _trace(error: BaseException) -> None:
    if "--debug" in sys.argv:
        print(visible_lines("".join(traceback.format_exception(error))), file=sys.stderr)


def _show_warning(message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
    _print_error(f"warning: {message}")
