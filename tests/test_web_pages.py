"""Folders with a page that runs the model: what is in them; tests/consumers opens one in a browser."""

from __future__ import annotations

import base64
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

import lucid
from lucid.layouts import write_folder
from lucid.layouts.web import PACKAGES
from lucid.models.layoutlm import LayoutLM, LayoutLMForMaskedLM
from lucid.runtime import Session
from tests.console import in_process
from tests.layout_checkpoints import whole
from tests.models import goldens

ROOT = Path(__file__).parents[1]
CODE = {
    "onnxruntime-web/dist/ort.wasm.min.js": "the runtime",
    "onnxruntime-web/dist/ort-wasm-simd-threaded.wasm": "its code",
    "onnxruntime-web/dist/ort-wasm-simd-threaded.mjs": "its loader",
    "@huggingface/tokenizers/dist/tokenizers.min.cjs": "exports.Tokenizer = 3",
}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder below one in which npm has installed the packages."""
    for name, text in CODE.items():
        path = tmp_path / "node_modules" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    return tmp_path / "below"


def written(place: Path, variant: str, task: str | None = None, **options: Any) -> Path:
    source = whole(place / "source", variant)
    (exported,) = write_folder(lucid.models.load(source, task), source, place / "page", layout="web", **options)
    assert exported.parity is not None and exported.parity.passed
    return place / "page"


def held(*scripts: Path) -> dict[str, bytes]:
    """The files that scripts hold."""
    files = {}
    for script in scripts:
        text = re.fullmatch(r"var lucidFiles = Object.assign\(.*?, ({.*})\);\n", script.read_text())
        assert text is not None
        files |= {name: base64.b64decode(data) for name, data in json.loads(text[1]).items()}
    return files


def about(task: str, **known: Any) -> dict[str, Any]:
    """The settings of a page about its model."""
    return {"task": task, "labels": {}, "several": False, **known}


def test_a_sentence_encoder_has_a_page_with_its_attention(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = written(place, "sentences/cls")
    model = page / "model" / "model.onnx"
    assert list(Session(model).outputs) == ["sentence_embedding", "attentions.0"]
    files = held(page / "model" / "model.js", page / "model" / "settings.js", page / "runtime" / "wasm.js")
    assert files["model"] == model.read_bytes()
    assert files["tokenizer.json"] == (place / "source" / "tokenizer.json").read_bytes()
    assert json.loads(files["about"]) == about("sentence-similarity", max_length=24)
    assert (files["ort.wasm"], files["ort.mjs"]) == (b"its code", b"its loader")
    text = (page / "index.html").read_text()
    assert "<title>source in the browser</title>" in text and "{{" not in text
    for name in re.findall(r'(?:src|href)="([^"]+)"', text):
        assert (page / name).is_file(), name
    assert "open page/index.html in a browser" in (page / "README.md").read_text()
    assert in_process(["verify", place / "source", page], monkeypatch) == 0


def test_a_page_in_8_bits_is_verified_whole(place: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    source = whole(place / "source", "sentences/cls")
    assert in_process(["export", source, "--for", "web", "--bits", "8", "-o", "page"], monkeypatch) == 0
    capsys.readouterr()
    assert in_process(["verify", source, "page", "--bits", "8"], monkeypatch) == 0
    assert "note" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("task", "labels"),
    [
        ("text-classification", 3),
        ("token-classification", 5),
        ("fill-mask", 0),
        ("question-answering", 0),
    ],
)
def test_a_task_head_has_a_page_with_its_answers(task: str, labels: int, place: Path) -> None:
    page = written(place, f"tasks/bert_{task.replace('-', '_')}", task)
    names = {str(number): f"LABEL_{number}" for number in range(labels)}
    assert json.loads(held(page / "model" / "settings.js")["about"]) == about(task, labels=names, max_length=24)
    assert f'"{task}": {{' in (page / "answers.js").read_text()
    assert sorted(path.name for path in page.glob("*.js")) == ["answers.js", "opened-model.js", "text-model.js"]


def image_page(place: Path, variant: str, task: str, preprocessor: dict[str, Any], **options: Any) -> Path:
    source = whole(place / "source", variant)
    (source / "tokenizer.json").unlink()
    (source / "preprocessor_config.json").write_text(json.dumps(preprocessor))
    config = json.loads((source / "config.json").read_text())
    (source / "config.json").write_text(json.dumps({**config, "problem_type": "multi_label_classification", **options}))
    write_folder(lucid.models.load(source, task), source, place / "page", layout="web")
    return place / "page"


VIT = {"image_processor_type": "ViTImageProcessor", "size": 12}


def test_a_classifier_of_images_has_a_page_without_a_tokenizer(place: Path) -> None:
    size = int(lucid.models.load(goldens.folder("vit/classifier")).input_specs()["pixel_values"].shape[2])
    shutil.rmtree(place.parent / "node_modules" / "@huggingface")
    labels = {"0": "cat", "2": "dog"}  # others are LABEL_1, ...
    page = image_page(place, "vit/classifier", "image-classification", {**VIT, "size": size}, id2label=labels)
    page_data = json.loads(held(page / "model" / "settings.js")["about"])
    preprocessor = {
        "window": [size, size],
        "edge": None,
        "resized": [size, size],
        "resample": 2,
        "factor": 1 / 255,
        "mean": [0.5] * 3,
        "deviation": [0.5] * 3,
    }
    assert page_data == about("image-classification", labels=labels, several=True, preprocessor=preprocessor)
    scripts = sorted(path.name for path in page.glob("*.js"))
    assert scripts == ["answers.js", "image-model.js", "opened-model.js", "pillow.js"]
    assert not (page / "runtime" / "tokenizers.js").exists()


@pytest.mark.parametrize(
    ("variant", "task", "preprocessor", "message"),
    [
        (
            "vit/classifier",
            "image-classification",
            {**VIT, "size": 9},
            r"makes pixels \[3, 9, 9\], and the model takes",
        ),
        ("vit/classifier", "image-classification", {**VIT, "do_pad": True}, "do_pad is not computed here; make the"),
        (
            "segformer/base",
            "image-feature-extraction",
            VIT,
            "shows image_embeds of 2 axes, or pooler_output of 2 axes, or pooler_output of 4 axes, or "
            "last_hidden_state of 3 axes, and the model gives last_hidden_state: float32",
        ),
    ],
)
def test_images_that_a_page_does_not_prepare_or_show_are_errors(
    variant: str, task: str, preprocessor: dict[str, Any], message: str, place: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        image_page(place, variant, task, preprocessor)


@pytest.mark.parametrize(
    ("variant", "options", "message"),
    [
        (
            "llama/llama3",
            {},
            "a page runs models for sentence-similarity, text-classification, token-classification, fill-mask, "
            "question-answering, image-classification, image-feature-extraction, image-segmentation, got a Llama for "
            "text-generation; give one of these tasks if the checkpoint has it, or",
        ),
        ("sentences/cls", {"external_data": True}, "loads the weights with the model; leave out external_data"),
        ("sentences/cls", {"target": "webgpu"}, "target 'webgpu' is not for this layout; choose one of any, cpu"),
    ],
)
def test_what_a_page_does_not_run_is_an_error(variant: str, options: Any, message: str, place: Path) -> None:
    with pytest.raises(ValueError, match=message):
        written(place, variant, **options)


def test_a_model_that_takes_more_than_texts_is_an_error(place: Path) -> None:
    source = whole(place / "source", "layoutlm/base")
    model = LayoutLMForMaskedLM(LayoutLM.from_pretrained(source).config)
    with pytest.raises(ValueError, match="token_type_ids, and the model also takes bbox; use layout 'transformers"):
        write_folder(model, source, place / "page", layout="web")


def test_without_the_packages_an_error_says_how_to_install_them(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place.parent / "node_modules").rename(place.parent / "elsewhere")
    message = "npm install onnxruntime-web@[0-9.]+ @huggingface/tokenizers@[0-9.]+$"
    with pytest.raises(FileNotFoundError, match=message):
        written(place, "sentences/cls")
    assert json.loads((ROOT / "examples/browser/package.json").read_text())["dependencies"] == PACKAGES
