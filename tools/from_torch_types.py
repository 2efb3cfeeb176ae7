"""docs/from-torch-types.md: model types of transformers, small and random, through `lucid.from_torch` and held to torch.

The types are those that optimum-onnx registers for ONNX (its own table, read from the installed package's sources) and the
ones in `ALSO`. A run takes about an hour; it keeps its results in a file and goes on where it stopped.

python -m tools.from_torch_types RESULTS.json [TYPE ...]     needs torch and transformers 5
"""

from __future__ import annotations

import inspect
import json
import re
import signal
import sys
import time
from collections import Counter
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from transformers import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, MODEL_MAPPING_NAMES

import lucid

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "from-torch-types.md"
ALSO = [
    "bart",
    "mbart",
    "m2m_100",
    "t5",
    "mt5",
    "whisper",
    "wav2vec2",
    "wavlm",
    "unispeech",
    "blip",
    "esm",
    "layoutlm",
    "layoutlmv3",
    "segformer",
    "dpt",
    "depth_anything",
    "dinov2_with_registers",
    "dinov3_vit",
    "eurobert",
    "modernbert",
    "cohere2",
    "starcoder2",
    "olmo3",
    "glm4",
    "qwen2_moe",
    "qwen3_moe",
    "deepseek_v2",
    "granitemoe",
    "mamba",
    "mamba2",
    "lfm2",
    "qwen3_next",
    "rwkv",
    "ernie",
    "ernie4_5",
    "phimoe",
    "smolvlm",
    "moonshine",
    "clap",
    "ministral3",
    "mistral3",
    "persimmon",
    "xlnet",
    "fnet",
    "luke",
    "longt5",
    "switch_transformers",
    "umt5",
    "bigbird_pegasus",
    "gpt_bigcode",
    "biogpt",
    "codegen",
    "xglm",
    "zamba2",
    "jamba",
    "dbrx",
    "jetmoe",
    "hiera",
    "vitdet",
    "zoedepth",
    "superpoint",
    "nomic_bert",
    "speech-encoder-decoder",
    "vision-encoder-decoder",
]
SIZES = ((2, 7), (3, 11), (1, 5))
SMALL: dict[str, int | None] = {
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "embed_dim", "dim", "d_embed", "embedding_size"), 32),
    **dict.fromkeys(("word_embed_proj_dim", "moe_intermediate_size", "image_size"), 32),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers", "decoder_layers"), 2),
    **dict.fromkeys(("num_decoder_layers", "num_encoder_layers", "num_key_value_heads", "num_experts_per_tok"), 2),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads", "encoder_attention_heads"), 4),
    **dict.fromkeys(("decoder_attention_heads", "num_experts", "num_local_experts", "n_routed_experts"), 4),
    **dict.fromkeys(("intermediate_size", "d_ff", "ffn_dim", "encoder_ffn_dim", "decoder_ffn_dim", "hidden_dim"), 64),
    **dict.fromkeys(("n_inner", "max_position_embeddings", "n_positions"), 64),
    **dict.fromkeys(("head_dim", "d_kv", "patch_size"), 8),
    "vocab_size": 128,
    "type_vocab_size": 2,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 0,
}
UNSET = ("num_key_value_heads", "pad_token_id")  # given a number even where a config has None


def types() -> list[str]:
    """The model types that are tried."""
    spec = find_spec("optimum.exporters.onnx.model_configs")
    names = (
        re.findall(r'register_tasks_manager_onnx\(\s*"([\w-]+)"', Path(spec.origin or "").read_text()) if spec else []
    )
    return [name for name in dict.fromkeys([*sorted(names), *ALSO]) if name in CONFIG_MAPPING]


def shrunk(config: Any) -> Any:
    """The config with small sizes, those of its inner configs too."""
    for name, value in SMALL.items():
        now = getattr(config, name, "")
        if (isinstance(now, int) and not isinstance(now, bool)) or (now is None and name in UNSET):
            with suppress(AttributeError, NotImplementedError):  # some are computed from others
                setattr(config, name, value)
    for value in list(vars(config).values()):
        if isinstance(value, transformers.PretrainedConfig):
            shrunk(value)
    if getattr(config, "layer_types", None):
        with suppress(AttributeError):
            config.layer_types = config.layer_types[:2]
    config.use_cache = False
    return config


