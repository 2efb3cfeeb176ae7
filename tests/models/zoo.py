"""Every model that reads a checkpoint, with its goldens: the measurements that tests and docs/coverage.md share."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np
import onnx

import lucid
from lucid import Tensor, nn
from lucid.export.exporter import traced_part
from lucid.models.albert import Albert
from lucid.models.bart import Bart, BartForSequenceClassification
from lucid.models.bert import (
    Bert,
    BertForMaskedLM,
    BertForQuestionAnswering,
    BertForReranking,
    BertForSequenceClassification,
    BertForTokenClassification,
    SentenceEncoder,
)
from lucid.models.checkpoints.tasks import class_of
from lucid.models.clip import CLIP, CLIPTextModel, CLIPVisionModel
from lucid.models.deberta import Deberta
from lucid.models.deepseek import Deepseek
from lucid.models.eurobert import EuroBert
from lucid.models.falcon import Falcon
from lucid.models.gemma import Gemma, GemmaStates
from lucid.models.gpt2 import GPT2
from lucid.models.layoutlm import LayoutLM
from lucid.models.lfm2 import Lfm2
from lucid.models.llama import Llama, LlamaForReranking, LlamaForSequenceClassification, LlamaStates
from lucid.models.mamba2 import Mamba2
from lucid.models.mixtral import Mixtral
from lucid.models.modernbert import ModernBert
from lucid.models.phi3 import Phi3
from lucid.models.qwen3_next import Qwen3Next
from lucid.models.siglip import SigLIP, SigLIPTextModel, SigLIPVisionModel
from lucid.models.smolvlm import SmolVLM
from lucid.models.static_embedding import SparseStaticEncoder, StaticEncoder
from lucid.models.t5 import T5
from lucid.models.vision.convnext import ConvNext, ConvNextForImageClassification
from lucid.models.vision.depth_anything import DepthAnything
from lucid.models.vision.detr import Detr, DetrForObjectDetection, DetrForSegmentation
from lucid.models.vision.dinov3 import DINOv3
from lucid.models.vision.resnet import ResNet, ResNetForImageClassification
from lucid.models.vision.rt_detr import RTDetrForObjectDetection
from lucid.models.vision.segformer import Segformer, SegformerForImageClassification, SegformerForSemanticSegmentation
from lucid.models.vision.swin import Swin, SwinForImageClassification
from lucid.models.vision.vit import ViT, ViTForImageClassification
from lucid.models.wav2vec2 import Wav2Vec2, Wav2Vec2ForCTC, Wav2Vec2ForSequenceClassification
from lucid.models.whisper import Whisper
from lucid.tracing.parts import CacheKind, TracedPart
from tests.models import goldens


class Entry(NamedTuple):
    """A model, one of its checkpoints, and its outputs under transformers' names."""

    name: str
    read: Callable[..., nn.Module]
    variant: str
    outputs: tuple[str, ...]

    @property
    def is_head(self) -> bool:
        """Whether it is a task's layer over a model that is an entry of its own."""
        return ":" in self.name

    @property
    def file(self) -> str:
        """The file of the model, such as ``models/bert.py``."""
        return f"{str(self.read.__module__).removeprefix('lucid.').replace('.', '/')}.py"

    def load(self) -> nn.Module:
        """The model with the golden's weights."""
        model: nn.Module = self.read.from_pretrained(goldens.folder(self.variant))  # type: ignore[attr-defined]
        return model

    def shared(self) -> nn.Module:
        """The same, loaded once. Do not change it."""
        return _loaded(self)

    def traced(self, cache: CacheKind | None = None, capacity: int | None = None) -> TracedPart:
        """Its graph, or that of a step with a cache, traced once for all targets."""
        return _traced(self, cache, capacity)

    def eager_error(self) -> float:
        """The largest difference to transformers over all cases, relative to the largest number of an output."""
        model = self.shared()
        return max(
            self._error(case, model(**{name: Tensor(array) for name, array in case.inputs.items()}))
            for case in _cases(self.variant)
        )

    def exported_error(self, target: str, providers: Any = "cpu", opset: int | None = None) -> float:
        """The same for the model exported once for a target, over all cases with the inputs that it has."""
        session = lucid.runtime.Session(self.exported(target, opset), providers, spinning=False)
        errors = []
        for case in _cases(self.variant):
            feeds = goldens.as_exported(case.inputs, session.inputs)
            if feeds.keys() == session.inputs.keys():
                errors.append(self._error(case, tuple(session.run(feeds).values())))
        return max(errors)

    def exported(self, target: str, opset: int | None = None) -> onnx.ModelProto:
        """The model exported for a target. Do not change it: the last ones are kept."""
        return _exported(self, target, opset)

    def _error(self, case: goldens.Case, answer: Any) -> float:
        worst = 0.0
        for name, output in zip(self.outputs, answer if isinstance(answer, tuple) else (answer,), strict=True):
            array, expected = np.asarray(output), case.outputs[name]
            if case.kept is not None and array.shape[:2] == case.kept.shape:
                array, expected = array[case.kept], expected[case.kept]
            worst = max(worst, float(np.abs(array - expected).max() / np.abs(expected).max()))
        return worst


