"""Targets: the oldest onnxruntime computes the model rightly, and a request that cannot be met is an error that says
why. tools/check_onnxruntime_versions.py runs the exports in the releases themselves."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import lucid
from lucid import nn, ops
from lucid.core.targets import runtimes
from lucid.core.targets.record import release_text
from lucid.core.targets.runtimes import OLDEST, RELEASES, RUNTIMES
from lucid.export import ExportError, Target, explain, to_onnx
from lucid.export.target import OPSETS, TARGET_NAMES, TargetName
from tests.test_attention import CASES, function_of, specs_of

NAMED = {case.name: case for case in CASES}
STANDARD = "ai.onnx Attention"


def taken(name: str, target: Target, **specs: Any) -> tuple[str, dict[str, str]]:
    """The form of a case, and why others were refused; sizes can be fixed by name."""
    case = NAMED[name]
    kwargs = {
        key: lucid.spec(*(specs.get(str(size), size) for size in spec.shape), dtype=spec.dtype)
        for key, spec in specs_of(case, True).items()
    }
    (decision,) = explain(function_of(case, True), kwargs=kwargs, target=target).attention
    return decision.taken, dict(decision.refused)


# The oldest onnxruntime -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("case", "release", "reason"),
    [
        ("plain", "1.23", None),
        ("softcap", "1.23", None),
        ("key mask", "1.27", "query that sees no key"),
        ("key mask", "1.28", None),
        ("float mask (L, S)", "1.23.2", "query that sees no key"),
        ("window", "1.27", "query that sees no key"),
        ("softcap and mask", "1.26", "query that sees no key"),
        ("causal", "1.27", "single query see every key"),
        ("causal", "1.28", None),
        ("causal", "1.28.1", None),
        ("grouped heads", "1.23", "reads the wrong keys"),
        ("grouped heads", "1.23.0", "reads the wrong keys"),
        ("grouped heads", "1.23.1", None),
        ("plain", "1.22", "needs opset 23, this export asks for 22"),
    ],
)
def test_a_form_that_an_old_release_computes_wrongly_is_left_to_the_next(
    case: str, release: str, reason: str | None
) -> None:
    form, refused = taken(case, Target(onnxruntime=release))
    assert form == (STANDARD if reason is None else "expanded")
    assert reason is None or reason in refused[STANDARD]


def test_a_form_can_be_insisted_on_for_any_op() -> None:
    expanded = to_onnx(nn.RMSNorm(8), ("N", 8), target=Target(forms={"rms_norm": "expanded"}))
    native = to_onnx(nn.RMSNorm(8), ("N", 8), target=Target(forms={"rms_norm": "standard"}))
    assert [node.op_type for node in native.graph.node] == ["RMSNormalization"]
    assert "RMSNormalization" not in {node.op_type for node in expanded.graph.node}
    (decision,) = explain(MHA, ("N", "L", 16), target=Target(forms={"attention": "expanded"})).attention
    assert decision.taken == "expanded"


def test_a_form_that_cannot_be_had_is_an_error() -> None:
    with pytest.raises(
        ExportError, match=r'no form of forms=\{"gelu": "standard"\} is exact here \(ai.onnx Gelu: .* float64'
    ):
        to_onnx(ops.gelu, lucid.spec(2, dtype="float64"), target=Target(forms={"gelu": "standard"}))
    with pytest.raises(
        ExportError, match="forms: gelu has no form of kind 'contrib': choose one of standard, expanded"
    ):
        to_onnx(ops.gelu, (2,), target=Target(forms={"gelu": "contrib"}))
    with pytest.raises(ExportError, match="forms: glue has no form of kind 'standard': there is no op of that name"):
        to_onnx(ops.gelu, (2,), target=Target(forms={"glue": "standard"}))


@pytest.mark.parametrize(("release", "wider"), [("1.25", True), ("1.26", False)])
def test_the_largest_bytes_are_found_in_a_wider_type_where_a_release_has_no_kernel(release: str, wider: bool) -> None:
    model = to_onnx(
        lambda x: ops.topk(x, 2).values, lucid.spec("N", 8, dtype="int8"), target=Target(onnxruntime=release)
    )
    assert ("Cast" in [node.op_type for node in model.graph.node]) is wider


def test_the_reason_names_the_release_that_is_too_old() -> None:
    _, refused = taken("key mask", Target(onnxruntime="1.23.2"))
    assert refused[STANDARD].startswith("onnxruntime's CPU provider before 1.28 gives NaN")
    assert refused[STANDARD].endswith("; this export is also for 1.23.2")


def test_the_reason_names_the_runtime_among_those_of_a_target() -> None:
    target = Target("portable")
    assert target.wrong(runtimes.OUTER_VALUES) == "OpenVINO does not load one"
    assert target.wrong(runtimes.REGIONS_OF_POSITIONS).startswith("tract computes")
    assert target.wrong(runtimes.PASSES_OVER_NAN) == "onnxruntime's CPU provider ignores NaN"
    assert target.missing("Add", lucid.int8).startswith("OpenVINO has no int8 kernel for Add")


def test_causal_attention_is_kept_where_no_single_query_can_come() -> None:
    old = Target(onnxruntime="1.23")
    assert taken("causal", old, S="L")[0] == STANDARD
    assert taken("causal", old, L=2)[0] == STANDARD
    assert taken("causal", old, L=1, S=1)[0] == STANDARD
    assert taken("causal", old, L=1)[0] == "expanded"


def test_half_precision_goes_by_what_float32_may_take() -> None:
    specs = [lucid.spec("N", "L", size, dtype="float16") for size in (32, 16, 16)]

    def inner(release: str) -> list[str]:
        groups = {"heads": 4, "kv_heads": 2}
        (decided,) = explain(ops.attention, *specs, kwargs=groups, target=Target(onnxruntime=release)).attention
        return [decision.taken for decision in decided.inside if decision.op == "attention"]

    assert inner("1.23") == ["expanded"]
    assert inner("1.24") == [STANDARD]


def test_the_forms_tuned_for_the_cpu_are_for_releases_they_were_measured_with() -> None:
    assert taken("causal", Target("cpu"), S="L")[0] == "query blocks"
    form, refused = taken("causal", Target("cpu", onnxruntime="1.27"), S="L")
    assert form == STANDARD
    assert "not been measured" in refused["query blocks"]


@pytest.mark.parametrize("provider", ["any", "cpu", "cuda"])
def test_the_node_of_opset_25_is_not_taken(provider: str) -> None:
    """onnxruntime 1.32 knows this version of Attention and has no kernel for it: it expands the node, and a query
    whose keys a floating mask hides with the lowest number gets the mean of the values."""
    assert taken("float mask, finfo.min", Target(provider, 24))[0] == STANDARD
    for opset in (25, 26):
        form, refused = taken("float mask, finfo.min", Target(provider, opset))
        assert form == "expanded"
        assert refused[STANDARD] == "onnxruntime 1.32 has no kernel for Attention of opset 25 and newer"


@pytest.mark.parametrize(
    ("release", "opset"), [(release_text(r), opset) for r, (opset, _) in RELEASES.items() if r >= OLDEST]
)
def test_an_opset_that_the_release_cannot_load_is_an_error(release: str, opset: int) -> None:
    assert Target(onnxruntime=release, opset=min(opset, OPSETS[-1])).opset == min(opset, OPSETS[-1])
    assert type(Target(onnxruntime=release, opset=np.int64(18)).opset) is int
    assert Target(onnxruntime=release).opset == min(opset, 23)
    if opset < OPSETS[-1]:
        with pytest.raises(
            ExportError, match=rf"onnxruntime {release} loads up to opset {opset}; ask for opset={opset} or"
        ):
            Target(onnxruntime=release, opset=opset + 1)
        with pytest.raises(ExportError, match=rf"loads up to opset {opset}"):
            to_onnx(nn.Linear(2, 2), target=Target(onnxruntime=release), opset=opset + 1)


@pytest.mark.parametrize(
    "version", ["1", "1.x", "", "v1.28", "1.28.0.dev1", "1.28.0.1", "1.-3", "١.٢٨", 1.28, None, (1, 28)]
)
def test_a_version_that_cannot_be_read_is_an_error(version: Any) -> None:
    with pytest.raises(ExportError, match='expected a version as text, such as "1.28" or "1.23.2"'):
        Target(onnxruntime=version)


def test_a_release_older_than_all_that_were_measured_is_an_error() -> None:
    with pytest.raises(ExportError, match=r"onnxruntime 1\.19 is older than 1\.20, the oldest that Lucid exports for"):
        Target(onnxruntime="1.19")


# Names and wishes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gpu", "CPU", "", "tensorrt", None])
def test_an_unknown_target_lists_the_valid_ones(name: Any) -> None:
    with pytest.raises(ExportError, match="does not exist: choose one of any, cpu, cuda, portable"):
        Target(name)
    with pytest.raises(ExportError, match="does not exist: choose one of any, cpu, cuda, portable"):
        to_onnx(nn.Linear(2, 2), target=name)


def test_an_unknown_form_of_attention_lists_the_valid_ones() -> None:
    with pytest.raises(ExportError, match="'flash' does not exist: choose one of auto, standard, contrib, expanded"):
        Target(attention="flash")  # type: ignore[arg-type]


MHA = nn.MultiHeadAttention(16, 2)
MASKED = {"key_padding_mask": lucid.spec("N", "L", dtype="bool")}


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"attention": "standard", "opset": 18}, "needs opset 23, this export asks for 18"),
        ({"attention": "standard", "target": Target(onnxruntime="1.27")}, "before 1.28 gives NaN"),
        ({"attention": "standard", "target": Target("portable", opset=23)}, "for runtimes without this op"),
        ({"attention": "contrib", "target": "portable"}, "it does not take key_mask"),
        ({"attention": "contrib"}, "it does not take key_mask"),
        (
            {"attention": "contrib", "target": "cuda"},
            "GroupQueryAttention: it does not take key_mask; com.micro",
        ),
        ({"target": Target(opset=18, attention="standard")}, "needs opset 23"),
    ],
    ids=str,
)
def test_a_form_that_is_not_exact_is_an_error_with_the_reason(options: dict[str, Any], reason: str) -> None:
    form = options.get("attention") or "standard"
    with pytest.raises(ExportError, match=rf'no form of attention="{form}" is exact here \(.*{reason}'):
        to_onnx(MHA, ("N", "L", 16), kwargs=MASKED, **options)


def test_the_error_tells_only_of_the_form_that_was_asked_for() -> None:
    with pytest.raises(ExportError) as caught:
        to_onnx(MHA, opset=18, attention="standard")
    assert "MultiHeadAttention" not in str(caught.value)


def test_a_target_keeps_its_form_of_attention() -> None:
    (decision,) = explain(MHA, target=Target(attention="expanded")).attention
    assert decision.taken == "expanded"


def test_the_com_microsoft_op_is_not_taken_unasked_where_any_runtime_is_meant() -> None:
    for provider, form in [
        ("any", "expanded"),
        ("portable", "expanded"),
        ("cpu", "com.microsoft MultiHead"),
    ]:
        (decision,) = explain(MHA, ("N", "L", 16), target=provider, opset=18).attention
        assert decision.taken.startswith(form)


# Explanations ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", TARGET_NAMES)
def test_every_target_explains_the_readme_example(target: TargetName) -> None:
    mha = nn.MultiHeadAttention(embed_dim=512, num_heads=8)
    text = str(explain(mha, ("N", "L", 512), target=target))
    assert text.startswith(f"target {target}, opset {RUNTIMES[target].opset}, onnxruntime >= 1.28\nattention  ")
    assert max(map(len, text.split("\n"))) <= 120


def test_sizes_that_are_known_say_why_a_form_should_win() -> None:
    def note(length: Any, *masks: lucid.TensorType, **options: Any) -> str:
        specs = [*[lucid.spec(1, 4, length, 16)] * 3, *masks]
        return explain(ops.attention, *specs, kwargs=options, target="cpu").attention[0].note

    blocks = r"8 blocks of queries compute 56% of the scores at 512, the node all of them"
    assert re.fullmatch(blocks, note(512, is_causal=True))
    assert re.search(r"\d+ blocks of queries compute 5\d% of the scores at 2048", note(2048, is_causal=True))
    assert "2 blocks of queries" in note(70, is_causal=True)
    mask = lucid.spec(300, 300, dtype="bool")
    assert note(300, mask) == "hidden keys get scores for which exp is fast"
    assert re.match(r"up to 192 queries it is the plain node; \d+ blocks", note("L", is_causal=True))
    assert re.match(
        r"up to 128 queries it is products, for their tanh; \d+ blocks", note("L", is_causal=True, softcap=2.0)
    )
    assert note(4096) == "nothing is masked, so tiles of scores stay in the caches"
    assert "read without a copy" in note(64)
