"""`--install-service`: the unit or property list for this machine, printed or written.

The options that stand beside it on the command line become the service's own, with the
names of files made absolute. A file is never overwritten unless it was written here and
nobody has changed it since, which its last line tells.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import stat
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from mlxceld.argv import CommandLine, Given, Whose
from mlxceld.config import Resolved
from mlxceld.kinds import FilePath
from mlxceld.layers import Layer
from mlxceld.options import OPTIONS
from mlxceld.paths import FILE_NAME
from mlxceld.problems import Problem, Refused
from mlxceld.service import plists, units

_FLAG = "--install-service"


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What the service has to know of the machine and of who installs it."""

    platform: str
    """As `sys.platform` has it."""
    program: tuple[str, ...]
    """The words that start `mlxcel-server`, the first an absolute path."""
    home: Path
    config_home: Path
    """`$XDG_CONFIG_HOME` or what stands for it."""
    user: str
    """The name of who asked, also behind `sudo`."""
    uid: int


@dataclass(frozen=True, slots=True)
class Installation:
    """A file to write, and what to say about it."""

    path: Path
    text: str
    notes: tuple[Problem, ...]
    """What may keep the service from working as the command does here."""
    next: tuple[str, ...]
    """The commands that start it."""


def this_machine(environ: Mapping[str, str], program: str) -> Machine:
    """The machine that this runs on; `program` is `sys.argv[0]`."""
    home = Path(environ.get("HOME") or os.path.expanduser("~"))
    xdg = environ.get("XDG_CONFIG_HOME", "")
    return Machine(
        platform=sys.platform,
        program=_program(program),
        home=home,
        config_home=Path(xdg) if os.path.isabs(xdg) else home / ".config",
        user=environ.get("SUDO_USER") or environ.get("USER") or "root",
        uid=os.getuid(),
    )


def _program(name: str) -> tuple[str, ...]:
    # A link is kept: what it points to has a version in its name with Homebrew.
    beside = os.path.join(os.path.dirname(sys.executable), units.NAME)
    for path in (name if os.path.basename(name) == units.NAME else "", beside):
        if path and os.access(path, os.X_OK):
            return (os.path.abspath(path),)
    return (sys.executable, "-m", "mlxceld.cli")


def installation(
    line: CommandLine, resolved: Resolved, whose: Whose, machine: Machine
) -> Installation:
    """The file for `whose` manager of services. Raises `Refused`."""
    mac = machine.platform == "darwin"
    if not mac and not machine.platform.startswith("linux"):
        what = f"no manager of services is known for `{machine.platform}`"
        raise Refused(
            [Problem(what, _FLAG, "the files in `etc` are examples to adapt")]
        )
    config, notes = _config(line, resolved, whose, machine)
    words = [*machine.program]
    if config is not None:
        words += ["--config", str(config)]
    words += _flags(line.given)
    _refuse_line_breaks(words)
    if not mac and re.search(r"[\"'\\]", words[0]):
        what = f"systemd takes no program with quotes or backslashes: `{words[0]}`"
        raise Refused([Problem(what, _FLAG, "install it into another folder")])
    notes += _unseen(resolved)
    make = _launchd if mac else _systemd
    path, text, commands, more = make(words, resolved, whose, machine)
    return Installation(path, _signed(text, mac), (*notes, *more), commands)


def _config(
    line: CommandLine, resolved: Resolved, whose: Whose, machine: Machine
) -> tuple[Path | None, list[Problem]]:
    """The configuration file of the service, and what to say about it."""
    if resolved.files:
        return Path(os.path.abspath(resolved.files[0])), []
    if any(given.option.key in _MODEL for given in line.given):
        return None, []
    folder = Path("/etc") if whose == "system" else machine.config_home
    if whose == "system" and machine.platform == "darwin":
        folder = Path("/opt/homebrew/etc")
    path = folder / "mlxcel" / FILE_NAME
    hint = "write `path` of a model into its table [model] before the service starts"
    return path, [Problem("the configuration file does not exist yet", f"{path}", hint)]


