"""torch, eager and through its own exporter. Imported only if torch is installed."""

from __future__ import annotations

import inspect
import logging
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
import torch.nn.functional as F

torch.set_grad_enabled(False)
logging.getLogger("torch.onnx").setLevel(logging.ERROR)

VERSION = torch.__version__
CUDA = torch.version.cuda
ExportError = torch.onnx.errors.OnnxExporterError


def set_threads(count: int) -> None:
    """Threads for one op."""
    torch.set_num_threads(count)


def small_calls(x: Any, y: Any, weight: Any, bias: Any, heads: Any) -> dict[str, Callable[[], object]]:
    """What `eager_calls` measures, as far as torch has it as a function."""
    a, b, w, c, h = (torch.from_numpy(array) for array in (x, y, weight, bias, heads))
    return {
        "x + y": lambda: a + b,
        "linear": lambda: F.linear(a, w, c),
        "rms_norm": lambda: F.rms_norm(a, (64,), c),
        "attention": lambda: F.scaled_dot_product_attention(h, h, h),
    }


def attention(*arrays: Any, is_causal: bool = False, visible: Any = None) -> Callable[[], object]:
    """torch's fused attention on (N, H, L, d) arrays; `visible` is a boolean mask."""
    tensors = [torch.from_numpy(array) for array in arrays]
    mask = None if visible is None else torch.from_numpy(visible)
    return lambda: F.scaled_dot_product_attention(*tensors, attn_mask=mask, is_causal=is_causal and mask is None)


def attention_on(
    device: str, *arrays: Any, is_causal: bool, visible: Any = None
) -> tuple[Callable[[], object], torch.nn.Module]:
    """torch's fused attention on a device (`call_on`), and the module that is exported."""
    module = Attention(is_causal)
    return call_on(device, module, None, *arrays, *([] if visible is None else [visible])), module


def attention_with(
    *arrays: Any, is_causal: bool = False, softcap: float = 0.0, need_weights: bool = False
) -> Callable[[], object]:
    """torch's fused attention, with a mask or grouped heads; for a softcap or weights, which it has not, the products
    that users write."""
    query, key, value, *masks = (torch.from_numpy(array) for array in arrays)
    grouped, mask = query.shape[1] != key.shape[1], masks[0] if masks else None
    if not softcap and not need_weights:
        return lambda: F.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, is_causal=is_causal, enable_gqa=grouped
        )
    length, groups = query.shape[-2], query.shape[1] // key.shape[1]
    hidden = torch.full((length, length), -torch.inf).triu(1) if is_causal else None

    def products() -> object:
        keys, values = (x.repeat_interleave(groups, 1) if grouped else x for x in (key, value))
        scores = query @ keys.mT * query.shape[-1] ** -0.5
        if softcap:
            scores = torch.tanh(scores / softcap) * softcap
        if hidden is not None:
            scores = scores + hidden
        weights = torch.softmax(scores, -1)
        return weights @ values, weights

    return products


def growing_cache(*arrays: Any) -> Callable[[], object]:
    """New positions over a cache of earlier ones, to which they are joined."""
    query, key, value, past_key, past_value = (torch.from_numpy(array) for array in arrays)
    new, past = query.shape[-2], past_key.shape[-2]
    mask = None if new == 1 else torch.ones(new, past + new, dtype=torch.bool).tril(past)

    def step() -> object:
        keys, values = torch.cat([past_key, key], 2), torch.cat([past_value, value], 2)
        grouped = query.shape[1] != keys.shape[1]
        return F.scaled_dot_product_attention(query, keys, values, attn_mask=mask, enable_gqa=grouped), keys, values

    return step


def static_cache(heads: int, new: Any, cache: Any, filled: int) -> Callable[[], object]:
    """A decode step over buffers: the new key and value are written in place, and the filled part is attended to."""
    query, key, value = (torch.from_numpy(array) for array in new)
    keys, values = (torch.from_numpy(array) for array in cache)
    kv_heads, place = keys.shape[1], torch.tensor([filled])
    query = query.unflatten(-1, (heads, -1)).transpose(1, 2)
    key, value = (x.unflatten(-1, (kv_heads, -1)).transpose(1, 2) for x in (key, value))

    def step() -> object:
        keys.index_copy_(2, place, key)
        values.index_copy_(2, place, value)
        seen = slice(0, filled + 1)
        return F.scaled_dot_product_attention(
            query, keys[:, :, seen], values[:, :, seen], enable_gqa=heads != kv_heads
        ).transpose(1, 2)

    return step


class Attention(torch.nn.Module):
    """The same as a module, for the exporter."""

    def __init__(self, is_causal: bool) -> None:
        super().__init__()
        self.is_causal = is_causal

    def forward(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, visible: torch.Tensor | None = None
    ) -> torch.Tensor:
        """(N, H, L, d) each."""
        return F.scaled_dot_product_attention(q, k, v, attn_mask=visible, is_causal=self.is_causal and visible is None)


