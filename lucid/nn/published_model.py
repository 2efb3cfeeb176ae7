"""The base class of models of published checkpoints: what layouts and commands use, whichever library read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lucid.core.graph.types import Array, TensorType
from lucid.nn.model_parts import ModelPart
from lucid.nn.module import Module


class PublishedModel(Module):
    """A model of a published checkpoint: `lucid.models` reads it, or torch does."""

    further_outputs: Sequence[str] = ()
    """The names of further outputs of its exported files; see `lucid.export.to_onnx`."""

    @property
    def task(self) -> str:
        """The task by Hugging Face's name, such as "text-classification"; "" for a class without one."""
        raise NotImplementedError(f"{type(self).__name__} has no task: define the property")

    @property
    def class_name(self) -> str:
        """The name of the class that computes it."""
        return type(self).__name__

    @property
    def read_by(self) -> str:
        """The libraries that read the checkpoint and their releases; "" for Lucid itself."""
        return ""

    def by_original(self, arrays: Mapping[str, Array]) -> Sequence[Array]:
        """The outputs, in the file's order, that the library in `read_by` computes from a file's inputs by name."""
        raise NotImplementedError(f"{type(self).__name__} was read by no other library")

    def file_parts(self) -> Mapping[str, ModelPart]:
        """The parts by the names of their files, where programs expect several files; {} for a model of one file.

        Decoders and encoder-decoders also return {}: their parts are known (`nn.model_parts`).
        """
        return {}

    def full_input_specs(self) -> Mapping[str, TensorType]:
        """The inputs by name that other programs give: those of `input_specs`, and others that its tokenizer gives."""
        return self.input_specs()
