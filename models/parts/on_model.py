"""Heads: what a task adds to a model. The checkpoint of a head is that of its model with what the head declares.

::

    class AlbertForTokenClassification(TokenClassifier[AlbertConfig], Albert, on=Albert): ...
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, TypeVar

from lucid import TensorType
from lucid.models.checkpoints.labels import with_labels
from lucid.models.checkpoints.pretrained import Checkpoint, Pretrained

C = TypeVar("C")


class Head(Pretrained[C]):
    """The base of classes with a head; one with ``on=Model`` reads the checkpoints of `Model` that have its head."""

    head_task: ClassVar[str]
    """The task, by the name that Hugging Face's hub has for it."""
    label_key: ClassVar[str] = ""
    """A regular expression for the key of the last weight, if that has a row for each label; see `with_labels`."""
    label_count: ClassVar[int | None] = None
    """How many labels there must be, if that is known."""
    head_renames: ClassVar[Sequence[tuple[str, str]]] = ()
    """The renames of keys of the head, which come before those of the model."""

    def __init_subclass__(cls, on: type[Pretrained[Any]] | None = None) -> None:
        super().__init_subclass__()
        if on is not None:
            cls.checkpoint = cls.head_checkpoint(on.checkpoint)

    @classmethod
    def head_checkpoint(cls, base: Checkpoint[Any]) -> Checkpoint[Any]:
        """The checkpoint of this head on a model that has the checkpoint `base`."""
        known = replace(base, head=cls.head_task, renames=[*cls.head_renames, *base.renames])
        return with_labels(known, cls.head_task, cls.label_key, cls.label_count) if cls.label_key else known


class Reranker(Head[C]):
    """A cross-encoder: pairs of a query and a text (N, L) to logits (N, 1), the higher the more relevant.

    It is put before a classifier of texts, which has one label then.
    """

    head_task, label_count = "reranking", 1


class OnModel(Pretrained[C]):
    """The base of heads whose first part is the whole model, and which take its inputs."""

    output_names: ClassVar[Sequence[str]] = ("logits",)

    def input_specs(self) -> Mapping[str, TensorType]:
        return next(iter(self.children())).input_specs()
