"""`mlxcel-verify`: the command line.

Asks a running server for its slots, sends streams that should run at once and prompts
as long as its window, and says whether all of it is as the server tells.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

from mlxceld.exits import Exit
from mlxceld.problems import Problem, Refused, Unreachable
from mlxceld.verify.record import Status

DESCRIPTION = """\
Looks whether the slots of a running server are what it says they are. Works with
mlxcel-server, llama-server and whatever else has llama-server's API.

Sends as many streams at once as there are slots and watches `/slots` meanwhile; fills
the window of one request; and sends a prompt that is one token longer. Every answer is
generated: on a busy server others wait meanwhile, and their requests show in the
result.

The verdicts are `ok`, `WRONG` and `unknown`, which is no failure: llama-server, for
one, does not tell how much memory keys and values take.
"""

EPILOG = """\
examples:
  mlxcel-verify http://127.0.0.1:8080
  mlxcel-verify --plot timeline.svg http://127.0.0.1:8080
  mlxcel-verify --json --fill none http://127.0.0.1:8080

environment:
  LLAMA_API_KEY  the key, where no option gives one

exit status:
  0  nothing is wrong
  1  at least one verdict is WRONG
  2  the command line is wrong
  3  the server cannot be reached, is not ready or answers no stream
"""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise Refused([Problem(message, hint="see `mlxcel-verify --help`")])


def build_parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    parser = _Parser(
        prog="mlxcel-verify",
        usage="mlxcel-verify [options] URL",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "url",
        nargs="?",
        metavar="URL",
        help="address of the server, with its prefix if it has one",
    )
    asking = parser.add_argument_group("asking")
    add = asking.add_argument
    add(
        "--streams",
        type=_whole("streams", 1, 1024),
        metavar="N",
        help="streams at once, instead of one for every slot",
    )
    add(
        "--tokens",
        type=_whole("tokens", 2, 1_000_000),
        default=64,
        metavar="N",
        help="tokens of each stream (default: %(default)s); more of them where streams "
        "are over too soon, fewer where the window is small",
    )
    add(
        "--fill",
        choices=("one", "all", "together", "none"),
        default="one",
        help="windows to fill to their end: of one slot (the default), of all slots "
        "one after another or together, or of none; long prompts take their time",
    )
    add(
        "--timeout",
        type=_whole("seconds", 1, 86_400),
        default=600,
        metavar="SECONDS",
        help="how long the server may be silent (default: %(default)s)",
    )
    add(
        "--ca-file",
        default="",
        metavar="FILE",
        help="certificates to trust over https, in PEM, instead of those of the system",
    )
    keys = asking.add_mutually_exclusive_group()
    keys.add_argument(
        "--api-key",
        metavar="KEY",
        help="key to show; flags are visible in the list of processes",
    )
    keys.add_argument(
        "--api-key-file",
        metavar="FILE",
        help="file with the key on its first line; - is stdin",
    )
    showing = parser.add_argument_group("showing")
    add = showing.add_argument
    add("--json", action="store_true", help="print JSON instead of a page")
    add("--plot", metavar="FILE", help="draw the timeline of the streams, as SVG")
    add("--quiet", action="store_true", help="show no progress on a terminal")
    add("--version", action="store_true", help="show the version")
    return parser


def _whole(what: str, least: int, most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not (text.isascii() and text.isdigit() and least <= int(text) <= most):
            wanted = f"wanted {what} from {least} to {most}"
            raise argparse.ArgumentTypeError(f"found `{text}`, {wanted}")
        return int(text)

    return read


def main(
    argv: Sequence[str] | None = None, environ: Mapping[str, str] | None = None
) -> int:
    """Do what the command line says; returns the exit status.

    The result goes to stdout; problems, and progress on a terminal, to stderr.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        return _run(words, os.environ if environ is None else environ)
    except Refused as refused:
        for problem in refused.problems:
            print(problem.render(), file=sys.stderr)
        unreachable = isinstance(refused, Unreachable)
        return Status.UNMEASURED if unreachable else Status.USAGE
    except BrokenPipeError:
        # The reader of our output has left; Python would complain at exit again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Status.GOOD
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception:
        # Python's own status is 1, which would say that the server is wrong.
        import traceback

        traceback.print_exc()
        return Exit.SOFTWARE


INTERRUPTED = 130
"""What shells give a program that Ctrl-C has ended."""


def _run(words: list[str], environ: Mapping[str, str]) -> int:
    options = build_parser().parse_args(words)
    if options.version:
        from mlxceld import __version__

        print(f"mlxcel-verify {__version__}")
        return Status.GOOD
    if options.url is None:
        hint = "for example `mlxcel-verify http://127.0.0.1:8080`"
        raise Refused([Problem("no server is named", hint=hint)])
    from mlxceld.verify import plot, report, verdict
    from mlxceld.verify.ask import Server
    from mlxceld.verify.measure import Wish, measure

    key = _key(options.api_key, options.api_key_file, environ)
    server = Server(options.url, key, options.timeout, options.ca_file)
    wish = Wish(options.streams, options.tokens, options.fill)
    progress = _Progress(not options.quiet and sys.stderr.isatty())
    try:
        record = measure(server, wish, progress.tell)
    finally:
        progress.clear()
    verdicts = verdict.judge(record)
    if options.plot is not None:
        _write(options.plot, plot.svg(record))
    show = report.as_json if options.json else report.text
    sys.stdout.write(show(record, verdicts))
    sys.stdout.flush()
    return verdict.status(verdicts)


def _key(given: str | None, file: str | None, environ: Mapping[str, str]) -> str:
    """The key to show, or nothing. Raises `Refused` for a file without one.

    The variable may hold several keys with commas between them, as the server reads
    it: the first one will do.
    """
    if given is None and file is None:
        given = environ.get("LLAMA_API_KEY", "").split(",")[0].strip()
    if file is not None:
        given = _from_file(file)
    key = (given or "").strip()
    if not (key.isascii() and key.isprintable()):
        hint = "only printable ASCII can stand in a header"
        raise Refused([Problem("the API key cannot be sent", hint=hint)])
    return key


def _from_file(name: str) -> str:
    try:
        if name == "-":
            lines = sys.stdin.read().splitlines()
        else:
            with open(name, encoding="utf-8") as file:
                lines = file.read().splitlines()
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise Refused([Problem(f"cannot be read: {reason}", name)]) from None
    # Blank lines and comments are skipped, as the server does.
    keys = [line.strip() for line in lines if line.strip()]
    keys = [key for key in keys if not key.startswith("#")]
    if not keys:
        raise Refused([Problem("it holds no key", name, "write it on one line")])
    return keys[0]


def _write(name: str, text: str) -> None:
    try:
        with open(name, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise Refused([Problem(f"cannot be written: {error.strerror}", name)]) from None


class _Progress:
    """One line on a terminal that is written over; nothing anywhere else."""

    def __init__(self, shown: bool) -> None:
        self._shown = shown
        self._long = 0

    def tell(self, text: str) -> None:
        if self._shown:
            print(f"\r{text:<{self._long}}", end="", file=sys.stderr, flush=True)
            self._long = len(text)

    def clear(self) -> None:
        if self._long:
            print(f"\r{'':<{self._long}}\r", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
