"""From an old set-up on the disk to a new one, whatever it says."""

from __future__ import annotations

import contextlib
import io
import json
import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlxceld.config import resolve, wish
from mlxceld.migrate import carry, cli, work
from mlxceld.migrate.comments import comments
from mlxceld.migrate.edit import CannotEdit
from mlxceld.plan import Geometry, Wish, make_plan
from mlxceld.problems import Problem, Refused

GEOMETRY = Geometry(n_ctx_train=1 << 17, kv_bytes_per_token=1024)

_COMMENTS = st.sampled_from(["", "# a", "  # b = 'c'", "\t#"])
_SIZES = st.sampled_from([0, 512, 4096, 8192, 20480, 65536])


def run(folder: Path, *words: str) -> tuple[int, list[dict[str, Any]]]:
    """The tool in a folder; its status and what it says of each set-up."""
    out = io.StringIO()
    before = os.getcwd()
    os.chdir(folder)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            status = cli.main(["--report", "json", *words])
    finally:
        os.chdir(before)
    text = out.getvalue()
    return status, json.loads(text[: text.rindex("}") + 1])["setups"]


def plan_of(file: Path) -> tuple[int, int, int, bool]:
    """What the daemon makes of a file."""
    made = make_plan(wish(resolve(["--config", str(file)], {}).settings), GEOMETRY)
    return made.slots, made.slot_ctx, made.pool, made.shared


@st.composite
def flat_files(draw: st.DrawFn) -> tuple[str, Wish]:
    """A file of version 1, and what it means: C for each slot, N slots, C x N."""
    size = draw(st.none() | _SIZES)
    parallel = draw(st.none() | st.integers(1, 8))
    batch = draw(st.none() | st.integers(1, 8))
    single = draw(st.none() | st.booleans())
    rows = [
        ("n_ctx" if draw(st.booleans()) else "ctx_size", size),
        ("n_parallel" if draw(st.booleans()) else "parallel", parallel),
        ("max_batch_size", batch),
        ("no_batch", single),
        ("port", draw(st.none() | st.integers(1, 65535))),
        ("model", draw(st.none() | st.just("/srv/m"))),
    ]
    text = ""
    for name, value in draw(st.permutations(rows)):
        if value is not None:
            text += (
                f"{draw(_COMMENTS)}\n{name} = {json.dumps(value)}{draw(_COMMENTS)}\n"
            )
    slots = 1 if single else batch or parallel
    return text, Wish(mode="legacy", ctx_size=size, parallel=slots)


@settings(max_examples=40, deadline=None)
@given(flat_files(), st.booleans())
def test_an_old_file_keeps_its_meaning_and_its_comments(
    pair: tuple[str, Wish], windows: bool
) -> None:
    text, meant = pair
    data = text.replace("\n", "\r\n" if windows else "\n").encode()
    with TemporaryDirectory() as folder:
        file = Path(folder, "mlxcel.toml")
        file.write_bytes(data)
        status, _ = run(Path(folder), "--write", file.name)
        assert status == 0
        want = make_plan(meant, GEOMETRY)
        assert plan_of(file) == (want.slots, want.slot_ctx, want.pool, want.shared)
        have = [one.text for one in comments(file.read_bytes().decode())]
        for one in comments(data.decode()):
            have.remove(one.text)
        after = file.read_bytes()
        assert run(Path(folder), "--write", file.name)[0] == 0
        assert file.read_bytes() == after
        assert len(os.listdir(folder)) <= 2


@settings(max_examples=40, deadline=None)
@given(
    st.none() | _SIZES,
    st.none() | st.sampled_from([-1, 1, 2, 4, 7]),
    st.none() | st.booleans(),
    st.none() | st.just(1024),
)
def test_the_words_of_llama_server_become_a_file_with_their_meaning(
    size: int | None, parallel: int | None, unified: bool | None, cap: int | None
) -> None:
    words = ["llama-server"]
    words += [] if size is None else ["-c", str(size)]
    words += [] if parallel is None else ["-np", str(parallel)]
    words += [] if unified is None else ["-kvu" if unified else "-no-kvu"]
    words += [] if cap is None else ["--kv-unified-per-slot", str(cap)]
    with TemporaryDirectory() as folder:
        file = Path(folder, "llm.toml")
        _, (setup,) = run(Path(folder), "--write", "--to", "llm.toml", "--", *words)
        if "no_plan" in setup["today"]:
            return
        today = setup["today"]
        shared = bool(unified) or parallel in (None, -1)
        assert (today["slots"], today["shared"]) == (
            (4 if parallel in (None, -1) else parallel),
            shared,
        )
        assert plan_of(file) == (
            today["slots"],
            today["per_slot"],
            today["all_slots"],
            today["shared"],
        )


