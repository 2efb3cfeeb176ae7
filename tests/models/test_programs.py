"""``python -m lucid.models.<name>`` runs a short demonstration with the files that are available."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest

import lucid
from lucid import Tensor, nn
from lucid.models.parts.demonstration import SideBySide, written

MODELS = Path(__file__).parents[2] / "models"
PROGRAMS = sorted(
    ".".join(path.relative_to(MODELS).with_suffix("").parts)
    for pattern in ("[a-z]*.py", "vision/[a-z]*.py")
    for path in MODELS.glob(pattern)
)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_demonstration_runs_and_eager_and_exported_agree(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [name])
    monkeypatch.delitem(sys.modules, f"lucid.models.{name}", raising=False)
    runpy.run_module(f"lucid.models.{name}", run_name="__main__", alter_sys=True)
    printed = capsys.readouterr().out
    differences = [float(text) for text in re.findall(r"differ\D* (\d\.\de[+-]\d\d)", printed)]
    assert differences, printed
    assert max(differences) < 2e-5
    assert 1 <= len(printed.splitlines()) <= 10


def test_differences_are_those_between_eager_and_exported() -> None:
    class Wobbling(nn.Module):
        calls = 0

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            Wobbling.calls += 1
            return x, x + Wobbling.calls

        def input_specs(self) -> dict[str, lucid.TensorType]:
            return {"x": lucid.spec("N")}

    both = SideBySide(Wobbling())  # exported as it was in its first call
    assert [result.tolist() for result in both(lucid.zeros(2))] == [[0, 0], [1, 1]]
    both(lucid.zeros(2))
    assert both.differences == [1.0, 2.0]
    assert both.verdict("sums") == "largest difference between exported and eager sums 2.0e+00"


def test_writing_goes_on_with_the_likeliest_token_until_the_end() -> None:
    def successor(ids: Tensor) -> Tensor:
        return (ids.unsqueeze(2) + 1 == lucid.arange(10)).astype("float32")

    assert written(successor, lucid.tensor([[3]]), steps=4) == [3, 4, 5, 6, 7]
    assert written(successor, lucid.tensor([[1, 3]]), end=5) == [1, 3, 4, 5]


def test_every_model_has_a_demonstration() -> None:
    encoders = "albert bert deberta eurobert layoutlm modernbert static_embedding"
    texts = "bart deepseek falcon gemma gpt2 lfm2 llama mamba2 mixtral phi3 qwen3_next t5 transformer"
    several_senses = "clip delightful_tts siglip smolvlm wav2vec2 whisper"
    images = [
        f"vision.{name}" for name in "convnext depth_anything detr dinov3 resnet rt_detr segformer swin vit".split()
    ]
    assert sorted([*f"{encoders} {texts} {several_senses}".split(), *images]) == PROGRAMS
