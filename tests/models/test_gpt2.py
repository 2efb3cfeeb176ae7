"""models/gpt2.py against transformers."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import lucid
from lucid.models.checkpoints.pretrained import ConfigError
from lucid.models.gpt2 import GPT2
from tests.models import goldens

VARIANTS = ["gpt2/base", "gpt2/hub_layout", "gpt2/scaled"]


@pytest.mark.parametrize("variant", VARIANTS)
def test_hidden_states_and_logits_are_those_of_transformers(variant: str) -> None:
    model = GPT2.from_pretrained(goldens.folder(variant))
    for case in goldens.cases(variant):
        inputs = {name: lucid.Tensor(array) for name, array in case.inputs.items()}
        case.close("last_hidden_state", model.transformer(**inputs)[0], rtol=1e-5)
        case.close("logits", model(**inputs), rtol=2e-5)


def test_layer_by_layer() -> None:
    model = GPT2.from_pretrained(goldens.folder("gpt2/base"))
    (case, *_) = goldens.cases("gpt2/base")
    ids = lucid.Tensor(case.inputs["input_ids"])
    x = model.transformer.wte(ids) + model.transformer.wpe(ids.shape[1])
    case.close("hidden_states.0", x, rtol=1e-6)
    x, _ = model.transformer.h[0](x, None, None)
    case.close("hidden_states.1", x, rtol=1e-5)


def test_the_exported_model_is_lean_and_named_after_the_checkpoint() -> None:
    model = GPT2.from_pretrained(goldens.folder("gpt2/base"))
    exported = lucid.export.to_onnx(model)
    names = {initializer.name for initializer in exported.graph.initializer}
    stored = set(lucid.load(goldens.folder("gpt2/base")))
    assert stored - {"transformer.wte.weight"} <= names
    second = [node for node in exported.graph.node if node.name.startswith("transformer.h.1")]
    assert 0 < len(second) <= 18


def test_more_positions_than_the_table_holds_are_refused() -> None:
    model = GPT2.from_pretrained(goldens.folder("gpt2/base"))
    with pytest.raises(ValueError, match="25 positions, the table 24"):
        model(lucid.zeros(1, 25, dtype=lucid.int64))


def test_a_token_outside_the_vocabulary_is_refused() -> None:
    model = GPT2.from_pretrained(goldens.folder("gpt2/base"))
    with pytest.raises(IndexError, match="the table has 40 rows"):
        model(lucid.tensor([[3, 40]]))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"activation_function": "mish"}, "activation_function is 'mish', supported: gelu"),
        ({"add_cross_attention": True}, "add_cross_attention is True, supported: False"),
        ({"model_type": "llama"}, "model_type is 'llama', supported: gpt2"),
        ({"n_head": "4"}, "n_head is '4', expected int"),
        ({"n_layer": None}, "n_layer is null, expected int"),
    ],
)
def test_an_option_that_is_not_supported_is_named(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        GPT2.from_pretrained(goldens.copied("gpt2/base", tmp_path, **changes))


def test_all_keys_that_do_not_fit_are_listed_at_once(tmp_path: Path) -> None:
    folder = goldens.folder("gpt2/base")
    shutil.copy(folder / "config.json", tmp_path / "config.json")
    arrays = dict(lucid.load(folder))
    del arrays["transformer.ln_f.bias"]
    arrays["transformer.extra"] = np.zeros(3, np.float32)
    arrays["transformer.wpe.weight"] = np.zeros((3, 3), np.float32)
    lucid.save(tmp_path / "model.safetensors", arrays)
    with pytest.raises(KeyError) as error:
        GPT2.from_pretrained(tmp_path)
    for part in ("missing: transformer.ln_f.bias", "unexpected: transformer.extra", "transformer.wpe.weight has shape"):
        assert part in str(error.value)


def test_a_head_that_differs_from_the_table_is_a_layer_of_its_own(tmp_path: Path) -> None:
    folder = goldens.folder("gpt2/base")
    shutil.copy(folder / "config.json", tmp_path / "config.json")
    arrays = dict(lucid.load(folder))
    lucid.save(tmp_path / "model.safetensors", arrays | {"lm_head.weight": arrays["transformer.wte.weight"]})
    ids = lucid.tensor([[1, 2, 3]])
    logits = GPT2.from_pretrained(tmp_path)(ids).numpy()
    lucid.save(tmp_path / "model.safetensors", arrays | {"lm_head.weight": arrays["transformer.wte.weight"] * 2})
    np.testing.assert_allclose(GPT2.from_pretrained(tmp_path)(ids).numpy(), 2 * logits, rtol=1e-6)
