"""The report says the same to people and to programs."""

from __future__ import annotations

import json
from pathlib import Path

from mlxceld.migrate import report
from mlxceld.migrate.files import Written
from mlxceld.migrate.found import Place
from mlxceld.migrate.migration import Line, Outcome
from mlxceld.migrate.report import Done
from mlxceld.migrate.status import Status, worst
from mlxceld.migrate.work import Change, Work
from mlxceld.plan import Geometry, Wish, make_plan
from tests.migrate.make import of_words, plan
from tests.migrate.setups import carried, toml

LINES = (
    Line("-c 8192", Place("run.sh", 3), "kept", "engine.ctx_size = 8192"),
    Line("--no-batch", Place("run.sh", 3), "changed", "engine.parallel = 1", "so"),
    Line("-ngl 99", Place("run.sh", 4), "ignored", why="there is nothing like it"),
    Line("-np $N", Place("run.sh", 5, "N"), "review", why="`$N` is not known"),
    Line("", Place(), "pinned", 'engine.mode = "legacy"', "keeps it"),
)


def done(lines: tuple[Line, ...] = LINES, **work: object) -> Done:
    migration = of_words(
        "",
        {},
        name="run.sh",
        kind="script",
        lines=lines,
        today=Outcome(plan(ctx_size=8192, parallel=4)),
    )
    return Done(Work(migration, Path("run.toml"), **work), Status.CHANGES)  # type: ignore[arg-type]


def test_every_line_of_the_source_has_its_line() -> None:
    text = report.text([done()])
    assert (
        "what was said, and what became of it:\n"
        "  run.sh:3: `-c 8192` -> engine.ctx_size = 8192 (kept)\n"
        "  run.sh:3: `--no-batch` -> engine.parallel = 1 (changed: so)\n"
        "  run.sh:4: `-ngl 99` (ignored: there is nothing like it)\n"
        "  run.sh:5: `-np $N` (review: `$N` is not known)\n"
        '  engine.mode = "legacy" (pinned: keeps it)\n'
    ) in text
    assert "needs review:\n  run.sh:5: `-np $N`: `$N` is not known\n" in text


def test_what_is_not_known_is_said_instead_of_numbers() -> None:
    """8192 x 4 in legacy; the other two plans are not there."""
    assert report.text([done()]).splitlines()[:6] == [
        "run.sh (script, llama-server)",
        "",
        "         slots  per slot  all slots  KV memory  mode",
        "  today      4      8192      32768    unknown  legacy",
        "  after the flip: cannot be known",
        "  after migration: cannot be known",
    ]


def test_bytes_are_shown_in_binary_units() -> None:
    geometry = Geometry(kv_bytes_per_token=131072)
    one = done()
    shared = make_plan(Wish(mode="llama-compat", ctx_size=8192), geometry)
    today = Outcome(shared)
    migration = of_words("", {}, name="a", today=today)
    text = report.text([Done(Work(migration, None), Status.OK)])
    row = "  today      4      8192       8192    1.0 GiB  llama-compat, shared"
    assert " ".join(row.split()) in " ".join(text.split())
    assert json.loads(report.as_json([one], 1))["setups"][0]["today"]["kv_bytes"] is (
        None
    )


def test_a_version_takes_the_place_of_the_flip() -> None:
    assert "  in version 1.0: " in report.text([done()], as_of="1.0")


def test_a_diff_shows_what_it_is_given() -> None:
    change = Change(
        Path("a.toml"), b"x", b"y", old_text="a = 1\nb = 2", new_text="a = 1\nb = 3\n"
    )
    assert report.diff(change) == (
        "--- a.toml\n+++ a.toml\n@@ -1,2 +1,2 @@\n a = 1\n-b = 2\n+b = 3\n"
    )


def test_what_was_written_replaces_the_diff() -> None:
    change = Change(Path("a.toml"), None, b"y", new_text="b = 3\n")
    one = done(changes=(change,))
    assert "+b = 3\n" in report.text([one])
    after = Done(one.work, Status.OK, (Written(Path("a.toml"), Path("a.toml.~1~")),))
    text = report.text([after])
    assert "+b" not in text
    assert text.endswith("written: a.toml; the old one is a.toml.~1~\n")


def test_comments_that_are_lost_and_handwork_are_listed() -> None:
    text = report.text([done(lost=("a.toml:3: # mine",), advice=("turn it off",))])
    assert "comments that had to go:\n  a.toml:3: # mine\n" in text
    assert "by hand:\n  turn it off\n" in text


def test_the_json_has_the_same_facts() -> None:
    change = Change(Path("a.toml"), None, b"y", new_text="b = 3\n")
    one = done(changes=(change,), lost=("x",), advice=("y",))
    (setup,) = json.loads(report.as_json([one], Status.CHANGES))["setups"]
    assert setup["today"] == {
        "mode": "legacy",
        "slots": 4,
        "per_slot": 8192,
        "all_slots": 32768,
        "shared": False,
        "kv_bytes": None,
        "kv_bytes_per_token": None,
        "notes": [],
    }
    assert setup["after_flip"] == {"no_plan": ""}
    assert setup["lines"][3] == {
        "said": "-np $N",
        "file": "run.sh",
        "line": 5,
        "in": "N",
        "fate": "review",
        "became": "",
        "why": "`$N` is not known",
    }
    assert setup["needs_review"] is True
    assert setup["writes"][0]["new"] is True
    assert (setup["lost_comments"], setup["by_hand"]) == (["x"], ["y"])


def test_control_characters_of_a_source_stay_out_of_the_terminal() -> None:
    line = Line("--alias a\x1b[31m\nb", Place("run.sh", 1), "kept")
    text = report.text([done((line,))])
    assert "`--alias a?[31m?b`" in text


def test_the_short_report_names_what_needs_something() -> None:
    one = done()
    fine = Done(one.work, Status.OK)
    odd = Done(one.work, Status.REVIEW)
    assert report.short([one, fine, odd]) == (
        "run.sh: changes needed\nrun.sh: needs review\n"
    )


def test_review_is_worse_than_changes_and_bad_input_is_worst() -> None:
    assert worst([]) is Status.OK
    assert worst([Status.OK, Status.CHANGES]) is Status.CHANGES
    assert worst([Status.REVIEW, Status.CHANGES]) is Status.REVIEW
    assert worst([Status.REVIEW, Status.INVALID]) is Status.INVALID


def test_a_flip_that_matters_is_explained_and_another_is_not() -> None:
    matters = carried(toml("[engine]\nctx_size = 8192\nparallel = 4\n"))
    text = report.text([Done(Work(matters, None), Status.CHANGES)])
    assert "from version 1.0 on the slots divide the context" in text
    said = carried(toml('[engine]\nmode = "legacy"\nctx_size = 8192\nparallel = 4\n'))
    done = [Done(Work(said, None), Status.OK)]
    assert "version 1.0" not in report.text(done)
    assert json.loads(report.as_json(done, 0))["setups"][0]["flips"] == []
