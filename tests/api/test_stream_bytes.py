"""Streams to the byte: what is encoded once is what an encoder makes of the whole."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from mlxceld.api.shapes import BUILD
from mlxceld.api.sse import HOLE, Mould, event
from tests import fake
from tests.api.serving import Served, serve

# What JSON has to write in another way, and a character of two tokens.
ANSWER = ["Hi", ' "q"\\\n', "\xc3", "\xa9", "\x01"]

PIECES = [b'"Hi"', b'" \\"q\\"\\\\\\n"', '"é"'.encode(), b'"\\u0001"']
"""The texts of the stream as JSON."""


@pytest.fixture(scope="module")
def talker() -> Iterator[Served]:
    with serve(fake.Script(answers={"tell": ANSWER})) as running:
        yield running


def stream(served: Served, path: str, body: dict[str, Any]) -> list[bytes]:
    """The frames of a stream; names that differ each time are `ID`, times 0."""
    reply = served.post(path, {"stream": True, "cache_prompt": False, **body})
    assert reply.status_code == 200
    text = re.sub(rb"(chatcmpl-|resp_|msg_)\w{32}", rb"\1ID", reply.content)
    text = re.sub(rb'"(created|created_at|completed_at)":\d+', rb'"\1":0', text)
    return text.split(b"\n\n")


def test_the_native_stream(talker: Served) -> None:
    frames = stream(talker, "/completion", {"prompt": "tell it", "n_predict": 9})

    def part(text: bytes, n: int, token: int) -> bytes:
        return (
            b'data: {"index":0,"content":%b,"tokens":[%d],"stop":false,"id_slot":-1,'
            b'"tokens_predicted":%d,"tokens_evaluated":2}' % (text, token, n)
        )

    # The bytes of half a character give no text; the token of the end is the last.
    assert frames[:6] == [
        part(b'"Hi"', 1, 2),
        part(b'" \\"q\\"\\\\\\n"', 2, 3),
        part(b'""', 3, 4),
        part('"é"'.encode(), 4, 5),
        part(b'"\\u0001"', 5, 6),
        part(b'""', 6, 0),
    ]
    assert frames[6].startswith(b'data: {"index":0,"content":"","tokens":[],"id_slot":')
    assert frames[7:] == [b""]


def test_the_stream_of_completions(talker: Served) -> None:
    asked = {"prompt": "tell it", "max_tokens": 9}
    frames = stream(talker, "/v1/completions", asked)
    build = BUILD.encode()
    assert frames[:4] == [
        b'data: {"choices":[{"text":%b,"index":0,"logprobs":null,"finish_reason":null}]'
        b',"created":0,"model":"toy","system_fingerprint":"%b",'
        b'"object":"text_completion","id":"chatcmpl-ID"}' % (text, build)
        for text in PIECES
    ]
    assert frames[-2:] == [b"data: [DONE]", b""]


def test_the_stream_of_a_chat(talker: Served) -> None:
    asked = {"messages": [{"role": "user", "content": "tell it"}], "max_tokens": 9}
    frames = stream(talker, "/v1/chat/completions", asked)
    build = BUILD.encode()
    assert frames[:5] == [
        b'data: {"choices":[{"finish_reason":null,"index":0,"delta":%b}],"created":0,'
        b'"id":"chatcmpl-ID","model":"toy","system_fingerprint":"%b",'
        b'"object":"chat.completion.chunk"}' % (delta, build)
        for delta in [
            b'{"role":"assistant","content":null}',
            *(b'{"content":%b}' % text for text in PIECES),
        ]
    ]
    assert frames[-2:] == [b"data: [DONE]", b""]


def test_the_stream_of_responses(talker: Served) -> None:
    frames = stream(talker, "/v1/responses", {"input": "tell it"})
    # Before: created, in_progress, output_item.added and content_part.added.
    assert frames[4:8] == [
        b"event: response.output_text.delta\n"
        b'data: {"type":"response.output_text.delta","item_id":"msg_ID",'
        b'"output_index":0,"content_index":0,"logprobs":[],"delta":%b,'
        b'"sequence_number":%d}' % (text, 4 + number)
        for number, text in enumerate(PIECES)
    ]
    assert b'"sequence_number":8}' in frames[8]


def test_the_stream_of_messages(talker: Served) -> None:
    asked = {"messages": [{"role": "user", "content": "tell it"}], "max_tokens": 9}
    frames = stream(talker, "/v1/messages", asked)
    # Before: message_start and content_block_start.
    assert frames[2:6] == [
        b"event: content_block_delta\n"
        b'data: {"type":"content_block_delta","index":0,'
        b'"delta":{"type":"text_delta","text":%b}}' % text
        for text in PIECES
    ]


def test_a_mould_gives_what_the_encoder_gives() -> None:
    # The name of a model may be anything, a lone NUL in a longer text included.
    mould = Mould({"a": {"text": HOLE}, "model": "x\0"}, "kind")
    for text in ("", "\0", 'say "no"', "é\u2028\U0001f600"):
        assert mould.filled(text) == event(
            {"a": {"text": text}, "model": "x\0"}, "kind"
        )


def test_a_mould_with_a_number_gives_what_the_encoder_gives() -> None:
    mould = Mould({"delta": HOLE, "n": HOLE, "end": True})
    for number in (0, 7, 123_456):
        assert mould.numbered("x", number) == event(
            {"delta": "x", "n": number, "end": True}
        )
