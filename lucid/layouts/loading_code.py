"""The code by which programs load a folder, for its card, by layout. `make test-consumers` runs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from lucid.core.graph.types import TensorType
from lucid.core.sizes.dims import Dim
from lucid.layouts.checkpoint_files import CONFIG, TOKENIZER, file_of, files_home, is_gguf
from lucid.layouts.layout import Exported
from lucid.layouts.triton import data_type, model_name
from lucid.models.checkpoints.config import read_json


class Subject(NamedTuple):
    """A folder, by its name, what its model is for, what it was made of, and its ONNX files."""

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
        path = file_of(self.checkpoint, CONFIG)
        token = read_json(path).get(name) if path.is_file() else None
        return token if isinstance(token, int) else 0

    def fill(self, lines: str) -> str:
        """Lines with FOLDER, FILE and SECOND, which stand for the folder and the paths of its files."""
        paths = [f"{self.folder}/{file.file}" for file in self.files]
        for word, value in zip(("FILE", "SECOND"), paths, strict=False):
            lines = lines.replace(word, value)
        return lines.replace("FOLDER", self.folder).strip() + "\n"


def _shape(kind: TensorType) -> list[int]:
    """A shape of this type, with 1 for each size that is known only at run time."""
    return [1 if isinstance(size, Dim) else size for size in kind.shape]


def zeros(kind: TensorType) -> str:
    """An array of zeros of a type, as Python code."""
    return f"np.zeros({_shape(kind)}, np.{kind.dtype.name})"


_IMPORTS = "\nimport numpy as np\nimport onnxruntime\n"  # of the lines, not of this file
_TOKENIZER = f"""{_IMPORTS}from tokenizers import Tokenizer

tokenizer = Tokenizer.from_file("FOLDER/tokenizer.json")
session = onnxruntime.InferenceSession("FILE")
"""
_STEPS = """
ids = tokenizer.encode("The capital of France is").ids
new, past = ids, {}
for cache in session.get_inputs():
    if cache.name.startswith("past_key_values"):
        past[cache.name] = np.zeros((1, cache.shape[1], 0, cache.shape[3]), np.float32)
for _ in range(16):
    inputs = {
        "input_ids": np.array([new]),
        "attention_mask": np.ones((1, len(ids)), np.int64),
        "position_ids": np.arange(len(ids) - len(new), len(ids))[None],
    }
    logits, *present = session.run(None, {**inputs, **past})
    new, past = [int(logits[0, -1].argmax())], dict(zip(past, present))
    ids += new
print(tokenizer.decode(ids))
"""
_BUFFERS = """
from lucid.chat import load_language_model

for piece in load_language_model("FOLDER").answer("The capital of France is", max_new_tokens=16):
    print(piece, end="")
"""
_TEXTS = """
texts = tokenizer.encode_batch(["A cat sits on a rug.", "Interest rates rose again."])
inputs = {
ROWS
}
print(session.run(None, inputs)[0])
"""
_STRINGS = """
import numpy as np
import onnxruntime
from onnxruntime_extensions import get_library_path  # pip install onnxruntime-extensions

options = onnxruntime.SessionOptions()
options.register_custom_ops_library(get_library_path())
session = onnxruntime.InferenceSession("FILE", options)
texts = np.array(["A cat sits on a rug.", "Interest rates rose again."], object)
print(session.run(None, {"text": texts})[0])
"""
_IMAGE_TEXT = f"""{_IMPORTS}
names = ("vision_encoder", "embed_tokens", "decoder_model_merged")
vision, embed, decoder = (onnxruntime.InferenceSession(f"FOLDER/{{name}}.onnx") for name in names)
pixels = PIXELS  # images, as preprocessor_config.json says
kept = np.ones(pixels.shape[:2] + pixels.shape[3:], bool)  # of which none is padding
features = vision.run(None, {{"pixel_values": pixels, "pixel_attention_mask": kept}})[0]
ids = np.array([[IMAGE] * features.shape[1] + [1, 2]])  # of a prompt: IMAGE for each vector of an image
new = embed.run(None, {{"input_ids": ids}})[0]
new[ids == IMAGE] = features.reshape(-1, features.shape[-1])
tokens, length, past = [], 0, {{}}
for cache in decoder.get_inputs():
    if cache.name.startswith("past_key_values"):
        past[cache.name] = np.zeros((1, cache.shape[1], 0, cache.shape[3]), np.float32)
