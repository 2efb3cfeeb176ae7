"""Lines for onnxruntime alone, with NumPy and the library tokenizers."""

from __future__ import annotations

from lucid.layouts.loading.subject import Subject, zeros

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
_IMAGES = f"""{_IMPORTS}
session = onnxruntime.InferenceSession("FILE")
inputs = {{
ROWS
}}  # images decoded, such as np.asarray(PIL.Image.open("image.png").convert("RGB"))[None]
print(session.run(None, inputs)[0])
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


def onnxruntime_lines(about: Subject) -> str:
    """A text, a step after another, or arrays of zeros where preprocessor_config.json says what they hold."""
    if not about.takes_texts and about.reads_text and not about.has_tokenizer and len(about.files) == 1:
        return _OTHER.replace("ROWS", _zeros(about))
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
