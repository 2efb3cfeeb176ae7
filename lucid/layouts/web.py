"""A folder with a web page that runs a model on texts or images, without a network or a server: open its index.html.

All but the page's own files are scripts that hold base64, because a page that is opened from a disk may load scripts
and nothing else.
"""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Mapping
from html import escape
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from lucid.core.targets.runtimes import CPU, PROCESSOR, targets_of
from lucid.layouts.checkpoint_files import CONFIG, TOKENIZER, TOKENIZER_CONFIG, file_of, files_home, max_tokens, name_of
from lucid.layouts.hub import target_of
from lucid.layouts.images.preprocessor import PIXELS, Preprocessor
from lucid.layouts.layout import Exported, Layout, Options, export_file
from lucid.layouts.parts import with_known_axes
from lucid.models.checkpoints.config import read_json
from lucid.nn.model_parts import ModelPart
from lucid.nn.module import Module
from lucid.nn.published_model import PublishedModel
from lucid.runtime.model_file import check_model_file
from lucid.runtime.requirements import limits_of
from lucid.tracing.inner_outputs import part_with_outputs
from lucid.tracing.parts import trace_part

_RUNTIME = {"onnxruntime-web": "1.30.0"}
PACKAGES = {**_RUNTIME, "@huggingface/tokenizers": "0.2.0"}
"""The packages of npm that a page runs on, and the releases that were tried; one that reads images has no tokenizer."""

SENTENCES = "sentence-similarity"
LABELS = "text-classification"
_TEXTS = (LABELS, "token-classification", "fill-mask", "question-answering")
_IMAGES = ("image-classification", "image-feature-extraction", "image-segmentation")
_PAGES = {SENTENCES: "sentences.html", **dict.fromkeys(_TEXTS, "texts.html"), **dict.fromkeys(_IMAGES, "images.html")}
"""The page by task; what the second and third one show of each task is in `answers.js`."""

_SHOWN = {
    "image-classification": (("logits", 2),),
    "image-feature-extraction": (
        ("image_embeds", 2),
        ("pooler_output", 2),
        ("pooler_output", 4),
        ("last_hidden_state", 3),
    ),
    "image-segmentation": (("logits", 4),),
}
"""By task the outputs that a page of images reads, and how many axes they have."""

_INPUTS = ("input_ids", "attention_mask", "token_type_ids")
_SOURCES = Path(__file__).with_name("web_page")
_WASM = "ort-wasm-simd-threaded"


def write_page(
    task: str,
    title: str,
    part: ModelPart,
    checkpoint: Path,
    folder: Path,
    options: Options,
    packages: Path,
    labels: Mapping[int, str] = MappingProxyType({}),
    *,
    several: bool = False,
) -> Exported:
    """Export a model of texts or images to a folder with a page that shows its results.

    Args:
        task: what the model does, by Hugging Face's name: SENTENCES, LABELS, or another one that has a page.
        title: its title.
        part: the model; its inputs are those of a tokenizer, or `pixel_values`. The page of SENTENCES shows
            `sentence_embedding` and, if there are, `attentions.0` and so on; for images without labels, the vector of
            each image; the others read `logits`, or `start_logits` and `end_logits`.
        checkpoint: the folder with its tokenizer or preprocessor.
        folder: where to write.
        options: `target` and `dtype` are obeyed.
        packages: npm's folder node_modules with `PACKAGES`.
        labels: the names of the labels by their numbers; others are called LABEL_0, LABEL_1, ...
        several: whether several labels may be right at once; their probabilities are sigmoids then.

    Raises:
        ValueError: for a target that is not for the CPU, and for a preprocessor that the page does not compute.
        OSError: for a file that cannot be read or written.
    """
    about: dict[str, Any] = {"task": task, "labels": dict(labels), "several": several}
    if task in _IMAGES:
        about["preprocessor"] = _preprocessor(checkpoint, part)
    # In float32 onnxruntime's wasm is faster than in bytes, and exact.
    usual = options.target_named(PROCESSOR, accuracy_level=0)
    target = target_of(options, targets_of(CPU), PROCESSOR) if options.target else usual
    exported = export_file(part, folder, "model/model.onnx", target, options)
    model = folder / exported.file
    settings: dict[str, bytes] = {}
    if task not in _IMAGES:
        limits = [max_tokens(checkpoint), *limits_of(check_model_file(model)).explaining.values()]
        about["max_length"] = min((limit for limit in limits if limit is not None), default=None)
        files = {name: file_of(checkpoint, name) for name in (TOKENIZER, TOKENIZER_CONFIG)}
        settings = {name: file.read_bytes() if file.is_file() else b"{}" for name, file in files.items()}
    write_script(folder / "model" / "model.js", {"model": model.read_bytes()})
    write_script(folder / "model" / "settings.js", {**settings, "about": json.dumps(about).encode()})
    text = (_SOURCES / _PAGES[task]).read_text(encoding="utf-8")
    _write_runtime(folder / "runtime", packages, text)
    for file in _SOURCES.iterdir():
        if f'"{file.name}"' in text:
            shutil.copyfile(file, folder / file.name)
    (folder / "index.html").write_text(text.replace("{{title}}", escape(title)), encoding="utf-8")
    return exported


