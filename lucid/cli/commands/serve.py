"""`lucid serve`."""

from __future__ import annotations

import os
from pathlib import Path

from starlette.routing import Route

from lucid.cli import terminal
from lucid.cli.errors import OK, usage
from lucid.cli.options.commands import LimitOptions, Serve, ServerOptions
from lucid.cli.options.groups import values_of
from lucid.files.atomic import open_regular
from lucid.generation.defaults import shown
from lucid.serving import Limits
from lucid.serving.running import KEY, Settings, check_address, make, serve

_LONGEST = 4096  # bytes of a file with a key


def run(options: Serve) -> int:
    """Serve until interrupted; returns the exit code."""
    limits = {name: most for name, most in values_of(options, LimitOptions).items() if most is not None}
    server = values_of(options, ServerOptions) | {"providers": tuple(options.providers or ["cpu"])}
    settings = Settings(folder=str(options.folder), **server, limits=Limits(**limits))
    if options.key_file is not None:
        os.environ[KEY] = _key(options.key_file)
    check_address(settings.host, settings.port)
    app = make(settings)
    model, host = app.state.model, f"[{settings.host}]" if ":" in settings.host else settings.host
    out = terminal.console()
    out.line(f"serving     {model.name} ({model.task}) at http://{host}:{settings.port}")
    if model.language is not None:
        defaults = shown(model.language.tokenizer.defaults)
        out.line(f"options     {f'of the checkpoint: {defaults}' if defaults else 'the likeliest tokens'}")
    paths = [route.path for route in app.routes if isinstance(route, Route) and "{" not in route.path]
    out.line(f"routes      {', '.join(paths)}")
    if "*" in settings.hosts and not os.environ.get(KEY):
        out.line(f"note        {host} serves every client without a key; --key-file or {KEY} sets one")
    if model.language is not None and settings.slots > 1 and not model.language.together:
        out.line("note        answers share the time of one: the cache grows; export with --cache fixed")
    serve(settings, app if settings.workers == 1 else None)
    return OK


def _key(path: Path) -> str:
    with open_regular(path) as file:
        key = file.read(_LONGEST).decode("utf-8", "replace").strip()
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise usage(f"--key-file: {str(path)!r} holds no key, expected one line of printable ASCII without spaces")
    return key
