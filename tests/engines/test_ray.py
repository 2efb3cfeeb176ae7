"""`lucid map --engine ray`: the files of the engine local, whatever dies on the way."""

from __future__ import annotations

import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import ray
import ray.data

from lucid.batch import FolderChangedError, Predictor, map_rows
from tests.engines.conftest import TEXTS
from tests.engines.faulty import Faulty, full, killed
from tests.waiting import until

CPUS = 2


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """A cluster that several jobs share."""
    context = ray.init("local", num_cpus=CPUS, include_dashboard=False, log_to_driver=False)
    yield context.address_info["address"]
    ray.shutdown()


def check(out, expected) -> None:
    table = pq.read_table(out)
    assert table["id"].to_pylist() == list(range(len(TEXTS))), "nothing is lost, nothing is twice"
    for row, vector in enumerate(table["embedding"].to_pylist()):
        assert (vector is None) == (TEXTS[row] is None)
        if vector is not None:
            np.testing.assert_allclose(vector, expected[row], atol=1e-6)
    assert table["error"].to_pylist() == [None if text else "the text is null" for text in TEXTS]


def test_the_files_are_those_of_the_engine_local(cluster, folder, parquet, expected, tmp_path):
    predictor = Predictor(folder)
    assert map_rows(predictor, parquet, tmp_path / "ray", engine="ray", part_rows=10)[:3] == (120, 120, 12)
    map_rows(predictor, parquet, tmp_path / "local", part_rows=10)
    check(tmp_path / "ray", expected)
    for path in (tmp_path / "local").glob("part-*"):
        assert pq.read_table(path).equals(pq.read_table(tmp_path / "ray" / path.name))


def test_actors_take_all_cores_and_share_the_parts(cluster, folder, parquet, expected, tmp_path):
    (tmp_path / "marks").mkdir()
    predictor: Any = Faulty(Predictor(folder), tmp_path / "marks", 1 << 30, killed)
    map_rows(predictor, parquet, tmp_path / "out", engine="ray", part_rows=2)
    assert len({path.name.split("-")[0] for path in (tmp_path / "marks").iterdir()}) == CPUS
    check(tmp_path / "out", expected)


def test_an_actor_that_is_killed_loses_nothing(cluster, folder, parquet, expected, tmp_path):
    (tmp_path / "marks").mkdir()
    predictor: Any = Faulty(Predictor(folder), tmp_path / "marks", 3, killed)
    done = map_rows(predictor, parquet, tmp_path / "out", engine="ray", part_rows=10)
    assert (tmp_path / "marks" / "failed").exists() and done[:3] == (120, 120, 12)
    check(tmp_path / "out", expected)


def test_an_error_in_an_actor_is_the_error_of_the_job(cluster, folder, parquet, expected, tmp_path):
    (tmp_path / "marks").mkdir()
    predictor: Any = Faulty(Predictor(folder), tmp_path / "marks", 3, full)
    with pytest.raises(OSError, match="the disk, quota or file size limit is full") as caught:
        map_rows(predictor, parquet, tmp_path / "out", engine="ray", part_rows=10)
    (note,) = caught.value.__notes__
    assert re.match(r"\d+ of 120 rows are complete in ", note)
    assert note.endswith(f"{tmp_path / 'out'}; resume (--resume) goes on with the rest")
    assert map_rows(predictor, parquet, tmp_path / "out", engine="ray", resume=True).computed < 120
    check(tmp_path / "out", expected)


def test_a_folder_that_changes_ends_the_job(cluster, folder, parquet, tmp_path):
    model = shutil.copytree(folder, tmp_path / "model")
    predictor = pickle.loads(pickle.dumps(Predictor(model)))
    predictor.predict([("a",)])
    (model / "config.json").write_text("{}")
    with pytest.raises(FolderChangedError, match="its files have changed since the job began"):
        map_rows(predictor, parquet, tmp_path / "out", engine="ray")


def test_more_workers_than_cores_are_refused(cluster, folder, parquet, tmp_path):
    with pytest.raises(ValueError, match=r"3 workers of 1 CPU each do not fit: .* has 2; give at most 2 workers"):
        map_rows(Predictor(folder), parquet, tmp_path / "out", engine="ray", workers=3)
    with pytest.raises(ValueError, match=r"2 workers of 2 CPU each do not fit: .* give at most 1 worker"):
        map_rows(Predictor(folder, threads=2), parquet, tmp_path / "out", engine="ray", workers=2)
    assert not (tmp_path / "out").exists()


def test_a_pipeline_of_rays_own_takes_the_predictor(cluster, folder, parquet, expected):
    rows = ray.data.read_parquet(str(parquet)).repartition(4)
    pool = ray.data.ActorPoolStrategy(size=CPUS)
    dataset = rows.map_batches(Predictor, fn_constructor_args=(str(folder),), batch_size=50, num_cpus=0.5, compute=pool)
    results = sorted(dataset.take_all(), key=lambda row: row["id"])
    np.testing.assert_allclose(np.stack([row["embedding"] for row in results]), expected, atol=1e-6)
    assert [row["error"] for row in results] == [None if text else "the text is null" for text in TEXTS]


def test_a_driver_that_is_killed_goes_on_where_it_was(folder, parquet, expected, tmp_path):
    """Without a cluster of one's own: the command starts one, and another engine goes on."""
    out = tmp_path / "out"
    command = [sys.executable, "-m", "lucid", "map", folder, parquet, "-o", out, "--part-rows", "1"]
    with subprocess.Popen([*command, "--engine", "ray"], start_new_session=True) as driver:
        until(lambda: len(list(out.glob("part-*"))) >= 3)
        os.kill(driver.pid, signal.SIGKILL)
    before = len(list(out.glob("part-*")))
    assert 3 <= before < 120
    summary = subprocess.run([*command, "--resume"], capture_output=True, text=True, check=True).stdout
    match = re.search(r"computed +(\d+) of 120 rows, (\d+) by earlier runs", summary)
    assert match is not None and int(match[1]) + int(match[2]) == 120
    check(out, expected)
