"""`fine_tune`: a checkpoint learns from rows of files, step by step in onnxruntime, and can be killed at any moment.

Next to the folder that is written, FOLDER.training holds what a killed run goes on with: what is trained, on what and
how (`run.json`), and weights, the optimizer's state, the number of steps and the evaluations so far
(`checkpoint.safetensors`). Which rows a step sees follows from the seed and its number alone, so a run that was killed
gives the weights of one that was not, bit for bit.
"""

from __future__ import annotations

import gc
import json
import math
import os
import re
import shutil
import time
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lucid import models, optim
from lucid.batch.job import input_files
from lucid.batch.mapping import open_source
from lucid.batch.rows import RowError
from lucid.batch.texts import TextReader, prompt_of
from lucid.batch.training_folder import CHECKPOINT, RECORD, RUN, History, finished, working
from lucid.batch.training_options import SCHEDULES, TrainingOptions
from lucid.batch.training_tasks import (
    CLASSES,
    DEFAULTS,
    SENTENCES,
    TEXTS,
    Classification,
    Columns,
    Generation,
    Labels,
    Similarity,
    TrainingTask,
    columns_of,
)
from lucid.core.graph.types import Array
from lucid.core.process import random
from lucid.core.process.interrupts import uninterrupted
from lucid.core.version import __version__
from lucid.core.words.name_patterns import named
from lucid.core.words.progress import phase
from lucid.core.words.safe_text import listed
from lucid.export.training import evaluation_step, training_step
from lucid.files.atomic import explaining
from lucid.files.checksums import checked, with_checksum
from lucid.files.folders import check_place, new_folder, sole_writer
from lucid.files.hub import local_checkpoint, published_name
from lucid.files.weights import load, save
from lucid.generation.chat.tokenizer_files import load_tokenizer
from lucid.gradients.transforms import chosen_parameters
from lucid.layouts.checkpoint_files import CONFIG, PROMPTS, copy_files, files_home, sources, write_tokenizer
from lucid.models.checkpoints.config import read_json, read_optional_json, write_json
from lucid.models.checkpoints.labels import has_labels, head_names, write_with_labels
from lucid.models.checkpoints.pretrained import Pretrained, read_options
from lucid.models.checkpoints.sentence_files import read_modules, write_modules
from lucid.models.checkpoints.static_files import TYPES, type_in
from lucid.models.checkpoints.tasks import reader_for
from lucid.models.parts.decoder_heads import EndClassifier
from lucid.models.parts.decoders import ClampedExperts
from lucid.nn.experts import MixtureOfExperts
from lucid.nn.layers import Embedding
from lucid.nn.module import Module
from lucid.nn.quantizing.quantize import quantize
from lucid.nn.weights.layer_weights import declared_weights
from lucid.nn.weights.low_rank import LoRA
from lucid.runtime import Session, Training, TrainingError

_START = "start"  # the folder of a checkpoint with a new head
_HELD = 1 << 32  # in the place of an epoch: the order in which rows are held out
_PART = 1 << 16  # rows that are read at a time
_LONGEST = 1 << 20  # characters of a text
_TOKENS = 1024  # of a text that a decoder learns, unless more is asked for
_SECONDS = 60.0  # between checkpoints
_USUAL = TrainingOptions()


class Begun(NamedTuple):
    """The state before the first step.

    Args:
        options: with all defaults.
        columns: that are read.
        rows, eval_rows: how many there are.
        labels: of both, the most frequent one first, and how many rows have each; empty for tasks without classes.
        truncated: how many of both have more tokens than `max_length`.
        max_length: the most tokens of a text that are read; None for any number.
        steps: of all epochs.
        resumed: how many of them an earlier run has made.
        trained, parameters: the numbers that are trained, and all of them.
        replaces_head: whether a new head for the labels is trained in the place of the checkpoint's.
    """

    options: TrainingOptions
    columns: Columns
    rows: int
    eval_rows: int
    labels: Mapping[str, int]
    truncated: int
    max_length: int | None
    steps: int
    resumed: int
    trained: int
    parameters: int
    replaces_head: bool


