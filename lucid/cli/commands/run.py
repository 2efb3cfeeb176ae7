"""`lucid run`."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np

from lucid.cli import terminal
from lucid.cli.errors import OK, usage
from lucid.cli.model_inputs import model_files, only_file
from lucid.cli.options.commands import Run
from lucid.core.graph.types import Array
from lucid.files.atomic import open_regular, write
from lucid.files.npz import check_names, write_npz
from lucid.runtime import Session


def run(options: Run) -> int:
    """Run once on the arrays of a file; returns the exit code."""
    output = options.output
    if output is not None and not output.parent.is_dir():
        raise usage(f"--output: the folder {str(output.parent)!r} does not exist; create it first")
    arrays = read_arrays(options.data)
    file = only_file(options.model, model_files(options.model))
    session = Session(file, options.providers or None, threads=options.threads)
    if output is not None:
        terminal.check_apart(output, options.json)
        check_names(session.outputs)
    results = session.run(arrays)
    if output is not None:
        with write(output) as written:
            write_npz(written, results)
    described = {name: f"{array.dtype}[{', '.join(map(str, array.shape))}]" for name, array in results.items()}
    if options.json:
        values = None if output else {name: array.tolist() for name, array in results.items()}
        terminal.print_json(
            {"providers": session.providers, "outputs": described, "written": output and str(output), "values": values}
        )
        return OK
    out = terminal.console(beside=output)
    for name, kind in described.items():
        out.line(f"{name}  {kind}")
        if output is None:
            out.lines(np.array2string(results[name], precision=6, threshold=50, edgeitems=2))
    if output is not None:
        terminal.written(out, [output])
    return OK


def read_arrays(path: Path) -> dict[str, Array]:
    """The arrays of an .npz file by name."""
    remedy = "create an .npz file with np.savez(file, NAME=array)"
    try:
        with open_regular(path) as file:
            loaded = np.load(file, allow_pickle=False)
            if not isinstance(loaded, np.lib.npyio.NpzFile):
                raise usage(f"{str(path)!r} holds one array without a name; {remedy}")
            return {name: loaded[name] for name in loaded.files}
    except (zipfile.BadZipFile, ValueError, EOFError) as error:
        raise usage(f"{str(path)!r} is not an .npz file of plain arrays; {remedy}") from error
