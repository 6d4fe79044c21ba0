"""Several answers to one prompt: `n`, or `n_cmpl`."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.serving import Served

CHAT = "/v1/chat/completions"
FOX = [{"role": "user", "content": "fox hello"}]
WHOLE = "The quick brown fox jumps"


def test_a_native_request_gets_a_list_with_the_next_seed_for_each(
    served: Served,
) -> None:
    asked = {"prompt": "fox", "n": 3, "seed": 70}
    body = served.post("/completion", asked).json()
    assert [answer["index"] for answer in body] == [0, 1, 2]
    assert [answer["content"] for answer in body] == [WHOLE] * 3
    assert [answer["prompt"] for answer in body] == ["fox"] * 3
    seeds = [answer["generation_settings"]["seed"] for answer in body]
    assert seeds == [70, 71, 72]


def test_every_prompt_gets_its_answers_in_order(served: Served) -> None:
    asked = {"prompt": ["fox", "lines"], "n_cmpl": 2, "seed": 5}
    body = served.post("/completion", asked).json()
    assert [answer["content"] for answer in body] == [WHOLE] * 2 + ["one\ntwo"] * 2
    seeds = [answer["generation_settings"]["seed"] for answer in body]
    assert seeds == [5, 6, 5, 6]


def test_one_answer_is_no_list(served: Served) -> None:
    body = served.post("/completion", {"prompt": "fox", "n": 1}).json()
    assert body["content"] == WHOLE


def test_a_native_stream_tells_answers_apart_by_index(served: Served) -> None:
    events = served.events("/completion", {"prompt": "fox", "n": 2})
    for index in (0, 1):
        mine = [event for event in events if event["index"] == index]
        assert "".join(event["content"] for event in mine) == WHOLE
        assert [event["stop"] for event in mine].index(True) == len(mine) - 1


@pytest.mark.parametrize(
    ("path", "asked"),
    [("/v1/completions", {"prompt": "fox"}), (CHAT, {"messages": FOX})],
)
def test_openais_choices_are_the_answers_and_the_prompt_counts_once(
    served: Served, path: str, asked: dict[str, Any]
) -> None:
    one = served.post(path, {**asked, "max_tokens": 4}).json()
    body = served.post(path, {**asked, "max_tokens": 4, "n": 3}).json()
    choices = body["choices"]
    assert [choice["index"] for choice in choices] == [0, 1, 2]
    assert {choice["finish_reason"] for choice in choices} == {"length"}
    assert choices[0].keys() == one["choices"][0].keys()
    found = [c.get("text") or c["message"]["content"] for c in choices]
    assert found == ["The quick brown fox ju"] * 3
    assert body["usage"]["completion_tokens"] == 12
    assert body["usage"]["prompt_tokens"] == one["usage"]["prompt_tokens"]
    assert body["usage"]["total_tokens"] == 12 + one["usage"]["prompt_tokens"]


def test_a_chat_stream_opens_and_ends_each_answer(served: Served) -> None:
    asked = {"messages": FOX, "n": 2, "stream_options": {"include_usage": True}}
    events = served.events(CHAT, asked)
    assert events.pop() == "[DONE]"
    usage = events.pop()
    assert usage["choices"] == []
    assert usage["usage"]["prompt_tokens"] == 2
    # Five pieces and the end, twice.
    assert usage["usage"]["completion_tokens"] == 12
    for index in (0, 1):
        mine = [e["choices"][0] for e in events if e["choices"][0]["index"] == index]
        assert mine[0]["delta"] == {"role": "assistant", "content": None}
        assert "".join(c["delta"]["content"] for c in mine[1:-1]) == WHOLE
        assert (mine[-1]["delta"], mine[-1]["finish_reason"]) == ({}, "stop")


def test_a_completions_stream_ends_each_answer(served: Served) -> None:
    events = served.events("/v1/completions", {"prompt": "fox", "n": 2})
    assert events.pop() == "[DONE]"
    choices = [event["choices"][0] for event in events]
    for index in (0, 1):
        mine = [choice for choice in choices if choice["index"] == index]
        assert "".join(choice["text"] for choice in mine) == WHOLE
        assert [c["finish_reason"] for c in mine if c["finish_reason"]] == ["stop"]


@pytest.mark.parametrize("path", ["/completion", "/v1/completions", CHAT])
@pytest.mark.parametrize("n", [0, 5])
def test_no_more_answers_than_slots(served: Served, path: str, n: int) -> None:
    asked = {"prompt": "fox", "messages": FOX, "max_tokens": 1}
    for name in ("n", "n_cmpl"):
        reply = served.post(path, {**asked, name: n})
        assert reply.status_code == 400
        assert reply.json()["error"]["message"] == (
            f"Field '{name}': Value must be between 1 <= value <= 4, but got {n}"
        )


def test_answers_that_want_one_slot_take_turns(served: Served) -> None:
    asked = {"messages": FOX, "n": 2, "id_slot": 0, "max_tokens": 3}
    for _ in range(2):
        body = served.post(CHAT, asked).json()
        assert len(body["choices"]) == 2


def test_one_failing_answer_fails_the_request(served: Served) -> None:
    reply = served.post("/completion", {"prompt": "boom now", "n": 2})
    assert reply.status_code == 500
    served.until(served.idle)


def test_more_answers_than_could_ever_wait_are_refused_at_once(served: Served) -> None:
    """Four slots and a queue of 128."""
    assert len(served.post("/completion", {"prompt": ["fox"] * 100}).json()) == 100
    for asked in (
        {"prompt": ["fox"] * 133},
        {"prompt": ["fox"] * 34, "n": 4},
        {"prompt": ["fox"] * 20_000, "stream": True},
    ):
        reply = served.post("/completion", asked)
        assert reply.status_code == 400
        assert "at most 132 answers" in reply.json()["error"]["message"]
