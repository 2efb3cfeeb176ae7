"""BERT, RoBERTa, DistilBERT, and models that are almost one of these.

Position ids, as transformers makes them when forward gets an attention_mask and no position_ids: BERT and
DistilBERT count 0, 1, 2, ... from the first column, padding included; RoBERTa counts the ids that are not
pad_token_id from pad_token_id + 1 and gives pad_token_id to the others, whatever the attention_mask says.
`<case>.position_ids` holds them.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
import transformers as hf
from safetensors.torch import load_file, save_file
from torch import nn

from .core import Case, Golden, ids, padding_mask, text_cases

VOCABULARY = 40


def bert_config(**changes: object) -> hf.BertConfig:
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 40}
    return hf.BertConfig(**({"vocab_size": VOCABULARY, "max_position_embeddings": 24} | sizes | changes))


def roberta_config(**changes: object) -> hf.RobertaConfig:
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 40}
    defaults = {"vocab_size": VOCABULARY, "max_position_embeddings": 26, "type_vocab_size": 1, "layer_norm_eps": 1e-5}
    return hf.RobertaConfig(**(defaults | sizes | changes))


def encoder_layers(model: nn.Module) -> dict[str, nn.ModuleList]:
    return {"": model.encoder.layer}


def with_token_types(cases: dict[str, Case]) -> dict[str, Case]:
    """One more case: two segments, the second row padded on the right."""
    types = torch.tensor([[0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 0, 0]])
    mask = padding_mask(6, (6, 4), "right")
    tokens = ids((2, 6), VOCABULARY, 77).where(mask == 1, 0)
    inputs = {"input_ids": tokens, "attention_mask": mask, "token_type_ids": types}
    return cases | {"token_types": Case("token_type_ids and right padding, (2, 6), kept 6 and 4", inputs)}


def to_hub_layout(folder: Path) -> None:
    """The names bert-base-uncased was published with: gamma and beta, a position_ids buffer, the heads."""
    path = folder / "model.safetensors"
    old = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    renamed = {}
    for key, value in load_file(path).items():
        for name, older in old.items():
            key = key.replace(name, older)
        renamed[key] = value
    renamed["bert.embeddings.position_ids"] = torch.arange(24)[None]
    renamed["bert.pooler.dense.weight"] = torch.zeros(16, 16)
    renamed["bert.pooler.dense.bias"] = torch.zeros(16)
    renamed["cls.seq_relationship.weight"] = torch.zeros(2, 16)
    renamed["cls.seq_relationship.bias"] = torch.zeros(2)
    save_file(renamed, path, metadata={"format": "pt"})


def bert() -> list[Golden]:
    cases = with_token_types(text_cases(VOCABULARY, 0, compare="all", seed=100))
    common: dict[str, Any] = {
        "cases": cases,
        "outputs": ["last_hidden_state"],
        "layers": encoder_layers,
        "positions": lambda model: model.embeddings.position_embeddings,
    }
    headless = partial(hf.BertModel.from_pretrained, add_pooling_layer=False)
    return [
        Golden("bert/base", hf.BertModel(bert_config()), note="BertModel: keys without a prefix; gelu", **common),
        Golden(
            "bert/masked_lm",
            hf.BertForMaskedLM(bert_config(hidden_act="gelu_new", layer_norm_eps=1e-5, num_attention_heads=2)),
            note="saved from BertForMaskedLM: prefix `bert.`, head `cls.*`, no pooler; gelu_new, eps 1e-5",
            reader=headless,
            spare=("cls.",),
            **common,
        ),
        Golden(
            "bert/hub_layout",
            hf.BertForMaskedLM(bert_config(hidden_act="relu", intermediate_size=32)),
            note="the layout of the first published files: `bert.` prefix, LayerNorm.gamma/beta, "
            "embeddings.position_ids, cls.* and pooler beside it; relu",
            reader=headless,
            spare=("cls.", "bert.pooler.", "bert.embeddings.position_ids", "embeddings.position_ids", "pooler."),
            rewrite=to_hub_layout,
            **common,
        ),
    ]


def roberta_common() -> dict[str, Any]:
    cases = text_cases(VOCABULARY, 1, compare="all", seed=200)
    mask = padding_mask(6, (6, 3), "right")
    unpadded = {"input_ids": ids((2, 6), VOCABULARY, 211), "attention_mask": mask}
    padded = {"input_ids": ids((2, 6), VOCABULARY, 212).where(padding_mask(6, (6, 3), "left") == 1, 1)}
    cases["mask_without_pad_ids"] = Case("attention_mask (2, 6), kept 6 and 3, no id is pad_token_id", unpadded)
    cases["pad_ids_without_mask"] = Case("ids padded on the left, (2, 6), but no attention_mask", padded)
    return {
        "cases": cases,
        "outputs": ["last_hidden_state"],
        "layers": encoder_layers,
        "positions": lambda model: model.embeddings.position_embeddings,
        "padding_is_free": False,  # the ids in padded positions determine the position ids
    }


def roberta() -> list[Golden]:
    common: dict[str, Any] = roberta_common()
    return [
        Golden("roberta/base", hf.RobertaModel(roberta_config()), note="RobertaModel, pad_token_id 1; gelu", **common),
        Golden(
            "roberta/masked_lm",
            hf.RobertaForMaskedLM(roberta_config(type_vocab_size=2, hidden_act="relu", num_attention_heads=2)),
            note="saved from RobertaForMaskedLM: prefix `roberta.`, head `lm_head.*`, no pooler; relu, two token types",
            reader=partial(hf.RobertaModel.from_pretrained, add_pooling_layer=False),
            spare=("lm_head.",),
            **common,
        ),
    ]


def distilbert() -> list[Golden]:
    sizes = {"vocab_size": VOCABULARY, "dim": 16, "n_layers": 2, "n_heads": 4, "hidden_dim": 40}
    config = hf.DistilBertConfig(**sizes, max_position_embeddings=24)
    sinusoidal = hf.DistilBertConfig(
        **(sizes | {"n_heads": 2}), max_position_embeddings=24, activation="relu", sinusoidal_pos_embds=True
    )
    common: dict[str, Any] = {
        "cases": text_cases(VOCABULARY, 0, compare="all", seed=300),
        "outputs": ["last_hidden_state"],
        "layers": lambda model: {"": model.transformer.layer},
        "positions": lambda model: model.embeddings.position_embeddings,
    }
    return [
        Golden(
            "distilbert/base", hf.DistilBertModel(config), note="DistilBertModel: keys without a prefix; gelu", **common
        ),
        Golden(
            "distilbert/masked_lm",
            hf.DistilBertForMaskedLM(sinusoidal),
            note="saved from DistilBertForMaskedLM: prefix `distilbert.`, head `vocab_*`; sinusoidal positions, relu",
            reader=hf.DistilBertModel.from_pretrained,
            spare=("vocab_",),
            **common,
        ),
    ]


def xlm_roberta() -> list[Golden]:
    config = hf.XLMRobertaConfig(**roberta_config().to_dict())
    return [
        Golden("xlm_roberta/base", hf.XLMRobertaModel(config), note="XLMRobertaModel: RoBERTa's", **roberta_common())
    ]


def camembert() -> list[Golden]:
    config = hf.CamembertConfig(**roberta_config(num_attention_heads=2).to_dict())
    return [
        Golden(
            "camembert/masked_lm",
            hf.CamembertForMaskedLM(config),
            note="saved from CamembertForMaskedLM: RoBERTa's, prefix `roberta.`, head `lm_head.*`",
            reader=partial(hf.CamembertModel.from_pretrained, add_pooling_layer=False),
            spare=("lm_head.",),
            **roberta_common(),
        )
    ]


def electra() -> list[Golden]:
    def config(**changes: object) -> hf.ElectraConfig:
        return hf.ElectraConfig(**(bert_config().to_dict() | changes))

    common: dict[str, Any] = {
        "cases": with_token_types(text_cases(VOCABULARY, 0, compare="all", seed=110)),
        "outputs": ["last_hidden_state"],
        "layers": encoder_layers,
        "positions": lambda model: model.embeddings.position_embeddings,
    }
    return [
        Golden(
            "electra/base",
            hf.ElectraModel(config(embedding_size=12)),
            note="ElectraModel: embeddings 12 wide, embeddings_project to 16",
            **common,
        ),
        Golden(
            "electra/discriminator",
            hf.ElectraForPreTraining(config(embedding_size=16)),
            note="saved from ElectraForPreTraining: prefix `electra.`, head `discriminator_predictions.*`; no projection",
            reader=hf.ElectraModel.from_pretrained,
            spare=("discriminator_predictions.",),
            **common,
        ),
    ]


def ernie() -> list[Golden]:
    config = hf.ErnieConfig(**(bert_config().to_dict() | {"use_task_id": True, "hidden_act": "relu"}))
    return [
        Golden(
            "ernie/base",
            hf.ErnieModel(config),
            note="ErnieModel with use_task_id: task_type_embeddings, of which task 0 is used; relu",
            cases=with_token_types(text_cases(VOCABULARY, 0, compare="all", seed=120)),
            outputs=["last_hidden_state"],
            layers=encoder_layers,
            positions=lambda model: model.embeddings.position_embeddings,
        )
    ]


SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 20}


def roformer() -> list[Golden]:
    config = hf.RoFormerConfig(**SMALL, vocab_size=VOCABULARY, embedding_size=12, max_position_embeddings=24)
    config.rotary_value = True
    note = "RoFormerModel: embeddings 12 wide; a stored table of positions, which also turns values"
    cases = with_token_types(text_cases(VOCABULARY, 0, compare="all", seed=170))
    return [Golden("roformer/base", hf.RoFormerModel(config), cases, ["last_hidden_state"], encoder_layers, note)]


def nomic_bert() -> list[Golden]:
    config = hf.NomicBertConfig(**SMALL, vocab_size=VOCABULARY, max_position_embeddings=24)
    note = "NomicBertModel, stored with the names that it was published with"
    cases = with_token_types(text_cases(VOCABULARY, 0, compare="all", seed=175))
    return [
        Golden(
            "nomic_bert/base",
            hf.NomicBertModel(config),
            cases,
            ["last_hidden_state"],
            lambda model: {"": model.layers},
            note,
        )
    ]


def jina_embeddings_v3() -> list[Golden]:
    config = hf.JinaEmbeddingsV3Config(**SMALL, vocab_size=VOCABULARY, max_position_embeddings=24)
    cases = text_cases(VOCABULARY, 1, compare="all", seed=178)
    note = "JinaEmbeddingsV3Model, stored with the names that it was published with"
    model = hf.JinaEmbeddingsV3Model(config)
    return [
        Golden("jina_embeddings_v3/base", model, cases, ["last_hidden_state"], lambda model: {"": model.layers}, note)
    ]


def eurobert() -> list[Golden]:
    special = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "mask_token_id": 3}
    config = hf.EuroBertConfig(**SMALL, **special, vocab_size=VOCABULARY, num_key_value_heads=2)
    note = "saved from EuroBertForMaskedLM: prefix `model.`, head `lm_head.*`; two key heads"
    return [
        Golden(
            "eurobert/base",
            hf.EuroBertForMaskedLM(config),
            text_cases(VOCABULARY, 0, compare="all", seed=190),
            ["last_hidden_state"],
            lambda model: {"": model.layers},
            note,
            reader=hf.EuroBertModel.from_pretrained,
            spare=("lm_head.",),
        )
    ]


def esm() -> list[Golden]:
    """Token 32 is masked in places; padding has the id 1."""
    special = {"vocab_size": 33, "mask_token_id": 32, "pad_token_id": 1, "max_position_embeddings": 26}
    cases = text_cases(33, 1, compare="all", seed=180)
    tokens = ids((2, 6), 32, 185)
    tokens[0, 2], tokens[1, 1:3], tokens[1, 5] = 32, 32, 1
    masked = {"input_ids": tokens, "attention_mask": padding_mask(6, (6, 5), "right")}
    cases["masked"] = Case("one and two of the tokens are masked; the second row is padded", masked)
    rotary = hf.EsmConfig(**SMALL, **special, position_embedding_type="rotary", token_dropout=True)
    absolute = hf.EsmConfig(**SMALL, **special, emb_layer_norm_before=True)
    common: dict[str, Any] = {"outputs": ["last_hidden_state"], "layers": encoder_layers}
    return [
        Golden(
            "esm/base",
            hf.EsmForMaskedLM(rotary),
            cases,
            note="as ESM-2: rotary positions; vectors of masked tokens are 0, those of others scaled",
            reader=partial(hf.EsmModel.from_pretrained, add_pooling_layer=False),
            spare=("lm_head.",),
            **common,
        ),
        Golden(
            "esm/absolute",
            hf.EsmModel(absolute),
            cases,
            note="as ESM-1b: embeddings of positions, which count the ids that are not padding; normalised embeddings",
            padding_is_free=False,
            **common,
        ),
    ]


def modernbert() -> list[Golden]:
    sizes = {"hidden_size": 16, "num_attention_heads": 4, "intermediate_size": 20, "vocab_size": VOCABULARY}
    special = dict.fromkeys(("pad_token_id", "bos_token_id", "cls_token_id"), 0)
    special |= dict.fromkeys(("eos_token_id", "sep_token_id"), 1)
    biased = {f"{part}_bias": True for part in ("norm", "attention", "mlp")}
    common: dict[str, Any] = {
        "cases": text_cases(VOCABULARY, 0, compare="kept", seed=130),
        "outputs": ["last_hidden_state"],
        "layers": lambda model: {"": model.layers},
        "positions": lambda model: model.rotary_emb,
    }
    return [
        Golden(
            "modernbert/base",
            hf.ModernBertModel(hf.ModernBertConfig(**sizes, **special, num_hidden_layers=4, local_attention=4)),
            note="layers 0 and 3 full, 1 and 2 with 2 tokens on either side; no biases",
            **common,
        ),
        Golden(
            "modernbert/masked_lm",
            hf.ModernBertForMaskedLM(
                hf.ModernBertConfig(
                    **sizes,
                    **special,
                    **biased,
                    num_hidden_layers=2,
                    local_attention=7,
                    layer_types=["sliding_attention", "full_attention"],
                    hidden_activation="gelu_pytorch_tanh",
                )
            ),
            note="saved from ModernBertForMaskedLM: prefix `model.`, heads `head.*` and `decoder.*`; all biases; an odd "
            "local_attention, 3 on either side",
            reader=hf.ModernBertModel.from_pretrained,
            spare=("head.", "decoder."),
            **common,
        ),
    ]


def mpnet() -> list[Golden]:
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 40}
    config = hf.MPNetConfig(**sizes, vocab_size=VOCABULARY, max_position_embeddings=26, layer_norm_eps=1e-5)
    note = "MPNetModel: a bias for each bucket of distances, shared by the layers; positions as RoBERTa's"
    return [Golden("mpnet/base", hf.MPNetModel(config), note=note, **roberta_common())]


def albert() -> list[Golden]:
    sizes = {"hidden_size": 16, "embedding_size": 12, "num_attention_heads": 4, "intermediate_size": 40}
    rest = {"vocab_size": VOCABULARY, "max_position_embeddings": 24, "bos_token_id": 1, "eos_token_id": 2}
    common: dict[str, Any] = {
        "cases": with_token_types(text_cases(VOCABULARY, 0, compare="all", seed=140)),
        "outputs": ["last_hidden_state"],
        "layers": lambda model: {},
        "taps": lambda model: {"hidden_states.0": model.encoder.embedding_hidden_mapping_in},
        "positions": lambda model: model.embeddings.position_embeddings,
    }
    return [
        Golden(
            "albert/base",
            hf.AlbertModel(hf.AlbertConfig(**sizes, **rest, num_hidden_layers=3)),
            note="AlbertModel: 3 layers of one group, which share their weights; gelu_new",
            **common,
        ),
        Golden(
            "albert/masked_lm",
            hf.AlbertForMaskedLM(
                hf.AlbertConfig(
                    **sizes, **rest, num_hidden_layers=5, num_hidden_groups=2, inner_group_num=2, hidden_act="relu"
                )
            ),
            note="saved from AlbertForMaskedLM: prefix `albert.`, head `predictions.*`, no pooler; 3 layers of one group "
            "and 2 of another, 2 inner layers in each; relu",
            reader=partial(hf.AlbertModel.from_pretrained, add_pooling_layer=False),
            spare=("predictions.",),
            **common,
        ),
    ]


def deberta_config(**changes: object) -> hf.DebertaV2Config:
    """As published for v3, but for the sizes: 8 buckets of distances on either side, up to 12."""
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 40}
    v3: dict[str, object] = {
        "relative_attention": True,
        "position_buckets": 8,
        "max_relative_positions": -1,
        "share_att_key": True,
    }
    v3 |= {"norm_rel_ebd": "layer_norm", "pos_att_type": "p2c|c2p", "position_biased_input": False}
    return hf.DebertaV2Config(**({"vocab_size": VOCABULARY, "max_position_embeddings": 12} | sizes | v3 | changes))


def layoutlm() -> list[Golden]:
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 40}
    config = hf.LayoutLMConfig(
        **sizes, vocab_size=VOCABULARY, max_position_embeddings=24, max_2d_position_embeddings=20
    )
    cases = with_token_types(text_cases(VOCABULARY, 0, compare="all", seed=170))
    typed = cases["token_types"]
    corners = ids((*typed.inputs["input_ids"].shape, 2, 2), 20, 78)
    inputs = {**typed.inputs, "bbox": corners.sort(-2).values.flatten(-2)}
    cases["token_types"] = replace(typed, inputs=inputs)
    some = {name: array.clone() for name, array in inputs.items() if name != "token_type_ids"}
    cases["boxes"] = Case("bbox and right padding, (2, 6), kept 6 and 4", some)
    common: dict[str, Any] = {"cases": cases, "outputs": ["last_hidden_state"], "layers": encoder_layers}
    common["positions"] = lambda model: model.embeddings.position_embeddings
    note = "LayoutLMModel; boxes up to 19 with token_type_ids, no boxes in the other cases"
    return [Golden("layoutlm/base", hf.LayoutLMModel(config), note=note, spare=("pooler.",), **common)]


def first_deberta_config() -> hf.DebertaConfig:
    """As published, but for the sizes, and with embeddings of positions and of token types."""
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 40}
    relative = {"relative_attention": True, "max_relative_positions": 5, "pos_att_type": "c2p|p2c"}
    return hf.DebertaConfig(
        **sizes,
        **relative,
        vocab_size=VOCABULARY,
        max_position_embeddings=24,
        position_biased_input=True,
        type_vocab_size=2,
    )


def deberta() -> list[Golden]:
    common: dict[str, Any] = {
        "cases": text_cases(VOCABULARY, 0, compare="kept", seed=150),
        "outputs": ["last_hidden_state"],
        "layers": encoder_layers,
    }
    convolved = {"conv_kernel_size": 3, "conv_groups": 2, "conv_act": "gelu"}
    typed = with_token_types(text_cases(VOCABULARY, 0, compare="kept", seed=160))
    typed["token_types"] = replace(typed["token_types"], compare="kept")
    plain = {"position_buckets": -1, "max_relative_positions": 5, "share_att_key": False, "norm_rel_ebd": "none"}
    return [
        Golden(
            "deberta/v3",
            hf.DebertaV2Model(deberta_config()),
            note="8 buckets of distances on either side, up to 12; one projection of tokens and distances; no positions",
            **common,
        ),
        Golden(
            "deberta/masked_lm",
            hf.DebertaV2ForMaskedLM(
                deberta_config(**plain, max_position_embeddings=24, position_biased_input=True, hidden_act="relu")
            ),
            note="saved from DebertaV2ForMaskedLM: prefix `deberta.`, head `cls.*`; distances up to 5, each with its own row "
            "and projections of their own; embeddings of positions; relu",
            reader=hf.DebertaV2Model.from_pretrained,
            spare=("cls.",),
            **common,
        ),
        Golden(
            "deberta/content_to_position",
            hf.DebertaV2Model(deberta_config(pos_att_type=["c2p"], type_vocab_size=2, **convolved)),
            note="one product with distances; token types; a convolution beside the first layer",
            **(common | {"cases": typed}),
        ),
        Golden(
            "deberta/first",
            hf.DebertaForMaskedLM(first_deberta_config()),
            note="saved from DebertaForMaskedLM: the first version, with one product for queries, keys and values; "
            "distances up to 5; embeddings of positions and of token types",
            reader=hf.DebertaModel.from_pretrained,
            spare=("cls.",),
            **(common | {"cases": typed}),
        ),
    ]
