"""The program in which a chat template is rendered: JSON on the standard input, JSON on the standard output.

A template is a program in a checkpoint that may be untrusted. Jinja's sandbox keeps it from what is outside, but not
from running for ever or from using all memory: ``'x' * 10 ** 12`` is one operation. So it runs in a process of its own,
with limits that the operating system keeps. `template.py` starts it, and ends it when the time is over.

What a template may use is what transformers offers: `render_jinja_template` in its utils/chat_template_utils.py.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import datetime
from typing import Any

from jinja2 import TemplateError, TemplateSyntaxError, nodes
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
    made = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    made.filters["tojson"] = _to_json  # Jinja's own escapes HTML
    made.globals |= {"raise_exception": _refuse, "strftime_now": _now}
    return made


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


def rendered(template: str, variables: dict[str, Any], longest: int) -> dict[str, str]:
    """The text, or what is wrong; an error that is not Jinja's ends the process, as Python reports it."""
    try:
        pieces, length = [], 0
        for piece in environment().from_string(template).generate(variables):
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


def limit(memory: int, seconds: int) -> None:
    """Bound this process, on Linux: its memory, and its time, for when nobody is left to end it."""
    if sys.platform == "linux":
        for kind, most in ((resource.RLIMIT_AS, memory), (resource.RLIMIT_CPU, seconds)):
            _, allowed = resource.getrlimit(kind)
            if allowed == resource.RLIM_INFINITY or most < allowed:  # a limit can only be lowered
                resource.setrlimit(kind, (most, most))


if __name__ == "__main__":
    given = json.load(sys.stdin)
    limit(given["memory"], given["seconds"])
    json.dump(rendered(given["template"], given["variables"], given["longest"]), sys.stdout)
