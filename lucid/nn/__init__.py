"""Neural-network modules, and `nn.functional`.

Models, tracing and every room above import from it. ONNX, and reading checkpoints, do not belong here.
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from lucid.core.torch_names.missing_names import why_absent as _why_absent
from lucid.core.words import package_names as _public
from lucid.nn import functional as functional
from lucid.nn import init as init
from lucid.nn import utils as utils
from lucid.nn.activations import CELU as CELU
from lucid.nn.activations import ELU as ELU
from lucid.nn.activations import SELU as SELU
from lucid.nn.activations import ChannelShuffle as ChannelShuffle
from lucid.nn.activations import CircularPad1d as CircularPad1d
from lucid.nn.activations import CircularPad2d as CircularPad2d
from lucid.nn.activations import CircularPad3d as CircularPad3d
from lucid.nn.activations import ConstantPad1d as ConstantPad1d
from lucid.nn.activations import ConstantPad2d as ConstantPad2d
from lucid.nn.activations import ConstantPad3d as ConstantPad3d
from lucid.nn.activations import Dropout2d as Dropout2d
from lucid.nn.activations import Hardsigmoid as Hardsigmoid
from lucid.nn.activations import Hardswish as Hardswish
from lucid.nn.activations import Hardtanh as Hardtanh
from lucid.nn.activations import LogSigmoid as LogSigmoid
from lucid.nn.activations import LogSoftmax as LogSoftmax
from lucid.nn.activations import Mish as Mish
from lucid.nn.activations import PixelShuffle as PixelShuffle
from lucid.nn.activations import PixelUnshuffle as PixelUnshuffle
from lucid.nn.activations import PReLU as PReLU
from lucid.nn.activations import ReflectionPad1d as ReflectionPad1d
from lucid.nn.activations import ReflectionPad2d as ReflectionPad2d
from lucid.nn.activations import ReflectionPad3d as ReflectionPad3d
from lucid.nn.activations import ReLU6 as ReLU6
from lucid.nn.activations import ReplicationPad1d as ReplicationPad1d
from lucid.nn.activations import ReplicationPad2d as ReplicationPad2d
from lucid.nn.activations import ReplicationPad3d as ReplicationPad3d
from lucid.nn.activations import Softmin as Softmin
from lucid.nn.activations import Softplus as Softplus
from lucid.nn.activations import Softsign as Softsign
from lucid.nn.activations import Tanhshrink as Tanhshrink
from lucid.nn.activations import Unflatten as Unflatten
from lucid.nn.activations import ZeroPad1d as ZeroPad1d
from lucid.nn.activations import ZeroPad2d as ZeroPad2d
from lucid.nn.activations import ZeroPad3d as ZeroPad3d
from lucid.nn.attention import MultiHeadAttention as MultiHeadAttention
from lucid.nn.attention import MultiheadAttention as MultiheadAttention
from lucid.nn.attention import ScaledDotProductAttention as ScaledDotProductAttention
from lucid.nn.cache import Cache as Cache
from lucid.nn.cache import CacheShape as CacheShape
from lucid.nn.cache import KeyValueBuffer as KeyValueBuffer
from lucid.nn.cache import KeyValueCache as KeyValueCache
from lucid.nn.containers import ModuleDict as ModuleDict
from lucid.nn.containers import ModuleList as ModuleList
from lucid.nn.containers import ParameterDict as ParameterDict
from lucid.nn.containers import ParameterList as ParameterList
from lucid.nn.containers import Sequential as Sequential
from lucid.nn.convolution import Conv1d as Conv1d
from lucid.nn.convolution import Conv2d as Conv2d
from lucid.nn.convolution import Conv3d as Conv3d
from lucid.nn.convolution import ConvTranspose1d as ConvTranspose1d
from lucid.nn.convolution import ConvTranspose2d as ConvTranspose2d
from lucid.nn.convolution import ConvTranspose3d as ConvTranspose3d
from lucid.nn.decoding import CausalDecoder as CausalDecoder
from lucid.nn.encoder_decoder import EncoderDecoder as EncoderDecoder
from lucid.nn.encoder_decoder import EncoderDecoderCache as EncoderDecoderCache
from lucid.nn.experts import GatedExperts as GatedExperts
from lucid.nn.experts import MixtureOfExperts as MixtureOfExperts
from lucid.nn.layers import GELU as GELU
from lucid.nn.layers import GLU as GLU
from lucid.nn.layers import Dropout as Dropout
from lucid.nn.layers import Embedding as Embedding
from lucid.nn.layers import EmbeddingBag as EmbeddingBag
from lucid.nn.layers import Flatten as Flatten
from lucid.nn.layers import GatedMLP as GatedMLP
from lucid.nn.layers import Identity as Identity
from lucid.nn.layers import LeakyReLU as LeakyReLU
from lucid.nn.layers import Linear as Linear
from lucid.nn.layers import ReLU as ReLU
from lucid.nn.layers import Sigmoid as Sigmoid
from lucid.nn.layers import SiLU as SiLU
from lucid.nn.layers import Softmax as Softmax
from lucid.nn.layers import SwiGLU as SwiGLU
from lucid.nn.layers import Tanh as Tanh
from lucid.nn.layers import TiedEmbedding as TiedEmbedding
from lucid.nn.layers import Upsample as Upsample
from lucid.nn.loss_modules import BCELoss as BCELoss
from lucid.nn.loss_modules import BCEWithLogitsLoss as BCEWithLogitsLoss
from lucid.nn.loss_modules import CosineEmbeddingLoss as CosineEmbeddingLoss
from lucid.nn.loss_modules import CosineSimilarity as CosineSimilarity
from lucid.nn.loss_modules import CrossEntropyLoss as CrossEntropyLoss
from lucid.nn.loss_modules import GaussianNLLLoss as GaussianNLLLoss
from lucid.nn.loss_modules import HingeEmbeddingLoss as HingeEmbeddingLoss
from lucid.nn.loss_modules import HuberLoss as HuberLoss
from lucid.nn.loss_modules import KLDivLoss as KLDivLoss
from lucid.nn.loss_modules import L1Loss as L1Loss
from lucid.nn.loss_modules import MarginRankingLoss as MarginRankingLoss
from lucid.nn.loss_modules import MSELoss as MSELoss
from lucid.nn.loss_modules import MultiLabelSoftMarginLoss as MultiLabelSoftMarginLoss
from lucid.nn.loss_modules import MultiMarginLoss as MultiMarginLoss
from lucid.nn.loss_modules import NLLLoss as NLLLoss
from lucid.nn.loss_modules import PairwiseDistance as PairwiseDistance
from lucid.nn.loss_modules import PoissonNLLLoss as PoissonNLLLoss
from lucid.nn.loss_modules import SmoothL1Loss as SmoothL1Loss
from lucid.nn.loss_modules import SoftMarginLoss as SoftMarginLoss
from lucid.nn.loss_modules import TripletMarginLoss as TripletMarginLoss
from lucid.nn.module import Buffer as Buffer
from lucid.nn.module import Module as Module
from lucid.nn.module import Parameter as Parameter
from lucid.nn.module import recompute as recompute
from lucid.nn.module import scoped as scoped
from lucid.nn.normalization import BatchNorm1d as BatchNorm1d
from lucid.nn.normalization import BatchNorm2d as BatchNorm2d
from lucid.nn.normalization import BatchNorm3d as BatchNorm3d
from lucid.nn.normalization import GroupNorm as GroupNorm
from lucid.nn.normalization import InstanceNorm1d as InstanceNorm1d
from lucid.nn.normalization import InstanceNorm2d as InstanceNorm2d
from lucid.nn.normalization import InstanceNorm3d as InstanceNorm3d
from lucid.nn.normalization import LayerNorm as LayerNorm
from lucid.nn.normalization import RMSNorm as RMSNorm
from lucid.nn.pooling import AdaptiveAvgPool1d as AdaptiveAvgPool1d
from lucid.nn.pooling import AdaptiveAvgPool2d as AdaptiveAvgPool2d
from lucid.nn.pooling import AdaptiveAvgPool3d as AdaptiveAvgPool3d
from lucid.nn.pooling import AdaptiveMaxPool1d as AdaptiveMaxPool1d
from lucid.nn.pooling import AdaptiveMaxPool2d as AdaptiveMaxPool2d
from lucid.nn.pooling import AdaptiveMaxPool3d as AdaptiveMaxPool3d
from lucid.nn.pooling import AvgPool1d as AvgPool1d
from lucid.nn.pooling import AvgPool2d as AvgPool2d
from lucid.nn.pooling import AvgPool3d as AvgPool3d
from lucid.nn.pooling import Fold as Fold
from lucid.nn.pooling import MaxPool1d as MaxPool1d
from lucid.nn.pooling import MaxPool2d as MaxPool2d
from lucid.nn.pooling import MaxPool3d as MaxPool3d
from lucid.nn.pooling import Unfold as Unfold
from lucid.nn.positions import ALiBi as ALiBi
from lucid.nn.positions import LearnedPositions as LearnedPositions
from lucid.nn.positions import RelativePositionBias as RelativePositionBias
from lucid.nn.positions import RotaryEmbedding as RotaryEmbedding
from lucid.nn.positions import SinusoidalPositionalEncoding as SinusoidalPositionalEncoding
from lucid.nn.published_model import PublishedModel as PublishedModel
from lucid.nn.quantized import Int8Weight as Int8Weight
from lucid.nn.quantized import QuantizedWeight as QuantizedWeight
from lucid.nn.recurrent import GRU as GRU
from lucid.nn.recurrent import LSTM as LSTM
from lucid.nn.recurrent import RNN as RNN
from lucid.nn.recurrent import GRUCell as GRUCell
from lucid.nn.recurrent import LSTMCell as LSTMCell
from lucid.nn.recurrent import RNNCell as RNNCell
from lucid.nn.recurrent_decoding import RecurrentDecoder as RecurrentDecoder
from lucid.nn.rope_scaling import DynamicNTKScaling as DynamicNTKScaling
from lucid.nn.rope_scaling import LinearScaling as LinearScaling
from lucid.nn.rope_scaling import Llama3Scaling as Llama3Scaling
from lucid.nn.rope_scaling import LongRopeScaling as LongRopeScaling
from lucid.nn.rope_scaling import NTKScaling as NTKScaling
from lucid.nn.rope_scaling import RopeScaling as RopeScaling
from lucid.nn.rope_scaling import YarnScaling as YarnScaling
from lucid.nn.transformer import Transformer as Transformer
from lucid.nn.transformer import TransformerDecoder as TransformerDecoder
from lucid.nn.transformer import TransformerDecoderLayer as TransformerDecoderLayer
from lucid.nn.transformer import TransformerEncoder as TransformerEncoder
from lucid.nn.transformer import TransformerEncoderLayer as TransformerEncoderLayer
from lucid.nn.weights.low_rank import LoRA as LoRA

__all__ = _public.offered(globals(), "functional", "init", "utils")


def __dir__() -> list[str]:
    return __all__


if not _TYPE_CHECKING:  # type checkers know the names

    def __getattr__(name: str) -> object:
        raise _public.unknown(f"module {__name__!r}", name, __all__, _why_absent("nn", name))
