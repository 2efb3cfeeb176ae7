"""Generation with the encoder-decoders of models/: transformers' tokens, eagerly and exported in parts."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import numpy as np
import pytest

import lucid
from lucid import Tensor, nn
from lucid.export import to_onnx
from lucid.generation import EncoderDecoderGenerator, Generator, memory
from lucid.models.gpt2 import GPT2
from lucid.models.transformer import Transformer
from lucid.runtime import Session
from tests.models import goldens

CASES = json.loads((goldens.folder("seq2seq_generation") / "tokens.json").read_text())
MODELS = sorted({case["model"] for case in CASES})
KINDS = ["eager", "growing", "fixed", "merged"]
kinds = pytest.mark.parametrize("kind", KINDS)
PAD = 35


@cache
def eager(variant: str) -> Any:
    return lucid.models.load(goldens.folder(variant))


@cache
def session(variant: str, *options: tuple[str, str]) -> Session:
    return Session(to_onnx(eager(variant), **dict(options)), threads=1)  # type: ignore[arg-type]


@cache
def generator(variant: str, kind: str) -> EncoderDecoderGenerator:
    """Of a model, or of the parts that it is exported in."""
    if kind == "eager":
        return EncoderDecoderGenerator(eager(variant))
    if kind == "merged":
        parts = session(variant, ("part", "encoder")), session(variant, ("part", "decoder_merged"))
    else:
        parts = session(variant, ("part", "encoder"), ("cache", "growing")), session(variant, ("cache", kind))
    return EncoderDecoderGenerator(*parts, decoder_start_token_id=eager(variant).config.decoder_start_token_id)


def source(case: dict[str, Any]) -> tuple[Any, ...]:
    """What the encoder reads: texts padded on the right and their mask, or sounds."""
    if "sounds" in case:
        return (np.asarray(case["sounds"], np.float32) / 100,)
    longest = max(map(len, case["sources"]))
    ids = [ids + [PAD] * (longest - len(ids)) for ids in case["sources"]]
    return ids, [[1] * len(own) + [0] * (longest - len(own)) for own in case["sources"]]


@kinds
@pytest.mark.parametrize("variant", MODELS)
def test_the_tokens_are_those_of_transformers(variant: str, kind: str) -> None:
    """Greedy and with beams, one and several ids that end a sequence, with a repetition penalty, from any beginning."""
    for case in [case for case in CASES if case["model"] == variant]:
        begun = {"decoder_input_ids": case["begin"], "pad_token_id": PAD, **case["options"]}
        assert generator(variant, kind).generate(*source(case), **begun).tolist() == case["tokens"], case


@pytest.mark.parametrize("variant", MODELS)
def test_samples_are_the_same_eagerly_and_exported(variant: str) -> None:
    case = next(case for case in CASES if case["model"] == variant)
    for options in ({"temperature": 0.7, "top_k": 10}, {"num_beams": 3}):
        drawn = {"max_new_tokens": 8, "do_sample": True, "seed": 1, **options}
        first, *others = (generator(variant, kind).generate(*source(case), **drawn) for kind in KINDS)
        assert all(other.tolist() == first.tolist() for other in others)


@kinds
def test_texts_begin_with_the_start_token_of_the_config(kind: str) -> None:
    whisper, sound = (
        generator("whisper/base", kind),
        source(next(case for case in CASES if case["model"] == "whisper/base")),
    )
    start = eager("whisper/base").config.decoder_start_token_id
    assert start == 1
    expected = whisper.generate(*sound, decoder_input_ids=[[1], [1]], max_new_tokens=3)
    assert whisper.generate(*sound, max_new_tokens=3).tolist() == expected.tolist()
    assert whisper.generate(*sound, decoder_input_ids=[1], max_new_tokens=3).tolist() == expected.tolist()


@kinds
def test_a_source_of_a_batch_gets_the_tokens_that_it_gets_alone(kind: str) -> None:
    t5, texts = generator("t5/v1_1", kind), [[5, 6, 7, 1], [8, 1], [9, 4, 1]]
    ids, mask = source({"sources": texts})
    for num_beams in (1, 3):
        together = t5.generate(ids, mask, max_new_tokens=6, num_beams=num_beams)
        alone = [t5.generate([text], max_new_tokens=6, num_beams=num_beams)[0].tolist() for text in texts]
        assert together.tolist() == alone


def test_texts_of_different_lengths_go_into_buffers() -> None:
    ids, mask = source({"sources": [[5, 6, 7, 1], [8, 1]]})
    begin, kept = [[0, 3, 4], [35, 0, 9]], [[1, 1, 1], [0, 1, 1]]
    alone = [
        generator("t5/v1_0", "eager").encode([text]).generate([own], max_new_tokens=5)[0].tolist()
        for text, own in (([5, 6, 7, 1], [0, 3, 4]), ([8, 1], [0, 9]))
    ]
    tokens = generator("t5/v1_0", "fixed").encode(ids, mask).generate(begin, kept, max_new_tokens=5)
    assert tokens.tolist() == alone
    for kind in ("eager", "growing", "merged"):
        with pytest.raises(ValueError, match="the decoder's texts have different lengths, expected one length"):
            generator("t5/v1_0", kind).encode(ids, mask).generate(begin, kept, max_new_tokens=5)


def test_buffers_become_larger_as_texts_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "FIRST_CAPACITY", 2)
    few, many = (generator("t5/v1_0", kind).generate([[5, 6, 1]], max_new_tokens=9) for kind in ("fixed", "eager"))
    assert few.tolist() == many.tolist()


class Counting(Transformer):
    """Counts the runs of its encoder."""

    runs = 0

    def encode(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        self.runs += 1
        return super().encode(input_ids, attention_mask)


def test_the_encoder_runs_once_for_any_number_of_texts() -> None:
    model = Counting(20, hidden_size=8, num_heads=2, intermediate_size=16, num_layers=1)
    texts = EncoderDecoderGenerator(model).encode([[4, 5, 6]])
    assert isinstance(texts, Generator)
    first = texts.generate([[1]], max_new_tokens=6, num_beams=2)
    assert list(texts.stream([1], max_new_tokens=6)) == texts.generate([[1]], max_new_tokens=6)[0].tolist()
    assert texts.generate([[1]], max_new_tokens=6, num_beams=2).tolist() == first.tolist()
    assert model.runs == 1


# Bad input ------------------------------------------------------------------------------------------------------------


def test_models_that_it_does_not_take() -> None:
    t5, encoder = eager("t5/v1_0"), session("t5/v1_0", ("part", "encoder"))
    for arguments in ((nn.Linear(2, 2),), (encoder,), (t5, encoder)):
        with pytest.raises(
            TypeError, match=r"EncoderDecoderGenerator: got .*, expected an nn.EncoderDecoder, or the ses"
        ):
            EncoderDecoderGenerator(*arguments)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="Generator: T5 has an encoder; use EncoderDecoderGenerator"):
        Generator(t5)  # type: ignore[arg-type]
    gpt2 = Session(to_onnx(GPT2.from_pretrained(goldens.folder("gpt2/base")), cache="growing"))
    with pytest.raises(
        ValueError, match="the encoder takes input_ids, .*, the decoder input_ids, .*; expected to_onnx"
    ):
        EncoderDecoderGenerator(encoder, gpt2)
    with pytest.raises(
        ValueError, match=r"needs present.0.encoder.key, the encoder gives last_hidden_state; export it"
    ):
        EncoderDecoderGenerator(encoder, session("t5/v1_0", ("cache", "growing")))
    with pytest.raises(ValueError, match="Generator: the session takes input_ids, encoder_attention_mask"):
        Generator(session("t5/v1_0", ("cache", "growing")))


@pytest.mark.parametrize(
    ("variant", "inputs", "options", "message"),
    [
        (
            "t5",
            [[5, 1]],
            {"decoder_input_ids": [[0], [0]]},
            "got 2 texts for 1 inputs of the encoder, expected one for each",
        ),
        (
            "t5",
            [[5, 1]],
            {"attention_mask": [[1]]},
            r"attention_mask has shape \[1, 1\], expected \[1, 2\] as inputs has",
        ),
        ("t5", [[5, 1], [1]], {}, "inputs has rows of different lengths"),
        (
            "whisper",
            np.zeros((1, 8, 20)),
            {"attention_mask": [[1]]},
            "got an attention_mask, but the encoder takes none",
        ),
        ("whisper", np.zeros((1, 8, 20)), {"max_new_tokens": 16}, "take 17 positions, the model has 16"),
    ],
)
def test_inputs_that_do_not_fit(variant: str, inputs: Any, options: dict[str, Any], message: str) -> None:
    named = {"max_new_tokens": 2, **options}
    with pytest.raises(ValueError, match=message):
        EncoderDecoderGenerator(eager({"t5": "t5/v1_0"}.get(variant, "whisper/base"))).generate(inputs, **named)


def test_a_model_that_does_not_say_its_start_token() -> None:
    model = Transformer(20, hidden_size=8, num_heads=2, intermediate_size=16, num_layers=1)
    with pytest.raises(ValueError, match="no start token is known; give decoder_start_token_id, or decoder_input_ids"):
        EncoderDecoderGenerator(model).generate([[4, 5]], max_new_tokens=2)
    assert EncoderDecoderGenerator(model, decoder_start_token_id=3).generate([[4, 5]], max_new_tokens=2).shape == (1, 2)
