"""ModernBERT (Warner et al. 2024): an encoder with rotary positions, whose layers attend to a window or to everything.

::

    encoder = ModernBert.from_pretrained("folder with config.json and model.safetensors")
    states = encoder(lucid.tensor([[50281, 510, 5798, 50282]]))       # (N, L) to (N, L, hidden_size)
    lucid.export.to_onnx(encoder, path="modernbert.onnx")             # any batch, any length

    model = lucid.models.load("folder of a ModernBertForSequenceClassification")
    logits = model(input_ids, attention_mask)                         # (N, num_labels)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from lucid import Tensor, nn, ops
from lucid.models.checkpoints import option_table as option
from lucid.models.checkpoints.families import FAMILIES
from lucid.models.checkpoints.pretrained import ACTIVATIONS, Checkpoint, Config
from lucid.models.parts import text_encoders as text
from lucid.models.parts.decoders import angles_of
from lucid.models.parts.demonstration import encode_text
from lucid.models.parts.on_model import Reranker
from lucid.models.parts.options import FULL, SLIDING, Rope, layer_types, ropes
from lucid.models.parts.sentences import MultiVectorEncoder, PooledEncoder, Pooling, SparseEncoder


@dataclass(frozen=True)
class ModernBertConfig(text.TextConfig):
    """The sizes and options of a model."""

    vocab_size: int = option.size("vocab_size")
    hidden_size: int = option.size("hidden_size")
    num_heads: int = option.heads("num_attention_heads")
    intermediate_size: int = option.size("intermediate_size")
    layer_types: tuple[str, ...] = option.derived()  # of each layer: SLIDING, which attends to a window, or FULL
    reach: int = option.derived()  # in a window, a token attends to so many tokens on either side
    ropes: Mapping[str, Rope] = option.derived()  # rotary positions by type of layer
    activation: str = option.activation("hidden_activation", "gelu")
    eps: float = option.real("norm_eps", 1e-5)
    norm_bias: bool = option.flag("norm_bias", False)
    attention_bias: bool = option.flag("attention_bias", False)
    mlp_bias: bool = option.flag("mlp_bias", False)
    type_vocab_size: int = 0  # texts have no segments
    head_pooling: str = option.choice(  # of a classifier of texts: the first token, or the mean of all
        "classifier_pooling", {"cls": "cls", "mean": "mean"}, absent="cls"
    )
    head_bias: bool = option.flag("classifier_bias", False)
    decoder_bias: bool = option.flag("decoder_bias", True)  # of the output layer of a masked language model
    head_activation: str = option.activation("classifier_activation", "gelu")

    @classmethod
    def read(cls, options: Config) -> Self:
        width, layers = options.size("hidden_size"), options.layers("num_hidden_layers")
        heads, every = options.heads("num_attention_heads", width), options.whole("global_attn_every_n_layers")
        if width // heads % 2:
            raise options.wrong("num_attention_heads", f"expected heads of an even width, of {width} in all")
        options.only("rope_scaling", None)
        bases = {FULL: "global_rope_theta", SLIDING: "local_rope_theta"}
        if options.is_null("local_rope_theta"):  # the global one is meant
            bases[SLIDING] = bases[FULL]
        return cls.from_rows(
            options,
            layer_types=layer_types(options, layers, [SLIDING if i % every else FULL for i in range(layers)]),
            reach=options.whole("local_attention") // 2,
            ropes=ropes(options, bases),
        )


class ModernBert(text.TextEncoder[ModernBertConfig]):
    """Token ids (N, L) to hidden states (N, L, E). ``attention_mask`` (N, L) is 1 for tokens to keep, 0 for padding."""

    checkpoint = Checkpoint(
        family=FAMILIES["modernbert"],
        read=ModernBertConfig.read,
        ignored_options=[
            "deterministic_flash_attn",
            "sparse_pred.*|tie_word_embeddings",  # how heads are trained and stored
        ],
        renames=[(r"^model\.", "")],
        ignored_keys=[r"^(head|decoder|classifier)\."],
    )

    def __init__(self, config: ModernBertConfig) -> None:
        super().__init__(config)
        self.embeddings = Embeddings(config)
        self.layers = [Layer(config, kind, first=index == 0) for index, kind in enumerate(config.layer_types)]
        self.final_norm = norm(config)
        head_dim = config.hidden_size // config.num_heads
        self.ropes = {
            kind: nn.RotaryEmbedding(head_dim, theta, scaling=scaling)
            for kind, (theta, scaling) in config.ropes.items()
            if kind in config.layer_types
        }

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, token_type_ids: Tensor | None = None
    ) -> Tensor:
        return self.final_norm(super().forward(input_ids, attention_mask, token_type_ids))

    def embed(self, input_ids: Tensor, token_type_ids: Tensor | None, key_mask: Tensor | None) -> Tensor:
        if token_type_ids is not None:
            raise ValueError("ModernBert: token_type_ids are given, but the model has no segments; leave them out")
        return self.embeddings(input_ids)

    def layer_states(self, x: Tensor, key_mask: Tensor | None) -> list[Tensor]:
        states, positions = [x], ops.arange(x.shape[1])
        angles = {kind: angles_of(rope, positions, x.dtype) for kind, rope in self.ropes.items()}
        for layer in self.layers:
            states.append(layer(states[-1], angles[layer.kind], key_mask))
        return states


class Embeddings(nn.Module):
    """Vectors of the tokens, normalised."""

    def __init__(self, c: ModernBertConfig) -> None:
        self.tok_embeddings = nn.Embedding(c.vocab_size, c.hidden_size)
        self.norm = norm(c)

    def forward(self, input_ids: Tensor) -> Tensor:
        return self.norm(self.tok_embeddings(input_ids))


class Layer(nn.Module):
    """Attention, then the feed-forward network, each after its norm, with a residual connection.

    The input of the first layer is normalised already.
    """

    def __init__(self, c: ModernBertConfig, kind: str, first: bool) -> None:
        self.kind = kind
        self.attn_norm = None if first else norm(c)
        self.attn = Attention(c, c.reach if kind == SLIDING else None)
        self.mlp_norm = norm(c)
        self.mlp = FeedForward(c)

    def forward(self, x: Tensor, angles: tuple[Tensor, Tensor], key_mask: Tensor | None) -> Tensor:
        x = x + self.attn(x if self.attn_norm is None else self.attn_norm(x), angles, key_mask)
        return x + self.mlp(self.mlp_norm(x))


class Attention(nn.Module):
    """Attention to all tokens, or to `reach` tokens on either side; one product makes queries, keys and values."""

    def __init__(self, c: ModernBertConfig, reach: int | None) -> None:
        self.Wqkv = nn.Linear(c.hidden_size, 3 * c.hidden_size, c.attention_bias)
        self.Wo = nn.Linear(c.hidden_size, c.hidden_size, c.attention_bias)
        self.num_heads = c.num_heads
        self.window, self.window_after = None if reach is None else reach + 1, reach

    def forward(self, x: Tensor, angles: tuple[Tensor, Tensor], key_mask: Tensor | None) -> Tensor:
        q, k, v = self.Wqkv(x).chunk(3, -1)
        q, k = (ops.rotary_embedding(part, *angles, heads=self.num_heads) for part in (q, k))
        window, after = self.window, self.window_after
        y = ops.attention(q, k, v, None, key_mask, heads=self.num_heads, window=window, window_after=after)
        return self.Wo(y)


class FeedForward(nn.Module):
    """A gated network (Shazeer 2020); one product makes both the activated half and the gate."""

    def __init__(self, c: ModernBertConfig) -> None:
        self.Wi = nn.Linear(c.hidden_size, 2 * c.intermediate_size, c.mlp_bias)
        self.Wo = nn.Linear(c.intermediate_size, c.hidden_size, c.mlp_bias)
        self.activation = ACTIVATIONS[c.activation]

    def forward(self, x: Tensor) -> Tensor:
        x, gate = self.Wi(x).chunk(2, -1)
        return self.Wo(self.activation(x) * gate)


def norm(c: ModernBertConfig) -> nn.LayerNorm:
    """A norm of states, with a bias where the checkpoint has one."""
    return nn.LayerNorm(c.hidden_size, c.eps, bias=c.norm_bias)


# Heads ----------------------------------------------------------------------------------------------------------------


class ModernBertSentenceEncoder(PooledEncoder[ModernBertConfig], ModernBert, on=ModernBert): ...


class Classifier(text.WithHead[ModernBertConfig], ModernBert):
    """The base of heads with labels: one more layer and a norm, then the classifier."""

    label_key = r"classifier\.weight"
    head_names: ClassVar = {"modernbert": ("model.", {"head.layer_norm": "head.norm"})}

    def __init__(self, config: ModernBertConfig) -> None:
        super().__init__(config)
        width = config.hidden_size
        self.head = text.PredictionHead(width, width, config.head_activation, norm(config), config.head_bias)
        self.classifier = nn.Linear(width, config.num_labels)

    def predict(self, states: Tensor, attention_mask: Tensor | None) -> Any:
        return self.classifier(self.head(states))


class ModernBertForSequenceClassification(Classifier, on=ModernBert):
    """Texts, or pairs of texts, (N, L) to logits (N, num_labels)."""

    head_task = "text-classification"

    def predict(self, states: Tensor, attention_mask: Tensor | None) -> Tensor:
        # "cls" is the first place, as in transformers: texts are padded on the right.
        mean = self.config.head_pooling == "mean"
        pooled = Pooling(("mean",))(states, attention_mask) if mean else states[:, 0]
        return self.classifier(self.head(pooled))


class ModernBertForReranking(Reranker[ModernBertConfig], ModernBertForSequenceClassification, on=ModernBert): ...


class ModernBertForMultipleChoice(
    text.MultipleChoice[ModernBertConfig], ModernBertForSequenceClassification, on=ModernBert
): ...


class ModernBertForTokenClassification(Classifier, on=ModernBert):
    """Token ids (N, L) to the logits of each token, (N, L, num_labels)."""

    head_task = "token-classification"


class ModernBertForQuestionAnswering(Classifier, on=ModernBert):
    """A question and a text (N, L) to the logits of the answer's first and last token, (N, L) each."""

    head_task, label_count = "question-answering", 2
    output_names = ("start_logits", "end_logits")

    def predict(self, states: Tensor, attention_mask: Tensor | None) -> tuple[Tensor, Tensor]:
        return text.start_and_end(super().predict(states, attention_mask))


class ModernBertForMaskedLM(text.MaskedLM[ModernBertConfig], ModernBert, on=ModernBert):
    table_key = "embeddings.tok_embeddings.weight"
    head_renames = (
        (r"^head\.dense\.", "lm_head.dense."),
        (r"^head\.norm\.", "lm_head.layer_norm."),
        (r"^decoder\.weight$", "lm_head.decoder.weight"),
        (r"^decoder\.bias$", "lm_head.bias"),
    )

    def language_model_head(self, config: ModernBertConfig, inner: int) -> text.LanguageModelHead:
        biases = config.head_bias, config.decoder_bias
        return text.LanguageModelHead(config, inner, config.head_activation, norm(config), *biases)

    @property
    def table(self) -> Tensor:
        table: Tensor = self.embeddings.tok_embeddings.weight
        return table


class ModernBertSparseEncoder(SparseEncoder[ModernBertConfig], ModernBertForMaskedLM, on=ModernBert): ...


class ModernBertMultiVectorEncoder(MultiVectorEncoder[ModernBertConfig], ModernBert, on=ModernBert): ...


if __name__ == "__main__":
    encode_text(ModernBert, "modernbert/base", 1, 5, 7, 2)
