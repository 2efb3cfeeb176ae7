"""These tests run jobs on the engines of others: `make test-engines`, in an environment of its own. Elsewhere they are
not collected.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import lucid
from tests.batch.folders import exported

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

collect_ignore_glob = [] if find_spec("ray") and find_spec("daft") and find_spec("dask") else ["test_*.py"]

TEXTS = [None if row % 10 == 7 else f"text {'abcdefghijkl'[: row % 12]} and more" for row in range(120)]


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return exported(tmp_path_factory.mktemp("sentences"), "sentences/cls")


@pytest.fixture(scope="session")
def parquet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path_factory.mktemp("input") / "in.parquet"
    pq.write_table(pa.table({"id": range(len(TEXTS)), "text": TEXTS}), path)
    return path


@pytest.fixture(scope="session")
def expected(folder: Path) -> Any:
    """The embeddings."""
    return lucid.batch.Predictor(folder)({"text": TEXTS})["embedding"]
