"""Names of torch that Lucid deliberately lacks, and what to write instead."""

from __future__ import annotations

from collections.abc import Collection

from lucid.core.torch_names.groups import NO_COMPLEX, NO_DEVICES, reason_of_group
from lucid.core.torch_names.in_place import VALUES, functional_line
from lucid.core.words.user_code import calling_line

_NO_GRADIENTS = "there is no tape; lucid.value_and_grad(f, wrt=model) computes f and its gradients"
_NO_CTC = "it sums over alignments, which only training needs; compute it in torch"
_RANDOM = "random numbers would be fixed in an exported model; make them outside, with NumPy, and give them as an input"
_UNKNOWN_SIZE = (
    "how many elements it finds is known only when the model runs; choose by a mask with lucid.where(mask, x, 0)"
)

_COUNTS = "write one-hot vectors, summed: F.one_hot(x, n).sum(0)"
_FUNCTIONS = "write lucid.grad(f) or lucid.value_and_grad(f)"

_SAME = {  # of torch's names that are both functions and methods: what to write, of tensors x and y
    "addbmm": "write x + (a @ b).sum(0)",
    "addmv": "write x + a @ b",
    "addr": "write x + a.outer(b)",
    "aminmax": "write x.amin(dim) and x.amax(dim)",
    "copy": "tensors are never changed in place, so a copy is not needed; write x itself",
    "copysign": "write lucid.where(y < 0, -x.abs(), x.abs())",
    "corrcoef": "write c = x - x.mean(1, keepdim=True), then F.normalize(c) @ F.normalize(c).mT",
    "cov": "write c = x - x.mean(1, keepdim=True), then c @ c.mT / (x.shape[1] - 1)",
    "deg2rad": "write x * (math.pi / 180)",
    "diagflat": "write lucid.diag(x.flatten())",
    "dist": "write (x - y).norm(p)",
    "dsplit": "write lucid.tensor_split(x, n, 2)",
    "erfc": "write 1 - x.erf()",
    "fix": "write x.trunc()",
    "float_power": "write x.double() ** y",
    "floor_divide": "write x // y",
    "fmax": "write lucid.maximum(lucid.where(x.isnan(), y, x), lucid.where(y.isnan(), x, y))",
    "fmin": "write lucid.minimum(lucid.where(x.isnan(), y, x), lucid.where(y.isnan(), x, y))",
    "fmod": "write x - y * (x / y).trunc()",
    "ger": "write x.outer(y)",
    "heaviside": "write lucid.where(x == 0, values, (x > 0).to(x.dtype))",
    "index_copy": "write x.scatter(dim, indices, values), with indices as large as values",
    "index_fill": "write lucid.where(mask, value, x), with a mask that is true at the indices",
    "index_reduce": "write lucid.scatter_reduce(x, dim, indices, values, reduce), with indices as large as values",
    "is_nonzero": "write bool(x.item())",
    "is_signed": "write x.dtype not in (lucid.uint8, lucid.bool_)",
    "isneginf": "write x == -math.inf",
    "isposinf": "write x == math.inf",
    "isreal": "it is true of all: there are no complex numbers",
    "ldexp": "write x * 2.0**y",
    "logaddexp2": "write (x.exp2() + y.exp2()).log2()",
    "logcumsumexp": "write (x - x.amax(dim, keepdim=True)).exp().cumsum(dim).log() + x.amax(dim, keepdim=True)",
    "msort": "write x.sort(0)[0]",
    "nanmean": "write lucid.where(x.isnan(), 0, x).sum(dim) / (~x.isnan()).sum(dim)",
    "nansum": "write lucid.where(x.isnan(), 0, x).sum(dim)",
    "positive": "write x itself",
    "put": "write x.flatten().at[indices].set(values).reshape(x.shape)",
    "rad2deg": "write x * (180 / math.pi)",
    "remainder": "write x % y",
    "renorm": "write x * (maxnorm / x.norm(p, dims, keepdim=True)).clamp(max=1)",
    "rot90": "write x.transpose(0, 1).flip(0), which is one turn of the first two axes",
    "signbit": "write x < 0",
    "swapdims": "write x.transpose(dim0, dim1)",
    "trace": "write x.diagonal().sum()",
    "true_divide": "write x / y",
    "vdot": "write x.dot(y)",
    **dict.fromkeys(("bincount", "histc"), _COUNTS),
    **dict.fromkeys(("bernoulli", "poisson"), _RANDOM),
    "multinomial": "random numbers would be fixed in an exported model; lucid.generation samples tokens",
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
        **dict.fromkeys(("cuda", "get_device", "pin_memory", "share_memory_"), NO_DEVICES),
        "index": "write x[index]",
        "sum_to_size": "write x.sum(dims, keepdim=True)",
        "take": "write x.flatten()[indices]",
        "as_subclass": "write x itself",
        **dict.fromkeys(("is_leaf", "retains_grad", "grad_dtype", "register_post_accumulate_grad_hook"), _NO_GRADIENTS),
        "is_inference": "leave it out: there is no tape",
        "unique": _UNKNOWN_SIZE,
        **dict.fromkeys(("exponential_", "random_"), "write nn.init.normal_(parameter) and so on"),
        "copy_": "write x = other; parameters and nn.Buffer have copy_",
        "zero_": "write x = lucid.zeros_like(x)",
        **dict.fromkeys(("values", "indices"), "max(axis=...) gives the values alone, max(dim=...) values and indices"),
        **dict.fromkeys(("view_as_complex", "view_as_real"), NO_COMPLEX),
        "apply_": "write what computes the new value in ops: Python functions of single numbers are not exported",
        "stride": "tensors have no strides; write x.reshape(...) or x.permute(...)",
        "as_strided": "tensors have no strides; write x.reshape(...), x.permute(...) or slices",
    },
    "Module": {
        **dict.fromkeys(("cuda", "to_empty"), NO_DEVICES),
        "zero_grad": _NO_GRADIENTS,
        **dict.fromkeys(
            ("register_forward_hook", "register_forward_pre_hook"),
            'modules call no hooks; to_onnx(model, outputs=["layers.0"]) makes what a module computes an output',
        ),
    },
    "lucid": {
        **_SAME,
        "atleast_3d": "write x.reshape(1, -1, 1), x.unsqueeze(-1) or x itself",
        "row_stack": "write lucid.vstack(tensors)",
        "cartesian_prod": 'write lucid.stack(lucid.meshgrid(*vectors, indexing="ij"), -1).reshape(-1, len(vectors))',
        "combinations": "write x[lucid.triu_indices(n, n, 1)].mT, which are pairs",
        **dict.fromkeys(("can_cast", "promote_types", "result_type"), "write (x + y).dtype"),
        "cond": "write lucid.where(condition, x, y)",
        "while_loop": "write lucid.ops.scan(step, carry, xs)",
        "range": "write lucid.arange(start, end + step, step)",
        "logspace": "write base ** lucid.linspace(start, end, steps)",
        "select": "write x.select(dim, index)",
        "typename": "write type(x).__name__",
        "vander": "write x.unsqueeze(1) ** lucid.arange(n - 1, -1, -1)",
        **dict.fromkeys(("cumulative_trapezoid", "trapezoid", "trapz"), "write ((y[1:] + y[:-1]) / 2 * dx).cumsum(0)"),
        "conv_tbc": "write F.conv1d(x.permute(1, 2, 0), weight.permute(2, 1, 0), bias, 1, padding).permute(2, 0, 1)",
        "pdist": "write lucid.cdist(x, x)[tuple(lucid.triu_indices(n, n, 1))]",
        **dict.fromkeys(("autograd", "enable_grad"), _NO_GRADIENTS),
        **dict.fromkeys(("cuda", "mps", "device", "distributed"), NO_DEVICES),
        "unique": _UNKNOWN_SIZE,
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
            ("complex64", "complex128", "complex", "view_as_complex", "view_as_real", "real", "imag", "fft"), NO_COMPLEX
        ),
        "polar": "there are no complex numbers; write the cosine and the sine as two tensors",
        "broadcast_tensors": "write x.broadcast_to(shape) for each; operations on tensors broadcast by themselves",
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
    "nn": {"CTCLoss": _NO_CTC, "DataParallel": NO_DEVICES},
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
        "conv_tbc": "write F.conv1d(x.permute(1, 2, 0), weight.permute(2, 1, 0), bias, 1, padding).permute(2, 0, 1)",
        "pdist": "write lucid.cdist(x, x)[tuple(lucid.triu_indices(n, n, 1))]",
        "dropout2d": "write F.dropout, or nn.Dropout2d",
    },
    "linalg": {
        **{name: f"it is lucid.{name}" for name in ("matmul", "cross", "diagonal")},
        "matrix_norm": "write lucid.linalg.norm(x, dim=(-2, -1))",
        "vecdot": "write (x * y).sum(-1)",
        "vander": "write x.unsqueeze(-1) ** lucid.arange(n)",
        "multi_dot": "write a @ b @ c",
    },
    "init": dict.fromkeys(
        ("dirac_", "dirac", "sparse_", "sparse"), "write parameter.assign(array), with an array of NumPy"
    ),
    "special": {
        "entr": "write -lucid.xlogy(x, x)",
        "erfc": "write 1 - x.erf()",
        "ndtr": "write (1 + (x / math.sqrt(2)).erf()) / 2",
        "xlog1py": "write lucid.xlogy(x, 1 + y)",
    },
}
# Places whose names are not torch's alone, so that only the table of the place is read.
_OF_USERS = ("Module", "Optimizer")


def why_absent(place: str, name: str, known: Collection[str] = ()) -> str:
    """The end of an error message about a name that `place` does not have: a reason and what to write, or nothing.

    Args:
        known: the names that it has; of a method of tensors that changes them, the one that does not may be among them.
    """
    reason = ABSENT.get(place, {}).get(name)
    if reason is None and place not in _OF_USERS:
        reason = reason_of_group(name)
    changes = name in VALUES or (reason is None and name.endswith("_") and not name.startswith("_"))
    if place == "Tensor" and changes:
        plain, line = name.removesuffix("_"), functional_line(calling_line(), name, known)
        if reason is None:
            reason = ABSENT[place].get(plain, "write what computes the new value")
            if plain in known:
                reason = f"write x = x.{plain}(...) or what computes the new value"
        reason = f"tensors are never changed in place; {f'write {line}' if line else reason}"
    return f": {reason}" if reason else ""
