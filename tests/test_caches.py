"""A cache does not change the results: a step with it agrees with one call over the whole text, at every position."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import lucid
from lucid import Tensor, nn, ops
from lucid.export import explain, to_onnx
from lucid.generation.models import logits_of
from lucid.models.gpt2 import GPT2
from lucid.models.llama import Llama, LlamaConfig
from lucid.nn import functional as F
from lucid.runtime import Session
from lucid.testing import assert_parity
from tests.combinations import first_of_each, pairs, turns
from tests.models import goldens
from tests.models.zoo import ZOO, Entry, reader

# In dynamic NTK scaling the rotation depends on the length of the text; a cache holds keys that are already rotated.
CAUSAL = [e for e in ZOO if issubclass(e.read, nn.CausalDecoder) and not issubclass(e.read, nn.RecurrentDecoder)]
DECODERS = [e for e in CAUSAL if e.variant != "llama/dynamic"]
ids_of = pytest.mark.parametrize("entry", DECODERS, ids=lambda entry: entry.variant)
TEXT = 9  # tokens

NAMES = ("batch_size", "sequence_length", "past_sequence_length")  # of the axes of a step
CUTS = [
    (1,) * TEXT,
    (4, 1, 1, 3),
    (1, 7, 1),
    (TEXT,),
]  # prompts and steps, chunks of a prompt, several tokens to verify


def name_of(value: Any) -> str:
    return value.variant if isinstance(value, Entry) else str(value)


def tokens(decoder: nn.CausalDecoder, batch: int = 2) -> Tensor:
    size = decoder.config.vocab_size  # type: ignore[attr-defined]  # every model of the zoo has one
    return lucid.tensor(np.random.default_rng(0).integers(1, size, (batch, TEXT)))


def stepped(
    decoder: nn.CausalDecoder,
    ids: Tensor,
    cuts: tuple[int, ...],
    mask: Tensor | None = None,
    capacity: int | None = None,
) -> Tensor:
    """The logits of all positions, from as many calls as there are cuts."""
    cache, logits, start = decoder.empty_cache(int(ids.shape[0]), capacity), [], 0
    for count in cuts:
        seen = None if mask is None else mask[:, : start + count]
        positions = None if mask is None else positions_in(mask)[:, start : start + count]
        last, cache = decoder(ids[:, start : start + count], seen, positions, past_key_values=cache)
        logits.append(last)
        start += count
        assert all(layer.key.shape[2] == (capacity or start) for layer in cache)
    return lucid.concat(logits, 1)


def positions_in(mask: Tensor) -> Tensor:
    """Positions counted without the padding on the left."""
    return ops.maximum(ops.cumsum(mask, axis=1) - 1, 0)


def left_padded(ids: Tensor) -> Tensor:
    mask = np.ones(ids.shape, np.int64)
    mask[0, :3] = 0
    return lucid.tensor(mask)


@functools.cache
def answer(entry: Any, batch: int = 2, length: int = TEXT) -> np.ndarray:
    """The logits that one call over the texts, or over the beginning of the first ones, gives."""
    decoder = entry.shared()
    logits: np.ndarray = decoder(tokens(decoder)[:batch, :length]).numpy()
    return logits


@functools.cache
def padded_answer(entry: Any) -> np.ndarray:
    """The same for texts that are padded on the left."""
    decoder = entry.shared()
    mask = left_padded(tokens(decoder))
    logits: np.ndarray = decoder(tokens(decoder), mask, positions_in(mask)).numpy()
    return logits


@ids_of
def test_steps_give_what_one_shot_gives(entry: Any) -> None:
    check_eager_steps(entry, None, CUTS)


@pytest.mark.parametrize(
    ("entry", "buffer"), turns(DECODERS, [(TEXT, CUTS[::2]), (TEXT + 4, CUTS[1::2])], reader), ids=name_of
)
def test_steps_over_buffers_give_what_one_shot_gives(entry: Any, buffer: tuple[int, Any]) -> None:
    """Full at the end, or with room."""
    check_eager_steps(entry, *buffer)


def check_eager_steps(entry: Any, capacity: int | None, ways: Sequence[tuple[int, ...]]) -> None:
    decoder, want = entry.shared(), answer(entry)
    for cuts in ways:
        got = stepped(decoder, tokens(decoder), cuts, capacity=capacity).numpy()
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=5e-6, err_msg=f"in steps of {cuts}")


@ids_of
def test_steps_over_texts_padded_on_the_left(entry: Any) -> None:
    decoder = entry.shared()
    ids = tokens(decoder)
    mask = left_padded(ids)
    want = padded_answer(entry)
    got = stepped(decoder, ids, (5, 1, 3), mask).numpy()
    kept = mask.numpy() == 1
    np.testing.assert_allclose(got[kept], want[kept], rtol=2e-5, atol=5e-6)
    np.testing.assert_allclose(got[0, 3:], decoder(ids[:1, 3:]).numpy()[0], rtol=2e-5, atol=5e-6)


@pytest.mark.parametrize(
    ("entry", "target"), turns(DECODERS, ["any", "cpu", "portable", "webgpu"], reader), ids=name_of
)
def test_exported_steps_give_what_one_shot_gives(entry: Any, target: str) -> None:
    check_steps(entry, target)


def check_steps(entry: Any, target: str, providers: Any = "cpu") -> None:
    """Steps with a growing cache, of texts padded on the left, against one call."""
    decoder = entry.shared()
    session = Session(to_onnx(entry.traced("growing"), target=target), providers, threads=1)
    ids, mask = tokens(decoder), left_padded(tokens(decoder)).numpy()
    positions = np.maximum(mask.cumsum(1) - 1, 0)
    want = padded_answer(entry)
    feeds = {name: value.numpy() for name, value in flat(decoder.empty_cache(2), "past_key_values").items()}
    start, logits = 0, []
    for count in (4, 1, 1, 3):
        stop = start + count
        step = {"input_ids": ids.numpy()[:, start:stop], "attention_mask": mask[:, :stop]}
        step["position_ids"] = positions[:, start:stop]
        outputs = session.run({**step, **feeds})
        logits.append(outputs.pop("logits"))
        feeds = {name.replace("present", "past_key_values"): array for name, array in outputs.items()}
        start = stop
    kept = mask == 1
    np.testing.assert_allclose(np.concatenate(logits, 1)[kept], want[kept], rtol=2e-5, atol=5e-6)


BUFFERS = pairs([None, TEXT + 2], ["any", "cpu", "portable"])  # symbolic capacities, and given ones


@pytest.mark.parametrize(("entry", "buffers"), turns(DECODERS, BUFFERS, reader), ids=name_of)
def test_exported_steps_over_buffers(entry: Any, buffers: tuple[int | None, str]) -> None:
    check_steps_over_buffers(entry, *buffers)


def check_steps_over_buffers(entry: Any, capacity: int | None, target: str, providers: Any = "cpu") -> None:
    """Rows of a batch at different positions: the first text is shorter, and its padding comes last."""
    decoder = entry.shared()
    exported = to_onnx(entry.traced("fixed", capacity), target=target)
    session = Session(exported, providers, threads=1)
    ids, short = tokens(decoder).numpy(), 3
    want, alone = answer(entry), answer(entry, 1, short)
    feeds = buffers_of(decoder.empty_cache(2, TEXT + 2))
    filled = np.zeros(2, np.int64)
    for count in (5, 1, 3):
        new = np.stack([ids[row, filled[row] : filled[row] + count] for row in range(2)])
        step = {
            "input_ids": new,
            "position_ids": filled[:, None] + np.arange(count),
            "attention_mask": np.ones((2, 1), np.int64),
        }
        outputs = session.run({**step, **feeds})
        logits = outputs.pop("logits")
        np.testing.assert_allclose(logits[1], want[1, filled[1] : filled[1] + count], rtol=2e-5, atol=5e-6)
        feeds = {name.replace("present", "past_key_values"): array for name, array in outputs.items()}
        if count == 5:  # of the first row only three are its text: it goes on from there, over what padding wrote
            np.testing.assert_allclose(logits[0, :short], alone[0], rtol=2e-5, atol=5e-6)
            filled = np.array([short, count])
            continue
        np.testing.assert_allclose(logits[0], want[0, filled[0] : filled[0] + count], rtol=2e-5, atol=5e-6)
        filled = filled + count


@pytest.mark.parametrize("capacity", [None, TEXT + 2], ids=["growing", "fixed"])
def test_steps_with_activations_in_8_bits(capacity: int | None) -> None:
    """Each row is rounded by itself, so a step has the codes of one shot. Where a number that differs in its last digit
    lies between two codes, it gets the next one: a few numbers differ, by less than rounding has cost."""
    lucid.manual_seed(0)
    decoder = Llama(LlamaConfig(50, 48, 96, num_heads=4, num_kv_heads=2, head_dim=12, windows=(None, None)))
    small = lucid.quantize(decoder, 8, activations="dynamic_rows")
    ids = tokens(decoder)
    want, cuts = small(ids).numpy(), (4, 1, 1, 3)
    cost = np.abs(want - decoder(ids).numpy()).max()
    session = Session(to_onnx(small, cache="growing" if capacity is None else "fixed", capacity=capacity), threads=1)
    cache = small.empty_cache(2, capacity)
    feeds = buffers_of(cache) if capacity else {k: v.numpy() for k, v in flat(cache, "past_key_values").items()}
    start, logits = 0, []
    for count in cuts:
        stop = start + count
        step = {"input_ids": ids.numpy()[:, start:stop], "position_ids": np.arange(start, stop)[None].repeat(2, 0)}
        step["attention_mask"] = np.ones((2, 1 if capacity else stop), np.int64)
        outputs = session.run({**step, **feeds})
        logits.append(outputs.pop("logits"))
        feeds = {name.replace("present", "past_key_values"): array for name, array in outputs.items()}
        start = stop
    for got in (stepped(small, ids, cuts, capacity=capacity).numpy(), np.concatenate(logits, 1)):
        apart = np.abs(got - want)
        assert apart.max() < cost
        assert np.median(apart) < 1e-6 * np.abs(want).max()


def buffers_of(cache: list[nn.Cache]) -> dict[str, np.ndarray]:
    """As an exported step takes them."""
    parts = [(f"past_key_values.{i}", layer) for i, layer in enumerate(cache)]
    return {f"{name}.{part}": getattr(layer, part).numpy() for name, layer in parts for part in ("key", "value")}


def test_a_buffer_that_is_full_is_an_error_eagerly_and_exported() -> None:
    gpt2 = GPT2.from_pretrained(goldens.folder("gpt2/base"))
    ids = lucid.tensor([[1, 2, 3]])
    _, cache = gpt2(ids, past_key_values=gpt2.empty_cache(1, capacity=4))
    with pytest.raises(
        ValueError, match="row 0 would be written from 3 to 6, and the buffer holds 4: give it more capacity"
    ):
        gpt2(ids, past_key_values=cache)
    feeds = buffers_of(gpt2.empty_cache(1, 4))
    for opset in (23, 24):
        session = Session(to_onnx(gpt2, cache="fixed", capacity=4, opset=opset))
        for first in (3, -1):
            step = {"input_ids": np.ones((1, 2), np.int64), "position_ids": np.array([[first, first + 1]])}
            step["attention_mask"] = np.ones((1, 1), np.int64)
            with pytest.raises(Exception, match=r"got index \d+|exceeds max_sequence_length|is negative"):
                session.run({**feeds, **step})


def test_padding_on_the_left_over_a_buffer_is_an_error() -> None:
    gpt2 = GPT2.from_pretrained(goldens.folder("gpt2/base"))
    with pytest.raises(
        ValueError, match="do not continue the buffer, expected .*: pad texts on the right with a buffer"
    ):
        gpt2(
            lucid.tensor([[1, 2, 3]]), None, lucid.tensor([[0, 0, 1]]), past_key_values=gpt2.empty_cache(1, capacity=4)
        )


def flat(cache: list[nn.Cache], name: str) -> dict[str, Tensor]:
    return {f"{name}.{i}.{part}": getattr(layer, part) for i, layer in enumerate(cache) for part in layer._fields}


def test_names_are_those_that_other_tools_expect() -> None:
    model = to_onnx(Llama.from_pretrained(goldens.folder("llama/llama2")), cache="growing")
    inputs, outputs = [value.name for value in model.graph.input], [value.name for value in model.graph.output]
    layers = len(outputs) // 2
    caches = [f"{i}.{part}" for i in range(layers) for part in ("key", "value")]
    assert inputs == ["input_ids", "attention_mask", "position_ids", *(f"past_key_values.{c}" for c in caches)]
    assert outputs == ["logits", *(f"present.{c}" for c in caches)]
    shape = [d.dim_param or d.dim_value for d in model.graph.input[3].type.tensor_type.shape.dim]
    assert shape == ["batch_size", 2, "past_sequence_length", 8]


def test_parity_and_explain_take_the_inputs_of_a_step() -> None:
    gpt2 = GPT2.from_pretrained(goldens.folder("gpt2/base"))
    report = assert_parity(
        gpt2,
        kwargs=gpt2.cached_input_specs(),
        sizes=[dict(zip(NAMES, sizes, strict=True)) for sizes in ((2, 3, 4), (1, 1, 7))],
    )
    assert [each.output for each in report.comparisons][: len(gpt2.cached_output_names())] == gpt2.cached_output_names()
    assert len(report.comparisons) == 2 * len(gpt2.cached_output_names())
    assert lucid.trace(gpt2).output_names == ("logits",), "one name with a cache and without"
    assert {decision.taken for decision in explain(gpt2, cache="growing").attention} == {"ai.onnx Attention"}


class Block(nn.Module):
    """A user's own attention block with a cache."""

    def __init__(self, width: int, heads: int) -> None:
        self.qkv, self.out, self.heads = nn.Linear(width, 3 * width), nn.Linear(width, width), heads

    def forward(self, x: Tensor, cache: nn.Cache | None = None) -> tuple[Tensor, nn.Cache | None]:
        q, k, v = self.qkv(x).chunk(3, -1)
        y, cache = F.cached_attention(q, k, v, cache, heads=self.heads, is_causal=True)
        return self.out(y), cache


