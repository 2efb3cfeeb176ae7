"""Plant faults into Lucid, and see whether the suite's random models find each.

    python -m tools.planted_faults

Each fault (`tests/fuzz/planted.py`) is planted in a separate process, which runs the models of `tests/fuzz/test_fuzz.py`
in order until one fails that passes without the fault. `--record` stores its number, and `tests/fuzz/test_planted.py`
runs that model.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.fuzz.planted import FAULTS
from tests.fuzz.planting import Fault, fingerprint, found_by
from tests.fuzz.suite import MODELS

FINDS = Path(__file__).parents[1] / "tests" / "fuzz" / "finds.json"


def main() -> int:
    """Plant every fault; the exit status says whether one was not found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help=f"write {FINDS.name}")
    parser.add_argument("--only", default="", help="faults whose name contains this")
    parser.add_argument("--processes", type=int, default=2, help="how many at once (default: 2)")
    parser.add_argument("--search", help=argparse.SUPPRESS)  # in the process that searches: a file of fingerprints
    options = parser.parse_args()
    faults = [fault for fault in FAULTS if options.only in fault.name]
    if options.search:
        known = json.loads(Path(options.search).read_text(encoding="utf-8"))
        print(next((n for n, right in enumerate(known) if found_by(faults[0], n, right)), "none"))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        known = Path(folder) / "fingerprints.json"
        known.write_text(json.dumps([fingerprint(number) for number in range(MODELS)]), encoding="utf-8")
        with ThreadPoolExecutor(options.processes) as pool:
            numbers = list(pool.map(lambda fault: search(fault, known), faults))
    print(f"\n{sum(number is not None for number in numbers)} of {len(faults)} found in {MODELS} models")
    if options.record:
        table = json.loads(FINDS.read_text(encoding="utf-8"))
        table |= {fault.name: number for fault, number in zip(faults, numbers, strict=True)}
        kept = {fault.name: table[fault.name] for fault in FAULTS if table.get(fault.name) is not None}
        FINDS.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    return 1 if None in numbers else 0


def search(fault: Fault, known: Path) -> int | None:
    """The number of the first model that finds a fault, in a fresh process; None if none does."""
    start = time.monotonic()
    command = [sys.executable, "-m", "tools.planted_faults", "--search", str(known), "--only", fault.name]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    printed = done.stdout.strip()
    if done.returncode or not printed:
        raise RuntimeError(f"{fault.name}: the search failed:\n{done.stderr[-2000:]}")
    print(f"model {printed:>5}  {time.monotonic() - start:6.1f} s  {fault.name}", flush=True)
    return None if printed == "none" else int(printed)


if __name__ == "__main__":
    sys.exit(main())
