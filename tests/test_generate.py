"""Generated files are what the option table says."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from mlxceld import generate
from mlxceld.documents.language import Missing

ROOT = Path(__file__).parent.parent


def test_the_generated_files_are_fresh() -> None:
    assert generate.main(["--check"]) == 0


def test_a_stale_file_fails_with_a_diff_and_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "folder" / "made.py"
    path.parent.mkdir()
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


def test_a_file_that_is_not_there_is_stale_and_is_made(tmp_path: Path) -> None:
    files = [(tmp_path / "folder" / "made.py", lambda: "new\n")]
    assert generate.main(["--check"], files) == 1
    assert generate.main([], files) == 0
    assert generate.main(["--check"], files) == 0


def test_a_file_that_is_fresh_is_not_written_again(tmp_path: Path) -> None:
    path = tmp_path / "made.py"
    path.write_text("new\n")
    path.chmod(0o444)
    before = path.stat().st_mtime_ns
    assert generate.main([], [(path, lambda: "new\n")]) == 0
    assert path.stat().st_mtime_ns == before


def test_a_text_that_is_missing_is_said_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def make() -> str:
        raise Missing("words.py has no text `x`")

    assert generate.main(["--check"], [(tmp_path / "page.md", make)]) == 1
    assert capsys.readouterr().err == "words.py has no text `x`\n"


def test_unknown_arguments_are_a_usage_error() -> None:
    assert generate.main(["--chek"]) == 2


def test_outside_a_source_tree_nothing_is_written(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(generate, "TOP", tmp_path)
    assert generate.main([], [(tmp_path / "made.py", lambda: "new\n")]) == 1
    assert list(tmp_path.iterdir()) == []
    assert "is no source tree" in capsys.readouterr().err


CHANGED = """
import dataclasses, json, sys
from mlxceld import options

def changed(option):
    if option.key != "engine.min_slot_ctx":
        return option
    short = option.short.replace("smallest", "tiniest0")
    flags = tuple(flag.replace("-ctx", "-xtc") for flag in option.flags)
    return dataclasses.replace(option, short=short, flags=flags)

options.OPTIONS = tuple(changed(option) for option in options.OPTIONS)
options.BY_KEY = {option.key: option for option in options.OPTIONS}
from mlxceld.generate import FILES, TOP
json.dump({str(path.relative_to(TOP)): make() for path, make in FILES}, sys.stdout)
"""
"""Makes every file from a table with one entry changed, to words of the same length."""


def test_one_changed_entry_changes_every_file_that_mentions_it_and_nothing_else() -> (
    None
):
    done = subprocess.run(
        [sys.executable, "-c", CHANGED],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    new = json.loads(done.stdout)
    old = {name: (ROOT / name).read_text() for name in new}
    for name, text in new.items():
        back = text.replace("tiniest0", "smallest")
        for dash in ("-", r"\-", "_"):
            there, here = (f"min{dash}slot{dash}{word}" for word in ("xtc", "ctx"))
            back = back.replace(there, here)
        assert back == old[name], name
    # A sentence may go on in the next line, behind the sign of a comment.
    words = re.compile(
        r"smallest[\s#]+slot[\s#]+context[\s#]+that[\s#]+a[\s#]+division"
    )
    mentions = {name for name, text in old.items() if words.search(text)}
    # Completions have the flag alone, tables of other languages the flag too.
    mentions |= {
        name
        for name, text in old.items()
        if "min-slot-ctx" in text
        and (name.startswith("completions/") or "| `--min-slot-ctx N` |" in text)
    }
    assert {name for name in new if new[name] != old[name]} == mentions
    assert mentions >= {
        "mlxceld/settings.py",
        "man/mlxcel-server.1",
        "man/mlxcel.toml.5",
        "etc/mlxcel.toml",
        "docs/schema/mlxcel.schema.json",
        "docs/en/options.md",
        "completions/mlxcel-server.bash",
        "completions/_mlxcel-server",
        "completions/mlxcel-server.fish",
    }
