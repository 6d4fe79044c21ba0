"""`mlxcel-server`: the command line.

Imports neither MLX nor the web framework before it really serves, and what reads a
configuration only where one is read, so that every question is answered at once.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from mlxceld import __version__
from mlxceld.argv import CommandLine, Whose, parse
from mlxceld.exits import Exit
from mlxceld.problems import Problem, Refused

if TYPE_CHECKING:
    from mlxceld.config import Resolved


def main(
    argv: Sequence[str] | None = None, environ: Mapping[str, str] | None = None
) -> int:
    """Do what the command line says; returns the exit status.

    What was asked for goes to stdout, problems go to stderr.
    """
    line = parse(sys.argv[1:] if argv is None else argv)
    environment = os.environ if environ is None else environ
    try:
        return _run(line, environment)
    except BrokenPipeError:
        # The reader of our output has left; Python would complain at exit again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.OK


def _run(line: CommandLine, environ: Mapping[str, str]) -> int:
    if line.help:
        return _help(line.help)
    if line.version:
        print(f"mlxcel-server {__version__}")
        return Exit.OK
    from mlxceld.config import NO_MODEL, BadConfig, resolve

    try:
        resolved = resolve(line, environ)
    except BadConfig as bad:
        _complain(bad.problems)
        return bad.exit
    if line.print_config is not None:
        from mlxceld.show import print_config

        sys.stdout.write(print_config(resolved, line.print_config))
        return Exit.OK
    if line.check_config:
        return _check(resolved)
    if line.install_service is not None:
        return _install(line, line.install_service, resolved, environ)
    if resolved.settings.model.path is None and resolved.settings.model.hf_repo is None:
        _complain([NO_MODEL])
        return Exit.USAGE
    return _serve(resolved)


def _help(length: str) -> int:
    from mlxceld.help import long_help, short_help

    width = min(shutil.get_terminal_size((100, 24)).columns, 100)
    width = max(width, 48)
    sys.stdout.write(long_help(width) if length == "long" else short_help(width))
    return Exit.OK


def _check(resolved: Resolved) -> int:
    from mlxceld.check import report

    found = report(resolved)
    print("\n".join(found.lines))
    _complain(found.problems)
    return Exit.CONFIG if found.problems else Exit.OK


def _install(
    line: CommandLine, whose: Whose, resolved: Resolved, environ: Mapping[str, str]
) -> int:
    from mlxceld.service import install

    try:
        machine = install.this_machine(environ, sys.argv[0])
        wanted = install.installation(line, resolved, whose, machine)
        if line.write:
            print(f"{install.write(wanted)}: {wanted.path}")
        else:
            sys.stdout.write(wanted.text)
    except Refused as refused:
        _complain(refused.problems)
        return Exit.FAILURE
    _complain(wanted.notes)
    if not line.write:
        print(f"`--write` puts it into {wanted.path}", file=sys.stderr)
        return Exit.OK
    print("next:")
    for command in wanted.next:
        print(f"  {command}")
    return Exit.OK


def _serve(resolved: Resolved) -> int:
    from mlxceld.service.lifecycle import run

    return run(resolved)


def _complain(problems: Sequence[Problem]) -> None:
    for problem in problems:
        print(problem.render(), file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
