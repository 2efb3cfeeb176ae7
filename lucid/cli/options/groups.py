"""Groups of options that several commands share. Each is declared once; a command inherits its groups.

Of a class's bases the last comes first in the help, as in the order of a dataclass's fields.
typer reads the annotations as objects, so this module has no `from __future__ import annotations`.
"""

import sys
from dataclasses import MISSING, dataclass, fields
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from lucid.cli.on_demand import command_module
from lucid.core.targets.runtimes import RUNTIMES
from lucid.core.words.byte_sizes import bytes_of

TargetName = StrEnum("TargetName", list(RUNTIMES))  # type: ignore[misc]  # mypy expects literal names

REPEATABLE: dict[str, Any] = {"default_factory": list, "show_default": False}
argument = partial(typer.Argument, show_default=False)
of_model = partial(typer.Option, rich_help_panel="The model")
of_export = partial(typer.Option, rich_help_panel="The export")
_parity = partial(typer.Option, rich_help_panel="The comparison")
of_quantization = partial(typer.Option, rich_help_panel="Quantization")

target_option = partial(
    of_export,
    "--target",
    "-t",
    help="Where the model will run: " + "; ".join(f"{r.name}: {r.about}" for r in RUNTIMES.values()) + ".",
)


def names_of(group: type) -> set[str]:
    """The names of a group's options."""
    return {field.name for field in fields(group)}


def values_of(options: object, group: type) -> dict[str, Any]:
    """The values of a group's options by name."""
    return {field.name: vars(options)[field.name] for field in fields(group)}


def file_or_stdout(path: Path | None) -> Path | None:
    """The file that -o names; `-` is the standard output.

    Raises:
        BadParameter: for `-` on Windows, where the standard output has no path.
    """
    if path != Path("-"):
        return path
    if sys.platform == "win32":
        raise typer.BadParameter("Windows has no path for the standard output; give the name of a file")
    return Path("/dev/stdout")


def folder_not_stdout(path: Any) -> Any:
    """The folder that -o names.

    Raises:
        BadParameter: for `-`, as a folder cannot be written to the standard output.
    """
    if str(path) == "-":
        raise typer.BadParameter("'-' is the standard output, but this writes a folder; give the name of a folder")
    return path


def folder_of_parquet(path: str) -> str:
    """The folder of Parquet files that -o names.

    Raises:
        BadParameter: for `-`, and for the name of a file of another format.
    """
    name, _, ending = folder_not_stdout(path).rstrip("/").rpartition(".")
    if name and ending.lower() in ("jsonl", "json", "csv", "tsv"):
        raise typer.BadParameter(f"{path!r} names a file, but this writes a folder of Parquet files; give {name!r}")
    return path