def reader(entry: Entry) -> object:
    """The class that reads an entry: where tests are of one entry or in one way each, those of a class take turns."""
    return entry.read


@cache
def _loaded(entry: Entry) -> nn.Module:
    return entry.load()


_cases = lru_cache(maxsize=4)(goldens.cases)  # read once for all targets


@lru_cache(maxsize=4)
def _traced(entry: Entry, cache: CacheKind | None, capacity: int | None) -> TracedPart:
    return traced_part(entry.shared(), (), None, None, cache, capacity)


@lru_cache(maxsize=4)
def _exported(entry: Entry, target: str, opset: int | None) -> onnx.ModelProto:
    return lucid.export.to_onnx(entry.traced(), target=target, opset=opset)


_HIDDEN, _LOGITS, _ANSWER = ("last_hidden_state",), ("logits",), ("start_logits", "end_logits")
_POOLED = ("last_hidden_state", "pooler_output")
_SIMILARITIES = ("logits_per_image", "logits_per_text", "text_embeds", "image_embeds")
_OBJECTS = ("logits", "pred_boxes")
_FAMILIES = ("bert", "roberta", "distilbert")
_HEADS: dict[str, tuple[Callable[..., nn.Module], tuple[str, ...]]] = {
    "text_classification": (BertForSequenceClassification, _LOGITS),
    "reranking": (BertForReranking, _LOGITS),
    "token_classification": (BertForTokenClassification, _LOGITS),
    "question_answering": (BertForQuestionAnswering, _ANSWER),
    "fill_mask": (BertForMaskedLM, _LOGITS),
}
_TASKS = ("text-classification", "reranking", "token-classification", "question-answering", "fill-mask")
_OTHER_HEADS: dict[str, tuple[type[Any], tuple[str, ...]]] = {
    "ALBERT": (Albert, ("text-classification", "token-classification", "question-answering", "fill-mask")),
    "ModernBERT": (ModernBert, _TASKS),
    "DeBERTa": (Deberta, ("text-classification", "token-classification", "question-answering", "fill-mask")),
    "MPNet": (Bert, ("text-classification", "fill-mask")),
}

