"""Names of torch that Lucid deliberately lacks, and what to write instead."""

from __future__ import annotations

from collections.abc import Collection

from lucid.core.torch_names.in_place import VALUES, functional_line
from lucid.core.words.user_code import calling_line

_NO_GRADIENTS = "there is no tape; lucid.value_and_grad(f, wrt=model) computes f and its gradients"
_NO_CTC = "it sums over alignments, which only training needs; compute it in torch"
_NO_DEVICES = "tensors have no device; leave it out. A session chooses what an exported model runs on: provider=..."
_NO_COMPLEX = (
    "there are no complex numbers; keep real and imaginary parts in two tensors: for rotary embeddings "
    "write ops.rotary_embedding(x, cos, sin, interleaved=True), or (a * cos - b * sin, a * sin + b * cos)"
)
_RANDOM = "random numbers would be fixed in an exported model; make them outside, with NumPy, and give them as an input"
_UNKNOWN_SIZE = (
    "how many elements it finds is known only when the model runs; choose by a mask with lucid.where(mask, x, 0)"
)

_COUNTS = "write one-hot vectors, summed: F.one_hot(x, n).sum(0)"
_FUNCTIONS = "write lucid.grad(f) or lucid.value_and_grad(f)"

_SAME = {  # of torch's names that are both functions and methods: what to write, of tensors x and y
    "addmv": "write x + a @ b",
    "bitwise_left_shift": "write x * 2**n",
    "bitwise_right_shift": "write x // 2**n",
    "copy": "tensors are never changed in place, so a copy is not needed; write x itself",
    "fix": "write x.trunc()",
    "floor_divide": "write x // y",
    "fmod": "write x - y * (x / y).trunc()",
    "index_copy": "write x.scatter(dim, indices, values), with indices as large as values",
    "index_fill": "write lucid.where(mask, value, x), with a mask that is true at the indices",
    "nanmean": "write lucid.where(x.isnan(), 0, x).sum(dim) / (~x.isnan()).sum(dim)",
    "nansum": "write lucid.where(x.isnan(), 0, x).sum(dim)",
    "rot90": "write x.transpose(0, 1).flip(0), which is one turn of the first two axes",
    "remainder": "write x % y",
    "swapdims": "write x.transpose(dim0, dim1)",
    "true_divide": "write x / y",
}