def whole_bytes(text: str) -> int:
    """A number of bytes above 0, perhaps with a unit.

    Raises:
        BadParameter: for anything else.
    """
    try:
        count = bytes_of(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    if not 1 <= count < 1 << 63:
        raise typer.BadParameter(f"{text!r}, expected 1 byte or more")
    return int(count)


def _modules_of_nn(incomplete: str) -> list[str]:
    """Completions of SOURCE: after "nn." the modules of `lucid.nn`, which load NumPy; else the shell offers files."""
    if not incomplete.startswith("nn."):
        return []
    return [name for name in command_module("python_source").modules_of_nn() if name.startswith(incomplete)]


@dataclass(frozen=True, kw_only=True)
class Command:
    """The option of every command."""

    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False

    def changed(self) -> set[str]:
        """The names of the options that have another value than by default."""
        defaults = {field.name: [] if field.default is MISSING else field.default for field in fields(self)}
        return {name for name, default in defaults.items() if vars(self)[name] != default}


@dataclass(frozen=True, kw_only=True)
class JsonCommand(Command):
    """A command whose results can be printed as JSON."""

    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False


@dataclass(frozen=True, kw_only=True)
class ConfigOptions:
    """How to read a checkpoint."""

    revision: Annotated[
        str | None, of_model(metavar="REVISION", help="A branch, tag or commit of a checkpoint on Hugging Face's hub.")
    ] = None
    adapter: Annotated[
        list[str],
        of_model(
            metavar="FOLDER[:WEIGHT]",
            help="A LoRA adapter, as PEFT saves it, to merge into a checkpoint, such as sql or sql:0.5. Repeatable. "
            "generate, chat, serve and map take NAME.onnx_adapter for a model that was exported with --adapter-inputs.",
            **REPEATABLE,
        ),
    ]
    ignore_option: Annotated[
        list[str],
        of_model(
            help="An option of a checkpoint's config.json to read as if the file did not have it, such as one that is "
            "refused and that you know to change nothing. Repeatable.",
            **REPEATABLE,
        ),
    ]
    verbose: Annotated[
        bool,
        typer.Option(
            "--verbose",
            help="Show more: merged adapters, options of config.json that have no effect, and the operators of an "
            "exported file with the reasons for them.",
        ),
    ] = False


@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """Where a model is, and how to read a checkpoint."""

    source: Annotated[
        str,
        argument(
            metavar="SOURCE",
            help="A model: lucid.models.bert:Bert, package.module:factory, "
            "nn.MultiHeadAttention, or a checkpoint: a folder, a GGUF file, or OWNER/NAME of Hugging Face's hub.",
            autocompletion=_modules_of_nn,
        ),
    ]
    weights: Annotated[
        Path | None,
        of_model(
            "--weights", "-w", metavar="PATH", help="A checkpoint: a folder, or a file of safetensors or of torch."
        ),
    ] = None
    task: Annotated[
        str | None,
        of_model(
            help="The task to read a checkpoint for, such as feature-extraction or text-classification; by default "
            "the one that its files name."
        ),
    ] = None
    architecture: Annotated[
        str | None,
        of_model(
            help="The class of transformers that a checkpoint is, such as LlamaModel, where its config names another "
            "class or code of its own."
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class ModelOptions(ConfigOptions, SourceOptions):
    """A model: where it is, and how to read or make it."""

    adapter_inputs: Annotated[
        bool,
        of_model(
            "--adapter-inputs",
            help="Do not merge the adapters: the file takes one at run time, and each is written as NAME.onnx_adapter.",
        ),
    ] = False

    arguments: Annotated[
        list[str],
        of_model(
            "--set", metavar="KEY=VALUE", help="An argument of the constructor or factory. Repeatable.", **REPEATABLE
        ),
    ]
    seed: Annotated[int, of_model(min=0, help="The seed of random weights and inputs.")] = 0
    via: Annotated[
        Literal["torch"] | None,
        of_model(
            help="Read the checkpoint by transformers and torch, which must be installed: for model types that Lucid "
            "does not read itself."
        ),
    ] = None
    trust_remote_code: Annotated[
        bool, of_model("--trust-remote-code", help="With --via torch: run code that the checkpoint brings along.")
    ] = False


BITS = (
    "Round weights to 4 or 8 bits: smaller and faster. By layer: lm_head=8,*=4, the first pattern that matches; float "
    "leaves weights as they are."
)


@dataclass(frozen=True, kw_only=True)
class WeightOptions:
    """How weights are quantized."""

    bits: Annotated[
        str | None,
        of_quantization(
            metavar="4|8",
            help=BITS,
        ),
    ] = None
    block: Annotated[
        int | None,
        of_quantization(metavar="N", help="How many weights share a scale: 16, 32, ... 2048.", show_default="32"),
    ] = None
    symmetric: Annotated[
        bool, of_quantization("--symmetric", help="Store no zero points: smaller, and less accurate.")
    ] = False
    method: Annotated[
        Literal["fit", "rtn", "hqq", "gptq"] | None,
        of_quantization(
            help="rtn rounds to the nearest code, fit and hqq fit scales, gptq learns from --text.",
            show_default="fit for 4 bits, rtn for 8",
        ),
    ] = None
    search: Annotated[
        bool, of_quantization("--search", help="With rtn: also try smaller ranges; slower, and more accurate.")
    ] = False
    skip: Annotated[
        list[str], of_quantization(metavar="PATTERN", help="Layers to leave as they are. Repeatable.", **REPEATABLE)
    ]
    text: Annotated[
        Path | None,
        of_quantization(
            metavar="FILE.TXT",
            help="Texts to learn from and to measure with. A decoder reads the file as a whole, other models read "
            "each line as a text.",
        ),
    ] = None

    @property
    def learns(self) -> bool:
        """Whether texts tell how weights or inputs are rounded."""
        return self.method == "gptq"

    @property
    def reads_texts(self) -> bool:
        """Whether anything reads --text: to learn from, or to measure with."""
        return self.learns


@dataclass(frozen=True, kw_only=True)
class QuantizationOptions(WeightOptions):
    """How weights, and the inputs of products, are quantized."""

    activations: Annotated[
        Literal["dynamic", "dynamic_rows", "static"] | None,
        of_quantization(
            help="With --bits 8, also round the inputs of products to 8 bits: dynamic at run time, "
            "dynamic_rows each row by itself, static with ranges learnt from --text.",
            show_default=False,
        ),
    ] = None
    ranges: Annotated[
        Literal["minmax", "percentile", "entropy"] | None,
        of_quantization(help="How the ranges of static activations are found.", show_default="minmax"),
    ] = None

    @property
    def learns(self) -> bool:
        """Whether texts tell how weights or inputs are rounded."""
        return super().learns or self.activations == "static"


@dataclass(frozen=True, kw_only=True)
class QuantizedModelOptions(QuantizationOptions, ModelOptions):
    """A model whose weights may be quantized."""


@dataclass(frozen=True, kw_only=True)
class DeployedOptions(WeightOptions, ConfigOptions):
    """A model that is run as an exported folder: where it is, and how a checkpoint is exported."""

    folder: Annotated[
        Path,
        argument(
            metavar="SOURCE",
            help="A folder that lucid export --for wrote; or a checkpoint (a folder, a GGUF file, or OWNER/NAME of "
            "Hugging Face's hub), which is exported to a cache folder at its first use.",
        ),
    ]


@dataclass(frozen=True, kw_only=True)
class InputOptions(QuantizedModelOptions):
    """A model and its inputs."""

    inputs: Annotated[
        list[str],
        of_model(
            "--input",
            "-i",
            metavar="NAME:DTYPE:SIZES",
            help="An input, such as query:float32:N,L,512; for models without known inputs. Repeatable.",
            **REPEATABLE,
        ),
    ]
    call: Annotated[
        list[str],
        of_model(
            metavar="KEY=VALUE", help="A plain argument of the call, such as is_causal=true. Repeatable.", **REPEATABLE
        ),
    ]


@dataclass(frozen=True, kw_only=True)
class TargetOptions:
    """Where an exported model is to run."""

    target: Annotated[TargetName | None, target_option(show_default="the one that the file names, else any")] = None
    attention: Annotated[
        Literal["auto", "standard", "contrib", "expanded"], of_export(help="Insist on a form of attention nodes.")
    ] = "auto"


@dataclass(frozen=True, kw_only=True)
class PartOptions:
    """The part of a model that is exported, and its cache."""

    part: Annotated[
        Literal["encoder", "decoder", "decoder_merged"] | None,
        of_export(help="A part of an encoder-decoder, with the names that optimum expects."),
    ] = None
    cache: Annotated[
        Literal["growing", "fixed"] | None,
        of_export(help="Export a step of a decoder over a cache that grows, or of a fixed capacity."),
    ] = None
    capacity: Annotated[int | None, of_export(min=1, help="Positions of a fixed cache.")] = None
    outputs: Annotated[
        list[str],
        of_export(
            "--outputs",
            help="Further outputs: hidden_states, hidden_states.7, attentions, or the path of a module, such as "
            "encoder.layer.7. Repeatable.",
            **REPEATABLE,
        ),
    ]


@dataclass(frozen=True, kw_only=True)
class FileOptions:
    """How a file is exported: the arguments of `lucid.export.to_onnx` of these names."""

    dtype: Annotated[
        Literal["float16", "bfloat16"] | None,
        of_export(help="Store weights in half precision: the file is half as large."),
    ] = None
    keep_io_types: Annotated[
        bool,
        of_export(
            "--keep-io-types/--half-io-types",
            help="With --dtype: keep float32 inputs and outputs as they are, or give them that type.",
        ),
    ] = True


@dataclass(frozen=True, kw_only=True)
class ToleranceOptions:
    """How far results may differ."""

    rtol: Annotated[float | None, _parity(min=0, help="Relative tolerance; by default 1e-5 for float32.")] = None
    atol: Annotated[
        float | None,
        _parity(min=0, help="Absolute tolerance; by default the relative one times the output's typical magnitude."),
    ] = None


@dataclass(frozen=True, kw_only=True)
class ExportedModelOptions(ToleranceOptions, FileOptions, PartOptions, TargetOptions, InputOptions):
    """A model that is exported and compared."""


@dataclass(frozen=True, kw_only=True)
class ProviderOptions:
    """The providers of onnxruntime that run a model."""

    providers: Annotated[
        list[str],
        typer.Option(
            "--provider", "-p", help="cpu, cuda, or onnxruntime's full name; in order of preference.", **REPEATABLE
        ),
    ]


@dataclass(frozen=True, kw_only=True)
class SessionOptions(ProviderOptions):
    """How onnxruntime runs a model."""

    threads: Annotated[int | None, typer.Option(min=1, help="Threads for one op; by default one per core.")] = None


@dataclass(frozen=True, kw_only=True)
class ModelFile:
    """An exported model."""

    model: Annotated[
        Path,
        argument(metavar="MODEL.ONNX", help="An ONNX file; for inspect and bench also the folder of one or several."),
    ]


@dataclass(frozen=True, kw_only=True)
class SizeOptions:
    """Values of symbolic sizes."""

    sizes: Annotated[
        list[str],
        typer.Option(
            "--size",
            "-s",
            metavar="NAME=N",
            help="The value of a symbolic size, such as L=128. Repeatable.",
            **REPEATABLE,
        ),
    ]


@dataclass(frozen=True, kw_only=True)
class VectorOptions:
    """How a checkpoint makes vectors of texts and images, where its files leave that open."""

    prompt: Annotated[
        str | None,
        of_model(
            help="The name of one of the checkpoint's prompts, such as query; empty for none; by default the "
            "checkpoint's own choice."
        ),
    ] = None
    pooling: Annotated[str | None, of_model(help="cls or mean, where the model gives a vector for each token.")] = None
