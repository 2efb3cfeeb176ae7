"""Broken and hostile files of torch's formats."""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Callable, Mapping

from tests.hostile import Cases, file_of

CASES: Cases = {}

START, STOP, DICT, EMPTY = b"\x80\x02", b".", b"}", b")"
RUN = b"touch EXECUTED"
MAGIC = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."


def text(value: str) -> bytes:
    return b"X" + struct.pack("<I", len(value.encode())) + value.encode()


def number(value: int) -> bytes:
    size = value.bit_length() // 8 + 1
    return b"\x8a" + bytes([size]) + value.to_bytes(size, "little", signed=True)


def numbers(values: tuple[int, ...]) -> bytes:
    return b"(" + b"".join(map(number, values)) + b"t"


def name(module: str, of: str) -> bytes:
    return f"c{module}\n{of}\n".encode()


ORDERED = name("collections", "OrderedDict") + EMPTY + b"R"


def storage(key: str = "0", count: int = 6, kind: bytes = name("torch", "FloatStorage"), more: bytes = b"") -> bytes:
    return b"(" + text("storage") + kind + text(key) + text("cpu") + number(count) + more + b"tQ"


def tensor(
    offset: int = 0,
    shape: tuple[int, ...] = (2, 3),
    strides: tuple[int, ...] = (3, 1),
    held: bytes | None = None,
    function: bytes = name("torch._utils", "_rebuild_tensor_v2"),
    more: bytes = b"",
) -> bytes:
    """A tensor as torch writes it: a function called with a storage, and what of it the tensor sees."""
    described = (held or storage()) + number(offset) + numbers(shape) + numbers(strides) + b"\x89" + ORDERED
    return function + b"(" + described + more + b"tR"


def state(**tensors: bytes) -> bytes:
    return START + DICT + b"".join(text(key) + value + b"s" for key, value in tensors.items()) + STOP


