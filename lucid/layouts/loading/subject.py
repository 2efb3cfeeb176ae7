"""What lines of code are about."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from lucid.core.graph.types import TensorType
from lucid.core.sizes.dims import Dim
from lucid.layouts.companions import CONFIG, TOKENIZER, files_home, is_gguf
from lucid.layouts.layout import Exported
from lucid.models.checkpoints.config import read_json


class Subject(NamedTuple):
    """A folder, by its name, what its model is for, what it was made of, and its ONNX files."""

    folder: str
    task: str
    checkpoint: Path
    files: tuple[Exported, ...]

    @property
    def inputs(self) -> Mapping[str, TensorType]:
        """Those of the first file that hold numbers."""
        return self.files[0].tensors

    @property
    def takes_texts(self) -> bool:
        """Whether the tokenizer is in the first file."""
        return len(self.inputs) < len(self.files[0].inputs)

    @property
    def reads_text(self) -> bool:
        """Whether all that it reads is made by a tokenizer."""
        return set(self.inputs) <= {"input_ids", "attention_mask", "token_type_ids"}

    @property
    def has_tokenizer(self) -> bool:
        """Whether the folder has a tokenizer.json."""
        home = files_home(self.checkpoint)
        return is_gguf(home) or (home / TOKENIZER).is_file()

    def token(self, name: str) -> int:
        """A token by its name in config.json, such as pad_token_id; 0 if it is not there."""
        path = files_home(self.checkpoint) / CONFIG
        token = read_json(path).get(name) if path.is_file() else None
        return token if isinstance(token, int) else 0

    def fill(self, lines: str) -> str:
        """Lines with FOLDER, FILE and SECOND, which stand for the folder and the paths of its files."""
        paths = [f"{self.folder}/{file.file}" for file in self.files]
        for word, value in zip(("FILE", "SECOND"), paths, strict=False):
            lines = lines.replace(word, value)
        return lines.replace("FOLDER", self.folder).strip() + "\n"


def zeros(kind: TensorType) -> str:
    """An array of a type as Python writes it, with one for each size that is known at run time."""
    sizes = [1 if isinstance(size, Dim) else size for size in kind.shape]
    return f"np.zeros({sizes}, np.{kind.dtype.name})"
