"""Generation with the decoders of models/: transformers' tokens, eagerly and exported."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import numpy as np
import pytest

import lucid
from lucid.generation import Generator, pad_left
from lucid.generation.steppers import Stepper, stepper
from lucid.models.gpt2 import GPT2
from lucid.models.llama import Llama
from lucid.nn import CausalDecoder
from lucid.runtime import Session
from tests.models import goldens

CASES = json.loads((goldens.folder("generation") / "tokens.json").read_text())
MODELS = sorted({case["model"] for case in CASES})


@cache
def decoder(variant: str) -> CausalDecoder:
    return (GPT2 if variant.startswith("gpt2") else Llama).from_pretrained(goldens.folder(variant))


@cache
def session(variant: str) -> Session:
    return Session(lucid.export.to_onnx(decoder(variant), cache="growing"))


@pytest.mark.parametrize("exported", [False, True], ids=["eager", "exported"])
@pytest.mark.parametrize("variant", MODELS)
def test_the_tokens_are_those_of_transformers(variant: str, exported: bool) -> None:
    """Greedy and with beams, one and several ids that end a sequence, with a repetition penalty."""
    generator = Generator(session(variant) if exported else decoder(variant))
    for case in [case for case in CASES if case["model"] == variant]:
        ids, mask = pad_left(case["prompts"], 35)
        found = generator.generate(ids, mask, pad_token_id=35, **case["options"])
        assert found.tolist() == case["tokens"], case


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
        first, second = (
            Generator(model).generate(ids, mask, max_new_tokens=12, do_sample=True, seed=seed, **options)
            for model in (decoder(variant), session(variant))
        )
        assert first.tolist() == second.tolist()


@pytest.mark.parametrize("exported", [False, True], ids=["eager", "exported"])
@pytest.mark.parametrize("variant", MODELS)
def test_a_step_gives_the_logits_of_one_shot(variant: str, exported: bool) -> None:
    """After reordered rows, too."""
    model = decoder(variant)
    steps: Stepper[Any] = stepper(session(variant) if exported else model)
    ids = np.random.default_rng(0).integers(1, 35, (3, 8))
    rows = np.array([2, 0, 0, 1])
    where, mask = np.broadcast_to(np.arange(8), (4, 8)), np.ones((4, 8), np.int64)
    _, held = steps.step(ids[:, :6], mask[:3, :6], where[:3, :6], steps.empty_cache(3))
    held = steps.reordered(held, rows)
    for column in (6, 7):
        part = slice(column, column + 1)
        logits, held = steps.step(ids[rows, part], mask[:, : column + 1], where[:, part], held)
        expected = model(lucid.Tensor(ids[rows, : column + 1])).numpy()[:, -1]
        np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("variant", MODELS)
def test_a_row_of_a_batch_gets_the_tokens_that_it_gets_alone(variant: str) -> None:
    prompts = [[7], [1, 2, 3, 4, 5], [9, 8, 7]]
    generator, options = Generator(session(variant)), {"max_new_tokens": 8, "repetition_penalty": 1.5}
    together = generator.generate(*pad_left(prompts, 0), **options)  # type: ignore[arg-type]
    alone = [generator.generate(prompt, **options)[0].tolist() for prompt in prompts]  # type: ignore[arg-type]
    assert together.tolist() == alone


def test_a_model_that_says_how_many_positions_it_has_is_believed() -> None:
    with pytest.raises(
        ValueError, match="a prompt of 3 tokens and max_new_tokens=30 take 33 positions, the model has 24"
    ):
        Generator(decoder("gpt2/base")).generate([1, 2, 3], max_new_tokens=30)


@pytest.mark.parametrize("dtype", [lucid.float16, lucid.bfloat16])
def test_half_precision_runs_eagerly_and_exported(dtype: lucid.DType) -> None:
    model = Llama.from_pretrained(goldens.folder("llama/llama2"), dtype=dtype)
    exported = Session(lucid.export.to_onnx(model, cache="growing"))
    first, second = (Generator(m).generate([[1, 2, 3]], max_new_tokens=4, num_beams=2) for m in (model, exported))
    assert first.shape == second.shape == (1, 4)


@pytest.mark.parametrize("capacity", [None, 16], ids=["symbolic", "of 16"])
def test_a_session_over_buffers_of_a_fixed_capacity_is_refused(capacity: int | None) -> None:
    fixed = Session(lucid.export.to_onnx(decoder("gpt2/base"), cache="fixed", capacity=capacity))
    with pytest.raises(ValueError, match="past_key_values.0.key has a fixed capacity, expected a cache that grows"):
        Generator(fixed)
