"""The systemd units: silent under `systemd-analyze`, closed, fit for systemd 245."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from mlxceld import generate
from mlxceld.argv import parse
from mlxceld.migrate import sources
from mlxceld.service import units

ETC = Path(__file__).parents[2] / "etc" / "systemd"
UNITS = ("mlxcel-server.service", "mlxcel-server@.service", "mlxcel-server.socket")
SERVICES = UNITS[:2]

analyze = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd is not installed"
)

# The version of systemd that brought each key, from the version notes of its manual;
# 0 stands for those that are older than the notes.
SINCE = {
    "Unit": {
        "Description": 0,
        "Documentation": 0,
        "After": 0,
        "Wants": 0,
        "StartLimitIntervalSec": 230,
        "StartLimitBurst": 230,
    },
    "Service": {
        "Type": 0,
        "NotifyAccess": 0,
        "ExecStart": 0,
        "ExecReload": 0,
        "KillMode": 0,
        "TimeoutStopSec": 0,
        "TimeoutStartSec": 0,
        "WatchdogSec": 0,
        "Restart": 0,
        "RestartSec": 0,
        "RestartPreventExitStatus": 209,
        "OOMPolicy": 243,
        "LimitNOFILE": 0,
        "LimitCORE": 0,
        "DynamicUser": 235,
        "User": 0,
        "ConfigurationDirectory": 235,
        "StateDirectory": 235,
        "CacheDirectory": 235,
        "StateDirectoryMode": 235,
        "CacheDirectoryMode": 235,
        "UMask": 0,
        "Environment": 0,
        "ProtectSystem": 214,
        "ProtectHome": 214,
        "PrivateTmp": 0,
        "ProtectClock": 245,
        "ProtectHostname": 242,
        "ProtectKernelTunables": 232,
        "ProtectKernelModules": 232,
        "ProtectKernelLogs": 244,
        "ProtectControlGroups": 232,
        "NoNewPrivileges": 187,
        "CapabilityBoundingSet": 0,
        "AmbientCapabilities": 229,
        "PrivateUsers": 232,
        "RestrictSUIDSGID": 242,
        "RestrictNamespaces": 233,
        "RestrictRealtime": 231,
        "LockPersonality": 235,
        "RemoveIPC": 232,
        "KeyringMode": 235,
        "RestrictAddressFamilies": 211,
        "DevicePolicy": 208,
        "DeviceAllow": 208,
        "SystemCallArchitectures": 209,
        "SystemCallFilter": 187,
        "SystemCallErrorNumber": 209,
    },
    "Socket": {
        "ListenStream": 0,
        "FileDescriptorName": 227,
        "NoDelay": 0,
    },
    "Install": {"WantedBy": 0},
}


def settings(text: str) -> Iterator[tuple[str, str, str]]:
    """Section, key and value of each line that is one."""
    section = ""
    for line in text.splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif line and not line.startswith("#"):
            key, _, value = line.partition("=")
            yield section, key, value


def values(text: str, key: str) -> list[str]:
    return [value for _, found, value in settings(text) if found == key]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The units as they lie in `etc`, but for a program that is really there."""
    program = tmp_path / "mlxcel-server"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    for name in UNITS:
        text = (ETC / name).read_text()
        (tmp_path / name).write_text(text.replace(units.PROGRAM, str(program)))
    return tmp_path


def run(*command: str | Path, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **environ},
    )


def version() -> int:
    """Of the systemd that is installed."""
    said = run("systemd-analyze", "--version").stdout
    return int(re.findall("[0-9]+", said)[0])


@analyze
@pytest.mark.parametrize("name", UNITS)
def test_systemd_finds_nothing_to_say(folder: Path, name: str) -> None:
    """Its status is 0 for keys that it does not know: what it writes counts."""
    found = run("systemd-analyze", "verify", "--man=no", folder / name)
    assert (found.stderr, found.stdout, found.returncode) == ("", "", 0)


@analyze
@pytest.mark.skipif(shutil.which("man") is None, reason="man is not installed")
def test_systemd_finds_the_manual_page(folder: Path) -> None:
    pages = folder / "man" / "man1"
    pages.mkdir(parents=True)
    shutil.copy(ETC.parents[1] / "man" / "mlxcel-server.1", pages)
    unit = folder / "mlxcel-server.service"
    found = run("systemd-analyze", "verify", unit, MANPATH=str(pages.parent))
    assert (found.stderr, found.returncode) == ("", 0)


@analyze
def test_systemd_finds_nothing_to_say_about_a_service_of_a_user(tmp_path: Path) -> None:
    odd = tmp_path / "a folder, 50% full for $5; here"
    odd.mkdir()
    program = odd / "mlxcel-server"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    unit = tmp_path / "mlxcel-server.service"
    unit.write_text(units.user_service(units.Wanted(command=(str(program),))))
    found = run(
        *("systemd-analyze", "--user", "verify", "--man=no"),
        unit,
        XDG_RUNTIME_DIR=str(tmp_path),
    )
    assert (found.stderr, found.returncode) == ("", 0)


@analyze
@pytest.mark.parametrize("name", SERVICES)
def test_the_exposure_is_at_most_two(folder: Path, name: str) -> None:
    if version() < 250:
        pytest.skip("`security --offline` came with systemd 250")
    found = run(
        *("systemd-analyze", "security", "--offline=true", "--threshold=20"),
        folder / name,
    )
    assert found.returncode == 0, found.stdout + found.stderr


