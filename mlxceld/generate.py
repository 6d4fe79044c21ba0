"""Writes and checks every file that is generated from the option table.

`python -m mlxceld.generate` writes them, `--check` compares them and fails with the
command to run and a diff, so that a table and its products cannot drift apart.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from mlxceld.options import TABLES, Option, in_table

ROOT = Path(__file__).resolve().parent
COMMAND = "python -m mlxceld.generate"


def settings_source() -> str:
    """The source of `settings.py`: one frozen dataclass for each TOML table."""
    return "\n".join(_settings_lines()) + "\n"


def _settings_lines() -> Iterator[str]:
    yield '"""The settings of a daemon, typed: what is left when all layers are merged.'
    yield ""
    yield f"Generated from the option table by `{COMMAND}`: edit `options.py`"
    yield "instead. None stands for an option that nobody set."
    yield '"""'
    yield ""
    yield "from __future__ import annotations"
    yield ""
    yield "from dataclasses import dataclass, field"
    for table in TABLES:
        yield ""
        yield ""
        yield "@dataclass(frozen=True, slots=True, kw_only=True)"
        yield f"class {table.capitalize()}Settings:"
        yield f'    """Table `[{table}]`."""'
        yield ""
        for option in in_table(table):
            yield from _field_lines(option)
    yield ""
    yield ""
    yield "@dataclass(frozen=True, slots=True, kw_only=True)"
    yield "class Settings:"
    yield '    """All tables."""'
    yield ""
    for table in TABLES:
        name = f"{table.capitalize()}Settings"
        yield f"    {table}: {name} = field(default_factory={name})"


def _field_lines(option: Option) -> Iterator[str]:
    none = " | None" if option.optional else ""
    annotation = f"{option.kind.annotation}{none}"
    yield f"    {option.name}: {annotation} = {_literal(option.default)}"
    yield f'    """{option.short}."""'


def _literal(value: object) -> str:
    # repr() prefers single quotes; the formatter of the project prefers double ones.
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, tuple):
        items = ", ".join(_literal(item) for item in value)
        return f"({items},)" if len(value) == 1 else f"({items})"
    return repr(value)


FILES: tuple[tuple[Path, Callable[[], str]], ...] = (
    (ROOT / "settings.py", settings_source),
)
"""Every generated file and the function that makes its text."""


def stale(files: Sequence[tuple[Path, Callable[[], str]]] = FILES) -> Iterator[str]:
    """A unified diff for every file that is not what the table says."""
    for path, make in files:
        have = path.read_text(encoding="utf-8") if path.exists() else ""
        want = make()
        if have != want:
            yield "".join(
                difflib.unified_diff(
                    have.splitlines(keepends=True),
                    want.splitlines(keepends=True),
                    f"{path.name} (as it is)",
                    f"{path.name} (as the table says)",
                )
            )


def main(
    argv: Sequence[str] | None = None,
    files: Sequence[tuple[Path, Callable[[], str]]] = FILES,
) -> int:
    """Write the files, or compare them with `--check`; 0 when all is well, else 1."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments not in ([], ["--check"]):
        print(f"usage: {COMMAND} [--check]", file=sys.stderr)
        return 2
    if arguments:
        diffs = list(stale(files))
        for diff in diffs:
            print(diff, end="")
        if diffs:
            print(f"generated files are stale: run `{COMMAND}`", file=sys.stderr)
        return 1 if diffs else 0
    for path, make in files:
        path.write_text(make(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
