"""Products with quantized weights against float32, by shape: chains of layers, each of which reads other weights."""

from __future__ import annotations

import onnx

import lucid
from benchmarks.bench import Bench
from benchmarks.graphs import runner, unit_normal
from benchmarks.harness import Work
from benchmarks.results import Line
from lucid import nn
from lucid.export import to_onnx

CASES = {f"4 bits, {block}": (4, block) for block in (16, 32, 64, 128)} | {
    "8 bits, 32": (8, 32),
    "8 bits, 128": (8, 128),
}
EXACT = {"4 bits, 32, level 0": (4, 32), "8 bits, 32, level 0": (8, 32)}
SIZES = [(576, 1536), (2048, 2048)]
ROWS = [1, 16, 128]
FLOAT32 = "float32"
_FAR = 480e6  # bytes of float32 weights, so that those in 4 bits too are read from memory and not from a cache


class Chain(nn.Module):
    """Layers from K to N inputs and back, time and again."""

    def __init__(self, inputs: int, outputs: int) -> None:
        pairs = max(1, round(_FAR / (2 * 4 * inputs * outputs)))
        self.layers = nn.ModuleList(
            nn.Linear(*shape, bias=False) for _ in range(pairs) for shape in ((inputs, outputs), (outputs, inputs))
        )

    def forward(self, x: lucid.Tensor) -> lucid.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def products(bench: Bench) -> list[Line]:
    """Products by size, rows and form."""
    lines = []
    for inputs, outputs in SIZES[:1] if bench.quick else SIZES:
        models = _models(inputs, outputs)
        for rows in ROWS:
            (x,) = unit_normal((rows, inputs))
            ways: dict[str, Work] = {way: runner(model, (x,), bench.threads) for way, model in models.items()}
            lines.append(bench.line("products", f"{inputs}x{outputs}, {rows} rows", FLOAT32, ways))
    return lines


def _models(inputs: int, outputs: int) -> dict[str, onnx.ModelProto]:
    lucid.manual_seed(0)
    chain, x = Chain(inputs, outputs), ("L", inputs)
    models = {FLOAT32: to_onnx(chain, x, target="cpu")}
    for way, (bits, block) in (CASES | EXACT).items():
        models[way] = to_onnx(lucid.quantize(chain, bits=bits, block=block), x, target="cpu")
    for way in EXACT:  # by hand: Lucid does not write 8 bits at level 0
        for node in models[way].graph.node:
            next(a for a in node.attribute if a.name == "accuracy_level").i = 0
    return models
