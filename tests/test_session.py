"""Sessions: exported models in onnxruntime, only on the providers that were asked for."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from importlib import metadata, util
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import onnxruntime
import pytest
from onnx import TensorProto, helper

import lucid
from lucid import Tensor, nn
from lucid.core.sizes.bounds import Bound
from lucid.core.sizes.dims import dim
from lucid.export import to_onnx
from lucid.runtime import ModelError, Session, providers
from lucid.runtime.ort_values import numpy_of, ort_value
from lucid.runtime.providers import ProviderError


@pytest.fixture(scope="module")
def mha() -> nn.MultiHeadAttention:
    return nn.MultiHeadAttention(8, 2)


@pytest.fixture(scope="module")
def session(mha: nn.MultiHeadAttention) -> Session:
    return Session(to_onnx(mha))


# Running --------------------------------------------------------------------------------------------------------------


def test_a_call_takes_tensors_or_arrays_by_position_or_name(mha: nn.MultiHeadAttention, session: Session) -> None:
    query, key = lucid.randn(2, 3, 8), lucid.randn(2, 4, 8)
    expected = mha(query, key, key).numpy()
    for result in (
        session(query, key, key),
        session(query.numpy(), key.numpy(), key.numpy()),
        session(query, value=key, key=key),
        session(query=query, key=key.numpy(), value=key),
    ):
        assert isinstance(result, Tensor)
        np.testing.assert_allclose(result.numpy(), expected, rtol=1e-5, atol=2e-6)


def test_run_maps_names_to_arrays(mha: nn.MultiHeadAttention, session: Session) -> None:
    x = lucid.randn(2, 3, 8)
    results = session.run({"value": x.numpy(), "key": x.numpy(), "query": x})
    assert list(results) == ["output"]
    assert isinstance(results["output"], np.ndarray)
    np.testing.assert_allclose(results["output"], mha(x).numpy(), rtol=1e-5, atol=2e-6)


def test_several_outputs_come_as_a_tuple_of_tensors() -> None:
    outputs = Session(to_onnx(lambda x: (x + 1, x.sum(1)), ("N", 2)))(lucid.zeros(1, 2))
    assert isinstance(outputs, tuple)
    assert [output.tolist() for output in outputs] == [[[1, 1]], [0]]


def test_a_session_knows_its_inputs_and_outputs(session: Session) -> None:
    assert session.inputs == {
        "query": (lucid.float32, ("N", "L", 8)),
        "key": (lucid.float32, ("N", "S", 8)),
        "value": (lucid.float32, ("N", "S", 8)),
    }
    assert session.outputs == {"output": (lucid.float32, ("N", "L", 8))}


def test_a_model_its_bytes_and_its_file_are_the_same(tmp_path: Path) -> None:
    model = nn.Linear(2, 2)
    exported = to_onnx(model, path=tmp_path / "model.onnx")
    x = lucid.randn(3, 2)
    for source in (exported, exported.SerializeToString(), tmp_path / "model.onnx", str(tmp_path / "model.onnx")):
        np.testing.assert_allclose(Session(source)(x).numpy(), model(x).numpy(), rtol=1e-6)


@pytest.mark.parametrize(
    "dtype", ["float32", "float64", "float16", "bfloat16", "int8", "uint8", "int32", "int64", "bool"]
)
def test_every_element_type_goes_in_and_out(dtype: str) -> None:
    session = Session(to_onnx(lambda x: x.reshape(-1), lucid.spec("N", 3, dtype=dtype)))
    x = (lucid.randn(2, 3) * 3 + 10).astype(dtype)
    result = session(x)
    assert result.dtype.name == dtype
    assert result.tolist() == x.reshape(-1).tolist()
    assert session(x[:0]).shape == (0,)


def test_options_do_not_change_results(mha: nn.MultiHeadAttention) -> None:
    exported = to_onnx(mha)
    x = lucid.randn(2, 3, 8)
    spinning = [{"spinning": True}, {"spinning": False}]
    for options in ({"threads": 1}, *spinning, {"memory_arena": False}, {"optimize": False}):
        np.testing.assert_allclose(Session(exported, **options)(x, x, x).numpy(), mha(x).numpy(), rtol=1e-5, atol=2e-6)  # type: ignore[arg-type]


def test_threads_may_share_a_session(mha: nn.MultiHeadAttention, session: Session) -> None:
    def run(n: int) -> None:
        x = inputs[n]
        results[n] = session(x, x, x).numpy()

    inputs = {n: lucid.randn(n, 3, 8) for n in range(1, 9)}
    results: dict[int, Any] = {}
    threads = [threading.Thread(target=run, args=(n,)) for n in inputs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for n, x in inputs.items():
        np.testing.assert_allclose(results[n], mha(x).numpy(), rtol=1e-5, atol=2e-6)


# Wrong inputs ---------------------------------------------------------------------------------------------------------

x = np.zeros((2, 3, 8), np.float32)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda s: s(x), KeyError, "inputs missing: key, value; unknown: none; the model takes query, key, value"),
        (lambda s: s.run({f"x{n}": x for n in range(40)}), KeyError, "unknown: x0, .*, and 31 more; the model takes"),
        (lambda s: s(x, x, valu=x), KeyError, "inputs missing: value; unknown: valu"),
        (lambda s: s.run({"query": x, "key": x, "value": x, "mask": x}), KeyError, "unknown: mask"),
        (lambda s: s(x, x, x, x), TypeError, r"got 4 inputs, expected 3 \(query, key, value\)"),
        (lambda s: s(x, x, query=x), TypeError, "input query is given both by position and by name"),
        (
            lambda s: s(x, x, x.astype("float64")),
            TypeError,
            "input value has dtype float64, expected float32; use .astype",
        ),
        (lambda s: s(x, x, x[..., :7]), ValueError, r"input value has shape \[2, 3, 7\], expected \[N, S, 8\]"),
        (lambda s: s(x, x, x[0]), ValueError, r"input value has shape \[3, 8\], expected \[N, S, 8\]"),
        (lambda s: s(x, x[:, :2], x), ValueError, "input value has size 3 at axis 1, expected S = 2, as in key axis 1"),
        (lambda s: s(x[:1], x, x), ValueError, "input key has size 2 at axis 0, expected N = 1, as in query axis 0"),
    ],
)
def test_wrong_inputs_are_errors(
    session: Session, call: Callable[[Session], Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        call(session)


@pytest.mark.parametrize(("text", "fits", "does_not"), [("3*L", 6, 5), ("2*L + 1", 7, 6)])
def test_a_size_that_is_a_multiple_must_be_one(text: str, fits: int, does_not: int) -> None:
    """onnxruntime would compute what a graph for other sizes gives, or fail in some node."""
    session = Session(to_onnx(nn.ReLU(), (text,)))
    (name,) = session.inputs
    assert session.run({name: np.ones(fits, np.float32)})["output"].shape == (fits,)
    message = re.escape(f"input {name} axis 0 has size {does_not}, expected {text}, with a whole number L of 0 or more")
    with pytest.raises(ValueError, match=message):
        session.run({name: np.ones(does_not, np.float32)})


def test_a_size_that_is_read_from_a_multiple_is_one_value_within_its_bounds() -> None:
    """As of an imported module that branches by a size: its graph is right on one side of the bound alone."""
    graph = lucid.trace(lambda x, y: (x + 1, y + 1), ("3*L",), ("L + 1",))
    session = Session(
        to_onnx(
            graph.with_outputs(
                dict(zip(graph.output_names, graph.outputs, strict=True)), bounds=[Bound(dim("3*L"), 0, 12)]
            )
        )
    )

    def run(x: int, y: int) -> Any:
        return session.run({"x": np.ones(x, np.float32), "y": np.ones(y, np.float32)})

    assert run(12, 5)
    with pytest.raises(ValueError, match=r"Session: 3\*L is 15, expected at most 12: for others, the model may"):
        run(15, 6)
    with pytest.raises(ValueError, match=r"input y axis 0 has size 4, expected L \+ 1 with L = 4, as in x axis 0"):
        run(12, 4)


def test_a_sum_in_the_size_of_another_exporter_is_a_name_like_others() -> None:
    """As in decoders of older optimum, where the mask of a prompt has not one element more than the empty cache."""
    sizes = {"mask": ["past_length + 1"], "past": ["past_length"]}
    nodes = [helper.make_node("Identity", [name], [f"{name}_out"]) for name in sizes]
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in sizes.items()]
    outputs = [helper.make_tensor_value_info(node.output[0], TensorProto.FLOAT, None) for node in nodes]
    graph = helper.make_graph(nodes, "decoder", inputs, outputs)
    session = Session(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9))
    results = session.run({"mask": np.ones(5, np.float32), "past": np.ones(0, np.float32)})
    assert [value.shape for value in results.values()] == [(5,), (0,)]


@pytest.mark.parametrize("threads", [0, -1, True, 1.5])
def test_a_wrong_number_of_threads_is_an_error(threads: Any) -> None:
    with pytest.raises(ValueError, match="Session: threads is"):
        Session(to_onnx(nn.Linear(2, 2)), threads=threads)


def test_bytes_that_are_no_model_are_an_error() -> None:
    with pytest.raises(ModelError, match="Session: the bytes are not an ONNX model"):
        Session(b"no model")


def test_bytes_with_a_damaged_name_are_an_error() -> None:
    model = to_onnx(nn.Linear(2, 2), ("N", 2), input_names=["number"]).SerializeToString()
    with pytest.raises(ModelError, match=r"Session: a name is not text in UTF-8: .*umber.*; get an intact copy"):
        Session(model.replace(b"number", b"\xffumber"))


def test_what_cannot_be_a_model_is_an_error() -> None:
    with pytest.raises(TypeError, match=r"Session: the model has type int, expected an onnx\.ModelProto"):
        Session(42)  # type: ignore[arg-type]


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there is no file"):
        Session(tmp_path / "missing.onnx")


def test_a_model_without_its_weights_is_an_error_that_says_where_they_are(tmp_path: Path) -> None:
    exported = to_onnx(nn.Linear(32, 32), path=tmp_path / "model.onnx", external_data=True)
    with pytest.raises(ValueError, match=r"weights are in a side file; give the path of the \.onnx file"):
        Session(exported)


# Providers ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["cpu", "CPU", "CPUExecutionProvider", ["cpu"], ["cpu", "CPUExecutionProvider"], None])
def test_providers_by_short_and_full_name(name: Any) -> None:
    assert Session(to_onnx(nn.Linear(2, 2)), name).providers == ("CPUExecutionProvider",)


def test_every_node_is_placed(session: Session) -> None:
    placement = session.placement()
    assert "attention/Attention" in placement
    assert set(placement.values()) == {"CPUExecutionProvider"}
    assert session.elsewhere() == {}


def test_a_provider_may_have_options_of_onnxruntime(monkeypatch: pytest.MonkeyPatch) -> None:
    passed = []

    class Recorded(onnxruntime.InferenceSession):
        def __init__(self, source: Any, options: Any, providers: Any) -> None:
            passed.extend(providers)
            super().__init__(source, options, providers)

    monkeypatch.setattr(onnxruntime, "InferenceSession", Recorded)
    session = Session(to_onnx(nn.Linear(2, 2)), [providers.REMOTE, ("cpu", {})])
    assert session.providers == (providers.REMOTE, "CPUExecutionProvider")
    Session(to_onnx(nn.Linear(2, 2)), [(providers.REMOTE, {"anything": 3})])
    assert passed[2:] == [(providers.REMOTE, {"anything": "3"})]


def test_an_option_that_the_cpu_s_provider_would_ignore_is_an_error() -> None:
    with pytest.raises(ValueError, match="CPUExecutionProvider has no option use_arena, .* memory_arena"):
        Session(to_onnx(nn.Linear(2, 2)), [("cpu", {"use_arena": 0})])


def test_an_empty_input_that_onnxruntime_does_not_compute_is_an_error_that_names_it(session: Session) -> None:
    full, empty = np.zeros((2, 3, 8), np.float32), np.zeros((2, 0, 8), np.float32)
    with pytest.raises(ValueError, match=r"input key has S = 0 at axis 1, .* attention=\"expanded\"") as raised:
        session(full, empty, empty)
    assert "greater than 0" in str(raised.value.__cause__)


@pytest.mark.parametrize("provider", [3, ("cpu",), ("cpu", 3)], ids=str)
def test_what_names_no_provider_is_an_error(provider: Any) -> None:
    with pytest.raises(TypeError, match='expected a name such as "cpu", or a pair of a name and a mapping'):
        Session(to_onnx(nn.Linear(2, 2)), [provider])


def test_a_provider_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(
        ProviderError, match="provider 'cud' does not exist; available here: cpu.*; did you mean cuda.$"
    ):
        Session(to_onnx(nn.Linear(2, 2)), "cud")
    with pytest.raises(ProviderError, match="provider 'GPU' does not exist; .*; did you mean cuda.$"):
        Session(to_onnx(nn.Linear(2, 2)), "GPU")
    with pytest.raises(ProviderError, match="provider 'tpu' does not exist; available here: cpu"):
        Session(to_onnx(nn.Linear(2, 2)), "tpu")


def test_no_provider_at_all_is_an_error() -> None:
    with pytest.raises(ProviderError, match="providers is empty; name at least one"):
        Session(to_onnx(nn.Linear(2, 2)), [])


def test_a_provider_that_is_not_installed_is_an_error_never_a_silent_cpu_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(providers, "available", lambda: ["CPUExecutionProvider"])
    with pytest.raises(
        ProviderError, match=r"CUDAExecutionProvider is not in the installed .*pip install onnxruntime-gpu"
    ):
        Session(to_onnx(nn.Linear(2, 2)), ["cuda", "cpu"])


def test_a_provider_that_does_not_start_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnxruntime.InferenceSession, "get_providers", lambda self: ["AnotherExecutionProvider"])
    with pytest.raises(ProviderError, match="CPUExecutionProvider did not start: "):
        Session(to_onnx(nn.Linear(2, 2)), "cpu")


def test_a_wheel_without_webgpu_takes_a_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for the plugin and its device: onnxruntime finds no GPU here."""
    monkeypatch.setattr(providers, "plugin_devices", tuple)
    with pytest.raises(ProviderError, match="which has .*: pip install onnxruntime-ep-webgpu, its plugin for GPUs"):
        Session(to_onnx(nn.Linear(2, 2)), "webgpu")
    monkeypatch.setattr(providers, "_installed", lambda name: name.endswith("ep-webgpu"))
    with pytest.raises(ProviderError, match="its plugin onnxruntime-ep-webgpu found no GPU; check its driver"):
        Session(to_onnx(nn.Linear(2, 2)), "webgpu")
    (cpu,) = (device for device in onnxruntime.get_ep_devices() if device.ep_name == "CPUExecutionProvider")
    monkeypatch.setattr(providers, "plugin_devices", lambda: (cpu,))
    options = onnxruntime.SessionOptions()
    assert providers.register(options, {"WebGpuExecutionProvider": {}}) is None
    assert options.has_providers()
    assert providers.register(options, {"CPUExecutionProvider": {}}) == [("CPUExecutionProvider", {})]
    with pytest.raises(ProviderError, match="comes first and goes with cpu only; got .*'CPU.*, 'WebGpu"):
        Session(to_onnx(nn.Linear(2, 2)), ["cpu", "webgpu"])


