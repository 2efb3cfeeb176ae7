"""The options of `lucid train`.

typer reads the annotations as objects, so this module has no `from __future__ import annotations`.
"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer

from lucid.cli.options.groups import REPEATABLE, JsonCommand, argument, folder_not_stdout, of_model

_data = partial(typer.Option, rich_help_panel="The data")
_training = partial(typer.Option, rich_help_panel="The training")
_adapters = partial(typer.Option, rich_help_panel="Adapters")


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """How a checkpoint is trained: the fields of `lucid.batch.TrainingOptions` of these names."""

    task: Annotated[
        Literal["text-classification", "sentence-similarity", "text-generation"] | None,
        of_model(help="What is learned.", show_default="the checkpoint's task"),
    ] = None
    max_length: Annotated[
        int | None,
        of_model(
            min=1, help="The most tokens of a text.", show_default="the checkpoint's, for text-generation at most 1024"
        ),
    ] = None
    freeze: Annotated[
        list[str],
        of_model(metavar="PATTERN", help="Weights to leave as they are, such as encoder.*. Repeatable.", **REPEATABLE),
    ]
    new_head: Annotated[
        bool,
        of_model(
            "--new-head",
            help="Train a new head, for the labels of the data, in the place of the checkpoint's.",
        ),
    ] = False
    columns: Annotated[
        list[str],
        _data(
            "--column",
            "-c",
            help="A column of texts. Repeatable. By default text; of sentence-similarity anchor, positive and "
            "negative, or sentence1 and sentence2; of text-generation messages, prompt and completion, or text.",
            **REPEATABLE,
        ),
    ]
    label_column: Annotated[
        str | None, _data(help="The column of labels, or of scores of pairs.", show_default="label, or score")
    ] = None
    eval_dataset: Annotated[
        list[str], _data("--eval", metavar="FILE", help="Rows to evaluate with, not held-out ones.", **REPEATABLE)
    ]
    val_set_size: Annotated[float, _data(help="The share of the rows that is held out; 0 for none.")] = 0.1
    num_train_epochs: Annotated[
        int | None,
        _training(
            "--num-train-epochs",
            "--epochs",
            min=1,
            help="Passes over the rows.",
            show_default="3; of sentence-similarity 1",
        ),
    ] = None
    batch_size: Annotated[
        int | None, _training(min=1, help="Rows of a step.", show_default="16; of text-generation 8")
    ] = None
    learning_rate: Annotated[
        float | None,
        _training(
            "--learning-rate",
            "--lr",
            help="The highest rate.",
            show_default="5e-5 of classifiers, else 2e-5; LoRA 10 times",
        ),
    ] = None
    lr_scheduler_type: Annotated[
        Literal["linear", "cosine", "constant"], _training(help="How the rate falls to 0 after the warm-up.")
    ] = "linear"
    warmup_ratio: Annotated[float, _training(help="The share of the steps in which the rate grows.")] = 0.1
    weight_decay: Annotated[float, _training(min=0, help="Of AdamW, for matrices.")] = 0.0
    max_grad_norm: Annotated[float, _training(min=0, help="The largest norm of all gradients; 0 for none.")] = 1.0
    eval_steps: Annotated[
        int | None, _training(min=1, help="Steps from one evaluation to the next.", show_default="those of an epoch")
    ] = None
    save_steps: Annotated[
        int | None, _training(min=1, help="Steps from one checkpoint to the next.", show_default="those of a minute")
    ] = None
    early_stopping_patience: Annotated[
        int,
        _training(
            min=0, help="End after so many evaluations without a lower loss, and write the best weights; 0: do not."
        ),
    ] = 0
    seed: Annotated[int, _training(min=0, help="Of new weights, and of the order of the rows.")] = 0
    lora: Annotated[
        int | None, _adapters(metavar="RANK", min=1, help="Train LoRA adapters of this rank, and write PEFT's folder.")
    ] = None
    lora_alpha: Annotated[
        float | None, _adapters(help="The adapters' scale times their rank.", show_default="twice the rank")
    ] = None
    target_modules: Annotated[
        list[str],
        _adapters(
            metavar="NAME", help="Layers with adapters, such as q_proj. Repeatable; by default all.", **REPEATABLE
        ),
    ]
    bits: Annotated[int | None, _adapters(metavar="4|8", help="Quantize the weights below adapters.")] = None
    merge: Annotated[bool, _adapters("--merge", help="Add the adapters to the weights, for a whole checkpoint.")] = (
        False
    )


@dataclass(frozen=True, kw_only=True)
class Train(JsonCommand, TrainingOptions):
    """Fine-tune a checkpoint on the rows of files: a classifier, a sentence encoder or a decoder.

    A checkpoint without a head for classes gets one for the labels of the data; one with a head needs --new-head for
    other labels. Of prompts and conversations the answers are learned. Interrupted, even killed, the same command goes
    on where FOLDER.training says.

    Examples:

    \b
      lucid train all-MiniLM-L6-v2 mails.csv --task text-classification -o mails
      lucid train all-MiniLM-L6-v2 pairs.parquet -o better --eval held.parquet
      lucid train SmolLM2-135M chats.jsonl --lora 8 --bits 4 -o adapter
    """

    source: Annotated[
        str,
        argument(metavar="SOURCE", help="A checkpoint: a folder, a GGUF file, or OWNER/NAME of Hugging Face's hub."),
    ]
    data: Annotated[
        list[str],
        argument(metavar="DATA", help="Files, folders or patterns, also in object stores: Parquet, JSON lines, CSV."),
    ]
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            show_default=False,
            metavar="FOLDER",
            callback=folder_not_stdout,
            help="The folder of the trained checkpoint.",
        ),
    ]
