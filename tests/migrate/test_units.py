"""Services are made to start with the new file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mlxceld.migrate import units
from tests.migrate.make import of_words

FOUND = of_words("-c 8192", {}).found
CONFIG = Path("/etc/mlxcel/llm.toml")
SERVER = ("/usr/bin/mlxcel-server",)


def test_the_drop_in_resets_the_command_and_sets_its_own() -> None:
    assert units.drop_in(SERVER, CONFIG, ["LLAMA_ARG_CTX_SIZE"]).splitlines()[1:] == [
        "[Service]",
        "ExecStart=",
        "ExecStart=/usr/bin/mlxcel-server --config /etc/mlxcel/llm.toml",
        "UnsetEnvironment=LLAMA_ARG_CTX_SIZE",
    ]


def test_without_variables_nothing_is_unset() -> None:
    assert "Unset" not in units.drop_in(SERVER, CONFIG, [])


def test_what_an_earlier_run_unset_stays_unset() -> None:
    old = units.drop_in(SERVER, CONFIG, ["LLAMA_ARG_CTX_SIZE"])
    assert units.drop_in(SERVER, CONFIG, [], old) == old
    both = units.drop_in(SERVER, CONFIG, ["LLAMA_ARG_PORT"], old)
    assert "UnsetEnvironment=LLAMA_ARG_CTX_SIZE LLAMA_ARG_PORT\n" in both


def test_the_drop_in_has_the_last_word() -> None:
    path = units.drop_in_path(Path("/etc/systemd/system/llm.service"))
    assert path == Path("/etc/systemd/system/llm.service.d/zz-mlxcel-migrate.conf")
    assert path.name > "override.conf"
    assert units.drop_in_path(path.with_name("override.conf")) == path


@pytest.mark.parametrize(
    ("word", "written"),
    [
        ("/usr/bin/a", "/usr/bin/a"),
        ("100%", '"100%%"'),
        ("a b", '"a b"'),
        ("$HOME", '"$$HOME"'),
        ('a"b\\', '"a\\"b\\\\"'),
        ("", '""'),
        ("a;b", '"a;b"'),
        ("a\nb", '"a\\x0ab"'),
        ("Pläne", '"Pläne"'),
    ],
)
def test_a_word_is_written_as_systemd_reads_it(word: str, written: str) -> None:
    assert units.systemd_word(word) == written


def test_our_own_command_is_kept_as_it_was_written() -> None:
    own = replace(FOUND, program="mlxcel-server", command=("/opt/bin/mlxcel-server",))
    assert units.default_server(own, "/usr/bin/x") == ("/opt/bin/mlxcel-server",)
    assert units.default_server(FOUND, "/usr/bin/x") == ("/usr/bin/x",)
    assert units.default_server(FOUND, None) == ("mlxcel-server",)


def test_scripts_and_containers_get_advice() -> None:
    def advice(kind: str) -> list[str]:
        found = replace(FOUND, kind=kind)
        return list(units.suggestion(found, SERVER, CONFIG, ["LLAMA_ARG_PORT"]))

    start = "/usr/bin/mlxcel-server --config /etc/mlxcel/llm.toml"
    moved = "and take out what moves into the file: LLAMA_ARG_PORT"
    assert advice("script") == [f"in the script, start the daemon with: {start}", moved]
    assert advice("quadlet")[1:3] == [
        "in [Container]: Exec=--config /etc/mlxcel/llm.toml",
        "in [Container]: Volume=/etc/mlxcel/llm.toml:/etc/mlxcel/llm.toml:ro",
    ]
    assert advice("compose")[1] == (
        'in the service: command: ["--config", "/etc/mlxcel/llm.toml"]'
    )
    assert advice("env") == [f"start the daemon with: {start}", moved]
