"""retrieval.json: the models of other goldens with modules of sentence-transformers 6, which it needs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoModel, AutoModelForCausalLM, AutoModelForMaskedLM

from .core import ROOT

RIGHT = {"input_ids": [[5, 6, 7, 8, 9], [10, 11, 3, 0, 0]], "attention_mask": [[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]}
LEFT = {"input_ids": [[5, 6, 7, 8, 9], [0, 0, 10, 11, 3]], "attention_mask": [[1, 1, 1, 1, 1], [0, 0, 1, 1, 1]]}


def rounded(found: torch.Tensor) -> Any:
    """The numbers as JSON has them."""
    return [rounded(row) for row in found] if found.ndim else float(f"{found.item():.7g}")


def of(auto: Any, variant: str, inputs: dict[str, Any]) -> tuple[Any, dict[str, torch.Tensor]]:
    """What a golden's model gives for inputs."""
    tensors = {name: torch.tensor(value) for name, value in inputs.items()}
    return auto.from_pretrained(ROOT / variant, attn_implementation="eager").eval()(**tensors), tensors


def clip() -> dict[str, Any]:
    """What sentence-transformers' CLIPModel asks transformers' model for, of texts and of an image of rising numbers."""
    from sentence_transformers.sentence_transformer.modules import CLIPModel

    routes, _ = CLIPModel._get_default_modality_config({})
    model = transformers.CLIPModel.from_pretrained(ROOT / "clip/quick_gelu", attn_implementation="eager").eval()
    size = model.config.vision_config.image_size
    texts = {"input_ids": [[0, 5, 6, 7, 39], [0, 8, 39, 39, 39]], "attention_mask": RIGHT["attention_mask"]}
    inputs = {"text": {name: torch.tensor(rows) for name, rows in texts.items()}}
    inputs["image"] = {"pixel_values": torch.linspace(-1, 1, 3 * size * size).reshape(1, 3, size, size)}
    answers = {}
    for kind, route in routes.items():
        answer = getattr(model, route["method"])(**inputs[kind])
        name = route["method_output_name"]
        answers[f"{kind}s"] = rounded(answer if name is None else answer[name])
    return {**texts, **answers}


@torch.no_grad()
def store_all(folder: Path) -> None:
    import sentence_transformers
    from sentence_transformers.base.modules import Dense
    from sentence_transformers.cross_encoder.modules import LogitScore
    from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask
    from sentence_transformers.sparse_encoder.modules import SpladePooling

    golden: dict[str, Any] = {"sentence_transformers": sentence_transformers.__version__, "right": RIGHT, "left": LEFT}
    logits, inputs = of(AutoModelForMaskedLM, "tasks/distilbert_fill_mask", RIGHT)
    for strategy in ("max", "sum"):
        for activation in ("relu", "log1p_relu"):
            pooling = SpladePooling(strategy, activation).eval()
            pooled = pooling({"token_embeddings": logits.logits.clone(), "attention_mask": inputs["attention_mask"]})
            golden[f"{strategy} {activation}"] = rounded(pooled["sentence_embedding"])
    scored, _ = of(AutoModelForCausalLM, "qwen3/base", LEFT)
    for tokens in ((7, 9), (7,)):
        golden[f"tokens {tokens}"] = rounded(LogitScore(*tokens)({"causal_logits": scored.logits})["scores"])
    states, inputs = of(AutoModel, "bert/base", RIGHT)
    dense = Dense(16, 4, bias=False, activation_function=torch.nn.Identity(), module_input_name="token_embeddings")
    golden["dense"] = rounded((torch.arange(64).reshape(4, 16) % 7 - 3).float() / 4)
    dense.linear.weight.copy_(torch.tensor(golden["dense"]))
    vectors = dense.activation_function(dense.linear(states.last_hidden_state))
    golden["vectors"] = rounded(torch.nn.functional.normalize(vectors, dim=-1))
    mask = MultiVectorMask([","])
    mask._skiplist_ids = torch.tensor([6])
    golden["mask"] = mask(dict(inputs), task="document")["attention_mask"].int().tolist()
    golden["clip"] = clip()
    folder.with_suffix(".json").write_text(json.dumps(golden) + "\n")
