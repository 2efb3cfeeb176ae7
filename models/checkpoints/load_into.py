"""Loading the weights of a checkpoint: which key is for which parameter, and in which form it is stored."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial

import numpy as np

from lucid import WeightsError, nn
from lucid.models.checkpoints.adapters import AdaptedWeights
from lucid.models.checkpoints.config import Array, ConfigError
from lucid.models.checkpoints.expert_weights import ExpertWeights
from lucid.models.checkpoints.quantized_weights import Int8, QuantizedWeights, Weight, as_array, quantized_module
from lucid.nn.module import StateError
from lucid.nn.quantized import WeightModule
from lucid.quantization import Blocks


@contextmanager
def building(where: str, weights: Mapping[str, Weight]) -> Iterator[None]:
    """Inside, make a model whose weights are loaded next: parameters take no memory until then.

    `where` starts the messages. There may be about twice as many parameters as the checkpoint has weights;
    `load_into` names those that are missing. Sizes that a layer refuses are reported as errors of the config.

    Raises:
        ConfigError: for options that make no valid model, or one with many more parameters than there are weights.
    """
    try:
        with nn.init.skip(at_most=2 * len(weights) + 1000):
            yield
    except (ConfigError, WeightsError):
        raise
    except ValueError as error:
        raise ConfigError(f"{where}: its options make no model that fits {len(weights)} weights: {error}") from error


def load_into(
    module: nn.Module,
    weights: Mapping[str, Weight],
    renames: Sequence[tuple[str, str]] = (),
    ignore: Sequence[str] = (),
    tied: Mapping[str, str] | None = None,
    dequantize: bool = False,
    assign: bool = False,
) -> None:
    """Load a checkpoint's weights into a module: every key must be a parameter, and every parameter must have a key.

    What is not an array becomes an `nn.QuantizedWeight` or `nn.Int8Weight` in the place of a parameter that modules
    declare as `quantizable`, in all that share it, and is dequantized for other parameters.

    Args:
        renames: pairs (regular expression, replacement), applied in order to each of the checkpoint's keys.
        ignore: regular expressions found in keys (as renamed) of arrays that are not used unless the model has them.
        tied: key -> key of the same weight. A stored copy under the first must equal the second, and is then dropped.
        dequantize: whether all of these are dequantized.
        assign: whether parameters take the element types of the arrays.

    Raises:
        KeyError: listing all missing, unexpected and mis-shaped keys at once; nothing is loaded then.
        OverflowError: for numbers that the element type of a parameter cannot hold; nothing is loaded then.
        ValueError: if two keys get the same name, or a tied copy differs.
    """
    name = type(module).__name__
    sources = parameter_keys(name, module.state_dict(), weights, renames, ignore, tied or {})
    for copy, original in (tied or {}).items():
        if copy in sources and original in sources:
            first, second = (as_array(weights[sources[key]]) for key in (copy, original))
            if not np.array_equal(first, second):
                keys = f"{sources[copy]} differs from {sources[original]}"
                raise ValueError(f"{name}: {keys}, expected one weight, as {name} shares it")
        if copy in sources:
            sources.setdefault(original, sources.pop(copy))
    _load(module, {name: partial(weights.__getitem__, key) for name, key in sources.items()}, dequantize, assign)


def parameter_keys(
    model: str,
    own: Collection[str],
    weights: Mapping[str, Weight],
    renames: Sequence[tuple[str, str]],
    ignore: Sequence[str],
    tied: Mapping[str, str],
) -> dict[str, str]:
    """The keys of a checkpoint by the names of the parameters that they are for; see `load_into`."""
    sources: dict[str, str] = {}
    stored = weights
    while isinstance(stored, (ExpertWeights, AdaptedWeights)):
        stored = stored.checkpoint
    for key in weights:
        name = renamed(key, renames)
        if name not in own and name not in tied and any(re.search(pattern, name) for pattern in ignore):
            continue
        if name not in own and isinstance(stored, QuantizedWeights) and stored.is_zero_bias(key):
            continue
        if name in sources:
            raise ValueError(f"{model}: both {sources[name]} and {key} would be loaded as {name}")
        sources[name] = key
    return sources


def renamed(key: str, renames: Sequence[tuple[str, str]]) -> str:
    """A key of a checkpoint as a model's name: each regular expression replaced, in order."""
    return _renamed(key, tuple(renames))


@lru_cache(maxsize=1 << 14)  # to tell which tasks a checkpoint is for, each of their classes is asked
def _renamed(key: str, renames: tuple[tuple[str, str], ...]) -> str:
    for pattern, replacement in renames:
        key = re.sub(pattern, replacement, key)
    return key


def _load(module: nn.Module, weights: Mapping[str, Callable[[], Weight]], dequantize: bool, assign: bool) -> None:
    """Load weights by the names of parameters. Each is read once; quantized ones stay so."""
    parameters = module.state_dict()
    layers = [(layer, name, use) for layer in module.modules() for name, use in layer.quantizable.items()]
    uses = {id(getattr(layer, name)): use for layer, name, use in layers}
    modules: dict[int, WeightModule] = {}  # by the parameter in whose place it is
    state: dict[str, Array] = {}
    misfits: list[str] = []
    for name, read in weights.items():
        parameter = parameters.get(name)
        try:
            weight = read()
        except StateError as error:
            misfits.append(str(error))
            if parameter is None:
                state[name] = np.empty(0)  # unexpected, whatever it would be
            continue
        if not isinstance(weight, (Blocks, Int8)):
            state[name] = weight
            continue
        use = uses.get(id(parameter))
        if parameter is None or use is None or dequantize:
            numbers = weight.dequantized()
        else:
            modules[id(parameter)] = quantized_module(weight, parameter.dtype)
            # load_state_dict checks all keys and shapes, then loads: of this one nothing but its shape counts.
            numbers = np.broadcast_to(np.zeros((), parameter.dtype.numpy), weight.shape)
        state[name] = numbers.T if use == "transposed" else numbers
    try:
        module.load_state_dict(state, assign=assign)
    except StateError as error:  # as always where there are misfits: each is missing or unexpected
        raise StateError("; ".join([str(error), *misfits])) from None
    for layer, name, _ in layers:
        if id(getattr(layer, name)) in modules:
            setattr(layer, name, modules[id(getattr(layer, name))])
