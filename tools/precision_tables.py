"""The tables of docs/coverage.md about precision: the forms of products, and the quantized models."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

import numpy as np
import onnx

import lucid
from lucid import Tensor, nn
from lucid.core.graph.types import Array, TensorType
from lucid.export import Target, explain, to_onnx
from lucid.export.target import TARGET_NAMES
from lucid.models.delightful_tts import ConformerBlock
from lucid.models.transformer import Transformer
from lucid.quantization import Blocks
from lucid.runtime import Session
from tests.models import goldens
from tests.models.goldens import TARGETS
from tests.models.zoo import ZOO

Row = list[str]
Bits = Literal[4, 8]
BLOCK = 16  # of the models, which are small

# Forms ----------------------------------------------------------------------------------------------------------------


def forms() -> tuple[Row, Iterator[Row]]:
    """By what the weights of a product are stored in, its form at each target's default opset."""
    rows = [[dtype, *(_float(dtype, to) for to in TARGET_NAMES)] for dtype in ("float32", "float16", "bfloat16")]
    for bits in (8, 4):
        weights = lucid.quantize(nn.Linear(64, 32), bits)
        for level in (4, 0):
            rows.append([f"{bits} bits, level {level}", *(_few(weights, to, level) for to in TARGET_NAMES)])
    rows.append(["4 bits with minimums, level 4", *(_few(_with_minimums(), to, 4) for to in TARGET_NAMES)])
    for dtype in ("float16", "bfloat16"):
        weights = lucid.quantize(nn.Linear(64, 32, dtype=dtype), 4)
        rows.append([f"4 bits, inputs of {dtype}, level 4", *(_few(weights, to, 4) for to in TARGET_NAMES)])
    for activations in ("dynamic", "dynamic_rows", "static"):
        inputs = [np.ones((1, 64), np.float32)] if activations == "static" else None
        weights = lucid.quantize(nn.Linear(64, 32), 8, activations=activations, calibration=inputs)
        rows.append([f'8 bits, activations="{activations}"', *(_few(weights, to, 4) for to in TARGET_NAMES)])
    for bits in (8, 4):
        table = lucid.quantize(nn.Embedding(16, 32), bits, smallest_table=1)
        rows.append([f"a table in {bits} bits", *(_few(table, to, 4) for to in TARGET_NAMES)])
    return ["weights", *(f"`{target}`" for target in TARGET_NAMES)], iter(rows)


def _float(dtype: str, target: str) -> str:
    """What a product computes in, and whether its weight is cast."""
    model = to_onnx(nn.Linear(64, 32, bias=False), dtype=None if dtype == "float32" else dtype, target=target)
    stored = {weight.name: weight.data_type for weight in model.graph.initializer}
    (product,) = (node for node in model.graph.node if node.op_type in ("MatMul", "Gemm"))
    if product.input[1] in stored:
        kind = onnx.TensorProto.DataType.Name(stored[product.input[1]]).lower()
        return f"{product.op_type} of {'float32' if kind == 'float' else kind}"
    return f"Cast of the weight, {product.op_type} of float32"


def _few(layer: nn.Module, target: str, level: int) -> str:
    decisions = explain(layer, target=Target(target, accuracy_level=level)).decisions
    forms = (decision.taken for decision in decisions if decision.op.startswith(("quantized_", "int8_")))
    return next(forms, "expanded")  # no form but the body


def _with_minimums() -> nn.Linear:
    codes, ones = np.zeros((32, 64), np.uint8), np.ones((32, 2), np.float32)
    layer = nn.Linear(64, 32)
    layer.weight = nn.QuantizedWeight(Blocks(codes, ones, None, 4, 32, ones), lucid.float32)  # type: ignore[assignment]
    return layer


# Models ---------------------------------------------------------------------------------------------------------------


class Small(NamedTuple):
    """A model whose weights are quantized, its file, and inputs."""

    name: str
    file: str
    model: nn.Module
    inputs: dict[str, Array]

    def errors(self) -> list[float]:
        """Of the exports in 4 and in 8 bits at level 0 for `TARGETS`."""
        return [self.error(bits, target) for bits in (4, 8) for target in TARGETS]

    def error(self, bits: Bits, target: str) -> float:
        """Of one export: the difference to the eager quantized model, relative to the largest number of an output."""
        small = self._in_few(bits)
        session = Session(to_onnx(small, target=Target(target, accuracy_level=0)), spinning=False)
        return _error(small, session, self.inputs)

    def check_other_targets(self) -> None:
        """In 4 bits all other targets are exported, too, and pass ONNX's checker."""
        for target in set(TARGET_NAMES) - set(TARGETS):
            to_onnx(self._in_few(4), target=Target(target, accuracy_level=0))

    def _in_few(self, bits: Bits) -> nn.Module:
        return lucid.quantize(self.model, bits, block=BLOCK, smallest_table=1)


def models() -> Iterator[Small]:
    """A model of each file."""
    for entry in reversed({entry.file: entry for entry in reversed(ZOO)}.values()):  # the first of each file
        model, inputs = entry.load(), goldens.cases(entry.variant)[0].inputs
        yield Small(entry.name, entry.file, model, goldens.as_exported(inputs, model.input_specs()))
    lucid.manual_seed(0)
    numbers = np.random.default_rng(0)
    for name, file, model in (
        ("Transformer (2017)", "models/transformer.py", Transformer(50, 16, 2, 32, 2).eval()),
        ("DelightfulTTS", "models/delightful_tts.py", ConformerBlock(dim=12, num_heads=3).eval()),
    ):
        yield Small(name, file, model, {key: _drawn(kind, numbers) for key, kind in model.input_specs().items()})


def _drawn(kind: TensorType, numbers: np.random.Generator) -> Array:
    shape = [size if isinstance(size, int) else 3 for size in kind.shape]
    if kind.dtype.kind == "float":
        return numbers.standard_normal(shape).astype(kind.dtype.numpy)
    return numbers.integers(0, 2, shape).astype(kind.dtype.numpy)


def _error(model: nn.Module, session: Session, inputs: dict[str, Array]) -> float:
    arrays = {name: inputs[name] for name in session.inputs}
    answer = model(**{name: Tensor(array) for name, array in arrays.items()})
    expected = [t.numpy() for t in (answer if isinstance(answer, tuple) else (answer,))]
    outputs = session.run(arrays).values()
    return max(
        float(np.abs(np.asarray(one) - other).max() / np.abs(other).max())
        for one, other in zip(outputs, expected, strict=True)
    )
