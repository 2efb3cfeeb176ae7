"""`.pt2` files of strangers: a graph of known operators, and tensors; anything more is refused before torch reads it.

`torch.export.load` reads pickles, loads compiled code, evaluates the expressions of sizes, calls any function of torch
by its name, and writes names of nodes and arguments into Python code that it executes.
"""

from __future__ import annotations

import json
import re
from io import BytesIO
from os import PathLike
from pickle import UnpicklingError
from typing import Any
from zipfile import BadZipFile, ZipFile

import torch
from torch._export.verifier import SpecViolationError
from torch.export import ExportedProgram
from torch.export.pt2_archive import PT2ArchiveReader

from lucid.files.atomic import open_regular
from lucid.importing.exporting import REFUSALS
from lucid.importing.table import TABLE
from lucid.importing.torch_import import TorchImportError

_INPUTS = "data/sample_inputs/model.pt"
_JSON = ("models/model.json", "data/weights/model_weights_config.json", "data/constants/model_constants_config.json")
_RECORDS = re.compile(
    r"data/(weights/weight|constants/tensor)_\d+|archive_format|archive_version|byteorder|\.data/\w+|extra/[\w./-]+"
)
_OPERATORS = re.compile(
    r"torch\.ops\.(aten|prims?|higher_order)\.(?!from_file\b)(?!__(?!(and|or|xor|lshift|rshift)__))\w+(\.[A-Za-z]\w*)?"
    r"|_operator\.(add|sub|mul|floordiv|truediv|mod|pow|neg|pos|abs|eq|ne|lt|le|gt|ge|getitem|and_|or_|not_)"
    r"|math\.[a-z]\w*|torch\.(sym|_sym)_\w+"
)
_SYMBOL = re.compile(r"(Symbol|Float)\('[\w.+-]*'(, \w+=\w+)*\)")
_SIZE = re.compile(
    r"([a-z]{1,3}\d+|Integer|Rational|Add|Mul|Pow|Max|Min|Mod|PythonMod|FloorDiv|CeilDiv|CleanDiv|ModularIndexing|Where"
    r"|\w+TrueDiv|\w+To(Int|Float|Decimal)|ToFloat|PowByNatural|FloatPow|Identity|Eq|Ne|Lt|Le|Gt|Ge|And|Or|Not"
    r"|oo|int_oo|True|False|evaluate|[-+*/%(),.<>=&|~ 0-9])*"
)
_PLAIN = re.compile(r"[\w .,:;/<>+-]*")  # of names: nothing that ends a name in a line of Python
_FREE = ("stack_trace", "nn_module_stack", "torch_fn", "source_fn_stack", "fwd_source_fn_stack", "from_node", "custom")


def load(path: str | PathLike[str]) -> ExportedProgram:
    """The program of a file.

    Raises:
        FileNotFoundError: for a file that is not there; the message names similar ones.
        TorchImportError: for files that torch does not read, or that hold more than tensors and known operators.
    """
    open_regular(path).close()
    try:
        with ZipFile(path) as archive:  # an older form, which torch tries last, is a pickle
            older = "version" in archive.namelist()
        reader = None if older else PT2ArchiveReader(str(path))
        if reader is not None:
            _check(path, reader)
            program = torch.export.load(path)
    except (*REFUSALS, OSError, BadZipFile, SpecViolationError) as error:
        if isinstance(error, TorchImportError):
            raise
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise TorchImportError(
            f"from_torch: torch.export.load does not read {path}: {reason}; if the outputs are "
            "classes of a library, import that library first"
        ) from error
    if reader is None:
        raise TorchImportError(f"from_torch: {path} has an older form, a pickle: export it again with this torch")
    program._guards_code = []  # lines of Python, which torch would run; sizes are checked by name
    return program


def _check(path: Any, reader: PT2ArchiveReader) -> None:
    """Refuse a file that holds more than its graph and tensors."""
    for name in reader.get_file_names():
        if name not in (_INPUTS, *_JSON) and not _RECORDS.fullmatch(name):
            raise _refused(path, f"has a record {name!r}")
    for name in _JSON[1:]:
        for key, stored in json.loads(reader.read_string(name))["config"].items():
            if stored["use_pickle"] or not re.fullmatch(r"(weight|tensor)_\d+", stored["path_name"]):
                raise _refused(path, f"stores {key!r} as a pickle")
    try:
        torch.load(BytesIO(reader.read_bytes(_INPUTS)), weights_only=True)
    except (UnpicklingError, RuntimeError, ValueError) as error:
        raise _refused(path, "has example inputs that are more than tensors") from error
    _check_graph(path, json.loads(reader.read_string(_JSON[0])), "")


def _check_graph(path: Any, value: Any, key: str) -> None:
    """Refuse operators, expressions of sizes and names that are something else."""
    if isinstance(value, dict):
        operators = [value[name] for name in ("target", "as_operator") if name in value and "arg" not in value]
        for operator in operators if "inputs" in value or "as_operator" in value else ():
            known = str(operator).startswith("torch.ops.") and operator.removeprefix("torch.ops.") in TABLE
            if not known and not _OPERATORS.fullmatch(str(operator)):
                raise _refused(path, f"calls {operator!r}, which is no operator that is known")
        for name, item in value.items():
            _check_graph(path, item, name)
    elif isinstance(value, list):
        for item in value if key != "guards_code" else ():
            _check_graph(path, item, key)
    elif isinstance(value, str):
        if key in ("in_spec", "out_spec", "context") and value:
            _check_graph(path, json.loads(value), "")
        elif key == "expr_str":
            if not _SIZE.fullmatch(_SYMBOL.sub("", value)):
                raise _refused(path, f"has a size {value!r}, which is no expression of sizes")
        elif not (_PLAIN.fullmatch(value) if key not in _FREE else not re.search(r"[\x00-\x08\x0b-\x1f]", value)):
            raise _refused(path, f"has {key} {value!r}, which is no name")


def _refused(path: Any, why: str) -> TorchImportError:
    return TorchImportError(
        f"from_torch: {path} {why}, which could run code: only tensors and known operators are read; load it with "
        "torch.export.load if you trust it, and pass the program"
    )