for _ in range(16):
    start, length = length, length + new.shape[1]
    mask, positions = np.ones((1, length), np.int64), np.arange(start, length)[None]
    inputs = {{"inputs_embeds": new, "attention_mask": mask, "position_ids": positions}}
    logits, *present = decoder.run(None, {{**inputs, **past}})
    tokens, past = [*tokens, int(logits[0, -1].argmax())], dict(zip(past, present))
    new = embed.run(None, {{"input_ids": np.array([tokens[-1:]])}})[0]
print(tokens)
"""
_FIELDS = {"input_ids": "ids", "attention_mask": "attention_mask", "token_type_ids": "type_ids"}
_TRANSLATION = """
from lucid.generation import EncoderDecoderGenerator
from lucid.runtime import Session
from tokenizers import Tokenizer

tokenizer = Tokenizer.from_file("FOLDER/tokenizer.json")
generator = EncoderDecoderGenerator(Session("FILE"), Session("SECOND"), decoder_start_token_id=START)
ids = tokenizer.encode("translate English to German: A cat sits on a rug.").ids
print(tokenizer.decode(generator.generate([ids], max_new_tokens=16)[0].tolist()))
"""
_SPEECH = """
import lucid
import numpy as np
from lucid.generation import EncoderDecoderGenerator
from lucid.runtime import Session
from tokenizers import Tokenizer

tokenizer = Tokenizer.from_file("FOLDER/tokenizer.json")
generator = EncoderDecoderGenerator(Session("FILE"), Session("SECOND"), decoder_start_token_id=START)
features = FEATURES  # of a sound, as preprocessor_config.json says
print(tokenizer.decode(generator.encode(lucid.tensor(features)).generate(max_new_tokens=16)[0].tolist()))
"""
_OTHER = f"""{_IMPORTS}
session = onnxruntime.InferenceSession("FILE")
inputs = {{
ROWS
}}
print(session.run(None, inputs)[0])
"""
_DECODED = '}  # images decoded, such as np.asarray(PIL.Image.open("image.png").convert("RGB"))[None]\n'
_IMAGES = _OTHER.replace("}\n", _DECODED)


def onnxruntime_lines(about: Subject) -> str:
    """Texts that are read or continued, or arrays of zeros where preprocessor_config.json says what they hold."""
    if not about.takes_texts and about.reads_text and not about.has_tokenizer and len(about.files) == 1:
        return _OTHER.replace("ROWS", _zeros(about))
    if about.task == "image-text-to-text":
        return _IMAGE_TEXT.replace("PIXELS", zeros(about.inputs["pixel_values"])).replace(
            "IMAGE", str(about.token("image_token_id"))
        )
    if len(about.files) > 1:
        lines = _TRANSLATION if about.reads_text else _SPEECH.replace("FEATURES", zeros(about.inputs["input_features"]))
        return lines.replace("START", str(about.token("decoder_start_token_id")))
    if about.takes_texts:
        return _STRINGS
    cache = about.inputs.get("past_key_values.0.key")
    if cache is not None:
        return _TOKENIZER + _STEPS if "past_sequence_length" in str(cache.shape[2]) else _BUFFERS
    if not about.reads_text:
        lines = _IMAGES if "images" in about.inputs else _OTHER
        return lines.replace("ROWS", _zeros(about))
    padding = about.token("pad_token_id")
    enabled = f"tokenizer.enable_padding({f'pad_id={padding}' if padding else ''})"
    rows = "\n".join(f'    "{name}": np.array([text.{_FIELDS[name]} for text in texts]),' for name in about.inputs)
    return f"{_TOKENIZER}{enabled}{_TEXTS}".replace("ROWS", rows)


def _zeros(about: Subject) -> str:
    return "\n".join(f'    "{name}": {zeros(kind)},' for name, kind in about.inputs.items())


_SENTENCES = """
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("FOLDER", backend="onnx")
print(model.encode(["A cat sits on a rug.", "Interest rates rose again."]))
"""
_PAIRS = """
from sentence_transformers import CrossEncoder

