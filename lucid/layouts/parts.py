"""Which ONNX files a model becomes, with the names that optimum, transformers.js and their kin expect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MethodType
from typing import Any

from lucid.core.graph.types import TensorType
from lucid.core.sizes.dims import Dim, dim
from lucid.layouts.images import with_preprocessor
from lucid.layouts.layout import Options
from lucid.models.checkpoints.pretrained import Pretrained
from lucid.models.parts.sentences import PooledEncoder
from lucid.nn.cache import Cache
from lucid.nn.decoding import CausalDecoder
from lucid.nn.encoder_decoder import EncoderDecoder
from lucid.nn.model_parts import ModelPart
from lucid.nn.module import Module
from lucid.ops.tensor.tensor import Tensor

MODEL = "model"
# Sizes of our models by the names that optimum gives them.
_AXES = {"N": "batch_size", "L": "sequence_length", "M": "image_batch_size", "H": "height", "W": "width"}


def parts_of(model: Module, options: Options, *, states: bool, cached: bool = True) -> dict[str, ModelPart]:
    """The parts by the names of their files, without ending.

    Args:
        model: an encoder, a model with a head, a decoder or an encoder-decoder.
        options: `cache`, `capacity` and `preprocessor` are obeyed.
        states: whether a sentence encoder gives the states of its tokens too, for runtimes that pool by themselves.
        cached: whether a decoder has a cache where `options` do not ask for one.

    Raises:
        ValueError: for a cache that the model does not have, and a preprocessor for one that takes no pixels.
    """
    if options.preprocessor is not None:
        whole = replace(options, preprocessor=None)
        parts = parts_of(model, whole, states=states, cached=cached)
        return {name: with_preprocessor(part, part.inputs, options.preprocessor) for name, part in parts.items()}
    if isinstance(model, CausalDecoder) and (cached or options.cache is not None):
        return {MODEL: model.part(options.cache or "growing", options.capacity)}
    if isinstance(model, EncoderDecoder):
        if options.cache == "fixed":
            raise ValueError("cache='fixed': the decoder in one file with its first step has a growing cache")
        return {"encoder_model": model.part("encoder"), "decoder_model_merged": model.part("decoder_merged")}
    if options.cache is not None or options.capacity is not None:
        raise ValueError(f"cache and capacity are for decoders, got a {type(model).__name__}; leave them out")
    inputs = with_known_axes(model.full_input_specs() if isinstance(model, Pretrained) else model.input_specs())
    if isinstance(model, PooledEncoder) and states:
        return {MODEL: states_and_embedding(model, inputs)}
    return {MODEL: ModelPart(model, inputs)}


def states_and_embedding(model: PooledEncoder[Any], inputs: Mapping[str, Any]) -> ModelPart:
    """A sentence encoder that gives the states of its tokens too."""
    return ModelPart(model.states_and_embedding, inputs, ("last_hidden_state", "sentence_embedding"))


def with_last_logits(part: ModelPart, model: CausalDecoder | EncoderDecoder) -> ModelPart:
    """A step of a model that gives the logits of the last token of each row alone, as onnxruntime-genai calls it."""
    if isinstance(model, EncoderDecoder):
        return part._replace(inputs={**part.inputs, "logits_to_keep": 1})  # all prompts of a batch are of one length
    return part._replace(function=MethodType(_last_tokens, model))


def _last_tokens(
    decoder: CausalDecoder,
    input_ids: Tensor,
    attention_mask: Tensor,
    position_ids: Tensor,
    past_key_values: Sequence[Cache],
) -> tuple[Tensor, list[Cache]]:
    """A step with logits (N, 1, vocabulary): of the last token of each row, which has the largest position.

    onnxruntime-genai gives padding, which comes after a text, position 0.
    """
    last = position_ids.argmax(1)
    return decoder(input_ids, attention_mask, position_ids, past_key_values=past_key_values, logits_to_keep=last)


def with_known_axes(specs: Mapping[str, TensorType]) -> dict[str, Any]:
    """Inputs whose sizes have the names that optimum gives them: batch_size, sequence_length."""
    return {name: spec.with_shape(tuple(map(_known, spec.shape))) for name, spec in specs.items()}


def _known(size: int | Dim) -> int | Dim:
    return size if isinstance(size, int) else dim(_AXES.get(str(size), str(size)))