def test_a_block_of_ones_own() -> None:
    block, x = Block(16, 2), lucid.randn(2, 5, 16)
    want, nothing = block(x)
    assert nothing is None
    cache: nn.KeyValueCache | None = nn.KeyValueCache.empty(nn.CacheShape(1, 2, 8, lucid.float32), 2)
    for position in range(5):
        y, cache = block(x[:, position : position + 1], cache)
        np.testing.assert_allclose(y.numpy()[:, 0], want.numpy()[:, position], rtol=2e-5, atol=5e-6)


# Bad input ------------------------------------------------------------------------------------------------------------


def test_a_cache_of_another_model_type_or_length_is_an_error() -> None:
    gpt2 = GPT2.from_pretrained(goldens.folder("gpt2/base"))
    good, ids = gpt2.empty_cache(1), lucid.tensor([[1, 2]])
    narrow = nn.KeyValueCache(*(t.astype(lucid.float16) for t in good[0]))
    wide = nn.KeyValueCache(*(lucid.zeros(1, 99, 0, 8) for _ in good[0]))
    longer = nn.KeyValueCache(
        *(lucid.concat([t, t[:, :, :0], lucid.zeros(*t.shape[:2], 1, t.shape[3])], 2) for t in good[0])
    )
    with pytest.raises(ValueError, match=r"GPT2: past_key_values has 1 layers, expected \d: one a layer"):
        gpt2(ids, past_key_values=good[:1])
    for cache in (narrow, wide, longer):
        with pytest.raises(
            ValueError, match=r"GPT2: past_key_values.1.key is .*, expected float32\[1, .*a cache of this model"
        ):
            gpt2(ids, past_key_values=[good[0], cache, *good[2:]])
    with pytest.raises(
        TypeError, match=r"GPT2: past_key_values.1 is a tuple, expected nn.KeyValueCache\(key, value\) or"
    ):
        gpt2(ids, past_key_values=[good[0], *(tuple(each) for each in good[1:])])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="GPT2: past_key_values has"):
        gpt2(ids, None, None, good[:1])  # type: ignore[call-overload]  # by position
    with pytest.raises(ValueError, match=r"past_key \[1, .* does not fit the new \[2, "):
        gpt2(lucid.tensor([[1], [2]]), past_key_values=good)


