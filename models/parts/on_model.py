"""Heads: what a task adds to a model. The checkpoint of a head is that of its model, plus what the head declares.

::

    class AlbertForTokenClassification(TokenClassifier[AlbertConfig], Albert, on=Albert): ...
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, TypeVar

from lucid import TensorType
from lucid.models.checkpoints.labels import with_labels
from lucid.models.checkpoints.pretrained import Checkpoint, Config, Pretrained

C = TypeVar("C")


class Head(Pretrained[C]):
    """The base of classes with a head; one with ``on=Model`` reads the checkpoints of `Model` that have its head."""

    head_task: ClassVar[str]
    """The task, by the name that Hugging Face's hub has for it."""
    head_keys: ClassVar[Sequence[str]] = ()
    """`Checkpoint.head_keys`; by default the `label_key`."""
    label_key: ClassVar[str] = ""
    """A regular expression for the key of the last weight, if that has a row for each label; see `with_labels`."""
    label_count: ClassVar[int | None] = None
    """How many labels there must be, if that is known."""
    head_renames: ClassVar[Sequence[tuple[str, str]]] = ()
    """The renames of keys of the head, which come before those of the model."""
    head_names: ClassVar[Mapping[str, tuple[str, Mapping[str, str]]]] = {}
    """`Checkpoint.head_names`; these keys are renamed as well."""
    other_heads: ClassVar[str] = ""
    """A regular expression for layers that a checkpoint may have and the head does not use, such as those of others."""

    def __init_subclass__(cls, on: type[Pretrained[Any]] | None = None) -> None:
        super().__init_subclass__()
        if on is not None:
            cls.checkpoint = cls.head_checkpoint(on.checkpoint)

    @classmethod
    def read_config(cls, options: Config, base: Checkpoint[Any]) -> Any:
        """The config of a model with this head, from its options; `base` is the checkpoint of the model."""
        return base.read(options)

    @classmethod
    def head_checkpoint(cls, base: Checkpoint[Any]) -> Checkpoint[Any]:
        """The checkpoint of this head on a model that has the checkpoint `base`."""
        layers = {(stored, name) for _, names in cls.head_names.values() for name, stored in names.items()}
        own = [(rf"^{re.escape(stored)}\.(weight|bias)$", rf"{name}.\1") for stored, name in sorted(layers)]
        known = replace(
            base,
            read=lambda options: cls.read_config(options, base),
            head=cls.head_task,
            head_names=cls.head_names,
            renames=[*cls.head_renames, *own, *base.renames],
        )
        if cls.other_heads:
            others = rf"^(?:{cls.other_heads})\."
            tied = {copy: name for copy, name in base.tied_keys.items() if not re.match(others, copy)}
            known = replace(known, ignored_keys=[*base.ignored_keys, others], tied_keys=tied)
        if cls.label_key:
            known = with_labels(known, cls.head_task, cls.label_key, cls.label_count)
        return replace(known, head_keys=cls.head_keys or known.head_keys)


class Reranker(Head[C]):
    """A cross-encoder: pairs of a query and a text (N, L) to logits (N, 1), the higher the more relevant.

    It comes before a classifier of texts, which then has one label.
    """

    head_task, label_count = "reranking", 1


class OnModel(Head[C]):
    """The base of heads whose first part is the whole model, and which take its inputs.

    Keys begin with the name of that part. The renames of the model remove it, so the head does not use them.
    """

    output_names: ClassVar[Sequence[str]] = ("logits",)

    @classmethod
    def head_checkpoint(cls, base: Checkpoint[Any]) -> Checkpoint[Any]:
        return super().head_checkpoint(replace(base, renames=()))

    def input_specs(self) -> Mapping[str, TensorType]:
        return next(iter(self.children())).input_specs()
