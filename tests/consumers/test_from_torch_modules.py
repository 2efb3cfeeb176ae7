"""`lucid.from_torch` of modules as people write them, and of torch's core operators."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import lucid
from lucid.importing import TorchImportError, register
from lucid.importing.complex_numbers import Complex
from lucid.importing.table import TABLE, remedy
from tests.consumers.test_from_torch import AXES, Function, agree

X = torch.randn(3, 6, 8)


def of(function: Callable[..., Any]) -> nn.Module:
    return Function(function).eval()


class Decoder(nn.Module):
    """torch's decoder under a causal mask, which its code reads to see whether it is causal."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 16, batch_first=True), 1)

    def forward(self, x):
        return self.layers(x, x, tgt_mask=nn.Transformer.generate_square_subsequent_mask(x.shape[1]))


class CausalEncoder(nn.TransformerEncoder):
    """A subclass that calls torch's `forward` by `super()`, and leaves open whether its mask is causal."""

    def forward(self, x):
        return super().forward(x, nn.Transformer.generate_square_subsequent_mask(x.shape[1]))


class CausalDecoder(nn.TransformerDecoder):
    def forward(self, x):
        return super().forward(x, x, nn.Transformer.generate_square_subsequent_mask(x.shape[1]))


def encoder() -> CausalEncoder:
    return CausalEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 1, enable_nested_tensor=False)


