"""Checkpoints of the goldens with a tokenizer: a token for each of a few letters, and for the bytes of é and 東."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from tests.models import goldens

SPECIAL = ["<unk>", "<s>", "</s>", "<|user|>"]
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{{ '<|user|>' if m.role == 'user' else '' }}{{ m.content }}"
    "{{ eos_token if m.role == 'assistant' else '\n' }}{% endfor %}"
)


def tokenizer() -> Tokenizer:
    """40 tokens, as the models of the goldens have."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    bytes_ = [byte_level.pre_tokenize_str(character)[0][0] for character in " \n.?é東"]
    tokens = [*SPECIAL, *letters, *dict.fromkeys("".join(bytes_))]
    tokens += [f"<{number}>" for number in range(len(tokens), 40)]
    result = Tokenizer(models.BPE({token: number for number, token in enumerate(tokens)}, []))
    result.pre_tokenizer, result.decoder = byte_level, decoders.ByteLevel()
    result.add_special_tokens([AddedToken(token, normalized=False) for token in SPECIAL])
    return result


byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)


def checkpoint(folder: Path, variant: str = "llama/llama3", **options: object) -> Path:
    """A checkpoint of the goldens with a tokenizer and a chat template; more options for its tokenizer_config.json."""
    folder.mkdir(exist_ok=True)
    for name in ("config.json", "model.safetensors"):
        shutil.copy(goldens.folder(variant) / name, folder / name)
    tokenizer().save(str(folder / "tokenizer.json"))
    about = {"bos_token": "<s>", "eos_token": {"content": "</s>"}, "chat_template": TEMPLATE, **options}
    (folder / "tokenizer_config.json").write_text(json.dumps(about))
    return folder
