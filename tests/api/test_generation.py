"""Options and fields that bound an answer: context shift, budgets, forms of chats."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from mlxceld.api.grammars import with_default
from mlxceld.plan import Wish
from mlxceld.settings import (
    EngineSettings,
    ModelSettings,
    SamplingSettings,
    Settings,
)
from tests import fake
from tests.api.serving import SETTINGS, Served, serve

CHAT = "/v1/chat/completions"

TEMPLATE = (
    "{% for m in messages %}{{ m.content }} "
    "{% if m.reasoning_content %}({{ m.reasoning_content }}) {% endif %}{% endfor %}"
    "{% if preserve_thinking %}keep {% endif %}"
    "{% if clear_thinking %}clear {% endif %}"
    "{% if opened %}<think>\n{% endif %}"
)

SCRIPT = fake.Script(
    answers={
        "ponder": ["<think>", "a ", "b ", "c ", "d ", "e ", "f"],
        "inside": ["a ", "b ", "c ", "d ", "e ", "f"],
        "short": ["<think>", "a ", "</think>", "b ", "c"],
        "plain": ["a ", "b ", "c"],
    },
    chat_template=TEMPLATE,
)

SMALL = Wish(mode="llama-compat", ctx_size=128, parallel=2, min_slot_ctx=1)
"""Two slots of 64 tokens."""


def with_model(**more: Any) -> Settings:
    return replace(
        SETTINGS, model=ModelSettings(path="/models/toy", alias=("toy",), **more)
    )


@pytest.fixture(scope="module")
def bounded() -> Iterator[Served]:
    """A budget of two tokens and a message, and a context that shifts."""
    settings = with_model(reasoning_budget=2, reasoning_budget_message="enough ")
    settings = replace(settings, engine=EngineSettings(context_shift=True, n_keep=5))
    with serve(SCRIPT, settings=settings, wish=SMALL) as running:
        yield running


@pytest.fixture(scope="module")
def bare() -> Iterator[Served]:
    """Nothing is taken out of chats, and nothing goes on from them."""
    settings = with_model(
        skip_chat_parsing=True, prefill_assistant=False, reasoning_preserve=False
    )
    with serve(SCRIPT, settings=settings, wish=SMALL) as running:
        yield running


def message(served: Served, words: str, **more: Any) -> dict[str, Any]:
    asked = {"messages": [{"role": "user", "content": words}], **more}
    reply = served.post(CHAT, asked)
    assert reply.status_code == 200, reply.text
    found: dict[str, Any] = reply.json()["choices"][0]["message"]
    del found["role"]
    return found


# ---- context shift ----


def test_a_full_context_shifts_and_the_answer_says_so(bounded: Served) -> None:
    words = " ".join(f"w{i}" for i in range(40))
    reply = bounded.post("/completion", {"prompt": words, "n_predict": 96}).json()
    assert (reply["tokens_predicted"], reply["tokens_evaluated"]) == (96, 40)
    assert (reply["timings"]["prompt_n"], reply["timings"]["predicted_n"]) == (40, 96)
    assert (reply["truncated"], reply["stop_type"]) == (True, "limit")
    assert reply["tokens_cached"] < 64
    assert reply["generation_settings"]["n_keep"] == 5
    choice = bounded.post("/v1/completions", {"prompt": words, "max_tokens": 96})
    assert choice.json()["usage"]["completion_tokens"] == 96


def test_a_prompt_that_is_too_long_is_refused_as_ever(bounded: Served) -> None:
    reply = bounded.post("/completion", {"prompt": "w " * 64})
    assert reply.status_code == 400
    assert reply.json()["error"]["type"] == "exceed_context_size_error"


def test_without_the_option_fields_of_a_shift_ask_for_nothing(bare: Served) -> None:
    asked = {"prompt": "w " * 40, "n_predict": 96, "n_keep": -1, "n_discard": 3}
    reply = bare.post("/completion", asked).json()
    assert (reply["tokens_predicted"], reply["truncated"]) == (24, True)


# ---- budgets of reasoning ----


def test_reasoning_ends_with_its_budget(bounded: Served) -> None:
    """`enough` and the marker take the place of two tokens of the script."""
    found = message(bounded, "ponder")
    assert found == {"content": "e f", "reasoning_content": "a b enough"}


def test_a_request_may_say_otherwise(bounded: Served) -> None:
    found = message(bounded, "ponder", thinking_budget_tokens=1)
    assert found == {"content": "d e f", "reasoning_content": "a enough"}
    asked = {"reasoning_budget_tokens": 3, "reasoning_budget_message": "So: now."}
    found = message(bounded, "ponder", **asked)
    assert found == {"content": "f", "reasoning_content": "a b c So: now."}
    found = message(bounded, "ponder", reasoning_budget_tokens=-1)
    assert found == {"content": "", "reasoning_content": "a b c d e f"}


def test_reasoning_that_the_prompt_opened_counts_from_the_first_token(
    bounded: Served,
) -> None:
    opened = {"chat_template_kwargs": {"opened": True}}
    found = message(bounded, "inside", **opened)
    assert found == {"content": "e f", "reasoning_content": "a b enough"}


def test_what_has_no_long_reasoning_is_left_alone(bounded: Served) -> None:
    assert message(bounded, "plain") == {"content": "a b c"}
    found = message(bounded, "short")
    assert found == {"content": "b c", "reasoning_content": "a"}


def test_the_text_of_a_budget_streams_like_any_other(bounded: Served) -> None:
    asked = {"messages": [{"role": "user", "content": "ponder"}]}
    chunks = bounded.events(CHAT, asked)[:-1]
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    thoughts = "".join(delta.get("reasoning_content", "") for delta in deltas)
    assert thoughts.split() == ["a", "b", "enough"]
    assert "".join(delta.get("content") or "" for delta in deltas) == "e f"


def test_anthropics_budget_is_one_too(bounded: Served) -> None:
    asked = {
        "max_tokens": 20,
        "messages": [{"role": "user", "content": "ponder"}],
        "thinking": {"type": "enabled", "budget_tokens": 1},
    }
    blocks = bounded.post("/v1/messages", asked).json()["content"]
    assert [block["type"] for block in blocks] == ["thinking", "text"]
    assert (blocks[0]["thinking"], blocks[1]["text"]) == ("a enough", "d e f")


def test_a_prefilled_answer_is_bounded_only_within_its_reasoning(
    bounded: Served,
) -> None:
    for prefill, content in (
        ("So ", "So <think>a b c d e f"),
        ("<think>x</think>", "<think>a b c d e f"),
        ("<think>x ", "d e f"),
    ):
        asked = [
            {"role": "user", "content": "ponder"},
            {"role": "assistant", "content": prefill},
        ]
        reply = bounded.post(CHAT, {"messages": asked}).json()
        assert reply["choices"][0]["message"]["content"] == content, prefill


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("thinking_budget_tokens", -2),
        ("reasoning_budget_tokens", "9"),
        ("reasoning_budget_message", 5),
    ],
)
def test_mistakes_name_the_field(bounded: Served, name: str, value: Any) -> None:
    asked = {"messages": [{"role": "user", "content": "a"}], name: value}
    reply = bounded.post(CHAT, asked)
    assert reply.status_code == 400
    assert f"Field '{name}'" in reply.json()["error"]["message"]


# ---- forms of chats ----


def test_chats_may_be_left_as_the_model_writes_them(bare: Served) -> None:
    assert message(bare, "short") == {"content": "<think>a </think>b c"}


TURNS = [
    {"role": "user", "content": "q"},
    {"role": "assistant", "content": "r", "reasoning_content": "hm"},
]


def prompt(served: Served, **asked: Any) -> str:
    found: str = served.post("/apply-template", asked).json()["prompt"]
    return found


def test_a_message_at_the_end_may_be_an_answer_that_was_given(bare: Served) -> None:
    assert prompt(bare, messages=TURNS) == "q r clear "
    assert prompt(bare, messages=TURNS, continue_final_message=True) == "q clear r"


def test_the_template_sees_earlier_reasoning_unless_it_is_left_out(
    bounded: Served, bare: Served
) -> None:
    turns = [*TURNS, {"role": "user", "content": "s"}]
    assert prompt(bounded, messages=turns) == "q r (hm) s keep "
    assert prompt(bare, messages=turns) == "q r s clear "
    own = {"preserve_thinking": False}
    found = prompt(bounded, messages=turns, chat_template_kwargs=own)
    assert found == "q r (hm) s "


# ---- grammars of the options ----


def test_a_default_grammar_is_for_requests_that_say_nothing_of_it() -> None:
    default = {"grammar": "root ::= x"}
    assert with_default({"prompt": "a"}, default) == {"prompt": "a", **default}
    said: dict[str, Any]
    for said in (
        {"grammar": ""},
        {"json_schema": {}},
        {"regex": "a"},
        {"response_format": {"type": "text"}},
        {"tools": [{}]},
    ):
        assert with_default(said, default) == said
    assert with_default({"grammar": None}, default) == default
    assert with_default({"prompt": "a"}, {}) == {"prompt": "a"}


def test_the_engine_gets_the_grammar_of_the_options(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sampling = SamplingSettings(grammar='root ::= "a"')
    with serve(SCRIPT, settings=replace(SETTINGS, sampling=sampling)) as served:
        asked: list[dict[str, Any]] = []
        generate = served.client.generate

        def note(**fields: Any) -> Any:
            asked.append(fields)
            return generate(**{**fields, "grammar": None})

        monkeypatch.setattr(served.client, "generate", note)
        turn = [{"role": "user", "content": "plain"}]
        for path, body in (
            ("/completion", {"prompt": "plain", "n_predict": 1}),
            ("/v1/completions", {"prompt": "plain", "max_tokens": 1}),
            (CHAT, {"messages": turn, "max_tokens": 1}),
        ):
            assert served.post(path, body).status_code == 200
            free = served.post(path, {**body, "grammar": ""})
            assert free.status_code == 200
        texts = [fields["grammar"] and fields["grammar"].text for fields in asked]
        assert texts == ['root ::= "a"', None] * 3


def test_a_harmony_model_ends_its_analysis_and_goes_on_to_its_answer() -> None:
    answer = ["<|channel|>analysis<|message|>", "a ", "b ", "c ", "<|start|>assistant"]
    answer += ["<|channel|>final<|message|>", "done"]
    script = fake.Script(
        answers={"ponder": answer},
        chat_template="{{ messages[0].content }} {# <|start|><|channel|><|message|> #}",
    )
    with serve(script, wish=SMALL) as served:
        found = message(served, "ponder", reasoning_budget_tokens=2)
        # `<|end|>` takes the place of the third thought.
        assert found == {"content": "done", "reasoning_content": "a b "}


def test_ends_that_are_ignored_are_told_as_forbidden_tokens(bare: Served) -> None:
    asked = {"prompt": "plain", "n_predict": 1, "logit_bias": [[7, 1.5]]}
    for ignored, told in (
        (False, []),
        (True, [{"bias": None, "token": fake.EOS}]),
    ):
        reply = bare.post("/completion", {**asked, "ignore_eos": ignored}).json()
        found = reply["generation_settings"]["logit_bias"]
        assert found == [{"bias": 1.5, "token": 7}, *told]