class Bags(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.EmbeddingBag(20, 8, mode="mean")

    def forward(self, ids):
        return self.table(ids)


class Flex(nn.Module):
    """Scores and masks by functions, one of which reads a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("slopes", torch.tensor([0.1, 0.3]))

    def forward(self, x):
        heads = x.unflatten(-1, (2, 4)).transpose(1, 2)

        def score(score, row, head, query, key):
            return torch.where(query >= key, score - (query - key) * self.slopes[head], -float("inf"))

        return flex_attention(heads, heads[:, :1], heads[:, :1], score_mod=score, enable_gqa=True)


class Documents(nn.Module):
    """Attention within the documents of a row, by a mask of blocks that reads an input."""

    def forward(self, x):
        document = (x[..., 0] > 0).cumsum(1)

        def seen(row, head, query, key):
            return (query >= key) & (document[row, query] == document[row, key])

        mask = create_block_mask(seen, x.shape[0], None, x.shape[1], x.shape[1], device="cpu")
        heads = x.unflatten(-1, (2, 4)).transpose(1, 2)
        output, sums = flex_attention(heads, heads, heads, block_mask=mask, return_lse=True)
        return output, sums


class Rows(Flex):
    """Attention whose function adds up a row of a table."""

    def forward(self, x):
        heads = x.unflatten(-1, (2, 4)).transpose(1, 2)
        table = self.slopes[:, None].expand(2, 3)
        return flex_attention(heads, heads, heads, lambda score, row, head, query, key: score * table[head].sum())


class Groups(nn.Module):
    """Rows sorted by their experts, and multiplied in groups."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 8, 8))

    def forward(self, x):
        rows = x.flatten(0, 1)
        chosen = rows[:, :3].argmax(1)
        order = chosen.argsort(stable=True)
        ends = (chosen == torch.arange(3)[:, None]).sum(1).cumsum(0).to(torch.int32)
        products = F.grouped_mm(rows[order], self.weight, offs=ends)
        return torch.zeros_like(rows).index_add(0, order, products).view_as(x)


class Codes(nn.Module):
    """Numbers rounded to a table's, with the gradient of what is rounded."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.table = nn.Linear(8, 4), nn.Embedding(16, 4)

    def forward(self, x):
        x = self.up(x)
        chosen = self.table(torch.cdist(x, self.table.weight.data[None]).argmin(-1))
        scale = 1 / self.up.weight.detach().norm()
        return (x + (chosen - x).detach()) * scale, F.mse_loss(chosen, x.detach()) + F.mse_loss(x, chosen.detach())


class Mixture(nn.Module):
    """Experts, two of which compute each token: all of them, weighed, or the tokens of each alone."""

    def __init__(self, alone: bool) -> None:
        super().__init__()
        self.router, self.experts = nn.Linear(8, 3), nn.ModuleList(nn.Linear(8, 8) for _ in range(3))
        self.alone = alone

    def forward(self, x):
        weights, chosen = self.router(x).softmax(-1).topk(2, -1)
        if not self.alone:
            parts = [
                expert(x) * (weights * (chosen == place)).sum(-1, keepdim=True)
                for place, expert in enumerate(self.experts)
            ]
            return sum(parts)
        output = torch.zeros_like(x[0])
        for place, expert in enumerate(self.experts):
            rows, which = torch.where(chosen[0] == place)
            output = output.index_add(0, rows, expert(x[0, rows]) * weights[0, rows, which, None])
        return output


MODULES: dict[str, tuple[nn.Module, torch.Tensor, Any]] = {
    "a decoder of torch": (Decoder(), X, AXES),
    "a subclass of torch's encoder": (encoder(), X, AXES),
    "a subclass of torch's encoder in a module": (nn.Sequential(nn.Linear(8, 8), encoder()), X, AXES),
    "a subclass of torch's decoder": (
        CausalDecoder(nn.TransformerDecoderLayer(8, 2, 16, batch_first=True), 1),
        X,
        AXES,
    ),
    "bags of one length": (Bags(), torch.randint(0, 20, (3, 6)), AXES),
    "attention with functions": (Flex(), X, AXES),
    "attention within documents": (Documents(), X, AXES),
    "groups of rows": (Groups(), X, AXES),
    "a mixture of experts": (Mixture(alone=False), X, AXES),
    "a size among the outputs": (of(lambda x: {"sum": x.sum(1), "length": x.shape[1]}), X, AXES),
}


@pytest.mark.parametrize("name", MODULES)
def test_modules(name: str) -> None:
    module, example, axes = MODULES[name]
    if name == "a size among the outputs":
        imported = lucid.from_torch(module, example, dynamic=[axes])
        session = lucid.runtime.Session(lucid.export.to_onnx(imported))
        assert session.run({"x": np.ones((2, 5, 8), np.float32)})["length"] == 5
        assert imported(lucid.ones(2, 5, 8))["length"].item() == 5
    else:
        agree(module.eval(), example, axes=axes)


def test_detached_tensors_are_constants_of_gradients() -> None:
    module = Codes().eval()
    imported = lucid.from_torch(module, X, dynamic=[AXES])
    sum(map(torch.sum, module(X))).backward()
    gradients = lucid.grad(lambda x: sum(each.sum() for each in imported(x)), wrt=imported)(lucid.tensor(X.numpy()))
    for name, parameter in module.named_parameters():
        np.testing.assert_allclose(gradients[name].numpy(), parameter.grad.numpy(), atol=1e-5)


def test_attention_with_functions_of_one_length_leaves_the_next_one_open() -> None:
    module = Flex().eval()
    torch.export.export(module, (X,), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},))
    agree(module, X, axes=AXES)


def test_functions_of_several_numbers_at_a_place_are_refused() -> None:
    rows, flex = Rows().eval(), Flex().eval()
    with pytest.raises(TorchImportError, match=r"computes something else: .* a function of flex_attention that adds"):
        lucid.from_torch(rows, X, dynamic=[AXES])
    with pytest.raises(TorchImportError, match=r"computes with 1 axes of numbers at a place \(.*py:\d+\)"):
        lucid.from_torch(torch.export.export(rows, (X,)))
    imported = lucid.from_torch(torch.export.export(flex, (X,)))
    np.testing.assert_allclose(imported(lucid.tensor(X.numpy())).numpy(), flex(X).numpy(), atol=1e-5)


def test_transformers_keep_their_classes() -> None:
    module = nn.Sequential(encoder(), Decoder()).eval()
    classes = [type(part) for part in module.modules()]
    imported = lucid.from_torch(module, X, dynamic=[AXES])
    assert [type(part) for part in module.modules()] == classes
    assert "CausalEncoder(" in repr(imported) and "TransformerDecoder(" in repr(imported)


def test_parts_of_a_dynamic_length_are_rounded_as_torch_does() -> None:
    module = of(lambda x: (x[:, : math.floor(x.shape[1] * 0.75)].sum(1), x[:, math.ceil(x.shape[1] / 2.0 * 0.5) :]))
    imported = lucid.from_torch(module, X, dynamic=[AXES])
    session = lucid.runtime.Session(lucid.export.to_onnx(imported))
    for length in (6, 7, 9, 16):
        x = torch.randn(2, length, 8)
        results = imported(lucid.tensor(x.numpy())), session.run({"x": x.numpy()}).values()
        for result in results:
            for own, theirs in zip(result, module(x), strict=True):
                np.testing.assert_allclose(np.asarray(own), theirs.numpy(), atol=2e-6)


def test_axes_that_have_steps_together_are_named_by_them() -> None:
    module = of(lambda x: x.reshape(x.shape[0], x.shape[1] // 2, 2, x.shape[2] // 3, 3).sum(-1))
    imported = lucid.from_torch(module, torch.randn(2, 6, 12))
    assert list(map(str, imported.input_specs()["x"].shape)) == ["N", "2*L", "3*x_2"]
    session = lucid.runtime.Session(lucid.export.to_onnx(imported))
    for x in (torch.randn(1, 2, 3), torch.randn(3, 8, 9)):
        np.testing.assert_allclose(session.run({"x": x.numpy()})["output"], module(x).numpy(), atol=1e-5)
    with pytest.raises(TorchImportError, match=r"axis 2 of x is named 'W', .*: name it '3\*W'"):
        lucid.from_torch(module, torch.randn(2, 6, 12), dynamic=[("N", "2*H", "W")])


def test_sizes_between_steps_are_refused() -> None:
    imported = lucid.from_torch(of(lambda x: 2 * x if x.shape[1] % 2 == 0 else x), X)
    assert imported(lucid.ones(2, 4, 8)).numpy().max() == 2
    assert lucid.trace(imported, ("N", "4*L", 8))
    with pytest.raises(ValueError, match=r"axis 1 of an input has size 5, expected 2\*L: for others, the model may"):
        imported(lucid.ones(2, 5, 8))
    with pytest.raises(ValueError, match=r"axis 1 of an input has size L, expected 2\*L"):
        lucid.trace(imported, ("N", "L", 8))


@dataclasses.dataclass
class Scores:
    logits: torch.Tensor
    others: tuple[torch.Tensor, ...]
    loss: torch.Tensor | None = None
    classes: int = 4


def test_dataclasses_are_dicts_and_numbers_tensors() -> None:
    imported = lucid.from_torch(of(lambda x: Scores(x + 1, (x, x * 2))), X, dynamic=[AXES])
    graph = lucid.trace(imported, ("N", 6, 8))
    assert graph.output_names == ("logits", "others_0", "others_1", "classes")
    result = imported(lucid.ones(2, 3, 8))
    assert list(result) == ["logits", "others", "classes"]
    assert result["classes"].item() == 4


def test_an_axis_whose_symbol_has_one_value_is_not_dynamic() -> None:
    def spectrum(x):
        return torch.fft.irfft(torch.fft.rfft(x, dim=1)[:, :4], n=x.shape[1], dim=1)

    module, example = of(spectrum), torch.randn(3, 16, 8)
    try:
        imported = lucid.from_torch(module, example, dynamic=[AXES])
    except TorchImportError as error:
        assert "axis 1 of x is named 'L', but the module works with size 16 only" in str(error)
    else:
        assert str(imported.input_specs()["x"].shape[1]) == "L"


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (
            lambda x: torch.stack([row * place for place, row in enumerate(x.unbind(1))]),
            "a loop of Python over the axis",
        ),
        (lambda x: torch.bincount(x[0, :, 0].long().abs()), "has results whose number depends on the values"),
        (
            lambda x: nn.utils.rnn.pack_padded_sequence(x, (x[:, 0, 0] * 0 + 4).long(), True, False).data,
            "packs a sequence, whose sizes depend on the values of its lengths",
        ),
        (
            lambda x: F.conv1d(x.mT.long(), torch.ones(4, 8, 3, dtype=torch.long)),
            r"aten.conv1d.default \(.*py:\d+\) of torch.int64: .*; convert its operands with .float\(\), .* 2\*\*24",
        ),
        (
            lambda x: F.ctc_loss(x.log_softmax(-1), torch.ones(6, 2).long(), torch.full((6,), 3), torch.full((6,), 2)),
            r"the result of aten._ctc_loss.Tensor is known from the values .*, or after it, like a loss.*py:\d+\)$",
        ),
        (lambda x: torch.cov(x[0]), "the result of aten.equal.default is known from the values"),
        (lambda x: F.avg_pool1d(x.long(), 2), r"aten.avg_pool1d.default \(.* of torch.int64"),
    ],
)
def test_refusals_say_what_to_write(function: Callable[..., Any], message: str) -> None:
    with pytest.raises(TorchImportError, match=message):
        lucid.from_torch(of(function), X, dynamic=[AXES])


def test_experts_that_compute_their_tokens_alone_are_refused_with_the_way_out() -> None:
    message = r"nonzero.* depends on the values of a tensor: .* of a mixture compute all experts and weigh them"
    with pytest.raises(TorchImportError, match=message):
        lucid.from_torch(Mixture(alone=True).eval(), X, dynamic=[AXES])


def test_a_slice_whose_length_is_a_value_is_refused_with_the_way_out() -> None:
    class Cut(nn.Module):
        def forward(self, x, n):
            return x[:, : n.item()]

    imported = lucid.from_torch(Cut().eval(), X, torch.tensor(2), dynamic=[AXES, ()])
    with pytest.raises(NotImplementedError, match=r"the value of a tensor, .* hide the rest with torch.where"):
        lucid.export.to_onnx(imported)


@pytest.mark.parametrize(
    "function", [F.selu, lambda x: F.celu(x, 2.0), lambda x: F.interpolate(x[None], scale_factor=1.3)]
)
def test_programs_of_core_operators(function: Callable[..., Any]) -> None:
    module = of(function)
    imported = lucid.from_torch(torch.export.export(module, (X,)).run_decompositions())
    np.testing.assert_allclose(imported(lucid.tensor(X.numpy())).numpy(), module(X).numpy(), atol=1e-6)


def test_strides_of_a_slice_are_refused_where_they_count_from_the_whole_tensor() -> None:
    agree(of(lambda x: x[1:].as_strided((2, 3), (3, 1))), X, axes=(3, 6, 8))
    with pytest.raises(TorchImportError, match=r"as_strided.* counts in the memory of another tensor .*, or index$"):
        lucid.from_torch(of(lambda x: x[1:].as_strided((2, 3), (3, 1), 0)), X)


@pytest.mark.parametrize(
    ("pair", "shown"),
    [([1.0], "list with the parts 0"), ({"a": 1.0, "b": 2.0}, "dict with the parts a, b"), (1.0, "float with")],
)
def test_inputs_of_other_parts_are_refused(pair: Any, shown: str) -> None:
    class Sum(nn.Module):
        def forward(self, pair):
            return pair[0] + pair[1]

    imported = lucid.from_torch(Sum().eval(), [X, X])
    with pytest.raises(ValueError, match=f"input pair is a {shown}.*, expected 0, 1, as in .*; give these, or import"):
        imported(pair)


def test_an_orthogonal_weight_is_kept_as_the_error_says() -> None:
    module = nn.Sequential(nn.utils.parametrizations.orthogonal(nn.Linear(8, 8))).eval()
    with pytest.raises(
        TorchImportError, match=r"matrix_exp.* computes the parametrized weight of a layer.*: keep "
    ) as error:
        lucid.from_torch(module, X)
    remedy = str(error.value).rpartition(" by ")[2]
    assert remedy == 'torch.nn.utils.parametrize.remove_parametrizations(module.get_submodule("0"), "weight")'
    nn.utils.parametrize.remove_parametrizations(module.get_submodule("0"), "weight")
    agree(module, X)


CORE_WITHOUT_ROWS = {  # of training and of memory
    "aten._native_batch_norm_legit.default",
    "aten.resize_.default",
    "aten.sym_storage_offset.default",
}


def test_core_operators_have_rows() -> None:
    core: set[str] = set()
    for packet in (getattr(torch.ops.aten, name) for name in dir(torch.ops.aten) if not name.startswith("__")):
        overloads = packet.overloads() if isinstance(packet, torch._ops.OpOverloadPacket) else []
        core |= {
            str(operator)
            for operator in (getattr(packet, overload) for overload in overloads)
            if torch.Tag.core in operator.tags and torch.Tag.nondeterministic_seeded not in operator.tags
        }
    written = {str(operator) for operator in torch.export.default_decompositions()}
    missing = {
        name
        for name in core - written - set(TABLE)
        if f"{name} of complex numbers" not in TABLE and not remedy(name)
        if not name.endswith((".out", "_backward.default", ".as_strided.default"))
    }
    assert len(core) > 150
    assert missing == CORE_WITHOUT_ROWS


@pytest.mark.parametrize(
    ("function", "unused"),
    [
        (lambda x: F.normalize(x, dim=-1), "Expand"),
        (lambda x: x[torch.arange(x.shape[0])[:, None, None], torch.arange(x.shape[1])[None]] * 2, "GatherND"),
        (lambda x: torch.cat([torch.zeros(0), x.transpose(1, 2)], -2), "Concat"),
    ],
    ids=["an operand that is expanded", "all places in their order", "an empty part"],
)
def test_what_changes_nothing_is_no_node(function: Callable[..., Any], unused: str) -> None:
    graph = lucid.export.to_onnx(agree(of(function), X)).graph
    assert unused not in {node.op_type for node in graph.node}


SMOOTH = math.sqrt(2 / math.pi)
GELU = {
    "as GPT-2": lambda x: 0.5 * x * (1.0 + torch.tanh(SMOOTH * (x + 0.044715 * torch.pow(x, 3.0)))),
    "as BLOOM": lambda x: x * 0.5 * (1.0 + torch.tanh(0.79788456 * x * (1 + 0.044715 * x * x))),
    "by erf": lambda x: x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0))),
}


@pytest.mark.parametrize("name", GELU)
def test_gelu_that_is_written_out_is_one_node(name: str) -> None:
    imported = agree(of(GELU[name]), X * 3)
    assert [node.op_type for node in lucid.export.to_onnx(imported).graph.node] == ["Gelu"]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: 0.5 * x * (1 + torch.tanh(0.8 * (x + 0.044715 * x**3))),
        lambda x: 0.5 * x * (1 + torch.tanh(SMOOTH * (x + 0.044715 * x**2))),
        lambda x: 0.5 * x * (1 + torch.tanh(SMOOTH * (x[:, :1] + 0.044715 * x**3))),
        lambda x: 0.5 * x * torch.add(torch.erf(x / math.sqrt(2.0)), 1, alpha=2),
        lambda x: 0.5 * x[:, :1] * (1 + torch.erf(x / math.sqrt(2.0))),
    ],
    ids=["another factor", "a square", "another number", "twice one", "a row for all"],
)
def test_what_only_resembles_gelu_is_computed_as_it_is(function: Callable[..., Any]) -> None:
    imported = agree(of(function), X * 3)
    assert "Gelu" not in {node.op_type for node in lucid.export.to_onnx(imported).graph.node}


def test_places_in_another_order_are_looked_up() -> None:
    agree(of(lambda x: x[torch.arange(x.shape[0])[None], torch.arange(x.shape[1])[:, None]]), X)
    agree(of(lambda x: x[torch.arange(3)[:, None], torch.arange(x.shape[1] - 1)]), X, axes=(3, "L"))
    agree(of(lambda x: torch.ones(1, 1, 8).expand(x.shape) / x[:1, :1].expand(x.shape)), X)


def put(indices: Callable[..., Any], values: Callable[..., Any]) -> Callable[[torch.Tensor], Any]:
    """A function that puts values at indices, both made of x, in a copy of x."""

    def put(x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        y[indices(x)] = values(x)
        return y

    return put


class Fourier(nn.Module):
    """A layer of a Fourier neural operator: low frequencies are mixed by complex weights."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 8, 2, dtype=torch.complex64))

    def forward(self, x):
        waves = torch.fft.rfft(x.mT)
        output = torch.zeros(x.shape[0], 8, x.shape[1] // 2 + 1, dtype=torch.complex64)
        output[:, :, :1] = torch.einsum("nix,iox->nox", waves[:, :, :1], self.weight[..., :1])
        output[..., -1] = torch.exp(1j * waves[..., -1].real)
        return torch.fft.irfft(output, n=x.shape[1]).mT


def test_complex_numbers_are_written_into_parts() -> None:
    module = Fourier().eval()
    imported = lucid.from_torch(module, X, dynamic=[AXES])
    session = lucid.runtime.Session(lucid.export.to_onnx(imported))
    for shape in ((2, 5, 8), (1, 4, 8), (3, 10, 8)):
        x = torch.randn(shape)
        for result in (imported(lucid.tensor(x.numpy())).numpy(), session(x.numpy()).numpy()):
            np.testing.assert_allclose(result, module(x).detach().numpy(), atol=2e-5)


def test_a_function_for_complex_numbers_is_registered_as_the_error_says() -> None:
    def cosines(x: torch.Tensor) -> torch.Tensor:
        return torch.view_as_real(torch.cosh(x * 1j))

    with pytest.raises(
        TorchImportError, match=r'register\("(aten.cosh.default of complex numbers)", function\)'
    ) as error:
        lucid.from_torch(of(cosines), X)
    name = str(error.value).split('"')[1]
    register(name, lambda x: Complex(x.real.cosh() * x.imaginary.cos(), x.real.sinh() * x.imaginary.sin()))
    try:
        agree(of(cosines), X)
    finally:
        del TABLE[name]


def test_axes_are_added_to_complex_numbers() -> None:
    turns = torch.outer(torch.arange(16.0), torch.tensor([1.0, 0.1]))
    waves = torch.polar(torch.ones_like(turns), turns)

    def rotated(x: torch.Tensor) -> torch.Tensor:
        pairs = torch.view_as_complex(x.unflatten(-1, (2, 2, 2)))
        return torch.view_as_real(pairs * waves[: x.shape[1]][None, :, None]).flatten(2)

    agree(of(rotated), X)


STEPS = {
    "a number": put(lambda x: (slice(None), slice(None, None, 2)), lambda x: 0.0),
    "rows": put(lambda x: (slice(None), slice(1, -1, 2)), lambda x: 2 * x[:, 1:-1:2]),
    "apart": put(lambda x: (torch.arange(x.shape[0]), slice(None), x[:, 0].argmax(-1)), lambda x: x[..., 0]),
}


@pytest.mark.parametrize("name", STEPS)
def test_values_are_put_at_steps_of_dynamic_axes_and_at_axes_that_are_apart(name: str) -> None:
    agree(of(STEPS[name]), X)


MASKS = {
    "a row": put(lambda x: x[..., 0] > 0, lambda x: torch.arange(8.0)),
    "one number": put(lambda x: x > 0, lambda x: torch.ones(1)),
    "a matrix": put(lambda x: x[:, 0, 0] > 0, lambda x: x[0]),
    "an axis behind": put(lambda x: (..., torch.tensor([True, False] * 4)), lambda x: x[..., :1]),
    "two axes behind": put(lambda x: (slice(None), x[0] > 0), lambda x: x[:, :1, 0]),
    "an axis between": put(lambda x: (slice(None), x[0, :, 0] > 0), lambda x: x[:, :1]),
    "a number that is added": lambda x: x.index_put((x > 0,), torch.tensor(2.0), accumulate=True),
    "rows that are added": lambda x: x.index_put((x[..., 0] > 0,), x[0, :1], accumulate=True),
}


@pytest.mark.parametrize("name", MASKS)
def test_values_that_are_alike_are_put_at_a_mask(name: str) -> None:
    agree(of(MASKS[name]), X)


@pytest.mark.parametrize(
    "function",
    [
        put(lambda x: x[:, 0, 0] > 0, lambda x: x[x[:, 0, 0] > 0]),
        put(lambda x: (x[:, 0, 0] > 0, torch.tensor([1])), lambda x: torch.tensor(5.0)),
    ],
    ids=["another value at each place", "a mask among indices"],
)
def test_other_values_at_a_mask_are_refused_with_the_way_out(function: Callable[..., Any]) -> None:
    with pytest.raises(
        NotImplementedError, match=r"at a mask, another one at each place.* by torch.where\(mask, value, x"
    ):
        lucid.from_torch(of(function), X)(lucid.ones(3, 6, 8))


def test_a_size_that_torch_s_own_code_takes_as_a_constant_has_both_ends() -> None:
    module = of(lambda x: F.interpolate(x, scale_factor=2.3, mode="area"))
    imported = lucid.from_torch(module, torch.randn(2, 3, 12), dynamic=[("N", 3, "L")])
    x = torch.randn(1, 3, 12)
    np.testing.assert_allclose(imported(lucid.tensor(x.numpy())).numpy(), module(x).numpy(), atol=1e-6)
    for length, limit in ((11, "least"), (13, "most")):
        with pytest.raises(ValueError, match=f"L is {length}, expected at {limit} 12"):
            imported(lucid.ones(1, 3, length))


RARE = torch.tensor([[math.nan, math.inf, math.inf], [1, math.nan, 2], [math.nan] * 3])
FUNCTIONS = {
    "groups of no rows": lambda x: torch.native_group_norm(x[:0], None, None, 0, 6, 8, 2, 1e-5),
    "elu with scales": lambda x: torch.ops.aten.elu(x, 1.2, 1.5, 0.5),
    "a threshold of NaN": lambda x: F.threshold(torch.log(x), 0.1, 20.0),
    "the median of infinity beside NaN": lambda x: torch.nanmedian(x[0, :3, :3] * 0 + RARE, 1),
    "counts of tenths": lambda x: torch.histc((10 * x).round() / 10, 30, 0, 3),
    "an empty slice": lambda x: torch.slice_scatter(x, x[:, :0], 1, 3, 1),
    "parts of other shapes": lambda x: torch.view_as_real(torch.complex(x, x[0, :1])),
    "an imaginary number": lambda x: torch.view_as_real(x * 2j),
    "sizes with factors": lambda x: torch.ops.aten.upsample_nearest2d(x[None], [7, 10], 1.3, 1.3),
    "a size that a factor doubles": lambda x: F.interpolate(x[None], scale_factor=2.1),
    "integers with factors": lambda x: torch.addmv(x[0, :3, 0].long(), x[0, :3].long(), x[1, 2].long(), beta=0.5),
    "addmv": lambda x: torch.addmv(x[0, :3, 0], x[0, :3], x[1, 2], beta=2),
    "native_layer_norm": lambda x: torch.native_layer_norm(x, [6, 8], None, None, 1e-5),
    "numbers along an axis": lambda x: (x[0, 0, 0].softmax(-1), *x[0, 0, 0].topk(1), x[0, 0, 0].norm(dim=0)),
    "solve_triangular": lambda x: torch.linalg.solve_triangular(x[0, :, :6] + 5 * torch.eye(6), x[1], upper=True),
    "repeats with a known sum": lambda x: x.repeat_interleave(torch.arange(3), 0, output_size=3),
    "pdist": lambda x: F.pdist(x[0]),
    "scatter, added": lambda x: x.scatter(1, torch.tensor([[[0], [0]]]), x[:1, :2, :1], reduce="add"),
    "scatter, multiplied": lambda x: x.scatter(1, torch.tensor([[[0], [0]]]), 3.0, reduce="multiply"),
    "indices of a triangle": lambda x: x[:, torch.tril_indices(6, 8)[0], torch.tril_indices(6, 8)[1]],
    "bits of a number": lambda x: torch.bitwise_or(4, x.long()) + torch.bitwise_left_shift(1, x.long().abs()),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_operators(name: str) -> None:
    agree(of(FUNCTIONS[name]), torch.randn(3, 6, 8), axes=(3, 6, 8), atol=1e-5)