ZOO = [
    *(Entry("BERT", Bert, f"bert/{v}", _HIDDEN) for v in ("base", "hub_layout", "masked_lm")),
    *(Entry("RoBERTa", Bert, f"roberta/{v}", _HIDDEN) for v in ("base", "masked_lm")),
    *(Entry("DistilBERT", Bert, f"distilbert/{v}", _HIDDEN) for v in ("base", "masked_lm")),
    Entry("XLM-RoBERTa", Bert, "xlm_roberta/base", _HIDDEN),
    Entry("CamemBERT", Bert, "camembert/masked_lm", _HIDDEN),
    *(Entry("ELECTRA", Bert, f"electra/{v}", _HIDDEN) for v in ("base", "discriminator")),
    Entry("ERNIE", Bert, "ernie/base", _HIDDEN),
    Entry("MPNet", Bert, "mpnet/base", _HIDDEN),
    Entry("RoFormer", Bert, "roformer/base", _HIDDEN),
    Entry("Nomic BERT", Bert, "nomic_bert/base", _HIDDEN),
    Entry("jina-embeddings-v3", Bert, "jina_embeddings_v3/base", _HIDDEN),
    *(Entry("ESM", Bert, f"esm/{v}", _HIDDEN) for v in ("base", "absolute")),
    *(Entry("ALBERT", Albert, f"albert/{v}", _HIDDEN) for v in ("base", "masked_lm")),
    *(Entry("ModernBERT", ModernBert, f"modernbert/{v}", _HIDDEN) for v in ("base", "masked_lm")),
    Entry("LayoutLM", LayoutLM, "layoutlm/base", _HIDDEN),
    Entry("EuroBERT", EuroBert, "eurobert/base", _HIDDEN),
    *(Entry("DeBERTa", Deberta, f"deberta/{v}", _HIDDEN) for v in ("v3", "masked_lm", "content_to_position", "first")),
    *(
        Entry(f"BERT, RoBERTa, DistilBERT: {head.replace('_', ' ')}", reader, f"tasks/{family}_{head}", outputs)
        for head, (reader, outputs) in _HEADS.items()
        for family in _FAMILIES
    ),
    Entry("ELECTRA: text classification", BertForSequenceClassification, "tasks/electra_text_classification", _LOGITS),
    *(
        Entry(
            f"{model}: heads",
            class_of(base.checkpoint.family.tasks[task]),
            f"tasks/{model.lower()}_{task.replace('-', '_')}",
            _ANSWER if task == "question-answering" else _LOGITS,
        )
        for model, (base, tasks) in _OTHER_HEADS.items()
        for task in tasks
    ),
    *(
        Entry("Sentence encoders", SentenceEncoder, f"sentences/{v}", ("sentence_embedding",))
        for v in ("cls", "dense", "joined", "last_then_max")
    ),
    *(Entry("GPT-2", GPT2, f"gpt2/{v}", _LOGITS) for v in ("base", "hub_layout", "scaled")),
    *(Entry("Llama 2, 3", Llama, f"llama/{v}", _LOGITS) for v in ("llama2", "llama3", "linear", "dynamic", "yarn")),
    Entry("Llama 2, 3", Llama, "llama/bfloat16_sharded", _LOGITS),
    *(Entry("Mistral", Llama, f"mistral/{v}", _LOGITS) for v in ("full", "window")),
    *(Entry("Qwen2", Llama, f"qwen2/{v}", _LOGITS) for v in ("tied", "window")),
    *(Entry("Qwen3", Llama, f"qwen3/{v}", _LOGITS) for v in ("base", "yarn")),
    Entry("Mixtral", Mixtral, "mixtral/base", _LOGITS),
    *(Entry("Qwen3-MoE", Mixtral, f"qwen3_moe/{v}", _LOGITS) for v in ("base", "step")),
    Entry("Qwen2-MoE", Mixtral, "qwen2_moe/base", _LOGITS),
    Entry("Granite MoE", Mixtral, "granitemoe/base", _LOGITS),
    Entry("OLMoE", Mixtral, "olmoe/base", _LOGITS),
    *(Entry("gpt-oss", Mixtral, f"gpt_oss/{v}", _LOGITS) for v in ("base", "mxfp4")),
    Entry("SmolLM3", Llama, "smollm3/base", _LOGITS),
    Entry("Granite", Llama, "granite/base", _LOGITS),
    Entry("Helium", Llama, "helium/base", _LOGITS),
    Entry("OLMo 2", Llama, "olmo2/base", _LOGITS),
    Entry("Ministral", Llama, "ministral/base", _LOGITS),
    Entry("Seed-OSS", Llama, "seed_oss/base", _LOGITS),
    Entry("Ministral 3", Llama, "ministral3/base", _LOGITS),
    Entry("OLMo", Llama, "olmo/base", _LOGITS),
    Entry("OLMo 3", Llama, "olmo3/base", _LOGITS),
    *(Entry("Cohere (Command R)", Llama, f"cohere/{v}", _LOGITS) for v in ("base", "normed")),
    Entry("Cohere 2 (Command R7B)", Llama, "cohere2/base", _LOGITS),
    *(Entry("GLM-4", Llama, f"{v}/base", _LOGITS) for v in ("glm", "glm4")),
    Entry("StarCoder2", Llama, "starcoder2/base", _LOGITS),
    *(Entry("StableLM", Llama, f"stablelm/{v}", _LOGITS) for v in ("base", "parallel")),
    Entry("Nemotron", Llama, "nemotron/base", _LOGITS),
    *(Entry("Phi-1, Phi-2", Llama, f"phi/{v}", _LOGITS) for v in ("base", "normed")),
    *(Entry("GPT-NeoX, Pythia", Llama, f"gpt_neox/{v}", _LOGITS) for v in ("base", "sequential")),
    Entry("Qwen3: states", LlamaStates, "tasks/qwen3_feature_extraction", _HIDDEN),
    Entry("Llama: text classification", LlamaForSequenceClassification, "tasks/llama_text_classification", _LOGITS),
    Entry("Qwen2: reranking", LlamaForReranking, "tasks/qwen2_reranking", _LOGITS),
    Entry("Gemma", Gemma, "gemma/base", _LOGITS),
    *(Entry("Falcon", Falcon, f"falcon/{v}", _LOGITS) for v in ("base", "grouped", "separate")),
    *(Entry("Gemma 2", Gemma, f"gemma2/{v}", _LOGITS) for v in ("base", "capped")),
    *(Entry("Gemma 3", Gemma, f"gemma3/{v}", _LOGITS) for v in ("base", "images")),
    Entry("Gemma 3: two-sided states", GemmaStates, "tasks/gemma3_feature_extraction", _HIDDEN),
    *(Entry("Phi-3", Phi3, f"phi3/{v}", _LOGITS) for v in ("base", "long")),
    *(Entry("DeepSeek-V2", Deepseek, f"deepseek_v2/{v}", _LOGITS) for v in ("base", "grouped")),
    Entry("DeepSeek-V3", Deepseek, "deepseek_v3/base", _LOGITS),
    Entry("Qwen3-Next", Qwen3Next, "qwen3_next/base", _LOGITS),
    *(Entry("Qwen3.5", Qwen3Next, f"qwen3_5_text/{v}", _LOGITS) for v in ("base", "images")),
    *(Entry("LFM2", Lfm2, f"lfm2/{v}", _LOGITS) for v in ("base", "biased")),
    *(Entry("Mamba-2", Mamba2, f"mamba2/{v}", _LOGITS) for v in ("base", "limited")),
    *(Entry("T5", T5, f"t5/{v}", _LOGITS) for v in ("v1_0", "v1_1")),
    Entry("mT5", T5, "mt5/base", _LOGITS),
    Entry("UMT5", T5, "umt5/base", _LOGITS),
    Entry("BART", Bart, "bart/base", _LOGITS),
    Entry("BART: text classification", BartForSequenceClassification, "bart/text_classification", _LOGITS),
    Entry("Marian", Bart, "marian/base", _LOGITS),
    Entry("mBART", Bart, "mbart/base", _LOGITS),
    Entry("M2M-100, NLLB", Bart, "m2m_100/base", _LOGITS),
    Entry("ViT", ViT, "vit/base", _HIDDEN),
    *(Entry("ViT", ViTForImageClassification, f"vit/{v}", _LOGITS) for v in ("classifier", "wide_classifier")),
    Entry("DeiT", ViT, "deit/base", _HIDDEN),
    *(Entry("DeiT", ViTForImageClassification, f"deit/{v}", _LOGITS) for v in ("classifier", "with_teacher")),
    *(Entry("DINOv2", ViT, f"dinov2/{v}", _HIDDEN) for v in ("base", "swiglu")),
    Entry("DINOv2", ViTForImageClassification, "dinov2/classifier", _LOGITS),
    Entry("DINOv2 with registers", ViT, "dinov2_with_registers/base", _HIDDEN),
    Entry("DINOv2 with registers", ViTForImageClassification, "dinov2_with_registers/classifier", _LOGITS),
    Entry("DINOv3", DINOv3, "dinov3/base", _POOLED),
    Entry("DINOv3", DINOv3, "dinov3/gated", _POOLED),
    Entry("SegFormer", Segformer, "segformer/base", _HIDDEN),
    Entry("SegFormer", SegformerForImageClassification, "segformer/classifier", _LOGITS),
    Entry("SegFormer", SegformerForSemanticSegmentation, "segformer/segmentation", _LOGITS),
    Entry("Depth Anything", DepthAnything, "depth_anything/base", ("predicted_depth",)),
    Entry("Swin", Swin, "swin/base", _POOLED),
    Entry("Swin", SwinForImageClassification, "swin/classifier", _LOGITS),
    Entry("ConvNeXt", ConvNext, "convnext/base", _POOLED),
    Entry("ConvNeXt", ConvNextForImageClassification, "convnext/classifier", _LOGITS),
    Entry("ConvNeXt V2", ConvNextForImageClassification, "convnext/v2_classifier", _LOGITS),
    Entry("ResNet", ResNetForImageClassification, "resnet/classifier", _LOGITS),
    Entry("ResNet", ResNet, "resnet/features", _POOLED),
    Entry("DETR", Detr, "detr/base", ("last_hidden_state", "encoder_last_hidden_state")),
    Entry("DETR", DetrForObjectDetection, "detr/objects", _OBJECTS),
    *(Entry("RT-DETR", RTDetrForObjectDetection, f"rt_detr/{v}", _OBJECTS) for v in ("objects", "basic")),
    Entry("RT-DETR v2", RTDetrForObjectDetection, "rt_detr_v2/objects", _OBJECTS),
    Entry("DETR", DetrForSegmentation, "detr/masks", (*_OBJECTS, "pred_masks")),
    *(Entry("CLIP", CLIP, f"clip/{v}", _SIMILARITIES) for v in ("quick_gelu", "gelu")),
    Entry("CLIP: towers", CLIPVisionModel, "clip/images", ("image_embeds", "last_hidden_state")),
    Entry("CLIP: towers", CLIPTextModel, "clip/texts", ("text_embeds", "last_hidden_state")),
    Entry("SigLIP", SigLIP, "siglip/base", _SIMILARITIES),
    Entry("SigLIP: towers", SigLIPVisionModel, "siglip/images", _POOLED),
    Entry("SigLIP: towers", SigLIPTextModel, "siglip/texts", _POOLED),
    *(Entry("SmolVLM, Idefics3", SmolVLM, f"{v}/base", _LOGITS) for v in ("smolvlm", "idefics3")),
    Entry("wav2vec 2.0", Wav2Vec2, "wav2vec2/base", _HIDDEN),
    Entry("wav2vec 2.0, HuBERT: speech", Wav2Vec2ForCTC, "wav2vec2/ctc", _LOGITS),
    Entry("wav2vec 2.0, HuBERT: speech", Wav2Vec2ForCTC, "hubert/ctc", _LOGITS),
    Entry("wav2vec 2.0: sounds", Wav2Vec2ForSequenceClassification, "wav2vec2/classifier", _LOGITS),
    Entry("HuBERT", Wav2Vec2, "hubert/base", _HIDDEN),
    Entry("WavLM", Wav2Vec2, "wavlm/base", _HIDDEN),
    Entry("WavLM: speech", Wav2Vec2ForCTC, "wavlm/ctc", _LOGITS),
    *(Entry("Whisper", Whisper, f"whisper/{v}", _LOGITS) for v in ("base", "uneven")),
]

OTHERS = [
    *(
        Entry("Static embeddings", StaticEncoder, f"static_embedding/{v}", ("sentence_embedding",))
        for v in ("normalized", "model2vec")
    ),
    Entry("Static embeddings: sparse", SparseStaticEncoder, "static_embedding/sparse", ("sentence_embedding",)),
]
"""Those of libraries other than transformers, whose folders need no config.json."""
