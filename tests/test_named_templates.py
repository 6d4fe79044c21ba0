"""Chat templates by name: the prompts are written out from the models' own formats."""

from __future__ import annotations

import pytest

from mlxceld.chat.named import TEMPLATES, named
from mlxceld.chat.template import CHATML, ChatTemplate

TALK = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "Hello"},
    {"role": "user", "content": "Bye"},
]

PROMPTS = {
    "chatml": "<|im_start|>system\nBe brief.<|im_end|>\n"
    "<|im_start|>user\nHi<|im_end|>\n"
    "<|im_start|>assistant\nHello<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n"
    "<|im_start|>assistant\n",
    "llama3": "<|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>"
    "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\nHello<|eot_id|>"
    "<|start_header_id|>user<|end_header_id|>\n\nBye<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\n",
    "gemma": "<start_of_turn>user\nBe brief.\n\nHi<end_of_turn>\n"
    "<start_of_turn>model\nHello<end_of_turn>\n"
    "<start_of_turn>user\nBye<end_of_turn>\n<start_of_turn>model\n",
    "mistral-v7": "[SYSTEM_PROMPT] Be brief.[/SYSTEM_PROMPT][INST] Hi[/INST] Hello</s>"
    "[INST] Bye[/INST]",
    "phi3": "<|system|>\nBe brief.<|end|>\n<|user|>\nHi<|end|>\n"
    "<|assistant|>\nHello<|end|>\n<|user|>\nBye<|end|>\n<|assistant|>\n",
    "vicuna": "Be brief.\n\nUSER: Hi\nASSISTANT: Hello</s>\nUSER: Bye\nASSISTANT:",
}


@pytest.mark.parametrize("name", PROMPTS)
def test_a_named_template_writes_the_format_of_its_models(name: str) -> None:
    assert ChatTemplate(named(name)).render(TALK) == PROMPTS[name]


@pytest.mark.parametrize("name", sorted(TEMPLATES))
def test_every_named_template_shows_every_turn_in_order(name: str) -> None:
    prompt = ChatTemplate(named(name)).render(TALK)
    places = [prompt.index(turn["content"]) for turn in TALK]
    assert places == sorted(places)


def test_the_prompt_ends_with_the_conversation_when_no_answer_is_asked_for() -> None:
    prompt = ChatTemplate(named("llama3")).render(TALK, add_generation_prompt=False)
    assert prompt.endswith("Bye<|eot_id|>")


def test_chatml_by_name_is_what_a_model_without_a_template_gets() -> None:
    assert ChatTemplate(named("chatml")).render(TALK) == ChatTemplate(CHATML).render(
        TALK
    )


@pytest.mark.parametrize("name", sorted(TEMPLATES))
@pytest.mark.parametrize("role", ["tool", "developer"])
def test_no_message_is_lost_because_of_its_role(name: str, role: str) -> None:
    talk = [{"role": "user", "content": "Hi"}, {"role": role, "content": "needle"}]
    assert "needle" in ChatTemplate(named(name)).render(talk)


def test_quotes_and_line_breaks_in_contents_stay_as_they_are() -> None:
    talk = [{"role": "user", "content": 'a "b"\n{{ c }}'}]
    assert 'a "b"\n{{ c }}' in ChatTemplate(named("zephyr")).render(talk)


def test_an_unknown_name_is_told_with_what_may_be_meant() -> None:
    with pytest.raises(KeyError, match="llama3"):
        named("lama3")
