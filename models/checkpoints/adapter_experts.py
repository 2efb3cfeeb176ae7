"""LoRA on the joined weights of experts (PEFT's target_parameters): which weight a pair A, B belongs to.

The two matrices of N experts are stored as one pair, for a parameter (N, outputs, inputs) or (N, inputs, outputs)::

    base_model.model.X.lora_A.weight               (N * r, inputs): expert by expert
    base_model.model.X.lora_B.weight               (outputs, r * N): rank by rank
    base_model.model.X.base_layer.lora_A.weight    another parameter of the same module

Names tell the module X alone; target_parameters lists the parameters, and shapes tell which one a pair is for. A
checkpoint may have a weight for each expert instead, and two for what the module joins.

Source: peft 0.21, `ParamWrapper` in `tuners/lora/layer.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from lucid.models.checkpoints.adapter_files import LowRank

_SINGLE = {  # what checkpoints call the parts of one expert, in the order in which the parameter joins them
    "gate_up_proj": (("w1", "w3"), ("gate_proj", "up_proj")),
    "down_proj": (("w2",), ("down_proj",)),
}
_BLOCKS = ("mlp", "block_sparse_moe")

Named = Callable[[str], str | None]
"""A name of an adapter as that of a weight, if there is one."""


def expert_changes(
    module: str, pairs: Mapping[str, LowRank], shapes: Mapping[str, tuple[int, ...]], named: Named, transposed: bool
) -> dict[str, LowRank]:
    """The changes of weights, by their names; none if no parameter fits, or several do.

    Args:
        module: the name of the experts.
        pairs: what is added to each of its parameters, if it is the one.
        shapes: of the weights of the base model.
        named: finds these by names of an adapter.
        transposed: whether the base model stores (inputs, outputs), where a square shape does not tell.
    """
    options = [changes for name, pair in pairs.items() if (changes := dict(_of(module, name, pair, shapes, named)))]
    changes = options[0] if len(options) == 1 else {}
    square = [name for name, pair in changes.items() if pair.experts > 1 and len(set(shapes[name][1:])) == 1]
    return changes | {name: replace(changes[name], transposed=transposed) for name in square}


def _of(
    module: str, parameter: str, pair: LowRank, shapes: Mapping[str, tuple[int, ...]], named: Named
) -> Iterator[tuple[str, LowRank]]:
    size, whole = (len(pair.b), pair.a.shape[1]), named(f"{module}.{parameter}")
    if whole is not None:
        shape = shapes[whole]
        if shape in ((pair.experts, *size), (pair.experts, *size[::-1])):
            yield whole, replace(pair, transposed=shape[1:] != size)
        return
    outer = re.sub(r"\.\w+\.experts$", "", module)
    for parts in _SINGLE.get(parameter, ()):
        for block in _BLOCKS:
            names = [
                [named(f"{outer}.{block}.experts.{expert}.{part}.weight") for part in parts]
                for expert in range(pair.experts)
            ]
            if all(
                name is not None and (shapes[name][0] * len(parts), shapes[name][1]) == size
                for row in names
                for name in row
            ):
                for expert, row in enumerate(names):
                    for place, name in enumerate(row):
                        yield str(name), pair.of_expert(expert, place, len(parts))
