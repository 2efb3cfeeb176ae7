"""The long versions of the reliability tests; they print the figures of docs/reliability.md.

python -m tools.soak                      all of them, about ten minutes; 8 GB of disk, 6 GB of memory
python -m tools.soak kills --rounds 100   one of them
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np

import lucid
from lucid import Tensor, nn
from lucid.core.graph.types import Array
from lucid.export import to_onnx
from lucid.runtime import Session
from tests.test_reliability import KILLED, LARGE, ROOT


def python(code: str, *arguments: object) -> str:
    """Run code in a new interpreter; returns its output."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


def resident(kind: str = "VmRSS") -> float:
    """MB of memory: VmRSS is the current value, VmHWM the peak since the last reset."""
    line = next(
        line for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines() if line.startswith(kind)
    )
    return int(line.split()[1]) / 1024


def kills(options: argparse.Namespace) -> None:
    """Kill exports of 130 MB at random moments, each over an earlier model."""
    for external in (False, True):
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            output = python(KILLED, Path(folder, "model.onnx"), external, options.rounds, 32)
        killed, seen, left = json.loads(output)
        where = "side file" if external else "one file"
        print(
            f"{where}: {options.rounds} exports, {killed} killed; complete each time, {seen}; left at the end: {left}"
        )


def large(options: argparse.Namespace) -> None:
    """Export a model of several GB, and run it."""
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        path = Path(folder, "large.onnx")
        start = time.perf_counter()
        extra, before = map(float, python(LARGE, 0, options.megabytes, path).split())
        seconds = time.perf_counter() - start
        peak = (before + extra) / options.megabytes
        print(f"{options.megabytes} MB exported in {seconds:.0f} s with {extra:.0f} MB beyond the weights and Python:")
        print(f"peak {peak:.2f} x the weights, all of Python's and NumPy's memory included")
        start = time.perf_counter()
        session = Session(path)
        x = np.zeros((1, 4096), np.float32)
        x[0, 5] = 1
        last = list(session.run({"x": x}).values())[-1]
        count = options.megabytes // 16
        expected = count + np.arange(1024, dtype=np.float32) * np.float32(1e-3)
        assert np.allclose(last[0], expected), "the last weight is not the one that was written"
        print(f"checked, loaded and run in {time.perf_counter() - start:.0f} s")