_MODEL = ("model.path", "model.hf_repo")


def _flags(given: Sequence[Given]) -> Iterator[str]:
    """The options of the command line. Raises `Refused` for secrets."""
    for one in given:
        option, flag, text = one.option, one.flag, one.text
        if option.secret:
            what = "everybody on this machine could read it in the file of the service"
            hint = "put it into the configuration file"
            if option.key == "server.api_key":
                hint = "put it into a file of mode 0600 and name that: `--api-key-file`"
            raise Refused([Problem(what, flag, hint)])
        constants = {name for name, _ in option.constants}
        alone = flag in (*option.negated, *constants)
        if alone or (option.is_switch and text == "true"):
            yield flag
            continue
        if isinstance(option.kind, FilePath) and text.strip():
            text = os.path.abspath(os.path.expanduser(text.strip()))
        if option.is_switch or text.startswith("-") or not text:
            yield f"{flag}={text}"
        else:
            yield flag
            yield text


def _refuse_line_breaks(words: Sequence[str]) -> None:
    if any(re.search(r"[\x00-\x1f\x7f]", word) for word in words):
        what = "a line break or control character cannot be part of a service's file"
        hint = "put the option into the configuration file"
        raise Refused([Problem(what, _FLAG, hint)])


def _unseen(resolved: Resolved) -> Iterator[Problem]:
    """Options that come from the environment of this shell."""
    for option in OPTIONS:
        origin = resolved.origins[option.key]
        if origin.layer is Layer.ENVIRONMENT:
            what = f"set here by {origin.text}, which the service does not see"
            hint = "give it as a flag or write it into the configuration file"
            yield Problem(what, option.key, hint)


_Made: TypeAlias = tuple[Path, str, tuple[str, ...], list[Problem]]


def _systemd(
    words: list[str], resolved: Resolved, whose: Whose, machine: Machine
) -> _Made:
    name = f"{units.NAME}.service"
    files = [word for word in words if os.path.isabs(word)]
    files += _named(resolved)
    wanted = units.Wanted(
        command=words,
        drain_timeout=resolved.settings.server.drain_timeout,
        watchdog_timeout=resolved.settings.engine.watchdog_timeout,
        sees_home=any(_in_a_home(file) for file in files),
    )
    if whose == "user":
        path = machine.config_home / "systemd" / "user" / name
        commands = (
            "systemctl --user daemon-reload",
            f"systemctl --user enable {units.NAME}",
            f"systemctl --user restart {units.NAME}",
            f"loginctl enable-linger {shlex.quote(machine.user)}",
        )
        return path, units.user_service(wanted), commands, []
    root = _as_root(machine)
    system = (
        f"{root}systemctl daemon-reload",
        f"{root}systemctl enable {units.NAME}",
        f"{root}systemctl restart {units.NAME}",
    )
    path = Path("/etc/systemd/system") / name
    return path, units.service(wanted), system, list(_hidden(files))


def _as_root(machine: Machine) -> str:
    return "sudo " if machine.uid else ""


def _launchd(
    words: list[str], resolved: Resolved, whose: Whose, machine: Machine
) -> _Made:
    drain = resolved.settings.server.drain_timeout
    if whose == "user":
        log = machine.home / "Library" / "Logs" / f"{units.NAME}.log"
        agent = plists.Wanted(command=words, log=str(log), drain_timeout=drain)
        folder = machine.home / "Library" / "LaunchAgents"
        path = folder / f"{plists.AGENT}.plist"
        domain = f"gui/{machine.uid}"
        first = f"launchctl bootout {domain}/{plists.AGENT} 2>/dev/null"
        second = f"launchctl bootstrap {domain} {shlex.quote(str(path))}"
        return path, plists.agent(agent), (first, second), []
    log = Path("/Library/Logs") / f"{units.NAME}.log"
    daemon = plists.Wanted(
        command=words, log=str(log), user=machine.user, drain_timeout=drain
    )
    path = Path("/Library/LaunchDaemons") / f"{plists.DAEMON}.plist"
    root = _as_root(machine)
    commands = (
        f"{root}install -m 600 -o {shlex.quote(machine.user)} /dev/null {log}",
        f"{root}launchctl bootout system/{plists.DAEMON} 2>/dev/null",
        f"{root}launchctl bootstrap system {path}",
    )
    notes = []
    if machine.user == "root":
        what = "the service would run as root"
        hint = f"write the name of another user into UserName of {path}"
        notes.append(Problem(what, _FLAG, hint))
    return path, plists.daemon(daemon), commands, notes


