"""OpenAI's Responses API, as its own client and as raw events."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from tests.api.serving import Served
from tests.api.test_anthropic import named_events

PATH = "/v1/responses"


def test_an_answer_has_llama_servers_keys(served: Served) -> None:
    body = served.post(PATH, {"input": "fox a", "max_output_tokens": 3}).json()
    assert body.pop("id").startswith("resp_")
    assert body.pop("completed_at") >= body.pop("created_at") > 0
    (item,) = body.pop("output")
    assert item.pop("id").startswith("msg_")
    assert item == {
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [
            {
                "type": "output_text",
                "annotations": [],
                "logprobs": [],
                "text": "The quick brown f",
            }
        ],
    }
    usage = body.pop("usage")
    assert usage.pop("input_tokens_details")["cached_tokens"] in (0, 1)
    assert usage == {"input_tokens": 2, "output_tokens": 3, "total_tokens": 5}
    assert body == {
        "model": "toy",
        "object": "response",
        "status": "completed",
        "incomplete_details": {"reason": "max_output_tokens"},
    }


def test_an_answer_that_ends_by_itself_is_not_incomplete(served: Served) -> None:
    body = served.post(PATH, {"input": "fox"}).json()
    assert "incomplete_details" not in body
    assert body["output"][0]["content"][0]["text"] == "The quick brown fox jumps"


def test_the_events_of_a_stream_come_in_llama_servers_order(served: Served) -> None:
    asked = {"input": "fox", "max_output_tokens": 2, "stream": True}
    events = named_events(served.post(PATH, asked).text)
    assert [name for name, _ in events] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert all(data["type"] == name for name, data in events)
    assert [data["sequence_number"] for _, data in events] == list(range(10))
    response = events[0][1]["response"]
    assert response["status"] == "in_progress"
    added = events[2][1]
    assert (added["item"]["status"], added["item"]["content"]) == ("in_progress", [])
    item = added["item"]["id"]
    assert [data["item_id"] for _, data in events[3:8]] == [item] * 5
    assert [events[i][1]["delta"] for i in (4, 5)] == ["The ", "quick br"]
    assert events[6][1]["text"] == "The quick br"
    last = events[-1][1]
    assert last["response"]["id"] == response["id"]
    assert last["response"]["output"] == [events[8][1]["item"]]
    assert last["timings"]["predicted_n"] == 2


def test_progress_and_timings_come_when_they_are_asked_for(served: Served) -> None:
    asked = {
        "input": "fox reads " + "a long prompt " * 30,
        "max_output_tokens": 2,
        "stream": True,
        "cache_prompt": False,
        "return_progress": True,
        "timings_per_token": True,
    }
    events = named_events(served.post(PATH, asked).text)
    told = [data for _, data in events if "prompt_progress" in data]
    assert told
    assert {data["type"] for data in told} == {"response.in_progress"}
    assert told[-1]["prompt_progress"]["total"] == 92
    deltas = [data for name, data in events if name == "response.output_text.delta"]
    assert all("prompt_per_second" in data["timings"] for data in deltas)


def test_items_and_instructions_reach_the_template(served: Served) -> None:
    asked = {
        "instructions": "fox",
        "input": [
            {"role": "developer", "content": "trots"},
            {"role": "user", "content": [{"type": "input_text", "text": "sky?"}]},
            {
                "type": "function_call",
                "call_id": "call_1",
                "name": "look",
                "arguments": "{}",
            },
            {"type": "function_call_output", "call_id": "call_1", "output": "blue"},
        ],
        "max_output_tokens": 1,
    }
    body = served.post(PATH, asked).json()
    assert body["output"][0]["content"][0]["text"] == "The "
    assert body["usage"]["input_tokens"] == 4


@pytest.mark.parametrize(
    ("asked", "status", "words"),
    [
        ({}, 400, "'input' is required"),
        (
            {"input": "x", "previous_response_id": "resp_1"},
            400,
            "this server does not support 'previous_response_id': it keeps no "
            "responses",
        ),
        ({"input": []}, 400, "'input' must not be empty"),
        ({"input": [5]}, 400, "input[0]: must be an object"),
        (
            {"input": [{"type": "item_reference", "id": "x"}]},
            501,
            "input[0]: items of type 'item_reference' are not supported",
        ),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image"}]}]},
            501,
            "input[0].content[0]: image input is not supported",
        ),
    ],
)
def test_what_cannot_be_answered_says_why(
    served: Served, asked: dict[str, Any], status: int, words: str
) -> None:
    reply = served.post(PATH, asked)
    assert reply.status_code == status
    assert reply.json()["error"]["message"] == words


def test_a_failure_half_way_is_a_bare_error_and_the_end(served: Served) -> None:
    text = served.post(PATH, {"input": "later", "stream": True}).text
    assert text.endswith(
        'data: {"error":{"code":500,"message":"scripted fault in a step",'
        '"type":"server_error"}}\n\n'
    )
    assert "response.completed" not in text


@pytest.fixture
def client(served: Served) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0)


def test_the_client_reads_an_answer(client: openai.OpenAI) -> None:
    response = client.responses.create(model="toy", input="fox", max_output_tokens=3)
    assert response.output_text == "The quick brown f"
    assert response.status == "completed"
    assert response.usage is not None
    assert response.usage.output_tokens == 3


def test_the_client_puts_a_stream_together(client: openai.OpenAI) -> None:
    with client.responses.stream(model="toy", input="fox") as running:
        deltas = [
            event.delta
            for event in running
            if event.type == "response.output_text.delta"
        ]
        response = running.get_final_response()
    assert "".join(deltas) == response.output_text == "The quick brown fox jumps"


def test_the_client_raises_for_a_failure_half_way(client: openai.OpenAI) -> None:
    with pytest.raises(openai.APIError, match="scripted fault"):
        list(client.responses.create(model="toy", input="later", stream=True))
