"""Whose words they are, and what silence means to that program."""

from __future__ import annotations

import pytest

from mlxceld.migrate.dialects import parse_from, silence
from mlxceld.problems import Refused


@pytest.mark.parametrize(
    ("text", "program", "since"),
    [
        ("llama-server", "llama-server", ""),
        ("llama.cpp@b11434", "llama-server", ""),
        ("llama.cpp@b11434x", None, ""),
        ("mlxcel@soon", None, ""),
        ("mlxcel@0.5.0", "mlxcel-server", "mlxcel@0.5.0"),
        ("mlxcel-server", "mlxcel-server", ""),
        ("mlxcel-server@0.5.0", None, ""),
        ("mlxceld@1.0", "mlxcel-server", "mlxceld@1.0"),
        ("mlx_lm.server", "mlx_lm.server", ""),
        ("mlx-lm", "mlx_lm.server", ""),
        ("lama-server", None, ""),
    ],
)
def test_a_program_is_named_with_or_without_a_version(
    text: str, program: str | None, since: str
) -> None:
    if program is None:
        with pytest.raises(Refused):
            parse_from(text)
    else:
        assert parse_from(text) == (program, since)


def test_a_misspelt_program_is_named_with_a_near_one() -> None:
    with pytest.raises(Refused, match="did you mean `llama-server`"):
        parse_from("lama-server")


@pytest.mark.parametrize(
    ("since", "mode", "slots", "flips"),
    [
        ("", "legacy", None, True),
        ("mlxcel@0.0.29", "legacy", None, True),
        ("mlxcel@0.0.30", "llama-compat", 1, False),
        ("0.3.9", "llama-compat", 1, False),
        ("mlxcel@0.4.0", "llama-compat", 4, False),
        ("mlxcel@0.7.0", "llama-compat", 4, False),
        ("mlxcel@0.8", "llama-compat", None, False),
        ("mlxceld@0.1.0", "legacy", None, True),
        ("mlxceld@1.0", "llama-compat", None, False),
    ],
)
def test_the_version_tells_what_mlxcel_server_means_by_saying_nothing(
    since: str, mode: str, slots: int | None, flips: bool
) -> None:
    found = silence("mlxcel-server", since)
    assert (found.mode, found.flips, found.doubt) == (mode, flips, "")
    assert [pin.value for pin in found.pins] == ([] if slots is None else [slots])


def test_between_two_releases_nobody_knows_what_an_unset_number_means() -> None:
    assert "0.7.1" in silence("mlxcel-server", "mlxcel@0.7.1").doubt


def test_llama_server_divides_whatever_the_version() -> None:
    assert silence("llama-server").mode == "llama-compat"
