"""Trials of what the installed onnxruntime can do."""

from __future__ import annotations

from pathlib import Path

import onnxruntime
from onnx import TensorProto, defs, helper
from onnxruntime.capi import onnxruntime_pybind11_state as state

from lucid.cli.errors import plain
from lucid.inspection.loaders import Loader
from lucid.runtime import ModelError, ProviderError, Session
from lucid.runtime.providers import REMOTE

_OLDEST = 17
_REFUSALS = (  # onnxruntime's own exceptions have no common base
    ModelError,
    ProviderError,
    state.EPFail,
    state.EngineError,
    state.Fail,
    state.InvalidArgument,
    state.InvalidGraph,
    state.InvalidProtobuf,
    state.NoModel,
    state.NoSuchFile,
    state.NotImplemented,
    state.RuntimeException,
    RuntimeError,
)


def loads_here(path: Path) -> Loader:
    """Whether the installed onnxruntime loads a file."""
    name = f"onnxruntime {onnxruntime.__version__}, installed here"
    try:
        session = Session(path, optimize=False)
    except _REFUSALS as error:
        return Loader(name, False, _line(error))
    return Loader(name, True, ", ".join(session.providers))


def why_not(provider: str) -> str:
    """Why a provider does not run the smallest model; "" if it does."""
    if provider == REMOTE:
        return "calls a web service; it computes nothing on this machine"
    try:
        Session(_model(_OLDEST), provider)
    except _REFUSALS as error:
        return _line(error)
    return ""


def newest_opset() -> int:
    """The newest opset that loads."""
    for opset in range(defs.onnx_opset_version(), _OLDEST, -1):
        try:
            Session(_model(opset))
        except _REFUSALS:
            continue
        return opset
    return _OLDEST


def _line(error: Exception) -> str:
    return plain(str(error).strip()).splitlines()[0][:300]


def _model(opset: int) -> bytes:
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "trial", ends[:1], ends[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    data: bytes = model.SerializeToString()
    return data
