"""Pages that read images, opened from the disk in headless Chromium: what they show is what Python computes."""

from __future__ import annotations

import base64
import contextlib
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import lucid
from examples.browser import __main__ as browser_page
from lucid.batch.images import ImageReader
from lucid.layouts import write_folder
from tests.consumers import chromium
from tests.test_images import CONFIGS, SHAPES, checkpoint, folder, images

NAMES = ("wide.png", "high.png", "small.png")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium.browser(120) as driver:
        yield driver


def opened(browser: Any, place: Path, variant: str, task: str, **options: Any) -> tuple[Any, ImageReader]:
    """The model of a checkpoint whose page is open, and what reads images for it."""
    source = checkpoint(place / "source", variant, **options)
    model = lucid.models.load(source, task)
    with contextlib.chdir(browser_page.HERE):
        write_folder(model, source, place / "page", layout="web", check=False)
    browser.get((place / "page" / "index.html").as_uri())
    chromium.wait_until(lambda: "Choose" in status(browser), browser)
    return model, ImageReader(source, ("N", 3, None, None))


def status(browser: Any) -> str:
    text: str = browser.find_element("id", "status").text
    return text


def chosen(browser: Any, *files: Path) -> list[list[str]]:
    """The lines that the page shows of each file."""
    browser.find_element("id", "files").send_keys("\n".join(map(str, files)))
    chromium.wait_until(lambda: f"{len(files)} image{'s' * (len(files) != 1)} in " in status(browser), browser)
    return [caption.text.split("\n") for caption in browser.find_elements("css selector", "figcaption")]


def pictures(place: Path) -> list[Path]:
    for name, shape in zip(NAMES, ((40, 97), (61, 33), (20, 21)), strict=True):
        Image.fromarray(images(*shape)[0]).save(place / name)
    return [place / name for name in NAMES]


def outputs(model: Any, reader: ImageReader, file: Path) -> list[np.ndarray]:
    result = model(lucid.tensor(reader.arrays([reader.ready([file]).data])["pixel_values"]))
    return [each.numpy() for each in ([result] if isinstance(result, lucid.Tensor) else result)]


def result_line(text: str, share: float) -> str:
    return f"{text} {100 * share:.0f} %"


@pytest.mark.parametrize("several", [False, True])
def test_a_classifier_shows_the_likeliest_labels(several: bool, browser: Any, tmp_path: Path) -> None:
    problem = "multi_label_classification" if several else "single_label_classification"
    model, reader = opened(browser, tmp_path, "vit/classifier", "image-classification", problem_type=problem)
    files = pictures(tmp_path)
    for lines, file in zip(chosen(browser, *files), files, strict=True):
        (logits,) = outputs(model, reader, file)
        powers = np.exp(logits[0].astype(np.float64))
        shares = powers / (1 + powers) if several else powers / powers.sum()
        assert lines == [file.name, *(result_line(f"LABEL_{i}", shares[i]) for i in shares.argsort()[::-1][:5])]


@pytest.mark.parametrize("variant", ["dinov2/base", "clip/images", "resnet/features"])
def test_vectors_of_images_are_compared(variant: str, browser: Any, tmp_path: Path) -> None:
    model, reader = opened(browser, tmp_path, variant, "image-feature-extraction")
    files = pictures(tmp_path)
    results = [dict(zip(model.output_names, outputs(model, reader, file), strict=True)) for file in files]
    name = next(name for name in ("image_embeds", "pooler_output", "last_hidden_state") if name in results[0])
    vectors = [one[name][:, 0].ravel() if name == "last_hidden_state" else one[name].ravel() for one in results]
    for i, lines in enumerate(chosen(browser, *files)):
        cosines = {
            NAMES[j]: v @ vectors[i] / np.linalg.norm(v) / np.linalg.norm(vectors[i]) for j, v in enumerate(vectors)
        }
        assert lines == [NAMES[i], *(result_line(f"similar to {n}", c) for n, c in cosines.items() if n != NAMES[i])]


def test_parts_of_an_image_are_shown_with_their_areas(browser: Any, tmp_path: Path) -> None:
    model, reader = opened(browser, tmp_path, "segformer/segmentation", "image-segmentation", size=64)
    file = pictures(tmp_path)[0]
    (lines,) = chosen(browser, file)
    (logits,) = outputs(model, reader, file)
    labels, places = np.unique(logits[0].argmax(0), return_counts=True)
    shown = [
        result_line(f"LABEL_{i}", n / places.sum()) for n, i in sorted(zip(places, labels, strict=True), reverse=True)
    ]
    assert sorted(lines[1:]) == sorted(shown) and len(shown) > 1
    size = browser.execute_script("const {width, height} = document.querySelector('canvas'); return [height, width]")
    assert size == list(logits.shape[2:])


@pytest.mark.parametrize("name", CONFIGS)
def test_pixels_are_those_of_pillow(name: str, browser: Any, tmp_path: Path) -> None:
    if not browser.execute_script("return typeof preparedPixels === 'function'"):
        opened(browser, tmp_path, "vit/classifier", "image-classification")
    reader = ImageReader(folder(tmp_path / "options", CONFIGS[name]), ("N", 3, None, None))
    for shape in (*SHAPES, (300, 200)):
        array = images(*shape)[0]
        file = io.BytesIO()
        Image.fromarray(array).save(file, "PNG")
        assert np.array_equal(prepared(browser, reader, file.getvalue()), reader.ready([array]).data.ravel()), shape


@pytest.mark.parametrize("orientation", range(1, 9))
def test_photographs_are_upright(orientation: int, browser: Any, tmp_path: Path) -> None:
    if not browser.execute_script("return typeof preparedPixels === 'function'"):
        opened(browser, tmp_path, "vit/classifier", "image-classification")
    reader = ImageReader(folder(tmp_path / "options", CONFIGS["vit"]), ("N", 3, None, None))
    y, x = np.indices((40, 56))
    smooth = np.stack([2 * y + x, y + 2 * x, 3 * x], -1).astype(np.uint8)
    exif = Image.Exif()
    exif[0x0112] = orientation
    file = io.BytesIO()
    Image.fromarray(smooth).save(file, "JPEG", exif=exif, quality=95)
    expected = reader.ready([file.getvalue()]).data.ravel()
    np.testing.assert_allclose(prepared(browser, reader, file.getvalue()), expected, atol=0.02)  # decoders of JPEG


def prepared(browser: Any, reader: ImageReader, file: bytes) -> np.ndarray:
    """The pixels that the page makes of a file."""
    options = {
        name: value.ravel().tolist() if isinstance(value, np.ndarray) else value
        for name, value in vars(reader.preprocessor).items()
    }
    script = (
        "const [file, options, done] = arguments;"
        "const bytes = Uint8Array.from(atob(file), c => c.charCodeAt(0));"
        "decodedImage(new Blob([bytes])).then(image => done([...preparedPixels(image, options)]), e => done(String(e)))"
    )
    pixels = browser.execute_async_script(script, base64.b64encode(file).decode("ascii"), options)
    assert isinstance(pixels, list), pixels
    return np.array(pixels, np.float32)


def test_a_file_that_is_no_image_is_said(browser: Any, tmp_path: Path) -> None:
    opened(browser, tmp_path, "vit/classifier", "image-classification")
    (tmp_path / "broken.png").write_bytes(b"\x89PNG")
    browser.find_element("id", "files").send_keys(str(tmp_path / "broken.png"))
    chromium.wait_until(lambda: status(browser) == "broken.png is no image that this browser reads", browser)


def test_nothing_was_logged_as_an_error(browser: Any) -> None:
    assert [entry["message"] for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []
