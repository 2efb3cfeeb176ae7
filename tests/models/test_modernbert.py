"""models/modernbert.py against transformers."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import lucid
from lucid.export import to_onnx
from lucid.models.checkpoints.pretrained import ConfigError
from lucid.models.modernbert import ModernBert, ModernBertSentenceEncoder
from tests.models import goldens


def test_a_token_sees_as_far_ahead_as_back() -> None:
    """One layer with a window of 3 on either side: tokens further away change nothing, in both directions."""
    model = ModernBert.from_pretrained(goldens.folder("modernbert/masked_lm"))
    model.layers = model.layers[:1]
    ids = np.arange(12)[None] + 3
    for place, seen in ((8, [5, 6, 7, 8, 9, 10, 11]), (0, [0, 1, 2, 3])):
        other = ids.copy()
        other[0, place] = 30
        changed = (abs(model(lucid.tensor(ids)) - model(lucid.tensor(other))).numpy()[0] > 0).any(-1)
        assert np.flatnonzero(changed).tolist() == seen


def test_a_layer_is_lean() -> None:
    """Four products, one split each of queries and gate, two rotations, attention, and what is around them."""
    nodes = to_onnx(ModernBert.from_pretrained(goldens.folder("modernbert/base"))).graph.node
    assert 0 < sum(node.name.startswith(("layers.2.", "layers.2/")) for node in nodes) <= 15


def test_sentence_embeddings_are_those_of_the_layers_that_modules_json_lists(tmp_path: Path) -> None:
    folder = shutil.copytree(goldens.folder("modernbert/base"), tmp_path / "model")
    kinds = ("models.Transformer", ""), ("models.Pooling", "1_Pooling"), ("models.Normalize", "2_Normalize")
    modules = [
        {"idx": i, "path": path, "type": f"sentence_transformers.{kind}"} for i, (kind, path) in enumerate(kinds)
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    pooling = {"word_embedding_dimension": 16, "pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    encoder = lucid.models.load(folder)
    assert isinstance(encoder, ModernBertSentenceEncoder)
    ids, mask = lucid.tensor([[5, 6, 7, 0, 0]]), lucid.tensor([[1, 1, 1, 0, 0]])
    first = ModernBert.forward(encoder, ids, mask).numpy()[0, 0]
    np.testing.assert_allclose(encoder(ids, mask).numpy()[0], first / np.linalg.norm(first), rtol=1e-5, atol=1e-6)
    assert [output.name for output in to_onnx(encoder).graph.output] == ["sentence_embedding"]


def test_the_options_of_the_first_published_files_mean_the_same(tmp_path: Path) -> None:
    older = {
        "layer_types": None,
        "global_attn_every_n_layers": 3,
        "rope_parameters": None,
        "global_rope_theta": 160000.0,
        "local_rope_theta": 10000.0,
        "layer_norm_eps": 1e-5,
        "position_embedding_type": "absolute",
        "reference_compile": False,
        "repad_logits_with_grad": False,
    }
    config = ModernBert.from_pretrained(goldens.copied("modernbert/base", tmp_path, **older)).config
    assert config == ModernBert.from_pretrained(goldens.folder("modernbert/base")).config


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layer_types": ["chunked_attention"] * 4}, "layer_types is .*, supported: 4 of full_attention or sliding"),
        ({"num_attention_heads": 16}, "num_attention_heads is 16, expected heads of an even width, of 16 in all"),
        ({"hidden_activation": "mish"}, "hidden_activation is 'mish', supported: gelu"),
        ({"local_attention": 0}, "local_attention is 0, expected a whole number from 1"),
        ({"rope_scaling": {"rope_type": "linear"}}, "rope_scaling is .*, supported: None"),
        ({"rope_parameters": {"full_attention": {"rope_type": "longrope", "factor": 2.0}}}, "rope_type is 'longrope'"),
        ({"rope_parameters": {"chunked_attention": {}, "rope_theta": 3.0}}, "rope_theta = 3.0"),
    ],
    ids=str,
)
def test_an_option_that_is_not_supported_is_named(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ModernBert.from_pretrained(goldens.copied("modernbert/base", tmp_path, **changes))
