"""images.json: an image as transformers' image processors read it, for `lucid.batch`. Needs pillow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import transformers

CASES: list[tuple[str, dict[str, Any]]] = [
    ("CLIPImageProcessorPil", {"size": {"shortest_edge": 6}, "crop_size": {"height": 6, "width": 5}}),
    ("ViTImageProcessorPil", {"size": {"height": 5, "width": 7}}),
    ("SiglipImageProcessorPil", {"size": {"height": 6, "width": 6}}),
    ("ConvNextImageProcessorPil", {"size": {"shortest_edge": 7}}),
    ("SegformerImageProcessorPil", {"size": {"height": 6, "width": 5}, "do_reduce_labels": True}),
    ("RTDetrImageProcessorPil", {"size": {"height": 7, "width": 6}}),
    ("BitImageProcessorPil", {"size": {"shortest_edge": 8}, "crop_size": {"height": 6, "width": 8}}),
]


def store_all(folder: Path) -> None:
    from PIL import Image

    image = np.random.default_rng(0).integers(0, 256, (11, 14, 3), dtype=np.uint8)
    cases = []
    for name, options in CASES:
        processor = getattr(transformers, name)(**options)
        pixels = processor(Image.fromarray(image), return_tensors="np")["pixel_values"][0]
        config = {key: value for key, value in json.loads(processor.to_json_string()).items() if value is not None}
        cases.append({"config": config, "pixels": np.round(pixels.astype(float), 7).tolist()})
    golden = {"transformers": transformers.__version__, "image": image.tolist(), "cases": cases}
    folder.with_suffix(".json").write_text(json.dumps(golden) + "\n")
