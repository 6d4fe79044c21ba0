"""New files say what was wanted, and where it comes from."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st

from mlxceld.config import resolve
from mlxceld.kinds import Value
from mlxceld.migrate.found import Place
from mlxceld.migrate.migration import Line
from mlxceld.migrate.render import assignment, render
from mlxceld.options import BY_KEY
from tests.migrate.make import of_words

VALUES: dict[str, Value] = {
    "model.path": "/srv/a model",
    "engine.mode": "llama-compat",
    "engine.ctx_size": 8192,
    "server.metrics": True,
}

LINES = (
    Line("-m /srv/m", Place("run.sh", 3), "kept", 'model.path = "/srv/a model"'),
    Line("-c 8192", Place("run.sh", 4), "kept", "engine.ctx_size = 8192"),
    Line("--metrics", Place(), "kept", "server.metrics = true"),
    Line("", Place(), "pinned", 'engine.mode = "llama-compat"', "what it means"),
)


def test_every_key_is_explained_and_has_its_origin() -> None:
    migration = of_words("-c 8192", VALUES, lines=LINES, name="run.sh")
    assert (
        render(migration, VALUES)
        == f"""\
# Carried over by mlxcel-migrate from run.sh.
version = 2

[model]
# {BY_KEY["model.path"].short}.
path = "/srv/a model"  # run.sh:3

[engine]
# {BY_KEY["engine.mode"].short}.
mode = "llama-compat"  # what it means
# {BY_KEY["engine.ctx_size"].short}.
ctx_size = 8192  # run.sh:4

[server]
# {BY_KEY["server.metrics"].short}.
metrics = true  # the command line
"""
    )


def test_what_needs_review_is_said_at_the_top() -> None:
    line = Line("-np $N", Place("run.sh", 2), "review", why="`$N` is not known")
    text = render(of_words("", {}, lines=(line,), name="run.sh"), {})
    assert text.splitlines()[1] == (
        "# Needs review: run.sh:2: -np $N: `$N` is not known"
    )


def test_a_name_with_a_newline_cannot_leave_its_comment() -> None:
    text = render(of_words("", {}, name="a\nport = 1"), {})
    assert tomllib.loads(text) == {"version": 2}


def test_a_text_of_several_lines_stays_readable() -> None:
    template = "{% for m in messages %}\n{{ m.content }}\n{% endfor %}"
    text = assignment(BY_KEY["model.chat_template"], template)
    assert text.splitlines()[0] == 'chat_template = """'
    assert tomllib.loads(text) == {"chat_template": template}


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), min_size=1))
@example("a\r\nb")
@example('a\n"""\n\\')
def test_any_text_is_read_back(text: str) -> None:
    written = assignment(BY_KEY["model.chat_template"], text)
    assert tomllib.loads(f"a = 1\n{written}\nb = 1\n")["chat_template"] == text


def test_the_daemon_reads_values_of_every_kind(tmp_path: Path) -> None:
    values: dict[str, Value] = {
        "model.path": "/srv/m",
        "model.alias": ("a", "b"),
        "model.chat_template_kwargs": '{"enable_thinking": false}',
        "engine.cache_ram": 3 << 20,
        "engine.memory_limit": "75%",
        "sampling.temperature": 0.25,
        "server.metrics": False,
    }
    file = tmp_path / "a.toml"
    file.write_text(render(of_words("", values), values))
    resolved = resolve(["--config", str(file)], {})
    have = {key: resolved.value(BY_KEY[key]) for key in values}
    kwargs = "model.chat_template_kwargs"
    assert json.loads(str(have.pop(kwargs))) == json.loads(str(values.pop(kwargs)))
    assert have == values
