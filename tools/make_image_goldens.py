"""tests/goldens/images.json: what transformers' image processors make of an image, for `lucid.batch`.

pip install transformers pillow
python tools/make_image_goldens.py
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import transformers
from PIL import Image

CASES = [
    ("CLIPImageProcessorPil", {"size": {"shortest_edge": 6}, "crop_size": {"height": 6, "width": 5}}),
    ("ViTImageProcessorPil", {"size": {"height": 5, "width": 7}}),
    ("SiglipImageProcessorPil", {"size": {"height": 6, "width": 6}}),
    ("ConvNextImageProcessorPil", {"size": {"shortest_edge": 7}}),
    ("SegformerImageProcessorPil", {"size": {"height": 6, "width": 5}, "do_reduce_labels": True}),
    ("RTDetrImageProcessorPil", {"size": {"height": 7, "width": 6}}),
    ("BitImageProcessorPil", {"size": {"shortest_edge": 8}, "crop_size": {"height": 6, "width": 8}}),
]


def main() -> None:
    """Write the file."""
    image = np.random.default_rng(0).integers(0, 256, (11, 14, 3), dtype=np.uint8)
    cases = []
    for name, options in CASES:
        processor = getattr(transformers, name)(**options)
        pixels = processor(Image.fromarray(image), return_tensors="np")["pixel_values"][0]
        config = {key: value for key, value in json.loads(processor.to_json_string()).items() if value is not None}
        cases.append({"config": config, "pixels": np.round(pixels.astype(float), 7).tolist()})
    found = {"transformers": transformers.__version__, "image": image.tolist(), "cases": cases}
    path = Path(__file__).parents[1] / "tests" / "goldens" / "images.json"
    path.write_text(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
