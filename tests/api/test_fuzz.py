"""Random requests: whatever comes, the server lives and says what was wrong."""

from __future__ import annotations

import contextlib
import json
import random
import socket
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from mlxceld.api.app import ROUTES
from mlxceld.plan import Wish
from tests import fake
from tests.api.serving import Served, serve

POSTS = sorted(path for path, found in ROUTES.items() if "POST" in found)
NAMES = (
    *("prompt", "messages", "input", "system", "tools", "tool_choice", "stop", "n"),
    *("content", "tokens", "stream", "temperature", "top_k", "top_p", "seed", "role"),
    *("logit_bias", "max_tokens", "max_output_tokens", "n_predict", "type", "text"),
    *("response_format", "json_schema", "grammar", "samplers", "id_slot", "thinking"),
    *("chat_template_kwargs", "stream_options", "response_fields", "instructions"),
)


def value(dice: random.Random, depth: int = 0) -> Any:
    """A JSON value that may or may not fit where it is put."""
    match dice.randrange(9 if depth < 3 else 6):
        case 0:
            return dice.choice([None, True, False])
        case 1:
            return dice.choice([0, 1, -1, 2**31, 2**63, -(2**70), 7])
        case 2:
            return dice.choice([0.5, -0.0, 1e300, -1e-300])
        case 3 | 4:
            return dice.choice(["", "fox", "user", "text", "a b c", "\u0000", "\ud83d"])
        case 5:
            return dice.choice([[], {}, [[]], ["fox"], [1, 2, 3]])
        case 6:
            return [value(dice, depth + 1) for _ in range(dice.randrange(4))]
        case 7:
            return {
                "role": dice.choice(["user", "assistant", "tool", "system", 5]),
                "content": value(dice, depth + 1),
                "type": dice.choice(["message", "function_call", "text", "function"]),
                dice.choice(NAMES): value(dice, depth + 1),
            }
        case _:
            return {
                dice.choice(NAMES): value(dice, depth + 1)
                for _ in range(dice.randrange(5))
            }


def body(dice: random.Random) -> bytes:
    """Bytes, or JSON with a short answer, so that none of them takes long."""
    if dice.random() < 0.15:
        return dice.randbytes(dice.randrange(200))
    fields = {name: value(dice) for name in dice.sample(NAMES, dice.randrange(1, 7))}
    if dice.random() < 0.7:
        talk = [{"role": "user", "content": "fox"}]
        fields |= {"prompt": "fox", "messages": talk, "input": "fox"}
        fields |= {dice.choice(NAMES): value(dice)}
    limit = {"n_predict": 3, "max_tokens": 3, "max_output_tokens": 3}
    text = json.dumps({**fields, **limit})
    return text.encode()[: dice.choice([None, None, None, len(text) // 2])]


@pytest.fixture(scope="module")
def target() -> Iterator[Served]:
    script = fake.Script(answers={"fox": ["The ", "quick ", "one"]})
    wish = Wish(mode="llama-compat", ctx_size=4096, parallel=4)
    with serve(script, wish=wish) as running:
        yield running


@pytest.mark.parametrize("seed", range(4))
def test_no_request_is_answered_with_a_fault_of_ours(target: Served, seed: int) -> None:
    dice = random.Random(seed)
    for _ in range(100):
        path, data = dice.choice(POSTS), body(dice)
        reply = target.http.post(path, content=data)
        # 500 is only what llama-server says to pictures; 501 what is not served.
        fine = reply.status_code in (200, 400, 501) or "input is not" in reply.text
        assert fine, (path, data, reply.text)
        if reply.status_code != 200:
            assert reply.json()["error"]["message"]
    target.until(target.idle)


def test_connections_that_are_cut_leave_nothing_behind(target: Served) -> None:
    dice = random.Random(7)
    url = httpx.URL(target.url)
    for _ in range(150):
        data = body(dice)
        head = (
            f"POST {dice.choice(POSTS)} HTTP/1.1\r\nHost: localhost\r\n"
            f"Content-Length: {len(data)}\r\n\r\n"
        )
        whole = head.encode() + data
        with socket.create_connection((url.host, url.port or 80), timeout=5) as sock:
            sock.sendall(whole[: dice.randrange(len(whole) + 1)])
            if dice.random() < 0.3:
                sock.settimeout(0.05)
                with contextlib.suppress(OSError):
                    sock.recv(100)
    target.until(target.idle, 10)
    assert target.client.running == 0
    assert target.client.restarts == 0
    assert target.get("/health").status_code == 200
