"""Reading an ONNX file without its weights: a model of gigabytes is read in milliseconds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from onnx import ModelProto, inliner

from lucid.runtime.model_file import ModelError, check_demands, check_model_file, external_files
from lucid.runtime.subgraphs import graphs_inside

MAX_SIZE_TEXT = 256  # characters of one symbolic size, such as "2*L + 1"
MAX_SIZE_TEXTS = 1 << 17  # of all different ones together
MAX_PATH = 64  # nested modules
MAX_MODULES = 1 << 16


@dataclass(frozen=True)
class Slim:
    """A model without the data of its large weights, and the files that it consists of."""

    model: ModelProto
    files: tuple[tuple[Path, int], ...]


def read(path: Path) -> Slim:
    """Check a file and read it without large data. Calls of the model's own functions are inlined.

    Raises:
        ModelError: for a file that is broken, too new, refers to missing data, or has longer names of sizes than any
            exporter writes.
        OSError: for a file that is missing or may not be read.
    """
    model = check_model_file(path)
    if model.functions:
        model = inliner.inline_local_functions(model)
        check_demands(model, path)  # now with the constants of the functions
    _check_sizes(model, path)
    sides = {path.parent / name for name in external_files(model)}
    return Slim(model, tuple((file, file.stat().st_size) for file in (path, *sorted(sides))))


def _check_sizes(model: ModelProto, path: Path) -> None:
    """Raise ModelError for longer symbolic sizes than any exporter writes: their values may be as long as the file."""
    values = (value for g in graphs_inside(model.graph) for value in (*g.input, *g.output, *g.value_info))
    texts = {size.dim_param for value in values for size in value.type.tensor_type.shape.dim}
    longest, total = max(map(len, texts), default=0), sum(map(len, texts))
    if longest > MAX_SIZE_TEXT or total > MAX_SIZE_TEXTS:
        raise ModelError(
            f"{str(path)!r}: symbolic sizes of {longest} characters, {total} together, expected at most "
            f"{MAX_SIZE_TEXT} and {MAX_SIZE_TEXTS}; export the model again with shorter names of sizes"
        )
