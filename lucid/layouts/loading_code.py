"""The program that loads a folder, for its card, by layout: one of loading_code.md. `make test-consumers` runs it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from lucid.core.graph.types import TensorType
from lucid.core.sizes.dims import Dim
from lucid.layouts.checkpoint_files import CONFIG, TOKENIZER, file_of, files_home, is_gguf
from lucid.layouts.layout import Exported
from lucid.layouts.triton import data_type, model_name
from lucid.models.checkpoints.config import read_optional_json


class Subject(NamedTuple):
    """A folder: its name, the task of its model, the checkpoint it was made from, and its ONNX files."""

    folder: str
    task: str
    checkpoint: Path
    files: tuple[Exported, ...]

    @property
    def inputs(self) -> Mapping[str, TensorType]:
        """The inputs of the first file that hold numbers."""
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
        return is_gguf(files_home(self.checkpoint)) or file_of(self.checkpoint, TOKENIZER).is_file()

    def token(self, name: str) -> int:
        """A token by its name in config.json, such as pad_token_id; 0 if it is not there."""
        token = read_optional_json(file_of(self.checkpoint, CONFIG)).get(name)
        return token if isinstance(token, int) else 0

    @property
    def words(self) -> dict[str, str]:
        """FOLDER, FILE and SECOND: the folder and the paths of its files, as they are between quotation marks."""
        paths = [self.folder, *(f"{self.folder}/{file.file}" for file in self.files)]
        quoted = (json.dumps(path, ensure_ascii=False)[1:-1] for path in paths)
        return dict(zip(("FOLDER", "FILE", "SECOND"), quoted, strict=False))


def _shape(kind: TensorType) -> list[int]:
    """A shape of this type, with 1 for each size that is known only at run time."""
    return [1 if isinstance(size, Dim) else size for size in kind.shape]


def zeros(kind: TensorType) -> str:
    """An array of zeros of a type, as Python code."""
    return f"np.zeros({_shape(kind)}, np.{kind.dtype.name})"


def _rows(items: Iterable[str]) -> str:
    """Items of a list or an object, a line each."""
    return "\n" + "".join(f"    {item},\n" for item in items)


@cache
def _programs() -> dict[str, tuple[str, str]]:
    """The programs of loading_code.md by their titles: the language, as Markdown calls it, and the lines."""
    text = Path(__file__).with_suffix(".md").read_text("utf-8")
    programs = re.findall(r"^## ([^\n]+)\n\n```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return {title: (language, lines) for title, language, lines in programs}


class Program(NamedTuple):
    """A program by its title, and the values of the words that it leaves open."""

    title: str
    words: Mapping[str, str] = MappingProxyType({})


_FIELDS = {"input_ids": "ids", "attention_mask": "attention_mask", "token_type_ids": "type_ids"}


def _onnxruntime(about: Subject) -> Program:
    """Texts that are read or continued, or arrays of zeros where preprocessor_config.json says what they hold."""
    arrays = {"ROWS": _rows(f'"{name}": {zeros(kind)}' for name, kind in about.inputs.items())}
    if not about.takes_texts and about.reads_text and not about.has_tokenizer and len(about.files) == 1:
        return Program("arrays", arrays)
    if about.task == "image-text-to-text":
        words = {"PIXELS": zeros(about.inputs["pixel_values"]), "IMAGE": str(about.token("image_token_id"))}
        return Program("images and texts", words)
    if len(about.files) > 1:
        start = {"START": str(about.token("decoder_start_token_id"))}
        if about.reads_text:
            return Program("translation", start)
        return Program("speech", {"FEATURES": zeros(about.inputs["input_features"]), **start})
    if about.takes_texts:
        return Program("texts as strings")
    cache = about.inputs.get("past_key_values.0.key")
    if cache is not None:
        grows = "past_sequence_length" in str(cache.shape[2])
        return Program("a decoder with a growing cache" if grows else "a decoder with buffers")
    if not about.reads_text:
        return Program("images" if "images" in about.inputs else "arrays", arrays)
    padding = about.token("pad_token_id")
    rows = _rows(f'"{name}": np.array([text.{_FIELDS[name]} for text in texts])' for name in about.inputs)
    return Program("texts", {"PADDING": f"pad_id={padding}" if padding else "", "ROWS": rows})


_OPTIMUM_CLASSES = {
    "text-classification": "SequenceClassification",
    "reranking": "SequenceClassification",
    "token-classification": "TokenClassification",
    "question-answering": "QuestionAnswering",
    "fill-mask": "MaskedLM",
    "text-generation": "CausalLM",
    "text2text-generation": "Seq2SeqLM",
    "image-classification": "ImageClassification",
    "feature-extraction": "FeatureExtraction",
    "sentence-similarity": "FeatureExtraction",
}


def _sentence_transformers(about: Subject) -> Program:
    """A sentence encoder, or a cross-encoder."""
    return Program("pairs of sentences" if about.task in ("text-classification", "reranking") else "sentences")


def _optimum(about: Subject) -> Program:
    """The class for the task."""
    if about.task == "automatic-speech-recognition":
        return Program("optimum, speech")
    name = {"CLASS": f"ORTModelFor{_OPTIMUM_CLASSES.get(about.task, 'CustomTasks')}"}
    if "input_ids" not in about.inputs or "pixel_values" in about.inputs:
        return Program("optimum", name)
    writes = about.task in ("text-generation", "text2text-generation")
    result = "tokenizer.batch_decode(model.generate(**inputs, max_new_tokens=16))" if writes else "model(**inputs)[0]"
    return Program("optimum, texts", {**name, "RESULT": result})


def _genai(about: Subject) -> Program:
    """A text to continue, or a sound to write down."""
    return Program("genai, speech" if about.task == "automatic-speech-recognition" else "genai, texts")


_JS_ARGUMENTS = {
    "question-answering": '"Where does the cat sit?", "A cat sits on a rug."',
    "fill-mask": "`A cat sits on a ${run.tokenizer.mask_token}.`",
    "text-generation": '"The capital of France is", { max_new_tokens: 16 }',
    "text2text-generation": '"translate English to German: A cat.", { max_new_tokens: 16 }',
    "automatic-speech-recognition": "new Float32Array(16000)",
    **dict.fromkeys(("image-classification", "image-feature-extraction", "image-segmentation"), '"image.png"'),
    **dict.fromkeys(("depth-estimation", "object-detection"), '"image.png"'),
    "zero-shot-image-classification": '"image.png", ["a cat", "a dog"]',
}


def _transformers_js(about: Subject) -> Program:
    """The program of the task, where it has its own, or a pipeline."""
    if (own := f"transformers.js, {about.task}") in _programs():
        return Program(own)
    arguments = _JS_ARGUMENTS.get(about.task, '"A cat sits on a rug."')
    return Program("transformers.js", {"TASK": about.task, "ARGUMENTS": arguments})


def _triton(about: Subject) -> Program:
    """A request with arrays of zeros."""
    inputs = (
        f'triton.InferInput("{name}", {_shape(kind)}, "{data_type(kind)}")' for name, kind in about.inputs.items()
    )
    words = {"INPUTS": _rows(inputs), "ARRAYS": _rows(map(zeros, about.inputs.values()))}
    output = next(iter(about.files[0].outputs))
    return Program("triton", {**words, "MODEL": model_name(about.checkpoint), "OUTPUT": output})


def lines_for(layout: str, about: Subject) -> tuple[str, str]:
    """The language of the lines that load a folder, as Markdown calls it, and the lines."""
    program = _BY_LAYOUT[layout](about)
    language, lines = _programs()[program.title]
    words = {**about.words, **program.words}
    # In one pass, since a folder may have the name of a word.
    return language, re.sub(rf"\b({'|'.join(words)})\b", lambda word: words[word[1]], lines)


_BY_LAYOUT: Mapping[str, Callable[[Subject], Program]] = {
    "onnxruntime": _onnxruntime,
    "transformers.js": _transformers_js,
    "sentence-transformers": _sentence_transformers,
    "optimum": _optimum,
    "genai": _genai,
    "triton": _triton,
    "web": lambda _: Program("web"),
}
