"""The forms in which models call tools, and which of them a template's model uses.

A form is told by the words of its chat template, which shows calls of earlier turns in
the very form in which the model writes new ones.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from mlxceld.chat.bodies import (
    Body,
    Calls,
    JsonBody,
    NamedBody,
    Pairs,
    PairsBody,
    Schemas,
    WholeBody,
)
from mlxceld.chat.notations import read_gemma, read_python
from mlxceld.chat.pieces import Numbering

Open: TypeAlias = Callable[[str, Numbering, Schemas], Body]
"""Makes the body of a call, knowing the first character that is not blank."""


@dataclass(frozen=True, slots=True)
class Form:
    """How a model writes calls.

    A call begins with one of `begins`. `bare` are characters with which an answer that
    is nothing but calls may begin without that: they are calls only when they name a
    known tool.
    """

    name: str
    begins: tuple[str, ...]
    open: Open
    also: tuple[str, ...] = ()
    """Further texts that may be special tokens and must be seen here."""
    bare: str = ""
    id_length: int = 32

    @property
    def shown(self) -> tuple[str, ...]:
        """Texts of special tokens that are part of the answer's text."""
        return (*self.begins, *self.also)


def _tags(prefix: str) -> Pairs:
    """GLM's tags: a name, then keys and values in tags of their own."""
    key, value = f"{prefix}arg_key", f"{prefix}arg_value"
    return Pairs(
        head=re.compile(r"\s*([^\s<{]+)\s*(?=<)"),
        pair=re.compile(rf"<{key}>(.*?)</{key}>\s*<{value}>(.*?)</{value}>", re.DOTALL),
        pair_start=f"<{key}>",
        pair_end=f"</{value}>",
        tail="",
        end=f"</{prefix}tool_call>",
        plain=True,
    )


_GLM = _tags("")
_LONGCAT = _tags("longcat_")

_FUNCTION = Pairs(
    head=re.compile(r"\s*<function=([^>\n]+)>"),
    pair=re.compile(r"<parameter=([^>\n]+)>\n?(.*?)\n?</parameter>", re.DOTALL),
    pair_start="<parameter=",
    pair_end="</parameter>",
    tail="</function>",
    end="</tool_call>",
)

_INVOKE = Pairs(
    head=re.compile(r'\s*<invoke name="([^"\n]+)">'),
    pair=re.compile(r'<parameter name="([^"\n]+)">\n?(.*?)\n?</parameter>', re.DOTALL),
    pair_start="<parameter name=",
    pair_end="</parameter>",
    tail="</invoke>",
    end="</minimax:tool_call>",
)

_PARAM = Pairs(
    head=re.compile(r'\s*([^"\n]+)">'),
    pair=re.compile(r'<param name="([^"\n]+)">\n?(.*?)\n?</param>', re.DOTALL),
    pair_start="<param name=",
    pair_end="</param>",
    tail="",
    end="</function>",
)

_KIMI = re.compile(
    r"\s*<\|tool_call_begin\|>\s*(?P<id>(?:functions\.)?(?P<name>[\w.-]+?)(?::\d+)?)"
    r"\s*<\|tool_call_argument_begin\|>\s*(?=\{)"
)
_KIMI_TAIL = re.compile(r"\s*<\|tool_call_end\|>")

_DEEPSEEK = re.compile(
    r"\s*<｜tool▁call▁begin｜>(?:function<｜tool▁sep｜>)?(?P<name>[\w.-]+)"
    r"(?:<｜tool▁sep｜>|\n```json\n)\s*(?=\{)"
)
_DEEPSEEK_TAIL = re.compile(r"\s*(?:```)?\s*<｜tool▁call▁end｜>")

_MISTRAL = re.compile(
    r"\s*(?P<name>[\w.-]+)\s*(?:\[CALL_ID\](?P<id>\w+))?(?:\[ARGS\])?\s*(?=\{)"
)

_LLAMA = re.compile(r"(?P<name>[\w.-]+)>?\s*(?=\{)")
_LLAMA_TAIL = re.compile(r"\s*</function>")


def _json(end: str) -> Open:
    return lambda first, numbering, schemas: JsonBody(numbering, end)


def _pairs(pairs: Pairs) -> Open:
    return lambda first, numbering, schemas: PairsBody(numbering, pairs, schemas)


def _whole(read: Callable[[str], Calls | None], end: str) -> Open:
    return lambda first, numbering, schemas: WholeBody(numbering, read, end)


def _tool_call(pairs: Pairs, end: str) -> Open:
    """What stands between the tags tells its form: an object, a function, a name."""

    def open_(first: str, numbering: Numbering, schemas: Schemas) -> Body:
        if first in "{[":
            return JsonBody(numbering, end)
        return PairsBody(numbering, _FUNCTION if first == "<" else pairs, schemas)

    return open_