def threads(options: argparse.Namespace) -> None:
    """One session, many threads, random sizes, for a minute."""
    model = nn.MultiHeadAttention(64, 8)
    session = Session(to_onnx(model, ("N", "L", 64)), threads=1)
    generator = np.random.default_rng(0)
    inputs: list[Array] = [
        generator.standard_normal((n, l, 64)).astype(np.float32) for n in (1, 2, 5) for l in (1, 2, 7, 33, 64)
    ]
    expected = [model(Tensor(x)).numpy() for x in inputs]
    end = time.monotonic() + options.seconds
    runs, wrong = [0] * options.threads, [0] * options.threads
    memory: list[float] = []

    def work(number: int) -> None:
        order = np.random.default_rng(number)
        while time.monotonic() < end:
            i = int(order.integers(len(inputs)))
            runs[number] += 1
            wrong[number] += not np.allclose(session.run({"query": inputs[i]})["output"], expected[i], atol=1e-5)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(options.threads)]
    for worker in workers:
        worker.start()
    while any(worker.is_alive() for worker in workers):
        time.sleep(options.seconds / 12)
        memory.append(resident())
    for worker in workers:
        worker.join()
    print(f"{options.threads} threads, {options.seconds} s: {sum(runs)} runs, {sum(wrong)} wrong answers")
    settled = memory[len(memory) // 4 :]
    print(
        f"memory after a quarter of the time {settled[0]:.1f} MB, at the end {settled[-1]:.1f} MB, at most {max(memory):.1f} MB"
    )


def exports(options: argparse.Namespace) -> None:
    """A thousand exports in one process, and as many failed traces."""
    model = nn.TransformerEncoderLayer(64, 4, 128)

    def export() -> None:
        to_onnx(model, ("N", "L", 64))

    def failing() -> None:
        try:
            to_onnx(lambda x: x if x.sum() > 0 else -x, ("N",))
        except TypeError:
            pass
        else:
            raise AssertionError("a branch on a traced value must fail")

    measured: list[tuple[str, Callable[[], None]]] = [("exports", export), ("failed exports", failing)]
    for name, work in measured:
        for _ in range(50):
            work()
        gc.collect()
        before, blocks = resident(), sys.getallocatedblocks()
        for _ in range(options.exports):
            work()
        gc.collect()
        blocks, grown = sys.getallocatedblocks() - blocks, resident() - before
        tracemalloc.start()
        first = tracemalloc.get_traced_memory()[0]
        for _ in range(options.exports):
            work()
        gc.collect()
        traced = tracemalloc.get_traced_memory()[0] - first
        tracemalloc.stop()
        print(f"{options.exports} {name}: the process grew by {grown:.1f} MB, Python's blocks by {blocks};")
        print(f"  {options.exports} more: what tracemalloc counts grew by {traced / 1024:.1f} KB")


def sessions(options: argparse.Namespace) -> None:
    """Sessions created and dropped."""
    exported = to_onnx(nn.TransformerEncoderLayer(64, 4, 128), ("N", "L", 64))
    x = lucid.randn(2, 8, 64)
    for _ in range(50):
        Session(exported)(x)
    gc.collect()
    before = resident()
    for _ in range(options.exports // 2):
        Session(exported)(x)
    gc.collect()
    print(f"{options.exports // 2} sessions made, run and dropped: the process grew by {resident() - before:.1f} MB")


ROWS = """
import json, sys
from pathlib import Path
import numpy as np, pyarrow as pa, pyarrow.parquet as pq
from lucid.batch import Predictor, map_rows
from tests.batch.folders import exported
from tools.soak import resident

class Constant:
    '''Computes nothing, so that the memory is that of reading and writing.'''
    def __init__(self, predictor):
        self.plan, self.inputs, self.part_rows = predictor.plan, predictor.inputs, predictor.part_rows
        self.columns = predictor.columns
    def predict(self, rows):
        width = self.columns["embedding"].width
        return {"embedding": np.random.rand(len(rows), width).astype(np.float32), "error": np.full(len(rows), None)}

folder, kind, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
source = folder / f"in-{count}.{kind}"
texts = (f"{row} " + "some words of a text that is not short " * 5 for row in range(count))
if kind == "parquet":
    pq.write_table(pa.table({"text": list(texts)}), source, row_group_size=count)
else:
    with source.open("w") as file:
        file.writelines(json.dumps({"text": text}) + "\\n" for text in texts)
predictor = Constant(Predictor(exported(folder / f"{kind}-{count}", "sentences/cls")))
Path("/proc/self/clear_refs").write_text("5")
before = resident()
map_rows(predictor, source, folder / f"out-{kind}-{count}")
print(f"{resident('VmHWM') - before:.0f}")
"""


def rows(options: argparse.Namespace) -> None:
    """The memory of `lucid map` does not grow with the input, which is one row group here."""
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        for kind in ("parquet", "jsonl"):
            for count in (20_000, 200_000):
                (Path(folder) / f"{kind}-{count}").mkdir()
                peak = python(ROWS, folder, kind, count).strip()
                print(f"{count:,} rows of {kind}: a peak of {peak} MB above the start")


PARTS = {"kills": kills, "large": large, "threads": threads, "exports": exports, "sessions": sessions, "rows": rows}


def main() -> None:
    """Run one part, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", nargs="?", choices=PARTS, help="which (default: all)")
    parser.add_argument("--rounds", type=int, default=50, help="exports to kill, of each kind")
    parser.add_argument("--megabytes", type=int, default=2560, help="the weights of the large model")
    parser.add_argument("--threads", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long the threads run")
    parser.add_argument("--exports", type=int, default=1000)
    parser.add_argument("--folder", help="where the files go (default: the system's temporary folder)")
    options = parser.parse_args()
    for name, part in PARTS.items():
        if options.part in (None, name):
            print(f"\n{name}: {part.__doc__}", flush=True)
            part(options)


if __name__ == "__main__":
    main()
