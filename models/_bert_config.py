"""The options and keys of the checkpoints of BERT and its kin."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from lucid.models.checkpoints.config import Config
from lucid.models.parts.sentence_layers import USUAL_LAYERS, SentenceLayer


@dataclass(frozen=True)
class BertConfig:
    """The sizes and options of one encoder of the family."""

    vocab_size: int
    hidden_size: int
    num_layers: int
    num_heads: int
    intermediate_size: int
    max_positions: int
    type_vocab_size: int = 2  # 0: no such embedding (DistilBERT)
    activation: str = "gelu"
    eps: float = 1e-12
    pad_token_id: int | None = None  # if given, positions count only the ids that are not padding (RoBERTa)
    embedding_size: int | None = None  # of embeddings that a layer brings to hidden_size (ELECTRA)
    task_type_vocab_size: int = 0  # 0: no such embedding; else each token has that of task 0 (ERNIE)
    num_buckets: int = 0  # of distances that have a bias, the same in all layers; 0: none (MPNet)
    family: str = "bert"  # or roberta, distilbert, electra: whose heads it has
    num_labels: int = 0  # of a head
    own_output: bool = False  # of a MaskedLM, whose output layer is not the table of token vectors
    sentence_layers: tuple[SentenceLayer, ...] = USUAL_LAYERS  # of a SentenceEncoder

    @classmethod
    def read(cls, options: Config) -> Self:
        """From config.json."""
        if options.model_type == "distilbert":
            return cls._read_distilbert(options)
        mpnet = options.model_type == "mpnet"
        if mpnet:
            options.only("relative_attention_num_buckets", 32)
        options.only("position_embedding_type", "absolute")
        options.only("is_decoder", False)
        options.only("add_cross_attention", False)
        width, positions = options.size("hidden_size"), options.size("max_position_embeddings")
        roberta = options.model_type in ("roberta", "xlm-roberta", "camembert")
        embedding = options.size("embedding_size") if options.model_type == "electra" else width
        tasks = options.model_type == "ernie" and options.get("use_task_id", bool)
        return cls(
            vocab_size=options.size("vocab_size"),
            hidden_size=width,
            num_layers=options.layers("num_hidden_layers"),
            num_heads=options.heads("num_attention_heads", width),
            intermediate_size=options.size("intermediate_size"),
            max_positions=positions,
            type_vocab_size=0 if mpnet else options.size("type_vocab_size", low=0),
            activation=options.activation("hidden_act"),
            eps=options.real("layer_norm_eps"),
            pad_token_id=options.whole("pad_token_id", low=0, high=positions) if roberta else 1 if mpnet else None,
            embedding_size=embedding if embedding != width else None,
            task_type_vocab_size=options.size("task_type_vocab_size") if tasks else 0,
            num_buckets=32 if mpnet else 0,
            family=_FAMILIES.get(options.model_type, options.model_type),
        )

    @classmethod
    def _read_distilbert(cls, options: Config) -> Self:
        options.get("sinusoidal_pos_embds", bool)  # how the stored table was made: no effect here
        width = options.size("dim")
        return cls(
            vocab_size=options.size("vocab_size"),
            hidden_size=width,
            num_layers=options.layers("n_layers"),
            num_heads=options.heads("n_heads", width),
            intermediate_size=options.size("hidden_dim"),
            max_positions=options.size("max_position_embeddings"),
            type_vocab_size=0,
            activation=options.activation("activation"),
            family="distilbert",
        )


_FAMILIES = {  # whose heads these have
    "xlm-roberta": "roberta",
    "camembert": "roberta",
    "ernie": "bert",
    "mpnet": "roberta",
}

RENAMES = [
    (r"^(bert|roberta|distilbert|electra|ernie|mpnet)\.", ""),
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
]
