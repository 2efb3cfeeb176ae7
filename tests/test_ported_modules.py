"""What ported code does around its computations: initial values, containers, limits of sizes, einops."""

from __future__ import annotations

import copy
import itertools
import sys
from collections import OrderedDict
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lucid
from lucid import Tensor, nn
from lucid.export import to_onnx
from lucid.nn import functional as F
from lucid.ops import einops_backend
from lucid.runtime import Session
from lucid.testing import assert_parity


def test_an_embedding_takes_torchs_arguments_by_place() -> None:
    table = nn.Embedding(10, 4, 0, _freeze=True)
    assert (table.num_embeddings, table.embedding_dim, table.padding_idx) == (10, 4, 0)
    assert table(lucid.tensor([1, 2])).shape == (2, 4)
    for padded in (nn.Embedding(10, 4, -1), nn.EmbeddingBag(10, 4, padding_idx=-1)):
        assert padded.padding_idx == 9
        assert padded.weight.numpy().any(1).tolist() == [True] * 9 + [False]


@pytest.mark.parametrize("row", [10, -11, 1.5, lucid.float16], ids=str)
def test_a_padding_index_is_a_row(row: Any) -> None:
    with pytest.raises(ValueError, match=r"padding_idx is .*, expected a row from -10 to 9; an element type .*dtype="):
        nn.Embedding(10, 4, row)


def test_a_parameter_keeps_whether_it_requires_a_gradient() -> None:
    assert nn.Parameter(lucid.ones(2)).requires_grad
    assert not nn.Parameter(lucid.ones(2), requires_grad=False).requires_grad
    assert not nn.Parameter(lucid.ones(2), False).requires_grad_(False).requires_grad
    assert nn.Linear(2, 2).requires_grad_(False).weight.shape == (2, 2)


def test_initial_values_are_set_in_place() -> None:
    lucid.manual_seed(0)
    weight = nn.Linear(3, 2).weight
    assert weight.data.fill_(2).tolist() == [[2, 2, 2]] * 2
    assert weight.zero_().tolist() == [[0, 0, 0]] * 2
    assert weight.copy_(lucid.arange(3)).tolist() == [[0, 1, 2]] * 2
    weight.data.normal_(mean=5.0, std=0.1)
    assert 4 < weight.numpy().min() < weight.numpy().max() < 6
    weight.data = lucid.ones(4, 3)
    assert weight.shape == (4, 3)
    drawn = lucid.empty(1000).uniform_(2, 3)
    assert 2 <= drawn.numpy().min() < 2.1 < 2.9 < drawn.numpy().max() < 3


def test_a_clone_has_values_of_its_own() -> None:
    x = lucid.ones(3)
    x.clone().normal_()
    assert x.tolist() == [1, 1, 1]


def test_values_that_are_computed_never_change_in_place() -> None:
    with pytest.raises(AttributeError, match=r"never changed in place; write x = lucid\.full_like\(x, value\)"):
        lucid.ones(3).fill_(1)
    with pytest.raises(lucid.TracedValueError, match="randn: random numbers that are drawn in forward"):
        lucid.trace(lambda x: x.normal_(), (3,))


@pytest.mark.parametrize("part", [lambda x: x[0], lambda x: x.view(-1), lambda x: x.t(), lambda x: x.chunk(2)[0]])
def test_initial_values_of_a_part_are_an_error_as_the_whole_would_not_change(part: Callable[[Tensor], Tensor]) -> None:
    for whole in (lucid.ones(2, 3), nn.Parameter(lucid.ones(2, 3))):
        with pytest.raises(TypeError, match=r"part or view of another.*write x = x\.at\[index\]\.set\(lucid"):
            part(whole).normal_()
        with pytest.raises(TypeError, match=r"a part of one does not change it: write p\.data = p\.at\[index\]"):
            nn.init.zeros_(part(whole))  # type: ignore[arg-type]


