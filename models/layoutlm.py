"""LayoutLM (Xu et al. 2019, "LayoutLM: Pre-training of Text and Layout"): BERT with the place of each word on its page.

::

    model = lucid.models.load("folder of a LayoutLMForTokenClassification")
    logits = model(input_ids, attention_mask, token_type_ids, bbox)      # (N, L, num_labels)
    lucid.export.to_onnx(model, path="layoutlm.onnx")                    # any batch, any length

A box is left, top, right and bottom, from 0 to 1000. Six vectors are added to that of a token: of its four edges, its
height and its width.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import lucid
from lucid import Tensor, nn
from lucid.models import bert
from lucid.models.checkpoints import option_table as option
from lucid.models.checkpoints.families import FAMILIES
from lucid.models.checkpoints.pretrained import Checkpoint
from lucid.models.parts import text_encoders as text
from lucid.models.parts.demonstration import SideBySide, checkpoint_folder, ones_like, token_ids


@dataclass(frozen=True)
class LayoutLMConfig(bert.BertConfig):
    """The sizes and options of a model."""

    max_places: int = option.size("max_2d_position_embeddings", 1024)  # on a page, along each axis


class LayoutLM(text.TextEncoder[LayoutLMConfig]):
    """Token ids (N, L) and boxes (N, L, 4) to hidden states (N, L, E).

    ``attention_mask`` (N, L) is 1 for tokens to keep, 0 for padding; ``token_type_ids`` (N, L) and ``bbox`` (N, L, 4)
    default to 0. The right edge of a box must not be left of its left edge, nor the lower one above the upper.
    """

    checkpoint = Checkpoint(
        family=FAMILIES["layoutlm"],
        read=LayoutLMConfig.read,
        ignored_options=["tie_word_embeddings"],
        renames=[(r"^layoutlm\.", ""), *bert.RENAMES],
        ignored_keys=[r"^(cls|pooler|classifier|qa_outputs)\.", r"embeddings\.position_ids$"],
    )

    def __init__(self, config: LayoutLMConfig) -> None:
        super().__init__(config)
        self.embeddings = Embeddings(config)
        self.encoder = bert.Encoder(config)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        bbox: Tensor | None = None,
    ) -> Tensor:
        return self.hidden_states(input_ids, attention_mask, token_type_ids, bbox)[-1]

    def hidden_states(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        bbox: Tensor | None = None,
    ) -> list[Tensor]:
        """The input of the first layer, and the output of each layer, (N, L, E) each."""
        key_mask = None if attention_mask is None else attention_mask != 0
        x = self.embed(input_ids, token_type_ids, key_mask, bbox)
        return self.layer_states(x, key_mask)

    def embed(
        self,
        input_ids: Tensor,
        token_type_ids: Tensor | None,
        key_mask: Tensor | None,
        bbox: Tensor | None = None,
    ) -> Tensor:
        return self.embeddings(input_ids, token_type_ids, key_mask, self.embeddings.of_boxes(bbox))

    def layer_states(self, x: Tensor, key_mask: Tensor | None) -> list[Tensor]:
        return self.encoder(x, key_mask)

    def input_specs(self) -> Mapping[str, lucid.TensorType]:
        return {**super().input_specs(), **_BOXES}

    def full_input_specs(self) -> Mapping[str, lucid.TensorType]:
        return {**super().full_input_specs(), **_BOXES}


_BOXES = {"bbox": lucid.spec("N", "L", 4, dtype=lucid.int64)}


class Embeddings(bert.Embeddings):
    """BERT's embeddings, and those of boxes."""

    def __init__(self, c: LayoutLMConfig) -> None:
        super().__init__(c)
        self.x_position_embeddings = nn.Embedding(c.max_places, c.hidden_size)
        self.y_position_embeddings = nn.Embedding(c.max_places, c.hidden_size)
        self.h_position_embeddings = nn.Embedding(c.max_places, c.hidden_size)
        self.w_position_embeddings = nn.Embedding(c.max_places, c.hidden_size)

    def of_boxes(self, bbox: Tensor | None) -> Tensor:
        """The sum of the vectors of a box, (N, L, E)."""
        x, y = self.x_position_embeddings, self.y_position_embeddings
        bbox = lucid.zeros(1, 1, 4, dtype=lucid.int64) if bbox is None else bbox
        left, top, right, bottom = bbox.unbind(-1)
        edges = x(left) + y(top) + x(right) + y(bottom)
        return edges + self.h_position_embeddings(bottom - top) + self.w_position_embeddings(right - left)


# Heads ----------------------------------------------------------------------------------------------------------------


class OnBoxes(text.WithHead[LayoutLMConfig]):
    """The base class of heads; it comes before the class of the task."""

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        bbox: Tensor | None = None,
    ) -> Any:
        return self.predict(self.encoder_states(input_ids, attention_mask, token_type_ids, bbox), attention_mask)

    def input_specs(self) -> Mapping[str, lucid.TensorType]:
        return {**super().input_specs(), **_BOXES}


class LayoutLMForSequenceClassification(OnBoxes, text.SequenceClassifier[LayoutLMConfig], LayoutLM, on=LayoutLM):
    head_names: ClassVar = {"layoutlm": ("layoutlm.", text.bert_names("layoutlm.pooler.dense"))}


class LayoutLMForTokenClassification(OnBoxes, text.TokenClassifier[LayoutLMConfig], LayoutLM, on=LayoutLM): ...


class LayoutLMForQuestionAnswering(OnBoxes, text.QuestionAnswerer[LayoutLMConfig], LayoutLM, on=LayoutLM): ...


class LayoutLMForMaskedLM(OnBoxes, text.MaskedLM[LayoutLMConfig], LayoutLM, on=LayoutLM):
    head_renames = (
        (r"^cls\.predictions\.transform\.LayerNorm\.", "lm_head.layer_norm."),
        (r"^cls\.predictions\.(transform\.)?", "lm_head."),
    )


def main() -> None:
    """Encode a page, given as token ids, with the exported model: ``python -m lucid.models.layoutlm FOLDER 1 48 2``.

    Each token has a box of its own, from left to right.
    """
    both = SideBySide(LayoutLM.from_pretrained(checkpoint_folder("layoutlm/base")))
    ids = token_ids(1, 5, 7, 2)
    left = lucid.arange(ids.shape[1])
    bbox = lucid.stack([left, left * 0, left + 1, left * 0 + 1], -1).unsqueeze(0)
    states = both(ids, ones_like(ids), bbox=bbox)
    print(f"states {states.shape}; {both.verdict('hidden states')}")


if __name__ == "__main__":
    main()
