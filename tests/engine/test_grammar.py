"""Structured output over an exact vocabulary: masks, ends, mistakes and limits."""

from __future__ import annotations

import json
import threading
from typing import Any

import numpy as np
import pytest

from mlxceld.engine import grammar
from mlxceld.engine.grammar import GrammarError, Grammars, Matcher
from mlxceld.engine.messages import GrammarSpec
from mlxceld.engine.text import Text

BOS, END, OTHER_END, FIRST_BYTE = 0, 1, 2, 3
MORE = [b'{"', b'":', b"ab", b"a", b"", b"<think>", b"\xea\xb0", b"\x80!"]
PIECES = [b"<s>", b"</s>", b"<end>", *(bytes([i]) for i in range(256)), *MORE]
SPECIAL = [BOS, END, OTHER_END, FIRST_BYTE + 256 + MORE.index(b"<think>")]
PADDING = 5


def _text(ends: tuple[int, ...] = (END, OTHER_END)) -> Text:
    """Every byte is a token, some pairs are, and `a` is one twice."""
    return Text(
        PIECES,
        lambda text, _: [FIRST_BYTE + byte for byte in text.encode()],
        special=SPECIAL,
        eos_ids=ends,
    )


@pytest.fixture(scope="module")
def grammars() -> Grammars:
    return Grammars(_text(), len(PIECES) + PADDING)


def gbnf(text: str) -> GrammarSpec:
    return GrammarSpec("gbnf", text)


def schema(value: Any) -> GrammarSpec:
    return GrammarSpec("json_schema", json.dumps(value))


def allowed(matcher: Matcher) -> set[bytes]:
    """The texts of the tokens that may come next, ends aside."""
    return {PIECES[i] for i in np.flatnonzero(matcher.mask()) if i > OTHER_END}


def may_end(matcher: Matcher) -> bool:
    mask = matcher.mask()
    assert mask[END] == mask[OTHER_END]
    return bool(mask[END])


def write(matcher: Matcher, text: str) -> bool:
    """Accept a text byte by byte; False at the first byte that is not allowed."""
    for byte in text.encode():
        token = FIRST_BYTE + byte
        fits = bool(matcher.mask()[token])
        assert matcher.accept(token) == fits
        if not fits:
            return False
    return True


def matches(grammars: Grammars, spec: GrammarSpec, text: str) -> bool:
    """Whether a whole text is an answer."""
    matcher = grammars.compile(spec)
    return write(matcher, text) and may_end(matcher)


def test_every_token_that_fits_is_allowed_and_no_other(grammars: Grammars) -> None:
    matcher = grammars.compile(gbnf('root ::= "ab" | "\\uac00!"'))
    assert allowed(matcher) == {b"a", b"ab", b"\xea", b"\xea\xb0"}
    assert len(matcher.mask()) == len(PIECES) + PADDING
    twice = [i for i, piece in enumerate(PIECES) if piece == b"a"]
    assert matcher.mask()[twice].all()
    assert matcher.accept(PIECES.index(b"\xea\xb0"))
    assert allowed(matcher) == {b"\x80", b"\x80!"}


def test_it_may_end_exactly_where_the_grammar_may(grammars: Grammars) -> None:
    matcher = grammars.compile(gbnf('root ::= "a"{2,3}'))
    assert [write(matcher, "a"), may_end(matcher)] == [True, False]
    assert not matcher.accept(END)
    assert [write(matcher, "a"), may_end(matcher), matcher.ended] == [True, True, False]
    assert matcher.accept(END)
    assert [write(matcher, "a"), may_end(matcher), matcher.ended] == [True, True, True]
    assert allowed(matcher) == set()


def test_a_token_that_is_not_allowed_changes_nothing(grammars: Grammars) -> None:
    matcher = grammars.compile(gbnf('root ::= "xy"'))
    for token in (FIRST_BYTE + ord("y"), BOS, SPECIAL[-1], len(PIECES), 10**6, -1):
        assert not matcher.accept(token)
    assert write(matcher, "xy")
    assert may_end(matcher)


def test_special_tokens_and_padding_are_never_allowed(grammars: Grammars) -> None:
    mask = grammars.compile(gbnf("root ::= .*")).mask()
    assert not mask[SPECIAL[0]]
    assert not mask[SPECIAL[-1]]
    assert not mask[PIECES.index(b"")]
    assert not mask[len(PIECES) :].any()
    assert mask[FIRST_BYTE : FIRST_BYTE + 0x80].all()


