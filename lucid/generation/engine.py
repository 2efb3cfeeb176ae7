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
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar, Unpack

import numpy as np

from lucid.core.number_ranges import at_least, check_all
from lucid.generation.choice import Chooser, TokenLogprob
from lucid.generation.logits import StepLogits
from lucid.generation.lookup import draft
from lucid.generation.memory import memory_of
from lucid.generation.models import positions_of
from lucid.generation.options import GenerateOptions, Options, of_one_sequence
from lucid.generation.prompts import Ids, IdsLike, check_positions, read_prompt
from lucid.generation.slots import Slots
from lucid.generation.stops import Decode, Stops
from lucid.nn import CausalDecoder
from lucid.runtime.runs import RunCancelled
from lucid.runtime.session import Session

R = TypeVar("R")
_SIZES = {**dict.fromkeys(("slots", "capacity", "chunk"), at_least(1)), "queue": at_least(0)}


class EngineFull(RuntimeError):  # noqa: N818  # not an error of the request: a later one may be taken
    """An engine has as many requests in its slots and waiting as it takes."""


class Completion:
    """The answer to a request: iterate over its tokens, which come as they are written.

    Attributes:
        prompt_tokens: how many tokens the prompt has.
        total: how many tokens there are, the prompt's and new ones.
        kept: how many of them were not read again, because a slot still held them.
        ids: the new tokens so far, with those that ended it.
        ended_by: "eos" for a token that ends it, "stop" for a stop string, "length" for `max_new_tokens`, "cancelled",
            "error"; None while it goes on.
        error: what iterating raises at the end, where that is "error".
        drafted, accepted: how many tokens prompt lookup proposed, and how many of them the model chose.
    """

    def __init__(self, engine: Engine, prompt: Ids, options: Options, stops: Stops, row: int, drafted: int) -> None:
        self._engine, self._stops, self._most = engine, stops, options.max_new_tokens
        self._lookup = min(options.prompt_lookup_num_tokens or 0, drafted)
        self.prompt_tokens = self.total = len(prompt)
        self.kept = self.drafted = self.accepted = 0
        self.tokens = np.concatenate([prompt, np.zeros(self._most, np.int64)])  # the prompt and room for what follows
        self.ids: list[int] = []
        self.ended_by: str | None = None
        self.error: Exception | None = None
        self._chooser = Chooser(options, len(prompt), row)
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
        """Take part in the next steps, or wait for a slot. Asking for the first token has the same effect.

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
        """The log probabilities of the tokens so far; None without the option `logprobs`."""
        return self._chooser.logprobs

    def following(self, filled: int, most: int) -> Ids:
        """The tokens after the first `filled`, at most so many; after the last one a draft of what may follow."""
        known = self.tokens[filled : min(filled + most, self.total)]
        if filled + len(known) < self.total or not self._lookup:
            return known
        room = self._most - len(self.ids) - 1
        return np.concatenate([known, draft(self.tokens[: self.total], min(self._lookup, room))])

    def add(self, logits: StepLogits, proposed: Ids) -> str | None:
        """Choose the next tokens by the logits (n, vocab) after all tokens and after each one proposed.

        Returns:
            Why it ends with the last one, if it does.
        """
        self.drafted += len(proposed)
        for place, row in enumerate(logits):
            token = self._chooser.choose(self.tokens[: self.total], row)
            self.tokens[self.total] = token
            self.ids.append(token)
            self.total += 1
            right = place < len(proposed) and token == proposed[place]
            self.accepted += int(right)
            if self._stops.end(self.ids):
                return "eos" if token in self._stops.tokens else "stop"
            if len(self.ids) == self._most:
                return "length"
            if not right:
                break
        return None


@dataclass
class _Slot:
    """The contents of a slot of the cache, and the request that has it."""

    number: int
    # The tokens of its latest request, with room for more.
    ids: Ids = field(default_factory=lambda: np.zeros(0, np.int64))
    filled: int = 0  # how many of them the cache holds
    request: Completion | None = None  # the request that has the slot now
    used: int = 0  # the number of that request
    key: object = None  # what the memory depends on besides the tokens


_Pair: TypeAlias = tuple[_Slot, Completion]


class Engine:
    """Answers several requests at once over one cache, in slots.

    A step reads a part of one prompt and writes one token of each answer. If a new prompt begins with the tokens that a
    slot still holds, they are kept: a conversation reads only its new messages. Any number of threads may submit and
    iterate; one of those that wait for a token computes the steps for all.

    One run writes the tokens of all slots: in place over buffers (``cache="fixed"``); growing caches are copied in each
    step. States, such as Mamba's, are reused only if a prompt begins with all tokens that they have read. Tokens that a
    slot has read under an adapter of the session are reused under that adapter only.

    Args:
        model: an `nn.CausalDecoder`, or a `lucid.runtime.Session` of one exported with a cache. Its weights stay as
            they are. `Generator` gives slots that it has made.
        slots: how many requests are answered at once; more wait.
        capacity: the most tokens of a request, prompt and new ones together. By default the model's config tells it,
            if it has `max_positions`; of a session, the capacity that its buffers were exported with.
        decode: token ids to text; stop strings need it.
        queue: how many requests may wait.
        chunk: the tokens of a prompt that are read between two steps, if there are several slots. A small number keeps
            answers flowing evenly, a large one reads prompts faster. Several short prompts are read at once. Dynamic
            NTK scaling and LongRoPE compute other angles in later parts: give as many tokens as their prompts have.

    Raises:
        TypeError: for anything but a decoder or a session, and a size that is no whole number.
        ValueError: for a session without a cache, a size below 1, and a queue below 0.
    """

    def __init__(
        self,
        model: CausalDecoder | Session | Slots,
        slots: int = 4,
        capacity: int | None = None,
        *,
        decode: Decode | None = None,
        queue: int = 64,
        chunk: int = 64,
    ) -> None:
        sizes = {"slots": slots, "capacity": capacity, "queue": queue, "chunk": chunk}
        check_all(sizes, _SIZES, "Engine: ")
        known = [positions_of(model), capacity]
        self.capacity = min((size for size in known if size is not None), default=None)
        self._memory = model if isinstance(model, Slots) else memory_of("Engine", model).slots(slots, self.capacity)
        self._decode, self._limit, self._chunk = decode, queue, chunk
        self._slots = [_Slot(number) for number in range(slots)]
        self._waiting: deque[Completion] = deque()
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._stepping, self._sleeping = False, 0
        self._requests = self._turn = 0

    @property
    def active(self) -> int:
        """How many requests are being answered, in a slot each."""
        return len(self._running())

    @property
    def waiting(self) -> int:
        """How many requests wait for a slot."""
        with self._lock:
            return sum(one.ended_by is None for one in self._waiting)

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
        """As `submit`, but the request takes no slot before it begins: when its first token is asked for.

        Raises:
            TypeError, ValueError: as `submit`.
        """
        chosen = of_one_sequence("submit", "use Generator", options)
        ids = read_prompt(prompt_ids).ids
        if len(ids) > 1:
            raise ValueError(f"submit: got {len(ids)} prompts, expected one; submit each by itself")
        return self.prepare_row(ids[0], chosen)

    def prepare_row(self, ids: Ids, options: Options, row: int = 0) -> Completion:
        """As `prepare`, for checked ids (L,) and options, of a row of a batch.

        Raises:
            ValueError: beyond the capacity, for stop strings without `decode`, and drafts that cannot be verified.
        """
        check_positions(len(ids), options.max_new_tokens, self.capacity)
        most, reason = self._memory.drafts
        if options.prompt_lookup_num_tokens and not most:
            raise ValueError(f"generate: prompt_lookup_num_tokens is {options.prompt_lookup_num_tokens}, but {reason}")
        stops = Stops(options.eos_tokens, options.stop_strings, self._decode)
        return Completion(self, ids, options, stops, row, most)

    def add(self, request: Completion) -> None:
        """Take a request: `Completion.begin` calls it.

        Raises:
            EngineFull: if all slots are taken and `queue` requests wait.
        """
        with self._lock:
            self._waiting = deque(one for one in self._waiting if one.ended_by is None)
            if len(self._waiting) >= self._limit + len(self._slots) - self.active:
                raise EngineFull(
                    f"Engine: {self.active} requests are being answered and {self.waiting} wait, no more are taken; "
                    "try again later, or give more slots or a longer queue"
                )
            self._waiting.append(request)

    def step(self) -> bool:
        """Write one token of each answer, or several that a draft proposed; and read parts of prompts.

        Returns:
            Whether there was anything to do.

        Raises:
            RunCancelled: if another thread called the session's `cancel`; a later step goes on.
        """
        with self._lock:
            while self._stepping:
                self._sleep()
            self._stepping = True
        return self._step()

    def wait(self, request: Completion, count: int) -> None:
        """Wait until a request has so many tokens or has ended, and compute steps while no other thread does."""

        def come() -> bool:
            return len(request.ids) >= count or request.ended_by is not None

        while True:
            with self._lock:
                while self._stepping and not come():
                    self._sleep()
                if come():
                    return
                self._stepping = True
            self._step()

    def end(self, request: Completion, reason: str, error: Exception | None = None) -> None:
        """End a request, if it has not ended; its slot is free from the next step on."""
        with self._lock:
            if request.ended_by is None:
                request.error, request.ended_by = error, reason
            self._changed.notify_all()

    def _step(self) -> bool:
        try:
            self._admit()
            running = self._running()
            if unread := self._write(running):
                self._read(unread)
            return bool(running)
        finally:
            with self._lock:
                self._stepping = False
                if self._sleeping:
                    self._changed.notify_all()

    def _sleep(self) -> None:
        self._sleeping += 1
        self._changed.wait()
        self._sleeping -= 1

    def _admit(self) -> None:
        """Free the slots of requests that have ended, and give free slots to those that wait."""
        with self._lock:
            for slot in self._slots:
                if slot.request is not None and slot.request.ended_by is not None:
                    slot.request = None
                elif slot.request is not None and slot.key != self._memory.key(slot.number):
                    slot.key = object()  # it holds what two adapters have read
            if not self._waiting:
                return
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
        usable = [slot for slot in self._slots if slot.key == self._memory.key(slot.number)]
        source, count = _longest(request, usable)
        target = source
        if target is None or target.request is not None or 2 * count <= target.filled:
            target = min((slot for slot in self._slots if slot.request is None), key=lambda slot: slot.used)
        self._requests += 1
        target.request, target.used, target.key = request, self._requests, self._memory.key(target.number)
        target.ids, target.filled = request.tokens, 0
        self._keep(target, request, source or target, count)

    def _keep(self, slot: _Slot, request: Completion, source: _Slot, count: int) -> None:
        kept = self._tried([(slot, request)], self._memory.keep, slot.number, source.number, count)
        slot.filled = request.kept = kept or 0

    def _running(self) -> list[_Pair]:
        return [(slot, one) for slot in self._slots if (one := slot.request) is not None and one.ended_by is None]

    def _write(self, running: Sequence[_Pair]) -> list[_Pair]:
        """Write the next token of each request whose other tokens are read, and the tokens of drafts that are right.

        Returns:
            The other requests.
        """
        together, parts, unread = list[_Pair](), list[Ids](), list[_Pair]()
        for slot, request in running:
            if slot.filled == 0:  # of equal prompts one is read
                source, count = _longest(
                    request, [one for one in self._slots if one is not slot and one.key == slot.key]
                )
                if source is not None and 2 * count >= request.prompt_tokens:
                    self._keep(slot, request, source, count)
            if not slot.filled == request.total - 1 > 0:
                unread.append((slot, request))
            elif len(part := request.following(slot.filled, 1)) > 1:  # drafts have several lengths
                self._advance([(slot, request)], [part], len(part) - 1)
            else:
                together.append((slot, request))
                parts.append(part)
        if together:
            self._advance(together, parts)
        return unread

    def _read(self, unread: Sequence[_Pair]) -> None:
        """Read a part of the prompt that has the fewest unread tokens; every fourth time, of the oldest request's.

        Prompts that are read whole are read together, as many as fit into one part.
        """
        readers = [(slot, one) for slot, one in unread if one.ended_by is None]
        if not readers:
            return
        self._turn += 1
        readers.sort(key=lambda pair: pair[1].prompt_tokens - pair[0].filled if self._turn % 4 else pair[0].used)
        first, request = readers[0]
        size = self._chunk if len(self._slots) > 1 else request.prompt_tokens  # with one slot no other waits for it
        together = readers[:1]
        for pair in readers[1:]:
            longest = max(one.prompt_tokens for _, one in [*together, pair])
            fresh = first.filled == pair[0].filled == 0 and not any(_equal(pair, one) for one in together)
            if fresh and (len(together) + 1) * longest <= size:
                together.append(pair)
        together.sort(key=lambda pair: pair[0].number)
        parts = [one.tokens[slot.filled : min(slot.filled + size, one.prompt_tokens)] for slot, one in together]
        self._advance(together, parts)

    def _advance(self, pairs: Sequence[_Pair], parts: Sequence[Ids], drafted: int = 0) -> None:
        """Read tokens of requests, of which the last ones may be drafted; then choose those that follow."""
        numbers = [slot.number for slot, _ in pairs]
        try:
            logits = self._tried(pairs, self._memory.read, numbers, parts, 1 + drafted)
        except IndexError:  # of a token that the model does not have
            for pair, part in zip(pairs, parts, strict=True):
                self._advance([pair], [part], drafted)
            return
        for pair, part, rows in () if logits is None else zip(pairs, parts, logits, strict=True):
            slot, request = pair
            slot.filled += len(part) - drafted
            if slot.filled >= request.total:
                self._tried([pair], self._choose, slot, request, part[len(part) - drafted :], rows)

    def _choose(self, slot: _Slot, request: Completion, proposed: Ids, rows: StepLogits) -> None:
        """Choose the token that follows all tokens of a request, and more while those proposed are right."""
        drafted = len(proposed)
        if len(rows) <= drafted:
            raise ValueError(
                f"generate: the file gives the logits of {len(rows)} tokens, expected {1 + drafted} for a draft; "
                "export it without logits_to_keep"
            )
        reason = request.add(rows[len(rows) - 1 - drafted :], proposed)
        slot.filled = request.total - 1
        if drafted:
            self._memory.keep(slot.number, slot.number, slot.filled)
        if reason is not None:
            self.end(request, reason)

    def _tried(self, pairs: Sequence[_Pair], compute: Callable[..., R], *arguments: Any) -> R | None:
        """Compute for these requests alone: an error, perhaps of a user's function, ends only them, and gives None.

        A run that another thread cancels is no fault: a later step repeats it.

        Raises:
            IndexError: for an index of one of several requests.
        """
        try:
            return compute(*arguments)
        except Exception as error:
            if isinstance(error, RunCancelled) or (isinstance(error, IndexError) and len(pairs) > 1):
                raise
            for slot, request in pairs:
                self._fail(slot, request, error)
            return None

    def _fail(self, slot: _Slot, request: Completion, error: Exception) -> None:
        """End a request with an error, and empty its slot."""
        self._memory.clear(slot.number)
        slot.filled = 0
        self.end(request, "error", error)


def _longest(request: Completion, slots: Sequence[_Slot]) -> tuple[_Slot | None, int]:
    """The slot that holds most of a prompt's beginning, a free one before others; and how many of its tokens."""
    prompt = request.tokens[: request.prompt_tokens - 1]  # the last one is read: its logits are needed
    common = {slot.number: _common(prompt, slot.ids[: slot.filled]) for slot in slots}
    most = max(common.values(), default=0)
    holding = [slot for slot in slots if most and common[slot.number] == most]
    return max(holding, key=lambda slot: slot.request is None, default=None), most


def _equal(pair: _Pair, other: _Pair) -> bool:
    """Whether the tokens that one request has read can be copied for the other."""
    (slot, request), (another, known) = pair, other
    prompt, same = request.tokens[: request.prompt_tokens], known.tokens[: known.prompt_tokens]
    return slot.key == another.key and np.array_equal(prompt, same)


def _common(ids: Ids, others: Ids) -> int:
    """How many tokens both begin with."""
    count = min(len(ids), len(others))
    different = np.flatnonzero(ids[:count] != others[:count])
    return int(different[0]) if len(different) else count
