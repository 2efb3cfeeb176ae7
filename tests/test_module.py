"""Modules: their contents, saving and loading, printing."""

from __future__ import annotations

import copy
import math
import threading
from typing import Any, cast

import numpy as np
import pytest

import lucid
from lucid import Tensor, nn
from lucid.core.graph.scope import is_tracing
from lucid.core.process.context import evaluating, is_evaluating
from lucid.nn import init
from lucid.nn.module import StateError

Array = np.ndarray[Any, Any]


class Model(nn.Module):
    """Parameters, a buffer, a private tensor, and modules in attributes, lists, dicts and containers."""

    def __init__(self) -> None:
        self.scale = nn.Parameter([1.0, 2.0])
        self.steps = lucid.tensor([0, 1, 2])
        self._cache = lucid.zeros(5)
        self.first = nn.Linear(2, 3)
        self.blocks = [nn.Linear(3, 3, bias=False), [nn.ReLU(), nn.Dropout(0.1)]]
        self.heads = {"a": nn.Linear(3, 1), "b": nn.Identity()}
        self.more = nn.ModuleList([nn.Linear(3, 2, bias=False)])
        self.named = nn.ModuleDict({"c": nn.LayerNorm(3)})
        self.width = 3

    def forward(self, x: Tensor) -> Tensor:
        return self.heads["a"](self.blocks[0](self.first(x * self.scale)))


KEYS = [
    "scale",
    "steps",
    "first.weight",
    "first.bias",
    "blocks.0.weight",
    "heads.a.weight",
    "heads.a.bias",
    "more.0.weight",
    "named.c.weight",
    "named.c.bias",
]


# What a module holds --------------------------------------------------------------------------------------------------


def test_the_state_is_all_public_tensors_by_path_in_order() -> None:
    assert list(Model().state_dict()) == KEYS


def test_parameters_and_buffers() -> None:
    model = Model()
    assert [name for name, _ in model.named_parameters()] == [key for key in KEYS if key != "steps"]
    assert [name for name, _ in model.named_buffers()] == ["steps"]
    assert len(list(model.parameters())) == len(KEYS) - 1
    assert [buffer.tolist() for buffer in model.buffers()] == [[0, 1, 2]]


def test_modules_by_path_parents_first() -> None:
    paths = [path for path, _ in Model().named_modules()]
    assert paths == [
        "",
        "first",
        "blocks.0",
        "blocks.1.0",
        "blocks.1.1",
        "heads.a",
        "heads.b",
        "more",
        "more.0",
        "named",
        "named.c",
    ]
    assert [name for name, _ in Model().named_children()][:3] == ["first", "blocks.0", "blocks.1.0"]


def test_a_shared_module_counts_once_and_is_in_the_state_under_each_name() -> None:
    class Shared(nn.Module):
        def __init__(self) -> None:
            self.a = nn.Linear(2, 2, bias=False)
            self.b = self.a

    model = Shared()
    assert list(model.state_dict()) == ["a.weight", "b.weight"]
    assert [name for name, _ in model.named_parameters()] == ["a.weight"]
    assert len(list(model.modules())) == 2


def test_a_module_that_contains_itself_is_an_error_not_an_endless_loop() -> None:
    class Node(nn.Module):
        def __init__(self) -> None:
            self.child = nn.Linear(2, 2)
            self.children_ = [self]

    with pytest.raises(ValueError, match=r"Node: children_\.0 is a module that contains itself"):
        Node().state_dict()


def test_train_and_eval_reach_every_module() -> None:
    model = Model()
    assert not model.training
    assert model.train() is model
    assert all(module.training for module in model.modules())
    assert model.eval() is model
    assert not any(module.training for module in model.modules())
    model.train()
    model.blocks[1][1].eval()  # type: ignore[index]
    assert model.training


def test_evaluating_holds_for_a_block_and_a_thread_and_changes_nothing_in_a_module() -> None:
    dropout, x = nn.Dropout(0.5).train(), lucid.ones(100)
    seen: list[bool] = []
    with pytest.raises(RuntimeError, match="no"), evaluating():
        with evaluating():
            assert not dropout.training
        assert not dropout.training and dropout(x) is x and not is_tracing()
        other = threading.Thread(target=lambda: seen.append(dropout.training))
        other.start()
        other.join()
        raise RuntimeError("no")
    assert seen == [True]
    assert dropout.training and not is_evaluating()


