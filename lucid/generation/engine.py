"""Continuous batching: requests join and leave between steps, and each is answered as if it were alone.

::

    engine = Engine(session, slots=8)
    for token in engine.submit(ids, max_new_tokens=100, do_sample=True, temperature=0.7, seed=1):
        ...

The idea is Orca's (Yu et al. 2022): a batch is formed anew for each step.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Unpack

import numpy as np

from lucid.generation.choice import Chooser, TokenLogprob
from lucid.generation.models import capacity_of, positions_of
from lucid.generation.options import GenerateOptions, Options
from lucid.generation.prompts import Ids, IdsLike, check_positions, read_prompt
from lucid.generation.sequences import StepLogits
from lucid.generation.slots import BufferSlots, Slots
from lucid.generation.stepper import slots_of
from lucid.generation.stops import Decode, Stops
from lucid.nn import CausalDecoder
from lucid.runtime.runs import RunCancelled
from lucid.runtime.session import Session


class EngineFull(RuntimeError):  # noqa: N818  # not an error of the request: a later one may be taken
    """An engine has as many requests in its slots and waiting as it takes."""


class Completion:
    """The answer to a request: iterate over its tokens, which come as they are written.

    Attributes:
        prompt_tokens: how many tokens the prompt has.
        kept: how many of them were not read, as a slot still held them.
        ids: the new tokens so far, with those that ended it.
        ended_by: "eos" for a token that ends it, "stop" for a stop string, "length" for `max_new_tokens`, "cancelled",
            "error"; None while it goes on.
        error: what iterating raises at the end, where that is "error".
    """

    def __init__(self, engine: Engine, prompt: Ids, options: Options, stops: Stops) -> None:
        self._engine, self._stops, self._most = engine, stops, options.max_new_tokens
        self.prompt_tokens, self.kept = len(prompt), 0
        self.tokens = np.concatenate([prompt, np.zeros(self._most, np.int64)])  # the prompt and room for what follows
        self.ids: list[int] = []
        self.ended_by: str | None = None
        self.error: Exception | None = None
        self._chooser = Chooser(options, len(prompt))
        self._begun, self._given = False, 0

    def __iter__(self) -> Completion:
        return self

    def __next__(self) -> int:
        self.begin()
        self._engine.wait(self, self._given + 1)
        if self._given < len(self.ids):
            self._given += 1
            return self.ids[self._given - 1]
        if self.error is not None:
            raise self.error
        raise StopIteration

    def begin(self) -> None:
        """Take part in the next steps, or wait for a slot. Asking for the first token does it too.

        Raises:
            EngineFull: as `Engine.submit`.
        """
        if not self._begun:
            self._engine.add(self)
            self._begun = True

    def cancel(self) -> None:
        """End it, from any thread. Its slot is free from the next step on."""
        self._engine.end(self, "cancelled")

    @property
    def logprobs(self) -> list[TokenLogprob] | None:
        """Of the tokens so far; None without the option `logprobs`."""
        return self._chooser.logprobs

    def add(self, logits: StepLogits) -> str | None:
        """Choose the next token by the logits (vocab,); why it ends with it, if it does."""
        total = self.prompt_tokens + len(self.ids)
        token = self._chooser.choose(self.tokens[:total], logits)
        self.tokens[total] = token
        self.ids.append(token)
        if self._stops.ended(self.tokens[None, self.prompt_tokens : total + 1])[0]:
            return "eos" if token in self._stops.tokens else "stop"
        return "length" if len(self.ids) == self._most else None


@dataclass
class _Slot:
    """What a slot of the cache holds, and for whom."""

    number: int
    ids: Ids = field(default_factory=lambda: np.zeros(0, np.int64))
    """The tokens of its latest request, with room for more."""
    filled: int = 0
    """How many of them the cache holds."""
    request: Completion | None = None
    """Who has it now."""
    used: int = 0
    """The number of that request."""


class Engine:
    """Answers several requests at once over one cache, in slots.

    A step reads a part of one prompt and writes one token of each answer. What a slot still holds of an earlier request
    is kept where a new prompt begins with it, so a conversation reads only what is new. Any number of threads may
    submit and iterate; one of those that wait for a token computes the steps for all.

    Sessions exported with ``cache="fixed"`` write the tokens of all slots in one run. Eager decoders and growing caches
    run once for each slot. States, such as Mamba's, are kept only if a prompt begins with all that they are of.

    Args:
        model: an `nn.CausalDecoder`, or a `lucid.runtime.Session` of one exported with a cache. Its weights, and the
            adapter of a session, stay as they are: what slots keep is of them.
        slots: how many requests are answered at once; more wait.
        capacity: the most tokens of a request, prompt and new ones together. By default the model's config tells it,
            if it has `max_positions`; of a session, the capacity that its buffers were exported with.
        decode: token ids to text; stop strings need it.
        queue: how many requests may wait.
        chunk: how many tokens of a prompt are read between two steps, where there are several slots: fewer let answers
            go on more evenly, more read faster. Dynamic NTK scaling and LongRoPE compute other angles in later parts:
            give as many as their prompts have.

    Raises:
        TypeError: for anything but a decoder or a session.
        ValueError: for a session without a cache, and for a size below 1.
    """

    def __init__(
        self,
        model: CausalDecoder | Session,
        slots: int = 4,
        capacity: int | None = None,
        *,
        decode: Decode | None = None,
        queue: int = 64,
        chunk: int = 64,
    ) -> None:
        for name, size in {"slots": slots, "capacity": capacity, "chunk": chunk}.items():
            if size is not None and size < 1:
                raise ValueError(f"Engine: {name} is {size}, expected 1 or more")
        known = [positions_of(model), capacity, capacity_of(model) if isinstance(model, Session) else None]
        self.capacity = min((size for size in known if size is not None), default=None)
        self._memory: Slots = slots_of(model, slots, self.capacity)
        self._decode, self._limit, self._chunk = decode, queue, chunk
        self._slots = [_Slot(number) for number in range(slots)]
        self._waiting: deque[Completion] = deque()
        self._changed = threading.Condition()
        self._stepping = False
        self._requests = self._turn = 0

    @property
    def together(self) -> bool:
        """Whether a step writes the tokens of all slots in one run of the model."""
        return isinstance(self._memory, BufferSlots)

    @property
    def active(self) -> int:
        """How many requests are being answered, in a slot each."""
        return len(self._running())

    @property
    def waiting(self) -> int:
        """How many requests wait for a slot."""
        return len(self._waiting)

    def submit(self, prompt_ids: IdsLike, **options: Unpack[GenerateOptions]) -> Completion:
        """Ask for the continuation of a prompt, (L,) or (1, L).

        Args:
            prompt_ids: token ids.
            options: those of `Generator.generate`, except `num_beams`, `num_return_sequences` and `pad_token_id`, which
                are for batches.

        Returns:
            The tokens as they come: iterate over it, or call `step` and look at its `ids`.

        Raises:
            EngineFull: if all slots are taken and `queue` requests wait.
            TypeError, ValueError: for an invalid prompt or option, and a request beyond the capacity.
        """
        request = self.prepare(prompt_ids, **options)
        request.begin()
        return request

    def prepare(self, prompt_ids: IdsLike, **options: Unpack[GenerateOptions]) -> Completion:
        """As `submit`, but the request takes no slot before it begins, which is when its first token is asked for.

        Raises:
            TypeError, ValueError: as `submit`.
        """
        if idle := [name for name in ("num_beams", "num_return_sequences", "pad_token_id") if name in options]:
            raise TypeError(f"submit: got {' and '.join(idle)}, expected options for one sequence; use Generator")
        chosen = Options(**options)
        ids = read_prompt(prompt_ids).ids
        if len(ids) > 1:
            raise ValueError(f"submit: got {len(ids)} prompts, expected one; submit each by itself")
        check_positions(ids.shape[1], chosen.max_new_tokens, self.capacity)
        stops = Stops(chosen.eos_tokens, chosen.stop_strings, self._decode)
        return Completion(self, ids[0], chosen, stops)

    def add(self, request: Completion) -> None:
        """Take a request: `Completion.begin` calls it.

        Raises:
            EngineFull: if all slots are taken and `queue` requests wait.
        """
        with self._changed:
            self._waiting = deque(one for one in self._waiting if one.ended_by is None)
            if len(self._waiting) >= self._limit + len(self._slots) - self.active:
                raise EngineFull(
                    f"Engine: {self.active} requests are being answered and {self.waiting} wait, no more are taken; "
                    "try again later, or give more slots or a longer queue"
                )
            self._waiting.append(request)

    def step(self) -> bool:
        """Read a part of one prompt, and write one token of each answer.

        Returns:
            Whether there was anything to do.

        Raises:
            RunCancelled: if another thread called the session's `cancel`; a later step goes on.
        """
        with self._changed:
            self._changed.wait_for(lambda: not self._stepping)
            self._stepping = True
        return self._step()

    def wait(self, request: Completion, count: int) -> None:
        """Wait until a request has so many tokens or has ended, and compute steps while no other thread does."""

        def come() -> bool:
            return len(request.ids) >= count or request.ended_by is not None

        while True:
            with self._changed:
                self._changed.wait_for(lambda: come() or not self._stepping)
                if come():
                    return
                self._stepping = True
            self._step()

    def end(self, request: Completion, reason: str, error: Exception | None = None) -> None:
        """End a request, if it has not ended; its slot is free from the next step on."""
        with self._changed:
            if request.ended_by is None:
                request.error, request.ended_by = error, reason
            self._changed.notify_all()

    def _step(self) -> bool:
        try:
            self._admit()
            reads, writes = self._read(), self._write()
            return reads or writes
        finally:
            with self._changed:
                self._stepping = False
                self._changed.notify_all()

    def _admit(self) -> None:
        """Free the slots of requests that have ended, and give free slots to those that wait."""
        with self._changed:
            for slot in self._slots:
                if slot.request is not None and slot.request.ended_by is not None:
                    slot.request = None
            self._waiting = deque(one for one in self._waiting if one.ended_by is None)
            free = sum(slot.request is None for slot in self._slots)
            entering = [self._waiting.popleft() for _ in range(min(free, len(self._waiting)))]
        for request in entering:  # what they keep is copied while others may submit
            self._place(request)

    def _place(self, request: Completion) -> None:
        """Give a request the free slot from which most of its prompt is kept.

        Where more would be lost of that slot than is kept, and where another request has it, what is common is copied
        to the least recently used one.
        """
        prompt = request.tokens[: request.prompt_tokens - 1]  # the last one is read: its logits are needed
        common = [_common(prompt, slot.ids[: slot.filled]) for slot in self._slots]
        source = max(self._slots, key=lambda slot: (common[slot.number], slot.request is None))
        count, target = common[source.number], source
        if source.request is not None or 2 * count <= source.filled:
            target = min((slot for slot in self._slots if slot.request is None), key=lambda slot: slot.used)
        self._requests += 1
        target.request, target.used = request, self._requests
        target.ids, target.filled = request.tokens, 0
        with self._faults_of((target, request)):
            target.filled = request.kept = self._memory.keep(target.number, source.number, count)

    def _running(self) -> list[tuple[_Slot, Completion]]:
        return [(slot, one) for slot in self._slots if (one := slot.request) is not None and one.ended_by is None]

    def _read(self) -> bool:
        """Read a part of the prompt of which the least is left; every fourth time, of the oldest request's."""
        running = self._running()
        left = {slot.number: one.prompt_tokens - slot.filled for slot, one in running}
        readers = [(slot, one) for slot, one in running if left[slot.number] > 0]
        if not readers:
            return False
        self._turn += 1
        slot, request = min(readers, key=lambda both: left[both[0].number] if self._turn % 4 else both[0].used)
        size = self._chunk if len(self._slots) > 1 else request.prompt_tokens  # with one slot no other waits for it
        part = request.tokens[slot.filled : min(slot.filled + size, request.prompt_tokens)]
        with self._faults_of((slot, request)):
            logits = self._memory.read(slot.number, part)
            slot.filled += len(part)
            if slot.filled == request.prompt_tokens:
                self._add(slot, request, logits)
        return True

    def _write(self) -> bool:
        """Write one token of each answer that has begun."""
        writers = [(slot, one) for slot, one in self._running() if one.ids]
        if not writers:
            return False
        with self._faults_of(*writers):
            logits = self._memory.step([slot.number for slot, _ in writers], [one.ids[-1] for _, one in writers])
            for slot, _ in writers:
                slot.filled += 1
            for (slot, request), row in zip(writers, logits, strict=True):
                self._add(slot, request, row)
        return True

    def _add(self, slot: _Slot, request: Completion, logits: StepLogits) -> None:
        with self._faults_of((slot, request)):
            if (reason := request.add(logits)) is not None:
                self.end(request, reason)

    @contextmanager
    def _faults_of(self, *requests: tuple[_Slot, Completion]) -> Iterator[None]:
        """Where only these are computed: what is raised, perhaps by a function of the user's, ends them and no others.

        Iterating over them raises it. A run that another thread cancels is no fault: a later step repeats it.
        """
        try:
            yield
        except Exception as error:
            if isinstance(error, RunCancelled):
                raise
            for slot, request in requests:
                self._memory.clear(slot.number)
                slot.filled = 0
                self.end(request, "error", error)


def _common(ids: Ids, others: Ids) -> int:
    """How many tokens both begin with."""
    count = min(len(ids), len(others))
    different = np.flatnonzero(ids[:count] != others[:count])
    return int(different[0]) if len(different) else count
