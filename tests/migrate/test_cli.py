"""`mlxcel-migrate` as people and scripts call it."""

from __future__ import annotations

import io
import json
import os
import resource
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from mlxceld import __version__
from mlxceld.migrate import carry, cli
from mlxceld.options import OPTIONS

ROOT = Path(__file__).parents[2]

FLAT = "# hello\nctx_size = 8192 # C\nn_parallel = 4\n"
KEPT = """\
# hello
engine.ctx_size = 8192 # C
engine.parallel = 4
# the meaning from before version 1.0: every slot gets the whole context
engine.mode = "legacy"
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(name: str, text: str) -> Path:
    path = Path(name)
    path.write_text(text)
    return path


# ---- exit statuses ----


def test_changes_that_are_needed_are_status_1_and_nothing_is_written() -> None:
    path = write("a.toml", FLAT)
    assert cli.main(["a.toml"]) == 1
    assert path.read_text() == FLAT
    assert os.listdir() == ["a.toml"]


def test_written_is_status_0_and_the_old_file_is_kept(
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = write("a.toml", FLAT)
    assert cli.main(["--write", "a.toml"]) == 0
    assert path.read_text() == KEPT
    assert Path("a.toml.~1~").read_text() == FLAT
    assert "written: a.toml; the old one is a.toml.~1~\n" in capsys.readouterr().out


def test_nothing_to_do_is_status_0_and_makes_no_backup() -> None:
    write("a.toml", KEPT)
    assert cli.main(["--write", "a.toml"]) == 0
    assert os.listdir() == ["a.toml"]


def test_an_uncertain_meaning_is_status_3_and_nothing_is_written_in_place() -> None:
    path = write("a.toml", FLAT + "turbo = 1\n")
    assert cli.main(["--write", "a.toml"]) == 3
    assert path.read_text() == FLAT + "turbo = 1\n"
    assert os.listdir() == ["a.toml"]


def test_an_uncertain_meaning_is_written_where_the_user_says_and_marked() -> None:
    write("a.toml", FLAT + "turbo = 1\n")
    assert cli.main(["--write", "--to", "b.toml", "a.toml"]) == 3
    assert Path("b.toml").read_text().startswith("# Needs review: a.toml:4: turbo = 1")


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["nowhere.toml"],
        ["--kind", "xml", "a.toml"],
        ["--kee", "a.toml"],
        ["--keep", "--adopt", "a.toml"],
        ["--write", "--check", "a.toml"],
        ["--kv-bytes", "-1", "a.toml"],
        ["--kv-bytes", "8k", "a.toml"],
        ["--as-of", "soon", "a.toml"],
        ["--from", "ollama", "a.toml"],
        ["--name", "b", "a.toml"],
        ["--model", "nowhere", "a.toml"],
        ["a.toml", "b.toml", "--to", "c.toml"],
        ["--write", "--", "llama-server", "-c", "8192"],
    ],
)
def test_what_is_wrong_is_status_2_with_a_line_on_stderr(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    write("a.toml", FLAT)
    write("b.toml", FLAT)
    assert cli.main(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err
    assert sorted(os.listdir()) == ["a.toml", "b.toml"]


@pytest.mark.parametrize("number", ["9" * 5000, "0x" + "f" * 5000])
@pytest.mark.parametrize("table", ["", "[engine]\n"])
def test_a_number_that_python_does_not_read_is_no_fault_of_the_tool(
    table: str, number: str
) -> None:
    write("a.toml", f"{table}ctx_size = {number}\n")
    assert cli.main(["a.toml"]) == 2


def test_the_worst_of_several_set_ups_counts() -> None:
    write("fine.toml", KEPT)
    write("old.toml", FLAT)
    write("odd.toml", FLAT + "turbo = 1\n")
    assert cli.main(["fine.toml", "old.toml"]) == 1
    assert cli.main(["fine.toml", "odd.toml", "old.toml"]) == 3


def test_one_bad_source_keeps_all_others_from_being_written() -> None:
    old = write("old.toml", FLAT)
    write("bad.toml", "= 1\n")
    assert cli.main(["--write", "old.toml", "bad.toml"]) == 2
    assert old.read_text() == FLAT


def test_a_fault_of_the_tool_is_not_taken_for_needed_changes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(request: object) -> None:
        raise RuntimeError("a fault")

    monkeypatch.setattr(carry, "carry", broken)
    assert cli.main(["a.toml"]) == 70
    assert "RuntimeError: a fault" in capsys.readouterr().err


# ---- output ----


def test_the_check_says_only_what_needs_something(
    capsys: pytest.CaptureFixture[str],
) -> None:
    write("fine.toml", KEPT)
    write("old.toml", FLAT)
    write("odd.toml", FLAT + "turbo = 1\n")
    assert cli.main(["--check", "fine.toml"]) == 0
    assert capsys.readouterr().out == ""
    assert cli.main(["--check", "fine.toml", "old.toml", "odd.toml"]) == 3
    assert capsys.readouterr().out == (
        "old.toml: changes needed\nodd.toml: needs review\n"
    )


def test_the_configuration_alone_goes_to_stdout(
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = write("a.toml", FLAT)
    assert cli.main(["--to", "-", "a.toml"]) == 0
    out, err = capsys.readouterr()
    assert out == KEPT
    assert err.startswith("a.toml (toml, mlxcel-server)\n")
    assert path.read_text() == FLAT


def test_problems_are_json_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--report", "json", "nowhere.toml"]) == 2
    report = json.loads(capsys.readouterr().out)
    assert report["status"] == 2
    assert report["problems"][0]["where"] == "nowhere.toml"


def test_the_report_counts_bytes(capsys: pytest.CaptureFixture[str]) -> None:
    write("a.toml", FLAT)
    cli.main(["--report", "json", "--kv-bytes", "1000", "a.toml"])
    (setup,) = json.loads(capsys.readouterr().out)["setups"]
    assert setup["today"]["kv_bytes"] == 4 * 8192 * 1000
    assert setup["after_flip"]["kv_bytes"] == 8192 * 1000
    assert setup["after_migration"]["kv_bytes"] == 4 * 8192 * 1000
    assert (setup["today"]["per_slot"], setup["after_flip"]["per_slot"]) == (8192, 2048)


def test_a_model_tells_its_sizes(capsys: pytest.CaptureFixture[str]) -> None:
    """2 layers, 2 heads of 8 values for keys and for values, 2 bytes each: 128."""
    Path("m").mkdir()
    config = {
        "model_type": "llama",
        "num_hidden_layers": 2,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 100,
        "max_position_embeddings": 4096,
        "torch_dtype": "bfloat16",
    }
    write("m/config.json", json.dumps(config))
    header = b'{"w":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]}}'
    data = len(header).to_bytes(8, "little") + header + b"\0\0\0\0"
    Path("m/model.safetensors").write_bytes(data)
    write("a.toml", ["n_parallel = 2\n", "engine]\ndevice = 'gpu'\n"][0])
    cli.main(["--report", "json", "--model", "m", "a.toml"])
    (setup,) = json.loads(capsys.readouterr().out)["setups"]
    assert setup["today"]["per_slot"] == 4096
    assert setup["today"]["kv_bytes_per_token"] in (128, 256)


def test_a_pipe_can_be_read(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data = io.TextIOWrapper(io.BytesIO(FLAT.encode()))
    monkeypatch.setattr(sys, "stdin", data)
    assert cli.main(["--kind", "toml", "--to", "-", "-"]) == 0
    assert capsys.readouterr().out == KEPT


def test_a_reader_that_leaves_is_no_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What it does to the descriptor of stdout is tried in a process of its own."""
    write("a.toml", FLAT)
    done = subprocess.run(
        f"{sys.executable} -m mlxceld.migrate.cli a.toml | true; exit 0",
        shell=True,
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.stderr == ""


def test_the_version_is_that_of_the_package(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"mlxcel-migrate {__version__}\n"


def test_the_help_names_every_flag_and_status(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main(["--help"])
    assert stopped.value.code == 0
    text = capsys.readouterr().out
    for flag in (
        *("--kind", "--from", "--env-file", "--name", "--keep", "--adopt", "--as-of"),
        *("--model", "--kv-bytes", "--to", "--server", "--write", "--check"),
        *("--report", "--version", "exit status:"),
    ):
        assert flag in text
    for status in (0, 1, 2, 3):
        assert f"\n  {status}  " in text


# ---- where things go ----


def test_keys_go_into_a_file_of_their_own() -> None:
    write("llm.service", "[Service]\nExecStart=/bin/llama-server --api-key k1,k2\n")
    assert cli.main(["--write", "llm.service"]) == 0
    keys = Path("llm.toml.keys")
    assert keys.read_text() == "k1\nk2\n"
    assert stat.S_IMODE(keys.stat().st_mode) == 0o600
    assert f'api_key_file = "{keys.absolute()}"' in Path("llm.toml").read_text()


def test_a_configuration_that_the_user_has_changed_since_is_left_alone() -> None:
    write("run.sh", "llama-server -c 8192 -np 2\n")
    assert cli.main(["--write", "run.sh"]) == 0
    path = Path("run.toml")
    changed = "# mine now\n" + path.read_text().replace("  # run.sh:1", "")
    path.write_text(changed)
    assert cli.main(["--write", "run.sh"]) == 0
    assert path.read_text() == changed
    assert sorted(os.listdir()) == ["run.sh", "run.toml"]


def test_a_unit_starts_the_server_that_is_named() -> None:
    write("llm.service", "[Service]\nExecStart=/bin/llama-server -c 8192\n")
    cli.main(["--write", "--server", "/opt/x y/mlxcel-server", "llm.service"])
    text = Path("llm.service.d/zz-mlxcel-migrate.conf").read_text()
    assert 'ExecStart="/opt/x y/mlxcel-server" --config ' in text


# ---- the start ----


def run_python(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def test_the_tool_starts_at_once() -> None:
    """In less than 0.15 s of the processor, the best of several runs."""
    costs = []
    for _ in range(8):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [sys.executable, "-m", "mlxceld.migrate.cli", "--help"],
            cwd=ROOT,
            capture_output=True,
            check=True,
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        user, system = after.ru_utime - before.ru_utime, after.ru_stime
        costs.append(user + system - before.ru_stime)
        if costs[-1] < 0.15:
            break
    assert min(costs) < 0.15


def test_no_run_imports_what_a_server_needs(here: Path) -> None:
    write("a.toml", FLAT)
    write("llm.service", "[Service]\nExecStart=/bin/llama-server -c 8192\n")
    write("c.yaml", "services:\n  a:\n    image: llama.cpp\n    command: -c 8192\n")
    out = run_python(
        "import sys, os\n"
        "from mlxceld.migrate import cli\n"
        f"os.chdir({str(here)!r})\n"
        "out, sys.stdout = sys.stdout, open(os.devnull, 'w')\n"
        "cli.main(['a.toml', 'llm.service', 'c.yaml', '--kv-bytes', '10'])\n"
        "heavy = {'mlx', 'mlx_lm', 'litestar', 'uvicorn', 'numpy', 'transformers',\n"
        "  'jinja2', 'tokenizers', 'msgspec', 'structlog', 'huggingface_hub'}\n"
        "print(*sorted(heavy & set(sys.modules)), file=out)\n"
    )
    assert out.strip() == ""


def test_a_run_without_yaml_does_not_pay_for_it(here: Path) -> None:
    write("a.toml", FLAT)
    out = run_python(
        "import sys, os\n"
        "from mlxceld.migrate import cli\n"
        f"os.chdir({str(here)!r})\n"
        "out, sys.stdout = sys.stdout, open(os.devnull, 'w')\n"
        "cli.main(['a.toml'])\n"
        "print('yaml' in sys.modules, 'plistlib' in sys.modules, file=out)\n"
    )
    assert out.strip() == "False False"


def test_every_secret_option_is_kept_out_of_reports(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for option in OPTIONS:
        if not option.secret:
            continue
        words = ["llama-server", "-c", "8192", option.flag, "sesame-1"]
        assert cli.main(["--", *words]) == 1
        cli.main(["--report", "json", "--", *words[:-2], f"{option.flag}=sesame-2"])
        write("a.env", f"{option.env[0]}=sesame-3\nLLAMA_ARG_CTX_SIZE=8192\n")
        cli.main(["--from", "llama-server", "a.env"])
        out, err = capsys.readouterr()
        assert "sesame" not in out + err
