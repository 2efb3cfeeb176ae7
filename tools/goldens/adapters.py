"""LoRA adapters on the checkpoints of other goldens, and the weights that PEFT's `merge_and_unload` makes of both."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import peft
import safetensors.torch
import torch
import transformers
from peft import LoraConfig

from .core import ROOT

Weights = dict[str, torch.Tensor]


def store_all(place: Path) -> None:
    """place/<name>/: the adapter, and merged.safetensors with the weights that it changes."""
    torch.manual_seed(7)
    everything = {"r": 4, "lora_alpha": 6, "target_modules": r".*\.(self_attn|mlp)\.[a-z]+_proj"}
    patterns = {
        "rank_pattern": {"q_proj": 2, r"^model\.layers\.1\.mlp\.up_proj": 3},
        "alpha_pattern": {r"layers\.0\..*_proj": 3.5},
    }
    store(place / "patterns", "llama/llama3", LoraConfig(**everything, **patterns, use_rslora=True))
    store(
        place / "one_layer",
        "llama/llama3",
        LoraConfig(r=3, target_modules=["v_proj", "o_proj"], layers_to_transform=[1]),
    )
    store_weighted(place / "weighted", "llama/llama3", {"patterns": 1.0, "one_layer": -0.5})
    whole = ["embed_tokens", "lm_head"]
    store(place / "dora", "llama/llama3", LoraConfig(r=2, target_modules=["q_proj", "down_proj"], use_dora=True))
    store_weighted(place / "after_dora", "llama/llama3", {"dora": 1.0, "one_layer": 1.0})
    store(place / "saved", "llama/llama3", LoraConfig(r=2, target_modules=["q_proj"], modules_to_save=whole))
    store(place / "bfloat16", "llama/bfloat16_sharded", LoraConfig(r=4, target_modules="all-linear"))
    conv1d = {"r": 2, "target_modules": ["c_attn", "c_proj"], "fan_in_fan_out": True}
    store(place / "gpt2", "gpt2/base", LoraConfig(**conv1d, bias="all", lora_bias=True))
    store(place / "gpt2_dora", "gpt2/hub_layout", LoraConfig(**conv1d, use_dora=True))
    classes = transformers.AutoModelForSequenceClassification.from_pretrained
    table = {"r": 2, "target_modules": ["query", "word_embeddings"], "use_dora": True, "bias": "lora_only"}
    store(
        place / "bert",
        "bert/base",
        LoraConfig(task_type="SEQ_CLS", **table),
        lambda folder: classes(folder, num_labels=3),
    )
    store(place / "t5", "t5/v1_1", LoraConfig(r=2, target_modules=["q", "wo"], task_type="SEQ_2_SEQ_LM"))
    store(place / "whisper", "whisper/base", LoraConfig(r=2, target_modules=["q_proj", "conv2"]))
    store(
        place / "vit",
        "vit/classifier",
        LoraConfig(r=2, target_modules=["q_proj", "o_proj", "fc1", "projection"], use_dora=True),
    )
    store_experts(place / "mixtral", "mixtral/base")
    store(
        place / "tokens", "llama/llama3", LoraConfig(r=2, target_modules=["q_proj"], trainable_token_indices=[7, 1, 5])
    )
    joined = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]
    experts = LoraConfig(r=2, target_modules=["o_proj"], target_parameters=joined, alpha_pattern={"o_proj": 3})
    store(place / "joined_experts", "mixtral/base", experts)
    oss = {"target_modules": ["q_proj"], "target_parameters": joined[1:], "layers_to_transform": [1]}
    store(place / "transposed_experts", "gpt_oss/base", LoraConfig(r=1, lora_alpha=3, **oss))


def store(folder: Path, base: str, config: LoraConfig, read: Callable[[Path], Any] | None = None) -> None:
    """An adapter of random numbers, and what it makes of the base model."""
    model = peft.get_peft_model(_read(base, read), config)
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            noise = torch.randn(parameter.shape) * 0.2
            parameter.data = parameter.data * (1 + noise) if "magnitude" in name else parameter.data + noise
    model.save_pretrained(folder)
    (folder / "README.md").unlink()
    path = folder / "adapter_config.json"
    about = json.loads(path.read_text())
    for key in ("target_modules", "exclude_modules", "modules_to_save"):  # sets, in any order
        about[key] = sorted(about[key]) if isinstance(about[key], list) else about[key]
    path.write_text(json.dumps({**about, "base_model_name_or_path": base}, indent=1) + "\n", encoding="utf-8")
    _store_merged(folder, base, peft.PeftModel.from_pretrained(_read(base, read), folder))


def store_experts(folder: Path, base: str) -> None:
    """An adapter with layers for each expert, as PEFT wrote them before transformers 5 joined the experts."""
    names = ["self_attn.q_proj", "block_sparse_moe.gate"]
    names += [f"block_sparse_moe.experts.{expert}.{part}" for expert in range(4) for part in ("w1", "w2", "w3")]
    weights = safetensors.torch.load_file(ROOT / base / "model.safetensors")
    tensors: Weights = {}
    for layer in [f"model.layers.1.{name}" for name in names]:
        rows, columns = weights[f"{layer}.weight"].shape
        tensors[f"base_model.model.{layer}.lora_A.weight"] = torch.randn(1, columns) * 0.4
        tensors[f"base_model.model.{layer}.lora_B.weight"] = torch.randn(rows, 1) * 0.4
    about = {"peft_type": "LORA", "base_model_name_or_path": base, "r": 1, "lora_alpha": 2, "task_type": "CAUSAL_LM"}
    targets = ["gate", "q_proj", "w1", "w2", "w3"]
    folder.mkdir(exist_ok=True, parents=True)
    text = json.dumps({**about, "target_modules": targets}, indent=1) + "\n"
    (folder / "adapter_config.json").write_text(text, encoding="utf-8")
    safetensors.torch.save_file(tensors, folder / "adapter_model.safetensors")
    _store_merged(folder, base, peft.PeftModel.from_pretrained(_read(base, None), folder))


def store_weighted(folder: Path, base: str, weights: dict[str, float]) -> None:
    """What several adapters make of the base model."""
    folder.mkdir(exist_ok=True, parents=True)
    names = list(weights)
    model = peft.PeftModel.from_pretrained(_read(base, None), folder.parent / names[0], adapter_name=names[0])
    for other in names[1:]:
        model.load_adapter(folder.parent / other, adapter_name=other)
    for module in model.modules():
        if isinstance(module, peft.tuners.lora.LoraLayer):
            for adapter, weight in weights.items():
                if adapter in module.scaling:
                    module.set_scale(adapter, weight)
    model.base_model.set_adapter(names)
    (folder / "adapters.json").write_text(json.dumps(weights) + "\n", encoding="utf-8")
    _store_merged(folder, base, model)


def _read(base: str, read: Callable[[Path], Any] | None) -> Any:
    folder = ROOT / base
    if read is not None:
        return read(folder)
    config = transformers.AutoConfig.from_pretrained(folder)
    cls = getattr(transformers, config.architectures[0])
    return cls.from_pretrained(folder)


def _store_merged(folder: Path, base: str, model: Any) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        model.merge_and_unload().save_pretrained(scratch)
        merged = safetensors.torch.load_file(Path(scratch) / "model.safetensors")
        _read(base, None).save_pretrained(scratch)
        before = safetensors.torch.load_file(Path(scratch) / "model.safetensors")
    inner = {key: key if key in before else key.partition(".")[2] for key in merged}  # of a head that is new
    kept = {
        key: array
        for key, array in merged.items()
        if inner[key] not in before or not torch.equal(array, before[inner[key]])
    }
    safetensors.torch.save_file(kept, folder / "merged.safetensors")
