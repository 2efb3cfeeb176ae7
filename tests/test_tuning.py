"""The form of a node that is fastest where it will run: measured, kept in a table, taken from it, and told.

What measures is a function of the tests, so nothing here depends on how fast the machine is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lucid
from lucid import nn, ops
from lucid.core.words.phases import listening
from lucid.export import ExportError, Target, explain, to_onnx
from lucid.inspection.tuning import TunedForm, TunedTable, TunedTableError, Tuning, in_turns, tune
from lucid.inspection.tuning.candidates import contests
from lucid.inspection.tuning.tuning import fastest
from lucid.testing import assert_parity
from tests.console import in_process

Calls = Mapping[str, Callable[[], object]]
NODE, BLOCKS, PRODUCTS, BODY = "ai.onnx Attention", "query blocks", "products, on all threads", "expanded"
IF_LONG = "products if long, on all threads"
AT = {"N": 1, "L": 40}
SPECS = [lucid.spec("N", 2, "L", 8)] * 3


def causal(query: Any, key: Any, value: Any) -> Any:
    return ops.attention(query, key, value, is_causal=True)


def times(*seconds: Mapping[str, float]) -> Callable[[Calls, float], dict[str, float]]:
    """Measures what is given, one after the other; every call runs once."""
    given = iter(seconds)

    def measure(calls: Calls, _: float) -> dict[str, float]:
        for call in calls.values():
            call()
        found = next(given)
        return {name: found.get(name, 1000.0) for name in calls}

    return measure


def tuned(model: Any, specs: Sequence[Any], measure: Any, sizes: Any = AT, target: str = "cpu") -> TunedTable:
    return Tuning(sizes, threads=1, measure=measure)(lucid.trace(model, *specs), Target(target))


def taken(table: TunedTable, **target: Any) -> str:
    (decision,) = explain(causal, *SPECS, target=Target("cpu", tuned=table, **target)).attention
    return decision.taken


# What is measured -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [NODE, BLOCKS, PRODUCTS, IF_LONG, BODY])
def test_the_fastest_form_is_taken_and_computes_the_same(name: str) -> None:
    table = tuned(causal, SPECS, times({name: 0.001}))
    (form,) = table.forms
    assert (form.form, form.default) == (name, BLOCKS)
    assert set(form.microseconds) == {BLOCKS, NODE, PRODUCTS, IF_LONG, BODY}, "all that compute it exactly"
    assert taken(table) == name
    assert_parity(causal, *SPECS, target=Target("cpu", tuned=table), sizes=[AT], providers=["cpu"])


def test_sizes_count_alike_and_the_default_is_kept_unless_another_is_clearly_faster() -> None:
    assert fastest({BLOCKS: [0.2, 20], NODE: [0.1, 30]}, default=BLOCKS) == NODE, "2 + 1 is more than 1 + 1.5"
    assert fastest({BLOCKS: [0.2, 20], NODE: [0.1, 60]}, default=BLOCKS) == BLOCKS
    assert fastest({BLOCKS: [100], NODE: [96]}, default=BLOCKS) == BLOCKS
    assert fastest({BLOCKS: [100], NODE: [94]}, default=BLOCKS) == NODE


def test_each_distinct_node_is_measured_once_with_what_it_may_be_fused_with() -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            self.attention, self.norm = nn.MultiHeadAttention(16, 2), nn.LayerNorm(16)

        def forward(self, x: Any) -> Any:
            return self.norm(x + self.attention(x, x, x))

    model = nn.Sequential(Block(), Block(), nn.LayerNorm(16), nn.RMSNorm(16))
    keys = [node.key for node in contests(lucid.trace(model, lucid.spec("N", "L", 16)), Target("cpu"))]
    x, weight = "float32[N, L, 16]", "constant float32[16]"
    assert keys == [
        f"attention({x}, {x}, {x}; heads=2, kv_heads=2)",
        f"layer_norm(add({x}, {x}), {weight}, {weight})",
        f"layer_norm({x}, {weight}, {weight})",
        f"rms_norm({x}, {weight}; eps=1.19209e-07)",
    ]


def test_a_node_whose_operands_do_not_tell_its_sizes_is_measured_all_the_same() -> None:
    def rows(x: Any) -> Any:
        return ops.rms_norm(x.reshape(x.shape[0] * x.shape[1], 8), x[0, 0])

    (form,) = tuned(rows, [lucid.spec("N", "L", 8)], times({BODY: 0.1})).forms
    assert form.node.startswith("rms_norm(float32[L*N, 8]")
    assert (form.form, list(form.sizes)) == (BODY, [{"N": 1, "L": 40}])


def test_products_in_few_bits_are_not_unpacked_for_their_speed() -> None:
    layer = lucid.quantize(nn.Linear(32, 32), bits=4, block=32)
    (form,) = tuned(layer, [lucid.spec("N", 32)], times({}), {"N": 4}).forms
    assert set(form.microseconds) == {"com.microsoft MatMulNBits", "ai.onnx DequantizeLinear, MatMul"}


def test_on_this_machine() -> None:
    told: list[str] = []

    class Listener:
        def __call__(self, name: str, total: int | None, unit: str) -> Any:
            told.append(name)
            return nullcontext(lambda done: None)

    norm = nn.RMSNorm(8)
    with listening(Listener()):
        table = tune(norm, lucid.spec("N", 8), sizes={"N": 3}, threads=1, seconds=0.001)
    assert "measuring forms" in told
    (form,) = table.forms
    assert table.threads == 1 and table.processor and table.onnxruntime.startswith("1.")
    assert all(time > 0 for (time,) in form.microseconds.values())
    model = to_onnx(norm, lucid.spec("N", 8), target="cpu", tune=Tuning({"N": 3}, measure=times({BODY: 0.1})))
    assert "RMSNormalization" not in {node.op_type for node in model.graph.node}


def test_calls_take_turns_and_a_slow_one_is_not_run_again_when_the_time_is_over() -> None:
    now, order = [0.0], []

    def call(name: str, *seconds: float) -> Callable[[], None]:
        taking = iter(seconds)

        def run() -> None:
            order.append(name)
            now[0] += next(taking, seconds[-1])

        return run

    def order_of(seconds: float) -> str:
        order.clear()
        calls = {"a": call("a", 9, 9, 3, 2, 1), "slow": call("slow", 8)}
        assert in_turns(calls, seconds, lambda: now[0]) == {"a": 1, "slow": 8}
        return "".join(name[0] for name in order)

    assert order_of(45.0) == "aass" + "as" * 5, "warmed up, then in turns"
    assert order_of(10.0) == "aass" + "as" + "aaaa", "the time is over after a round"


# What a table does ----------------------------------------------------------------------------------------------------

TABLE = TunedTable(
    "cpu",
    (
        TunedForm(
            "attention(float32[N, 2, L, 8], float32[N, 2, L, 8], float32[N, 2, L, 8]; is_causal=True)",
            NODE,
            BLOCKS,
            ({"N": 1, "L": 16}, {"N": 1, "L": 512}),
            {BLOCKS: (30.25, 2400.0), NODE: (20.0, 2000.0)},
        ),
    ),
    threads=2,
)


def test_explain_shows_the_figures() -> None:
    told = explain(causal, *SPECS, target=Target("cpu", tuned=TABLE))
    assert re.sub(r"(?<=on )\S.*(?=, onnx)|(?<=onnxruntime )1[\d.]+\d", "...", str(told)) == (
        "target cpu, opset 23, onnxruntime >= 1.28\n"
        "tuned on ..., onnxruntime ..., 2 threads\n"
        "1 of the 1 nodes in the table are here\n"
        "attention  ai.onnx Attention: 1 node\n"
        "           measured  N=1, L=16: ai.onnx Attention 20 µs, query blocks 30.2 µs\n"
        "           measured  N=1, L=512: ai.onnx Attention 2 ms, query blocks 2.4 ms"
    )
    assert "query blocks 2.4 ms" in told._repr_html_()


def test_a_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    for table in (TunedTable("cpu", (TunedForm("a node", NODE, BLOCKS),)), TABLE):
        table.save(tmp_path / "table.json")
        assert Target("cpu", tuned=tmp_path / "table.json").tuned == table
    assert taken(TABLE) == NODE


def test_a_table_of_another_machine_is_used_with_a_note() -> None:
    other = replace(TABLE, processor="Z80", onnxruntime="1.25.0", lucid="0.0.1", threads=None)
    target, *notes = explain(causal, *SPECS, target=Target("cpu", tuned=other)).tuned
    assert target == "tuned on Z80, onnxruntime 1.25.0, default threads"
    assert [note.split(" is ")[0] for note in notes[:2]] == [
        "note: the processor of this machine",
        "note: the onnxruntime installed here",
    ]
    assert notes[2] == f"note: the table was made by lucid 0.0.1; this is {lucid.__version__}"
    assert taken(other) == NODE


def test_text_of_a_table_stays_in_its_line() -> None:
    told = replace(TABLE, processor="X\nok    parity", onnxruntime="1\x1b[2J").about()
    assert told[0].startswith("tuned on X\\nok    parity, onnxruntime 1\\x1b[2J, ")


def test_figures_are_one_for_each_of_the_sizes() -> None:
    for figures in ((1.0, 2.0), (), (float("nan"),), (-1.0,)):
        with pytest.raises(ValueError, match="TunedForm: the times of 'query blocks' are .*, expected 1, one for each"):
            TunedForm("a node", BLOCKS, BLOCKS, (AT,), {BLOCKS: figures})


def test_a_form_that_is_too_slow_by_default_is_measured_and_taken() -> None:
    """At so many queries the node is the faster one on average, which says nothing of one processor."""
    short = [lucid.spec(1, 2, 20, 8)] * 3
    table = tuned(causal, short, times({BLOCKS: 0.001}), sizes=())
    assert (table.forms[0].form, table.forms[0].default) == (BLOCKS, NODE)
    assert_parity(causal, *short, target=Target("cpu", tuned=table), providers=["cpu"])
    assert explain(causal, *short, target=Target("cpu", tuned=table)).attention[0].taken == BLOCKS
    single = tuned(causal, [lucid.spec(1, 2, 1, 8)] * 3, times({NODE: 0.001}), sizes=())
    assert BLOCKS not in single.forms[0].microseconds


def test_what_does_not_fit_is_left_to_the_default() -> None:
    def with_form(name: str) -> TunedTable:
        return replace(TABLE, forms=(replace(TABLE.forms[0], form=name),))

    def decided(name: str, **target: Any) -> Any:
        return explain(causal, *SPECS, target=Target("cpu", tuned=with_form(name), **target)).attention[0]

    assert decided("ai.onnx FlashAttention").taken == BLOCKS
    unknown = ("ai.onnx FlashAttention", "measured with another release: this one has no such form")
    assert decided("ai.onnx FlashAttention").refused[0] == unknown
    assert decided("three products").taken == BLOCKS, "which refuses causality"
    assert decided("three products").measured == ()
    assert decided(NODE, attention="expanded").taken == BODY, "what the user insists on comes first"


# Bad input ------------------------------------------------------------------------------------------------------------

HELD: dict[str, Any] = json.loads(json.dumps(TABLE.data()))


def changed(**fields: Any) -> dict[str, Any]:
    return {**HELD, "forms": [{**HELD["forms"][0], **fields}]}


@pytest.mark.parametrize(
    ("held", "message"),
    [
        (None, "the file is null, expected an object"),
        ([], "the file is a list, expected an object"),
        ({}, "schema is missing"),
        ({**HELD, "schema": 2}, "schema is 2, this release of Lucid reads 1; measure again with lucid tune"),
        ({**HELD, "schema": True}, "schema is true or false, expected a whole number"),
        ({**HELD, "threads": 0}, "threads is 0, expected 1 or more"),
        ({**HELD, "processor": 5}, "processor is a whole number, expected text"),
        ({**HELD, "forms": {}}, "forms is an object, expected a list"),
        ({**HELD, "forms": ["x"]}, r"forms\[0\] is text, expected an object"),
        (changed(node=None), r"forms\[0\].node is null, expected text"),
        (changed(form="x"), r"forms\[0\].form is 'x', expected one of query blocks, ai.onnx Attention"),
        (changed(default="x"), r"forms\[0\].default is 'x', expected one of"),
        (changed(sizes=[{"N": -1}]), r"forms\[0\].sizes\[0\].N is -1, expected 1 or more"),
        (changed(microseconds={NODE: [1.0]}), r"microseconds.ai.onnx Attention is \[1.0\], expected 2 times, one for"),
        (changed(microseconds={NODE: [1.0, float("nan")]}), r"is \[1.0, nan\], expected 2 times"),
        (changed(microseconds={NODE: [1.0, "2"]}), r"is \[1.0, '2'\], expected 2 times"),
        (changed(microseconds={NODE: [1.0, 10**400]}), r"is \[1.0, 1000.*, expected 2 times"),
        ({**HELD, "target": "tpu"}, "target is 'tpu', expected one of any, cpu, "),
        ({**HELD, "forms": HELD["forms"] * 2}, r"forms\[1\].node is that of forms\[0\], expected each node once"),
    ],
)
def test_a_corrupt_file_is_an_error_that_names_the_field(held: Any, message: str, tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    path.write_text(json.dumps(held))
    with pytest.raises(TunedTableError, match=f"^{re.escape(str(path))}: .*{message}"):
        Target("cpu", tuned=path)


@pytest.mark.parametrize("text", [b"", b"\xff", b'{"schema": 1', b"[" * 100_000, b'{"schema": ' + b"9" * 5000 + b"}"])
def test_what_is_not_json_is_an_error(text: bytes, tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    path.write_bytes(text)
    with pytest.raises(TunedTableError, match="is not JSON .*, expected a table that lucid tune wrote"):
        Target("cpu", tuned=path)
    with pytest.raises(FileNotFoundError, match="there is no file"):
        Target("cpu", tuned=tmp_path / "none.json")
    with pytest.raises(TunedTableError, match="folder"):
        Target("cpu", tuned=tmp_path)


def test_a_table_of_something_else_is_an_error() -> None:
    with pytest.raises(ExportError, match="of another model, or was measured with other inputs: none of its 1 nodes"):
        to_onnx(nn.RMSNorm(8), ("N", 8), target=Target("cpu", tuned=TABLE))
    with pytest.raises(ExportError, match='tuned for target "cpu", this export is for "any"'):
        Target("any", tuned=TABLE)
    with pytest.raises(ExportError, match="tune is .*, expected a lucid.inspection.tuning.Tuning, such as"):
        to_onnx(causal, *SPECS, tune=AT)  # type: ignore[arg-type]  # the sizes alone
    with pytest.raises(
        ExportError, match="tune gave None, expected the lucid.inspection.tuning.TunedTable of a Tuning"
    ):
        to_onnx(causal, *SPECS, tune=lambda graph, target: None)  # type: ignore[arg-type,return-value]
    for given in ({"schema": 1}, [], 5, b"table.json"):
        with pytest.raises(
            ExportError, match=r"tuned is .*, expected a lucid.inspection.tuning.TunedTable, or the path of one"
        ):
            Target("cpu", tuned=given)  # type: ignore[arg-type]
    with pytest.raises(ExportError, match="got both tune= and a target with tuned="):
        to_onnx(causal, *SPECS, target=Target("cpu", tuned=TABLE), tune=Tuning(AT))


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ((), "the model has the sizes L, N: say at which values it will run"),
        ({"N": 1}, "unknown: none; missing: L; the model's sizes are L, N"),
        ([AT, {"N": 1, "L": 2, "S": 3}], "unknown: S; missing: none"),
        ({"N": 1, "L": 0}, "size L is 0, expected a whole number of 1 or more"),
        ({"N": 1, "L": 1 << 40}, r"at N=1, L=1099511627776 attention\(.* has an array of .*: choose other sizes"),
        ("N=3", "sizes is 'N=3', expected the values of all symbolic sizes, such as"),
        ([("N", 3)], "sizes is .*, expected the values of all"),
        (5, "sizes is 5, expected the values of all"),
        ({1: 3}, "sizes is {1: 3}, expected the values of all"),
    ],
)
def test_sizes_that_do_not_fit_are_an_error(sizes: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tuned(causal, SPECS, times(), sizes)


def test_a_size_at_which_a_node_computes_nothing_is_an_error() -> None:
    cut = lambda x: nn.functional.gelu(x[:, 5:])  # noqa: E731
    with pytest.raises(ValueError, match=r"tune: at L=3, N=1 gelu.* has an array of \[1, -2\]: choose other sizes"):
        tuned(cut, [lucid.spec("N", "L")], times(), {"L": 3, "N": 1})


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf"), True, "1", None])
def test_seconds_are_a_number(seconds: Any) -> None:
    with pytest.raises(ValueError, match="Tuning: seconds is .*, expected a number of 0 to 86400"):
        Tuning(AT, seconds=seconds)


@pytest.mark.parametrize("threads", [0, -1, 2.5, "x", True, 1 << 31])
def test_threads_are_a_number_that_sessions_take(threads: Any) -> None:
    with pytest.raises(ValueError, match="Tuning: threads is .*, expected a whole number of 1 to 4096"):
        Tuning(AT, threads=threads)


def test_numbers_may_be_numpys_and_sizes_a_generator() -> None:
    table = tuned(causal, SPECS, times({}), ({"N": np.int64(1), "L": np.int64(n)} for n in (40,)))
    assert json.dumps(table.data()) and table.forms[0].sizes == (AT,)
    assert Target("cpu", lengths=(np.int64(1), np.int64(5))).lengths == (1, 5)  # type: ignore[arg-type]


@pytest.mark.parametrize("target", ["cuda", "webgpu"])
def test_forms_of_a_device_are_not_measured(target: str) -> None:
    with pytest.raises(ValueError, match=f'target "{target}" computes on a device, expected one for a processor'):
        tuned(causal, SPECS, times(), target=target)


# The command ----------------------------------------------------------------------------------------------------------

NORM = ["nn.RMSNorm", "--set", "normalized_shape=8", "-i", "x:N,8"]


def test_the_command_writes_a_table_that_export_and_report_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def lucid_(*arguments: str, code: int = 0) -> str:
        assert in_process(arguments, monkeypatch, tmp_path) == code
        return "".join(capsys.readouterr())

    measure = ["tune", *NORM, "--size", "N=3", "--seconds", "0", "-o", "t.json"]
    said = lucid_(*measure)
    assert "measured  N=3: " in said and "of 1 nodes take another form than by default" in said and "t.json" in said
    held = json.loads(lucid_(*measure, "--threads", "1", "--json"))
    assert (held["target"], held["threads"], len(held["forms"])) == ("cpu", 1, 1)
    exported = json.loads(lucid_("export", *NORM, "--tuned", "t.json", "-o", "n.onnx", "--json"))
    assert exported["tuned"][0].startswith("tuned on ") and exported["parity"]["passed"]
    assert "ok " in lucid_("verify", *NORM, "n.onnx", "--tuned", "t.json", "--size", "N=2")
    report = ["report", *NORM, "--tuned", "t.json", "-o", "r.html", "--seconds", "0.01"]
    lucid_(*report, "-t", "cpu")
    assert "tuned on " in (tmp_path / "r.html").read_text(encoding="utf-8")
    assert 'forms were tuned for target "cpu", expected one of any' in lucid_(*report, "-t", "any", code=1)
    assert 'tuned for target "cpu", this export is for "any"' in lucid_(
        "export", *NORM, "--tuned", "t.json", "-t", "any", "-o", "n.onnx", code=1
    )
    assert "say at which N the model will run, as --size N=1" in lucid_("tune", *NORM, "-o", "t.json", code=2)