def test_positions_beyond_the_table_are_an_error() -> None:
    gpt2 = GPT2.from_pretrained(goldens.folder("gpt2/base"))
    far = lucid.tensor([[gpt2.config.max_positions]])
    with pytest.raises(IndexError, match="embedding"):
        gpt2(lucid.tensor([[1]]), None, far, past_key_values=gpt2.empty_cache(1))


@ids_of
def test_logits_of_the_last_positions_only(entry: Any) -> None:
    decoder = entry.shared()
    ids, whole = tokens(decoder), answer(entry)
    for count in (1, 3, TEXT + 1):
        kept, _ = decoder(ids, past_key_values=decoder.empty_cache(2), logits_to_keep=count)
        np.testing.assert_allclose(kept.numpy(), whole[:, -count:], rtol=2e-5, atol=5e-6)


@pytest.mark.parametrize("entry", first_of_each(DECODERS, reader), ids=name_of)
def test_exported_logits_of_the_last_position_only(entry: Any) -> None:
    decoder = entry.shared()
    ids, whole = tokens(decoder), answer(entry)
    session = Session(to_onnx(decoder, cache="fixed", kwargs={"logits_to_keep": 1}), threads=1)
    assert session.outputs["logits"][1][1] == 1
    step = {"input_ids": ids.numpy(), "attention_mask": np.ones((2, 1), np.int64)}
    step["position_ids"] = np.tile(np.arange(TEXT), (2, 1))
    logits = session.run({**step, **buffers_of(decoder.empty_cache(2, TEXT))})["logits"]
    np.testing.assert_allclose(logits, whole[:, -1:], rtol=2e-5, atol=5e-6)


