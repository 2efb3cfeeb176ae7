"""The gallery: each project is small, has a page that is listed, and a command that exists.

Transcription is run here, a chat in tests/test_cli_text.py, the others in tests/consumers/test_gallery.py.
"""

from __future__ import annotations

import re
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest

if find_spec("tokenizers") is None:
    pytest.skip("needs the extra demo", allow_module_level=True)

from examples.transcription import __main__ as transcription
from lucid.generation.chat import load_tokenizer
from lucid.models.whisper import Segment, Whisper, WhisperTokenizer, read_wav, transcribe
from tests.models import goldens
from tests.pages import blocks
from tools import setup

ROOT = Path(__file__).parents[1]
EXAMPLES, PAGE = ROOT / "examples", ROOT / "docs" / "gallery.md"
PROJECTS = sorted(readme.parent for readme in EXAMPLES.glob("*/README.md"))


def test_the_page_lists_every_project() -> None:
    assert len(PROJECTS) == 5
    listed = re.findall(r"^\| \[.*?\]\(\.\./examples/(\w+)/README\.md\) \| `(.*?)`", PAGE.read_text("utf-8"), re.M)
    assert {EXAMPLES / name for name, _ in listed} == set(PROJECTS)
    for name, command in listed:
        first = next(block for block in blocks(EXAMPLES / name / "README.md") if block.language == "sh")
        assert shutil.which("sh") is None or first.text.strip().replace('"', "") == command


@pytest.mark.parametrize("project", PROJECTS, ids=lambda project: project.name)
def test_a_project_is_one_command_and_less_than_a_hundred_lines(project: Path) -> None:
    code = [file for file in project.rglob("*") if file.suffix in (".py", ".js", ".yaml") or file.name == "Dockerfile"]
    assert sum(len(file.read_text("utf-8").splitlines()) for file in code) < 100
    text = (project / "README.md").read_text("utf-8")
    tasks = set(re.findall(r"\bmake ([a-z]+)", "\n".join(block.text for block in blocks(project / "README.md"))))
    assert tasks <= setup.TASKS.keys()
    assert [setup.TASKS[name].runs for name in tasks] in ([((("-m", f"examples.{project.name}"),))], [])
    for target in re.findall(r"\]\(([^)\s#]+)", text):
        assert target.startswith("http") or (project / target).exists(), target


def test_the_page_of_docker_shows_the_files_of_the_project() -> None:
    shown = {block.title: block.text for block in blocks(ROOT / "docs" / "howto" / "docker.md") if "/" in block.title}
    assert shown.keys() == {"examples/service/Dockerfile", "examples/service/compose.yaml"}
    for name, text in shown.items():
        assert text == (ROOT / name).read_text(encoding="utf-8")


def test_subtitles_are_what_whisper_hears_in_numpy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a model that is in a cache of the hub."""
    pytest.importorskip("huggingface_hub", reason="needs the extra hub")
    folder, home, commit = goldens.folder("transcription"), tmp_path / "models--some-one--whisper", "0" * 40
    (home / "refs").mkdir(parents=True)
    (home / "refs" / "main").write_text(commit)
    shutil.copytree(folder, home / "snapshots" / commit)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    recording = Path(shutil.copy(folder / "sound.wav", tmp_path))
    monkeypatch.setattr("sys.argv", ["transcription", str(recording), "--model", "some-one/whisper"])
    transcription.main()
    model = Whisper.from_pretrained(folder)
    tokenizer = WhisperTokenizer.from_pretrained(folder, load_tokenizer(folder).decode)
    heard = transcribe(model, tokenizer, read_wav(recording)).segments
    assert heard
    assert (tmp_path / "sound.srt").read_text(encoding="utf-8") == transcription.subtitles(heard)


def test_a_recording_or_model_that_is_not_there_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = goldens.folder("transcription")
    for words, says in (
        ([tmp_path / "none.wav", "--model", folder], "none.wav"),
        ([folder / "config.json", "--model", folder], "config.json"),
        ([folder / "sound.wav", "--model", tmp_path / "none"], "there is no file "),
    ):
        monkeypatch.setattr("sys.argv", ["transcription", *map(str, words)])
        with pytest.raises(SystemExit, match="1"):
            transcription.main()
        error = capsys.readouterr().err
        assert error.startswith("python -m examples.transcription: ") and says in error
        assert "Errno" not in error and error.count("\n") == 1


def test_subtitles_have_the_form_of_subrip() -> None:
    segments = [Segment(0.0, 1.5, "One.", []), Segment(3661.25, 3662.0, "Two.", [])]
    assert transcription.subtitles(segments) == (
        "1\n00:00:00,000 --> 00:00:01,500\nOne.\n\n2\n01:01:01,250 --> 01:01:02,000\nTwo.\n"
    )
