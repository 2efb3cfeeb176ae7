"""`lucid map` writes each row once, with its result, whatever the input is and whatever interrupts it."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lucid
from lucid.core.words.progress import listening
from tests.batch.folders import exported
from tests.console import in_process
from tests.layout_checkpoints import whole
from tests.waiting import PATIENCE

batch = pytest.importorskip("lucid.batch", reason="needs the extra batch", exc_type=ModuleNotFoundError)
job = pytest.importorskip("lucid.batch.job")
lines = pytest.importorskip("lucid.batch.lines")
mapping = pytest.importorskip("lucid.batch.mapping")
check_ids = pytest.importorskip("lucid.batch.source").check_ids
pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
fsspec, Image = pytest.importorskip("fsspec"), pytest.importorskip("PIL.Image")

TEXTS = [None if row % 10 == 7 else f"text {'abcdefghijkl'[: row % 12]} and more" for row in range(50)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return exported(tmp_path_factory.mktemp("sentences"), "sentences/cls")


@pytest.fixture(scope="module")
def predictor(folder: Path) -> Any:
    return batch.Predictor(folder)


@pytest.fixture(scope="module")
def parquet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """50 rows in three row groups."""
    path = tmp_path_factory.mktemp("input") / "in.parquet"
    pq.write_table(pa.table({"id": range(50), "text": TEXTS}), path, row_group_size=20)
    return path


def as_json_lines(path: Path) -> None:
    rows = [json.dumps({"id": row, "text": text}) + "\n" for row, text in enumerate(TEXTS)]
    path.write_text("\ufeff" + "".join([*rows[:9], "\n", *rows[9:]]), encoding="utf-8")


def as_csv(path: Path) -> None:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("id", "text"), *enumerate(text or "" for text in TEXTS)])


def as_parquet(path: Path) -> None:
    pq.write_table(pa.table({"id": range(50), "text": TEXTS}), path)


def compressed(path: Path) -> None:
    as_json_lines(path.with_suffix(""))
    path.write_bytes(gzip.compress(path.with_suffix("").read_bytes()))
    path.with_suffix("").unlink()


# The input ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "write", "ids", "reason"),
    [
        ("in.parquet", as_parquet, list(range(50)), "the text is null"),
        ("in.jsonl", as_json_lines, list(range(50)), "the text is null"),
        ("in.jsonl.gz", compressed, list(range(50)), "the text is null"),
        ("in.csv", as_csv, [str(row) for row in range(50)], "the text is empty"),
    ],
)
@pytest.mark.parametrize("part_rows", [None, 16])
def test_every_row_is_written_once_with_its_result(predictor, tmp_path, name, write, ids, reason, part_rows):
    write(tmp_path / name)
    done = batch.map_rows(predictor, tmp_path / name, tmp_path / "out", part_rows=part_rows, id_column="id")
    assert done[:3] == (50, 50, 5)
    table = pq.read_table(tmp_path / "out")
    assert table["id"].to_pylist() == ids
    expected = predictor({"text": TEXTS})["embedding"]
    for row, vector in enumerate(table["embedding"].to_pylist()):
        assert (vector is None) == (TEXTS[row] is None)
        if vector is not None:
            np.testing.assert_allclose(vector, expected[row], atol=1e-6)
    assert table["error"].to_pylist() == [None if text else reason for text in TEXTS]
    assert len(list((tmp_path / "out").glob("part-*.parquet"))) == (4 if part_rows else 1)


@pytest.mark.parametrize("kind", ["string", "large_string", "string_view", "dictionary"])
def test_texts_may_have_any_of_arrows_types_and_other_columns_pass_as_they_are(predictor, tmp_path, kind):
    texts = pa.array(TEXTS).dictionary_encode() if kind == "dictionary" else pa.array(TEXTS, getattr(pa, kind)())
    others = {
        "time": pa.array([0] * 50, pa.timestamp("us")),
        "both": pa.array([{"a": 1, "b": ["x"]}] * 50),
        "bytes": pa.array([b"x"] * 50),
        "amount": pa.array([None] * 50, pa.decimal128(5, 2)),
        "vector": pa.array([[1, 2]] * 50, pa.list_(pa.int8(), 2)),
    }
    table = pa.table({"text": texts, **others})
    pq.write_table(table, tmp_path / "in.parquet")
    batch.map_rows(predictor, tmp_path / "in.parquet", tmp_path / "out", part_rows=30)
    result = pq.read_table(tmp_path / "out")
    assert result.select(table.column_names).to_pylist() == table.to_pylist()
    assert all(result.schema.field(name).type == array.type for name, array in others.items())
    expected = predictor({"text": TEXTS})["embedding"]
    for row in (0, 1, 49):
        np.testing.assert_allclose(result["embedding"][row].as_py(), expected[row], atol=1e-6)


@pytest.mark.parametrize(
    ("column", "reason"),
    [([b"a"], "expected text, got bytes"), ([1], "expected text, got int"), ([["a"]], "expected text, got list"),
     ([{"a": 1}], "expected text, got dict"), (pa.nulls(1), "the text is null")],
)  # fmt: skip
def test_columns_of_another_type_have_no_results(predictor, tmp_path, column, reason):
    pq.write_table(pa.table({"text": column}), tmp_path / "in.parquet")
    assert batch.map_rows(predictor, tmp_path / "in.parquet", tmp_path / "out").errors == 1
    assert pq.read_table(tmp_path / "out")["error"].to_pylist() == [reason]


@pytest.mark.parametrize(("name", "write"), [("in.parquet", as_parquet), ("in.jsonl", as_json_lines)])
def test_large_rows_are_read_a_few_at_a_time(predictor, tmp_path, monkeypatch, name, write):
    for module in ("parquet", "lines"):
        monkeypatch.setattr(f"lucid.batch.{module}.CHUNK_BYTES", 300)
    write(tmp_path / name)
    source = mapping.open_source(tmp_path / name, ("text",))
    sizes = [len(rows.values) for part in source.parts(100) for rows in source.read(part)]
    assert sum(sizes) == 50 and 1 < max(sizes) < 20
    batch.map_rows(predictor, tmp_path / name, tmp_path / "out")
    assert pq.read_table(tmp_path / "out")["id"].to_pylist() == list(range(50))


def test_lines_that_are_no_rows_are_rows_without_a_result(predictor, tmp_path, monkeypatch):
    monkeypatch.setattr(lines, "LONGEST", 300)
    rows = ['{"text": "a", "n": 1}', "no json", "[1]", '{"text": "' + "x" * 500 + '"}', '{"n": 2.5, "more": {"x": 1}}']
    rows += ['{"text": 3}', '{"text": "\\ud800"}', '{"text": "b", "more": "words"}', "7"]
    rows.append(f'{{"more": {"[" * 101 + "]" * 101}}}')
    (tmp_path / "in.jsonl").write_text("\n".join(rows))
    assert batch.map_rows(predictor, tmp_path / "in.jsonl", tmp_path / "out", part_rows=3).errors == 8
    table = pq.read_table(tmp_path / "out")
    assert table["n"].to_pylist() == [1.0, None, None, None, 2.5, None, None, None, None, None]
    assert table["more"].to_pylist() == [None, None, None, None, '{"x": 1}', None, None, "words", None, None]
    assert table["text"].to_pylist() == ["a", None, None, None, None, "3", "\ufffd", "b", None, None]
    where = tmp_path / "in.jsonl"
    assert table["error"].to_pylist() == [
        None,
        f"line 2 of {where} is not valid JSON: Expecting value at character 1",
        f"line 3 of {where} begins a JSON array, expected a line for each object, as jq -c '.[]' writes them",
        f"line 4 of {where} has more than 300 bytes",
        "the text is null",
        "expected text, got int",
        "the text is not valid Unicode: surrogates not allowed at character 0; give it in UTF-8",
        None,
        f"line 9 of {where} is 7, expected a JSON object",
        f"line 10 of {where} is not valid JSON: nested too deeply: expected at most 100 lists and objects within each "
        "other",
    ]


@pytest.mark.parametrize(
    "content", [gzip.compress(b'{"text": "a"}\n' * 1000, mtime=0)[:-20], b'{"text": "a"}\n'], ids=["cut", "plain"]
)
def test_a_compressed_file_that_is_broken_is_named(predictor, tmp_path, content):
    path = tmp_path / "rows.jsonl.gz"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"rows\.jsonl\.gz: is not what its name says, or ends too soon"):
        batch.map_rows(predictor, path, tmp_path / "out")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("in.csv", "text,größe\na,1\n".encode("latin-1")),
        ("in.jsonl", '{"text": "a", "größe": 1}\n'.encode("latin-1")),
        ("in.jsonl", b'{"text": "a", "\\ud800": 1}\n'),
    ],
    ids=["CSV", "JSON", "half a character"],
)
def test_names_of_columns_that_are_no_text_are_refused(predictor, tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(
        ValueError, match=rf"{name}: has a column .*, which is no text in UTF-8; save the file as UTF-8"
    ):
        batch.map_rows(predictor, tmp_path / name, tmp_path / "out")


def test_integers_that_a_float_does_not_hold_stay_exact_beside_floats(predictor, tmp_path):
    large = [9007199254740993, 9007199254740992]
    for more, kind in ((3, int), (1.5, str)):
        rows = [{"text": "a", "id": number} for number in (*large, more)]
        path = tmp_path / f"{kind.__name__}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        batch.map_rows(predictor, path, tmp_path / kind.__name__, id_column="id")
        ids = pq.read_table(tmp_path / kind.__name__)["id"].to_pylist()
        assert sorted(map(str, ids)) == sorted(map(str, (*large, more)))


def test_records_of_csv_have_lines_in_them_and_wrong_numbers_of_values(predictor, tmp_path):
    (tmp_path / "in.csv").write_bytes(b'id,text\r\n1,"a\n""b"", c"\r\n2\r\n\r\n3,d,e\r\n4,caf\xff\r\n5,f')
    batch.map_rows(predictor, tmp_path / "in.csv", tmp_path / "out", part_rows=1)
    table = pq.read_table(tmp_path / "out")
    assert table["text"].to_pylist() == ['a\n"b", c', None, None, "caf\ufffd", "f"]
    wrong = table["error"].to_pylist()
    assert wrong[0] is None and wrong[4] is None and wrong[3].startswith("the text is not valid Unicode")
    assert wrong[1] == f"line 4 of {tmp_path / 'in.csv'} has 1 value, expected 2"
    assert wrong[2] == f"line 6 of {tmp_path / 'in.csv'} has 3 values, expected 2"


def test_rows_are_named_by_the_lines_that_editors_show(tmp_path, monkeypatch):
    """They were counted from 0, over all files together and without the line of names."""
    monkeypatch.setattr(lines, "_INDEX", 2)  # places that are remembered: the others are found from them
    first, second, objects = tmp_path / "a.csv", tmp_path / "b.csv", tmp_path / "c.jsonl"
    first.write_text('id,text\n1,"two\nlines"\n\n2,b\n5,e\n6,f\n')
    second.write_text("id,text\n3,c\n1,d\n")
    source = mapping.open_source([first, second], ())
    expected = [
        f"line {line} of {file}" for file, numbers in ((first, (2, 5, 6, 7)), (second, (2, 3))) for line in numbers
    ]
    assert [source.place(row) for row in range(source.total)] == expected
    with pytest.raises(ValueError, match=f"^line 2 of {first} and line 3 of {second} have the same id, '1'$"):
        check_ids(source, "id")
    objects.write_text('\n{"id": 1}\nno json\n\n{"id": null}\n')
    source = mapping.open_source(objects, ())
    assert [source.place(row) for row in range(source.total)] == [f"line {line} of {objects}" for line in (2, 3, 5)]
    with pytest.raises(ValueError, match=f"^line 3 of {objects} has no id"):
        check_ids(source, "id")


def test_a_folder_of_images(tmp_path):
    model = exported(tmp_path, "vit/classifier")
    config = {"size": {"height": 12, "width": 12}}
    (model / "preprocessor_config.json").write_text(json.dumps(config))
    (tmp_path / "photos" / "more").mkdir(parents=True)
    for name in ("b.png", "more/a.jpg"):
        Image.new("RGB", (20, 10), "red").save(tmp_path / "photos" / name)
    (tmp_path / "photos" / "c.png").write_bytes(b"")
    batch.map_rows(batch.Predictor(model), tmp_path / "photos", tmp_path / "out")
    rows = pq.read_table(tmp_path / "out").to_pylist()
    assert [row["path"] for row in rows] == ["b.png", "c.png", "more/a.jpg"]
    assert [row["label"] is None for row in rows] == [False, True, False]
    assert rows[1]["error"].startswith("it is not an image in a supported format: PNG, JPEG, WEBP, GIF, BMP, TIFF; ")


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such names")
def test_names_and_labels_that_are_no_text_are_written_with_their_escapes(tmp_path):
    config = {"id2label": {str(label): "\ud800" for label in range(9)}}
    model = exported(tmp_path, "vit/classifier", config=config)
    (model / "preprocessor_config.json").write_text(json.dumps({"size": {"height": 12, "width": 12}}))
    (tmp_path / "photos").mkdir()
    for name in (b"a.png", b"\xff.png"):
        Image.new("RGB", (20, 10), "red").save(tmp_path / "photos" / os.fsdecode(name))
    summary = batch.map_rows(batch.Predictor(model), tmp_path / "photos", tmp_path / "out")
    rows = pq.read_table(tmp_path / "out").to_pylist()
    assert [(row["path"], row["label"]) for row in rows] == [("a.png", "\\ud800"), ("\\udcff.png", "\\ud800")]
    assert summary.errors == 0


def test_object_stores_are_read_and_written_by_their_addresses(predictor, parquet):
    memory = fsspec.filesystem("memory")
    memory.pipe_file("/in/a.parquet", parquet.read_bytes())
    memory.pipe_file("/in/b.parquet", parquet.read_bytes())
    done = batch.map_rows(predictor, "memory://in/*.parquet", "memory://out", part_rows=30)
    assert done.rows == 100
    names = ["_lucid_map.json", *(f"part-{first:012d}.parquet" for first in (0, 30, 50, 80))]
    assert sorted(os.path.basename(path) for path in memory.ls("/out", detail=False)) == names
    assert batch.map_rows(predictor, "memory://in/*.parquet", "memory://out", resume=True).computed == 0


def test_the_first_files_are_small_and_progress_is_told_by_batches(predictor, tmp_path):
    texts = [f"text {row % 7} {'abc ' * (row % 5)}" for row in range(1000)]
    pq.write_table(pa.table({"text": texts}), tmp_path / "in.parquet")
    counts: list[int] = []

    @contextmanager
    def listener(name: str, total: int | None, unit: str) -> Iterator[Any]:
        yield counts.append if name == "computing rows" else lambda done: None

    with listening(listener):
        batch.map_rows(predictor, tmp_path / "in.parquet", tmp_path / "out", part_rows=400)
    files = sorted((tmp_path / "out").glob("part-*.parquet"))
    assert [pq.read_metadata(file).num_rows for file in files] == [64, 64, 128, 256, 400, 88]
    assert sum(counts) == 1000 and len(counts) > 2 * len(files)


# Interruptions --------------------------------------------------------------------------------------------------------


class Interrupted:
    """A predictor that computes so many chunks of rows, and then is interrupted."""

    def __init__(self, predictor: Any, chunks: int) -> None:
        self._predictor, self._left = predictor, chunks

    def __getattr__(self, name: str) -> Any:
        return getattr(self._predictor, name)

    def predict(self, rows: Any, advance: Any) -> Any:
        self._left -= 1
        if self._left < 0:
            raise KeyboardInterrupt
        return self._predictor.predict(rows, advance)


def test_an_interrupted_job_goes_on_and_nothing_is_lost_or_twice(predictor, parquet, tmp_path):
    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt) as caught:
        batch.map_rows(Interrupted(predictor, 2), parquet, out, part_rows=8)
    assert caught.value.__notes__ == [f"16 of 50 rows are complete in {out}; resume (--resume) goes on with the rest"]
    assert pq.read_table(out)["id"].to_pylist() == list(range(16)), "it can be read at any moment"
    with pytest.raises(
        FileExistsError, match=r"has the results of an earlier job; resume \(--resume\) goes on with it"
    ):
        batch.map_rows(predictor, parquet, out)
    (out / "part-000000000000.parquet").unlink()  # a file that somebody has lost
    assert batch.map_rows(predictor, parquet, out, resume=True)[:2] == (50, 42)
    assert pq.read_table(out)["id"].to_pylist() == list(range(50))
    assert batch.map_rows(predictor, parquet, out, resume=True)[:2] == (50, 0)


ENDED = """\
import os, signal, sys
from lucid.cli import main

signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the tests run in the background of a shell
place, sent = os.replace, int(sys.argv.pop(1))

def counted(source, target):
    place(source, target)
    if os.path.basename(target) == "part-000000000002.parquet":
        os.kill(os.getpid(), sent)

os.replace = counted
main()
"""


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGINT], ids=["killed", "interrupted"])
def test_a_process_that_ends_in_the_middle_goes_on_where_it_was(predictor, folder, tmp_path, sent):
    """The command itself, ended when its third part is there: it leaves no half a file behind that would be read."""
    texts = [f"text {row} {'abcdefghij' * 4}" for row in range(100)]
    pq.write_table(pa.table({"id": range(100), "text": texts}), tmp_path / "in.parquet")
    out = tmp_path / "out"
    arguments = ["map", folder, tmp_path / "in.parquet", "-o", out, "--part-rows", "1"]
    command = [sys.executable, "-c", ENDED, str(int(sent)), *arguments]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as job:
        errors = job.communicate(timeout=PATIENCE)[1]
    before = pq.read_table(out).num_rows
    assert 3 <= before < 100
    if sent == signal.SIGINT:
        assert job.returncode == 130
        assert f"{before} of 100 rows are complete in {out}; resume (--resume) goes on with the rest" in errors
    assert batch.map_rows(predictor, tmp_path / "in.parquet", out, resume=True)[:2] == (100, 100 - before)
    table = pq.read_table(out)
    assert table["id"].to_pylist() == list(range(100))
    np.testing.assert_allclose(table["embedding"].to_pylist(), predictor({"text": texts})["embedding"], atol=1e-6)


def test_a_full_disk_leaves_what_is_complete(predictor, parquet, tmp_path):
    out, (soft, hard) = tmp_path / "out", resource.getrlimit(resource.RLIMIT_FSIZE)
    batch.map_rows(predictor, parquet, tmp_path / "first", part_rows=50)
    size = (tmp_path / "first" / "part-000000000000.parquet").stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (size // 2, hard))
    try:
        with pytest.raises(OSError, match="part-000000000000.parquet") as caught:
            batch.map_rows(predictor, parquet, out, part_rows=50)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert caught.value.__notes__ == [f"0 of 50 rows are complete in {out}; resume (--resume) goes on with the rest"]
    assert [path.name for path in out.iterdir()] == ["_lucid_map.json"]
    assert batch.map_rows(predictor, parquet, out, resume=True).computed == 50


def test_a_job_that_differs_cannot_go_on(predictor, folder, parquet, tmp_path):
    source, out = shutil.copy2(parquet, tmp_path / "in.parquet"), tmp_path / "out"
    batch.map_rows(predictor, source, out)
    options = json.loads((out / "_lucid_map.json").read_text())["options"]
    assert options["generation"] == []  # as earlier versions wrote it, whose jobs go on
    other = shutil.copytree(folder, tmp_path / "other")
    (other / "tokenizer_config.json").write_text('{"model_max_length": 5}')
    with pytest.raises(ValueError, match="holds results of a job whose model differed, which this one cannot continue"):
        batch.map_rows(batch.Predictor(other), source, out, resume=True)
    with pytest.raises(
        ValueError, match=r"holds results of a job whose options differed, .* \(max_length: None, now 3\)"
    ):
        batch.map_rows(batch.Predictor(folder, max_length=3), source, out, resume=True)
    with pytest.raises(ValueError, match=r"holds results of a job whose options differed, .* \(prompt: None, now ''\)"):
        batch.map_rows(batch.Predictor(folder, prompt=""), source, out, resume=True)
    pq.write_table(pa.table({"id": range(2), "text": ["a", "b"]}), source)
    with pytest.raises(
        ValueError, match=r"holds results of a job whose input differed, .* \(.*in.parquet is new or has changed\)"
    ):
        batch.map_rows(predictor, source, out, resume=True)


def test_a_model_that_changes_under_the_job_ends_the_job(folder, parquet, tmp_path):
    model = shutil.copytree(folder, tmp_path / "model")
    predictor = batch.Predictor(model)
    batch.map_rows(predictor, parquet, tmp_path / "first")
    (model / "config.json").write_text("{}")
    with pytest.raises(batch.FolderChangedError, match="its files have changed since the job began"):
        batch.map_rows(predictor, parquet, tmp_path / "second")


# Errors before anything is written ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "options", "error", "message"),
    [
        ({"body": ["a"]}, {}, KeyError, "has no column 'text'; its columns are body; name another one .--column"),
        ({"text": ["a"], "embedding": [1]}, {}, ValueError, "the input has a column 'embedding' already"),
        (
            {"text": ["a"]},
            {"id_column": "id"},
            KeyError,
            "has no column 'id'; its columns are text; name another one .--id",
        ),
        (
            {"text": ["a"] * 3, "id": [1, 2, 1]},
            {"id_column": "id"},
            ValueError,
            "row 1 of .*in.parquet and row 3 of .*in.parquet have the same id, 1",
        ),
        (
            {"text": ["a"] * 2, "id": [1, None]},
            {"id_column": "id"},
            ValueError,
            "row 2 of .*in.parquet has no id, expected an id of its own",
        ),
        ({"text": pa.array([], pa.string())}, {}, ValueError, "has no rows"),
        ({"text": ["a"]}, {"engine": "spark"}, ValueError, "engine 'spark' does not exist: choose one of local, ray"),
        ({"text": ["a"]}, {"workers": 2}, ValueError, "workers .* and cluster .* are for the engine ray"),
        ({"text": ["a"]}, {"part_rows": 0}, ValueError, "map_rows: part_rows is 0, expected 1 or more"),
        ({"text": ["a"]}, {"part_rows": 1.5}, TypeError, "map_rows: part_rows is 1.5, expected a whole number"),
        ({"text": ["a"]}, {"engine": "ray", "workers": -1}, ValueError, "map_rows: workers is -1, expected 1 or more"),
    ],
)
def test_wrong_input(predictor, tmp_path, columns, options, error, message):
    pq.write_table(pa.table(columns), tmp_path / "in.parquet")
    with pytest.raises(error, match=message):
        batch.map_rows(predictor, tmp_path / "in.parquet", tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("files", "error", "message"),
    [
        ({}, FileNotFoundError, "there is no file"),
        ({"a.parquet": b"PAR1 and no more"}, ValueError, "a.parquet: is not a Parquet file, or not all of one"),
        ({"a.jsonl": b'{"text": "a"}\n', "b.csv": b"text\na\n"}, ValueError, "expected files of one kind"),
        ({"a.docx": b"a"}, ValueError, "expected files of one kind .*, got .*a.docx"),
        ({"a.jsonl": b'{"body": "a"}\n'}, KeyError, "has no column 'text'; its columns are body"),
        (
            {"a.csv": b"text;label\na;b\n"},
            KeyError,
            "are text;label; save it with commas between the columns, not semi",
        ),
        (
            {"a.csv": b"text\tlabel\na\tb\n"},
            KeyError,
            "commas between the columns, not tabs, which are for names in .tsv",
        ),
        ({"a.csv": b"text|label\na|b\n"}, KeyError, "save it with commas between the columns, not bars"),
        ({"a.csv": b"text,n\ra,1\rb,2\r"}, ValueError, "its lines end with CR alone: save it with LF or CR LF"),
        (
            {"a.csv": b'text,n\na,"b"c\n'},
            ValueError,
            "line 2 is not CSV: .*; double quotation marks within a text, and",
        ),
        ({"a.jsonl": b"\n"}, ValueError, "has no rows"),
        ({"a.csv": b'text\n"a\nb'}, ValueError, "the record at line 2 is not CSV: unexpected end of data"),
        ({"a.csv": b'"text";"n"\n"a";1\n'}, ValueError, "line 1 is not CSV: .*; save it with commas between the colum"),
        ({"a.csv": "text\r\na\r\n".encode("utf-16")}, ValueError, "a.csv: is text in UTF-16, expected UTF-8; save it"),
        ({"a.jsonl": '{"text": "a"}\r\n'.encode("utf-16")}, ValueError, "a.jsonl: is text in UTF-16, expected UTF-8"),
        ({"a.jsonl": b'{"text":\r\n'}, ValueError, "line 1 of .* is not valid JSON: Expecting value at character 11$"),
        ({"a.jsonl": b'{"text": "a", "text": "b"}\n'}, ValueError, "line 1 of .*: the name 'text' occurs twice$"),
        ({"a.csv": b"text,text\na,b\n"}, ValueError, "a.csv: has two columns of the name 'text'; rename one of them"),
        ({"a.csv": b""}, ValueError, "is empty, expected a line with the names of columns"),
        ({"a.csv": b"\ntext\na\n"}, ValueError, "a.csv: begins with an empty line, expected a line with the names"),
        (
            {"Thumbs.db": b"", **{f"{kind}.{kind}": b"" for kind in ("bmp", "gif", "jpg", "png", "tif")}},
            ValueError,
            r"got \S*Thumbs.db; give only such files",
        ),
        pytest.param(
            {"a.csv.zst": b""},
            ModuleNotFoundError,
            "a.csv.zst: needs a package: pip install backports.zstd",
            marks=pytest.mark.skipif(
                "zst" in fsspec.utils.compressions, reason="backports.zstd is there, so it is read"
            ),
        ),
    ],
)
def test_wrong_files(predictor, tmp_path, files, error, message):
    (tmp_path / "in").mkdir()
    for name, content in files.items():
        (tmp_path / "in" / name).write_bytes(content)
    with pytest.raises(error, match=message):
        batch.map_rows(predictor, tmp_path / "in", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_what_is_no_predictor_and_what_are_no_files_is_refused(predictor, folder, tmp_path):
    with pytest.raises(TypeError, match=r"map_rows: expected a Predictor, got a path; give Predictor\('.*'\)"):
        batch.map_rows(folder, tmp_path / "in", tmp_path / "out")
    with pytest.raises(ValueError, match="there are no files; give one or more"):
        batch.map_rows(predictor, [], tmp_path / "out")
    with pytest.raises(TypeError, match="expected paths of files, got ChunkedArray; write the rows to a file"):
        batch.map_rows(predictor, pa.table({"text": ["a"]}), tmp_path / "out")
    with pytest.raises(FileExistsError, match="is a file, expected a folder"):
        batch.map_rows(predictor, tmp_path / "in", os.devnull)


@pytest.mark.parametrize("empty", [b"text,id\n", b"", b"\n"], ids=["CSV", "JSON", "an empty line"])
def test_files_without_rows_among_others_add_none(predictor, tmp_path, empty):
    ending = "csv" if empty[:1] == b"t" else "jsonl"
    row = "text,id\n{0},{0}\n" if ending == "csv" else '{{"text": "{0}", "id": "{0}"}}\n'
    for name in "abcde":
        (tmp_path / f"{name}.{ending}").write_bytes(row.format(name).encode() if name in "bd" else empty)
    batch.map_rows(predictor, tmp_path / f"*.{ending}", tmp_path / "out", id_column="id")
    assert pq.read_table(tmp_path / "out")["id"].to_pylist() == ["b", "d"]
    (tmp_path / f"e.{ending}").write_text(row.format("b"))
    with pytest.raises(ValueError, match=rf"b\.{ending} and line \d of .*e\.{ending} have the same id, 'b'"):
        batch.map_rows(predictor, tmp_path / f"*.{ending}", tmp_path / "again", id_column="id")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("in.csv", "id,text,by\n1,a,Müller\n2,b,Abe\n3,ü,Abe\n".encode("latin-1")),
        (
            "in.jsonl",
            b'{"id":"1","text":"a","by":"M\xfcller"}\n{"id":"2","text":"b","by":"Abe"}\n{"id":"3","text":"\xfc"}',
        ),
        (
            "half.jsonl",
            b'{"id":"1","text":"a","by":["M\\ud800ller"]}\n{"id":"2","text":"b"}\n{"id":"3","text":"\\ud800"}',
        ),
    ],
)
def test_no_column_is_changed_in_silence(predictor, tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    assert batch.map_rows(predictor, tmp_path / name, tmp_path / "out", id_column="id").errors == 2
    rows = pq.read_table(tmp_path / "out").to_pylist()
    assert [row["id"] for row in rows] == ["1", "2", "3"] and "M\ufffdller" in rows[0]["by"]
    assert rows[0]["error"].startswith("the column 'by' is not valid Unicode, ") and "M\ufffdller" in rows[0]["error"]
    assert rows[0]["error"].endswith("; give it in UTF-8") and rows[1]["error"] is None
    assert rows[2]["error"].startswith("the text is not valid Unicode: surrogates not allowed at character 0")


def test_texts_of_parquet_that_are_not_utf_8_are_bad_rows(predictor, tmp_path):
    texts = pa.array([b"a", "ü".encode("latin-1"), None], pa.binary()).view(pa.string())
    for kind, column in {"plain": texts, "dictionary": texts.dictionary_encode()}.items():
        pq.write_table(pa.table({"id": ["1", "2", "3"], "text": column}), tmp_path / f"{kind}.parquet")
        batch.map_rows(predictor, tmp_path / f"{kind}.parquet", tmp_path / kind)
        errors = pq.read_table(tmp_path / kind, columns=["error"])["error"].to_pylist()
        reason = "the text is not valid Unicode: surrogates not allowed at character 0; give it in UTF-8"
        assert errors == [None, reason, "the text is null"]
    with pytest.raises(ValueError, match="row 3 of .*plain.parquet has no text, expected an id of its own"):
        batch.map_rows(predictor, tmp_path / "plain.parquet", tmp_path / "ids", id_column="text")


def test_what_programs_keep_in_folders_is_no_input(predictor, tmp_path):
    folder = tmp_path / "_in"
    for name in ("a/b.csv", "c.csv", ".d.csv", "_e.csv", "a/.ipynb_checkpoints/b.csv", "_temporary/0/f.csv"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"text,name\nx,{name}\n")
    for place, out in ((folder, "out"), (f"{folder}/", "slash"), (folder.as_uri(), "uri")):
        batch.map_rows(predictor, place, tmp_path / out)
        assert pq.read_table(tmp_path / out)["name"].to_pylist() == ["a/b.csv", "c.csv"]


@pytest.mark.parametrize("name", ["in [1]", "in?", "*"])
def test_names_may_have_the_characters_of_patterns(predictor, tmp_path, name):
    folder = tmp_path / name
    folder.mkdir()
    (folder / "rows[a].jsonl").write_text('{"text": "a"}\n')
    assert batch.map_rows(predictor, folder, tmp_path / "out").rows == 1
    assert batch.map_rows(predictor, folder / "rows[a].jsonl", tmp_path / "again").rows == 1
    assert batch.map_rows(predictor, tmp_path / "*" / "rows*l", tmp_path / "pattern").rows == 1


def test_a_provider_that_is_not_there_leaves_no_folder(folder, parquet, tmp_path):
    with pytest.raises(lucid.runtime.ProviderError, match="CUDAExecutionProvider is not in the installed"):
        batch.map_rows(batch.Predictor(folder, providers="cuda"), parquet, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_job_of_this_process_opens_its_model_once(folder, parquet, tmp_path, monkeypatch):
    monkeypatch.setattr("lucid.batch.open_models._open", opened := {})
    batch.map_rows(batch.Predictor(folder, providers="CPUExecutionProvider"), parquet, tmp_path / "out")
    assert [plan.providers for plan in opened] == [("CPUExecutionProvider",)]


def test_addresses_that_lead_to_no_folder_are_named(predictor, parquet, tmp_path, monkeypatch):
    with pytest.raises(FileExistsError, match=f"^{parquet}: is a file, expected a folder; give the name of a new one"):
        batch.map_rows(predictor, parquet, parquet)
    with pytest.raises(ValueError, match="^nowhere://rows: .*nowhere; give a path, or an address that fsspec knows"):
        batch.map_rows(predictor, "nowhere://rows", tmp_path / "out")
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(ModuleNotFoundError, match="^s3://rows: Install s3fs to access S3"):
        batch.map_rows(predictor, "s3://rows", tmp_path / "out")


def test_two_columns_of_one_name_in_parquet(predictor, tmp_path):
    both = pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["text", "text"])
    pq.write_table(both, tmp_path / "in.parquet")
    with pytest.raises(ValueError, match=r"in.parquet: has two columns of the name 'text'; rename one of them"):
        batch.map_rows(predictor, tmp_path / "in.parquet", tmp_path / "out")


def test_files_of_other_columns_than_the_first(predictor, parquet, tmp_path):
    shutil.copy(parquet, tmp_path / "a.parquet")
    pq.write_table(pa.table({"id": ["1"], "text": ["b"]}), tmp_path / "b.parquet")
    with pytest.raises(
        ValueError, match=r"b.parquet: has the columns id string, text string, and .*a.parquet has id int64"
    ):
        batch.map_rows(predictor, tmp_path, tmp_path / "out")


def test_a_folder_with_other_files_is_left_alone(predictor, parquet, tmp_path):
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(FileExistsError, match=r"has other files, such as thesis.txt"):
        batch.map_rows(predictor, parquet, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


# The command ----------------------------------------------------------------------------------------------------------


def test_the_command(folder, parquet, tmp_path, monkeypatch, capsys):
    command = ["map", str(folder), str(parquet), "-o", str(tmp_path / "out"), "--part-rows", "20"]
    assert in_process(command, monkeypatch) == 0
    out, err = capsys.readouterr()
    assert "computed    50 of 50 rows, in" in out and "no result   5 rows; the column error says why" in out and not err
    (tmp_path / "out" / "part-000000000020.parquet").unlink()
    assert in_process([*command, "--resume", "--json"], monkeypatch) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["rows"], shown["computed"], shown["errors"]) == (50, 20, 2)
    assert in_process(command, monkeypatch) == 2
    assert "has the results of an earlier job; resume (--resume) goes on with it" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        ("nothere.csv", [], "there is no file '"),
        ("rows.csv", ["--column", "txt"], "has no column 'txt'; its columns are text; did you mean text? (--column)"),
        ("rows.csv", ["--id", "key"], "has no column 'key'"),
        ("rows.csv", [], "has no tokenizer.json and no GGUF file"),
        ("rows.csv", ["-o", "."], "has other files, such as "),
    ],
)
def test_what_needs_no_model_is_checked_before_a_checkpoint_is_exported(
    rows, options, message, tmp_path, monkeypatch, capsys
):
    monkeypatch.setenv("LUCID_CACHE", str(tmp_path / "caches"))
    source = whole(tmp_path / "checkpoint", "sentences/cls")
    (source / "tokenizer.json").unlink()
    (tmp_path / "rows.csv").write_text("text\na\n")
    assert in_process(["map", str(source), rows, "-o", "out", *options], monkeypatch, tmp_path) > 0
    assert message in capsys.readouterr().err and not list((tmp_path / "caches").rglob("*.onnx"))


def test_a_checkpoint_of_images_reads_a_column_of_images_without_a_tokenizer(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("LUCID_CACHE", str(tmp_path / "caches"))
    source = whole(tmp_path / "checkpoint", "vit/classifier")
    (source / "tokenizer.json").unlink()
    (source / "preprocessor_config.json").write_text('{"size": {"height": 12, "width": 12}}')
    image = io.BytesIO()
    Image.new("RGB", (20, 10), "red").save(image, "PNG")
    pq.write_table(pa.table({"image": [image.getvalue()]}), tmp_path / "rows.parquet")
    command = ["map", str(source), "rows.parquet", "--column", "image"]
    for output in ("exported", "kept"):
        assert in_process([*command, "-o", output], monkeypatch, tmp_path) == 0, capsys.readouterr().err
    assert pq.read_table(tmp_path / "kept")["label"].null_count == 0 and list((tmp_path / "caches").rglob("*.onnx"))
    (source / "preprocessor_config.json").unlink()
    monkeypatch.setenv("LUCID_CACHE", str(tmp_path / "others"))
    assert in_process([*command, "-o", "refused"], monkeypatch, tmp_path) == 2
    assert "preprocessor_config.json" in capsys.readouterr().err and not list((tmp_path / "others").rglob("*.onnx"))


def test_a_log_is_told_now_and_then(folder, parquet, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("lucid.cli.progress._EVERY", 0.0)
    assert (
        in_process(["map", str(folder), str(parquet), "-o", str(tmp_path / "out"), "--part-rows", "40"], monkeypatch)
        == 0
    )
    log = capsys.readouterr().err.splitlines()
    assert log[0].startswith("4 of 50 rows, ") and log[0].endswith(" s left") and log[-1].startswith("50 of 50 rows")


def test_without_ray_the_error_says_what_to_install(predictor, parquet, tmp_path, monkeypatch):
    monkeypatch.setattr("lucid.batch.mapping.find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match=r"needs Ray Data: pip install 'lucid-onnx\[batch,ray\]'"):
        batch.map_rows(predictor, parquet, tmp_path / "out", engine="ray")
