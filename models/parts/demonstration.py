"""Shared by the models' programs: a checkpoint from the command line, and each call run eagerly and exported."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lucid
from lucid import Tensor, nn, ops

GOLDENS = Path(__file__).resolve().parents[2] / "tests" / "goldens"  # in a clone of the repository


def checkpoint_folder(tiny: str | Path) -> Path:
    """The checkpoint folder from the command line, by default `tiny`: one of the tests, or any path."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else GOLDENS / tiny
    if not folder.exists():
        sys.exit(f"there is no checkpoint in {folder}; give the folder of one")
    return folder


def token_ids(*default: int) -> Tensor:
    """Token ids (1, L) from the command line, after the folder, or the default ones."""
    return lucid.tensor([[int(word) for word in sys.argv[2:]] or list(default)])


def ones_like(ids: Tensor) -> Tensor:
    """The attention mask for ids without padding."""
    return lucid.ones(*ids.shape, dtype=lucid.int64)


class SideBySide:
    """A model and its export. Each call runs both and returns onnxruntime's result; the differences are kept."""

    def __init__(self, model: nn.Module) -> None:
        exported = lucid.export.to_onnx(model)
        self.nodes = len(exported.graph.node)
        self.differences: list[float] = []
        self._model, self._session = model, lucid.runtime.Session(exported)

    def __call__(self, *inputs: Tensor, **named: Tensor) -> Any:
        exported, eager = self._session(*inputs, *named.values()), self._model(*inputs, **named)
        pairs = zip(_as_tuple(exported), _as_tuple(eager), strict=True)
        self.differences.append(max(abs(a - b).max().item() for a, b in pairs))
        return exported

    def verdict(self, what: str) -> str:
        """The largest difference between the exported model and the eager one so far, as text."""
        return f"largest difference between exported and eager {what} {max(self.differences):.1e}"


def _as_tuple(results: Any) -> tuple[Tensor, ...]:
    return results if isinstance(results, tuple) else (results,)


def written(logits: Callable[[Tensor], Tensor], ids: Tensor, end: int | None = None, steps: int = 8) -> list[int]:
    """The ids (1, L) and up to `steps` more, the likeliest; stops after `end`. `logits` gives (1, L, vocab_size)."""
    for _ in range(steps):
        ids = ops.concat([ids, logits(ids)[:, -1:].argmax(-1)], 1)
        if ids[0, -1].item() == end:
            break
    return [int(number) for number in ids[0].tolist()]


def continue_text(model: type[Any], tiny: str, *default: int) -> None:
    """The program of a decoder: continue token ids greedily with the exported model, and compare it with eager.

    The ids come from the command line, ``python -m lucid.models.gpt2 FOLDER 464 3290``, or are the default ones.
    """
    both = SideBySide(model.from_pretrained(checkpoint_folder(tiny)))
    ids = written(lambda ids: both(ids, ones_like(ids)), token_ids(*default))
    print(f"token ids {ids}, {both.verdict('logits')}")


def answer_text(model: type[Any], tiny: str, start: int, end: int, *default: int) -> None:
    """The program of a model of text to text: answer token ids greedily with the exported model.

    The ids come from the command line, ``python -m lucid.models.t5 FOLDER 363 19 1``, or are the default ones; an
    answer begins with the token `start` and stops after `end`.
    """
    both, source = SideBySide(model.from_pretrained(checkpoint_folder(tiny))), token_ids(*default)
    _, *answer = written(lambda ids: both(source, ids, ones_like(source)), lucid.tensor([[start]]), end)
    print(f"{source.tolist()[0]} is answered by {answer}; {both.verdict('logits')}")


def encode_text(model: type[Any], tiny: str, *default: int) -> None:
    """The program of an encoder: the states of token ids with the exported model, compared with eager.

    The ids come from the command line, ``python -m lucid.models.albert FOLDER 2 48 3``, or are the default ones.
    """
    ids, both = token_ids(*default), SideBySide(model.from_pretrained(checkpoint_folder(tiny)))
    states = both(ids, ones_like(ids))
    print(f"hidden states {list(states.shape)}, {both.nodes} ONNX nodes, {both.verdict('states')}")


def read_images(model: type[Any], tiny: str, *sides: int) -> None:
    """The program of a model of images, ``python -m lucid.models.vision.vit FOLDER``: exported, compared with eager.

    It reads two random images, whose height and width are `sides` if the model takes any, and prints the shapes of its
    outputs.
    """
    reader = model.from_pretrained(checkpoint_folder(tiny))
    both, specs = SideBySide(reader), reader.input_specs()
    _, channels, *own = specs["pixel_values"].shape
    lucid.manual_seed(0)
    pixels = lucid.randn(2, channels, *(sides or own))
    masks = [lucid.ones(2, *sides, dtype=lucid.int64) for name in specs if name != "pixel_values"]
    for name, output in zip(reader.output_names, _as_tuple(both(pixels, *masks)), strict=True):
        print(f"images {list(pixels.shape)} to {name} {list(output.shape)}")
    print(both.verdict("results"))