def fine_tune(
    source: str | os.PathLike[str],
    data: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str],
    options: TrainingOptions = _USUAL,
    *,
    begun: Callable[[Begun], object] = lambda _: None,
    evaluated: Callable[[Mapping[str, float]], object] = lambda _: None,
) -> History:
    """Train a checkpoint and write a folder that `lucid export` and transformers read; called again, it goes on.

    Args:
        source: a checkpoint: a folder, or the name of one on Hugging Face's hub.
        data: files of rows, as for `map_rows`: Parquet, JSON lines or CSV.
        output: the folder, which appears when training has ended. With adapters that are not merged, it is PEFT's.
        options: how to train.
        begun, evaluated: called before the first step, and with each entry of the history.

    Returns:
        The history. If the folder exists and was trained with the same options, the history of that training.

    Raises:
        FileExistsError: for a folder of something else, or one that another process trains into.
        FileNotFoundError, KeyError: for files or columns that are not there.
        ValueError: for rows that cannot be learned from, by their place; options that do not fit the model or each
            other; a folder in which another training was interrupted, by what differs.
        ConfigError, WeightsError: for a checkpoint that is not read, or has no weights for the task. WeightsError also
            for a damaged checkpoint of this training.
        TrainingError: for a loss that is not finite; it names the step and the layer.
        OSError: for a file that cannot be read or written. A note of this error and of KeyboardInterrupt says how to
            go on.
    """
    origin, output = local_checkpoint(source), Path(os.path.abspath(output))  # such as ".", which has no name
    work = Path(f"{output}.training")
    options = options.resolved(options.task or _task_of(origin))
    rows = _Rows(data, options)
    evaluation = _Rows(options.eval_dataset, options, rows.columns) if options.eval_dataset else None
    record: dict[str, Any] = json.loads(
        json.dumps(
            {
                "made_by": f"lucid {__version__}",
                "source": sources(origin),
                "data": input_files(rows.files),
                "eval_dataset": input_files(evaluation.files) if evaluation else [],
                "options": asdict(replace(options, eval_dataset=(), save_steps=None)),
            }
        )
    )
    if (done := finished(output, record)) is not None:
        if (work / RUN).exists():
            shutil.rmtree(work, ignore_errors=True)
        return done
    check_place(output)
    with explaining(work):
        work.mkdir(exist_ok=True)

    def trained() -> History:
        run = _Run(origin, work, options, rows, evaluation)
        history = run.train(begun, evaluated)
        with phase("writing"), new_folder(output) as folder:
            run.write(folder, published_name(origin) or os.fspath(source))
            write_json(folder / RECORD, {**record, "history": history})
        return history

    with sole_writer(work), working(work, record):
        history = trained()
        gc.collect()  # the model, which refers to itself and maps a file of the folder: Windows removes none of these
        shutil.rmtree(work, ignore_errors=True)
    return history


# Rows -----------------------------------------------------------------------------------------------------------------


class _Rows:
    """The rows of files, each with the values of the columns that are read."""

    def __init__(self, places: Any, options: TrainingOptions, columns: Columns | None = None) -> None:
        source = open_source(places, ())
        texts, label = columns or (options.columns, options.label_column)
        self.columns = columns_of(str(options.task), source.schema.names, texts, label, source.files[0])
        self._source = source = open_source(places, self.columns.all)
        self.files = source.files
        self.values = [row for part in source.parts(_PART) for rows in source.read(part) for row in rows.values]

    def each(self, name: str, prepare: Callable[[tuple[Any, ...]], Any]) -> list[Any]:
        """What is made of each row.

        Raises:
            ValueError: for rows that give no example; the message says where the first one is.
        """
        prepared, wrong = [], dict[int, RowError]()
        with phase(name, len(self.values), "rows") as advance:
            for number, row in enumerate(self.values):
                try:
                    if isinstance(row, RowError):
                        raise row
                    prepared.append(prepare(row))
                except RowError as error:
                    wrong[number] = error
                advance(1)
        if wrong:
            first, reason = next(iter(wrong.items()))
            where = "" if self.values[first] is reason else f"{self._source.place(first)}: "  # a line says its place
            raise ValueError(
                f"{len(wrong):,} of {len(self.values):,} rows cannot be learned from, the first: {where}{reason}; mend "
                "or remove them"
            ) from reason
        return prepared


