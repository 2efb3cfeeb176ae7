"""What torch has and Lucid deliberately has not, and what to write instead."""

from __future__ import annotations

_NO_GRADIENTS = "Lucid computes no gradients; train in torch and load the weights with lucid.load"
_NO_LOSS = "losses are for training; Lucid only computes models"
_NO_DEVICES = "tensors have no device; leave it out. A session chooses what an exported model runs on: provider=..."
_NO_COMPLEX = (
    "there are no complex numbers; keep real and imaginary parts in two tensors: for rotary embeddings "
    "write ops.rotary_embedding(x, cos, sin, interleaved=True), or (a * cos - b * sin, a * sin + b * cos)"
)
_RANDOM = "random numbers would be fixed in an exported model; make them outside, with NumPy, and give them as an input"
_UNKNOWN_SIZE = (
    "how many elements it finds is known only when the model runs; choose by a mask with lucid.where(mask, x, 0)"
)

# By the place where torch has the name.
ABSENT: dict[str, dict[str, str]] = {
    "Tensor": {
        **dict.fromkeys(
            ("backward", "grad", "grad_fn", "requires_grad", "register_hook", "retain_grad"), _NO_GRADIENTS
        ),
        **dict.fromkeys(("cuda", "is_cuda", "get_device", "pin_memory", "share_memory_"), _NO_DEVICES),
        **dict.fromkeys(("masked_select", "unique"), _UNKNOWN_SIZE),
        **dict.fromkeys(("normal_", "uniform_", "trunc_normal_"), "write nn.init.normal_(parameter) and so on"),
        "copy_": "tensors are never changed in place; write x = other, or parameter.assign(array)",
        "zero_": "tensors are never changed in place; write x = lucid.zeros_like(x)",
        **dict.fromkeys(
            ("values", "indices"),
            "max(axis=...) gives the values alone, max(dim=...) values and indices",
        ),
        "data": "tensors have no gradients to bypass: write x itself",
        "unfold": "write x.gather(...), or for a known length lucid.stack([x[..., i : i + size] for i in range(0, "
        "length - size + 1, step)], -2); F.unfold has the windows of images",
        **dict.fromkeys(("view_as_complex", "view_as_real"), _NO_COMPLEX),
        "diagonal": 'write lucid.einsum("...ii->...i", x)',
        "apply_": "write what computes the new value in ops: Python functions of single numbers are not exported",
        "stride": "tensors have no strides; write x.reshape(...) or x.permute(...)",
        "as_strided": "tensors have no strides; write x.reshape(...), x.permute(...) or slices",
    },
    "lucid": {
        **dict.fromkeys(("autograd", "optim", "enable_grad"), _NO_GRADIENTS),
        **dict.fromkeys(("cuda", "mps", "device", "distributed"), _NO_DEVICES),
        **dict.fromkeys(("unique", "masked_select"), _UNKNOWN_SIZE),
        "compile": "nothing is compiled: export the model with lucid.export.to_onnx(model, ...)",
        "jit": "nothing is compiled: export the model with lucid.export.to_onnx(model, ...)",
        "onnx": "write lucid.export.to_onnx(model, *specs, path=...)",
        "from_numpy": "write lucid.tensor(array), or lucid.Tensor.from_array(array), which does not copy",
        **dict.fromkeys(
            ("complex64", "complex128", "complex", "view_as_complex", "view_as_real", "real", "imag", "fft"),
            _NO_COMPLEX,
        ),
        "polar": "there are no complex numbers; write the cosine and the sine as two tensors",
        "diagonal": 'write lucid.einsum("...ii->...i", x)',
        "as_tensor": "write lucid.tensor(data)",
        "empty_like": "write lucid.zeros_like(x)",
        "clone": "tensors are never changed in place, so a copy is not needed; write x itself",
        "expm1": "write lucid.exp(x) - 1",
        "log1p": "write lucid.log(1 + x)",
        "logsumexp": "write (lucid.exp(x - m)).sum(dim).log() + m.squeeze(dim) with m = x.amax(dim, keepdim=True)",
        "broadcast_tensors": "write x.broadcast_to(shape) for each; operations on tensors broadcast by themselves",
        "normal": "write lucid.randn(...) * std + mean",
        "linalg": "write lucid.norm(x, p, dim) for norms; decompositions are for training and are not part of a model",
        **dict.fromkeys(("bernoulli", "randint", "randint_like", "randperm", "poisson"), _RANDOM),
        **dict.fromkeys(("randn_like", "rand_like"), "write lucid.randn(*x.shape) or lucid.rand(*x.shape)"),
        "multinomial": "random numbers would be fixed in an exported model; lucid.generation samples tokens",
    },
    "nn": {
        **dict.fromkeys(
            (
                "CrossEntropyLoss",
                "MSELoss",
                "BCEWithLogitsLoss",
                "BCELoss",
                "L1Loss",
                "NLLLoss",
                "CTCLoss",
                "KLDivLoss",
            ),
            _NO_LOSS,
        ),
        "Buffer": "a tensor that a module assigns to an attribute is a buffer: self.scale = lucid.ones(3)",
        "DataParallel": _NO_DEVICES,
        "utils": "nn.utils is for training and for gradients; without them a model runs as it is: leave out "
        "clip_grad_norm_, write weight_norm's product into the weight once (weight = g * v / v.norm(...)), "
        "pad_sequence as F.pad and lucid.stack, and give lengths in place of a packed sequence",
    },
    "functional": dict.fromkeys(
        (
            "cross_entropy",
            "mse_loss",
            "binary_cross_entropy_with_logits",
            "binary_cross_entropy",
            "nll_loss",
            "l1_loss",
        ),
        _NO_LOSS,
    ),
}


def why_absent(place: str, name: str) -> str:
    """The end of an error message about a name that `place` does not have: a reason and what to write, or nothing."""
    reason = ABSENT[place].get(name)
    if reason is None and place == "Tensor" and name.endswith("_") and not name.startswith("_"):
        plain = name.rstrip("_")
        reason = f"tensors are never changed in place; write x = x.{plain}(...) or what computes the new value"
    return f": {reason}" if reason else ""
