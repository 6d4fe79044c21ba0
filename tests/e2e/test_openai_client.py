"""OpenAI's own client against the daemon."""

from __future__ import annotations

from collections.abc import Iterator

import openai
import pytest

from tests.e2e.server import Server


@pytest.fixture(scope="module")
def client(served: Server) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(
        base_url=f"{served.url}/v1", api_key="none", max_retries=0
    ) as made:
        yield made


def chat(client: openai.OpenAI) -> openai.types.chat.ChatCompletion:
    return client.chat.completions.create(
        model="tiny",
        messages=[{"role": "user", "content": "hello world"}],
        temperature=0,
        max_tokens=12,
        extra_body={"ignore_eos": True},
    )


def test_models_are_listed(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["tiny"]


def test_a_chat_is_answered(client: openai.OpenAI) -> None:
    answer = chat(client)
    (choice,) = answer.choices
    assert answer.object == "chat.completion"
    assert choice.message.role == "assistant"
    assert choice.message.content
    assert choice.finish_reason == "length"
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 12


def test_a_chat_is_streamed(client: openai.OpenAI) -> None:
    chunks = list(
        client.chat.completions.create(
            model="tiny",
            messages=[{"role": "user", "content": "hello world"}],
            temperature=0,
            max_tokens=12,
            stream=True,
            stream_options={"include_usage": True},
            extra_body={"ignore_eos": True},
        )
    )
    choices = [chunk.choices[0] for chunk in chunks if chunk.choices]
    text = "".join(choice.delta.content or "" for choice in choices)
    assert text == chat(client).choices[0].message.content
    assert [c.finish_reason for c in choices if c.finish_reason] == ["length"]
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 12


@pytest.mark.parametrize("prompt", ["hello world", [[70, 71, 72]]])
def test_a_text_is_completed(client: openai.OpenAI, prompt: str) -> None:
    answer = client.completions.create(
        model="tiny", prompt=prompt, temperature=0, max_tokens=5
    )
    assert answer.object == "text_completion"
    assert answer.choices[0].finish_reason in ("length", "stop")
    pieces = client.completions.create(
        model="tiny", prompt=prompt, temperature=0, max_tokens=5, stream=True
    )
    text = "".join(piece.choices[0].text for piece in pieces if piece.choices)
    assert text == answer.choices[0].text


def test_a_prompt_too_long_is_an_error_of_the_client(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as error:
        client.completions.create(model="tiny", prompt="z" * 1100)
    assert isinstance(error.value.body, dict)
    assert error.value.body["type"] == "exceed_context_size_error"
