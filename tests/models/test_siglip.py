"""models/siglip.py against transformers, and what it does otherwise than CLIP."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

import lucid
from lucid import Tensor
from lucid.models.checkpoints.pretrained import ConfigError
from lucid.models.siglip import SigLIP
from tests.models import goldens


def test_hidden_states_are_those_of_transformers() -> None:
    model = SigLIP.from_pretrained(goldens.folder("siglip/base"))
    for case in goldens.cases("siglip/base"):
        inputs = {name: Tensor(array) for name, array in case.inputs.items()}
        texts = model.text_model.hidden_states(inputs["input_ids"], inputs.get("attention_mask"))
        images = model.vision_model.hidden_states(inputs["pixel_values"])
        for tower, states in (("text", texts), ("vision", images)):
            for index, state in enumerate(states):
                case._replace(kept=None).close(f"{tower}.hidden_states.{index}", state, rtol=5e-6)


def test_logits_are_cosines_scaled_and_moved_and_embeddings_have_length_1() -> None:
    model = SigLIP.from_pretrained(goldens.folder("siglip/base"))
    outputs = model(lucid.tensor([[5, 8, 1], [7, 1, 1]]), lucid.randn(3, 3, 12, 12))
    texts, images = outputs.text_embeds.numpy(), outputs.image_embeds.numpy()
    expected = texts @ images.T * np.exp(model.logit_scale.numpy()) + model.logit_bias.numpy()
    np.testing.assert_allclose(outputs.logits_per_text.numpy(), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(outputs.logits_per_image.numpy(), outputs.logits_per_text.numpy().T)
    for embeddings in (texts, images):
        np.testing.assert_allclose((embeddings**2).sum(-1), 1, rtol=1e-6)


def test_the_last_token_makes_the_embedding_and_sees_all_of_the_text() -> None:
    model = lucid.models.load(goldens.folder("siglip/texts"), "feature-extraction")
    embeddings = [model(lucid.tensor([ids]))[1].numpy() for ids in ([5, 8, 1, 1], [5, 8, 1], [6, 8, 1])]
    assert all(abs(a - b).max() > 1e-3 for a, b in itertools.pairwise(embeddings))


def test_a_layer_is_lean() -> None:
    nodes = lucid.export.to_onnx(SigLIP.from_pretrained(goldens.folder("siglip/base"))).graph.node
    for tower in ("text", "vision"):
        layer = [node.op_type for node in nodes if node.name.startswith(f"{tower}_model.encoder.layers.1")]
        assert 0 < len(layer) <= 18, layer


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("vision_use_head", False, "vision_use_head is False, supported: True"),
        ("num_patches", 256, "num_patches is 256, supported: models for one size of images"),
        ("image_size", [224, 224], r"image_size is \[224, 224\], expected int"),
    ],
)
def test_an_option_that_is_not_supported_is_named(tmp_path: Path, option: str, value: object, message: str) -> None:
    with pytest.raises(ConfigError, match=f"vision_config: .*{message}"):
        SigLIP.from_pretrained(goldens.copied("siglip/base", tmp_path, "vision_config", **{option: value}))
