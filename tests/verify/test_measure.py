"""Honest servers pass, and each kind of dishonest one is caught."""

from __future__ import annotations

from typing import Any

import pytest

from mlxceld.problems import Unreachable
from mlxceld.verify.ask import Server
from mlxceld.verify.measure import Wish, measure
from mlxceld.verify.record import Record
from mlxceld.verify.verdict import judge
from tests.verify.fakes import Fake, serving


def looked(fake: Fake, wish: Wish | None = None, key: str = "") -> Record:
    with serving(fake) as url:
        server = Server(url, key, 30)
        return measure(server, wish or Wish(tokens=16), lambda text: None)


def states(record: Record) -> dict[str, str]:
    """The verdicts that are not `ok`; a busy machine may find no time for /slots."""
    found: dict[str, str] = {v.name: v.state for v in judge(record) if v.state != "ok"}
    late = found.get("slots") == "unknown" and record.seen.listed is not None
    if late:
        del found["slots"]
    return found


def text(record: Record, name: str) -> str:
    (found,) = (v.text for v in judge(record) if v.name == name)
    return found


# llama-server tells nothing about the bytes of keys and values.
HONEST = {"memory": "unknown"}


def test_an_honest_server_is_found_honest() -> None:
    fake = Fake()
    record = looked(fake, Wish())
    assert states(record) == HONEST
    assert text(record, "overlap") == "4 of 4 streams ran at once"
    assert text(record, "count") == "/props tells 4 slots, /slots lists 4"
    assert text(record, "numbers") == "n_ctx is 512 in 5 of 5 places"
    assert text(record, "window") == "a request got all of its 512 tokens"
    assert text(record, "refusal") == (
        "a prompt of 513 tokens is refused: HTTP 400, n_prompt_tokens 513, n_ctx 512"
    )
    assert [stream.tokens for stream in record.streams] == [64] * 4
    prompts = [body["prompt"] for body in fake.asked]
    assert prompts[4:] == [[13] * 504, [13] * 513]


def test_every_answer_is_new_and_goes_on_to_its_limit() -> None:
    """What is cached, or ended by the model, would say nothing about the server."""
    fake = Fake()
    looked(fake)
    assert len(fake.asked) == 6
    for body in fake.asked:
        assert (body["cache_prompt"], body["ignore_eos"]) == (False, True)
        assert body["stream"] is True


def test_a_server_that_runs_one_request_after_another_is_caught() -> None:
    """Even where /slots claims that all of them are at work."""
    record = looked(Fake(serial=True, slots=3, step=0.02))
    assert states(record) == {**HONEST, "overlap": "WRONG"}
    assert text(record, "overlap") == "1 of 3 streams ran at once, 3 should have"


def test_a_server_that_runs_fewer_than_it_says_is_caught() -> None:
    fake = Fake(slots=3, step=0.02)
    fake.seats.acquire()
    record = looked(fake)
    assert states(record)["overlap"] == "WRONG"
    assert text(record, "overlap") == "2 of 3 streams ran at once, 3 should have"


def test_more_streams_than_slots_wait_for_one() -> None:
    record = looked(Fake(slots=2, step=0.02), Wish(streams=4, tokens=16))
    assert "overlap" not in states(record)
    assert text(record, "overlap") == "2 of 4 streams ran at once"


def test_a_view_that_shows_fewer_than_run_is_caught() -> None:
    record = looked(Fake(hides=True), Wish(tokens=120))
    assert states(record) == {**HONEST, "slots": "WRONG"}
    assert text(record, "slots") == "/slots showed 1 at work at once, 4 streams ran"


def test_streams_that_are_over_at_once_are_sent_again_and_longer() -> None:
    record = looked(Fake(step=0, slots=3, window=4096, serial=True), Wish(tokens=2))
    assert {stream.tokens for stream in record.streams} == {128}


@pytest.mark.parametrize(
    ("lie", "said"),
    [
        ({"props_ctx": 2048}, "/props 2048"),
        ({"slots_ctx": 2048}, "/slots 2048"),
        ({"models_ctx": 2048}, "/v1/models 2048"),
        ({"refused_ctx": 2048}, "refusal 2048"),
    ],
)
def test_one_number_that_differs_is_caught_and_named(
    lie: dict[str, Any], said: str
) -> None:
    record = looked(Fake(**lie))
    assert states(record)["numbers"] == "WRONG"
    assert said in text(record, "numbers")


def test_a_window_that_is_told_too_large_everywhere_is_caught() -> None:
    lie: dict[str, Any] = {"props_ctx": 2048, "slots_ctx": 2048, "models_ctx": 2048}
    record = looked(Fake(**lie))
    assert states(record) == {
        **HONEST,
        "numbers": "WRONG",
        "window": "WRONG",
        "refusal": "WRONG",
    }
    assert text(record, "window") == (
        "a prompt of 2040 tokens failed, n_ctx is 2048: HTTP 400: request (2040 "
        "tokens) exceeds the available context size (512 tokens), try increasing it"
    )


def test_a_window_that_is_told_too_small_everywhere_is_caught() -> None:
    lie: dict[str, Any] = {"props_ctx": 256, "slots_ctx": 256, "models_ctx": 256}
    record = looked(Fake(**lie))
    assert states(record) == {**HONEST, "window": "WRONG", "refusal": "WRONG"}
    assert text(record, "window") == "264 tokens fitted, n_ctx is 256"
    assert text(record, "refusal") == (
        "a prompt of 257 tokens was answered, n_ctx is 256"
    )


