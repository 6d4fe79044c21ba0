"""Flags and variables of other programs."""

from __future__ import annotations

import pytest

from mlxceld.argv import KNOWN
from mlxceld.foreign import IGNORED
from mlxceld.migrate import rules
from mlxceld.migrate.rules import Rule, bytes_as_size
from mlxceld.options import BY_KEY

TABLES = (
    rules.MLXCEL_FLAGS,
    rules.MLXCEL_VARIABLES,
    rules.MLX_LM_FLAGS,
    rules.OLLAMA_VARIABLES,
)
RULES = [rule for table in TABLES for rule in table]


def test_no_name_is_in_a_table_twice() -> None:
    for table in TABLES:
        names = [name for rule in table for name in rule.names]
        assert len(names) == len(set(names))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.names[0])
def test_a_rule_leads_to_an_option_or_gives_a_reason(rule: Rule) -> None:
    if rule.key:
        assert rule.key in BY_KEY
    else:
        assert rule.fate in ("ignored", "review")
        assert rule.why
    assert not rule.why.endswith(".")


def test_our_own_flags_are_not_listed_again() -> None:
    """But those that say something else in the older server."""
    ours = {flag for option in BY_KEY.values() for flag in option.flags}
    names = {name for rule in rules.MLXCEL_FLAGS for name in rule.names}
    assert names & ours == set()
    foreign = {flag for one in IGNORED for flag in one.flags}
    assert names & foreign == {"-nocb", "--no-cont-batching"}
    assert names & set(KNOWN) - foreign == {"--draft", "--draft-max"}


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("2147483648", "2097152K"),
        ("2GB", "1953125K"),
        ("1.5m", "1464K"),
        ("10 M", "9765K"),
        ("10T", "10T"),
        ("lots", "lots"),
        ("9" * 5000, "9" * 5000),
    ],
)
def test_mlx_lm_counts_bytes_in_decimal_units(text: str, size: str) -> None:
    assert bytes_as_size(text) == size
