"""Keys and tokens stay out of configurations and of everything that is shown."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mlxceld.kinds import Value
from mlxceld.migrate import secrets
from tests.migrate.make import of_words
from tests.migrate.setups import carried, words

CONFIG = Path("/etc/mlxcel/llm.toml")
KEYS: dict[str, Value] = {"engine.ctx_size": 8192, "server.api_key": ("k1", "k2")}


def test_a_key_of_the_command_line_goes_into_a_file() -> None:
    migration = of_words("--api-key k1,k2", KEYS)
    values, file, advice = secrets.without(migration, KEYS, CONFIG)
    assert values == {
        "engine.ctx_size": 8192,
        "server.api_key_file": "/etc/mlxcel/llm.toml.keys",
    }
    assert file == secrets.KeyFile(Path("/etc/mlxcel/llm.toml.keys"), b"k1\nk2\n")
    assert advice == []


def test_a_key_of_the_environment_stays_there() -> None:
    found = words("-c 8192", env={"LLAMA_API_KEY": "k1,k2"})
    migration = carried(found)
    _, file, advice = secrets.without(migration, migration.values, CONFIG)
    assert (file, advice) == (None, [])
    assert secrets.moved(migration) == []
    (line,) = [one for one in migration.lines if one.said == "LLAMA_API_KEY=***"]
    assert line.fate == "kept"


def test_the_report_says_that_a_flag_hides_the_key_of_the_environment() -> None:
    found = words("--api-key k1", env={"LLAMA_API_KEY": "old"})
    migration = carried(found)
    (line,) = [one for one in migration.lines if one.said == "LLAMA_API_KEY=***"]
    assert (line.fate, line.why) == ("ignored", "`--api-key ***` counts instead")


def test_who_has_to_read_the_keys_is_named() -> None:
    migration = of_words("--api-key k1", KEYS)
    migration = replace(migration, found=replace(migration.found, user="llm"))
    _, _, advice = secrets.without(migration, KEYS, CONFIG)
    assert advice == [
        "llm runs the server and has to read the keys: "
        "chown llm /etc/mlxcel/llm.toml.keys"
    ]


def test_a_flag_hides_the_key_of_the_environment() -> None:
    migration = of_words("--api-key k1", KEYS, environment={"LLAMA_API_KEY": "old"})
    _, file, _ = secrets.without(migration, KEYS, CONFIG)
    assert file is not None
    assert secrets.moved(migration) == ["LLAMA_API_KEY"]


def test_without_a_place_the_user_is_told() -> None:
    migration = of_words("--api-key k1", KEYS)
    values, file, advice = secrets.without(migration, KEYS, None)
    assert values == {"engine.ctx_size": 8192}
    assert file is None
    assert len(advice) == 1


def test_a_second_file_of_keys_is_not_made_up() -> None:
    both: dict[str, Value] = {**KEYS, "server.api_key_file": "/etc/keys"}
    values, file, advice = secrets.without(of_words("", both), both, CONFIG)
    assert values["server.api_key_file"] == "/etc/keys"
    assert file is None
    assert advice == [
        "server.api_key is not copied: give it to the daemon in MLXCELD_API_KEY"
    ]


def test_options_of_the_environment_have_to_go_when_they_are_in_the_file() -> None:
    environment = {"LLAMA_ARG_CTX_SIZE": "1", "PATH": "/bin", "LLAMA_ARG_PORT": "2"}
    migration = of_words("", {}, environment=environment)
    assert secrets.moved(migration) == ["LLAMA_ARG_CTX_SIZE", "LLAMA_ARG_PORT"]


def test_what_mlx_lm_did_not_read_must_not_begin_to_count() -> None:
    environment = {"LLAMA_API_KEY": "k", "HF_TOKEN": "t", "LLAMA_ARG_PORT": "1"}
    migration = of_words("", {}, program="mlx_lm.server", environment=environment)
    assert secrets.moved(migration) == ["LLAMA_API_KEY", "LLAMA_ARG_PORT"]


@pytest.mark.parametrize(
    ("words", "environment", "expected"),
    [
        ("--api-key a,bcd", {}, ["a,bcd", "bcd", "a"]),
        ("--api_key=abc -hft x", {}, ["abc", "x"]),
        ("-c 1", {"HF_TOKEN": "tok", "LLAMA_API_KEY": "key1"}, ["key1", "tok"]),
    ],
)
def test_every_spelling_of_a_secret_is_found(
    words: str, environment: dict[str, str], expected: list[str]
) -> None:
    migration = of_words(words, {}, environment=environment)
    assert secrets.texts(migration) == expected


def test_a_secret_is_masked_however_it_is_written() -> None:
    text = 'a = "q\\"<x>" <string>q"&lt;x&gt;</string> q"<x>'
    assert secrets.mask(text, ['q"<x>']) == (
        'a = "(not shown)" <string>(not shown)</string> (not shown)'
    )
