"""The options that several commands share."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, NamedTuple, TypeVar

import typer

from lucid.cli import completion
from lucid.cli.reading_options import AS_IT_SAYS as AS_IT_SAYS
from lucid.cli.reading_options import MODEL as _MODEL
from lucid.cli.reading_options import Architecture as Architecture
from lucid.cli.reading_options import IgnoreOption as IgnoreOption
from lucid.cli.reading_options import Reading as Reading
from lucid.cli.reading_options import Task as Task
from lucid.cli.reading_options import Verbose as Verbose
from lucid.core.targets.runtimes import RUNTIMES

T = TypeVar("T")
TargetName = StrEnum("TargetName", list(RUNTIMES))  # type: ignore[misc]  # mypy expects literal names


class AttentionName(StrEnum):
    """The form of attention nodes."""

    auto = "auto"
    standard = "standard"
    contrib = "contrib"
    expanded = "expanded"


class CacheName(StrEnum):
    """The kind of cache of a decoder."""

    growing = "growing"
    fixed = "fixed"


class HalfName(StrEnum):
    """The element types of half precision."""

    float16 = "float16"
    bfloat16 = "bfloat16"


class LayoutName(StrEnum):
    """What `lucid.layouts` writes."""

    onnxruntime = "onnxruntime"
    transformers_js = "transformers.js"
    sentence_transformers = "sentence-transformers"
    optimum = "optimum"
    genai = "genai"
    triton = "triton"


def file_or_stdout(path: Path | None) -> Path | None:
    """The file that -o names; `-` is the standard output."""
    return Path("/dev/stdout") if path == Path("-") else path


def folder(path: T) -> T:
    """The folder that -o names.

    Raises:
        BadParameter: for `-`, as a folder cannot be written to the standard output.
    """
    if str(path) == "-":
        raise typer.BadParameter("'-' is the standard output, but this writes a folder; give the name of a folder")
    return path


class Writing(NamedTuple):
    """How an answer is written."""

    max_new_tokens: int | None
    stop: list[str]
    repetition_penalty: float | None
    temperature: float | None
    top_k: int | None
    top_p: float | None
    min_p: float | None
    seed: int | None


class PartChoice(StrEnum):
    """The parts of an encoder-decoder."""

    encoder = "encoder"
    decoder = "decoder"
    decoder_merged = "decoder_merged"


_EXPORT, _PARITY = "The export", "The comparison"
_SAMPLING = "Sampling, which any of these turns on"

Source = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE",
        help="A model: lucid.models.bert:Bert, package.module:factory, "
        "nn.MultiHeadAttention, or a checkpoint: a folder or a GGUF file.",
        show_default=False,
        autocompletion=completion.sources,
    ),
]
ModelFile = Annotated[Path, typer.Argument(metavar="MODEL.ONNX", help="An ONNX file.", show_default=False)]
ModelPath = Annotated[
    Path,
    typer.Argument(
        metavar="MODEL.ONNX", help="An ONNX file, or the folder that `export --for` wrote.", show_default=False
    ),
]
Weights = Annotated[
    Path | None,
    typer.Option(
        "--weights",
        "-w",
        metavar="PATH",
        rich_help_panel=_MODEL,
        help="A checkpoint: a folder or a .safetensors file.",
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        rich_help_panel=_MODEL,
        help="An argument of the constructor or factory. Repeatable.",
    ),
]
Inputs = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        "-i",
        metavar="NAME:DTYPE:SIZES",
        rich_help_panel=_MODEL,
        help="An input, such as query:float32:N,L,512; for models without known inputs. Repeatable.",
    ),
]
Call = Annotated[
    list[str] | None,
    typer.Option(
        "--call",
        metavar="KEY=VALUE",
        rich_help_panel=_MODEL,
        help="A plain argument of the call, such as is_causal=true. Repeatable.",
    ),
]
Prompt = Annotated[
    str | None,
    typer.Option(
        "--prompt",
        metavar="NAME",
        rich_help_panel=_MODEL,
        help="Of the checkpoint's prompts, such as query; empty for none; by default the one that it says.",
    ),
]
Seed = Annotated[int, typer.Option("--seed", rich_help_panel=_MODEL, help="The seed of random weights and inputs.")]
_WHERE = "Where the model will run: " + "; ".join(f"{r.name}: {r.about}" for r in RUNTIMES.values()) + "."
Target = Annotated[TargetName, typer.Option("--target", "-t", rich_help_panel=_EXPORT, help=_WHERE)]
ExportTarget = Annotated[
    TargetName | None,
    typer.Option(
        "--target", "-t", rich_help_panel=_EXPORT, show_default="any; with --for, what suits it best", help=_WHERE
    ),
]
Lengths = Annotated[
    str | None,
    typer.Option(
        "--lengths",
        metavar="FEWEST:MOST",
        rich_help_panel=_EXPORT,
        help="How many queries of an attention are expected. What only other lengths need is left out; they are "
        "computed all the same, but not the fastest way.",
    ),
]
VerifiedTarget = Annotated[
    TargetName | None,
    typer.Option("--target", "-t", rich_help_panel=_EXPORT, show_default="that of the file; else any", help=_WHERE),
]
Layout = Annotated[
    LayoutName | None,
    typer.Option(
        "--for",
        rich_help_panel=_EXPORT,
        help="Write the folder from which a runtime loads the model: with config, tokenizer and a model card. "
        "genai is onnxruntime-genai, triton Triton Inference Server. SOURCE is a checkpoint.",
    ),
]
WithTokenizer = Annotated[
    bool,
    typer.Option(
        "--with-tokenizer",
        rich_help_panel=_EXPORT,
        help="The file takes texts: the checkpoint's tokenizer is in it, if that is exact. Runs with "
        "onnxruntime-extensions.",
    ),
]
WithPreprocessor = Annotated[
    bool,
    typer.Option(
        "--with-preprocessor",
        rich_help_panel=_EXPORT,
        help="The file takes decoded images (N, height, width, 3) uint8, and resizes and scales them as "
        "preprocessor_config.json says, exactly as Pillow does.",
    ),
]
Force = Annotated[
    bool,
    typer.Option("--force", rich_help_panel=_EXPORT, help="With --for: replace a folder that holds other files, too."),
]
Opset = Annotated[
    int | None,
    typer.Option("--opset", rich_help_panel=_EXPORT, help="17 to 26; by default that of the target."),
]
Attention = Annotated[
    AttentionName,
    typer.Option("--attention", rich_help_panel=_EXPORT, help="Insist on a form of attention nodes."),
]
Cache = Annotated[
    CacheName | None,
    typer.Option(
        "--cache", rich_help_panel=_EXPORT, help="A step of a decoder over a cache that grows, or of a fixed capacity."
    ),
]
Part = Annotated[
    PartChoice | None,
    typer.Option(
        "--part", rich_help_panel=_EXPORT, help="A part of an encoder-decoder, with the names that optimum expects."
    ),
]
Capacity = Annotated[
    int | None, typer.Option("--capacity", min=1, rich_help_panel=_EXPORT, help="Positions of a fixed cache.")
]
Half = Annotated[
    HalfName | None,
    typer.Option(
        "--dtype", rich_help_panel=_EXPORT, help="Store weights in half precision: the file is half as large."
    ),
]
KeepTypes = Annotated[
    bool,
    typer.Option(
        "--keep-io-types/--half-io-types",
        rich_help_panel=_EXPORT,
        help="With --dtype: float32 inputs and outputs stay float32, or are of that type too.",
    ),
]
Providers = Annotated[
    list[str] | None,
    typer.Option("--provider", "-p", metavar="NAME", help="cpu, cuda, or onnxruntime's full name. Repeatable."),
]
Provider = Annotated[
    list[str] | None,
    typer.Option(
        "--provider", "-p", metavar="NAME", help="cpu, cuda, or onnxruntime's full name; in order of preference."
    ),
]
Sizes = Annotated[
    list[str] | None,
    typer.Option("--size", "-s", metavar="NAME=N", help="The value of a symbolic size, such as L=128. Repeatable."),
]
Threads = Annotated[int | None, typer.Option("--threads", min=1, help="Threads for one op; by default one per core.")]
Rtol = Annotated[
    float | None,
    typer.Option("--rtol", min=0, rich_help_panel=_PARITY, help="Relative tolerance; by default 1e-5 for float32."),
]
Atol = Annotated[
    float | None,
    typer.Option(
        "--atol",
        min=0,
        rich_help_panel=_PARITY,
        help="Absolute tolerance; by default the relative one times the output's typical magnitude.",
    ),
]
LanguageSource = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE",
        help="A decoder with its tokenizer: a checkpoint folder, a GGUF file, or an exported folder or ONNX file.",
        show_default=False,
    ),
]
Eager = Annotated[bool, typer.Option("--eager", help="Run a checkpoint with NumPy instead of exporting it.")]
NewTokens = Annotated[
    int | None,
    typer.Option(
        "--max-new-tokens", "-n", min=1, help="The most tokens of an answer; by default 512, if there is room."
    ),
]
Stop = Annotated[
    list[str] | None,
    typer.Option("--stop", metavar="TEXT", help="End the answer before this text. Repeatable."),
]
Temperature = Annotated[
    float | None,
    typer.Option("--temperature", rich_help_panel=_SAMPLING, help="Below 1 likely tokens become likelier."),
]
TopK = Annotated[
    int | None, typer.Option("--top-k", min=1, rich_help_panel=_SAMPLING, help="Draw from the k likeliest tokens.")
]
TopP = Annotated[
    float | None,
    typer.Option(
        "--top-p", rich_help_panel=_SAMPLING, help="Draw from the likeliest tokens whose probabilities sum to p."
    ),
]
MinP = Annotated[
    float | None,
    typer.Option(
        "--min-p", rich_help_panel=_SAMPLING, help="Draw from tokens at least p times as likely as the likeliest."
    ),
]
DrawSeed = Annotated[
    int | None, typer.Option("--seed", min=0, rich_help_panel=_SAMPLING, help="The same seed draws the same tokens.")
]
RepetitionPenalty = Annotated[
    float | None,
    typer.Option("--repetition-penalty", help="More than 1 makes tokens that are already there less likely."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