def test_a_model_without_an_end_still_follows_its_grammar() -> None:
    matcher = Grammars(_text(ends=()), len(PIECES)).compile(gbnf('root ::= "a"'))
    assert write(matcher, "a")
    assert matcher.ended
    assert not matcher.mask().any()


def test_logits_narrower_than_the_vocabulary_get_a_mask_that_fits() -> None:
    narrow = Grammars(_text(), FIRST_BYTE + 0x80)
    matcher = narrow.compile(gbnf('root ::= "ab"'))
    assert len(matcher.mask()) == FIRST_BYTE + 0x80
    assert allowed(matcher) == {b"a"}
    assert not matcher.accept(PIECES.index(b"ab"))


def test_a_copy_goes_its_own_way(grammars: Grammars) -> None:
    matcher = grammars.compile(gbnf('root ::= "a" [bc]'))
    write(matcher, "a")
    copy = matcher.copy()
    assert write(copy, "b")
    assert copy.ended
    assert not matcher.ended
    assert allowed(matcher) == {b"b", b"c"}


def test_a_mask_that_is_kept_does_not_change(grammars: Grammars) -> None:
    matcher = grammars.compile(gbnf('root ::= "xy"'))
    first = matcher.mask()
    before = first.copy()
    write(matcher, "x")
    matcher.mask()
    assert (first == before).all()


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ('{"a":1}', True),
        ('{ "a" : 1 , "b":[ "x" , null ] }', False),
        ('{"a": 12, "b": "x"}', True),
        ('{\n  "a": 1,\n  "b": "\\u00e9\\n"\n}', True),
        ('{"b":"x"}', False),
        ('{"a":1.5}', False),
        ('{"a":1,"c":2}', False),
        ('{"a":1} ', False),
        ('{  "a":1}', False),
        ("{\n\n\n", False),
        ("[]", False),
    ],
)
def test_a_schema_is_followed(grammars: Grammars, text: str, fits: bool) -> None:
    wanted = {
        "properties": {"a": {"type": "integer"}, "b": {"type": "string"}},
        "required": ["a"],
    }
    assert matches(grammars, schema(wanted), text) is fits


@pytest.mark.parametrize(
    ("wanted", "good", "bad"),
    [
        ({"const": "42"}, '"42"', "42"),
        ({"enum": ["x", 5, None]}, "null", '"y"'),
        ({"items": [{"type": "integer"}, {"type": "null"}]}, "[-3, null]", "[-3]"),
        ({"type": ["string", "null"]}, "null", "5"),
        ({"oneOf": [{"type": "string"}, {"type": "boolean"}]}, "true", "5"),
        ({"type": "string", "pattern": "^[ab]{2}$"}, '"ab"', '"abc"'),
        ({"type": "string", "format": "date"}, '"2024-02-28"', '"yesterday"'),
        ({"type": "integer", "minimum": 5, "maximum": 12}, "12", "4"),
        ({"type": "array", "items": {"$ref": "#"}}, "[[], [[]]]", "[1]"),
        ({"type": "array", "uniqueItems": True}, "[1, 1]", "{}"),
        ({"properties": {"x": True}}, '{"x": {"y": []}}', '{"y": 1}'),
    ],
)
def test_schemas_of_many_kinds(
    grammars: Grammars, wanted: Any, good: str, bad: str
) -> None:
    assert matches(grammars, schema(wanted), good)
    assert not matches(grammars, schema(wanted), bad)


def test_any_object_is_any_object(grammars: Grammars) -> None:
    spec = GrammarSpec("json_object")
    assert matches(grammars, spec, '{"x" : [1, 2.5e3, null],\n  "y":{}}')
    assert not matches(grammars, spec, '"x"')


