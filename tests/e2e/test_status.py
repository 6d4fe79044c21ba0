"""Routes about the daemon answer at once and mean what they say, whatever it does."""

from __future__ import annotations

import threading
import time
from typing import Any

import httpx
import pytest

from tests.e2e.server import Server, until

POSTS: dict[str, dict[str, Any]] = {
    "/tokenize": {"content": "hello"},
    "/detokenize": {"tokens": [65]},
    "/apply-template": {"messages": [{"role": "user", "content": "hello"}]},
    "/completion": {"prompt": "hello", "n_predict": 2},
    "/completions": {"prompt": "hello", "n_predict": 2},
    "/v1/completions": {"prompt": "hello", "max_tokens": 2},
    "/chat/completions": {
        "messages": [{"role": "user", "content": "hello"}],
        "max_tokens": 2,
    },
    "/v1/chat/completions": {
        "messages": [{"role": "user", "content": "hello"}],
        "max_tokens": 2,
    },
}


@pytest.mark.parametrize("path", POSTS)
def test_a_post_is_answered_with_200_and_streams_with_events(
    served: Server, path: str
) -> None:
    assert served.post(path, POSTS[path]).status_code == 200
    if "completion" not in path:
        return
    events = served.stream(path, POSTS[path])
    assert all(isinstance(event, dict) for event in events[:-1])
    assert (events[-1] == "[DONE]") is (path not in ("/completion", "/completions"))


def test_pool_mode_and_sharing_are_fields_of_their_own(served: Server) -> None:
    """`n_ctx` is the most that one request can use; clients neither divide nor
    multiply it."""
    props = served.get("/props")
    assert props["default_generation_settings"]["n_ctx"] == 1024
    assert (props["mode"], props["kv_unified"], props["n_pool"]) == (
        "llama-compat",
        False,
        4096,
    )
    assert served.get("/v1/models")["data"][0]["meta"]["n_ctx"] == 1024
    assert [slot["n_ctx"] for slot in served.slots()] == [1024] * 4


def test_status_answers_at_once_while_a_long_prompt_is_read(slow: Server) -> None:
    """Three seconds of reading 3000 tokens, and one more request in the queue."""
    until(lambda: slow.busy() == 0)
    long = {"prompt": "w " * 3000, "n_predict": 5, "cache_prompt": False}
    statuses: list[int] = []

    def post(body: dict[str, Any]) -> None:
        reply = httpx.post(f"{slow.url}/completion", json=body, timeout=60)
        statuses.append(reply.status_code)

    first = threading.Thread(target=post, args=(long,))
    first.start()
    until(lambda: slow.busy() == 1, 1.0)
    second = threading.Thread(target=post, args=({"prompt": "a b", "n_predict": 2},))
    second.start()
    took: list[float] = []
    seen: list[tuple[int, int]] = []
    queued: set[float] = set()

    def timed(path: str) -> httpx.Response:
        began = time.monotonic()
        reply = slow.http.get(path)
        took.append(time.monotonic() - began)
        assert reply.status_code == 200
        return reply

    while first.is_alive():
        (slot,) = timed("/slots").json()
        timed("/health")
        text = timed("/metrics").text
        if slot["n_prompt_tokens"] != 3000:
            break
        assert slot["is_processing"] is True
        decoded = slot["next_token"][0]["n_decoded"]
        seen.append((slot["n_prompt_tokens_processed"], decoded))
        queued |= {
            float(line.split()[1])
            for line in text.splitlines()
            if line.startswith("llamacpp:requests_deferred ")
        }
        time.sleep(0.1)
    first.join()
    second.join()
    assert statuses == [200, 200]
    # Three may be late, when the machine is busy with other things.
    assert len(took) > 30
    assert sorted(took)[-4] < 0.2, sorted(took)[-4:]
    assert seen == sorted(seen)
    assert len({processed for processed, _ in seen}) >= 10
    assert max(queued) == 1
    until(lambda: slow.busy() == 0, 2.0)
    assert slow.metric("llamacpp:requests_deferred") == 0
