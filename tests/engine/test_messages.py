"""What goes into a frame comes out of it, and nothing else does."""

from __future__ import annotations

import math
from typing import get_args

import msgspec
import pytest

from mlxceld.engine import messages as m
from mlxceld.plan import Plan, Wish

DOWN: list[m.Down] = [
    m.Load(
        m.ModelSource("/models/toy", "org/name", offline=True),
        Wish("per-seq", 8192, -1, 1024, kv_unified=True, min_slot_ctx=64),
        memory_limit=1 << 40,
        device="gpu",
        dequantize="on",
        cache_type_k="q8_0",
        cache_type_v="q4_0",
        prefill_chunk=64,
        token_gap=0.1,
        queue_size=0,
        slot_prompt_similarity=0.5,
    ),
    m.Load(m.ModelSource(), Wish()),
    m.Generate(
        id=7,
        prompt=["naïve 😀", 3, "\x00"],
        sampling=m.Sampling(
            temperature=0.0,
            seed=(1 << 64) - 1,
            logit_bias=((5, -math.inf), (6, 1.5)),
            ignore_eos=True,
        ),
        add_special=False,
        n_predict=0,
        stop=["\n", "end"],
        id_slot=2,
        cache_prompt=False,
        shift=m.Shift(keep=-1, discard=5),
        budget=m.ThinkingBudget(9, "<think>", "</think>", True, "né"),
    ),
    m.Generate(id=8, prompt=[], sampling=m.Sampling()),
    m.Cancel(7),
    m.Tokenize(9, ["a", 1], add_special=True, parse_special=False),
    m.Detokenize(10, [1, 2, 3]),
    m.SlotAction(11, 2, "save", "/saved", "naïve 😀.bin"),
    m.SlotAction(12, 0, "erase"),
    m.Shutdown(),
]

UP: list[m.Up] = [
    m.Loading("loading weights", 5, 100),
    m.Ready(
        m.ModelInfo(n_vocab=320, n_ctx_train=2048, batched=False, decode_note="why"),
        Plan("legacy", 2, 2048, 4096, shared=False, notes=("one", "two")),
    ),
    m.LoadFailed("no such file", "look again", config=True),
    m.Started(7, 1, 20, 5),
    m.Delta(7, "é", [1, 2], 3),
    m.Delta(7, "", [1], 4),
    m.Progress(7, 512, 2048, 5),
    m.Done(
        id=7,
        slot=1,
        text=" end",
        tokens=[0],
        stop_type="word",
        stopping_word="stop",
        truncated=False,
        n_prompt=20,
        n_cached=5,
        n_decoded=9,
        n_held=28,
        timings=m.Timings(1.5, 2.5, 3.5),
    ),
    m.Failed(7, 400, "exceed_context_size_error", "too long", 600, 512),
    m.Failed(7, 503, "unavailable_error", "full", retry_after=1),
    m.Tokenized(9, [1, 2], [b"\xf0\x9f", b"\x98\x80"]),
    m.Detokenized(10, "text"),
    m.SlotDone(11, 20, 4096, 1.5),
    m.Fault("serving slot 1", "RuntimeError", ["a.py:7 step"]),
    m.Snapshot(
        [m.SlotState(0), m.SlotState(1, task=7, processing=True, n_held=3)],
        waiting=2,
        n_live=3,
        kv_bytes=1 << 33,
        totals=m.Totals(prompt_tokens=20, prompt_ms=1.5),
    ),
]


def body(frame: bytes) -> bytes:
    """What follows the length, which must be right."""
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    return frame[4:]


def test_the_examples_leave_out_no_kind_of_message() -> None:
    assert {type(message) for message in DOWN} == set(get_args(m.Down))
    assert {type(message) for message in UP} == set(get_args(m.Up))


@pytest.mark.parametrize("message", DOWN, ids=lambda message: type(message).__name__)
def test_a_message_to_the_engine_arrives_as_it_was_sent(message: m.Down) -> None:
    assert m.read_down(body(m.frame([message]))) == [message]


@pytest.mark.parametrize("message", UP, ids=lambda message: type(message).__name__)
def test_a_message_to_the_front_arrives_as_it_was_sent(message: m.Up) -> None:
    assert m.read_up(body(m.frame([message]))) == [message]


def test_one_frame_carries_many_messages_in_their_order() -> None:
    assert m.read_down(body(m.frame(DOWN))) == DOWN
    assert m.read_up(body(m.frame(UP))) == UP


def test_a_frame_is_a_length_of_four_bytes_and_then_msgpack() -> None:
    # An array of one map of two pairs: is = "Cancel", id = 7.
    assert m.frame([m.Cancel(7)]) == bytes.fromhex(
        "000000109182a26973a643616e63656ca2696407"
    )


def test_what_has_its_default_takes_no_room() -> None:
    assert m.frame([m.Shutdown()])[4:] == bytes.fromhex(
        "91 81 a26973 a853687574646f776e"
    )


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\xff",
        bytes.fromhex("91 81 a26973 a34e6f70"),
        bytes.fromhex("91 82 a26973 a643616e63656c a26964 a137"),
        m.frame([m.Detokenized(1, "an answer")])[4:],
    ],
    ids=["empty", "no message", "unknown kind", "id is text", "wrong direction"],
)
def test_what_is_no_message_to_the_engine_is_an_error(raw: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        m.read_down(raw)


def test_a_question_of_the_front_is_no_answer_of_the_engine() -> None:
    with pytest.raises(msgspec.DecodeError):
        m.read_up(body(m.frame([m.Cancel(1)])))
