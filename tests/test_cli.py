"""`mlxcel-server` as a shell sees it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mlxceld import __version__, cli
from mlxceld.argv import KNOWN
from mlxceld.config import Resolved
from mlxceld.exits import Exit
from mlxceld.help import long_help, short_help
from mlxceld.options import OPTIONS
from tests.tiny import tiny_model_dir

NOWHERE = {"CONFIGURATION_DIRECTORY": "/nonexistent", "HOME": "/nonexistent"}


def run(
    capsys: pytest.CaptureFixture[str], *argv: str, **environ: str
) -> tuple[int, str, str]:
    status = cli.main(argv, NOWHERE | environ)
    out, err = capsys.readouterr()
    return status, out, err


def test_both_helps_name_every_option() -> None:
    short, full = short_help(100), long_help(100)
    for option in OPTIONS:
        assert option.flag in short
        assert option.own_env in full
        for name in (*option.flags, *option.negated, *option.env, *option.negated_env):
            assert name in full
        for flag, _ in option.constants:
            assert flag in full


@pytest.mark.parametrize("width", [48, 80, 100])
def test_help_keeps_to_its_width(width: int) -> None:
    for line in (short_help(width) + long_help(width)).splitlines():
        # A row of flags or a long word is not broken.
        assert len(line) <= width or line.startswith("  -") or len(line.split()) == 1


def test_the_help_of_the_context_states_the_rule_of_each_mode() -> None:
    text = " ".join(long_help(100).split())
    for flags in ("-c, --ctx-size", "-np, --parallel"):
        entry = text[text.index(flags) :][:1200]
        for mode in ("legacy:", "llama-compat:", "per-seq:", "floor(C / N)", "C x N"):
            assert mode in entry


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "--version") == (0, f"mlxcel-server {__version__}\n", "")


def test_without_a_model_it_says_how_to_name_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    status, out, err = run(capsys)
    assert (status, out) == (Exit.USAGE, "")
    assert "no model is named" in err
    assert "--model PATH" in err


def test_wrong_flags_are_status_2_and_wrong_variables_78(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(capsys, "--nonsense")[0] == 2
    assert run(capsys, "-np", "0")[0] == 2
    assert run(capsys, LLAMA_ARG_N_PARALLEL="0")[0] == 78


def test_the_check_shows_files_overrides_ignored_names_and_the_plan(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "m.toml"
    path.write_text('[engine]\nmode = "llama-compat"\nctx_size = 8192\nparallel = 2\n')
    status, out, err = run(
        capsys, "--check-config", "--config", str(path), "-np", "4", "-ngl", "99"
    )
    assert (status, err) == (0, "")
    assert out.splitlines() == [
        f"files: {path}",
        "override: engine.parallel: flag -np (4) overrides m.toml:4 (2)",
        "ignored here: `-ngl`",
        "model: none is named; a start needs one (`--model PATH`)",
        "plan: 4 slots of 2048 tokens each, 8192 in all (mode llama-compat)",
        "the configuration is good",
    ]


def test_a_share_below_the_floor_is_status_78_with_the_numbers_and_both_ways_out(
    capsys: pytest.CaptureFixture[str],
) -> None:
    argv = ("--check-config", "--mode", "llama-compat", "-c", "2048", "-np", "5")
    status, _, err = run(capsys, *argv)
    assert status == Exit.CONFIG
    for words in ("2048", "parallel 5", "409", "at least 2560", "4 or less"):
        assert words in err


@pytest.mark.parametrize(
    ("argv", "plan"),
    [
        ("-c 1536 -np 6", "6 slots of 1536 tokens each, 9216 in all (mode legacy)"),
        (
            "-c 9216 -np 6 --mode llama-compat",
            "6 slots of 1536 tokens each, 9216 in all (mode llama-compat)",
        ),
        (
            "--mode per-seq --ctx-size-per-seq 1536 -np 6",
            "6 slots of 1536 tokens each, 9216 in all (mode per-seq)",
        ),
    ],
)
def test_every_mode_shows_its_slot_context(
    capsys: pytest.CaptureFixture[str], argv: str, plan: str
) -> None:
    status, out, _ = run(capsys, "--check-config", *argv.split())
    assert status == 0
    assert f"plan: {plan}" in out.splitlines()


def test_a_model_that_cannot_be_read_is_said_and_planned_without_sizes(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    argv = ("--check-config", "-m", str(tmp_path / "none"), "-c", "4096", "-np", "1")
    status, out, _ = run(capsys, *argv)
    assert status == 0
    assert "model: could not be read" in out
    assert "plan: 1 slot of 4096 tokens (mode legacy)" in out


@pytest.mark.parametrize(
    ("flag", "key"),
    [
        ("--chat-template-file", "model.chat_template_file"),
        ("--grammar-file", "sampling.grammar_file"),
        ("--json-schema-file", "sampling.json_schema_file"),
    ],
)
def test_the_check_refuses_files_that_a_start_could_not_read(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, flag: str, key: str
) -> None:
    argv = ("--check-config", "-c", "4096", "-np", "1", flag)
    none = str(tmp_path / "none")
    status, out, err = run(capsys, *argv, none)
    assert (status, err) == (
        78,
        f"{none}: cannot read {key}: No such file or directory\n",
    )
    assert "the configuration is good" not in out
    status, _, err = run(capsys, *argv, str(tmp_path))
    assert (status, err) == (78, f"{tmp_path}: cannot read {key}: Is a directory\n")
    within = str(tmp_path / "there" / "within")
    (tmp_path / "there").touch()
    status, _, err = run(capsys, *argv, within)
    assert (status, err) == (78, f"{within}: cannot read {key}: Not a directory\n")
    good = "{}" if "schema" in flag else "root ::= [a-z]"
    (tmp_path / "there").write_text(good)
    status, out, err = run(capsys, *argv, str(tmp_path / "there"))
    assert (status, err) == (0, "")
    assert "the configuration is good" in out


@pytest.mark.parametrize(
    ("flag", "text", "key", "what"),
    [
        ("--grammar", 'root ::= "a', "sampling.grammar", "no grammar in GBNF: line 1"),
        ("--json-schema", '{"type": 1}', "sampling.json_schema", "JSON schema, at"),
    ],
)
def test_the_check_refuses_a_grammar_or_schema_that_is_none(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    flag: str,
    text: str,
    key: str,
    what: str,
) -> None:
    argv = ("--check-config", "-c", "4096", "-np", "1")
    status, _, err = run(capsys, *argv, flag, text)
    assert status == 78
    assert err.startswith(f"{key}: {what}")
    file = tmp_path / "file"
    file.write_text(text)
    status, _, err = run(capsys, *argv, f"{flag}-file", str(file))
    assert status == 78
    assert err.startswith(f"{file}: {what}")


def test_the_check_leaves_a_grammar_in_a_pipe_to_the_start(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """`--grammar-file <(command)` of a shell can be read once."""
    read, write = os.pipe()
    os.write(write, b'root ::= "a')
    os.close(write)
    argv = ("--check-config", "-c", "4096", "-np", "1", "--grammar-file")
    assert run(capsys, *argv, f"/dev/fd/{read}")[0] == 0
    assert os.read(read, 100) == b'root ::= "a'
    os.close(read)


def test_the_check_refuses_a_log_file_that_cannot_be(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """As a start does, and without making the file."""
    argv = ("--check-config", "-c", "4096", "-np", "1", "--log-file")
    none = str(tmp_path / "none" / "a.log")
    status, out, err = run(capsys, *argv, none)
    assert status == 78
    assert err.splitlines() == [
        f"logging.file: the log file `{none}` cannot be written: "
        "No such file or directory",
        "  hint: name a file in a folder that exists and is writable",
    ]
    assert "the configuration is good" not in out
    status, _, err = run(capsys, *argv, str(tmp_path))
    assert status == 78
    assert "cannot be written: Is a directory" in err
    assert run(capsys, *argv, str(tmp_path / "new.log"))[0] == 0
    assert not (tmp_path / "new.log").exists()


def test_a_folder_for_slots_that_is_a_file_is_not_to_be_created(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.touch()
    argv = ("--check-config", "-c", "4096", "--slot-save-path")
    status, _, err = run(capsys, *argv, str(file))
    assert status == 78
    assert "hint: name a folder, or leave server.slot_save_path out" in err
    status, _, err = run(capsys, *argv, str(tmp_path / "none"))
    assert status == 78
    assert "hint: create it, or leave server.slot_save_path out" in err


def test_the_check_counts_keys_and_values_as_they_would_be_stored(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Three layers, two heads of 32 numbers; float32, as the CPU computes."""
    path = tiny_model_dir(tmp_path, head_dim=32)
    argv = ("--check-config", "-m", str(path), "-dev", "cpu", "-c", "1024")
    _, plain, _ = run(capsys, *argv, "-np", "1")
    assert f"({3 * 2 * 2 * 32 * 4} bytes per token, estimated)" in plain
    _, packed, _ = run(capsys, *argv, "-np", "1", "-ctk", "q8_0", "-ctv", "f16")
    per_token = 3 * 2 * ((32 + 2 * 4) + 32 * 2)
    assert f"({per_token} bytes per token, estimated)" in packed


