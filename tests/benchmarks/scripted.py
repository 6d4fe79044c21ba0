"""A server whose every byte is written down, on the port that is its argument.

It counts as many prompt tokens as the prompt has words, and sends the texts of `TEXTS`;
a prompt of more than `MANY` words gets an error.
"""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TEXTS = ("one", "", " two three", " four")
TOKENS = 4
MANY = 60


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def do_POST(self) -> None:
        size = int(self.headers["Content-Length"])
        body: dict[str, Any] = json.loads(self.rfile.read(size))
        words = len(body["prompt"].split())
        if words > MANY:
            self.send_error(400, "too long")
            return
        self.send_response(200)
        self.end_headers()
        for text in TEXTS:
            self._send({"choices": [{"text": text}]})
        usage = {"prompt_tokens": words, "completion_tokens": TOKENS}
        self._send({"choices": [], "usage": usage})
        self.wfile.write(b"data: [DONE]\n\n")

    def _send(self, chunk: dict[str, Any]) -> None:
        self.wfile.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