# The run --------------------------------------------------------------------------------------------------------------


class _Run:
    """The model, the examples, and the steps."""

    def __init__(
        self, origin: Path, work: Path, options: TrainingOptions, rows: _Rows, evaluation: _Rows | None
    ) -> None:
        self._work, self._options, self._columns = work, options, rows.columns
        self._replaces_head = options.new_head and has_labels(origin)
        self._start, labels = origin, None
        if options.task == CLASSES:
            self._start, labels = _with_head(origin, work / _START, rows, options)
        self._tokenizer = load_tokenizer(files_home(origin))
        with phase("reading weights"):
            floats = options.lora is None or options.bits is not None  # quantized weights are not trained
            self._base: Pretrained[Any] = models.load(self._start, options.task, dequantize=floats)
        self._head = head_names(self._base) if options.task == CLASSES else set[str]()
        self._model = self._adapted()
        self._wrt = ("*.lora_*", *self._head) if options.lora else ()
        self._task = self._opened(labels)
        self._examples = rows.each("reading texts", self._task.example)
        self._held = evaluation.each("reading texts", self._task.example) if evaluation else self._hold_out()
        if options.early_stopping_patience and not self._held:
            raise ValueError(
                f"early_stopping_patience: there are too few rows to evaluate with some, {len(self._examples)}; give "
                "eval_dataset (--eval)"
            )
        counts = {"batch_size": int(options.batch_size or 1), "the number of rows to learn from": len(self._examples)}
        if self._held:
            counts["that to evaluate with"] = len(self._held)
        if min(counts.values()) < self._task.least:
            all_ = ", ".join(f"{name} is {count}" for name, count in counts.items())
            raise ValueError(
                f"{all_}, expected {self._task.least} or more of each: each text's positive is told from those of the "
                "other rows of a step; give a larger batch_size, more rows, or a column of negatives"
            )
        self._parts = self._divided(len(self._examples))
        self._per_epoch = len(self._parts)
        self._total = self._per_epoch * int(options.num_train_epochs or 1)

    def _adapted(self) -> Pretrained[Any]:
        """The model with adapters, if it gets some, over weights that may be quantized."""
        options, model = self._options, self._base
        if options.lora is None:
            return model
        if options.bits is not None:
            with phase("quantizing"):
                model = quantize(model, options.bits, skip=sorted({name.rpartition(".")[0] for name in self._head}))
        targets = adapter_targets(model, head_names(self._base), options.target_modules)
        random.manual_seed(options.seed)
        return LoRA.add(model, options.lora, targets, alpha=options.lora_alpha)

    def _opened(self, labels: Labels | None) -> TrainingTask:
        options, tokenizer = self._options, self._tokenizer
        if options.task == TEXTS:
            most = min(options.max_length or _TOKENS, tokenizer.max_positions or _TOKENS)
            return Generation(self._model, tokenizer, self._columns, most)
        prompt = prompt_of(self._start, None) if options.task == SENTENCES else ""
        config, names = read_optional_json(files_home(self._start) / CONFIG), tuple(self._model.input_specs())
        end = self._model.config.eos_token_id if isinstance(self._model, EndClassifier) else None
        reader = TextReader(tokenizer, config, names, options.max_length, _LONGEST, prompt, end)
        if labels is None:
            return Similarity(self._model, reader, self._columns)
        return Classification(self._model, reader, labels)

    def _hold_out(self) -> list[Any]:
        """Take the share of the rows that is evaluated; it follows from the seed."""
        share, least, rows = self._options.val_set_size, self._task.least, len(self._examples)
        count = min(max(least, round(share * rows)), rows - least) if share else 0
        count = count if count >= least else 0
        order = np.random.default_rng((self._options.seed, _HELD)).permutation(len(self._examples))
        held = {*order[:count].tolist()}
        taken = [self._examples[row] for row in sorted(held)]
        self._examples = [each for row, each in enumerate(self._examples) if row not in held]
        return taken

    def _divided(self, rows: int) -> list[slice]:
        """The rows of each batch: too few that remain for one of their own belong to the last one."""
        size = int(self._options.batch_size or 1)
        firsts = range(0, rows - self._task.least + 1, size)
        return [slice(first, rows if first == firsts[-1] else first + size) for first in firsts]

    def train(self, begun: Callable[[Begun], object], evaluated: Callable[[Mapping[str, float]], object]) -> History:
        """Make the steps that are missing; returns the history."""
        names = self._trained()
        training, session = self._exported(names)
        sizes = {name: value.numpy().size for name, value in self._model.state_dict().items()}
        begun(
            Begun(
                *(self._options, self._columns, len(self._examples), len(self._held)),
                self._task.labels([*self._examples, *self._held]),
                *(self._task.truncated, self._task.max_length, self._total, training.steps),
                *(sum(sizes[name] for name in names), sum(sizes.values()), self._replaces_head),
            )
        )
        history = self._steps(training, session, evaluated)
        best = self._best(history)
        self._weights: Mapping[str, Array] = training.weights() if best is None else self._stored(best)
        losses = [entry["eval_loss"] for entry in history if "eval_loss" in entry and best in (None, entry["step"])]
        numbers = [*self._weights.values(), np.array(losses[-1:])]
        if not all(np.isfinite(each).all() for each in numbers):
            raise TrainingError("the last step has given weights of NaN, infinity or near it; take a lower rate")
        return history

    def _exported(self, names: Sequence[str]) -> tuple[Training, Session | None]:
        """The step over the parameters of these names, and what evaluates; from the checkpoint, if there is one."""
        file, checkpoint, session = self._work / "step.onnx", self._work / CHECKPOINT, None
        how: Any = {"kwargs": self._task.specs, "target": "cpu", "wrt": tuple(names)}
        with phase("exporting the step"):
            training_step(self._model, self._task.loss, self._optimizer(names), **how, path=file)
            if self._held:
                place = self._work / "evaluation.onnx"
                evaluation_step(self._model, self._task.results, **how, path=place)
                session = Session(place)
        return Training(file, checkpoint if checkpoint.exists() else self._model.state_dict()), session

    def _steps(
        self, training: Training, session: Session | None, evaluated: Callable[[Mapping[str, float]], object]
    ) -> History:
        """Make steps, evaluations and checkpoints to the end; returns the history."""
        checkpoint, every, often = self._work / CHECKPOINT, self._options.eval_steps, self._options.save_steps
        history, total, counted = json.loads(training.notes or "[[], 0.0, 0]")
        saved, last = history, time.monotonic()
        with phase("training", self._total - training.steps, "steps") as advance:
            try:
                while True:  # what is due follows from what a checkpoint has
                    step = training.steps
                    due = step > 0 and (step % (every or self._per_epoch) == 0 or step == self._total)
                    if due and (not history or history[-1]["step"] < step):
                        entry = {"step": step, "epoch": step / self._per_epoch, "train_loss": total / max(counted, 1)}
                        longer = [*history, entry | self._evaluation(training, session)]
                        self._keep_best(training, longer)
                        history, total, counted = longer, 0.0, 0
                        self._drop_others(saved, history)
                        evaluated(history[-1])
                    ended = step == self._total or self._exhausted(history)
                    if ended or (step > 0 and step % often == 0 if often else time.monotonic() - last > _SECONDS):
                        training.save(checkpoint, json.dumps([history, total, counted]))
                        saved, last = history, time.monotonic()
                        self._drop_others(saved, history)
                    if ended:
                        return list(history)
                    with uninterrupted():  # a checkpoint has the loss of each of its steps
                        total, counted = total + training.step(**self._batch(step)), counted + 1
                    advance(1)
            except KeyboardInterrupt:
                training.save(checkpoint, json.dumps([history, total, counted]))
                raise

    def _trained(self) -> list[str]:
        """The names of the parameters that are trained."""
        patterns = self._options.freeze
        chosen = chosen_parameters((self._model, *self._wrt))
        frozen = named("freeze", patterns, list(chosen))
        names = [name for name in chosen if name not in frozen]
        if not names:
            raise ValueError(f"freeze: {', '.join(patterns)} leaves no parameter to train")
        if self._options.lora and not any(".lora_" in name for name in names):
            raise ValueError(
                f"freeze: {', '.join(patterns)} leaves no adapter to train; with adapters the weights below them are "
                "frozen anyway"
            )
        return names

    def _optimizer(self, names: Sequence[str]) -> optim.Optimizer:
        options, own = self._options, self._model.state_dict()
        steps = () if options.lr_scheduler_type == "constant" else (self._total,)
        warmup = min(math.ceil(options.warmup_ratio * self._total), self._total - 1)
        return optim.AdamW(
            SCHEDULES[options.lr_scheduler_type](options.learning_rate, *steps, warmup=warmup),
            weight_decay={name: options.weight_decay * _decays(name, own[name].ndim) for name in names},
            clip=options.max_grad_norm or None,
        )

    def _batch(self, step: int) -> dict[str, Array]:
        """What a step learns from: each epoch has an order of its own, which follows from the seed."""
        epoch, place = divmod(step, self._per_epoch)
        order = np.random.default_rng((self._options.seed, epoch)).permutation(len(self._examples))
        return self._task.batch([self._examples[row] for row in order[self._parts[place]]])

    # Evaluations ------------------------------------------------------------------------------------------------------

    def _evaluation(self, training: Training, session: Session | None) -> dict[str, float]:
        if session is None:
            return {}
        losses, counts, results_by_row = list[float](), list[float](), list[Array]()
        with phase("evaluating", len(self._held), "rows") as advance:
            for part in self._divided(len(self._held)):
                batch = self._held[part]
                results = training.evaluate(session, **self._task.batch(batch))
                losses.append(float(results["loss"]))
                counts.append(float(results["counted"]))
                results_by_row.append(results["found"])
                advance(len(batch))
        loss = float(np.average(losses, weights=counts))
        scores = self._task.scores(loss, np.concatenate(results_by_row), self._held)
        return {"eval_loss": loss, **{f"eval_{name}": score for name, score in scores.items()}}

    def _best(self, history: History) -> int | None:
        """The step of the evaluation with the lowest loss; None if its weights are not kept."""
        if not self._options.early_stopping_patience or not history:
            return None
        return lowest(history)

    def _exhausted(self, history: History) -> bool:
        best, patience = self._best(history), self._options.early_stopping_patience
        return best is not None and sum(entry["step"] > best for entry in history) >= patience

    def _place_of(self, step: int) -> Path:
        return self._work / f"best-{step}.safetensors"

    def _keep_best(self, training: Training, history: History) -> None:
        if self._best(history) == training.steps:
            save(self._place_of(training.steps), with_checksum(training.weights()))

    def _stored(self, step: int) -> Mapping[str, Array]:
        return checked(load(self._place_of(step)), self._place_of(step))

    def _drop_others(self, saved: History, history: History) -> None:
        """Remove all weights except the best ones now and the best ones in the checkpoint's history."""
        kept = {self._place_of(best) for best in map(self._best, (saved, history)) if best is not None}
        for path in {*self._work.glob("best-*.safetensors")} - kept:
            path.unlink()

    # What is written --------------------------------------------------------------------------------------------------

    def write(self, folder: Path, name: str) -> None:
        """Write the trained model, or its adapters over the base model of this name."""
        self._model.load_state_dict(self._weights, strict=False)
        write_tokenizer(self._start, folder)
        if self._options.lora is None:
            self._save(self._base, folder)
            return
        if not self._options.merge:
            models.save_adapter(self._model, self._start, folder, whole=sorted(self._head), base=name)
            if self._head:  # the names of labels
                copy_files(self._start, folder, (CONFIG,))
            return
        adapter = self._work / "adapter"  # to be added to the weights as they were, before they were quantized
        adapter.mkdir(exist_ok=True)
        models.save_adapter(self._model, self._start, adapter, whole=sorted(self._head))
        self._save(models.load(self._start, self._options.task, adapters=adapter), folder)

    def _save(self, model: Pretrained[Any], folder: Path) -> None:
        models.save(model, self._start, folder)
        copy_files(self._start, folder, (PROMPTS,))
        needs_modules = self._options.task == SENTENCES and type_in(folder) not in TYPES  # tables have their mean
        if needs_modules and read_modules(self._start) is None:
            write_modules(model.config.sentence_layers, model.config.hidden_size, folder)