def model_of(kind: str) -> Any:
    """A small model of a type: its language model, or its base model."""
    name = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(kind) or MODEL_MAPPING_NAMES[kind]
    model_class = getattr(transformers, name if isinstance(name, str) else name[0])
    torch.manual_seed(0)
    model = model_class._from_config(shrunk(CONFIG_MAPPING[kind]()))
    with torch.no_grad():  # all zeros or all ones would make ties and hide faults
        for parameter in model.parameters():
            if parameter.numel() > 1 and bool((parameter == parameter.flatten()[0]).all()):
                parameter.add_(torch.randn(parameter.shape) * 0.1)
    if sum(parameter.numel() for parameter in model.parameters()) > 20_000_000:
        raise ValueError("more than 20 million parameters from a small config")
    return model.eval().float()


def inputs_of(model: Any, rows: int, length: int) -> tuple[dict[str, torch.Tensor], dict[str, tuple[Any, ...]]]:
    """Random inputs by name, and their axes."""
    config, names = model.config, list(inspect.signature(model.forward).parameters)
    draw = torch.Generator().manual_seed(1)
    texts, side = ("N", "L"), getattr(getattr(config, "vision_config", config), "image_size", 32)
    side = side if isinstance(side, int) else side[0]

    def ids(columns: int) -> torch.Tensor:
        return torch.randint(3, 100, (rows, columns), generator=draw)

    if "input_ids" not in names:
        if "input_values" in names:
            return {"input_values": torch.randn(rows, 4000, generator=draw)}, {"input_values": texts}
        if "input_features" in names:
            bands = getattr(config, "num_mel_bins", 80)
            return {"input_features": torch.randn(rows, bands, 60, generator=draw)}, {"input_features": ("N",)}
        channels = getattr(config, "num_channels", 3)
        return {"pixel_values": torch.randn(rows, channels, side, side, generator=draw)}, {"pixel_values": ("N",)}
    inputs, axes = {"input_ids": ids(length)}, {"input_ids": texts}
    if "attention_mask" in names:
        inputs["attention_mask"] = torch.ones(rows, length, dtype=torch.long)
        inputs["attention_mask"][0, length - 2 :] = 0
        axes["attention_mask"] = texts
    if "decoder_input_ids" in names:
        inputs["decoder_input_ids"], axes["decoder_input_ids"] = ids(length - 2), ("N", "M")
    if "pixel_values" in names:
        inputs["pixel_values"], axes["pixel_values"] = torch.randn(3, 3, side, side, generator=draw), ("I",)
    if "bbox" in names:
        inputs["bbox"] = torch.randint(0, 50, (rows, length, 4), generator=draw).sort(-1).values
        axes["bbox"] = texts
    return inputs, axes


def outputs_of(result: Any) -> dict[str, np.ndarray]:
    """The tensors of a result by name."""
    return {key: np.asarray(value.numpy()) for key, value in result.items() if hasattr(value, "numpy")}


