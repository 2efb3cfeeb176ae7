"""One line per module: an instance, and the inputs to trace it with if it does not know them itself."""

from __future__ import annotations

from typing import Any

import lucid
from lucid import Tensor, nn
from lucid.nn import rope_scaling


class Rotated(nn.Module):
    """Rotary positions, applied as models apply them."""

    def __init__(self, rope: nn.RotaryEmbedding) -> None:
        self.rope = rope

    def forward(self, x: Tensor) -> Tensor:
        cos, sin = self.rope(lucid.arange(x.shape[1]))
        return self.rope.rotate(x, cos, sin, heads=2)


class Biased(nn.Module):
    """A position bias, added to scores (N, H, L, S)."""

    def __init__(self, bias: nn.Module) -> None:
        self.bias = bias

    def forward(self, scores: Tensor) -> Tensor:
        return scores + self.bias(scores.shape[2], scores.shape[3])


class OfVariances(nn.Module):
    """A loss of variances, which are not negative, from any numbers."""

    def __init__(self, loss: nn.Module) -> None:
        self.loss = loss

    def forward(self, x: Tensor, target: Tensor, numbers: Tensor) -> Tensor:
        return self.loss(x, target, numbers.abs())


class Positioned(nn.Module):
    """Learned positions, added to vectors."""

    def __init__(self, positions: nn.LearnedPositions) -> None:
        self.positions = positions

    def forward(self, x: Tensor) -> Tensor:
        return x + self.positions(x.shape[1])


class OfProbabilities(nn.Module):
    """A loss of probabilities, from any numbers."""

    def __init__(self, loss: nn.Module) -> None:
        self.loss = loss

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        return self.loss(x.sigmoid(), target.sigmoid())


class Alternating(nn.Module):
    """Modules by name and in a list."""

    def __init__(self) -> None:
        self.named = nn.ModuleDict({"first": nn.Linear(8, 8)})
        self.listed = nn.ModuleList([nn.ReLU(), nn.Linear(8, 8)])

    def forward(self, x: Tensor) -> Tensor:
        x = self.named["first"](x)
        for module in self.listed:
            x = module(x)
        return x


class Scaled(nn.Module):
    """Parameters by name and in a list."""

    def __init__(self) -> None:
        self.named = nn.ParameterDict({"bias": lucid.ones(8)})
        self.listed = nn.ParameterList([lucid.ones(8) * 2, lucid.ones(1) * 3])

    def forward(self, x: Tensor) -> Tensor:
        for scale in self.listed:
            x = x * scale
        return x + self.named["bias"]


lucid.manual_seed(0)  # the modules below have the same weights in every test

X, IMAGES, SCORES = ("N", "L", 8), ("N", 8, 12, 9), ("N", 4, "L", "S")
CLASSES = ("N", 2), lucid.spec("N", dtype="int64")