def test_containers_take_names_slices_and_further_modules() -> None:
    layers = nn.ModuleList([nn.ReLU()])
    layers.extend([nn.Linear(2, 3), nn.Tanh()])
    assert [type(layer).__name__ for layer in layers[1:]] == ["Linear", "Tanh"]
    assert list(layers.state_dict()) == ["1.weight", "1.bias"]
    named = nn.Sequential(OrderedDict(first=nn.Linear(2, 3), then=nn.ReLU()))
    named.add_module("last", nn.Linear(3, 1))
    assert list(named.state_dict()) == ["first.weight", "first.bias", "last.weight", "last.bias"]
    assert named(lucid.ones(4, 2)).shape == (4, 1)
    assert named.get_submodule("last") is list(named.children())[-1]
    assert list(named[1:].state_dict()) == ["last.weight", "last.bias"]
    assert list(nn.Sequential(nn.ReLU(), nn.Linear(2, 3))[1:].state_dict()) == ["1.weight", "1.bias"]
    assert layers[np.int64(2)] is layers[-1]
    del layers[0]
    assert list(layers.state_dict()) == ["0.weight", "0.bias"]
    assert list(nn.ModuleDict([("a", layers[0])]).state_dict()) == ["a.weight", "a.bias"]


def test_a_module_is_found_by_each_of_its_paths() -> None:
    model = nn.Sequential(nn.ModuleList([nn.Linear(2, 3), nn.ReLU()]), nn.Tanh())
    model.shared = model[0][0]  # type: ignore[index]
    model.add_module("alias", model.shared)
    for path, module in (("", model), ("0", model[0]), ("0.1", model[0][1]), ("alias", model.shared)):  # type: ignore[index]
        assert model.get_submodule(path) is module
    for path in ("0.2", "shared.weight", "10"):
        with pytest.raises(KeyError, match="has no module '.*'; it has"):
            model.get_submodule(path)


def test_one_of_several_computed_weights_becomes_a_parameter_again() -> None:
    layer, x = nn.LSTM(2, 3), lucid.randn(4, 1, 2)
    expected, _ = layer(x)
    for name in ("weight_ih_l0", "weight_hh_l0"):
        nn.utils.parametrizations.weight_norm(layer, name)
    for name in ("weight_ih_l0", "weight_hh_l0"):
        nn.utils.remove_weight_norm(layer, name)
        np.testing.assert_allclose(layer(x)[0].numpy(), expected.numpy(), atol=1e-6)
    assert layer.state_dict().keys() == nn.LSTM(2, 3).state_dict().keys()


def test_modules_in_containers_are_attributes_by_their_names() -> None:
    parts = nn.ModuleDict({"first": nn.Linear(2, 3)})
    parts.update({"then": nn.ReLU()})
    assert parts.first is parts["first"] and parts.then is parts["then"]
    parts.first.weight = nn.Linear(2, 3).weight  # as weights are shared
    assert copy.deepcopy(parts).first.weight.shape == (3, 2)
    assert nn.Sequential(OrderedDict(act=nn.Tanh())).act(lucid.zeros(1)).item() == 0
    with pytest.raises(AttributeError, match="'ModuleDict' object has no attribute 'last'"):
        parts.last  # noqa: B018


def test_lists_of_modules_change_as_lists_do() -> None:
    layers = nn.ModuleList([nn.ReLU()])
    layers += [nn.Linear(2, 3)]
    layers.insert(0, nn.Tanh())
    layers[-1] = nn.Linear(3, 1)
    assert [type(layer).__name__ for layer in layers] == ["Tanh", "ReLU", "Linear"]
    assert {key: value.shape for key, value in layers.state_dict().items()} == {"2.weight": (1, 3), "2.bias": (1,)}


def test_a_function_asks_whether_it_is_traced() -> None:
    def model(x: Tensor) -> Tensor:
        traced = lucid.jit.is_tracing() and lucid.compiler.is_compiling() and lucid.onnx.is_in_onnx_export()
        return x * 2 if traced else x

    assert model(lucid.ones(1)).item() == 1
    assert lucid.trace(model, (1,))(np.ones(1, np.float32)).item() == 2
    assert lucid.jit.script(model) is model
    assert lucid.compiler.disable(recursive=False)(model) is model


