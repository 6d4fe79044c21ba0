"""Generated files are what the option table says."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlxceld import generate


def test_the_generated_files_are_fresh() -> None:
    assert generate.main(["--check"]) == 0


def test_a_stale_file_fails_with_a_diff_and_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "made.py"
    path.write_text("old\n")
    files = [(path, lambda: "new\n")]
    assert generate.main(["--check"], files) == 1
    out, err = capsys.readouterr()
    assert "-old" in out
    assert "+new" in out
    assert "python -m mlxceld.generate" in err
    assert generate.main([], files) == 0
    assert path.read_text() == "new\n"
    assert generate.main(["--check"], files) == 0


def test_unknown_arguments_are_a_usage_error() -> None:
    assert generate.main(["--chek"]) == 2
