"""Values of variables, flags and files: a daemon that starts, or one that says why not.

What comes of good values is seen in test_windows.py.
"""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path

import pytest

from mlxceld import cli
from tests.e2e.server import command, environment, run

BAD = {
    "LLAMA_ARG_N_PARALLEL": (
        *("0", "true", "TRUE", "on", "off", "no", " true ", "auto", "maybe"),
        *("2.0", "1_0", "+4"),
    ),
    "LLAMA_ARG_CTX_SIZE": (
        *("true", "TRUE", "on", "off", "no", " true ", "auto", "-1", "maybe"),
        *("8k", "4096abc", "1_000", "٤", "1e4", "+4"),
    ),
    "LLAMA_ARG_KV_UNIFIED": ("auto", "-1", "maybe"),
}
TRUE, FALSE = ("1", "true", "TRUE", "on", " true "), ("0", "off", "no")
GOOD: dict[str, dict[str, object]] = {
    "LLAMA_ARG_N_PARALLEL": {"": None, "  ": None, "1": 1, "-1": -1, " 2 ": 2},
    "LLAMA_ARG_CTX_SIZE": {"": None, "\t": None, "0": 0, "1": 1, "8192 ": 8192},
    "LLAMA_ARG_KV_UNIFIED": dict.fromkeys(("", " "))
    | dict.fromkeys(TRUE, True)
    | dict.fromkeys(FALSE, False),
}
KEYS = {
    "LLAMA_ARG_N_PARALLEL": "engine.parallel",
    "LLAMA_ARG_CTX_SIZE": "engine.ctx_size",
    "LLAMA_ARG_KV_UNIFIED": "engine.kv_unified",
}


