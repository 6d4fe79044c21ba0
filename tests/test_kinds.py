"""What each kind takes and refuses, from flags and variables and from TOML."""

from __future__ import annotations

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxceld.kinds import (
    BadValue,
    Boolean,
    Choice,
    FilePath,
    Integer,
    JsonObject,
    Number,
    Text,
    TextList,
    UrlPrefix,
    toml_text,
)
from mlxceld.memory import Memory

LEVEL = Choice(
    (("error", "e"), ("warning", "w"), ("info", "i"), ("debug", "d")),
    spellings=(("warn", "warning"),),
    numbers=("error", "error", "warning", "info", "debug"),
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True),
        ("TRUE", True),
        (" true ", True),
        ("on", True),
        ("Yes", True),
        ("enabled", True),
        ("1", True),
        ("false", False),
        ("OFF", False),
        ("no", False),
        ("disabled", False),
        ("0", False),
    ],
)
def test_truth_words_are_read_in_any_case_and_trimmed(text: str, value: bool) -> None:
    assert Boolean().parse(text) is value


@pytest.mark.parametrize("text", ["maybe", "auto", "-1", "2", "t", "", "truee"])
def test_no_other_word_is_a_truth(text: str) -> None:
    with pytest.raises(BadValue):
        Boolean().parse(text)


@pytest.mark.parametrize("value", [1, 0, "true", 1.0, []])
def test_only_a_toml_boolean_is_a_boolean_in_toml(value: object) -> None:
    with pytest.raises(BadValue):
        Boolean().check(value)


@pytest.mark.parametrize(("text", "value"), [("8192", 8192), (" 4 ", 4), ("007", 7)])
def test_integers_are_ascii_digits_after_trimming(text: str, value: int) -> None:
    assert Integer().parse(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "8k",
        "4096abc",
        "1_000",
        "٤",
        "1e4",
        "+4",
        "4.0",
        "",
        " ",
        "0x10",
        "1 2",
        "9" * 5000,
    ],
)
def test_anything_else_is_no_integer(text: str) -> None:
    with pytest.raises(BadValue):
        Integer().parse(text)


@pytest.mark.parametrize("value", [True, False, 2.0, "4", [4], None, {}])
def test_toml_booleans_floats_and_texts_are_no_integers(value: object) -> None:
    with pytest.raises(BadValue):
        Integer().check(value)


def test_bounds_of_integers_hold_in_both_ways_in() -> None:
    kind = Integer(low=-1, high=9)
    assert (kind.parse("-1"), kind.check(9)) == (-1, 9)
    for bad in ("-2", "10"):
        with pytest.raises(BadValue, match="wanted an integer from -1 to 9"):
            kind.parse(bad)
        with pytest.raises(BadValue):
            kind.check(int(bad))


def test_every_negative_number_is_auto_where_auto_exists_and_zero_is_refused() -> None:
    kind = Integer(low=1, high=256, negative_is_auto=True)
    assert (kind.parse("-1"), kind.parse("-7"), kind.check(-3)) == (-1, -1, -1)
    for bad in ("0", "257", "auto"):
        with pytest.raises(BadValue):
            kind.parse(bad)


@pytest.mark.parametrize(
    ("text", "value"), [("0.8", 0.8), (".5", 0.5), ("2", 2.0), ("1e-3", 0.001)]
)
def test_numbers_are_decimal(text: str, value: float) -> None:
    assert Number().parse(text) == value


@pytest.mark.parametrize("text", ["nan", "inf", "1e999", "+1", "1_0.5", "", "0,8", "٤"])
def test_numbers_are_finite_and_plain(text: str) -> None:
    with pytest.raises(BadValue):
        Number().parse(text)


def test_a_toml_integer_is_a_number_and_a_boolean_is_not() -> None:
    assert Number().check(2) == 2.0
    for bad in (True, float("nan"), float("inf"), 10**400, "1"):
        with pytest.raises(BadValue):
            Number().check(bad)


def test_bounds_of_numbers_are_named() -> None:
    with pytest.raises(BadValue, match="found `1[.]5`, wanted a number from 0 to 1"):
        Number(low=0.0, high=1.0).parse("1.5")


def test_empty_text_is_refused_unless_it_has_a_meaning() -> None:
    assert Text(empty=True).parse("") == ""
    with pytest.raises(BadValue):
        Text().parse("  ")


