"""Heads for tasks: a checkpoint of each head of BERT, RoBERTa and DistilBERT, and the classifier of ELECTRA."""

from __future__ import annotations

import copy
from typing import Any

from transformers import (
    BertForMaskedLM,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
    DistilBertConfig,
    DistilBertForMaskedLM,
    DistilBertForQuestionAnswering,
    DistilBertForSequenceClassification,
    DistilBertForTokenClassification,
    ElectraConfig,
    ElectraForSequenceClassification,
    RobertaForMaskedLM,
    RobertaForQuestionAnswering,
    RobertaForSequenceClassification,
    RobertaForTokenClassification,
)

from .core import Golden, text_cases
from .encoders import VOCABULARY, bert_config, roberta_config, with_token_types

CLASSES = {
    "bert": (BertForSequenceClassification, BertForTokenClassification, BertForQuestionAnswering, BertForMaskedLM),
    "roberta": (
        RobertaForSequenceClassification,
        RobertaForTokenClassification,
        RobertaForQuestionAnswering,
        RobertaForMaskedLM,
    ),
    "distilbert": (
        DistilBertForSequenceClassification,
        DistilBertForTokenClassification,
        DistilBertForQuestionAnswering,
        DistilBertForMaskedLM,
    ),
}


def with_heads() -> list[Golden]:
    """All of them. The activation within the layers is ReLU, so that it is seen which one a head has."""
    sizes = {"vocab_size": VOCABULARY, "dim": 16, "n_layers": 1, "n_heads": 4, "hidden_dim": 40}
    configs: dict[str, Any] = {
        "bert": bert_config(num_hidden_layers=1, hidden_act="relu"),
        "roberta": roberta_config(num_hidden_layers=1, hidden_act="relu"),
        "distilbert": DistilBertConfig(**sizes, max_position_embeddings=24, activation="relu"),
    }
    goldens = []
    for number, (family, (classifier, tagger, answerer, filler)) in enumerate(CLASSES.items()):
        seed = 400 + 20 * number
        goldens += [
            golden(family, "text_classification", classifier, configs[family], 3, seed),
            golden(family, "reranking", classifier, configs[family], 1, seed),
            golden(family, "token_classification", tagger, configs[family], 5, seed),
            golden(family, "question_answering", answerer, configs[family], 2, seed),
            golden(family, "fill_mask", filler, configs[family], 2, seed),
        ]
    electra = ElectraConfig(**(configs["bert"].to_dict() | {"embedding_size": 12}))
    return [*goldens, golden("electra", "text_classification", ElectraForSequenceClassification, electra, 3, 460)]


def golden(family: str, variant: str, head: type, config: Any, labels: int, seed: int) -> Golden:
    config = copy.deepcopy(config)
    config.num_labels = labels
    cases = text_cases(VOCABULARY, 1 if family == "roberta" else 0, compare="all", seed=seed)
    cases = {name: cases[name] for name in ("plain", "right_padding")}
    return Golden(
        f"tasks/{family}_{variant}",
        head(config),
        with_token_types(cases) if family in ("bert", "electra") else cases,
        ["start_logits", "end_logits"] if variant == "question_answering" else ["logits"],
        lambda model: {},
        f"{head.__name__}, relu within the layers",
        padding_is_free=family != "roberta",  # the ids in padded positions determine the position ids
    )
