"""transformers.js and onnxruntime-node load what is written for them, and give what NumPy gives."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lucid
from examples import head
from examples.browser import __main__ as browser_page
from lucid.generation import EncoderDecoderGenerator, Generator
from lucid.inspection import inspect_model
from lucid.runtime import Training
from tests.consumers.folders import TEXTS, WORK, close, computed, eager, exported, lines, sent, tokens
from tests.models import goldens
from tests.waiting import PATIENCE

HERE = Path(__file__).parent
NODE = shutil.which("node")
PROMPT = np.array([[5, 9, 3, 11, 7]])


def node(*arguments: object) -> str:
    assert NODE is not None, "make test-consumers needs Node"
    done = subprocess.run([NODE, *map(str, arguments)], cwd=WORK, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    return done.stdout


def run_program(**request: Any) -> Any:
    """The answer to one request of consumer.mjs."""
    inputs = {name: sent(array) for name, array in request.pop("inputs", {}).items()}
    folder = Path(request.pop("folder")).name
    request_file = WORK / "request.json"
    request_file.write_text(
        json.dumps({"work": str(WORK), "requests": [{**request, "folder": folder, "inputs": inputs}]})
    )
    return json.loads(node(HERE / "consumer.mjs", request_file))[0]


@pytest.mark.parametrize("target", ["any", "portable", "cpu"])
@pytest.mark.parametrize(
    "variant", ["bert/base", "gpt2/base", "llama/llama3", "gemma3/base", "t5/v1_1", "whisper/base"]
)
def test_files_give_in_onnxruntime_node_what_numpy_gives(variant: str, target: Any) -> None:
    path = WORK / f"{variant.replace('/', '-')}-{target}.onnx"
    graph = lucid.trace(eager(variant))
    lucid.export.to_onnx(graph, target=target, path=path)
    (loader,) = (each for each in inspect_model(path).loaders if "-node" in each.name)
    assert loader.loads, loader
    inputs = goldens.as_exported(goldens.cases(variant)[0].inputs, [value.name for value in graph.inputs])
    feeds = {value.name: inputs[value.name] for value in graph.inputs}
    outputs = run_program(kind="file", folder=path, inputs=feeds)
    for name, expected in zip(graph.output_names, graph.run(list(feeds.values())), strict=True):
        close(np.array(outputs[name]).reshape(expected.shape), expected)


def segmented(inputs: dict[str, Any]) -> dict[str, Any]:
    return {**inputs, "token_type_ids": 0 * inputs["input_ids"]}


def test_sentence_embeddings_are_ours_from_the_model_and_from_the_pipeline() -> None:
    folder, inputs = exported("minilm", "transformers.js"), tokens("minilm")
    expected = computed("minilm", inputs)
    outputs = run_program(
        kind="model",
        **{"class": "AutoModel"},
        folder=folder,
        inputs=segmented(inputs),
        outputs=["sentence_embedding", "last_hidden_state"],
    )
    close(outputs["sentence_embedding"], expected)
    close(outputs["last_hidden_state"], computed("minilm", inputs, "feature-extraction"))
    pooled = run_program(
        kind="pipeline",
        task="feature-extraction",
        folder=folder,
        arguments=[TEXTS, {"pooling": "mean", "normalize": True}],
    )
    close(pooled, expected)


def test_decoders_write_our_tokens() -> None:
    inputs = {"input_ids": PROMPT, "attention_mask": np.ones_like(PROMPT)}
    for variant in ("gpt2/base", "llama/llama3", "qwen3/base", "gemma3/base"):
        folder = exported(variant, "transformers.js")
        rows = run_program(kind="tokens", **{"class": "AutoModelForCausalLM"}, folder=folder, inputs=inputs, count=8)
        expected = Generator(eager(variant)).generate(PROMPT, max_new_tokens=8)
        assert [row[PROMPT.shape[1] :] for row in rows] == expected.tolist(), variant


def test_a_model_of_images_and_texts_writes_our_tokens() -> None:
    case = goldens.cases("smolvlm/base")[0]
    ids, pixels = case.inputs["input_ids"], case.inputs["pixel_values"]
    kept = np.ones((*pixels.shape[:2], *pixels.shape[3:]), bool)
    folder = exported("smolvlm/base", "transformers.js")
    generated = run_program(
        kind="tokens",
        **{"class": "AutoModelForImageTextToText"},
        folder=folder,
        inputs={
            "input_ids": ids,
            "attention_mask": np.ones_like(ids),
            "pixel_values": pixels,
            "pixel_attention_mask": kept,
        },
        count=6,
    )
    for _ in range(6):
        logits = computed("smolvlm/base", {"input_ids": ids, "pixel_values": pixels})
        ids = np.concatenate([ids, logits[:, -1:].argmax(-1)], 1)
    assert generated == ids.tolist()


def test_encoder_decoders_write_our_tokens() -> None:
    inputs = {"input_ids": PROMPT, "attention_mask": np.ones_like(PROMPT)}
    folder = exported("t5/v1_1", "transformers.js")
    rows = run_program(kind="tokens", **{"class": "AutoModelForSeq2SeqLM"}, folder=folder, inputs=inputs, count=8)
    expected = EncoderDecoderGenerator(eager("t5/v1_1")).generate(PROMPT, max_new_tokens=8)
    assert [row[1:] for row in rows] == expected.tolist()


@pytest.mark.parametrize(
    ("variant", "name"),
    [
        ("tasks/bert_text_classification", "AutoModelForSequenceClassification"),
        ("tasks/bert_token_classification", "AutoModelForTokenClassification"),
        ("bert/masked_lm", "AutoModelForMaskedLM"),
    ],
)
def test_heads_give_our_logits(variant: str, name: str) -> None:
    inputs = tokens(variant, ["abc", "the cat"])
    folder = exported(variant, "transformers.js")
    outputs = run_program(kind="model", **{"class": name}, folder=folder, inputs=segmented(inputs), outputs=["logits"])
    close(outputs["logits"], computed(variant, inputs))


def test_the_pipeline_of_text_classification_gives_our_label() -> None:
    variant = "tasks/bert_text_classification"
    folder = exported(variant, "transformers.js")
    (answer,) = run_program(kind="pipeline", task="text-classification", folder=folder, arguments=["the cat"])
    logits = computed(variant, tokens(variant, ["the cat"]))[0]
    chances = np.exp(logits) / np.exp(logits).sum()
    assert answer["label"] == f"LABEL_{chances.argmax()}"
    close(answer["score"], chances.max())


def test_images_are_classified_as_we_do() -> None:
    shape = eager("vit/classifier").input_specs()["pixel_values"].shape[1:]
    pixels = np.random.default_rng(0).standard_normal((2, *shape)).astype(np.float32)
    outputs = run_program(
        kind="model",
        **{"class": "AutoModelForImageClassification"},
        folder=exported("vit/classifier", "transformers.js"),
        inputs={"pixel_values": pixels},
        outputs=["logits"],
    )
    close(outputs["logits"], computed("vit/classifier", {"pixel_values": pixels}))


@pytest.mark.parametrize(
    ("options", "least"),
    [
        (["--dtype", "float16"], 0.99999),
        (["--bits", "8"], 0.99),
        (["--bits", "4"], 0.95),
        (["--bits", "4", "--dtype", "float16"], 0.95),
        (["--external-data"], 0.9999999),
    ],
    ids=str,
)
def test_the_file_is_found_by_what_the_config_says(options: list[str], least: float) -> None:
    """Without any option in the program."""
    inputs = tokens("minilm", TEXTS[:2])
    outputs = run_program(
        kind="model",
        **{"class": "AutoModel"},
        folder=exported("minilm", "transformers.js", *options),
        inputs=segmented(inputs),
        outputs=["sentence_embedding"],
    )
    assert (np.array(outputs["sentence_embedding"]) * computed("minilm", inputs)).sum(1).min() > least


def test_a_program_chooses_among_several_precisions() -> None:
    inputs = tokens("minilm", TEXTS[:2])
    request = {
        "kind": "model",
        "class": "AutoModel",
        "folder": exported("minilm", "transformers.js", "--bits", "8,4,float", "--dtype", "float16"),
        "inputs": segmented(inputs),
        "outputs": ["sentence_embedding"],
    }
    expected, embeddings = computed("minilm", inputs), {}
    for dtype in (None, "q8", "q4", "fp32", "fp16"):
        options = {} if dtype is None else {"options": {"dtype": dtype}}
        embeddings[dtype] = np.array(run_program(**request, **options)["sentence_embedding"])
    least = {"q8": 0.99, "q4": 0.95, "fp32": 0.9999999, "fp16": 0.99999}
    for dtype, cosine in least.items():
        assert (embeddings[dtype] * expected).sum(1).min() > cosine
    assert len({embeddings[dtype].tobytes() for dtype in least}) == len(least)
    np.testing.assert_array_equal(embeddings[None], embeddings["q8"])


def test_the_lines_of_a_card_load_its_folder() -> None:
    for variant, printed in (
        ("minilm", "["),
        ("llama/llama3", "generated_text"),
        ("t5/v1_1", "generated_text"),
        ("modernbert/base", "["),
        ("tasks/bert_text_classification", "LABEL_"),
        ("tasks/bert_token_classification", "LABEL_"),
        ("smollm2", "Paris"),
    ):
        program = WORK / "card.mjs"
        program.write_text(lines(exported(variant, "transformers.js")))
        assert printed in node(program), variant


@pytest.fixture(scope="module", autouse=True)
def _installed() -> None:
    """Programs in WORK find the packages of this folder."""
    modules = WORK / "node_modules"
    if not modules.is_symlink():
        os.symlink(HERE / "node_modules", modules)


def test_the_page_of_make_web_learns_its_ten_sentences_with_the_losses_of_onnxruntime_in_python() -> None:
    section = (browser_page.HERE / "learn.html").read_text(encoding="utf-8")
    delivery, payment = (text.split("\n") for text in re.findall(r"<textarea[^>]*>(.*?)</textarea>", section, re.S))
    vectors = computed("minilm", tokens("minilm", delivery + payment))
    labels, step = np.repeat([0, 1], [len(delivery), len(payment)]), head.training_step(2)
    training = Training(step, head.start(2))
    losses = [training.step(vectors=vectors, labels=labels) for _ in range(40)]

    request = {
        "step": base64.b64encode(step.SerializeToString()).decode("ascii"),
        "inputs": {"vectors": sent(vectors), "labels": sent(labels)},
        "steps": len(losses),
    }
    (WORK / "training.json").write_text(json.dumps(request))
    code = browser_page.HERE / "training.js"
    result = json.loads(node(HERE / "training.mjs", browser_page.HERE / "node_modules", code, WORK / "training.json"))
    close(result["losses"], losses)
    close(result["weights"]["weight"], training.weights()["weight"].ravel())

    weight, bias = np.reshape(result["weights"]["weight"], (2, -1)), result["weights"]["bias"]
    texts = ["Is my package lost?", "You billed me too much"]
    new = computed("minilm", tokens("minilm", texts))
    assert len(labels) == 10 and ((vectors @ weight.T + bias).argmax(1) == labels).all()
    assert (new @ weight.T + bias).argmax(1).tolist() == [0, 1]
    assert result["error"].startswith("at step 40 the loss is NaN") and result["steps"] == 40
