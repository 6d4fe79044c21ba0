"""`--install-service`: the right file for a machine, and nobody's file overwritten."""

from __future__ import annotations

import os
import plistlib
import shlex
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import pytest

from mlxceld import cli
from mlxceld.argv import parse
from mlxceld.config import resolve
from mlxceld.problems import Refused
from mlxceld.service import install
from mlxceld.service.install import Installation, Machine, installation, write

NOWHERE = Path("/nonexistent")
"""No test looks into the folders of whoever runs it."""


def machine(platform: str = "linux", home: Path = NOWHERE, uid: int = 501) -> Machine:
    return Machine(
        platform=platform,
        program=("/usr/local/bin/mlxcel-server",),
        home=home,
        config_home=home / ".config",
        user="ann",
        uid=uid,
    )


def made(
    *argv: str,
    on: Machine | None = None,
    whose: Literal["user", "system"] = "user",
    environ: Mapping[str, str] | None = None,
) -> Installation:
    line = parse(argv)
    assert not line.problems
    resolved = resolve(line, environ or {})
    return installation(line, resolved, whose, on or machine())


def command(found: Installation) -> list[str]:
    (start,) = [
        line.removeprefix("ExecStart=")
        for line in found.text.splitlines()
        if line.startswith("ExecStart=")
    ]
    return shlex.split(start)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "mlxcel.toml"
    path.write_text('version = 2\n[model]\npath = "/srv/model"\n')
    return path


@pytest.fixture(autouse=True)
def _no_standard_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mlxceld.paths.find", lambda environ: None)


def test_the_options_of_the_command_line_become_the_services() -> None:
    found = made("-m", "/srv/m", "-c8192", "--parallel=4", "--metrics", "--no-slots")
    program = "/usr/local/bin/mlxcel-server"
    options = ["-m", "/srv/m", "-c", "8192", "--parallel", "4"]
    assert command(found) == [program, *options, "--metrics", "--no-slots"]


def test_options_that_mean_nothing_here_are_left_out() -> None:
    assert command(made("-m", "/srv/m", "-ngl", "99"))[1:] == ["-m", "/srv/m"]


def test_values_that_look_like_flags_stay_with_theirs() -> None:
    found = made("-m", "/srv/m", "--seed=-1", "--metrics=off")
    assert command(found)[3:] == ["--seed=-1", "--metrics=off"]


def test_what_was_written_means_the_same_again() -> None:
    argv = ["-m", "/srv/a b", "-c8192", "--alias", "one,two", "--seed=-1"]
    argv += ["--chat-template-kwargs", '{"a": "50%"}', "--no-slots", "--metrics"]
    again = command(made(*argv))[1:]
    words = [word.replace("%%", "%").replace("$$", "$") for word in again]
    assert resolve(words, {}).settings == resolve(argv, {}).settings