def test_modules_start_in_evaluation_mode_so_that_eager_results_are_those_of_the_export() -> None:
    layer, x = nn.TransformerEncoderLayer(16, 4, 32), lucid.randn(1, 3, 16)
    np.testing.assert_array_equal(layer(x), layer(x))
    np.testing.assert_allclose(layer(x), lucid.trace(layer, x)(x.numpy()), atol=1e-6)


def test_dropout_is_active_in_training_alone() -> None:
    dropout = nn.Dropout(0.5).train()
    x = lucid.ones(1000)
    kept = dropout(x).numpy()
    assert set(kept.tolist()) == {0.0, 2.0}
    assert 400 < np.count_nonzero(kept) < 600
    assert dropout.eval()(x) is x


def test_apply_calls_children_first() -> None:
    seen: list[str] = []
    model = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.ReLU()))
    assert model.apply(lambda module: seen.append(type(module).__name__)) is model
    assert seen.index("ReLU") < seen.index("Sequential")
    assert sorted(seen) == ["Linear", "ReLU", "Sequential", "Sequential"]
    assert seen[-1] == "Sequential"


def test_to_converts_floating_point_tensors() -> None:
    model = Model().to(lucid.float16)
    assert model.first.weight.dtype is lucid.float16
    assert model.steps.dtype is lucid.int64
    assert model(lucid.zeros(1, 2, dtype="float16")).dtype is lucid.float16


def test_a_deep_copy_is_independent() -> None:
    model = Model()
    other = copy.deepcopy(model)
    init.zeros_(other.first.weight)
    assert np.any(model.first.weight.numpy())
    assert list(other.state_dict()) == KEYS


def test_arrays_in_a_call_become_tensors_for_forward(tmp_path: Any) -> None:
    class Inner(nn.Module):
        def forward(self, x: Any, table: Any) -> Tensor:
            return x.unsqueeze(-1) * len(table.tolist()) + isinstance(table, Tensor)

    class Outer(nn.Module):
        def __init__(self) -> None:
            self.inner = Inner()

        def forward(self, x: Tensor, *, mask: Tensor, scale: float = 1.0) -> Tensor:
            return self.inner(x, np.arange(2)) * mask.astype(x.dtype) * scale

    x, mask = np.ones((2, 3), np.float32), np.array([[[1], [0], [1]]])
    y = Outer()(x, mask=mask, scale=2.0)
    assert y.tolist() == [[[4.0], [0.0], [4.0]]] * 2, "an array of forward's own stays one"
    np.save(tmp_path / "x.npy", x)
    assert isinstance(nn.Identity()(np.load(tmp_path / "x.npy", mmap_mode="r")), Tensor)
    for other in (np.zeros(2, np.int16), np.zeros(2, np.complex64), np.array(["a"]), np.array([None])):
        assert nn.Identity()(cast(Any, other)) is other, "an array of a type that Lucid lacks stays one"


def test_a_module_without_forward_says_so() -> None:
    with pytest.raises(NotImplementedError, match=r"Module has no forward\(\)"):
        nn.Module()()


def test_containers() -> None:
    layers = nn.ModuleList([nn.ReLU()])
    layers.append(nn.Tanh())
    assert len(layers) == 2
    assert isinstance(layers[-1], nn.Tanh)
    assert [type(layer).__name__ for layer in layers] == ["ReLU", "Tanh"]
    table = nn.ModuleDict({"a": nn.ReLU()})
    table["b"] = nn.Tanh()
    assert list(table) == list(table.keys()) == ["a", "b"]
    assert len(table) == 2
    assert [type(module).__name__ for module in table.values()] == ["ReLU", "Tanh"]
    assert dict(table.items())["b"] is table["b"]
    assert nn.Sequential(nn.ReLU(), nn.Tanh())(lucid.tensor([-1.0, 0.0])).tolist() == [0, 0]


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.Sequential([nn.ReLU()]),  # type: ignore[arg-type]
        lambda: nn.ModuleList([nn.ReLU(), 3]),  # type: ignore[list-item]
        lambda: nn.ModuleDict({"a": max}),  # type: ignore[dict-item]
        lambda: nn.ModuleList().append(max),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_module_is_an_error(make: Any) -> None:
    with pytest.raises(TypeError, match=r"item \w+ is \w+, expected a module"):
        make()


