"""Plant faults into Lucid, and see whether the suite's random models find each.

    python -m tools.planted_faults

Each fault (`tests/fuzz/planted.py`) is planted in a process of its own, which goes through the models of
`tests/fuzz/test_fuzz.py` in their order until one fails that passes without the fault. `--record` writes down which, for
`tests/fuzz/test_planted.py` to look at first.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

from tests.fuzz.planted import FAULTS, Fault, found_by
from tests.fuzz.suite import MODELS

FOUND = Path(__file__).parents[1] / "tests" / "fuzz" / "found.json"


def main() -> int:
    """Plant every fault; the exit status says whether one was not found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help=f"write {FOUND.name}")
    parser.add_argument("--only", default="", help="faults whose name contains this")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)  # in the process that searches
    options = parser.parse_args()
    faults = [fault for fault in FAULTS if options.only in fault.name]
    if options.here:
        return _search(*faults)
    found = json.loads(FOUND.read_text(encoding="utf-8")) if FOUND.exists() else {}
    missed = 0
    for fault in faults:
        start = time.monotonic()
        command = [sys.executable, "-m", "tools.planted_faults", "--here", "--only", fault.name]
        number = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
        seconds = time.monotonic() - start
        if number.isdigit():
            found[fault.name] = int(number)
            print(f"found by model {number:>5}, {seconds:6.1f} s  {fault.name}", flush=True)
        else:
            missed += 1
            found.pop(fault.name, None)
            print(f"NOT FOUND in {MODELS} models, {seconds:6.1f} s  {fault.name}", flush=True)
    print(f"\n{len(faults) - missed} of {len(faults)} found")
    if options.record:
        known = {fault.name: found[fault.name] for fault in FAULTS if fault.name in found}
        FOUND.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
    return 1 if missed else 0


def _search(fault: Fault) -> int:
    number = next((n for n in range(MODELS) if found_by(fault, n)), None)
    print("" if number is None else number)
    return 0


if __name__ == "__main__":
    sys.exit(main())
