"""The engine process as seen over its socket: one process, frames both ways."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, TypeVar

import msgspec
import pytest

from mlxceld.engine import messages as m
from mlxceld.engine.engine import Engine
from mlxceld.engine.main import serve
from mlxceld.plan import Wish
from mlxceld.problems import Problem, Refused, Unreachable
from tests.engine.processes import ROOT
from tests.fake import Script, command

Kind = TypeVar("Kind")

LOAD = m.Load(m.ModelSource("toy"), Wish("llama-compat", 1024, 2))


class Wire:
    """The front's end of the socket, without anything of the front's."""

    def __init__(self, sock: socket.socket, process: subprocess.Popen[bytes]) -> None:
        self.sock = sock
        self.process = process
        self.seen: list[m.Up] = []
        self._file = sock.makefile("rb")

    def send(self, *messages: m.Down) -> None:
        self.sock.sendall(m.frame(list(messages)))

    def receive(self) -> bool:
        """Read one frame; False at the end."""
        header = self._file.read(4)
        if len(header) < 4:
            return False
        self.seen += m.read_up(self._file.read(int.from_bytes(header, "big")))
        return True

    def next(self, kind: type[Kind]) -> Kind:
        """The next message of a kind; earlier ones of other kinds are passed over."""
        while True:
            while self.seen:
                message = self.seen.pop(0)
                if isinstance(message, kind):
                    return message
            assert self.receive(), f"the engine ended before any {kind.__name__}"

    def answer(self, request: int) -> m.Done | m.Failed:
        while True:
            end: Any = self.next(m.Done | m.Failed)  # type: ignore[arg-type]
            if end.id == request:
                answer: m.Done | m.Failed = end
                return answer

    def ready(self) -> m.Ready:
        self.send(LOAD)
        return self.next(m.Ready)

    def status(self) -> int:
        """The exit status, once it has ended."""
        return self.process.wait(10)


@contextmanager
def engine(
    script: Script | None = None, program: list[str] | None = None
) -> Iterator[Wire]:
    ours, theirs = socket.socketpair()
    ours.settimeout(20)
    process = subprocess.Popen(
        [*(program or command(script)), "--fd", str(theirs.fileno())],
        pass_fds=[theirs.fileno()],
        cwd=ROOT,
        stderr=subprocess.PIPE,
    )
    theirs.close()
    try:
        yield Wire(ours, process)
    finally:
        ours.close()
        process.kill()
        process.wait()
        assert process.stderr is not None
        process.stderr.close()


def generate(request: int, prompt: str, **fields: Any) -> m.Generate:
    return m.Generate(id=request, prompt=[prompt], sampling=m.Sampling(), **fields)


def test_an_engine_tells_what_it_loads_then_its_plan_and_its_slots() -> None:
    with engine() as wire:
        wire.send(LOAD)
        assert wire.next(m.Loading) == m.Loading("loading weights", 0, 100)
        plan = wire.next(m.Ready).plan
        assert (plan.slots, plan.slot_ctx, plan.pool) == (2, 512, 1024)
        assert wire.next(m.Snapshot).slots == [m.SlotState(0), m.SlotState(1)]


def test_a_wish_that_cannot_be_met_is_the_users_to_mend() -> None:
    with engine() as wire:
        wire.send(m.Load(m.ModelSource("toy"), Wish("llama-compat", 2048, 5)))
        failed = wire.next(m.LoadFailed)
        assert failed.config
        assert "leaves 409 tokens" in failed.what
        assert "lower parallel to 4 or less" in failed.hint
        assert wire.status() == 0


def test_a_model_that_does_not_load_is_no_fault_of_the_settings() -> None:
    with engine(Script(fail_load="a tensor is missing")) as wire:
        wire.send(LOAD)
        assert wire.next(m.LoadFailed) == m.LoadFailed(
            "RuntimeError: a tensor is missing"
        )


@pytest.mark.parametrize(("kind", "config"), [(Refused, True), (Unreachable, False)])
def test_only_what_a_later_start_cannot_mend_is_a_fault_of_the_settings(
    kind: type[Refused], config: bool
) -> None:
    def load(*_: Any) -> Engine:
        raise kind([Problem("is not there", where="owner/name", hint="look again")])

    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(m.frame([LOAD]))
        serve(theirs, load)
        told = m.read_up(ours.recv(1 << 16)[m.HEADER :])
    assert told == [
        m.LoadFailed("owner/name: is not there", "look again", config=config)
    ]


def test_an_engine_that_is_told_something_else_first_leaves() -> None:
    with engine() as wire:
        wire.send(m.Cancel(1))
        assert not wire.receive()
        assert wire.status() == 0


def test_a_request_is_answered_token_by_token() -> None:
    with engine(Script(answers={"hello": ["Hi", " there"]})) as wire:
        wire.ready()
        wire.send(generate(7, "hello you"))
        assert wire.next(m.Started) == m.Started(7, 0, n_prompt=2, n_cached=0)
        first, second = wire.next(m.Delta), wire.next(m.Delta)
        assert (first.text, second.text) == ("Hi", " there")
        done = wire.answer(7)
        assert isinstance(done, m.Done)
        assert (done.stop_type, done.n_decoded) == ("eos", 3)


def test_the_last_snapshot_after_a_request_shows_an_idle_engine() -> None:
    with engine(Script(kv_bytes_per_token=1000)) as wire:
        wire.ready()
        wire.next(m.Snapshot)
        wire.send(generate(7, "a b c", n_predict=4))
        wire.answer(7)
        while (snapshot := wire.next(m.Snapshot)).slots[0].processing:
            pass
        assert snapshot.slots == [m.SlotState(0, task=7, n_held=6), m.SlotState(1)]
        assert (snapshot.waiting, snapshot.n_live) == (0, 0)
        assert snapshot.kv_bytes == 1_024_000
        assert snapshot.totals.predicted_tokens == 4


def test_many_messages_in_one_frame_are_taken_in_order() -> None:
    with engine() as wire:
        wire.ready()
        wire.send(
            generate(1, "a", n_predict=400),
            m.Cancel(1),
            generate(2, "b", n_predict=3),
        )
        assert isinstance(wire.answer(2), m.Done)
        totals = wire.next(m.Snapshot).totals
        assert (totals.requests, totals.cancelled) == (2, 1)


def test_text_is_tokenised_while_a_long_prompt_is_read() -> None:
    with engine(Script(prefill_seconds=0.01)) as wire:
        wire.ready()
        # A chunk of a second and a half.
        wire.send(generate(1, "word " * 151, n_predict=1))
        wire.next(m.Started)
        wire.send(m.Tokenize(2, ["</s> one", 0]), m.Detokenize(3, [0, 1, 1, 0]))
        read_before = []
        while not isinstance(message := wire.next(m.Message), m.Detokenized):
            read_before.append(message)
        assert message == m.Detokenized(3, "</s>x x </s>")
        [tokenized] = [e for e in read_before if isinstance(e, m.Tokenized)]
        assert (tokenized.id, tokenized.pieces) == (2, [b"</s>", b"one ", b"</s>"])
        progress = [e.processed for e in read_before if isinstance(e, m.Progress)]
        assert progress in ([], [0])
        assert isinstance(wire.answer(1), m.Done)


@pytest.mark.parametrize("token", [-1, 1_000_000])
def test_a_token_that_does_not_exist_is_refused(token: int) -> None:
    with engine() as wire:
        wire.ready()
        wire.send(m.Generate(id=1, prompt=[token], sampling=m.Sampling()))
        wire.send(m.Detokenize(2, [0, token]))
        failed = [wire.next(m.Failed), wire.next(m.Failed)]
        assert failed == [
            m.Failed(n, 400, "invalid_request_error", "Prompt contains invalid tokens")
            for n in (1, 2)
        ]
        wire.send(generate(3, "a", n_predict=2))
        assert isinstance(wire.answer(3), m.Done)


def test_an_empty_prompt_is_refused_and_the_next_one_answered() -> None:
    with engine() as wire:
        wire.ready()
        wire.send(m.Generate(id=1, prompt=[], sampling=m.Sampling()))
        failed = wire.answer(1)
        assert isinstance(failed, m.Failed)
        assert failed.code == 400
        wire.send(generate(2, "a", n_predict=2))
        assert isinstance(wire.answer(2), m.Done)


@pytest.mark.parametrize("busy", [False, True])
def test_an_engine_ends_with_its_socket(busy: bool) -> None:
    with engine(Script(step_seconds=0.01)) as wire:
        wire.ready()
        if busy:
            wire.send(generate(1, "a"))
            wire.next(m.Delta)
        wire.sock.shutdown(socket.SHUT_RDWR)
        assert wire.status() == 0


def test_an_engine_whose_front_has_gone_while_it_loads_ends_after_loading() -> None:
    with engine(Script(load_seconds=0.3)) as wire:
        wire.send(LOAD)
        wire.next(m.Loading)
        wire.sock.shutdown(socket.SHUT_RDWR)
        assert wire.status() == 0


def test_an_engine_that_is_told_to_leave_leaves() -> None:
    with engine() as wire:
        wire.ready()
        wire.send(generate(1, "a"), m.Shutdown())
        assert wire.status() == 0


@pytest.mark.parametrize("noise", ["00000001 ff", "ffffffff"], ids=["body", "length"])
def test_a_malformed_message_ends_the_engine_and_says_so(noise: str) -> None:
    with engine() as wire:
        wire.ready()
        wire.sock.sendall(bytes.fromhex(noise))
        assert wire.status() == 1
        assert wire.process.stderr is not None
        assert b"malformed message" in wire.process.stderr.read()


def test_an_idle_engine_shows_that_it_lives() -> None:
    """About five times a second here, with what MLX holds: nothing, in this engine."""
    with engine() as wire:
        wire.send(msgspec.structs.replace(LOAD, chunk_seconds=0.2))
        wire.next(m.Ready)
        began = time.monotonic()
        for _ in range(5):
            assert wire.next(m.Snapshot).memory == m.MemoryUse()
        assert 0.4 < time.monotonic() - began < 3


def test_signals_are_the_fronts_to_decide_about() -> None:
    """A service manager's SIGTERM reaches the engine too, before the front is done."""
    text = json.dumps(asdict(Script()))
    program = (
        "import sys, types; from tests import fake; from mlxceld.engine import main; "
        "toy = types.ModuleType('toy'); "
        f"toy.load = fake.loader(fake.Script(**{json.loads(text)!r})); "
        "sys.modules['mlxceld.engine.load'] = toy; main.main(sys.argv[1:])"
    )
    with engine(program=[sys.executable, "-c", program]) as wire:
        wire.ready()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            os.kill(wire.process.pid, number)
        wire.send(generate(1, "a", n_predict=2))
        assert isinstance(wire.answer(1), m.Done)