# Saving and loading ---------------------------------------------------------------------------------------------------


def arrays(model: nn.Module) -> dict[str, Array]:
    return {key: tensor.numpy().copy() for key, tensor in model.state_dict().items()}


def test_a_state_goes_from_one_model_to_another() -> None:
    source, other = Model(), Model()
    other.load_state_dict(source.state_dict())
    x = lucid.randn(4, 2)
    np.testing.assert_array_equal(source(x).numpy(), other(x).numpy())


def test_a_state_goes_through_a_file(tmp_path: Any) -> None:
    source, other = Model(), Model()
    lucid.save(tmp_path / "model.safetensors", source.state_dict())
    other.load_state_dict(lucid.load(tmp_path / "model.safetensors"))
    x = lucid.randn(4, 2)
    np.testing.assert_array_equal(source(x).numpy(), other(x).numpy())


def test_loading_converts_to_the_models_types_and_does_not_copy_what_fits() -> None:
    layer = nn.Linear(2, 2)
    weight = np.ones((2, 2), np.float32)
    layer.load_state_dict({"weight": weight, "bias": np.array([1, 2], np.float64)})
    assert np.shares_memory(layer.weight.numpy(), weight)
    assert layer.bias is not None
    assert layer.bias.dtype is lucid.float32


def test_every_problem_is_listed_at_once_and_nothing_changes() -> None:
    model = Model()
    before = arrays(model)
    state = {key: array + 1 for key, array in before.items()}
    del state["scale"], state["more.0.weight"]
    state["first.weight"] = np.zeros((2, 3), np.float32)
    state["heads.a.bias"] = np.array([1j])
    state["extra.weight"] = np.zeros(1)
    with pytest.raises(StateError) as caught:
        model.load_state_dict(state)
    assert str(caught.value) == (
        "Model: nothing loaded; missing: more.0.weight, scale; unexpected: extra.weight; "
        "first.weight has shape [2, 3], expected [3, 2]; heads.a.bias has dtype complex128, expected real numbers"
    )
    assert isinstance(caught.value, KeyError)
    after = arrays(model)
    assert all(np.array_equal(before[key], after[key]) for key in before)


@pytest.mark.parametrize("count", [1, 3])
def test_another_number_of_layers_is_one_problem(count: int) -> None:
    def stack(layers: int) -> nn.Module:
        return nn.Sequential(*(nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 2)) for _ in range(layers)))

    model = nn.Sequential(nn.Linear(2, 2), stack(2))
    state = arrays(nn.Sequential(nn.Linear(2, 2), stack(count)))
    state["extra"] = np.zeros(1)
    with pytest.raises(StateError) as caught:
        model.load_state_dict(state)
    assert str(caught.value) == (
        f"Sequential: nothing loaded; 1: {count} given, expected 2, the number in the model, or in its config; "
        "unexpected: extra"
    )


def test_without_strict_keys_may_differ_but_shapes_may_not() -> None:
    layer = nn.Linear(2, 2)
    bias = np.array([5, 6], np.float32)
    keys = layer.load_state_dict({"bias": bias, "other": np.zeros(1)}, strict=False)
    assert keys.missing_keys == ["weight"] and keys.unexpected_keys == ["other"]
    assert layer.bias is not None
    assert layer.bias.tolist() == [5, 6]
    missing, unexpected = layer.load_state_dict(layer.state_dict())
    assert not missing and not unexpected
    with pytest.raises(StateError, match=r"bias has shape \[3\], expected \[2\]"):
        layer.load_state_dict({"bias": np.zeros(3, np.float32)}, strict=False)


# The two layouts of attention weights ---------------------------------------------------------------------------------


