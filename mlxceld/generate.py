"""Writes and checks every file that is generated from the option table.

`python -m mlxceld.generate` writes them, `--check` compares them and fails with the
command to run and a diff, so that a table and its products cannot drift apart. The
texts are made in `mlxceld.documents`; here is what lies where.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from mlxceld.documents import commands, configpage, manpages, sample, schema, tables
from mlxceld.documents.korean import KOREAN
from mlxceld.documents.language import ENGLISH, Missing
from mlxceld.documents.tables import BadMarker
from mlxceld.options import TABLES, Option, in_table
from mlxceld.service import plists, units

ROOT = Path(__file__).resolve().parent
TOP = ROOT.parent
SYSTEMD = TOP / "etc" / "systemd"
LAUNCHD = TOP / "etc" / "launchd"
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
    head = f"    {option.name}: {option.kind.annotation}{none} = "
    line = head + _literal(option.default)
    if len(line) > 88 and isinstance(option.default, tuple):
        yield f"{head}("
        yield from (f"        {_literal(item)}," for item in option.default)
        yield "    )"
    else:
        yield line
    yield f'    """{option.short}."""'


def _literal(value: object) -> str:
    # repr() prefers single quotes; the formatter of the project prefers double ones.
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace("\n", "\\n")
        if '"' in value and "'" not in value:
            return f"'{escaped}'"
        return '"' + escaped.replace('"', '\\"') + '"'
    if isinstance(value, tuple):
        items = ", ".join(_literal(item) for item in value)
        return f"({items},)" if len(value) == 1 else f"({items})"
    return repr(value)


def pages() -> list[Path]:
    """The pages of the documentation that may hold tables."""
    return [TOP / "README.md", *sorted((TOP / "docs").rglob("*.md"))]


def _page(path: Path) -> str:
    language = KOREAN if TOP / "docs" / "ko" in path.parents else ENGLISH
    name = str(path.relative_to(TOP))
    return tables.fill(path.read_text(encoding="utf-8"), name, language)


FILES: tuple[tuple[Path, Callable[[], str]], ...] = (
    (ROOT / "settings.py", settings_source),
    (TOP / "man" / "mlxcel-server.1", manpages.server_page),
    (TOP / "man" / "mlxcel.toml.5", configpage.config_page),
    (TOP / "etc" / "mlxcel.toml", sample.sample_text),
    (TOP / "docs" / "schema" / "mlxcel.schema.json", schema.schema_text),
    *((TOP / name, make) for name, make in commands.files()),
    *((path, partial(_page, path)) for path in pages()),
    (SYSTEMD / "mlxcel-server.service", units.service),
    (SYSTEMD / "mlxcel-server@.service", units.template),
    (SYSTEMD / "mlxcel-server.socket", units.socket),
    (SYSTEMD / "notify-reload.conf", units.notify_reload),
    (LAUNCHD / f"{plists.DAEMON}.plist", plists.daemon),
    (LAUNCHD / f"{plists.AGENT}.plist", plists.agent),
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
    if not (TOP / "pyproject.toml").exists():
        print(f"{TOP} is no source tree: nothing to generate", file=sys.stderr)
        return 1
    try:
        return _check(files) if arguments else _write(files)
    except (BadMarker, Missing) as error:
        print(error, file=sys.stderr)
        return 1


def _check(files: Sequence[tuple[Path, Callable[[], str]]]) -> int:
    diffs = list(stale(files))
    for diff in diffs:
        print(diff, end="")
    if diffs:
        print(f"generated files are stale: run `{COMMAND}`", file=sys.stderr)
    return 1 if diffs else 0


def _write(files: Sequence[tuple[Path, Callable[[], str]]]) -> int:
    for path, make in files:
        text = make()
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