def _mistral(first: str, numbering: Numbering, schemas: Schemas) -> Body:
    if first in "{[":
        return JsonBody(numbering)
    return NamedBody(numbering, _MISTRAL)


def _kimi(first: str, numbering: Numbering, schemas: Schemas) -> Body:
    return NamedBody(numbering, _KIMI, _KIMI_TAIL, "<|tool_calls_section_end|>")


def _deepseek(first: str, numbering: Numbering, schemas: Schemas) -> Body:
    return NamedBody(numbering, _DEEPSEEK, _DEEPSEEK_TAIL, "<｜tool▁calls▁end｜>")


def _llama(first: str, numbering: Numbering, schemas: Schemas) -> Body:
    if first in "{[":
        return JsonBody(numbering)
    return NamedBody(numbering, _LLAMA, _LLAMA_TAIL)


_PYTHONIC = Form(
    "pythonic",
    ("<|tool_call_start|>",),
    _whole(read_python, "<|tool_call_end|>"),
    also=("<|tool_call_end|>",),
)

HERMES = Form(
    "hermes",
    ("<tool_call>",),
    _tool_call(_GLM, "</tool_call>"),
    also=("</tool_call>",),
    bare="{",
)
"""The most common one: JSON in tags; also for templates that tell nothing."""

FORMS: tuple[tuple[tuple[str, ...], Form], ...] = (
    (
        ("<minimax:tool_call>",),
        Form(
            "minimax",
            ("<minimax:tool_call>",),
            _pairs(_INVOKE),
            also=("</minimax:tool_call>",),
        ),
    ),
    (
        ("<|tool_call>", "<tool_call|>"),
        Form(
            "gemma4",
            ("<|tool_call>",),
            _whole(partial(read_gemma, quote='<|"|>'), "<tool_call|>"),
            also=("<tool_call|>", '<|"|>'),
        ),
    ),
    (
        ("<start_function_call>",),
        Form(
            "function-gemma",
            ("<start_function_call>",),
            _whole(partial(read_gemma, quote="<escape>"), "<end_function_call>"),
            also=("<end_function_call>", "<escape>"),
        ),
    ),
    (
        ("<longcat_tool_call>",),
        Form(
            "longcat",
            ("<longcat_tool_call>",),
            _tool_call(_LONGCAT, "</longcat_tool_call>"),
            also=("</longcat_tool_call>",),
        ),
    ),
    (("<|tool_call_start|>",), _PYTHONIC),
    (("<|tool_list_start|>",), _PYTHONIC),
    (
        ("<|tool_calls_section_begin|>",),
        Form(
            "kimi",
            ("<|tool_calls_section_begin|>",),
            _kimi,
            also=(
                "<|tool_calls_section_end|>",
                "<|tool_call_begin|>",
                "<|tool_call_argument_begin|>",
                "<|tool_call_end|>",
            ),
        ),
    ),
    (
        ("<｜tool▁calls▁begin｜>",),
        Form(
            "deepseek",
            ("<｜tool▁calls▁begin｜>",),
            _deepseek,
            also=(
                "<｜tool▁calls▁end｜>",
                "<｜tool▁call▁begin｜>",
                "<｜tool▁call▁end｜>",
                "<｜tool▁sep｜>",
            ),
        ),
    ),
    (
        ('<function name="', '<param name="'),
        Form("minicpm", ('<function name="',), _pairs(_PARAM)),
    ),
    (
        ("<|START_ACTION|>",),
        Form(
            "cohere",
            ("<|START_ACTION|>",),
            _json("<|END_ACTION|>"),
            also=("<|END_ACTION|>",),
        ),
    ),
    (
        ("<TOOLCALL>",),
        Form("nemotron", ("<TOOLCALL>",), _json("</TOOLCALL>")),
    ),
    (
        ("[TOOL_CALLS]",),
        Form(
            "mistral",
            ("[TOOL_CALLS]",),
            _mistral,
            also=("[ARGS]", "[CALL_ID]"),
            # Mistral's templates refuse ids of another length.
            id_length=9,
        ),
    ),
    (("functools[",), Form("functools", ("functools",), _json(""))),
    (
        ("<|tool_call|>",),
        Form(
            "granite",
            ("<|tool_call|>",),
            _json("<|/tool_call|>"),
            also=("<|/tool_call|>",),
        ),
    ),
    (("<tool_call>",), HERMES),
    (
        ("<|python_tag|>",),
        Form(
            "llama",
            ("<|python_tag|>", "<function="),
            _llama,
            bare="{",
        ),
    ),
    (
        ("<|start_header_id|>", "tools"),
        Form(
            "llama",
            ("<|python_tag|>", "<function="),
            _llama,
            bare="{",
        ),
    ),
)
"""Words that a template must have, and the form; the first that fits."""


def form_of(template: str) -> Form:
    """The form in which the template's model calls tools."""
    for words, form in FORMS:
        if all(word in template for word in words):
            return form
    return HERMES
