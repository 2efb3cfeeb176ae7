"""torch's description of tensors, in pickle's format, read as data.

A pickle is a program for a stack machine. `read_pickles` runs it on a machine of its own, which is safe for three
reasons. Every value is None, a bool, an int, a text, a tuple, a list, a dict or a record of this file. No opcode looks
a name up: the names that torch writes for tensors are a closed list of texts, and any other is an error. The number of
opcodes and the bytes of each are limited, so time and memory are.

Source of the opcodes: Python's `pickletools`; torch writes those of protocol 2. Source of the records:
`torch/_utils.py` (`_rebuild_tensor_v2`) and `torch/serialization.py` (`persistent_id`).
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from pickletools import opcodes
from typing import Any, BinaryIO

import numpy as np

from lucid.core.words.safe_text import show
from lucid.files.safetensors import DTYPES
from lucid.files.untrusted import MAX_NAME

Value = Any  # one of those that are listed above

MAX_OPCODES = 1 << 18  # of one file: 7,400 tensors, for each of which torch writes some 35

_STORAGES = {
    "torch.DoubleStorage": "F64",
    "torch.FloatStorage": "F32",
    "torch.HalfStorage": "F16",
    "torch.BFloat16Storage": "BF16",
    "torch.LongStorage": "I64",
    "torch.IntStorage": "I32",
    "torch.ShortStorage": "I16",
    "torch.CharStorage": "I8",
    "torch.ByteStorage": "U8",
    "torch.BoolStorage": "BOOL",
    "torch.ComplexFloatStorage": "C64",
    "torch.storage.UntypedStorage": "U8",
}
_DTYPES = {  # of storages without a type
    "torch.uint16": "U16",
    "torch.uint32": "U32",
    "torch.uint64": "U64",
    "torch.float8_e4m3fn": "F8_E4M3",
    "torch.float8_e5m2": "F8_E5M2",
}
_FUNCTIONS = ("_rebuild_parameter", "_rebuild_tensor", "_rebuild_tensor_v2", "_rebuild_tensor_v3")
_NAMES = {*_STORAGES, *_DTYPES, *(f"torch._utils.{name}" for name in _FUNCTIONS), "collections.OrderedDict"}


class PickleError(ValueError):
    """A pickle that does not describe tensors as torch does; the message is the end of a sentence."""


@dataclass(frozen=True, slots=True)
class Name:
    """A name of Python's that a pickle has; nothing is looked up."""

    text: str


@dataclass(frozen=True, slots=True)
class Storage:
    """Numbers one after the other, of one type, under a key in the file."""

    dtype: np.dtype[np.generic]
    key: str
    count: int


@dataclass(frozen=True, slots=True)
class TensorView:
    """A tensor: which numbers of a storage. The offset and the strides count numbers, and nothing is checked yet."""

    storage: Storage
    dtype: np.dtype[np.generic]
    offset: int
    shape: tuple[Any, ...]
    strides: tuple[Any, ...]


def read_pickles(file: BinaryIO, count: int) -> list[Value]:
    """The values that the next pickles of a file describe.

    Raises:
        PickleError: for one that torch does not write for tensors.
    """
    try:
        return _run(file, count)
    except (IndexError, KeyError):
        raise PickleError("a pickle with an opcode whose operand is missing") from None
    except UnicodeDecodeError as error:
        raise PickleError(f"a pickle with a text that is not UTF-8 ({error.reason})") from None