def tried(kind: str) -> dict[str, Any]:
    """What happens to a type: the stage at which it ends, and figures."""
    stage, found = "build", {}
    try:
        signal.alarm(60)
        model = model_of(kind)
        runs = [inputs_of(model, *sizes)[0] for sizes in SIZES]
        with torch.no_grad():
            wanted = [outputs_of(model(**inputs)) for inputs in runs]
        inputs, axes = inputs_of(model, *SIZES[0])
        signal.alarm(240)
        stage = "torch"
        start = time.perf_counter()
        module = lucid.from_torch(model, kwargs=inputs, dynamic=axes)
        found["from_torch_s"] = time.perf_counter() - start
        stage = "eager"
        found["eager"] = max(
            difference(outputs_of(module(**{k: lucid.tensor(v.numpy()) for k, v in own.items()})), theirs)
            for own, theirs in zip(runs, wanted, strict=True)
        )
        stage = "exported"
        start = time.perf_counter()
        exported = lucid.export.to_onnx(module)
        found["export_s"], found["nodes"] = time.perf_counter() - start, len(exported.graph.node)
        session = lucid.runtime.Session(exported)
        found["exported"] = max(
            difference(dict(session.run({k: v.numpy() for k, v in own.items() if k in session.inputs})), theirs)
            for own, theirs in zip(runs, wanted, strict=True)
        )
        stage = "agrees" if max(found["eager"], found["exported"]) <= 2e-5 else "differs"
    except Exception as error:  # noqa: BLE001  # any library's error is a result here
        lines = str(error).strip().splitlines() or [""]
        if stage == "torch" and "no function for" in lines[0]:
            stage = "operator"
        found["error"] = f"{type(error).__name__}: {lines[0]}"[:300]
    finally:
        signal.alarm(0)
    return {"stage": stage, **found}


def difference(own: dict[str, np.ndarray], theirs: dict[str, np.ndarray]) -> float:
    """The largest difference relative to the largest number of its output."""
    shared = [name for name in theirs if name in own]
    if not shared:
        raise ValueError(f"outputs {', '.join(own)}, expected {', '.join(theirs)}")
    return max(
        float(np.abs(own[name].astype(np.float64) - theirs[name]).max() / max(1e-9, np.abs(theirs[name]).max()))
        for name in shared
    )


STAGES = {
    "agrees": "agree with torch within 2e-5, eagerly and exported, at three sizes",
    "differs": "differ by more",
    "eager": "are imported and do not run at other sizes",
    "exported": "run on NumPy and are not exported",
    "operator": "have an operator without a function",
    "torch": "are not exported by torch, or not with these axes",
    "build": "cannot be built from a small config, or need inputs that the tool does not make",
}


def page(results: dict[str, dict[str, Any]]) -> str:
    """The page of a run."""
    count = Counter(result["stage"] for result in results.values())
    known = sum(count[stage] for stage in STAGES if stage not in ("build", "torch"))
    lines = [
        "# Model types through torch",
        "",
        "Look up whether a model type of transformers goes through [`lucid.from_torch`](howto/from-torch.md). The page is generated by",
        f"`python -m tools.from_torch_types` with torch {torch.__version__.split('+')[0]} and transformers {transformers.__version__}: small random models, compared with torch",
        "eagerly and in onnxruntime at sizes that torch did not see.",
        "",
        f"Of the {known} types that torch exports, {count['agrees']} agree ({100 * count['agrees'] / max(1, known):.0f} %).",
        "",
        "| Types | |",
        "|---|---|",
        *(f"| {count[stage]} | {text} |" for stage, text in STAGES.items() if count[stage]),
        "",
        "| Type | Result | Difference: eager, exported | Nodes |",
        "|---|---|---|---|",
    ]
    for name, result in sorted(results.items()):
        if result["stage"] == "agrees":
            lines.append(f"| `{name}` | agrees | {result['eager']:.0e}, {result['exported']:.0e} | {result['nodes']} |")
        else:
            error = re.sub(r"/\S*/", "", result.get("error", "")).replace("|", "/").replace("<", "&lt;")
            lines.append(f"| `{name}` | {result['stage']}: {error[:160]} | | |")
    return "\n".join([*lines, ""])


def stopped(*_: Any) -> None:
    """A type that takes too long is given up."""
    raise TimeoutError("took too long")


def main() -> None:
    signal.signal(signal.SIGALRM, stopped)
    path = Path(sys.argv[1])
    results = json.loads(path.read_text()) if path.exists() else {}
    for kind in sys.argv[2:] or types():
        if kind not in results:
            results[kind] = tried(kind)
            print(kind, results[kind], flush=True)
            path.write_text(json.dumps(results, indent=1))
    PAGE.write_text(page(results), encoding="utf-8")


if __name__ == "__main__":
    main()
