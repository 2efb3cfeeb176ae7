"""Answers that match a JSON schema, a regular expression or a grammar, whatever the model would like to write."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from lucid.generation import Constraint, Generator, LogitsError, Vocabulary
from lucid.generation.constraints import LONGEST
from lucid.generation.options import Options
from tests.test_generation import Chain

WORDS = ["<end>", *'{}[]":,. -0123456789abcdefgh', "\n", "true", "false", "null", '": ', "abc", "e.dad"]
EOS = 0


def tokenizer() -> Tokenizer:
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokens = [byte_level.pre_tokenize_str(word)[0][0] for word in WORDS]
    byte_pairs = Tokenizer(models.BPE({token: number for number, token in enumerate(tokens)}, []))
    byte_pairs.pre_tokenizer, byte_pairs.decoder = byte_level, decoders.ByteLevel()
    byte_pairs.add_special_tokens(["<end>"])
    return byte_pairs


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return Vocabulary(tokenizer().to_str(), [EOS])


def noise(seed: int, more: int = 5) -> Chain:
    """A model of more tokens than the tokenizer has, which likes no token better for good reason."""
    size = len(WORDS) + more
    return Chain(np.random.default_rng(seed).normal(size=(size, size)) * 3)


def written(constraint: Constraint, model: int = 0, **options: Any) -> list[str]:
    """Answers, without the token that ends them; the mark ... stands after one that `max_new_tokens` ended."""
    settings = {"max_new_tokens": 200, "eos_token_id": EOS, "constraint": constraint, **options}
    answers = []
    for row in Generator(noise(model)).generate([[3], [4]], **settings).tolist():
        ended = EOS in row
        answers.append(
            "".join(WORDS[token] for token in row[: row.index(EOS) if ended else None]) + "..." * (not ended)
        )
    return answers


PERSON = {
    "type": "object",
    "properties": {
        "a": {"type": "string", "maxLength": 4},
        "b": {"type": "array", "items": {"type": "integer", "maximum": 99}, "maxItems": 2},
        "c": {"enum": [True, None]},
    },
    "required": ["a", "b", "c"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"do_sample": True, "seed": 3, "temperature": 3.0},
        {"num_beams": 3},
        {"num_beams": 2, "num_return_sequences": 2},
    ],
    ids=str,
)
@pytest.mark.parametrize("model", range(3))
def test_every_answer_is_json_of_the_schema(vocabulary: Vocabulary, model: int, options: dict[str, Any]) -> None:
    for text in written(vocabulary.json_schema(PERSON), model, **options):
        answer = json.loads(text)
        assert list(answer) == ["a", "b", "c"]
        assert len(answer["a"]) <= 4 and len(answer["b"]) <= 2 and answer["c"] in (True, None)
        assert all(isinstance(one, int) and one <= 99 for one in answer["b"])


@pytest.mark.parametrize("model", range(3))
def test_every_answer_matches_the_expression_and_the_grammar(vocabulary: Vocabulary, model: int) -> None:
    assert all(
        re.fullmatch(r"[a-c]{2,5}e\.dad", text) for text in written(vocabulary.regex(r"[a-c]{2,5}e\.dad"), model)
    )
    grammar = vocabulary.grammar('start: number ("," number)~0..3\nnumber: /-?[1-9][0-9]{0,2}/')
    assert all(re.fullmatch(r"-?[1-9]\d{0,2}(,-?[1-9]\d{0,2}){0,3}", text) for text in written(grammar, model))


def test_an_answer_that_is_not_complete_is_ended_by_the_number_of_tokens_alone(vocabulary: Vocabulary) -> None:
    endless = {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"], "additionalProperties": False}
    for text in written(vocabulary.json_schema(endless), max_new_tokens=30):
        assert text.startswith("{") and text.endswith("...")


def test_a_stop_string_across_tokens_ends_an_answer(vocabulary: Vocabulary) -> None:
    generator = Generator(noise(0), decode=lambda ids: "".join(WORDS[token] for token in ids))
    options = {"max_new_tokens": 50, "eos_token_id": EOS, "constraint": vocabulary.regex("a{3}bcd{9}")}
    (row,) = generator.generate([3], stop="ab", **options).tolist()
    assert "".join(WORDS[token] for token in row) in ("aaab", "aaabc")


def test_logits_change_only_by_what_is_impossible(vocabulary: Vocabulary) -> None:
    matcher = vocabulary.regex("ab+").matcher()
    a, b, c = (WORDS.index(letter) for letter in "abc")
    assert np.flatnonzero(matcher.allowed([])).tolist() == [a]
    assert np.flatnonzero(matcher.allowed([a, b])).tolist() == [EOS, b]
    assert np.flatnonzero(matcher.allowed([a])).tolist() == [b]  # as of another beam
    with pytest.raises(ValueError, match="constraint: the regular expression cannot be followed: "):
        matcher.allowed([a, c])
    assert np.flatnonzero(matcher.allowed([a])).tolist() == [b]


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"type": "string", "minLength": 5, "maxLength": 2}, "minLength .5. is greater than maxLength .2."),
        ({"allOf": [{"type": "string"}, {"type": "number"}]}, "Unsatisfiable schema: incompatible types"),
        ({"$ref": "#"}, "nothing matches the JSON schema; a rule or reference of it leads only to itself"),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}, "nothing matches"),
        ({"type": "text"}, "Invalid type: text"),
        ({"not": {"type": "string"}}, 'Unimplemented keys: ."not".'),
        ({"$ref": "http://example.com/x"}, "is not present in a registry"),
        ({"type": "string", "pattern": "("}, "unclosed group"),
        ({"enum": ["a" * LONGEST]}, f"the JSON schema has {LONGEST + 14} characters, at most {LONGEST} are read"),
        ({"enum": [np.float32(1)]}, "the JSON schema is not JSON: Object of type float32"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_schema_that_cannot_be_met_is_refused(vocabulary: Vocabulary, schema: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        vocabulary.json_schema(schema)


def test_a_wrong_expression_or_grammar_is_refused(vocabulary: Vocabulary) -> None:
    with pytest.raises(ValueError, match="the regular expression cannot be read: [^\\\\\n]*: unclosed group$"):
        vocabulary.regex("(a")
    with pytest.raises(ValueError, match="the grammar cannot be read: .*unknown name"):
        vocabulary.grammar("start: a")
    with pytest.raises(ValueError, match="nothing matches the grammar"):
        vocabulary.grammar('start: start "a"')
    with pytest.raises(
        ValueError, match=f"the grammar has 10000000 characters, at most {LONGEST} are read; shorten it"
    ):
        vocabulary.grammar("a" * 10_000_000)
    with pytest.raises(TypeError, match="the JSON schema is a bool, expected an object"):
        vocabulary.json_schema(True)  # type: ignore[arg-type]


def test_what_takes_too_long_to_follow_says_so() -> None:
    """It was said to match nothing."""
    raw, draw = json.loads(tokenizer().to_str()), random.Random(0)
    for _ in range(20):  # long tokens lead through many states
        raw["model"]["vocab"]["".join(draw.choices("abcdef", k=300))] = len(raw["model"]["vocab"])
    pattern = " & ".join(
        f"/(.*{a}.{{{count}}}{b}.*)/" for a, count, b in (("a", 20, "b"), ("c", 25, "d"), ("e", 30, "f"))
    )
    with pytest.raises(ValueError, match="the grammar cannot be followed: lexer error: too many expressions"):
        Vocabulary(json.dumps(raw), [EOS]).grammar(f"start: A\nA: {pattern}")


def test_rules_that_lead_to_thousands_of_others_end_no_process() -> None:
    """The library descends from rule to rule: on a stack of usual size this was a crash, also of a server."""
    code = """
