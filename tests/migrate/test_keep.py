"""Whatever the old set-up was: kept, its plan stays, and a second run does nothing.

The plan of reference is made here, from the numbers themselves; the conversion only
sees them as words, variables and keys. The new file is read by the daemon.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlxceld.config import resolve, wish
from mlxceld.migrate.convert import needs_change
from mlxceld.migrate.found import Found
from mlxceld.migrate.migration import Migration
from mlxceld.migrate.render import render
from mlxceld.plan import Geometry, Mode, Plan, Wish, make_plan
from mlxceld.problems import Refused
from tests.migrate.setups import LLAMA, OURS, carried, numbers, toml, words

MODELS = (
    Geometry(n_ctx_train=1 << 40),
    Geometry(n_ctx_train=8192, kv_bytes_per_token=1000),
)


@dataclass(frozen=True)
class Old:
    """A random set-up, in numbers."""

    mode: Mode | None
    ctx: int | None
    parallel: int | None
    per_seq: int | None
    unified: bool | None

    def wish(self, mode: Mode) -> Wish:
        """What is asked for, `mode` being what silence means."""
        return Wish(
            mode=self.mode or mode,
            ctx_size=self.ctx,
            parallel=self.parallel,
            ctx_size_per_seq=self.per_seq,
            kv_unified=self.unified,
            memory_check=False,
        )

    def flags(self) -> str:
        pairs = {
            "--mode": self.mode,
            "-c": self.ctx,
            "-np": self.parallel,
            "--ctx-size-per-seq": self.per_seq,
        }
        said = [f"{flag} {value}" for flag, value in pairs.items() if value is not None]
        if self.unified is not None:
            said.append("--kv-unified" if self.unified else "--no-kv-unified")
        return " ".join(said)

    def variables(self) -> dict[str, str]:
        pairs = {
            "MLXCELD_MODE": self.mode,
            "LLAMA_ARG_CTX_SIZE": self.ctx,
            "LLAMA_ARG_N_PARALLEL": self.parallel,
            "LLAMA_ARG_KV_UNIFIED_PER_SLOT": self.per_seq,
            "LLAMA_ARG_KV_UNIFIED": self.unified,
        }
        return {name: str(value) for name, value in pairs.items() if value is not None}

    def tables(self) -> str:
        rows = ["version = 2", "[engine]"]
        if self.mode is not None:
            rows.append(f'mode = "{self.mode}"')
        if self.unified is not None:
            rows.append(f"kv_unified = {str(self.unified).lower()}")
        rows += [
            f"{name} = {value}"
            for name, value in (
                ("ctx_size", self.ctx),
                ("parallel", self.parallel),
                ("ctx_size_per_seq", self.per_seq),
            )
            if value is not None
        ]
        return "\n".join(rows) + "\n"


CTX = st.none() | st.just(0) | st.integers(1, 64).map(lambda n: n * 512)
CTX |= st.integers(1, 30000)
PARALLEL = st.none() | st.just(-1) | st.integers(1, 9)
PER_SEQ = st.none() | st.integers(1, 9000)
UNIFIED = st.none() | st.booleans()
MODES: st.SearchStrategy[Mode | None] = st.sampled_from(
    (None, None, "legacy", "llama-compat", "per-seq")
)
OLD = st.builds(Old, MODES, CTX, PARALLEL, PER_SEQ, UNIFIED)
MODEL = st.none() | st.sampled_from(MODELS)


def plan_of(asked: Wish, model: Geometry | None) -> Plan | None:
    try:
        return make_plan(asked, model or MODELS[0])
    except Refused:
        return None


def shape(plan: Plan) -> tuple[int, int, int, bool]:
    return plan.slots, plan.slot_ctx, plan.pool, plan.shared


def read_by_the_daemon(text: str) -> Wish:
    """What the daemon of today would ask for."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "mlxcel.toml"
        file.write_text(text)
        resolved = resolve(["--config", str(file)], {})
    return replace(wish(resolved.settings), memory_check=False)


def kept(found: Found, asked: Wish, model: Geometry | None, since: str = "") -> None:
    """Carry a set-up over and hold the result against what was asked for."""
    expected = plan_of(asked, model)
    result = carried(found, geometry=model, since=since)
    known = model is not None or expected is None or expected.slot_ctx < 1 << 40
    if expected is None:
        assert result.today.plan is None
        assert any("refused: " in line.why for line in result.review)
        return
    assert result.review == ()
    if known:
        assert numbers(result.today) == shape(expected)
        assert numbers(result.migrated) == shape(expected)
    assert result.today.refusal == result.migrated.refusal
    assert result.changes == () or result.found.program == LLAMA
    again(result, expected, model)


