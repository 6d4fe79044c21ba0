"""Chat templates by name, as `--chat-template llama3` asks for them.

Old models and GGUF files come without a template, and llama-server lets its users name
the format instead. Each is described by the marks around its turns; the Jinja text is
made from that, so that all of them behave alike. Names and formats are llama-server's.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from mlxceld.chat.template import CHATML
from mlxceld.near import did_you_mean

_BETWEEN = "\n\n"
"""Between the system's words and the user's, where they share a turn."""


@dataclass(frozen=True, slots=True)
class Turns:
    """The marks of one format; `user`, `assistant`, `system` are pairs around a turn.

    Without a `system` pair the system's words go before the next user's.
    """

    user: tuple[str, str]
    assistant: tuple[str, str]
    system: tuple[str, str] | None = None
    opening: str = ""
    """What asks for the next answer."""
    trimmed: bool = False
    """Whether the blanks around contents are dropped."""

    def jinja(self) -> str:
        """The template. Roles that a format does not know speak as the user."""
        word = "(message['content']" + (" | trim)" if self.trimmed else ")")
        if self.system is None:
            kept = f"before.text + {word} + {_text(_BETWEEN)}"
            system = f"{{%- set before.text = {kept} -%}}"
            user = _turn(self.user, f"before.text + {word}")
            user += "{%- set before.text = '' -%}"
        else:
            system = _turn(self.system, word)
            user = _turn(self.user, word)
        opening = "{{- " + _text(self.opening) + " -}}"
        return (
            "{%- set before = namespace(text='') -%}"
            "{%- for message in messages -%}"
            "{%- if message['role'] == 'system' -%}"
            + system
            + "{%- elif message['role'] == 'assistant' -%}"
            + _turn(self.assistant, word)
            + "{%- else -%}"
            + user
            + "{%- endif -%}{%- endfor -%}"
            "{%- if add_generation_prompt -%}" + opening + "{%- endif -%}"
        )


def _turn(marks: tuple[str, str], words: str) -> str:
    """What writes `words`, an expression, between two marks."""
    head, tail = marks
    return f"{{{{- {_text(head)} + {words} + {_text(tail)} -}}}}"


def _text(words: str) -> str:
    """A string for Jinja, which reads the escapes of JSON."""
    return json.dumps(words, ensure_ascii=False)


def _headed(head: str, middle: str, tail: str, *, trimmed: bool = False) -> Turns:
    """Turns that begin with a role between two marks."""

    def pair(role: str) -> tuple[str, str]:
        return head + role + middle, tail

    asks = head + "assistant" + middle
    return Turns(pair("user"), pair("assistant"), pair("system"), asks, trimmed=trimmed)


def _instruct(head: str, tail: str, end: str) -> Turns:
    """Turns of a user in brackets, answers bare."""
    return Turns((head, tail), ("", end))


TURNS: dict[str, Turns] = {
    "llama2": Turns(("[INST] ", " [/INST]"), (" ", " </s><s>")),
    "llama3": _headed(
        "<|start_header_id|>", "<|end_header_id|>\n\n", "<|eot_id|>", trimmed=True
    ),
    "llama4": _headed(
        "<|header_start|>", "<|header_end|>\n\n", "<|eot|>", trimmed=True
    ),
    "mistral-v1": _instruct(" [INST] ", " [/INST]", "</s>"),
    "mistral-v3": _instruct("[INST] ", "[/INST]", "</s>"),
    "mistral-v3-tekken": _instruct("[INST]", "[/INST]", "</s>"),
    "mistral-v7": Turns(
        ("[INST] ", "[/INST]"),
        (" ", "</s>"),
        ("[SYSTEM_PROMPT] ", "[/SYSTEM_PROMPT]"),
    ),
    "mistral-v7-tekken": Turns(
        ("[INST]", "[/INST]"), ("", "</s>"), ("[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]")
    ),
    "phi3": _headed("<|", "|>\n", "<|end|>\n"),
    "phi4": _headed("<|im_start|>", "<|im_sep|>", "<|im_end|>"),
    "falcon3": _headed("<|", "|>\n", "\n"),
    "zephyr": _headed("<|", "|>\n", "<|endoftext|>\n"),
    "gemma": Turns(
        ("<start_of_turn>user\n", "<end_of_turn>\n"),
        ("<start_of_turn>model\n", "<end_of_turn>\n"),
        opening="<start_of_turn>model\n",
        trimmed=True,
    ),
    "vicuna": Turns(
        ("USER: ", "\n"), ("ASSISTANT: ", "</s>\n"), ("", "\n\n"), "ASSISTANT:"
    ),
    "command-r": Turns(
        ("<|START_OF_TURN_TOKEN|><|USER_TOKEN|>", "<|END_OF_TURN_TOKEN|>"),
        ("<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>", "<|END_OF_TURN_TOKEN|>"),
        ("<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>", "<|END_OF_TURN_TOKEN|>"),
        "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>",
        trimmed=True,
    ),
    "granite": _headed("<|start_of_role|>", "<|end_of_role|>", "<|end_of_text|>\n"),
    "deepseek3": Turns(
        ("<｜User｜>", ""), ("<｜Assistant｜>", "<｜end▁of▁sentence｜>"), ("", "\n\n"),
        "<｜Assistant｜>",
    ),
}  # fmt: skip
"""The formats by name, for models that bring no template of their own."""


TEMPLATES: dict[str, str] = {
    "chatml": CHATML,
    **{name: turns.jinja() for name, turns in TURNS.items()},
}
"""The Jinja texts by name."""


def named(name: str) -> str:
    """The Jinja text of a named format. Raises KeyError with what may be meant."""
    found = TEMPLATES.get(name)
    if found is None:
        known = "known: " + ", ".join(sorted(TEMPLATES))
        raise KeyError(did_you_mean(name, TEMPLATES) or known)
    return found
