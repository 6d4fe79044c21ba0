"""Clients of an OpenAI-compatible server that load it and look at the clock.

HTTP is spoken here directly: a client has to cost little beside what it measures, on a
machine where both share the cores.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
import math
import random
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

_PLAIN = """
time year people way day man thing woman life child world school state family student
group country problem hand part place case week company system program question work
number night point home water room mother area money story fact month lot right study
book eye job word business issue side kind head house service friend father power hour
"""
PLAIN_WORDS = _PLAIN.split()
"""For servers whose tokenizer is not at hand: one token each in most vocabularies."""


class Failure(Exception):
    """An answer that did not come as it should; the text says how."""


@dataclass(slots=True)
class Answer:
    """One request and what came of it; times are those of `time.perf_counter`."""

    wanted: int
    """Tokens that the prompt was made to have."""
    began: float
    ended: float = 0.0
    arrivals: list[float] = field(default_factory=list)
    """When each chunk with text came."""
    prompt_tokens: int = 0
    """As the server counted, in its usage."""
    tokens: int = 0
    """Likewise; a server that tells no usage gets its chunks counted."""
    told: bool = False
    """Whether there was a usage."""
    text: str = ""
    """A digest of the answer's text, to be compared with another server's."""
    failure: str = ""

    @property
    def first(self) -> float:
        """Seconds to the first text; without any, to the end."""
        return (self.arrivals[0] if self.arrivals else self.ended) - self.began

    @property
    def gaps(self) -> list[float]:
        """Seconds between one chunk with text and the next."""
        return [later - sooner for sooner, later in itertools.pairwise(self.arrivals)]


@dataclass(frozen=True, slots=True)
class Prompt:
    """A text and the number of its tokens."""

    text: str
    tokens: int


class Prompts:
    """Texts of a wanted number of tokens, no two of which begin alike."""

    def __init__(self, words: Sequence[str], seed: int = 1) -> None:
        """`words` are one token each; more of them than there will be prompts."""
        self._words = words
        self._seed = seed
        self._made = 0

    def make(self, length: int) -> Prompt:
        """The next prompt. Servers that remember prompts gain nothing from others."""
        chance = random.Random(self._seed * 1_000_003 + self._made)
        first = self._words[self._made % len(self._words)]
        self._made += 1
        words = [first, *chance.choices(self._words, k=length - 1)]
        return Prompt("".join(f" {word}" for word in words), length)

    def mixed(self, count: int, shortest: int, longest: int) -> list[Prompt]:
        """Lengths that are uniform in their logarithm, in a random order.

        One from each of `count` equal parts of the range, so that few prompts are as
        mixed as many.
        """
        chance = random.Random(self._seed * 7919 + self._made)
        span = math.log(longest / shortest)
        lengths = [
            round(shortest * math.exp(span * (part + chance.random()) / count))
            for part in range(count)
        ]
        chance.shuffle(lengths)
        return [self.make(length) for length in lengths]


def words_of(file: Path, most: int = 8192) -> list[str]:
    """Words that are one token each behind a space, from a tokenizer.json."""
    tokenizer = Tokenizer.from_file(str(file))
    bare = [
        token[1:]
        for token in tokenizer.get_vocab()
        if token[:1] in ("Ġ", "▁")
        and token[1:].isascii()
        and token[1:].isalpha()
        and len(token) > 3
    ]
    bare.sort()
    found = tokenizer.encode_batch([f" {w}" for w in bare], add_special_tokens=False)
    words = [w for w, encoded in zip(bare, found, strict=True) if len(encoded.ids) == 1]
    if len(words) < 2:
        raise ValueError(f"{file} has no words of one token")
    return random.Random(1).sample(words, min(most, len(words)))


@dataclass(frozen=True, slots=True)
class Target:
    """Where a server answers, and what every request to it says."""

    host: str
    port: int
    body: Mapping[str, Any]
    path: str = "/v1/completions"
    patience: float = 600.0
    """Seconds that an answer may take, from the first to the last byte."""


async def ask(
    target: Target, prompt: Prompt, told: Callable[[Answer], None] = lambda _: None
) -> Answer:
    """Send one request and read its stream to the end; never raises for a failure.

    `told` is called at every text.
    """
    answer = Answer(prompt.tokens, time.perf_counter())
    whole = {
        "prompt": prompt.text,
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0.0,
        **target.body,
    }
    try:
        async with asyncio.timeout(target.patience):
            await _read(target, json.dumps(whole).encode(), answer, told)
    except TimeoutError:
        answer.failure = f"no end after {target.patience:.0f} seconds"
    except (OSError, EOFError, ValueError, Failure) as error:
        answer.failure = f"{type(error).__name__}: {error}"
    answer.ended = time.perf_counter()
    return answer


async def _read(
    target: Target, body: bytes, answer: Answer, told: Callable[[Answer], None]
) -> None:
    text: list[str] = []
    done = False
    async for line in request(target, "POST", target.path, body):
        if not line.startswith(b"data:"):
            continue
        now = time.perf_counter()
        data = line[5:].strip()
        if data == b"[DONE]":
            done = True
            continue
        chunk = json.loads(data)
        if "error" in chunk:
            raise Failure(str(chunk["error"])[:200])
        if usage := chunk.get("usage"):
            answer.prompt_tokens = usage["prompt_tokens"]
            answer.tokens = usage["completion_tokens"]
            answer.told = True
        piece = "".join(choice.get("text") or "" for choice in chunk["choices"])
        if piece:
            answer.arrivals.append(now)
            text.append(piece)
            told(answer)
    if not done:
        raise Failure("the stream broke off")
    if not answer.told:
        answer.prompt_tokens, answer.tokens = answer.wanted, len(answer.arrivals)
    # mlx-lm drops the space that an answer begins with.
    said = "".join(text).strip()
    answer.text = hashlib.sha256(said.encode()).hexdigest()[:16]


async def request(
    target: Target, method: str, path: str, body: bytes = b""
) -> AsyncIterator[bytes]:
    """The lines of the answer's body, as they come; `Failure` unless it is a 200."""
    reader, writer = await asyncio.open_connection(target.host, target.port)
    try:
        writer.write(
            f"{method} {path} HTTP/1.1\r\nHost: {target.host}:{target.port}\r\n"
            "Content-Type: application/json\r\nConnection: close\r\n"
            f"Content-Length: {len(body)}\r\n\r\n".encode()
            + body
        )
        await writer.drain()
        status = await reader.readline()
        chunked = False
        while (line := (await reader.readline()).strip()) != b"":
            name, _, value = line.lower().partition(b":")
            chunked |= name == b"transfer-encoding" and b"chunked" in value
        parts = _chunks(reader) if chunked else _until_the_end(reader)
        if status.split()[1:2] != [b"200"]:
            said = b"".join([part async for part in parts])
            raise Failure(f"{status.decode().strip()}: {said[:200]!r}")
        rest = b""
        async for part in parts:
            *lines, rest = (rest + part).split(b"\n")
            for line in lines:
                yield line
        if rest:
            yield rest
    finally:
        writer.close()


