"""The options of the checkpoints of DeBERTa-v2 and v3."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from lucid.models.checkpoints.config import Array, Config
from lucid.models.parts.sentence_layers import USUAL_LAYERS, SentenceLayer


@dataclass(frozen=True)
class DebertaConfig:
    """The sizes and options of a model."""

    vocab_size: int
    hidden_size: int
    num_layers: int
    num_heads: int
    intermediate_size: int
    max_distance: int  # of tokens whose distances differ
    num_buckets: int | None = None  # of distances on either side; None: each distance has its own
    content_to_position: bool = True  # which products there are beside that of contents
    position_to_content: bool = True
    shared_projections: bool = True  # those of contents make the keys and queries of distances too
    normed_distances: bool = True  # the table of distances is normalised
    max_positions: int | None = None  # of embeddings of positions; None: there are none, and texts have any length
    type_vocab_size: int = 0  # 0: no such embedding
    activation: str = "gelu"
    eps: float = 1e-7
    conv_kernel_size: int = 0  # of a convolution beside the first layer, in large models of version 2; 0: none
    conv_groups: int = 1
    conv_activation: str = "tanh"
    head_activation: str = "gelu"  # of a classifier of texts
    num_labels: int = 0
    own_output: bool = False  # of a MaskedLM, whose output layer is not the table of token vectors
    sentence_layers: tuple[SentenceLayer, ...] = USUAL_LAYERS  # of a DebertaSentenceEncoder

    @property
    def num_rows(self) -> int:
        """Rows of the table of distances on either side."""
        return self.num_buckets or self.max_distance

    @classmethod
    def read(cls, options: Config) -> Self:
        """From config.json."""
        width, positions = options.size("hidden_size"), options.size("max_position_embeddings")
        heads = options.heads("num_attention_heads", width)
        if options.get("relative_attention", bool) is not True:
            raise options.wrong("relative_attention", "supported: True")
        options.only("attention_head_size", width // heads)
        kernel = options.whole("conv_kernel_size", 0, low=0)
        if kernel and kernel % 2 == 0:
            raise options.wrong("conv_kernel_size", "expected an odd number, or 0 for no convolution")
        options.only("pooler_hidden_size", width)
        buckets, most = options.whole("position_buckets"), options.size("max_relative_positions")
        most = most if most > 0 else positions
        if buckets > 0 and not 4 <= buckets < 2 * most - 2:
            raise options.wrong("position_buckets", f"expected 4 to {2 * most - 3}, for distances up to {most}")
        kinds = _kinds(options)
        shared = options.get("share_att_key", bool)
        if not shared and not options.has_weights(r"\.pos_(key|query)_proj\."):
            raise options.asks_in_vain(
                "share_att_key", shared, "but the checkpoint has no pos_key_proj or pos_query_proj"
            )
        norms = options.choose("norm_rel_ebd", {"none": False, "layer_norm": True}, "none")
        return cls(
            vocab_size=options.size("vocab_size"),
            hidden_size=width,
            num_layers=options.layers("num_hidden_layers"),
            num_heads=heads,
            intermediate_size=options.size("intermediate_size"),
            max_distance=most,
            num_buckets=buckets if buckets > 0 else None,
            content_to_position="c2p" in kinds,
            position_to_content="p2c" in kinds,
            shared_projections=shared,
            normed_distances=norms,
            max_positions=positions if options.get("position_biased_input", bool) else None,
            type_vocab_size=options.size("type_vocab_size", low=0),
            activation=options.activation("hidden_act"),
            eps=options.real("layer_norm_eps"),
            conv_kernel_size=kernel,
            conv_groups=options.heads("conv_groups", width),
            conv_activation=options.activation("conv_act"),
            head_activation=options.activation("pooler_hidden_act"),
        )

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
    given = options.options.get("pos_att_type")
    kinds = options.get("pos_att_type", str, "").split("|") if isinstance(given, str) else None
    kinds = options.get("pos_att_type", list, []) if kinds is None else kinds
    if not kinds or not all(kind in ("c2p", "p2c") for kind in kinds):
        raise options.wrong("pos_att_type", 'supported: "c2p", "p2c" or both, "c2p|p2c"')
    return kinds
