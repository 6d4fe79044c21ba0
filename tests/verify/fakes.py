"""Servers that answer in llama-server's forms, honest ones and others, for tests.

One token is one piece of text. What a server gets wrong is a field of `Fake`; the
default one gets nothing wrong.
"""

from __future__ import annotations

import contextlib
import json
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Fake:
    """How a server behaves."""

    slots: int = 4
    window: int = 512
    """What it enforces; the routes tell it too, unless the next ones differ."""
    props_ctx: int | None = None
    slots_ctx: int | None = None
    models_ctx: int | None = None
    refused_ctx: int | None = None
    """`n_ctx` in the refusal of a prompt that is too long."""
    step: float = 0.004
    """Seconds for a token."""
    serial: bool = False
    """One request runs at a time, while /slots shows all of them at work."""
    hides: bool = False
    """/slots shows one request at work at most."""
    cuts: bool = False
    """A prompt that is too long is cut, and nobody is told."""
    shifts: bool = False
    """A full context is shifted, and the answer goes on."""
    late: bool = False
    """Errors come inside a stream that has begun."""
    whole: bool = False
    """The answer comes in one piece."""
    pool: int | None = None
    """Tokens of all long prompts together; more of them end with an error."""
    key: str = ""
    missing: dict[str, int] = field(default_factory=dict)
    """Routes that answer with an HTTP error instead."""
    fails: int = 0
    """Streams that end with an error after a few tokens."""
    more: dict[str, Any] = field(default_factory=dict)
    """More keys of /props."""
    running: int = 0
    held: int = 0
    asked: list[dict[str, Any]] = field(default_factory=list)
    """Bodies of the completions that came."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.seats = threading.Semaphore(1 if self.serial else self.slots)
        self.stopped = threading.Event()

    def answer(self, path: str) -> tuple[int, Any]:
        if path in self.missing:
            status = self.missing[path]
            text = "Loading model" if status == 503 else "File Not Found"
            kind = "unavailable_error" if status == 503 else "not_found_error"
            return status, failure(status, text, kind)
        if path == "/props":
            told = self.window if self.props_ctx is None else self.props_ctx
            return 200, {
                "default_generation_settings": {"params": {}, "n_ctx": told},
                "total_slots": self.slots,
                "model_alias": "toy",
                "build_info": "b1-fake",
                **self.more,
            }
        if path == "/slots":
            told = self.window if self.slots_ctx is None else self.slots_ctx
            busy = min(self.running, 1) if self.hides else self.running
            return 200, [seat(i, told, i < busy) for i in range(self.slots)]
        if path == "/v1/models":
            told = self.window if self.models_ctx is None else self.models_ctx
            return 200, {"object": "list", "data": [{"meta": {"n_ctx": told}}]}
        return 404, failure(404, "File Not Found", "not_found_error")

    def last(self, slot: int, n: int, count: int) -> dict[str, Any]:
        """The last event of a stream of `count` tokens after a prompt of `n`."""
        return {
            **part("", []),
            "id_slot": slot,
            "stop": True,
            "tokens_predicted": count,
            "tokens_evaluated": n,
            "truncated": n + count >= self.window,
            "stop_type": "limit",
        }


def seat(index: int, n_ctx: int, busy: bool) -> dict[str, Any]:
    """A slot; one that was never used has four keys only."""
    shown = {"id": index, "n_ctx": n_ctx, "speculative": False, "is_processing": busy}
    if not busy:
        return shown
    return {
        **shown,
        "id_task": 7,
        "n_prompt_tokens": 5,
        "n_prompt_tokens_processed": 5,
        "n_prompt_tokens_cache": 0,
        "params": {"seed": 1, "temperature": 0.0},
        "next_token": [{"has_next_token": True, "n_remain": 9, "n_decoded": 3}],
    }


def failure(status: int, text: str, kind: str, **more: int) -> dict[str, Any]:
    return {"error": {"code": status, "message": text, "type": kind, **more}}


def too_long(n: int, n_ctx: int) -> dict[str, Any]:
    return failure(
        400,
        f"request ({n} tokens) exceeds the available context size ({n_ctx} tokens), "
        "try increasing it",
        "exceed_context_size_error",
        n_prompt_tokens=n,
        n_ctx=n_ctx,
    )


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    fake: Fake

    def log_message(self, format: str, *args: object) -> None:
        """Nothing is logged."""

    def do_GET(self) -> None:
        if self.admitted():
            self.reply(*self.fake.answer(self.path))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self.admitted():
            return
        if self.path in self.fake.missing:
            self.reply(*self.fake.answer(self.path))
        elif self.path == "/tokenize":
            self.reply(200, {"tokens": [11, 12, 13]})
        else:
            self.complete(body)

    def admitted(self) -> bool:
        key = self.fake.key
        if key and self.headers.get("Authorization") != f"Bearer {key}":
            self.reply(401, failure(401, "Invalid API Key", "authentication_error"))
            return False
        return True

    def reply(self, status: int, body: Any) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json; charset=utf-8")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def complete(self, body: dict[str, Any]) -> None:
        fake, prompt = self.fake, body["prompt"]
        fake.asked.append(body)
        n = len(prompt.split()) if isinstance(prompt, str) else len(prompt)
        if n >= fake.window and fake.cuts:
            n = fake.window - 1
        if n >= fake.window and not fake.late:
            told = fake.window if fake.refused_ctx is None else fake.refused_ctx
            self.reply(400, too_long(n, told))
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        if n >= fake.window:
            self.event(too_long(n, fake.window))
            return
        with fake.lock:
            fake.running += 1
            fake.held += n
        try:
            with fake.seats:
                self.generate(body, n)
        finally:
            with fake.lock:
                fake.running -= 1
                fake.held -= n

    def generate(self, body: dict[str, Any], n: int) -> None:
        fake = self.fake
        if body.get("return_progress"):
            self.event(part("", [0], prompt_progress={"total": n, "processed": n}))
        room = fake.window - n
        count = body["n_predict"] if fake.shifts else min(body["n_predict"], room)
        with fake.lock:
            failing = fake.fails > 0
            fake.fails -= failing
        for index in range(count):
            fake.stopped.wait(fake.step)
            full = fake.pool is not None and fake.held > fake.pool
            if full or (failing and index == 3):
                text = "Context size has been exceeded."
                self.event(failure(500, text, "server_error"))
                return
            if not fake.whole:
                self.event(part("x ", [11]))
        if fake.whole:
            self.event(part("x " * count, [11]))
        self.event(fake.last(body.get("id_slot", 0), n, count))

    def event(self, body: dict[str, Any]) -> None:
        self.wfile.write(b"data: " + json.dumps(body).encode() + b"\n\n")


def part(content: str, tokens: list[int], **more: Any) -> dict[str, Any]:
    return {
        "index": 0,
        "content": content,
        "tokens": tokens,
        "stop": False,
        "id_slot": -1,
        **more,
    }


@contextlib.contextmanager
def serving(fake: Fake, tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """The URL of a server that behaves like this; over https with `tls`."""
    handler = type("Bound", (Handler,), {"fake": fake})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http{'s' if tls else ''}://127.0.0.1:{server.server_address[1]}"
    finally:
        fake.stopped.set()
        server.shutdown()
        server.server_close()
        thread.join()
