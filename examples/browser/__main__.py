"""Build a page in which MiniLM runs in the browser: ``make web``, or ``python -m examples.browser -o FOLDER``.

It is the folder of ``lucid export FOLDER --for web --bits 8``, with a section that trains a linear layer in the browser
and the report about the exported graph below. It needs neither a network nor a server: open its index.html.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
from pathlib import Path

import lucid
from examples import head
from examples.minilm import SENTENCES, checkpoint, tokenize
from lucid.inspection.report import report
from lucid.layouts import write_folder
from lucid.layouts.manifest import write_manifest
from lucid.layouts.web import write_script
from lucid.models.bert import SentenceEncoder

HERE = Path(__file__).parent
TITLE = "MiniLM in the browser"
GRAPH = """<section aria-labelledby="graph-title">
<h2 id="graph-title">The exported graph</h2>
<p><a href="report.html">Open the report</a>: the graph by module, its cost, its attention and its errors.</p>
<iframe id="graph" src="report.html" title="The report of the exported model" loading="lazy"></iframe>
</section>
"""
SCRIPTS = ("training.js", "step.js", "learn.js")
"""Those of the section that trains; the second one holds the training step."""


def build(folder: Path, packages: Path) -> None:
    """Write the page. `packages` is npm's folder node_modules."""
    folder = folder.resolve()
    model = lucid.quantize(SentenceEncoder.from_pretrained(checkpoint()), bits=8)
    with contextlib.chdir(packages.parent):  # from where the packages are looked for
        (exported,) = write_folder(model, checkpoint(), folder, layout="web")
    assert exported.parity is not None and exported.parity.passed, exported.parity
    print(f"parity with NumPy: max abs {exported.parity.max_abs:.1e}")
    page = folder / "index.html"
    text = page.read_text(encoding="utf-8").replace(f"{checkpoint().name} in the browser", TITLE)
    text = text.replace("</main>", f"{(HERE / 'learn.html').read_text(encoding='utf-8')}{GRAPH}</main>")
    scripts = "".join(f'<script src="{name}"></script>\n' for name in SCRIPTS)
    page.write_text(text.replace("</body>", f"{scripts}</body>"), encoding="utf-8")
    write_script(folder / "step.js", {"step": head.training_step(2).SerializeToString()})
    for name in ("training.js", "learn.js"):
        shutil.copyfile(HERE / name, folder / name)
    report(model, path=folder / "report.html", data=tokenize(checkpoint(), SENTENCES[:1]), targets=["cpu"], name=TITLE)
    write_manifest(folder, "web", {exported.file: exported.weights})


def main() -> None:
    """Write the page and say where it is."""
    parser = argparse.ArgumentParser(prog="python -m examples.browser", description="MiniLM in a page of its own.")
    parser.add_argument("-o", "--output", type=Path, default=Path("build/web"), help="the folder [build/web]")
    parser.add_argument("--packages", type=Path, default=HERE / "node_modules", help="where npm has put the packages")
    asked = parser.parse_args()
    if not (asked.packages / "onnxruntime-web").is_dir():
        parser.error(f"{asked.packages} has no onnxruntime-web: run make web, or npm ci --prefix examples/browser")
    asked.output.parent.mkdir(parents=True, exist_ok=True)
    build(asked.output, asked.packages)
    print(f"written: open {asked.output / 'index.html'} in a browser")


if __name__ == "__main__":
    main()
