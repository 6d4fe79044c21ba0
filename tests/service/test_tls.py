"""HTTPS: the files that are asked for, and an answer through them."""

from __future__ import annotations

import shutil
import signal
import ssl
import subprocess
from pathlib import Path

import httpx
import pytest

from mlxceld.problems import Refused
from mlxceld.service.tls import tls_context
from mlxceld.settings import ServerSettings
from tests.service.running import PATIENCE, daemon

pytestmark = pytest.mark.skipif(
    shutil.which("openssl") is None, reason="needs openssl to make a certificate"
)


def make_pair(folder: Path, *, password: str = "") -> tuple[str, str]:
    """A key and a certificate for 127.0.0.1, made by the openssl program."""
    key, certificate = folder / "key.pem", folder / "cert.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec"),
            *("-pkeyopt", "ec_paramgen_curve:P-256", "-days", "2"),
            *("-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"),
            *("-keyout", str(key), "-out", str(certificate)),
            *(("-passout", f"pass:{password}") if password else ("-nodes",)),
        ],
        check=True,
        capture_output=True,
    )
    return str(key), str(certificate)


def test_without_files_there_is_plain_http() -> None:
    assert tls_context(ServerSettings()) is None


def test_a_key_without_a_certificate_is_refused(tmp_path: Path) -> None:
    key, certificate = make_pair(tmp_path)
    with pytest.raises(Refused, match="needs server.ssl_cert_file too") as refused:
        tls_context(ServerSettings(ssl_key_file=key))
    (problem,) = refused.value.problems
    assert "--ssl-cert-file" in problem.hint
    with pytest.raises(Refused, match="needs server.ssl_key_file too"):
        tls_context(ServerSettings(ssl_cert_file=certificate))


def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    key, certificate = make_pair(tmp_path)
    missing = str(tmp_path / "none.pem")
    with pytest.raises(Refused, match=r"none\.pem: cannot read server.ssl_cert_file"):
        tls_context(ServerSettings(ssl_key_file=key, ssl_cert_file=missing))
    (tmp_path / "none.pem").write_text("no key")
    with pytest.raises(Refused, match="cannot be used"):
        tls_context(ServerSettings(ssl_key_file=missing, ssl_cert_file=certificate))


def test_a_key_with_a_password_is_refused_without_asking_for_it(tmp_path: Path) -> None:
    key, certificate = make_pair(tmp_path, password="secret")
    with pytest.raises(Refused, match="cannot be used"):
        tls_context(ServerSettings(ssl_key_file=key, ssl_cert_file=certificate))


def test_the_daemon_answers_over_https(tmp_path: Path) -> None:
    key, certificate = make_pair(tmp_path)
    with daemon(server={"ssl_key_file": key, "ssl_cert_file": certificate}) as one:
        url = one.ready()
        assert url.startswith("https://127.0.0.1:")
        trust = ssl.create_default_context(cafile=certificate)
        reply = httpx.post(
            f"{url}/completion", json={"prompt": "a", "n_predict": 2}, verify=trust
        )
        assert reply.json()["content"] == "x x "
        with pytest.raises(httpx.TransportError):
            httpx.get(url.replace("https:", "http:") + "/health", timeout=5)


def test_a_new_certificate_is_served_after_a_reload(tmp_path: Path) -> None:
    """Connections that are open go on with the old one."""
    key, certificate = make_pair(tmp_path)
    old = Path(certificate).read_bytes()
    argv = ["-hf", "some/model", "-c", "1000", "--port", "0"]
    argv += ["--ssl-key-file", key, "--ssl-cert-file", certificate]
    with daemon(argv=argv) as one:
        url = one.ready()
        before = ssl.create_default_context(cadata=old.decode())
        with httpx.Client(verify=before, timeout=PATIENCE) as open_before:
            assert open_before.get(f"{url}/health").status_code == 200
            make_pair(tmp_path)
            one.process.send_signal(signal.SIGHUP)
            one.wait_for("reload")
            after = ssl.create_default_context(cafile=certificate)
            assert httpx.get(f"{url}/health", verify=after).status_code == 200
            assert open_before.get(f"{url}/health").status_code == 200
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{url}/health", verify=before)
        # Half of a pair is refused, and the pair in force serves on.
        Path(certificate).write_bytes(old)
        one.process.send_signal(signal.SIGHUP)
        assert "cannot be used" in one.wait_for("reload")["message"]
        assert httpx.get(f"{url}/health", verify=after).status_code == 200


def test_the_daemon_does_not_start_with_half_a_pair(tmp_path: Path) -> None:
    key, _ = make_pair(tmp_path)
    with daemon(server={"ssl_key_file": key}) as one:
        assert one.ended() == 78
        assert "server.ssl_cert_file" in "".join(one.other)
