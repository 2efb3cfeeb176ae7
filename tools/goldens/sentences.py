"""Sentence encoders: a tiny BERT with modules.json, and the embeddings that sentence-transformers defines.

sentence-transformers is not needed: `pooled` and `answer` compute in torch what its modules Pooling (6.2), Dense and
Normalize are documented to compute.
"""

from __future__ import annotations

import shutil
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import BertModel

from .core import randomise, text_cases, write_json
from .encoders import VOCABULARY, bert_config

WIDTH = 16


@dataclass(frozen=True)
class Sentence:
    """One folder: where the encoder is, the config of its Pooling, and the Dense and Normalize after it."""

    name: str
    note: str
    modes: Sequence[str]
    pooling: Mapping[str, object]
    dense: Mapping[str, object] = field(default_factory=dict)
    normalize: bool = True
    encoder: str = ""
    types: str = "sentence_transformers.models"


def pooled(mode: str, states: Tensor, mask: Tensor) -> Tensor:
    """(N, E): `states` (N, L, E) by one mode; `mask` (N, L) is 1 where a token is kept."""
    kept, rows = mask[:, :, None].to(states.dtype), torch.arange(len(states))
    places = torch.arange(mask.shape[1])
    if mode == "cls":
        return states[rows, mask.argmax(1)]
    if mode == "lasttoken":
        return states[rows, torch.where(mask == 1, places, -1).max(1).values]
    if mode == "max":
        return states.masked_fill(kept == 0, -torch.inf).max(1).values
    if mode == "weightedmean":
        kept = kept * (places + 1 - mask.argmax(1)[:, None])[:, :, None]
    total = (states * kept).sum(1)
    return total / (kept.sum(1).sqrt() if mode == "mean_sqrt_len_tokens" else kept.sum(1))


ACTIVATIONS = {
    "torch.nn.modules.activation.Tanh": nn.Tanh(),
    "torch.nn.modules.linear.Identity": nn.Identity(),
    "torch.nn.modules.activation.ReLU": nn.ReLU(),
}


def old_config(*modes: str) -> dict[str, object]:
    """The config of a Pooling as most published checkpoints have it."""
    names = ("cls_token", "max_tokens", "mean_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken")
    return {"word_embedding_dimension": WIDTH, **{f"pooling_mode_{name}": name in modes for name in names}}


SENTENCES = [
    Sentence("cls", "the first token's state, normalised", ["cls"], old_config("cls_token")),
    Sentence(
        "dense",
        "mean, a layer with tanh, not normalised; the encoder in a folder of its own",
        ["mean"],
        old_config("mean_tokens"),
        {"out_features": 6, "bias": True, "activation_function": "torch.nn.modules.activation.Tanh"},
        normalize=False,
        encoder="0_Transformer",
    ),
    Sentence(
        "joined",
        "all six ways to pool, joined, and a layer without bias or activation",
        ["cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"],
        old_config(
            "cls_token", "max_tokens", "mean_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken"
        ),
        {"out_features": 12, "bias": False, "activation_function": "torch.nn.modules.linear.Identity"},
    ),
    Sentence(
        "last_then_max",
        "two ways in another order, as newer files say it, with the newer names of modules",
        ["lasttoken", "max"],
        {"embedding_dimension": WIDTH, "pooling_mode": ["lasttoken", "max"], "include_prompt": True},
        types="sentence_transformers.sentence_transformer.modules",
    ),
]


def store(sentence: Sentence, folder: Path) -> None:
    """Write tests/goldens/sentences/<name>."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    seed = zlib.crc32(f"sentences/{sentence.name}".encode())
    encoder = BertModel(bert_config(num_hidden_layers=1), add_pooling_layer=False)
    randomise(encoder, seed)
    encoder.eval().save_pretrained(folder / sentence.encoder)
    modules = [(sentence.encoder, "Transformer"), ("1_Pooling", "Pooling")]
    (folder / "1_Pooling").mkdir()
    write_json(folder / "1_Pooling" / "config.json", sentence.pooling)
    dense: nn.Module = nn.Identity()
    if sentence.dense:
        modules.append(("2_Dense", "Dense"))
        (folder / "2_Dense").mkdir()
        width = WIDTH * len(sentence.modes)
        write_json(folder / "2_Dense" / "config.json", {"in_features": width, **sentence.dense})
        linear = nn.Linear(width, int(str(sentence.dense["out_features"])), bias=bool(sentence.dense["bias"]))
        randomise(linear, seed + 1)
        state = {f"linear.{key}": value for key, value in linear.state_dict().items()}
        save_file(state, folder / "2_Dense" / "model.safetensors")
        dense = nn.Sequential(linear, ACTIVATIONS[str(sentence.dense["activation_function"])])
    if sentence.normalize:
        modules.append((f"{len(modules)}_Normalize", "Normalize"))
    lines = [
        {"idx": index, "name": str(index), "path": path, "type": f"{sentence.types}.{kind}"}
        for index, (path, kind) in enumerate(modules)
    ]
    write_json(folder / "modules.json", lines)
    cases = text_cases(VOCABULARY, 0, compare="all", seed=500)
    tensors: dict[str, Tensor] = {}
    for name, case in cases.items():
        mask = case.inputs.get("attention_mask", torch.ones_like(case.inputs["input_ids"]))
        with torch.no_grad():
            states = encoder(**case.inputs).last_hidden_state
            answer = dense(torch.cat([pooled(mode, states, mask) for mode in sentence.modes], -1))
            answer = nn.functional.normalize(answer, dim=-1) if sentence.normalize else answer
        arrays = {**case.inputs, "sentence_embedding": answer}
        tensors |= {f"{name}.{key}": value.contiguous() for key, value in arrays.items()}
    save_file(tensors, folder / "io.safetensors")
    about = {
        "class": "SentenceTransformer, by its definition",
        "note": sentence.note,
        "outputs": ["sentence_embedding"],
        "cases": {
            name: {"about": case.about, "inputs": list(case.inputs), "compare": "all"} for name, case in cases.items()
        },
    }
    write_json(folder / "cases.json", about)
    for path in folder.rglob("*.*"):
        path.chmod(0o644 if path.is_file() else 0o755)


def store_all(root: Path) -> None:
    """All of them."""
    for sentence in SENTENCES:
        store(sentence, root / sentence.name)
