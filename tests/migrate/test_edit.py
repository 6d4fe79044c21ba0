"""TOML files are changed where they stand."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlxceld.kinds import Value
from mlxceld.migrate.comments import comments
from mlxceld.migrate.edit import CannotEdit, edit
from mlxceld.migrate.migration import Migration
from mlxceld.options import BY_KEY
from tests.migrate.make import of_toml

FLAT = """\
# The box in the hall.
version = 1

model = "/srv/m"   # the small one
ctx_size = 8_192   # plenty
n_parallel = 4
no_batch = false   # tried it once
# who may come in
host = "0.0.0.0"
"""

FLAT_VALUES: dict[str, Value] = {
    "model.path": "/srv/m",
    "engine.mode": "legacy",
    "engine.ctx_size": 8192,
    "engine.parallel": 4,
    "server.host": ("0.0.0.0",),
}

FLAT_NAMES = {
    "model": "model.path",
    "ctx_size": "engine.ctx_size",
    "n_parallel": "engine.parallel",
    "host": "server.host",
}


def test_a_flat_file_stays_flat_and_keeps_its_layout() -> None:
    migration = of_toml(
        FLAT,
        FLAT_VALUES,
        FLAT_NAMES,
        removed=("no_batch",),
        pinned={"engine.mode": "keeps 8192 tokens for each slot"},
    )
    assert (
        edit(FLAT, migration)
        == """\
# The box in the hall.
version = 2

model.path = "/srv/m"   # the small one
engine.ctx_size = 8_192   # plenty
engine.parallel = 4
# tried it once
# who may come in
server.host = "0.0.0.0"
# keeps 8192 tokens for each slot
engine.mode = "legacy"
"""
    )


def test_a_file_that_says_everything_is_not_touched() -> None:
    text = "engine.parallel=4 # four\n\n[server]\n'port'   = 80_80\n"
    assert edit(text, of_toml(text, {"engine.parallel": 4, "server.port": 8080})) == (
        text
    )


def test_a_new_key_goes_behind_the_last_one_of_its_table() -> None:
    text = """\
[engine]
ctx_size = 8192
parallel = 4 # four
# about ports

