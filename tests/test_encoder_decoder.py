"""Encoder-decoders with caches: a step, eager or exported, agrees with one call over the whole text."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest

import lucid
from lucid import Tensor, nn
from lucid.export import explain, to_onnx
from lucid.models.t5 import T5
from lucid.models.transformer import Transformer
from lucid.models.whisper import Whisper
from lucid.nn.model_parts import Alternative, ModelPart
from lucid.runtime import Session
from lucid.testing import assert_parity
from lucid.tracing.parts import trace_part
from tests.combinations import in_pairs
from tests.models import goldens

TEXT = 9  # tokens
CUTS = [(1,) * TEXT, (4, 1, 1, 3), (TEXT,)]  # single steps, chunks of a text, several tokens to verify
RTOL, ATOL = 2e-5, 5e-6


class Sample(NamedTuple):
    """A model, what its encoder reads, and one call over the whole text."""

    model: Any
    inputs: dict[str, Tensor]
    ids: Tensor
    logits: np.ndarray

    @property
    def mask(self) -> Tensor | None:
        return self.inputs.get("attention_mask")

    def start(self, capacity: int | None = None) -> list[nn.EncoderDecoderCache]:
        caches: list[nn.EncoderDecoderCache] = self.model.empty_cache(self.model.encode(**self.inputs), capacity)
        return caches


def transformer() -> Transformer:
    lucid.manual_seed(0)
    return Transformer(36, hidden_size=16, num_heads=4, intermediate_size=32, num_layers=2)


MODELS: dict[str, Callable[[], Any]] = {
    **{v: lambda v=v: T5.from_pretrained(goldens.folder(v)) for v in ("t5/v1_0", "t5/v1_1")},  # type: ignore[misc]
    **{v: lambda v=v: Whisper.from_pretrained(goldens.folder(v)) for v in ("whisper/base", "whisper/uneven")},  # type: ignore[misc]
    "transformer": transformer,
}
models = pytest.mark.parametrize("name", MODELS)
targets = pytest.mark.parametrize(("target", "opset"), [("any", None), ("any", 24), ("cpu", None), ("portable", None)])


@cache
def sample(name: str) -> Sample:
    """Two texts about two sources, of which one is shorter where the encoder takes a mask."""
    model, draw = MODELS[name](), np.random.default_rng(0)
    ids = lucid.tensor(draw.integers(1, 36, (2, TEXT)))
    if isinstance(model, Whisper):
        frames = 2 * model.config.max_source_positions
        inputs = {"input_features": lucid.tensor(draw.normal(size=(2, model.config.num_mel_bins, frames)).astype("f"))}
        return Sample(model, inputs, ids, model(**inputs, decoder_input_ids=ids).numpy())
    source = lucid.tensor([[5, 6, 7, 1], [8, 1, 0, 0]])
    mask = lucid.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])
    return Sample(model, {"input_ids": source, "attention_mask": mask}, ids, model(source, ids, mask).numpy())


def close(got: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_allclose(got, expected, rtol=RTOL, atol=ATOL)


# Eagerly --------------------------------------------------------------------------------------------------------------


@in_pairs(name=MODELS, capacity=[None, TEXT, TEXT + 4], cuts=CUTS)
def test_steps_give_what_one_shot_gives(name: str, capacity: int | None, cuts: tuple[int, ...]) -> None:
    case = sample(name)
    caches, logits, at = case.start(capacity), [], 0
    for count in cuts:
        part, caches = case.model.decode(case.ids[:, at : at + count], caches, case.mask)
        logits.append(part.numpy())
        at += count
        assert all(layer.decoder.key.shape[2] == (capacity or at) for layer in caches)
    close(np.concatenate(logits, 1), case.logits)


@models
def test_keys_and_values_of_the_source_are_computed_once(name: str) -> None:
    case = sample(name)
    first = case.start()
    _, then = case.model.decode(case.ids[:, :2], first, case.mask)
    assert all(a.encoder is b.encoder for a, b in zip(first, then, strict=True))


@models
def test_rows_of_a_buffer_may_be_at_different_positions(name: str) -> None:
    """The first text is shorter: what its padding wrote is overwritten by what follows."""
    case, ids, short = sample(name), sample(name).ids.numpy(), 3
    _, caches = case.model.decode(lucid.tensor(ids[:, :5]), case.start(TEXT), case.mask)
    filled = np.array([short, 5])
    caches = [c._replace(decoder=c.decoder._replace(filled=lucid.tensor(filled))) for c in caches]
    new = np.stack([ids[row, filled[row] : filled[row] + 3] for row in range(2)])
    logits, _ = case.model.decode(lucid.tensor(new), caches, case.mask)
    for row in range(2):
        close(logits.numpy()[row], case.logits[row, filled[row] : filled[row] + 3])


# Exported -------------------------------------------------------------------------------------------------------------


def feeds_of(arrays: dict[str, np.ndarray], session: Session) -> dict[str, np.ndarray]:
    """Those that a session takes; outputs of the step before under the names of its inputs."""
    named = {name.replace("present", "past_key_values"): array for name, array in arrays.items()}
    return {name: array for name, array in named.items() if name in session.inputs}


def no_positions(session: Session, batch: int = 2, length: int = 0) -> dict[str, np.ndarray]:
    """Caches of so many positions for a session, all zeros."""
    caches = {name: shape for name, (_, shape) in session.inputs.items() if ".decoder." in name or ".encoder." in name}
    return {name: np.zeros((batch, shape[1], length, shape[3]), np.float32) for name, shape in caches.items()}


@models
@targets
def test_exported_steps_give_what_one_shot_gives(name: str, target: str, opset: int | None) -> None:
    case = sample(name)
    encoder = Session(to_onnx(case.model, part="encoder", cache="growing", target=target, opset=opset), threads=1)
    decoder = Session(to_onnx(case.model, cache="growing", target=target, opset=opset), threads=1)
    encoded = encoder.run(case.inputs)
    known = {**no_positions(decoder), **feeds_of(encoded, decoder)}
    if case.mask is not None:
        known["encoder_attention_mask"] = case.mask.numpy()
    at, logits = 0, []
    for count in (4, 1, 1, 3):
        outputs = decoder.run({**known, "input_ids": case.ids.numpy()[:, at : at + count]})
        logits.append(outputs["logits"])
        known |= feeds_of(outputs, decoder)
        at += count
    close(np.concatenate(logits, 1), case.logits)


@models
@pytest.mark.parametrize(
    ("target", "opset", "capacity"),
    [("any", None, None), ("any", 23, TEXT), ("cpu", None, TEXT), ("portable", None, None)],
)
def test_exported_steps_over_buffers(name: str, target: str, opset: int | None, capacity: int | None) -> None:
    case, ids = sample(name), sample(name).ids.numpy()
    exported = to_onnx(case.model, cache="fixed", capacity=capacity, target=target, opset=opset)
    decoder = Session(exported, threads=1)
    known = no_positions(decoder, length=TEXT)
    caches = case.start()
    for layer, cross in enumerate(kept.encoder for kept in caches):
        known |= {f"past_key_values.{layer}.encoder.{part}": getattr(cross, part).numpy() for part in ("key", "value")}
    if case.mask is not None:
        known["encoder_attention_mask"] = case.mask.numpy()
    filled = np.zeros(2, np.int64)
    for count in (5, 1, 3):
        new = np.stack([ids[row, filled[row] : filled[row] + count] for row in range(2)])
        outputs = decoder.run({**known, "input_ids": new, "position_ids": filled[:, None] + np.arange(count)})
        for row in range(2):
            close(outputs["logits"][row], case.logits[row, filled[row] : filled[row] + count])
        known |= feeds_of(outputs, decoder)
        filled = filled + count if count != 5 else np.array([3, 5])  # the last two of the first row were padding


@models
def test_the_first_step_takes_the_encoder_s_output(name: str) -> None:
    case = sample(name)
    encoder, first = Session(to_onnx(case.model, part="encoder")), Session(to_onnx(case.model, part="decoder"))
    later = Session(to_onnx(case.model, part="decoder", cache="growing"))
    known = {"encoder_hidden_states": encoder.run(case.inputs)["last_hidden_state"]}
    if case.mask is not None:
        known["encoder_attention_mask"] = case.mask.numpy()
    outputs = first.run({**known, "input_ids": case.ids.numpy()[:, :4]})
    close(outputs["logits"], case.logits[:, :4])
    known = feeds_of({**known, **outputs}, later)
    close(later.run({**known, "input_ids": case.ids.numpy()[:, 4:]})["logits"], case.logits[:, 4:])


@models
@pytest.mark.parametrize("target", ["any", "portable"])
def test_a_merged_decoder_is_both_steps_in_one_file(name: str, target: str) -> None:
    case, ids = sample(name), sample(name).ids.numpy()
    merged = Session(to_onnx(case.model, part="decoder_merged", target=target), threads=1)
    known = {"encoder_hidden_states": case.model.encode(**case.inputs).numpy()}
    if case.mask is not None:
        known["encoder_attention_mask"] = case.mask.numpy()
    for length in (0, 3):  # without a cache, what is given as one is not read
        first = {**known, **no_positions(merged, length=length), "use_cache_branch": np.array([False])}
        outputs = merged.run({**first, "input_ids": ids[:, :4]})
        close(outputs["logits"], case.logits[:, :4])
    known |= {**feeds_of(outputs, merged), "use_cache_branch": np.array([True])}
    for at, count in ((4, 1), (5, 4)):
        outputs = merged.run({**known, "input_ids": ids[:, at : at + count]})
        close(outputs["logits"], case.logits[:, at : at + count])
        crossing = {name for name in outputs if ".encoder." in name}
        assert all(outputs[name].shape[2] == 0 for name in crossing)  # the caller has them
        known |= feeds_of({name: array for name, array in outputs.items() if name not in crossing}, merged)


@models
def test_logits_of_the_last_positions_only(name: str) -> None:
    case = sample(name)
    for count in (1, 2):
        kept, _ = case.model.decode(case.ids, case.start(), case.mask, logits_to_keep=count)
        close(kept.numpy(), case.logits[:, -count:])
    kept, _ = case.model.decode(case.ids, case.start(), case.mask, logits_to_keep=lucid.tensor([3, 7]))
    close(kept.numpy()[:, 0], case.logits[[0, 1], [3, 7]])
    for options in ({"part": "decoder"}, {"part": "decoder_merged"}, {"cache": "growing"}, {"cache": "fixed"}):
        exported = to_onnx(case.model, kwargs={"logits_to_keep": 1}, **options)
        assert exported.graph.output[0].type.tensor_type.shape.dim[1].dim_value == 1
    first = Session(to_onnx(case.model, part="decoder", kwargs={"logits_to_keep": 1}), threads=1)
    known = {"encoder_hidden_states": case.model.encode(**case.inputs), "input_ids": case.ids}
    if case.mask is not None:
        known["encoder_attention_mask"] = case.mask
    close(first.run(known)["logits"], case.logits[:, -1:])


def test_a_merged_decoder_holds_each_weight_once() -> None:
    t5 = sample("t5/v1_1").model
    weights = [
        {t.name: t.raw_data for t in to_onnx(t5, part=part).graph.initializer} for part in ("decoder", "decoder_merged")
    ]
    large = [{name for name, data in of.items() if len(data) > 200} for of in weights]
    assert large[0] == large[1]


def test_names_are_those_that_optimum_and_transformers_js_expect() -> None:
    t5 = sample("t5/v1_0").model

    def names(**options: Any) -> tuple[list[str], list[str]]:
        graph = to_onnx(t5, **options).graph
        return [value.name for value in graph.input], [value.name for value in graph.output]

    def caches(prefix: str, *sides: str) -> list[str]:
        return [f"{prefix}.{i}.{side}.{part}" for i in range(2) for side in sides for part in ("key", "value")]

    new = ["input_ids", "encoder_attention_mask"]
    past, present = caches("past_key_values", "decoder", "encoder"), caches("present", "decoder", "encoder")
    assert names(part="encoder") == (["input_ids", "attention_mask"], ["last_hidden_state"])
    assert names(part="encoder", cache="growing")[1] == ["last_hidden_state", *caches("present", "encoder")]
    assert names(part="decoder") == ([*new, "encoder_hidden_states"], ["logits", *present])
    assert names(cache="growing") == ([*new, *past], ["logits", *caches("present", "decoder")])
    assert names(part="decoder", cache="growing") == names(cache="growing")
    merged = names(part="decoder_merged")
    assert merged == ([*new, "encoder_hidden_states", *past, "use_cache_branch"], ["logits", *present])


def test_axes_have_the_names_by_which_transformers_js_makes_the_empty_cache() -> None:
    merged = Session(to_onnx(sample("whisper/base").model, part="decoder_merged"))
    assert merged.inputs["use_cache_branch"] == (lucid.bool_, (1,))
    assert merged.inputs["past_key_values.1.decoder.key"][1] == ("batch_size", 4, "past_decoder_sequence_length", 4)
    assert merged.inputs["past_key_values.1.encoder.key"][1] == ("batch_size", 4, "encoder_sequence_length_out", 4)


def test_weights_and_paths_of_a_part_have_the_names_of_the_model() -> None:
    whisper = sample("whisper/base").model
    graph = lucid.trace(whisper.encode, kwargs=whisper.encoder_input_specs())
    scopes = {node.scope for node in graph.nodes()}
    assert {"model.encoder.conv1", "model.encoder.layers.1.self_attn"} <= scopes
    names = {tensor.name for tensor in to_onnx(whisper, part="encoder").graph.initializer}
    assert {"model.encoder.conv1.weight", "model.encoder.layers.1.fc1.bias"} <= names


def test_parity_and_explain_take_parts() -> None:
    t5 = sample("t5/v1_0").model
    part = t5.part("decoder", "growing")
    sizes = dict(zip(("batch_size", "encoder_sequence_length"), (2, 3), strict=True))
    runs = [
        {**sizes, "decoder_sequence_length": new, "past_decoder_sequence_length": past}
        for new, past in ((3, 4), (1, 1))
    ]
    assert_parity(part.function, kwargs=part.inputs, sizes=runs)
    taken = [decision.taken for decision in explain(t5, part="decoder_merged").attention]
    assert taken == ["ai.onnx Attention"] * 8  # two layers, two attentions, two branches


# Layers ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"batch_first": False}, {"norm_first": True, "bias": False}], ids=str)
def test_steps_of_nn_transformer_decoder(options: dict[str, Any]) -> None:
    lucid.manual_seed(0)
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 16, **options), 2, nn.LayerNorm(8))
    axis = 1 if options.get("batch_first", True) else 0
    x, memory, padding = lucid.randn(3, 3, 8), lucid.randn(3, 3, 8), lucid.tensor([[False, False, True]] * 3)
    expected = decoder(x, memory, tgt_is_causal=True, memory_key_padding_mask=padding)
    shape = nn.CacheShape(2, 2, 4, lucid.float32)
    caches = [nn.EncoderDecoderCache(nn.KeyValueCache.empty(shape, 3), c) for c in decoder.cross_caches(memory)]
    steps = []
    for part in x.split(1, axis):
        y, present = decoder.step(part, caches, padding)
        caches = [cache._replace(decoder=own) for cache, own in zip(caches, present, strict=True)]
        steps.append(y)
    close(lucid.concat(steps, axis).numpy(), expected.numpy())


def test_multi_head_attention_to_keys_and_values_that_are_kept() -> None:
    lucid.manual_seed(0)
    attention = nn.MultiHeadAttention(12, 4, num_kv_heads=2, kdim=6, vdim=5)
    query, key, value = lucid.randn(2, 3, 12), lucid.randn(2, 4, 6), lucid.randn(2, 4, 5)
    padding = lucid.tensor([[False, False, True, True], [False] * 4])
    kept = attention.keys_and_values(key, value)
    assert kept.key.shape == (2, 2, 4, 3)
    close(attention.attend_to(query, kept, padding).numpy(), attention(query, key, value, padding).numpy())


def test_rows_after_all_others_take_no_cache() -> None:
    attention = nn.MultiHeadAttention(8, 2, add_zero_attn=True)
    with pytest.raises(ValueError, match="add_bias_kv and add_zero_attn add rows after all others"):
        attention.keys_and_values(lucid.zeros(1, 2, 8))
    with pytest.raises(ValueError, match="add_bias_kv and add_zero_attn add rows after all others"):
        attention.step(lucid.zeros(1, 2, 8), nn.KeyValueCache.empty(nn.CacheShape(1, 2, 4, lucid.float32), 1))


# Bad input ------------------------------------------------------------------------------------------------------------


def test_a_cache_of_another_model_is_an_error() -> None:
    case, other = sample("t5/v1_0"), sample("t5/v1_1")
    with pytest.raises(ValueError, match=r"T5: past_key_values has 1 layers, expected 2"):
        case.model.decode(case.ids, other.start())
    mixed = [cache._replace(encoder=other.start()[0].encoder) for cache in case.start()]
    with pytest.raises(
        ValueError, match=r"past_key_values.0.encoder.key is float32\[2, 4, 4, 6\], expected float32\[2, 4"
    ):
        case.model.decode(case.ids, mixed)
    with pytest.raises(ValueError, match="past_key_values.0.decoder.key is float16"):
        half = case.start()[0].decoder
        halves = nn.KeyValueCache(half.key.astype(lucid.float16), half.value.astype(lucid.float16))
        case.model.decode(case.ids, [cache._replace(decoder=halves) for cache in case.start()])


def test_positions_that_a_cache_counts_itself_are_refused() -> None:
    case = sample("whisper/base")
    with pytest.raises(ValueError, match="Whisper: got position_ids with a cache that grows, expected none"):
        case.model.decode(case.ids[:, :1], case.start(), None, lucid.tensor([[0], [0]]))
    with pytest.raises(ValueError, match="pad texts on the right with a buffer"):
        case.model.decode(case.ids[:, :1], case.start(4), None, lucid.tensor([[0], [1]]))


def test_more_tokens_than_there_is_room_for() -> None:
    case = sample("whisper/base")
    with pytest.raises(ValueError, match="the buffer holds 4: give it more capacity"):
        case.model.decode(case.ids, case.start(4))
    _, caches = case.model.decode(lucid.ones(2, 16, dtype=lucid.int64), case.start())
    with pytest.raises(IndexError, match="embedding"):
        case.model.decode(case.ids[:, :1], caches)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"part": "head"}, "part 'head' does not exist: choose one of encoder, decoder, decoder_merged"),
        ({"cache": "paged"}, "cache 'paged' does not exist: choose one of growing, fixed"),
        ({"part": "decoder_merged", "cache": "fixed"}, 'part "decoder_merged" has a growing cache, got cache="fixed"'),
        ({"part": "decoder", "capacity": 4}, 'capacity is 4, expected a whole number of 1 or more, and cache="fixed"'),
        ({"cache": "fixed", "capacity": 2.5}, "capacity is 2.5, expected a whole number"),
        ({"cache": "fixed", "capacity": "4"}, "capacity is '4', expected a whole number"),
    ],
)
def test_parts_that_do_not_exist(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        to_onnx(sample("t5/v1_0").model, **options)


def test_parts_whose_outputs_do_not_fit() -> None:
    part = ModelPart(lambda x: (x, x), {"x": lucid.spec("N")}, ["y"])
    with pytest.raises(ValueError, match="has 2 outputs and 1 names for them"):
        trace_part(part)
    with pytest.raises(ValueError, match="has 2 outputs and 1 names for them"):
        trace_part(ModelPart(lambda x: x, part.inputs, ["y"], Alternative("x", part.function)))
    merged = trace_part(ModelPart(lambda x: x, part.inputs, ["y"], Alternative("x", lambda x: x.astype(lucid.int64))))
    with pytest.raises(ValueError, match=r"graphs give float32\[N\] and int64\[N\], expected one element"):
        merged.output_types()


def test_a_model_without_parts() -> None:
    with pytest.raises(ValueError, match="part='encoder': Linear has no parts; expected a lucid.nn.EncoderDecoder"):
        to_onnx(nn.Linear(2, 2), part="encoder")
    bare = type("Bare", (nn.EncoderDecoder,), {})()
    for missing in ("cache_shape", "encoder_width"):
        with pytest.raises(NotImplementedError, match=f"Bare has no {missing}: define the property"):
            getattr(bare, missing)
    for call in (
        lambda: bare.encode(),
        lambda: bare.cross_caches(lucid.zeros(1)),
        lambda: bare.step(*[None] * 4),
        lambda: bare.logits(None),
    ):
        with pytest.raises(NotImplementedError, match=r"Bare has no \w+\(\): define it"):
            call()
