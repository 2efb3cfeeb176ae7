"""docs/from-torch-vision.md: models of torchvision and timm with random weights, through `lucid.from_torch`, held to torch.

A run takes about half an hour; it keeps its results in a file and goes on where it stopped.

python -m tools.from_torch_vision RESULTS.json [MODEL ...]     needs torch, torchvision, timm and onnxscript
"""

from __future__ import annotations

import json
import re
import signal
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import timm
import torch
import torchvision

import lucid
from lucid.importing.exporting import exported
from lucid.importing.torch_import import TorchImportError

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "from-torch-vision.md"
ANY = ("N", 3, "H", "W")
SIDES = ((2, 64, 64), (3, 96, 64), (1, 64, 128))  # rows, height, width; a fixed side takes the place of the others
MODELS: dict[str, dict[str, Any]] = {  # the options of each; `side` where it takes one size of image only
    "torchvision.squeezenet1_1": {},
    "timm.vit_tiny_patch16_224": {"side": 64, "img_size": 64},
    "torchvision.shufflenet_v2_x0_5": {},
    "timm.mobilevit_xxs": {"side": 64},  # torch decides while tracing whether it resizes images before its attention
    "torchvision.mobilenet_v3_small": {},
    "timm.levit_128s": {"side": 224},
    "torchvision.resnet50": {},
    "timm.eva02_tiny_patch14_224": {"side": 56, "img_size": 56},
    "torchvision.regnet_y_400mf": {},
    "timm.fastvit_t8": {},
    "torchvision.efficientnet_b0": {},
    "timm.deit3_small_patch16_224": {"side": 64, "img_size": 64},
    "torchvision.swin_t": {"side": 64},
    "timm.mixer_s32_224": {"side": 224},
    "torchvision.convnext_tiny": {},
    "timm.efficientformer_l1": {"side": 224},
    "torchvision.densenet121": {},
    "timm.hiera_tiny_224": {"side": 224},
    "torchvision.vit_b_16": {"side": 64, "image_size": 64},
    "timm.eca_nfnet_l0": {},
    "torchvision.segmentation.deeplabv3_mobilenet_v3_large": {"weights_backbone": None},
    "timm.coatnet_nano_rw_224": {"side": 224},
    "torchvision.segmentation.lraspp_mobilenet_v3_large": {"weights_backbone": None},
    "timm.convnextv2_atto": {},
    "torchvision.alexnet": {},
    "timm.xcit_nano_12_p16_224": {"side": 64},
    "torchvision.swin_v2_t": {"side": 64},
    "timm.poolformerv2_s12": {},
    "torchvision.maxvit_t": {"side": 224},
    "timm.tiny_vit_5m_224": {"side": 224},
    "torchvision.googlenet": {"init_weights": False},
    "timm.pvt_v2_b0": {},
    "torchvision.mnasnet0_5": {},
    "timm.edgenext_xx_small": {},
}


def model_of(name: str) -> tuple[torch.nn.Module, int | None]:
    """A model with random weights, and the side of its images if it takes one only."""
    options = dict(MODELS[name])
    side = options.pop("side", None)
    library, _, kind = name.partition(".")
    torch.manual_seed(0)
    if library == "timm":
        model = timm.create_model(kind, pretrained=False, **options)
    else:
        kind = kind.rpartition(".")[2]
        model = torchvision.models.get_model(kind, weights=None, **options)
    with torch.no_grad():  # all zeros or all ones would hide faults
        for key, value in model.state_dict().items():
            if value.is_floating_point() and value.numel() > 1 and bool((value == value.flatten()[0]).all()):
                value.add_(torch.rand(value.shape) * 0.1 if key.endswith("var") else torch.randn(value.shape) * 0.1)
    return model.eval(), side


def images(side: int | None, rows: int, height: int, width: int) -> torch.Tensor:
    draw = torch.Generator().manual_seed(rows)
    return torch.randn(rows, 3, side or height, side or width, generator=draw)


def outputs_of(result: Any) -> list[np.ndarray]:
    """The tensors of a result in their order."""
    if isinstance(result, dict):
        return [array for value in result.values() for array in outputs_of(value)]
    if isinstance(result, (list, tuple)):
        return [array for value in result for array in outputs_of(value)]
    return [np.asarray(result.numpy() if hasattr(result, "numpy") else result)]


def difference(own: list[np.ndarray], theirs: list[np.ndarray]) -> float:
    """The largest difference relative to the largest number of its output."""
    return max(
        float(np.abs(a.astype(np.float64) - b).max() / max(1e-9, np.abs(b).max()))
        for a, b in zip(own, theirs, strict=True)
    )


