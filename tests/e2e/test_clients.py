"""What answers must look like, through the clients that people use.

The model is random: whatever is well formed here is so because the engine made it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import anthropic
import openai
import pytest
from pydantic import BaseModel

from tests.e2e.server import Server


class Fox(BaseModel):
    """Bounded, so that a random model comes to its end."""

    kind: Literal["red", "grey", "arctic"]
    wild: bool


SCHEMA = Fox.model_json_schema()
TALK: Any = [{"role": "user", "content": "tell me of a fox"}]
FUNCTION: Any = {
    "type": "function",
    "function": {"name": "see", "parameters": SCHEMA},
}


@pytest.fixture(scope="module")
def client(served: Server) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(
        base_url=f"{served.url}/v1", api_key="none", max_retries=0
    ) as made:
        yield made


@pytest.fixture(scope="module")
def claude(served: Server) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(
        base_url=served.url, api_key="none", max_retries=0
    ) as made:
        yield made


def test_openais_client_parses_a_chat(client: openai.OpenAI) -> None:
    answer = client.chat.completions.parse(
        model="tiny", messages=TALK, response_format=Fox, max_tokens=200, seed=1
    )
    assert isinstance(answer.choices[0].message.parsed, Fox)
    assert answer.choices[0].finish_reason == "stop"


def test_openais_client_parses_a_streamed_chat(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(
        model="tiny", messages=TALK, response_format=Fox, max_tokens=200, seed=2
    ) as stream:
        for _ in stream:
            pass
        answer = stream.get_final_completion()
    assert isinstance(answer.choices[0].message.parsed, Fox)


def test_openais_client_parses_a_response(client: openai.OpenAI) -> None:
    answer = client.responses.parse(
        model="tiny", input="a fox", text_format=Fox, max_output_tokens=200
    )
    assert isinstance(answer.output_parsed, Fox)


def test_anthropics_client_gets_what_its_schema_says(
    claude: anthropic.Anthropic,
) -> None:
    schema = {"type": "json_schema", "schema": SCHEMA}
    answer = claude.messages.create(
        model="tiny",
        max_tokens=200,
        messages=TALK,
        extra_body={"output_config": {"format": schema}},
    )
    (block,) = answer.content
    assert block.type == "text"
    Fox.model_validate_json(block.text)
    assert answer.stop_reason == "end_turn"


def test_a_tool_that_must_be_called_is_called(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model="tiny",
        messages=TALK,
        tools=[FUNCTION],
        tool_choice="required",
        max_tokens=300,
    )
    (call,) = answer.choices[0].message.tool_calls or []
    assert call.type == "function"
    assert call.function.name == "see"
    Fox.model_validate_json(call.function.arguments)
    assert answer.choices[0].finish_reason == "tool_calls"


def test_a_streamed_call_comes_together(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(
        model="tiny",
        messages=TALK,
        tools=[FUNCTION],
        tool_choice="required",
        max_tokens=300,
    ) as stream:
        for _ in stream:
            pass
        answer = stream.get_final_completion()
    (call,) = answer.choices[0].message.tool_calls or []
    assert call.function.name == "see"
    Fox.model_validate_json(call.function.arguments)


def test_anthropics_client_gets_the_call_that_it_asked_for(
    claude: anthropic.Anthropic,
) -> None:
    tool: Any = {"name": "see", "input_schema": SCHEMA}
    with claude.messages.stream(
        model="tiny",
        max_tokens=300,
        messages=TALK,
        tools=[tool],
        tool_choice={"type": "tool", "name": "see"},
    ) as stream:
        answer = stream.get_final_message()
    (block,) = answer.content
    assert block.type == "tool_use"
    Fox.model_validate(block.input)
    assert answer.stop_reason == "tool_use"


def test_a_schema_that_cannot_be_is_an_error_of_the_client(
    client: openai.OpenAI, claude: anthropic.Anthropic
) -> None:
    bad = {"type": "json_schema", "schema": {"type": "fox"}}
    wanted: Any = {"type": "json_schema", "json_schema": {"name": "a", **bad}}
    with pytest.raises(openai.BadRequestError, match="schema"):
        client.chat.completions.create(
            model="tiny", messages=TALK, response_format=wanted
        )
    with pytest.raises(anthropic.BadRequestError, match="schema"):
        claude.messages.create(
            model="tiny",
            max_tokens=9,
            messages=TALK,
            extra_body={"output_config": {"format": bad}},
        )


def test_what_is_not_served_is_told_apart_from_a_wrong_address(
    client: openai.OpenAI,
) -> None:
    with pytest.raises(openai.APIStatusError) as refused:
        client.embeddings.create(model="tiny", input="a fox")
    assert refused.value.status_code == 501
    with pytest.raises(openai.NotFoundError):
        client.files.list()


@pytest.mark.parametrize("stream", [False, True])
def test_a_value_that_is_out_of_bounds_is_named(
    client: openai.OpenAI, stream: bool
) -> None:
    with pytest.raises(openai.BadRequestError, match="Field 'temperature'"):
        client.chat.completions.create(
            model="tiny", messages=TALK, temperature=-1, stream=stream
        )
    with pytest.raises(openai.BadRequestError, match="'input' must not be empty"):
        client.responses.create(model="tiny", input=[])
