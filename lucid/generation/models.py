"""Facts that a model or a session declares: sizes of caches, positions, the first token of texts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from lucid.runtime.session import Session

CACHE = re.compile(r"past_key_values\.\d+\.(decoder\.)?(key|value)")
STATE = re.compile(r"past_key_values\.\d+\.(conv|ssm|recurrent)")  # of a layer that carries a state of one size
ENCODER = "encoder_model"  # how the file of an encoder begins, next to that of its decoder
CROSS_CACHE = re.compile(r"past_key_values\.\d+\.encoder\.(key|value)")
_FEWER = re.compile(r"min\(\w+, (\d+)\)")  # the size that `kept_positions` gives


def capacity_of(session: Session) -> int | None:
    """How many positions a session's buffers hold; None where it takes any number, or a growing cache."""
    capacities = [shape[2] for name, (_, shape) in session.inputs.items() if CACHE.fullmatch(name)]
    return capacities[0] if capacities and isinstance(capacities[0], int) else None


def logits_of(shape: Sequence[int | str | None]) -> int | None:
    """How many of the last tokens a step gives logits for (N, L or fewer, vocab); None for all."""
    size = shape[1]
    limited = _FEWER.fullmatch(size) if isinstance(size, str) else None
    return int(limited[1]) if limited else size if isinstance(size, int) else None


def is_fixed(session: Session, past: str, present: str) -> bool:
    """Whether a session returns as many positions as it is given."""
    return session.inputs[past][1][2:3] == session.outputs[present][1][2:3]


def heads_of(name: str, shape: tuple[int | str | None, ...]) -> tuple[int, int]:
    """The number of heads and their width in a cache (N, H, P, d)."""
    match shape:
        case (_, int(heads), _, int(width)):
            return heads, width
    raise ValueError(
        f"Generator: the session's input {name} has shape {list(shape)}, expected [N, H, P, d] with fixed H and d; "
        'export with to_onnx(model, cache="growing")'
    )


def state_shape(name: str, shape: tuple[int | str | None, ...]) -> tuple[int, ...]:
    """The sizes of a state without its batch."""
    sizes = tuple(size for size in shape[1:] if isinstance(size, int))
    if len(sizes) != len(shape) - 1:
        raise ValueError(
            f"Generator: the session's input {name} has shape {list(shape)}, expected fixed sizes after the batch; "
            'export with to_onnx(model, cache="growing")'
        )
    return sizes


@runtime_checkable
class _Configured(Protocol):
    config: object


@runtime_checkable
class _Positioned(Protocol):
    max_positions: int


@runtime_checkable
class _Starting(Protocol):
    decoder_start_token_id: int | None


def positions_of(model: object) -> int | None:
    """How many positions a model's config says that it has, or a session's buffers."""
    if isinstance(model, Session):
        return capacity_of(model)
    if isinstance(model, _Configured) and isinstance(model.config, _Positioned):
        return model.config.max_positions
    return None


def start_of(model: object) -> int | None:
    """The token that a model's config says texts begin with."""
    if isinstance(model, _Configured) and isinstance(model.config, _Starting):
        return model.config.decoder_start_token_id
    return None
