"""Generation with the decoders of models/: transformers' tokens, eagerly and exported."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import numpy as np
import pytest

import lucid
from lucid.export import Target, to_onnx
from lucid.generation import Generator, memory, pad_left
from lucid.generation.slots import BufferSlots
from lucid.models.llama import Llama
from lucid.nn import CausalDecoder
from lucid.runtime import Session
from tests.models import goldens

CASES = json.loads((goldens.folder("generation") / "tokens.json").read_text())
MODELS = sorted({case["model"] for case in CASES})
OPTION_CASES = json.loads((goldens.folder("generation") / "options.json").read_text())


@cache
def decoder(variant: str) -> CausalDecoder:
    model = lucid.models.load(goldens.folder(variant))
    assert isinstance(model, CausalDecoder)
    return model


KINDS = ["eager", "growing", "fixed", "fixed in place"]
kinds = pytest.mark.parametrize("kind", KINDS)


@cache
def model(variant: str, kind: str) -> CausalDecoder | Session:
    """A decoder, or its export: over a growing cache, or buffers that attention copies, or reads where they are."""
    if kind == "eager":
        return decoder(variant)
    target = Target("cpu", onnxruntime="1.31") if kind == "fixed in place" else "any"
    return Session(to_onnx(decoder(variant), cache="growing" if kind == "growing" else "fixed", target=target))


@kinds
@pytest.mark.parametrize("variant", MODELS)
def test_the_tokens_are_those_of_transformers(variant: str, kind: str) -> None:
    """Greedy and with beams, one and several ids that end a sequence, with a repetition penalty."""
    generator = Generator(model(variant, kind))
    for case in [case for case in CASES if case["model"] == variant]:
        ids, mask = pad_left(case["prompts"], 35)
        tokens = generator.generate(ids, mask, pad_token_id=35, **case["options"])
        assert tokens.tolist() == case["tokens"], case


@pytest.mark.parametrize("kind", ["eager", "fixed in place"])
@pytest.mark.parametrize("case", OPTION_CASES, ids=lambda case: "+".join(case["options"]))
def test_options_alone_and_mixed_give_the_tokens_of_transformers(case: dict[str, Any], kind: str) -> None:
    options = dict(case["options"])
    if "logit_bias" in options:
        options["logit_bias"] = {int(token): bias for token, bias in options["logit_bias"].items()}
    tokens = Generator(model(case["model"], kind)).generate(case["prompts"], pad_token_id=35, **options)
    assert tokens.tolist() == case["tokens"]


SAMPLED: list[dict[str, Any]] = [
    {},
    {"temperature": 0.7, "top_k": 10},
    {"top_p": 0.9, "repetition_penalty": 1.2},
    {"min_p": 0.1, "eos_token_id": [3, 9]},
    {"num_beams": 3},
]


@pytest.mark.parametrize("variant", MODELS)
def test_samples_are_the_same_eagerly_and_exported(variant: str) -> None:
    ids, mask = pad_left([[1], [2, 3, 4], [5, 6]], 0)
    for seed, options in enumerate(SAMPLED):
        first, *others = (
            Generator(model(variant, kind)).generate(ids, mask, max_new_tokens=12, do_sample=True, seed=seed, **options)
            for kind in KINDS
        )
        assert all(other.tolist() == first.tolist() for other in others)


@kinds
@pytest.mark.parametrize("variant", MODELS)
def test_a_step_gives_the_logits_of_one_shot(variant: str, kind: str) -> None:
    """After reordered rows, too."""
    slots = memory.memory_of("test", model(variant, kind)).slots(3, 8)
    ids = np.random.default_rng(0).integers(1, 35, (3, 8))
    rows = [2, 0, 0, 1]
    slots.read(range(3), ids[:, :6])
    slots.select(rows)
    for column in (6, 7):
        logits = slots.read(range(4), ids[rows, column : column + 1])[:, -1]
        expected = decoder(variant)(lucid.Tensor(ids[rows, : column + 1])).numpy()[:, -1]
        np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=2e-5)


@kinds
@pytest.mark.parametrize("variant", MODELS)
def test_a_row_of_a_batch_gets_the_tokens_that_it_gets_alone(variant: str, kind: str) -> None:
    prompts = [[7], [1, 2, 3, 4, 5], [9, 8, 7]]
    generator, options = Generator(model(variant, kind)), {"max_new_tokens": 8, "repetition_penalty": 1.5}
    together = generator.generate(*pad_left(prompts, 0), **options)  # type: ignore[arg-type]
    alone = [generator.generate(prompt, **options)[0].tolist() for prompt in prompts]  # type: ignore[arg-type]
    assert together.tolist() == alone


@pytest.mark.parametrize("num_beams", [1, 2])
def test_buffers_become_larger_as_texts_do(num_beams: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "FIRST_CAPACITY", 4)
    options: dict[str, Any] = {"max_new_tokens": 20, "num_beams": num_beams}
    ids, mask = pad_left([[1, 2], [3]], 0)
    few, many = (Generator(model("llama/llama2", kind)).generate(ids, mask, **options) for kind in ("fixed", "eager"))
    assert few.tolist() == many.tolist()


def test_a_step_over_buffers_copies_no_cache() -> None:
    """The memory that a session reads as past and writes as present is that of the first step."""
    slots = memory.memory_of("test", model("llama/llama2", "fixed in place")).slots(1, 8)
    assert isinstance(slots, BufferSlots)
    slots.read([0], [np.array([1, 2, 3])])
    values = dict(slots.buffers.values)
    places = {name: value.data_ptr() for name, value in values.items()}
    assert not any(value.numpy()[:, :, 3:].any() for value in values.values())
    slots.read([0], [np.array([4])])
    assert {name: value.data_ptr() for name, value in slots.buffers.values.items()} == places
    assert all(value.numpy()[:, :, 3].any() and not value.numpy()[:, :, 4:].any() for value in values.values())


def test_a_model_that_says_how_many_positions_it_has_is_believed() -> None:
    with pytest.raises(
        ValueError, match="a prompt of 3 tokens and max_new_tokens=30 take 33 positions, the model has 24"
    ):
        Generator(decoder("gpt2/base")).generate([1, 2, 3], max_new_tokens=30)


@pytest.mark.parametrize("dtype", [lucid.float16, lucid.bfloat16])
def test_half_precision_runs_eagerly_and_exported(dtype: lucid.DType) -> None:
    llama = Llama.from_pretrained(goldens.folder("llama/llama2"), dtype=dtype)
    for kind in ("growing", "fixed"):
        exported = Session(to_onnx(llama, cache=kind))  # type: ignore[arg-type]
        first, second = (Generator(m).generate([[1, 2, 3]], max_new_tokens=4, num_beams=2) for m in (llama, exported))
        assert first.shape == second.shape == (1, 4)


@pytest.mark.parametrize("positions", [None, 1000])
def test_a_prompt_that_does_not_fit_the_buffers_is_an_error(positions: int | None) -> None:
    generator = Generator(Session(to_onnx(decoder("gpt2/base"), cache="fixed", capacity=16)), max_positions=positions)
    assert generator.generate([1, 2, 3], max_new_tokens=13).shape == (1, 13)
    with pytest.raises(
        ValueError, match="a prompt of 3 tokens and max_new_tokens=14 take 17 positions, the model has 16"
    ):
        generator.generate([1, 2, 3], max_new_tokens=14)
