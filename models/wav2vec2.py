"""wav2vec 2.0 (Baevski et al. 2020), HuBERT (Hsu et al. 2021), WavLM (Chen et al. 2022): sound to states of 20 ms each.

::

    wav2vec2 = Wav2Vec2.from_pretrained("folder with config.json and model.safetensors")
    states = wav2vec2(input_values)                                   # (N, samples) to (N, frames, hidden_size)
    lucid.export.to_onnx(wav2vec2, path="wav2vec2.onnx")              # any batch, any length

    model = lucid.models.load("folder of a Wav2Vec2ForCTC")
    processor = CTCProcessor.from_pretrained(folder)                  # from sound to text: the page "Transcription"
    transcribe(model, processor, read_wav("speech.wav")).text

Convolutions make frames of samples; a transformer, whose positions come from a wide convolution, reads them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Self

import lucid
from lucid import Size, Tensor, TensorType, nn, ops
from lucid.models.checkpoints import option_table as option
from lucid.models.checkpoints.families import FAMILIES
from lucid.models.checkpoints.pretrained import ACTIVATIONS, Checkpoint, Config, Pretrained
from lucid.models.parts.demonstration import SideBySide, checkpoint_folder
from lucid.models.parts.on_model import OnModel
from lucid.models.parts.projected_attention import Projections
from lucid.models.parts.sounds import OnSounds, SoundClassifier, SoundConfig
from lucid.models.speech.ctc import CTCProcessor as CTCProcessor
from lucid.models.speech.ctc import transcribe as transcribe
from lucid.models.speech.transcription import Segment as Segment
from lucid.models.speech.transcription import Transcription as Transcription
from lucid.models.speech.wav import WavError as WavError
from lucid.models.speech.wav import read_wav as read_wav

GROUP, LAYER = "group", "layer"  # values of feat_extract_norm


class XVectorConfig(NamedTuple):
    """Channels, frames and steps between them of the convolutions that read the states, and the width of a vector."""

    channels: tuple[int, ...]
    kernels: tuple[int, ...]
    dilations: tuple[int, ...]
    width: int


@dataclass(frozen=True)
class Wav2Vec2Config(SoundConfig):
    """The sizes and options of a model; the defaults are those of wav2vec 2.0 base."""

    hidden_size: int = option.size("hidden_size", 768)
    num_layers: int = option.layers("num_hidden_layers", 12, within="encoder.layers.")
    num_heads: int = option.heads("num_attention_heads", 12)
    intermediate_size: int = option.size("intermediate_size", 3072)
    activation: str = option.activation("hidden_act", "gelu")
    eps: float = option.real("layer_norm_eps", 1e-5)
    conv_sizes: tuple[int, ...] = option.sizes("conv_dim", (512,) * 7)  # channels of each convolution
    conv_kernels: tuple[int, ...] = option.sizes("conv_kernel", (10, 3, 3, 3, 3, 2, 2), like="conv_sizes")
    conv_strides: tuple[int, ...] = option.sizes("conv_stride", (5, 2, 2, 2, 2, 2, 2), like="conv_sizes")
    conv_bias: bool = option.flag("conv_bias", False)
    conv_activation: str = option.activation("feat_extract_activation", "gelu")
    conv_norm: str = option.choice(  # of the first convolution, over time; or of each, over channels
        "feat_extract_norm", {GROUP: GROUP, LAYER: LAYER}, absent=GROUP
    )
    position_kernel: int = option.size("num_conv_pos_embeddings", 128)
    position_groups: int = option.heads("num_conv_pos_embedding_groups", 16)
    norm_first: bool = option.flag("do_stable_layer_norm", False)  # within layers; what transformers calls stable
    xvector: XVectorConfig | None = None  # of a head that tells speakers apart
    num_buckets: int = 0  # of distances that have a bias, which each layer gates by what it reads (WavLM); 0: none
    max_distance: int = 0  # from which distances share a bias
    projection_norm: bool = option.flag("feat_proj_layer_norm", absent=True)  # which some HuBERTs do without

    @classmethod
    def read(cls, options: Config) -> Self:
        for name in ("add_adapter", "conv_pos_batch_norm"):
            options.only(name, False)
        if options.model_type != "wavlm":
            return cls.from_rows(options)
        buckets = options.whole("num_buckets", low=4, high=1 << 16)
        distance = options.whole("max_bucket_distance", high=1 << 20)
        return cls.from_rows(options, num_buckets=buckets, max_distance=distance)


class Wav2Vec2(Pretrained[Wav2Vec2Config]):
    """Sound (N, samples) to states (N, frames, hidden_size)."""

    checkpoint = Checkpoint(
        family=FAMILIES["wav2vec2"],
        read=Wav2Vec2Config.read,
        ignored_options=[
            "num_feat_extract_layers|vocab_size|output_hidden_size",  # repeat what lists and weights say
            "apply_spec_augment|mask_(time|feature)_.*",  # training
            "num_ctc_classes|codevector_dim|num_codevector.*|contrastive_.*|diversity_.*|proj_codevector_dim|ctc_.*",
            "adapter_(kernel_size|stride)|num_adapter_layers",  # of an adapter that is not there
            "classifier_proj_size|tdnn_.*|xvector_.*|use_weighted_layer_sum",  # heads
            "tie_word_embeddings",
        ],
        renames=[
            (FAMILIES["wav2vec2"].prefixes, ""),
            # What older checkpoints call the length and the direction of each filter.
            (r"\.conv\.weight_g$", ".conv.parametrizations.weight.original0"),
            (r"\.conv\.weight_v$", ".conv.parametrizations.weight.original1"),
        ],
        # Heads, and what only training uses.
        ignored_keys=[
            r"^(lm_head|projector|classifier|quantizer|project_(hid|q)|label_embeddings_concat|final_proj)\b",
            r"\bmasked_spec_embed$|^layer_weights$",
        ],
    )
    output_names: ClassVar[Sequence[str]] = ("last_hidden_state",)

    def __init__(self, config: Wav2Vec2Config | None = None) -> None:
        super().__init__(config := config or Wav2Vec2Config())
        self.feature_extractor = FeatureExtractor(config)
        self.feature_projection = FeatureProjection(config)
        self.encoder = Encoder(config)

    def forward(self, input_values: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """States (N, frames, hidden_size).

        Args:
            input_values: (N, samples), 16,000 per second, padded at the end with 0.
            attention_mask: (N, samples) int64, 0 for padding. Models whose first convolution is normalised over time
                ("group") are trained without one, so theirs is not an input of an exported model.
        """
        return self.encoder(*self.frames(input_values, attention_mask))

    def frames(self, input_values: Tensor, attention_mask: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """The input of the encoder, (N, frames, hidden_size), and which frames are not padding, (N, frames)."""
        if input_values.ndim != 2:
            shape = ", ".join(map(str, input_values.shape))
            raise ValueError(f"Wav2Vec2: input_values have shape [{shape}], expected (N, samples)")
        x = self.feature_projection(self.feature_extractor(input_values))
        if attention_mask is None:
            return x, None
        samples = (attention_mask != 0).astype(lucid.int64).sum(1)
        kept = self.feature_extractor.kept(x.shape[1], samples)
        return ops.where(kept.unsqueeze(2), x, lucid.tensor(0.0, dtype=x.dtype)), kept

    def input_specs(self) -> Mapping[str, TensorType]:
        dtype = self.feature_projection.projection.weight.dtype
        specs = {"input_values": lucid.spec("N", "L", dtype=dtype)}
        if self.config.conv_norm == LAYER:
            specs["attention_mask"] = lucid.spec("N", "L", dtype=lucid.int64)
        return specs


class FeatureExtractor(nn.Module):
    """Samples (N, L) to features by convolutions, (N, frames, channels)."""

    def __init__(self, config: Wav2Vec2Config) -> None:
        self.conv_layers = [ConvLayer(config, index) for index in range(len(config.conv_sizes))]
        self.stride, self.span = 1, 1  # samples from a frame to the next, and those that a frame is made of
        for kernel, stride in zip(config.conv_kernels, config.conv_strides, strict=True):
            self.span += (kernel - 1) * self.stride
            self.stride *= stride

    def forward(self, input_values: Tensor) -> Tensor:
        x = input_values.unsqueeze(1)
        for layer in self.conv_layers:
            x = layer(x)
        return x.mT

    def kept(self, frames: Size, samples: Tensor) -> Tensor:
        """(N, frames): whether a frame depends only on the first `samples` (N,) samples of its row."""
        return lucid.arange(frames) * self.stride + self.span <= samples.unsqueeze(1)


class ConvLayer(nn.Module):
    """A convolution, a norm if it has one, and the activation: (N, C, L) to (N, C', L')."""

    def __init__(self, config: Wav2Vec2Config, index: int) -> None:
        before, channels = (1, *config.conv_sizes)[index], config.conv_sizes[index]
        kernel, stride = config.conv_kernels[index], config.conv_strides[index]
        self.conv = nn.Conv1d(before, channels, kernel, stride=stride, bias=config.conv_bias)
        self.layer_norm: nn.GroupNorm | nn.LayerNorm | None = None
        if config.conv_norm == LAYER:
            self.layer_norm = nn.LayerNorm(channels)
        elif index == 0:
            self.layer_norm = nn.GroupNorm(channels, channels)
        self.activation = ACTIVATIONS[config.conv_activation]

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x)
        if isinstance(self.layer_norm, nn.LayerNorm):
            x = self.layer_norm(x.mT).mT
        elif self.layer_norm is not None:
            x = self.layer_norm(x)
        return self.activation(x)


class FeatureProjection(nn.Module):
    """Features, normalised, in the width of the encoder."""

    def __init__(self, config: Wav2Vec2Config) -> None:
        channels = config.conv_sizes[-1]
        self.layer_norm = nn.LayerNorm(channels, config.eps) if config.projection_norm else None
        self.projection = nn.Linear(channels, config.hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        return self.projection(x if self.layer_norm is None else self.layer_norm(x))


class Encoder(nn.Module):
    """Frames (N, L, hidden_size) to states of the same shape; `kept` (N, L) is false for padding."""

    def __init__(self, config: Wav2Vec2Config) -> None:
        self.pos_conv_embed = PositionalEmbedding(config)
        self.layer_norm = nn.LayerNorm(config.hidden_size, config.eps)
        self.layers = [Layer(config, first=index == 0) for index in range(config.num_layers)]
        self.norm_first = config.norm_first

    def forward(self, x: Tensor, kept: Tensor | None = None) -> Tensor:
        x = self.hidden_states(x, kept)[-1]
        return self.layer_norm(x) if self.norm_first else x

    def hidden_states(self, x: Tensor, kept: Tensor | None = None) -> list[Tensor]:
        """The input of the first layer, and the output of each layer."""
        x = x + self.pos_conv_embed(x)
        states = [x if self.norm_first else self.layer_norm(x)]
        bias = self.layers[0].attention.bias(x) if self.layers else None
        for layer in self.layers:
            states.append(layer(states[-1], kept, bias))
        return states

    def states_read(self, x: Tensor, kept: Tensor | None, every: bool) -> list[Tensor]:
        """The input of a head: the last states, or those of every layer."""
        return self.hidden_states(x, kept) if every else [self(x, kept)]


class PositionalEmbedding(nn.Module):
    """Positions by a wide convolution over neighbouring frames, in groups of channels."""

    def __init__(self, config: Wav2Vec2Config) -> None:
        self.conv = WeightNormConv1d(config.hidden_size, config.position_kernel, config.position_groups)
        self.activation = ACTIVATIONS[config.conv_activation]

    def forward(self, x: Tensor) -> Tensor:
        return self.activation(self.conv(x.mT)).mT


class WeightNormConv1d(nn.Module):
    """A convolution that keeps the length of (N, C, L). An even kernel reads one more frame before than after."""

    def __init__(self, channels: int, kernel: int, groups: int) -> None:
        self.groups = groups
        self.pads = (kernel // 2, (kernel - 1) // 2)
        self.bias = nn.init.new_parameter(channels)
        self.parametrizations = {"weight": WeightNorm(channels, channels // groups, kernel)}

    def forward(self, x: Tensor) -> Tensor:
        weight = self.parametrizations["weight"]()
        return ops.conv(x, weight, self.bias, strides=(1,), pads=self.pads, dilations=(1,), group=self.groups)


class WeightNorm(nn.Module):
    """A weight that is stored as lengths and directions (Salimans & Kingma 2016), under torch's names.

    There is one length for each place of the kernel, shared by all filters.
    """

    def __init__(self, channels: int, read: int, kernel: int) -> None:
        self.original0 = nn.init.new_parameter(1, 1, kernel, value=1.0)
        self.original1 = nn.init.normal_(nn.init.new_parameter(channels, read, kernel))

    def forward(self) -> Tensor:
        """(channels, read, kernel)."""
        length, direction = self.original0, self.original1
        weight = direction * (length / (direction * direction).sum((0, 1), keepdims=True).sqrt())
        return weight.named_after(direction, "[normed]")


class Layer(nn.Module):
    """Attention and two linear layers, each with a norm, before or after it, and a residual connection."""

    def __init__(self, config: Wav2Vec2Config, first: bool) -> None:
        self.attention = Attention(config, first)
        self.layer_norm, self.final_layer_norm = (nn.LayerNorm(config.hidden_size, config.eps) for _ in range(2))
        self.feed_forward = FeedForward(config)
        self.norm_first = config.norm_first

    def forward(self, x: Tensor, kept: Tensor | None, bias: Tensor | None) -> Tensor:
        if self.norm_first:
            x = x + self.attention(self.layer_norm(x), kept, bias)
            return x + self.feed_forward(self.final_layer_norm(x))
        x = self.layer_norm(x + self.attention(x, kept, bias))
        return self.final_layer_norm(x + self.feed_forward(x))


class Attention(Projections):
    """Self-attention of the frames that are not padding; WavLM's has gates for the biases of distances."""

    def __init__(self, config: Wav2Vec2Config, first: bool) -> None:
        super().__init__(config.hidden_size, config.num_heads)
        self.rel_attn_embed: nn.RelativePositionBias | None = None
        if config.num_buckets:
            self.gru_rel_pos_const = nn.init.new_parameter(1, self.num_heads, 1, 1, value=1.0)
            self.gru_rel_pos_linear = nn.Linear(config.hidden_size // self.num_heads, 8)
            if first:  # of all layers
                sizes = (self.num_heads, config.num_buckets, config.max_distance)
                self.rel_attn_embed = nn.RelativePositionBias(*sizes)

    def forward(self, x: Tensor, kept: Tensor | None, bias: Tensor | None) -> Tensor:
        q, k, v = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        bias = None if bias is None else self.gate(x) * bias
        return self.out_proj(ops.attention(q, k, v, bias, kept, heads=self.num_heads))

    def bias(self, x: Tensor) -> Tensor | None:
        """The bias of distances on the scores before gates, (1, H, L, L)."""
        return None if self.rel_attn_embed is None else self.rel_attn_embed(x.shape[1], x.shape[1])

    def gate(self, x: Tensor) -> Tensor:
        """The gate of the biases of each head and query, (N, H, L, 1), from x (N, L, E)."""
        n, length, width = x.shape
        heads = x.reshape(n, length, self.num_heads, width // self.num_heads).transpose(1, 2)
        sums = self.gru_rel_pos_linear(heads).reshape(n, self.num_heads, length, 2, 4).sum(-1)
        update, reset = sums.sigmoid().chunk(2, -1)
        return update * (reset * self.gru_rel_pos_const - 1) + 2


class FeedForward(nn.Module):
    """Two linear layers."""

    def __init__(self, config: Wav2Vec2Config) -> None:
        self.intermediate_dense = nn.Linear(config.hidden_size, config.intermediate_size)
        self.output_dense = nn.Linear(config.intermediate_size, config.hidden_size)
        self.activation = ACTIVATIONS[config.activation]

    def forward(self, x: Tensor) -> Tensor:
        return self.output_dense(self.activation(self.intermediate_dense(x)))


# Heads ----------------------------------------------------------------------------------------------------------------

_RENAMES = ((FAMILIES["wav2vec2"].prefixes, "wav2vec2."), *Wav2Vec2.checkpoint.renames[1:])


class Wav2Vec2ForCTC(OnModel[Wav2Vec2Config], on=Wav2Vec2):
    """Sound (N, samples) to the logits of the token that is said in each frame, (N, frames, vocab_size)."""

    head_task, label_key, head_renames = "automatic-speech-recognition", r"lm_head\.weight", _RENAMES

    def __init__(self, config: Wav2Vec2Config) -> None:
        super().__init__(config)
        self.wav2vec2 = Wav2Vec2(config)
        self.lm_head = nn.Linear(config.hidden_size, config.num_labels)

    def forward(self, input_values: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        return self.lm_head(self.wav2vec2(input_values, attention_mask))


class OnStates(OnSounds[Wav2Vec2Config]):
    """The base of heads that read the last states, or the weighted sum of those of all layers."""

    head_renames = _RENAMES

    @classmethod
    def read_config(cls, options: Config, base: Checkpoint[Any]) -> Any:
        config = super().read_config(options, base)
        if config.weighted_layers:
            options.only("do_stable_layer_norm", False)  # releases of transformers differ in whether the last is normed
        return config

    def __init__(self, config: Wav2Vec2Config) -> None:
        super().__init__(config)
        self.wav2vec2 = Wav2Vec2(config)
        self.add_weights(config.num_layers)

    def states(self, input_values: Tensor, attention_mask: Tensor | None) -> tuple[list[Tensor], Tensor | None]:
        """The states that the head reads, and which frames are not padding, (N, frames)."""
        x, kept = self.wav2vec2.frames(input_values, attention_mask)
        return self.wav2vec2.encoder.states_read(x, kept, self.layer_weights is not None), kept


class Wav2Vec2ForSequenceClassification(SoundClassifier[Wav2Vec2Config], OnStates, on=Wav2Vec2):
    def __init__(self, config: Wav2Vec2Config) -> None:
        super().__init__(config)
        self.add_classifier(config.hidden_size)

    def forward(self, input_values: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        return self.classes(*self.states(input_values, attention_mask))


class Wav2Vec2ForAudioFrameClassification(OnStates, on=Wav2Vec2):
    """Sound (N, samples) to the logits of each frame's classes, (N, frames, num_labels), such as who speaks."""

    head_task, label_key = "audio-frame-classification", r"classifier\.weight"

    def __init__(self, config: Wav2Vec2Config) -> None:
        super().__init__(config)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)

    def forward(self, input_values: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        return self.classifier(self.summed(self.states(input_values, attention_mask)[0]))


class Wav2Vec2ForXVector(OnStates, on=Wav2Vec2):
    """Sound (N, samples) to scores and a vector of who speaks, (N, width) each (Snyder et al. 2018, "X-Vectors")."""

    head_task, head_keys = "audio-xvector", (r"^tdnn\.0\.kernel\.weight$",)
    other_heads = "objective"  # of training
    output_names: ClassVar[Sequence[str]] = ("logits", "embeddings")

    @classmethod
    def read_config(cls, options: Config, base: Checkpoint[Any]) -> Any:
        channels = options.sizes("tdnn_dim")
        kernels, dilations = (options.sizes(f"tdnn_{name}", len(channels)) for name in ("kernel", "dilation"))
        xvector = XVectorConfig(channels, kernels, dilations, options.size("xvector_output_dim"))
        return replace(super().read_config(options, base), xvector=xvector)

    def __init__(self, config: Wav2Vec2Config) -> None:
        super().__init__(config)
        xvector = config.xvector
        assert xvector is not None
        channels = xvector.channels
        self.projector = nn.Linear(config.hidden_size, channels[0])
        sizes = zip((channels[0], *channels), channels, xvector.kernels, xvector.dilations, strict=False)
        self.tdnn = [TimeDelay(*each) for each in sizes]
        self.feature_extractor = nn.Linear(2 * channels[-1], xvector.width)
        self.classifier = nn.Linear(xvector.width, xvector.width)

    def forward(self, input_values: Tensor, attention_mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        states, kept = self.states(input_values, attention_mask)
        x = self.projector(self.summed(states))
        for layer in self.tdnn:
            x = layer(x)
        vectors = self.feature_extractor(ops.concat(self._mean_and_deviation(x, kept), -1))
        return self.classifier(vectors), vectors

    def _mean_and_deviation(self, x: Tensor, kept: Tensor | None) -> list[Tensor]:
        """The mean and the deviation over the kept frames (N, L, C). As in transformers, kernels shorten the count as
        if they were not dilated.

        A single frame deviates by 0, where transformers gives NaN.
        """
        if kept is None:
            return [x.mean(1), x.var(1, correction=1).sqrt()]
        assert self.config.xvector is not None
        taken = sum(self.config.xvector.kernels) - len(self.config.xvector.kernels)
        frames = kept.astype(lucid.int64).sum(1, keepdims=True) - taken
        counted = (lucid.arange(x.shape[1]) < frames).astype(x.dtype).unsqueeze(2)
        count = counted.sum(1)
        mean = (x * counted).sum(1) / ops.maximum(count, 1)
        squares = ((x - mean.unsqueeze(1)) ** 2 * counted).sum(1)
        return [mean, (squares / ops.maximum(count - 1, 1)).sqrt()]


class TimeDelay(nn.Module):
    """A convolution whose kernel is stored as a matrix, and ReLU: (N, L, C) to (N, L', C')."""

    def __init__(self, before: int, channels: int, kernel: int, dilation: int) -> None:
        self.shape, self.dilation = (channels, kernel, before), dilation
        self.kernel = nn.Linear(before * kernel, channels)

    def forward(self, x: Tensor) -> Tensor:
        weight = self.kernel.weight.reshape(*self.shape).mT
        y = ops.conv(x.mT, weight, self.kernel.bias, strides=(1,), pads=(0, 0), dilations=(self.dilation,), group=1)
        return ops.relu(y.mT)


def main() -> None:
    """Encode noise, exported and eagerly: ``python -m lucid.models.wav2vec2 FOLDER``."""
    wav2vec2 = Wav2Vec2.from_pretrained(checkpoint_folder("hubert/base"))
    both = SideBySide(wav2vec2)
    lucid.manual_seed(0)
    sound = lucid.randn(2, 1_600)
    masks = [lucid.ones(2, 1_600, dtype=lucid.int64)] if "attention_mask" in wav2vec2.input_specs() else []
    states = both(sound, *masks)
    print(f"{sound.shape} samples are states {states.shape}, {both.verdict('states')}")


if __name__ == "__main__":
    main()
