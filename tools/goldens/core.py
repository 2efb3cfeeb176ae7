"""Shared by the goldens of Hugging Face models: random weights, cases, a run with taps, a folder.

A folder is written in this order, so that the stored outputs are those that a reader of the files must get:
`save_pretrained` writes config.json and the weights, `rewrite` may bring them into an older layout,
transformers loads the folder again, and the loaded model runs the cases.
"""

from __future__ import annotations

import copy
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import save_file
from torch import Tensor, nn

ROWS = ("bias_k", "bias_v")  # nn.MultiheadAttention's extra key and value, not weights
ROOT = Path(__file__).resolve().parents[2] / "tests" / "goldens"
DATA = ROOT.parent / "data"


@dataclass(frozen=True)
class Case:
    """One call of the model: `inputs` by the names of its forward, `about` in words.

    `compare` says which positions are compared: "all", or only "kept" ones, where attention_mask is 1. In the
    padding of a causal model a query may see no key, and transformers averages over all keys.
    """

    about: str
    inputs: Mapping[str, Tensor]
    compare: str = "all"


@dataclass(frozen=True)
class Golden:
    """One folder: the model to store, its cases, and what to record.

    layers: prefix of the keys -> the layers whose outputs are recorded as `<case>.<prefix>hidden_states.<i>`:
        0 is the input of the first layer, i the output of the i-th layer (before any final norm).
    taps: key -> a submodule whose (first) output is recorded as `<case>.<key>`.
    outputs: fields of the model's output recorded as `<case>.<field>`.
    positions: the submodule that receives position ids, recorded as `<case>.position_ids`.
    reader: the class with which transformers loads the folder again, if it is not that of `model`.
    spare: prefixes of keys in the file that the reader does not use.
    padding_is_free: the ids where attention_mask is 0 change nothing at kept positions (checked).
    """

    name: str
    model: transformers.PreTrainedModel
    cases: Mapping[str, Case]
    outputs: Sequence[str]
    layers: Callable[[nn.Module], dict[str, nn.ModuleList]]
    note: str
    taps: Callable[[nn.Module], dict[str, nn.Module]] = lambda model: {}
    positions: Callable[[nn.Module], nn.Module] | None = None
    reader: Callable[..., Any] | None = None
    spare: tuple[str, ...] = ()
    rewrite: Callable[[Path], None] | None = None
    legacy: Callable[[dict[str, object]], dict[str, object]] | None = None
    padding_is_free: bool = True
    save: dict[str, object] = field(default_factory=dict)


def randomise(model: nn.Module, seed: int) -> None:
    """Values that affect the result for every trained parameter: no bias is 0, no norm weight 1, no score constant."""
    torch.manual_seed(seed)
    done: set[int] = set()
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            if id(parameter) in done or not parameter.requires_grad or parameter.ndim == 0:
                continue
            done.add(id(parameter))
            noise = torch.randn(parameter.shape)
            if "Norm" in type(module).__name__:
                value = noise * 0.2 + parameter.data  # which is 1 for a weight, 0 for a bias, and for Gemma's weights
            elif name.endswith("bias"):
                value = noise * 0.2
            elif isinstance(module, nn.Linear | nn.Conv1d | nn.Conv2d | nn.MultiheadAttention) and name not in ROWS:
                value = noise / parameter[0].numel() ** 0.5
            elif type(module).__name__ == "Conv1D":  # GPT-2 stores its linear weights as (in, out)
                value = noise / parameter.shape[0] ** 0.5
            else:  # embeddings, class tokens, layer scales
                value = noise * 0.6
            parameter.data.copy_(value)


def ids(shape: tuple[int, ...], vocabulary: int, seed: int, low: int = 3) -> Tensor:
    """Token ids in [low, vocabulary): the ids below `low` are special ones."""
    return torch.randint(low, vocabulary, shape, generator=torch.Generator().manual_seed(seed))


