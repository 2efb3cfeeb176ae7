"""A feed-forward layer of experts: by form, beside transformers in torch and beside computing all experts."""

from __future__ import annotations

import lucid
from benchmarks import peers
from benchmarks.bench import LUCID, Bench
from benchmarks.graphs import Array, runner, unit_normal
from benchmarks.harness import Work
from benchmarks.results import Line
from lucid import Tensor, nn, ops
from lucid.export import to_onnx
from lucid.nn import functional as F

TRANSFORMERS, EAGER, DENSE = "transformers", "Lucid eager", "all experts, exported"
SIZES = [(64, 8, 1024, 384), (8, 2, 1024, 1792)]  # experts, how many a token has, width, inner width of one
ROWS = [1, 16, 256]


class Dense(nn.Module):
    """The same by computing all experts for every token, as exporters of a loop over experts with masks do."""

    def __init__(self, layer: nn.MixtureOfExperts) -> None:
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        experts = self.layer.experts
        weights, indices = ops.topk(F.softmax(self.layer.gate(x)), self.layer.k)
        none = lucid.zeros(x.shape[0], experts.down_proj.shape[0])
        chosen = ops.scatter(none, -1, indices, weights / weights.sum(axis=-1, keepdims=True))
        gate, up = (x @ experts.gate_up_proj.mT).chunk(2, -1)
        outputs = (F.silu(gate) * up) @ experts.down_proj.mT
        return (outputs * chosen.mT.unsqueeze(-1)).sum(axis=0)


def layers(bench: Bench) -> list[Line]:
    """One layer by numbers of experts and of tokens."""
    lines = []
    for experts, k, width, inner in SIZES[:1] if bench.quick else SIZES:
        lucid.manual_seed(0)
        layer = nn.MixtureOfExperts(experts, k, width, inner).eval()
        specs = lucid.spec("L", width)
        models = {
            LUCID: to_onnx(layer, specs, target="cpu"),
            "Lucid, any": to_onnx(layer, specs),
            "Lucid, portable": to_onnx(layer, specs, target="portable"),
            DENSE: to_onnx(Dense(layer), specs),
        }
        for rows in ROWS[1:2] if bench.quick else ROWS:
            (x,) = unit_normal((rows, width))
            ways: dict[str, Work] = {way: runner(model, (x,), bench.threads) for way, model in models.items()}
            ways[EAGER] = _eager(layer, x)
            if peers.transformers is not None:
                ways[TRANSFORMERS] = peers.transformers.experts(layer, x)
            base = TRANSFORMERS if TRANSFORMERS in ways else DENSE
            lines.append(bench.line("experts", f"{k} of {experts}, {width}x{inner}, {rows} tokens", base, ways))
    return lines


def _eager(layer: nn.MixtureOfExperts, x: Array) -> Work:
    tensor = Tensor(x)
    return lambda: layer(tensor)
