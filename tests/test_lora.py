"""`nn.LoRA`: adapters in the places of weights, trained, merged, and read and written as PEFT's folders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import lucid
from lucid import WeightsError, nn
from lucid.models import save_adapter, with_adapter
from lucid.nn import functional as F
from lucid.testing import assert_parity
from tests.models import goldens
from tests.models.test_adapters import FOLDER, LLAMA, base_of, pair, write

BERT = goldens.folder("bert/base")
IDS = lucid.tensor([[5, 2, 9, 31], [7, 7, 1, 0]])


def adapted(model: Any, rank: int = 3, targets: Any = "*", **options: Any) -> Any:
    """A model with adapters as after some training: B is zeros before."""
    lucid.manual_seed(0)
    model = nn.LoRA.add(model, rank, targets, **options)
    for name, parameter in model.named_parameters():
        if name.endswith("lora_B"):
            nn.init.normal_(parameter, std=0.1)
    return model


def output(model: Any, ids: Any = IDS) -> Any:
    result = model(ids)
    return (result if isinstance(result, lucid.Tensor) else result[0]).numpy()


def test_a_new_adapter_changes_nothing_and_weights_keep_their_names() -> None:
    model = lucid.models.load(BERT)
    with_lora = nn.LoRA.add(model, 2, ("*.query", "*.value"), alpha=8)
    np.testing.assert_array_equal(output(with_lora), output(model))
    before, after = model.state_dict(), with_lora.state_dict()
    assert all(after[name] is tensor for name, tensor in before.items())
    assert {name.rpartition("layer.")[2] for name in after.keys() - before.keys()} == {
        f"{layer}.attention.self.{part}.weight.lora_{letter}"
        for layer in (0, 1)
        for part in ("query", "value")
        for letter in "AB"
    }
    adapter = with_lora.get_submodule("encoder.layer.0.attention.self.query").weight
    assert adapter.rank == 2 and adapter.scale == 4 and np.any(adapter.lora_A.numpy())
    assert not any(isinstance(module, nn.LoRA) for module in model.modules())


def test_all_linear_layers_are_targets_by_default_and_no_tables() -> None:
    layers = {name.rpartition(".weight.lora")[0] for name in nn.LoRA.add(lucid.models.load(LLAMA), 1).state_dict()} - {
        ""
    }
    assert layers == {
        f"model.layers.{n}.{block}_proj"
        for n in range(2)
        for block in ("self_attn.q", "self_attn.k", "self_attn.v", "self_attn.o", "mlp.gate", "mlp.up", "mlp.down")
    } | ({"lm_head"} if "lm_head.weight" in lucid.models.load(LLAMA).state_dict() else set())


@pytest.mark.parametrize("source", ["bert/base", "gpt2/base"])
@pytest.mark.parametrize("bits", [None, 4])
def test_merging_computes_the_same(source: str, bits: int | None) -> None:
    model: Any = lucid.models.load(goldens.folder(source))
    if bits is not None:
        model = lucid.quantize(model, bits, block=16)
    trained = adapted(model)
    merged = nn.LoRA.merge(trained)
    assert np.abs(output(trained) - output(model)).max() > 0.01
    np.testing.assert_allclose(output(merged), output(trained), atol=2e-5)
    assert not any(isinstance(module, nn.LoRA) for module in merged.modules())
    assert not [name for name in merged.state_dict() if ".lora_" in name]


def test_a_quantized_base_stays_in_4_bits() -> None:
    small = lucid.quantize(nn.Sequential(nn.Linear(32, 8)), 4)
    trained = adapted(small)
    assert {name: tensor.dtype for name, tensor in trained.state_dict().items() if "lora" not in name} == {
        name: tensor.dtype for name, tensor in small.state_dict().items()
    }
    x = lucid.randn(3, 32)
    weight = trained.get_submodule("0").weight
    added = x.numpy() @ weight.lora_A.numpy().T @ weight.lora_B.numpy().T * weight.scale
    np.testing.assert_allclose(trained(x).numpy(), small(x).numpy() + added, rtol=1e-5, atol=1e-6)
    assert_parity(trained, lucid.spec("N", 32))


def test_joined_weights_of_attention_take_adapters() -> None:
    layer = nn.MultiHeadAttention(8, 2)
    trained = adapted(layer, 2, "in_proj_weight")
    x = lucid.randn(2, 5, 8)
    np.testing.assert_allclose(trained(x).numpy(), nn.LoRA.merge(trained)(x).numpy(), atol=1e-6)
    assert_parity(trained)


class Tied(nn.Module):
    """A weight of products that is also read as a table, as `nn.Module.quantizable` allows."""

    quantizable: ClassVar = {"weight": "linear"}

    def __init__(self) -> None:
        self.weight = nn.Parameter(lucid.randn(6, 8))

    def forward(self, ids: lucid.Tensor) -> lucid.Tensor:
        return F.linear(F.embedding(ids, self.weight) + self.weight[:1], self.weight)


def test_a_weight_that_is_also_a_table_is_adapted_in_both_ways() -> None:
    trained, ids = adapted(Tied(), 2, "*"), lucid.tensor([[0, 5, 3]])
    np.testing.assert_allclose(trained(ids).numpy(), nn.LoRA.merge(trained)(ids).numpy(), atol=1e-4)
    rows = trained.weight.slice_rows(2, 5, "[part]").rows(lucid.tensor([0, 2]))  # type: ignore[attr-defined]
    np.testing.assert_allclose(rows.numpy(), nn.LoRA.merge(trained).weight.numpy()[[2, 4]], atol=1e-5)


@pytest.mark.parametrize("name", ["patterns", "one_layer", "t5"])
def test_adapters_of_peft_are_read_and_merged_as_it_merges_them(name: str) -> None:
    base = base_of(name)
    trained = with_adapter(lucid.models.load(base), FOLDER / name)
    expected = lucid.models.load(base, adapters=FOLDER / name).state_dict()
    merged = nn.LoRA.merge(trained).state_dict()
    assert merged.keys() == expected.keys()
    for key, tensor in expected.items():
        np.testing.assert_allclose(merged[key].numpy(), tensor.numpy(), rtol=1e-5, atol=1e-6, err_msg=key)


@pytest.mark.parametrize("source", ["bert/base", "gpt2/base", "llama/llama3"])
def test_what_is_written_is_read_again(tmp_path: Path, source: str) -> None:
    base = goldens.folder(source)
    trained = adapted(adapted(lucid.models.load(base), 3, "*.0.*", alpha=6), 2, "*.1.*")
    save_adapter(trained, base, tmp_path)
    again = with_adapter(lucid.models.load(base), tmp_path)
    np.testing.assert_array_equal(output(again), output(trained))
    np.testing.assert_allclose(output(lucid.models.load(base, adapters=tmp_path)), output(trained), atol=2e-5)
    config = json.loads((tmp_path / "adapter_config.json").read_text())
    assert config["peft_type"] == "LORA" and (config["r"], config["lora_alpha"]) == (3, 6)
    assert set(config["rank_pattern"].values()) == {2} and config["fan_in_fan_out"] == (source == "gpt2/base")
    assert all(key.startswith("base_model.model.") for key in lucid.load(tmp_path / "adapter_model.safetensors"))


def test_a_trained_head_is_written_as_a_whole(tmp_path: Path) -> None:
    base = goldens.folder("tasks/distilbert_text_classification")
    trained = adapted(lucid.models.load(base), 2, "*.query")  # DistilBERT calls it q_lin, and the head classifier
    head = trained.get_submodule("classifier.out_proj")
    head.weight = nn.Parameter(head.weight.numpy() + 1)
    save_adapter(trained, base, tmp_path, whole="classifier.out_proj")
    config = json.loads((tmp_path / "adapter_config.json").read_text())
    assert config["modules_to_save"] == ["classifier"] and config["task_type"] == "SEQ_CLS"
    for again in (with_adapter(lucid.models.load(base), tmp_path), lucid.models.load(base, adapters=tmp_path)):
        np.testing.assert_allclose(output(again), output(trained), atol=1e-5)


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        (lambda: nn.LoRA.add(nn.Linear(4, 4), 0), ValueError, "LoRA.add: rank is 0, expected a whole number of 1"),
        (
            lambda: nn.LoRA.add(nn.Sequential(nn.Linear(4, 4)), 2, "1"),
            ValueError,
            "'1' matches no parameter; there are 0.w",
        ),
        (lambda: nn.LoRA.add(nn.Embedding(4, 4), 2), ValueError, "matches no parameter; there are none"),
        (
            lambda: nn.LoRA.add(nn.LoRA.add(nn.Sequential(nn.Linear(4, 4)), 2), 2),
            ValueError,
            "0 has an adapter; merge it",
        ),
        (lambda: save_adapter(lucid.models.load(BERT), BERT, "."), ValueError, "this Bert has no adapter: nn.LoRA.add"),
        (lambda: with_adapter(lucid.models.load(BERT), FOLDER / "dora"), WeightsError, "DoRA's lengths of rows"),
        (
            lambda: with_adapter(lucid.models.load(BERT), FOLDER / "one_layer"),
            WeightsError,
            "is no layer of this Bert that takes adapters",
        ),
    ],
)
def test_what_does_not_fit_is_an_error(wrong: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        wrong()


def test_an_adapter_of_another_width_is_an_error(tmp_path: Path) -> None:
    folder = write(tmp_path, pair("encoder.layer.0.attention.self.query", 5, 5))
    with pytest.raises(WeightsError, match=r"has lora_A \[2, 5\] and lora_B \[5, 2\], expected \(r, "):
        with_adapter(lucid.models.load(BERT), folder)
