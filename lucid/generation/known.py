"""What a model's config tells about the texts that it writes."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from lucid.generation.session_caches import capacity_of
from lucid.runtime.session import Session


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
