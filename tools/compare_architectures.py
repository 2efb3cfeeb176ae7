"""Compare every class that transformers has for our model types with what Lucid loads, and freeze the outcomes.

    python tools/compare_architectures.py             all classes: tests/goldens/architectures.json.gz and the page
    python tools/compare_architectures.py llama bert  these types alone; the outcomes of others stay
    python tools/compare_architectures.py --page      docs/architectures.md of the outcomes as they are

Each class is made at tiny size from the config of a golden, saved, given numbers that depend on the names of its weights
(`tests/models/architectures.py`), loaded by both, and run by both. All but ``--page`` needs torch and transformers.
"""

from __future__ import annotations

import gzip
import inspect
import json
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

import lucid  # noqa: E402  # from this clone
from lucid.models.checkpoints.options_read import CLASSES, TRANSFORMERS  # noqa: E402
from tests.models.architectures import (  # noqa: E402
    GOLDEN,
    Outcome,
    answers,
    arrays,
    error,
    kept,
    outcomes,
    plain,
    proposed,
    write,
)

PAGE = ROOT / "docs" / "architectures.md"
EXACT = 2e-5
_PREFERRED = ("base", "v1_0", "full", "tied", "gelu", "v3", "llama3", "ctc")  # variants whose configs are taken


def config_of(kind: str) -> dict[str, Any]:
    """The options of a golden of a type, or those of a part of a golden."""
    configs = {}
    for path in sorted((ROOT / "tests" / "goldens").glob("*/*/config.json")):
        options = json.loads(path.read_text())
        for each in (options, *(part for part in options.values() if isinstance(part, dict))):
            if each.get("model_type") == kind:
                configs[path.parent.name] = each
    name = next((name for name in _PREFERRED if name in configs), next(iter(configs)))
    return dict(configs[name])


