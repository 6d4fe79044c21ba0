"""Cutting grammars: the words of a grammar stay the same, whichever way it is cut."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import llguidance
import numpy as np
import pytest
from llguidance.numpy import fill_next_token_bitmask

from mlxceld.engine.gbnf import Alt, Chars, GrammarError, Node, Ref, Repeat, Seq, parse
from mlxceld.engine.lexemes import to_lark

ALPHABET = "ab\u00e9\u00e8"
"""Two letters of one byte and two of two bytes that begin alike."""

LONGEST = 4
MOST_BYTES = 8

JSON = r"""
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::=
  "{" ws (
            string ":" ws value
    ("," ws string ":" ws value)*
  )? "}" ws
array  ::= "[" ws ( value ("," ws value)* )? "]" ws
string ::= "\"" (
    [^"\\\x7F\x00-\x1F] |
    "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4})
  )* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ws
ws     ::= | " " | "\n" [ \t]{0,20}
"""

SUMS = r"""
root  ::= (expr "=" ws term "\n")+
expr  ::= term ([-+*/] ws term)*
term  ::= ident | num | "(" ws expr ")" ws
ident ::= [a-z] [a-z0-9_]* ws
num   ::= [0-9]+ ws
ws    ::= [ \t\n]*
"""


class _Tokens:
    """Characters, a few pairs of them, and single bytes."""

    is_tokenizer_wrapper = True
    bos_token_id = None
    eos_token_id = 0
    special_token_ids = (0,)
    tokens = (
        b"<end>",
        *(letter.encode() for letter in ALPHABET),
        b"ab",
        b"ba",
        b"\xc3",
        b"\xa9",
        b"\xa8",
    )

    def __call__(self, text: str) -> list[int]:
        raise AssertionError("text is forced on nobody")


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return llguidance.LLTokenizer(_Tokens(), slices=[])  # type: ignore[arg-type]


def words(rules: Mapping[str, Node]) -> set[str]:
    """All words of a grammar up to `LONGEST` characters, straight from its meaning."""
    known: dict[str, set[str]] = {name: set() for name in rules}

    def times(left: set[str], right: set[str]) -> set[str]:
        return {a + b for a in left for b in right if len(a) + len(b) <= LONGEST}

    def of(node: Node) -> set[str]:
        match node:
            case Chars(spans):
                return {c for c in ALPHABET if any(a <= ord(c) <= b for a, b in spans)}
            case Ref(name):
                return known[name]
            case Alt(items):
                return set().union(*(of(item) for item in items))
            case Seq(items):
                found = {""}
                for item in items:
                    found = times(found, of(item))
                return found
            case Repeat(item, low, high):
                inner, found = of(item), {""}
                for _ in range(low):
                    found = times(found, inner)
                every = set(found)
                for _ in range(LONGEST if high is None else high - low):
                    found = times(found, inner)
                    every |= found
                return every

    while True:
        found = {name: of(node) for name, node in rules.items()}
        if found == known:
            return {word for word in known["root"] if len(word.encode()) <= MOST_BYTES}
        known = found


def accepted(tokenizer: Any, lark: str) -> set[str]:
    """The same words, found by following every mask."""
    grammar = llguidance.LLMatcher.grammar_from_lark(lark)
    start = llguidance.LLMatcher(tokenizer, grammar)
    assert not start.is_error(), start.get_error()
    bits = np.zeros((1, 1), np.int32)
    found: set[str] = set()
    seen: set[bytes] = set()
    waiting = [(start, b"")]
    while waiting:
        matcher, raw = waiting.pop()
        fill_next_token_bitmask(matcher, bits)
        if matcher.is_accepting() and len(raw.decode()) <= LONGEST:
            found.add(raw.decode())
        for token, piece in enumerate(_Tokens.tokens):
            longer = raw + piece
            if not token or not bits[0, 0] >> token & 1 or longer in seen:
                continue
            if (
                len(longer) > MOST_BYTES
                or len(longer.decode(errors="ignore")) > LONGEST
            ):
                continue
            seen.add(longer)
            copy = matcher.deep_copy()
            assert copy.consume_token(token), copy.get_error()
            waiting.append((copy, longer))
    return found


def _random_grammar(rng: random.Random) -> str:
    names = ["root", "x", "y"][: rng.randint(1, 3)]
    sets = ["[ab]", "[^a]", "[b\u00e8]", "[\u00e9a]", "[\u00e8]"]

    def atom(depth: int, known: list[str]) -> str:
        kind = rng.random()
        if kind < 0.35:
            letters = rng.choices("ab\u00e9", k=rng.randint(1, 2))
            return f'"{"".join(letters)}"'
        if kind < 0.55:
            return rng.choice(sets)
        if kind < 0.8 and known:
            return rng.choice(known)
        return f"({alternatives(depth - 1, known)})" if depth else '"a"'

    def alternatives(depth: int, known: list[str]) -> str:
        endings = ["", "", "", "*", "?", "+", "{1,2}", "{2}"]
        return " | ".join(
            " ".join(
                atom(depth, known) + rng.choice(endings)
                for _ in range(rng.randint(0, 3))
            )
            or '""'
            for _ in range(rng.randint(1, 3))
        )

    lines = []
    for index, name in enumerate(names):
        known = names if rng.random() < 0.8 else names[index + 1 :]
        lines.append(f"{name} ::= {alternatives(1, known)}")
    return "\n".join(lines)


@pytest.mark.parametrize("seed", range(4))
def test_random_grammars_keep_their_words(tokenizer: Any, seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(25):
        text = _random_grammar(rng)
        rules = parse(text)
        if not (wanted := words(rules)):
            continue
        assert accepted(tokenizer, to_lark(rules)) == wanted, text


@pytest.mark.parametrize(
    "text",
    [
        # A greedy lexeme would take the last `b` away.
        'root ::= [ab]* "b" | "a" root "a"',
        'root ::= "a"* x\nx ::= "ab" | "b" root "b"',
        # Both letters begin with the same byte.
        'root ::= "\u00e9"* x\nx ::= "\u00e8" | "a" root "a"',
        'root ::= x "a"\nx ::= | "a" x "b"',
        # It begins with itself.
        'root ::= root "a" | "b"',
        'root ::= (root "a")* "b"?',
    ],
)
def test_borders_that_are_not_certain_change_nothing(tokenizer: Any, text: str) -> None:
    rules = parse(text)
    assert accepted(tokenizer, to_lark(rules)) == words(rules)


def _lexemes(lark: str) -> int:
    return sum(line.startswith("T") for line in lark.splitlines())


def test_a_grammar_without_recursion_is_one_expression() -> None:
    lark = to_lark(parse('root ::= item ("," item)*\nitem ::= [a-z]+ "!"?'))
    assert lark.splitlines()[1] == "start: T0"


def test_json_is_cut_into_lexemes_and_sums_into_characters() -> None:
    """In the sums, a line break may belong to the blanks or end the line."""
    assert _lexemes(to_lark(parse(JSON))) > 5
    assert _lexemes(to_lark(parse(SUMS))) == 0


@pytest.mark.parametrize("depth", [100, 3000])
def test_rules_that_grow_without_bound_are_refused(depth: int) -> None:
    doubled = "\n".join(f"a{i} ::= a{i + 1} a{i + 1}" for i in range(depth))
    with pytest.raises(GrammarError, match="too large with its rules written out"):
        to_lark(parse(f'root ::= a0\n{doubled}\na{depth} ::= "z"'))


def test_a_long_chain_of_rules_is_fine() -> None:
    chain = "\n".join(f'a{i} ::= "x" a{i + 1} | "y"' for i in range(3000))
    lark = to_lark(parse(f'root ::= a0\n{chain}\na3000 ::= "z" root'))
    assert len(lark.splitlines()) > 3000
