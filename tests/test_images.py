"""Preprocessors of images in ONNX files: decoded images in, the pixels that Pillow gives."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageOps

import lucid
from lucid.batch.images import ImageReader
from lucid.core.graph.types import Array
from lucid.export import to_onnx
from lucid.layouts import write_folder
from lucid.layouts.images import NotExactError, Preprocessor, with_preprocessor
from lucid.nn.model_parts import ModelPart
from lucid.runtime import Session
from tests.console import in_process
from tests.models import goldens

CLIP = {
    "feature_extractor_type": "CLIPFeatureExtractor",
    "size": 24,
    "crop_size": 20,
    "do_center_crop": True,
    "resample": 3,
    "image_mean": [0.48, 0.46, 0.41],
    "image_std": [0.27, 0.26, 0.28],
}
MEANS = {"resample": 3, "image_mean": [0.4, 0.5, 0.6], "image_std": [0.2, 0.3, 0.4]}
CONFIGS: dict[str, dict[str, Any]] = {
    "vit": {"image_processor_type": "ViTImageProcessor", "size": 20},
    "bilinear": {**MEANS, "size": {"height": 30, "width": 9}, "do_center_crop": False, "resample": 2},
    "clip": {**CLIP, "size": {"shortest_edge": 24}},
    "convnext": {**MEANS, "size": {"shortest_edge": 20}, "crop_pct": 0.875},
    "whole": {**MEANS, "size": {"shortest_edge": 384}, "crop_pct": 0.875},
    "plain": {"image_processor_type": "ViTImageProcessor", "size": 7, "do_rescale": False, "do_normalize": False},
}
SHAPES = [
    (30, 41),
    (31, 30),
    (20, 20),
    (3, 5),
    (24, 97),
    (1, 1),
]  # of which all releases of Pillow bring rows to size first


def images(height: int, width: int) -> Array:
    return np.random.default_rng(height).integers(0, 256, (1, height, width, 3), dtype=np.uint8)


def folder(path: Path, options: dict[str, Any]) -> Path:
    path.mkdir(exist_ok=True)
    (path / "preprocessor_config.json").write_text(json.dumps(options))
    return path


def checkpoint(path: Path, variant: str = "vit/classifier", size: int = 0, **config: Any) -> Path:
    """A model of the goldens that takes images, with a preprocessor; `config` are options of config.json."""
    copy = shutil.copytree(goldens.folder(variant), path)
    options = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**options, **config}))
    side = lucid.models.load(copy).input_specs()["pixel_values"].shape[2]
    return folder(
        copy, {"image_processor_type": "ViTImageProcessor", "size": size or (side if type(side) is int else 64)}
    )


@pytest.mark.parametrize("name", CONFIGS)
def test_pixels_are_those_of_pillow_eager_and_exported(name: str, tmp_path: Path) -> None:
    preprocessor = Preprocessor.from_folder(folder(tmp_path, CONFIGS[name]))
    reader = ImageReader(tmp_path, ("N", 3, None, None))
    session = Session(to_onnx(preprocessor, lucid.spec("N", "H", "W", 3, dtype=lucid.uint8)))
    for shape in SHAPES:
        pixels = images(*shape)
        expected = reader.arrays([reader.ready([pixels[0]]).data])["pixel_values"][0]
        assert np.array_equal(preprocessor(lucid.tensor(pixels)).numpy()[0], expected), shape
        assert np.array_equal(session(pixels).numpy()[0], expected), shape


@pytest.mark.parametrize("resample", [2, 3])
def test_rows_come_first_whatever_the_shape(resample: int, tmp_path: Path) -> None:
    options = {"image_processor_type": "ViTImageProcessor", "size": 20, "do_rescale": False, "do_normalize": False}
    preprocessor = Preprocessor.from_folder(folder(tmp_path, {**options, "resample": resample}))
    pixels = images(97, 24)
    rows = Image.fromarray(pixels[0]).resize((20, 97), resample)
    expected = np.asarray(rows.resize((20, 20), resample)).transpose(2, 0, 1)
    assert np.array_equal(preprocessor(lucid.tensor(pixels)).numpy()[0], expected)


@pytest.mark.parametrize("exif", [b"Exif\0\0", b"Exif\0\0MM", b"Exif\0\0MM\0*\0", b"Exif\0\0no header of TIFF"])
def test_an_image_whose_exif_is_broken_is_read_as_it_is_stored(exif: bytes, tmp_path: Path) -> None:
    pixels, file = images(20, 30)[0], io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG", exif=exif)
    reader = ImageReader(folder(tmp_path, CONFIGS["vit"]), ("N", 3, 20, 20))
    assert np.array_equal(reader.ready([file.getvalue()]).data, reader.ready([pixels]).data)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "TIFF"])
@pytest.mark.parametrize("orientation", range(9))
def test_photographs_are_upright_as_transformers_loads_them(orientation: int, kind: str, tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    file = io.BytesIO()
    Image.fromarray(images(20, 30)[0]).save(file, kind, exif=exif)
    reader = ImageReader(folder(tmp_path, CONFIGS["vit"]), ("N", 3, 20, 20))
    upright = np.asarray(ImageOps.exif_transpose(Image.open(file)))
    assert np.array_equal(reader.ready([file.getvalue()]).data, reader.ready([upright]).data)


def test_one_number_is_the_shorter_side_where_clip_reads_it(tmp_path: Path) -> None:
    by_number = Preprocessor.from_folder(folder(tmp_path, CLIP))
    by_name = Preprocessor.from_folder(folder(tmp_path, CONFIGS["clip"]))
    pixels = lucid.tensor(images(30, 41))
    assert by_number.edge == 24 and np.array_equal(by_number(pixels).numpy(), by_name(pixels).numpy())


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"resample": 1}, r"resample is 1, expected one of 2 \(bilinear\), 3 \(bicubic\)"),
        ({"resample": None}, "resample is None"),
        ({"resample": [2]}, r"resample is \[2\]"),
        ({"do_pad": True}, "do_pad is not computed here; make the pixels outside, as transformers does"),
        ({"do_resize": False}, "do_resize false is not computed here"),
        ({"keep_aspect_ratio": True}, "keep_aspect_ratio is not computed here; make the pixels outside"),
        ({"ensure_multiple_of": 14, "rescale_offset": True}, "ensure_multiple_of, rescale_offset is not computed here"),
        ({"do_center_crop": False}, r"images keep their own shape \(shortest_edge, and no crop\)"),
        ({"crop_size": 25}, r"crop_size is \[25, 25\], expected no more than \[24, 24\]"),
        ({"size": {"longest_edge": 24}}, "size is .*, expected height and width, or shortest_edge"),
        ({"feature_extractor_type": "OtherExtractor"}, "size is 24, expected height and width"),
        ({"image_mean": [0.5]}, r"image_mean is \[0.5\], expected three numbers"),
        ({"image_mean": [0.5, float("nan"), True]}, r"image_mean is \[0.5, nan, True\], expected three numbers"),
        ({"image_std": [0.5, 0, 0.5]}, "image_std is .*, expected three numbers other than 0"),
        ({"rescale_factor": "x"}, "rescale_factor is 'x', expected a number above 0"),
    ],
)
def test_what_is_not_computed_exactly_is_refused(changed: dict[str, Any], why: str, tmp_path: Path) -> None:
    with pytest.raises(NotExactError, match=why):
        Preprocessor.from_folder(folder(tmp_path, {**CLIP, **changed}))


def test_options_that_change_nothing_are_passed_over(tmp_path: Path) -> None:
    idle = {"keep_aspect_ratio": False, "ensure_multiple_of": 1, "size_divisor": None, "do_pad": False}
    assert Preprocessor.from_folder(folder(tmp_path, {**CLIP, **idle})).edge == 24


def test_what_a_file_leaves_out_is_refused_unless_its_class_is_known(tmp_path: Path) -> None:
    with pytest.raises(NotExactError, match="has no resample, and its default depends on the class"):
        Preprocessor.from_folder(folder(tmp_path, {"size": {"height": 8, "width": 8}}))
    with pytest.raises(FileNotFoundError, match=r"has no preprocessor_config\.json"):
        Preprocessor.from_folder(tmp_path / "elsewhere")


def test_models_of_other_inputs_and_sizes_are_refused(tmp_path: Path) -> None:
    preprocessor = Preprocessor.from_folder(folder(tmp_path / "made", CONFIGS["vit"]))
    vit, bert = (lucid.models.load(goldens.folder(name)) for name in ("vit/classifier", "bert/base"))
    with pytest.raises(ValueError, match="for models of images; this one takes input_ids"):
        with_preprocessor(ModelPart(bert, bert.input_specs()), bert.input_specs(), preprocessor)
    other = Preprocessor.from_folder(folder(tmp_path / "made", {**CONFIGS["vit"], "size": 21}))
    with pytest.raises(NotExactError, match=r"makes pixels \[3, 21, 21\], and the model takes \[3, "):
        with_preprocessor(ModelPart(vit, vit.input_specs()), vit.input_specs(), other)
    with pytest.raises(ValueError, match="optimum runs the tokenizer or preprocessor itself"):
        write_folder(vit, tmp_path / "made", tmp_path / "out", layout="optimum", with_preprocessor=True)


def test_a_folder_takes_images_and_its_card_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = checkpoint(tmp_path / "tiny")
    model = lucid.models.load(source)
    (file,) = write_folder(model, source, tmp_path / "made", layout="onnxruntime", with_preprocessor=True)
    assert {name: str(kind) for name, kind in file.inputs.items()} == {"images": "uint8[batch_size, height, width, 3]"}
    assert file.parity is not None and file.parity.passed and len(file.parity.comparisons) == 2
    monkeypatch.chdir(tmp_path)
    exec((tmp_path / "made" / "README.md").read_text().split("```python\n")[1].split("```")[0], {})
    assert capsys.readouterr().out.startswith("[[")


def test_the_command_writes_and_verifies_a_file_that_takes_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*arguments: object, code: int = 0) -> str:
        assert in_process(arguments, monkeypatch, tmp_path) == code
        return " ".join("".join(capsys.readouterr()).split())

    checkpoint(tmp_path / "tiny")
    assert "input images uint8[N, height, width, 3]" in run("export", "tiny", "--with-preprocessor", "-o", "i.onnx")
    assert run("verify", "tiny", "i.onnx").count("ok ") == 2 + 1  # runs, and the weights
    assert "H=5" not in run("verify", "tiny", "i.onnx", "--size", "N=1,height=5,width=9")
    linear = ("nn.Linear", "--set", "in_features=2", "--set", "out_features=2", "-i", "x:N,2", "-o", "l.onnx")
    assert "has no preprocessor; give the folder" in run("export", *linear, "--with-preprocessor", code=2)


def test_both_towers_of_clip_take_images(tmp_path: Path) -> None:
    model = lucid.models.load(goldens.folder("clip/gelu"))
    size = int(model.input_specs()["pixel_values"].shape[2])
    preprocessor = Preprocessor.from_folder(folder(tmp_path, {**CLIP, "size": size + 3, "crop_size": size}))
    part = with_preprocessor(ModelPart(model, {}), model.input_specs(), preprocessor)
    assert list(part.inputs) == ["input_ids", "images", "attention_mask"]
    assert str(part.inputs["images"]) == "uint8[M, height, width, 3]"
