"""What each model declares for others without being imported: the types of its checkpoints, its classes by task.

::

    FAMILIES["llama"].model                      # "llama.Llama": the class that reads such checkpoints
    MODEL_TYPES["qwen3"].genai                   # True: onnxruntime-genai knows the type

The reader of GGUF files, layouts and batch jobs read their facts here, so none has a list of model types of its own.
`registry.py` adds models from outside.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from lucid.models.checkpoints import gguf_architectures as stored
from lucid.models.checkpoints.declarations import (
    GGUF,
    DecoderOptions,
    DecoderParts,
    ExpertOptions,
    Family,
    ModelType,
)


def _types(*names: str) -> dict[str, ModelType]:
    """Types without facts of their own."""
    return dict.fromkeys(names, ModelType())


HEADS = {
    "text-classification": "ForSequenceClassification",
    "reranking": "ForReranking",
    "token-classification": "ForTokenClassification",
    "multiple-choice": "ForMultipleChoice",
    "question-answering": "ForQuestionAnswering",
    "fill-mask": "ForMaskedLM",
}
"""How the names of classes end, by task; transformers has the same except for reranking."""


def _heads(model: str, *without: str) -> dict[str, str]:
    """The heads of a model of texts, named after it: "albert.Albert" gives AlbertForReranking and so on."""
    return {task: model + ending for task, ending in HEADS.items() if task not in without}


def _encoder(model: str) -> dict[str, str]:
    """The classes of an encoder of texts."""
    return {"feature-extraction": model, "sentence-similarity": f"{model}SentenceEncoder", **_heads(model)}


def _images(model: str) -> dict[str, str]:
    """The classes of an encoder of images."""
    return {"image-feature-extraction": model, "image-classification": f"{model}ForImageClassification"}


def _retrieval(model: str) -> dict[str, str]:
    """The encoders of texts that give a sparse vector, or a vector for each token."""
    return {"sparse-encoding": f"{model}SparseEncoder", "multi-vector-encoding": f"{model}MultiVectorEncoder"}


def _decoder(model: str, *without: str) -> dict[str, str]:
    """The classes of a decoder."""
    states = {"text-generation": model, "feature-extraction": f"{model}States"}
    return states | _heads(model, "fill-mask", "multiple-choice", *without)


def _projections(attention: str) -> tuple[tuple[str, str], ...]:
    """The `newer_names` of queries, keys, values and outputs; `attention` has the first three in checkpoints."""
    names = (("q", f"{attention}.query"), ("k", f"{attention}.key"), ("v", f"{attention}.value"), ("o", "output.dense"))
    return tuple((rf"attention\.{letter}_proj$", f"attention.{name}") for letter, name in names)


_MLP = ((r"mlp\.fc1$", "intermediate.dense"), (r"mlp\.fc2$", "output.dense"))
_VIT = ModelType(newer_names=((r"(^|\.)layers\.(?=\d)", r"\1encoder.layer."), *_projections("attention"), *_MLP))
_DINOV2 = ModelType(newer_names=_projections("attention"))

_OFFSET = ModelType(offset_positions=True)
_KV_HEADS: tuple[Literal["num_key_value_heads"]] = ("num_key_value_heads",)
_UNBIASED = DecoderOptions(qkv_bias=False, o_bias=False, mlp_bias=False)
_MULTIPLIERS = ("attention_multiplier", "embedding_multiplier", "residual_multiplier", "logits_scaling")

_QWEN_EXPERTS = ExpertOptions(width="moe_intermediate_size", normalized="norm_topk_prob", some_layers=True)
_QWEN35 = ModelType(parts=DecoderParts(norm_offset=1.0, qk_norm="head", output_gate=True))
_PARTIAL = "partial_rotary_factor"
_GLM = DecoderOptions(o_bias=False, mlp_bias=False, partial=_PARTIAL)
_COHERE = DecoderOptions(eps="layer_norm_eps", mlp_bias=False, multipliers=("logit_scale",))

FAMILIES: dict[str, Family] = {
    "albert": Family(tasks=_encoder("albert.Albert"), types=_types("albert")),
    "bart": Family(
        tasks={
            "text2text-generation": "bart.Bart",
            "text-generation": "bart.BartForCausalLM",
            "feature-extraction": "bart.BartStates",
            "text-classification": "bart.BartForSequenceClassification",
            "question-answering": "bart.BartForQuestionAnswering",
        },
        types=_types("bart", "marian", "mbart", "m2m_100"),
    ),
    "bert": Family(
        tasks=_encoder("bert.Bert")
        | {"sentence-similarity": "bert.SentenceEncoder", "hybrid-encoding": "bert.BertHybridEncoder"}
        | _retrieval("bert.Bert"),
        types={
            "bert": ModelType(),
            "roberta": _OFFSET,
            "distilbert": ModelType(),
            "xlm-roberta": _OFFSET,
            "camembert": _OFFSET,
            "electra": ModelType(),
            "ernie": ModelType(),
            "mpnet": _OFFSET,
            "roformer": ModelType(),
            "nomic_bert": ModelType(published_code=True),
            "jina_embeddings_v3": ModelType(),
            "esm": ModelType(),
        },
    ),
    "clip": Family(
        tasks={
            "zero-shot-image-classification": "clip.CLIP",
            "image-feature-extraction": "clip.CLIPVisionModel",
            "image-classification": "clip.CLIPForImageClassification",
            "feature-extraction": "clip.CLIPTextModel",
            "sentence-similarity": "clip.CLIPSentenceEncoder",
        },
        types={
            "clip": ModelType(),
            "clip_text_model": ModelType(only="feature-extraction"),
            "clip_vision_model": ModelType(only="image-feature-extraction"),
        },
    ),
    "convnext": Family(tasks=_images("vision.convnext.ConvNext"), types=_types("convnext", "convnextv2")),
    "deberta": Family(tasks=_encoder("deberta.Deberta"), types=_types("deberta-v2", "deberta")),
    "deepseek": Family(
        tasks=_decoder("deepseek.Deepseek", "question-answering"),
        types={
            "deepseek_v2": ModelType(
                parts=DecoderParts(interleaved=True),
                options=DecoderOptions(experts=ExpertOptions(width="moe_intermediate_size", normalized=False)),
                gguf=stored.DEEPSEEK2,
            ),
            "deepseek_v3": ModelType(
                options=DecoderOptions(
                    mlp_bias=False,
                    experts=ExpertOptions(width="moe_intermediate_size", normalized="norm_topk_prob", scores="sigmoid"),
                ),
                gguf=stored.DEEPSEEK3,
            ),
        },
    ),
    "eurobert": Family(
        tasks={
            "feature-extraction": "eurobert.EuroBert",
            "sentence-similarity": "eurobert.EuroBertSentenceEncoder",
            **_heads("eurobert.EuroBert", "multiple-choice", "question-answering"),
        },
        types={"eurobert": ModelType(published_code=True)},
    ),
    "depth_anything": Family(
        tasks={"depth-estimation": "vision.depth_anything.DepthAnything"}, types=_types("depth_anything")
    ),
    "detr": Family(
        tasks={
            "image-feature-extraction": "vision.detr.Detr",
            "object-detection": "vision.detr.DetrForObjectDetection",
            "image-segmentation": "vision.detr.DetrForSegmentation",
        },
        types=_types("detr"),
    ),
    "dinov3": Family(tasks={"image-feature-extraction": "vision.dinov3.DINOv3"}, types=_types("dinov3_vit")),
    "falcon": Family(
        tasks=_decoder("falcon.Falcon"),
        types={
            "falcon": ModelType(
                parts=DecoderParts(norm="layer", qkv="grouped", mlp="plain"), gguf=stored.FALCON, optimum=_KV_HEADS
            )
        },
    ),
    "gemma": Family(
        tasks=_decoder("gemma.Gemma", "question-answering") | {"sentence-similarity": "gemma.GemmaSentenceEncoder"},
        types={
            "gemma": ModelType(
                parts=DecoderParts(norm_offset=1.0), gguf=stored.GEMMA, optimum=("num_key_value_heads", "head_dim")
            ),
            "gemma2": ModelType(parts=DecoderParts(norms="around", norm_offset=1.0), gguf=stored.GEMMA2),
            "gemma3_text": ModelType(
                parts=DecoderParts(norms="around", norm_offset=1.0, qk_norm="head"),
                gguf=stored.GEMMA3,
                optimum=("num_key_value_heads", "head_dim"),
            ),
            "gemma3": ModelType(parts=DecoderParts(norms="around", norm_offset=1.0, qk_norm="head")),
        },
    ),
    "gpt2": Family(tasks=_decoder("gpt2.GPT2"), types={"gpt2": ModelType(gguf=stored.GPT2, transposed=True)}),
    "layoutlm": Family(
        tasks={
            "feature-extraction": "layoutlm.LayoutLM",
            **_heads("layoutlm.LayoutLM", "reranking", "multiple-choice"),
        },
        types=_types("layoutlm"),
    ),
    "lfm2": Family(
        tasks={"text-generation": "lfm2.Lfm2", "feature-extraction": "lfm2.Lfm2States"},
        types={"lfm2": ModelType(parts=DecoderParts(qk_norm="head"), gguf=stored.LFM2)},
    ),
    "llama": Family(
        tasks=_decoder("llama.Llama")
        | {
            "sentence-similarity": "llama.LlamaSentenceEncoder",
            "generative-reranking": "llama.LlamaGenerativeReranker",
        },
        types={
            "llama": ModelType(
                # Other types, such as mistral, have GGUF files of this architecture too.
                gguf=stored.LLAMA,
                genai=True,
                optimum=_KV_HEADS,
            ),
            "mistral": ModelType(
                options=replace(_UNBIASED, windows="all"), gguf=stored.MISTRAL3, genai=True, optimum=_KV_HEADS
            ),
            "qwen2": ModelType(
                options=replace(_UNBIASED, qkv_bias=True, windows="later"),
                gguf=GGUF("qwen2"),
                genai=True,
                optimum=_KV_HEADS,
            ),
            "qwen3": ModelType(
                parts=DecoderParts(qk_norm="head"),
                options=DecoderOptions(mlp_bias=False, windows="later"),
                gguf=GGUF("qwen3"),
                genai=True,
                optimum=_KV_HEADS,
            ),
            "smollm3": ModelType(
                options=DecoderOptions(unrotated="listed", windows="unrotated"), gguf=stored.SMOLLM3, optimum=_KV_HEADS
            ),
            "granite": ModelType(
                options=DecoderOptions(multipliers=_MULTIPLIERS), gguf=stored.GRANITE, optimum=_KV_HEADS
            ),
            "helium": ModelType(
                parts=DecoderParts(interleaved=True), options=DecoderOptions(o_bias=False), optimum=_KV_HEADS
            ),
            "olmo2": ModelType(
                parts=DecoderParts(norms="after", qk_norm="all"),
                options=DecoderOptions(mlp_bias=False),
                gguf=stored.OLMO2,
            ),
            "ministral": ModelType(options=replace(_UNBIASED, windows="typed")),
            "ministral3": ModelType(
                options=replace(_UNBIASED, windows="all", scaled=True, query_growth=True), gguf=stored.MINISTRAL3
            ),
            "olmo": ModelType(
                parts=DecoderParts(norm="without_weights"),
                options=DecoderOptions(eps=1e-5, mlp_bias=False, clipped=True),
                gguf=stored.OLMO,
                genai=True,
            ),
            "olmo3": ModelType(
                parts=DecoderParts(norms="after", qk_norm="all"),
                options=DecoderOptions(mlp_bias=False, windows="quarters", window_rope=500000.0),
                gguf=stored.OLMO3,
            ),
            "cohere": ModelType(
                parts=DecoderParts(norm="without_bias", norms="shared", qk_norm="each", interleaved=True),
                options=replace(_COHERE, qk_norm="use_qk_norm"),
                gguf=stored.COHERE,
                optimum=_KV_HEADS,
            ),
            "cohere2": ModelType(
                parts=DecoderParts(norm="without_bias", norms="shared", interleaved=True),
                options=replace(_COHERE, windows="patterned", unrotated="window"),
                gguf=stored.COHERE2,
            ),
            "glm": ModelType(
                parts=DecoderParts(interleaved=True, mlp="joined"),
                options=_GLM,
                gguf=stored.CHATGLM,
                optimum=_KV_HEADS,
            ),
            "glm4": ModelType(
                parts=DecoderParts(norms="enclosing", interleaved=True, mlp="joined"), options=_GLM, gguf=stored.GLM4
            ),
            "starcoder2": ModelType(
                parts=DecoderParts(norm="layer", mlp="plain"),
                options=DecoderOptions(
                    eps="norm_epsilon", qkv_bias="use_bias", o_bias="use_bias", mlp_bias="use_bias", windows="all"
                ),
                gguf=stored.STARCODER2,
            ),
            "stablelm": ModelType(
                parts=DecoderParts(norm="layer", norms="shared", qk_norm="each"),
                options=DecoderOptions(
                    eps="layer_norm_eps",
                    qkv_bias="use_qkv_bias",
                    o_bias=False,
                    mlp_bias=False,
                    partial=_PARTIAL,
                    parallel="use_parallel_residual",
                    qk_norm="qk_layernorm",
                ),
                gguf=stored.STABLELM,
                optimum=_KV_HEADS,
            ),
            "nemotron": ModelType(
                parts=DecoderParts(norm="layer", norm_offset=1.0, mlp="plain"),
                options=DecoderOptions(eps="norm_eps", partial=_PARTIAL),
                gguf=stored.NEMOTRON,
                genai=True,
                optimum=("num_key_value_heads", "head_dim"),
            ),
            "phi": ModelType(
                parts=DecoderParts(norm="layer", norms="shared", qk_norm="head", mlp="plain", head_bias=True),
                options=DecoderOptions(
                    eps="layer_norm_eps",
                    qkv_bias=True,
                    o_bias=True,
                    mlp_bias=True,
                    partial=_PARTIAL,
                    qk_norm="qk_layernorm",
                ),
                gguf=stored.PHI2,
                genai=True,
            ),
            "gpt_neox": ModelType(
                parts=DecoderParts(norm="layer", norms="parallel", qkv="grouped", mlp="plain"),
                options=DecoderOptions(
                    eps="layer_norm_eps",
                    mlp_bias=True,
                    theta="rotary_emb_base",
                    partial="rotary_pct",
                    parallel="use_parallel_residual",
                ),
                gguf=stored.GPT_NEOX,
            ),
            "seed_oss": ModelType(options=DecoderOptions(o_bias="attention_out_bias"), gguf=stored.SEED_OSS),
        },
    ),
    "mixtral": Family(
        tasks=_decoder("mixtral.Mixtral"),
        types={
            "mixtral": ModelType(
                options=replace(_UNBIASED, windows="all", experts=ExpertOptions()),
                newer_names=((r"\.mlp\.gate$", ".block_sparse_moe.gate"),),
                gguf=stored.MIXTRAL,
            ),
            "qwen2_moe": ModelType(
                options=DecoderOptions(
                    qkv_bias="qkv_bias",
                    o_bias=False,
                    mlp_bias=False,
                    windows="earlier",
                    experts=replace(_QWEN_EXPERTS, shared=True),
                ),
                gguf=stored.QWEN2_MOE,
            ),
            "qwen3_moe": ModelType(
                parts=DecoderParts(qk_norm="head"),
                options=DecoderOptions(mlp_bias=False, windows="switched", experts=_QWEN_EXPERTS),
                gguf=stored.QWEN3_MOE,
                optimum=_KV_HEADS,
            ),
            "granitemoe": ModelType(
                options=DecoderOptions(mlp_bias=False, multipliers=_MULTIPLIERS, experts=ExpertOptions()),
                gguf=stored.GRANITE_MOE,
            ),
            "olmoe": ModelType(
                parts=DecoderParts(qk_norm="all"),
                options=DecoderOptions(
                    mlp_bias=False, clipped=True, experts=ExpertOptions(normalized="norm_topk_prob")
                ),
                gguf=stored.OLMOE,
            ),
            "gpt_oss": ModelType(
                parts=DecoderParts(sinks=True),
                transposed_experts=True,
                gguf=stored.GPT_OSS,
                optimum=("num_key_value_heads", "head_dim"),
                options=DecoderOptions(
                    mlp_bias=False, windows="halves", scaled=True, experts=ExpertOptions(clamped=True)
                ),
            ),
        },
    ),
    "mamba2": Family(
        tasks={
            "text-generation": "mamba2.Mamba2",
            "feature-extraction": "mamba2.Mamba2States",
        },
        types={"mamba2": ModelType(gguf=stored.MAMBA2)},
    ),
    "modernbert": Family(
        tasks=_encoder("modernbert.ModernBert") | _retrieval("modernbert.ModernBert"), types=_types("modernbert")
    ),
    "phi3": Family(
        tasks=_decoder("phi3.Phi3", "question-answering"),
        types={
            "phi3": ModelType(parts=DecoderParts(qkv="joined", mlp="joined"), published_code=True, gguf=stored.PHI3),
        },
    ),
    "qwen3_next": Family(
        tasks=_decoder("qwen3_next.Qwen3Next"),
        types={
            "qwen3_next": ModelType(
                parts=DecoderParts(norm_offset=1.0, qk_norm="head", output_gate=True),
                options=DecoderOptions(experts=replace(_QWEN_EXPERTS, shared=True)),
                gguf=stored.QWEN3_NEXT,
            ),
            "qwen3_5_text": replace(_QWEN35, gguf=stored.QWEN35),
            "qwen3_5": _QWEN35,  # the text model of a checkpoint that also reads images
        },
    ),
    "resnet": Family(tasks=_images("vision.resnet.ResNet"), types=_types("resnet")),
    "rt_detr": Family(
        tasks={"object-detection": "vision.rt_detr.RTDetrForObjectDetection"}, types=_types("rt_detr", "rt_detr_v2")
    ),
    "segformer": Family(
        tasks=_images("vision.segformer.Segformer")
        | {"image-segmentation": "vision.segformer.SegformerForSemanticSegmentation"},
        types=_types("segformer"),
    ),
    "siglip": Family(
        tasks={
            "zero-shot-image-classification": "siglip.SigLIP",
            "image-feature-extraction": "siglip.SigLIPVisionModel",
            "image-classification": "siglip.SigLIPForImageClassification",
            "feature-extraction": "siglip.SigLIPTextModel",
        },
        types={
            "siglip": ModelType(),
            "siglip_text_model": ModelType(only="feature-extraction"),
            "siglip_vision_model": ModelType(only="image-feature-extraction"),
        },
    ),
    "smolvlm": Family(tasks={"image-text-to-text": "smolvlm.SmolVLM"}, types=_types("smolvlm", "idefics3")),
    "swin": Family(
        tasks=_images("vision.swin.Swin") | {"masked-im": "vision.swin.SwinForMaskedImageModeling"},
        types={"swin": ModelType(newer_names=(*_projections("self"), *_MLP))},
    ),
    "t5": Family(
        tasks={
            "text2text-generation": "t5.T5",
            "feature-extraction": "t5.T5EncoderStates",
            "sentence-similarity": "t5.T5SentenceEncoder",
            "token-classification": "t5.T5ForTokenClassification",
            "text-classification": "t5.T5ForSequenceClassification",
            "question-answering": "t5.T5ForQuestionAnswering",
        },
        types=_types("t5", "mt5", "umt5"),
    ),
    "vit": Family(
        tasks=_images("vision.vit.ViT") | {"masked-im": "vision.vit.ViTForMaskedImageModeling"},
        types={"vit": _VIT, "deit": _VIT, "dinov2": _DINOV2, "dinov2_with_registers": _DINOV2},
    ),
    "wav2vec2": Family(
        tasks={
            "feature-extraction": "wav2vec2.Wav2Vec2",
            "automatic-speech-recognition": "wav2vec2.Wav2Vec2ForCTC",
            "audio-classification": "wav2vec2.Wav2Vec2ForSequenceClassification",
            "audio-frame-classification": "wav2vec2.Wav2Vec2ForAudioFrameClassification",
            "audio-xvector": "wav2vec2.Wav2Vec2ForXVector",
        },
        types=_types("wav2vec2", "hubert", "wavlm"),
    ),
    "whisper": Family(
        tasks={
            "automatic-speech-recognition": "whisper.Whisper",
            "feature-extraction": "whisper.WhisperStates",
            "audio-classification": "whisper.WhisperForAudioClassification",
        },
        types=_types("whisper"),
    ),
}
"""By the file of the model."""

OTHER_FAMILIES: dict[str, Family] = {
    "static_embedding": Family(
        tasks={
            "sentence-similarity": "static_embedding.StaticEncoder",
            "sparse-encoding": "static_embedding.SparseStaticEncoder",
        },
        types={
            "static_embedding": ModelType(only="sentence-similarity"),
            "model2vec": ModelType(only="sentence-similarity"),
            "sparse_static_embedding": ModelType(only="sparse-encoding"),
        },
    ),
}
"""The same for types that transformers does not have."""

MODEL_TYPES = {name: declared for family in FAMILIES.values() for name, declared in family.types.items()}
"""All types of transformers that Lucid reads itself."""
