"""Reading GBNF: what is valid, and where the mistakes are."""

from __future__ import annotations

import pytest

from mlxceld.engine.gbnf import (
    ANY,
    Alt,
    Chars,
    GrammarError,
    Node,
    Ref,
    Repeat,
    Seq,
    parse,
)


def root(text: str) -> Node:
    return parse(f"root ::= {text}")["root"]


def chars(*spans: tuple[str, str]) -> Chars:
    return Chars(tuple((ord(low), ord(high)) for low, high in spans))


def char(one: str) -> Chars:
    return chars((one, one))


def test_a_literal_is_a_sequence_of_characters() -> None:
    assert root('"ab"') == Seq((char("a"), char("b")))
    assert root('"a"') == char("a")
    assert root('""') == Seq(())


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        (r"\n\r\t", "\n\r\t"),
        (r"\"\\\[\]", '"\\[]'),
        (r"\x41\u00e9\U0001F600", "A\u00e9\U0001f600"),
    ],
)
def test_escapes_stand_for_characters(text: str, meant: str) -> None:
    assert root(f'"{text}"') == Seq(tuple(char(c) for c in meant))


def test_a_set_is_ranges_in_order_without_overlaps() -> None:
    assert root("[c-fa-bx-ye]") == chars(("a", "f"), ("x", "y"))
    assert root("[a-]") == chars(("-", "-"), ("a", "a"))
    assert root(r"[\]\x41]") == chars(("A", "A"), ("]", "]"))


def test_a_negated_set_leaves_out_surrogates() -> None:
    assert root(r"[^b-y]") == Chars(
        ((0, ord("a")), (ord("z"), 0xD7FF), (0xE000, 0x10FFFF))
    )
    assert root(r"[^\x00-\U0010FFFF]") == Chars(())


def test_a_dot_is_any_character_line_breaks_included() -> None:
    assert root(".") == ANY
    assert ANY.spans == ((0, 0xD7FF), (0xE000, 0x10FFFF))


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("*", 0, None),
        ("+", 1, None),
        ("?", 0, 1),
        ("{3}", 3, 3),
        ("{2,}", 2, None),
        ("{5,5}", 5, 5),
        ("{ 0 , 2000 }", 0, 2000),
    ],
)
def test_repetitions_follow_what_they_repeat(
    text: str, low: int, high: int | None
) -> None:
    assert root(f'"a"{text}') == Repeat(char("a"), low, high)
    assert root(f'"b" "a"{text}') == Seq((char("b"), Repeat(char("a"), low, high)))


def test_a_repetition_behind_a_literal_repeats_all_of_it() -> None:
    assert root('"ab"*') == Repeat(Seq((char("a"), char("b"))), 0, None)


def test_rules_go_on_after_a_bar_and_within_parentheses() -> None:
    rules = parse(
        "# a comment\n"
        "root ::= item |   # the first\r\n"
        '  "x" (\n'
        '    "y"\n'
        '    | "z"\n'
        "  )\n"
        "\n"
        "item ::=\n"
        '  "i"'
    )
    assert rules["root"] == Alt(
        (Ref("item"), Seq((char("x"), Alt((char("y"), char("z"))))))
    )
    assert rules["item"] == char("i")


def test_of_two_rules_with_one_name_the_later_counts() -> None:
    assert parse('root ::= "a"\nroot ::= "b"')["root"] == char("b")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "there is no rule `root`"),
        ('other ::= "a"', "there is no rule `root`"),
        ("root ::= this is (not valid GBNF", "line 1: `)` is wanted"),
        ('root ::= "a"\nb = "c"', 'line 2: `::=` is missing after `b`, at `= "c"`'),
        ('root ::= "a" nobody', "line 1: there is no rule `nobody`"),
        ('root ::= "a"\n\n  | "b"', "line 3: a rule's name is wanted"),
        ('root ::= "a" )', "line 1: the rule goes on where it should end, at `)`"),
        ('root ::= "a', 'line 1: this has no end, at `"a`'),
        ("root ::= [a", "line 1: this has no end, at `[a`"),
        ("root ::= [z-a]", "line 1: a range runs backwards"),
        (r'root ::= "\q"', r"line 1: `\q` is no escape"),
        (r'root ::= "\x4"', r"line 1: `\x` needs 2 hexadecimal digits"),
        (r'root ::= "\uD800"', "line 1: U+D800 is no character"),
        (r'root ::= "\U00110000"', "line 1: U+110000 is no character"),
        ('root ::= "\\', "line 1:"),
        ('root ::= "a"{3,2}', "line 1: at least 3 and at most 2 repetitions"),
        ('root ::= "a"{2001}', "line 1: more than 2000 repetitions"),
        (f'root ::= "a"{{{"9" * 5000}}}', "line 1: more than 2000 repetitions"),
        ('root ::= "a"{,2}', "line 1: a number is wanted"),
        ('root ::= "a"{1', "line 1: `}` is wanted"),
        ('root ::= "a"****', "line 1: too many repetitions of repetitions"),
        ("root ::= <think>", "line 1: tokens like `<name>` are not supported"),
        ("root ::= " + "(" * 5000, "line 1: groups are nested more than 40 deep"),
    ],
)
def test_mistakes_name_their_line(text: str, words: str) -> None:
    with pytest.raises(GrammarError) as caught:
        parse(text)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