@pytest.mark.parametrize("kind", ["q4_1", "iq4_nl", "q5_0", "q5_1", "int8"])
def test_a_cache_type_that_is_not_supported_is_refused_with_those_that_are(
    capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    status, _, err = run(capsys, "--check-config", "-c", "1024", "-ctv", kind)
    assert status == Exit.USAGE
    assert f"`{kind}`" in err
    assert "`auto`, `f16`, `bf16`, `f32`, `q8_0` or `q4_0`" in err


def test_contradictions_are_found_without_a_model_and_without_a_context(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(capsys, "--check-config", "-kvu")[0] == 78
    assert run(capsys, "--check-config", "--mode", "per-seq")[0] == 78
    status, out, _ = run(capsys, "--check-config")
    assert status == 0
    assert "plan: depends on the training length of the model" in out


def test_the_check_reports_flips_large_and_small(
    capsys: pytest.CaptureFixture[str],
) -> None:
    _, out, _ = run(capsys, "--check-config", "-c", "4096", "-np", "4")
    assert "warning: engine.mode is not set" in out
    _, out, _ = run(capsys, "--check-config", "-c", "4096")
    assert "note: engine.mode is not set" in out


def test_the_configuration_is_printed_as_json(
    capsys: pytest.CaptureFixture[str],
) -> None:
    status, out, _ = run(capsys, "--print-config=json", "-np", "2", LLAMA_API_KEY="k9")
    table = json.loads(out)
    assert status == 0
    assert table["engine.parallel"] == {"value": 2, "origin": "flag -np"}
    assert table["server.port"] == {"value": 8080, "origin": "default"}
    assert table["server.api_key"]["value"] is None
    assert "k9" not in out
    assert list(table) == [option.key for option in OPTIONS]


def test_questions_are_answered_without_mlx_and_the_web_framework() -> None:
    script = (
        "import sys\n"
        "from mlxceld.cli import main\n"
        "for argv in (['--help'], ['-h'], ['--check-config', '-c', '4096'], "
        "['--print-config=all']):\n"
        "    assert main(argv) == 0\n"
        "heavy = ('mlx', 'mlx_lm', 'litestar', 'uvicorn', 'structlog', 'numpy')\n"
        "assert not [name for name in heavy if name in sys.modules]\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_serving_hands_the_resolved_configuration_to_the_service(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[Resolved] = []

    def serve(resolved: Resolved) -> int:
        seen.append(resolved)
        return 7

    monkeypatch.setattr(cli, "_serve", serve)
    assert cli.main(["-m", "x", "--port", "0"], NOWHERE) == 7
    assert seen[0].settings.server.port == 0


OTHER_PYTHONS = [
    path
    for version in ("3.12", "3.13", "3.14")
    for path in sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python3"))
]


@pytest.mark.parametrize("python", OTHER_PYTHONS, ids=lambda path: path.parts[-3])
def test_the_command_line_means_the_same_on_other_pythons(python: Path) -> None:
    script = (
        "from mlxceld.argv import parse\n"
        "for words in ('-np2', '-np=2', '-np 2', '--n_parallel=2', '-c8192 -np2'):\n"
        "    assert parse(words.split()).given[-1].text == '2', words\n"
        "assert parse(['-np', '-1']).given[0].text == '-1'\n"
        "assert parse(['-k']).problems[0].hint == 'did you mean `-kvu`?'\n"
        "assert parse(['-kvu=no', '--alias=', '-a', '-x y']).given[2].text == '-x y'\n"
        "from mlxceld.help import long_help\n"
        "assert long_help()\n"
    )
    root = Path(cli.__file__).parent.parent
    done = subprocess.run(
        [str(python), "-c", script],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_every_flag_that_is_known_can_be_read() -> None:
    """argparse never meets a word that it could misunderstand."""
    from mlxceld.argv import parse

    for flag, entry in KNOWN.items():
        words = [flag] if entry.arity in ("none", "maybe") else [f"{flag}=1"]
        line = parse(words)
        assert not [p for p in line.problems if p.what == "unknown flag"], flag