def told(*flags: str, env: dict[str, str] | None = None) -> tuple[int, str, str]:
    """As `run`, but within this process: there are dozens of values."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = cli.main(flags, environment(env))
    return status, out.getvalue(), err.getvalue()


def printed(*flags: str, env: dict[str, str] | None = None) -> dict[str, object]:
    """The values of the engine as the daemon would use them, by key."""
    status, said, wrong = told(*flags, "--print-config=json", env=env)
    assert status == 0, wrong
    found = json.loads(said)
    return {key: entry["value"] for key, entry in found.items()}


@pytest.mark.parametrize("name", BAD)
def test_a_value_that_is_none_ends_the_start_and_is_named(
    model: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mlxceld.service.lifecycle.run", lambda _: pytest.fail(name))
    for number, value in enumerate(BAD[name]):
        start = told if number else run
        status, _, said = start("-m", model, "--port", "0", env={name: value})
        assert status == 78, value
        assert name in said, value
        assert value.strip() in said.replace(name, ""), value


@pytest.mark.parametrize("name", GOOD)
def test_a_value_of_the_list_is_read(name: str) -> None:
    for text, value in GOOD[name].items():
        found = printed(env={name: text}).get(KEYS[name])
        assert found == value, text
        assert type(found) is type(value), text


def test_no_slots_at_all_is_a_mistake_of_the_command_line(model: str) -> None:
    status, _, said = run("-m", model, "--port", "0", "-np", "0")
    assert status == 2
    assert said.startswith("-np: engine.parallel: found `0`")


FILES = [
    ("[engine]\nparallel = true\n", 2, ["engine.parallel", "`true`", "an integer"]),
    ("[engine]\nparallel = 2.0\n", 2, ["engine.parallel", "`2.0`", "an integer"]),
    ('[engine]\n\nparallel = "4"\n', 3, ["engine.parallel", '"4"', "an integer"]),
    ("[engine]\nctx_size = inf\n", 2, ["engine.ctx_size", "`inf`", "an integer"]),
    ("[engine]\nctx_size = 08192\n", 2, ["08192", "no zeros in front"]),
    ("[engine]\nctx_size = 1\nctx_size = 2\n", 3, ["ctx_size", "only once"]),
    ("[engine]\nctx_sise = 4096\n", 2, ["`ctx_sise`", "did you mean `ctx_size`?"]),
    ("\ufeff[engine]\nctx_size = 4096\n", 1, ["byte order mark"]),
]


@pytest.mark.parametrize(("text", "line", "words"), FILES)
def test_a_mistake_in_a_file_ends_the_start_with_its_place(
    model: str, tmp_path: Path, text: str, line: int, words: list[str]
) -> None:
    file = tmp_path / "mlxcel.toml"
    file.write_text(text, encoding="utf-8")
    status, _, said = run("-m", model, "--port", "0", "--config", str(file))
    assert status == 78
    first, *hints = said.splitlines()
    assert first.startswith(f"{file}:{line}: ")
    assert all(hint.startswith("  hint: ") for hint in hints)
    assert all(word in said for word in words)


# Which layers say a number of slots, and which number is served: 2 in the file, 3 in
# the environment, 4 on the command line.
LAYERS = [("f", 2), ("e", 3), ("c", 4), ("fe", 3), ("fc", 4), ("ec", 4), ("fec", 4)]


@pytest.mark.parametrize(("layers", "wins"), LAYERS)
def test_the_command_line_wins_over_the_environment_and_that_over_the_file(
    tmp_path: Path, layers: str, wins: int
) -> None:
    file = tmp_path / "mlxcel.toml"
    file.write_text("[engine]\nparallel = 2\n" if "f" in layers else "")
    flags = ["--config", str(file), *(["-np", "4"] if "c" in layers else [])]
    env = {"LLAMA_ARG_N_PARALLEL": "3"} if "e" in layers else {}
    assert printed(*flags, env=env)["engine.parallel"] == wins


def test_every_override_is_told_once_and_keys_are_not_shown(
    model: str, tmp_path: Path
) -> None:
    file = tmp_path / "mlxcel.toml"
    file.write_text(
        "[engine]\nparallel = 2\nkv_unified = true\nctx_size = 4096\n"
        'mode = "llama-compat"\n'
        '[server]\nhost = ["127.0.0.2"]\napi_key = ["key-of-the-file"]\n'
    )
    env = {"LLAMA_ARG_N_PARALLEL": "3", "LLAMA_API_KEY": "key-of-the-env"}
    flags = ("-np", "4", "--no-kv-unified", "--host", "127.0.0.1")
    with command("-m", model, "--config", str(file), *flags, env=env) as one:
        one.ready()
        headers = {"authorization": "Bearer key-of-the-env"}
        props = one.http.get("/props", headers=headers).json()
        refused = one.http.get(
            "/props", headers={"authorization": "Bearer key-of-the-file"}
        )
        notes = [event["message"] for event in one.logged("config_note")]
        everything = str(one.events) + str(one.other)
    assert (props["total_slots"], props["kv_unified"]) == (4, False)
    assert props["default_generation_settings"]["n_ctx"] == 1024
    assert one.url.startswith("http://127.0.0.1:")
    assert refused.status_code == 401
    for key in ("engine.parallel", "engine.kv_unified", "server.host"):
        assert sum(note.startswith(f"{key}: ") for note in notes) == 1, notes
    assert sum(note.startswith("server.api_key: ") for note in notes) == 1, notes
    assert "key-of-the" not in everything


def test_a_default_that_will_change_is_told_once_in_three_lines(
    long_model: Path,
) -> None:
    with command("-m", str(long_model), "-c", "8192", "-np", "4") as one:
        one.ready()
        (warning,) = one.logged("default_flip")
    assert warning["level"] == "warning"
    changes, numbers, ways = warning["message"].splitlines()
    assert "engine.mode is not set" in changes
    assert "4 slots of 8192 tokens each, 32768 in all" in numbers
    assert "4 slots of 2048 tokens each, 8192 in all" in numbers
    assert 'engine.mode = "legacy"' in ways
    assert 'engine.mode = "llama-compat"' in ways


@pytest.mark.parametrize(
    "flags",
    [
        "--mode legacy -c 8192 -np 4",
        "--llama-server-compat -c 8192 -np 4",
        "-c 8192 -np 1",
        "-c 8192",
        "-np 4",
    ],
)
def test_nothing_is_told_of_a_default_that_makes_no_difference(
    long_model: Path, flags: str
) -> None:
    with command("-m", str(long_model), *flags.split()) as one:
        # What is told of flips comes before that.
        one.wait_for("bound")
        assert one.logged("default_flip") == []
