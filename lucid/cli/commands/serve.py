"""`lucid serve`."""

from __future__ import annotations

import gc
import os
from functools import partial
from json import dumps

from starlette.applications import Starlette

from lucid.cli import terminal
from lucid.cli.errors import OK, usage
from lucid.cli.exported_source import exported_source
from lucid.cli.option_files import text_of
from lucid.cli.options.commands import ApplicationOptions, LimitOptions, ProcessOptions, Serve
from lucid.cli.options.groups import values_of
from lucid.generation.defaults import shown
from lucid.serving import Limits
from lucid.serving.app import paths_of
from lucid.serving.guard import check_key
from lucid.serving.running import KEY, Settings, bound, make, serve
from lucid.serving.served_model import ServedModel

_LONGEST = 4096  # bytes of a file with a key


def run(options: Serve) -> int:
    """Serve until interrupted; returns the exit code."""
    limits = {name: most for name, most in values_of(options, LimitOptions).items() if most is not None}
    providers = options.providers or ["cpu"]
    if options.key_file is not None:
        os.environ[KEY] = text_of(options.key_file, "--key-file", _LONGEST).strip()
        check_key(os.environ[KEY], f"--key-file: {str(options.key_file)!r}")
    elif os.environ.get(KEY):
        check_key(os.environ[KEY], KEY)
    with bound(options.host, options.port) as sockets:
        source = exported_source(options, options.task, providers)
        of_application = values_of(options, ApplicationOptions) | {
            "name": options.name or source.name,
            "providers": providers,
            "origins": options.cors_origin,
            "adapter": source.adapter and str(source.adapter),
        }
        settings = Settings(str(source.folder), of_application, Limits(**limits), **values_of(options, ProcessOptions))
        app, lines = _opened(settings, options)
        gc.collect()  # what is not kept of the application, which refers to itself
        serve(settings, app, sockets, partial(_announce, lines, options.json))
    return OK


def _opened(settings: Settings, options: Serve) -> tuple[Starlette | None, list[str]]:
    """The application, and what is announced of it; several workers open it again, each for itself."""
    app = make(settings)
    if options.task not in (None, app.state.model.task):
        raise usage(f"--task {options.task}: {settings.folder} is for {app.state.model.task}")
    lines = _announcement(settings, app.state.model, paths_of(app), options.json)
    return app if settings.workers == 1 else None, lines


def _announcement(settings: Settings, model: ServedModel, routes: list[str], json: bool) -> list[str]:
    """What is served and where: in lines, or as one line of JSON."""
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    address = f"http://{host}:{settings.port}"
    defaults = {} if model.language is None else model.language.tokenizer.defaults
    if json:
        entry = {"address": address, "model": model.name, "task": model.task, "folder": settings.folder}
        return [dumps({**entry, "options": dict(defaults), "routes": routes})]
    lines = [f"serving     {model.name} ({model.task}) at {address}"]
    if model.language is not None:
        lines.append(f"options     {f'of the checkpoint: {shown(defaults)}' if defaults else 'the likeliest tokens'}")
    lines.append(f"routes      {', '.join(routes)}")
    if "*" in settings.hosts and not os.environ.get(KEY):
        lines.append(f"note        {host} serves every client without a key; --key-file or {KEY} sets one")
    return lines


def _announce(lines: list[str], json: bool) -> None:
    if json:
        print(*lines, flush=True)
        return
    for line in lines:
        terminal.console().line(line)
