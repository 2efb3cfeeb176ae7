"""Checkpoints of the goldens with the files that runtimes read beside the weights."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from tests.chat.checkpoints import tokenizer
from tests.models import goldens


def whole(folder: Path, variant: str) -> Path:
    """A copy of a model of the goldens with a tokenizer and the config of a preprocessor."""
    copy = shutil.copytree(goldens.folder(variant), folder, ignore=shutil.ignore_patterns("cases.json", "io.*", "old*"))
    home = copy / "0_Transformer" if (copy / "0_Transformer").is_dir() else copy
    tokenizer().save(str(home / "tokenizer.json"))
    special = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<unk>"}
    names = ["input_ids", "attention_mask"]
    about = {"tokenizer_class": "PreTrainedTokenizerFast", "model_input_names": names, **special}
    (home / "tokenizer_config.json").write_text(json.dumps(about))
    (home / "preprocessor_config.json").write_text('{"image_processor_type": "ViTImageProcessor"}')
    return copy
