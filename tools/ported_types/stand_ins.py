"""What stands for the parts of transformers that load, save, train, generate or start kernels; none of it computes.

`PreTrainedModel` keeps what forward passes ask it for.
"""

from __future__ import annotations

import contextlib
import sys
import typing
from collections import UserDict
from typing import Any

from lucid import nn


def same(function: Any = None, *arguments: Any, **options: Any) -> Any:
    """A decorator, with or without arguments, that changes nothing."""
    return function if callable(function) and not isinstance(function, str) else same


def factory(*arguments: Any, **options: Any) -> Any:
    """A decorator with arguments that changes nothing."""
    return same


def false(*arguments: Any, **options: Any) -> bool:
    """No."""
    return False


class Nothing:
    """A class that is only named."""


class PreTrainedModel(nn.Module):
    """The base of models without loading, saving and initial values."""

    config_class: Any = None
    base_model_prefix = ""
    main_input_name = "input_ids"
    input_modalities: Any = None
    supports_gradient_checkpointing = False
    gradient_checkpointing = False
    _supports_sdpa = False
    _can_record_outputs: Any = None
    _is_stateful = False
    _tied_weights_keys: Any = None
    _input_embed_layer = "embed_tokens"
    _keep_in_fp32_modules: Any = None
    _keys_to_ignore_on_load_unexpected: Any = None
    _keys_to_ignore_on_load_missing: Any = None
    _no_split_modules: Any = None

    def __init__(self, config: Any, *inputs: Any, **kwargs: Any) -> None:
        super().__init__()
        self.config = config
        config._attn_implementation_internal = (
            "sdpa" if self._supports_sdpa and config._attn_implementation != "eager" else "eager"
        )
        config._experts_implementation_internal = "batched_mm"

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        name = vars(cls).get("__annotations__", {}).get("config")
        cls.config_class = vars(sys.modules[cls.__module__]).get(name, cls.config_class)

    def post_init(self) -> None:
        """Weights are loaded."""

    def _init_weights(self, module: Any) -> None:
        """Weights are loaded."""

    @classmethod
    def _from_config(cls, config: Any, **kwargs: Any) -> Any:
        return cls(config)

    @property
    def device(self) -> Any:
        """Where the tensors are."""
        return next(self.parameters()).device

    @property
    def dtype(self) -> Any:
        """The element type of the parameters."""
        return next(p.dtype for p in self.parameters() if p.dtype.kind == "float")

    @property
    def base_model(self) -> Any:
        """The model without its head."""
        return getattr(self, self.base_model_prefix, self) if self.base_model_prefix else self

    def get_input_embeddings(self) -> Any:
        """The table of tokens, where transformers looks for it."""
        name = self._input_embed_layer
        for place in (self, *(getattr(self, inner, None) for inner in ("embeddings", "model"))):
            if (table := getattr(place, name, None)) is not None:
                return table
        inner = getattr(self, "language_model", None)
        inner = self.base_model if inner is None else inner
        if inner is self:
            raise NotImplementedError
        return inner.get_input_embeddings()

    def set_input_embeddings(self, value: Any) -> None:
        """Replace the table of tokens."""
        for place in (self, *(getattr(self, inner, None) for inner in ("embeddings", "model"))):
            if hasattr(place, self._input_embed_layer):
                return setattr(place, self._input_embed_layer, value)
        return None

    def get_encoder(self, modality: Any = None) -> Any:
        """The encoder, where transformers looks for it."""
        names = {None: ["text_encoder", "encoder"], "audio": ["audio_tower", "audio_encoder", "speech_encoder"]}.get(
            modality, ["vision_tower", "visual", "vision_model", "vision_encoder", "image_tower"]
        )
        return next((getattr(self, name) for name in names if hasattr(self, name)), self)

    def get_decoder(self) -> Any:
        """The decoder, where transformers looks for it."""
        names = ["language_model", "text_model", "decoder", "text_decoder"]
        return next((getattr(self, name) for name in names if hasattr(self, name)), self)

    def warn_if_padding_and_no_attention_mask(self, *arguments: Any) -> None:
        """Nobody is warned."""


