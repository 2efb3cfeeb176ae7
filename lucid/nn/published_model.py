"""What layouts and commands know of a model of a published checkpoint, whoever read it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lucid.core.graph.types import Array, TensorType
from lucid.nn.model_parts import ModelPart
from lucid.nn.module import Module


class PublishedModel(Module):
    """A model of a published checkpoint: `lucid.models` reads it, or torch does."""

    further_outputs: Sequence[str] = ()
    """What its exported files have besides its own outputs; see `lucid.export.to_onnx`."""

    @property
    def task(self) -> str:
        """What the model is for, by the name that Hugging Face's hub has for it; "" for a class without one."""
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
        """What the library that read the checkpoint computes of a file's inputs, by name: outputs in the file's order.

        Only where `read_by` names one.
        """
        raise NotImplementedError(f"{type(self).__name__} was read by no other library")

    def file_parts(self) -> Mapping[str, ModelPart]:
        """The parts by the names of their files, where programs expect several; {} for a model of one file, and for
        decoders and encoder-decoders, whose parts are known.
        """
        return {}

    def full_input_specs(self) -> Mapping[str, TensorType]:
        """The inputs by name that other programs give it: those of `input_specs`, and what else its tokenizer makes."""
        return self.input_specs()