def normal(shape: tuple[int, ...], seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def padding_mask(length: int, kept: Sequence[int], side: str) -> Tensor:
    """(len(kept), length) int64, 1 where a token is kept."""
    place = torch.arange(length)
    rows = [place < n if side == "right" else place >= length - n for n in kept]
    return torch.stack(rows).long()


def text_cases(vocabulary: int, pad: int, *, compare: str, seed: int) -> dict[str, Case]:
    """The cases shared by all models of plain text. Padded positions hold the id `pad`."""
    cases = {
        "plain": Case("no mask, (2, 5)", {"input_ids": ids((2, 5), vocabulary, seed)}),
        "one_token": Case("no mask, (1, 1)", {"input_ids": ids((1, 1), vocabulary, seed + 1)}),
        "longer": Case("no mask, (1, 13)", {"input_ids": ids((1, 13), vocabulary, seed + 2)}),
    }
    for side in ("right", "left"):
        mask = padding_mask(7, (7, 4, 2), side)
        tokens = ids((3, 7), vocabulary, seed + 3).where(mask == 1, pad)
        about = f"attention_mask padded on the {side}, (3, 7), kept 7, 4 and 2"
        cases[f"{side}_padding"] = Case(about, {"input_ids": tokens, "attention_mask": mask}, compare)
    return cases


def first(output: object) -> Tensor:
    value = output[0] if isinstance(output, tuple) else output
    assert isinstance(value, Tensor)
    return value


@contextmanager
def recording(golden: Golden, model: nn.Module) -> Iterator[dict[str, Tensor]]:
    """Collects layer inputs and outputs, taps and position ids while the model runs."""
    seen: dict[str, Tensor] = {}
    hooks = []

    def on_output(module: nn.Module, key: str) -> None:
        hooks.append(module.register_forward_hook(lambda _m, _a, out: seen.__setitem__(key, first(out))))

    def on_input(module: nn.Module, key: str, wanted: Callable[[Tensor], bool]) -> None:
        def hook(_m: nn.Module, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
            tensors = [x for x in (*args, *kwargs.values()) if isinstance(x, Tensor)]
            seen[key] = next(x for x in tensors if wanted(x))

        hooks.append(module.register_forward_pre_hook(hook, with_kwargs=True))

    for prefix, layers in golden.layers(model).items():
        on_input(layers[0], f"{prefix}hidden_states.0", lambda x: x.is_floating_point())
        for i, layer in enumerate(layers):
            on_output(layer, f"{prefix}hidden_states.{i + 1}")
    for key, module in golden.taps(model).items():
        on_output(module, key)
    if golden.positions is not None:
        on_input(golden.positions(model), "position_ids", lambda x: x.dtype == torch.int64)
    yield seen
    for hook in hooks:
        hook.remove()


def answer(golden: Golden, model: nn.Module, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The recorded tensors of one case, on a fresh copy: dynamic rotary scaling remembers long inputs."""
    model = copy.deepcopy(model)
    with torch.no_grad(), recording(golden, model) as seen:
        result = model(**inputs)
        seen.update({name: result[name] for name in golden.outputs})
    return {key: value.detach().clone().contiguous() for key, value in seen.items()}


def load(golden: Golden, folder: Path) -> transformers.PreTrainedModel:
    """The folder as transformers reads it; a missing or unexpected key is an error."""
    read = golden.reader or type(golden.model).from_pretrained
    model, info = read(folder, attn_implementation="eager", dtype=torch.float32, output_loading_info=True)
    spare = [key for key in info["unexpected_keys"] if not key.startswith(golden.spare)]
    assert not info["missing_keys"] and not info["mismatched_keys"] and not spare, (golden.name, info)
    return model.eval()


def same(left: Mapping[str, Tensor], right: Mapping[str, Tensor]) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[key], right[key]) for key in left)


def check_padding(golden: Golden, model: nn.Module, case: Case, got: Mapping[str, Tensor]) -> None:
    """Check that other ids in the padded positions do not change any kept position.

    They are compared up to rounding: a layer of experts multiplies as many rows at once as the other tokens choose.
    """
    mask = case.inputs["attention_mask"]
    tokens = case.inputs["input_ids"]
    others = answer(golden, model, {**case.inputs, "input_ids": tokens.where(mask == 1, tokens + 1)})
    for key, value in got.items():
        if value.is_floating_point() and value.shape[:2] == mask.shape:
            kept, others_kept = value[mask == 1], others[key][mask == 1]
            assert (kept - others_kept).abs().max() <= 1e-5 * kept.abs().max(), (golden.name, key)


def write_json(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def store(golden: Golden, seed: int) -> None:
    """Write tests/goldens/<golden.name>."""
    folder = ROOT / golden.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    randomise(golden.model, seed)
    golden.model.eval().save_pretrained(folder, **golden.save)
    (folder / "generation_config.json").unlink(missing_ok=True)
    if golden.rewrite is not None:
        golden.rewrite(folder)
    model = load(golden, folder)
    tensors: dict[str, Tensor] = {}
    for name, case in golden.cases.items():
        got = answer(golden, model, case.inputs)
        assert all(torch.isfinite(value).all() for value in got.values())
        if golden.padding_is_free and "attention_mask" in case.inputs:
            check_padding(golden, model, case, got)
        tensors |= {f"{name}.{key}": value.contiguous() for key, value in {**case.inputs, **got}.items()}
    if golden.legacy is not None:
        store_legacy(golden, folder, tensors)
    save_file(tensors, folder / "io.safetensors")
    cases = {
        name: {"about": case.about, "inputs": list(case.inputs), "compare": case.compare}
        for name, case in golden.cases.items()
    }
    about = {"class": type(model).__name__, "note": golden.note, "outputs": list(golden.outputs), "cases": cases}
    write_json(folder / "cases.json", about)
    for path in folder.iterdir():
        path.chmod(0o644)


def store_legacy(golden: Golden, folder: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write legacy_config.json, the config as published before transformers 5; it must mean the same."""
    assert golden.legacy is not None
    config = golden.legacy(json.loads((folder / "config.json").read_text(encoding="utf-8")))
    write_json(folder / "legacy_config.json", config)
    with tempfile.TemporaryDirectory() as scratch:
        for path in folder.glob("model*"):
            shutil.copy(path, scratch)
        shutil.copy(folder / "legacy_config.json", Path(scratch) / "config.json")
        model = load(golden, Path(scratch))
    for name, case in golden.cases.items():
        got = answer(golden, model, case.inputs)
        assert same(got, {key: tensors[f"{name}.{key}"] for key in got}), (golden.name, name)
