"""`mlxcel-verify` as people and scripts call it."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from mlxceld import __version__
from mlxceld.verify import cli
from tests.verify.fakes import Fake, serving

ROOT = Path(__file__).parents[2]
QUICK = ["--tokens", "8"]


def test_a_good_server_is_status_0_and_a_page(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with serving(Fake(slots=2)) as url:
        assert cli.main([*QUICK, url], {}) == 0
    out, err = capsys.readouterr()
    assert err == ""
    lines = out.splitlines()
    assert lines[0] == f"{url}: b1-fake, toy, 2 slots"
    assert lines[2].split()[:7] == [
        *("stream", "slot", "n_ctx", "sent", "first", "end", "tokens")
    ]
    assert "ok       overlap  2 of 2 streams ran at once" in lines
    assert "unknown  memory   the server does not tell" in lines


def test_a_wrong_server_is_status_1(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(Fake(slots=2, cuts=True)) as url:
        assert cli.main([*QUICK, "--fill", "none", url], {}) == 1
    out = capsys.readouterr().out
    assert (
        "WRONG    refusal  a prompt of 513 tokens was cut to 511 without a word" in out
    )


def test_json_holds_what_was_seen_and_the_verdicts(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with serving(Fake(slots=2)) as url:
        assert cli.main(["--json", *QUICK, f"{url}/"], {}) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["format"], found["url"], found["status"]) == (1, url, 0)
    assert [one["name"] for one in found["verdicts"]] == [
        *("overlap", "slots", "count", "numbers", "window", "refusal", "memory")
    ]
    assert found["n_ctx"] == {
        "/props": [512],
        "/slots": [512],
        "/v1/models": [512],
        "refusal": [512],
        "measured": [512],
    }
    assert [stream["n_ctx"] for stream in found["streams"]] == [512, 512]
    assert found["over"]["n_prompt"] == 513


def test_the_timeline_is_drawn(tmp_path: Path) -> None:
    file = tmp_path / "out.svg"
    with serving(Fake(slots=2)) as url:
        assert cli.main([*QUICK, "--plot", str(file), url], {}) == 0
    root = ElementTree.parse(file).getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg"


def said(capsys: pytest.CaptureFixture[str], *words: str, status: int = 2) -> str:
    assert cli.main(list(words), {}) == status
    out, err = capsys.readouterr()
    assert out == ""
    return err


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ([], "no server is named"),
        (["--strems", "4", "http://h"], "unrecognized arguments: --strems"),
        (["--streams", "0", "http://h"], "found `0`, wanted streams from 1 to 1024"),
        (["--tokens", "one", "http://h"], "found `one`, wanted tokens from 2"),
        (["--timeout", "٤", "http://h"], "wanted seconds from 1 to 86400"),
        (["ftp://host"], "URL: found `ftp://host`, wanted a URL"),
        (["http://"], "wanted a URL"),
        (["http://host:99999"], "wanted a URL"),
        (["http://me:word@host"], "URL: it may hold no user and no password"),
        (["--api-key", "é", "http://h"], "the API key cannot be sent"),
        (["--api-key-file", "/none", "http://h"], "/none: cannot be read"),
        (["--api-key", "a", "--api-key-file", "b", "http://h"], "not allowed with"),
    ],
)
def test_a_wrong_command_line_is_status_2_and_says_what_is_wrong(
    words: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    err = said(capsys, *words)
    assert text in err
    assert "Traceback" not in err


def test_a_server_that_is_not_there_is_status_3(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with serving(Fake()) as url:
        pass
    err = said(capsys, url, status=3)
    assert err.startswith(f"{url}: cannot be reached: Connection refused\n  hint: ")


def test_a_silent_server_is_given_up(capsys: pytest.CaptureFixture[str]) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"127.0.0.1:{silent.getsockname()[1]}"
        err = said(capsys, "--timeout", "1", url, status=3)
    assert f"http://{url}: cannot be reached: no answer within 1 seconds" in err


def test_a_key_is_taken_from_option_file_or_environment(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = tmp_path / "key"
    file.write_text("# for tests\r\n\r\n  k-1 \r\nk-2\r\n")
    monkeypatch.setattr(sys, "stdin", io.StringIO("k-1\n"))
    quick = ["--tokens", "2", "--streams", "1", "--fill", "none"]
    with serving(Fake(key="k-1")) as url:
        assert cli.main([*quick, "--api-key", "k-1", url], {}) == 0
        assert cli.main([*quick, "--api-key-file", str(file), url], {}) == 0
        assert cli.main([*quick, "--api-key-file", "-", url], {}) == 0
        assert cli.main([*quick, url], {"LLAMA_API_KEY": "k-1,k-2"}) == 0
        capsys.readouterr()
        assert cli.main([*quick, "--api-key", "k-2", url], {}) == 3
    out, err = capsys.readouterr()
    assert "HTTP 401: Invalid API Key" in err
    assert "k-2" not in out + err


def test_a_key_file_without_a_key_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "key"
    file.write_text("# nothing\n\n")
    assert f"{file}: it holds no key" in said(
        capsys, "--api-key-file", str(file), "http://h"
    )


def test_a_drawing_that_cannot_be_written_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(Fake(slots=1)) as url:
        words = [*QUICK, "--fill", "none", "--plot", str(tmp_path), url]
        assert "cannot be written: Is a directory" in said(capsys, *words)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_shown_on_a_terminal_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown = Terminal()
    monkeypatch.setattr(sys, "stderr", shown)
    with serving(Fake(slots=2)) as url:
        assert cli.main([*QUICK, url], {}) == 0
        *_, last, blank, rest = shown.getvalue().split("\r")
        assert "long request: 513 tokens" in last
        assert (blank.strip(), rest) == ("", "")
        assert "streams: " in shown.getvalue()
        quiet = Terminal()
        monkeypatch.setattr(sys, "stderr", quiet)
        assert cli.main([*QUICK, "--quiet", url], {}) == 0
    assert quiet.getvalue() == ""


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"mlxcel-verify {__version__}\n"
    with pytest.raises(SystemExit) as ended:
        cli.main(["--help"])
    assert ended.value.code == 0
    assert "usage: mlxcel-verify [options] URL" in capsys.readouterr().out


def test_a_fault_of_the_tool_is_not_a_fault_of_the_server(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(words: object, environ: object) -> int:
        raise RuntimeError("broken")

    monkeypatch.setattr(cli, "_run", broken)
    assert cli.main(["http://h"]) == 70
    assert "RuntimeError: broken" in capsys.readouterr().err


def test_nothing_heavy_is_imported() -> None:
    code = (
        "import sys\n"
        "from mlxceld.verify import ask, cli, measure, plot, report, verdict\n"
        "heavy = {'mlx', 'litestar', 'uvicorn', 'numpy', 'msgspec', 'structlog',\n"
        "         'mlxceld.options', 'jinja2', 'httpx'}\n"
        "print(*sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "", "")
