"""Build a page in which MiniLM runs in the browser: ``make web``, or ``python -m examples.browser -o FOLDER``.

The folder needs neither a network nor a server: open its index.html. All but the page's own files are scripts that hold
base64, because a page that is opened from a disk may load scripts and nothing else.
"""

from __future__ import annotations

import argparse
import base64
import errno
import json
import shutil
from collections.abc import Mapping
from pathlib import Path

import onnx

import lucid
from examples.browser.model import MappedSentenceEncoder
from examples.minilm import SENTENCES, checkpoint, tokenize
from lucid.files.folders import new_folder
from lucid.inspection.report import report

HERE = Path(__file__).parent
TARGET = lucid.export.Target(
    "cpu", accuracy_level=0
)  # in float32 onnxruntime's wasm is faster than in bytes, and exact
TITLE = "MiniLM in the browser"


def build(folder: Path, packages: Path) -> None:
    """Write the page into a folder that is there. `packages` is npm's folder node_modules."""
    for file in (HERE / "page").iterdir():
        shutil.copy(file, folder)
    write_runtime(folder / "runtime", packages)
    model = lucid.quantize(MappedSentenceEncoder.from_pretrained(checkpoint()), bits=8)
    write_model(folder / "model", lucid.export.to_onnx(model, target=TARGET))
    print(lucid.testing.assert_parity(model, target=TARGET))
    sentence = tokenize(checkpoint(), SENTENCES[:1])
    report(model, path=folder / "report.html", data=sentence, targets=["cpu"], name=TITLE)


def write_runtime(folder: Path, packages: Path) -> None:
    """onnxruntime-web and the tokenizers, as scripts."""
    folder.mkdir(exist_ok=True)
    built = packages / "onnxruntime-web/dist"
    shutil.copy(built / "ort.wasm.min.js", folder)
    name = "ort-wasm-simd-threaded"
    loaded = {f"ort.{end}": (built / f"{name}.{end}").read_bytes() for end in ("wasm", "mjs")}
    (folder / "wasm.js").write_text(_script(loaded), encoding="utf-8")
    code = (packages / "@huggingface/tokenizers/dist/tokenizers.min.cjs").read_text(encoding="utf-8")
    script = f"const lucidTokenizers = ((module) => {{\n{code}\nreturn module.exports;\n}})({{ exports: {{}} }});\n"
    (folder / "tokenizers.js").write_text(script, encoding="utf-8")


def write_model(folder: Path, exported: onnx.ModelProto) -> None:
    """An exported model and MiniLM's tokenizer, as scripts."""
    folder.mkdir(exist_ok=True)
    source = checkpoint()
    limits = json.loads((source / "sentence_bert_config.json").read_text(encoding="utf-8"))
    files = {name: (source / f"{name}.json").read_bytes() for name in ("tokenizer", "tokenizer_config")}
    files["limits"] = json.dumps({"max_length": limits["max_seq_length"]}).encode()
    (folder / "tokenizer.js").write_text(_script(files), encoding="utf-8")
    (folder / "model.js").write_text(_script({"model": exported.SerializeToString()}), encoding="utf-8")


def _script(files: Mapping[str, bytes]) -> str:
    """A script that adds files to the page's `lucidFiles`."""
    encoded = {name: base64.b64encode(data).decode("ascii") for name, data in files.items()}
    return f"var lucidFiles = Object.assign(globalThis.lucidFiles ?? {{}}, {json.dumps(encoded)});\n"


def _is_ours(folder: Path) -> None:
    page = folder / "index.html"
    if not page.is_file() or f"<title>{TITLE}</title>" not in page.read_text(encoding="utf-8", errors="replace"):
        raise FileExistsError(errno.EEXIST, f"cannot write {folder}: it holds other files; give the name of a new one")


def main() -> None:
    """Write the page and say where it is."""
    parser = argparse.ArgumentParser(prog="python -m examples.browser", description="MiniLM in a page of its own.")
    parser.add_argument("-o", "--output", type=Path, default=Path("build/web"), help="the folder [build/web]")
    parser.add_argument("--packages", type=Path, default=HERE / "node_modules", help="where npm has put the packages")
    asked = parser.parse_args()
    if not (asked.packages / "onnxruntime-web").is_dir():
        parser.error(f"{asked.packages} has no onnxruntime-web: run make web, or npm ci --prefix examples/browser")
    asked.output.parent.mkdir(parents=True, exist_ok=True)
    with new_folder(asked.output, _is_ours) as folder:
        build(folder, asked.packages)
    print(f"written: open {asked.output / 'index.html'} in a browser")


if __name__ == "__main__":
    main()