from tests.test_constraints import EOS, tokenizer
from lucid.generation import Vocabulary
vocabulary = Vocabulary(tokenizer().to_str(), [EOS])
rules = [f'r{n}: ("a" r{n + 1})*' for n in range(9000)]
deep = {f"d{n}": {"properties": {"a": {"$ref": f"#/$defs/d{n + 1}"}}, "required": ["a"]} for n in range(2500)}
constraints = [
    vocabulary.grammar("\\n".join(["start: r0", *rules, 'r9000: "b"'])),
    vocabulary.json_schema({"$ref": "#/$defs/d0", "$defs": {**deep, "d2500": {}}}),
]
for constraint in constraints:
    matcher = constraint.matcher()
    print(constraint.kind, matcher.allowed([]).sum() > 0, end="; ")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("grammar True; JSON schema True; ", 0), done.stderr


def test_an_answer_must_be_able_to_end(vocabulary: Vocabulary) -> None:
    with pytest.raises(
        ValueError, match=r"eos_token_id is None, expected one of \[0\], with which the constraint ends"
    ):
        Options(max_new_tokens=1, constraint=vocabulary.regex("a"))
    with pytest.raises(ValueError, match="eos_token_ids is empty, expected an id that ends an answer"):
        Vocabulary(tokenizer().to_str(), [])
    with pytest.raises(LogitsError, match="constraint gave -inf .* leave at least one token possible"):
        written(vocabulary.regex("a"), min_new_tokens=5)


def test_without_the_library_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lucid.generation.constraints.find_spec", lambda name: None)
    with pytest.raises(
        ModuleNotFoundError, match=r"a constraint needs llguidance: pip install 'lucid-onnx\[structured\]'"
    ):
        Vocabulary(tokenizer().to_str(), [0])