def _preprocessor(checkpoint: Path, part: ModelPart) -> dict[str, Any]:
    """The options of a checkpoint's preprocessor that `image-model.js` reads."""
    preprocessor = Preprocessor.from_folder(files_home(checkpoint))
    preprocessor.require_shape(part.inputs[PIXELS].shape)
    options = vars(preprocessor).items()
    return {name: value.ravel().tolist() if isinstance(value, np.ndarray) else value for name, value in options}


def _write_runtime(folder: Path, packages: Path, page: str) -> None:
    """Write onnxruntime-web, and the tokenizers if the page loads them, as scripts."""
    folder.mkdir(exist_ok=True)
    built = packages / "onnxruntime-web" / "dist"
    shutil.copyfile(built / "ort.wasm.min.js", folder / "ort.wasm.min.js")
    write_script(folder / "wasm.js", {f"ort.{end}": (built / f"{_WASM}.{end}").read_bytes() for end in ("wasm", "mjs")})
    if "tokenizers.js" in page:
        code = (packages / "@huggingface/tokenizers/dist/tokenizers.min.cjs").read_text(encoding="utf-8")
        script = f"const lucidTokenizers = ((module) => {{\n{code}\nreturn module.exports;\n}})({{ exports: {{}} }});\n"
        (folder / "tokenizers.js").write_text(script, encoding="utf-8")


def write_script(path: Path, files: Mapping[str, bytes]) -> None:
    """Write a script that adds files to the page's `lucidFiles`."""
    encoded = {name: base64.b64encode(data).decode("ascii") for name, data in files.items()}
    text = f"var lucidFiles = Object.assign(globalThis.lucidFiles ?? {{}}, {json.dumps(encoded)});\n"
    path.write_text(text, encoding="utf-8")


def _packages_near(folder: Path, packages: Mapping[str, str]) -> Path:
    """The folder node_modules with the packages, here or above, as Node looks for it.

    Raises:
        FileNotFoundError: saying how they are installed.
    """
    for place in (folder, *folder.parents):
        if all((place / "node_modules" / name).is_dir() for name in packages):
            return place / "node_modules"
    names = " ".join(f"{name}@{release}" for name, release in packages.items())
    raise FileNotFoundError(
        f"a page holds packages of npm, which are in no node_modules of {folder} or above: npm install {names}"
    )


def _require_output(task: str, part: ModelPart, checkpoint: Path) -> None:
    outputs = trace_part(part).output_types()
    if not any(name in outputs and outputs[name].rank == rank for name, rank in _SHOWN[task]):
        expected = ", or ".join(f"{name} of {rank} axes" for name, rank in _SHOWN[task])
        got = ", ".join(f"{name}: {kind}" for name, kind in outputs.items())
        raise ValueError(
            f"{checkpoint}: a page for {task} shows {expected}, and the model gives {got}; use layout 'transformers.js'"
        )


def _write(model: Module, checkpoint: Path, folder: Path, options: Options) -> list[Exported]:
    if not isinstance(model, PublishedModel) or model.task not in _PAGES:
        kind = f"{type(model).__name__} for {model.task}" if isinstance(model, PublishedModel) else type(model).__name__
        raise ValueError(
            f"{checkpoint}: a page runs models for {', '.join(_PAGES)}, got a {kind}; give one of these tasks if the "
            "checkpoint has it, or use layout 'transformers.js', whose pipelines a page of yours can call"
        )
    images, specs = model.task in _IMAGES, model.full_input_specs()
    inputs = (PIXELS,) if images else _INPUTS
    if others := specs.keys() - inputs:
        raise ValueError(
            f"{checkpoint}: a page gives {', '.join(inputs)}, and the model also takes {', '.join(sorted(others))}; "
            "use layout 'transformers.js'"
        )
    if options.external_data:
        raise ValueError("a page that is opened from a disk loads the weights with the model; leave out external_data")
    if not images and not file_of(checkpoint, TOKENIZER).is_file():
        raise FileNotFoundError(f"{files_home(checkpoint)}: has no {TOKENIZER}, which the page needs")
    packages = _packages_near(Path.cwd(), _RUNTIME if images else PACKAGES)
    part = ModelPart(model, with_known_axes(specs))
    if images:
        _require_output(model.task, part, checkpoint)
    if model.task == SENTENCES and any(node.op.name == "attention" for node in trace_part(part).graph.nodes()):
        part = part_with_outputs(part, ["attentions"])
    title = f"{name_of(checkpoint)} in the browser"
    config = read_json(file_of(checkpoint, CONFIG))
    several = config.get("problem_type") == "multi_label_classification"
    names = config.get("id2label")
    labels = {int(number): str(name) for number, name in names.items()} if isinstance(names, dict) else {}
    return [write_page(model.task, title, part, checkpoint, folder, options, packages, labels, several=several)]


WEB = Layout("web", "a web page", _write)
