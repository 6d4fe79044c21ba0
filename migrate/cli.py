"""`mlxcel-migrate`: the command line.

Reads set-ups of this daemon, of llama-server and of mlx_lm.server, says what they mean
today and after a default has changed, and writes the configuration that keeps that
meaning. Starts without the option table, so that `--help` answers at once.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from mlxceld.exits import Exit
from mlxceld.problems import Problem, Refused

from .status import Status, worst

KINDS = (
    *("toml", "command", "script", "env", "systemd"),
    *("launchd", "quadlet", "compose", "ini"),
)

DESCRIPTION = """\
Says what a set-up of mlxcel-server, llama-server or mlx_lm.server means today and after
a default has changed, and writes the mlxcel-server configuration that keeps it.

A SOURCE is a TOML file, a start script, an env file, a systemd unit, a launchd property
list, a Podman quadlet, a compose file or an INI preset of llama-server; `-` is standard
input. A command line is given after `--`. Nothing is written without `--write`.
"""

EPILOG = """\
examples:
  mlxcel-migrate /etc/mlxcel/mlxcel.toml             what would change, as a diff
  mlxcel-migrate --write /etc/mlxcel/mlxcel.toml     change it, the old file is kept
  mlxcel-migrate --to llm.toml --write run.sh        a new file from a start script
  mlxcel-migrate --to - -- llama-server -c 8192 -np 4

exit status:
  0  nothing to do, or written
  1  changes are needed
  2  the command line or a source is wrong; nothing was written
  3  the meaning of a set-up is not certain: look at what needs review
"""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise Refused([Problem(message, hint="see `mlxcel-migrate --help`")])


def build_parser() -> argparse.ArgumentParser:
    """The parser of everything before `--`."""
    parser = _Parser(
        prog="mlxcel-migrate",
        usage="mlxcel-migrate [options] SOURCE...\n"
        "       mlxcel-migrate [options] -- PROGRAM WORD...",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("sources", nargs="*", metavar="SOURCE", help="file to read; - is stdin")
    reading = parser.add_argument_group("reading")
    add = reading.add_argument
    add("--kind", choices=KINDS, help="kind of the sources, instead of a guess")
    add(
        "--from",
        dest="program",
        default="",
        metavar="PROGRAM[@VERSION]",
        help="whose words they are: mlxcel-server, llama-server or mlx_lm.server; "
        "mlxcel@VERSION is the older server of that name, mlxceld@VERSION this one",
    )
    add(
        "--env-file",
        dest="env_files",
        action="append",
        default=[],
        metavar="FILE",
        help="variables that the service manager would set; may be repeated",
    )
    add("--name", help="one set-up of several: the unit, service or section")
    meaning = parser.add_argument_group("meaning")
    add = meaning.add_argument
    either = meaning.add_mutually_exclusive_group()
    either.add_argument(
        "--keep", action="store_true", help="keep today's meaning (the default)"
    )
    either.add_argument(
        "--adopt", action="store_true", help="take the new meaning, and show it"
    )
    add("--as-of", default="", metavar="VERSION", help="judge as this version would")
    sizes = meaning.add_mutually_exclusive_group()
    sizes.add_argument("--model", metavar="PATH", help="model to take sizes from")
    sizes.add_argument(
        "--kv-bytes", type=_bytes, metavar="N", help="KV bytes of one token"
    )
    writing = parser.add_argument_group("writing")
    add = writing.add_argument
    add("--to", metavar="FILE", help="where the configuration goes; - is stdout")
    add("--server", metavar="PATH", help="mlxcel-server, as a service shall start it")
    either = writing.add_mutually_exclusive_group()
    either.add_argument(
        "--write", action="store_true", help="write; old files are kept as FILE.~1~"
    )
    either.add_argument(
        "--check", action="store_true", help="only say what needs changes"
    )
    add("--report", choices=("text", "json"), default="text", help="form of the report")
    add("--version", action="store_true", help="show the version")
    return parser


def _bytes(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) < 2**40):
        raise argparse.ArgumentTypeError(f"found `{text}`, wanted a number of bytes")
    return int(text)


def main(argv: Sequence[str] | None = None) -> int:
    """Do what the command line says; returns the exit status.

    The report goes to stdout, or to stderr where stdout gets the configuration. A
    fault of the tool itself ends with 70.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    form = "json" if "json" in words or "--report=json" in words else "text"
    try:
        return _run(words)
    except Refused as refused:
        if form == "json":
            from .report import problems_json

            sys.stdout.write(problems_json(refused.problems, Status.INVALID))
        for problem in refused.problems:
            print(problem.render(), file=sys.stderr)
        return Status.INVALID
    except BrokenPipeError:
        # The reader of our output has left; Python would complain at exit again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Status.OK
    except Exception:
        # Python's own status is 1, which would say that changes are needed.
        import traceback

        traceback.print_exc()
        return Exit.SOFTWARE


def _run(words: list[str]) -> int:
    command: list[str] | None = None
    if "--" in words:
        at = words.index("--")
        words, command = words[:at], words[at + 1 :]
    options = build_parser().parse_args(words)
    if options.version:
        from mlxceld import __version__

        print(f"mlxcel-migrate {__version__}")
        return Status.OK
    if not options.sources and not command:
        hint = "name a file, or a command line after `--`; see `--help`"
        raise Refused([Problem("no source is named", hint=hint)])
    from dataclasses import fields

    from . import report
    from .carry import STDIN, Request, carry

    names = {one.name for one in fields(Request)} & set(vars(options))
    asked = {name: getattr(options, name) for name in names}
    done = carry(Request(command=command, **asked))
    status = worst(one.status for one in done)
    piped = options.to == STDIN
    out = sys.stderr if piped else sys.stdout
    if piped:
        sys.stdout.write(done[0].work.text)
    if options.report == "json":
        out.write(report.as_json(done, status, as_of=options.as_of))
    elif options.check:
        out.write(report.short(done))
    else:
        out.write(report.text(done, as_of=options.as_of, piped=piped))
    return status


if __name__ == "__main__":
    sys.exit(main())
