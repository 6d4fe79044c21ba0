"""Services are made to start with the new file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mlxceld.migrate import carry, units
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


@pytest.mark.parametrize("folder", ["/usr/lib/systemd/system", "/lib/systemd/system"])
def test_nothing_is_written_into_a_folder_of_packages(folder: str) -> None:
    path = units.drop_in_path(Path(folder, "llm.service"))
    assert path == Path("/etc/systemd/system/llm.service.d/zz-mlxcel-migrate.conf")
    found = replace(FOUND, kind="systemd", files=(f"{folder}/llm.service",))
    assert carry.target(found, None, 1) == Path("/etc/mlxcel/llm.toml")


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
    assert units.server_words(own, None, "/usr/bin/x") == ("/opt/bin/mlxcel-server",)
    assert units.server_words(own, "/b", "/usr/bin/x") == ("/b",)
    assert units.server_words(FOUND, None, "/usr/bin/x") == ("/usr/bin/x",)
    assert units.server_words(FOUND, None, None) == ("mlxcel-server",)


@pytest.mark.parametrize(
    ("before", "kept"),
    [
        (("numactl", "-N", "0"), True),
        (("/usr/bin/nice", "-n", "5", "taskset", "-c", "0-3"), True),
        (("nice", "env", "A=1"), False),
        (("nice", "./run.sh"), False),
        (("sudo", "-u", "llm"), False),
        (("nice", "uv", "run"), False),
    ],
)
def test_what_says_where_and_how_fast_it_runs_stays_in_front(
    before: tuple[str, ...], kept: bool
) -> None:
    command = (*before, "/usr/bin/llama-server")
    found = replace(FOUND, kind="systemd", command=command, files=("./run.sh",))
    words = units.server_words(found, "/b", None)
    assert words == ((*before, "/b") if kept else ("/b",))
    assert bool(list(units.left_behind(found, words))) is not kept


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
    inside = replace(FOUND, kind="systemd", is_container=True)
    keys = Path("/etc/k")
    assert list(units.suggestion(inside, SERVER, CONFIG, [], keys=keys))[1:] == [
        "behind the image: --config /etc/mlxcel/llm.toml",
        "in front of the image: -v /etc/mlxcel/llm.toml:/etc/mlxcel/llm.toml:ro",
        "in front of the image: -v /etc/k:/etc/k:ro",
    ]
    lost = list(units.suggestion(inside, SERVER, CONFIG, [], listens=False))[-1]
    assert 'host = "0.0.0.0"' in lost
    assert advice("compose")[1] == (
        'in the service: command: ["--config", "/etc/mlxcel/llm.toml"]'
    )
    assert advice("env") == [f"start the daemon with: {start}", moved]


def test_a_server_that_is_not_found_is_said() -> None:
    found = replace(FOUND, kind="systemd")
    (advice,) = units.left_behind(found, ("mlxcel-server",))
    assert "`--server PATH`" in advice
    assert list(units.left_behind(found, ("/usr/bin/mlxcel-server",))) == []
