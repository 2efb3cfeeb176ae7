"""What `lucid train` and torch both train: checkpoints, rows and options. Of these are the goldens of training."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing

from tests.chat.checkpoints import checkpoint
from tests.layout_checkpoints import whole

_TEXTS = ["abc", "bcde", "f", "acegikm", "zyx", "hello there", "mn", "pqrs", "tu", "vwxyz a", "b c d"]  # ragged
_LABELED = [{"text": text, "label": ["pay", "send", "other"][row % 3]} for row, text in enumerate(_TEXTS)]
_SCORED = [{"sentence1": text, "sentence2": f"{text[::-1]}q", "score": row / 10} for row, text in enumerate(_TEXTS)]
_TRIPLES = [{"anchor": text, "positive": f"{text}.", "negative": text[:1]} for text in _TEXTS]
_ANSWERED = [{"prompt": text, "completion": text[: 1 + row % 4]} for row, text in enumerate(_TEXTS)]
_ADAPTED = {"lora": 2, "learning_rate": 0.05}


def _encoder(folder: Path) -> Path:
    return whole(folder, "sentences/cls")


def _ending_in(variant: str, end: str) -> Callable[[Path], Path]:
    """An encoder-decoder whose tokenizer adds an end, where a classifier reads the state."""

    def source(folder: Path) -> Path:
        place = str(whole(folder, variant) / "tokenizer.json")
        tokenizer = Tokenizer.from_file(place)
        token = end, tokenizer.token_to_id(end)
        tokenizer.post_processor = TemplateProcessing(single=f"$A {end}", pair=f"$A $B {end}", special_tokens=[token])
        tokenizer.save(place)
        return folder

    return source


def _decoder(folder: Path) -> Path:
    return checkpoint(folder)


@dataclass(frozen=True)
class TrainingCase:
    """A training of two epochs, whose last step has fewer rows than the others.

    Args:
        source: writes the checkpoint to a folder.
        rows: what is learned from.
        options: of `lucid.batch.TrainingOptions`.
    """

    source: Callable[[Path], Path]
    rows: list[dict[str, Any]]
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def all_options(self) -> dict[str, Any]:
        """The options with those of all cases: every step is reported."""
        usual = {"num_train_epochs": 2, "batch_size": 4, "eval_steps": 1, "val_set_size": 0, "seed": 3}
        return {**usual, "learning_rate": 0.01, "warmup_ratio": 0.3, "weight_decay": 0.5, **self.options}


CASES: Mapping[str, TrainingCase] = {
    "classes": TrainingCase(_encoder, _LABELED, {"task": "text-classification", "max_grad_norm": 0.5}),
    "classes_lora": TrainingCase(
        _encoder, _LABELED, {**_ADAPTED, "task": "text-classification", "target_modules": ["query", "dense"]}
    ),
    "classes_t5": TrainingCase(_ending_in("t5/v1_1", "<s>"), _LABELED, {"task": "text-classification"}),
    "scores": TrainingCase(_encoder, _SCORED, {"lr_scheduler_type": "cosine"}),
    "negatives": TrainingCase(_encoder, _TRIPLES, {"max_grad_norm": 0}),
    "answers": TrainingCase(_decoder, _ANSWERED, {"max_grad_norm": 2.0}),
    "answers_lora": TrainingCase(
        _decoder, _ANSWERED, {**_ADAPTED, "lr_scheduler_type": "constant", "target_modules": ["q_proj", "down_proj"]}
    ),
}
