from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from benchmarks import clients
from benchmarks.clients import Answer, Prompt, Prompts, Target

PLAIN = b"HTTP/1.0 200 OK\r\nContent-type: text/event-stream\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
PROMPT = Prompt(" red blue", 2)


def event(text: str, **more: Any) -> bytes:
    chunk = {"choices": [{"index": 0, "text": text}], **more}
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


def framed(*parts: bytes) -> bytes:
    sized = [f"{len(part):x}\r\n".encode() + part + b"\r\n" for part in parts]
    return b"".join([*sized, b"0\r\n\r\n"])


USAGE = {"usage": {"prompt_tokens": 2, "completion_tokens": 5}}
DONE = b"data: [DONE]\n\n"


def answered(reply: bytes, *, patience: float = 5.0, pause: float = 0.0) -> Answer:
    """What `ask` makes of a server that sends just these bytes."""

    async def use(target: Target) -> Answer:
        return await clients.ask(target, PROMPT)

    return with_server(reply, use, patience=patience, pause=pause)


def with_server(
    reply: bytes,
    use: Callable[[Target], Awaitable[Any]],
    *,
    patience: float = 5.0,
    pause: float = 0.0,
) -> Any:
    asked: list[dict[str, Any]] = []

    async def serve(r: asyncio.StreamReader, w: asyncio.StreamWriter) -> None:
        size = 0
        while (line := await r.readline()).strip():
            name, _, value = line.partition(b":")
            size = int(value) if name == b"Content-Length" else size
        asked.append(json.loads(await r.readexactly(size)))
        w.write(reply)
        await asyncio.sleep(pause)
        w.close()

    async def both() -> Any:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server:
            target = Target("127.0.0.1", port, {"max_tokens": 5}, patience=patience)
            found = await use(target)
        assert asked[0]["max_tokens"] == 5
        assert asked[0]["prompt"] == " red blue"
        return found

    return asyncio.run(both())


def test_tokens_are_what_the_usage_says_not_the_chunks() -> None:
    answer = answered(PLAIN + event("a") + event("") + event("b c", **USAGE) + DONE)
    assert (answer.failure, answer.told) == ("", True)
    assert (answer.tokens, answer.prompt_tokens, len(answer.arrivals)) == (5, 2, 2)


def test_chunked_bodies_may_be_cut_anywhere() -> None:
    whole = event("a") + event("b", **USAGE) + DONE
    parts = [whole[i : i + 7] for i in range(0, len(whole), 7)]
    cut = answered(CHUNKED + framed(*parts))
    assert (cut.failure, cut.tokens, len(cut.arrivals)) == ("", 5, 2)
    assert cut.text == answered(PLAIN + whole).text != ""


def test_without_a_usage_chunks_count_and_it_is_said() -> None:
    answer = answered(PLAIN + event("a") + event("b") + event("c") + DONE)
    assert (answer.tokens, answer.prompt_tokens, answer.told) == (3, 2, False)


def test_comments_between_the_events_are_no_text() -> None:
    answer = answered(PLAIN + b": keepalive 1/2\n\n" + event("a", **USAGE) + DONE)
    assert len(answer.arrivals) == 1


@pytest.mark.parametrize(
    ("reply", "says"),
    [
        (b"HTTP/1.1 503 Busy\r\n\r\nno room", "503 Busy: b'no room'"),
        (PLAIN + event("a"), "broke off"),
        (PLAIN + event("a") + b'data: {"error": "out of luck"}\n\n', "out of luck"),
        (CHUNKED + b"ff\r\nda", "IncompleteReadError"),
        (b"", "Failure"),
    ],
)
def test_a_failure_is_told_in_words(reply: bytes, says: str) -> None:
    assert says in answered(reply).failure


def test_patience_ends() -> None:
    answer = answered(PLAIN + event("a"), patience=0.05, pause=5.0)
    assert answer.failure == "no end after 0 seconds"
    assert answer.ended > answer.began


def test_a_load_sends_every_prompt_once_and_keeps_their_order() -> None:
    reply = PLAIN + event("a", **USAGE) + DONE

    async def use(target: Target) -> Any:
        prompts = [Prompt(" red blue", wanted) for wanted in range(2, 9)]
        return await clients.load(target, prompts, 3)

    answers, seconds = with_server(reply, use)
    assert [answer.wanted for answer in answers] == [2, 3, 4, 5, 6, 7, 8]
    assert seconds >= max(answer.ended for answer in answers) - answers[0].began - 0.1


