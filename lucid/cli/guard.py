"""A budget of time and memory for the commands that inspect or run untrusted models.

Before anything large is imported, the process forks: the child runs the command, the parent watches it and ends it if
it exceeds the budget. So whatever onnx or onnxruntime do with a hostile model, such as running forever, using all
memory or aborting, the user gets one clear line. Linux only; elsewhere the commands run without a budget.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from lucid.cli.errors import FAILED, USAGE
from lucid.core.words.byte_sizes import bytes_of

COMMANDS = ("inspect", "verify", "run", "bench", "report", "generate", "chat")
MEMORY, SECONDS = "LUCID_MAX_MEMORY", "LUCID_MAX_SECONDS"
_RUNNING = 3600.0  # seconds
_OWN = {"inspect": 60.0, "chat": 0.0}  # `inspect` does not run the model; a conversation may go on
_PERIOD = 0.05  # seconds between two checks
_DIE_WITH_PARENT = 1  # prctl's PR_SET_PDEATHSIG


def supervise(report: Callable[[str, int], int]) -> None:
    """If the command has a budget, continue in a child process and exit with its exit code.

    It forks only before large libraries are imported: forking a process with threads is not safe.
    """
    command = next((word for word in sys.argv[1:] if not word.startswith("-")), "")
    if command not in COMMANDS or sys.platform != "linux" or "numpy" in sys.modules:
        return
    half = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2
    try:
        seconds = _limit(SECONDS, _OWN.get(command, _RUNNING), _seconds)
        memory = _limit(MEMORY, half, partial(bytes_of, unit="GiB"))
    except ValueError as error:
        sys.exit(report(str(error), USAGE))
    watched = (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    parent = os.getpid()
    child = os.fork()
    if not child:
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return
    code, excess = _watch(child, seconds, memory, watched)
    problem = ""
    if excess:
        problem = f"the model needs {excess}. Raise the limit only for a model that you trust"
    elif code in (-signal.SIGABRT, -signal.SIGSEGV, -signal.SIGBUS, -signal.SIGILL, -signal.SIGFPE):
        name = signal.Signals(-code).name
        problem = f"the model crashed onnx or onnxruntime ({name}); do not use it, or report this"
    if problem:
        _show_cursor()
        code = report(f"{command}: {problem}", FAILED)
    sys.stdout.flush()
    sys.stderr.flush()
    if code < 0:  # another signal: end with the same
        if code != -signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.kill(os.getpid(), -code)
    os._exit(code)


def _watch(child: int, seconds: float, memory: float, watched: tuple[int, ...]) -> tuple[int, str]:
    """Wait for the child, and end it if it exceeds its budget: its exit code, and what it exceeded."""
    if sys.platform != "linux":  # where there is no child
        return FAILED, ""
    end, excess = time.monotonic() + seconds, ""
    while (done := os.waitpid(child, os.WNOHANG))[0] == 0:
        if excess:
            pass  # it is being ended
        elif _memory(child) > memory:
            excess = f"more than {memory / (1 << 30):.3g} GiB of memory; {MEMORY}=GIB allows more, 0 any amount"
        elif time.monotonic() > end:
            excess = f"more than {seconds:g} seconds; {SECONDS}=SECONDS allows more, 0 any time"
        if excess:
            os.kill(child, signal.SIGKILL)
        received = signal.sigtimedwait(watched, _PERIOD)
        # Ctrl-C reaches both processes by itself; a signal that another process sends to this one is passed on.
        if received is not None and received.si_signo != signal.SIGCHLD and received.si_code <= 0:
            os.kill(child, received.si_signo)
    return os.waitstatus_to_exitcode(done[1]), excess


def _show_cursor() -> None:
    """Show the cursor again, which a child hides that is killed while it shows its phases."""
    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K\x1b[?25h")


def _limit(variable: str, default: float, read: Callable[[str], float]) -> float:
    text = os.environ.get(variable, "")
    try:
        value = read(text) if text else default
    except ValueError as error:
        raise ValueError(f"{variable} is {error}; 0 for no limit") from None
    if not value >= 0:
        raise ValueError(f"{variable} is {text[:40]!r}, expected 0 or more; 0 for no limit")
    return value or float("inf")


def _seconds(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{text[:40]!r}, expected a number of seconds") from None


def _memory(process: int) -> int:
    """The memory of a process in bytes, without mapped files."""
    try:
        lines = Path(f"/proc/{process}/status").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return 0  # it has just ended
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith(("RssAnon", "RssShmem")))
