"""Chat templates: Jinja in a sandbox, with what templates expect to find."""

from __future__ import annotations

import json
import re
from datetime import datetime
from typing import Any

import pytest

from mlxceld.chat.template import (
    CHATML,
    ChatTemplate,
    Message,
    TemplateBroken,
    TemplateRefused,
)

HI: list[Message] = [{"role": "user", "content": "Say hi"}]


def render(text: str, messages: list[Message] | None = None, **more: Any) -> str:
    return ChatTemplate(text).render(HI if messages is None else messages, **more)


def test_chatml_opens_the_assistants_turn() -> None:
    assert render(CHATML) == (
        "<|im_start|>user\nSay hi<|im_end|>\n<|im_start|>assistant\n"
    )
    assert render(CHATML, add_generation_prompt=False) == (
        "<|im_start|>user\nSay hi<|im_end|>\n"
    )


def test_blocks_are_trimmed_as_tokenizers_do() -> None:
    text = (
        "{% for m in messages %}\n    {% if true %}\n{{ m.content }}\n"
        "  {% endif %}\n{% endfor %}"
    )
    assert render(text) == "Say hi\n"


def test_special_tokens_and_variables_reach_the_template() -> None:
    text = "{{ bos_token }}|{{ eos_token }}|{{ enable_thinking }}"
    shown = render(
        text, bos_token="<s>", eos_token="</s>", variables={"enable_thinking": False}
    )
    assert shown == "<s>|</s>|False"


def test_variables_cannot_replace_the_messages() -> None:
    variables = {"messages": [], "bos_token": "x", "add_generation_prompt": False}
    text = "{{ bos_token }}{{ messages | length }}{{ add_generation_prompt }}"
    assert render(text, bos_token="<s>", variables=variables) == "<s>1True"


def test_json_is_not_escaped_for_html() -> None:
    text = "{{ {'a': '<é>'} | tojson }}{{ [1] | tojson(indent=1) }}"
    assert render(text) == '{"a": "<é>"}[\n 1\n]'


def test_loops_may_break_and_the_generation_tag_is_air() -> None:
    text = (
        "{% for m in messages %}{% if loop.index == 2 %}{% break %}{% endif %}"
        "{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}"
    )
    assert render(text, HI * 3) == "Say hi"


def test_the_date_can_be_asked_for() -> None:
    assert re.fullmatch(r"20\d\d", render("{{ strftime_now('%Y') }}"))


def test_namespaces_work() -> None:
    text = (
        "{% set ns = namespace(n=0) %}"
        "{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}"
    )
    assert render(text, HI * 3) == "3"


def test_a_templates_own_refusal_keeps_its_words() -> None:
    with pytest.raises(TemplateRefused, match="roles must alternate"):
        render("{{ raise_exception('roles must alternate') }}")


@pytest.mark.parametrize(
    "text",
    [
        "{{ messages[5].content + 'x' }}",
        "{{ 1 / 0 }}",
        "{{ messages.__class__.__mro__ }}",
        "{{ ''.__class__.__base__.__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    ],
)
def test_faults_and_ways_out_of_the_sandbox_are_refusals(text: str) -> None:
    with pytest.raises(TemplateRefused):
        render(text)


def test_a_text_that_is_no_template_says_the_line() -> None:
    with pytest.raises(TemplateBroken, match="line 2"):
        ChatTemplate("fine\n{% for %}")


def test_caps_of_a_plain_template() -> None:
    """Keys and order are llama-server's; so are the values for the demo model."""
    text = (
        "{% for message in messages %}{% if loop.first and messages[0]['role'] != "
        "'system' %}{{ 'You are helpful' }}{% endif %}{{ message['role'] + '\\n' + "
        "message['content'] }}{% endfor %}"
    )
    assert ChatTemplate(text).caps == {
        "supports_object_arguments": False,
        "supports_parallel_tool_calls": False,
        "supports_preserve_reasoning": False,
        "supports_reasoning_effort": False,
        "supports_string_content": True,
        "supports_system_role": True,
        "supports_tool_calls": False,
        "supports_tools": False,
        "supports_typed_content": False,
    }
    assert list(ChatTemplate(text).caps) == sorted(ChatTemplate(text).caps)


TOOLS = (
    "{% if tools %}{{ tools | tojson }}{% endif %}"
    "{% for m in messages %}{{ m.content }}"
    "{% for c in m.tool_calls or [] %}"
    "{{ c.function.name }}({{ c.function.arguments | tojson }})"
    "{% endfor %}{% endfor %}"
)


def test_caps_of_a_template_with_tools() -> None:
    caps = ChatTemplate(TOOLS).caps
    assert caps["supports_tools"]
    assert caps["supports_tool_calls"]
    assert caps["supports_object_arguments"]
    assert caps["supports_parallel_tool_calls"]


CALLING: Message = {
    "role": "assistant",
    "content": "",
    "tool_calls": [
        {"type": "function", "function": {"name": "f", "arguments": {"a": 1}}}
    ],
}


def test_arguments_are_objects_or_text_as_the_template_needs() -> None:
    assert render(TOOLS, [*HI, CALLING]) == 'Say hif({"a": 1})'
    joins = (
        "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}"
        "{{ c.function.name + c.function.arguments }}{% endfor %}{% endfor %}"
    )
    assert render(joins, [*HI, CALLING]) == 'Say hif{"a": 1}'


def test_a_template_without_the_system_role_gets_it_in_the_users_words() -> None:
    text = (
        "{% for m in messages %}{% if m.role == 'system' %}"
        "{{ raise_exception('no system') }}{% endif %}[{{ m.content }}]{% endfor %}"
    )
    system: Message = {"role": "system", "content": "Be brief"}
    assert render(text, [system, *HI]) == "[Be brief\n\nSay hi]"
    assert render(text, [system]) == "[Be brief]"


def test_a_template_of_parts_gets_parts() -> None:
    text = (
        "{% for m in messages %}{% for p in m.content %}{% if p.type == 'text' %}"
        "<{{ p.text }}>{% endif %}{% endfor %}{% endfor %}"
    )
    assert render(text) == "<Say hi>"


def today(pattern: str) -> str:
    return datetime.now().astimezone().strftime(pattern)


def test_templates_are_told_todays_date_unless_somebody_says_another() -> None:
    template = ChatTemplate("{{ date_string }}")
    assert template.render(HI) == today("%d %b %Y")
    said = {"date_string": "01 Jan 2020"}
    assert template.render(HI, variables=said) == "01 Jan 2020"


def test_firefunction_gets_its_tools_as_text_and_the_date_in_its_own_form() -> None:
    template = ChatTemplate("{{ functions + '|' + datetime + ' functools[' }}")
    date = today("%b %d %Y GMT")
    assert template.render(HI) == f"|{date} functools["
    tool = {"type": "function", "function": {"name": "f"}}
    shown = template.render(HI, tools=[tool])
    assert json.loads(shown.partition("|")[0]) == [tool]


def test_other_templates_do_not_see_the_variables_of_firefunction() -> None:
    text = "{{ functions is defined }} {{ datetime is defined }}"
    assert ChatTemplate(text).render(HI) == "False False"
