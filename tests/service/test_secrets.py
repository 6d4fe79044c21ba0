"""Where keys are read from, and everywhere that they must not turn up."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from mlxceld.config import resolve
from mlxceld.problems import Refused
from mlxceld.service.secrets import credential, read_key_file, read_keys, withhold
from mlxceld.settings import ServerSettings
from tests.service.running import PATIENCE, ROOT, daemon, streaming
from tests.tiny import tiny_model_dir


def keys_in(folder: Path, text: str = "a-key\n", mode: int = 0o600) -> Path:
    file = folder / "keys"
    file.write_bytes(text.encode())
    file.chmod(mode)
    return file


def test_lines_are_trimmed_and_blank_ones_skipped(tmp_path: Path) -> None:
    file = keys_in(tmp_path, "# people\r\n\r\none \r\n\ttwo\r\n   \nthree")
    assert read_key_file(file, {}) == ["one", "two", "three"]


def test_the_mark_of_an_editor_is_no_part_of_the_first_key(tmp_path: Path) -> None:
    assert read_key_file(keys_in(tmp_path, "\ufeffone\r\n"), {}) == ["one"]


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o700])
def test_a_file_that_only_its_owner_reads_is_taken(mode: int, tmp_path: Path) -> None:
    assert read_key_file(keys_in(tmp_path, mode=mode), {}) == ["a-key"]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o620, 0o602, 0o666])
def test_a_file_that_others_read_or_write_is_refused_with_the_way_out(
    mode: int, tmp_path: Path
) -> None:
    file = keys_in(tmp_path, mode=mode)
    with pytest.raises(Refused) as refused:
        read_key_file(file, {})
    (problem,) = refused.value.problems
    assert problem.where == str(file)
    assert f"mode {mode:04o}" in problem.what
    assert problem.hint == f"`chmod 600 {file}`"
    assert "a-key" not in problem.render()


def test_a_pipe_has_no_mode_worth_looking_at(tmp_path: Path) -> None:
    """`--api-key-file <(command)` of a shell."""
    read, write = os.pipe()
    os.write(write, b"from-a-pipe\n")
    os.close(write)
    assert read_key_file(Path(f"/dev/fd/{read}"), {}) == ["from-a-pipe"]
    os.close(read)


def test_the_managers_credential_adds_to_the_other_keys(tmp_path: Path) -> None:
    (tmp_path / "api-key").write_text("from-the-manager\n")
    # Access lists of the manager show as rights of the group.
    (tmp_path / "api-key").chmod(0o440)
    environ = {"CREDENTIALS_DIRECTORY": str(tmp_path)}
    assert credential(environ) == tmp_path / "api-key"
    server = ServerSettings(api_key=("one",))
    assert read_keys(server, environ) == ["one", "from-the-manager"]
    named = ServerSettings(api_key_file=str(tmp_path / "api-key"))
    assert set(read_keys(named, environ)) == {"from-the-manager"}


def test_without_a_credential_there_is_none(tmp_path: Path) -> None:
    assert credential({}) is None
    assert credential({"CREDENTIALS_DIRECTORY": str(tmp_path)}) is None
    assert read_keys(ServerSettings(), {"CREDENTIALS_DIRECTORY": str(tmp_path)}) == []


def test_keys_are_taken_out_of_the_environment_and_the_rest_stays() -> None:
    environ = {
        "LLAMA_API_KEY": "a",
        "MLXCELD_API_KEY": "b",
        "HF_TOKEN": "the engine needs it",
        "PATH": "/bin",
    }
    withhold(environ)
    assert environ == {"HF_TOKEN": "the engine needs it", "PATH": "/bin"}


def test_a_key_of_the_manager_closes_a_door_that_is_open_to_all(tmp_path: Path) -> None:
    argv = ["-m", "x", "--host", "0.0.0.0"]
    assert len(resolve(argv, {}).warnings) == 1
    (tmp_path / "api-key").write_text("k\n")
    environ = {"CREDENTIALS_DIRECTORY": str(tmp_path)}
    assert resolve(argv, environ).warnings == ()


@pytest.mark.parametrize(("mode", "n"), [(0o644, 2), (0o640, 2), (0o600, 0)])
def test_secrets_in_a_configuration_that_others_read_are_told(
    mode: int, n: int, tmp_path: Path
) -> None:
    file = tmp_path / "mlxcel.toml"
    file.write_text('[model]\nhf_token = "t0k"\n[server]\napi_key = "s3cret"\n')
    file.chmod(mode)
    warnings = [one.render() for one in resolve(["--config", str(file)], {}).warnings]
    assert len(warnings) == n
    places = [(2, "model.hf_token"), (4, "server.api_key")]
    for text, (line, key) in zip(warnings, places, strict=n > 0):
        assert text.startswith(f"{file}:{line}: everybody who may read this file")
        assert key in text
        assert f"chmod 600 {file}" in text
        assert not any(secret in text for secret in ("t0k", "s3cret"))


@pytest.mark.parametrize("flags", [[], ["--check-config"]])
def test_a_start_with_keys_that_others_read_ends_with_78(
    flags: list[str], tmp_path: Path
) -> None:
    file = keys_in(tmp_path, mode=0o644)
    model = str(tiny_model_dir(tmp_path / "tiny"))
    done = subprocess.run(
        [
            *(sys.executable, "-m", "mlxceld.cli", "-m", model, "-c", "256"),
            *("--port", "0", "--api-key-file", str(file), *flags),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 78
    assert f"chmod 600 {file}" in done.stderr
    assert "a-key" not in done.stderr + done.stdout


def test_keys_and_prompts_turn_up_nowhere(tmp_path: Path) -> None:
    """Keys of four origins, a marked prompt and a marked stop string."""
    secret = {
        "environment": "KEY-OF-THE-ENVIRONMENT",
        "file": "KEY-OF-THE-FILE",
        "manager": "KEY-OF-THE-MANAGER",
        "wrong": "KEY-THAT-IS-WRONG",
        "prompt": "MARK-OF-THE-PROMPT",
        "stop": "MARK-OF-THE-STOP",
    }
    folder = tmp_path / "credentials"
    folder.mkdir()
    (folder / "api-key").write_text(secret["manager"] + "\n")
    file = keys_in(tmp_path, f"\r\n{secret['file']} \r\n")
    environ = {
        "LLAMA_API_KEY": secret["environment"],
        "CREDENTIALS_DIRECTORY": str(folder),
    }
    argv = ["-hf", "some/model", "-c", "2000", "--port", "0", "--metrics"]
    argv += ["--api-key-file", str(file), "--log-level", "debug"]
    script = {"step_seconds": 0.02, "load_seconds": 3.0}
    with daemon(environ=environ, argv=argv, script=script) as one:
        url = one.wait_for("bound")["url"]
        shown = []
        # A probe has no key, and a request that comes early is told when to retry.
        health = httpx.get(f"{url}/health", timeout=PATIENCE)
        assert health.status_code == 503
        bearer = {"authorization": f"Bearer {secret['file']}"}
        body = {"prompt": "early", "n_predict": 1}
        early = httpx.post(f"{url}/completion", json=body, headers=bearer)
        assert early.status_code == 503
        assert int(early.headers["retry-after"]) >= 1
        one.ready()
        assert httpx.get(f"{url}/health").status_code == 200
        for headers in (
            {},
            {"authorization": "Bearer"},
            {"x-api-key": ""},
            {"authorization": f"Bearer {secret['wrong']}"},
        ):
            refused = httpx.get(f"{url}/props", headers=headers)
            assert refused.status_code == 401
            shown.append(refused.text)
        for name in ("environment", "file", "manager"):
            headers = {"authorization": f"Bearer {secret[name]}"}
            assert httpx.get(f"{url}/v1/models", headers=headers).status_code == 200
        with streaming(
            url, 50, secret["prompt"], stop=[secret["stop"]], headers=bearer
        ) as lines:
            for path in ("/slots", "/props", "/metrics"):
                reply = httpx.get(url + path, headers=bearer)
                assert reply.status_code == 200
                shown.append(reply.text)
            for _ in lines:
                pass
        environment = Path(f"/proc/{one.engine()}/environ")
        if environment.exists():
            shown.append(environment.read_bytes().decode())
            command = environment.with_name("cmdline")
            shown.append(command.read_bytes().decode())
        one.process.send_signal(signal.SIGHUP)
        one.wait_for("reload")
        one.process.send_signal(signal.SIGTERM)
        assert one.ended() == 0
        shown += [json.dumps(one.events), *one.other]
    assert {"request", "reload"} <= {event["event"] for event in one.events}
    everything = "\n".join(shown).replace(str(folder), "")
    assert [name for name, text in secret.items() if text in everything] == []
