"""`lucid.from_torch`: eagerly and exported, torch's modules compute what torch does, at sizes that it did not see."""

from __future__ import annotations

import copy
import io
import math
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch import nn
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.nn import functional as F

import lucid
from lucid.importing import TorchImportError, register
from lucid.importing.table import TABLE

AXES = ("N", "L")


class Function(nn.Module):
    """A function of tensors as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def randomize(module: nn.Module, seed: int = 0) -> nn.Module:
    """In evaluation mode, with weights that are not all alike."""
    torch.manual_seed(seed)
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.3)
    return module.eval()


def drawn(like: torch.Tensor, sizes: dict[int, int]) -> torch.Tensor:
    """Another tensor with other sizes of the first two axes."""
    shape = [sizes.get(axis, size) for axis, size in enumerate(like.shape)]
    if like.dtype == torch.bool:
        return torch.rand(shape) > 0.5
    if like.is_floating_point():
        return torch.randn(shape).to(like.dtype)
    return torch.randint(0, max(2, int(like.max()) + 1), shape)


def agree(
    module: nn.Module, *examples: torch.Tensor, axes: Any = AXES, atol: float = 2e-6, **kwargs: Any
) -> lucid.nn.Module:
    """The imported module, compared with torch eagerly and in onnxruntime at sizes 1 and others."""
    imported = lucid.from_torch(module, *examples, kwargs=kwargs, dynamic=[axes] * (len(examples) + len(kwargs)))
    session = lucid.runtime.Session(lucid.export.to_onnx(imported))
    dynamic = [axis for axis, name in enumerate(axes) if isinstance(name, str)]
    for sizes in ((2, 5), (1, 1), (3, 8)):
        chosen = {axis: sizes[place] for place, axis in enumerate(dynamic)}
        inputs = [drawn(example, chosen) for example in (*examples, *kwargs.values())]
        with torch.no_grad():
            expected = module(*inputs[: len(examples)], **dict(zip(kwargs, inputs[len(examples) :], strict=True)))
        arrays = [tensor.numpy() for tensor in inputs]
        eager = imported(*map(lucid.tensor, arrays))
        exported = list(session.run(dict(zip(session.inputs, arrays, strict=True))).values())
        for own, ran, theirs in zip(_flat(eager), exported, _flat(expected), strict=True):
            theirs = theirs.numpy()
            for result in (own.numpy(), ran):
                assert result.shape == theirs.shape
                assert result.dtype == theirs.dtype
                scale = max(1.0, float(np.abs(theirs).max(initial=0)))
                np.testing.assert_allclose(result, theirs, rtol=1e-5, atol=atol * scale, equal_nan=True)
    return imported


def _flat(result: Any) -> list[Any]:
    if isinstance(result, dict):
        result = tuple(result.values())
    if isinstance(result, (tuple, list)):
        return [leaf for item in result for leaf in _flat(item)]
    return [] if result is None else [result]


X = torch.randn(3, 6, 8)
IDS = torch.randint(0, 20, (3, 6))

MODULES = {
    "linear": (nn.Linear(8, 5), X, AXES),
    "layer norm": (nn.LayerNorm(8), X, AXES),
    "rms norm": (nn.RMSNorm(8), X, AXES),
    "group norm": (nn.GroupNorm(2, 8), torch.randn(3, 8, 10), ("N", 8, "L")),
    "batch norm": (nn.BatchNorm1d(8), torch.randn(3, 8, 10), ("N", 8, "L")),
    "instance norm": (nn.InstanceNorm1d(8, affine=True), torch.randn(3, 8, 10), ("N", 8, 10)),
    "embedding": (nn.Embedding(20, 8), IDS, AXES),
    "conv1d": (nn.Conv1d(8, 4, 3, padding=1), torch.randn(3, 8, 10), ("N", 8, "L")),
    "conv1d same": (nn.Conv1d(8, 4, 3, padding="same"), torch.randn(3, 8, 10), ("N", 8, "L")),
    "conv2d": (nn.Conv2d(3, 4, 3, stride=2, padding=1, bias=False), torch.randn(2, 3, 12, 12), ("N",)),
    "conv transpose": (nn.ConvTranspose1d(8, 4, 4, stride=2, padding=1), torch.randn(3, 8, 10), ("N", 8, "L")),
    "max pool": (nn.MaxPool2d(2), torch.randn(2, 3, 12, 12), ("N",)),
    "average pool": (nn.AvgPool2d(3, 2, 1), torch.randn(2, 3, 12, 12), ("N",)),
    "adaptive pool": (nn.AdaptiveAvgPool2d(1), torch.randn(2, 3, 12, 12), ("N",)),
    "upsample": (nn.Upsample(scale_factor=2, mode="bilinear"), torch.randn(2, 3, 4, 4), ("N",)),
    "pixel shuffle": (nn.PixelShuffle(2), torch.randn(2, 8, 4, 4), ("N",)),
    "attention": (nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), X, AXES),
    "dropout": (nn.Dropout(0.5), X, AXES),
    "activations": (
        nn.Sequential(nn.GELU(), nn.SiLU(), nn.ELU(), nn.LeakyReLU(), nn.Hardswish(), nn.Softplus()),
        X,
        AXES,
    ),
    "prelu": (nn.PReLU(6), torch.randn(3, 6, 8), ("N", 6, "L")),
    "lstm": (nn.LSTM(8, 4, batch_first=True), X, AXES),
    "lstm with projections": (nn.LSTM(8, 4, 2, proj_size=3), X, ("L", "N")),
    "gru": (nn.GRU(8, 4, 2, bidirectional=True, batch_first=True), X, AXES),
    "rnn": (nn.RNN(8, 4, nonlinearity="relu", bias=False), X, ("L", "N")),
    "weight norm": (nn.utils.parametrizations.weight_norm(nn.Linear(8, 5)), X, AXES),
}


@pytest.mark.parametrize("name", MODULES)
def test_layers(name: str) -> None:
    module, example, axes = MODULES[name]
    agree(randomize(module), example, axes=axes)


class Twice(nn.Module):
    """Two steps of a recurrent cell."""

    def __init__(self, cell: nn.Module) -> None:
        super().__init__()
        self.cell = cell

    def forward(self, x):
        return self.cell(x[:, 1], self.cell(x[:, 0]))


@pytest.mark.parametrize("cell", [nn.LSTMCell(8, 4), nn.GRUCell(8, 4, bias=False), nn.RNNCell(8, 4)])
def test_recurrent_cells(cell: nn.Module) -> None:
    agree(randomize(Twice(cell)), X, axes=("N",))


@pytest.mark.filterwarnings("error")
def test_no_warning_of_torch_about_its_own_code_is_shown() -> None:
    lucid.from_torch(nn.LSTM(8, 4, 2).eval(), X)


def test_instance_norm_with_running_statistics() -> None:
    module = nn.InstanceNorm1d(8, affine=True, track_running_stats=True)
    module(torch.randn(5, 8, 10) * 3 + 1)
    agree(randomize(module), torch.randn(3, 8, 10), axes=("N", 8, 10))


class Difference(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a - 2 * b


def test_one_tensor_as_two_examples_is_two_inputs() -> None:
    """torch.export takes them as one."""
    x = torch.ones(2, 4)
    imported = lucid.from_torch(Difference().eval(), x, x, dynamic=[("N", "L")] * 2)
    np.testing.assert_array_equal(imported(lucid.ones(3, 5), lucid.zeros(3, 5)).numpy(), np.ones((3, 5)))


def test_a_program_of_torch_that_computes_something_else_is_no_module(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of ColPali and PaliGemma; also where all numbers of the examples are one."""
    export = torch.export.export
    monkeypatch.setattr(
        torch.export, "export", lambda module, *examples, **options: export(nn.Tanh(), *examples, **options)
    )
    with pytest.raises(TorchImportError, match="makes of Sigmoid computes something else: its outputs differ by .* of"):
        lucid.from_torch(nn.Sigmoid().eval(), torch.zeros(2, 4))


def test_a_program_of_torch_that_loses_an_output_is_no_module(monkeypatch: pytest.MonkeyPatch) -> None:
    export, one = torch.export.export, Function(lambda x: (x,))
    monkeypatch.setattr(torch.export, "export", lambda module, *examples, **options: export(one, *examples, **options))
    with pytest.raises(TorchImportError, match="something else: it has 1 outputs instead of 2"):
        lucid.from_torch(Function(lambda x: (x, 2 * x)).eval(), X)


