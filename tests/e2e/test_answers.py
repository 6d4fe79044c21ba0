"""What an answer is made of: its limits, stop strings, characters, reasons, repeats."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.e2e.server import Server, until

CHAT = "/v1/chat/completions"
TEXTS = {
    "czech": "Příliš žluťoučký kůň",
    "korean": "다람쥐 헌 쳇바퀴에",
    "emoji": "👍🏽 and 👩🏿‍🚀!",
}


def chat(words: str, **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": words}], **more}


def chat_text(toy: Server, body: dict[str, Any], stream: bool) -> tuple[str, str]:
    """The text of a chat, and why it ended."""
    if not stream:
        choice = toy.answer(CHAT, body)["choices"][0]
        return choice["message"]["content"], choice["finish_reason"]
    chunks = toy.stream(CHAT, body)[:-1]
    choices = [chunk["choices"][0] for chunk in chunks if chunk["choices"]]
    text = "".join(choice["delta"].get("content") or "" for choice in choices)
    return text, choices[-1]["finish_reason"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("stop", [["own fox"], "own fox"])
def test_a_stop_string_across_tokens_is_cut_off_whole(
    toy: Server, stop: Any, stream: bool
) -> None:
    assert chat_text(toy, chat("fox", stop=stop), stream) == ("The quick br", "stop")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("stop", [None, "", [], [""]])
def test_no_stop_string_does_not_end_at_once(
    toy: Server, stop: Any, stream: bool
) -> None:
    whole = ("The quick brown fox jumps", "stop")
    assert chat_text(toy, chat("fox", stop=stop), stream) == whole


def test_characters_cut_at_every_byte_come_whole_to_requests_side_by_side(
    toy: Server,
) -> None:
    """Two of each text at once, in four slots that take turns."""
    pieces: dict[tuple[str, int], list[str]] = {}

    def stream(word: str, copy: int) -> None:
        events = toy.stream("/completion", {"prompt": f"{word} {copy}"})
        pieces[word, copy] = [event["content"] for event in events]

    threads = [
        threading.Thread(target=stream, args=(word, copy))
        for copy in range(2)
        for word in TEXTS
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(pieces) == 6
    for (word, _), found in pieces.items():
        assert "".join(found) == TEXTS[word]
        assert not any("\ufffd" in piece for piece in found)
    for word, text in TEXTS.items():
        assert toy.answer("/completion", {"prompt": word})["content"] == text


@pytest.mark.parametrize(
    ("more", "reason"),
    [({}, "stop"), ({"stop": ["own fox"]}, "stop"), ({"max_tokens": 2}, "length")],
    ids=["end", "stop string", "limit"],
)
@pytest.mark.parametrize("usage", [True, False, None])
def test_one_chunk_tells_the_reason_and_usage_comes_in_its_own(
    toy: Server, more: dict[str, Any], reason: str, usage: bool | None
) -> None:
    body = chat("fox one two", **more)
    if usage is not None:
        body["stream_options"] = {"include_usage": usage}
    events = toy.stream(CHAT, body)
    assert events[-1] == "[DONE]"
    reasons = [
        choice["finish_reason"] for event in events[:-1] for choice in event["choices"]
    ]
    assert [found for found in reasons if found is not None] == [reason]
    assert reasons[-1] == reason
    last = events[-2]
    if usage:
        assert last["choices"] == []
        assert last["usage"]["prompt_tokens"] == 3
    else:
        assert not any("usage" in event for event in events[:-1])


@pytest.mark.parametrize("route", ["/completion", "/v1/completions", CHAT])
@pytest.mark.parametrize("stream", [False, True])
def test_a_fault_before_the_first_token_has_a_status_of_its_own(
    toy: Server, route: str, stream: bool
) -> None:
    asked = chat("boom now") if route == CHAT else {"prompt": "boom now"}
    reply = toy.post(route, {**asked, "stream": stream})
    assert reply.status_code == 500
    assert reply.json()["error"]["code"] == 500
    until(lambda: toy.busy() == 0)


@pytest.mark.parametrize("route", ["/completion", "/v1/completions", CHAT])
def test_a_fault_half_way_is_one_event_and_is_counted(toy: Server, route: str) -> None:
    failed = toy.metric("mlxcel_requests_failed_total")
    asked = chat("later now") if route == CHAT else {"prompt": "later now"}
    events = toy.stream(route, {**asked, "max_tokens": 50})
    assert [event for event in events if "error" in event] == events[-1:]
    assert len(events) >= 3
    until(lambda: toy.busy() == 0)
    until(lambda: toy.metric("mlxcel_requests_failed_total") == failed + 1)


EIGHT = [70, 71, 72, 73, 74, 75, 76, 77]


@pytest.mark.parametrize(
    ("limit", "n"),
    [("absent", 248), (None, 248), (-1, 248), (10**9, 248), (1, 1), (0, 1)],
)
def test_an_answer_ends_at_its_limit_or_with_the_window(
    small: Server, limit: Any, n: int
) -> None:
    """256 tokens less eight of the prompt; no token at all is one, as in llama-server,
    which evaluates the prompt with it."""
    body: dict[str, Any] = {"prompt": EIGHT, "ignore_eos": True}
    native = body if limit == "absent" else {**body, "n_predict": limit}
    answer = small.answer("/completion", native)
    assert (answer["tokens_predicted"], answer["stop_type"]) == (n, "limit")
    openai = body if limit == "absent" else {**body, "max_tokens": limit}
    answer = small.answer("/v1/completions", openai)
    assert answer["usage"]["completion_tokens"] == n
    assert answer["choices"][0]["finish_reason"] == "length"
    asked = chat("hello", ignore_eos=True)
    answer = small.answer(
        CHAT, asked if limit == "absent" else {**asked, "max_tokens": limit}
    )
    n_prompt = answer["usage"]["prompt_tokens"]
    wanted = 256 - n_prompt if n == 248 else n
    assert answer["usage"]["completion_tokens"] == wanted
    assert answer["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize("limit", [-2, "5", 2.5, True])
def test_a_limit_that_is_none_is_refused(small: Server, limit: Any) -> None:
    """llama-server refuses -2 with 400 as well."""
    for route, asked in (
        ("/completion", {"prompt": EIGHT, "n_predict": limit}),
        ("/v1/completions", {"prompt": EIGHT, "max_tokens": limit}),
        (CHAT, chat("hello", max_tokens=limit)),
    ):
        reply = small.post(route, asked)
        assert reply.status_code == 400
        assert "Field '" in reply.json()["error"]["message"]


@pytest.mark.parametrize("stream", [False, True])
def test_what_was_answered_before_is_answered_again(
    small: Server, stream: bool
) -> None:
    """The last token of a prompt is always read, whatever is remembered of it."""

    def ask(prompt: list[int]) -> tuple[str, int, int]:
        body = {"prompt": prompt, "n_predict": 20, "temperature": 0}
        if stream:
            events = small.stream("/completion", body)
            text = "".join(event["content"] for event in events)
        else:
            events = [small.answer("/completion", body)]
            text = events[0]["content"]
        times = events[-1]["timings"]
        return text, times["cache_n"], times["prompt_n"]

    prompt = [90 + i for i in range(30 + stream)]
    whole, _, _ = ask(prompt)
    assert ask(prompt) == (whole, len(prompt) - 1, 1)
    prefix, cached, read = ask(prompt[:12])
    assert (cached, read) == (11, 1)
    assert ask([100])[2] == 1
    assert ask(prompt[:12])[0] == prefix
    assert (
        small.post("/completion", {"prompt": "", "stream": stream}).status_code == 400
    )
    assert ask(prompt)[0] == whole