def separate(mha: nn.MultiHeadAttention, prefix: str = "") -> dict[str, Array]:
    """The state of an attention module in the layout with separate projections for query, key and value."""
    state: dict[str, Array] = {}
    kv = mha.embed_dim // mha.num_heads * mha.num_kv_heads
    bounds = [mha.embed_dim, mha.embed_dim + kv]
    for key, array in arrays(mha).items():
        if key.startswith("in_proj_"):
            kind = key.removeprefix("in_proj_")
            state |= {f"{p}_proj.{kind}": a for p, a in zip("qkv", np.split(array, bounds), strict=True)}
        else:
            state[key.replace("_proj_weight", "_proj.weight")] = array
    return {prefix + key: array for key, array in state.items()}


@pytest.mark.parametrize(
    "options",
    [{}, {"bias": False}, {"num_kv_heads": 1}, {"kdim": 3, "vdim": 5}, {"add_bias_kv": True}],
    ids=str,
)
def test_attention_loads_separate_projections(options: dict[str, Any]) -> None:
    source, other = nn.MultiHeadAttention(8, 2, **options), nn.MultiHeadAttention(8, 2, **options)
    init.uniform_(source.out_proj.weight)
    state = separate(source)
    assert "q_proj.weight" in state
    other.load_state_dict(state)
    after = arrays(other)
    assert all(np.array_equal(array, after[key]) for key, array in arrays(source).items())


def test_separate_projections_deep_inside_a_model() -> None:
    source, other = nn.MultiHeadAttention(8, 2), nn.Sequential(nn.Identity(), nn.MultiHeadAttention(8, 2))
    other.load_state_dict(separate(source, "1."))
    assert np.array_equal(arrays(other)["1.in_proj_weight"], arrays(source)["in_proj_weight"])


def test_separate_projections_of_wrong_shapes_are_an_error_even_where_their_sum_fits() -> None:
    mha = nn.Sequential(nn.MultiHeadAttention(8, 2))
    state = separate(mha[0], "0.")  # type: ignore[arg-type]
    state["0.q_proj.weight"], state["0.k_proj.weight"] = np.zeros((4, 8), np.float32), np.zeros((12, 8), np.float32)
    before = arrays(mha)
    for strict in (True, False):
        with pytest.raises(StateError, match=r"0: q_proj.weight has shape \[4, 8\], expected \[8, 8\]; k_proj.weight"):
            mha.load_state_dict(state, strict=strict)
    assert all(np.array_equal(before[key], array) for key, array in arrays(mha).items())


# Parameters -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["int8", "int64", "bool"])
def test_a_module_is_converted_to_floating_point_types_alone(dtype: Any) -> None:
    with pytest.raises(TypeError, match=f"to: got {dtype}, expected a floating-point type; for 4 or 8 bits see"):
        nn.Linear(4, 3).to(dtype)


def test_a_parameter_is_a_tensor() -> None:
    parameter = nn.Parameter([[1.0, 2.0]])
    assert parameter.dtype is lucid.float32
    assert (parameter * 2).tolist() == [[2, 4]]
    assert not isinstance(parameter * 2, nn.Parameter)
    parameter.assign(np.ones((1, 2), np.float16))
    assert parameter.dtype is lucid.float16
    with pytest.raises(ValueError, match=r"parameter: got shape \[3\], expected \[1, 2\]"):
        parameter.assign(np.ones(3))


@pytest.mark.parametrize(
    ("initialise", "std"),
    [
        (lambda p: init.uniform_(p, -2, 4), 6 / math.sqrt(12)),
        (lambda p: init.normal_(p, 1.0, 0.3), 0.3),
        (lambda p: init.xavier_uniform_(p, gain=2.0), 2 * math.sqrt(2 / 300)),
        (lambda p: init.xavier_normal_(p), math.sqrt(2 / 300)),
        (lambda p: init.kaiming_uniform_(p, a=math.sqrt(5)), 1 / math.sqrt(3 * 200)),
    ],
    ids=["uniform", "normal", "xavier_uniform", "xavier_normal", "kaiming_uniform"],
)
def test_initial_values_have_the_spread_of_their_formula(initialise: Any, std: float) -> None:
    parameter = nn.Parameter(np.zeros((100, 200), np.float32))
    assert initialise(parameter) is parameter
    assert parameter.dtype is lucid.float32
    assert parameter.numpy().std() == pytest.approx(std, rel=0.03)