class SelfAttention(torch.nn.Module):
    """nn.MultiheadAttention on one input."""

    def __init__(self, width: int, heads: int, is_causal: bool, state: dict[str, Any]) -> None:
        super().__init__()
        self.attention = torch.nn.MultiheadAttention(width, heads, batch_first=True)
        self.attention.load_state_dict({name: torch.from_numpy(array) for name, array in state.items()})
        self.is_causal = is_causal
        self.eval()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(N, L, width)."""
        mask = torch.nn.Transformer.generate_square_subsequent_mask(x.shape[1]) if self.is_causal else None
        output: torch.Tensor = self.attention(x, x, x, need_weights=False, attn_mask=mask, is_causal=self.is_causal)[0]
        return output


def call(module: torch.nn.Module, *arrays: Any) -> Callable[[], object]:
    """A call of a module on arrays."""
    tensors = [torch.from_numpy(array) for array in arrays]
    return lambda: module(*tensors)


class _OnDevice:
    def __init__(self, tensor: torch.Tensor) -> None:
        self._tensor = tensor

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        array = self._tensor.cpu().numpy()
        return array if dtype is None else array.astype(dtype)


def call_on(device: str, module: torch.nn.Module, dtype: str | None, *arrays: Any) -> Callable[[], object]:
    """A call of a module on a device; it ends when the device has finished, and its first output stays there.

    float32 products are TF32, as in onnxruntime's CUDA provider.
    """
    torch.backends.cuda.matmul.allow_tf32 = True
    module.to(device, None if dtype is None else getattr(torch, dtype))
    tensors = [torch.from_numpy(np.array(array)).to(device) for array in arrays]

    def run() -> object:
        output = module(*tensors)
        if device != "cpu":
            torch.cuda.synchronize()
        return _OnDevice(output[0] if isinstance(output, tuple) else output)

    return run


def export(
    module: torch.nn.Module,
    arrays: tuple[Any, ...],
    opset: int,
    dynamic: Sequence[Mapping[int, str]] | None = None,
    path: Path | None = None,
) -> onnx.ModelProto:
    """The export of a module by torch.onnx.export. `dynamic`: for each input, the axes that vary, and their names."""
    shapes: tuple[Any, ...] | None = None
    if dynamic is not None:
        # Sizes of 0 and 1 are special to torch.export.
        sizes = {name: torch.export.Dim(name, min=2) for axes in dynamic for name in axes.values()}
        shapes = tuple({axis: sizes[name] for axis, name in axes.items()} for axes in dynamic)
        if any(one.kind is one.VAR_POSITIONAL for one in inspect.signature(module.forward).parameters.values()):
            shapes = (shapes,)  # those of *tensors are one
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            module.eval(),
            tuple(map(torch.from_numpy, arrays)),
            dynamo=True,
            opset_version=opset,
            dynamic_shapes=shapes,
            verbose=False,
        )
        assert program is not None
        if path is not None:
            program.save(str(path))
        model: onnx.ModelProto = program.model_proto
    return model


class Encoder(torch.nn.Module):
    """BERT in torch, as its users run it: three linear layers and fused attention, for MiniLM's weights."""

    def __init__(self, state: dict[str, Any], layers: int, heads: int, eps: float) -> None:
        super().__init__()
        self.layers, self.heads, self.eps = layers, heads, eps
        self.weights = {name: torch.from_numpy(array.copy()) for name, array in state.items()}
        for name, tensor in self.weights.items():
            self.register_buffer(name.replace(".", "__"), tensor)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """(N, L) ids and 1 = keep, to sentence vectors (N, width): the mean over tokens, of length 1."""
        w = self.weights
        embed = "embeddings."
        x = F.embedding(input_ids, w[embed + "word_embeddings.weight"])
        x = (
            x
            + w[embed + "position_embeddings.weight"][: input_ids.shape[1]]
            + w[embed + "token_type_embeddings.weight"][0]
        )
        x = self._norm(x, embed + "LayerNorm")
        length = input_ids.shape[1]
        # The mask has every query, as in transformers: onnxruntime refuses torch's export of an axis of 1 there.
        visible = (attention_mask[:, None, None, :] > 0).expand(-1, 1, length, length)
        for layer in range(self.layers):
            at = f"encoder.layer.{layer}."
            q, k, v = (
                self._linear(x, f"{at}attention.self.{name}").unflatten(-1, (self.heads, -1)).transpose(1, 2)
                for name in ("query", "key", "value")
            )
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=visible).transpose(1, 2).flatten(2)
            x = self._norm(x + self._linear(y, f"{at}attention.output.dense"), f"{at}attention.output.LayerNorm")
            y = F.gelu(self._linear(x, f"{at}intermediate.dense"))
            x = self._norm(x + self._linear(y, f"{at}output.dense"), f"{at}output.LayerNorm")
        keep = attention_mask[:, :, None].to(x.dtype)
        return F.normalize((x * keep).sum(1) / keep.sum(1).clamp(min=1e-9), dim=-1)

    def _linear(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return F.linear(x, self.weights[f"{name}.weight"], self.weights[f"{name}.bias"])

    def _norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return F.layer_norm(x, x.shape[-1:], self.weights[f"{name}.weight"], self.weights[f"{name}.bias"], self.eps)
