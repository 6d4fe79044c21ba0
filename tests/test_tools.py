"""Tools: the fields of a request, and calls in every form that models write."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from mlxceld.chat.forms import FORMS, HERMES, Form, form_of
from mlxceld.chat.parse import Calling, CallSplitter
from mlxceld.chat.pieces import CallArguments, CallBegins, Content, Whole
from mlxceld.chat.tools import (
    ToolError,
    Tools,
    call_schema,
    read_tools,
    told_in_words,
)

STEPS = (1, 2, 3, 7, 10_000)

WEATHER = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer"},
        "deep": {"type": "object"},
    },
    "required": ["city"],
}
SCHEMAS = {"weather": WEATHER, "now": {"type": "object", "properties": {}}}
BY_NAME = {form.name: form for _, form in FORMS}


def heard(form: Form, text: str, step: int, **more: Any) -> Whole:
    """What comes out of a text that comes in pieces of `step` characters."""
    parser, found = CallSplitter(Calling(form, SCHEMAS, **more)), Whole()
    for at in range(0, len(text), step):
        found.add(parser.feed(text[at : at + step]))
    found.add(parser.finish())
    return found


def calls(found: Whole) -> list[tuple[str, Any]]:
    return [(call.name, json.loads(call.arguments)) for call in found.calls]


BONN = ("weather", {"city": "Bonn"})
TWO_DAYS = ("weather", {"city": "Bonn", "days": 2})
NOW: tuple[str, Any] = ("now", {})

WRITTEN: list[tuple[str, str, list[tuple[str, Any]]]] = [
    (
        "hermes",
        '<tool_call>\n{"name": "weather", "arguments": {"city": "Bonn"}}\n</tool_call>'
        '\n<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>',
        [BONN, NOW],
    ),
    # The other order, arguments as text, no arguments, a list, an inner object.
    (
        "hermes",
        '<tool_call>{"arguments":{"city":"Bonn"},"name":"weather"}</tool_call>',
        [BONN],
    ),
    (
        "hermes",
        '<tool_call>{"name":"weather","arguments":"{\\"city\\": \\"Bonn\\"}"}'
        "</tool_call>",
        [BONN],
    ),
    ("hermes", '<tool_call>{"name":"now"}</tool_call>', [NOW]),
    ("hermes", '<tool_call>{"name":"now","arguments":null}</tool_call>', [NOW]),
    ("hermes", '<tool_call>[{"name":"now"}, {"name":"now"}]</tool_call>', [NOW, NOW]),
    (
        "hermes",
        '<tool_call>{"type":"function","function":'
        '{"name":"weather","arguments":{"city":"Bonn"}}}</tool_call>',
        [BONN],
    ),
    # Brackets, quotes and the end's text within a string.
    (
        "hermes",
        '<tool_call>{"name":"weather","arguments":{"city":"}\\"]</tool_call>"}}'
        "</tool_call>",
        [("weather", {"city": '}"]</tool_call>'})],
    ),
    # A form with tags instead of an object.
    (
        "hermes",
        "<tool_call>\n<function=weather>\n<parameter=city>\nBonn\n</parameter>\n"
        "<parameter=days>\n2\n</parameter>\n</function>\n</tool_call>",
        [TWO_DAYS],
    ),
    (
        "hermes",
        "<tool_call>\n<function=now>\n</function>\n</tool_call>",
        [NOW],
    ),
    (
        "hermes",
        "<tool_call><function=weather><parameter=city>\na\n <b>\n\n</parameter>"
        '<parameter=deep>{"x": [1]}</parameter></function></tool_call>',
        [("weather", {"city": "a\n <b>\n", "deep": {"x": [1]}})],
    ),
    (
        "hermes",
        "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Bonn</arg_value>\n"
        "<arg_key>days</arg_key><arg_value>2</arg_value>\n</tool_call>"
        "<tool_call>now</tool_call>",
        [TWO_DAYS, NOW],
    ),
    (
        "longcat",
        "<longcat_tool_call>weather\n<longcat_arg_key>city</longcat_arg_key>\n"
        "<longcat_arg_value>Bonn</longcat_arg_value>\n</longcat_tool_call>",
        [BONN],
    ),
    (
        "minimax",
        '<minimax:tool_call>\n<invoke name="weather">\n<parameter name="city">Bonn'
        '</parameter>\n</invoke>\n<invoke name="now">\n</invoke>\n</minimax:tool_call>',
        [BONN, NOW],
    ),
    (
        "minicpm",
        '<function name="weather"><param name="city">Bonn</param></function>',
        [BONN],
    ),
    (
        "mistral",
        '[TOOL_CALLS][{"name": "weather", "arguments": {"city": "Bonn"}},'
        ' {"name": "now", "arguments": {}}]',
        [BONN, NOW],
    ),
    (
        "mistral",
        '[TOOL_CALLS]weather[ARGS]{"city": "Bonn"}[TOOL_CALLS]now[CALL_ID]abc[ARGS]{}',
        [BONN, NOW],
    ),
    ("llama", '{"name": "weather", "parameters": {"city": "Bonn"}}', [BONN]),
    (
        "llama",
        '<|python_tag|>{"type": "function", "name": "weather", "parameters": '
        '{"city": "Bonn"}}; {"name": "now", "parameters": {}}',
        [BONN, NOW],
    ),
    ("llama", '<function=weather>{"city": "Bonn"}</function>', [BONN]),
    (
        "kimi",
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.weather:0"
        '<|tool_call_argument_begin|>{"city": "Bonn"}<|tool_call_end|>'
        "<|tool_call_begin|>functions.now:1<|tool_call_argument_begin|>{}"
        "<|tool_call_end|><|tool_calls_section_end|>",
        [BONN, NOW],
    ),
    (
        "deepseek",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>"
        '{"city": "Bonn"}<｜tool▁call▁end｜><｜tool▁call▁begin｜>now<｜tool▁sep｜>{}'
        "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        [BONN, NOW],
    ),
    (
        "deepseek",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n"
        '```json\n{"city": "Bonn"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
        [BONN],
    ),
    (
        "cohere",
        '<|START_ACTION|>[\n {"tool_call_id": "0", "tool_name": "weather",'
        ' "parameters": {"city": "Bonn"}}\n]<|END_ACTION|>',
        [BONN],
    ),
    ("nemotron", '<TOOLCALL>[{"name": "now", "arguments": {}}]</TOOLCALL>', [NOW]),
    ("granite", '<|tool_call|>[{"name": "now", "arguments": {}}]', [NOW]),
    ("functools", ' functools[{"name": "now", "arguments": {}}]', [NOW]),
    (
        "pythonic",
        '<|tool_call_start|>[weather(city="Bonn", days=2), now()]<|tool_call_end|>',
        [TWO_DAYS, NOW],
    ),
    (
        "pythonic",
        '<|tool_call_start|>[weather(city="a)]", deep={"x": [true, -1.5, None]})]'
        "<|tool_call_end|>",
        [("weather", {"city": "a)]", "deep": {"x": [True, -1.5, None]}})],
    ),
    (
        "gemma4",
        '<|tool_call>call:weather{city:<|"|>Bonn<|"|>,days:2}<tool_call|>'
        "<|tool_call>call:now{}<tool_call|>",
        [TWO_DAYS, NOW],
    ),
    (
        "function-gemma",
        "<start_function_call>call:weather{city:<escape>a, {b}<escape>,"
        "deep:{x:[1,true,<escape>y<escape>]}}<end_function_call>",
        [("weather", {"city": "a, {b}", "deep": {"x": [1, True, "y"]}})],
    ),
]


@pytest.mark.parametrize(("name", "text", "wanted"), WRITTEN)
def test_calls_are_read_in_the_form_of_the_model(
    name: str, text: str, wanted: list[tuple[str, Any]]
) -> None:
    for step in STEPS:
        found = heard(BY_NAME[name], text, step)
        assert calls(found) == wanted, step
        assert found.content.strip() == "", step


@pytest.mark.parametrize(
    ("name", "text", "wanted"),
    # Without a sign, calls are the whole answer.
    [written for written in WRITTEN if not written[1].startswith("{")],
)
def test_words_before_calls_are_content(
    name: str, text: str, wanted: list[tuple[str, Any]]
) -> None:
    for step in STEPS:
        found = heard(BY_NAME[name], "Let me see.\n\n" + text.lstrip(), step)
        assert (found.content, calls(found)) == ("Let me see.", wanted), step


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("hermes", "no call at all, < just text\n"),
        ("hermes", "<tool_call>oops"),
        ("hermes", '<tool_call>{"name": }</tool_call> after'),
        ("hermes", '<tool_call>{"city": "Bonn"}</tool_call>'),
        ("hermes", "<tool_call>"),
        ("hermes", "text <tool_ca"),
        ("hermes", '{"answer": 42}'),
        ("llama", '{"name": "Ann", "age": 7}'),
        ("llama", '{"name": "unknown", "parameters": {}}'),
        ("llama", '[1, 2] {"name": "weather"'),
        ("llama", "{"),
        ("pythonic", "<|tool_call_start|>[1 + 1]<|tool_call_end|> so"),
        ("pythonic", "<|tool_call_start|>[now("),
        ("gemma4", "<|tool_call>call:now{x:<tool_call|>"),
        ("kimi", "<|tool_calls_section_begin|>nothing"),
        ("mistral", "[TOOL_CALLS] what?"),
    ],
)
def test_what_cannot_be_understood_is_given_back(
    name: str, text: str, step: int
) -> None:
    found = heard(BY_NAME[name], text, step)
    assert (found.content, found.calls) == (text, [])


@pytest.mark.parametrize("step", STEPS)
def test_a_call_behind_a_broken_one_is_found(step: int) -> None:
    text = '<tool_call>oops</tool_call>\n<tool_call>{"name": "now"}</tool_call>'
    found = heard(HERMES, text, step)
    assert (found.content, calls(found)) == ("<tool_call>oops</tool_call>", [NOW])


@pytest.mark.parametrize("step", STEPS)
def test_words_behind_a_call_keep_their_blanks(step: int) -> None:
    text = '<tool_call>{"name": "now"}</tool_call>\n\nIt is  late.\n Bye \n'
    found = heard(HERMES, text, step)
    assert (found.content, calls(found)) == ("It is  late.\n Bye \n", [NOW])


@pytest.mark.parametrize("step", STEPS)
def test_a_broken_object_behind_a_call_is_content(step: int) -> None:
    text = '<tool_call>[{"name": "now"}, {oops "x"}]</tool_call>'
    found = heard(HERMES, text, step)
    assert (found.content, calls(found)) == ('{oops "x"}]</tool_call>', [NOW])


def test_where_a_damaged_answer_is_cut_makes_no_difference() -> None:
    chance = random.Random(7)
    texts = [text for _, text, _ in WRITTEN]
    for _ in range(400):
        text = chance.choice(texts)
        for _ in range(chance.randint(1, 3)):
            at, other = chance.randrange(len(text) + 1), chance.choice(texts)
            piece = other[chance.randrange(len(other)) :][: chance.randint(0, 9)]
            text = text[:at] + piece + text[at + chance.randint(0, 5) :]
        form = BY_NAME[chance.choice(list(BY_NAME))]
        found = []
        for step in (1, 3, 10_000):
            answer = heard(form, text, step)
            made = [(call.name, call.arguments) for call in answer.calls]
            found.append((answer.content, made))
        assert found[0] == found[1] == found[2], text


@pytest.mark.parametrize("step", STEPS)
def test_a_call_that_is_cut_short_keeps_what_it_has(step: int) -> None:
    text = '<tool_call>{"name": "weather", "arguments": {"city": "Bo'
    (call,) = heard(HERMES, text, step).calls
    assert (call.name, call.arguments) == ("weather", '{"city": "Bo')
    text = "<tool_call><function=weather><parameter=city>Bonn</parameter><param"
    assert calls(heard(HERMES, text, step)) == [BONN]


@pytest.mark.parametrize("step", STEPS)
def test_without_parallel_calls_only_the_first_is_given(step: int) -> None:
    text = '<tool_call>{"name":"now"}</tool_call><tool_call>{"name":"now"}</tool_call>'
    assert calls(heard(HERMES, text, step, parallel=False)) == [NOW]


def test_an_answer_that_must_be_a_call_needs_no_sign() -> None:
    form = BY_NAME["pythonic"]
    text = '{"name": "weather", "arguments": {"city": "Bonn"}}'
    assert calls(heard(form, text, 1, forced=True)) == [BONN]
    assert heard(form, text, 1).content == text


def test_the_name_comes_first_and_arguments_as_they_are_written() -> None:
    parser = CallSplitter(Calling(HERMES, SCHEMAS))
    pieces = []
    for text in (
        "<tool_call>",
        '{"name": "wea',
        'ther", "argu',
        'ments": {"city"',
        ': "Bonn"',
        "}}</tool",
        "_call>",
    ):
        pieces += parser.feed(text)
    begins, *rest = pieces
    assert isinstance(begins, CallBegins)
    assert (begins.index, begins.name, len(begins.id)) == (0, "weather", 32)
    assert rest == [
        CallArguments(0, '{"city"'),
        CallArguments(0, ': "Bonn"'),
        CallArguments(0, "}"),
    ]
    assert parser.finish() == []


def test_content_streams_while_no_call_begins() -> None:
    parser = CallSplitter(Calling(HERMES, SCHEMAS))
    assert parser.feed("Hello ") == [Content("Hello")]
    assert parser.feed("you <") == [Content(" you")]
    assert parser.feed("3") == [Content(" <3")]
    assert parser.finish() == []


def test_ids_are_the_models_own_where_it_gives_them() -> None:
    kimi = WRITTEN[[name for name, _, _ in WRITTEN].index("kimi")][1]
    ids = [call.id for call in heard(BY_NAME["kimi"], kimi, 5).calls]
    assert ids == ["functions.weather:0", "functions.now:1"]
    mistral = "[TOOL_CALLS]now[CALL_ID]abc123xyz[ARGS]{}[TOOL_CALLS]now[ARGS]{}"
    one, two = heard(BY_NAME["mistral"], mistral, 5).calls
    assert one.id == "abc123xyz"
    assert len(two.id) == 9
    assert two.id.isalnum()


@pytest.mark.parametrize(
    ("template", "name"),
    [
        ("<tool_call>{{ tool_call.name }}", "hermes"),
        ("{% if tools %}<tool_call>\\n<function=x>", "hermes"),
        ("<tool_call>{{ name }}<arg_key>", "hermes"),
        ("[TOOL_CALLS]", "mistral"),
        ("<|start_header_id|>{% if tools %}", "llama"),
        ("<|python_tag|>", "llama"),
        ("<|START_ACTION|>", "cohere"),
        ("<|tool_list_start|>", "pythonic"),
        ("<|tool_call>x<tool_call|>", "gemma4"),
        ("nothing", "hermes"),
    ],
)
def test_the_form_is_told_by_the_template(template: str, name: str) -> None:
    assert form_of(template).name == name


TOOL = {"type": "function", "function": {"name": "weather", "parameters": WEATHER}}
OTHER = {"type": "function", "function": {"name": "now"}}


def test_tools_are_completed_for_the_template() -> None:
    tools = read_tools([TOOL, OTHER], None, None)
    assert tools == Tools(
        (
            {
                "type": "function",
                "function": {
                    "name": "weather",
                    "description": "",
                    "parameters": WEATHER,
                },
            },
            {
                "type": "function",
                "function": {
                    "name": "now",
                    "description": "",
                    "parameters": {"type": "object", "properties": {}},
                },
            },
        ),
        required=False,
        allowed=("weather", "now"),
        parallel=True,
    )


def test_the_choice_says_whether_and_what_is_called() -> None:
    assert not read_tools([TOOL], "none", None)
    assert not read_tools([], "auto", None)
    assert read_tools([TOOL, OTHER], "required", False).required
    named = {"type": "function", "function": {"name": "now"}}
    tools = read_tools([TOOL, OTHER], named, None)
    assert (tools.required, tools.allowed) == (True, ("now",))
    # An object that names no function is taken for the default, as in llama-server.
    assert not read_tools([TOOL], {"type": "x"}, None).required


@pytest.mark.parametrize(
    ("tools", "choice", "parallel", "words"),
    [
        ("x", None, None, "Expected 'tools' to be an array"),
        ([1], None, None, "a tool must be an object"),
        ([{"type": "x"}], None, None, 'Unsupported tool type: "x"'),
        ([{"type": "function"}], None, None, "Missing 'function'"),
        ([{"type": "function", "function": {}}], None, None, "Missing 'name'"),
        (
            [{"type": "function", "function": {"name": "a", "parameters": 1}}],
            None,
            None,
            "'parameters' must be an object",
        ),
        ([TOOL], "zzz", None, "Invalid tool_choice: zzz"),
        ([TOOL], 3, None, "'tool_choice' must be"),
        ([TOOL], {"type": "function", "function": {"name": "b"}}, None, "no tool 'b'"),
        ([], "required", None, "needs 'tools'"),
        ([TOOL], None, "yes", "'parallel_tool_calls' must be a boolean"),
    ],
)
def test_mistakes_in_tools_are_named(
    tools: Any, choice: Any, parallel: Any, words: str
) -> None:
    with pytest.raises(ToolError, match=words):
        read_tools(tools, choice, parallel)


def test_the_schema_of_a_call_names_the_allowed_tools_and_moves_references() -> None:
    point = {
        "properties": {"at": {"$ref": "#/$defs/point"}},
        "$defs": {"point": {"type": "array"}},
    }
    tool = {"type": "function", "function": {"name": "go", "parameters": point}}
    tools = read_tools([TOOL, tool], "required", None)
    weather, go = call_schema(tools)["anyOf"]
    assert weather["properties"]["name"] == {"const": "weather"}
    assert weather["properties"]["arguments"] == WEATHER
    assert weather["required"] == ["name", "arguments"]
    assert go["properties"]["arguments"] == {
        "type": "object",
        "properties": {"at": {"$ref": "#/anyOf/1/properties/arguments/$defs/point"}},
        "$defs": {"point": {"type": "array"}},
    }
    named = {"type": "function", "function": {"name": "go"}}
    (only,) = call_schema(read_tools([TOOL, tool], named, None))["anyOf"]
    assert only["properties"]["name"] == {"const": "go"}


def test_a_template_without_tools_is_told_in_words() -> None:
    tools = read_tools([OTHER], "required", None)
    user = {"role": "user", "content": "hi"}
    first, second = told_in_words([user], tools)
    assert first["role"] == "system"
    assert '"name": "now"' in first["content"]
    assert second == user
    system = {"role": "system", "content": "Be kind."}
    first, second = told_in_words([system, user], tools)
    assert first["content"].startswith("Be kind.\n\n")


def test_the_parsers_need_no_mlx() -> None:
    for path in (Path(__file__).parents[1] / "mlxceld/chat").glob("*.py"):
        assert "import mlx" not in path.read_text(encoding="utf-8")
        assert "from mlx_lm" not in path.read_text(encoding="utf-8")
