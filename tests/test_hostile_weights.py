"""Every hostile weights file ends in a clear error, within a second and below 100 MB."""

from __future__ import annotations

import re
import runpy
import time
from pathlib import Path

import pytest

from lucid import weights

CASES = runpy.run_path(str(Path(__file__).parent.parent / "tools" / "hostile_weights.py"))["CASES"]
STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")
LIMIT = 100 << 20


def resident(kind: str) -> int:
    """Bytes of memory: VmRSS now, or VmHWM at most since the last reset (Linux only)."""
    found = re.search(rf"{kind}:\s+(\d+) kB", STATUS.read_text())
    assert found is not None
    return int(found[1]) * 1024


@pytest.mark.parametrize("name", CASES)
def test_a_hostile_file_ends_in_a_clear_error(name, tmp_path):
    path = CASES[name][1](tmp_path)
    if RESET.exists():
        RESET.write_text("5")  # resets the peak
        before = resident("VmRSS")
    for _ in range(3):  # the best of three: other tests run beside this one
        start = time.process_time()
        with pytest.raises(weights.WeightsError) as caught:
            weights.load(path)
        seconds = time.process_time() - start
        if seconds < 1:
            break
    if RESET.exists():
        assert resident("VmHWM") - before < LIMIT
    assert seconds < 1
    message = str(caught.value)
    assert message.isprintable() and len(message) < 1000, message
    assert path.name in message and "; " in message, "names the file, and says what to do"
    assert not (tmp_path / "EXECUTED").exists() and not Path("EXECUTED").exists()


def test_the_corpus_is_large():
    assert len(CASES) >= 60


@pytest.mark.parametrize("line", ["torch.load(", "save_file("])
@pytest.mark.parametrize("name", ["pickle_bin", "torch_zip", "folder_of_pickles", "index_shard_pickle"])
def test_a_pickle_is_refused_with_the_way_to_convert_it(name, line, tmp_path):
    with pytest.raises(weights.WeightsError, match=re.escape(line)):
        weights.load(CASES[name][1](tmp_path))
