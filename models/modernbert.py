"""ModernBERT (Warner et al. 2024): an encoder with rotary positions, whose layers attend to a window or to everything.

::

    encoder = ModernBert.from_pretrained("folder with config.json and model.safetensors")
    states = encoder(lucid.tensor([[50281, 510, 5798, 50282]]))       # (N, L) to (N, L, hidden_size)
    lucid.export.to_onnx(encoder, path="modernbert.onnx")             # any batch, any length

Modules have the names of the published checkpoints, and so do the weights of an exported model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import lucid
from lucid import Tensor, nn, ops
from lucid.models.checkpoints.families import FAMILIES
from lucid.models.checkpoints.pretrained import ACTIVATIONS, Checkpoint, Config, Pretrained
from lucid.models.parts.demonstration import SideBySide, checkpoint_folder, ones_like, token_ids
from lucid.models.parts.options import FULL, SLIDING, Rope, layer_types, ropes
from lucid.models.parts.sentence_encoder import PooledEncoder
from lucid.models.parts.sentence_layers import USUAL_LAYERS, SentenceLayer


@dataclass(frozen=True)
class ModernBertConfig:
    """The sizes and options of a model."""

    vocab_size: int
    hidden_size: int
    num_heads: int
    intermediate_size: int
    layer_types: tuple[str, ...]  # of each layer: SLIDING, which attends to a window, or FULL
    reach: int  # in a window, a token attends to so many tokens on either side
    ropes: Mapping[str, Rope]  # rotary positions by type of layer
    activation: str = "gelu"
    eps: float = 1e-5
    norm_bias: bool = False
    attention_bias: bool = False
    mlp_bias: bool = False
    type_vocab_size: int = 0  # texts have no segments
    head_pooling: str = "cls"  # of a classifier of texts: the first token, or the mean of all
    head_bias: bool = False
    decoder_bias: bool = True  # of the output layer of a masked language model
    head_activation: str = "gelu"
    num_labels: int = 0
    own_output: bool = False  # of a MaskedLM, whose output layer is not the table of token vectors
    sentence_layers: tuple[SentenceLayer, ...] = USUAL_LAYERS  # of a ModernBertSentenceEncoder

    @classmethod
    def read(cls, options: Config) -> Self:
        """From config.json."""
        width, layers = options.size("hidden_size"), options.layers("num_hidden_layers")
        heads, every = options.heads("num_attention_heads", width), options.whole("global_attn_every_n_layers")
        if width // heads % 2:
            raise options.wrong("num_attention_heads", f"expected heads of an even width, of {width} in all")
        options.only("rope_scaling", None)
        bases = {FULL: "global_rope_theta", SLIDING: "local_rope_theta"}
        if options.is_null("local_rope_theta"):  # the global one is meant
            bases[SLIDING] = bases[FULL]
        return cls(
            vocab_size=options.size("vocab_size"),
            hidden_size=width,
            num_heads=heads,
            intermediate_size=options.size("intermediate_size"),
            layer_types=layer_types(options, layers, [SLIDING if i % every else FULL for i in range(layers)]),
            reach=options.whole("local_attention") // 2,
            ropes=ropes(options, bases),
            activation=options.activation("hidden_activation"),
            eps=options.real("norm_eps"),
            norm_bias=options.get("norm_bias", bool),
            attention_bias=options.get("attention_bias", bool),
            mlp_bias=options.get("mlp_bias", bool),
            head_pooling=options.choose("classifier_pooling", {"cls": "cls", "mean": "mean"}, "cls"),
            head_bias=options.get("classifier_bias", bool),
            decoder_bias=options.get("decoder_bias", bool),
            head_activation=options.activation("classifier_activation"),
        )


class ModernBert(Pretrained[ModernBertConfig]):
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
    output_names: ClassVar[Sequence[str]] = ("last_hidden_state",)

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

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        return self.final_norm(self.hidden_states(input_ids, attention_mask)[-1])

    def hidden_states(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> list[Tensor]:
        """The input of the first layer, and the output of each layer, (N, L, hidden_size) each."""
        key_mask = None if attention_mask is None else attention_mask != 0
        states = [self.embeddings(input_ids)]
        positions = ops.arange(input_ids.shape[1])
        angles = {kind: _as(rope(positions), states[0]) for kind, rope in self.ropes.items()}
        for layer in self.layers:
            states.append(layer(states[-1], angles[layer.kind], key_mask))
        return states

    def input_specs(self) -> Mapping[str, lucid.TensorType]:
        return {name: lucid.spec("N", "L", dtype=lucid.int64) for name in ("input_ids", "attention_mask")}


class ModernBertSentenceEncoder(PooledEncoder[ModernBertConfig], ModernBert):
    """ModernBert with the pooling and the layers on top that modules.json lists: one vector for each text, (N, E).

    Without a modules.json it is the mean of the kept tokens' states, scaled to length 1.
    """

    checkpoint = replace(ModernBert.checkpoint, head="sentence-similarity")

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        return self.sentence_embedding(super().forward(input_ids, attention_mask), attention_mask)


class Embeddings(nn.Module):
    """Of the tokens, normalised."""

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
    """A gated network (Shazeer 2020); one product makes what is activated and the gate."""

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


def _as(angles: tuple[Tensor, Tensor], x: Tensor) -> tuple[Tensor, Tensor]:
    """Cosines and sines in the element type of x, also after to(...)."""
    cos, sin = angles
    return cos.astype(x.dtype), sin.astype(x.dtype)


def main() -> None:
    """Encode a text, given as token ids, with the exported model: ``python -m lucid.models.modernbert FOLDER 5 6``."""
    ids = token_ids(1, 5, 7, 2)
    both = SideBySide(ModernBert.from_pretrained(checkpoint_folder("modernbert/base")))
    states = both(ids, ones_like(ids))
    print(f"hidden states {list(states.shape)}, {both.nodes} ONNX nodes, {both.verdict('states')}")


if __name__ == "__main__":
    main()
