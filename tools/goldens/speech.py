"""wav2vec 2.0 and HuBERT: sound to states, to the logits of CTC and of classes; and texts of such tokens.

input_values are (N, samples); a mask is over samples, and states at frames of padding are compared too. Position
convolutions have an even and an odd kernel.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers as hf
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from .core import Case, Golden, normal, padding_mask, write_json

SIZES = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 24,
    "conv_dim": [8, 12],
    "conv_kernel": [5, 3],
    "conv_stride": [3, 2],
    "num_conv_pos_embeddings": 4,
    "num_conv_pos_embedding_groups": 2,
    "vocab_size": 12,
}
LAYER_NORM = {"feat_extract_norm": "layer", "conv_bias": True, "do_stable_layer_norm": True}


def sound_cases(seed: int) -> dict[str, Case]:
    def case(about: str, shape: tuple[int, int], salt: int, **mask: Tensor) -> Case:
        values = normal(shape, seed + salt)
        return Case(about, {"input_values": values * mask.get("attention_mask", torch.ones(())), **mask})

    mask = padding_mask(90, (90, 47, 18), "right")
    return {
        "plain": case("two sounds of 90 samples", (2, 90), 0),
        "longer": case("one sound of 151 samples", (1, 151), 1),
        "right_padding": case("sounds of 90, 47 and 18 samples, with a mask", (3, 90), 2, attention_mask=mask),
    }


def with_old_names(folder: Path) -> None:
    """Published files have the names of torch's older weight norm."""
    path = folder / "model.safetensors"
    names = {"parametrizations.weight.original0": "weight_g", "parametrizations.weight.original1": "weight_v"}
    tensors: Mapping[str, Tensor] = load_file(path)
    for new, old in names.items():
        tensors = {key.replace(new, old): value for key, value in tensors.items()}
    save_file(dict(tensors), path, metadata={"format": "pt"})


def golden(name: str, model: nn.Module, output: str, note: str, seed: int, **more: Any) -> Golden:
    return Golden(
        name,
        model,
        sound_cases(seed),
        [output],
        lambda model: {"": getattr(model, model.base_model_prefix, model).encoder.layers},
        note,
        padding_is_free=False,
        **more,
    )


def wav2vec2() -> list[Golden]:
    return [
        golden(
            "wav2vec2/base",
            hf.Wav2Vec2Model(hf.Wav2Vec2Config(**SIZES)),
            "last_hidden_state",
            "Wav2Vec2Model: group norm of the first convolution, norms after layers; masked_spec_embed is not used",
            1100,
        ),
        golden(
            "wav2vec2/ctc",
            hf.Wav2Vec2ForCTC(hf.Wav2Vec2Config(**SIZES | LAYER_NORM)),
            "logits",
            "layer norms of all convolutions, which have biases; norms before layers; weight_g and weight_v as in "
            "published files",
            1110,
            rewrite=with_old_names,
        ),
        golden(
            "wav2vec2/classifier",
            hf.Wav2Vec2ForSequenceClassification(
                hf.Wav2Vec2Config(
                    **SIZES | {"num_conv_pos_embeddings": 5},
                    use_weighted_layer_sum=True,
                    classifier_proj_size=10,
                    num_labels=3,
                )
            ),
            "logits",
            "the weighted sum of the states of all layers; an odd kernel of positions",
            1120,
        ),
    ]


def hubert() -> list[Golden]:
    return [
        golden(
            "hubert/base",
            hf.HubertModel(hf.HubertConfig(**SIZES, feat_proj_layer_norm=False)),
            "last_hidden_state",
            "HubertModel: group norm; the projection of features has no norm",
            1130,
        ),
        golden(
            "hubert/ctc",
            hf.HubertForCTC(hf.HubertConfig(**SIZES | LAYER_NORM)),
            "logits",
            "layer norms, norms before layers",
            1140,
        ),
    ]


def wavlm() -> list[Golden]:
    few = {"num_buckets": 8, "max_bucket_distance": 6}
    note = "a bias for each bucket of distances, the same in all layers, which each layer gates"
    return [
        golden(
            "wavlm/base",
            hf.WavLMModel(hf.WavLMConfig(**SIZES, **few)),
            "last_hidden_state",
            f"group norm; {note}",
            1150,
        ),
        golden(
            "wavlm/ctc",
            hf.WavLMForCTC(hf.WavLMConfig(**SIZES | LAYER_NORM, **few)),
            "logits",
            f"layer norms; {note}",
            1160,
        ),
    ]


def store_texts(folder: Path) -> None:
    """A vocabulary, sound as models hear it, and texts and words of tokens."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    letters = ["<pad>", "<s>", "</s>", "<unk>", "|", "E", "T", "A", "'", "N", "<x>"]  # one id of the model has no token
    write_json(folder / "vocab.json", {letter: number for number, letter in enumerate(letters)})
    extractor = hf.Wav2Vec2FeatureExtractor(do_normalize=True, return_attention_mask=True)
    extractor.save_pretrained(folder)
    draw, cases = random.Random(0), []
    for lower in (False, True):
        tokenizer = hf.Wav2Vec2CTCTokenizer(str(folder / "vocab.json"), do_lower_case=lower)
        for _ in range(20):
            ids = draw.choices([0, 4, 5, 6, 7, 8, 9, 10, 11], [8, 3, 2, 2, 2, 1, 2, 1, 1], k=draw.randrange(1, 30))
            decoded = tokenizer.decode(ids, output_word_offsets=True)
            words = [[w["word"], int(w["start_offset"]), int(w["end_offset"])] for w in decoded.word_offsets]
            cases.append({"lower_case": lower, "ids": ids, "text": decoded.text, "words": words})
    lines = ",\n".join(map(json.dumps, cases))
    (folder / "cases.json").write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    tokenizer.save_pretrained(folder)
    sound = np.random.default_rng(0).normal(0.1, 0.3, 400).astype(np.float32)
    values = extractor(sound, sampling_rate=16_000, return_tensors="pt").input_values
    save_file({"sound": torch.from_numpy(sound), "input_values": values}, folder / "sound.safetensors")
    for path in folder.iterdir():
        path.chmod(0o644)