@pytest.mark.parametrize(
    ("regex", "good", "bad"),
    [
        ("a/b\\/c", "a/b/c", "a/b"),
        ("x\ny", "x\ny", "x y"),
        (r"\d{3}-(foo|bar)", "123-bar", "12-bar"),
        ("^ab$", "ab", "abc"),
        ("", "", "a"),
    ],
)
def test_a_regular_expression_matches_the_whole_answer(
    grammars: Grammars, regex: str, good: str, bad: str
) -> None:
    assert matches(grammars, GrammarSpec("regex", regex), good)
    assert not matches(grammars, GrammarSpec("regex", regex), bad)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (
            gbnf('root ::= "a"\nx ::= this is (not valid GBNF'),
            "Failed to parse grammar: line 2: `)` is wanted",
        ),
        (gbnf("root ::= root"), "Failed to parse grammar: it allows no text at all"),
        (gbnf("root ::= []"), "Failed to parse grammar: it allows no text at all"),
        (
            GrammarSpec("regex", "ab(c"),
            "regular expression, character 3: unclosed group",
        ),
        (
            schema({"anyOf": [{"const": 1}, {"type": "string", "pattern": "x(?=b)"}]}),
            "JSON schema, at `#/anyOf/1`: regular expression, character 2: look-around",
        ),
        (
            schema({"properties": {"a": {"type": "string", "minLength": -1}}}),
            "JSON schema, at `#/properties/a`: Expected positive integer",
        ),
        (schema({"enum": []}), "JSON schema, at `#`: Unsatisfiable schema"),
        (schema({"$ref": "#"}), "JSON schema, at `#`: it allows no text at all"),
        (schema(False), "JSON schema, at `#`: Unsatisfiable schema"),
        (
            GrammarSpec("json_schema", '{"const":' + "[" * 5000 + "]" * 5000 + "}"),
            "JSON schema: nested too deeply",
        ),
        (
            GrammarSpec("json_schema", '{"const":' + "[" * 300 + "]" * 300 + "}"),
            "JSON schema, at `#`: ",
        ),
        (schema({"type": "hiccup"}), "JSON schema, at `#/type`: a type is one of"),
        (gbnf('root ::= "' + "a" * grammar.MOST_TEXT + '"'), "longer than"),
    ],
)
def test_mistakes_are_told_in_one_line(
    grammars: Grammars, spec: GrammarSpec, words: str
) -> None:
    with pytest.raises(GrammarError) as caught:
        grammars.compile(spec)
    assert str(caught.value).startswith(words)
    assert "\n" not in str(caught.value)
    assert grammars.compile(gbnf('root ::= "a"')).accept(FIRST_BYTE + ord("a"))


def test_rules_and_references_that_go_deep_harm_nobody(grammars: Grammars) -> None:
    chain = {
        f"a{i}": {"properties": {"x": {"$ref": f"#/$defs/a{i + 1}"}}, "required": ["x"]}
        for i in range(1200)
    }
    deep = {"$ref": "#/$defs/a0", "$defs": {**chain, "a1200": {"type": "string"}}}
    assert allowed(grammars.compile(schema(deep))) == {b"{", b'{"'}
    rules = "\n".join(f'a{i} ::= "x" a{i + 1} | "y"' for i in range(3000))
    spec = gbnf(f'root ::= a0\n{rules}\na3000 ::= "z" root')
    assert allowed(grammars.compile(spec)) == {b"x", b"y"}


def test_text_that_leaves_no_choice_takes_no_time(grammars: Grammars) -> None:
    """A hundred million characters, of which none is read ahead."""
    matcher = grammars.compile(GrammarSpec("regex", "(((a{100}){100}){100}){100}"))
    assert write(matcher, "aaaa")
    assert allowed(matcher) == {b"a"}


def test_grammars_are_compiled_once_and_the_oldest_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(grammar, "KEPT", 2)
    own = Grammars(_text(), len(PIECES))
    compiled: list[str] = []
    compile_ = own._compile

    def count(spec: GrammarSpec) -> Any:
        compiled.append(spec.text)
        return compile_(spec)

    monkeypatch.setattr(own, "_compile", count)
    for letter in "abacab":
        matcher = own.compile(gbnf(f'root ::= "{letter}"'))
        assert write(matcher, letter)
    assert [text[-2] for text in compiled] == ["a", "b", "c", "b"]


def test_compiling_does_not_disturb_an_answer_in_another_thread(
    grammars: Grammars,
) -> None:
    failures: list[BaseException] = []

    def compile_many() -> None:
        try:
            for i in range(40):
                grammars.compile(gbnf(f'root ::= "{i}" root | [a-z]+'))
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=compile_many)
    matcher = grammars.compile(gbnf('root ::= ("ab" | "c")*'))
    thread.start()
    while thread.is_alive():
        assert write(matcher, "abc")
    thread.join()
    assert failures == []


def test_the_stack_size_of_other_threads_stays(grammars: Grammars) -> None:
    before = threading.stack_size()
    grammars.compile(gbnf('root ::= "something new"'))
    assert threading.stack_size() == before
