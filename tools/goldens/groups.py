"""One group of goldens of torch: a safetensors file and a JSON file next to it.

Everything is computed in float64 from float32 weights and inputs, and rounded to float32 once: the values are
exact to half a unit in the last place and do not depend on a summation order. The modules run in training mode
with dropout 0 and gradients on, so torch's fused inference path is never taken. Every query sees a key (torch
gives NaN otherwise).

The JSON names, case by case, the arguments of the constructor, the prefix of the weights, the tensor of every
input, the plain options of the call, and the tensor of every output. Tensors that several cases share are
stored once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from .core import randomise


@dataclass
class Group:
    """The tensors and cases of one pair of files."""

    about: str
    tensors: dict[str, Tensor] = field(default_factory=dict)
    cases: dict[str, dict[str, object]] = field(default_factory=dict)

    def tensor(self, key: str, value: Tensor) -> str:
        """Store `value` under `key`, in float32 if it is a float; returns the key."""
        assert torch.isfinite(value).all() or "mask" in key, key
        self.tensors[key] = (value.detach().float() if value.is_floating_point() else value).contiguous().clone()
        return key

    def weights(self, prefix: str, module: nn.Module, seed: int) -> str:
        """Random weights for `module`, stored in float32; the module then computes in float64."""
        randomise(module, seed)
        for key, value in module.state_dict().items():
            self.tensor(f"{prefix}.{key}", value)
        module.double().train()
        return prefix

    def get(self, key: str) -> Tensor:
        value = self.tensors[key]
        return value.double() if value.is_floating_point() else value

    def add(
        self,
        case: str,
        *,
        arguments: Mapping[str, object],
        weights: str | None,
        inputs: Mapping[str, str],
        options: Mapping[str, object],
        outputs: Mapping[str, Tensor],
    ) -> None:
        """One case; `inputs` are keys of stored tensors, `outputs` are stored as `<case>.<name>`."""
        assert case not in self.cases, case
        stored = {name: self.tensor(f"{case}.{name}", value) for name, value in outputs.items()}
        entry = {"arguments": dict(arguments), "weights": weights, "inputs": dict(inputs), "options": dict(options)}
        self.cases[case] = {**entry, "outputs": stored}

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        save_file(self.tensors, path.with_suffix(".safetensors"))
        path.with_suffix(".safetensors").chmod(0o644)
        lines = [f" {json.dumps(case)}: {json.dumps(entry)}" for case, entry in self.cases.items()]  # one line per case
        text = f'{{"about": {json.dumps(self.about)},\n "cases": {{\n' + ",\n".join(lines) + "\n}}\n"
        path.with_suffix(".json").write_text(text, encoding="utf-8")
