"""Reasoning in chat answers: where it goes, and how it is turned off."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from mlxceld.settings import ModelSettings
from tests import fake
from tests.api.serving import SETTINGS, Served, serve

CHAT = "/v1/chat/completions"

TEMPLATE = (
    "{% for m in messages %}{{ m.content }} {% endfor %}"
    "{% if add_generation_prompt %}"
    "{% if enable_thinking is defined and not enable_thinking %}<think></think>"
    "{% elif opened %}<think>\n{% endif %}{% endif %}"
    "{% if reasoning_effort %}effort={{ reasoning_effort }}{% endif %}"
)

OPENS = "{% for m in messages %}{{ m.content }} {% endfor %}{{ '<think>\\n' }}"
"""A template that lets no answer begin without reasoning."""

SCRIPT = fake.Script(
    answers={
        "sum": ["<th", "ink>\nhm", ", 2", "+2 </", "think>\n\n", "four", " it is"],
        "inside": ["hm", "</think>", "four"],
        "only": ["<think>hm"],
    },
    chat_template=TEMPLATE,
)


def model(**more: Any) -> ModelSettings:
    return ModelSettings(path="/models/toy", alias=("toy",), **more)


@pytest.fixture(scope="module")
def thinker() -> Iterator[Served]:
    with serve(SCRIPT) as running:
        yield running


def ask(served: Served, words: str, **more: Any) -> dict[str, Any]:
    asked = {"messages": [{"role": "user", "content": words}], **more}
    reply = served.post(CHAT, asked)
    assert reply.status_code == 200, reply.text
    choice: dict[str, Any] = reply.json()["choices"][0]
    return choice


def prompt(served: Served, **more: Any) -> str:
    asked = {"messages": [{"role": "user", "content": "sum"}], **more}
    reply = served.post("/apply-template", asked)
    assert reply.status_code == 200, reply.text
    found: str = reply.json()["prompt"]
    return found


def test_reasoning_has_a_field_of_its_own(thinker: Served) -> None:
    assert ask(thinker, "sum") == {
        "finish_reason": "stop",
        "index": 0,
        "message": {
            "role": "assistant",
            "content": "four it is",
            "reasoning_content": "hm, 2+2",
        },
    }
    choice = ask(thinker, "sum", max_tokens=3)
    assert choice["finish_reason"] == "length"
    assert choice["message"] == {
        "role": "assistant",
        "content": "",
        "reasoning_content": "hm, 2",
    }


def test_it_streams_in_a_field_of_its_own_and_without_its_markers(
    thinker: Served,
) -> None:
    asked = {"messages": [{"role": "user", "content": "sum"}]}
    chunks = thinker.events(CHAT, asked)[:-1]
    assert [chunk["choices"][0]["delta"] for chunk in chunks] == [
        {"role": "assistant", "content": None},
        {"reasoning_content": "hm"},
        {"reasoning_content": ", 2"},
        {"reasoning_content": "+2"},
        {"content": "four"},
        {"content": " it is"},
        {},
    ]


def test_the_format_may_be_said_by_the_request(thinker: Served) -> None:
    whole = "<think>\nhm, 2+2 </think>\n\nfour it is"
    message = ask(thinker, "sum", reasoning_format="none")["message"]
    assert message == {"role": "assistant", "content": whole}
    message = ask(thinker, "sum", reasoning_format="deepseek-legacy")["message"]
    assert message["content"] == whole
    assert message["reasoning_content"] == "hm, 2+2"
    assert ask(thinker, "sum", reasoning_format="auto") == ask(thinker, "sum")
    reply = thinker.post(
        CHAT,
        {"messages": [{"role": "user", "content": "a"}], "reasoning_format": "x"},
    )
    assert reply.status_code == 400
    assert "reasoning_format" in reply.json()["error"]["message"]


def test_an_answer_may_begin_within_reasoning_that_the_prompt_opened(
    thinker: Served,
) -> None:
    opened = {"chat_template_kwargs": {"opened": True}}
    message = ask(thinker, "inside", **opened)["message"]
    assert (message["reasoning_content"], message["content"]) == ("hm", "four")
    # What the client began itself is no reasoning.
    asked = [
        {"role": "user", "content": "inside"},
        {"role": "assistant", "content": "So: "},
    ]
    message = thinker.post(CHAT, {"messages": asked, **opened}).json()
    assert message["choices"][0]["message"] == {
        "role": "assistant",
        "content": "So: hm</think>four",
    }


def test_reasoning_is_turned_off_by_many_words(thinker: Served) -> None:
    assert prompt(thinker) == "sum "
    for off in (
        {"chat_template_kwargs": {"enable_thinking": False}},
        {"reasoning_effort": "none"},
        {"thinking_budget_tokens": 0},
        {"reasoning_budget_tokens": 0},
    ):
        assert prompt(thinker, **off) == "sum <think></think>", off
    on = {"thinking_budget_tokens": 9, "chat_template_kwargs": {"opened": True}}
    assert prompt(thinker, **on) == "sum <think>\n"
    assert prompt(thinker, reasoning_effort="high") == "sum effort=high"
    wrong = {"messages": [{"role": "user", "content": "a"}]}
    reply = thinker.post(
        CHAT, {**wrong, "chat_template_kwargs": {"enable_thinking": "no"}}
    )
    assert reply.status_code == 400
    assert "enable_thinking must be a boolean" in reply.json()["error"]["message"]


def test_the_options_turn_it_off_and_a_request_on_again() -> None:
    off = replace(SETTINGS, model=model(reasoning="off", reasoning_effort="low"))
    with serve(SCRIPT, settings=off) as served:
        assert prompt(served) == "sum <think></think>effort=low"
        assert prompt(served, reasoning_effort="high").endswith("effort=high")
        again = {"chat_template_kwargs": {"enable_thinking": True}}
        assert prompt(served, **again) == "sum effort=low"
    budget = replace(SETTINGS, model=model(reasoning_budget=0))
    with serve(SCRIPT, settings=budget) as served:
        assert prompt(served) == "sum <think></think>"


def test_reasoning_that_a_template_always_opens_is_closed() -> None:
    settings = replace(SETTINGS, model=model(chat_template=OPENS, reasoning="off"))
    with serve(SCRIPT, settings=settings) as served:
        assert prompt(served) == "sum <think>\n</think>"
        assert ask(served, "only")["message"]["reasoning_content"] == "hm"


def test_verbose_answers_tell_the_format(thinker: Served) -> None:
    asked = {
        "messages": [{"role": "user", "content": "sum"}],
        "verbose": True,
        "chat_template_kwargs": {"opened": True},
    }
    told = thinker.post(CHAT, asked).json()["__verbose"]["generation_settings"]
    assert told["chat_format"] == "reasoning"
    assert told["reasoning_format"] == "deepseek"
    assert told["reasoning_in_content"] is False
    assert told["generation_prompt"] == "<think>\n"
