"""DeBERTa, v2 and v3 (He et al. 2021, 2023): attention with separate vectors for content and for distance.

::

    encoder = Deberta.from_pretrained("folder with config.json and model.safetensors")
    states = encoder(lucid.tensor([[1, 510, 5798, 2]]))               # (N, L) to (N, L, hidden_size)
    lucid.export.to_onnx(encoder, path="deberta.onnx")                # any batch, any length

    model = lucid.models.load("folder of a DebertaV2ForSequenceClassification")
    logits = model(input_ids, attention_mask)                         # (N, num_labels)

A score is the sum of three products: content with content, content with relative position, and the
reverse ("disentangled attention", section 3.1 of the first paper). Distances are vectors of a table that all layers
share; far ones share a row. Their keys and queries depend on weights alone, so they are computed once, in the export.

The first version has one product for queries, keys and values, and always projections of its own for distances.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from lucid import Tensor, nn, ops
from lucid.models.bert import Attention, ResidualOutput
from lucid.models.checkpoints import option_table as option
from lucid.models.checkpoints.config import Array, Config
from lucid.models.checkpoints.families import FAMILIES
from lucid.models.checkpoints.pretrained import ACTIVATIONS, Checkpoint
from lucid.models.parts import text_encoders as text
from lucid.models.parts.demonstration import encode_text
from lucid.models.parts.on_model import Reranker
from lucid.models.parts.sentences import PooledEncoder


@dataclass(frozen=True)
class DebertaConfig(text.TextConfig):
    """The sizes and options of a model."""

    vocab_size: int = option.size("vocab_size")
    hidden_size: int = option.size("hidden_size")
    num_layers: int = option.layers("num_hidden_layers")
    num_heads: int = option.heads("num_attention_heads")
    intermediate_size: int = option.size("intermediate_size")
    max_distance: int = option.derived()  # of tokens whose distances differ
    num_buckets: int | None = None  # of distances on either side; None: each distance has its own
    content_to_position: bool = True  # which products are added to that of contents
    position_to_content: bool = True
    shared_projections: bool = option.flag("share_att_key", True)  # those of contents make those of distances too
    normed_distances: bool = option.choice(  # the table of distances is normalised
        "norm_rel_ebd", {"none": False, "layer_norm": True}, True, absent="none"
    )
    joined: bool = False  # one product makes queries, keys and values; those of the first version
    max_positions: int | None = None  # of embeddings of positions; None: there are none, and texts have any length
    type_vocab_size: int = option.size("type_vocab_size", 0, low=0)  # 0: no such embedding
    activation: str = option.activation("hidden_act", "gelu")
    eps: float = option.real("layer_norm_eps", 1e-7)
    conv_kernel_size: int = option.whole(
        "conv_kernel_size", absent=0, low=0
    )  # of the convolution next to the first layer; 0: none
    conv_groups: int = option.heads("conv_groups", 1)
    conv_activation: str = option.activation("conv_act", "tanh")
    head_activation: str = option.activation("pooler_hidden_act", "gelu")  # of a classifier of texts

    @property
    def num_rows(self) -> int:
        """The number of rows of the table of distances on either side."""
        return self.num_buckets or self.max_distance

    @classmethod
    def read(cls, options: Config) -> Self:
        if options.get("relative_attention", bool) is not True:
            raise options.wrong("relative_attention", "supported: True")
        first, kinds = options.model_type == "deberta", _kinds(options)
        positions = options.size("max_position_embeddings")
        buckets, most = 0 if first else options.whole("position_buckets"), options.size("max_relative_positions")
        most = most if most > 0 else positions
        if buckets > 0 and not 4 <= buckets < 2 * most - 2:
            raise options.wrong("position_buckets", f"expected 4 to {2 * most - 3}, for distances up to {most}")
        known: dict[str, Any] = {"joined": True, "shared_projections": False, "normed_distances": False}
        known |= {"conv_kernel_size": 0, "conv_groups": 1, "conv_activation": "tanh"}
        config = cls.from_rows(
            options,
            **(known if first else {}),
            max_distance=most,
            num_buckets=buckets if buckets > 0 else None,
            content_to_position="c2p" in kinds,
            position_to_content="p2c" in kinds,
            max_positions=positions if options.get("position_biased_input", bool) else None,
        )
        if first:
            options.only("embedding_size", config.hidden_size)
            options.only("talking_head", False)
        options.only("attention_head_size", config.hidden_size // config.num_heads)
        options.only("pooler_hidden_size", config.hidden_size)
        if config.conv_kernel_size and config.conv_kernel_size % 2 == 0:
            raise options.wrong("conv_kernel_size", "expected an odd number, or 0 for no convolution")
        if not first and not config.shared_projections and not options.has_weights(r"\.pos_(key|query)_proj\."):
            problem = "but the checkpoint has no pos_key_proj or pos_query_proj"
            raise options.asks_in_vain("share_att_key", False, problem)
        return config

    def rows_of_distances(self) -> Array:
        """The row of the table for each distance, of query less key, from -max_distance to max_distance.

        The nearer half of the buckets hold one distance each; the others grow logarithmically.
        """
        distance = np.arange(-self.max_distance, self.max_distance + 1)
        if self.num_buckets is not None:
            near, far = self.num_buckets // 2, np.abs(distance)
            # In float32 and in this order, as the published models were trained: at a boundary the rounding matters.
            share = np.log((np.maximum(far, near) / near).astype(np.float32))
            share = share / np.log(np.float32((self.max_distance - 1) / near)) * np.float32(near - 1)
            distance = np.where(far <= near, distance, np.sign(distance) * (np.ceil(share).astype(np.int64) + near))
        return np.clip(distance + self.num_rows, 0, 2 * self.num_rows - 1)


def _kinds(options: Config) -> Sequence[str]:
    """The products with distances: ``["p2c", "c2p"]``, or ``"p2c|c2p"`` as first published."""
    option = options.options.get("pos_att_type")
    kinds = options.get("pos_att_type", str, "").split("|") if isinstance(option, str) else None
    kinds = options.get("pos_att_type", list, []) if kinds is None else kinds
    if not kinds or not all(kind in ("c2p", "p2c") for kind in kinds):
        raise options.wrong("pos_att_type", 'supported: "c2p", "p2c" or both, "c2p|p2c"')
    return kinds


class Deberta(text.TextEncoder[DebertaConfig]):
    checkpoint = Checkpoint(
        family=FAMILIES["deberta"],
        read=DebertaConfig.read,
        ignored_options=["legacy|tie_word_embeddings"],
        renames=[
            (r"^deberta\.", ""),
            (r"\.pos_proj\.", ".pos_key_proj."),  # of the first version
            (r"\.pos_q_proj\.", ".pos_query_proj."),
        ],
        # Heads for other tasks, and positions that are stored and not used.
        ignored_keys=[
            r"^(cls|lm_predictions|mask_predictions|pooler|classifier|qa_outputs)\.",
            r"^embeddings\.position_(ids$|embeddings\.)",
        ],
    )

    def __init__(self, config: DebertaConfig) -> None:
        super().__init__(config)
        self.embeddings = Embeddings(config)
        self.encoder = Encoder(config)

    def embed(self, input_ids: Tensor, token_type_ids: Tensor | None, key_mask: Tensor | None) -> Tensor:
        return self.embeddings(input_ids, token_type_ids)

    def layer_states(self, x: Tensor, key_mask: Tensor | None) -> list[Tensor]:
        return self.encoder.hidden_states(x, key_mask)


class Embeddings(nn.Module):
    """Vectors of words, and of positions and token types if the model has them, normalised."""

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
            x = x + (text.first_row(types) if token_type_ids is None else types(token_type_ids))
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
        """The input of the first layer, and the output of each layer."""
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
    """A convolution over neighbouring tokens, parallel to the first layer: both read the same."""

    def __init__(self, c: DebertaConfig) -> None:
        size, groups = c.conv_kernel_size, c.conv_groups
        self.conv = nn.Conv1d(c.hidden_size, c.hidden_size, size, padding=size // 2, groups=groups)
        self.LayerNorm = nn.LayerNorm(c.hidden_size, c.eps)
        self.activation = ACTIVATIONS[c.conv_activation]

    def forward(self, x: Tensor, y: Tensor, key_mask: Tensor | None) -> Tensor:
        """`x` and `y` are the input and output of the layer, (N, L, E) each; padding counts as zeros."""
        if key_mask is not None:
            x = ops.where(key_mask.unsqueeze(-1), x, 0.0)
        return self.LayerNorm(y + self.activation(self.conv(x.mT).mT))


class Layer(nn.Module):
    """One encoder layer, normalised after each half."""

    def __init__(self, c: DebertaConfig) -> None:
        self.attention = Attention(DisentangledAttention(c), c.hidden_size, c.eps)
        self.intermediate = {"dense": nn.Linear(c.hidden_size, c.intermediate_size)}
        self.output = ResidualOutput(c.hidden_size, c.intermediate_size, c.eps)
        self.activation = ACTIVATIONS[c.activation]

    def forward(self, x: Tensor, key_mask: Tensor | None, table: Tensor, rows: Tensor) -> Tensor:
        x = self.attention(x, key_mask, table, rows)
        return self.output(self.activation(self.intermediate["dense"](x)), x)


class DisentangledAttention(nn.Module):
    """Attention whose scores are the sum of content to content, content to position and position to content."""

    def __init__(self, c: DebertaConfig) -> None:
        width, own = c.hidden_size, not c.shared_projections
        if c.joined:
            self.in_proj = nn.Linear(width, 3 * width, bias=False)
            self.q_bias, self.v_bias = (nn.init.zeros_(nn.init.new_parameter(width)) for _ in range(2))
        else:
            self.query_proj, self.key_proj, self.value_proj = (nn.Linear(width, width) for _ in range(3))
        self.pos_key_proj = nn.Linear(width, width, not c.joined) if own and c.content_to_position else None
        self.pos_query_proj = nn.Linear(width, width) if own and c.position_to_content else None
        self.config, self.num_heads = c, c.num_heads
        summands = 1 + c.content_to_position + c.position_to_content
        self.scale = (summands * c.hidden_size // c.num_heads) ** -0.5

    def forward(self, x: Tensor, key_mask: Tensor | None, table: Tensor, rows: Tensor) -> Tensor:
        q, k, v = self._joined(x) if self.config.joined else (self.query_proj(x), self.key_proj(x), self.value_proj(x))
        bias = self.bias(q, k, table, rows)
        y: Tensor = ops.attention(q, k, v, bias, key_mask, heads=self.num_heads, scale=self.scale)
        return y

    def bias(self, q: Tensor, k: Tensor, table: Tensor, rows: Tensor) -> Tensor:
        """The bias of distances on the scores, (N, H, L, L): q_i k[delta(i, j)] + k_j q[delta(i, j)]."""
        terms, rows = [], ops.unsqueeze(rows, (0, 1))
        if self.config.content_to_position:
            keys = self._of_distances(self.pos_key_proj or self.key_proj, table)
            terms.append(ops.take_along(self._heads(q) @ keys, rows, axis=-1))
        if self.config.position_to_content:
            queries = self._of_distances(self.pos_query_proj or self.query_proj, table)
            terms.append(ops.take_along(self._heads(k) @ queries, rows.mT, axis=-1).mT)
        return terms[0] if len(terms) == 1 else terms[0] + terms[1]

    def _joined(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, (N, L, E) each, from a product that holds the three of each head side by side."""
        n, length, width = x.shape
        q, k, v = self.in_proj(x).reshape(n, length, self.num_heads, 3, width // self.num_heads).unbind(3)
        q, k, v = (part.reshape(n, length, width) for part in (q, k, v))
        return q + self.q_bias, k, v + self.v_bias

    def _heads(self, x: Tensor) -> Tensor:
        """(N, L, H * d) to (N, H, L, d)."""
        n, length, width = x.shape
        return x.reshape(n, length, self.num_heads, width // self.num_heads).transpose(1, 2)

    def _of_distances(self, projection: nn.Linear, table: Tensor) -> Tensor:
        """The keys or queries of distances, (H, d, rows), scaled as the scores are."""
        rows, width = table.shape
        heads = (projection(table) * self.scale).reshape(rows, self.num_heads, width // self.num_heads)
        turned: Tensor = ops.permute(heads, (1, 2, 0))
        return turned.named_after(projection.weight, ".distances")  # its name in an exported model


# Heads ----------------------------------------------------------------------------------------------------------------


class DebertaSentenceEncoder(PooledEncoder[DebertaConfig], Deberta, on=Deberta): ...


class DebertaForSequenceClassification(text.SequenceClassifier[DebertaConfig], Deberta, on=Deberta):
    head_names: ClassVar = dict.fromkeys(("deberta", "deberta-v2"), ("deberta.", text.bert_names("pooler.dense")))

    def head_activation(self, config: DebertaConfig) -> str:
        return config.head_activation


class DebertaForReranking(Reranker[DebertaConfig], DebertaForSequenceClassification, on=Deberta): ...


class DebertaForMultipleChoice(text.MultipleChoice[DebertaConfig], DebertaForSequenceClassification, on=Deberta): ...


class DebertaForTokenClassification(text.TokenClassifier[DebertaConfig], Deberta, on=Deberta): ...


class DebertaForQuestionAnswering(text.QuestionAnswerer[DebertaConfig], Deberta, on=Deberta): ...


class DebertaForMaskedLM(text.MaskedLM[DebertaConfig], Deberta, on=Deberta):
    head_renames = (
        (r"^lm_predictions\.lm_head\.LayerNorm\.", "lm_head.layer_norm."),  # as the authors store it
        (r"^lm_predictions\.lm_head\.", "lm_head."),
        (r"^cls\.predictions\.transform\.LayerNorm\.", "lm_head.layer_norm."),  # as transformers does by default
        (r"^cls\.predictions\.(transform\.)?", "lm_head."),
    )


if __name__ == "__main__":
    encode_text(Deberta, "deberta/v3", 1, 5, 7, 2)
