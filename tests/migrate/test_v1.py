"""The old flat file: a frozen schema, read to the last key."""

from __future__ import annotations

import pytest

from mlxceld.migrate import v1
from mlxceld.migrate.entries import read_entries
from mlxceld.options import BY_KEY
from mlxceld.problems import Refused
from tests.migrate.setups import carried, line, numbers, toml


def problems(text: str) -> list[str]:
    with pytest.raises(Refused) as caught:
        carried(toml(text))
    return [problem.render() for problem in caught.value.problems]


def test_the_schema_is_frozen() -> None:
    """A change of this number breaks files that somebody has: add no key, drop none."""
    assert len(v1.KEYS) == 62
    assert {key.now for key in v1.KEYS.values()} <= set(BY_KEY)


def test_a_flat_file_is_carried_into_tables() -> None:
    result = carried(
        toml('ctx_size = 8192\nn_parallel = 4\nmodel = "/m"\nhost = "::1"\nport = 81\n')
    )
    assert result.values == {
        "model.path": "/m",
        "engine.mode": "legacy",
        "engine.ctx_size": 8192,
        "engine.parallel": 4,
        "server.host": ("::1",),
        "server.port": 81,
    }
    assert result.pinned == {"engine.mode"}
    assert result.removed == ("ctx_size", "n_parallel", "model", "host", "port")
    assert line(result, "n_parallel = 4").became == "engine.parallel = 4"
    assert line(result, "n_parallel = 4").fate == "changed"
    assert line(result, "port = 81").place.line == 5


def test_every_slot_had_the_whole_context() -> None:
    result = carried(toml("ctx_size = 8192\nn_parallel = 4\n"))
    assert numbers(result.today) == (4, 8192, 32768, False)
    assert numbers(result.migrated) == (4, 8192, 32768, False)
    assert numbers(result.flipped) == (4, 2048, 8192, False)


@pytest.mark.parametrize(
    ("text", "slots"),
    [
        ("n_parallel = 4", 4),
        ("n_parallel = 4\nmax_batch_size = 2", 2),
        ("max_batch_size = 2\nn_parallel = 4", 2),
        ("n_parallel = 4\nmax_batch_size = 2\nno_batch = true", 1),
        ("n_parallel = 4\nno_batch = false", 4),
        ("max_batch_size = 3\nno_batch = false", 3),
        ("port = 80", 1),
    ],
)
def test_the_width_of_a_batch_counts(text: str, slots: int) -> None:
    result = carried(toml(f"ctx_size = 4096\n{text}\n"))
    assert numbers(result.today)[0] == slots
    assert numbers(result.migrated)[0] == slots


def test_a_key_that_says_nothing_is_named_and_removed() -> None:
    result = carried(toml("ctx_size = 4096\nno_batch = false\n"))
    assert line(result, "no_batch = false").fate == "ignored"
    assert "no_batch" in result.removed


def test_the_old_switch_for_llama_servers_meaning_becomes_the_mode() -> None:
    result = carried(
        toml("ctx_size = 8192\nn_parallel = 4\nllama_server_compat = true\n")
    )
    assert result.values["engine.mode"] == "llama-compat"
    assert result.pinned == frozenset()
    assert numbers(result.today) == (4, 2048, 8192, False)


def test_two_names_for_one_value_must_agree() -> None:
    agreed = carried(toml("ctx_size = 4096\nn_ctx = 4096\nparallel = 1\n"))
    assert agreed.values["engine.ctx_size"] == 4096
    assert problems("ctx_size = 4096\nn_ctx = 8192\n") == [
        "old.toml:2: n_ctx: `n_ctx = 8192` and `ctx_size = 4096` say the same thing "
        "differently\n  hint: leave one of them out"
    ]


def test_a_misspelt_key_is_left_for_review() -> None:
    result = carried(toml("ctx_size = 4096\nn_paralel = 4\n"))
    (review,) = result.review
    assert review.said == "n_paralel = 4"
    assert review.why == "not a key of version 1; did you mean `n_parallel`?"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "n_parallel = true",
            "old.toml:1: engine.parallel: found the boolean `true`, wanted an integer "
            "from 1 to 256, or -1 for auto",
        ),
        (
            "n_parallel = 2.0",
            "old.toml:1: engine.parallel: found the float `2.0`, wanted an integer "
            "from 1 to 256, or -1 for auto",
        ),
        (
            'ctx_size = "4096"',
            'old.toml:1: engine.ctx_size: found the text "4096", wanted an integer of '
            "at least 0, in tokens",
        ),
        (
            "no_batch = 1\nport = 80",
            "old.toml:1: no_batch: found the integer `1`, wanted true or false",
        ),
    ],
)
def test_a_value_of_the_wrong_type_is_a_problem(text: str, problem: str) -> None:
    assert problems(text) == [problem]


@pytest.mark.parametrize("name", ["version", "config_version"])
def test_a_number_of_the_format_is_taken_out(name: str) -> None:
    found = toml(f"{name} = 1\nport = 80\n")
    entries = read_entries(found)
    assert entries.removed == (name, "port")
    assert carried(found).values["server.port"] == 80


def test_an_empty_file_of_version_1_is_one() -> None:
    assert read_entries(toml("version = 1\n")).removed == ("version",)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "version = 3\n",
            "old.toml:1: version: found the integer `3`, wanted 1 or 2",
        ),
        (
            "version = true\n",
            "old.toml:1: version: found the boolean `true`, wanted 1 or 2",
        ),
        (
            "version = 2\nctx_size = 4096\n",
            "old.toml:2: unknown key `ctx_size` at the top of the file\n"
            "  hint: `ctx_size` belongs in [engine]",
        ),
        (
            "[engine]\nno_batch = true\n",
            "old.toml:2: unknown key `no_batch` in [engine]\n"
            "  hint: write `parallel = 1` in [engine] instead",
        ),
        (
            "[engin]\nparallel = 2\nctx_size = 3\n",
            "old.toml:2: unknown table [engin]\n  hint: did you mean `engine`?",
        ),
    ],
)
def test_a_file_that_the_daemon_refuses_is_refused_here(
    text: str, problem: str
) -> None:
    assert problems(text)[0] == problem


def test_a_file_of_today_is_read_with_its_tables() -> None:
    result = carried(toml("version = 2\n[engine]\nparallel = 1\nctx_size = 4096\n"))
    assert result.values == {"engine.ctx_size": 4096, "engine.parallel": 1}
    assert result.removed == ()


def test_keys_in_a_file_are_masked_in_the_report() -> None:
    result = carried(toml('api_key = "topsecret"\nctx_size = 512\nparallel = 1\n'))
    shown = line(result, "api_key = ***")
    assert shown.became == "server.api_key = ***"
    assert result.values["server.api_key"] == ("topsecret",)