async def _chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while size := int((await reader.readline()).partition(b";")[0], 16):
        yield await reader.readexactly(size)
        await reader.readexactly(2)


async def _until_the_end(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while part := await reader.read(1 << 16):
        yield part


async def load(
    target: Target, prompts: Iterable[Prompt], clients: int
) -> tuple[list[Answer], float]:
    """All prompts from so many clients, and the seconds until the last had its answer.

    A client that has its answer takes the next prompt. Answers come in the order of
    the prompts.
    """
    coming = enumerate(prompts)
    answers: dict[int, Answer] = {}

    async def client() -> None:
        for number, prompt in coming:
            answers[number] = await ask(target, prompt)

    began = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(clients)))
    return [answers[n] for n in sorted(answers)], time.perf_counter() - began


@dataclass(slots=True)
class Gap:
    """A stream beside which a long prompt was read; seconds."""

    before: float
    """The median gap before that."""
    median: float
    """The median gap while it was read."""
    largest: float
    tokens: int
    """Chunks of the stream that came in that time."""
    prompt_tokens: int
    prompt_seconds: float
    """To the first token of the long prompt's answer."""
    failure: str = ""


async def gap(target: Target, short: Prompt, long: Prompt, lead: int = 24) -> Gap:
    """Start a stream, send a long prompt after `lead` chunks, and look at the gaps."""
    flowing, going_on = asyncio.Event(), asyncio.Event()
    until = math.inf
    stream_answer: list[Answer] = []

    def told(answer: Answer) -> None:
        stream_answer[:] = [answer]
        if len(answer.arrivals) >= lead:
            flowing.set()
        if answer.arrivals[-1] > until:
            going_on.set()

    stream = asyncio.create_task(ask(target, short, told))
    stream.add_done_callback(lambda _: flowing.set())
    stream.add_done_callback(lambda _: going_on.set())
    await flowing.wait()
    brief = replace(target, body={**target.body, "max_tokens": 2})
    other = await ask(brief, long)
    until = other.began + other.first
    if not stream.done():
        await going_on.wait()
    ended_early = stream.done()
    stream.cancel()
    await asyncio.wait([stream])
    arrivals = stream_answer[0].arrivals if stream_answer else []
    failure = other.failure
    if ended_early:
        said = stream.result().failure
        failure = failure or said or "the stream ended before the prompt was read"
    return gap_of(arrivals, other, failure)


def gap_of(arrivals: Sequence[float], other: Answer, failure: str = "") -> Gap:
    """The gaps that lie at least partly between sending and the other's first text."""
    since, until = other.began, other.began + other.first
    pairs = list(itertools.pairwise(arrivals))
    before = [b - a for a, b in pairs if b <= since]
    during = [b - a for a, b in pairs if b > since and a < until]
    return Gap(
        before=percentile(before, 50),
        median=percentile(during, 50),
        largest=max(during, default=math.nan),
        tokens=sum(since < t <= until for t in arrivals),
        prompt_tokens=other.prompt_tokens,
        prompt_seconds=other.first,
        failure=failure,
    )


def percentile(values: Iterable[float], percent: float) -> float:
    """The nearest rank: a value that occurred. Not a number where there is none."""
    ordered = sorted(values)
    if not ordered:
        return math.nan
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def measures(
    answers: Sequence[Answer], seconds: float, tokens_wanted: int
) -> dict[str, float]:
    """The numbers of a load. Answers that failed count nowhere but as failures."""
    good = [answer for answer in answers if not answer.failure]
    gaps = [gap for answer in good for gap in answer.gaps]
    waited = [answer.first for answer in good]
    tokens = sum(answer.tokens for answer in good)
    prompts = sum(answer.prompt_tokens for answer in good)
    return {
        "tokens_per_second": tokens / seconds,
        "prompt_tokens_per_second": prompts / sum(waited) if good else math.nan,
        "ttft_p50": percentile(waited, 50),
        "ttft_p99": percentile(waited, 99),
        "gap_p50": percentile(gaps, 50),
        "gap_p99": percentile(gaps, 99),
        "gap_max": max(gaps, default=math.nan),
        "seconds": seconds,
        "tokens": tokens,
        "prompt_tokens": prompts,
        "requests": len(answers),
        "failures": len(answers) - len(good),
        "short": sum(answer.tokens < tokens_wanted for answer in good),
        "counted_by_chunks": sum(not answer.told for answer in good),
    }
