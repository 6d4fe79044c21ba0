"""Finds the server in a command: which program it is, and which words are its own.

A server is rarely the first word. `env`, `nice`, `sudo`, `uv run`, `python -m` and
`docker run` stand before it, each with options of its own, and those must not be
taken for options of the server.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from mlxceld.argv import KNOWN

from ..found import Program, Remark, Variable, Word

Files: TypeAlias = Callable[[str], str | None]
"""Gives the text of a file by its name, or None where it cannot be read."""


def no_files(_name: str) -> str | None:
    """For texts that nothing may be read beside."""
    return None


@dataclass(frozen=True, slots=True)
class Start:
    """A command that starts a server, taken apart."""

    program: Program | None
    command: tuple[str, ...]
    """The words up to and with the program."""
    words: tuple[Word, ...]
    """The arguments of the server."""
    environment: tuple[Variable, ...] = ()
    """What `env A=1` or `docker run -e A=1` set, after the environment around it."""
    remarks: tuple[Remark, ...] = ()
    is_container: bool = False
    files: tuple[str, ...] = ()
    """Files that were read on the way: scripts, env files."""
    folder: str = ""
    """From where relative names are seen, where that is said."""


@dataclass(frozen=True, slots=True)
class Wrapper:
    """A program that starts the one named after its own options."""

    values: frozenset[str] = frozenset()
    """Options whose value is the next word."""
    positional: int = 0
    """How many words of its own follow the options."""


def _wrapper(values: str = "", positional: int = 0) -> Wrapper:
    return Wrapper(frozenset(values.split()), positional)


WRAPPERS: Mapping[str, Wrapper] = {
    "arch": _wrapper("-e -d"),
    "caffeinate": _wrapper("-t -w"),
    "catchsegv": _wrapper(),
    "chrt": _wrapper("-T -P -D", 1),
    "command": _wrapper(),
    "conda": _wrapper("-n -p --name --prefix --cwd", 1),
    "doas": _wrapper("-u -C -a"),
    "dumb-init": _wrapper("--rewrite -r"),
    "env": _wrapper("-u -C --unset --chdir"),
    "exec": _wrapper("-a"),
    "gosu": _wrapper("", 1),
    "ionice": _wrapper("-c -n --class --classdata"),
    "mamba": _wrapper("-n -p --name --prefix", 1),
    "micromamba": _wrapper("-n -p --name --prefix", 1),
    "nice": _wrapper("-n --adjustment"),
    "nohup": _wrapper(),
    "numactl": _wrapper(
        "-N -m -C -i -p -P -w --cpunodebind --membind --physcpubind --interleave "
        "--preferred --preferred-many --weighted-interleave"
    ),
    "pdm": _wrapper("-p --project", 1),
    "pixi": _wrapper("-e --environment --manifest-path", 1),
    "poetry": _wrapper("-C -P --directory --project", 1),
    "runuser": _wrapper("-u -g -G"),
    "setpriv": _wrapper("--reuid --regid --groups"),
    "setsid": _wrapper(),
    "stdbuf": _wrapper("-i -o -e"),
    "su-exec": _wrapper("", 1),
    "sudo": _wrapper("-u -g -h -p -C -r -t -T -U -D -R --user --group --chdir"),
    "systemd-cat": _wrapper("-t -p --identifier --priority"),
    "systemd-inhibit": _wrapper("--what --who --why --mode"),
    "systemd-run": _wrapper("-p -u -E --unit --property --slice --uid --gid"),
    "taskset": _wrapper("", 1),
    "time": _wrapper("-f -o"),
    "timeout": _wrapper("-s -k --signal --kill-after", 1),
    "tini": _wrapper("-p -e"),
    "uv": _wrapper(
        "-p --with --with-requirements --python --project --directory --extra "
        "--group --env-file --index --index-url --from",
        1,
    ),
    "uvx": _wrapper("-p --with --python --from --index --env-file"),
}

_BINARIES: Mapping[str, Program] = {
    "llama-server": "llama-server",
    "mlxcel-server": "mlxcel-server",
    "mlx_lm.server": "mlx_lm.server",
    # The runners of an engine that starts llama.cpp's server under its own name.
    "ollama_llama_server": "llama-server",
}

_SUBCOMMANDS: Mapping[tuple[str, str], Program] = {
    ("mlx_lm", "server"): "mlx_lm.server",
    ("mlxcel", "serve"): "mlxcel-server",
    ("llama", "serve"): "llama-server",
    ("llama", "server"): "llama-server",
    ("ollama", "runner"): "llama-server",
}

_MODULES: Mapping[str, Program] = {
    "mlx_lm.server": "mlx_lm.server",
    "mlxceld": "mlxcel-server",
    "mlxceld.cli": "mlxcel-server",
}

_PYTHON = re.compile(r"(python|pypy)[0-9.]*(\.exe)?$")
_OTHERS: Mapping[str, str] = {
    "bat": "cmd.exe",
    "cmd": "cmd.exe",
    "csh": "csh",
    "fish": "fish",
    "js": "node",
    "pl": "perl",
    "ps1": "PowerShell",
    "py": "python",
    "rb": "ruby",
}
"""Languages by the end of a file's name."""

