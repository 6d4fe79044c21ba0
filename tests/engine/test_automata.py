"""What begins and what goes on with a regular expression."""

from __future__ import annotations

import pytest

from mlxceld.engine.automata import TooLarge, Word, analyse
from mlxceld.engine.gbnf import parse


def look(text: str) -> Word:
    rules = parse(text if "::=" in text else f"root ::= {text}")
    return analyse(rules["root"], rules)


def bits(text: str) -> int:
    return sum(1 << ord(c) for c in set(text))


@pytest.mark.parametrize(
    ("text", "empty", "first", "goes_on"),
    [
        ('"abc"', False, "a", ""),
        ('"ab" | "abc"', False, "a", "c"),
        ('"a"*', True, "a", "a"),
        ('"a"+ "b"?', False, "a", "ab"),
        ('"a"* "b"', False, "ab", ""),
        ('[a-c]? "x"{2}', False, "abcx", ""),
        ('("," "a")*', True, ",", ","),
        ('"\\"" [^"]* "\\"" " "?', False, '"', " "),
        ('root ::= x x\nx ::= "a" | ""', True, "a", "a"),
    ],
)
def test_what_begins_and_goes_on(
    text: str, empty: bool, first: str, goes_on: str
) -> None:
    word = look(text)
    assert word.may_be_empty is empty
    assert word.first == bits(first)
    assert word.goes_on == bits(goes_on)


def test_another_way_to_the_same_text_may_go_on() -> None:
    """After `a`, the first alternative is whole and the second is not."""
    assert look('"a" | [a-b] "c"').goes_on == bits("c")


def test_few_repetitions_are_counted_and_many_are_not() -> None:
    assert look('"x" [0-9]{4}').goes_on == 0
    assert look('"x" [0-9]{40}').goes_on == bits("0123456789")


def test_characters_count_by_the_first_byte_of_their_utf_8() -> None:
    assert look("[\u00e8-\u00e9]").first == 1 << 0xC3
    assert look("\"\uac00\" | '\U0001f600'".replace("'", '"')).first == (
        1 << 0xEA | 1 << 0xF0
    )
    everything = look(".").first
    assert everything == sum(1 << b for b in [*range(0x80), *range(0xC2, 0xF5)])


def test_what_is_too_large_is_not_looked_at() -> None:
    choice = " | ".join(f'"w{i}x"' for i in range(2000))
    with pytest.raises(TooLarge):
        look(f"({choice})*")