def test_autocast_is_refused_unless_it_is_off() -> None:
    with lucid.autocast("cpu", enabled=False):
        assert lucid.ones(1).dtype == lucid.get_default_dtype()
    with pytest.raises(ValueError, match=r"autocast: convert the model, model\.to\(lucid\.float16\), or export it"):
        lucid.autocast("cpu")


def test_another_device_is_refused() -> None:
    assert lucid.device("cpu").type == "cpu" and lucid.zeros(1, device="cpu:0").shape == (1,)
    assert lucid.device("cpu:0") == lucid.device("cpu", 0)
    with pytest.raises(ValueError, match=r"device: device is 'cuda:0', but tensors have no device"):
        lucid.device("cuda:0")
    with pytest.raises(ValueError, match="to: device is 'cuda', but tensors have no device"):
        nn.ReLU().to("cuda")
    with pytest.raises(AttributeError, match="'ReLU' object has no attribute 'cuda': tensors have no device"):
        nn.ReLU().cuda()


def test_modules_move_to_the_cpu_and_to_floating_point_types_as_in_torch() -> None:
    linear, x = nn.Linear(2, 2), lucid.ones(1, dtype=lucid.float16)
    assert linear.to("cpu").cpu().to(device=x.device).weight.dtype == lucid.float32
    for moved in (linear.half(), linear.float().to(x), linear.float().to(x.device, lucid.float16)):
        assert moved is linear and linear.weight.dtype == lucid.float16
    assert (linear.double().weight.dtype, linear.bfloat16().weight.dtype) == (lucid.float64, lucid.bfloat16)


def test_an_error_within_a_property_of_a_module_is_shown() -> None:
    class Model(nn.Module):
        @property
        def width(self) -> int:
            return self.missing.width  # type: ignore[no-any-return]

    with pytest.raises(AttributeError, match="'Model' object has no attribute 'missing'"):
        Model().width  # noqa: B018
    with pytest.raises(AttributeError, match="'Model' object has no attribute 'register_forward_hook': .* no hooks"):
        Model().register_forward_hook(print)


def test_saving_with_the_tensors_first_says_the_order() -> None:
    with pytest.raises(TypeError, match=r"save: got Linear, expected tensors by name, .*path, model\.state_dict\(\)\)"):
        lucid.save("weights.safetensors", nn.Linear(1, 1))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"save: the tensors came first, .* write lucid\.save\(path, tensors\)"):
        lucid.save(nn.Linear(1, 1).state_dict(), "weights.safetensors")  # type: ignore[arg-type]


# Limits of sizes ------------------------------------------------------------------------------------------------------


def positioned(x: Tensor) -> Tensor:
    """A model that refuses long inputs, and treats a single position in its own way."""
    if x.shape[1] > 64:
        raise ValueError("too long")
    return x.sum(1) if x.shape[1] > 1 else x[:, 0]


def test_a_branch_on_a_size_is_decided_by_its_limits() -> None:
    with pytest.raises(lucid.SymbolicSizeError, match=r'give its limits there, such as "2 <= L <= 64"'):
        lucid.trace(positioned, lucid.spec("N", "L"))
    session = Session(to_onnx(positioned, lucid.spec("N", "2 <= L <= 64")))
    assert session(np.ones((2, 64), np.float32)).tolist() == [64, 64]
    with pytest.raises(ValueError, match="Session: L is 1, expected at least 2: for others, the model may compute"):
        session(np.ones((2, 1), np.float32))
    with pytest.raises(ValueError, match="Session: L is 65, expected at most 64: for others, the model may compute"):
        session(np.ones((2, 65), np.float32))