def archive(pickled: bytes | None, more: Mapping[str, bytes] | None = None, method: int = zipfile.ZIP_STORED) -> bytes:
    """A file as torch writes it: six numbers, 0 to 5, in the storage 0."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as members:
        if pickled is not None:
            members.writestr("x/data.pkl", pickled)
        for key, value in {"x/data/0": struct.pack("<6f", *range(6)), **(more or {})}.items():
            members.writestr(key, value)
    return file.getvalue()


def old(pickled: bytes, keys: bytes = b"\x80\x02](" + text("0") + b"e.", data: bytes | None = None) -> bytes:
    """A file as torch before 1.6 wrote it."""
    system = START + DICT + text("little_endian") + b"\x88s."
    held = struct.pack("<q6f", 6, *range(6)) if data is None else data
    return MAGIC + START + b"M\xe9\x03." + system + pickled + keys + held


def case(label: str, wrong: str, content: bytes | Callable[[], bytes], file: str = "pytorch_model.bin") -> None:
    CASES[label] = wrong, file_of(file, content)


GOOD = state(a=tensor())
SYSTEM = name("os", "system")

# Programs -------------------------------------------------------------------------------------------------------------

PROGRAMS = {
    "reduce": SYSTEM + b"(" + text(RUN.decode()) + b"tR",
    "reduce_short": SYSTEM + text(RUN.decode()) + b"\x85R",
    "stack_global": text("os") + text("system") + b"\x93" + text(RUN.decode()) + b"\x85R",
    "inst": b"(" + text(RUN.decode()) + b"ios\nsystem\n",
    "obj": b"(" + SYSTEM + text(RUN.decode()) + b"o",
    "newobj": SYSTEM + text(RUN.decode()) + b"\x85\x81",
    "newobj_ex": SYSTEM + text(RUN.decode()) + b"\x85" + DICT + b"\x92",
    "build_setstate": ORDERED + DICT + text("__setstate__") + SYSTEM + b"sb" + text(RUN.decode()) + b"b",
    "build_on_a_function": name("torch._utils", "_rebuild_tensor_v2") + DICT + text("__code__") + b"Nsb",
    "build_on_a_tensor": tensor() + DICT + text("data") + b"Nsb",
    "eval": name("builtins", "eval") + text("1") + b"\x85R",
    "getattr": name("builtins", "getattr") + ORDERED + text("popitem") + b"\x86R",
    "dotted": name("torch._utils", "_rebuild_tensor_v2.__globals__") + EMPTY + b"R",
    "name_with_a_dot_moved": name("torch", "_utils._rebuild_tensor_v2.__globals__") + EMPTY + b"R",
    "extension": b"\x82\x01",
    "persid": b"Pos.system\n",
    "proto_0_string": b"S'touch EXECUTED'\n",
    "numpy": name("numpy.core.multiarray", "_reconstruct") + EMPTY + b"R",
    "torch_load": name("torch", "load") + text("other.bin") + b"\x85R",
    "sparse": name("torch._utils", "_rebuild_sparse_tensor") + EMPTY + b"R",
    "whole_module": name("torch.nn.modules.linear", "Linear") + EMPTY + b"\x81",
    "call_a_storage": name("torch", "FloatStorage") + number(1 << 40) + b"\x85R",
    "call_a_dict": ORDERED + EMPTY + b"R",
    "dict_of_arguments": name("collections", "OrderedDict") + DICT + b"\x85R",
}
for label, program in PROGRAMS.items():
    case(f"zip_{label}", f"a program: {label}", archive(state(a=program)))
case("old_reduce", "a program in the format before torch 1.6", old(state(a=PROGRAMS["reduce"])))
case("old_in_the_system", "a program in the second pickle", MAGIC + START + PROGRAMS["reduce"] + STOP)
case("old_in_the_keys", "a program in the list of storages", old(GOOD, START + PROGRAMS["reduce"] + STOP))
case("bare", "a program without torch's file around it", START + PROGRAMS["reduce"] + STOP)
case("tail", "a program after a good pickle, which is not reached, in a wrong archive", GOOD + PROGRAMS["reduce"])

# Pickles that make no tensors by name ---------------------------------------------------------------------------------

for label, pickled in {
    "nothing": b"",
    "start": START,
    "stop": START + STOP,
    "no_stop": GOOD[:-1],
    "half": GOOD[: len(GOOD) // 2],
    "a_number": START + number(3) + STOP,
    "a_tensor": START + tensor() + STOP,
    "a_list": START + b"](" + tensor() + b"e" + STOP,
    "nested": state(model=DICT + text("a") + tensor() + b"s"),
    "a_number_inside": state(a=tensor(), epoch=number(3)),
    "under_a_number": START + DICT + number(1) + tensor() + b"s" + STOP,
    "under_a_tuple": START + DICT + EMPTY + tensor() + b"s" + STOP,
    "odd_items": START + DICT + b"(" + text("a") + b"u" + STOP,
    "items_of_a_tuple": START + EMPTY + text("a") + tensor() + b"s" + STOP,
    "append_to_a_dict": START + DICT + tensor() + b"a" + STOP,
    "no_mark": START + text("a") + b"t" + STOP,
    "memo": START + b"h\x07" + STOP,
    "empty_stack": START + b"R" + STOP,
    "not_utf8": START + DICT + b"X\x02\0\0\0\xff\xfe" + tensor() + b"s" + STOP,
    "surrogate": START + DICT + b"X\x03\0\0\0\xed\xa0\x80" + tensor() + b"s" + STOP,
    "text_of_4_gb": START + DICT + b"X\xff\xff\xff\xff" + b"a",
    "long_name": state(**{"n" * 5000: tensor()}),
    "unknown_opcode": START + b"\xff" + STOP,
    "protocol_4": b"\x80\x04\x95\x05\0\0\0\0\0\0\0}\x94" + STOP,
    "itself": START + DICT + b"q\0" + text("a") + b"h\0s" + STOP,
}.items():
    case(f"pickle_{label}", f"no tensors by name: {label}", archive(pickled))
MOST = 1 << 20
case("bomb_lists", "a million lists", lambda: archive(START + b"]" * MOST))
case("bomb_tuples", "a million tuples in each other", lambda: archive(START + EMPTY + b"\x85" * MOST))
case("bomb_marks", "a million marks", lambda: archive(START + b"(" * MOST))
case(
    "bomb_memo",
    "half a million dicts that are remembered",
    lambda: archive(START + b"".join(b"}r" + struct.pack("<I", i) for i in range(MOST // 2))),
)
case("bomb_memo_index", "the place 2^32 - 1 of the memo", archive(START + DICT + b"r\xff\xff\xff\xff" + EMPTY + STOP))
case("bomb_doubling", "a tuple of 2^200 values", archive(START + EMPTY + b"q\0" + b"h\0h\0\x86q\0" * 200 + STOP))
case("bomb_pickle", "a pickle of 64 MB", lambda: archive(START + bytes(64 << 20)))
case(
    "bomb_wide_texts",
    "megabytes of letters of four bytes each",
    lambda: archive(START + (b"X\xff\x0f\0\0" + "\U0001f600".encode() + b"x" * 4091) * 1000),
)
case(
    "bomb_shared",
    "a gigabyte of tensors that share one storage",
    lambda: archive(
        state(**{str(i): tensor(0, (100_000,), (1,), storage("1", 100_000)) for i in range(2_500)}),
        {"x/data/1": bytes(400_000)},
    ),
)
case(
    "many_tensors",
    "more opcodes than are read",
    lambda: archive(state(**{str(i): tensor(shape=(0,), strides=(1,)) for i in range(25_000)})),
)

# Tensors that their storages do not hold ------------------------------------------------------------------------------

HUGE = 1 << 62
for label, wrong in {
    "offset": tensor(offset=1),
    "offset_negative": tensor(offset=-1),
    "offset_huge": tensor(offset=1 << 63),
    "offset_text": name("torch._utils", "_rebuild_tensor_v2")
    + b"("
    + storage()
    + text("0")
    + numbers((2,)) * 2
    + b"\x89"
    + ORDERED
    + b"tR",
    "shape": tensor(shape=(2, 4), strides=(4, 1)),
    "shape_negative": tensor(shape=(-2, 3)),
    "shape_two_negatives": tensor(shape=(-2, -3)),
    "shape_huge": tensor(shape=(HUGE, 3)),
    "shape_overflow": tensor(shape=(1 << 32, 1 << 32), strides=(0, 0)),
    "shape_rank": tensor(shape=(1,) * 65, strides=(1,) * 65),
    "shape_huge_but_empty": tensor(shape=(HUGE, HUGE, 0), strides=(1, 1, 1)),
    "shape_of_a_tuple": name("torch._utils", "_rebuild_tensor_v2")
    + b"("
    + storage()
    + number(0)
    + (b"(" + EMPTY + b"t") * 2
    + b"\x89"
    + ORDERED
    + b"tR",
    "strides": tensor(strides=(4, 1)),
    "strides_negative": tensor(offset=5, strides=(-3, -1)),
    "strides_fewer": tensor(strides=(1,)),
    "strides_huge": tensor(strides=(HUGE, HUGE)),
    "stride_of_zero": tensor(shape=(1 << 40,), strides=(0,)),
    "stride_of_zero_booleans": tensor(
        shape=(1 << 40,), strides=(0,), held=storage(count=24, kind=name("torch", "BoolStorage"))
    ),
    "storage_missing": tensor(held=storage("1")),
    "storage_longer": tensor(held=storage(count=7)),
    "storage_shorter": tensor(held=storage(count=5)),
    "storage_negative": tensor(held=storage(count=-6)),
    "storage_of_another_type": tensor(held=storage(kind=name("torch", "DoubleStorage"))),
    "storage_of_no_type": tensor(held=storage(kind=name("collections", "OrderedDict"))),
    "storage_outside": tensor(held=storage("../byteorder", 0)),
    "storage_complex_128": tensor(held=storage(count=1, kind=name("torch", "ComplexDoubleStorage"))),
    "storage_no_persistent_id": tensor(held=text("0")),
    "persistent_id_text": tensor(held=text("storage") + b"Q"),
    "persistent_id_module": tensor(held=b"(" + text("module") + text("a") + text("b") + text("c") + b"tQ"),
    "persistent_id_a_view": tensor(held=storage(more=numbers((0, 1, 2)))),
    "booleans": tensor(shape=(24,), strides=(1,), held=storage(count=24, kind=name("torch", "BoolStorage"))),
    "conjugate": tensor(more=DICT + text("conj") + b"\x88s"),
    "dtype_unknown": tensor(function=name("torch._utils", "_rebuild_tensor_v3"), more=name("torch", "quint8")),
    "dtype_missing": tensor(function=name("torch._utils", "_rebuild_tensor_v3")),
    "dtype_wider": tensor(
        held=storage(count=24, kind=name("torch.storage", "UntypedStorage")),
        shape=(7,),
        strides=(1,),
        function=name("torch._utils", "_rebuild_tensor_v3"),
        more=name("torch", "uint32"),
    ),
}.items():
    case(f"tensor_{label}", f"a tensor beyond its storage: {label}", archive(state(a=wrong)))

# Archives -------------------------------------------------------------------------------------------------------------

WHOLE = archive(GOOD)


def changed(at: int, value: bytes, whole: bytes = WHOLE) -> bytes:
    at %= len(whole)
    return whole[:at] + value + whole[at + len(value) :]


ENTRY = WHOLE.index(b"PK\1\2")
case("zip_empty", "an archive without members", archive(None, {"x/data/0": b""})[-22:] + bytes(30))
case("zip_first_bytes", "nothing but the first bytes", b"PK\x03\x04")
for cut in (1, 22, len(WHOLE) // 2):
    case(f"zip_truncated_{cut}", f"the last {cut} bytes are missing", WHOLE[:-cut])
case("zip_without_pickle", "no data.pkl", archive(None))
case("zip_two_pickles", "two of them", archive(GOOD, {"y/data.pkl": GOOD}))
case("zip_compressed", "compressed members", archive(GOOD, method=zipfile.ZIP_DEFLATED))
case(
    "zip_bomb",
    "megabytes of zeros in a few kilobytes",
    lambda: archive(GOOD, {"x/z": bytes(4 << 20)}, zipfile.ZIP_DEFLATED),
)
case("zip_encrypted", "an encrypted member", changed(ENTRY + 8, b"\1\0"))
case("zip_of_other_sizes", "a stored member of two sizes", changed(ENTRY + 20, b"\1\0\0\0"))
case("zip_member_too_long", "a member beyond the directory", changed(ENTRY + 20, struct.pack("<2I", 1 << 20, 1 << 20)))
case("zip_member_elsewhere", "a member that is not where it should be", changed(ENTRY + 42, b"\1\0\0\0"))
case("zip_member_far", "a member beyond the file", changed(ENTRY + 42, b"\xfe\xff\xff\xff"))
case("zip_wide_without_field", "a member whose place needs 64 bits and has none", changed(ENTRY + 42, b"\xff" * 4))
case("zip_entry_damaged", "an entry of the directory that is none", changed(ENTRY, b"QQ"))
case("zip_many_members", "a directory of 65535 members", changed(-12, b"\xff\xff"))
case("zip_directory_far", "a directory beyond the file", changed(-6, b"\xf0\xff\xff\xff"))
END_64 = struct.pack("<4sLQL", b"PK\6\7", 0, 1 << 63, 1)
case("zip_directory_of_64_bits_far", "a directory beyond 2^63", WHOLE[:-22] + END_64 + WHOLE[-22:])
case("zip_name_twice", "one member twice", archive(GOOD, {"x/data/1": b""}).replace(b"x/data/1", b"x/data/0"))
case("npz", "NumPy's archive", archive(None, {"a.npy": b"\x93NUMPY"}))

# Before torch 1.6 -----------------------------------------------------------------------------------------------------

case("old_tar", "torch's first format, a tar", b"sys_info".ljust(257, b"\0") + b"ustar" + bytes(300))
case("old_truncated", "the last byte is missing", old(GOOD)[:-1])
case("old_without_storages", "the storages are missing", old(GOOD, data=b""))
case("old_storage_of_2_63", "a storage of 2^63 numbers", old(GOOD, data=struct.pack("<Q", 1 << 63) + bytes(24)))
case("old_keys_other", "a list of other storages", old(GOOD, START + b"](" + text("1") + b"e."))
case("old_keys_twice", "a storage twice", old(GOOD, START + b"](" + text("0") * 2 + b"e."))
case("old_keys_no_list", "no list of storages", old(GOOD, START + DICT + STOP))
case("old_keys_missing", "no storage in the list", old(GOOD, START + b"]."))
