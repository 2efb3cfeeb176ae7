"""Heads: from the outputs of a model to the embedding, label or score of each row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from lucid.batch.batches import BUDGET, padded_batches
from lucid.batch.rows import Column, Kind, Ready, Results
from lucid.core.graph.types import Array
from lucid.generation.sampling import probabilities
from lucid.runtime import Session

EMBEDDINGS = ("sentence_embedding", "image_embeds", "text_embeds", "pooler_output")
"""Outputs (N, E) with a vector for each row; the first one that the model has is read."""

TOKENS, DOCUMENT = "token_embeddings", "document_mask"
"""The outputs of a model with a vector for each token: the vectors, and which of them count in a document."""

_STATES = "last_hidden_state"
_ACTIVATIONS = (
    "activation_fn",
    "sbert_ce_default_activation_function",
)  # of cross-encoders, in newer and older configs


class Reader(Protocol):
    """Turns the values of rows into inputs of a model: `TextReader`, `ImageReader`."""

    def ready(self, values: Sequence[Any]) -> Ready:
        """As `Task.ready`."""

    def arrays(self, batch: Sequence[Any]) -> dict[str, Array]:
        """The inputs of the model for rows that are ready."""


class Head:
    """A task that runs a model once for each batch.

    Args:
        reader: makes the inputs.
        session: the model.
        columns: as `Task.columns`.
        results: turns the model's outputs and inputs into results.
        inputs: as `Task.inputs`.
    """

    part_rows, batches = (1 << 11, 1 << 16), staticmethod(padded_batches)

    def __init__(
        self,
        reader: Reader,
        session: Session,
        columns: Mapping[str, Column],
        results: Callable[[Mapping[str, Array], Mapping[str, Array]], dict[str, Results]],
        inputs: int = 1,
    ) -> None:
        self.columns, self.inputs, self.ready = columns, inputs, reader.ready
        self._reader, self._session, self._results = reader, session, results

    def run(self, batch: Sequence[Any], budget: int = BUDGET) -> dict[str, Results]:
        """As `Task.run`."""
        arrays = self._reader.arrays(batch)
        return self._results(self._session.run(arrays), arrays)


def embedding(reader: Reader, session: Session, output: str, pooling: str | None, where: str) -> Head:
    """The embedding of a row: an output that holds it, or the pooled states of the row's tokens.

    Raises:
        ValueError: if the model gives only states and `pooling` is None: the file does not say how to pool them.
    """
    name = next((name for name in EMBEDDINGS if name in session.outputs), None)
    if name is not None:
        if pooling is not None:
            raise ValueError(f"{where}: its model gives {name}, which is a vector for each row; leave out pooling")

        def flat(results: Mapping[str, Array], _: Mapping[str, Array]) -> dict[str, Results]:
            return {output: results[name].reshape(len(results[name]), -1)}  # of ResNet it is (N, E, 1, 1)

        return Head(reader, session, _vectors(session, name, output), flat)
    if pooling not in ("cls", "mean"):
        raise ValueError(
            f"{where}: its model gives {_STATES}, a vector for each token, and the checkpoint does not say how they "
            f"are pooled; give pooling 'cls' or 'mean' (--pooling), got {pooling!r}"
        )

    def pooled(results: Mapping[str, Array], arrays: Mapping[str, Array]) -> dict[str, Results]:
        states = results[_STATES]
        if pooling == "cls":
            return {output: states[:, 0]}
        mask = arrays.get("attention_mask", np.ones(states.shape[:2]))[..., None].astype(np.float32)
        return {output: (states * mask).sum(axis=1) / mask.sum(axis=1)}

    return Head(reader, session, _vectors(session, _STATES, output), pooled)


def sparse(reader: Reader, session: Session, output: str) -> Head:
    """The non-zero weights of a text for the tokens of the vocabulary, as SPLADE gives them."""
    (width,) = [column.width for column in _vectors(session, EMBEDDINGS[0], output).values()]

    def weights(results: Mapping[str, Array], _: Mapping[str, Array]) -> dict[str, Results]:
        rows = results[EMBEDDINGS[0]]
        sparse = [(np.flatnonzero(row), row) for row in rows]
        return {output: [{"indices": at.astype(np.int32), "values": row[at]} for at, row in sparse]}

    return Head(reader, session, {output: Column(Kind.SPARSE, width)}, weights)


def token_vectors(reader: Reader, session: Session, output: str, query: bool) -> Head:
    """A vector for each token, as ColBERT gives it: of a query all, of a document those that `document_mask` keeps."""
    (width,) = [column.width for column in _vectors(session, TOKENS, output).values()]

    def vectors(results: Mapping[str, Array], arrays: Mapping[str, Array]) -> dict[str, Results]:
        mask = arrays["attention_mask"] if query else results[DOCUMENT]
        return {output: [rows[kept != 0] for rows, kept in zip(results[TOKENS], mask, strict=True)]}

    return Head(reader, session, {output: Column(Kind.VECTORS, width)}, vectors)


def classification(reader: Reader, session: Session, output: str, config: Mapping[str, Any]) -> Head:
    """The most likely label of a row, and its probability in the column `score`.

    Labels are named by `id2label`. Probabilities are the softmax, or the sigmoid if config.json allows several labels
    for a row.
    """
    if output == "score":
        raise ValueError(f"output is {output!r}, the column of the probabilities; give the labels another name")
    names = config.get("id2label")
    several = config.get("problem_type") == "multi_label_classification"

    def labels(results: Mapping[str, Array], _: Mapping[str, Array]) -> dict[str, Results]:
        logits = results["logits"].astype(np.float64)
        best = logits.argmax(axis=-1)
        scores = _sigmoid(logits) if several else probabilities(logits)
        by_number = names if isinstance(names, dict) else {}
        return {
            output: [str(by_number.get(str(label), f"LABEL_{label}")) for label in best],
            "score": np.take_along_axis(scores, best[:, None], axis=-1)[:, 0],
        }

    return Head(reader, session, {output: Column(Kind.TEXT), "score": Column(Kind.NUMBER)}, labels)


def ranking(reader: Reader, session: Session, output: str, config: Mapping[str, Any]) -> Head:
    """The score of a pair of texts as sentence-transformers' CrossEncoder computes it: the sigmoid of the logit, or the
    logit itself if config.json names the identity.
    """
    section = config.get("sentence_transformers")
    about = {**config, **(section if isinstance(section, dict) else {})}
    activation = next((about[name] for name in _ACTIVATIONS if name in about), "")
    identity = str(activation).endswith("Identity")

    def scores(results: Mapping[str, Array], _: Mapping[str, Array]) -> dict[str, Results]:
        logits = results["logits"][:, 0].astype(np.float64)
        return {output: logits if identity else _sigmoid(logits)}

    return Head(reader, session, {output: Column(Kind.NUMBER)}, scores, inputs=2)


def vector_axes(shape: Sequence[Any]) -> list[Any]:
    """The axes of an output after the batch: [E] of a vector, [L, E] of a vector for each token, more of maps."""
    return [size for size in shape[1:] if size != 1] or [1]


def _vectors(session: Session, name: str, output: str) -> dict[str, Column]:
    *_, width = vector_axes(session.outputs[name][1])
    if not isinstance(width, int):
        raise ValueError(f"the model's output {name} has vectors of {width} numbers, expected a fixed number")
    return {output: Column(Kind.VECTOR, width)}


def _sigmoid(logits: Array) -> Array:
    return np.asarray(0.5 * (1 + np.tanh(0.5 * logits)))  # without an overflow