def tried(name: str) -> dict[str, Any]:
    """What happens to a model: the stage at which it ends, and figures."""
    stage, outcome = "build", {}
    try:
        signal.alarm(600)
        model, side = model_of(name)
        stage = "from_torch"
        axes, program = program_of(model, side)
        side = side or (None if "H" in axes else SIDES[0][1])
        runs = [images(side, *sizes) for sizes in SIDES]
        with torch.no_grad():
            expected = [outputs_of(model(x)) for x in runs]
        module = lucid.from_torch(program, dynamic=[axes])
        outcome["axes"] = "batch, height, width" if "H" in axes else "batch"
        stage = "eager"
        outcome["eager"] = max(
            difference(outputs_of(module(lucid.tensor(x.numpy()))), theirs)
            for x, theirs in zip(runs, expected, strict=True)
        )
        stage = "exported"
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "lucid.onnx"
            lucid.export.to_onnx(module, path=path)
            session = lucid.runtime.Session(path)
            (key,) = session.inputs
            outcome["exported"] = max(
                difference(outputs_of(dict(session.run({key: x.numpy()}))), theirs)
                for x, theirs in zip(runs, expected, strict=True)
            )
            del session
            outcome["nodes"] = optimized_nodes(path)
            stage = "agrees" if max(outcome["eager"], outcome["exported"]) <= 2e-5 else "differs"
            outcome |= by_torch(program, Path(folder))
    except Exception as error:  # noqa: BLE001  # any library's error is a result here
        outcome["error"] = f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"[:300]
    finally:
        signal.alarm(0)
    return {"stage": stage, **outcome}


def program_of(model: torch.nn.Module, side: int | None) -> tuple[tuple[Any, ...], torch.export.ExportedProgram]:
    """The dynamic axes of the image, all that torch leaves open, and the program, as `from_torch` exports it."""
    x = images(side, *SIDES[0])
    if side is None:
        with suppress(TorchImportError):
            return ANY, exported(model, (x,), {}, [ANY])[0]
    return ("N",), exported(model, (x,), {}, [("N",)])[0]


def by_torch(program: torch.export.ExportedProgram, folder: Path) -> dict[str, Any]:
    """The nodes of torch's own export of the program, or its error."""
    try:
        torch.onnx.export(program, (), folder / "torch.onnx", dynamo=True, verbose=False)
        return {"torch_nodes": optimized_nodes(folder / "torch.onnx")}
    except Exception as error:  # noqa: BLE001
        return {"torch_error": f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"[:300]}


def optimized_nodes(path: Path) -> int:
    """The nodes of a file after onnxruntime's optimisation, at the level that is the same on every processor."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(path.with_suffix(".optimized.onnx"))
    options.log_severity_level = 3
    options.add_session_config_entry("session.optimized_model_external_initializers_file_name", "optimized.bin")
    onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return len(onnx.load(options.optimized_model_filepath, load_external_data=False).graph.node)


def page(results: dict[str, dict[str, Any]]) -> str:
    """The page of a run."""
    agree = [result for result in results.values() if result["stage"] == "agrees"]
    both = [result for result in agree if "torch_nodes" in result]
    fewer = sum(result["nodes"] <= result["torch_nodes"] for result in both)
    failed = sum("torch_error" in result for result in agree)
    lines = [
        "# Vision models through torch",
        "",
        "Look up whether a model of torchvision or timm goes through [`lucid.from_torch`](howto/from-torch.md). The page is generated by",
        f"`python -m tools.from_torch_vision` with torch {torch.__version__.split('+')[0]}, torchvision {torchvision.__version__.split('+')[0]} and timm {timm.__version__}: models with random",
        "weights, compared with torch eagerly and in onnxruntime at sizes that torch did not see.",
        "",
        f"Of {len(results)} models, {len(agree)} agree within 2e-5 of their outputs' scale. Nodes are counted after onnxruntime's optimisation (extended level).",
        f"Lucid's file has at most as many as that of `torch.onnx.export(dynamo=True)` for {fewer} of {len(both)} models; torch's export fails for {failed}.",
        "Max pooling takes two nodes more in Lucid's file, which [find NaN](limitations.md).",
        "A norm takes Mul, ReduceSum and Sqrt: over the last axis ReduceL2 takes 1.6 to 2.8 times as long (183 instead of 107 us for 64 x 4 x 49 x 32, one thread).",
        "Images are resized to sizes known at run time by gathers, some 25 nodes for an axis, since Resize rounds positions differently. Products with tables of weights would take about as",
        "many nodes, and infinity times 0 would make NaN of a whole row.",
        "",
        "| Model | Dynamic axes | Result | Difference: eager, exported | Nodes | Nodes by `torch.onnx` |",
        "|---|---|---|---|---|---|",
    ]
    for name in MODELS:
        if (result := results.get(name)) is None:
            continue
        axes = result.get("axes", "")
        if "nodes" in result:
            theirs = result.get("torch_nodes", "fails")
            figures = f"{result['eager']:.0e}, {result['exported']:.0e} | {result['nodes']} | {theirs}"
            lines.append(f"| `{name}` | {axes} | {result['stage']} | {figures} |")
        else:
            error = re.sub(r"/\S*/", "", result.get("error", "")).replace("|", "/").replace("<", "&lt;")
            lines.append(f"| `{name}` | {axes} | {result['stage']}: {error[:160]} | | | |")
    return "\n".join([*lines, ""])


def stopped(*_: Any) -> None:
    """A model that takes too long is given up."""
    raise TimeoutError("took too long")


def main() -> None:
    signal.signal(signal.SIGALRM, stopped)
    path = Path(sys.argv[1])
    results = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    for name in sys.argv[2:] or MODELS:
        if name not in results:
            results[name] = tried(name)
            print(name, results[name], flush=True)
            path.write_text(json.dumps(results, indent=1), encoding="utf-8")
    PAGE.write_text(page(results), encoding="utf-8")


if __name__ == "__main__":
    main()
