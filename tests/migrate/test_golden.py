"""Every golden case gives what it should, and what holds for all of them."""

from __future__ import annotations

import json
import stat
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from mlxceld.config import resolve
from tests.migrate.golden import Case, Outcome, cases, differences

CASES = cases()
ALL = pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])


def test_there_are_at_least_sixty_cases() -> None:
    assert len(CASES) >= 60


@ALL
def test_the_case_gives_what_is_expected(case: Case, tmp_path: Path) -> None:
    diffs = list(differences(case, tmp_path))
    assert not diffs, "\n".join(diffs)


class Seen:
    """A case that was looked at, written, and written again."""

    def __init__(self, case: Case, folder: Path) -> None:
        case.copy(folder)
        self.before = tree(folder)
        self.dry = case.run(folder, "--report", "json")
        self.after_dry = tree(folder)
        self.first = case.run(folder, "--write", "--report", "json")
        self.after = tree(folder)
        for name in self.after.keys() - self.before.keys():
            if name.endswith(".toml"):
                resolve(["--config", str(folder / name)], {})
        self.open = [
            str(path.relative_to(folder))
            for path in folder.rglob("*")
            if path.is_file() and stat.S_IMODE(path.stat().st_mode) & 0o077
        ]
        self.second = case.run(folder, "--write", "--report", "json")
        self.after_second = tree(folder)


@cache
def seen(case: Case) -> Seen:
    with TemporaryDirectory() as folder:
        return Seen(case, Path(folder))


@ALL
def test_a_dry_run_writes_nothing(case: Case) -> None:
    assert seen(case).after_dry == seen(case).before


@ALL
def test_the_daemon_reads_what_is_written(case: Case, tmp_path: Path) -> None:
    """New files are read while the case is seen; here those that were edited."""
    one = seen(case)
    for name, data in one.after.items():
        if name.endswith(".toml") and one.before.get(name, data) != data:
            path = tmp_path / "edited.toml"
            path.write_bytes(data)
            resolve(["--config", str(path)], {})


@ALL
def test_a_second_run_has_nothing_left_to_do(case: Case) -> None:
    one = seen(case)
    assert one.after_second == one.after
    if one.first.status == 0:
        assert one.second.status == 0


@ALL
def test_bad_input_writes_nothing(case: Case) -> None:
    if seen(case).first.status == 2:
        assert seen(case).after == seen(case).before


@ALL
def test_the_meaning_is_kept_unless_the_new_one_is_asked_for(case: Case) -> None:
    for setup in setups(seen(case).dry):
        if setup["adopt"] or "no_plan" in setup["today"]:
            continue
        assert meaning(setup["today"]) == meaning(setup["after_migration"])


@ALL
def test_no_secret_is_shown_or_left_open(case: Case) -> None:
    """All secrets of the cases have the word `sesame` in them."""
    one = seen(case)
    for run in (one.dry, one.first, one.second):
        assert "sesame" not in run.out + run.err
    for name, data in one.after.items():
        if b"sesame" in data and name not in one.before and not name.endswith("~"):
            assert name not in one.open


def setups(run: Outcome) -> list[dict[str, Any]]:
    if run.status == 2:
        return []
    found: list[dict[str, Any]] = json.loads(run.out or run.err)["setups"]
    return found


def meaning(plan: dict[str, Any]) -> tuple[Any, ...]:
    return (plan["slots"], plan["per_slot"], plan["all_slots"], plan["shared"])


def tree(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
