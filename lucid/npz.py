"""Arrays by name in an .npz file, as `numpy.load` reads them back, under any name that a model may give them.

`numpy.savez` takes the names as keywords, and so loses arrays whose names are its own parameters; it writes names that
are paths, and pickles.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterable, Mapping
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

_LONGEST = 60_000  # bytes of a name; a zip file holds 65,535
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def check_names(names: Iterable[str]) -> None:
    """Check that every array can have its name in a file.

    Raises:
        ValueError: for a name that is a path out of a folder, has control characters or is too long, or would be read
            as another's.
    """
    known = set(names)
    for name in known:
        steps = re.split(r"[/\\]", name)
        if any(step in ("", ".", "..") for step in steps) or "\\" in name or re.match(r"[A-Za-z]:", name):
            problem = "is a path that could lead out of a folder"
        elif _CONTROL.search(name) or len(name.encode("utf-8", "replace")) > _LONGEST:
            problem = "has control characters, or is too long"
        elif f"{name}.npy" in known:
            problem = f"and {name + '.npy'!r} would be one member of the file"
        else:
            continue
        raise ValueError(f"no .npz file can hold {name[:200]!r}: the name {problem}; rename it in the model")


def write_npz(file: BinaryIO, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """Write all arrays; text becomes NumPy's own, and types that files lack (bfloat16) float32, which holds them.

    The same arrays give the same bytes. The file may be a pipe.

    Raises:
        ValueError: as `check_names`; nothing is written then.
    """
    check_names(arrays)
    storable = {name: _storable(array) for name, array in arrays.items()}
    with zipfile.ZipFile(file, "w") as archive:
        for name, array in storable.items():
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def _storable(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if array.dtype.hasobject:  # strings, as onnxruntime gives them
        return array.astype(np.str_)
    return array.astype(np.float32) if array.dtype.kind == "V" else array
