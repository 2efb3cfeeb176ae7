"""What `lucid generate` and `lucid chat` share: the model, how tokens are chosen, an answer as it comes."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from lucid.cli import show
from lucid.cli.bits_options import FewBits
from lucid.cli.errors import usage
from lucid.cli.few_bits import arguments as few_bits_arguments
from lucid.cli.options import Writing
from lucid.core.words.safe_text import harmless
from lucid.generation.chat import Answer, LanguageModel, load_language_model
from lucid.generation.options import Options


def options(writing: Writing) -> dict[str, Any]:
    """The arguments of `LanguageModel.answer`. An option for sampling, or a seed, turns sampling on.

    Without a seed the draws differ from run to run.

    Raises:
        CommandError: for a value out of range.
    """
    w = writing
    sampling = {"temperature": w.temperature, "top_k": w.top_k, "top_p": w.top_p, "min_p": w.min_p}
    found: dict[str, Any] = {name: value for name, value in sampling.items() if value is not None}
    if found or w.seed is not None:
        found |= {"do_sample": True, "seed": secrets.randbits(32) if w.seed is None else w.seed}
    if w.repetition_penalty is not None:
        found["repetition_penalty"] = w.repetition_penalty
    try:
        Options(max_new_tokens=w.max_new_tokens or 1, stop=w.stop, **found)
    except ValueError as error:
        raise usage(str(error).removeprefix("generate: ")) from error
    return {"max_new_tokens": w.max_new_tokens, "stop": w.stop, **found}


def load(
    source: str, few_bits: FewBits, ignore: list[str], eager: bool, providers: list[str], threads: int | None
) -> LanguageModel:
    """The model, ready to run."""
    options = few_bits_arguments(few_bits, Path(source), decoder=True)
    if eager and (providers or threads):
        raise usage("--eager runs NumPy: leave out --provider and --threads")
    return load_language_model(
        source, eager=eager, providers=providers or None, threads=threads, ignore=ignore, **(options or {})
    )


def pieces(answer: Answer, model: LanguageModel) -> Iterator[str]:
    """The pieces of an answer, each computed in another thread, so that Ctrl-C is heard while onnxruntime computes."""
    found = iter(answer)
    with ThreadPoolExecutor(1) as worker:
        try:
            while (piece := worker.submit(next, found, None).result()) is not None:
                yield piece
        except KeyboardInterrupt:
            model.cancel()
            raise


def write(answer: Answer, model: LanguageModel) -> None:
    """Write an answer to the standard output as it comes, and a line end after it, also if it is interrupted."""
    try:
        for piece in pieces(answer, model):
            sys.stdout.write(harmless(piece))
            sys.stdout.flush()
    finally:
        sys.stdout.write("\n")
        sys.stdout.flush()


def tell_speed(answer: Answer) -> None:
    """One line on stderr."""
    first, speed = answer.seconds_to_first, answer.tokens_per_second
    parts = [f"{len(answer.ids)} tokens"]
    parts += [] if first is None else [f"the first after {first:.2f} s"]
    parts += [] if speed is None else [f"then {speed:.1f} tokens/s"]
    show.Output(error=True).line(", ".join(parts), style="dim")
