"""The groups of tests/goldens/torch_nn, one pair of files each."""

from __future__ import annotations

from pathlib import Path

from . import torch_attention, torch_functions, torch_recurrent, torch_sampling, torch_transformer

GROUPS = {
    "multihead_attention": torch_attention.multihead_attention,
    "multi_head_attention_forward": torch_functions.multi_head_attention_forward,
    "scaled_dot_product_attention": torch_functions.scaled_dot_product_attention,
    "transformer_encoder_layer": torch_transformer.encoder_layer,
    "transformer_decoder_layer": torch_transformer.decoder_layer,
    "transformer_encoder": torch_transformer.encoder,
    "transformer_decoder": torch_transformer.decoder,
    "transformer": torch_transformer.transformer,
    "recurrent": torch_recurrent.recurrent,
    "sampling": torch_sampling.sampling,
}


def store_all(folder: Path) -> None:
    for name, make in GROUPS.items():
        make().write(folder / name)
