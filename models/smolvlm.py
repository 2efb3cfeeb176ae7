"""SmolVLM (Marafioti et al. 2025) and Idefics3 (Laurençon et al. 2024): Llama that also reads images.

::

    smolvlm = SmolVLM.from_pretrained("folder with config.json and model.safetensors")
    logits = smolvlm(input_ids, attention_mask, pixel_values=pixels)  # pixels (N, images, 3, S, S)
    lucid.layouts.write_folder(smolvlm, folder, "out", layout="transformers.js")   # three files

A tower like SigLIP's makes a vector of each patch of an image, and a connector one of each square of patches. These
take the places of the image tokens among the vectors of a text, which Llama continues. transformers.js runs the three
steps as files of their own (`file_parts`); the whole model can be one file as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

import lucid
from lucid import Tensor, TensorType, nn, ops
from lucid.models.checkpoints import option_table as option
from lucid.models.checkpoints.families import FAMILIES
from lucid.models.checkpoints.pretrained import Checkpoint, Config
from lucid.models.llama import LlamaConfig
from lucid.models.parts.decoders import TIED, CausalLM
from lucid.models.parts.demonstration import SideBySide, checkpoint_folder
from lucid.models.parts.options import tied_output
from lucid.models.parts.two_towers import ImageTower, ImageTowerConfig
from lucid.nn import functional as F
from lucid.nn.model_parts import ModelPart


@dataclass(frozen=True)
class SmolVLMVisionConfig(ImageTowerConfig):
    """The image tower."""

    hidden_size: int = option.size("hidden_size", 768)
    num_heads: int = option.heads("num_attention_heads", 12)
    intermediate_size: int = option.size("intermediate_size", 3072)
    activation: str = option.activation("hidden_act", "gelu_pytorch_tanh")


@dataclass(frozen=True)
class SmolVLMConfig(LlamaConfig):
    """The decoder, the image tower, and how they are connected."""

    vision: SmolVLMVisionConfig = field(default_factory=SmolVLMVisionConfig)
    scale_factor: int = 2  # the side of the squares of patches of which one vector is made
    image_token_id: int = 0

    @classmethod
    def read(cls, options: Config) -> Self:
        texts = options.section("text_config")
        texts.get("model_type", str)  # required: it says which decoder it is
        texts.only("model_type", "llama")
        vision = SmolVLMVisionConfig.read(options.section("vision_config"))
        scale, side = options.whole("scale_factor"), vision.image_size // vision.patch_size
        if side % scale:
            raise options.wrong("scale_factor", f"expected a divisor of the {side} patches in a row")
        return replace(
            super().read(texts),
            vision=vision,
            scale_factor=scale,
            image_token_id=options.whole("image_token_id", low=0),
            tied=tied_output(options, table=r"(?:model\.)?text_model\.embed_tokens\.weight"),
        )


class SmolVLM(CausalLM[SmolVLMConfig]):
    """Token ids and images to the logits of the token that follows each."""

    checkpoint = Checkpoint(
        family=FAMILIES["smolvlm"],
        read=SmolVLMConfig.read,
        renames=[(r"^model\.(?=(vision_model|connector)\.)", ""), (r"^(model\.)?text_model\.", "model.")],
        tied_keys=TIED,
    )

    def __init__(self, config: SmolVLMConfig) -> None:
        super().__init__(config)
        self.vision_model = MaskedImageTower(config.vision)
        self.connector = Connector(config)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: Sequence[Any] | None = None,
        logits_to_keep: int | Tensor | None = None,
        pixel_values: Tensor | None = None,
        pixel_attention_mask: Tensor | None = None,
    ) -> Tensor | tuple[Tensor, list[Any]]:
        """As for any decoder, with images.

        Args:
            input_ids: (N, L) int64, with a token for each vector of an image.
            pixel_values: (N, images, num_channels, S, S). Images of only zeros are padding and are passed over.
            pixel_attention_mask: (N, images, S, S) bool, false where an image is padding; by default it is none.
        """
        x = self.embed(input_ids, pixel_values, pixel_attention_mask)
        return self.step(x, attention_mask, position_ids, past_key_values, logits_to_keep)

    def embed(
        self, input_ids: Tensor, pixel_values: Tensor | None = None, pixel_attention_mask: Tensor | None = None
    ) -> Tensor:
        """The vectors of tokens, (N, L, E); the vectors of images replace those of image tokens."""
        x = self.model.embed(input_ids)
        if pixel_values is None:
            return x
        features = self.encode_images(pixel_values, pixel_attention_mask)
        padding = (pixel_values.flatten(0, 1).flatten(1) == 0).all(1)
        features = features[ops.sort(padding.astype(lucid.int64), axis=0).indices]  # images before padding
        return x.masked_scatter((input_ids == self.config.image_token_id).unsqueeze(-1), features)

    def encode_images(self, pixel_values: Tensor, pixel_attention_mask: Tensor | None = None) -> Tensor:
        """The vectors of images (N, images, C, S, S): (N * images, vectors of one, E)."""
        mask = None if pixel_attention_mask is None else pixel_attention_mask.flatten(0, 1)
        return self.connector(self.vision_model(pixel_values.flatten(0, 1), mask))

    def step(
        self,
        inputs_embeds: Tensor,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: Sequence[Any] | None = None,
        logits_to_keep: int | Tensor | None = None,
    ) -> Tensor | tuple[Tensor, list[Any]]:
        """`forward` from the vectors of tokens that `embed` makes."""
        states, present = self.model.from_embeddings(inputs_embeds, attention_mask, position_ids, past_key_values)
        logits = self.logits(F.kept_positions(states[-1], logits_to_keep))
        return logits if past_key_values is None else (logits, present)

    def input_specs(self) -> Mapping[str, TensorType]:
        pixels = lucid.spec("N", "M", *self.vision_model.image_shape, dtype=self.table.dtype)
        return {**super().input_specs(), "pixel_values": pixels}

    def file_parts(self) -> Mapping[str, ModelPart]:
        whole, batch = self.part("growing"), "batch_size"
        inputs, (channels, *sides) = dict(whole.inputs), self.vision_model.image_shape
        ids = inputs.pop("input_ids")
        images = {
            "pixel_values": lucid.spec(batch, "num_images", channels, *sides, dtype=self.table.dtype),
            "pixel_attention_mask": lucid.spec(batch, "num_images", *sides, dtype=lucid.bool_),
        }
        embeds = lucid.spec(*ids.shape, self.config.hidden_size, dtype=self.table.dtype)

        def draw(sizes: Mapping[str, int]) -> Mapping[str, Any]:
            assert whole.draw is not None
            drawn = dict(whole.draw(sizes))
            return {"inputs_embeds": self.embed(Tensor(drawn.pop("input_ids"))).numpy(), **drawn}

        return {
            "vision_encoder": ModelPart(self.encode_images, images, ("image_features",)),
            "embed_tokens": ModelPart(self.model.embed, {"input_ids": ids}, ("inputs_embeds",)),
            "decoder_model_merged": whole._replace(
                function=self.step, inputs={"inputs_embeds": embeds, **inputs}, draw=draw
            ),
        }


class MaskedImageTower(ImageTower):
    """Pixels (M, C, S, S) to the states of patches (M, patches, hidden_size), without those of padding.

    The positions of a smaller image are spread over the whole table.
    """

    name = "SmolVLM"

    def __init__(self, config: SmolVLMVisionConfig) -> None:
        super().__init__(config, whole=False)
        self.patch, self.side = config.patch_size, config.image_size // config.patch_size

    def forward(self, pixel_values: Tensor, mask: Tensor | None = None) -> Tensor:
        if mask is None:
            return self.post_layernorm(self.hidden_states(pixel_values)[-1])
        images, side, used = pixel_values.shape[0], self.side, self.side * self.patch
        kept = mask[:, :used, :used].reshape(images, side, self.patch, side, self.patch).any(4).any(2)
        x = self.embeddings.patch_embedding(pixel_values).flatten(2).mT
        x = x + self.embeddings.position_embedding(self._places(kept))
        return self.post_layernorm(self.encoder(x, kept.flatten(1))[-1])

    def _places(self, kept: Tensor) -> Tensor:
        """The rows of the table of positions for patches that are kept, (M, side, side): (M, patches)."""
        bounds = lucid.tensor((np.arange(1, self.side) / self.side).astype(np.float32))
        numbers = lucid.arange(self.side).astype(lucid.float32)

        def along(first: Tensor) -> Tensor:  # how many of the bounds a patch is past, by its share of the image
            share = numbers * (1.0 / first.astype(lucid.float32).sum(1, keepdims=True))
            return (ops.minimum(share, 1 - 1e-6).unsqueeze(2) >= bounds).astype(lucid.int64).sum(2)

        rows, columns = along(kept[:, :, 0]), along(kept[:, 0])
        return ops.where(kept, rows.unsqueeze(2) * self.side + columns.unsqueeze(1), 0).flatten(1)


class Connector(nn.Module):
    """Squares of patches as one vector each (pixel shuffle), as wide as those of tokens."""

    def __init__(self, config: SmolVLMConfig) -> None:
        self.scale, self.side = config.scale_factor, config.vision.image_size // config.vision.patch_size
        width = config.vision.hidden_size * self.scale**2
        self.modality_projection = {"proj": nn.Linear(width, config.hidden_size, bias=False)}

    def forward(self, x: Tensor) -> Tensor:
        images, _, width = x.shape
        scale, few = self.scale, self.side // self.scale
        squares = x.reshape(images, few, scale, few, scale * width).permute(0, 1, 3, 2, 4)
        return self.modality_projection["proj"](squares.reshape(images, few * few, scale * scale * width))


def main() -> None:
    """Read a random image with the exported model, and compare it with eager."""
    model = SmolVLM.from_pretrained(checkpoint_folder("smolvlm/base"))
    both, config = SideBySide(model), model.config
    lucid.manual_seed(0)
    vectors = (model.connector.side // config.scale_factor) ** 2
    ids = lucid.tensor([[1, *[config.image_token_id] * vectors, 5, 7]])
    pixels = lucid.randn(1, 1, *model.vision_model.image_shape)
    logits = both(ids, ops.ones_like(ids), pixel_values=pixels)
    print(f"an image, then token {logits[0, -1].argmax().item()}; {both.verdict('logits')}")


if __name__ == "__main__":
    main()
