"""ALBERT (Lan et al. 2019): BERT whose layers share their weights, and whose embeddings are narrower than its states.

::

    encoder = Albert.from_pretrained("folder with config.json and model.safetensors")
    states = encoder(lucid.tensor([[2, 48, 25, 3]]))                  # (N, L) to (N, L, hidden_size)
    lucid.export.to_onnx(encoder, path="albert.onnx")                 # any batch, any length

Modules have the names of the published checkpoints, and so do the weights of an exported model, which holds each once.
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
from lucid.models.parts.sentence_encoder import PooledEncoder
from lucid.models.parts.sentence_layers import USUAL_LAYERS, SentenceLayer
from lucid.models.parts.text_heads import text_specs


@dataclass(frozen=True)
class AlbertConfig:
    """The sizes and options of a model."""

    vocab_size: int
    embedding_size: int
    hidden_size: int
    num_layers: int
    num_heads: int
    intermediate_size: int
    max_positions: int
    type_vocab_size: int = 2
    num_groups: int = 1  # of layers that share their weights
    inner_layers: int = 1  # that a group has, one after the other; each of num_layers is all of them
    activation: str = "gelu_new"
    eps: float = 1e-12
    num_labels: int = 0  # of a head
    own_output: bool = False  # of a MaskedLM, whose output layer is not the table of token vectors
    sentence_layers: tuple[SentenceLayer, ...] = USUAL_LAYERS  # of an AlbertSentenceEncoder

    @classmethod
    def read(cls, options: Config) -> Self:
        """From config.json."""
        options.only("position_embedding_type", "absolute")
        options.only("down_scale_factor", 1)
        for name in ("gap_size", "net_structure_type", "num_memory_blocks"):
            options.only(name, 0)
        width, layers = options.size("hidden_size"), options.layers("num_hidden_layers", numbered=False)
        return cls(
            vocab_size=options.size("vocab_size"),
            embedding_size=options.size("embedding_size"),
            hidden_size=width,
            num_layers=layers,
            num_heads=options.heads("num_attention_heads", width),
            intermediate_size=options.size("intermediate_size"),
            max_positions=options.size("max_position_embeddings"),
            type_vocab_size=options.size("type_vocab_size"),
            num_groups=options.whole("num_hidden_groups", high=layers, why=", the number of layers"),
            inner_layers=options.layers("inner_group_num", numbered=False),
            activation=options.activation("hidden_act"),
            eps=options.real("layer_norm_eps"),
        )


class Albert(Pretrained[AlbertConfig]):
    """Token ids (N, L) to hidden states (N, L, E).

    ``attention_mask`` (N, L) is 1 for tokens to keep, 0 for padding; ``token_type_ids`` (N, L) default to 0.
    """

    checkpoint = Checkpoint(
        family=FAMILIES["albert"],
        read=AlbertConfig.read,
        ignored_options=["tie_word_embeddings"],
        renames=[(r"^albert\.", "")],
        # Heads for other tasks, and position numbers that some checkpoints store.
        ignored_keys=[r"^(pooler|predictions|sop_classifier|classifier|qa_outputs)\.", r"embeddings\.position_ids$"],
    )
    output_names: ClassVar[Sequence[str]] = ("last_hidden_state",)

    def __init__(self, config: AlbertConfig) -> None:
        super().__init__(config)
        self.embeddings = Embeddings(config)
        self.encoder = Encoder(config)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, token_type_ids: Tensor | None = None
    ) -> Tensor:
        key_mask = None if attention_mask is None else attention_mask != 0
        return self.encoder(self.embeddings(input_ids, token_type_ids), key_mask)

    def input_specs(self) -> Mapping[str, lucid.TensorType]:
        return {name: lucid.spec("N", "L", dtype=lucid.int64) for name in ("input_ids", "attention_mask")}

    def full_input_specs(self) -> Mapping[str, lucid.TensorType]:
        return text_specs(self.config.type_vocab_size)


class AlbertSentenceEncoder(PooledEncoder[AlbertConfig], Albert):
    """Albert with the pooling and the layers on top that modules.json lists: one vector for each text, (N, E).

    Without a modules.json it is the mean of the kept tokens' states, scaled to length 1.
    """

    checkpoint = replace(Albert.checkpoint, head="sentence-similarity")

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, token_type_ids: Tensor | None = None
    ) -> Tensor:
        return self.sentence_embedding(super().forward(input_ids, attention_mask, token_type_ids), attention_mask)


class Embeddings(nn.Module):
    """Word + position + token type, normalised: (N, L) to (N, L, embedding_size)."""

    def __init__(self, c: AlbertConfig) -> None:
        self.word_embeddings = nn.Embedding(c.vocab_size, c.embedding_size)
        self.position_embeddings = nn.Embedding(c.max_positions, c.embedding_size)
        self.token_type_embeddings = nn.Embedding(c.type_vocab_size, c.embedding_size)
        self.LayerNorm = nn.LayerNorm(c.embedding_size, c.eps)
        self.max_positions = c.max_positions

    def forward(self, input_ids: Tensor, token_type_ids: Tensor | None) -> Tensor:
        length, most, types = input_ids.shape[1], self.max_positions, self.token_type_embeddings
        if isinstance(length, int) and length > most:
            raise ValueError(f"Albert: {length} tokens, but the checkpoint has {most} positions; truncate the input")
        first = types.weight[0].part_of(types.weight, "[0]")  # its name in an exported model
        x = self.word_embeddings(input_ids) + (first if token_type_ids is None else types(token_type_ids))
        return self.LayerNorm(x + self.position_embeddings.weight[:length])


class Encoder(nn.Module):
    """A layer that widens the embeddings, then the groups of layers, each as often as its share of all layers."""

    def __init__(self, c: AlbertConfig) -> None:
        self.embedding_hidden_mapping_in = nn.Linear(c.embedding_size, c.hidden_size)
        inner = range(c.inner_layers)
        self.albert_layer_groups = [{"albert_layers": [Layer(c) for _ in inner]} for _ in range(c.num_groups)]
        self.num_layers = c.num_layers

    def forward(self, x: Tensor, key_mask: Tensor | None) -> Tensor:
        return self.hidden_states(x, key_mask)[-1]

    def hidden_states(self, x: Tensor, key_mask: Tensor | None) -> list[Tensor]:
        """The input of the first layer, and the output of each layer, (N, L, hidden_size) each."""
        states = [self.embedding_hidden_mapping_in(x)]
        groups = self.albert_layer_groups
        for index in range(self.num_layers):
            x = states[-1]
            for layer in groups[int(index / (self.num_layers / len(groups)))]["albert_layers"]:
                x = layer(x, key_mask)
            states.append(x)
        return states


class Layer(nn.Module):
    """Attention and the feed-forward network, each normalised after its sum with what it reads."""

    def __init__(self, c: AlbertConfig) -> None:
        self.attention = Attention(c)
        self.ffn = nn.Linear(c.hidden_size, c.intermediate_size)
        self.ffn_output = nn.Linear(c.intermediate_size, c.hidden_size)
        self.full_layer_layer_norm = nn.LayerNorm(c.hidden_size, c.eps)
        self.activation = ACTIVATIONS[c.activation]

    def forward(self, x: Tensor, key_mask: Tensor | None) -> Tensor:
        x = self.attention(x, key_mask)
        return self.full_layer_layer_norm(self.ffn_output(self.activation(self.ffn(x))) + x)


class Attention(nn.Module):
    """Attention with its projections, the sum with its input, and a norm."""

    def __init__(self, c: AlbertConfig) -> None:
        self.query, self.key, self.value, self.dense = (nn.Linear(c.hidden_size, c.hidden_size) for _ in range(4))
        self.LayerNorm = nn.LayerNorm(c.hidden_size, c.eps)
        self.num_heads = c.num_heads

    def forward(self, x: Tensor, key_mask: Tensor | None) -> Tensor:
        y = ops.attention(self.query(x), self.key(x), self.value(x), None, key_mask, heads=self.num_heads)
        return self.LayerNorm(self.dense(y) + x)


def main() -> None:
    """Encode a text, given as token ids, with the exported model: ``python -m lucid.models.albert FOLDER 2 48 3``."""
    ids = token_ids(2, 5, 7, 3)
    both = SideBySide(Albert.from_pretrained(checkpoint_folder("albert/base")))
    states = both(ids, ones_like(ids))
    print(f"hidden states {list(states.shape)}, {both.nodes} ONNX nodes, {both.verdict('states')}")


if __name__ == "__main__":
    main()
