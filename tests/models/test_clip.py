"""models/clip.py against transformers."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import lucid
from lucid import Tensor, nn
from lucid.export import to_onnx
from lucid.models import clip as program
from lucid.models.checkpoints.pretrained import ConfigError
from lucid.models.clip import CLIP
from lucid.runtime import Session
from tests.models import goldens

VARIANTS = ["clip/quick_gelu", "clip/gelu"]


class Everything(nn.Module):
    """Embeddings and the hidden states of both towers, all as outputs of one exported model."""

    def __init__(self, clip: CLIP) -> None:
        self.clip = clip

    def forward(
        self, input_ids: Tensor, pixel_values: Tensor, attention_mask: Tensor | None = None
    ) -> dict[str, Tensor]:
        outputs = self.clip(input_ids, pixel_values, attention_mask)
        text_states = self.clip.text_model.hidden_states(input_ids, attention_mask)
        image_states = self.clip.vision_model.hidden_states(pixel_values)
        return {
            **outputs._asdict(),
            "vision.pooled": self.clip.vision_model(pixel_values),
            "text.last_hidden_state": self.clip.text_model.final_layer_norm(text_states[-1]),
            **{f"text.hidden_states.{i}": state for i, state in enumerate(text_states)},
            **{f"vision.hidden_states.{i}": state for i, state in enumerate(image_states)},
        }

    def input_specs(self):  # type: ignore[no-untyped-def]
        return self.clip.input_specs()


def compare(case: goldens.Case, answers: dict[str, object]) -> None:
    """All within 1e-5. In the padding only the hidden states of the text tower are not compared."""
    assert answers.keys() == case.outputs.keys()
    for name, answer in answers.items():
        per_token = re.match(r"text\.(last_)?hidden", name)
        (case if per_token else case._replace(kept=None)).close(name, answer, rtol=1e-5)


@pytest.mark.parametrize("variant", VARIANTS)
def test_hidden_states_and_embeddings_are_those_of_transformers(variant: str) -> None:
    model = Everything(CLIP.from_pretrained(goldens.folder(variant)))
    for case in goldens.cases(variant):
        compare(case, model(**{name: Tensor(array) for name, array in case.inputs.items()}))


@pytest.mark.parametrize("target", ["any", "portable"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_model_exported_once_gives_the_same_at_all_sizes(variant: str, target: str) -> None:
    session = Session(to_onnx(Everything(CLIP.from_pretrained(goldens.folder(variant))), target=target))
    for case in goldens.cases(variant):
        compare(case, session.run(goldens.with_mask(case.inputs)))


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_exported_model_carries_the_names_of_the_checkpoint(variant: str) -> None:
    model = to_onnx(CLIP.from_pretrained(goldens.folder(variant)))
    names = {initializer.name.removesuffix(".T") for initializer in model.graph.initializer}
    stored = {name for name in lucid.load(goldens.folder(variant)) if not name.endswith("position_ids")}
    assert stored - {"logit_scale"} <= names  # of which exp(...) is stored


def test_a_layer_is_lean() -> None:
    nodes = to_onnx(CLIP.from_pretrained(goldens.folder("clip/gelu"))).graph.node
    for tower in ("text", "vision"):
        layer = Counter(node.op_type for node in nodes if node.name.startswith(f"{tower}_model.encoder.layers.1"))
        assert 0 < layer.total() <= 18, layer


def test_embeddings_have_length_1() -> None:
    clip = CLIP.from_pretrained(goldens.folder("clip/gelu"))
    outputs = clip(lucid.tensor([[0, 5, 38]]), lucid.randn(2, 3, 12, 12))
    np.testing.assert_allclose((outputs.text_embeds**2).sum(-1), 1, rtol=1e-6)
    np.testing.assert_allclose((outputs.image_embeds**2).sum(-1), 1, rtol=1e-6)


def test_what_follows_the_end_of_a_text_does_not_matter() -> None:
    clip = CLIP.from_pretrained(goldens.folder("clip/gelu"))
    pixels, (short, long) = lucid.zeros(1, 3, 12, 12), ([[0, 5, 38]], [[0, 5, 38, 7, 38, 39]])
    texts = [clip(lucid.tensor(ids), pixels).text_embeds for ids in (short, long)]
    np.testing.assert_allclose(*texts, rtol=1e-5)


def edited(folder: Path, variant: str, **changes: object) -> Path:
    """A copy of a checkpoint with some options changed; "text_config__x" stands for x inside text_config."""
    shutil.copytree(goldens.folder(variant), folder / "model")
    path = folder / "model" / "config.json"
    config = json.loads(path.read_text())
    for name, value in changes.items():
        section, _, option = name.rpartition("__")
        (config[section] if section else config)[option] = value
    path.write_text(json.dumps(config))
    return folder / "model"


def test_options_that_published_files_leave_out_are_those_of_the_first_clip(tmp_path: Path) -> None:
    small = {"hidden_size": 24, "intermediate_size": 8}
    config = {"model_type": "clip", "text_config": small, "vision_config": {**small, "num_hidden_layers": 1}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    lucid.save(tmp_path / "model.safetensors", {"logit_scale": np.zeros((), np.float32)})
    with pytest.raises(KeyError) as error:
        CLIP.from_pretrained(tmp_path)
    for part in ("text_model.encoder.layers.11.layer_norm1.bias", "vision_model.encoder.layers.0.mlp.fc1.bias"):
        assert part in str(error.value)
    assert "vision_model.encoder.layers.1." not in str(error.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "siglip"}, "model_type is 'siglip', supported: clip"),
        ({"text_config__hidden_act": "mish"}, "text_config: option hidden_act is 'mish', supported"),
        ({"vision_config__layer_norm_eps": "small"}, "vision_config: option layer_norm_eps is 'small', expected float"),
        ({"text_config_dict": {"hidden_act": "mish"}}, "text_config: option hidden_act is 'mish', supported"),
    ],
)
def test_an_option_that_is_not_supported_is_named(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        CLIP.from_pretrained(edited(tmp_path, "clip/gelu", **changes))


def test_all_keys_that_do_not_fit_are_listed_at_once(tmp_path: Path) -> None:
    folder = goldens.folder("clip/gelu")
    shutil.copy(folder / "config.json", tmp_path / "config.json")
    arrays = dict(lucid.load(folder))
    del arrays["vision_model.pre_layrnorm.bias"]
    arrays["text_model.extra"] = np.zeros(3, np.float32)
    arrays["visual_projection.weight"] = np.zeros((3, 3), np.float32)
    lucid.save(tmp_path / "model.safetensors", arrays)
    with pytest.raises(KeyError) as error:
        CLIP.from_pretrained(tmp_path)
    for part in (
        "missing: vision_model.pre_layrnorm.bias",
        "unexpected: text_model.extra",
        "visual_projection.weight has shape [3, 3], expected [12, 24]",
    ):
        assert part in str(error.value)


def test_inputs_that_do_not_fit_are_refused() -> None:
    clip = CLIP.from_pretrained(goldens.folder("clip/gelu"))
    ids, pixels = lucid.tensor([[0, 5, 38]]), lucid.zeros(1, 3, 12, 12)
    with pytest.raises(ValueError, match=r"pixel_values has shape \[1, 3, 16, 16\], expected \(N, 3, 12, 12\)"):
        clip(ids, lucid.zeros(1, 3, 16, 16))
    with pytest.raises(ValueError, match="13 positions, the table 12"):
        clip(lucid.zeros(1, 13, dtype=lucid.int64), pixels)
    with pytest.raises(IndexError, match="the table has 40 rows"):
        clip(lucid.tensor([[40]]), pixels)


def test_the_program_matches_texts_and_images(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["clip"])
    program.main()
    assert re.search(
        r"text \[0, 5, 8, 39\]: images \d+%, .*\n.*\n.*embeddings \d\.\de-0[678]$", capsys.readouterr().out
    )