def inputs_of(kind: str, name: str, options: dict[str, Any]) -> dict[str, Any]:
    """Two of each that a class may take: texts, the second with padding at its end, and pixels or sounds."""
    text = options.get("text_config") or options
    vocabulary = text.get("vocab_size") or 30
    end, padding = (
        token if isinstance(token, int) and token < vocabulary else usual
        for token, usual in ((text.get("eos_token_id"), 2), (text.get("pad_token_id"), 0))
    )
    rng = np.random.default_rng(7)
    length, short = 7, 5
    usual = [token for token in range(3, vocabulary - 2) if token not in (end, padding)]
    ids = rng.choice(usual, (2, length))
    ids[0, -1] = ids[1, short - 1] = end
    ids[1, short:] = padding
    mask = np.ones((2, length), int)
    mask[1, short:] = 0
    vision = options.get("vision_config") or options
    size = vision.get("image_size", 64 if "backbone_config" in options else 16)
    height, width = size if isinstance(size, list) else (size, size)
    every: dict[str, Any] = {
        "input_ids": ids.tolist(),
        "attention_mask": mask.tolist(),
        "token_type_ids": (np.arange(length) > 3).astype(int)[None].repeat(2, 0).tolist(),
        "bbox": [[[1, 2, 3 + i, 5 + i] for i in range(length)]] * 2,
        "decoder_input_ids": rng.choice(usual, (2, 4)).tolist(),
        "pixel_values": {"shape": [2, vision.get("num_channels", 3), height, width]},
        "pixel_mask": [[[1] * width] * height, [[1] * width] * (height // 2) + [[0] * width] * (height - height // 2)],
        "bool_masked_pos": rng.integers(0, 2, (2, height * width // vision.get("patch_size", 1) ** 2)).tolist(),
        "input_values": {"shape": [2, 1600]},
        "input_features": {"shape": [2, options.get("num_mel_bins", 8), 2 * options.get("max_source_positions", 8)]},
    }
    if kind in ("wav2vec2", "hubert"):
        every["attention_mask"] = [[1] * 1600, [1] * 1200 + [0] * 400]
    if name.endswith("ForMultipleChoice"):  # of each text three, which differ in the order of their tokens
        for key in ("input_ids", "attention_mask", "token_type_ids"):
            every[key] = [[row[turn:] + row[:turn] for turn in (0, 1, 2)] for row in every[key]]
    if kind in ("smolvlm", "idefics3"):  # in each text an image
        every["pixel_values"]["shape"].insert(1, 1)
        vectors = (height // vision["patch_size"] // options["scale_factor"]) ** 2
        every["input_ids"] = [[options["image_token_id"]] * vectors + row[vectors:] for row in every["input_ids"]]
    if kind in ("siglip", "siglip_text_model"):
        every["input_ids"] = rng.choice(usual, (2, text["max_position_embeddings"])).tolist()
        del every["attention_mask"]
    return every


def compare(kind: str, name: str, folder: Path) -> tuple[Outcome, float]:
    """One class: saved by transformers, loaded by Lucid, run by both."""
    import torch
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    options = {**config_of(kind), "architectures": [name], "id2label": {"0": "A", "1": "B", "2": "C"}}
    options.pop("transformers_version", None)
    if name.endswith("ForMaskedImageModeling"):
        options["encoder_stride"] = 4  # the pixels of a token, each way
    if name.endswith("ForXVector"):
        options |= {
            "tdnn_dim": [12, 8, 10],
            "tdnn_kernel": [3, 2, 1],
            "tdnn_dilation": [1, 2, 1],
            "xvector_output_dim": 6,
        }
    if name.endswith("ForQuestionAnswering"):
        options["id2label"] = {"0": "A", "1": "B"}
    options["label2id"] = {label: int(number) for number, label in options["id2label"].items()}
    if "text_config" not in options and options.get("vocab_size") and options.get("pad_token_id") is None:
        options["pad_token_id"] = 0
    config_class = CONFIG_MAPPING[kind]
    modeling = config_class.__module__.replace("configuration_", "modeling_")
    write(folder, options, {})
    config = config_class.from_pretrained(folder)
    cls: Any = vars(import_module(modeling)).get(name)
    try:
        assert cls is not None
        cls(config).save_pretrained(folder)
    except (
        AssertionError,
        AttributeError,
        TypeError,
    ):  # a class of another module, or made of more than a config: its name is what counts
        print(f"{name}: transformers makes none from this config alone")
        weights: dict[str, list[int]] = {}
        saved = options
    else:
        weights = {key: list(array.shape) for key, array in lucid.load(folder).items()}
        if kind == "marian":  # one of whose classes stores its sines and cosines, which both compute
            weights = {key: shape for key, shape in weights.items() if "embed_positions" not in key}
        saved = json.loads((folder / "config.json").read_text())
        saved.pop("transformers_version", None)
        write(folder, saved, weights)
    every = inputs_of(kind, name, saved)
    try:
        model: Any = lucid.models.load(folder)
    except (ValueError, KeyError) as problem:
        return Outcome(kind, name, saved, weights, {}, {}, "", "", plain(problem, folder)), 0.0
    read = cls.from_pretrained(folder, attn_implementation="eager").eval()
    inputs = {key: every[key] for key in model.full_input_specs()}
    accepted = set(inspect.signature(read.forward).parameters)
    tensors = {key: torch.from_numpy(array) for key, array in arrays(inputs).items() if key in accepted}
    with torch.no_grad():
        result = read(**tensors)
    own = answers(model, inputs)
    checked = arrays(inputs)
    outputs = {key: kept(result[key].numpy(), checked) for key in own}
    worst = error(own, outputs)
    stored = {key: [float(f"{value:.7g}") for value in values] for key, values in outputs.items()}
    reader = type(model)
    return Outcome(kind, name, saved, weights, inputs, stored, reader.__name__, reader.checkpoint.task, ""), worst


def page() -> str:
    """docs/architectures.md."""
    lines = [
        "# Classes of transformers",
        "",
        "What `lucid.models.load` and the commands make of each class that `architectures` in config.json may name: the class",
        f"of Lucid that reads it, whose outputs are those of transformers {TRANSFORMERS}, or an error by its name with the tasks for",
        "which its weights load. Written by `tools/compare_architectures.py`; a test loads each of them.",
        "",
        f"{sum(each.exact for each in outcomes())} of {len(outcomes())} classes are read.",
        "",
    ]
    for kind in sorted({each.kind for each in outcomes()}):
        lines += [f"## {kind}", "", "| Class | Read by | Task |", "|---|---|---|"]
        for each in (each for each in outcomes() if each.kind == kind):
            if each.exact:
                lines.append(f"| `{each.name}` | `{each.reader}` | {each.task} |")
            else:
                tasks = ", ".join(proposed(each.message))
                lines.append(f"| `{each.name}` | refused | {f'can be read for {tasks}' if tasks else ''} |")
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def main() -> None:
    chosen = sys.argv[1:]
    if chosen != ["--page"]:
        compared, failed = [], []
        for kind in chosen or sorted(CLASSES):
            for name in CLASSES[kind]:
                with tempfile.TemporaryDirectory() as folder:
                    outcome, worst = compare(kind, name, Path(folder))
                    compared.append(outcome)
                    wrong = "" if worst <= EXACT else "  NOT EXACT"
                    for task in proposed(outcome.message):
                        try:
                            lucid.models.load(folder, task)
                        except (ValueError, KeyError) as problem:
                            wrong += f"  PROPOSED {task}: {problem}"
                    if not outcome.exact and name not in outcome.message:
                        wrong += "  NOT BY NAME"
                    failed += [name] if wrong else []
                    print(f"{name:45} {outcome.reader or outcome.message[:200]:40} {worst:.1e}{wrong}", flush=True)
        print(
            f"{len(compared)} classes, {sum(each.exact for each in compared)} read, {len(failed)} wrong: {' '.join(failed)}"
        )
        if failed:
            raise SystemExit(1)
        if chosen:
            compared = sorted(
                [*compared, *(each for each in outcomes() if each.kind not in chosen)], key=lambda e: e.kind
            )
        text = json.dumps([each._asdict() for each in compared], separators=(",", ":"))
        GOLDEN.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
        outcomes.cache_clear()
    PAGE.write_text(page())


if __name__ == "__main__":
    main()
