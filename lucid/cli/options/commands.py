"""The commands: for each a dataclass of its options, whose docstring is its help.

typer reads the annotations as objects, so this module has no `from __future__ import annotations`.
"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer

from lucid.cli.options.groups import (
    BITS,
    REPEATABLE,
    Command,
    DeployedOptions,
    ExportedModelOptions,
    InputOptions,
    JsonCommand,
    ModelFile,
    ProviderOptions,
    QuantizedModelOptions,
    SessionOptions,
    SizeOptions,
    TargetName,
    VectorOptions,
    argument,
    file_or_stdout,
    folder_not_stdout,
    folder_of_parquet,
    of_export,
    of_model,
    of_quantization,
    target_option,
    whole_bytes,
)
from lucid.cli.options.training import Train as Train
from lucid.core.targets.runtimes import GENERAL

LayoutName = Literal["onnxruntime", "transformers.js", "sentence-transformers", "optimum", "genai", "triton", "web"]

_ANY = TargetName(GENERAL)
_output = partial(typer.Option, "--output", "-o", show_default=False)
_sampling = partial(typer.Option, rich_help_panel="Sampling, which any of these turns on")
_penalty = partial(typer.Option, rich_help_panel="With or without sampling")
_rows = partial(typer.Option, rich_help_panel="The rows")
_engine = partial(typer.Option, rich_help_panel="The engine")
_address = partial(typer.Option, rich_help_panel="The address")
_structure = partial(typer.Option, rich_help_panel="A structured answer")
_limit = partial(typer.Option, rich_help_panel="The limits")
_TASK = "The task to read a checkpoint for; an exported folder must be for this task."


@dataclass(frozen=True, kw_only=True)
class FolderOptions:
    """The contents of a file or a folder: the arguments of `lucid.layouts.write_folder` of these names."""

    layout: Annotated[
        LayoutName | None,
        of_export(
            "--for",
            help="Write the folder from which a runtime loads the model: with config, tokenizer and a model card. "
            "genai is onnxruntime-genai, triton Triton Inference Server, web a page with the "
            "model in it. SOURCE is a checkpoint.",
        ),
    ] = None
    force: Annotated[
        bool, of_export("--force", help="With --for: replace the folder even if it holds other files.")
    ] = False
    with_tokenizer: Annotated[
        bool,
        of_export(
            "--with-tokenizer",
            help="Put the checkpoint's tokenizer into the file, which then takes texts; a tokenizer that would not be "
            "exact is refused. Runs with onnxruntime-extensions.",
        ),
    ] = False
    with_preprocessor: Annotated[
        bool,
        of_export(
            "--with-preprocessor",
            help="The file takes decoded images (N, height, width, 3) uint8, and resizes and scales them as "
            "preprocessor_config.json says, exactly as Pillow does.",
        ),
    ] = False
    external_data: Annotated[bool, of_export("--external-data", help="Write weights to a separate file.")] = False
    check: Annotated[bool, typer.Option(help="Run the file in onnxruntime and compare with NumPy.")] = True


@dataclass(frozen=True, kw_only=True)
class Export(JsonCommand, FolderOptions, ExportedModelOptions):
    """Export a model to an ONNX file, check it against NumPy and show the result.

    Examples:

    \b
      lucid export nn.Linear --set in_features=8 --set out_features=4 -o l.onnx
      lucid export all-MiniLM-L6-v2
      lucid export all-MiniLM-L6-v2 --task feature-extraction -o states.onnx
      lucid export net.py:Net -i x:float32:N,80,T --target portable -o net.onnx
      lucid export all-MiniLM-L6-v2 --for transformers.js --bits 8,float
      lucid export all-MiniLM-L6-v2 --with-tokenizer -o texts.onnx
      lucid export SmolLM2-135M-Instruct --for genai --bits 4 -o smollm2-genai
    """

    output: Annotated[
        Path | None,
        _output(
            metavar="MODEL.ONNX",
            callback=file_or_stdout,
            help="The file to write; with --for the folder. By default one next to a checkpoint, named after it.",
        ),
    ] = None
    bits: Annotated[
        str | None,
        of_quantization(
            metavar="4|8",
            help=f"{BITS} With --for transformers.js also several: 8,4,float writes a file of each, and --dtype "
            "float16 one more; the first is loaded by default.",
        ),
    ] = None
    target: Annotated[TargetName | None, target_option(show_default="any; with --for, what suits it best")] = None
    opset: Annotated[int | None, of_export(help="17 to 26; by default that of the target.")] = None
    onnxruntime: Annotated[
        str | None,
        of_export(
            metavar="RELEASE",
            help="The oldest onnxruntime that must compute the file correctly, such as 1.23.  [default: 1.28]",
        ),
    ] = None
    accuracy_level: Annotated[
        int | None,
        of_export(
            metavar="4|0",
            help="How products with quantized weights are computed: 4 rounds their inputs to 8 bits, 0 computes in "
            "float32, which is exact and slower.  [default: 4]",
        ),
    ] = None
    lengths: Annotated[
        str | None,
        of_export(
            metavar="FEWEST:MOST",
            help="The fewest and the most queries of an attention to expect: the file is smaller. Other lengths still "
            "work, but more slowly.",
        ),
    ] = None
    rows_apart: Annotated[
        bool,
        of_export(
            help="For programs that continue texts by several tokens only one text at a time, as Lucid's generation "
            "does: attention then writes the buffers of --cache fixed itself."
        ),
    ] = False


@dataclass(frozen=True, kw_only=True)
class Inspect(JsonCommand, SizeOptions, ModelFile):
    """Show what is in an ONNX file, from Lucid or not: modules, cost, inputs and outputs, and what loads it.

    Examples:

    \b
      lucid inspect minilm.onnx --size L=128 --depth 4
      lucid inspect model.onnx --graph graph.html
    """

    depth: Annotated[int, typer.Option("--depth", "-d", min=0, help="Levels of the module tree to show.")] = 3
    graph: Annotated[
        Path | None, typer.Option(metavar="FILE.HTML", help="Also write the graph as a page, with modules that fold.")
    ] = None


@dataclass(frozen=True, kw_only=True)
class Verify(JsonCommand, ProviderOptions, SizeOptions, ExportedModelOptions):
    """Compare an exported file with its model on NumPy, over several sizes and all providers.

    Without MODEL.ONNX it compares the only export of a checkpoint: what `export` writes next to it, or an ONNX file in
    its folder. For the folder that `export --for` wrote, it compares all ONNX files. The inputs, their sizes and the
    part of the model come from the file, unless --input, --call, --part or --cache is given. If results differ, it
    names the first node that differs. To find it, the command needs the --target and --attention of the export, for a
    file in half precision its --dtype, and for a quantized one --bits and the options that were given with it.

    Examples:

    \b
      lucid verify all-MiniLM-L6-v2
      lucid verify all-MiniLM-L6-v2 minilm.onnx
      lucid verify all-MiniLM-L6-v2 all-MiniLM-L6-v2-onnxruntime
      lucid verify all-MiniLM-L6-v2 minilm.onnx --size N=2,L=64 --size N=1,L=1
    """

    model: Annotated[
        Path | None, argument(metavar="MODEL.ONNX", help="An ONNX file, or the folder that `export --for` wrote.")
    ] = None
    providers: Annotated[
        list[str],
        typer.Option("--provider", "-p", help="cpu, cuda, or onnxruntime's full name. Repeatable.", **REPEATABLE),
    ]
    sizes: Annotated[
        list[str],
        typer.Option(
            "--size",
            "-s",
            metavar="N=1,L=7",
            help="Values of the symbolic sizes for one run. Repeatable: one run for each.",
            **REPEATABLE,
        ),
    ]


@dataclass(frozen=True, kw_only=True)
class Quantize(JsonCommand, QuantizedModelOptions):
    """Round the weights of a model to 4 or 8 bits: to a checkpoint that Lucid reads again, or to an ONNX file.

    Examples:

    \b
      lucid quantize SmolLM2-135M --bits 4 -o small
      lucid quantize SmolLM2-135M --bits 4 --method gptq --text texts.txt -o small
      lucid quantize all-MiniLM-L6-v2 --target-error 0.02 --text t.txt -o m.onnx
    """

    output: Annotated[
        Path, _output(metavar="FOLDER|MODEL.ONNX", callback=folder_not_stdout, help="A checkpoint, or an ONNX file.")
    ]
    target_error: Annotated[
        float | None,
        typer.Option(
            metavar="0.02",
            help="Find the fewest bits, by layer, that keep the relative error of the outputs on --text below this.",
        ),
    ] = None
    target: Annotated[TargetName, target_option()] = _ANY
    check: Annotated[bool, typer.Option(help="Show what quantizing costs, on random inputs.")] = True

    @property
    def reads_texts(self) -> bool:
        """Whether anything reads --text."""
        return self.learns or self.target_error is not None


@dataclass(frozen=True, kw_only=True)
class Run(JsonCommand, SessionOptions, ModelFile):
    """Run an ONNX file on the arrays of an .npz file.

    Examples:

    \b
      lucid run mha.onnx input.npz -o output.npz
      lucid run mha.onnx input.npz --provider cuda --json
    """

    data: Annotated[Path, argument(metavar="INPUT.NPZ", help="Arrays by input name.")]
    output: Annotated[
        Path | None, _output(metavar="OUTPUT.NPZ", callback=file_or_stdout, help="Where to write the outputs, by name.")
    ] = None


@dataclass(frozen=True, kw_only=True)
class Bench(JsonCommand, SizeOptions, SessionOptions, ModelFile):
    """Measure an ONNX file: latency percentiles, throughput, peak memory, share of the machine's matmul peak.

    Of a decoder with a cache: the time to the first token, tokens per second after it, and memory. --size L=512 sets
    the length of its prompt. Of a folder each file is measured.

    Examples:

    \b
      lucid bench minilm.onnx --size N=1 --size L=128
      lucid bench minilm.onnx --provider cuda --seconds 10 --json
    """

    seconds: Annotated[float, typer.Option(min=0.01, max=86_400, help="How long to measure.")] = 3.0
    peak: Annotated[bool, typer.Option(help="Also measure how fast this machine multiplies matrices.")] = True


@dataclass(frozen=True, kw_only=True)
class Report(JsonCommand, SizeOptions, InputOptions):
    """Write an HTML page: graph, cost and time by module, attention maps, errors, time and memory by target.

    Examples:

    \b
      lucid report all-MiniLM-L6-v2
      lucid report all-MiniLM-L6-v2 --size L=32 -o report.html
      lucid report all-MiniLM-L6-v2 --data input.npz --tokens tokens.txt -o r.html
    """

    output: Annotated[
        Path | None,
        _output(
            metavar="PAGE.HTML",
            callback=file_or_stdout,
            help="The page to write. By default one next to a checkpoint, named after it.",
        ),
    ] = None
    data: Annotated[
        Path | None,
        typer.Option(metavar="INPUT.NPZ", help="Arrays by input name; otherwise a sentence, or random ones."),
    ] = None
    tokens: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Labels for the attention maps, one per line.")
    ] = None
    targets: Annotated[
        list[TargetName],
        typer.Option(
            "--target", "-t", help="A target to export for. Repeatable; by default any, cpu and portable.", **REPEATABLE
        ),
    ]
    seconds: Annotated[float, typer.Option(min=0.01, max=86_400, help="How long to measure each target.")] = 0.5

    @property
    def reads_texts(self) -> bool:
        """Whether anything reads --text: the page shows the errors on texts."""
        return True


@dataclass(frozen=True, kw_only=True)
class SamplingOptions:
    """How tokens are drawn: the options of these names in `lucid.generation`."""

    temperature: Annotated[
        float | None, _sampling(help="A value below 1 makes likely tokens likelier; 0 takes the likeliest.")
    ] = None
    top_k: Annotated[int | None, _sampling(min=1, help="Draw from the k likeliest tokens.")] = None
    top_p: Annotated[float | None, _sampling(help="Draw from the likeliest tokens whose probabilities sum to p.")] = (
        None
    )
    min_p: Annotated[float | None, _sampling(help="Draw from tokens at least p times as likely as the likeliest.")] = (
        None
    )
    typical_p: Annotated[
        float | None, _sampling(help="Draw from the most typical tokens whose probabilities sum to p.")
    ] = None
    seed: Annotated[int | None, _sampling(min=0, help="The same seed draws the same tokens.")] = None


@dataclass(frozen=True, kw_only=True)
class RepetitionOptions:
    """Penalties of tokens: the options of these names in `lucid.generation`."""

    repetition_penalty: Annotated[
        float | None, _penalty(help="A value above 1 makes tokens that are already in the text less likely.")
    ] = None
    frequency_penalty: Annotated[
        float | None, _penalty(help="Is subtracted from a logit for each time that the token is in the answer.")
    ] = None
    presence_penalty: Annotated[
        float | None, _penalty(help="Is subtracted once from the logits of tokens that are in the answer.")
    ] = None
    no_repeat_ngram_size: Annotated[int | None, _penalty(min=0, help="No n-gram of this size comes twice.")] = None
    min_new_tokens: Annotated[int | None, _penalty(min=0, help="The fewest tokens of an answer.")] = None


@dataclass(frozen=True, kw_only=True)
class ConstraintOptions:
    """The constraint of an answer: the arguments of `Tokenizer.constraint` of these names, two of them in files."""

    json_schema: Annotated[
        Path | None, _structure(metavar="FILE", help="The answer is JSON of this schema, unless its tokens run out.")
    ] = None
    regex: Annotated[str | None, _structure(metavar="TEXT", help="The answer matches this regular expression.")] = None
    grammar: Annotated[Path | None, _structure(metavar="FILE", help="The answer matches this grammar in Lark.")] = None


@dataclass(frozen=True, kw_only=True)
class AnswerOptions(ConstraintOptions, RepetitionOptions, SamplingOptions):
    """The options of answers."""

    max_new_tokens: Annotated[
        int | None,
        typer.Option(
            "--max-new-tokens", "-n", min=1, help="The most tokens of an answer; by default 512, if they fit."
        ),
    ] = None
    stop: Annotated[
        list[str], typer.Option(metavar="TEXT", help="End the answer before this text. Repeatable.", **REPEATABLE)
    ]
    prompt_lookup_num_tokens: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Guess so many tokens from an earlier place with the same last ones, and check them in one step: the "
            "same tokens, faster where an answer repeats its prompt.",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class AnswerCommand(Command, SessionOptions, DeployedOptions, AnswerOptions):
    """A command that runs a decoder with its tokenizer. SOURCE may also be an ONNX file."""

    eager: Annotated[bool, typer.Option("--eager", help="Run a checkpoint with NumPy instead of exporting it.")] = False


@dataclass(frozen=True, kw_only=True)
class Generate(JsonCommand, AnswerCommand):
    """Continue a text with a decoder, and show it as it comes; then, on stderr, the speed.

    Examples:

    \b
      lucid generate SmolLM2-135M "The capital of France is" --max-new-tokens 20
      lucid generate model.gguf "Once upon a time" --temperature 0.8 --seed 1
      lucid generate model.gguf "A person as JSON: " --json-schema person.json
    """

    prompt: Annotated[str, argument(metavar="TEXT", help="The text to continue; - reads the standard input.")]


@dataclass(frozen=True, kw_only=True)
class Chat(AnswerCommand):
    """Talk with a model that was trained on conversations. Each line of the standard input is a message.

    Ctrl-C stops an answer, Ctrl-D ends the conversation, and in a terminal /help shows commands. When the conversation
    no longer fits the model's positions, its oldest messages are forgotten, and a line says so.

    Examples:

    \b
      lucid chat SmolLM2-135M-Instruct
      lucid chat model.gguf --system "Answer in one sentence." --temperature 0.7
      lucid chat SmolLM2-135M-Instruct --bits 4
      echo "What is the capital of Japan?" | lucid chat model.gguf
    """

    system: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Instructions for the model before the conversation.")
    ] = None


@dataclass(frozen=True, kw_only=True)
class PredictorOptions(VectorOptions):
    """How a model computes rows: the arguments of `lucid.batch.Predictor` of these names."""

    task: Annotated[str | None, of_model(help=_TASK)] = None
    batch_tokens: Annotated[int, of_model(min=1, help="Tokens of a batch, padding included.")] = 4096
    max_length: Annotated[
        int | None, of_model(min=1, help="The most tokens of a row; by default the checkpoint's own limit.")
    ] = None


@dataclass(frozen=True, kw_only=True)
class JobOptions:
    """How a job runs: the arguments of `lucid.batch.map_rows` of these names."""

    id_column: Annotated[
        str | None, _rows("--id", help="Check first that no id is missing or repeated in this column.")
    ] = None
    resume: Annotated[bool, _rows("--resume", help="Continue an interrupted job.")] = False
    part_rows: Annotated[
        int | None, _rows(min=1, help="Rows of an output file; by default it depends on how many there are.")
    ] = None
    engine: Annotated[
        Literal["local", "ray"], _engine(help="Run in this process, or in actors of Ray Data on many machines.")
    ] = "local"
    cluster: Annotated[
        str | None,
        _engine(
            "--address",
            metavar="ADDRESS",
            help="The address of a Ray cluster, such as ray://HOST:10001 or auto; by default one is started here.",
        ),
    ] = None
    workers: Annotated[int | None, _engine(min=1, help="Number of actors; by default one per core or GPU.")] = None


@dataclass(frozen=True, kw_only=True)
class Map(JsonCommand, ProviderOptions, JobOptions, PredictorOptions, DeployedOptions, AnswerOptions):
    """Run a model over the rows of files, and write them with the results.

    A row without a result (null, empty, of another type) has null there, and the reason in the column error.

    Examples:

    \b
      lucid map all-MiniLM-L6-v2 texts.parquet -o embeddings
      lucid map minilm-onnxruntime "in/*.jsonl" -o out --column body --id id
      lucid map vit-onnxruntime photos -o labels
      lucid map minilm-onnxruntime texts.parquet -o out --engine ray --resume
    """

    source: Annotated[
        list[str],
        argument(
            metavar="INPUT",
            help="Files, folders or patterns, also in object stores (s3://...): Parquet, JSON lines, CSV or images.",
        ),
    ]
    output: Annotated[str, _output(metavar="FOLDER", callback=folder_of_parquet, help="Where to write Parquet files.")]
    columns: Annotated[
        list[str],
        _rows(
            "--column",
            "-c",
            help="The column of texts or images, by default text; two for a cross-encoder.",
            **REPEATABLE,
        ),
    ]
    output_column: Annotated[
        str | None, _rows(help="The column of results; by default embedding, label, score or answer.")
    ] = None
    chat: Annotated[bool, of_model("--chat", help="Each prompt is a message, as for lucid chat.")] = False
    threads: Annotated[int | None, _engine(min=1, help="Batches at a time in a process; by default one per core.")] = (
        None
    )


@dataclass(frozen=True, kw_only=True)
class ProcessOptions:
    """The processes of a server: the fields of `lucid.serving.running.Settings` of these names."""

    host: Annotated[
        str,
        _address(metavar="HOST", help="The address to listen on; 0.0.0.0 also accepts clients from other machines."),
    ] = "127.0.0.1"
    port: Annotated[int, _address(min=1, max=65535, help="The port to listen on.")] = 8000
    access_log: Annotated[
        bool,
        _address(
            "--access-log", help="Write a line for each request to stderr: client, path, status, size and seconds."
        ),
    ] = False
    workers: Annotated[int, of_model(min=1, help="Number of processes; one that ends is started again.")] = 1


@dataclass(frozen=True, kw_only=True)
class ApplicationOptions(ProviderOptions, VectorOptions):
    """The model of a server: the arguments of `lucid.serving.application` of these names."""

    name: Annotated[
        str | None, of_model(help="What clients call the model; by default the name of the folder or file.")
    ] = None
    threads: Annotated[
        int | None, of_model(min=1, help="Threads of each process; by default the processes share the cores.")
    ] = None
    batch_tokens: Annotated[int, of_model(min=1, help="Tokens computed together.")] = 4096
    slots: Annotated[int, of_model(min=1, help="Answers of a decoder that are written at once.")] = 4
    queue: Annotated[int, of_model(min=0, help="The most answers that wait for a slot; others are refused.")] = 64


@dataclass(frozen=True, kw_only=True)
class LimitOptions:
    """Limits of requests: the fields of `lucid.serving.Limits` of these names."""

    body: Annotated[
        int | None,
        _limit("--max-body", metavar="BYTES", parser=whole_bytes, help="The size of a request; by default 4MiB."),
    ] = None
    tokens: Annotated[int | None, _limit("--max-tokens", min=1, help="Tokens of a request; by default 32768.")] = None
    seconds: Annotated[
        float | None, _limit("--max-seconds", min=0.001, help="Seconds for a request; by default 60.")
    ] = None
    requests: Annotated[
        int | None, _limit("--max-requests", min=1, help="Requests at a time in a process; by default 256.")
    ] = None


@dataclass(frozen=True, kw_only=True)
class Serve(JsonCommand, LimitOptions, ApplicationOptions, ProcessOptions, DeployedOptions):
    """Serve a model over HTTP, by the routes of OpenAI's API and of the Open Inference Protocol.

    It listens on this machine alone, unless --host gives another address. Logs hold nothing of the contents of
    requests. A page at its address tries the model.

    Examples:

    \b
      lucid serve SmolLM2-135M-Instruct
      lucid serve model.gguf --port 8080 --name smollm2
      lucid serve minilm-onnxruntime --host 0.0.0.0 --key-file key.txt --workers 4
    """

    task: Annotated[str | None, of_model(help=_TASK)] = None
    cors_origin: Annotated[
        list[str],
        _address(
            metavar="ORIGIN",
            help="The origin of web pages that may ask this server, such as https://example.org, or * for all. "
            "Repeatable.",
            **REPEATABLE,
        ),
    ]
    key_file: Annotated[
        Path | None,
        _address(
            metavar="FILE",
            help="A file with the key that clients must send; the variable LUCID_API_KEY is an alternative.",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class Doctor(JsonCommand):
    """Show what is installed, which providers work and why others do not, and what to install.

    Example: lucid doctor
    """
