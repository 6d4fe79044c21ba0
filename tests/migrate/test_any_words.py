"""Nothing that anybody could have written breaks the conversion or gets lost in it."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import example, given, settings
from hypothesis import strategies as st

from mlxceld.argv import KNOWN
from mlxceld.foreign import IGNORED
from mlxceld.migrate import rules, secrets, v1
from mlxceld.migrate.convert import needs_change
from mlxceld.migrate.found import Entry, Found, Kind, Place, Program, Variable, Word
from mlxceld.migrate.migration import Migration
from mlxceld.options import BY_KEY, OPTIONS
from mlxceld.problems import Refused
from tests.migrate.setups import carried

SECRET = "sk-do-not-show"

FLAGS = sorted(
    {*KNOWN, *(n for r in rules.MLXCEL_FLAGS for n in r.names)}
    | {n for r in rules.MLX_LM_FLAGS for n in r.names}
    | {"--no-such-flag", "--n_ctx", "-zz"}
)
NAMES = sorted(
    {name for o in OPTIONS for name in (*o.env, *o.negated_env, o.own_env)}
    | {name for one in IGNORED for name in one.env}
    | {n for r in rules.MLXCEL_VARIABLES for n in r.names}
    | {n for r in rules.OLLAMA_VARIABLES for n in r.names}
    | {"PATH", "LLAMA_ARG_NOTHING", "MLXCELD_CONFIG"}
)
KEYS = sorted({*BY_KEY, *v1.KEYS, "bogus", "engine.bogus", "table.key"})

SAMPLES = (
    *("", " ", "0", "1", "-1", "4", "512", "8192", "0.5", "8k", "true", "off", "auto"),
    *("{}", "a,b", "$X", "q8_0", "=", "-", "--"),
    *("/m.gguf", "m.gguf", "acme/tiny", "acme/tiny-GGUF"),
)
TEXT = st.text(max_size=8) | st.sampled_from(SAMPLES)
DOUBT = st.sampled_from(("", "", "", "`$X` is not known"))
PROGRAM: st.SearchStrategy[Program | None] = st.sampled_from(
    (None, "llama-server", "mlxcel-server", "mlx_lm.server")
)
KIND: st.SearchStrategy[Kind] = st.sampled_from(("command", "script", "systemd", "ini"))
FLAG = st.sampled_from(FLAGS)
WORDS = st.lists(FLAG | TEXT | st.builds("{}={}".format, FLAG, TEXT), max_size=8)


def result_of(found: Found, *, adopt: bool, since: str = "") -> Migration | None:
    try:
        return carried(found, adopt=adopt, since=since)
    except Refused:
        return None


def holds(result: Migration) -> None:
    """What is true of every result."""
    assert isinstance(needs_change(result), bool)
    assert set(secrets.moved(result)) <= {
        variable.name for variable in result.found.environment
    }
    assert result.pinned <= set(result.values)
    assert list(result.values) == [o.key for o in OPTIONS if o.key in result.values]
    for line in result.lines:
        assert line.fate != "review" or line.why, line
        assert line.said.isprintable()
        assert not line.why.endswith(".")
        if line.became:
            assert line.became.partition(" = ")[0] in result.values
    for key, value in result.values.items():
        BY_KEY[key].kind.render(value)
    for outcome in (result.today, result.flipped, result.migrated):
        assert (outcome.plan is None) == bool(outcome.refusal)


@settings(max_examples=120, deadline=None)
@example(
    texts=["\x1f="],
    doubts=[""] * 8,
    program=None,
    kind="command",
    adopt=False,
    since="",
)
@given(
    texts=WORDS,
    doubts=st.lists(DOUBT, min_size=8, max_size=8),
    program=PROGRAM,
    kind=KIND,
    adopt=st.booleans(),
    since=st.sampled_from(("", "mlxcel@0.5.0", "mlxceld@1.0")),
)
def test_any_words_are_carried_over_or_refused(
    texts: list[str],
    doubts: list[str],
    program: Program | None,
    kind: Kind,
    adopt: bool,
    since: str,
) -> None:
    place = Place("run.sh", 3)
    words = tuple(
        Word(text, place, doubt) for text, doubt in zip(texts, doubts, strict=False)
    )
    found = Found(kind, "run.sh", program, (), words, files=("run.sh",))
    result = result_of(found, adopt=adopt, since=since)
    if result is not None:
        holds(result)
        said = [line for line in result.lines if line.place == place and line.said]
        flags = [text for text in texts if text.startswith("--") and text in KNOWN]
        assert len(said) >= len(flags) / 2


@settings(max_examples=80, deadline=None)
@given(
    pairs=st.lists(st.tuples(st.sampled_from(NAMES), TEXT, DOUBT), max_size=8),
    program=PROGRAM,
    adopt=st.booleans(),
)
def test_any_variables_are_carried_over_or_refused(
    pairs: list[tuple[str, str, str]], program: Program | None, adopt: bool
) -> None:
    environment = tuple(
        Variable(name, value, Place("llm.env", line, name), doubt)
        for line, (name, value, doubt) in enumerate(pairs, 1)
    )
    found = Found("env", "llm.env", program, environment=environment)
    result = result_of(found, adopt=adopt)
    if result is not None:
        holds(result)
        lines = {line.place.line for line in result.lines if line.place.name}
        assert lines == set(range(1, len(pairs) + 1))


VALUE: st.SearchStrategy[object] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 9000),
    st.floats(),
    TEXT,
    st.lists(TEXT, max_size=2),
    st.just({"a": 1}),
)


@settings(max_examples=80, deadline=None)
@given(
    pairs=st.dictionaries(st.sampled_from(KEYS), VALUE, max_size=6),
    version=st.sampled_from((None, 1, 2)),
    adopt=st.booleans(),
)
def test_any_keys_are_carried_over_or_refused(
    pairs: dict[str, object], version: int | None, adopt: bool
) -> None:
    entries = [
        Entry(key, value, Place("old.toml", line, key))
        for line, (key, value) in enumerate(pairs.items(), 2)
    ]
    if version is not None:
        entries.insert(0, Entry("version", version, Place("old.toml", 1, "version")))
    found = Found("toml", "old.toml", "mlxcel-server", entries=tuple(entries))
    result = result_of(found, adopt=adopt)
    if result is not None:
        holds(result)
        assert {line.place.line for line in result.lines} >= {
            entry.place.line for entry in entries if entry.key != "version"
        }


@settings(max_examples=60, deadline=None)
@given(
    before=WORDS,
    after=WORDS,
    flag=st.sampled_from(("--api-key", "-hft", "--api-key=")),
)
def test_a_secret_is_in_no_line_whatever_is_around_it(
    before: list[str], after: list[str], flag: str
) -> None:
    secret = [f"{flag}{SECRET}"] if flag.endswith("=") else [flag, SECRET]
    place = Place("run.sh", 3)
    texts = [*before, "-v", *secret, *after]
    found = Found("script", "run.sh", "llama-server")
    found = replace(found, words=tuple(Word(text, place) for text in texts))
    shown = ""
    try:
        result = carried(found)
        shown = f"{result.lines} {result.changes}"
    except Refused as refused:
        shown = str(refused)
    assert SECRET not in shown