def test_two_wheels_at_once_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "version", lambda name: "1.28.0")
    with pytest.raises(ProviderError, match="installed together and overwrite each other's files: pip uninstall -y"):
        providers.check_installation()


def test_no_wheel_at_all_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    monkeypatch.setattr(util, "find_spec", lambda name: None)
    with pytest.raises(
        ProviderError, match="onnxruntime is not installed: pip install onnxruntime, or onnxruntime-gpu"
    ):
        providers.check_installation()


# Bound memory ---------------------------------------------------------------------------------------------------------


def test_a_bound_session_reads_and_writes_arrays_where_they_are() -> None:
    x, y = np.zeros((1, 3), np.float32), np.zeros((1, 3), np.float32)
    session = Session(to_onnx(lambda x: x + 1, ("N", 3)))
    bound = session.bind({"x": ort_value(x)}, {"output": ort_value(y)})
    for value in (1, 5):
        x[:] = value
        bound.run()
        assert y.tolist() == [[value + 1] * 3]
    assert numpy_of(bound.outputs()["output"]).tolist() == y.tolist()
    with pytest.raises(ValueError, match=r"input x has shape \[1, 4\], expected \[N, 3\]"):
        session.bind({"x": ort_value(np.zeros((1, 4), np.float32))}, {"output": "cpu"})


def test_a_session_shows_what_it_takes_and_gives_and_where_it_runs():
    session = lucid.runtime.Session(lucid.export.to_onnx(lucid.nn.Linear(3, 2), ("N", 3)))
    assert repr(session) == "Session(x: float32[N, 3]) -> (output: float32[N, 2]) on CPUExecutionProvider"
    texts = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 20]> g (string[N] text) => (string[N] output) {output = Identity(text)}'
    )
    expected = "Session(text: string[N]) -> (output: string[N]) on CPUExecutionProvider"
    assert repr(Session(texts.SerializeToString())) == expected