# By the place where torch has the name.
ABSENT: dict[str, dict[str, str]] = {
    "Tensor": {
        **_SAME,
        **{name: f"write x.to(lucid.{kind})" for name, kind in {"char": "int8", "byte": "uint8"}.items()},
        "fill_": "write x = lucid.full_like(x, value)",
        **dict.fromkeys(
            ("backward", "grad", "grad_fn", "requires_grad", "requires_grad_", "register_hook", "retain_grad"),
            _NO_GRADIENTS,
        ),
        **dict.fromkeys(("cuda", "get_device", "pin_memory", "share_memory_"), _NO_DEVICES),
        "unique": _UNKNOWN_SIZE,
        **dict.fromkeys(("exponential_", "random_"), "write nn.init.normal_(parameter) and so on"),
        "copy_": "write x = other, or parameter.assign(array)",
        "zero_": "write x = lucid.zeros_like(x)",
        **dict.fromkeys(
            ("values", "indices"),
            "max(axis=...) gives the values alone, max(dim=...) values and indices",
        ),
        **dict.fromkeys(("view_as_complex", "view_as_real"), _NO_COMPLEX),
        "apply_": "write what computes the new value in ops: Python functions of single numbers are not exported",
        "stride": "tensors have no strides; write x.reshape(...) or x.permute(...)",
        "as_strided": "tensors have no strides; write x.reshape(...), x.permute(...) or slices",
    },
    "Module": {
        **dict.fromkeys(("cuda", "to_empty"), _NO_DEVICES),
        "zero_grad": _NO_GRADIENTS,
        **dict.fromkeys(
            ("register_forward_hook", "register_forward_pre_hook"),
            'modules call no hooks; to_onnx(model, outputs=["layers.0"]) makes what a module computes an output',
        ),
    },
    "lucid": {
        **_SAME,
        "row_stack": "write lucid.vstack(tensors)",
        **dict.fromkeys(("autograd", "enable_grad"), _NO_GRADIENTS),
        **dict.fromkeys(("cuda", "mps", "device", "distributed"), _NO_DEVICES),
        "unique": _UNKNOWN_SIZE,
        "losses": "losses are in lucid.nn.functional: F.cross_entropy, F.mse_loss, F.in_batch_contrastive_loss",
        "bincount": _COUNTS,
        "histc": _COUNTS,
        "var_mean": "write x.var(...) and x.mean(...)",
        "std_mean": "write x.std(...) and x.mean(...)",
        "func": _FUNCTIONS,
        "vmap": "write the function for a whole batch: operations broadcast over leading axes",
        "amp": "convert the model, model.to(lucid.float16), or export it with dtype=",
        "utils": "nn.utils is here. Batches are dicts of arrays, from any iterable; nn.recompute(module) saves memory",
        "set_grad_enabled": "write `with lucid.no_grad():` for constants of gradients",
        "Generator": "lucid.manual_seed(0) seeds all random numbers",
        "distributions": _RANDOM,
        "jit": "write lucid.compile(model), or export the model with lucid.export.to_onnx(model, ...)",
        "onnx": "write lucid.export.to_onnx(model, *specs, path=...)",
        **dict.fromkeys(
            ("complex64", "complex128", "complex", "view_as_complex", "view_as_real", "real", "imag", "fft"),
            _NO_COMPLEX,
        ),
        "polar": "there are no complex numbers; write the cosine and the sine as two tensors",
        "broadcast_tensors": "write x.broadcast_to(shape) for each; operations on tensors broadcast by themselves",
        **dict.fromkeys(("bernoulli", "randint_like", "poisson"), _RANDOM),
        "multinomial": "random numbers would be fixed in an exported model; lucid.generation samples tokens",
    },
    "Optimizer": dict.fromkeys(
        ("step", "zero_grad", "param_groups", "state_dict", "load_state_dict", "state"),
        "it is a pure function: parameters, state = optimizer.update(gradients, state, parameters, step); "
        "lucid.export.training_step makes one file of loss, gradients and update",
    ),
    "optim": {
        "Adam": "write AdamW(rate, weight_decay=0)",
        "lr_scheduler": "give a schedule in the place of the rate: AdamW(lucid.optim.cosine(1e-3, steps, warmup=100))",
    },
    "nn": {
        "CTCLoss": _NO_CTC,
        "DataParallel": _NO_DEVICES,
    },
    "utils": {
        **dict.fromkeys(
            ("clip_grad_norm_", "clip_grad_norm", "clip_grad_value_"),
            "the optimizer clips: lucid.optim.AdamW(1e-3, clip=1.0), or lucid.optim.clip_by_global_norm does",
        ),
        **dict.fromkeys(
            ("spectral_norm", "parametrize", "prune"), "it is for training: write the weight that it computes once"
        ),
        "parameters_to_vector": "write lucid.cat([p.reshape(-1) for p in model.parameters()])",
        "skip_init": "write the constructor inside of `with nn.init.skip():`",
    },
    "functional": {
        "ctc_loss": _NO_CTC,
        "gumbel_softmax": "random numbers would be fixed in an exported model; give them as an input",
        "upsample": "write F.interpolate(x, size, scale_factor, mode)",
    },
}


def why_absent(place: str, name: str, known: Collection[str] = ()) -> str:
    """The end of an error message about a name that `place` does not have: a reason and what to write, or nothing.

    Args:
        known: the names that it has; of a method of tensors that changes them, the one that does not may be among them.
    """
    reason = ABSENT[place].get(name)
    changes = name in VALUES or (reason is None and name.endswith("_") and not name.startswith("_"))
    if place == "Tensor" and changes:
        plain, line = name.removesuffix("_"), functional_line(calling_line(), name, known)
        if reason is None:
            reason = ABSENT[place].get(plain, "write what computes the new value")
            if plain in known:
                reason = f"write x = x.{plain}(...) or what computes the new value"
        reason = f"tensors are never changed in place; {f'write {line}' if line else reason}"
    return f": {reason}" if reason else ""