_SHELL = re.compile(r"(ba|da|z|k|a)?sh$")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")


def base_name(text: str) -> str:
    """The name of a program without its folder and `.exe`."""
    name = text.replace("\\", "/").rpartition("/")[2]
    return name.removesuffix(".exe")


def is_shell(text: str) -> bool:
    """Whether a word names a POSIX-like shell."""
    return _SHELL.fullmatch(base_name(text)) is not None


def other_language(name: str, text: str) -> str:
    """What a script is written for, where that is no shell like `sh`; else nothing."""
    if text.startswith("#!"):
        words = text.partition("\n")[0][2:].split()
        if words and base_name(words[0]) == "env":
            words = [word for word in words[1:] if not word.startswith("-")]
        program = base_name(words[0]) if words else "sh"
        return "" if is_shell(program) else program
    suffix = name.rpartition("/")[2].rpartition(".")[2].lower()
    return _OTHERS.get(suffix, "")


def is_called_server(text: str) -> bool:
    """Whether a command that is not known is called like a server: a function, say."""
    name = base_name(text).lower()
    return "serv" in name and ("llama" in name or "mlx" in name)


def looks_like_arguments(words: Sequence[Word]) -> bool:
    """Whether words without a known program are likely to be a server's."""
    flags = {word.text.partition("=")[0].replace("_", "-") for word in words}
    model = flags & {"-m", "--model", "-hf", "--hf-repo"}
    size = flags & {"-c", "--ctx-size", "-np", "--parallel", "--n-parallel", "--port"}
    return bool(model and size) or len(size & set(KNOWN)) > 1


@dataclass(slots=True)
class Unwrapped:
    """A command without what stands before its program."""

    words: list[Word]
    """The program and its arguments; empty when there was nothing else."""
    before: list[str] = field(default_factory=list)
    environment: list[Variable] = field(default_factory=list)


def unwrap(words: Sequence[Word]) -> Unwrapped:
    """Take `env`, `nice`, `sudo -u x` and the like off the front of a command."""
    result = Unwrapped(list(words))
    while result.words:
        wrapper = WRAPPERS.get(base_name(result.words[0].text))
        if wrapper is None:
            break
        _step(result)
        left = wrapper.positional
        while result.words:
            text = result.words[0].text
            if text == "--":
                _step(result)
                break
            if text.startswith("-") and len(text) > 1:
                _step(result)
                if text in wrapper.values and result.words:
                    _step(result)
            elif _ASSIGNMENT.match(text):
                _assign(result)
            elif left:
                left -= 1
                _step(result)
            else:
                break
    return result


def _step(result: Unwrapped) -> None:
    result.before.append(result.words.pop(0).text)


def _assign(result: Unwrapped) -> None:
    word = result.words[0]
    name, _, value = word.text.partition("=")
    result.environment.append(Variable(name, value, word.place, word.doubt))
    _step(result)


def find_program(words: Sequence[Word]) -> Start | None:
    """The server that a command without wrappers starts, or None.

    `words` begins with the program. `python -m mlx_lm.server`, the script of a
    package and the subcommand of a program count as the program.
    """
    if not words:
        return None
    name = base_name(words[0].text)
    used = 1
    if _PYTHON.fullmatch(name):
        return _python(words)
    if program := _BINARIES.get(name):
        return _start(program, words, used)
    if len(words) > 1 and (program := _SUBCOMMANDS.get((name, words[1].text))):
        return _start(program, words, 2)
    return None


def _python(words: Sequence[Word]) -> Start | None:
    at = 1
    while at < len(words):
        text = words[at].text
        if text == "-m" and at + 1 < len(words):
            return _module(words, at + 1)
        if text.startswith("-m") and not text.startswith("--"):
            program = _MODULES.get(text[2:])
            return _start(program, words, at + 1) if program else None
        if text in ("-X", "-W"):
            at += 2
        elif text.startswith("-") and len(text) > 1:
            at += 1
        else:
            program = _BINARIES.get(base_name(text))
            return _start(program, words, at + 1) if program else None
    return None


def _module(words: Sequence[Word], at: int) -> Start | None:
    name = words[at].text
    if program := _MODULES.get(name):
        return _start(program, words, at + 1)
    if at + 1 < len(words) and (
        program := _SUBCOMMANDS.get((name, words[at + 1].text))
    ):
        return _start(program, words, at + 2)
    return None


def _start(program: Program, words: Sequence[Word], used: int) -> Start:
    return Start(
        program, tuple(word.text for word in words[:used]), tuple(words[used:])
    )


def unknown_program(word: Word) -> Remark:
    """What to say where arguments were found, but not whose they are.

    That the meaning hangs on it is said where the meaning is worked out.
    """
    return Remark(f"it is not known which server `{word.text}` starts", word.place)
