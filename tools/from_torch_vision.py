"""Models of torchvision and timm with random weights, through `lucid.from_torch`, held to torch: docs/from-torch-vision.md.

All take about half an hour; each is kept in tools/from_torch_vision.json as soon as it is measured, with its day, and the
page is made from that file.

python -m tools.from_torch_vision MODEL ...      measure these models
python -m tools.from_torch_vision --oldest 5     measure those whose records are oldest

It needs torch, torchvision, timm and onnxscript.
"""

from __future__ import annotations

import argparse
import signal
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
from tools import from_torch_pages
from tools.from_torch_pages import TOLERANCE, VISION
from tools.records import Records, described

PACKAGES = ("torch", "torchvision", "timm", "onnxruntime")
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


def tried(name: str) -> dict[str, dict[str, Any]]:
    """What happens to a model: the stage at which it ends, and figures; and the nodes of torch's own export."""
    stage, outcome, other = "build", dict[str, Any](), dict[str, dict[str, Any]]()
    try:
        signal.setitimer(signal.ITIMER_PROF, 600)
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
            stage = "agrees" if max(outcome["eager"], outcome["exported"]) <= TOLERANCE else "differs"
            other = {"torch_onnx": by_torch(program, Path(folder))}
    except Exception as error:  # noqa: BLE001  # any library's error is a result here
        outcome["error"] = described(error)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return {"lucid": {"stage": stage, **outcome}, **other}


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
        return {"nodes": optimized_nodes(folder / "torch.onnx")}
    except Exception as error:  # noqa: BLE001
        return {"error": described(error)}


def optimized_nodes(path: Path) -> int:
    """The nodes of a file after onnxruntime's optimisation, at the level that is the same on every processor."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(path.with_suffix(".optimized.onnx"))
    options.log_severity_level = 3
    options.add_session_config_entry("session.optimized_model_external_initializers_file_name", "optimized.bin")
    onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return len(onnx.load(options.optimized_model_filepath, load_external_data=False).graph.node)


def stopped(*_: Any) -> None:
    """A model that takes too long is given up."""
    raise TimeoutError("took too long")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*")
    parser.add_argument("--oldest", type=int, default=0)
    options = parser.parse_args()
    signal.signal(signal.SIGPROF, stopped)
    torch.set_num_threads(1)
    records = Records(VISION)
    for name in records.chosen("lucid", MODELS, options.models, options.oldest):
        for measurement, figures in tried(name).items():
            records.renew(name, measurement, figures, PACKAGES)
        print(name, records.rows[name], flush=True)
    from_torch_pages.main()


if __name__ == "__main__":
    main()