def again(result: Migration, expected: Plan, model: Geometry | None) -> None:
    """The new file means the same to the daemon, and leaves nothing to do."""
    text = render(result, result.values)
    written = plan_of(read_by_the_daemon(text), model)
    assert written is not None
    assert shape(written) == shape(expected)
    for adopt in (False, result.adopt):
        second = carried(toml(text), geometry=model, adopt=adopt)
        assert not needs_change(second)
        assert second.values == result.values
        assert second.changes == ()


@settings(max_examples=120, deadline=None)
@given(old=OLD, model=MODEL)
def test_flags_of_the_daemon_keep_their_plan(old: Old, model: Geometry | None) -> None:
    kept(words(old.flags(), OURS), old.wish("legacy"), model)


@settings(max_examples=60, deadline=None)
@given(old=OLD, model=MODEL)
def test_variables_of_the_daemon_keep_their_plan(
    old: Old, model: Geometry | None
) -> None:
    found = words("", OURS, kind="systemd", env=old.variables())
    kept(found, old.wish("legacy"), model)


@settings(max_examples=80, deadline=None)
@given(old=OLD, model=MODEL)
def test_a_file_of_today_keeps_its_plan(old: Old, model: Geometry | None) -> None:
    kept(toml(old.tables()), old.wish("legacy"), model)


@settings(max_examples=60, deadline=None)
@given(
    ctx=CTX,
    parallel=PARALLEL,
    width=st.none() | st.integers(1, 9),
    no_batch=st.none() | st.booleans(),
    compat=st.none() | st.booleans(),
    model=MODEL,
)
def test_a_file_of_version_1_keeps_its_plan(
    ctx: int | None,
    parallel: int | None,
    width: int | None,
    no_batch: bool | None,
    compat: bool | None,
    model: Geometry | None,
) -> None:
    pairs = {
        "version": 1,
        "ctx_size": ctx,
        "n_parallel": parallel,
        "max_batch_size": width,
        "no_batch": no_batch,
        "llama_server_compat": compat,
    }
    text = "".join(
        f"{key} = {str(value).lower()}\n"
        for key, value in pairs.items()
        if value is not None
    )
    slots = 1 if no_batch else width if width is not None else parallel
    mode: Mode = "llama-compat" if compat else "legacy"
    kept(toml(text), Wish(mode, ctx, slots, memory_check=False), model)


@settings(max_examples=80, deadline=None)
@given(old=OLD, model=MODEL, by_flag=st.booleans())
def test_llama_servers_numbers_keep_their_plan(
    old: Old, model: Geometry | None, by_flag: bool
) -> None:
    old = replace(old, mode=None)
    asked = old.wish("llama-compat")
    if asked.parallel is None or asked.parallel < 0:
        # There a number that nobody gave means one shared context, whatever is said.
        asked = replace(asked, kv_unified=asked.kv_unified or None)
    found = words(old.flags()) if by_flag else words("", env=old.variables())
    kept(found, asked, model)


@settings(max_examples=60, deadline=None)
@given(
    ctx=CTX,
    parallel=st.none() | st.integers(1, 9),
    release=st.sampled_from(
        (
            ("0.0.29", "legacy", 1),
            ("0.0.30", "llama-compat", 1),
            ("0.4.1", "llama-compat", 4),
            ("0.9.0", "llama-compat", None),
        )
    ),
    model=MODEL,
)
def test_releases_of_the_older_server_keep_their_plan(
    ctx: int | None,
    parallel: int | None,
    release: tuple[str, Mode, int | None],
    model: Geometry | None,
) -> None:
    version, mode, unset = release
    old = Old(None, ctx, parallel, None, None)
    slots = unset if parallel is None else parallel
    asked = Wish(mode, ctx, slots, memory_check=False)
    kept(words(old.flags(), OURS), asked, model, f"mlxcel@{version}")


@settings(max_examples=60, deadline=None)
@given(old=OLD, model=st.sampled_from(MODELS))
def test_adopting_gives_what_the_next_version_gives(old: Old, model: Geometry) -> None:
    result = carried(toml(old.tables()), geometry=model, adopt=True)
    adopted = old.wish("llama-compat")
    if old.mode == "legacy":
        adopted = replace(adopted, mode="llama-compat")
    expected = plan_of(adopted, model)
    if expected is None:
        assert result.migrated.plan is None
        assert result.review
        return
    assert numbers(result.migrated) == shape(expected)
    again(result, expected, model)


@pytest.mark.parametrize("adopt", [False, True])
def test_what_is_written_can_be_carried_over_again(adopt: bool) -> None:
    first = carried(words("-c 4096 -np 4", OURS), adopt=adopt)
    second = carried(toml(render(first, first.values)))
    assert second.values == first.values
    assert not needs_change(second)