def test_prompts_have_their_lengths_and_begin_differently() -> None:
    prompts = Prompts([f"w{i}" for i in range(50)])
    made = [prompts.make(7) for _ in range(50)]
    assert {len(prompt.text.split()) for prompt in made} == {7}
    assert len({prompt.text.split()[0] for prompt in made}) == 50
    again = Prompts([f"w{i}" for i in range(50)])
    assert [again.make(7) for _ in range(50)] == made


def test_mixed_lengths_cover_the_range_evenly_in_their_logarithm() -> None:
    lengths = [p.tokens for p in Prompts(["a", "b"]).mixed(6, 64, 4096)]
    assert lengths != sorted(lengths)
    # 64 to 4096 are six doublings: one prompt from each.
    assert sorted(int(math.log2(n / 64) + 1e-9) for n in lengths) == [0, 1, 2, 3, 4, 5]


def test_words_are_those_of_one_token(tmp_path: Path) -> None:
    vocab = {"Ġ": 0, "Ġred": 1, "Ġblue": 2, "Ġgre": 3, "Ġ12": 4, "e": 5, "Ġhalf": 6}
    model = models.BPE(vocab=vocab, merges=[], ignore_merges=True)
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    file = tmp_path / "tokenizer.json"
    tokenizer.save(str(file))
    assert sorted(clients.words_of(file)) == ["blue", "gre", "half", "red"]


def at(*arrivals: float, **more: Any) -> Answer:
    answer = Answer(wanted=10, began=0.0, ended=arrivals[-1], arrivals=list(arrivals))
    answer.prompt_tokens, answer.told = 10, True
    for name, value in more.items():
        setattr(answer, name, value)
    return answer


def test_measures_worked_out_by_hand() -> None:
    answers = [
        at(1.0, 1.5, 2.5, tokens=4),
        at(3.0, 3.25, tokens=2),
        at(9.0, tokens=99, failure="broke off"),
    ]
    found = clients.measures(answers, 4.0, 4)
    assert found["tokens_per_second"] == 6 / 4
    assert found["prompt_tokens_per_second"] == 20 / 4
    assert (found["ttft_p50"], found["ttft_p99"]) == (1.0, 3.0)
    assert (found["gap_p50"], found["gap_max"]) == (0.5, 1.0)
    assert (found["requests"], found["failures"], found["short"]) == (3, 1, 1)


def test_the_percentile_is_a_value_that_occurred() -> None:
    values = [float(n) for n in range(1, 101)]
    assert clients.percentile(values, 99) == 99.0
    assert clients.percentile(values, 50) == 50.0
    assert clients.percentile([3.0], 99) == 3.0
    assert math.isnan(clients.percentile([], 50))


def test_a_gap_counts_while_the_prompt_is_read_even_in_part() -> None:
    stream = [0.0, 0.1, 0.2, 0.3, 0.8, 1.0, 1.6, 1.7]
    other = Answer(8192, began=0.25, arrivals=[1.25], ended=1.3, prompt_tokens=8192)
    gap = clients.gap_of(stream, other)
    # Before: three of 0.1, one of which is cut by the sending and counts as during.
    assert gap.before == pytest.approx(0.1)
    # During: 0.1, 0.5, 0.2 and 0.6.
    assert gap.median == pytest.approx(0.2)
    assert gap.largest == pytest.approx(0.6)
    assert (gap.tokens, gap.prompt_tokens, gap.prompt_seconds) == (3, 8192, 1.0)


def test_the_stream_is_looked_at_beside_the_long_prompt() -> None:
    """The server gives tokens for ever, to the long prompt after half a second."""

    async def serve(r: asyncio.StreamReader, w: asyncio.StreamWriter) -> None:
        while (line := await r.readline()).strip():
            if line.startswith(b"Content-Length"):
                size = int(line.split()[1])
        long = len(json.loads(await r.readexactly(size))["prompt"]) > 50
        w.write(PLAIN)
        if long:
            await asyncio.sleep(0.5)
            w.write(event("x", **USAGE) + DONE)
            w.close()
            return
        while not w.is_closing():
            w.write(event("x"))
            await asyncio.sleep(0.02)

    async def both() -> clients.Gap:
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            target = Target("127.0.0.1", port, {})
            short, long = Prompt(" a", 1), Prompt(" a" * 90, 90)
            return await clients.gap(target, short, long, lead=3)

    gap = asyncio.run(both())
    assert gap.failure == ""
    assert gap.prompt_seconds >= 0.5
    assert 3 <= gap.tokens <= 30
    assert 0.02 <= gap.median <= gap.largest
