"""A model with its checkpoint's tokenizer, compared with a file that takes texts, on texts that are hard to read."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from lucid.core.graph.types import DTypeLike
from lucid.core.words.progress import phase
from lucid.core.words.safe_text import listed
from lucid.export import Target
from lucid.export.half_precision import halved
from lucid.export.options import ExportOptions
from lucid.layouts.tokenizing.reference import INPUTS, TEXT, Reference, reference_of
from lucid.nn.model_parts import ModelPart
from lucid.testing.outputs import compare_outputs, in_float32
from lucid.testing.report import ParityReport, WeightReport
from lucid.testing.runs import ModelOrPath, sessions_for
from lucid.testing.tolerance import Comparison
from lucid.tracing.parts import trace_part


def check_reads_text(inputs: Mapping[str, object], task: str = "") -> None:
    """Raise ValueError for a model that a text alone does not feed.

    Args:
        inputs: those of the model, by name.
        task: what it is for, as far as that is known.
    """
    others = [name for name in inputs if name not in INPUTS]
    if others or "input_ids" not in inputs:
        why = "; a decoder continues a text token by token, with its tokenizer outside"
        raise ValueError(
            "a tokenizer in the file is for models that read one text at once; this one takes "
            f"{listed(others, 3) or 'nothing'}" + why * ("position_ids" in others)
        )
    if task in ("reranking", "question-answering"):
        raise ValueError(f"a tokenizer in the file reads one text, and the task {task} has two; leave it outside")


@phase("checking parity")
def text_parity(
    part: ModelPart,
    exported: ModelOrPath,
    checkpoint: str | os.PathLike[str],
    *,
    providers: Sequence[str] | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    target: Target | str = "any",
    dtype: DTypeLike | None = None,
    keep_io_types: bool = True,
    weights: WeightReport | None = None,
) -> ParityReport:
    """Compare the model on NumPy, with the tokenizer of its checkpoint, with a file that takes texts.

    Args:
        part: what was exported.
        exported: the file, or the model.
        checkpoint: the folder of the tokenizer.
        providers, rtol, atol, target, dtype, keep_io_types: as for `lucid.testing.assert_parity`.
        weights: how what the file stores compares, for the report. A file that is damaged is not run.

    Raises:
        ValueError: for weights and inputs in 8 bits; only `assert_parity` tells their rounding from a fault.
    """
    if weights is not None and weights.damaged:
        return ParityReport((), {}, weights=weights)
    reference, traced = reference_of(checkpoint), trace_part(part)
    half = halved(traced, ExportOptions(target, dtype, keep_io_types))
    graph = (traced if half is None else half.traced).graph
    if any(name.startswith("int8_linear") for name in graph.op_names()):
        raise ValueError(
            "a file that takes texts cannot be compared where inputs of products are rounded to 8 bits; compare the "
            "export without its tokenizer, and write this one unchecked (--no-check)"
        )
    compared, config = in_float32(exported, graph)
    sessions, not_run = sessions_for(compared, providers, config)
    names = [value.name for value in graph.inputs]
    comparisons: list[Comparison] = []
    for texts in _batches(reference):
        encoded = reference.encode(texts)
        arrays = [encoded[name] for name in names]
        sizes, expected = graph.sizes_in(arrays), graph.run(arrays)
        for provider, session in sessions.items():
            results = session.run({TEXT: np.array(texts, object)})
            comparisons += compare_outputs(graph, arrays, results, expected, provider, sizes, rtol, atol)
    return ParityReport(tuple(comparisons), {}, not_run, weights=weights)


def _batches(reference: Reference) -> list[list[str]]:
    """One text; several, which are padded; and one that is too long."""
    return [
        ["A cat sits on a rug."],
        ["Interest rates rose again.", "", "naïve café, 中文 and 한국어: hello😀there"],
        ["A text of more tokens than the model reads. " * (reference.length // 8 + 1)],
    ]


DIFFICULT = (
    "",
    " ",
    " \t\n ",
    "Hello, world!",
    "  two  spaces, and one behind ",
    "line\nbreaks\r\nand\n\n\nempty lines\n",
    "tab\tnew\nreturn\r\u00a0\u3000ideographic\u2028separated",
    "don't I'll WE'RE you've 'tis rock'n'roll",
    "“quotes” — and … dashes–like • this",
    "naïve café ÀÉÎÕÜ, cafe\u0301 n\u0303 A\u030a",
    "İstanbul ıI ß ẞ ﬁ ﬀ Å Ω K",
    "ÅÆØ åæø Łódź Đặng đ ŉ ǅ",
    "ΣΊΣΥΦΟΣ ὈΔΥΣΣΕΎΣ άέή",
    "ПРИВЕТ, мир! ёлка Йод їжак",
    "中文字符 and english, 汉字。㐀 𠀀",
    "日本語テキスト ひらがな ガギグ ﾊﾟ",
    "한국어 텍스트 각 ᄀ",
    "हिन्दी में लिखा, বাংলা, தமிழ், ไทย",
    "مرحبا بالعالم، שלום עולם, فارسی‌ها",
    "👨\u200d👩\u200d👧 family 👍🏽 🏳️\u200d🌈 🇫🇷 hello😀there",
    "zero\u200bwidth\u200djoiner soft\u00adhyphen \ufeffmark",
    "private \ue000use\U0010fffd \ufffd\ufffe \u0378 \x01\x7f\x85",
    "1234567 3.14159 1,000,000 ½ ² ③ Ⅳ ٣ 10⁻³ 0x1F",
    "$%^&*()_+~`<>|\\/{}[]#@=^^-- €£¥₿ ©®™ °",
    "def f(x):\n    return x ** 2  # comment\n\n",
    "https://example.org/a?b=c&d=%20#e user@example.org",
    "unaffable uncharacteristically qwzxv☃jk antidisestablishmentarianism",
    "a" * 99 + " " + "b" * 100 + " " + "c" * 101,
    "x" * 300,
    "\u2581under \u0120G ##pieces ## #",
    "𝒜𝓁𝓅𝒽𝒶 ｆｕｌｌｗｉｄｔｈ ℌ ℵ",
    "e\u0301\u0302\u0303 \u0301alone \u302ex\u0304",
)
"""Spaces, punctuation, accents, scripts, emoji, control characters, numbers, long words."""


# Where characters differ from their neighbours: without most of Chinese, Korean and what is not assigned.
_VARIED = ((0x1, 0x3500), (0x9F00, 0xAD00), (0xD700, 0xD800), (0xE000, 0xE010), (0xF8F0, 0x17000), (0x1B000, 0x20010))
_AT_ONCE = 256


def of_every_kind() -> Iterator[str]:
    """Texts with some 60,000 characters, each by itself, twice, and between a letter and a digit."""
    for start, end in _VARIED:
        for first in range(start, end, _AT_ONCE):
            block = map(chr, range(first, min(first + _AT_ONCE, end)))
            yield " ".join(f"a{character}1 {character}{character}" for character in block)
