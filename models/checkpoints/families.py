"""What each model declares for others, which need not import it: the types of its checkpoints, its classes by task.

::

    family_of("qwen3").model                     # "llama.Llama": the class that reads such checkpoints
    MODEL_TYPES["qwen3"].genai                   # True: onnxruntime-genai knows the type

`lucid.models.load`, the reader of GGUF files, layouts and batch jobs read their facts here, so none has a list of model
types of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

Pairs: TypeAlias = Literal["halves", "neighbours"]


@dataclass(frozen=True)
class GGUF:
    """How llama.cpp stores the models of one model_type.

    Args:
        architecture: its name for the type, in general.architecture.
        pairs: what rotary positions turn there: the two halves of a head as in Hugging Face's files, or neighbours, so
            that queries and keys have their rows in another order.
        frequencies: the tensor with what divides each frequency of the rotary positions, in files that scale them.
    """

    architecture: str
    pairs: Pairs = "halves"
    frequencies: str | None = None


@dataclass(frozen=True, kw_only=True)
class ModelType:
    """What sets the checkpoints of one model_type apart.

    Args:
        published_code: whether checkpoints were published with code that transformers has as its own since then.
        offset_positions: whether positions begin after the number of the padding token, so that two of
            max_position_embeddings are not for tokens.
        gguf: how llama.cpp stores the model; None where GGUF files are not read.
        genai: whether onnxruntime-genai knows the type and runs it as any other decoder; one of another type is its
            "decoder". Its "gpt2" is not so: that takes the keys and values of a layer as one tensor.
        optimum: the options of which optimum makes the first, empty cache, besides the width and the heads.
    """

    published_code: bool = False
    offset_positions: bool = False
    gguf: GGUF | None = None
    genai: bool = False
    optimum: tuple[Literal["num_key_value_heads", "head_dim"], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Family:
    """The classes of one model.

    Args:
        tasks: its classes by task, each as file and name; the first is the model itself, the others have a head.
        types: what is known of the checkpoints that they read, by the model_type of config.json.
    """

    tasks: Mapping[str, str]
    types: Mapping[str, ModelType]

    @property
    def task(self) -> str:
        """What the model itself is for."""
        return next(iter(self.tasks))

    @property
    def model(self) -> str:
        """The class of the model itself, as file and name."""
        return self.tasks[self.task]


def _types(*names: str) -> dict[str, ModelType]:
    """Types of which nothing else needs to be known."""
    return dict.fromkeys(names, ModelType())


def _of_encoder(model: str) -> dict[str, str]:
    """The classes of an encoder of texts: of "albert.Albert" AlbertForMaskedLM and so on."""
    names = {
        "feature-extraction": "",
        "sentence-similarity": "SentenceEncoder",
        "text-classification": "ForSequenceClassification",
        "reranking": "ForReranking",
        "token-classification": "ForTokenClassification",
        "question-answering": "ForQuestionAnswering",
        "fill-mask": "ForMaskedLM",
    }
    return {task: model + name for task, name in names.items()}


_OFFSET = ModelType(offset_positions=True)
_KV_HEADS = ModelType(optimum=("num_key_value_heads",))

FAMILIES: dict[str, Family] = {
    "albert": Family(
        tasks=_of_encoder("albert.Albert"),
        types=_types("albert"),
    ),
    "bart": Family(
        tasks={
            "text2text-generation": "bart.Bart",
            "text-classification": "bart.BartForSequenceClassification",
        },
        types=_types("bart", "marian", "mbart", "m2m_100"),
    ),
    "bert": Family(
        tasks=_of_encoder("bert.Bert") | {"sentence-similarity": "bert.SentenceEncoder"},
        types={
            "bert": ModelType(),
            "roberta": _OFFSET,
            "distilbert": ModelType(),
            "xlm-roberta": _OFFSET,
            "camembert": _OFFSET,
            "electra": ModelType(),
            "ernie": ModelType(),
            "mpnet": _OFFSET,
        },
    ),
    "clip": Family(
        tasks={
            "zero-shot-image-classification": "clip.CLIP",
            "image-feature-extraction": "clip.CLIPVisionModel",
            "feature-extraction": "clip.CLIPTextModel",
        },
        types=_types("clip"),
    ),
    "convnext": Family(
        tasks={
            "image-feature-extraction": "convnext.ConvNext",
            "image-classification": "convnext.ConvNextForImageClassification",
        },
        types=_types("convnext", "convnextv2"),
    ),
    "deberta": Family(
        tasks=_of_encoder("deberta.Deberta"),
        types=_types("deberta-v2"),
    ),
    "gemma": Family(
        tasks={
            "text-generation": "gemma.Gemma",
            "feature-extraction": "decoder_tasks.GemmaStates",
            "text-classification": "decoder_tasks.GemmaForSequenceClassification",
            "reranking": "decoder_tasks.GemmaForReranking",
            "token-classification": "decoder_tasks.GemmaForTokenClassification",
        },
        types={
            "gemma2": ModelType(),
            "gemma3_text": ModelType(optimum=("num_key_value_heads", "head_dim")),
        },
    ),
    "gpt2": Family(
        tasks={
            "text-generation": "gpt2.GPT2",
            "feature-extraction": "decoder_tasks.GPT2States",
            "text-classification": "decoder_tasks.GPT2ForSequenceClassification",
            "reranking": "decoder_tasks.GPT2ForReranking",
            "token-classification": "decoder_tasks.GPT2ForTokenClassification",
            "question-answering": "decoder_tasks.GPT2ForQuestionAnswering",
        },
        types=_types("gpt2"),
    ),
    "llama": Family(
        tasks={
            "text-generation": "llama.Llama",
            "feature-extraction": "llama_tasks.LlamaStates",
            "sentence-similarity": "llama_tasks.LlamaSentenceEncoder",
            "text-classification": "llama_tasks.LlamaForSequenceClassification",
            "reranking": "llama_tasks.LlamaForReranking",
            "token-classification": "llama_tasks.LlamaForTokenClassification",
            "question-answering": "llama_tasks.LlamaForQuestionAnswering",
        },
        types={
            "llama": ModelType(
                gguf=GGUF("llama", "neighbours", "rope_freqs.weight"), genai=True, optimum=("num_key_value_heads",)
            ),  # Mistral's files call themselves so too
            "mistral": ModelType(genai=True, optimum=("num_key_value_heads",)),
            "qwen2": ModelType(gguf=GGUF("qwen2"), genai=True, optimum=("num_key_value_heads",)),
            "qwen3": ModelType(gguf=GGUF("qwen3"), genai=True, optimum=("num_key_value_heads",)),
            "smollm3": _KV_HEADS,
            "granite": _KV_HEADS,
            "helium": _KV_HEADS,
            "olmo2": ModelType(),
            "ministral": ModelType(),
            "seed_oss": ModelType(),
        },
    ),
    "mixtral": Family(
        tasks={
            "text-generation": "mixtral.Mixtral",
            "feature-extraction": "decoder_tasks.MixtralStates",
            "text-classification": "decoder_tasks.MixtralForSequenceClassification",
            "reranking": "decoder_tasks.MixtralForReranking",
            "token-classification": "decoder_tasks.MixtralForTokenClassification",
            "question-answering": "decoder_tasks.MixtralForQuestionAnswering",
        },
        types={
            "mixtral": ModelType(),
            "qwen3_moe": _KV_HEADS,
        },
    ),
    "mamba2": Family(
        tasks={
            "text-generation": "mamba2.Mamba2",
            "feature-extraction": "decoder_tasks.Mamba2States",
        },
        types=_types("mamba2"),
    ),
    "modernbert": Family(
        tasks=_of_encoder("modernbert.ModernBert"),
        types=_types("modernbert"),
    ),
    "phi3": Family(
        tasks={
            "text-generation": "phi3.Phi3",
            "feature-extraction": "decoder_tasks.Phi3States",
            "text-classification": "decoder_tasks.Phi3ForSequenceClassification",
            "reranking": "decoder_tasks.Phi3ForReranking",
            "token-classification": "decoder_tasks.Phi3ForTokenClassification",
        },
        types={
            "phi3": ModelType(published_code=True),
        },
    ),
    "siglip": Family(
        tasks={
            "zero-shot-image-classification": "siglip.SigLIP",
            "image-feature-extraction": "siglip.SigLIPVisionModel",
            "feature-extraction": "siglip.SigLIPTextModel",
        },
        types=_types("siglip"),
    ),
    "swin": Family(
        tasks={
            "image-feature-extraction": "swin.Swin",
            "image-classification": "swin.SwinForImageClassification",
        },
        types=_types("swin"),
    ),
    "t5": Family(
        tasks={
            "text2text-generation": "t5.T5",
            "feature-extraction": "t5.T5EncoderStates",
            "sentence-similarity": "t5.T5SentenceEncoder",
            "token-classification": "t5.T5ForTokenClassification",
            "text-classification": "t5.T5ForSequenceClassification",
        },
        types=_types("t5", "mt5", "umt5"),
    ),
    "vit": Family(
        tasks={
            "image-feature-extraction": "vit.ViT",
            "image-classification": "vit.ViTForImageClassification",
        },
        types=_types("vit", "deit", "dinov2"),
    ),
    "wav2vec2": Family(
        tasks={
            "feature-extraction": "wav2vec2.Wav2Vec2",
            "automatic-speech-recognition": "wav2vec2.Wav2Vec2ForCTC",
            "audio-classification": "wav2vec2.Wav2Vec2ForSequenceClassification",
        },
        types=_types("wav2vec2", "hubert"),
    ),
    "whisper": Family(
        tasks={
            "automatic-speech-recognition": "whisper.Whisper",
            "audio-classification": "whisper.WhisperForAudioClassification",
        },
        types=_types("whisper"),
    ),
}
"""By the file of the model."""

MODEL_TYPES = {name: kind for family in FAMILIES.values() for name, kind in family.types.items()}
"""All types that are read."""

_FAMILY_OF = {name: family for family in FAMILIES.values() for name in family.types}


def family_of(model_type: str) -> Family:
    """The model that reads the checkpoints of a known type."""
    return _FAMILY_OF[model_type]
