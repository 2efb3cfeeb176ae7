"""models/smolvlm.py: images among tokens, as one model and as the three files of transformers.js."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import lucid
from lucid import Tensor
from lucid.layouts import write_folder
from lucid.layouts.parts import part_in_file
from lucid.models.checkpoints.pretrained import ConfigError
from lucid.models.smolvlm import SmolVLM
from lucid.runtime import Session
from lucid.tracing.parts import trace_part
from tests.layout_checkpoints import whole
from tests.models import goldens

FILES = ["vision_encoder", "embed_tokens", "decoder_model_merged"]
CASES = {case.name: case for case in goldens.cases("smolvlm/base")}


@cache
def model() -> SmolVLM:
    return SmolVLM.from_pretrained(goldens.folder("smolvlm/base"))


def shapes(values: Any) -> dict[str, list[int | str]]:
    """The sizes of a file's inputs or outputs, by name."""
    return {v.name: [d.dim_param or d.dim_value for d in v.type.tensor_type.shape.dim] for v in values}


@pytest.fixture(scope="module")
def sessions() -> dict[str, Session]:
    """The three files, as `write_folder` exports them."""
    graphs = {name: trace_part(part).graph for name, part in model().file_parts().items()}
    return {name: Session(lucid.export.to_onnx(graph), "cpu", spinning=False) for name, graph in graphs.items()}


@pytest.mark.parametrize("name", ["plain", "padded", "parts"])
def test_the_vision_encoder_makes_the_vectors_of_transformers(sessions: dict[str, Session], name: str) -> None:
    inputs = CASES[name].inputs
    pixels = inputs["pixel_values"]
    mask = inputs.get("pixel_attention_mask", np.ones((*pixels.shape[:2], *pixels.shape[3:]), bool))
    features = sessions["vision_encoder"].run({"pixel_values": pixels, "pixel_attention_mask": mask})["image_features"]
    real = pixels.reshape(-1, pixels[0, 0].size).any(1)  # transformers leaves out images of zeros
    CASES[name]._replace(kept=None).close("image_features", features[real], rtol=5e-6)


def test_the_files_together_write_what_the_model_does_in_two_steps_with_a_cache(sessions: dict[str, Session]) -> None:
    case = CASES["plain"]
    ids, pixels = case.inputs["input_ids"], case.inputs["pixel_values"]
    embeds = sessions["embed_tokens"].run({"input_ids": ids})["inputs_embeds"].copy()
    mask = np.ones((2, 1, 16, 16), bool)
    features = sessions["vision_encoder"].run({"pixel_values": pixels, "pixel_attention_mask": mask})["image_features"]
    embeds[ids == 39] = features.reshape(-1, features.shape[-1])  # as transformers.js puts them there
    past = {
        f"past_key_values.{i}.{part}": np.zeros((2, 2, 0, 4), np.float32) for i in (0, 1) for part in ("key", "value")
    }
    logits = []
    for first, last in ((0, 5), (5, 7)):
        positions = np.tile(np.arange(first, last), (2, 1))
        inputs = {"inputs_embeds": embeds[:, first:last], "attention_mask": np.ones((2, last), np.int64)}
        step, *present = sessions["decoder_model_merged"].run({**inputs, "position_ids": positions, **past}).values()
        logits.append(step)
        past = dict(zip(past, present, strict=True))
    case.close("logits", np.concatenate(logits, 1), rtol=5e-6)


def test_an_image_is_given_with_the_prompt_and_stays_in_the_cache() -> None:
    case = CASES["parts"]
    ids, images = Tensor(case.inputs["input_ids"]), {k: Tensor(v) for k, v in case.inputs.items() if "pixel" in k}
    first, cache_ = model()(ids[:, :10], past_key_values=model().empty_cache(1), **images)
    second, _ = model()(ids[:, 10:], past_key_values=cache_)
    case.close("logits", np.concatenate([first.numpy(), second.numpy()], 1), rtol=5e-6)


def test_more_image_tokens_than_vectors_are_an_error() -> None:
    with pytest.raises(ValueError, match="the mask is true 80 times, but there are 64 values"):
        model()(lucid.tensor([[39] * 5]), pixel_values=lucid.ones(1, 1, 3, 16, 16))


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        ("optimum", "a SmolVLM is 3 files, for which optimum 0.1 has no class"),
        ("triton", "Triton needs several models and a program between them for a SmolVLM"),
        ("genai", "a SmolVLM, which onnxruntime-genai does not run"),
    ],
)
def test_what_runs_no_three_files_is_refused(tmp_path: Path, layout: str, message: str) -> None:
    source = whole(tmp_path / "tiny", "smolvlm/base")
    with pytest.raises(ValueError, match=message):
        write_folder(model(), source, tmp_path / "exported", layout=layout, check=False)


def test_a_folder_for_transformers_js_has_the_names_that_it_looks_for(tmp_path: Path) -> None:
    source, target = whole(tmp_path / "tiny", "smolvlm/base"), tmp_path / "exported"
    files = write_folder(model(), source, target, layout="transformers.js", check=False)
    assert [file.file for file in files] == [f"onnx/{name}.onnx" for name in FILES]
    assert "AutoModelForImageTextToText" in (target / "README.md").read_text()
    for file in files:  # `lucid verify` knows them again
        graph = onnx.load(target / file.file).graph
        assert part_in_file(model(), shapes(graph.input), shapes(graph.output)).outputs == file.part.outputs
    with pytest.raises(ValueError, match="a model of several files has a growing cache"):
        write_folder(model(), source, tmp_path / "other", layout="transformers.js", cache="fixed", check=False)
    (source / "preprocessor_config.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"has no preprocessor_config\.json"):
        write_folder(model(), source, tmp_path / "other", layout="transformers.js", check=False)


@pytest.mark.parametrize(
    ("section", "options", "message"),
    [
        ("text_config", {"model_type": "mistral"}, "text_config: option model_type is 'mistral', supported: 'llama'"),
        ("text_config", {"model_type": None}, "text_config: option model_type is missing"),
        ("", {"scale_factor": 3}, "scale_factor is 3, expected a divisor of the 4 patches in a row"),
        ("vision_config", {"patch_size": 32}, "patch_size is 32"),
    ],
)
def test_an_option_that_is_not_supported_is_named(
    tmp_path: Path, section: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        SmolVLM.from_pretrained(goldens.copied("smolvlm/base", tmp_path, section, **options))
