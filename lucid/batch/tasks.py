"""The task of an exported folder, from the inputs and outputs of its model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lucid.batch import heads
from lucid.batch.folder import ExportedFolder
from lucid.batch.images import ImageReader
from lucid.batch.rows import ERROR, Task
from lucid.batch.text_generation import Generation, Rewriting
from lucid.batch.texts import TextReader, prompt_of
from lucid.generation.chat.tokenizer_files import load_tokenizer
from lucid.generation.models import CACHE, STATE
from lucid.layouts.checkpoint_files import CONFIG
from lucid.models.checkpoints.config import read_optional_json
from lucid.models.checkpoints.pretrained import read_options
from lucid.models.checkpoints.registry import find_family
from lucid.models.checkpoints.tasks import class_of
from lucid.models.parts.decoder_heads import EndClassifier
from lucid.runtime import Session

OUTPUTS = {
    "sentence-similarity": "embedding",
    "sparse-encoding": "embedding",
    "multi-vector-encoding": "embedding",
    "text-classification": "label",
    "reranking": "score",
    "text-generation": "answer",
    "image-classification": "label",
    "image-feature-extraction": "embedding",
}
"""The tasks, and the column of each one's results."""
_OF_TEXTS, _OF_IMAGES = {"input_ids", "text"}, {"pixel_values", "images"}
SENTENCES = ("sentence-similarity", "sparse-encoding", "multi-vector-encoding")
"""The tasks whose checkpoints may have prompts by name."""


@dataclass(frozen=True)
class Choices:
    """The options of a task; `Predictor` describes each."""

    output: str | None = None
    task: str | None = None
    max_length: int | None = None
    max_characters: int = 1_000_000
    pooling: str | None = None
    prompt: str | None = None
    generation: Mapping[str, Any] = field(default_factory=dict, hash=False)


def task_name(session: Session, where: str) -> str:
    """The task that a model is for.

    Raises:
        ValueError: for a model of none of the tasks.
    """
    inputs, outputs, task = session.inputs, session.outputs, _task(session, where)
    whole, of_images = inputs.keys() & {"text", "images"}, not inputs.keys().isdisjoint(_OF_IMAGES)
    if task is not None and not whole:
        return task
    if task is not None:
        raise ValueError(
            f"{where}: its model takes {', '.join(inputs)}, and rows become tokens or pixels outside of the file; "
            "export it without --with-tokenizer and --with-preprocessor"
        )
    run = "run the file over images with lucid.runtime.Session"
    maps = f"; for maps and boxes {run if whole else f'export it with --with-preprocessor, and {run}'}"
    tasks = [task for task in OUTPUTS if task.startswith("image-") == of_images]
    raise ValueError(
        f"{where}: its model makes {', '.join(outputs)} of {', '.join(inputs)}, which is none of the tasks over "
        f"{'images' if of_images else 'rows'}: {', '.join(tasks)}; export the checkpoint for one of them with --task, "
        f"and with {'preprocessor' if of_images else 'tokenizer'} next to the model{maps * of_images}"
    )


def _task(session: Session, where: str) -> str | None:
    """The task of a model's inputs, as tokens and pixels or as texts and images, and of its outputs; None for none."""
    inputs, outputs = session.inputs, session.outputs
    named = {*heads.EMBEDDINGS, "last_hidden_state"} & outputs.keys()
    vectors = [name for name in named if len(heads.vector_axes(outputs[name][1])) < 3]
    if any(CACHE.fullmatch(name) or STATE.fullmatch(name) for name in inputs):
        return "text-generation"
    labels = outputs["logits"][1] if "logits" in outputs else ()
    if len(inputs) == 1 and inputs.keys() <= _OF_IMAGES:
        if len(labels) == 2:
            return "image-classification"
        if vectors:
            return "image-feature-extraction"
    elif inputs.keys() & _OF_TEXTS and inputs.keys().isdisjoint(_OF_IMAGES):
        if len(labels) == 2:
            return "reranking" if labels[1] == 1 else "text-classification"
        if {heads.TOKENS, heads.DOCUMENT} <= outputs.keys():
            return "multi-vector-encoding"
        if heads.EMBEDDINGS[0] in outputs:  # a number for each token that there is, or for each feature
            vocabulary = read_optional_json(Path(where) / CONFIG).get("vocab_size")
            return "sparse-encoding" if outputs[heads.EMBEDDINGS[0]][1][-1] == vocabulary else "sentence-similarity"
        if vectors:
            return "sentence-similarity"
    return None


