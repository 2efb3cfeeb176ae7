"""The Open Inference Protocol, version 2, which Triton and KServe speak: a model's tensors, or texts, by /v2/...

A request with the one input `text`, of BYTES (of a cross-encoder `text` and `pair`, of a model for images `image`), is
for the task; any other is for the tensors of the ONNX file.
"""

from __future__ import annotations

import asyncio
import base64
from functools import partial
from math import prod
from typing import Any

import numpy as np
from starlette.requests import Request
from starlette.responses import Response

from lucid.batch.rows import Kind, objects
from lucid.core.graph.types import Array
from lucid.core.version import __version__
from lucid.runtime.requirements import outside
from lucid.runtime.runs import NOT_COMPUTED
from lucid.serving import tables, tensors
from lucid.serving.bodies import Fields, parsed, shown, wrong
from lucid.serving.endpoints import Endpoint
from lucid.serving.responses import INFERENCE, JsonAnswer, RequestError, json_bytes, while_wanted
from lucid.serving.served_model import IMAGE, ServedModel

VERSION = "1"
_HEADER = "inference-header-content-length"
_DIGITS = 18  # of a number of bytes
_TAKES = tables.inference(tensors.DATATYPES)
_KINDS = ("application/json", "application/octet-stream", "application/vnd.inference.json")


def endpoints(model: ServedModel) -> list[Endpoint]:
    """All routes of the protocol."""

    def named(request: Request) -> None:
        name, version = request.path_params["name"], request.path_params.get("version", VERSION)
        if name != model.name:
            raise RequestError(f"there is no model {name!r}; this server has {model.name!r}", "model", 404)
        if version != VERSION:
            raise RequestError(f"there is no version {version} of {name!r}; it has version {VERSION}", "version", 404)

    async def server(request: Request) -> Response:
        return JsonAnswer({"name": "lucid", "version": __version__, "extensions": ["binary_tensor_data"]})

    async def live(request: Request) -> Response:
        return Response()

    async def ready(request: Request) -> Response:
        named(request)
        return Response()

    async def metadata(request: Request) -> Response:
        named(request)
        return JsonAnswer(_described(model))

    async def infer(request: Request) -> Response:
        named(request)
        return await _inferred(model, request)

    one = f"{INFERENCE}/models/{{name}}"
    listed = [
        Endpoint(INFERENCE, server, "the server", tables.SERVER),
        Endpoint(f"{INFERENCE}/health/live", live, "whether the server is there"),
        Endpoint(f"{INFERENCE}/health/ready", live, "whether the server is ready"),
    ]
    for place in (one, f"{one}/versions/{{version}}"):
        about = "the results of the task, or of the tensors of the file"
        listed += [
            Endpoint(place, metadata, "inputs and outputs of the model", tables.METADATA),
            Endpoint(f"{place}/ready", ready, "whether the model is ready"),
            Endpoint(f"{place}/infer", infer, about, tables.INFERENCE, _TAKES, binary=True),
        ]
    return listed


def _described(model: ServedModel) -> dict[str, Any]:
    def listed(values: dict[str, Any]) -> list[dict[str, Any]]:
        return [
            {
                "name": name,
                "datatype": tensors.datatype(dtype),
                "shape": [size if isinstance(size, int) else -1 for size in shape],
            }
            for name, (dtype, shape) in values.items()
        ]

    session = model.session
    return {
        "name": model.name,
        "versions": [VERSION],
        "platform": "onnxruntime_onnx",
        "inputs": listed(session.inputs),
        "outputs": listed(session.outputs),
    }


async def _inferred(model: ServedModel, request: Request) -> Response:
    kind = request.headers.get("content-type", "application/octet-stream").partition(";")[0].strip().lower()
    if kind not in _KINDS:
        raise RequestError(f"the content type is {kind}, expected {' or '.join(_KINDS)}", status=415)
    body, arrays = _read(await request.body(), request.headers.get(_HEADER))
    outputs = await while_wanted(request, _computed(model, arrays), model.limits.seconds)
    return _answer(model, body, outputs)


def _read(data: bytes, header: str | None) -> tuple[Fields, dict[str, Array]]:
    """The description of a request, and its inputs."""
    known = header is None or (header.isascii() and header.isdigit() and len(header) <= _DIGITS)
    if header is not None and not (known and int(header) <= len(data)):
        count = header[: 2 * _DIGITS]
        raise RequestError(f"the header {_HEADER} is {count!r}, expected at most the {len(data)} bytes of the body")
    length = len(data) if header is None else int(header)
    body, left = parsed(data[:length], _TAKES), memoryview(data)[length:]
    arrays: dict[str, Array] = {}
    for place, entry in enumerate(body["inputs"]):
        if entry["name"] in arrays:
            raise wrong(entry["name"], f"inputs[{place}].name", "which an earlier input has; send it once")
        arrays[entry["name"]], size = tensors.read(entry, left, f"inputs[{place}]")
        left = left[size:]
    if left:
        raise RequestError(f"the body has {len(left)} bytes after the last input, expected none")
    return body, arrays


