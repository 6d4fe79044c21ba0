"""A client that costs little: so many streams, read as bytes and hardly looked at.

`python -m benchmarks.streams PORT ROUTE` reads one line of JSON for each round from
standard input (`{"prompts": [...], "n": 100}`), asks for one answer of `n` tokens to
each prompt, all at once, and writes one line: the tokens that came while every stream
ran, the seconds that they took, and the median and 99th percentile of the gaps between
what a stream brought. It is a process of its own, so that its work is not counted as
that of the server.
"""

from __future__ import annotations

import json
import select
import socket
import sys
import time
from typing import Any

MARK = b"data: {"
"""How an event with something in it begins."""

ROUTES = {
    "native": "/completion",
    "completions": "/v1/completions",
    "chat": "/v1/chat/completions",
    "responses": "/v1/responses",
    "messages": "/v1/messages",
}
"""Paths by the name of the dialect."""


class Stream:
    """One answer as it comes in."""

    def __init__(self, port: int, request: bytes) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port))
        self.sock.sendall(request)
        self.events = 0
        self.ended = False
        self.gaps: list[float] = []
        """Seconds between two reads that brought something."""
        self._tail = b""
        self._last = 0.0

    def read(self) -> None:
        """Take what is there, and count the events that begin in it."""
        data = self.sock.recv(1 << 16)
        now = time.perf_counter()
        if self.events:
            self.gaps.append(now - self._last)
        self._last = now
        seen = self._tail + data
        self.events += seen.count(MARK)
        self._tail = seen[-len(MARK) + 1 :]
        if not data or seen.endswith(b"\r\n0\r\n\r\n"):
            self.ended = True


def request(route: str, prompt: str, n: int) -> bytes:
    """The bytes of a request for `n` tokens in a stream."""
    body: dict[str, Any] = {"stream": True, "temperature": 0, "cache_prompt": False}
    body["ignore_eos"] = True
    if route in ("chat", "messages"):
        body["messages"] = [{"role": "user", "content": prompt}]
    else:
        body["input" if route == "responses" else "prompt"] = prompt
    word = "max_output_tokens" if route == "responses" else "max_tokens"
    body["n_predict" if route == "native" else word] = n
    data = json.dumps(body).encode()
    head = f"POST {ROUTES[route]} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
    return f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data


def round_of(port: int, route: str, prompts: list[str], n: int) -> dict[str, float]:
    """Run one round; `tokens` and `seconds` are those while every stream ran.

    A stream counts as running from its third event on, when those that open an answer
    are over in every dialect.
    """
    streams = [Stream(port, request(route, prompt, n)) for prompt in prompts]
    poll = select.poll()
    by_fd = {stream.sock.fileno(): stream for stream in streams}
    for fd in by_fd:
        poll.register(fd, select.POLLIN)
    began: float | None = None
    first = counted = 0
    ended = 0.0
    while by_fd:
        for fd, _ in poll.poll():
            stream = by_fd[fd]
            stream.read()
            if stream.ended:
                poll.unregister(fd)
                del by_fd[fd]
                stream.sock.close()
        if began is None:
            if all(stream.events >= 3 for stream in streams):
                began = time.perf_counter()
                first = sum(stream.events for stream in streams)
        elif len(by_fd) == len(streams):
            ended = time.perf_counter()
            counted = sum(stream.events for stream in streams) - first
    events = sum(stream.events for stream in streams)
    if began is None or not counted:
        raise RuntimeError(f"the streams ended too early, after {events} events")
    gaps = sorted(gap for stream in streams for gap in stream.gaps)
    return {
        "tokens": counted,
        "seconds": ended - began,
        "gap_50": gaps[len(gaps) // 2],
        "gap_99": gaps[len(gaps) * 99 // 100],
    }


def main() -> None:
    port, route = int(sys.argv[1]), sys.argv[2]
    for line in sys.stdin:
        wanted = json.loads(line)
        print(json.dumps(round_of(port, route, wanted["prompts"], wanted["n"])))
        sys.stdout.flush()


if __name__ == "__main__":
    main()