def test_a_server_that_cuts_prompts_without_a_word_is_caught() -> None:
    record = looked(Fake(cuts=True))
    assert states(record) == {**HONEST, "refusal": "WRONG"}
    assert text(record, "refusal") == (
        "a prompt of 513 tokens was cut to 511 without a word"
    )


def test_a_refusal_inside_a_stream_is_caught() -> None:
    record = looked(Fake(late=True))
    assert states(record) == {**HONEST, "refusal": "WRONG"}
    assert "inside a stream of status 200" in text(record, "refusal")


def test_a_context_that_is_shifted_has_no_end_that_shows() -> None:
    record = looked(Fake(shifts=True))
    assert states(record) == {**HONEST, "window": "unknown"}
    assert text(record, "numbers") == "n_ctx is 512 in 4 of 5 places"


def test_an_answer_in_one_piece_says_nothing_about_overlap() -> None:
    record = looked(Fake(whole=True, serial=True, slots=2, step=0.02))
    assert states(record)["overlap"] == "unknown"


def test_a_stream_that_fails_on_free_slots_is_caught() -> None:
    record = looked(Fake(fails=1))
    assert states(record)["overlap"] == "WRONG"
    assert text(record, "overlap") == (
        "1 of 4 streams failed: Context size has been exceeded."
    )


def test_what_the_server_hides_is_unknown_and_no_failure() -> None:
    missing = {"/slots": 501, "/v1/models": 404, "/tokenize": 404}
    record = looked(Fake(missing=missing))
    assert states(record) == {
        **HONEST,
        "slots": "unknown",
        "count": "unknown",
        "numbers": "unknown",
        "window": "unknown",
        "refusal": "unknown",
    }
    assert text(record, "window") == (
        "/tokenize gives no token: HTTP 404: File Not Found"
    )


def test_windows_can_be_filled_in_every_slot() -> None:
    fake = Fake(slots=2, step=0.001)
    record = looked(fake, Wish(tokens=16, fill="all"))
    assert states(record) == HONEST
    assert [fill.slot for fill in record.fills] == [0, 1]
    assert text(record, "window") == "2 requests got 512 tokens each, one after another"


def test_windows_can_be_filled_together() -> None:
    record = looked(Fake(slots=3), Wish(tokens=16, fill="together"))
    assert states(record) == HONEST
    assert text(record, "window") == "3 requests got 512 tokens each, at once"


def test_windows_that_share_a_pool_cannot_all_be_filled() -> None:
    together = Wish(tokens=16, fill="together")
    fake = Fake(slots=3, pool=1024, step=0.002)
    assert states(looked(fake, together))["window"] == "unknown"
    # A server that promises room for all of them has to keep it.
    fake = Fake(slots=3, pool=1024, step=0.002, more={"n_pool": 1536})
    assert states(looked(fake, together))["window"] == "WRONG"


def test_no_window_is_filled_where_nobody_wants_it() -> None:
    fake = Fake()
    record = looked(fake, Wish(tokens=16, fill="none"))
    assert states(record) == {**HONEST, "window": "unknown"}
    assert [len(body["prompt"]) for body in fake.asked[4:]] == [513]


def test_memory_is_judged_where_the_server_tells() -> None:
    told = {"kv_bytes": 2048, "kv_bytes_plan": 4096, "n_live_tokens": 3, "n_pool": 2048}
    assert states(looked(Fake(more=told))) == {}
    record = looked(Fake(more={**told, "kv_bytes": 8192}))
    assert states(record) == {"memory": "WRONG"}
    assert text(record, "memory") == "KV memory stays 8.0 KiB, planned 4.0 KiB"
    record = looked(Fake(more={**told, "n_live_tokens": 2049}))
    assert text(record, "memory") == "2049 live tokens in a pool of 2048"


def test_a_small_window_gets_fewer_tokens() -> None:
    """Four slots that share 192 tokens: 48 each, with the prompt."""
    record = looked(Fake(window=192), Wish())
    assert [stream.tokens for stream in record.streams] == [16] * 4
    assert states(record) == HONEST


def refused(fake: Fake, wish: Wish | None = None) -> str:
    with pytest.raises(Unreachable) as caught:
        looked(fake, wish)
    return str(caught.value)


def test_a_server_that_wants_a_key_is_not_measured() -> None:
    said = refused(Fake(key="k-1"))
    assert "HTTP 401: Invalid API Key" in said
    assert "--api-key-file" in said
    assert states(looked(Fake(key="k-1"), key="k-1")) == HONEST


def test_a_server_that_loads_is_not_measured() -> None:
    assert "not ready: HTTP 503: Loading model" in refused(
        Fake(missing={"/props": 503})
    )


def test_a_server_without_slots_needs_a_number_of_streams() -> None:
    missing = {"/props": 404, "/slots": 404}
    assert "--streams N" in refused(Fake(missing=missing))
    record = looked(Fake(missing=missing), Wish(streams=2, tokens=16))
    assert text(record, "overlap") == "2 of 2 streams ran at once"


def test_a_server_that_answers_no_stream_is_not_measured() -> None:
    said = refused(Fake(missing={"/completion": 404}))
    assert "no stream was answered: HTTP 404: File Not Found" in said


def test_a_server_that_is_not_there_is_named() -> None:
    with serving(Fake()) as url:
        pass
    with pytest.raises(Unreachable, match=f"{url}: cannot be reached: Connection"):
        measure(Server(url), Wish(), lambda text: None)


def test_the_progress_tells_of_streams_and_of_long_prompts() -> None:
    lines: list[str] = []
    with serving(Fake()) as url:
        measure(Server(url), Wish(tokens=16), lines.append)
    assert "streams: 4 of 4 have begun, " in "\n".join(lines)
    assert "long request: 504 of 504 tokens are read" in lines