def _named(resolved: Resolved) -> Iterator[str]:
    """The files that options name, whatever they come from."""
    for option in OPTIONS:
        value = resolved.value(option)
        if isinstance(option.kind, FilePath) and value:
            yield os.path.abspath(str(value))


def _in_a_home(file: str) -> bool:
    return file.startswith(("/home/", "/root/"))


def _hidden(files: Sequence[str]) -> Iterator[Problem]:
    """What a service with a user and a /tmp of its own does not see."""
    for file in dict.fromkeys(files):
        if file.startswith(("/tmp/", "/var/tmp/")):
            what = "the service does not see it: it has a /tmp of its own"
            yield Problem(what, file, "move it to another folder")
        elif not _open_to_others(file):
            what = "the service cannot read it: it runs as a user of its own"
            hint = "let everybody read it and search its folders, or move it"
            yield Problem(what, file, hint)


def _open_to_others(file: str) -> bool:
    """Whether anybody may read a file, or search a folder; True for none at all."""
    path = Path(file)
    try:
        for folder in path.parents:
            if not folder.stat().st_mode & stat.S_IXOTH:
                return False
        return bool(path.stat().st_mode & stat.S_IROTH)
    except FileNotFoundError:
        return True
    except OSError:
        return False


_SIGNATURE = "written by mlxcel-server (install-service), checksum "
_SIGNED = re.compile(re.escape(_SIGNATURE) + "([0-9a-f]{16})")


def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _signed(text: str, xml: bool) -> str:
    line = _SIGNATURE + _checksum(text)
    return text + (f"<!-- {line} -->\n" if xml else f"# {line}\n")


def write(wanted: Installation) -> Literal["written", "replaced", "unchanged"]:
    """Put the file in its place, as a whole or not at all; mode 0644.

    Raises `Refused` when a file of somebody else is there, or it cannot be written.
    """
    path = wanted.path
    try:
        found = _found(path)
        if found == wanted.text:
            return "unchanged"
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(wanted.text)
                file.flush()
                os.fchmod(file.fileno(), 0o644)
                os.fsync(file.fileno())
            if found is None:
                os.link(name, path)  # Unlike a rename, it fails when a file is there.
            else:
                os.replace(name, path)
        finally:
            Path(name).unlink(missing_ok=True)
    except OSError as error:
        hint = "try it with `sudo`" if isinstance(error, PermissionError) else ""
        what = f"cannot be written: {(error.strerror or str(error)).lower()}"
        raise Refused([Problem(what, str(path), hint)]) from None
    return "written" if found is None else "replaced"


def _found(path: Path) -> str | None:
    """The text that is there and may be replaced; None when there is none."""
    away = "move it away first; changes of your own belong into a drop-in"
    if path.is_symlink():
        raise Refused([Problem("found a link, which is left alone", str(path), away)])
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except UnicodeError:
        text = ""
    before, _, last = text.rstrip("\n").rpartition("\n")
    signed = _SIGNED.search(last)
    if signed is None:
        what = "found a file that was not written by `mlxcel-server`"
        raise Refused([Problem(what, str(path), away)])
    if signed[1] != _checksum(f"{before}\n"):
        what = "the file was changed since `mlxcel-server` wrote it"
        raise Refused([Problem(what, str(path), away)])
    return text
