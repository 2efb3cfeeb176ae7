"""What a file declares of itself, compared with an export: the types of its outputs, and Lucid's metadata."""

from __future__ import annotations

from collections.abc import Sequence

import onnx

from lucid.core.targets.runtimes import ACCURACY_LEVEL, OLDEST_RELEASE, SIZE_LIMITS
from lucid.core.words.safe_text import visible

_KEYS = (OLDEST_RELEASE, SIZE_LIMITS, ACCURACY_LEVEL)


def different_declarations(file: onnx.ModelProto, export: onnx.ModelProto, same_nodes: bool) -> list[str]:
    """What differs, as text. Nothing is compared where the inputs have other types or axes of other names.

    Args:
        file, export: the models.
        same_nodes: whether they have the same nodes; other nodes may give outputs of another element type.
    """
    if [_type(value) for value in file.graph.input] != [_type(value) for value in export.graph.input]:
        return []
    found = []
    for value, expected in zip(file.graph.output, export.graph.output, strict=False):
        got, wanted = _type(value), _type(expected)
        if got[1:] != wanted[1:] or (same_nodes and got != wanted):
            found.append(f"output {value.name}: declared as {_shown(got)}, expected {_shown(wanted)}")
    told, made = ({entry.key: entry.value for entry in model.metadata_props} for model in (file, export))
    for key in _KEYS:
        if told.get(key) != made.get(key):
            found.append(f"metadata {key}: {told.get(key, 'nothing')}, expected {made.get(key, 'nothing')}")
    return [visible(each) for each in found]


def _type(value: onnx.ValueInfoProto) -> tuple[int, int | str, *tuple[int | str, ...]]:
    """The element type, the number of axes, and their sizes."""
    kind = value.type.tensor_type
    sizes = [size.dim_value if size.HasField("dim_value") else size.dim_param for size in kind.shape.dim]
    return kind.elem_type, len(sizes) if kind.HasField("shape") else "no shape", *sizes


def _shown(kind: Sequence[int | str]) -> str:
    return f"{onnx.TensorProto.DataType.Name(int(kind[0]))}[{', '.join(map(str, kind[2:]))}]"