@pytest.mark.parametrize("cache", ["growing", "fixed"])
def test_an_export_with_the_logits_of_some_positions_takes_fewer_tokens(cache: Any) -> None:
    decoder = Llama.from_pretrained(goldens.folder("llama/llama2"))
    session = Session(to_onnx(decoder, cache=cache, kwargs={"logits_to_keep": 4}), threads=1)
    assert logits_of(session.outputs["logits"][1]) == 4
    for length in (TEXT, 4, 2):
        ids = tokens(decoder)[:, :length]
        step = {"input_ids": ids.numpy(), "attention_mask": np.ones((2, length), np.int64)}
        step["position_ids"] = np.tile(np.arange(length), (2, 1))
        past = buffers_of(decoder.empty_cache(2, TEXT if cache == "fixed" else None))
        logits = session.run({**step, **past})["logits"]
        np.testing.assert_allclose(logits, decoder(ids).numpy()[:, -4:], rtol=2e-5, atol=5e-6)


@ids_of
def test_logits_of_one_position_of_each_row(entry: Any) -> None:
    decoder = entry.shared()
    ids, whole = tokens(decoder), answer(entry)
    kept = decoder(ids, logits_to_keep=lucid.tensor([2, 0])).numpy()
    np.testing.assert_allclose(kept, whole[[[0], [1]], [[2], [0]]], rtol=2e-5, atol=5e-6)