async def _computed(model: ServedModel, arrays: dict[str, Array]) -> dict[str, Array]:
    names = model.fields
    if names and arrays.keys() == set(names):
        return await _of_rows(model, [arrays[name] for name in names])
    # A size of 0 counts as 1: a model makes something of each of the other axes all the same.
    tokens = max((prod(map(partial(max, 1), array.shape)) for array in arrays.values() if array.ndim <= 2), default=0)
    model.check_tokens(tokens, "inputs")
    if beyond := outside(model.table_rows, arrays):
        raise RequestError(f"inputs: {beyond}", "inputs")
    loop = asyncio.get_running_loop()
    try:
        return await loop.run_in_executor(model.thread, model.session.run, arrays)
    except KeyError as error:
        instead = f", or for its task {' and '.join(names)}, of BYTES" if names else ""
        raise RequestError(f"{error.args[0]}{instead}", "inputs") from error
    except (TypeError, ValueError) as error:
        raise RequestError(str(error), "inputs") from error
    except NOT_COMPUTED as error:
        raise RequestError(f"inputs: the model does not compute these: {error}", "inputs") from error


async def _of_rows(model: ServedModel, inputs: list[Array]) -> dict[str, Array]:
    """The columns of the task for texts or images (N,) or (N, 1)."""
    if len({column.size for column in inputs}) != 1 or not inputs[0].size:
        raise RequestError("the inputs have no texts, or not the same number of them", "inputs")
    field = model.fields[0]
    columns = [_images(column) if field == IMAGE else _texts(column) for column in inputs]
    rows, _ = await model.results(list(zip(*columns, strict=True)), field)
    results = {name: [row[name] for row in rows] for name in rows[0]}
    kinds = {} if model.rows is None else {name: column.kind for name, column in model.rows.columns.items()}
    if ragged := [name for name in results if kinds[name] in (Kind.SPARSE, Kind.VECTORS)]:
        raise RequestError(
            f"{ragged[0]} has another size for each text, which no tensor holds; ask /v1/embeddings, or send input_ids",
            field,
        )
    return {
        name: objects(values) if isinstance(values[0], str) else np.asarray(values, np.float32)
        for name, values in results.items()
    }


def _texts(column: Array) -> list[Any]:
    try:
        return [one.decode() if isinstance(one, bytes) else one for one in column.ravel()]
    except UnicodeDecodeError as error:
        raise RequestError(f"an input is not text in UTF-8: {error}", "inputs") from error


def _images(column: Array) -> list[Any]:
    """Bytes of files, or of data URLs: any other text would name a file of the server's; numbers are no images."""
    values = column.ravel().tolist()
    return [one if isinstance(one, bytes) else _of_data_url(str(one)) for one in values]


def _of_data_url(text: str) -> bytes:
    """The bytes of `data:image/png;base64,...` (RFC 2397), whatever the type that it names."""
    head, _, data = text.partition(",")
    try:
        if head.startswith("data:") and head.endswith(";base64"):
            return base64.b64decode(data, validate=True)
    except ValueError as error:
        raise RequestError(f"input {IMAGE}: the data URL is not valid base64: {error}", IMAGE) from error
    raise RequestError(
        f"input {IMAGE} is {shown(text)}, expected image files, each an element of BYTES: binary data "
        "(binary_data_size), or a data URL in base64 (data:image/png;base64,...)",
        IMAGE,
    )


def _answer(model: ServedModel, body: Fields, outputs: dict[str, Array]) -> Response:
    """The outputs that are asked for, all by default; as bytes where that is asked for."""
    all_binary = body.get("parameters", {}).get("binary_data_output", False)
    chosen = dict.fromkeys(outputs, all_binary)
    if "outputs" in body:
        chosen = {one["name"]: one.get("parameters", {}).get("binary_data", all_binary) for one in body["outputs"]}
    if unknown := [name for name in chosen if name not in outputs]:
        raise RequestError(f"there is no output {unknown[0]!r}; there are {', '.join(outputs)}", "outputs")
    entries = [tensors.written(name, outputs[name], binary) for name, binary in chosen.items()]
    answer: dict[str, Any] = {
        "model_name": model.name,
        "model_version": VERSION,
        "outputs": [one for one, _ in entries],
    }
    if "id" in body:
        answer["id"] = body["id"]
    head, tail = json_bytes(answer), b"".join(data for _, data in entries)
    if not any(chosen.values()):
        return Response(head, media_type="application/json")
    headers = {"Inference-Header-Content-Length": str(len(head))}
    return Response(head + tail, media_type="application/octet-stream", headers=headers)
