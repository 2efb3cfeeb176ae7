"""Models of Hugging Face's hub by name: what is downloaded, where it is kept, and what errors say.

`huggingface_hub` itself downloads, from a server on this machine that speaks the three routes that it needs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

import lucid
from lucid.files.hub import folder_name, hub_name, local_checkpoint, published_name
from lucid.models.bert import BertForMaskedLM
from tests.console import in_process
from tests.models import goldens

NAME = "some-one/tiny-bert"
COMMIT, OLDER = "a" * 40, "b" * 40
CHECKPOINT = goldens.folder("bert/masked_lm")


class Hub(ThreadingHTTPServer):
    """Revisions of one model, each with its files; `asked` are the files that were downloaded."""

    def __init__(self, revisions: Mapping[str, Mapping[str, bytes]], branches: Mapping[str, str]) -> None:
        super().__init__(("127.0.0.1", 0), Routes)
        self.revisions, self.branches, self.asked = revisions, branches, list[str]()

    def files(self, revision: str) -> tuple[str, Mapping[str, bytes]] | None:
        commit = self.branches.get(revision, revision)
        return (commit, self.revisions[commit]) if commit in self.revisions else None


class Routes(BaseHTTPRequestHandler):
    server: Hub

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = self.path.partition("?")[0].removeprefix("/")
        if path.startswith(f"api/models/{NAME}"):
            kind, _, rest = path.removeprefix(f"api/models/{NAME}").strip("/").partition("/")
            stored = self.server.files(rest if kind else "main")
            if stored is None:
                self.answer(404, b"{}", {"X-Error-Code": "RevisionNotFound"})
                return
            commit, files = stored
            tree = [
                {"type": "file", "path": name, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}
                for name, data in files.items()
            ]
            siblings = [{"rfilename": name} for name in files]
            about = {"id": NAME, "modelId": NAME, "sha": commit, "siblings": siblings, "tags": []}
            self.answer(200, json.dumps(tree if kind == "tree" else about).encode())
        elif path.startswith(f"{NAME}/resolve/"):
            revision, _, name = path.removeprefix(f"{NAME}/resolve/").partition("/")
            commit, files = self.server.files(revision) or ("", {})
            if self.command == "GET":
                self.server.asked.append(name)
            etag = hashlib.sha1(files[name]).hexdigest()
            self.answer(200, files[name], {"X-Repo-Commit": commit, "ETag": f'"{etag}"'})
        else:
            self.answer(401, b"{}", {"X-Error-Code": "RepoNotFound"})

    def answer(self, status: int, body: bytes, headers: Mapping[str, str] = {}) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), "Content-Type": "application/json", **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)


def checkpoint(eps: float) -> dict[str, bytes]:
    """The files of a checkpoint with safetensors, and what else such repositories hold."""
    options = json.loads((CHECKPOINT / "config.json").read_text())
    return {
        "config.json": json.dumps({**options, "layer_norm_eps": eps}).encode(),
        "model.safetensors": (CHECKPOINT / "model.safetensors").read_bytes(),
        "vocab.txt": b"[PAD]\n",
        "README.md": b"---\nlicense: mit\n---\n",
        "pytorch_model.bin": b"a pickle",
        "onnx/model.onnx": b"an ONNX file",
        "modeling_tiny.py": b"raise SystemExit",
        "tf_model.h5": b"TensorFlow's",
    }


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub that the library asks, and an empty cache."""
    constants = pytest.importorskip("huggingface_hub.constants", reason="needs the extra hub")
    revisions = {COMMIT: checkpoint(1e-12), OLDER: checkpoint(0.5)}
    server = Hub(revisions, {"main": COMMIT, "v1": OLDER})
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    address = f"http://127.0.0.1:{server.server_port}"
    # The library reads its variables when it is imported, so they are set where it keeps them.
    monkeypatch.setattr(constants, "ENDPOINT", address)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", address + "/{repo_id}/resolve/{revision}/{filename}")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setenv("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    monkeypatch.chdir(tmp_path)
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def test_configs_and_safetensors_are_downloaded_once(hub):
    path = local_checkpoint(NAME)
    files = {file.name for file in path.rglob("*") if file.is_file()}
    assert files == {"config.json", "model.safetensors", "vocab.txt", "README.md"}
    assert path.parts[-4:-1] == ("cache", "models--some-one--tiny-bert", "snapshots")
    assert (published_name(path), folder_name(path)) == (NAME, "tiny-bert")
    before = len(hub.asked)
    assert local_checkpoint(NAME) == path
    assert len(hub.asked) == before


