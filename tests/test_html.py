"""The display of graphs, modules, reports and attention weights in notebooks."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

import lucid
from lucid import nn
from lucid.core.words import html


class Checker(HTMLParser):
    """Every opened tag is closed, in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.stack: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert self.stack == []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.stack.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.stack.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def encoder() -> nn.TransformerEncoder:
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16), 2)


def test_a_graph_folds_by_module(encoder):
    shown = lucid.trace(encoder, ("N", "L", 8))._repr_html_()
    text = Checker(shown).text
    assert "graph(src: float32[N, L, 8]) -> float32[N, L, 8]" in text
    assert re.search(r"<summary>layers\.0\.self_attn \(\d+\)</summary>", shown)
    assert text.endswith("  return layer_norm_4")


def test_every_line_of_the_printed_graph_is_there(encoder):
    graph = lucid.trace(encoder, ("N", "L", 8))
    text = Checker(graph._repr_html_()).text
    for line in str(graph).splitlines():
        if not line.startswith("  # "):
            assert line in text


def test_a_module_is_a_tree_with_counts(encoder):
    shown = encoder._repr_html_()
    count = sum(p.numpy().size for p in encoder.parameters())
    text = Checker(shown).text
    assert f"{count:,} parameters" in text
    assert "in_proj_weight" in text
    assert shown.count("<details") == len(list(encoder.named_modules())) - 1


def test_a_parity_report_and_an_explanation_are_tables(encoder):
    report = lucid.testing.assert_parity(encoder, ("N", "L", 8), providers=["cpu"], sizes=[{"N": 1, "L": 2}])
    text = Checker(report._repr_html_()).text
    assert "eager and exported agree" in text
    assert "sizes" in text
    assert "allowed" in text and "typical magnitude" in text
    explanation = lucid.export.explain(encoder, ("N", "L", 8), target="portable")
    text = Checker(explanation._repr_html_()).text
    assert "target portable, opset 18" in text
    assert "needs opset 23" in text
    assert (
        "no form was refused: each node" in Checker(lucid.export.explain(nn.Linear(2, 2), ("N", 2))._repr_html_()).text
    )


def test_text_is_escaped():
    assert html.escape('<a & "b">') == "&lt;a &amp; &quot;b&quot;&gt;"
    assert "<script>" not in html.table(["<script>"], [["<script>"]])