def test_names_of_files_are_made_absolute(
    tmp_path: Path, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = made("--config", "mlxcel.toml", "-m", "models/one")
    assert command(found)[1:] == [
        *("--config", str(config)),
        *("-m", str(tmp_path / "models" / "one")),
    ]


def test_the_file_that_was_found_is_named(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service has another home folder, or none."""
    monkeypatch.setattr("mlxceld.paths.find", lambda environ: config)
    assert command(made())[1:] == ["--config", str(config)]


def test_without_a_model_and_a_file_the_place_of_the_file_is_told() -> None:
    found = made()
    assert command(found)[1:] == ["--config", "/nonexistent/.config/mlxcel/mlxcel.toml"]
    (note,) = found.notes
    assert note.where == "/nonexistent/.config/mlxcel/mlxcel.toml"
    assert "does not exist yet" in note.what
    system = made(whose="system")
    assert command(system)[2] == "/etc/mlxcel/mlxcel.toml"


@pytest.mark.parametrize("flag", ["--api-key", "--hf-token"])
def test_a_secret_is_not_written_into_a_file_that_everybody_reads(flag: str) -> None:
    with pytest.raises(Refused) as refused:
        made("-m", "/srv/m", flag, "s3cret")
    (problem,) = refused.value.problems
    assert problem.where == flag
    assert "s3cret" not in problem.render()


def test_options_from_the_environment_are_named_since_the_service_has_another() -> None:
    found = made("-m", "/srv/m", environ={"LLAMA_ARG_CTX_SIZE": "4096"})
    (note,) = found.notes
    assert note.where == "engine.ctx_size"
    assert "LLAMA_ARG_CTX_SIZE" in note.what
    assert "4096" not in found.text


def test_a_line_break_cannot_smuggle_a_directive() -> None:
    with pytest.raises(Refused):
        made("-m", "/srv/m", "--alias", "x\nExecStartPre=/bin/evil")


def test_a_users_service_lies_in_their_folder_and_survives_their_logout() -> None:
    found = made("-m", "/srv/m")
    assert found.path == NOWHERE / ".config/systemd/user/mlxcel-server.service"
    assert "WantedBy=default.target" in found.text
    assert "DynamicUser" not in found.text
    assert found.next == (
        "systemctl --user daemon-reload",
        "systemctl --user enable mlxcel-server",
        "systemctl --user restart mlxcel-server",
        "loginctl enable-linger ann",
    )


def test_the_machines_service_is_closed_and_takes_root_to_start() -> None:
    found = made("-m", "/srv/m", whose="system")
    assert found.path == Path("/etc/systemd/system/mlxcel-server.service")
    assert "DynamicUser=yes" in found.text
    assert found.next[0] == "sudo systemctl daemon-reload"
    root = made("-m", "/srv/m", whose="system", on=machine(uid=0))
    assert root.next[-1] == "systemctl restart mlxcel-server"


def test_files_in_a_home_folder_are_let_in() -> None:
    away = made("-m", "/srv/m", whose="system").text
    assert "ProtectHome=yes" in away
    home = made("-m", "/home/ann/m", whose="system").text
    assert "ProtectHome=read-only" in home


def test_what_the_service_cannot_read_is_told(tmp_path: Path) -> None:
    hidden = tmp_path / "hidden"
    hidden.mkdir(mode=0o700)
    (hidden / "m").mkdir()
    # The folder of the tests lies in /tmp, or what stands for it, on most machines.
    where = {note.where for note in made("-m", str(hidden / "m"), whose="system").notes}
    assert where == {str(hidden / "m")}
    assert made("-m", "/usr", whose="system").notes == ()


def test_the_patience_of_the_manager_follows_the_options() -> None:
    found = made("-m", "/srv/m", "--drain-timeout", "100", "--watchdog-timeout", "300")
    assert "TimeoutStopSec=115\n" in found.text
    assert "WatchdogSec=600\n" in found.text


def test_on_macos_it_is_an_agent_of_the_user() -> None:
    home = Path("/Users/ann")
    found = made("-m", "/srv/m", on=machine("darwin", home))
    assert found.path == home / "Library/LaunchAgents/ai.mlxcel.server.user.plist"
    keys = plistlib.loads(found.text.encode())
    assert keys["ProgramArguments"] == ["/usr/local/bin/mlxcel-server", "-m", "/srv/m"]
    assert keys["StandardErrorPath"] == "/Users/ann/Library/Logs/mlxcel-server.log"
    assert "UserName" not in keys
    assert found.next == (
        "launchctl bootout gui/501/ai.mlxcel.server.user 2>/dev/null",
        f"launchctl bootstrap gui/501 {found.path}",
    )


def test_on_macos_the_machines_daemon_runs_as_who_installs_it() -> None:
    found = made("-m", "/srv/m", on=machine("darwin"), whose="system")
    assert found.path == Path("/Library/LaunchDaemons/ai.mlxcel.server.plist")
    assert plistlib.loads(found.text.encode())["UserName"] == "ann"
    assert found.next[-1] == f"sudo launchctl bootstrap system {found.path}"


def test_other_systems_are_told_where_examples_are() -> None:
    with pytest.raises(Refused, match="`freebsd14`"):
        made("-m", "/srv/m", on=machine("freebsd14"))


def test_a_program_that_systemd_would_refuse_is_refused_here() -> None:
    odd = Machine(
        platform="linux",
        program=("/opt/it's/mlxcel-server",),
        home=NOWHERE,
        config_home=NOWHERE,
        user="ann",
        uid=501,
    )
    with pytest.raises(Refused, match="quotes"):
        made("-m", "/srv/m", on=odd)


def test_a_file_is_written_once_as_a_whole_and_readable(tmp_path: Path) -> None:
    found = made("-m", "/srv/m", on=machine(home=tmp_path))
    assert write(found) == "written"
    assert found.path.read_text() == found.text
    assert stat.S_IMODE(found.path.stat().st_mode) == 0o644
    assert os.listdir(found.path.parent) == ["mlxcel-server.service"]
    assert write(found) == "unchanged"


@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_what_was_written_here_may_be_replaced(tmp_path: Path, platform: str) -> None:
    there = machine(platform, tmp_path)
    write(made("-m", "/srv/m", on=there))
    found = made("-m", "/srv/other", on=there)
    assert write(found) == "replaced"
    assert found.path.read_text() == found.text
    assert os.listdir(found.path.parent) == [found.path.name]


def test_a_file_that_was_changed_since_is_left_alone(tmp_path: Path) -> None:
    there = machine(home=tmp_path)
    first = made("-m", "/srv/m", on=there)
    write(first)
    mine = first.text.replace("RestartSec=5", "RestartSec=9")
    first.path.write_text(mine)
    with pytest.raises(Refused, match="changed since"):
        write(made("-m", "/srv/other", on=there))
    assert first.path.read_text() == mine


@pytest.mark.parametrize("text", ["[Service]\nExecStart=/mine\n", "", "\n"])
def test_a_file_of_somebody_else_is_left_alone(tmp_path: Path, text: str) -> None:
    found = made("-m", "/srv/m", on=machine(home=tmp_path))
    found.path.parent.mkdir(parents=True)
    found.path.write_text(text)
    with pytest.raises(Refused, match="not written by"):
        write(found)
    assert found.path.read_text() == text
    assert os.listdir(found.path.parent) == [found.path.name]


def test_a_masked_service_stays_masked(tmp_path: Path) -> None:
    """`systemctl mask` puts a link to /dev/null there."""
    found = made("-m", "/srv/m", on=machine(home=tmp_path))
    found.path.parent.mkdir(parents=True)
    found.path.symlink_to("/dev/null")
    with pytest.raises(Refused, match="a link"):
        write(found)
    assert found.path.is_symlink()


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / ".config").write_text("a file")
    found = made("-m", "/srv/m", on=machine(home=tmp_path))
    with pytest.raises(Refused, match="cannot be written"):
        write(found)


def test_a_program_is_named_by_its_link(tmp_path: Path) -> None:
    """Homebrew's link stays when the version that it points to goes."""
    real = tmp_path / "Cellar" / "1.0" / "mlxcel-server"
    real.parent.mkdir(parents=True)
    real.write_text("#!/bin/sh\n")
    real.chmod(0o755)
    link = tmp_path / "mlxcel-server"
    link.symlink_to(real)
    assert install.this_machine({}, str(link)).program == (str(link),)


def on_the_command_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *argv: str
) -> int:
    there = machine(home=tmp_path)
    monkeypatch.setattr(install, "this_machine", lambda environ, program: there)
    return cli.main(argv, {})


def test_the_command_prints_the_file_and_says_where_it_belongs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ("--install-service", "-m", "/srv/m")
    assert on_the_command_line(monkeypatch, tmp_path, *argv) == 0
    out, err = capsys.readouterr()
    assert out == made("-m", "/srv/m", on=machine(home=tmp_path)).text
    assert err.splitlines() == [
        f"`--write` puts it into {tmp_path}/.config/systemd/user/mlxcel-server.service"
    ]
    assert os.listdir(tmp_path) == []


def test_the_command_writes_the_file_and_says_what_comes_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ("--install-service=user", "--write", "-m", "/srv/m")
    assert on_the_command_line(monkeypatch, tmp_path, *argv) == 0
    out, err = capsys.readouterr()
    path = tmp_path / ".config/systemd/user/mlxcel-server.service"
    assert path.exists()
    assert out.splitlines()[:3] == [
        f"written: {path}",
        "next:",
        "  systemctl --user daemon-reload",
    ]
    assert err == ""


def test_a_refusal_ends_with_status_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ("--install-service", "-m", "/srv/m", "--api-key", "k")
    assert on_the_command_line(monkeypatch, tmp_path, *argv) == 1
    assert capsys.readouterr().err.startswith("--api-key: ")


def test_a_wrong_configuration_is_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "mlxcel.toml"
    config.write_text("[engine]\nparallel = 0\n")
    argv = ("--install-service", "--write", "--config", str(config))
    assert on_the_command_line(monkeypatch, tmp_path, *argv) == 78
    assert os.listdir(tmp_path) == ["mlxcel.toml"]


@pytest.mark.parametrize(
    ("argv", "where"),
    [
        (["--install-service=both"], "--install-service"),
        (["--write"], "--write"),
    ],
)
def test_mistakes_in_the_flags_are_usage_errors(argv: list[str], where: str) -> None:
    (problem,) = parse(argv).problems
    assert problem.where == where
    assert cli.main(argv, {}) == 2
