"""Lines for libraries in Python: sentence-transformers, optimum, onnxruntime-genai."""

from __future__ import annotations

from lucid.layouts.loading.subject import Subject

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
