"""Heads for tasks: a checkpoint of each head of the families of encoders."""

from __future__ import annotations

import copy
from typing import Any

import transformers as hf

from .core import Golden, text_cases
from .decoders import GROUPED
from .encoders import VOCABULARY, bert_config, deberta_config, roberta_config, with_token_types

CLASSES = {
    "bert": (
        hf.BertForSequenceClassification,
        hf.BertForTokenClassification,
        hf.BertForQuestionAnswering,
        hf.BertForMaskedLM,
    ),
    "roberta": (
        hf.RobertaForSequenceClassification,
        hf.RobertaForTokenClassification,
        hf.RobertaForQuestionAnswering,
        hf.RobertaForMaskedLM,
    ),
    "distilbert": (
        hf.DistilBertForSequenceClassification,
        hf.DistilBertForTokenClassification,
        hf.DistilBertForQuestionAnswering,
        hf.DistilBertForMaskedLM,
    ),
}
LATER = {
    "albert": {
        "text_classification": hf.AlbertForSequenceClassification,
        "token_classification": hf.AlbertForTokenClassification,
        "question_answering": hf.AlbertForQuestionAnswering,
        "fill_mask": hf.AlbertForMaskedLM,
    },
    "modernbert": {
        "text_classification": hf.ModernBertForSequenceClassification,
        "token_classification": hf.ModernBertForTokenClassification,
        "question_answering": hf.ModernBertForQuestionAnswering,
        "fill_mask": hf.ModernBertForMaskedLM,
    },
    "deberta": {
        "text_classification": hf.DebertaV2ForSequenceClassification,
        "token_classification": hf.DebertaV2ForTokenClassification,
        "question_answering": hf.DebertaV2ForQuestionAnswering,
        "fill_mask": hf.DebertaV2ForMaskedLM,
    },
    "mpnet": {"text_classification": hf.MPNetForSequenceClassification, "fill_mask": hf.MPNetForMaskedLM},
}
LABELS = {"text_classification": 3, "token_classification": 5, "question_answering": 2, "fill_mask": 2}


def with_heads() -> list[Golden]:
    """All of them. The activation within the layers is ReLU, so that it is seen which one a head has."""
    sizes = {"vocab_size": VOCABULARY, "dim": 16, "n_layers": 1, "n_heads": 4, "hidden_dim": 40}
    configs: dict[str, Any] = {
        "bert": bert_config(num_hidden_layers=1, hidden_act="relu"),
        "roberta": roberta_config(num_hidden_layers=1, hidden_act="relu"),
        "distilbert": hf.DistilBertConfig(**sizes, max_position_embeddings=24, activation="relu"),
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
    electra = hf.ElectraConfig(**(configs["bert"].to_dict() | {"embedding_size": 12}))
    goldens.append(golden("electra", "text_classification", hf.ElectraForSequenceClassification, electra, 3, 460))
    configs = later_configs()
    for number, (family, heads) in enumerate(LATER.items()):
        goldens += [
            golden(family, task, head, configs[family], LABELS[task], 470 + number) for task, head in heads.items()
        ]
    pooled = copy.deepcopy(configs["modernbert"])
    pooled.classifier_pooling = "mean"
    goldens.append(golden("modernbert", "reranking", hf.ModernBertForSequenceClassification, pooled, 1, 480))
    return [*goldens, *of_decoders()]


def of_decoders() -> list[Golden]:
    """States, and classes by the last token that is not padding, on either side."""
    cases = text_cases(VOCABULARY, 0, compare="kept", seed=490)
    cases = {name: cases[name] for name in ("plain", "right_padding", "left_padding")}
    sizes = GROUPED | {"num_hidden_layers": 1, "pad_token_id": 0}
    two_sided = sizes | {"num_hidden_layers": 2, "head_dim": 8, "query_pre_attn_scalar": 8, "sliding_window": 4}
    two_sided |= {"use_bidirectional_attention": True, "sliding_window_pattern": 2}
    models = {
        "llama_text_classification": (
            hf.LlamaForSequenceClassification(hf.LlamaConfig(**sizes, num_labels=3)),
            "logits",
        ),
        "qwen2_reranking": (hf.Qwen2ForSequenceClassification(hf.Qwen2Config(**sizes, num_labels=1)), "logits"),
        "qwen3_feature_extraction": (hf.Qwen3Model(hf.Qwen3Config(**sizes, head_dim=8)), "last_hidden_state"),
        "gemma3_feature_extraction": (hf.Gemma3TextModel(hf.Gemma3TextConfig(**two_sided)), "last_hidden_state"),
    }
    return [
        Golden(f"tasks/{name}", model, cases, [output], lambda model: {}, type(model).__name__)
        for name, (model, output) in models.items()
    ]


def later_configs() -> dict[str, Any]:
    """Those of one layer, or two that share weights; activations of heads are others than within the layers."""
    sizes = {"hidden_size": 16, "num_attention_heads": 4, "intermediate_size": 24, "vocab_size": VOCABULARY}
    special = dict.fromkeys(("pad_token_id", "bos_token_id", "cls_token_id"), 0) | {
        "eos_token_id": 1,
        "sep_token_id": 1,
    }
    mpnet = hf.MPNetConfig(**sizes, num_hidden_layers=1, max_position_embeddings=26, hidden_act="relu")
    return {
        "albert": hf.AlbertConfig(
            **sizes,
            embedding_size=12,
            num_hidden_layers=2,
            max_position_embeddings=24,
            bos_token_id=1,
            hidden_act="relu",
        ),
        "modernbert": hf.ModernBertConfig(
            **sizes, **special, num_hidden_layers=2, hidden_activation="relu", classifier_bias=True, local_attention=4
        ),
        "deberta": deberta_config(num_hidden_layers=1, hidden_act="relu"),
        "mpnet": mpnet,
    }


def golden(family: str, variant: str, head: type, config: Any, labels: int, seed: int) -> Golden:
    config = copy.deepcopy(config)
    config.num_labels = labels
    counting = family in ("roberta", "mpnet")  # the ids that are not padding, to find positions
    compare = "kept" if family in ("deberta", "modernbert") else "all"
    cases = text_cases(VOCABULARY, int(counting), compare=compare, seed=seed)
    cases = {name: cases[name] for name in ("plain", "right_padding")}
    return Golden(
        f"tasks/{family}_{variant}",
        head(config),
        with_token_types(cases) if family in ("bert", "electra", "albert") else cases,
        ["start_logits", "end_logits"] if variant == "question_answering" else ["logits"],
        lambda model: {},
        f"{head.__name__}, relu within the layers",
        padding_is_free=not counting,  # else the ids in padded positions determine the position ids
    )
