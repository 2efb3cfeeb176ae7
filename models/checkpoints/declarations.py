"""What a model declares about its checkpoints: its classes by task, the parts of each type, and which tools know the
type.

`families.py` has the table of all models in these words.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from lucid.models.checkpoints.gguf_architectures import GGUF as GGUF

Windows: TypeAlias = Literal[
    "none", "all", "switched", "typed", "halves", "quarters", "patterned", "earlier", "later", "unrotated"
]


@dataclass(frozen=True, kw_only=True)
class DecoderParts:
    """How one decoder of rotary positions differs from another; the defaults are Llama's.

    Args:
        norm: an "rms" norm, a "layer" norm, one "without_bias" or one "without_weights".
        norms: where those of a layer stand: "before" attention and feed-forward network, "after" them, "around" them,
            or "enclosing" them, the same under GLM-4's names. Attention and network that read the same states have one
            norm that is "shared", or one each, "parallel".
        norm_offset: what is added to the weights of norms, which are stored without it.
        qk_norm: norms on queries and keys: of each "head", of each head with weights of its own, "each", or of "all" at
            once.
        interleaved: whether rotary positions turn pairs of neighbours, and not the two halves of a head.
        qkv: whether products make queries, keys and values "apart", "joined", or "grouped": joined, with the rows of
            each group of heads together.
        mlp: a "gated" network, one whose first product makes the gate and what it scales, "joined", or a "plain" one.
        sinks: whether each head has one more score, a parameter, that takes from the weights of all keys.
        head_bias: whether the output layer has a bias.
        output_gate: whether gates, made with the queries, multiply what attention gives.
    """

    norm: Literal["rms", "layer", "without_bias", "without_weights"] = "rms"
    norms: Literal["before", "after", "around", "enclosing", "shared", "parallel"] = "before"
    norm_offset: float = 0.0
    qk_norm: Literal["head", "each", "all"] | None = None
    interleaved: bool = False
    qkv: Literal["apart", "joined", "grouped"] = "apart"
    mlp: Literal["gated", "joined", "plain"] = "gated"
    sinks: bool = False
    head_bias: bool = False
    output_gate: bool = False


@dataclass(frozen=True, kw_only=True)
class ExpertOptions:
    """The options of config.json that describe the experts of one model_type."""

    width: str = "intermediate_size"  # the option with the inner width of one
    normalized: bool | str = True  # whether the weights of a token's experts add up to 1, or the option that says it
    some_layers: bool = False  # whether decoder_sparse_step and mlp_only_layers name layers without experts
    shared: bool = False  # whether one more expert, as wide as shared_expert_intermediate_size, sees all tokens
    clamped: bool = False  # whether they have biases and the limited gates of gpt-oss
    scores: Literal["softmax", "sigmoid"] = "softmax"  # what makes weights of the router's logits


@dataclass(frozen=True, kw_only=True)
class DecoderOptions:
    """The options of config.json that describe the other parts of a decoder of one model_type.

    Args:
        eps: what norms add to the variance, or the option that says it.
        qkv_bias, o_bias, mlp_bias: whether projections have biases, or the option that says it.
        theta: the option with the base of rotary positions.
        partial: the option that says which part of a head is rotated; None for all.
        windows: which layers have the window sliding_window: "none"; "all"; "switched", all if use_sliding_window is
            true; "typed", those of layer_types, by default all, or every second, "halves", or all but every fourth,
            "quarters", or all but every sliding_window_pattern-th, "patterned"; if use_sliding_window is true
            "earlier", every second before max_window_layers, "later", from there on, or "unrotated", those without
            positions.
        window_rope: the base of rotary positions of layers with a window, if they have their own.
        unrotated: the layers without positions: "listed" by no_rope_layers or no_rope_layer_interval, or those that
            have no "window".
        scaled: whether positions are scaled where config.json does not say how.
        query_growth: whether queries grow with their positions, by llama_4_scaling_beta.
        parallel, qk_norm: the option that says whether layers have the `norms`, and queries and keys the `qk_norm`, of
            `DecoderParts`; norms are "before" otherwise.
        clipped: whether the option clip_qkv limits queries, keys and values.
        multipliers: the options that are multipliers of scores, embeddings, residuals and logits.
        experts: how feed-forward networks that are mixtures of experts are described, in a type that has them.
    """

    eps: float | str = "rms_norm_eps"
    qkv_bias: bool | str = "attention_bias"
    o_bias: bool | str = "attention_bias"
    mlp_bias: bool | str = "mlp_bias"
    theta: str = "rope_theta"
    partial: str | None = None
    windows: Windows = "none"
    window_rope: float | None = None
    unrotated: Literal["listed", "window"] | None = None
    scaled: bool = False
    query_growth: bool = False
    parallel: str | None = None
    qk_norm: str | None = None
    clipped: bool = False
    multipliers: tuple[str, ...] = ()
    experts: ExpertOptions | None = None


LLAMA_PARTS, LLAMA_OPTIONS = DecoderParts(), DecoderOptions()


@dataclass(frozen=True, kw_only=True)
class ModelType:
    """The facts about the checkpoints of one model_type.

    Args:
        published_code: whether checkpoints were published with code that transformers has since adopted.
        offset_positions: whether positions begin after the number of the padding token, so that two of
            max_position_embeddings are not for tokens.
        transposed: whether layers store weights as (inputs, outputs), as transformers' Conv1D does.
        transposed_experts: the same of joined experts.
        newer_names: pairs (regular expression, replacement) from the names that recent releases of transformers, and so
            adapters, have for layers to those in checkpoints.
        gguf: how llama.cpp stores the model; None where GGUF files are not read.
        genai: whether onnxruntime-genai knows the type and runs it as any other decoder; one of another type is its
            "decoder". Its "gpt2" is not so: that takes the keys and values of a layer as one tensor.
        parts, options: of a decoder of rotary positions.
        optimum: the options that optimum needs for the first, empty cache, besides the width and the heads.
        only: the one task of checkpoints that hold a part of the model.
        like: a type of transformers whose options and defaults config.json has, for a type that transformers lacks.
    """

    published_code: bool = False
    offset_positions: bool = False
    transposed: bool = False
    transposed_experts: bool = False
    newer_names: tuple[tuple[str, str], ...] = ()
    gguf: GGUF | None = None
    genai: bool = False
    parts: DecoderParts = LLAMA_PARTS
    options: DecoderOptions = LLAMA_OPTIONS
    optimum: tuple[Literal["num_key_value_heads", "head_dim"], ...] = ()
    only: str | None = None
    like: str | None = None


@dataclass(frozen=True, kw_only=True)
class Family:
    """The classes of one model.

    Args:
        tasks: its classes by task; the first is the model itself, the others have a head. ``"bert.Bert"`` is a class of
            the file bert.py of `lucid.models`, ``"package.module:Class"`` one from outside.
        types: the facts about the checkpoints that they read, by the model_type of config.json.
    """

    tasks: Mapping[str, str]
    types: Mapping[str, ModelType]

    @property
    def prefixes(self) -> str:
        """A regular expression for the beginning of the names that checkpoints of classes with a head have for the
        model's weights: the name of the type, and a dot.
        """
        return rf"^(?:{'|'.join(name.replace('-', '_') for name in self.types)})\."

    @property
    def task(self) -> str:
        """The task of the model itself."""
        return next(iter(self.tasks))

    @property
    def model(self) -> str:
        """The class of the model itself, as file and name."""
        return self.tasks[self.task]
