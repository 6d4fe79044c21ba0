"""What is read from a server, and how its texts are shown."""

from __future__ import annotations

import shutil
import ssl
from pathlib import Path

import pytest

from mlxceld.problems import Refused
from mlxceld.verify.ask import Answer, Lost, Server, number, plain
from tests.service.test_tls import make_pair
from tests.verify.fakes import Fake, serving


def test_a_url_needs_no_scheme_and_keeps_its_prefix() -> None:
    assert Server("127.0.0.1:8080").url == "http://127.0.0.1:8080"
    assert Server("https://host/llm/").url == "https://host/llm"
    assert Server("http://[::1]:8080").url == "http://[::1]:8080"


def test_a_prefix_stands_before_every_path() -> None:
    with serving(Fake(missing={"/llm/props": 418})) as url:
        assert Server(f"{url}/llm/").get("/props").status == 418
        assert Server(url).get("/props").status == 200


def test_texts_of_a_server_cannot_move_the_cursor() -> None:
    assert plain("a\x1b[2Jb\nc\u202ed") == "a [2Jb c d"
    assert plain("x" * 300) == "x" * 197 + "..."
    assert plain(None) == "None"


def test_a_message_shows_the_status_and_what_the_server_says() -> None:
    body = {"error": {"message": "no\nsuch thing"}}
    assert Answer(404, body).message == "HTTP 404: no such thing"
    assert Answer(404, {"error": "not found"}).message == "HTTP 404: not found"
    assert Answer(502, None).message == "HTTP 502"
    assert Answer(502, []).message == "HTTP 502"


def test_a_number_is_a_whole_one_at_its_path() -> None:
    body = {"a": [{"b": 3, "c": True, "d": 2.0, "e": -1, "f": "3"}]}
    assert number(body, "a", 0, "b") == 3
    for key in "cdefx":
        assert number(body, "a", 0, key) is None
    assert number(body, "a", 1, "b") is None
    assert number(None, "a") is None


def test_a_port_that_is_closed_is_lost_with_the_reason() -> None:
    with serving(Fake()) as url:
        pass
    with pytest.raises(Lost, match="Connection refused"):
        Server(url).get("/props")


def test_a_server_that_speaks_no_http_is_lost() -> None:
    import socket
    import threading

    def greet() -> None:
        line, _ = listener.accept()
        line.sendall(b"SSH-2.0-toy\r\n")
        line.recv(1000)
        line.close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=greet)
        thread.start()
        with pytest.raises(Lost, match="no HTTP answer"):
            Server(f"127.0.0.1:{listener.getsockname()[1]}", timeout=10).get("/props")
        thread.join()


@pytest.mark.skipif(
    shutil.which("openssl") is None, reason="needs openssl to make a certificate"
)
def test_a_certificate_must_be_trusted(tmp_path: Path) -> None:
    key, certificate = make_pair(tmp_path)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    with serving(Fake(), tls) as url:
        assert url.startswith("https://")
        assert Server(url, ca_file=certificate).get("/props").status == 200
        with pytest.raises(Lost, match="its certificate is refused: self-signed"):
            Server(url).get("/props")


def test_certificates_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="none: cannot be used: No such file"):
        Server("https://host", ca_file=str(tmp_path / "none"))
    (tmp_path / "empty").write_text("")
    with pytest.raises(Refused, match="empty: cannot be used: no certificate"):
        Server("https://host", ca_file=str(tmp_path / "empty"))