@pytest.mark.parametrize(
    ("limits", "decided"),
    [
        ("L <= 8", lambda length: length < 9),
        ("2 <= L", lambda length: 2 * length - 3 > 0),
        ("3 <= L <= 8", lambda length: length * length - 64 <= 0),
        ("3 <= L <= 8", lambda length: 8 - length >= 0),
        ("3 <= L <= 3", lambda length: length == 3),
    ],
)
def test_limits_decide_sums_and_products(limits: str, decided: object) -> None:
    def model(x: Tensor) -> Tensor:
        assert decided(x.shape[0])  # type: ignore[operator]
        return x + 1

    lucid.trace(model, lucid.spec(limits))


def test_limits_hold_only_for_their_trace() -> None:
    lucid.trace(lambda x: x if x.shape[0] <= 8 else x + 1, lucid.spec("L <= 8"))
    with pytest.raises(lucid.SymbolicSizeError):
        lucid.trace(lambda x: x if x.shape[0] <= 8 else x + 1, lucid.spec("L"))


def test_limits_without_a_size_and_two_of_one_size_are_refused() -> None:
    with pytest.raises(ValueError, match='size "9 <= L <= 8": no size is within these limits'):
        lucid.spec("9 <= L <= 8")
    with pytest.raises(ValueError, match=r"trace: size L has limits \(0, 8\) and \(0, 9\); give the same ones"):
        lucid.trace(lambda x, y: x + y, lucid.spec("L <= 8"), lucid.spec("L <= 9"))


# Convolutions and pools -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
def test_a_convolution_pads_with_its_input(mode: str) -> None:
    conv, x = nn.Conv2d(2, 3, (3, 2), padding=(1, 1), padding_mode=mode), lucid.randn(2, 2, 5, 4)
    padded = F.conv2d(F.pad(x, (1, 1, 1, 1), mode), conv.weight, conv.bias)
    np.testing.assert_array_equal(conv(x), padded)
    assert_parity(conv, ("N", 2, 5, 4))


def test_windows_of_which_the_last_may_not_count_need_a_known_size() -> None:
    pool = nn.MaxPool1d(2, 2, padding=1, ceil_mode=True)
    assert pool(lucid.arange(5).float().reshape(1, 1, 5)).tolist() == [[[0, 2, 4]]]
    with pytest.raises(NotImplementedError, match="of an axis of size L: .* give it a number in lucid.spec"):
        lucid.trace(pool, (1, 1, "L"))


# einops ---------------------------------------------------------------------------------------------------------------

EINOPS = """
class AbstractBackend:
    pass
"""


