"""The program that renders chat templates: a line of JSON on the standard input, a line on the standard output.

A template is a program in a checkpoint that may be untrusted. Jinja's sandbox keeps a template from the outside, but
not from running forever or using all memory: ``'x' * 10 ** 12`` is one operation. So it runs in a process of its own,
with limits that the operating system keeps. `template.py` starts it, and ends it when the time is over. It renders one
conversation after another, each in an environment of its own; only code, which cannot change, is kept for the next.

What a template may use is what transformers offers: `render_jinja_template` in its utils/chat_template_utils.py.
"""

from __future__ import annotations

import gc
import json
import signal
import sys
from collections.abc import Callable
from datetime import datetime
from functools import lru_cache
from traceback import format_exception_only
from types import CodeType, TracebackType
from typing import Any

from jinja2 import Template, TemplateError, TemplateSyntaxError, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

if sys.platform == "linux":
    import resource


class RefusalError(TemplateError):
    """Raised by a template itself, with `raise_exception`."""


class Generation(Extension):
    """``{% generation %}`` marks what the assistant writes, for training; here it changes nothing."""

    tags = {"generation"}  # noqa: RUF012  # as the base class declares it

    def parse(self, parser: Parser) -> nodes.Node:
        """The block's contents, as a scope of their own."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_contents"), [], [], body).set_lineno(line)

    def _contents(self, caller: Callable[[], str]) -> str:
        return caller()


def environment() -> ImmutableSandboxedEnvironment:
    """The sandbox, with the functions that chat templates expect."""
    jinja = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    jinja.filters["tojson"] = _to_json  # Jinja's own escapes HTML
    jinja.globals |= {"raise_exception": _refuse, "strftime_now": _now}
    return jinja


def _refuse(message: str) -> None:
    raise RefusalError(message)


def _now(form: str) -> str:
    return datetime.now().strftime(form)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


@lru_cache(maxsize=1)  # one, as it takes of the memory that the next template may use
def _compiled(template: str) -> CodeType:
    return environment().compile(template)


def rendered(template: str, variables: dict[str, Any], longest: int) -> dict[str, str]:
    """The text, or what is wrong; an error that is not Jinja's ends the process."""
    try:
        pieces, length = [], 0
        code, own = _compiled(template), environment()
        for piece in Template.from_code(own, code, own.make_globals(None)).generate(variables):
            pieces.append(piece)
            length += len(piece)
            if length > longest:
                return {"fails": f"it writes more than {longest} characters"}
        return {"text": "".join(pieces)}
    except TemplateSyntaxError as error:
        return {"does not parse": f"line {error.lineno}: {error.message}"}
    except SecurityError as error:
        return {"reaches outside its sandbox": str(error)}
    except RefusalError as error:
        return {"refuses this conversation": str(error)}
    except TemplateError as error:
        return {"fails": str(error)}


def limit_memory(most: int) -> None:
    """Bound the memory of this process, on Linux."""
    if sys.platform == "linux":
        _, allowed = resource.getrlimit(resource.RLIMIT_AS)
        if allowed == resource.RLIM_INFINITY or most < allowed:  # a limit can only be lowered
            resource.setrlimit(resource.RLIMIT_AS, (most, most))


def end_after(seconds: float) -> None:
    """Let the system end this process after so many seconds if nobody else does, except on Windows; 0 cancels.

    A limit of processor time would count earlier renderings.
    """
    if sys.platform != "win32":
        signal.setitimer(signal.ITIMER_REAL, seconds)


def answer(line: str) -> str:
    """The answer to a line."""
    request = json.loads(line)
    limit_memory(request["memory"])
    end_after(request["seconds"])
    return json.dumps(rendered(request["template"], request["variables"], request["longest"]))


def report(kind: type[BaseException], error: BaseException, _: TracebackType | None) -> None:
    """Answer with the error that ends this process."""
    print(json.dumps({"fails": format_exception_only(kind, error)[-1].strip()}), flush=True)


def main() -> None:
    """Answer each line until the input ends, as it does with the process that writes it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to `template.py` too, which ends this process
    sys.excepthook = report
    gc.freeze()
    for line in sys.stdin:
        print(answer(line), flush=True)
        end_after(0)
        gc.collect()  # the next rendering may use all of the memory


if __name__ == "__main__":
    main()
