"""Arrays by name in an .npz file that `numpy.load` reads, with any name that a model may have.

`numpy.savez` takes the names as keywords, so it loses arrays that are named like its own parameters; and it writes
names that are paths, and pickles.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterable, Mapping
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

_MAX_NAME = 60_000  # bytes of a name; a zip file can hold 65,535
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def check_names(names: Iterable[str]) -> None:
    """Check that an .npz file can hold all names.

    Raises:
        ValueError: for a name that is a path out of a folder, has control characters or is too long, or would be the
            same member as another name.
    """
    all_names = set(names)
    for name in all_names:
        steps = re.split(r"[/\\]", name)
        if any(step in ("", ".", "..") for step in steps) or "\\" in name or re.match(r"[A-Za-z]:", name):
            problem = "is a path that could lead out of a folder"
        elif _CONTROL.search(name) or len(name.encode("utf-8", "replace")) > _MAX_NAME:
            problem = "has control characters, or is too long"
        elif f"{name}.npy" in all_names:
            problem = f"and {name + '.npy'!r} would be the same member of the file"
        else:
            continue
        raise ValueError(f"an .npz file cannot hold {name[:200]!r}: the name {problem}; rename it in the model")


def write_npz(file: BinaryIO, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """Write all arrays; strings become NumPy's str, and types that .npz files do not have (bfloat16) become float32.

    The same arrays give the same bytes. The file may be a pipe.

    Raises:
        ValueError: as in `check_names`; nothing is written then.
    """
    check_names(arrays)
    storable = {name: _storable(array) for name, array in arrays.items()}
    with zipfile.ZipFile(file, "w") as archive:
        for name, array in storable.items():
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def _storable(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if array.dtype.hasobject:  # strings, as onnxruntime returns them
        return array.astype(np.str_)
    return array.astype(np.float32) if array.dtype.kind == "V" else array