def test_what_cannot_be_edited_is_written_anew_and_lost_comments_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object) -> str:
        raise CannotEdit("no")

    monkeypatch.setattr(work, "edit", never)
    file = tmp_path / "a.toml"
    file.write_text("# mine\nctx_size = 8192 # C\nparallel = 2\n")
    status, (setup,) = run(tmp_path, "--write", "a.toml")
    assert status == 0
    assert setup["lost_comments"] == ["a.toml:1: # mine", "a.toml:2: # C"]
    assert plan_of(file) == (2, 8192, 16384, False)
    assert (tmp_path / "a.toml.~1~").read_text().startswith("# mine\n")


def test_files_are_written_in_the_order_in_which_they_are_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill between two of them leaves a unit that still starts what it started."""
    unit = tmp_path / "llm.service"
    unit.write_text("[Service]\nExecStart=/bin/llama-server -c 8192 --api-key k\n")
    order = []
    real = carry.files.write

    def noted(path: Path, data: bytes, *, secret: bool = False) -> object:
        order.append(path.name)
        return real(path, data, secret=secret)

    monkeypatch.setattr(carry.files, "write", noted)
    run(tmp_path, "--write", "llm.service")
    assert order == ["llm.toml.keys", "llm.toml", "zz-mlxcel-migrate.conf"]


def test_one_of_two_commands_of_a_unit_is_not_replaced_by_a_drop_in(
    tmp_path: Path,
) -> None:
    unit = tmp_path / "two.service"
    command = "ExecStart=/bin/llama-server -c 8192 -np"
    unit.write_text(f"[Service]\nType=oneshot\n{command} 2\n{command} 4\n")
    _, setups = run(tmp_path, "--write", "two.service")
    assert len(setups) == 2
    assert sorted(os.listdir(tmp_path)) == ["two-2.toml", "two.service", "two.toml"]
    for setup in setups:
        assert setup["by_hand"][0].startswith("in the unit, in place of this command")


def test_a_command_beside_the_server_is_not_taken_away(tmp_path: Path) -> None:
    commands = "ExecStart=/bin/logger hi\nExecStart=/bin/llama-server -c 8192 -np 2\n"
    (tmp_path / "two.service").write_text(f"[Service]\nType=oneshot\n{commands}")
    _, (setup,) = run(tmp_path, "--write", "two.service")
    assert sorted(os.listdir(tmp_path)) == ["two.service", "two.toml"]
    assert setup["by_hand"][0].startswith("in the unit, in place of this command")


def test_a_file_that_is_there_by_chance_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text("llama-server -c 8192 -np 2\n")
    other = tmp_path / "run.toml"
    other.write_text("title = 'something else'\n")
    assert run(tmp_path, "--write", "run.sh") == (2, [])
    assert other.read_text() == "title = 'something else'\n"
    assert run(tmp_path, "--write", "--to", "run.toml", "run.sh")[0] == 0
    assert (tmp_path / "run.toml.~1~").read_text() == "title = 'something else'\n"


def test_two_set_ups_do_not_overwrite_each_other(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text("llama-server -c 8192 -np 2\n")
    (tmp_path / "run.env").write_text("LLAMA_ARG_CTX_SIZE=4096\n")
    words = ("--write", "--from", "llama-server", "run.sh", "run.env")
    assert run(tmp_path, *words) == (2, [])
    assert sorted(os.listdir(tmp_path)) == ["run.env", "run.sh"]


def test_a_folder_that_cannot_be_used_stops_before_anything_is_written(
    tmp_path: Path,
) -> None:
    (tmp_path / "llm.service").write_text("[Service]\nExecStart=/bin/llama-server\n")
    (tmp_path / "llm.service.d").write_text("in the way")
    assert run(tmp_path, "--write", "llm.service") == (2, [])
    assert not (tmp_path / "llm.toml").exists()


def test_what_was_written_before_an_error_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = carry.files.write

    def full(path: Path, data: bytes, *, secret: bool = False) -> object:
        if path.suffix == ".conf":
            raise Refused([Problem("cannot be written: no space left", str(path))])
        return real(path, data, secret=secret)

    monkeypatch.setattr(carry.files, "write", full)
    monkeypatch.chdir(tmp_path)
    Path("llm.service").write_text("[Service]\nExecStart=/bin/llama-server\n")
    assert cli.main(["--write", "llm.service"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "llm.service.d/zz-mlxcel-migrate.conf: cannot be written: no space left",
        "written before that, and not in use yet: llm.toml",
    ]
