"""Lines for transformers.js, in Node or in a page."""

from __future__ import annotations

from lucid.layouts.loading.subject import Subject

_HEAD = """
import { IMPORTS } from "@huggingface/transformers";

env.allowRemoteModels = false;
env.localModelPath = "."; // where FOLDER is
"""
_EMBEDDING = """
const tokenizer = await AutoTokenizer.from_pretrained("FOLDER");
const model = await AutoModel.from_pretrained("FOLDER");
const inputs = await tokenizer(["A cat sits on a rug.", "Interest rates rose again."], { padding: true });
const { sentence_embedding } = await model(inputs);
console.log(sentence_embedding.tolist());
"""
_RERANKING = """
const tokenizer = await AutoTokenizer.from_pretrained("FOLDER");
const model = await AutoModelForSequenceClassification.from_pretrained("FOLDER");
const texts = ["A cat sits on a rug.", "Interest rates rose again."];
const queries = texts.map(() => "Where does the cat sit?");
const inputs = await tokenizer(queries, { text_pair: texts, padding: true });
const { logits } = await model(inputs);
console.log(logits.tolist());
"""
_PIPELINE = """
const run = await pipeline("TASK", "FOLDER");
console.log(await run(ARGUMENTS));
"""
_FEATURES = """
const run = await pipeline("feature-extraction", "FOLDER");
console.log((await run(["A cat sits on a rug.", "Interest rates rose again."])).tolist());
"""
_ARGUMENTS = {
    "question-answering": '"Where does the cat sit?", "A cat sits on a rug."',
    "fill-mask": "`A cat sits on a ${run.tokenizer.mask_token}.`",
    "text-generation": '"The capital of France is", { max_new_tokens: 16 }',
    "text2text-generation": '"translate English to German: A cat.", { max_new_tokens: 16 }',
    "automatic-speech-recognition": "new Float32Array(16000)",
    "image-classification": '"image.png"',
    "image-feature-extraction": '"image.png"',
    "zero-shot-image-classification": '"image.png", ["a cat", "a dog"]',
}


def javascript_lines(about: Subject) -> str:
    """A pipeline, or the classes where no pipeline does it."""
    if about.task == "sentence-similarity":
        return _importing("AutoModel", "AutoTokenizer") + _EMBEDDING
    if about.task == "reranking":
        return _importing("AutoModelForSequenceClassification", "AutoTokenizer") + _RERANKING
    if about.task == "feature-extraction":
        return _importing("pipeline") + _FEATURES
    arguments = _ARGUMENTS.get(about.task, '"A cat sits on a rug."')
    return _importing("pipeline") + _PIPELINE.replace("TASK", about.task).replace("ARGUMENTS", arguments)


def _importing(*names: str) -> str:
    return _HEAD.replace("IMPORTS", ", ".join(sorted([*names, "env"])))
