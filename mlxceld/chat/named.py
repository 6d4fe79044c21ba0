"""Chat templates by name, as `--chat-template llama3` asks for them.

Old models and GGUF files come without a template, and llama-server lets its users name
the format instead. Each is described by the marks around its turns; the Jinja text is
made from that, so that all of them behave alike. Names and formats are llama-server's.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from mlxceld.near import did_you_mean


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
    between: str = "\n\n"
    """Between the system's words and the user's, where they share a turn."""

    def jinja(self) -> str:
        """The template."""
        word = "message['content']" + (" | trim" if self.trimmed else "")
        marks = {"user": self.user, "assistant": self.assistant, "tool": self.user}
        if self.system is not None:
            marks["system"] = self.system
        lines = ["{%- set before = namespace(text='') -%}"]
        lines.append("{%- for message in messages -%}")
        test = "if"
        for role, (head, tail) in marks.items():
            shown = f"({word})"
            if role == "user" and self.system is None:
                shown = f"before.text + ({word})"
            lines.append(f"{{%- {test} message['role'] == '{role}' -%}}")
            lines.append(f"{{{{- {_text(head)} + {shown} + {_text(tail)} -}}}}")
            if role == "user" and self.system is None:
                lines.append("{%- set before.text = '' -%}")
            test = "elif"
        if self.system is None:
            lines.append("{%- elif message['role'] == 'system' -%}")
            joined = f"before.text + ({word}) + {_text(self.between)}"
            lines.append(f"{{%- set before.text = {joined} -%}}")
        lines.append("{%- endif -%}{%- endfor -%}")
        if self.opening:
            lines.append(
                f"{{%- if add_generation_prompt -%}}{{{{- {_text(self.opening)} -}}}}"
                "{%- endif -%}"
            )
        return "".join(lines)


def _text(words: str) -> str:
    """A string for Jinja, which reads the escapes of JSON."""
    return json.dumps(words, ensure_ascii=False)


def _headed(head: str, middle: str, tail: str, opening: str = "") -> Turns:
    """Turns that begin with a role between two marks."""

    def pair(role: str) -> tuple[str, str]:
        return head + role + middle, tail

    asks = opening or head + "assistant" + middle
    return Turns(pair("user"), pair("assistant"), pair("system"), asks)


def _instruct(head: str, tail: str, end: str) -> Turns:
    """Turns of a user in brackets, answers bare."""
    return Turns((head, tail), ("", end))


_LLAMA2 = Turns(("[INST] ", " [/INST]"), (" ", " </s><s>"), between="\n\n")
_LLAMA3 = _headed("<|start_header_id|>", "<|end_header_id|>\n\n", "<|eot_id|>")
_CHATML = _headed("<|im_start|>", "\n", "<|im_end|>\n")
_ZEPHYR = Turns(
    ("<|user|>\n", "<|endoftext|>\n"),
    ("<|assistant|>\n", "<|endoftext|>\n"),
    ("<|system|>\n", "<|endoftext|>\n"),
    "<|assistant|>\n",
)
_VICUNA = Turns(("USER: ", "\n"), ("ASSISTANT: ", "</s>\n"), ("", "\n\n"), "ASSISTANT:")

TURNS: dict[str, Turns] = {
    "chatml": _CHATML,
    "llama2": _LLAMA2,
    "llama3": Turns(
        _LLAMA3.user, _LLAMA3.assistant, _LLAMA3.system, _LLAMA3.opening, trimmed=True
    ),
    "llama4": Turns(
        ("<|header_start|>user<|header_end|>\n\n", "<|eot|>"),
        ("<|header_start|>assistant<|header_end|>\n\n", "<|eot|>"),
        ("<|header_start|>system<|header_end|>\n\n", "<|eot|>"),
        "<|header_start|>assistant<|header_end|>\n\n",
        trimmed=True,
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
    "zephyr": _ZEPHYR,
    "gemma": Turns(
        ("<start_of_turn>user\n", "<end_of_turn>\n"),
        ("<start_of_turn>model\n", "<end_of_turn>\n"),
        opening="<start_of_turn>model\n",
        trimmed=True,
    ),
    "vicuna": _VICUNA,
    "command-r": Turns(
        ("<|START_OF_TURN_TOKEN|><|USER_TOKEN|>", "<|END_OF_TURN_TOKEN|>"),
        ("<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>", "<|END_OF_TURN_TOKEN|>"),
        ("<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>", "<|END_OF_TURN_TOKEN|>"),
        "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>",
        trimmed=True,
    ),
    "granite": Turns(
        ("<|start_of_role|>user<|end_of_role|>", "<|end_of_text|>\n"),
        ("<|start_of_role|>assistant<|end_of_role|>", "<|end_of_text|>\n"),
        ("<|start_of_role|>system<|end_of_role|>", "<|end_of_text|>\n"),
        "<|start_of_role|>assistant<|end_of_role|>",
    ),
    "deepseek3": Turns(
        ("<｜User｜>", ""), ("<｜Assistant｜>", "<｜end▁of▁sentence｜>"), ("", "\n\n"),
        "<｜Assistant｜>",
    ),
}  # fmt: skip
"""The formats by name, for models that bring no template of their own."""


def named(name: str) -> str:
    """The Jinja text of a named format. Raises KeyError with what may be meant."""
    found = TURNS.get(name)
    if found is None:
        raise KeyError(
            did_you_mean(name, TURNS) or "known: " + ", ".join(sorted(TURNS))
        )
    return found.jinja()
