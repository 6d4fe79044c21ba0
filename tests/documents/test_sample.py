"""The sample is a configuration, as it is and with its comments undone."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from mlxceld import cli
from mlxceld.argv import parse
from mlxceld.config import resolve
from mlxceld.documents.sample import EXAMPLES, value
from mlxceld.options import BY_KEY, EXCLUSIVE, OPTIONS, TABLES, Option
from tests.documents.tools import ROOT

SAMPLE = ROOT / "etc" / "mlxcel.toml"

VALUE = re.compile(r"^#([a-z_]+ = )", re.MULTILINE)
"""Values are commented out without a blank, prose with one."""


def test_the_sample_passes_the_check(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--config", str(SAMPLE), "--check-config"], {}) == 0
    assert "warning" not in capsys.readouterr().out


def test_every_option_is_there_once_in_its_table() -> None:
    table, found = "", []
    for line in SAMPLE.read_text().splitlines():
        if line.startswith("["):
            table = line.strip("[]")
        elif said := VALUE.match(line):
            found.append(f"{table}.{said[1].removesuffix(' = ')}")
    by_table = [o.key for t in TABLES for o in OPTIONS if o.table == t]
    assert found == by_table


def test_a_sample_without_its_comment_signs_sets_every_option(tmp_path: Path) -> None:
    text = VALUE.sub(r"\1", SAMPLE.read_text())
    values = tomllib.loads(text)
    assert values.pop("version") == 2
    assert {f"{t}.{name}" for t in values for name in values[t]} == set(BY_KEY)
    for _, other in EXCLUSIVE:
        text = re.sub(rf"^{other.partition('.')[2]} = ", "#", text, flags=re.MULTILINE)
    file = tmp_path / "mlxcel.toml"
    file.write_text(text)
    file.chmod(0o600)  # it holds keys
    resolved = resolve(parse(["--config", str(file)]), {})
    assert resolved.warnings == ()
    for option in OPTIONS:
        if option.default is not None:
            assert resolved.value(option) == option.default, option.key


def test_examples_are_for_options_that_have_no_default() -> None:
    assert [key for key in EXAMPLES if BY_KEY[key].default is not None] == []


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.key)
def test_a_value_of_the_sample_is_one_that_its_kind_takes(option: Option) -> None:
    option.kind.check(tomllib.loads(f"x = {value(option)}")["x"])


def test_no_line_of_prose_is_longer_than_an_editor_shows() -> None:
    prose = [row for row in SAMPLE.read_text().splitlines() if row.startswith("# ")]
    assert max(len(row) for row in prose) <= 86