def _run(file: BinaryIO, count: int) -> list[Value]:
    results: list[Value] = []
    stack: list[Value] = []
    marks: list[int] = []
    memo: dict[int, Value] = {}

    def number(size: int, signed: bool = False) -> int:
        return int.from_bytes(file.read(size), "little", signed=signed)

    def since_mark() -> list[Value]:
        at = marks.pop()
        values = stack[at:]
        del stack[at:]
        return values

    for _ in range(MAX_OPCODES):
        match file.read(1):
            case pickle.BINPUT:
                memo[number(1)] = stack[-1]
            case pickle.BINGET:
                stack.append(memo[number(1)])
            case pickle.LONG_BINPUT:
                memo[number(4)] = stack[-1]
            case pickle.LONG_BINGET:
                stack.append(memo[number(4)])
            case pickle.BININT1:
                stack.append(number(1))
            case pickle.BININT2:
                stack.append(number(2))
            case pickle.BININT:
                stack.append(number(4, signed=True))
            case pickle.LONG1:
                stack.append(number(number(1), signed=True))
            case pickle.MARK:
                marks.append(len(stack))
            case pickle.TUPLE:
                stack.append(tuple(since_mark()))
            case pickle.BINUNICODE:
                stack.append(_text(file, number(4)))
            case pickle.EMPTY_TUPLE:
                stack.append(())
            case pickle.TUPLE1:
                stack[-1:] = [(stack[-1],)]
            case pickle.TUPLE2:
                stack[-2:] = [(stack[-2], stack[-1])]
            case pickle.TUPLE3:
                stack[-3:] = [(stack[-3], stack[-2], stack[-1])]
            case pickle.REDUCE:
                arguments = stack.pop()
                stack.append(_called(stack.pop(), arguments))
            case pickle.BINPERSID:
                stack.append(_storage(stack.pop()))
            case pickle.NEWFALSE:
                stack.append(False)
            case pickle.NEWTRUE:
                stack.append(True)
            case pickle.NONE:
                stack.append(None)
            case pickle.EMPTY_DICT:
                stack.append({})
            case pickle.SETITEM:
                value = stack.pop()
                key = stack.pop()
                _put(stack[-1], [key, value])
            case pickle.SETITEMS:
                values = since_mark()
                _put(stack[-1], values)
            case pickle.BUILD:  # what torch stores next to the tensors: versions of modules
                if type(stack.pop()) is not dict or type(stack[-1]) is not dict:
                    raise PickleError("a pickle that sets attributes of an object")
            case pickle.GLOBAL:
                stack.append(_name(file))
            case pickle.EMPTY_LIST:
                stack.append([])
            case pickle.APPEND:
                value = stack.pop()
                _extend(stack[-1], [value])
            case pickle.APPENDS:
                values = since_mark()
                _extend(stack[-1], values)
            case pickle.PROTO:
                number(1)
            case pickle.STOP:
                results.append(stack.pop())
                if len(results) == count:
                    return results
                stack, marks, memo = [], [], {}
            case b"":
                raise PickleError("a pickle that ends too early")
            case other:
                names = [opcode.name for opcode in opcodes if opcode.code == other.decode("latin-1")]
                shown = f"the opcode {names[0]}" if names else f"the byte {other[0]:#04x}"
                raise PickleError(f"a pickle with {shown}, which torch does not write for tensors")
    raise PickleError(f"a pickle of more than {MAX_OPCODES} opcodes")


def _text(file: BinaryIO, size: int) -> str:
    if size > MAX_NAME:
        raise PickleError(f"a pickle with a text of {size} bytes, expected at most {MAX_NAME}")
    return file.read(size).decode()


def _name(file: BinaryIO) -> Name:
    module, name = (file.readline(MAX_NAME).removesuffix(b"\n").decode() for _ in range(2))
    text = f"{module}.{name}"
    if text not in _NAMES:
        raise PickleError(f"a pickle with the global {show(text)}, expected tensors, their storages and dtypes only")
    return Name(text)


def _put(target: Value, items: list[Value]) -> None:
    keys, values = items[::2], items[1::2]
    if type(target) is not dict or len(keys) != len(values) or not all(type(key) is str for key in keys):
        raise PickleError("a pickle that sets items, but not of a dict with texts as keys")
    target.update(zip(keys, values, strict=True))


def _extend(target: Value, items: list[Value]) -> None:
    if type(target) is not list:
        raise PickleError("a pickle that appends to something other than a list")
    target += items


def _storage(key: Value) -> Storage:
    """The storage that torch names by a persistent id."""
    match key:
        # In the format before torch 1.6 the last is the place of a view in another storage.
        case ("storage", Name(kind), str(name), str(), int(count), *view) if kind in _STORAGES and view in ([], [None]):
            return Storage(DTYPES[_STORAGES[kind]], name, count)
    raise PickleError("a pickle with a persistent id that is not a storage's")


def _called(function: Value, arguments: Value) -> Value:
    """The result of a function that torch calls in a pickle: a dict, or a tensor."""
    match function, arguments:
        case Name("collections.OrderedDict"), ():
            return {}
        case Name("torch._utils._rebuild_parameter"), (TensorView() as tensor, *_):
            return tensor
        case Name("torch._utils._rebuild_tensor"), (Storage() as held, int(offset), tuple(shape), tuple(strides)):
            return TensorView(held, held.dtype, offset, shape, strides)
        case (
            Name("torch._utils._rebuild_tensor_v2"),
            (Storage() as held, int(offset), tuple(shape), tuple(strides), _, _, *more),
        ) if not any(more):  # of conjugate and negative views
            return TensorView(held, held.dtype, offset, shape, strides)
        case (
            Name("torch._utils._rebuild_tensor_v3"),
            (Storage() as held, int(offset), tuple(shape), tuple(strides), _, _, Name(kind), *more),
        ) if kind in _DTYPES and not any(more):
            return TensorView(held, DTYPES[_DTYPES[kind]], offset, shape, strides)
    raise PickleError("a pickle with a call that torch does not write for tensors")