def check_choices(choices: Choices, name: str, where: str) -> None:
    """Refuse the options that a task does not have.

    Raises:
        ValueError: for one of them; the message names the task.
    """
    if choices.task not in (None, name):
        raise ValueError(f"{where}: is exported for {name}, not for {choices.task!r}; leave out the task")
    if choices.generation and name != "text-generation":
        raise ValueError(f"{where}: is exported for {name}, which writes no text; leave out the options of generation")
    if choices.pooling is not None and name not in ("sentence-similarity", "image-feature-extraction"):
        raise ValueError(f"{where}: is exported for {name}, which pools nothing; leave out pooling")
    if choices.max_length is not None and (name == "text-generation" or name.startswith("image-")):
        raise ValueError(f"{where}: is exported for {name}, which cuts off no rows; leave out max_length")
    if choices.prompt is not None and name not in SENTENCES:
        raise ValueError(f"{where}: is exported for {name}, which has no prompts by name; leave out prompt")


def open_task(folder: ExportedFolder, session: Session, choices: Choices, decoder: Session | None = None) -> Task:
    """The task of the model in a folder.

    Raises:
        ValueError: for a model of another task, or an option that its task does not have.
        OSError: if its tokenizer or the config of its preprocessor is missing.
    """
    where = str(folder.path)
    name = task_name(session, where) if decoder is None else _task_of_an_encoder(session, where)
    check_choices(choices, name, where)
    output = OUTPUTS[name] if choices.output is None else choices.output
    if not isinstance(output, str) or output in ("", ERROR):
        raise ValueError(f"output is {output!r}, expected the name of a column; {ERROR!r} says why a row has no result")
    config = read_optional_json(folder.path / CONFIG)
    if name == "text-generation":
        tokenizer = load_tokenizer(folder.path)
        if decoder is not None:
            defaults = config | read_optional_json(folder.path / "generation_config.json")
            options = choices.generation
            return Rewriting(session, decoder, tokenizer, defaults, output, options, choices.max_characters)
        return Generation(session, tokenizer, output, choices.generation, choices.max_characters)
    reader = _reader(folder, session, choices, config, name)
    if name == "reranking":
        return heads.ranking(reader, session, output, config)
    if name.endswith("classification"):
        return heads.classification(reader, session, output, config)
    if name == "sparse-encoding":
        return heads.sparse(reader, session, output)
    if name == "multi-vector-encoding":
        return heads.token_vectors(reader, session, output, choices.prompt == "query")
    return heads.embedding(reader, session, output, choices.pooling, where)


def _task_of_an_encoder(session: Session, where: str) -> str:
    if "input_ids" not in session.inputs:
        raise ValueError(
            f"{where}: its encoder reads {', '.join(session.inputs)}, and rows are texts; for speech "
            "see lucid.models.speech"
        )
    return "text-generation"


def _end_of_classes(folder: Path, config: Mapping[str, Any]) -> int | None:
    """The id of the token at which a classifier of this type reads its class; None if it reads another place."""
    family = find_family(str(config.get("model_type")))
    place = None if family is None else family.tasks.get("text-classification")
    if place is None or not issubclass(class_of(place), EndClassifier):
        return None
    return read_options(folder).whole("eos_token_id", low=0)


def _reader(
    folder: ExportedFolder, session: Session, choices: Choices, config: Mapping[str, Any], name: str
) -> heads.Reader:
    if "pixel_values" in session.inputs:
        return ImageReader(folder.path, session.inputs["pixel_values"][1])
    tokenizer = load_tokenizer(folder.path)
    prompt = prompt_of(folder.path, choices.prompt) if name in SENTENCES else ""
    end = _end_of_classes(folder.path, config) if name in ("text-classification", "reranking") else None
    limits = choices.max_length, choices.max_characters
    return TextReader(tokenizer, config, tuple(session.inputs), *limits, prompt, end)
