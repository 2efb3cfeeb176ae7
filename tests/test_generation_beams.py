"""Beam search, on chains whose probabilities are known: the next token depends on the last alone."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from lucid.generation.beams import BeamSearch
from lucid.generation.logits import Logits
from lucid.generation.options import Options
from lucid.generation.stops import Stops


def searched(
    chain: Logits, first: int, num_beams: int, length: int, eos: tuple[int, ...] = (), seed: int | None = None
) -> list[int]:
    """The best sequence after the token `first`, where chain[a, b] is the probability of b after a."""
    with np.errstate(divide="ignore"):
        table = np.log(np.asarray(chain, np.float64))
    beams = BeamSearch(1, Options(num_beams=num_beams, max_new_tokens=length), Stops(eos, (), None))
    random = None if seed is None else np.random.default_rng(seed)
    new, last = np.zeros((num_beams, 0), np.int64), np.full(num_beams, first)
    while beams.open:
        rows, tokens = beams.advance(table[last], new, random)
        new, last = np.concatenate([new[rows], tokens[:, None]], axis=1), tokens
    return beams.best()[0].tolist()


def best_by_trial(chain: Logits, first: int, length: int, eos: tuple[int, ...]) -> list[int]:
    """Of all sequences, the one of the highest mean log probability."""
    table, scores = np.log(np.asarray(chain)), {}
    for count in range(1, length + 1):
        for tokens in itertools.product(range(len(table)), repeat=count):
            ends = [token in eos for token in tokens]
            if not any(ends[:-1]) and (ends[-1] or count == length):
                steps = zip((first, *tokens), tokens, strict=False)
                scores[tokens] = sum(table[a, b] for a, b in steps) / count
    return list(max(scores, key=lambda tokens: scores[tokens]))


TRAP = [[0.0, 0.6, 0.4], [0.4, 0.3, 0.3], [0.05, 0.05, 0.9]]  # 1 is likelier after 0, but only 2 leads on


def test_one_beam_is_greedy_and_two_look_further() -> None:
    assert searched(TRAP, 0, num_beams=1, length=2) == [1, 0]
    assert searched(TRAP, 0, num_beams=2, length=2) == [2, 2]


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("eos", [(), (3,), (1, 3)])
def test_with_enough_beams_the_search_finds_the_best_of_all(seed: int, eos: tuple[int, ...]) -> None:
    chain = np.random.default_rng(seed).dirichlet([0.5] * 4, size=4) * 0.99 + 0.0025
    assert searched(chain, 0, num_beams=64, length=4, eos=eos) == best_by_trial(chain, 0, 4, eos)


def test_a_sequence_that_ended_is_kept_while_the_search_goes_on() -> None:
    chain = [[0.1, 0.6, 0.3], [0.1, 0.1, 0.8], [0.98, 0.01, 0.01]]
    tokens = searched(chain, 0, num_beams=2, length=6, eos=(2,))
    assert tokens == [1, 2]  # (log 0.6 + log 0.8) / 2; the search went on for as long as 2's other sequences could win


def test_the_search_ends_once_no_beam_can_beat_the_finished_ones() -> None:
    """Both finished sequences have a mean above the best running one at its length."""
    table = np.log([[0.02, 0.49, 0.49]] * 3)
    beams = BeamSearch(1, Options(num_beams=2, max_new_tokens=50), Stops((1, 2), (), None))
    beams.advance(table[[0, 0]], np.zeros((2, 0), np.int64), None)
    assert not beams.open
    assert beams.best().tolist() == [[1]]


def test_prompts_of_a_batch_do_not_see_each_other() -> None:
    chains = np.random.default_rng(3).dirichlet([1.0] * 5, size=(2, 5))
    alone = [searched(chain, 0, num_beams=3, length=5, eos=(4,)) for chain in chains]
    tables = np.log(chains)
    beams = BeamSearch(2, Options(num_beams=3, max_new_tokens=5, pad_token_id=9), Stops((4,), (), None))
    new, last, which = np.zeros((6, 0), np.int64), np.zeros(6, np.int64), np.repeat([0, 1], 3)
    while beams.open:
        rows, last = beams.advance(tables[which, last], new, None)
        assert (rows // 3 == which).all()
        new = np.concatenate([new[rows], last[:, None]], axis=1)
    for tokens, expected in zip(beams.best().tolist(), alone, strict=True):
        assert tokens == expected + [9] * (len(tokens) - len(expected))


def test_more_beams_than_tokens() -> None:
    """At the first step there are fewer sequences than beams."""
    assert searched([[0.7, 0.3], [0.2, 0.8]], 0, num_beams=8, length=3) == [0, 0, 0]


def test_sampled_beams_are_a_function_of_the_seed() -> None:
    chain = np.random.default_rng(0).dirichlet([2.0] * 6, size=6)
    draws = [searched(chain, 0, num_beams=2, length=6, seed=seed) for seed in (0, 0, 1, 2, 3)]
    assert draws[0] == draws[1]
    assert len({tuple(tokens) for tokens in draws}) > 1