class EmbeddingAccessMixin(Nothing):
    """Only named."""


class PreTrainedAudioTokenizerBase(PreTrainedModel):
    """The base of audio codecs."""


class AttentionFunctions(dict[str, Any]):
    """transformers' own attention function for "sdpa"; a model's own for "eager"."""

    def get_interface(self, name: str, default: Any) -> Any:
        """The function of a name."""
        if name != "sdpa":
            return default
        from transformers.integrations.sdpa_attention import sdpa_attention_forward

        return sdpa_attention_forward


AttentionInterface = AttentionFunctions
ALL_ATTENTION_FUNCTIONS = AttentionFunctions()


def slice_logits_to_keep(states: Any, keep: Any) -> Any:
    """The last positions; all for 0."""
    return states[:, -keep:] if keep else states


@contextlib.contextmanager
def nothing_changed(*arguments: Any, **options: Any) -> Any:
    """A context that changes nothing."""
    yield


get_torch_context_manager_or_global_device = force_accelerate_hooks = nothing_changed


class GradientCheckpointingLayer(nn.Module):
    """A layer."""

    gradient_checkpointing = False


class GenericForSequenceClassification(Nothing):
    """Only named."""


class GenericForTokenClassification(Nothing):
    """Only named."""


class GenericForQuestionAnswering(Nothing):
    """Only named."""


class GenerationMixin(Nothing):
    """Generation is the caller's."""


GenerationConfig = GenerationMode = CompileConfig = LogitsProcessorList = StoppingCriteriaList = Nothing
ClassifierFreeGuidanceLogitsProcessor = GenerateDecoderOnlyOutput = PagedAttentionCache = Nothing
GENERATION_MODES_MAPPING: dict[str, Any] = {}
ProcessorMixin = ImagesKwargs = VideosKwargs = Nothing
Unpack = typing.Unpack


class FlashAttentionKwargs(typing.TypedDict, total=False):
    """Only named."""


class Cache:
    """A cache that keeps nothing: models are called once."""

    is_compileable = is_initialized = False
    is_sliding = is_linear = is_dummy = ()

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.is_updated: dict[int, bool] = {}
        self.self_attention_cache = self.cross_attention_cache = self

    def get_seq_length(self, *arguments: Any) -> int:
        """Nothing is kept."""
        return 0

    get_query_offset = get_seq_length

    def get_mask_sizes(self, length: int, *arguments: Any) -> tuple[int, int]:
        """How many keys a mask is for, and the position of the first one."""
        return length, 0

    def update(self, key: Any, value: Any, *arguments: Any, **options: Any) -> tuple[Any, Any]:
        """The keys and values of all positions: those of this call."""
        return key, value


KVSharingDict = UserDict
DynamicCache = EncoderDecoderCache = StaticCache = DynamicLayer = CacheLayerMixin = MtpCache = Cache


use_kernel_forward_from_hub = use_kernelized_func = use_kernel_func_from_hub_with_fallback = factory
lazy_load_kernel = deepgemm_bf16_experts_forward = sonicmoe_experts_forward = None
is_deepspeed_zero3_enabled = is_fsdp_managed_module = is_flash_attn_available = is_dtensor = false
flash_attn_supports_top_left_mask = is_deepspeed_available = is_fsdp_enabled = false


def kept(tensor: Any, *arguments: Any, **options: Any) -> Any:
    """An initial value, which nothing asks for: weights are loaded."""
    return tensor


uniform_ = normal_ = constant_ = ones_ = zeros_ = eye_ = dirac_ = copy_ = kept
xavier_uniform_ = xavier_normal_ = kaiming_uniform_ = kaiming_normal_ = trunc_normal_ = orthogonal_ = sparse_ = kept