model = CrossEncoder("FOLDER", backend="onnx")
print(model.predict([("Where does the cat sit?", "A cat sits on a rug.")]))
"""
_OPTIMUM_TEXT = """
from optimum.onnxruntime import CLASS
from transformers import AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("FOLDER")
model = CLASS.from_pretrained("FOLDER")
inputs = tokenizer("A cat sits on a rug.", return_tensors="pt")
print(RESULT)
"""
_OPTIMUM_SPEECH = """
import numpy as np
from optimum.onnxruntime import ORTModelForSpeechSeq2Seq
from transformers import AutoProcessor

processor = AutoProcessor.from_pretrained("FOLDER")
model = ORTModelForSpeechSeq2Seq.from_pretrained("FOLDER")
sound = np.zeros(16000, np.float32)  # 16,000 numbers a second
inputs = processor(sound, sampling_rate=16000, return_tensors="pt")
print(processor.batch_decode(model.generate(**inputs, max_new_tokens=16)))
"""
_OPTIMUM_OTHER = """
from optimum.onnxruntime import CLASS

model = CLASS.from_pretrained("FOLDER")
print(model.input_names, model.output_names)
"""
_CLASSES = {
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
_GENAI_TEXT = """
import onnxruntime_genai as og

model = og.Model("FOLDER")
tokenizer = og.Tokenizer(model)
options = og.GeneratorParams(model)
options.set_search_options(max_length=32)
generator = og.Generator(model, options)
generator.append_tokens(tokenizer.encode("The capital of France is"))
while not generator.is_done():
    generator.generate_next_token()
print(tokenizer.decode(generator.get_sequence(0)))
"""
_GENAI_SPEECH = """
import onnxruntime_genai as og

model = og.Model("FOLDER")
processor = model.create_multimodal_processor()
prompt = "<|startoftranscript|><|en|><|transcribe|><|notimestamps|>"
options = og.GeneratorParams(model)
options.set_search_options(max_length=448)
generator = og.Generator(model, options)
generator.set_inputs(processor([prompt], audios=og.Audios.open("speech.wav")))
while not generator.is_done():
    generator.generate_next_token()
print(processor.decode(generator.get_sequence(0)))
"""


def sentence_lines(about: Subject) -> str:
    """A sentence encoder, or a cross-encoder."""
    return _PAIRS if about.task in ("text-classification", "reranking") else _SENTENCES


def optimum_lines(about: Subject) -> str:
    """The class for the task."""
    if about.task == "automatic-speech-recognition":
        return _OPTIMUM_SPEECH
    name = f"ORTModelFor{_CLASSES.get(about.task, 'CustomTasks')}"
    lines = _OPTIMUM_TEXT if "input_ids" in about.inputs and "pixel_values" not in about.inputs else _OPTIMUM_OTHER
    writes = about.task in ("text-generation", "text2text-generation")
    result = "tokenizer.batch_decode(model.generate(**inputs, max_new_tokens=16))" if writes else "model(**inputs)[0]"
    return lines.replace("CLASS", name).replace("RESULT", result)


def genai_lines(about: Subject) -> str:
    """A text to continue, or a sound to write down."""
    return _GENAI_SPEECH if about.task == "automatic-speech-recognition" else _GENAI_TEXT


_JS_HEAD = """
import { IMPORTS } from "@huggingface/transformers";