def test_a_backend_of_einops_is_there_once_einops_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for einops, which finds backends as einops does; `tests/consumers/test_einops.py` has the real one."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "einops"]:
        monkeypatch.delitem(sys.modules, name)
    (tmp_path / "einops").mkdir()
    (tmp_path / "einops" / "__init__.py").write_text("")
    (tmp_path / "einops" / "_backends.py").write_text(EINOPS)
    monkeypatch.syspath_prepend(tmp_path)
    others = [finder for finder in sys.meta_path if not isinstance(finder, einops_backend._WhenImported)]
    monkeypatch.setattr(sys, "meta_path", [einops_backend._WhenImported(), *others])
    _backends = import_module("einops._backends")

    (kind,) = _backends.AbstractBackend.__subclasses__()
    backend = kind()
    assert kind.framework_name in sys.modules
    assert backend.is_appropriate_type(lucid.ones(1))
    assert not backend.is_appropriate_type(np.ones(1))

    def heads(x: Tensor) -> Tensor:  # rearrange(x, "n l (h d) -> n h l d", h=2), then its mean, repeated
        n, length, width = backend.shape(x)
        split = backend.transpose(backend.reshape(x, (n, length, 2, width // 2)), (0, 2, 1, 3))
        mean = backend.reduce(split, "mean", (2,))
        return backend.add_axes(mean, 4, {2: length}) + backend.einsum("nhld->nhld", split)

    assert heads(lucid.randn(2, 3, 8)).shape == (2, 2, 3, 4)
    assert_parity(heads, ("N", "L", 8))


def test_a_weight_in_two_parts_is_computed_when_it_is_read() -> None:
    conv = nn.Conv1d(2, 3, 4)
    before = conv.weight
    for norm in (nn.utils.weight_norm, nn.utils.parametrizations.weight_norm):
        assert norm(conv) is conv and "weight" not in conv.state_dict()
        np.testing.assert_allclose(conv.weight.numpy(), before.numpy(), rtol=1e-6)
        again = copy.deepcopy(conv)
        for parameter in again.parameters():
            parameter.assign(2 * parameter.numpy())
        np.testing.assert_allclose(again.weight.numpy(), 2 * conv.weight.numpy(), rtol=1e-6)
        assert again(lucid.ones(1, 2, 5)).shape == (1, 3, 2)
        assert_parity(conv)
        nn.utils.remove_weight_norm(conv)
        assert list(conv.state_dict()) == ["bias", "weight"] and not hasattr(conv, "parametrizations")
    with pytest.raises(ValueError, match="weight_norm: weights is no parameter of Conv1d; it has bias, weight"):
        nn.utils.weight_norm(conv, "weights")
    with pytest.raises(ValueError, match="remove_weight_norm: weight of Conv1d has no weight_norm"):
        nn.utils.remove_weight_norm(conv)


def test_where_of_a_condition_alone_gives_indices() -> None:
    mask = lucid.tensor([[True, False, True], [False, False, True]])
    rows, columns = lucid.where(mask)
    assert (rows.tolist(), columns.tolist(), rows.dtype) == ([0, 0, 1], [0, 2, 2], lucid.int64)
    assert [places.tolist() for places in lucid.where(condition=mask[0])] == [[0, 2]]
    assert lucid.where(mask, input=1.0, other=0.0).tolist() == [[1, 0, 1], [0, 0, 1]]
    with pytest.raises(TypeError, match="where: y is missing or None"):
        lucid.where(mask, mask)  # type: ignore[call-overload]
    with pytest.raises(lucid.TracedValueError, match=r"how many elements it finds .* lucid.where\(mask, x, 0\)"):
        lucid.trace(lambda x: lucid.where(x > 0)[0], ("N", 3))


def test_numbers_and_tensors_are_divided_and_rounded() -> None:
    assert lucid.div(7, lucid.tensor([2, -2]), rounding_mode="trunc").tolist() == [3, -3]
    assert lucid.div(7, 2, rounding_mode="floor") == lucid.div(7, 2, rounding_mode="trunc") == 3
    assert lucid.div(-7, 2, rounding_mode="trunc") == -3 and lucid.div(7.5, 2, rounding_mode="trunc").item() == 3
    halves = lucid.trace(lambda x: x[: lucid.div(x.shape[0], 2, rounding_mode="trunc")], ("N",))
    assert str(halves.outputs[0].type) == "float32[(N//2)]"


CHANGES = {  # lines that change a tensor, and what the error says to write
    "x[mask] = y": "x = x.at[mask].set(y)",
    "x[..., : n].copy_(y)": "x = x.at[..., :n].set(y)",
    "x[:, i] += 1": "x = x.at[:, i].add(1)",
    "self.x[:, 0] /= n - 1": "self.x = self.x.at[:, 0].set(self.x[:, 0] / (n - 1))",
    "x[0].mul_(2)": "x = x.at[0].set(x[0].mul(2))",
    "x.masked_fill_(mask, value=0)": "x = x.masked_fill(mask, value=0)",
    "y = x.clamp_(0, 1).add_(1)": "y = x.clamp(0, 1).add_(1)",
    "self.x.zero_()": "self.x = lucid.zeros_like(self.x)",
    "x.fill_(n)": "x = lucid.full_like(x, n)",
    "x.copy_(y)": "x = y",
    "x[0], n = 1, 2": "x = x.at[index].set(value), or for a mask x = lucid.where(mask, value, x)",
    "y = x.relu().fill_(3)": "x = lucid.full_like(x, value)",
    "x.sort_()": "x = x.sort(...) or what computes the new value",
}


@pytest.mark.parametrize("line", CHANGES)
def test_a_line_that_changes_a_tensor_is_refused_with_the_line_to_write(line: str, tmp_path: Path) -> None:
    file = tmp_path / "ported.py"
    written = f"{line}" if not line.startswith("x.sort_") else "changed = (\n        x\n        .sort_()\n    )"
    file.write_text(f"def forward(self, x, y, mask, i, n):\n    {written}\n")
    names: dict[str, Any] = {"__name__": "ported"}
    exec(compile(file.read_text(), file, "exec"), names)
    x = lucid.ones(2, 3)
    self = nn.Module()
    self.x = x
    with pytest.raises((TypeError, AttributeError)) as error:
        names["forward"](self, x, x, x > 0, 1, 2)
    assert str(error.value).endswith(f"tensors are never changed in place; write {CHANGES[line]}")


def test_tensors_of_a_module_are_changed_in_place() -> None:
    norm = nn.Module()
    norm.register_buffer("weight", lucid.zeros(3))
    norm.weight.copy_(lucid.arange(3))  # type: ignore[operator]
    assert norm.state_dict()["weight"].tolist() == [0, 1, 2]
    norm.weight.fill_(2)  # type: ignore[operator]
    assert norm.weight.tolist() == [2, 2, 2] and norm.weight.dtype == lucid.float32


def test_modules_inside_are_replaced_by_name() -> None:
    outer = nn.Module()
    outer.first, outer.width, outer.last = nn.ReLU(), 3, nn.Linear(2, 2)
    assert list(outer._modules) == ["first", "last"] and len(outer._modules) == 2 and "width" not in outer._modules
    outer._modules["first"] = nn.Tanh()
    assert isinstance(outer.first, nn.Tanh)
    del outer._modules["last"]
    assert [name for name, _ in outer.named_children()] == ["first"]


def test_whole_numbers_alone_are_the_sizes_of_a_tensor() -> None:
    """As in ``nn.Parameter(torch.Tensor(width).uniform_())`` of wav2vec 2.0."""
    assert Tensor(3).shape == (3,) and Tensor(2, 3).shape == (2, 3) and Tensor().shape == (0,)
    assert Tensor(3).dtype == lucid.float32 and nn.Parameter(lucid.Tensor(4).uniform_()).shape == (4,)
    assert Tensor(3, lucid.int64).item() == Tensor(3, dtype="int64").item() == lucid.tensor(3).item() == 3
    assert Tensor(2.5).item() == 2.5 and Tensor([3]).shape == (1,)
    assert nn.Buffer(3).item() == nn.Parameter(3).item() == lucid.ops.take(Tensor([1, 2, 3]), 2, 0).item() == 3
    with pytest.raises(ValueError, match=r"Tensor: sizes are \[2, -3\], expected 0 or more"):
        Tensor(2, -3)
    for arguments, dtype in (((2, 3, 4.5), None), (([1], 2, 3), None), ((2, 3), "int64"), ((2, "int8"), "int64")):
        with pytest.raises(TypeError, match=r"Tensor: got 3 arguments, expected data and an element type, or only who"):
            Tensor(*arguments, dtype=dtype)


def test_a_device_stands_before_the_element_type_by_place() -> None:
    for device in (None, "cpu", lucid.ones(1).device):
        assert nn.LayerNorm(4, 1e-3, True, True, device, lucid.float16).weight.dtype == lucid.float16  # type: ignore[call-arg, arg-type]
    assert nn.Linear(2, 3, True, lucid.ones(1).device).weight.dtype == lucid.float32  # type: ignore[arg-type]
    assert nn.Linear(2, 3, True, "float16").weight.dtype == lucid.float16
    with pytest.raises(ValueError, match="LayerNorm: device is 'cuda', but tensors have no device"):
        nn.LayerNorm(4, 1e-3, True, True, "cuda", None)  # type: ignore[call-arg, arg-type]


def test_an_embedding_takes_its_arguments_by_place() -> None:
    """As in I-BERT."""
    table = lucid.randn(5, 2)
    assert F.embedding(lucid.tensor([4]), table, 0, None, 2.0, False, False).equal(table[4:])
    assert F.embedding(lucid.tensor([4]), table, max_norm=None).equal(table[4:])
    with pytest.raises(TypeError, match=r"embedding: max_norm= is not taken: it would change the table in place"):
        F.embedding(lucid.tensor([4]), table, 0, 1.0)  # type: ignore[arg-type]


def test_hooks_rename_keys_before_a_state_is_loaded() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(2, 2, bias=False)
            self._register_load_state_dict_pre_hook(self.renamed)
            self.inner.register_load_state_dict_pre_hook(lambda module, state, prefix, *_: state.pop(prefix + "old"))

        def renamed(self, state: dict[str, Any], prefix: str, *_: Any) -> None:
            state[f"{prefix}inner.weight"] = state.pop("w")

    model, state = Model(), {"w": np.ones((2, 2)), "inner.old": np.ones(1)}
    assert model.load_state_dict(state) == ([], []) and model.inner.weight.tolist() == [[1, 1], [1, 1]]
    assert [*state] == ["w", "inner.old"]  # of the caller
    with pytest.raises(KeyError, match="w"):
        copy.deepcopy(model).load_state_dict({})


def test_sizes_times_tensors_are_sizes() -> None:
    """As in MobileViT, whose grid of patches is rounded up by tensors."""

    def model(x: Any) -> Any:
        patches, count = lucid.ceil(lucid.tensor(4) / 2).long(), lucid.as_tensor(x.shape[0])
        return x.reshape(x.shape[0] * patches, 2), lucid.arange(count), x[: count - 1], lucid.as_tensor(x).flatten()

    graph = lucid.trace(model, ("N", 4))
    assert [str(output.type) for output in graph.outputs] == [
        "float32[2*N, 2]",
        "int64[N]",
        "float32[N - 1, 4]",
        "float32[4*N]",
    ]
    assert_parity(model, ("N", 4))
    with pytest.raises(lucid.TracedValueError, match=r"int\(\) of a traced int64\[\]"):
        lucid.trace(lambda x: lucid.arange(x.sum().long()), ("N",))


@pytest.mark.parametrize("divisor", [3, -3])
def test_quotients_and_remainders_of_tensors_are_sizes(divisor: int) -> None:
    def model(x: Any) -> Any:
        length = lucid.tensor(x.shape[0])
        return lucid.arange(length % divisor, length), lucid.arange((5 - length) // divisor, length * 2)

    graph = lucid.trace(model, ("L",))
    for length in (1, 3, 8):
        expected = [out.tolist() for out in model(lucid.zeros(length))]
        assert [out.tolist() for out in graph.run([np.zeros(length, np.float32)])] == expected
    assert_parity(model, ("L",))


def test_a_size_is_computed_once_from_tensors_that_are_used_twice() -> None:
    def model(x: Any) -> Any:
        count = lucid.tensor(x.shape[0])
        for _ in range(40):
            count = count + count
        return lucid.zeros(count // 2**40)

    assert str(lucid.trace(model, ("N",)).outputs[0].type) == "float32[N]"


def test_numbers_in_tensors_bound_ranges() -> None:
    assert lucid.arange(lucid.tensor(3)).tolist() == [0, 1, 2]
    assert lucid.arange(lucid.tensor(1), lucid.tensor(6), lucid.tensor(2)).tolist() == [1, 3, 5]
    assert lucid.arange(lucid.tensor(2.5)).dtype == lucid.float32
    assert lucid.arange(0, np.float32(1.5), np.float64(0.5)).tolist() == [0, 0.5, 1]
    assert lucid.arange(0, 5, np.int64(2)).tolist() == [0, 2, 4]
    with pytest.raises(TypeError, match="arange: stop is Tensor"):
        lucid.arange(lucid.tensor([3]))


@pytest.mark.parametrize("size", [2.0, True, [2]])
def test_tensors_that_are_no_whole_number_are_no_size(size: Any) -> None:
    with pytest.raises(TypeError, match=r"a tensor .*\[.*\] is no size or index, expected int64\[\]"):
        lucid.zeros(lucid.tensor(size))


def test_diagonals_and_steps_take_sizes_from_tensors() -> None:
    def model(x: Any) -> Any:
        count = lucid.tensor(x.shape[0])
        return lucid.eye(count, count + 1), lucid.linspace(0, 1, count * 2)

    assert_parity(model, ("L",))


def test_ranges_and_diagonals_of_symbolic_sizes() -> None:
    """As in XLNet and Funnel."""

    def model(x: Any) -> Any:
        length = x.shape[0]
        return lucid.eye(length), lucid.eye(length, 3), lucid.arange(-length * 2, length * 2, 1.0)

    graph = lucid.trace(model, ("L",))
    assert [str(output.type) for output in graph.outputs] == ["float32[L, L]", "float32[L, 3]", "float32[4*L]"]
    assert_parity(model, ("L",))


@pytest.mark.parametrize(("upper", "left", "unit"), list(itertools.product((False, True), repeat=3)))
def test_triangular_systems_are_solved(upper: bool, left: bool, unit: bool) -> None:
    """As in gated delta networks: Qwen3-Next and OLMo-Hybrid."""

    def solve(a: Any, b: Any) -> Any:
        return lucid.linalg.solve_triangular(a, b, upper=upper, left=left, unitriangular=unit)

    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 1, 5, 5)), rng.standard_normal((3, 5, 4) if left else (3, 4, 5))
    triangle = np.triu(a) if upper else np.tril(a)
    if unit:
        triangle = triangle - triangle * np.eye(5) + np.eye(5)
    x = solve(lucid.tensor(a), lucid.tensor(b)).numpy()
    assert x.shape == (2, 3, *b.shape[1:])
    np.testing.assert_allclose(triangle @ x if left else x @ triangle, np.broadcast_to(b, x.shape), atol=1e-9)
    shape = ("N", "L", 4) if left else ("N", 4, "L")
    assert_parity(lambda a, b: solve(a / 8 + lucid.eye(a.shape[-1]), b), ("N", "L", "L"), shape)


def test_a_triangular_system_has_sizes_that_fit() -> None:
    solve = lucid.linalg.solve_triangular
    with pytest.raises(ValueError, match=r"solve_triangular: got float32\[3, 3\] and float32\[2, 1\], expected"):
        solve(lucid.eye(3), lucid.ones(2, 1), upper=True)
    with pytest.raises(ValueError, match=r"float32\[3, 1\], expected \(..., n, n\) and \(..., columns, n\)"):
        solve(lucid.eye(3), lucid.ones(3, 1), upper=True, left=False)


def test_a_triangular_system_has_one_floating_point_type() -> None:
    solve, ones = lucid.linalg.solve_triangular, np.ones((3, 1))
    for a, b in ((np.eye(3), lucid.ones(3, 1)), (lucid.eye(3), ones), (lucid.eye(3, dtype=lucid.float64), ones)):
        assert solve(a, b, upper=True).dtype == lucid.float64
    with pytest.raises(TypeError, match=r"solve_triangular: got int64\[3, 3\], expected a floating-point tensor"):
        solve(lucid.eye(3).long(), ones, upper=True)


def test_the_padding_of_a_convolution_is_torchs() -> None:
    """The function takes it, as in the standardized convolutions of BiT."""

    class Standardized(nn.Conv2d):
        def forward(self, x: Any) -> Any:
            return F.conv2d(x, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)

    x = lucid.randn(1, 2, 6, 6)
    for padding, kept in ((1, (1, 1)), ((2, 1), (2, 1)), ("same", "same"), ("valid", "valid")):
        ours, plain = Standardized(2, 3, 3, padding=padding), nn.Conv2d(2, 3, 3, padding=padding)
        ours.load_state_dict(plain.state_dict())
        assert ours.padding == kept and ours(x).equal(plain(x))
