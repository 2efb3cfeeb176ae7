"""Semantic search in a folder of texts: ``make search``, or ``python -m examples.search QUESTION --folder FOLDER``.

MiniLM turns each paragraph into a vector. DuckDB keeps the vectors in one file and finds those that are nearest to the
question. A paragraph is embedded once: later runs embed only what is new.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import duckdb

import lucid
from examples.minilm import checkpoint

QUESTION = "squeaking noise when I stop"
NOTES = Path(__file__).parent / "notes"
Embed: TypeAlias = Callable[[Mapping[str, Sequence[str]]], Mapping[str, Any]]


def passages(folder: Path) -> Iterator[tuple[str, str]]:
    """The name of each file with each of its paragraphs."""
    for file in sorted([*folder.rglob("*.md"), *folder.rglob("*.txt")]):
        for paragraph in file.read_text(encoding="utf-8").split("\n\n"):
            if passage := " ".join(paragraph.split()):
                yield str(file.relative_to(folder)), passage


def embedder(folder: Path) -> Embed:
    """MiniLM as a function of columns, exported at the first call."""
    if not folder.is_dir():
        model = lucid.models.load(checkpoint())
        lucid.layouts.write_folder(model, checkpoint(), folder, layout="onnxruntime", check=False)
    return lucid.batch.Predictor(folder, threads=2)


def update(database: duckdb.DuckDBPyConnection, folder: Path, embed: Embed) -> int:
    """Make the table hold the passages of the folder; how many were embedded."""
    database.execute("CREATE TABLE IF NOT EXISTS passages (file TEXT, passage TEXT, vector FLOAT[384])")
    stored = set(database.execute("SELECT file, passage FROM passages").fetchall())
    current = set(passages(folder))
    new = sorted(current - stored)
    database.begin()
    for gone in stored - current:
        database.execute("DELETE FROM passages WHERE file = ? AND passage = ?", gone)
    if new:
        files, texts = zip(*new, strict=True)
        vectors = embed({"text": texts})["embedding"].tolist()
        database.executemany("INSERT INTO passages VALUES (?, ?, ?)", list(zip(files, texts, vectors, strict=True)))
    database.commit()
    return len(new)


def search(
    database: duckdb.DuckDBPyConnection, question: str, embed: Embed, count: int = 3
) -> list[tuple[float, str, str]]:
    """The passages with the nearest vectors, nearest first: cosine, file, passage."""
    (vector,) = embed({"text": [question]})["embedding"].tolist()
    nearest = (
        "SELECT array_cosine_similarity(vector, ?::FLOAT[384]) AS cosine, file, passage"
        " FROM passages ORDER BY cosine DESC LIMIT ?"
    )
    rows: list[tuple[float, str, str]] = database.execute(nearest, [vector, count]).fetchall()
    return rows


def main() -> None:
    """Embed what is new, and answer the question."""
    parser = argparse.ArgumentParser(prog="python -m examples.search", description="Semantic search in a folder.")
    parser.add_argument("question", nargs="?", default=QUESTION, help=f"[{QUESTION}]")
    parser.add_argument("--folder", type=Path, default=NOTES, help="of .md and .txt files [the notes of this example]")
    parser.add_argument("--store", type=Path, default=Path("build/search"), help="for model and vectors [build/search]")
    asked = parser.parse_args()
    asked.store.mkdir(parents=True, exist_ok=True)
    embed = embedder(asked.store / "minilm")
    with duckdb.connect(asked.store / "vectors.duckdb") as database:
        print(f"{update(database, asked.folder, embed)} new passages embedded")
        print(f"\n{asked.question}")
        for cosine, file, passage in search(database, asked.question, embed):
            print(f"{cosine:6.2f}  {file}: {passage[:90]}")


if __name__ == "__main__":
    main()