def test_a_pickle_is_downloaded_where_there_is_nothing_else(hub):
    files = dict(hub.revisions[COMMIT])
    del files["model.safetensors"]
    hub.revisions[COMMIT] = {
        **files,
        "2_Dense/config.json": b"{}",
        "2_Dense/model.safetensors": b"",
        "1_Pooling/config.json": b"{}",
    }
    path = local_checkpoint(NAME)
    assert (path / "pytorch_model.bin").exists()
    assert (path / "2_Dense" / "model.safetensors").exists()


def test_weights_of_sentence_transformers_modules_are_downloaded(hub):
    places = ("0_StaticEmbedding", "query_0_SparseStaticEmbedding", "document_0_MLMTransformer", "onnx")
    hub.revisions[COMMIT] |= {f"{place}/model.safetensors": b"" for place in places}
    path = local_checkpoint(NAME)
    assert sorted(file.parent.name for file in path.glob("*/model.safetensors")) == sorted(places[:3])


def test_a_revision_and_what_is_here_under_the_name(hub, tmp_path):
    assert local_checkpoint(f"{NAME}@v1").name == OLDER
    assert local_checkpoint(Path(f"{NAME}@{OLDER}")).name == OLDER
    (tmp_path / NAME).mkdir(parents=True)
    assert local_checkpoint(NAME) == Path(NAME)


def test_one_file_of_several_for_gguf(hub):
    hub.revisions[COMMIT]["tiny-q4.gguf"] = b"GGUF"
    hub.revisions[COMMIT]["tiny-q8.gguf"] = b"GGUF"
    path = local_checkpoint(f"{NAME}/tiny-q4.gguf")
    assert path.name == "tiny-q4.gguf"
    assert "tiny-q8.gguf" not in hub.asked


def test_every_entry_takes_the_name(hub, tmp_path, monkeypatch, capsys):
    model = lucid.models.load(NAME)
    other = BertForMaskedLM.from_pretrained(f"{NAME}@v1")
    assert (model.config.eps, other.config.eps) == (1e-12, 0.5)
    lucid.layouts.write_folder(model, NAME, tmp_path / "folder", layout="onnxruntime", check=False)
    assert "# tiny-bert for onnxruntime" in (tmp_path / "folder" / "README.md").read_text()
    assert in_process(["export", NAME, "--revision", "v1"], monkeypatch) == 0
    assert "written     tiny-bert.onnx" in capsys.readouterr().out
    assert in_process(["verify", f"{NAME}@v1", "tiny-bert.onnx"], monkeypatch) == 0
    assert in_process(["verify", NAME, "tiny-bert.onnx"], monkeypatch) == 1


def test_offline_mode_uses_the_cache(hub, monkeypatch):
    path = local_checkpoint(NAME)
    monkeypatch.setattr(import_module("huggingface_hub.constants"), "HF_HUB_OFFLINE", True)
    assert local_checkpoint(NAME) == path
    with pytest.raises(FileNotFoundError, match=r"other/model is not in its cache .*HF_HUB_OFFLINE is set"):
        local_checkpoint("other/model")


def test_errors_say_what_the_hub_lacks(hub, monkeypatch, capsys, tmp_path):
    with pytest.raises(FileNotFoundError, match="it has no model no/such, or only for those who log in"):
        local_checkpoint("no/such")
    with pytest.raises(FileNotFoundError, match=f"{NAME} has no revision v9"):
        local_checkpoint(f"{NAME}@v9")
    (tmp_path / "folder").mkdir()
    assert in_process(["export", "folder", "--revision", "v1"], monkeypatch) == 2
    assert "SOURCE 'folder' is no name of Hugging Face's hub" in capsys.readouterr().err
    assert in_process(["export", NAME, "--adapter", "no/adapter:0.5"], monkeypatch) == 2
    assert "--adapter no/adapter:0.5: there is no file or folder 'no/adapter' here" in capsys.readouterr().err


def test_without_the_library_the_error_has_the_commands(monkeypatch: Any) -> None:
    monkeypatch.setattr(lucid.files.hub, "find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError) as caught:
        local_checkpoint(f"{NAME}@v1")
    assert "pip install 'lucid-onnx[hub]'" in str(caught.value)
    assert f"hf download {NAME} --revision v1 --local-dir tiny-bert" in str(caught.value)


@pytest.mark.parametrize(
    "source",
    [
        *("bert", "a/b/c", "folder/net.onnx", "../a", "/a/b", "./a/b", "a/b/", "a b/c", "nn.Linear", "net.py:Net"),
        *("a/b/../c.gguf", "a/b/../../c.gguf", "a/b@../../c", "a/b@/c"),
    ],
)
def test_what_is_no_name_of_the_hub(source):
    assert hub_name(source) is None
    assert local_checkpoint(source) == Path(source)