def test_a_program_that_checks_values_is_compared_for_the_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    def checked(x: torch.Tensor) -> torch.Tensor:
        torch.ops.aten._assert_async.msg((x == 0).all(), "expected zeros")
        return x.tanh()

    export, program = torch.export.export, Function(checked)
    monkeypatch.setattr(
        torch.export, "export", lambda module, *examples, **options: export(program, *examples, **options)
    )
    assert lucid.from_torch(Function(torch.tanh).eval(), torch.zeros(2, 4))(lucid.ones(2, 4)).shape == (2, 4)


FUNCTIONS: dict[str, Callable[[torch.Tensor], Any]] = {
    "sizes": lambda x: x.reshape(x.shape[0] * x.shape[1], -1) + x.shape[1] // 2,
    "arange": lambda x: x + torch.arange(x.shape[1]).unsqueeze(1),
    "a tensor of a size": lambda x: x * torch.tensor(min(x.shape[1], 4)),
    "slices": lambda x: (x[:, : x.shape[1] // 2 + 1], x[..., 2:6:2], x[:, -1], x[1:]),
    "index": lambda x: x[:, torch.arange(x.shape[1]).flip(0)],
    "index of two axes": lambda x: x[torch.arange(x.shape[0]), :, torch.tensor([1])],
    "gather": lambda x: x.gather(2, x.argsort(-1)),
    "scatter": lambda x: torch.zeros_like(x).scatter(2, x.argsort(-1), x),
    "index put": lambda x: x.index_put(
        (torch.arange(x.shape[0]), torch.zeros(x.shape[0], dtype=torch.long)), torch.ones(8)
    ),
    "in place": lambda x: x.clone().mul_(2).add_(1),
    "assigned slice": lambda x: _assigned(x),
    "masked fill": lambda x: x.masked_fill(x > 0, -1.0),
    "where": lambda x: torch.where(x > 0, x, 0.0),
    "cumsum": lambda x: x.cumsum(1),
    "topk": lambda x: x.topk(3, -1),
    "sort": lambda x: (*x.sort(-1, descending=True), *torch.sort(x, stable=True, dim=1)),
    "var": lambda x: (x.var(-1), x.std(-1, keepdim=True), torch.var_mean(x, -1, correction=0)[0]),
    "reductions": lambda x: (x.sum(-1), x.mean((1, 2)), x.amax(1), x.prod(-1), (x > 0).any(-1), (x > 0).all(1)),
    "extremes": lambda x: (x.max(-1).values, x.min(1).indices, x.argmax(-1), x.max()),
    "logsumexp": lambda x: (x.logsumexp(-1), (1000 * x).logsumexp(1)),
    "norm": lambda x: (x.norm(dim=-1), torch.linalg.norm(x, dim=-1), F.normalize(x, dim=-1)),
    "small numbers": lambda x: (torch.expm1(x * 1e-4), torch.log1p(x.abs() * 1e-4)),
    "quotients": lambda x: (x // 0.7, x % 0.7, torch.div(x, 0.3, rounding_mode="trunc"), 1 / (x + 5)),
    "powers": lambda x: (x**2, 2**x, x.abs() ** 0.5, x.abs().rsqrt(), x.square()),
    "remainders": lambda x: (torch.fmod(x, 0.7), torch.fmod(x, x.flip(-1)), (10 * x).long().fmod(3)),
    "no NaN": lambda x: torch.nan_to_num(torch.where(x > 1, float("nan"), x / (x > 0)), posinf=9.0),
    "other activations": lambda x: (F.selu(x), F.celu(x, 0.5), F.threshold(x, 0.2, -1.0), x.tan() * 1e-2),
    "written by torch": lambda x: (
        torch.diff(x, dim=1),
        torch.hstack([x, x]),
        x.nansum(-1),
        x.nanmean(1),
        torch.logaddexp(x, x + 1),
        torch.count_nonzero(x, 1),
        F.local_response_norm(x, 2),
        torch.sinc(x),
    ),
    "running": (lambda x: (*torch.cummax(x, 1), x.cummin(0).values, x.cumprod(1))),
    "medians": lambda x: (*x.median(-1), x.median(), x.kthvalue(3, -1).values),
    "hyperbolic": lambda x: (x.sinh(), x.cosh(), x.asinh(), (x.abs() + 1).acosh(), (x / 10).atanh()),
    "angles": lambda x: (
        (x / 9).asin(),
        (x / 9).acos(),
        x.atan(),
        torch.atan2(x, x.flip(-1)),
        torch.hypot(x, x.flip(1)),
    ),
    "signs": lambda x: (x.signbit(), torch.copysign(x, x.flip(-1)), x.angle(), x.round(decimals=1)),
    "places of maxima": lambda x: (
        *F.max_pool1d(x, 3, 2, 1, return_indices=True),
        *F.max_pool1d(x, 2, 1, dilation=2, return_indices=True),
        *F.adaptive_max_pool2d(x[:, None], (2, 3), return_indices=True),
    ),
    "combined at indices": lambda x: (
        x.scatter_reduce(2, x.long() % 3, x, "amax"),
        x.scatter_reduce(2, x.long() % 3, x, "mean", include_self=False),
    ),
    "bags of rows": lambda x: (
        F.embedding_bag(torch.tensor([1, 2, 0, 1]), torch.eye(9), torch.tensor([0, 3, 3]), mode="max"),
        F.embedding_bag(x.argmax(2).flatten(), torch.eye(9), torch.tensor([0])),
    ),
    "a norm by the batch": lambda x: (
        F.batch_norm(x, None, None, training=True),
        F.bilinear(x, x, torch.ones(2, 8, 8)),
    ),
    "shifts": lambda x: ((10 * x).long() << 2, (10 * x).int() >> 1, (1 + x.abs()).long() << x.abs().long()),
    "a number of a tensor": lambda x: x * x.sum().item(),
    "sign of NaN": lambda x: torch.sign(torch.where(x > 0, x, torch.nan)),
    "buckets": lambda x: torch.bucketize(x, torch.linspace(-1, 1, 5)),
    "pooled, the last window too": lambda x: (
        F.max_pool1d(x, 3, 2, ceil_mode=True),
        F.avg_pool1d(x, 3, 2, ceil_mode=True),
        F.avg_pool1d(x, 3, 2, 1, ceil_mode=True),
        F.avg_pool2d(x[:, None], 2, divisor_override=3, ceil_mode=True),
    ),
    "variance and mean": lambda x: torch.var_mean(x, 1),
    "truth": lambda x: (x > 0) & (x < 1) | ~(x == x) ^ (x > 2),
    "types": lambda x: (x.half().float(), x.long(), x.to(torch.float64).to(x), x > 0),
    "einsum": lambda x: torch.einsum("nld,nmd->nlm", x, x),
    "products": lambda x: (
        x @ x.mT,
        torch.bmm(x, x.transpose(1, 2)),
        torch.addmm(torch.ones(3), x[0], torch.ones(8, 3)),
    ),
    "joined": lambda x: (torch.cat([x, x], 1), torch.stack([x, x], -1), x.repeat(1, 2, 1), x.repeat_interleave(2, 1)),
    "split": lambda x: (*x.chunk(2, -1), *x.split([3, 5], -1), *x.unbind(-1)[:2]),
    "rearranged": lambda x: (
        x.flip(1),
        x.roll(1, 1),
        x.permute(2, 0, 1),
        x.movedim(0, 1),
        x.flatten(1),
        x.unflatten(2, (2, 4)),
    ),
    "windows": lambda x: x.unfold(2, 3, 2),
    "diagonal": lambda x: x.transpose(0, 1).diagonal(0, 1, 2),
    "triangles": lambda x: (x.tril(), x.triu(1), torch.ones(x.shape[1], x.shape[1]).tril()),
    "padding": lambda x: (F.pad(x, (1, 2)), F.pad(x, (1, 1), mode="reflect"), F.pad(x, (0, 0, 1, 0), value=3.0)),
    "softmax": lambda x: (x.softmax(-1), x.log_softmax(1), x.softmax(-1, dtype=torch.float64)),
    "clamped": lambda x: (x.clamp(-0.5, 0.5), x.clamp(min=0), F.hardtanh(x), F.relu6(x), x.clamp_max(0.3)),
    "rounded": lambda x: (x.round(), x.floor(), x.ceil(), x.trunc(), x.sign(), F.silu(x)),
    "one hot": lambda x: F.one_hot(x.argmax(-1), 8),
    "bincount": lambda x: torch.histc(x.argmax(-1).float(), bins=8, min=0, max=7),
    "interpolated": lambda x: F.interpolate(x, scale_factor=2.0, mode="linear"),
    "complex numbers": lambda x: torch.view_as_real(
        torch.view_as_complex(x.unflatten(-1, (4, 2))) * torch.polar(x[..., :4], x[..., 4:])[:, :1] / (2 + 1j)
    ).flatten(-2),
    "complex numbers of integers": lambda x: torch.view_as_real(x.long().cfloat()),
    "a complex constant": lambda x: torch.view_as_real(x * torch.tensor(0.5 + 2j)),
    "Fourier transforms": lambda x: (torch.fft.fftn(x, dim=(1, 2)).real, torch.fft.fft(x, norm="ortho").imag),
    "Fourier transforms back": lambda x: (torch.fft.irfft2(torch.fft.rfft2(x) * 2), torch.fft.ifft(x).real),
    "Fourier transforms of lengths": lambda x: (torch.fft.rfft(x, dim=1).abs().sum(1), torch.fft.hfft(x, n=6)),
    "strided": lambda x: x.as_strided((x.shape[0], 3, 2), (x.shape[1] * 8, 2, 1), 1),
    "smoothed": lambda x: (
        F.interpolate(x[:, None], (3, 5), mode="bilinear", antialias=True),
        F.interpolate(x[:, None], (3, 11), mode="bicubic", antialias=True, align_corners=True),
        F.interpolate(x.unflatten(2, (2, 4)), scale_factor=0.6, mode="bicubic", antialias=True),
    ),
    "inverses": lambda x: (
        torch.linalg.inv(x[..., :1, None] + 5),
        torch.linalg.inv(x[..., :4].unflatten(2, (2, 2)) + 3 * torch.eye(2)),
        torch.inverse(x[:, :1, None, :3].expand(x.shape[0], 1, 3, 3) + 5 * torch.eye(3)),
    ),
    "norms": lambda x: (F.normalize(x, dim=-1), x.norm(p=3, dim=(1, 2)), torch.linalg.vector_norm(x, dim=1)),
    "one pixel made larger": lambda x: F.interpolate(x[:, :, :1, None], size=(5, 3), mode="bilinear"),
    "modes": lambda x: (*(2 * x).round().mode(-1), *x.long().mode(1, True)),
    "strided copies": lambda x: (
        torch.as_strided_copy(x, (x.shape[0], 3, 2), (x.shape[1] * 8, 2, 1), 1),
        torch.as_strided_scatter(x, 2 * x[:, 0, :6].reshape(-1, 3, 2), (x.shape[0], 3, 2), (x.shape[1] * 8, 2, 1), 1),
    ),
    "unit matrices": lambda x: torch.eye(x.shape[1]) + torch.eye(x.shape[1], 8)[:, :1],
    "the end of a table": lambda x: x + torch.arange(160.0).reshape(20, 8)[max(20 - x.shape[1], 0) :],
    "every third column": lambda x: _interleaved(x),
    "chunks, one in the example": lambda x: _chunks(x),
    "dict": lambda x: {"double": 2 * x, "none": None, "sum": x.sum(-1)},
    "constants": lambda x: (torch.full((2, 3), 7), torch.eye(3), torch.linspace(0, 1, 5), x.new_ones(2), x),
    "sdpa causal": lambda x: F.scaled_dot_product_attention(x[:, None], x[:, None], x[:, None], is_causal=True),
}


def _interleaved(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y[..., 1:7:3] = x[..., :2]
    return y


def _chunks(x: torch.Tensor) -> torch.Tensor:
    """Sums of seven rows, each added to all that come later, as of chunked state-space models."""
    sums = F.pad(x, (0, 0, 0, -x.shape[1] % 7)).unflatten(1, (-1, 7)).sum(2)
    count = sums.shape[1]
    earlier = sums[:, None].expand(x.shape[0], count, count, 8)
    return (earlier * torch.ones(count, count).tril()[..., None]).sum(2)


def _assigned(x: torch.Tensor) -> torch.Tensor:
    y = torch.zeros_like(x)
    y[:, :, 1:4] = x[:, :, :3]
    y[..., 7] = 5
    return y


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str) -> None:
    agree(Function(FUNCTIONS[name]).eval(), torch.randn(3, 6, 8))


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda x: self.layer(x), lambda x: x * 2, (x,))


class Steps(Branches):
    def forward(self, x):
        def step(carry, element):
            carry = torch.tanh(self.layer(carry) + element)
            return carry, carry * 2

        return scan(step, torch.zeros(x.shape[0], 8), x, dim=1)


@pytest.mark.parametrize("module", [Branches(), Steps()])
def test_operators_with_bodies(module: nn.Module) -> None:
    agree(randomize(module), X)


def test_a_loop_of_unknown_length_runs_eagerly_and_is_named_in_a_graph() -> None:
    module = Function(lambda x: while_loop(lambda x: x.abs().sum() < 1000, lambda x: (x * 2,), (x,))[0]).eval()
    imported = lucid.from_torch(module, X)
    np.testing.assert_allclose(imported(lucid.tensor(X.numpy())).numpy(), module(X).numpy(), rtol=1e-6)
    with pytest.raises(NotImplementedError, match="while_loop: how many steps"):
        lucid.export.to_onnx(imported)


class Experts(nn.Module):
    """Rows in the order of their experts, as JetMoE's code multiplies them."""

    def __init__(self, order: tuple[int, ...] = (0, 1, 2)) -> None:
        super().__init__()
        self.order = order
        self.weight = nn.Parameter(torch.randn(3, 4, 8))

    def forward(self, x):
        rows = x.flatten(0, 1)
        expert, places = rows.argmax(-1).remainder(3).sort(stable=True)
        counts = F.one_hot(expert, 3).sum(0)
        parts = rows[places].split(counts.tolist())
        outputs = torch.cat([F.linear(part, self.weight[i]) for part, i in zip(parts, self.order, strict=True)])
        return torch.zeros_like(outputs).index_add(0, places, outputs).unflatten(0, x.shape[:2])


def test_rows_of_experts_are_multiplied_in_groups() -> None:
    agree(randomize(Experts()), X)
    with pytest.raises(NotImplementedError, match="lengths are values of a tensor"):
        lucid.export.to_onnx(lucid.from_torch(randomize(Experts((0, 2, 1))), X, dynamic=[AXES]))


# Weights --------------------------------------------------------------------------------------------------------------


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, 8)
        self.blocks = nn.ModuleList([nn.Linear(8, 8), nn.Linear(8, 8)])
        self.head = nn.Linear(8, 20, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("shift", torch.arange(8.0))
        self.register_buffer("hidden", torch.ones(8), persistent=False)

    def forward(self, ids):
        x = self.embed(ids) + self.shift * self.hidden
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def test_weights_have_torch_keys_and_memory() -> None:
    module = randomize(Tied())
    imported = agree(module, IDS)
    assert set(imported.state_dict()) == set(module.state_dict())
    for key, tensor in imported.state_dict().items():
        assert np.shares_memory(tensor.numpy(), module.state_dict()[key].numpy()), key
    names = {weight.name for weight in lucid.export.to_onnx(imported).graph.initializer}
    assert {"embed.weight", "blocks.0.weight.T", "blocks.1.bias"} <= names
    assert str(imported).startswith("Tied(\n  (embed): Embedding()")


class Turned(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        angles = torch.arange(8.0)[:, None] * torch.tensor([1.0, 0.1, 0.01, 0.001])
        self.register_buffer("waves", torch.polar(torch.ones(8, 4), angles))

    def forward(self, x):
        pairs = torch.view_as_complex(x.unflatten(-1, (4, 2)))
        return torch.view_as_real(pairs * self.waves[: x.shape[1]]).flatten(-2)


def test_a_complex_buffer_is_a_constant() -> None:
    assert agree(Turned().eval(), X).state_dict() == {}


def test_nodes_have_the_paths_of_modules() -> None:
    graph = lucid.trace(lucid.from_torch(randomize(Tied()), IDS, dynamic=[AXES]))
    assert {node.scope for node in graph.nodes()} >= {"embed", "blocks.0", "blocks.1", "head"}


def test_quantized_weights_and_half_precision() -> None:
    imported = lucid.from_torch(randomize(Tied()), IDS, dynamic=[AXES])
    small: Any = lucid.quantize(imported, bits=8, smallest_table=1)
    assert type(vars(small.blocks)["0"].weight).__name__ == "QuantizedWeight"
    lucid.testing.assert_parity(small, providers=["CPUExecutionProvider"])
    lucid.testing.assert_parity(imported, dtype="float16", providers=["CPUExecutionProvider"])


def test_bfloat16_weights_share_memory() -> None:
    module = randomize(nn.Linear(8, 5)).bfloat16()
    imported: Any = lucid.from_torch(module, torch.randn(2, 8).bfloat16(), dynamic=[("N",)])
    assert str(imported.weight.dtype) == "bfloat16"
    assert np.shares_memory(imported.weight.numpy(), module.weight.detach().view(torch.int16).numpy())


# Inputs ---------------------------------------------------------------------------------------------------------------


class Two(nn.Module):
    def forward(self, query, memory, *, mask=None, scale=2.0):
        total = query @ memory.mT
        return total * scale if mask is None else total.masked_fill(mask, 0.0) * scale


def test_inputs_have_names_and_their_order() -> None:
    module = Two().eval()
    imported = lucid.from_torch(
        module, torch.randn(2, 3, 8), torch.randn(2, 5, 8), dynamic=[("N", "L", 8), ("N", "S", 8)]
    )
    assert {name: str(kind) for name, kind in imported.input_specs().items()} == {
        "query": "float32[N, L, 8]",
        "memory": "float32[N, S, 8]",
    }
    assert list(lucid.runtime.Session(lucid.export.to_onnx(imported)).inputs) == ["query", "memory"]


class Row(nn.Module):
    def forward(self, x, place):
        return x[:, place]


def test_an_index_may_be_an_input() -> None:
    imported = lucid.from_torch(Row().eval(), torch.randn(2, 3), torch.tensor(1), dynamic=[("N",), ()])
    session = lucid.runtime.Session(lucid.export.to_onnx(imported))
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    for place in (2, -1):
        assert session.run({"x": x, "place": np.array(place)})["output"].tolist() == [2, 5, 8, 11]


def test_inputs_by_name_and_plain_values() -> None:
    kwargs = {"mask": torch.zeros(2, 3, 5, dtype=torch.bool), "scale": 3.0}
    imported = lucid.from_torch(
        Two().eval(),
        torch.randn(2, 3, 8),
        torch.randn(2, 5, 8),
        kwargs=kwargs,
        dynamic={"query": ("N", "L"), "memory": ("N", "S"), "mask": ("N", "L", "S")},
    )
    assert list(imported.input_specs()) == ["query", "memory", "mask"]
    lucid.testing.assert_parity(imported)


class Sums(nn.Module):
    def forward(self, x, *rest, **named):
        return x + 2 * sum(rest) - named["y"]


def test_any_number_of_inputs() -> None:
    rows = [torch.randn(2, 3) for _ in range(4)]
    for dynamic in (None, [("N",)] * 4, {"x": ("N",), "rest_0": ("N",), "rest_1": ("N",), "y": ("N",)}):
        imported = lucid.from_torch(Sums().eval(), *rows[:3], kwargs={"y": rows[3]}, dynamic=dynamic)
        assert list(imported.input_specs()) == ["x", "rest_0", "rest_1", "y"]
        assert str(imported.input_specs()["rest_1"]).startswith("float32[N, ")
        assert imported(*[lucid.ones(5, 3)] * 3, y=lucid.ones(5, 3)).tolist() == [[4.0] * 3] * 5
    with pytest.raises(TorchImportError, match=r"axis 0 of rest_0 is named 'N', but the module works with size 2 only"):
        lucid.from_torch(Wrapped(lambda *rest: rest[0] + torch.ones(2, 3)).eval(), rows[0], dynamic=[("N",)])


class Wrapped(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *rest):
        return self.function(*rest)


def test_a_compiled_module_is_the_module_that_was_compiled() -> None:
    module = randomize(nn.Linear(8, 4))
    imported = lucid.from_torch(torch.compile(module), torch.randn(2, 8), dynamic=[("N",)])
    assert list(imported.state_dict()) == ["weight", "bias"] and list(imported.input_specs()) == ["input"]


def test_axes_are_found_without_names() -> None:
    imported = lucid.from_torch(randomize(nn.Linear(8, 4)), torch.randn(2, 5, 8))
    assert str(imported.input_specs()["input"]) == "float32[N, L, 8]"


@pytest.mark.parametrize("dynamic", [[AXES], None])
def test_examples_of_one_row_are_no_constant(dynamic) -> None:
    imported = lucid.from_torch(randomize(nn.Linear(8, 4)), torch.randn(1, 1, 8), dynamic=dynamic)
    assert str(imported.input_specs()["input"]) == "float32[N, L, 8]"


@pytest.mark.parametrize("table", [torch.ones(2, 1), torch.ones(3, 1)])  # of as many rows as a doubled axis, and others
def test_axes_of_size_one_that_the_module_needs_are_constant(table) -> None:
    imported = lucid.from_torch(Function(lambda x: x.expand(-1, len(table), -1) + table).eval(), torch.ones(1, 1, 8))
    assert str(imported.input_specs()["x"]) == "float32[N, 1, x_2]"


def test_an_input_of_a_size_that_torch_fixed_is_an_error() -> None:
    imported = lucid.from_torch(Frozen().eval(), torch.randn(2, 8))
    message = r"input x has shape \[{}, 8\], expected \[2, 8\]: torch exported the module for these sizes"
    with pytest.raises(ValueError, match=message.format(1)):
        imported(lucid.ones(1, 8))
    with pytest.raises(ValueError, match=message.format("N")):
        lucid.export.to_onnx(imported, ("N", 8))


class Nested(nn.Module):
    def forward(self, x, cache):
        (key, value), extra = cache["pair"], cache["extra"]
        return {"sum": x + key * value, "cache": {"pair": [key + 1, value], "extra": extra * 2}}


def test_nested_inputs_and_outputs() -> None:
    cache = {"pair": [torch.randn(3, 6), torch.randn(3, 6)], "extra": torch.randn(3, 6)}
    axes = {"pair": [AXES, AXES], "extra": AXES}
    imported = lucid.from_torch(Nested().eval(), torch.randn(3, 6), cache, dynamic=[AXES, axes])
    result = imported(lucid.ones(2, 4), {"pair": [lucid.ones(2, 4), lucid.ones(2, 4)], "extra": lucid.ones(2, 4)})
    assert result["sum"].numpy().max() == 2
    assert result["cache"]["pair"][0].numpy().max() == 2


def test_programs_and_files(tmp_path) -> None:
    module, x = randomize(nn.Linear(8, 4)), torch.randn(2, 8)
    program = torch.export.export(module, (x,), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},))
    torch.export.save(program, tmp_path / "linear.pt2")
    expected = module(x).detach().numpy()
    for source in (program, tmp_path / "linear.pt2"):
        imported = lucid.from_torch(source, dynamic=[("rows",)])
        np.testing.assert_allclose(imported(lucid.tensor(x.numpy())).numpy(), expected, atol=1e-6)
        assert str(imported.input_specs()["input"]) == "float32[rows, 8]"


# Patterns -------------------------------------------------------------------------------------------------------------


def rotate_half(x):
    return torch.cat((-x[..., x.shape[-1] // 2 :], x[..., : x.shape[-1] // 2]), -1)


class Norm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(16))

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


class Block(nn.Module):
    """Attention as model code writes it: RMS norm, rotary positions, repeated heads, a mask from positions."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.q, self.k, self.v = Norm(), nn.Linear(16, 16), nn.Linear(16, 8), nn.Linear(16, 8)
        self.o = nn.Linear(16, 16)
        self.register_buffer("frequencies", 100.0 ** -torch.arange(0, 1, 0.5), persistent=False)

    def forward(self, x, attention_mask):
        n, length, _ = x.shape
        hidden = self.norm(x)
        q = self.q(hidden).view(n, length, -1, 4).transpose(1, 2)
        k, v = (layer(hidden).view(n, length, -1, 4).transpose(1, 2) for layer in (self.k, self.v))
        positions = torch.arange(length)
        angles = positions[None, :, None].float() * self.frequencies
        angles = torch.cat((angles, angles), -1)
        cos, sin = angles.cos().unsqueeze(1), angles.sin().unsqueeze(1)
        q, k = (x * cos + rotate_half(x) * sin for x in (q, k))
        k, v = (x[:, :, None].expand(n, 2, 2, length, 4).reshape(n, 4, length, 4) for x in (k, v))
        causal = positions[None, None, None, :] <= positions[None, None, :, None]
        mask = causal & attention_mask[:, None, None, :].bool()
        y = F.scaled_dot_product_attention(q, k, v, mask)
        return self.o(y.transpose(1, 2).reshape(n, length, -1))


def test_a_norm_is_three_operations() -> None:
    imported = lucid.from_torch(Function(lambda x: x.norm(dim=-1)).eval(), torch.randn(3, 6, 8), dynamic=[AXES])
    nodes = lucid.export.to_onnx(imported).graph.node
    assert [node.op_type for node in nodes] == ["Mul", "ReduceSum", "Sqrt"]


def test_patterns_become_larger_operations() -> None:
    mask = torch.ones(3, 6, dtype=torch.long)
    imported = lucid.from_torch(randomize(Block()), torch.randn(3, 6, 16), mask, dynamic=[AXES, AXES])
    nodes = {node.op.name: node for node in lucid.trace(imported).nodes()}
    assert {"attention", "rotary_embedding", "rms_norm"} <= set(nodes)
    attention = nodes["attention"]
    assert (attention.attributes["heads"], attention.attributes["kv_heads"], attention.attributes["is_causal"]) == (
        4,
        2,
        True,
    )
    assert not {"pow", "less_equal", "expand"} & set(nodes)
    mask[0, 4:] = 0
    for x in (torch.randn(3, 6, 16), torch.randn(3, 6, 16) * 5):
        with torch.no_grad():
            expected = imported_from(x, mask)
        result = imported(lucid.tensor(x.numpy()), lucid.tensor(mask.numpy())).numpy()
        np.testing.assert_allclose(result, expected, atol=2e-5)
    lucid.testing.assert_parity(imported)


def imported_from(x: torch.Tensor, mask: torch.Tensor) -> np.ndarray:
    return randomize(Block())(x, mask).numpy()


class Written(nn.Module):
    """Attention as a softmax of products, with masks as models add them."""

    def __init__(self, mask: Callable[..., Any], split: str = "transpose") -> None:
        super().__init__()
        self.mask, self.split = mask, split
        self.bias = nn.Parameter(torch.randn(1, 4, 16, 16))
        self.register_buffer("triangle", torch.ones(1, 1, 16, 16, dtype=torch.bool).tril())

    def forward(self, x, attention_mask):
        n, length = x.shape[:2]
        heads = x.view(n, length, 4, 2)
        q = heads.permute(0, 2, 1, 3)
        keys = heads.permute(0, 2, 3, 1) if self.split == "permute" else q.transpose(-1, -2)
        weights = self.mask(self, q @ keys, attention_mask[:, None, None, :] > 0).softmax(-1)
        return (F.dropout(weights, 0.1, self.training) @ q).transpose(1, 2).reshape(n, length, 8)


LOW = torch.finfo(torch.float32).min
WRITTEN: dict[str, Callable[..., Any]] = {
    "scaled": lambda module, scores, keys: scores / 2**0.5,
    "keys added": lambda module, scores, keys: scores * 0.3 + torch.where(keys, 0.0, LOW),
    "keys and a bias": lambda module, scores, keys: (
        scores + (module.bias[:, :, : scores.shape[2], : scores.shape[2]] + torch.where(keys, 0.0, LOW))
    ),
    "keys filled": lambda module, scores, keys: scores.masked_fill(~keys, -torch.inf),
    "keys filled, expanded": lambda module, scores, keys: scores.masked_fill((~keys).expand_as(scores), LOW),
    "a triangle": lambda module, scores, keys: torch.where(
        module.triangle[:, :, : scores.shape[2], : scores.shape[2]], scores, torch.tensor(LOW)
    ),
}


@pytest.mark.parametrize("split", ["transpose", "permute"])
@pytest.mark.parametrize("name", WRITTEN)
def test_attention_that_is_written_out_becomes_one_operation(name: str, split: str) -> None:
    module = randomize(Written(WRITTEN[name], split))
    mask = torch.ones(3, 6, dtype=torch.long)
    imported = lucid.from_torch(module, X, mask, dynamic=[AXES, AXES])
    nodes = {node.op.name: node for node in lucid.trace(imported).nodes()}
    assert "attention" in nodes
    assert "softmax" not in nodes
    assert nodes["attention"].attributes["is_causal"] == (name == "a triangle")
    mask[0, 4:] = 0
    with torch.no_grad():
        expected = module(X, mask).numpy()
    np.testing.assert_allclose(imported(X.numpy(), mask.numpy()).numpy(), expected, rtol=1e-5, atol=2e-6)
    lucid.testing.assert_parity(imported)


ALMOST_WRITTEN: dict[str, Callable[..., Any]] = {
    "queries that see nothing": lambda module, scores, keys: torch.where(keys & keys.mT, scores, LOW),
    "scaled after the mask": lambda module, scores, keys: (scores + torch.where(keys, 0.0, LOW)) * 0.5,
    "a low number that is not the lowest": lambda module, scores, keys: torch.where(keys, scores, -3.0),
    "a triangle of later keys": lambda module, scores, keys: torch.where(
        module.triangle.mT[:, :, : scores.shape[2], : scores.shape[2]], scores, -5.0
    ),
}


@pytest.mark.parametrize("name", ALMOST_WRITTEN)
def test_what_only_resembles_attention_is_computed_as_it_is(name: str) -> None:
    module = randomize(Written(ALMOST_WRITTEN[name]))
    mask = torch.ones(3, 6, dtype=torch.long)
    imported = lucid.from_torch(module, X, mask, dynamic=[AXES, AXES])
    mask[0, 4:] = 0
    with torch.no_grad():
        expected = module(X, mask).numpy()
    np.testing.assert_allclose(imported(X.numpy(), mask.numpy()).numpy(), expected, rtol=1e-5, atol=2e-6)


class Window(nn.Module):
    def forward(self, q, k, v):
        rows = torch.arange(q.shape[2])
        mask = (rows[None, :] <= rows[:, None]) & (rows[:, None] - rows[None, :] < 3)
        return F.scaled_dot_product_attention(q, k, v, mask[None, None])


def test_other_masks_stay_masks() -> None:
    module, x = Window().eval(), torch.randn(2, 2, 6, 4)
    imported = lucid.from_torch(module, x, x, x, dynamic=[("N", 2, "L", 4)] * 3)
    x = torch.randn(3, 2, 9, 4)
    np.testing.assert_allclose(imported(*[lucid.tensor(x.numpy())] * 3).numpy(), module(x, x, x).numpy(), atol=2e-6)


def rows(length: int) -> torch.Tensor:
    return torch.arange(length)[None, None, :, None]


def columns(length: int) -> torch.Tensor:
    return torch.arange(length)[None, None, None, :]


def causal(x: torch.Tensor) -> torch.Tensor:
    return columns(x.shape[1]) <= rows(x.shape[1])


def attended(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(x[:, None], x[:, None], x[:, None], mask)


def normed(x: torch.Tensor, eps: Any = 1e-6, **options: Any) -> torch.Tensor:
    mean = x.pow(2).mean(-1, keepdim=True, **options)
    return x * torch.rsqrt(mean + eps if isinstance(eps, float) else torch.add(mean, 0.5, alpha=2))


def turned(x: torch.Tensor, length: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    x = x[:, None]
    angles = torch.arange(length)[None, :, None] * (10.0 ** -torch.arange(4))
    tables = torch.cat((angles, angles), -1)
    cos, sin = tables.cos().to(dtype)[:, None], tables.sin().to(dtype)[:, None]
    return x * cos + torch.cat((-x[..., 4:], x[..., :4]), -1) * sin


ALMOST_PATTERNS: dict[str, Callable[[torch.Tensor], Any]] = {
    "first key only": lambda x: attended(x, columns(x.shape[1]) <= rows(1)),
    "first key only, expanded": lambda x: attended(x, columns(x.shape[1]) <= rows(1).expand(1, 1, x.shape[1], 1)),
    "positions with alpha": lambda x: attended(x, columns(x.shape[1]) <= torch.add(rows(x.shape[1]) + -1, 1, alpha=3)),
    "keys as numbers": lambda x: attended(x, torch.logical_and(x[:, None, None, :, 0].relu(), causal(x))),
    "keys as integers": lambda x: attended(x, torch.logical_and(x[:, None, None, :, 0].long(), causal(x))),
    "a truth of numbers": lambda x: torch.logical_and(x, torch.ones_like(x, dtype=torch.bool)),
    "norm with a sum of alpha": lambda x: normed(x, None),
    "norm with a mean of float64": lambda x: normed(x, dtype=torch.float64),
    "norm with 1 + alpha * weight": lambda x: normed(x) * torch.add(torch.arange(8.0), 1, alpha=3),
    "rotation by one position": lambda x: turned(x, 1),
    "rotation by half precision": lambda x: turned(x, x.shape[1], torch.float16),
    "rotation of a row by many": lambda x: turned(x[:, :1], x.shape[1]),
    "log1p of infinity": lambda x: torch.isinf(torch.log1p(torch.where(x > 0, torch.inf, x.abs()))).float(),
}


@pytest.mark.parametrize("name", ALMOST_PATTERNS)
def test_what_only_resembles_a_pattern_is_computed_as_it_is(name: str) -> None:
    agree(Function(ALMOST_PATTERNS[name]).eval(), X)


def test_attention_with_dropout_is_refused() -> None:
    module = Function(lambda x: F.scaled_dot_product_attention(x, x, x, dropout_p=0.5)).eval()
    with pytest.raises(NotImplementedError, match=r"dropout of 0\.5, which is random"):
        lucid.from_torch(module, X)(lucid.tensor(X.numpy()))


# transformers ---------------------------------------------------------------------------------------------------------

SMALL = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "vocab_size": 100,
}
TYPES = {
    "BertModel": SMALL,
    "RoFormerModel": SMALL,
    "LlamaForCausalLM": SMALL | {"num_key_value_heads": 2},
    "GPTNeoXForCausalLM": SMALL,
    "FalconForCausalLM": SMALL,
    "PhiForCausalLM": SMALL,
    "OPTForCausalLM": {
        "hidden_size": 32,
        "word_embed_proj_dim": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "ffn_dim": 64,
        "vocab_size": 100,
    },
    "XLMModel": {"emb_dim": 32, "n_layers": 2, "n_heads": 4, "vocab_size": 100},
}


@pytest.mark.parametrize("name", TYPES)
def test_models_of_transformers(name: str) -> None:
    model_class = getattr(transformers, name)
    config = model_class.config_class(**TYPES[name], pad_token_id=0)
    config.use_cache = False
    torch.manual_seed(0)
    model = model_class(config).eval()
    ids, mask = torch.randint(1, 100, (2, 7)), torch.ones(2, 7, dtype=torch.long)
    axes = {"input_ids": AXES, "attention_mask": AXES}
    imported = lucid.from_torch(model, kwargs={"input_ids": ids, "attention_mask": mask}, dynamic=axes)
    session = lucid.runtime.Session(lucid.export.to_onnx(imported))
    for n, length in ((2, 7), (1, 1), (3, 11)):
        inputs = {
            "input_ids": torch.randint(1, 100, (n, length)),
            "attention_mask": torch.ones(n, length, dtype=torch.long),
        }
        inputs["attention_mask"][-1, (length + 1) // 2 :] = 0
        with torch.no_grad():
            expected = model(**inputs)[0].numpy()
        arrays = {name: tensor.numpy() for name, tensor in inputs.items()}
        kept = arrays["attention_mask"].astype(bool)  # of padding transformers promises nothing
        for result in (
            next(iter(imported(**{name: lucid.tensor(array) for name, array in arrays.items()}).values())).numpy(),
            next(iter(session.run(arrays).values())),
        ):
            np.testing.assert_allclose(result[kept], expected[kept], atol=2e-5 * np.abs(expected).max())


# Refusals -------------------------------------------------------------------------------------------------------------


def test_an_unknown_operator_is_named_with_its_line_and_can_be_registered() -> None:
    module = Function(lambda x: x.logcumsumexp(1)).eval()
    with pytest.raises(
        TorchImportError, match=r"no function for aten.logcumsumexp.default \(.*test_from_torch.py:\d+\).*register"
    ):
        lucid.from_torch(module, X, dynamic=[AXES])

    def logcumsumexp(x: lucid.Tensor, axis: int) -> lucid.Tensor:
        top = x.amax(axis, keepdims=True)
        return (x - top).exp().cumsum(axis).log() + top

    register("aten.logcumsumexp.default", logcumsumexp)
    agree(module, X)


@pytest.mark.parametrize("name", ["aten.logcumsumexp", "aten.logcumsumexp.defualt", "os.system", "no_such.op.default"])
def test_a_row_for_no_operator_of_torch_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=rf"register: torch has no operator '{name}'.* import the library"):
        register(name, lucid.ones_like)
    assert name not in TABLE


def test_axes_may_be_given_by_place_as_torch_takes_them() -> None:
    module = nn.Bilinear(8, 8, 4).eval()
    imported = lucid.from_torch(module, X, X, dynamic={"input1": {1: "L", 0: "N"}, "input2": {0: "N", 1: "L"}})
    assert [spec.shape for spec in imported.input_specs().values()] == [lucid.spec("N", "L", 8).shape] * 2


class Plain(nn.Linear):
    seen: dict[str, Any]

    def forward(self, x):
        self.seen |= vars(owner)
        return super().forward(x)


owner = Plain(8, 4).eval()


def test_a_module_is_not_changed_while_torch_exports_it() -> None:
    owner.seen = {}
    imported = lucid.from_torch(owner, torch.randn(2, 8), dynamic=[("N",)])
    assert "weight" in imported.state_dict() and "_parameters" in owner.seen and "forward" not in owner.seen


class Frozen(nn.Module):
    def forward(self, x):
        return x + torch.ones(2, 8)


@pytest.mark.parametrize(
    "module, examples, options, message",
    [
        (nn.Linear(8, 4), (X,), {}, "Linear is in training mode.*module.eval()"),
        (nn.Sequential(nn.Linear(8, 4), nn.Dropout()).eval().append(nn.Dropout()), (X,), {}, r"Sequential\.2 is in"),
        (nn.Linear(8, 4, device="meta").eval(), (X,), {}, "weight is on device meta, which holds no numbers: load"),
        (torch.jit.script(nn.Linear(8, 4)).eval(), (X,), {}, "TorchScript, expected the module of Python that it was"),
        (
            torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(8, 4))).eval(),
            (X,),
            {},
            "layers quantized by torch are not imported: import the module before and call lucid.quantize",
        ),
        (
            Function(lambda x: x * np.sqrt(x.shape[-1])).eval(),
            (X,),
            {},
            r"leaves torch .*math for sizes .*torch.py:\d+\)$",
        ),
        (Function(lambda x: x.add_(1)).eval(), (X,), {}, r"changes its input 'x'.*: work on a copy, x.clone\(\)"),
        (
            Frozen().eval(),
            (torch.randn(2, 8),),
            {"dynamic": [("N",)]},
            "axis 0 of x is named 'N', but the module works with size 2 only: give the number",
        ),
        (nn.Linear(8, 4).eval(), (X,), {"dynamic": [AXES, AXES]}, "expected axes for each of the inputs input"),
        (nn.Linear(8, 4).eval(), (X,), {"dynamic": [("N", "L", 8, "K")]}, r"expected up to 3 .* is \[3, 6, 8\]"),
        (nn.Linear(8, 4).eval(), (X,), {"dynamic": {"input": "N"}}, "the axes 'N', expected up to 3 in a tuple"),
        (nn.Linear(8, 4).eval(), (X,), {"dynamic": {"x": AXES}}, "names 'x', but the inputs are input"),
        (nn.Linear(8, 4).eval(), (X,), {"dynamic": [{-1: "N"}]}, r"the axes \{-1: 'N'\}, expected places from 0 on"),
        (nn.Linear(8, 4).eval(), (X,), {"dynamic": [{3: "N"}]}, r"expected up to 3 in a tuple, .* is \[3, 6, 8\]"),
        (
            nn.Linear(8, 4).eval(),
            (X,),
            {"dynamic": [{0: torch.export.Dim("N")}]},
            'gives input an axis .*, expected a name such as "N", a number or None',
        ),
        (nn.Linear(8, 4).eval(), (torch.ones(2, 5, 8),), {"dynamic": [("N", "N")]}, "named 'N' have sizes 2 and 5"),
        (
            Function(lambda x: x if x.sum() > 0 else -x).eval(),
            (X,),
            {},
            r"torch cannot export Function: a branch or a size depends .* torch.where.*from_torch.py:\d+\)$",
        ),
        (
            Function(lambda x: x[: int(x[0, 0, 0])]).eval(),
            (X,),
            {},
            r"a branch or a size depends .*from_torch.py:\d+\)$",
        ),
        (Function(lambda x: torch.tensor(x.numpy())).eval(), (X,), {}, r"leaves torch for NumPy.*from_torch.py:\d+\)$"),
        (
            Function(lambda x: (row for row in x)).eval(),
            (X,),
            {},
            "a class that torch does not take apart: use tensors",
        ),
        (Function(lambda x: x @ torch.ones(3, 3)).eval(), (X,), {}, r"reduction dim.* \(.*from_torch.py:\d+\)$"),
        (
            Function(lambda x: x.to(torch.float8_e4m3fn)).eval(),
            (X,),
            {},
            "torch.float8_e4m3fn is an element type that L",
        ),
        (Function(lambda x: x.real).eval(), (X.to(torch.complex64),), {}, "torch.complex64 is an element type that L"),
        (Function(lambda x: x + torch.rand(8)).eval(), (X,), {}, r"aten.rand.default \(.*\) draws random numbers"),
        (
            Function(lambda x: torch.view_as_complex(x.unflatten(-1, (4, 2))).cosh().real).eval(),
            (X,),
            {},
            "no function for aten.cosh.default of complex",
        ),
        (Function(lambda x: torch.fft.fft(x)).eval(), (X,), {}, "has complex outputs: return torch.view_as_real"),
        (
            Function(torch.unique).eval(),
            (X,),
            {},
            r"aten._unique2.default \(.*whose number depends on .*: keep one shape",
        ),
        (Function(torch.nonzero).eval(), (X,), {}, r"aten.nonzero.default \(.*whose number depends on the values"),
        (
            Function(torch.linalg.qr).eval(),
            (X,),
            {},
            r"aten.linalg_qr.default \(.*has no operator in ONNX: compute it be",
        ),
        (
            Function(lambda x: torch.linalg.solve(x @ x.mT, x)).eval(),
            (X,),
            {},
            r"aten.*linalg_solve\w*.default \(.*has no operator in ONNX",
        ),
    ],
)
def test_refusals(module, examples, options, message) -> None:
    with pytest.raises(TorchImportError, match=message):
        lucid.from_torch(module, *examples, **options)


def test_torch_prints_and_warns_of_nothing(recwarn: pytest.WarningsRecorder, capfd: pytest.CaptureFixture[str]) -> None:
    lucid.from_torch(randomize(nn.Linear(8, 4)), X, dynamic=[AXES])
    with pytest.raises(TorchImportError):
        lucid.from_torch(Function(lambda x: x[: int(x[0, 0, 0])]).eval(), X)
    assert capfd.readouterr() == ("", "") and not recwarn.list


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return x + self.calls


def test_a_module_that_changes_its_state_is_refused() -> None:
    module = Counter().eval()
    with pytest.raises(TorchImportError, match="changes 'calls' .*take it as an input"):
        lucid.from_torch(module, X)
    assert module.calls == 0


class Wide(nn.Module):
    def forward(self, pair, y):
        return pair[0] + pair[1].reshape(7, -1) + y["a"]


@pytest.mark.parametrize(
    ("pair", "y", "message"),  # torch has two messages
    [(("N", 7), "M", r"axis 0 of pair\.0 is named 'N'"), ((7, "M"), 7, r"axis 0 of pair\.1 is named 'M'")],
)
def test_an_axis_of_a_nested_input_that_has_one_size_is_named(pair, y, message) -> None:
    x = torch.randn(7, 3)
    axes: list[Any] = [[(name, "L") for name in pair], {"a": (y, "L")}]
    with pytest.raises(TorchImportError, match=f"{message}, but the module works with size 7 only"):
        lucid.from_torch(Wide().eval(), [x, x], {"a": x}, dynamic=axes)


def test_axes_of_nested_inputs_may_be_left_out_and_are_known() -> None:
    x = torch.randn(7, 3)
    imported = lucid.from_torch(Wide().eval(), [x, x], {"a": x, "b": x}, dynamic={"y": {"b": ("N",)}})
    specs: Any = imported.input_specs()["y"]
    assert {name: str(each) for name, each in specs.items()} == {
        "a": "float32[7, 3]",
        "b": "float32[N, 3]",
    }
    for axes in ({"c": ("N",)}, ("N", "L"), "N"):
        with pytest.raises(TorchImportError, match="dynamic gives y the axes .*, expected axes for a"):
            lucid.from_torch(Wide().eval(), [x, x], {"a": x}, dynamic={"y": axes})


def test_examples_that_do_not_fit_are_named() -> None:
    with pytest.raises(TypeError, match=r"do not fit Linear.forward: missing a required argument: 'input'"):
        lucid.from_torch(nn.Linear(8, 4).eval())
    for array in (X.numpy(), lucid.ones(2, 8)):
        with pytest.raises(TypeError, match=r"example input has type .*, expected a tensor of torch; torch.from_numpy"):
            lucid.from_torch(nn.Linear(8, 4).eval(), array)


class Halves(nn.Module):
    """Two halvings, and what they lose padded again, as in a U-Net."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.ConvTranspose2d(3, 3, 2, 2)

    def forward(self, x):
        half = F.max_pool2d(x, 2)
        wide = self.up(F.max_pool2d(half, 2))
        lost = [half.shape[axis] - wide.shape[axis] for axis in (2, 3)]
        return torch.cat([F.pad(wide, (0, lost[1], 0, lost[0])), half], 1)


def test_a_unet_takes_sizes_that_do_not_divide() -> None:
    module = randomize(Halves())
    imported = lucid.from_torch(module, torch.randn(2, 3, 32, 32), dynamic=[("N", None, "H", "W")])
    assert str(imported.input_specs()["x"]) == "float32[N, 3, H, W]"
    for height, width in [(32, 16), (17, 22), (6, 19)]:
        x = torch.randn(1, 3, height, width)
        with torch.no_grad():
            np.testing.assert_allclose(imported(x.numpy()).numpy(), module(x).numpy(), rtol=1e-5, atol=1e-6)
    lucid.testing.assert_parity(imported)


def test_other_things_are_no_modules(tmp_path) -> None:
    with pytest.raises(TypeError, match=r"expected a torch.nn.Module"):
        lucid.from_torch(math.sin, X)
    (tmp_path / "x.pt2").write_bytes(b"no program")
    with pytest.raises(TorchImportError, match="does not read"):
        lucid.from_torch(tmp_path / "x.pt2")
    with pytest.raises(FileNotFoundError, match=r"there is no file '.*y\.pt2'; did you mean .*x\.pt2\?"):
        lucid.from_torch(tmp_path / "y.pt2")


# Files of strangers ---------------------------------------------------------------------------------------------------


class Evil:
    """A pickle of it writes a file where it is read."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self):
        return (Path.touch, (self.target,))


CODE = "__import__('pathlib').Path('touched').touch()"
MODEL, INPUT = "models/model.json", '"forward_arg_names": ["input"'
PLANTED = {  # the record, what takes the place of what in it (a pickle, without), and what the error says
    "example inputs": ("data/sample_inputs/model.pt", "", "", "example inputs that are more than tensors"),
    "weights": ("data/weights/model_weights_config.json", '"use_pickle": false', '"use_pickle": true', "as a pickle"),
    "objects": ("data/constants/custom_obj_0", "", "", "record 'data/constants/custom_obj_0'"),
    "compiled code": ("data/aotinductor/model/x.so", "", "", "record 'data/aotinductor/model/x.so'"),
    "operator": (MODEL, "torch.ops.aten.linear.default", "torch.os.system", "calls 'torch.os.system'"),
    "function": (MODEL, "torch.ops.aten.linear.default", "_operator.methodcaller", "calls '_operator.methodcaller'"),
    "file": (MODEL, "torch.ops.aten.linear.default", "torch.ops.aten.from_file.default", "calls 'torch.ops.aten.from_"),
    "size": (MODEL, "Symbol('", f"{CODE} or Symbol('", "no expression of sizes"),
    "argument": (MODEL, INPUT, f'"forward_arg_names": ["a={CODE}"', "forward_arg_names .* which is no name"),
    "node": (MODEL, '{"name": "input"}', f'{{"name": "a={CODE}"}}', "name .* which is no name"),
    "comment": (MODEL, '"stack_trace": "', f'"stack_trace": "a\\r{CODE}', "stack_trace .* which is no name"),
    "damaged table": (
        "data/weights/model_weights_config.json",
        '"config"',
        '"config": true, "other"',
        "does not read evil.pt2",
    ),
    "damaged outputs": (
        MODEL,
        '"user_output": {"arg": {"as_tensor": {"name": "',
        '"user_output": {"arg": {"as_tensor": {"name": "x',
        "does not read evil.pt2",
    ),
    "older form": ("version", "", "", "older form, a pickle"),
}


@pytest.fixture(scope="module")
def program_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("programs") / "good.pt2"
    rows = ({0: torch.export.Dim.DYNAMIC},)
    torch.export.save(torch.export.export(randomize(nn.Linear(8, 4)), (torch.randn(2, 8),), dynamic_shapes=rows), path)
    return path


@pytest.mark.parametrize("name", PLANTED)
def test_a_file_of_a_stranger_runs_nothing(
    program_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    record, old, new, message = PLANTED[name]
    monkeypatch.chdir(tmp_path)
    buffer = io.BytesIO()
    torch.save(Evil(Path("touched")), buffer)
    with zipfile.ZipFile(program_file) as good, zipfile.ZipFile("evil.pt2", "w") as evil:
        records = {each: good.read(each) for each in good.namelist()}
        place = record if name == "older form" else f"{next(iter(records)).split('/')[0]}/{record}"
        assert old.encode() in records.get(place, b"")
        records[place] = records[place].replace(old.encode(), new.encode()) if old else buffer.getvalue()
        for each, content in records.items():
            evil.writestr(each, content)
    with pytest.raises(TorchImportError, match=message):
        lucid.from_torch("evil.pt2")
    assert not Path("touched").exists()


AXES_OF_ONE: dict[str, tuple[Callable[..., Any], int]] = {
    "one after another": (lambda x: x[:, None, :, None].unsqueeze(-2).unsqueeze(0), 1),
    "shared": (lambda x: (x[:, None], x[:, None, None], x[:, None, :, None]), 3),
    "removed again": (lambda x: x.unsqueeze(0).unsqueeze(-1).squeeze(0).squeeze(-1) + 1, 0),
    "some removed": (lambda x: x[:, None, :, None, None].squeeze((1, -1)), 1),
    "others removed": (lambda x: x[:, :1, None].squeeze(1), 1),
}


@pytest.mark.parametrize("name", AXES_OF_ONE)
def test_axes_of_size_1_are_added_by_one_operation(name: str) -> None:
    function, count = AXES_OF_ONE[name]
    imported = agree(Function(function).eval(), X)
    assert sum(node.op.name.startswith("unsqueeze") for node in lucid.trace(imported).nodes()) == count


# Bounds of sizes ------------------------------------------------------------------------------------------------------


class _Table(nn.Module):
    """The last numbers of a table: torch takes fewer where a slice reaches past its start."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.randn(1, 16))

    def last(self, length: int) -> torch.Tensor:
        return self.table[:, max(0, 16 - length) : 16]


class _Sixteen(_Table):
    def forward(self, x):
        return x + self.last(x.shape[1])


class _Continued(_Table):
    def forward(self, x, past):
        return torch.cat([past, x], 1) + self.last(past.shape[1] + x.shape[1])


class _Chunks(nn.Module):
    def forward(self, x):
        return x + (1 if -(-x.shape[1] // 4) < 3 else 2)


def _rows(*lengths: int) -> list[np.ndarray]:
    return [np.ones((2, length), np.float32) for length in lengths]


@pytest.mark.parametrize(
    ("module", "name", "fitting", "longer"),
    [
        (_Sixteen(), "L", [16], [17]),
        (_Chunks(), "L", [8], [9]),
        (_Continued(), "L \\+ P", [15, 1], [15, 2]),
    ],
)
def test_sizes_for_which_torch_computes_something_else_are_refused(module, name, fitting, longer) -> None:
    examples = [torch.randn(2, size) for size in (7, 3)[: len(fitting)]]
    imported = lucid.from_torch(module.eval(), *examples, dynamic=[("N", "L"), ("N", "P")][: len(fitting)])
    graph = lucid.trace(imported)
    session = lucid.runtime.Session(lucid.export.to_onnx(imported))
    assert imported(*[lucid.ones(2, 0)] * len(fitting)).shape == (2, 0)  # as of a cache before the first token
    expected = module(*map(torch.from_numpy, _rows(*fitting))).numpy()
    np.testing.assert_array_equal(imported(*map(lucid.tensor, _rows(*fitting))).numpy(), expected)
    np.testing.assert_array_equal(session(*_rows(*fitting)).numpy(), expected)
    words = rf"{name} is {sum(longer)}, expected at most {sum(fitting)}"
    for run in (lambda *x: imported(*map(lucid.tensor, x)), graph, copy.deepcopy(graph), session):
        with pytest.raises(ValueError, match=words):
            run(*_rows(*longer))
    with pytest.raises(ValueError, match=rf"is {sum(longer)}, expected at most {sum(fitting)}"):
        lucid.compile(imported)(*map(lucid.tensor, _rows(*longer)))


def test_sizes_below_those_of_a_branch_are_refused_and_those_below_torch_s_own_checks_are_not() -> None:
    module = Function(lambda x: (x[:, 3:], 2 * x if x.shape[1] >= 5 else x)).eval()
    imported = lucid.from_torch(module, torch.randn(2, 7), dynamic=[("N", "L")])
    session = lucid.runtime.Session(lucid.export.to_onnx(imported))
    lucid.testing.assert_parity(imported)
    for run in (lambda x: imported(lucid.tensor(x)), lucid.trace(imported), session):
        assert run(*_rows(5)) is not None
        with pytest.raises(ValueError, match="L is 4, expected at least 5"):
            run(*_rows(4))
    longest = lucid.from_torch(Function(lambda x: x[:, :9]).eval(), torch.randn(2, 12), dynamic=[("N", "L")])
    assert longest(lucid.ones(2, 4)).shape == (2, 4)


def test_declared_ranges_are_enforced() -> None:
    lengths = {0: torch.export.Dim("N"), 1: torch.export.Dim("L", min=4, max=9)}
    program = torch.export.export(Function(torch.tanh).eval(), (torch.randn(2, 7),), dynamic_shapes=(lengths,))
    for length, limit in ((3, "least 4"), (10, "most 9")):
        with pytest.raises(ValueError, match=f"L is {length}, expected at {limit}"):
            lucid.from_torch(program)(lucid.ones(1, length))


STEPS: dict[str, tuple[Callable[[torch.Tensor], Any], str]] = {
    "reshape": (lambda x: x.reshape(x.shape[0], 3, -1), "3*L"),
    "unflatten": (lambda x: x.unflatten(1, (-1, 3)).sum(2), "3*L"),
    "a branch": (lambda x: 2 * x if x.shape[1] % 2 else x, "2*L + 1"),
}


@pytest.mark.parametrize("name", STEPS)
def test_sizes_that_have_to_be_multiples_have_such_names(name: str) -> None:
    function, size = STEPS[name]
    module, example = Function(function).eval(), torch.randn(2, 9)
    for dynamic in (None, [("N", size)]):
        imported = lucid.from_torch(module, example, dynamic=dynamic)
        assert str(imported.input_specs()["x"]) == f"float32[N, {size}]"
    lucid.testing.assert_parity(imported)
    x = torch.randn(3, 15)
    np.testing.assert_array_equal(imported(lucid.tensor(x.numpy())).numpy(), module(x).numpy())
    with pytest.raises(
        TorchImportError, match="axis 1 of x is named 'L', .* with sizes (.*) only.*name it '(.*)', or"
    ) as e:
        lucid.from_torch(module, example, dynamic=[("N", "L")])
    assert str(e.value).count(size) == 2
    assert (Path(__file__).name in str(e.value)) == (name != "a branch")


def test_sizes_without_a_bound_have_none() -> None:
    for module in (nn.Linear(8, 4), Function(lambda x: x.reshape(x.shape[0], 2, -1, 4))):
        imported = lucid.from_torch(module.eval(), torch.randn(2, 6, 8), dynamic=[("N", "L", 8)])
        assert lucid.trace(imported).bounds == ()


class Mixed(nn.Module):
    """A convolution, norms, a pool, a recurrent layer and a Transformer's."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8)
        self.group, self.recurrent = nn.GroupNorm(2, 8), nn.GRU(8, 6, batch_first=True)
        self.layer = nn.TransformerEncoderLayer(6, 2, 12, batch_first=True, activation="gelu")

    def forward(self, x):
        x = F.max_pool2d(self.group(F.relu(self.norm(self.conv(x)))), 2)
        x, _ = self.recurrent(x.flatten(2).transpose(1, 2))
        return self.layer(x).mean(1)


def test_gradients_of_an_imported_module_are_torchs() -> None:
    module, x, seeds = randomize(Mixed()), torch.randn(2, 3, 16, 16), torch.randn(2, 6)
    (module(x) * seeds).sum().backward()
    imported = lucid.from_torch(module, x, dynamic=[("N",)])
    gradients = lucid.grad(lambda x: (imported(x) * seeds.numpy()).sum(), wrt=imported)(lucid.tensor(x.numpy()))
    for name, parameter in module.named_parameters():
        error = np.linalg.norm(gradients[name].numpy() - parameter.grad.numpy()) / np.linalg.norm(
            parameter.grad.numpy()
        )
        assert error < 2e-5, f"{name}: {error:.1e}"
