"""``python -m models.<name>`` does something real and short with what is at hand."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest

PROGRAMS = sorted(path.stem for path in (Path(__file__).parents[2] / "models").glob("[a-z]*.py"))


@pytest.mark.parametrize("name", PROGRAMS)
def test_it_runs_and_eager_and_exported_agree(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [name])
    monkeypatch.delitem(sys.modules, f"models.{name}", raising=False)
    runpy.run_module(f"models.{name}", run_name="__main__", alter_sys=True)
    printed = capsys.readouterr().out
    differences = [float(text) for text in re.findall(r"differ\D* (\d\.\de[+-]\d\d)", printed)]
    assert differences, printed
    assert max(differences) < 2e-5
    assert 1 <= len(printed.splitlines()) <= 10


def test_every_model_is_there() -> None:
    assert PROGRAMS == ["bert", "clip", "delightful_tts", "gpt2", "llama", "t5", "transformer", "vit", "whisper"]