def test_constants() -> None:
    parameter = nn.Parameter(np.zeros(3, np.float16))
    assert init.ones_(parameter).tolist() == [1, 1, 1]
    assert init.constant_(parameter, 2.5).tolist() == [2.5] * 3
    assert init.zeros_(parameter).tolist() == [0, 0, 0]
    assert parameter.dtype is lucid.float16


def test_a_vector_has_no_fans() -> None:
    with pytest.raises(ValueError, match=r"init: a parameter of shape \(3,\) has no fan in and out"):
        init.xavier_uniform_(nn.Parameter(np.zeros(3, np.float32)))


@pytest.mark.parametrize("initialise", [init.zeros_, init.normal_, init.xavier_uniform_])
@pytest.mark.parametrize("x", [lucid.ones(3, 3), np.ones((3, 3))], ids=["Tensor", "ndarray"])
def test_only_parameters_are_initialised(initialise: Any, x: Any) -> None:
    with pytest.raises(
        TypeError, match=rf"init: got {type(x).__name__}, expected a Parameter; write nn.Parameter\(x\)"
    ):
        initialise(x)


def test_values_of_other_shapes_are_refused() -> None:
    parameter = nn.Parameter(np.zeros((2, 3)))
    assert parameter.copy_(lucid.tensor([[1.0], [2.0]])).tolist() == [[1.0] * 3, [2.0] * 3]
    for values in (np.ones(2), np.ones((1, 2, 3))):
        with pytest.raises(ValueError, match=r"^parameter: got shape .*, expected \[2, 3\], or one that broadcasts"):
            parameter.copy_(values)
    with pytest.raises(TypeError, match=r"^parameter.data: got ndarray, expected a tensor; assign\(array\)"):
        parameter.data = np.ones((2, 3))  # type: ignore[assignment]
    with pytest.raises(ValueError, match=r"^init: got a parameter of shape \[3\], expected a matrix"):
        nn.init.eye_(nn.Parameter(np.zeros(3)))


def test_seeds_that_are_refused() -> None:
    with pytest.raises(ValueError, match="^manual_seed: seed is -1, expected 0 or more$"):
        lucid.manual_seed(-1)
    for seed in (None, True, 2.0, [1, 2]):  # NumPy would seed with entropy of the system, or with a list
        with pytest.raises(TypeError, match="^manual_seed: seed is .*, expected a whole number$"):
            lucid.manual_seed(seed)  # type: ignore[arg-type]


def test_the_same_seed_makes_the_same_model() -> None:
    lucid.manual_seed(3)
    first = arrays(Model())
    lucid.manual_seed(3)
    second = arrays(Model())
    assert all(np.array_equal(first[key], second[key]) for key in first)


# Text -----------------------------------------------------------------------------------------------------------------


def test_the_printed_module_shows_the_tree() -> None:
    model = nn.Sequential(
        nn.MultiHeadAttention(8, 4, num_kv_heads=2),
        nn.Sequential(nn.Linear(8, 16, bias=False), nn.GELU("tanh"), nn.Dropout(0.1)),
        nn.LayerNorm(8),
    )
    assert repr(model) == (
        "Sequential(\n"
        "  (0): MultiHeadAttention(embed_dim=8, num_heads=4, num_kv_heads=2\n"
        "    (out_proj): Linear(8, 8)\n"
        "  )\n"
        "  (1): Sequential(\n"
        "    (0): Linear(8, 16, bias=False)\n"
        "    (1): GELU(approximate='tanh')\n"
        "    (2): Dropout(p=0.1)\n"
        "  )\n"
        "  (2): LayerNorm(8, eps=1e-05)\n"
        ")"
    )


@pytest.mark.parametrize(
    ("module", "text"),
    [
        (nn.ReLU(), "ReLU()"),
        (nn.Embedding(10, 3), "Embedding(10, 3)"),
        (nn.RMSNorm(4), "RMSNorm(4, eps=None)"),
        (nn.Softmax(1), "Softmax(axis=1)"),
        (
            nn.ScaledDotProductAttention(is_causal=True),
            "ScaledDotProductAttention(dropout_p=0.0, is_causal=True, scale=None)",
        ),
    ],
)
def test_printed_layers(module: nn.Module, text: str) -> None:
    assert repr(module) == text
