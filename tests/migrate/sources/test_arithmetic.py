"""Arithmetic of start scripts, worked out without a shell."""

from __future__ import annotations

import pytest

from mlxceld.migrate.sources.arithmetic import NotPlain, evaluate


def value(name: str) -> str:
    known = {"N": "4", "BIG": " 8192 ", "TEXT": "eight"}
    if name not in known:
        raise NotPlain(name)
    return known[name]


# What bash 5.2 prints for each of them with N=4 and BIG=8192.
@pytest.mark.parametrize(
    ("text", "result"),
    [
        (" 8*1024 ", 8192),
        ("8 * 1024 + 1", 8193),
        ("2 + 3 * 4", 14),
        ("(2 + 3) * 4", 20),
        ("$N * BIG", 32768),
        ("${N}*2", 8),
        ("-7 / 2", -3),
        ("-7 % 2", -1),
        ("7 / -2", -3),
        ("2 ** 3 ** 2", 512),
        ("1 << 13", 8192),
        ("0x2000", 8192),
        ("010", 8),
        ("--3", 3),
        ("10 - 2 - 3", 5),
    ],
)
def test_whole_numbers_are_worked_out(text: str, result: int) -> None:
    assert evaluate(text, value) == result


@pytest.mark.parametrize(
    "text",
    [
        *("", "M * 2", "TEXT", "1 / 0", "N = 3", "1 2", "(1", "1.5", "09", "2 ** -1"),
        *("1 < 2", "9223372036854775807 + 1", "a[0]", "1 << 64"),
    ],
)
def test_everything_else_is_left_to_the_shell(text: str) -> None:
    with pytest.raises(NotPlain):
        evaluate(text, value)
