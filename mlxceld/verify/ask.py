"""Speaks HTTP with the server that is looked at, over connections of their own.

Whatever text of a server may reach a terminal is made printable here, once. Nothing
that is sent is logged, and the key goes nowhere but into the header.
"""

from __future__ import annotations

import http.client
import json
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from mlxceld.problems import Problem, Refused, Unreachable

LONGEST = 200
"""Characters of a server's message that are shown."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A reply: `body` is its JSON, or None where it has none."""

    status: int
    body: Any = None

    @property
    def error(self) -> dict[str, Any]:
        """The error object of llama-server's form, or an empty one."""
        return error_of(self.body)

    @property
    def message(self) -> str:
        """What the server says is wrong, after the status."""
        text = plain(self.error.get("message", ""))
        return f"HTTP {self.status}: {text}" if text else f"HTTP {self.status}"


def error_of(body: Any) -> dict[str, Any]:
    """The `error` of a body or an event, or an empty object."""
    found = body.get("error") if isinstance(body, dict) else None
    if isinstance(found, str):
        return {"message": found}
    return found if isinstance(found, dict) else {}


def plain(text: object) -> str:
    """Text of a server for a terminal: printable, on one line, not too long."""
    shown = "".join(c if c.isprintable() else " " for c in str(text))
    shown = " ".join(shown.split())
    return shown if len(shown) <= LONGEST else shown[: LONGEST - 3] + "..."


def number(body: Any, *path: str | int) -> int | None:
    """The whole number at a path of keys and indices, None where there is none."""
    for key in path:
        try:
            body = body[key]
        except (KeyError, IndexError, TypeError):
            return None
    is_whole = isinstance(body, int) and not isinstance(body, bool)
    return body if is_whole and body >= 0 else None


class Lost(Exception):
    """The connection was refused, cut, or silent for too long."""

    def __init__(
        self, what: str, hint: str = "is the server running, and is this its address?"
    ) -> None:
        super().__init__(what)
        self.hint = hint


class Server:
    """The server at a URL. Every request takes a connection of its own.

    `timeout` is in seconds, for each wait; `ca_file` holds certificates to trust, in
    PEM. Raises `Refused` for a URL that is none and for a file that cannot be used.
    """

    def __init__(
        self, url: str, key: str = "", timeout: float = 600.0, ca_file: str = ""
    ) -> None:
        self.url, self._secure, self._host, self._port, self._prefix = _read(url)
        self._timeout = timeout
        self._headers = {"Content-Type": "application/json", "Connection": "close"}
        self._trust = _trust(ca_file) if self._secure else None
        if key:
            self._headers["Authorization"] = f"Bearer {key}"

    def get(self, path: str) -> Answer:
        """Raises `Lost`."""
        with self._connected() as line:
            line.request("GET", self._prefix + path, headers=self._headers)
            return _whole(line.getresponse())

    def post(self, path: str, body: Any) -> Answer:
        """Raises `Lost`."""
        with self._connected() as line:
            self._send(line, path, body)
            return _whole(line.getresponse())

    @contextmanager
    def stream(
        self, path: str, body: Any, ready: Callable[[], object] = lambda: None
    ) -> Iterator[Answer | Iterator[Any]]:
        """The events of a stream, or the reply that came instead of one.

        Calls `ready` when connected, right before the request is sent. Raises `Lost`,
        also while events are read.
        """
        with self._connected() as line:
            line.connect()
            ready()
            self._send(line, path, body)
            reply = line.getresponse()
            kind = reply.headers.get_content_type()
            if reply.status == 200 and kind == "text/event-stream":
                yield _events(reply)
            else:
                yield _whole(reply)

    def unreachable(self, lost: Lost) -> Unreachable:
        """The problem that a user sees for a lost connection."""
        what = f"cannot be reached: {lost}"
        return Unreachable([Problem(what, self.url, lost.hint)])

    @contextmanager
    def _connected(self) -> Iterator[http.client.HTTPConnection]:
        line = http.client.HTTPConnection(self._host, self._port, timeout=self._timeout)
        if self._secure:
            line = http.client.HTTPSConnection(
                self._host, self._port, timeout=self._timeout, context=self._trust
            )
        try:
            yield line
        except TimeoutError:
            raise Lost(f"no answer within {self._timeout:g} seconds") from None
        except ssl.SSLCertVerificationError as error:
            what = f"its certificate is refused: {plain(error.verify_message)}"
            raise Lost(what, "say what to trust: `--ca-file FILE`") from None
        except OSError as error:
            raise Lost(plain(error.strerror or error)) from None
        except http.client.HTTPException as error:
            raise Lost(f"no HTTP answer ({type(error).__name__})") from None
        finally:
            line.close()

    def _send(self, line: http.client.HTTPConnection, path: str, body: Any) -> None:
        data = json.dumps(body).encode()
        line.request("POST", self._prefix + path, data, self._headers)


def _trust(file: str) -> ssl.SSLContext:
    """What certificates are checked with: those of the system, or those of a file."""
    try:
        return ssl.create_default_context(cafile=file or None)
    except OSError as error:
        reason = error.strerror if type(error) is not ssl.SSLError else "no certificate"
        raise Refused([Problem(f"cannot be used: {reason}", file)]) from None


def _read(url: str) -> tuple[str, bool, str, int, str]:
    """The URL without a slash at its end, and its parts. Raises `Refused`."""
    text = url if "://" in url else f"http://{url}"
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or parts.scheme not in ("http", "https") or parts.query:
        hint = "for example `http://127.0.0.1:8080`"
        raise Refused([Problem(f"found `{plain(url)}`, wanted a URL", "URL", hint)])
    if parts.username is not None:
        hint = "use `--api-key-file`"
        raise Refused([Problem("it may hold no user and no password", "URL", hint)])
    secure = parts.scheme == "https"
    prefix = parts.path.rstrip("/")
    whole = f"{parts.scheme}://{parts.netloc}{prefix}"
    return whole, secure, host, port or (443 if secure else 80), prefix


def _whole(reply: http.client.HTTPResponse) -> Answer:
    try:
        return Answer(reply.status, json.loads(reply.read()))
    except ValueError:
        return Answer(reply.status)


def _events(reply: http.client.HTTPResponse) -> Iterator[Any]:
    """The JSON of every event; what is no JSON, such as `[DONE]`, is left out."""
    for line in reply:
        field, _, data = line.partition(b":")
        if field == b"data":
            try:
                yield json.loads(data)
            except ValueError:
                continue


def now() -> float:
    """Seconds on a clock that only goes forward."""
    return time.monotonic()