def test_home_is_expanded_and_names_stay_as_they_are_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOME", "/home/ann")
    assert FilePath().parse("~/m.gguf") == "/home/ann/m.gguf"
    assert FilePath().parse("./m/../m.gguf") == "./m/../m.gguf"
    assert FilePath.against("/etc/mlxcel", "keys/a") == "/etc/mlxcel/keys/a"
    assert FilePath.against("/etc/mlxcel", "/b") == "/b"


@pytest.mark.parametrize(
    ("text", "value"), [("", ""), ("/", ""), ("/llm/", "/llm"), ("/a/b", "/a/b")]
)
def test_a_prefix_has_no_slash_at_its_end(text: str, value: str) -> None:
    assert UrlPrefix().parse(text) == value


@pytest.mark.parametrize("text", ["llm", "//a", "/a b", "/a?b", "http://x"])
def test_a_prefix_is_a_path(text: str) -> None:
    with pytest.raises(BadValue):
        UrlPrefix().parse(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("INFO", "info"),
        ("warn", "warning"),
        ("0", "error"),
        ("1", "error"),
        ("2", "warning"),
        ("3", "info"),
        ("4", "debug"),
        ("99", "debug"),
    ],
)
def test_levels_are_words_or_verbosity_numbers(text: str, value: str) -> None:
    assert LEVEL.parse(text) == value


def test_a_choice_names_its_words() -> None:
    kind = Choice((("a", "x"), ("b", "y"), ("c", "z")))
    with pytest.raises(BadValue, match="found `d`, wanted `a`, `b` or `c`"):
        kind.parse("d")


def test_a_number_that_is_too_large_is_told_the_largest() -> None:
    with pytest.raises(BadValue, match="wanted an integer of at most 2147483647, in t"):
        Integer(unit="tokens").parse("3000000000")
    with pytest.raises(BadValue, match="wanted an integer of at most 4294967295$"):
        Integer(low=-1, high=2**32 - 1).check(2**32)
    with pytest.raises(BadValue, match="wanted an integer of at least -1$"):
        Integer(low=-1, high=2**32 - 1).check(-2)
    with pytest.raises(BadValue, match="wanted an integer from 1 to 9$"):
        Integer(low=1, high=9).check(10)


def test_a_choice_that_takes_numbers_says_which() -> None:
    with pytest.raises(BadValue, match="or `debug`, or an integer of at least 0$"):
        LEVEL.parse("loud")


def test_lists_split_at_commas_and_drop_blank_items() -> None:
    assert TextList().parse("a, b,,c ") == ("a", "b", "c")
    assert TextList().check(["x,y", " z "]) == ("x,y", "z")
    assert TextList(unique=True).parse("b,a,b") == ("a", "b")
    with pytest.raises(BadValue, match="the integer `1` in the array"):
        TextList().check([1])


def test_what_is_wanted_of_a_list_says_how_many_once() -> None:
    with pytest.raises(BadValue) as caught:
        TextList(at_least=1).parse(" , ")
    assert caught.value.found == "an empty list"
    wanted = "texts, separated by commas or in a TOML array"
    assert caught.value.wanted == f"1 or more {wanted}"
    assert TextList().wanted == wanted


def test_what_was_found_is_shown_on_one_short_line() -> None:
    with pytest.raises(BadValue) as caught:
        JsonObject().parse("x\n" + "y" * 100)
    assert caught.value.found == "`x?" + "y" * 58 + "...`"


def test_a_json_object_may_be_text_or_a_toml_table() -> None:
    assert JsonObject().parse('{"a":true}') == '{"a": true}'
    assert JsonObject().check({"a": True}) == '{"a": true}'
    for bad in ("[]", "{", "1"):
        with pytest.raises(BadValue):
            JsonObject().parse(bad)
    with pytest.raises(BadValue):
        JsonObject().check({"a": float("nan")})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1048576", 1048576),
        ("1M", 1048576),
        ("1MiB", 1048576),
        ("1 mib", 1048576),
        ("2K", 2048),
        ("1.5G", 1610612736),
        ("1TiB", 1099511627776),
        ("75%", "75%"),
        ("AUTO", "auto"),
    ],
)
def test_sizes_have_units_of_1024(text: str, value: int | str) -> None:
    assert Memory().parse(text) == value


@pytest.mark.parametrize("text", ["0", "1GB", "1X", "0%", "101%", "-1", "", "G", "1e9"])
def test_other_sizes_are_refused(text: str) -> None:
    with pytest.raises(BadValue):
        Memory().parse(text)


@given(st.text(alphabet=st.characters(codec="utf-8", exclude_categories=["Cs"])))
def test_any_text_survives_toml(text: str) -> None:
    assert tomllib.loads(f"a = {toml_text(text)}")["a"] == text