env.allowRemoteModels = false;
env.localModelPath = "."; // where FOLDER is
"""
_JS_EMBEDDING = """
const tokenizer = await AutoTokenizer.from_pretrained("FOLDER");
const model = await AutoModel.from_pretrained("FOLDER");
const inputs = await tokenizer(["A cat sits on a rug.", "Interest rates rose again."], { padding: true });
const { sentence_embedding } = await model(inputs);
console.log(sentence_embedding.tolist());
"""
_JS_RERANKING = """
const tokenizer = await AutoTokenizer.from_pretrained("FOLDER");
const model = await AutoModelForSequenceClassification.from_pretrained("FOLDER");
const texts = ["A cat sits on a rug.", "Interest rates rose again."];
const queries = texts.map(() => "Where does the cat sit?");
const inputs = await tokenizer(queries, { text_pair: texts, padding: true });
const { logits } = await model(inputs);
console.log(logits.tolist());
"""
_JS_IMAGE_TEXT = """
const processor = await AutoProcessor.from_pretrained("FOLDER");
const model = await AutoModelForImageTextToText.from_pretrained("FOLDER");
const content = [{ type: "image" }, { type: "text", text: "What is on the image?" }];
const prompt = processor.apply_chat_template([{ role: "user", content }], { add_generation_prompt: true });
const inputs = await processor(prompt, [await load_image("image.png")]);
const tokens = await model.generate({ ...inputs, max_new_tokens: 64 });
console.log(processor.batch_decode(tokens, { skip_special_tokens: true }));
"""
_JS_PIPELINE = """
const run = await pipeline("TASK", "FOLDER");
console.log(await run(ARGUMENTS));
"""
_JS_FEATURES = """
const run = await pipeline("feature-extraction", "FOLDER");
console.log((await run(["A cat sits on a rug.", "Interest rates rose again."])).tolist());
"""
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


def javascript_lines(about: Subject) -> str:
    """A pipeline, or the classes where no pipeline does it."""
    if about.task == "sentence-similarity":
        return _importing("AutoModel", "AutoTokenizer") + _JS_EMBEDDING
    if about.task == "reranking":
        return _importing("AutoModelForSequenceClassification", "AutoTokenizer") + _JS_RERANKING
    if about.task == "feature-extraction":
        return _importing("pipeline") + _JS_FEATURES
    if about.task == "image-text-to-text":
        return _importing("AutoModelForImageTextToText", "AutoProcessor", "load_image") + _JS_IMAGE_TEXT
    arguments = _JS_ARGUMENTS.get(about.task, '"A cat sits on a rug."')
    return _importing("pipeline") + _JS_PIPELINE.replace("TASK", about.task).replace("ARGUMENTS", arguments)


def _importing(*names: str) -> str:
    return _JS_HEAD.replace("IMPORTS", ", ".join(sorted([*names, "env"])))


_TRITON = """
# tritonserver --model-repository FOLDER
import numpy as np
import tritonclient.http as triton

inputs = [
INPUTS
]
arrays = [
ARRAYS
]
for value, array in zip(inputs, arrays):
    value.set_data_from_numpy(array)
answer = triton.InferenceServerClient("localhost:8000").infer("MODEL", inputs)
print(answer.as_numpy("OUTPUT"))
"""


def triton_lines(about: Subject) -> str:
    """A request with arrays of zeros."""
    inputs = [
        f'    triton.InferInput("{name}", {_shape(kind)}, "{data_type(kind)}"),' for name, kind in about.inputs.items()
    ]
    arrays = [f"    {zeros(kind)}," for kind in about.inputs.values()]
    lines = _TRITON.replace("INPUTS", "\n".join(inputs)).replace("ARRAYS", "\n".join(arrays))
    return lines.replace("MODEL", model_name(about.checkpoint)).replace("OUTPUT", next(iter(about.files[0].outputs)))


def lines_for(layout: str, about: Subject) -> tuple[str, str]:
    """The language of the lines, as Markdown calls it, and the lines.

    Args:
        layout: the name of a layout.
        about: the folder that they load.
    """
    language, lines = _CODE[layout]
    return language, about.fill(lines(about))


_CODE: Mapping[str, tuple[str, Callable[[Subject], str]]] = {
    "onnxruntime": ("python", onnxruntime_lines),
    "transformers.js": ("js", javascript_lines),
    "sentence-transformers": ("python", sentence_lines),
    "optimum": ("python", optimum_lines),
    "genai": ("python", genai_lines),
    "triton": ("python", triton_lines),
    "web": ("sh", lambda _: "# open FOLDER/index.html in a browser: it needs neither a network nor a server"),
}
