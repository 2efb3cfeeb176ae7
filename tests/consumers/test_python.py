"""Libraries in Python: each loads the folder that is written for it, and gives what NumPy gives."""

from __future__ import annotations

import json
import shutil
from typing import Any

import numpy as np
import onnx
import onnxruntime
import openvino
import pytest
import torch
from fastembed import TextEmbedding
from fastembed.common.model_description import ModelSource, PoolingType
from google.protobuf import text_format
from onnx.reference import ReferenceEvaluator
from optimum import onnxruntime as ort
from sentence_transformers import CrossEncoder, SentenceTransformer
from tritonclient.grpc.model_config_pb2 import ModelConfig

import lucid
from lucid.generation import EncoderDecoderGenerator, Generator
from tests.consumers.folders import TEXTS, WORK, checkpoint, close, computed, eager, exported, run_lines, tokens

PROMPT = np.array([[5, 9, 3, 11, 7]])


def torch_inputs(arrays: dict[str, Any]) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


# Cards ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variant", "layout", "printed"),
    [
        ("minilm", "onnxruntime", "[["),
        ("minilm", "sentence-transformers", "[["),
        ("minilm", "optimum", "tensor"),
        ("llama/llama2", "onnxruntime", ""),
        ("llama/llama2", "optimum", "["),
        ("t5/v1_0", "onnxruntime", ""),
        ("t5/v1_0", "optimum", "["),
        ("tasks/bert_reranking", "sentence-transformers", "["),
        ("vit/classifier", "onnxruntime", "[["),
        ("vit/classifier", "optimum", "pixel_values"),
        ("smollm2", "genai", "Paris"),
        ("smollm2", "onnxruntime", "Paris"),
    ],
)
def test_the_lines_of_a_card_load_its_folder(variant: str, layout: str, printed: str) -> None:
    assert printed in run_lines(exported(variant, layout))


# sentence-transformers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "variant", ["minilm", "sentences/cls", "sentences/dense", "sentences/joined", "sentences/last_then_max"]
)
def test_sentence_transformers_gives_our_embeddings(variant: str) -> None:
    folder = exported(variant, "sentence-transformers")
    model = SentenceTransformer(str(folder), backend="onnx")
    texts = TEXTS if variant == "minilm" else ["abc", "the cat", "a"]
    close(model.encode(texts), computed(variant, tokens(variant, texts)))


def test_sentence_transformers_puts_the_same_prompts_before_texts() -> None:
    folder = shutil.copytree(exported("sentences/cls", "sentence-transformers"), WORK / "prompted")
    prompts = {"prompts": {"query": "abc ", "document": ""}, "default_prompt_name": "query"}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    model, texts = SentenceTransformer(str(folder), backend="onnx"), ["the cat", "a"]
    for name in (None, "query", "document"):
        embeddings = lucid.batch.Predictor(folder, prompt=name)({"text": texts})["embedding"]
        close(model.encode(texts, prompt_name=name), embeddings)
    close(model.encode(texts, prompt=""), lucid.batch.Predictor(folder, prompt="")({"text": texts})["embedding"])


def test_a_quantized_folder_is_loaded() -> None:
    folder = exported("minilm", "sentence-transformers", "--bits", "8")
    embeddings = SentenceTransformer(str(folder), backend="onnx").encode(TEXTS)
    expected = computed("minilm", tokens("minilm"))
    assert (embeddings * expected).sum(1).min() > 0.99


def test_cross_encoders_give_our_scores() -> None:
    model = CrossEncoder(str(exported("tasks/bert_reranking", "sentence-transformers")), backend="onnx")
    scores = model.predict([("abc", "the cat")], activation_fn=torch.nn.Identity())
    pair = model.tokenizer([("abc", "the cat")], return_tensors="np")
    close(scores, computed("tasks/bert_reranking", dict(pair))[:, 0])


# optimum --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variant", "name"),
    [
        ("bert/base", "FeatureExtraction"),
        ("modernbert/base", "FeatureExtraction"),
        ("tasks/bert_text_classification", "SequenceClassification"),
        ("tasks/roberta_token_classification", "TokenClassification"),
        ("tasks/distilbert_question_answering", "QuestionAnswering"),
        ("bert/masked_lm", "MaskedLM"),
    ],
)
def test_optimum_gives_our_results(variant: str, name: str) -> None:
    model = getattr(ort, f"ORTModelFor{name}").from_pretrained(exported(variant, "optimum"))
    inputs = tokens(variant, ["abc", "the cat"])
    outputs = [value.numpy() for value in model(**torch_inputs(inputs)).values()]
    expected = computed(variant, inputs)
    for one, other in zip(outputs, expected if isinstance(expected, tuple) else (expected,), strict=True):
        close(one, other)


def test_optimum_takes_the_folder_for_transformers_js() -> None:
    model = ort.ORTModelForFeatureExtraction.from_pretrained(exported("bert/base", "transformers.js"))
    inputs = tokens("bert/base", ["abc", "the cat"])
    close(model(**torch_inputs(inputs)).last_hidden_state, computed("bert/base", inputs))


