"""Tools in chats: what the model is told, and its calls in answers and streams."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import openai
import pytest

from mlxceld.settings import ModelSettings
from tests import fake
from tests.api.serving import SETTINGS, Served, serve

CHAT = "/v1/chat/completions"

TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "tells the weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}

TEMPLATE = (
    "{% for m in messages %}{{ m.content }} "
    "{% for call in m.tool_calls %}<tool_call>{{ call.function.name }}"
    "({% for key, value in call.function.arguments.items() %}{{ key }}={{ value }}"
    "{% endfor %})</tool_call> {% endfor %}{% endfor %}"
    "{% if tools %}tools: {{ tools | map(attribute='function.name') | join(',') }}"
    "{% endif %}<think>"
)

SCRIPT = fake.Script(
    answers={
        "ask": [
            "hm</think>",
            "Let me see.",
            "\n\n<tool",
            '_call>\n{"name": "wea',
            'ther", "arguments": {"city"',
            ': "Bonn"}}\n</tool_call>',
        ],
        "twice": [
            "</think>",
            '<tool_call>{"name": "weather", "arguments": {}}</tool_call>\n',
            '<tool_call>{"name": "weather", "arguments": {}}</tool_call>',
        ],
        "broken": ["</think><tool_call>", "{oops}</tool_call>"],
        "must": ['{"name": "weather", ', '"arguments": {"city": "Bonn"}}'],
    },
    chat_template=TEMPLATE,
)


@pytest.fixture(scope="module")
def caller() -> Iterator[Served]:
    with serve(SCRIPT) as running:
        yield running


def asked(words: str, **more: Any) -> dict[str, Any]:
    return {
        "messages": [{"role": "user", "content": words}],
        "tools": [TOOL],
        **more,
    }


def choice(served: Served, words: str, **more: Any) -> dict[str, Any]:
    reply = served.post(CHAT, asked(words, **more))
    assert reply.status_code == 200, reply.text
    found: dict[str, Any] = reply.json()["choices"][0]
    return found


def test_a_call_has_an_id_a_name_and_arguments(caller: Served) -> None:
    found = choice(caller, "ask")
    assert found["finish_reason"] == "tool_calls"
    message = found["message"]
    (call,) = message.pop("tool_calls")
    assert message == {
        "role": "assistant",
        "content": "Let me see.",
        "reasoning_content": "hm",
    }
    assert len(call.pop("id")) == 32
    assert call == {
        "type": "function",
        "function": {"name": "weather", "arguments": '{"city": "Bonn"}'},
    }


def test_a_stream_has_the_name_once_and_then_the_arguments(caller: Served) -> None:
    events = caller.events(CHAT, asked("ask"))
    chunks = [chunk["choices"][0] for chunk in events[:-1]]
    deltas = [chunk["delta"] for chunk in chunks]
    call_id = deltas[3]["tool_calls"][0].pop("id")
    assert len(call_id) == 32
    assert deltas == [
        {"role": "assistant", "content": None},
        {"reasoning_content": "hm"},
        {"content": "Let me see."},
        {
            "tool_calls": [
                {
                    "index": 0,
                    "type": "function",
                    "function": {"name": "weather", "arguments": ""},
                }
            ]
        },
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"city"'}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": ': "Bonn"}'}}]},
        {},
    ]
    reasons = [chunk["finish_reason"] for chunk in chunks]
    assert reasons == [None] * 6 + ["tool_calls"]


def test_openais_own_client_puts_a_streamed_call_together(caller: Served) -> None:
    client = openai.OpenAI(base_url=f"{caller.url}/v1", api_key="x")
    words: dict[str, Any] = asked("ask")
    arguments, names = "", []
    for chunk in client.chat.completions.create(model="toy", stream=True, **words):
        for call in chunk.choices[0].delta.tool_calls or []:
            names += [call.function.name] if call.function.name else []
            arguments += call.function.arguments or ""
    assert (names, json.loads(arguments)) == (["weather"], {"city": "Bonn"})


@pytest.mark.parametrize(
    "choose", ["required", {"type": "function", "function": {"name": "weather"}}]
)
def test_a_call_that_must_be_made_is_the_whole_answer(
    caller: Served, choose: Any
) -> None:
    found = choice(caller, "must", tool_choice=choose, verbose=True)
    assert found["finish_reason"] == "tool_calls"
    assert found["message"]["content"] == ""
    (call,) = found["message"]["tool_calls"]
    assert call["function"] == {"name": "weather", "arguments": '{"city": "Bonn"}'}


def test_calls_are_parallel_unless_the_request_says_no(caller: Served) -> None:
    assert len(choice(caller, "twice")["message"]["tool_calls"]) == 2
    one = choice(caller, "twice", parallel_tool_calls=False)
    assert len(one["message"]["tool_calls"]) == 1


def test_an_answer_that_was_cut_says_so(caller: Served) -> None:
    found = choice(caller, "ask", max_tokens=5)
    assert found["finish_reason"] == "length"
    (call,) = found["message"]["tool_calls"]
    assert call["function"] == {"name": "weather", "arguments": '{"city"'}


def test_what_is_no_call_is_content(caller: Served) -> None:
    found = choice(caller, "broken")
    assert found["finish_reason"] == "stop"
    assert found["message"] == {
        "role": "assistant",
        "content": "<tool_call>{oops}</tool_call>",
    }


def test_without_tools_nothing_is_looked_for(caller: Served) -> None:
    hidden: list[dict[str, Any]] = [{"tools": []}, {"tool_choice": "none"}]
    for more in hidden:
        message = choice(caller, "ask", **more)["message"]
        assert "tool_calls" not in message
        assert message["content"].startswith("Let me see.\n\n<tool_call>")


def test_the_template_sees_the_tools(caller: Served) -> None:
    def prompt(**more: Any) -> str:
        found: str = caller.post("/apply-template", asked("a", **more)).json()["prompt"]
        return found

    assert prompt() == "a tools: weather<think>"
    assert prompt(tool_choice="none") == "a <think>"
    # A call from the first token on: reasoning is not wanted then.
    assert prompt(tool_choice="required") == "a tools: weather<think></think>"


HISTORY = [
    {"role": "user", "content": "first"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": "call00001",
                "type": "function",
                "function": {"name": "weather", "arguments": '{"city": "Bonn"}'},
            }
        ],
    },
    {"role": "tool", "tool_call_id": "call00001", "content": "sunny"},
    {
        "role": "user",
        "content": [{"type": "text", "text": "and"}, {"type": "text", "text": "now?"}],
    },
]

JOINS = (
    "{% for m in messages %}{{ m.role + ': ' + m.content + '\\n' }}"
    "{% if m.tool_calls %}{% for call in m.tool_calls %}"
    "{{ call.function.name + ' ' + call.function.arguments + '\\n' }}"
    "{% endfor %}{% endif %}{% endfor %}"
)

RAISES = (
    "{% for m in messages %}{% if m.role == 'tool' %}"
    "{{ raise_exception('Only user and assistant turns, please!') }}"
    "{% endif %}{{ m.content }}{% endfor %}"
)


def with_template(text: str) -> Any:
    model = ModelSettings(path="/models/toy", alias=("toy",), chat_template=text)
    return replace(SETTINGS, model=model)


def test_an_assistant_turn_with_calls_and_no_content_is_rendered() -> None:
    with serve(settings=with_template(JOINS)) as served:
        reply = served.post("/apply-template", {"messages": HISTORY})
        assert reply.json()["prompt"] == (
            "user: first\nassistant: \n"
            'weather {"city": "Bonn"}\n'
            "tool: sunny\nuser: and\nnow?\n"
        )
        reply = served.post(CHAT, {"messages": HISTORY, "max_tokens": 1})
        assert reply.status_code == 200


def test_a_templates_own_error_is_400_with_its_words() -> None:
    with serve(settings=with_template(RAISES)) as served:
        for stream in (False, True):
            reply = served.post(CHAT, {"messages": HISTORY, "stream": stream})
            assert reply.status_code == 400
            message = reply.json()["error"]["message"]
            assert "Only user and assistant turns, please!" in message


def test_templates_that_want_objects_get_the_arguments_as_such(caller: Served) -> None:
    reply = caller.post("/apply-template", {"messages": HISTORY})
    assert "<tool_call>weather(city=Bonn)</tool_call>" in reply.json()["prompt"]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"tools": [{"type": "web"}]}, 'Unsupported tool type: "web"'),
        ({"tool_choice": "zzz"}, "Invalid tool_choice: zzz"),
        ({"parallel_tool_calls": 1}, "parallel_tool_calls"),
        ({"grammar": 'root ::= "a"'}, "Cannot use custom grammar constraints"),
        ({"logprobs": True, "stream": True}, "not supported with tools + stream"),
        (
            {"tool_choice": "required", "json_schema": {"type": "object"}},
            "Cannot use custom grammar constraints",
        ),
    ],
)
def test_mistakes_about_tools_are_400(
    caller: Served, more: dict[str, Any], words: str
) -> None:
    reply = caller.post(CHAT, asked("a", **more))
    assert reply.status_code == 400, reply.text
    assert words in reply.json()["error"]["message"]


def test_tools_need_the_models_template() -> None:
    model = ModelSettings(path="/models/toy", alias=("toy",), jinja=False)
    with serve(settings=replace(SETTINGS, model=model)) as served:
        reply = served.post(CHAT, asked("a"))
        assert reply.status_code == 400
        assert "tools param requires --jinja flag" in reply.text