MODULES: dict[str, tuple[nn.Module, tuple[Any, ...]]] = {
    "Linear": (nn.Linear(8, 4), (X,)),
    "Embedding": (nn.Embedding(2, 8), (lucid.spec("N", "L", dtype="int64"),)),
    "EmbeddingBag": (nn.EmbeddingBag(2, 8), (lucid.spec("N", "L", dtype="int64"),)),
    "TiedEmbedding": (nn.TiedEmbedding(2, 8), (lucid.spec("N", "L", dtype="int64"),)),
    "Identity": (nn.Identity(), (X,)),
    "Dropout": (nn.Dropout(0.1).eval(), (X,)),
    "Sequential": (nn.Sequential(nn.Linear(8, 4), nn.Tanh()), (X,)),
    "ParameterList": (Scaled(), (X,)),
    "ParameterDict": (Scaled(), (X,)),
    "ModuleList": (Alternating(), (X,)),
    "ModuleDict": (Alternating(), (X,)),
    "ReLU": (nn.ReLU(), (X,)),
    "GELU": (nn.GELU(), (X,)),
    "SiLU": (nn.SiLU(), (X,)),
    "Tanh": (nn.Tanh(), (X,)),
    "Sigmoid": (nn.Sigmoid(), (X,)),
    "LeakyReLU": (nn.LeakyReLU(), (X,)),
    **{name: (getattr(nn, name)(), (X,)) for name in ("ReLU6", "Hardswish", "Hardsigmoid", "Mish", "ELU", "Softplus")},
    **{name: (getattr(nn, name)(), (X,)) for name in ("CELU", "SELU", "Hardtanh", "Softsign", "Tanhshrink")},
    **{name: (getattr(nn, name)(), (X,)) for name in ("LogSigmoid", "Softmin")},
    "PReLU": (nn.PReLU(8), (IMAGES,)),
    "LogSoftmax": (nn.LogSoftmax(), (X,)),
    "PixelUnshuffle": (nn.PixelUnshuffle(2), (("N", 2, 4, 6),)),
    "ChannelShuffle": (nn.ChannelShuffle(2), (IMAGES,)),
    "Unflatten": (nn.Unflatten(1, (2, 4)), (IMAGES,)),
    "PixelShuffle": (nn.PixelShuffle(2), (IMAGES,)),
    **{
        f"{name}Pad{axes}d": (getattr(nn, f"{name}Pad{axes}d")(2), (shape,))
        for axes, shape in ((1, X), (2, IMAGES), (3, ("N", 2, 4, 6, 8)))
        for name in ("Zero", "Reflection", "Replication", "Circular")
    },
    "ConstantPad1d": (nn.ConstantPad1d(2, 1.0), (X,)),
    "ConstantPad2d": (nn.ConstantPad2d((1, 0, 2, 1), 1.0), (IMAGES,)),
    "ConstantPad3d": (nn.ConstantPad3d(1, 1.0), (("N", 2, 4, 6, 8),)),
    "Dropout2d": (nn.Dropout2d(0.1).eval(), (IMAGES,)),
    "Softmax": (nn.Softmax(), (X,)),
    "GLU": (nn.GLU(), (X,)),
    "GatedMLP": (nn.GatedMLP(8, 16), ()),
    "SwiGLU": (nn.SwiGLU(8, 16), ()),
    "GatedExperts": (nn.GatedExperts(2, 8, 4), ()),
    "MixtureOfExperts": (nn.MixtureOfExperts(4, 2, 8, 4), ()),
    "LayerNorm": (nn.LayerNorm(8), (X,)),
    "RMSNorm": (nn.RMSNorm(8), (X,)),
    "BatchNorm1d": (nn.BatchNorm1d(8).eval(), (("N", 8, "L"),)),
    "BatchNorm2d": (nn.BatchNorm2d(8).eval(), (IMAGES,)),
    "BatchNorm3d": (nn.BatchNorm3d(8).eval(), (("N", 8, "D", "H", "W"),)),
    "InstanceNorm1d": (nn.InstanceNorm1d(8), ()),
    "InstanceNorm2d": (nn.InstanceNorm2d(8, affine=True), ()),
    "InstanceNorm3d": (nn.InstanceNorm3d(2), ()),
    "GroupNorm": (nn.GroupNorm(2, 8), (("N", 8, "L"),)),
    "Conv1d": (nn.Conv1d(8, 4, 3, padding=1), (("N", 8, "L"),)),
    "Conv2d": (nn.Conv2d(8, 4, 3, stride=2), (IMAGES,)),
    "Conv3d": (nn.Conv3d(2, 4, 2), (("N", 2, 3, 4, 5),)),
    "ConvTranspose1d": (nn.ConvTranspose1d(8, 4, 3, stride=2), (("N", 8, "L"),)),
    "ConvTranspose2d": (nn.ConvTranspose2d(8, 4, 3, padding=1), (IMAGES,)),
    "ConvTranspose3d": (nn.ConvTranspose3d(2, 4, 2, stride=2), (("N", 2, 3, 4, 5),)),
    "LSTM": (nn.LSTM(8, 4, num_layers=2, bidirectional=True), ()),
    "GRU": (nn.GRU(8, 4, batch_first=True), ()),
    "RNN": (nn.RNN(8, 4), ()),
    **{name: (getattr(nn, name)(8, 4), ()) for name in ("LSTMCell", "GRUCell", "RNNCell")},
    "Upsample": (nn.Upsample(scale_factor=2, mode="bilinear"), (IMAGES,)),
    "Flatten": (nn.Flatten(), (("N", 8, 12),)),
    "Unfold": (nn.Unfold(3, padding=1, stride=2), (IMAGES,)),
    "AvgPool1d": (nn.AvgPool1d(3), (("N", 8, 12),)),
    "AvgPool2d": (nn.AvgPool2d(3), (IMAGES,)),
    "MaxPool1d": (nn.MaxPool1d(3), (("N", 8, 12),)),
    "MaxPool2d": (nn.MaxPool2d(3), (IMAGES,)),
    **{name: (getattr(nn, name)(2), (("N", 2, 4, 6, 8),)) for name in ("MaxPool3d", "AvgPool3d", "AdaptiveAvgPool3d")},
    "AdaptiveMaxPool1d": (nn.AdaptiveMaxPool1d(4), (("N", 8, 12),)),
    "AdaptiveMaxPool2d": (nn.AdaptiveMaxPool2d((4, 3)), (IMAGES,)),
    "AdaptiveMaxPool3d": (nn.AdaptiveMaxPool3d(1), (("N", 2, 4, 6, 8),)),
    "Fold": (nn.Fold((5, 6), 2), (("N", 8, 20),)),
    "AdaptiveAvgPool1d": (nn.AdaptiveAvgPool1d(4), (("N", 8, 12),)),
    "AdaptiveAvgPool2d": (nn.AdaptiveAvgPool2d((4, 3)), (IMAGES,)),
    "SinusoidalPositionalEncoding": (nn.SinusoidalPositionalEncoding(8), ()),
    "LearnedPositions": (Positioned(nn.LearnedPositions(64, 8)), (X,)),
    "RotaryEmbedding": (Rotated(nn.RotaryEmbedding(8)), (("N", "L", 16),)),
    "LinearScaling": (Rotated(nn.RotaryEmbedding(8, scaling=rope_scaling.LinearScaling(2.0))), (("N", "L", 16),)),
    "NTKScaling": (Rotated(nn.RotaryEmbedding(8, scaling=rope_scaling.NTKScaling(2.0))), (("N", "L", 16),)),
    "DynamicNTKScaling": (
        Rotated(nn.RotaryEmbedding(8, scaling=rope_scaling.DynamicNTKScaling(2.0, 4))),
        (("N", "L", 16),),
    ),
    "LongRopeScaling": (
        Rotated(nn.RotaryEmbedding(4, scaling=rope_scaling.LongRopeScaling(4.0, (1.0, 1.5), (2.0, 4.0), 4))),
        (("N", "L", 8),),
    ),
    "YarnScaling": (Rotated(nn.RotaryEmbedding(8, scaling=rope_scaling.YarnScaling(2.0, 4))), (("N", "L", 16),)),
    "Llama3Scaling": (
        Rotated(nn.RotaryEmbedding(8, scaling=rope_scaling.Llama3Scaling(8.0, 1.0, 4.0, 16))),
        (("N", "L", 16),),
    ),
    "ALiBi": (Biased(nn.ALiBi(4)), (SCORES,)),
    "RelativePositionBias": (Biased(nn.RelativePositionBias(4)), (SCORES,)),
    "ScaledDotProductAttention": (nn.ScaledDotProductAttention(), (("N", 4, "L", 8),) * 3),
    "MultiHeadAttention": (nn.MultiHeadAttention(8, 2), ()),
    "MultiheadAttention": (nn.MultiheadAttention(8, 2), ()),
    "TransformerEncoderLayer": (nn.TransformerEncoderLayer(8, 2, 16).eval(), (X,)),
    "TransformerEncoder": (nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16), 2).eval(), (X,)),
    "TransformerDecoderLayer": (nn.TransformerDecoderLayer(8, 2, 16).eval(), (X, ("N", "S", 8))),
    "TransformerDecoder": (
        nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 16), 2).eval(),
        (X, ("N", "S", 8)),
    ),
    "Transformer": (nn.Transformer(8, 2, 1, 1, 16).eval(), (("N", "S", 8), ("N", "T", 8))),
    "CrossEntropyLoss": (nn.CrossEntropyLoss(lucid.tensor([0.5, 2.0]), label_smoothing=0.1), CLASSES),
    "NLLLoss": (nn.NLLLoss(), CLASSES),
    "MultiMarginLoss": (nn.MultiMarginLoss(), CLASSES),
    **{
        name: (getattr(nn, name)(), (X, X))
        for name in (
            *("L1Loss", "MSELoss", "SmoothL1Loss", "HuberLoss", "PoissonNLLLoss", "SoftMarginLoss"),
            *("BCEWithLogitsLoss", "MultiLabelSoftMarginLoss", "HingeEmbeddingLoss"),
            *("CosineSimilarity", "PairwiseDistance"),
        )
    },
    **{name: (getattr(nn, name)(), (X, X, X)) for name in ("MarginRankingLoss", "TripletMarginLoss")},
    "GaussianNLLLoss": (OfVariances(nn.GaussianNLLLoss(eps=0.5)), (X, X, X)),
    **{name: (OfProbabilities(getattr(nn, name)()), (X, X)) for name in ("BCELoss", "KLDivLoss")},
    "CosineEmbeddingLoss": (nn.CosineEmbeddingLoss(), (X, X, ("N", "L"))),
}
