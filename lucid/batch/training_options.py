"""`TrainingOptions`: how `fine_tune` trains, each option checked against its range."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from lucid import optim
from lucid.batch.training_tasks import CLASSES, DEFAULTS
from lucid.core.number_ranges import Range, at_least, check_all
from lucid.core.words.suggestions import did_you_mean

SCHEDULES: Mapping[str, Callable[..., optim.Schedule]] = {
    "linear": optim.linear,
    "cosine": optim.cosine,
    "constant": optim.constant,
}
"""How a rate falls after the warm-up, by lr_scheduler_type."""
_LARGEST = float(np.finfo(np.float32).max)  # a step computes in float32
_COUNTS = ("num_train_epochs", "batch_size", "max_length", "lora", "eval_steps", "save_steps")
_RANGES: Mapping[str, Range] = {
    **dict.fromkeys(_COUNTS, at_least(1)),
    **dict.fromkeys(("early_stopping_patience", "seed"), at_least(0)),
    **dict.fromkeys(("val_set_size", "warmup_ratio"), Range("a share of at least 0, below 1", lambda x: 0 <= x < 1)),
    **dict.fromkeys(
        ("learning_rate", "lora_alpha"), Range("more than 0 and at most 3.4e38", lambda x: 0 < x <= _LARGEST)
    ),
    **dict.fromkeys(
        ("weight_decay", "max_grad_norm"), Range("0 or more and at most 3.4e38", lambda x: 0 <= x <= _LARGEST)
    ),
}
"""The ranges of the options that are numbers."""


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """How a model is trained, under the names of transformers' `TrainingArguments`, PEFT's `LoraConfig` and axolotl.

    Args:
        task: "text-classification", "sentence-similarity" or "text-generation"; by default the checkpoint's.
        columns: of texts; by default those of the usual names.
        label_column: of labels or scores; by default "label", and "score" if there is one.
        new_head: whether a checkpoint that has a head gets a new one, for the labels of the data: only the layer with a
            row for each label is new.
        eval_dataset: files of rows to evaluate with; by default `val_set_size` of the rows are held out.
        val_set_size: the share of the rows that is held out; 0: nothing is evaluated.
        num_train_epochs, batch_size, learning_rate: by default those of the task (`training_tasks.DEFAULTS`).
        lr_scheduler_type: "linear" or "cosine", down to 0, or "constant", after the warm-up.
        warmup_ratio: the share of the steps in which the rate grows from 0.
        weight_decay: of AdamW, for matrices.
        max_grad_norm: the largest norm of all gradients together; 0: they are taken as they are.
        max_length: the most tokens of a text; by default the checkpoint's, at most 1024 for "text-generation".
        seed: of new weights, of the held-out rows and of the order of the rows.
        freeze: patterns of parameters that stay as they are.
        lora: the rank of adapters, which are trained in the place of the weights; None trains these.
        lora_alpha: their scale times the rank; by default twice the rank.
        target_modules: names or patterns of the layers that get adapters; by default all products but the head.
        bits: of the frozen weights below adapters, 4 or 8.
        merge: whether adapters are added to the weights, for a whole checkpoint.
        eval_steps: after how many steps there is an evaluation; by default after each epoch.
        save_steps: after how many steps there is a checkpoint; by default each minute, which changes no result.
        early_stopping_patience: after how many evaluations without a lower loss training ends; the weights with the
            lowest loss are then written. 0: it does not end early, and the last weights are written.

    Raises:
        TypeError, ValueError: for a value out of range, or an option that would have no effect.
    """

    task: str | None = None
    columns: Sequence[str] = ()
    label_column: str | None = None
    new_head: bool = False
    eval_dataset: Sequence[str] = ()
    val_set_size: float = 0.1
    num_train_epochs: int | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    lr_scheduler_type: str = "linear"
    warmup_ratio: float = 0.1
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    max_length: int | None = None
    seed: int = 0
    freeze: Sequence[str] = ()
    lora: int | None = None
    lora_alpha: float | None = None
    target_modules: Sequence[str] = ()
    bits: int | None = None
    merge: bool = False
    eval_steps: int | None = None
    save_steps: int | None = None
    early_stopping_patience: int = 0

    def __post_init__(self) -> None:
        check_all(vars(self), _RANGES)
        if self.task is not None and self.task not in DEFAULTS:
            similar = did_you_mean(self.task, DEFAULTS)
            raise ValueError(f"task {self.task!r} is not trained: choose one of {', '.join(DEFAULTS)}{similar}")
        if self.lr_scheduler_type not in SCHEDULES:
            raise ValueError(f"lr_scheduler_type is {self.lr_scheduler_type!r}, expected {', '.join(SCHEDULES)}")
        if self.lora is None and (named := [name for name in _OF_LORA if getattr(self, name)]):
            raise ValueError(f"{', '.join(named)}: for adapters; give their rank, such as lora=8 (--lora 8)")
        if self.early_stopping_patience and not (self.eval_dataset or self.val_set_size):
            raise ValueError(
                "early_stopping_patience: there is no evaluation; give eval_dataset (--eval) or a val_set_size"
            )
        if self.bits not in (None, 4, 8):
            raise ValueError(f"bits is {self.bits!r}, expected 4 or 8")

    def resolved(self, task: str) -> TrainingOptions:
        """The options with the defaults of a task in the place of None.

        Raises:
            ValueError: for an option that the task does not have.
        """
        if self.new_head and task != CLASSES:
            raise ValueError(f"new_head: for {CLASSES}, and the task is {task}; leave it out (--new-head)")
        default = DEFAULTS[task]
        rate = default.learning_rate if self.lora is None else default.lora_learning_rate
        return replace(
            self,
            task=task,
            num_train_epochs=self.num_train_epochs or default.num_train_epochs,
            batch_size=self.batch_size or default.batch_size,
            learning_rate=self.learning_rate or rate,
            lora_alpha=self.lora_alpha or (None if self.lora is None else 2.0 * self.lora),
        )


_OF_LORA = ("lora_alpha", "target_modules", "bits", "merge")
