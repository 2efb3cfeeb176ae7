"""Adapters of peft (LoRA) in the folder of a checkpoint: they change its weights, and are not read."""

from __future__ import annotations

from pathlib import Path

from lucid.models.checkpoints.config import ConfigError, read_json, show


def no_adapter(folder: Path) -> None:
    """Refuse a folder with an adapter, beside its base model or without.

    Raises:
        ConfigError: naming the base model, with what to do.
        OSError: for a file that cannot be read.
    """
    names = [name for name in ("adapter_model.safetensors", "adapter_model.bin") if (folder / name).exists()]
    told = folder / "adapter_config.json"
    if not names and not told.exists():
        return
    base = read_json(told).get("base_model_name_or_path") if told.exists() else None
    if (folder / "config.json").exists():
        home = "beside its base model" + (f" {show(base)}" if base else "")
    else:
        home = f"of {show(base) if base else 'a base model that it does not name'}, no model"
    raise ConfigError(
        f"{folder}: has an adapter (peft's {told.name if told.exists() else names[0]}) {home}; merge both first: "
        "PeftModel.from_pretrained(base, adapter).merge_and_unload().save_pretrained(folder); "
        "or move the adapter elsewhere to read the base model alone"
    )
