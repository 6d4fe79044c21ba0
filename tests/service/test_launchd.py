"""The property lists: parsed, keys and types checked, commands that the program takes.

macOS is not asked: the keys and their types are those of launchd.plist(5).
"""

from __future__ import annotations

import plistlib
from pathlib import Path
from typing import Any

import pytest

from mlxceld import generate
from mlxceld.argv import parse
from mlxceld.service import plists
from mlxceld.settings import ServerSettings

ETC = Path(__file__).parents[2] / "etc" / "launchd"
FILES = ("ai.mlxcel.server.plist", "ai.mlxcel.server.user.plist")

KEYS: dict[str, type] = {
    "Label": str,
    "ProgramArguments": list,
    "UserName": str,
    "RunAtLoad": bool,
    "KeepAlive": dict,
    "ThrottleInterval": int,
    "ExitTimeOut": int,
    "ProcessType": str,
    "SoftResourceLimits": dict,
    "Umask": int,
    "StandardErrorPath": str,
}
"""The keys that are used; those of a system daemon alone are all but `UserName`."""


def read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = plistlib.loads((ETC / name).read_bytes())
    return found


@pytest.mark.parametrize("name", FILES)
def test_keys_and_types_are_those_of_launchd(name: str) -> None:
    for key, value in read(name).items():
        assert type(value) is KEYS[key], key


@pytest.mark.parametrize("name", FILES)
def test_the_label_is_the_name_of_the_file(name: str) -> None:
    assert f"{read(name)['Label']}.plist" == name


@pytest.mark.parametrize("name", FILES)
def test_the_program_takes_the_arguments(name: str) -> None:
    program, *words = read(name)["ProgramArguments"]
    assert program == "/opt/homebrew/bin/mlxcel-server"
    line = parse(words)
    assert not line.problems
    assert line.config is not None
    assert line.config.endswith("/mlxcel/mlxcel.toml")


@pytest.mark.parametrize("name", FILES)
def test_all_paths_are_absolute(name: str) -> None:
    """launchd knows no `~` and no variables."""
    found = read(name)
    program, _, config = found["ProgramArguments"]
    for path in (program, config, found["StandardErrorPath"]):
        assert path.startswith("/")
        assert "~" not in path
        assert "$" not in path


@pytest.mark.parametrize("name", FILES)
def test_it_is_started_again_after_failures_alone_and_not_in_haste(name: str) -> None:
    found = read(name)
    assert found["KeepAlive"] == {"SuccessfulExit": False}
    assert found["RunAtLoad"] is True
    assert found["ThrottleInterval"] == 30
    assert found["ProcessType"] == "Interactive"


@pytest.mark.parametrize("name", FILES)
def test_launchd_is_more_patient_than_the_daemon(name: str) -> None:
    assert ServerSettings().drain_timeout == 15
    assert read(name)["ExitTimeOut"] == 30


@pytest.mark.parametrize("name", FILES)
def test_what_the_daemon_writes_is_for_its_user_alone(name: str) -> None:
    assert read(name)["Umask"] == 0o077


def test_the_system_daemon_is_not_root_and_the_agent_is_its_user() -> None:
    assert read(FILES[0])["UserName"] == "_mlxcel"
    assert "UserName" not in read(FILES[1])


def test_all_that_lies_in_etc_is_generated_from_the_template() -> None:
    made = {path.name for path, _ in generate.FILES if path.parent == ETC}
    assert made == {path.name for path in ETC.iterdir()} == set(FILES)


def test_odd_names_come_through() -> None:
    words = ("/opt/R&D <1>/mlxcel-server", '--alias="x"', "한국어", "a  b")
    wanted = plists.Wanted(command=words, log="/tmp/<&>.log", drain_timeout=60.5)
    found = plistlib.loads(plists.agent(wanted).encode())
    assert found["ProgramArguments"] == list(words)
    assert found["StandardErrorPath"] == "/tmp/<&>.log"
    assert found["ExitTimeOut"] == 76
