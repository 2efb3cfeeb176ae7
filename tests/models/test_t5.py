"""models/t5.py against transformers."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import lucid
from lucid.models.checkpoints.pretrained import ConfigError
from lucid.models.t5 import T5
from tests.models import goldens

VARIANTS = ["t5/v1_0", "t5/v1_1"]


@pytest.mark.parametrize("variant", VARIANTS)
def test_hidden_states_and_logits_are_those_of_transformers(variant: str) -> None:
    model = T5.from_pretrained(goldens.folder(variant))
    for case in goldens.cases(variant):
        inputs = {name: lucid.Tensor(array) for name, array in case.inputs.items()}
        keep = inputs["attention_mask"].astype(lucid.bool_) if "attention_mask" in inputs else None
        memory = model.encoder(model.shared(inputs["input_ids"]), keep)
        case.close("encoder.last_hidden_state", memory, rtol=1e-5)
        decoded = model.decoder(model.shared(inputs["decoder_input_ids"]), memory, keep)
        case.close("decoder.last_hidden_state", decoded, rtol=1e-5)
        case.close("logits", model(**inputs), rtol=2e-5)


def test_mt5_never_scales_its_outputs(tmp_path: Path) -> None:
    folder = goldens.folder("mt5/base")
    config = json.loads((folder / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "scale_decoder_outputs": True}))
    shutil.copy(folder / "model.safetensors", tmp_path)
    assert not T5.from_pretrained(tmp_path).config.scale_outputs


def test_the_exported_weights_have_the_checkpoint_s_names() -> None:
    folder = goldens.folder("t5/v1_1")
    exported = lucid.export.to_onnx(T5.from_pretrained(folder))
    names = {initializer.name.removesuffix(".T") for initializer in exported.graph.initializer}
    assert set(lucid.load(folder)) <= names


def test_padding_has_no_effect() -> None:
    model = T5.from_pretrained(goldens.folder("t5/v1_1"))
    target = lucid.tensor([[0, 4]])
    short = model(lucid.tensor([[5, 6, 1]]), target)
    padded = model(lucid.tensor([[5, 6, 1, 0, 0]]), target, lucid.tensor([[1, 1, 1, 0, 0]]))
    np.testing.assert_allclose(padded, short, rtol=1e-5, atol=1e-6)


def test_copies_of_the_token_table_are_accepted(tmp_path: Path) -> None:
    folder = goldens.folder("t5/v1_0")
    shutil.copy(folder / "config.json", tmp_path)
    arrays = dict(lucid.load(folder))
    arrays |= {f"{stack}.embed_tokens.weight": arrays["shared.weight"] for stack in ("encoder", "decoder")}
    lucid.save(tmp_path / "model.safetensors", arrays)
    state, expected = (T5.from_pretrained(source).state_dict() for source in (tmp_path, folder))
    assert state.keys() == expected.keys()
    np.testing.assert_array_equal(state["shared.weight"].numpy(), expected["shared.weight"].numpy())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"feed_forward_proj": "gated-mish"}, "feed_forward_proj is 'gated-mish', supported: relu, gated-gelu"),
        ({"is_gated_act": True}, "is_gated_act is True, supported: False"),
        ({"dense_act_fn": "gelu"}, "dense_act_fn is 'gelu', supported: 'relu'"),
        ({"model_type": "byt5"}, "model_type is 'byt5', .*supported: t5, mt5, umt5"),
    ],
)
def test_an_option_that_is_not_supported_is_named(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        T5.from_pretrained(goldens.copied("t5/v1_0", tmp_path, **changes))
