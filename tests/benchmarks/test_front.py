"""The benchmark of the front measures what it says."""

from __future__ import annotations

import io
import socket
import threading

from benchmarks import front, metronome
from benchmarks.streams import Stream
from mlxceld.engine import messages as m
from mlxceld.plan import Wish


def test_a_metronome_gives_each_row_a_token_every_beat() -> None:
    order = m.Load(m.ModelSource(), Wish(ctx_size=metronome.WINDOW, parallel=2))
    engine = metronome.load(order, lambda _loading: None, beat=0.01)
    found = front.bare(engine, front.prompts(2), 30)
    # Two rows, a hundred beats a second; a busy machine is late.
    assert 50 < found.rate < 205
    assert found.engine > 0


def test_events_are_counted_however_they_are_cut() -> None:
    answer = b'1a\r\ndata: {"a":1}\n\ndata: {"b":2}\n\n\r\n0\r\n\r\n'
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            taken, _ = server.accept()
            with taken:
                taken.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                taken.recv(100)
                for byte in answer:
                    taken.sendall(bytes([byte]))

        thread = threading.Thread(target=serve)
        thread.start()
        stream = Stream(server.getsockname()[1], b"GET / HTTP/1.1\r\n\r\n")
        with stream.sock:
            while not stream.ended:
                stream.read()
        thread.join()
    assert stream.events == 2


def test_a_pair_of_rounds_is_measured_and_told() -> None:
    setting = front.with_metronome(0.002, 2)
    out = io.StringIO()
    ((alone, served),) = front.measure(setting, "chat", 2, 60, 1, out)
    # Two rows, five hundred beats a second.
    assert 100 < served.rate < 1100
    assert 100 < alone.rate < 1100
    assert min(served.engine, served.front, served.client) > 0
    assert out.getvalue().count("\n") == 3
    assert front.summary([(alone, served)]).startswith("medians of 1 pairs: loss ")