def test_logits_of_positions_that_are_not_there_are_an_error() -> None:
    gpt2 = GPT2.from_pretrained(goldens.folder("gpt2/base"))
    for wrong in (0, -1, True, 1.5):
        with pytest.raises(ValueError, match=f"logits_to_keep is {wrong}, expected a whole number of 1 or more"):
            gpt2(lucid.tensor([[1, 2]]), logits_to_keep=wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"logits_to_keep has shape \[2\], expected \(1,\): a position for each row"):
        gpt2(lucid.tensor([[1, 2]]), logits_to_keep=lucid.tensor([0, 1]))
    with pytest.raises(IndexError):
        gpt2(lucid.tensor([[1, 2]]), logits_to_keep=lucid.tensor([2]))


def test_a_model_without_a_cache_or_a_cache_that_does_not_exist() -> None:
    with pytest.raises(ValueError, match="cache='growing': Linear takes no cache; expected a lucid.nn.CausalDecoder"):
        to_onnx(nn.Linear(2, 2), cache="growing")
    with pytest.raises(ValueError, match="cache 'paged' does not exist: choose one of growing, fixed"):
        to_onnx(nn.Linear(2, 2), cache="paged")  # type: ignore[arg-type]  # a mistake
    with pytest.raises(NotImplementedError, match="Bare has no cache_shape: define the property"):
        type("Bare", (nn.CausalDecoder,), {})().empty_cache(1)