[server]
port = 8080
"""
    values: dict[str, Value] = {
        "engine.mode": "legacy",
        "engine.ctx_size": 8192,
        "engine.parallel": 4,
        "server.port": 8080,
    }
    migration = of_toml(text, values, pinned={"engine.mode": "as it was"})
    assert edit(text, migration) == text.replace(
        "four\n", 'four\n# as it was\nmode = "legacy"\n'
    )


def test_a_new_table_goes_to_the_end() -> None:
    text = "[server]\nport = 8080\n"
    values: dict[str, Value] = {
        "engine.mode": "legacy",
        "engine.parallel": 2,
        "server.port": 8080,
    }
    assert edit(text, of_toml(text, values)) == (
        '[server]\nport = 8080\n\n[engine]\nmode = "legacy"\nparallel = 2\n'
    )


def test_a_table_goes_into_an_empty_file() -> None:
    assert edit("", of_toml("", {"engine.parallel": 2})) == "[engine]\nparallel = 2\n"


def test_a_value_is_replaced_and_its_comment_stays() -> None:
    text = "[engine]\n  parallel = 4 # four\n"
    assert edit(text, of_toml(text, {"engine.parallel": 1})) == (
        "[engine]\n  parallel = 1 # four\n"
    )


def test_comments_inside_a_value_move_before_it() -> None:
    text = '[model]\nalias = [ # names\n  "a", # short\n] # all\n'
    assert edit(text, of_toml(text, {"model.alias": ("b",)})) == (
        '[model]\n# names\n# short\nalias = ["b"] # all\n'
    )


def test_an_old_name_in_a_table_gets_the_new_one() -> None:
    text = "[engine]\nn_ctx = 4096 # C\nparallel = 2\n"
    migration = of_toml(
        text,
        {"engine.ctx_size": 4096, "engine.parallel": 2},
        {"engine.n_ctx": "engine.ctx_size"},
    )
    assert edit(text, migration) == "[engine]\nctx_size = 4096 # C\nparallel = 2\n"


def test_a_key_that_belongs_elsewhere_takes_its_comment_along() -> None:
    text = "port = 80 # the door\n\n[server]\nhost = 'a'\n"
    migration = of_toml(
        text, {"server.host": ("a",), "server.port": 80}, {"port": "server.port"}
    )
    assert edit(text, migration) == "\n[server]\nhost = 'a'\nport = 80  # the door\n"


def test_an_inline_table_is_written_anew() -> None:
    text = "engine = { n_ctx = 4096 } # all of it\n"
    migration = of_toml(
        text,
        {"engine.ctx_size": 4096, "engine.parallel": 2},
        {"engine.n_ctx": "engine.ctx_size"},
    )
    assert edit(text, migration) == (
        "engine = { ctx_size = 4096, parallel = 2 } # all of it\n"
    )


def test_newlines_stay_as_they_are() -> None:
    text = "[engine]\r\nparallel = 4\r\n# end\r\n"
    migration = of_toml(text, {"engine.parallel": 4, "engine.ctx_size": 512})
    assert edit(text, migration) == (
        "[engine]\r\nparallel = 4\r\nctx_size = 512\r\n# end\r\n"
    )


def test_the_name_of_a_file_is_seen_from_the_folder_of_the_text() -> None:
    text = '[model]\npath = "models/a"\n'
    migration = of_toml(text, {"model.path": "/srv/models/a"})
    assert edit(text, migration, "/srv") == text
    assert edit(text, migration, "/etc") == '[model]\npath = "/srv/models/a"\n'


def test_a_layout_that_cannot_be_edited_is_said_so() -> None:
    text = "[old]\nx = 1\n"
    with pytest.raises(CannotEdit):
        edit(text, of_toml(text, {"engine.parallel": 2}, removed=("old",)))


# ---- any file ----

_BLANKS = st.sampled_from(["", " ", "  ", "\t"])
_COMMENT = st.sampled_from(["", "# c", '# "q', "# it's = 1", "#", "# [engine]"])
_KEYS = st.sampled_from(
    [
        ("ctx_size", "engine.ctx_size", ("8192", "8_192", "4096")),
        ("n_parallel", "engine.parallel", ("4", "1", "-1")),
        ("host", "server.host", ('"0.0.0.0"', "'::1'", '"""a"""')),
        ("port", "server.port", ("8080", "80_80")),
        ("alias", "model.alias", ('["a", "b"]', '[ # in\n "a", # x\n]', '"a,b"')),
        ("model", "model.path", ('"/srv/m#1"', "'/m'")),
        ("temperature", "sampling.temperature", ("0.5", "1.0")),
    ]
)


@st.composite
def files(draw: st.DrawFn) -> tuple[str, Migration]:
    """A flat file, or one with tables, and values for it that differ in places."""
    chosen = draw(st.lists(_KEYS, unique_by=lambda key: key[0], max_size=6))
    style = draw(st.sampled_from(["flat", "tables", "dotted"]))
    rows: dict[str, list[str]] = {}
    values: dict[str, Value] = {}
    names: dict[str, str] = {}
    for name, key, texts in chosen:
        written = draw(st.sampled_from(texts))
        table, _, inner = key.partition(".")
        shown = {"flat": name, "tables": inner, "dotted": key}[style]
        gap, comment = draw(_BLANKS), draw(_COMMENT)
        if draw(st.booleans()):
            rows.setdefault(table, []).append(draw(_COMMENT))
        end = f" {comment}" if comment else ""
        rows.setdefault(table, []).append(f"{gap}{shown} ={gap}{written}{end}")
        checked = BY_KEY[key].kind.check(tomllib.loads(f"x = {written}")["x"])
        values[key] = checked
        if style == "flat":
            names[name] = key
    text = ""
    for table, lines in rows.items():
        head = f"[{table}] # {table}\n" if style == "tables" else ""
        text += head + "\n".join(lines) + "\n"
    if draw(st.booleans()) and "engine.parallel" in values:
        values["engine.parallel"] = 2
    if draw(st.booleans()):
        values["engine.mode"] = "legacy"
    if draw(st.booleans()):
        text = text.replace("\n", "\r\n")
    if draw(st.booleans()):
        text = text.rstrip("\r\n")
    return text, of_toml(text, values, names)


@settings(max_examples=60, deadline=None)
@given(files())
def test_any_edit_keeps_every_comment_and_gives_the_wanted_values(
    pair: tuple[str, Migration],
) -> None:
    text, migration = pair
    result = edit(text, migration)
    have = [comment.text for comment in comments(result)]
    for comment in comments(text):
        have.remove(comment.text)
    assert read(result) == {
        key: list(v) if isinstance(v, tuple) else v
        for key, v in migration.values.items()
    }


def read(text: str) -> Mapping[str, object]:
    """The values of a text; a list that is one text counts as its items."""
    found: dict[str, object] = {}
    for table, inner in tomllib.loads(text).items():
        for name, value in inner.items():
            both = name in ("alias", "host") and isinstance(value, str)
            found[f"{table}.{name}"] = value.split(",") if both else value
    return found


@settings(max_examples=60, deadline=None)
@given(files())
def test_a_second_edit_changes_nothing(pair: tuple[str, Migration]) -> None:
    text, migration = pair
    once = edit(text, migration)
    again = of_toml(once, migration.values)
    assert edit(once, again) == once