def lowest(history: History) -> int:
    """The step of the evaluation with the lowest loss, the first one of equal ones; NaN is above all numbers."""
    losses = [entry["eval_loss"] for entry in history]
    best = min(range(len(losses)), key=lambda i: (math.isnan(losses[i]), losses[i]))
    return int(history[best]["step"])


def adapter_targets(model: Module, head: Set[str], names: Sequence[str] = ()) -> list[str]:
    """The weights of a model that get adapters, of those that peft reads: the head of a classifier is trained as a
    whole, and of networks that have experts in some layers peft joins the matrices.

    Args:
        model: with weights that may be quantized.
        head: the parameters of its head.
        names: of layers, or patterns; none: all products.

    Raises:
        ValueError: for a name of no such layer.
    """
    modules = dict(model.named_modules())
    kinds = MixtureOfExperts, ClampedExperts
    networks = {path.rpartition(".")[2] for path, module in modules.items() if isinstance(module, kinds)}
    products = [
        place.key
        for place, (_, use) in declared_weights(model).items()
        if use != "table"
        and not isinstance(modules[place.path], Embedding)
        and place.key not in head
        and networks.isdisjoint(place.path.split("."))
    ]
    patterns = [name if {*"*."} & {*name} else f"*.{name}" for name in names] or products
    try:
        return list(named("target_modules", patterns, products))
    except ValueError as error:
        if not networks:
            raise
        inside = listed(sorted(networks))
        raise ValueError(f"{error}; peft reads no adapters of networks with experts ({inside})") from error


