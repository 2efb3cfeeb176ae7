"""T5, mT5, UMT5, the BART family and Whisper: encoder and decoder.

T5 has no position ids: its bias depends on column differences, so padding on the left moves nothing. The
attention_mask is the encoder's, and the decoder's cross attention uses it too. The decoder's only own mask is
the causal one. Whisper's positions count from 0 in encoder and decoder; its features always have 2 *
max_source_positions frames.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers as hf
from safetensors.torch import load_file, save_file
from torch import nn

from .core import Case, Golden, ids, normal, padding_mask, text_cases

VOCABULARY = 40


def t5_cases(pad: int = 0, start: int = 0) -> dict[str, Case]:
    lengths = {"plain": (2, 3), "one_token": (1, 1), "longer": (1, 9), "right_padding": (3, 4), "left_padding": (3, 4)}
    cases = {}
    for i, (name, case) in enumerate(text_cases(VOCABULARY, pad, compare="all", seed=600).items()):
        targets = ids(lengths[name], VOCABULARY, 620 + i)
        targets[:, 0] = start
        about = f"{case.about}; decoder {lengths[name]}"
        cases[name] = Case(about, {**case.inputs, "decoder_input_ids": targets}, case.compare)
    return cases


def t5_legacy(config: dict[str, object]) -> dict[str, object]:
    """Before transformers 5 tie_word_embeddings meant both: lm_head is shared, and its input is scaled."""
    dropped = ("scale_decoder_outputs", "dtype", "dense_act_fn", "is_gated_act", "is_decoder", "classifier_dropout")
    older = {key: value for key, value in config.items() if key not in dropped}
    return older | {"tie_word_embeddings": config["scale_decoder_outputs"], "transformers_version": "4.16.0"}


def with_unused_bias(folder: Path) -> None:
    """The first published files store a position bias of the cross attention that is never used."""
    path = folder / "model.safetensors"
    tensors = load_file(path)
    tensors["decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"] = torch.ones(8, 4)
    save_file(tensors, path, metadata={"format": "pt"})


SIZES = {"vocab_size": VOCABULARY, "d_model": 16, "num_heads": 4, "d_ff": 24, "num_layers": 2}
BUCKETS = {"relative_attention_num_buckets": 8, "relative_attention_max_distance": 12}


def t5_common() -> dict[str, Any]:
    return {
        "cases": t5_cases(),
        "outputs": ["logits"],
        "layers": lambda model: {"encoder.": model.encoder.block, "decoder.": model.decoder.block},
        "taps": lambda model: {
            "encoder.last_hidden_state": model.encoder.final_layer_norm,
            "decoder.last_hidden_state": model.decoder.final_layer_norm,
        },
    }


def t5() -> list[Golden]:
    sizes, buckets, start = SIZES, BUCKETS, {"decoder_start_token_id": 0}
    common: dict[str, Any] = t5_common() | {"legacy": t5_legacy}
    old = hf.T5ForConditionalGeneration(hf.T5Config(**sizes, **buckets, **start, d_kv=4))
    gated = {"feed_forward_proj": "gated-gelu", "num_decoder_layers": 1, "tie_word_embeddings": False}
    new = hf.T5ForConditionalGeneration(hf.T5Config(**sizes, **buckets, **start, **gated, d_kv=6))
    new.lm_head.weight = nn.Parameter(torch.empty(VOCABULARY, 16))  # published v1.1 files have their own lm_head
    return [
        Golden(
            "t5/v1_0",
            old,
            note="relu, lm_head tied to shared, its input times d_model ** -0.5; a stored "
            "EncDecAttention.relative_attention_bias, to be skipped",
            rewrite=with_unused_bias,
            **common,
        ),
        Golden(
            "t5/v1_1",
            new,
            note="gated gelu_new, own lm_head.weight, no scaling, d_kv 6 (heads * d_kv is not d_model), one "
            "decoder "
            "layer. Its config.json says tie_word_embeddings true, as transformers 5 always writes: the "
            "stored "
            "lm_head.weight counts, and scale_decoder_outputs says whether to scale",
            **common,
        ),
    ]


def mt5() -> list[Golden]:
    model = hf.MT5ForConditionalGeneration(hf.MT5Config(**SIZES, **BUCKETS, d_kv=4))
    model.lm_head.weight = nn.Parameter(torch.empty(VOCABULARY, 16))  # as published
    note = "gated gelu_new, own lm_head.weight, no scaling, whatever tie_word_embeddings says"
    return [Golden("mt5/base", model, note=note, **t5_common())]


def umt5() -> list[Golden]:
    model = hf.UMT5ForConditionalGeneration(hf.UMT5Config(**SIZES, **BUCKETS, d_kv=4))
    model.lm_head.weight = nn.Parameter(torch.empty(VOCABULARY, 16))  # as published
    return [
        Golden(
            "umt5/base",
            model,
            note="as mT5, with a position bias in every layer; scaled, as its config says",
            **t5_common(),
        )
    ]


def bart_sizes(**changes: object) -> dict[str, object]:
    """Two encoder layers of 4 heads and one decoder layer of 2."""
    sizes = {"vocab_size": VOCABULARY, "d_model": 16, "max_position_embeddings": 24}
    sizes |= {"encoder_layers": 2, "encoder_attention_heads": 4, "encoder_ffn_dim": 24}
    sizes |= {"decoder_layers": 1, "decoder_attention_heads": 2, "decoder_ffn_dim": 20}
    return sizes | changes


def bart_golden(name: str, model: nn.Module, note: str, pad: int = 1, start: int = 2, free: bool = True) -> Golden:
    if hasattr(model, "final_logits_bias"):
        model.final_logits_bias.copy_(normal((1, VOCABULARY), 640))
    return Golden(
        name,
        model,
        t5_cases(pad, start),
        ["logits"],
        lambda model: {"encoder.": model.model.encoder.layers, "decoder.": model.model.decoder.layers},
        note,
        padding_is_free=free,
    )


def bart() -> list[Golden]:
    classifier = hf.BartForSequenceClassification(hf.BartConfig(**bart_sizes(), num_labels=3))
    model = hf.BartForConditionalGeneration(hf.BartConfig(**bart_sizes()))
    mask = padding_mask(7, (7, 4), "right")
    ends = ids((2, 7), VOCABULARY, 650).where(mask == 1, 1)
    ends[0, 6] = ends[0, 3] = ends[1, 3] = ends[1, 1] = 2
    return [
        bart_golden("bart/base", model, "norms after, learned positions from row 2 on, a norm of embeddings; gelu"),
        Golden(
            "bart/text_classification",
            classifier,
            {
                "plain": Case("no mask, (1, 7)", {"input_ids": ends[:1].clone()}),
                "right_padding": Case(
                    "two ends in each text, (2, 7), kept 7 and 4", {"input_ids": ends, "attention_mask": mask}
                ),
            },
            ["logits"],
            lambda model: {},
            note="the state at the last eos_token_id of the decoder, which reads the text shifted by one",
            padding_is_free=False,  # other ids there would be ends
        ),
    ]


def marian() -> list[Golden]:
    special = {"pad_token_id": 1, "decoder_start_token_id": 1, "eos_token_id": 0, "forced_eos_token_id": 0}
    sizes = bart_sizes(scale_embedding=True, activation_function="swish")
    model = hf.MarianMTModel(hf.MarianConfig(**sizes, **special, num_beams=2))
    note = "sines, then cosines; scaled embeddings, no norm of them; swish; the start token is padding"
    return [bart_golden("marian/base", model, note, start=1)]


def mbart() -> list[Golden]:
    model = hf.MBartForConditionalGeneration(hf.MBartConfig(**bart_sizes(scale_embedding=True)))
    return [bart_golden("mbart/base", model, "norms before, a last norm, a norm of embeddings; scaled embeddings")]


def m2m_100() -> list[Golden]:
    model = hf.M2M100ForConditionalGeneration(hf.M2M100Config(**bart_sizes()))
    note = "as NLLB: norms before; sines and cosines of the tokens that are not padding, none for those; relu; no bias"
    return [bart_golden("m2m_100/base", model, note, free=False)]


def whisper_cases(mels: int, frames: int) -> dict[str, Case]:
    shapes = {"plain": (2, 5), "one_token": (1, 1), "longer": (1, 13)}
    return {
        name: Case(
            f"features ({shape[0]}, {mels}, {frames}), decoder {shape}",
            {
                "input_features": normal((shape[0], mels, frames), 700 + i),
                "decoder_input_ids": ids(shape, VOCABULARY, 710 + i),
            },
        )
        for i, (name, shape) in enumerate(shapes.items())
    }


def whisper() -> list[Golden]:
    sizes = {"vocab_size": VOCABULARY, "d_model": 16, "max_source_positions": 10, "max_target_positions": 16}
    special: dict[str, Any] = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
    special["begin_suppress_tokens"] = [1, 2]
    even = {f"{side}_{key}": n for side in ("encoder", "decoder") for key, n in {"layers": 2, "ffn_dim": 24}.items()}
    heads = {"encoder_attention_heads": 4, "decoder_attention_heads": 4}
    uneven = {
        "encoder_layers": 1,
        "decoder_layers": 2,
        "encoder_ffn_dim": 32,
        "decoder_ffn_dim": 24,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 2,
    }
    common: dict[str, Any] = {
        "outputs": ["logits"],
        "layers": lambda model: {"encoder.": model.model.encoder.layers, "decoder.": model.model.decoder.layers},
        "taps": lambda model: {
            "encoder.last_hidden_state": model.model.encoder.layer_norm,
            "decoder.last_hidden_state": model.model.decoder.layer_norm,
        },
    }
    return [
        Golden(
            "whisper/base",
            hf.WhisperForConditionalGeneration(hf.WhisperConfig(**sizes, **special, **even, **heads, num_mel_bins=8)),
            whisper_cases(8, 20),
            note="gelu; k_proj has no bias; proj_out is tied to the decoder's embed_tokens and not stored",
            **common,
        ),
        Golden(
            "whisper/uneven",
            hf.WhisperForConditionalGeneration(
                hf.WhisperConfig(**sizes, **special, **uneven, num_mel_bins=6, activation_function="relu")
            ),
            whisper_cases(6, 20),
            note="one encoder layer of 4 heads, two decoder layers of 2; relu (the two convolutions keep gelu)",
            **common,
        ),
    ]