@analyze
def test_the_drop_in_for_reloads_is_understood_where_it_is_meant_for(
    folder: Path,
) -> None:
    if version() < 253:
        pytest.skip("notify-reload came with systemd 253")
    place = folder / "mlxcel-server.service.d"
    place.mkdir()
    shutil.copy(ETC / "notify-reload.conf", place)
    unit = folder / "mlxcel-server.service"
    assert run("systemd-analyze", "verify", "--man=no", unit).stderr == ""


@pytest.mark.parametrize("name", UNITS)
def test_no_key_is_newer_than_systemd_245(name: str) -> None:
    found = list(settings((ETC / name).read_text()))
    assert found
    for section, key, _ in found:
        assert SINCE[section][key] <= 245, (section, key)


def test_the_services_of_users_use_no_other_keys() -> None:
    for section, key, _ in settings(units.user_service(units.Wanted())):
        assert key in SINCE[section]


def test_all_that_lies_in_etc_is_generated_from_the_template() -> None:
    made = {path.name for path, _ in generate.FILES if path.parent == ETC}
    assert made == {path.name for path in ETC.iterdir()}


@pytest.mark.parametrize("name", SERVICES)
def test_every_command_line_is_one_that_the_program_takes(name: str) -> None:
    text = (ETC / name).read_text()
    start, (check, signal) = values(text, "ExecStart"), values(text, "ExecReload")
    assert signal == "/bin/kill -HUP $MAINPID"
    for command in [*start, check]:
        program, *words = shlex.split(command)
        assert program == units.PROGRAM
        line = parse(words)
        assert not line.problems
        assert line.config is not None
        assert line.config.startswith("%E/mlxcel/")
    assert parse(shlex.split(check)[1:]).check_config


@pytest.mark.parametrize("name", SERVICES)
@pytest.mark.parametrize(
    "relaxed",
    ["MemoryDenyWriteExecute", "PrivateDevices", "AF_UNIX|Unix sockets", "ProtectHome"],
)
def test_what_is_left_open_is_explained_beside_it(name: str, relaxed: str) -> None:
    text = (ETC / name).read_text()
    assert re.search(rf"(?m)^# .*(?:{relaxed})|^# .*\n{relaxed}=", text)


@pytest.mark.parametrize("name", SERVICES)
def test_the_manager_is_more_patient_than_the_daemon(name: str) -> None:
    text = (ETC / name).read_text()
    assert values(text, "TimeoutStopSec") == ["30"]  # server.drain_timeout is 15.
    assert values(text, "WatchdogSec") == ["120"]  # engine.watchdog_timeout is 60.


def test_other_times_of_the_daemon_are_taken_over() -> None:
    text = units.service(units.Wanted(drain_timeout=89.5, watchdog_timeout=0))
    assert values(text, "TimeoutStopSec") == ["105"]
    assert values(text, "WatchdogSec") == ["0"]


def test_a_program_in_a_home_folder_is_not_hidden() -> None:
    assert values(units.service(), "ProtectHome") == ["yes"]
    home = units.service(units.Wanted(sees_home=True))
    assert values(home, "ProtectHome") == ["read-only"]


@pytest.mark.parametrize(
    ("word", "written"),
    [
        ("/usr/bin/mlxcel-server", "/usr/bin/mlxcel-server"),
        ("--ctx-size=8192", "--ctx-size=8192"),
        ("a b", '"a b"'),
        ("", '""'),
        ("50%", "50%%"),
        ("$HOME", "$$HOME"),
        ("it's", '"it\'s"'),
        ('say "hi"', '"say \\"hi\\""'),
        ("back\\slash", '"back\\\\slash"'),
        ("one;two", '"one;two"'),
        ('{"a": 1}', '"{\\"a\\": 1}"'),
    ],
)
def test_words_are_quoted_as_systemd_reads_them(word: str, written: str) -> None:
    """The rules of systemd.service(5), section COMMAND LINES, and systemd.unit(5)."""
    assert units.quoted(["/usr/bin/true", word]) == f"/usr/bin/true {written}"


def test_a_dollar_in_the_name_of_the_program_stands_for_itself() -> None:
    assert units.quoted(["/opt/a $5", "$5"]) == '"/opt/a $5" $$5'


@examples(max_examples=50, deadline=None)
@given(st.lists(st.text(st.characters(exclude_categories=("C", "Z")) | st.just(" "))))
def test_words_come_back_from_a_unit(words: list[str]) -> None:
    """`mlxcel-migrate` reads units by the rules of systemd, in code of its own."""
    command = ("/usr/local/bin/mlxcel-server", *words)
    text = units.user_service(units.Wanted(command=command))
    (found,) = sources.read_data(text.encode(), "mlxcel-server.service")
    assert [word.text for word in found.words] == words


def test_several_models_share_a_user_and_a_cache_but_no_state() -> None:
    text = (ETC / "mlxcel-server@.service").read_text()
    assert values(text, "StateDirectory") == ["mlxcel/%i"]
    assert values(text, "CacheDirectory") == ["mlxcel"]
    assert values(text, "User") == ["mlxcel"]