@pytest.mark.parametrize("variant", ["gpt2/base", "llama/llama2", "gemma3/base"])
def test_optimum_writes_our_tokens(variant: str) -> None:
    model = ort.ORTModelForCausalLM.from_pretrained(exported(variant, "optimum"))
    ids = model.generate(torch.from_numpy(PROMPT), max_new_tokens=8, do_sample=False, eos_token_id=None)
    expected = Generator(eager(variant)).generate(PROMPT, max_new_tokens=8)
    assert ids[:, PROMPT.shape[1] :].tolist() == expected.tolist()


def test_optimum_translates_as_we_do() -> None:
    model = ort.ORTModelForSeq2SeqLM.from_pretrained(exported("t5/v1_0", "optimum"))
    ids = model.generate(torch.from_numpy(PROMPT), max_new_tokens=8, do_sample=False, eos_token_id=None)
    expected = EncoderDecoderGenerator(eager("t5/v1_0")).generate(PROMPT, max_new_tokens=8)
    assert ids[:, 1:].tolist() == expected.tolist()


def test_optimum_writes_speech_as_we_do() -> None:
    whisper = eager("whisper/base")
    mels, frames = whisper.encoder_input_specs()["input_features"].shape[1:]
    sound = np.random.default_rng(0).standard_normal((1, mels, frames)).astype(np.float32)
    model = ort.ORTModelForSpeechSeq2Seq.from_pretrained(exported("whisper/base", "optimum"))
    start = torch.tensor([[1, 5]])
    states = model.encoder(input_features=torch.from_numpy(sound), attention_mask=None)
    logits = model(encoder_outputs=states, decoder_input_ids=start).logits
    close(logits, whisper(lucid.tensor(sound), lucid.tensor(start.numpy())).numpy())


def test_optimum_classifies_images_as_we_do() -> None:
    model = ort.ORTModelForImageClassification.from_pretrained(exported("vit/classifier", "optimum"))
    shape = eager("vit/classifier").input_specs()["pixel_values"].shape[1:]
    pixels = np.random.default_rng(0).standard_normal((2, *shape)).astype(np.float32)
    close(model(pixel_values=torch.from_numpy(pixels)).logits, computed("vit/classifier", {"pixel_values": pixels}))


# Others ---------------------------------------------------------------------------------------------------------------


def test_fastembed_gives_our_embeddings() -> None:
    folder = exported("minilm", "transformers.js")
    source = ModelSource(hf="lucid/minilm")
    TextEmbedding.add_custom_model("lucid/minilm", PoolingType.MEAN, True, source, 384, "onnx/model.onnx")
    model = TextEmbedding("lucid/minilm", specific_model_path=str(folder))
    close(list(model.embed(TEXTS)), computed("minilm", tokens("minilm")))


@pytest.mark.parametrize("variant", ["minilm", "gpt2/base", "clip/gelu", "vit/classifier"])
def test_triton_reads_the_config_and_the_file_has_what_it_says(variant: str) -> None:
    (home,) = (path for path in exported(variant, "triton").iterdir() if path.is_dir())
    config = text_format.Parse((home / "config.pbtxt").read_text(), ModelConfig())
    session = onnxruntime.InferenceSession(home / "1" / config.default_model_filename)
    assert config.name == home.name
    for declared, actual in ((config.input, session.get_inputs()), (config.output, session.get_outputs())):
        assert [value.name for value in declared] == [value.name for value in actual]
        for value, real in zip(declared, actual, strict=True):
            sizes = [size if isinstance(size, int) else -1 for size in real.shape]
            assert [*([-1] if config.max_batch_size else []), *value.dims] == sizes


def test_openvino_gives_our_embeddings() -> None:
    folder = exported("minilm", "onnxruntime", "--target", "openvino")
    model = openvino.compile_model(folder / "model.onnx", "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    inputs = tokens("minilm")
    outputs = model({**inputs, "token_type_ids": 0 * inputs["input_ids"]})
    close(outputs["sentence_embedding"], computed("minilm", inputs))


def test_onnx_itself_gives_our_embeddings() -> None:
    folder = exported("minilm", "onnxruntime", "--target", "any")
    inputs = tokens("minilm", TEXTS[:1])
    outputs: Any = ReferenceEvaluator(onnx.load(folder / "model.onnx")).run(
        ["sentence_embedding"], {**inputs, "token_type_ids": 0 * inputs["input_ids"]}
    )
    close(outputs[0], computed("minilm", inputs))


def test_no_folder_has_the_paths_of_this_machine() -> None:
    for layout in ("onnxruntime", "sentence-transformers", "optimum"):
        for path in exported("minilm", layout).rglob("*.json"):
            assert str(checkpoint("minilm").parent) not in path.read_text(encoding="utf-8")