def _decays(name: str, axes: int) -> bool:
    """Whether a parameter decays: a matrix, but not the biases or norms of several heads or experts."""
    return axes > 1 and not re.search("bias|norm", name)


def _task_of(origin: Path) -> str:
    modules = read_modules(origin)
    options = read_options(origin if modules is None else modules.encoder)
    task = reader_for(None, options, None if modules is None else modules.task).checkpoint.task
    if task not in DEFAULTS:
        raise ValueError(f"{origin}: is for {task}, which is not trained; give a task (--task): {', '.join(DEFAULTS)}")
    return task


def _with_head(origin: Path, place: Path, rows: _Rows, options: TrainingOptions) -> tuple[Path, Labels]:
    """The checkpoint with a head, a new one if it has none or that is asked for, and its labels."""
    if has_labels(origin) and not options.new_head:
        config = read_json(files_home(origin) / CONFIG)
        names = config.get("id2label") or {}
        model: Pretrained[Any] = models.load(origin, CLASSES)
        count, kind = model.config.num_labels, config.get("problem_type")
        if count < 2 or kind not in (None, "single_label_classification"):
            raise ValueError(
                f"{origin}: its head has num_labels {count} and problem_type {kind!r}, expected two classes or more of "
                "which each text has one; new_head (--new-head) gives it another one"
            )
        known = [str(names.get(str(number), f"LABEL_{number}")) for number in range(count)]
        return origin, Labels(known, "the checkpoint's head, which new_head (--new-head) replaces")
    labels = Labels.of(rows.each("reading labels", lambda row: Labels.key(row[-1])))
    if not place.exists():
        with new_folder(place) as folder:
            write_with_labels(origin, labels.names, folder, options.seed)
            write_tokenizer(origin, folder)
    return place, labels
