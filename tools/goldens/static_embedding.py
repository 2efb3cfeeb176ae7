"""Static embeddings: folders that sentence-transformers 6 and Model2Vec write, and what they make of ids and of texts.

Both libraries are needed. The tokenizer adds special tokens and cuts texts off, as those of BERT do: the libraries leave out
the former.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from .core import normal, text_cases, write_json

WORDS = "the a cat dog sat ran on in mat rug of and is was big small red blue old new house tree river ##s ##ed ##ing"
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS.split(), *".,!?-'xyz"]
TEXTS = [
    "The cat sat on the mat.",
    "cats",
    "A zebra ran in the house!",  # with an unknown word
    "The big dog and the small cat ran in the old house and sat on the new rug of the red tree house.",  # is cut off
]
WIDTH, LENGTH = 8, 12


def tokenizer() -> Tokenizer:
    """WordPiece with BERT's special tokens around each text, padding, and a length."""
    words = Tokenizer(models.WordPiece({word: number for number, word in enumerate(VOCABULARY)}, unk_token="[UNK]"))
    words.normalizer, words.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    words.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    words.enable_padding(pad_id=0, pad_token="[PAD]")
    words.enable_truncation(LENGTH)
    return words


def finish(folder: Path, note: str, embed: Callable[[Tensor, Tensor], Tensor], texts: dict[str, Any]) -> None:
    """Write the cases of ids and of texts, and leave out what is not read."""
    tensors: dict[str, Tensor] = {}
    cases = text_cases(len(VOCABULARY), 0, compare="all", seed=700)
    for name, case in cases.items():
        mask = case.inputs.get("attention_mask", torch.ones_like(case.inputs["input_ids"]))
        with torch.no_grad():
            arrays = {**case.inputs, "sentence_embedding": embed(case.inputs["input_ids"], mask)}
        tensors |= {f"{name}.{key}": value.contiguous() for key, value in arrays.items()}
    save_file(tensors, folder / "io.safetensors")
    listed = {
        name: {"about": case.about, "inputs": list(case.inputs), "compare": "all"} for name, case in cases.items()
    }
    write_json(
        folder / "cases.json",
        {"class": "SentenceTransformer", "note": note, "outputs": ["sentence_embedding"], "cases": listed},
    )
    rounded = {name: [[float(f"{x:.7g}") for x in row] for row in rows.tolist()] for name, rows in texts.items()}
    (folder / "texts.json").write_text(json.dumps({"texts": TEXTS, **rounded}) + "\n")
    for name in ("README.md", ".gitattributes"):
        (folder / name).unlink(missing_ok=True)
    for path in folder.rglob("*.*"):
        path.chmod(0o644 if path.is_file() else 0o755)


def of_bags(model: Any) -> Callable[[Tensor, Tensor], Tensor]:
    """The embeddings of ids (N, L) by modules that take texts one after the other, without padding."""

    def embed(input_ids: Tensor, mask: Tensor) -> Tensor:
        rows = [ids[kept == 1] for ids, kept in zip(input_ids, mask, strict=True)]
        offsets = torch.tensor([0, *(len(row) for row in rows[:-1])]).cumsum(0)
        features: dict[str, Tensor] = {"input_ids": torch.cat(rows), "offsets": offsets}
        for module in model:
            features = module(features)
        return features["sentence_embedding"]

    return embed


def normalized(folder: Path) -> None:
    """sentence-transformers' own folder: a table, and lengths of 1."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, StaticEmbedding

    table = normal((len(VOCABULARY), WIDTH), 701)
    modules = [StaticEmbedding(tokenizer(), embedding_weights=table), Normalize()]
    SentenceTransformer(modules=modules, device="cpu").save_pretrained(str(folder), create_model_card=False)
    model = SentenceTransformer(str(folder), device="cpu")
    finish(folder, "a StaticEmbedding and Normalize", of_bags(model), {"embeddings": model.encode(TEXTS)})


def model2vec(folder: Path) -> None:
    """Model2Vec's folder: float16 vectors that tokens share, and a weight for each token. It reads unknown words otherwise
    than sentence-transformers."""
    from model2vec import StaticModel
    from sentence_transformers import SentenceTransformer

    generator = torch.Generator().manual_seed(702)
    places = torch.randint(0, 9, (len(VOCABULARY),), generator=generator)
    static = StaticModel(
        normal((9, WIDTH), 703).half().numpy(),
        tokenizer(),
        {"model_type": "model2vec", "architectures": ["StaticModel"], "tokenizer_name": "tiny", "apply_pca": WIDTH},
        normalize=True,
        weights=normal((len(VOCABULARY),), 704).exp().numpy(),
        token_mapping=places.numpy(),
    )
    static.save_pretrained(folder)
    model = SentenceTransformer(str(folder), device="cpu")
    texts = {"embeddings": model.encode(TEXTS), "by_model2vec": StaticModel.from_pretrained(folder).encode(TEXTS)}
    finish(folder, "Model2Vec's weights with a mapping, read by sentence-transformers", of_bags(model), texts)


def sparse(folder: Path) -> None:
    """A weight for each token, some below 0."""
    from sentence_transformers import SparseEncoder
    from sentence_transformers.sparse_encoder.modules import SparseStaticEmbedding

    words = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer(), unk_token="[UNK]", pad_token="[PAD]", model_max_length=LENGTH
    )
    module = SparseStaticEmbedding(words, weight=normal((len(VOCABULARY),), 705))
    SparseEncoder(modules=[module], device="cpu").save_pretrained(str(folder), create_model_card=False)
    model = SparseEncoder(str(folder), device="cpu")

    def embed(input_ids: Tensor, mask: Tensor) -> Tensor:
        (module,) = model
        embedding: Tensor = module({"input_ids": input_ids, "attention_mask": mask})["sentence_embedding"]
        return embedding

    texts = {"embeddings": model.encode(TEXTS, convert_to_sparse_tensor=False)}
    finish(folder, "a SparseStaticEmbedding", embed, texts)


def store_all(root: Path) -> None:
    """All of them."""
    shutil.rmtree(root, ignore_errors=True)
    for write in (normalized, model2vec, sparse):
        (root / write.__name__).mkdir(parents=True)
        write(root / write.__name__)
        print(json.dumps(sorted(str(path.relative_to(root)) for path in (root / write.__name__).rglob("*.*"))))
