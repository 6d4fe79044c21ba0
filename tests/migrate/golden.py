"""The golden cases of the migration: what goes in, and what has to come out.

A case is a folder below `golden/` with the files of a set-up and these beside them:

- `args`: the words for the tool, in the quoting of a shell; left out, the names of the
  input files. `stdin`, where it is there, is what the tool reads from a pipe.
- `status`: the exit status of a dry run.
- `report.txt`: what a dry run prints, or `report.json` with `--report json`.
- `expected.toml`: the new configuration, for a case with one set-up that gets one.
- `written/`: what else `--write` makes or changes, if anything.

Run as a script it prints what differs: `python -m tests.migrate.golden [CASE...]`. With
`--accept` and names of cases it writes the results of these cases, and prints the
difference that it has accepted.
"""

from __future__ import annotations

import contextlib
import difflib
import io
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from mlxceld.migrate import cli

FOLDER = Path(__file__).parent / "golden"
OURS = ("args", "stdin", "status", "report.txt", "report.json", "expected.toml")
SERVER = "/usr/bin/mlxcel-server"


@dataclass(frozen=True)
class Outcome:
    """What one run of the tool gave."""

    status: int
    out: str
    err: str


@dataclass(frozen=True)
class Case:
    """One folder of inputs and expectations."""

    folder: Path

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def inputs(self) -> list[str]:
        """The input files, from the folder of the case."""
        files = (path for path in self.folder.rglob("*") if path.is_file())
        names = (str(path.relative_to(self.folder)) for path in files)
        ours = ("written/", *OURS)
        return sorted(name for name in names if not name.startswith(ours))

    @property
    def arguments(self) -> list[str]:
        text = self.expected("args")
        words = (
            [n for n in self.inputs if "/" not in n]
            if text is None
            else shlex.split(text, comments=True)
        )
        return words if "--server" in words else ["--server", SERVER, *words]

    def expected(self, name: str) -> str | None:
        path = self.folder / name
        return path.read_bytes().decode() if path.is_file() else None

    @property
    def written(self) -> dict[str, str]:
        """The expected files of `written/`."""
        root = self.folder / "written"
        return {
            str(path.relative_to(root)): path.read_bytes().decode()
            for path in root.rglob("*")
            if path.is_file()
        }

    def copy(self, to: Path) -> None:
        """The input files, and nothing else."""
        for name in self.inputs:
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(self.folder / name, to / name)

    def run(self, folder: Path, *more: str) -> Outcome:
        """The tool in `folder`; that folder is `/here` in what it prints."""
        words = self.arguments
        if "--" in words:
            at = words.index("--")
            words = [*words[:at], *more, *words[at:]]
        else:
            words = [*words, *more]
        data = (self.expected("stdin") or "").encode()
        out, err = io.StringIO(), io.StringIO()
        before = os.getcwd()
        os.chdir(folder)
        try:
            with (
                patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(data))),
                contextlib.redirect_stdout(out),
                contextlib.redirect_stderr(err),
            ):
                status = cli.main(words)
        finally:
            os.chdir(before)
        here = os.path.realpath(folder)
        return Outcome(
            int(status),
            out.getvalue().replace(here, "/here"),
            err.getvalue().replace(here, "/here"),
        )


def cases() -> list[Case]:
    return [Case(path) for path in sorted(FOLDER.iterdir()) if path.is_dir()]


def results(case: Case, folder: Path) -> dict[str, str]:
    """What the files of a case should be, by their names."""
    case.copy(folder)
    form = "json" if case.expected("report.json") is not None else "text"
    dry = case.run(folder, *(["--report", "json"] if form == "json" else []))
    found = {"status": f"{dry.status}\n"}
    report = dry.out + dry.err
    found["report.json" if form == "json" else "report.txt"] = report
    if dry.status != 2:
        piped = case.run(folder, "--to", "-")
        if piped.status != 2 and piped.out:
            found["expected.toml"] = piped.out
    before = _tree(folder)
    if "--to" not in case.arguments or "-" not in case.arguments:
        case.run(folder, "--write")
    after = _tree(folder)
    here = os.path.realpath(folder)
    configs = set()
    for name, text in after.items():
        if before.get(name) == text or name.endswith("~"):
            continue
        text = text.replace(here, "/here")
        # The configuration of a case with one set-up is not shown twice.
        if name.endswith(".toml") and text == found.get("expected.toml"):
            configs.add(name)
        else:
            found[f"written/{name}"] = text
    return found


def _tree(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): path.read_bytes().decode()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def differences(case: Case, folder: Path) -> Iterator[str]:
    """A diff for every file of a case that is not what it should be."""
    have = results(case, folder)
    names = {*OURS[2:], *(f"written/{name}" for name in case.written)}
    want = {name: text for name in names if (text := case.expected(name)) is not None}
    for name in sorted({*have, *want}):
        rows = difflib.unified_diff(
            want.get(name, "").splitlines(keepends=True),
            have.get(name, "").splitlines(keepends=True),
            f"{case.name}/{name} (expected)",
            f"{case.name}/{name} (got)",
        )
        if want.get(name) != have.get(name):
            yield "".join(rows)


def accept(case: Case, folder: Path) -> None:
    """Make what comes out the expectation."""
    for name, text in results(case, folder).items():
        (case.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (case.folder / name).write_bytes(text.encode())


def main(words: Sequence[str]) -> int:
    names = [word for word in words if not word.startswith("-")]
    accepting = "--accept" in words
    if accepting and not names:
        print("name the cases to accept", file=sys.stderr)
        return 2
    different = False
    for case in cases():
        if names and case.name not in names:
            continue
        with tempfile.TemporaryDirectory() as folder:
            for diff in differences(case, Path(folder)):
                different = True
                print(diff)
        if accepting:
            with tempfile.TemporaryDirectory() as folder:
                accept(case, Path(folder))
    return int(different and not accepting)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
