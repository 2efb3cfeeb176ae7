"""DeBERTa-v2 and v3 (He et al. 2021, 2023): an encoder that attends by content and by distance, with vectors of each.

::

    encoder = Deberta.from_pretrained("folder with config.json and model.safetensors")
    states = encoder(lucid.tensor([[1, 510, 5798, 2]]))               # (N, L) to (N, L, hidden_size)
    lucid.export.to_onnx(encoder, path="deberta.onnx")                # any batch, any length

A score is the sum of three products: of what two tokens hold, of what one holds with how far the other is, and the
reverse ("disentangled attention", section 3.1 of the first paper). Distances are vectors of a table that all layers
share; far ones share a row. Their keys and queries depend on weights alone, so they are computed once, in the export.

Modules have the names of the published checkpoints, and so do the weights of an exported model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

import lucid
from lucid import Tensor, nn, ops
from lucid.models._deberta_config import DebertaConfig as DebertaConfig
from lucid.models.checkpoints.families import FAMILIES
from lucid.models.checkpoints.pretrained import ACTIVATIONS, Checkpoint, Pretrained
from lucid.models.parts.demonstration import SideBySide, checkpoint_folder, ones_like, token_ids
from lucid.models.parts.sentence_encoder import PooledEncoder
from lucid.models.parts.text_heads import text_specs


class Deberta(Pretrained[DebertaConfig]):
    """Token ids (N, L) to hidden states (N, L, E).

    ``attention_mask`` (N, L) is 1 for tokens to keep, 0 for padding; ``token_type_ids`` (N, L) default to 0.
    """

    checkpoint = Checkpoint(
        family=FAMILIES["deberta"],
        read=DebertaConfig.read,
        ignored_options=["legacy|tie_word_embeddings"],
        renames=[(r"^deberta\.", "")],
        # Heads for other tasks, and positions that are stored and not used.
        ignored_keys=[
            r"^(cls|lm_predictions|mask_predictions|pooler|classifier|qa_outputs)\.",
            r"^embeddings\.position_(ids$|embeddings\.)",
        ],
    )
    output_names: ClassVar[Sequence[str]] = ("last_hidden_state",)

    def __init__(self, config: DebertaConfig) -> None:
        super().__init__(config)
        self.embeddings = Embeddings(config)
        self.encoder = Encoder(config)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, token_type_ids: Tensor | None = None
    ) -> Tensor:
        return self.hidden_states(input_ids, attention_mask, token_type_ids)[-1]

    def hidden_states(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, token_type_ids: Tensor | None = None
    ) -> list[Tensor]:
        """The input of the first layer, and the output of each layer, (N, L, hidden_size) each."""
        key_mask = None if attention_mask is None else attention_mask != 0
        return self.encoder.hidden_states(self.embeddings(input_ids, token_type_ids), key_mask)

    def input_specs(self) -> Mapping[str, lucid.TensorType]:
        return {name: lucid.spec("N", "L", dtype=lucid.int64) for name in ("input_ids", "attention_mask")}

    def full_input_specs(self) -> Mapping[str, lucid.TensorType]:
        return text_specs(self.config.type_vocab_size)


class DebertaSentenceEncoder(PooledEncoder[DebertaConfig], Deberta):
    """Deberta with the pooling and the layers on top that modules.json lists: one vector for each text, (N, E).

    Without a modules.json it is the mean of the kept tokens' states, scaled to length 1.
    """

    checkpoint = replace(Deberta.checkpoint, head="sentence-similarity")

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, token_type_ids: Tensor | None = None
    ) -> Tensor:
        return self.sentence_embedding(super().forward(input_ids, attention_mask, token_type_ids), attention_mask)


class Embeddings(nn.Module):
    """Of the words, and where the model has them of positions and token types, normalised."""

    def __init__(self, c: DebertaConfig) -> None:
        self.word_embeddings = nn.Embedding(c.vocab_size, c.hidden_size)
        self.position_embeddings = (
            None if c.max_positions is None else nn.LearnedPositions(c.max_positions, c.hidden_size)
        )
        self.token_type_embeddings = nn.Embedding(c.type_vocab_size, c.hidden_size) if c.type_vocab_size else None
        self.LayerNorm = nn.LayerNorm(c.hidden_size, c.eps)

    def forward(self, input_ids: Tensor, token_type_ids: Tensor | None) -> Tensor:
        x, types = self.word_embeddings(input_ids), self.token_type_embeddings
        if self.position_embeddings is not None:
            x = x + self.position_embeddings(input_ids.shape[1])
        if types is not None:
            first = types.weight[0].part_of(types.weight, "[0]")  # its name in an exported model
            x = x + (first if token_type_ids is None else types(token_type_ids))
        return self.LayerNorm(x)


class Encoder(nn.Module):
    """The layers, and the table of distances that they share."""

    def __init__(self, c: DebertaConfig) -> None:
        self.layer = [Layer(c) for _ in range(c.num_layers)]
        self.rel_embeddings = nn.Embedding(2 * c.num_rows, c.hidden_size)
        self.LayerNorm = nn.LayerNorm(c.hidden_size, c.eps) if c.normed_distances else None
        self.conv = Convolution(c) if c.conv_kernel_size else None
        self._rows, self.max_distance = Tensor(c.rows_of_distances()), c.max_distance

    def hidden_states(self, x: Tensor, key_mask: Tensor | None) -> list[Tensor]:
        """What enters the first layer, and what each layer returns."""
        table = self.rel_embeddings.weight[:]
        if self.LayerNorm is not None:
            table = self.LayerNorm(table)
        rows, states = self.rows(x), [x]
        for layer in self.layer:
            y = layer(states[-1], key_mask, table, rows)
            if self.conv is not None and layer is self.layer[0]:
                y = self.conv(x, y, key_mask)
            states.append(y)
        return states

    def rows(self, x: Tensor) -> Tensor:
        """The row of the table for query i and key j of x, (L, L) integers: delta(i, j) in the paper."""
        places, far = ops.arange(x.shape[1]), self.max_distance
        distance = places.unsqueeze(1) - places
        return ops.take(self._rows, ops.minimum(ops.maximum(distance, -far), far) + far)


class Convolution(nn.Module):
    """A convolution over neighbouring tokens beside the first layer: it reads what the layer reads."""

    def __init__(self, c: DebertaConfig) -> None:
        size, groups = c.conv_kernel_size, c.conv_groups
        self.conv = nn.Conv1d(c.hidden_size, c.hidden_size, size, padding=size // 2, groups=groups)
        self.LayerNorm = nn.LayerNorm(c.hidden_size, c.eps)
        self.activation = ACTIVATIONS[c.conv_activation]

    def forward(self, x: Tensor, y: Tensor, key_mask: Tensor | None) -> Tensor:
        """`x` is what the layer read, `y` what it gave, (N, L, E) each; padding counts as zeros."""
        if key_mask is not None:
            x = ops.where(key_mask.unsqueeze(-1), x, 0.0)
        return self.LayerNorm(y + self.activation(self.conv(x.mT).mT))


class Layer(nn.Module):
    """One encoder layer, normalised after each half."""

    def __init__(self, c: DebertaConfig) -> None:
        self.attention = Attention(c)
        self.intermediate = {"dense": nn.Linear(c.hidden_size, c.intermediate_size)}
        self.output = Output(c, c.intermediate_size)
        self.activation = ACTIVATIONS[c.activation]

    def forward(self, x: Tensor, key_mask: Tensor | None, table: Tensor, rows: Tensor) -> Tensor:
        x = self.attention(x, key_mask, table, rows)
        return self.output(self.activation(self.intermediate["dense"](x)), x)


class Attention(nn.Module):
    """Attention with its output projection."""

    def __init__(self, c: DebertaConfig) -> None:
        self.self = DisentangledAttention(c)
        self.output = Output(c, c.hidden_size)

    def forward(self, x: Tensor, key_mask: Tensor | None, table: Tensor, rows: Tensor) -> Tensor:
        return self.output(self.self(x, key_mask, table, rows), x)


class DisentangledAttention(nn.Module):
    """Attention whose scores are the sum of content to content, content to position and position to content."""

    def __init__(self, c: DebertaConfig) -> None:
        self.query_proj, self.key_proj, self.value_proj = (nn.Linear(c.hidden_size, c.hidden_size) for _ in range(3))
        own = not c.shared_projections
        self.pos_key_proj = nn.Linear(c.hidden_size, c.hidden_size) if own and c.content_to_position else None
        self.pos_query_proj = nn.Linear(c.hidden_size, c.hidden_size) if own and c.position_to_content else None
        self.config, self.num_heads = c, c.num_heads
        summands = 1 + c.content_to_position + c.position_to_content
        self.scale = (summands * c.hidden_size // c.num_heads) ** -0.5

    def forward(self, x: Tensor, key_mask: Tensor | None, table: Tensor, rows: Tensor) -> Tensor:
        q, k, v = self.query_proj(x), self.key_proj(x), self.value_proj(x)
        bias = self.bias(q, k, table, rows)
        y: Tensor = ops.attention(q, k, v, bias, key_mask, heads=self.num_heads, scale=self.scale)
        return y

    def bias(self, q: Tensor, k: Tensor, table: Tensor, rows: Tensor) -> Tensor:
        """What distances add to the scores, (N, H, L, L): q_i k[delta(i, j)] + k_j q[delta(i, j)]."""
        found, rows = [], ops.unsqueeze(rows, (0, 1))
        if self.config.content_to_position:
            keys = self._of_distances(self.pos_key_proj or self.key_proj, table)
            found.append(ops.take_along(self._heads(q) @ keys, rows, axis=-1))
        if self.config.position_to_content:
            queries = self._of_distances(self.pos_query_proj or self.query_proj, table)
            found.append(ops.take_along(self._heads(k) @ queries, rows.mT, axis=-1).mT)
        return found[0] if len(found) == 1 else found[0] + found[1]

    def _heads(self, x: Tensor) -> Tensor:
        """(N, L, H * d) to (N, H, L, d)."""
        n, length, width = x.shape
        return x.reshape(n, length, self.num_heads, width // self.num_heads).transpose(1, 2)

    def _of_distances(self, projection: nn.Linear, table: Tensor) -> Tensor:
        """The keys or queries of distances, (H, d, rows), scaled as the scores are."""
        rows, width = table.shape
        made = (projection(table) * self.scale).reshape(rows, self.num_heads, width // self.num_heads)
        found: Tensor = ops.permute(made, (1, 2, 0))
        return found.part_of(projection.weight, ".distances")  # its name in an exported model


class Output(nn.Module):
    """A linear layer to the model's width, the residual added, normalised."""

    def __init__(self, c: DebertaConfig, inner: int) -> None:
        self.dense = nn.Linear(inner, c.hidden_size)
        self.LayerNorm = nn.LayerNorm(c.hidden_size, c.eps)

    def forward(self, x: Tensor, residual: Tensor) -> Tensor:
        return self.LayerNorm(self.dense(x) + residual)


def main() -> None:
    """Encode a text, given as token ids, with the exported model: ``python -m lucid.models.deberta FOLDER 1 48 2``."""
    ids = token_ids(1, 5, 7, 2)
    both = SideBySide(Deberta.from_pretrained(checkpoint_folder("deberta/v3")))
    states = both(ids, ones_like(ids))
    print(f"hidden states {list(states.shape)}, {both.nodes} ONNX nodes, {both.verdict('states')}")


if __name__ == "__main__":
    main()
