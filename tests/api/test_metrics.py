"""The Prometheus text, from snapshots made by hand."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest
from prometheus_client.parser import text_string_to_metric_families

from mlxceld import __version__
from mlxceld.api.histograms import Histogram, Timings
from mlxceld.api.metrics import Metrics
from mlxceld.api.record import Record, Watcher
from mlxceld.engine import messages as m
from mlxceld.engine.messages import MemoryUse, SlotState, Snapshot, Totals
from mlxceld.plan import Plan
from tests.api.serving import Served

PLAN = Plan("llama-compat", 2, 1024, 2048, False, kv_bytes_per_token=10)
LLAMA_SERVER = """
prompt_tokens_total counter
prompt_tokens_cached_total counter
prompt_seconds_total counter
tokens_predicted_total counter
tokens_predicted_seconds_total counter
n_decode_total counter
n_tokens_max counter
spec_decode_num_draft_tokens_total counter
spec_decode_num_accepted_tokens_total counter
spec_decode_num_drafts_total counter
prompt_tokens_seconds gauge
predicted_tokens_seconds gauge
requests_processing gauge
requests_deferred gauge
n_busy_slots_per_decode gauge
""".strip()


def snapshot(totals: Totals, busy: bool = False) -> Snapshot:
    slots = [SlotState(0, task=1, processing=busy, n_held=30), SlotState(1)]
    memory = MemoryUse(active=700, cache=80, peak=900)
    return Snapshot(slots, 3, n_live=30, kv_bytes=500, totals=totals, memory=memory)


def values(text: str) -> dict[str, str]:
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return dict(line.split(" ") for line in lines)


def test_names_and_kinds_are_llama_servers_in_its_order() -> None:
    text = Metrics().render(snapshot(Totals()), PLAN)
    kinds = [
        line.split()[2:] for line in text.splitlines() if line.startswith("# TYPE")
    ]
    found = [f"{name.removeprefix('llamacpp:')} {kind}" for name, kind in kinds]
    assert "\n".join(found[:15]) == LLAMA_SERVER
    assert all(name.startswith("mlxcel_") for name, _ in kinds[15:])
    assert text.endswith("\n")


def test_every_metric_has_help_type_and_value() -> None:
    lines = Metrics().render(snapshot(Totals()), PLAN).splitlines()
    name = ""
    for number, line in enumerate(lines):
        if line.startswith("# HELP "):
            name = line.split()[2]
            assert lines[number + 1].startswith(f"# TYPE {name} ")
            assert own(lines[number + 2]) == name
        elif not line.startswith("# TYPE "):
            assert own(line) == name
    names = [line.split()[2] for line in lines if line.startswith("# TYPE ")]
    assert len(set(names)) == len(names)


def own(line: str) -> str:
    """The name of the metric that a line belongs to."""
    name = line.split()[0].partition("{")[0]
    if "_seconds_" in name and name.startswith("mlxcel_"):
        return re.sub("_(bucket|sum|count)$", "", name)
    return name


def test_memory_is_told_for_the_whole_and_for_each_slot() -> None:
    found = values(Metrics().render(snapshot(Totals()), PLAN))
    assert found['mlxcel_slot_held_tokens{slot="0"}'] == "30"
    assert found['mlxcel_slot_held_tokens{slot="1"}'] == "0"
    assert found["mlxcel_held_tokens"] == "30"
    assert found["mlxcel_mlx_active_bytes"] == "700"
    assert found["mlxcel_mlx_cache_bytes"] == "80"
    assert found["mlxcel_mlx_peak_bytes"] == "900"
    # 2048 cells of 10 bytes, no weights.
    assert found["mlxcel_plan_bytes"] == "20480"
    assert found["mlxcel_memory_limit_bytes"] == "0"


def test_values_come_from_the_snapshot() -> None:
    totals = Totals(
        prompt_tokens=100,
        cached_tokens=7,
        prompt_ms=2500,
        predicted_tokens=40,
        predicted_ms=500,
        decode_steps=20,
        decoded_rows=30,
        max_tokens=99,
        failed=2,
    )
    found = values(Metrics().render(snapshot(totals, busy=True), PLAN))
    assert found["llamacpp:prompt_tokens_total"] == "100"
    assert found["llamacpp:prompt_seconds_total"] == "2.5"
    assert found["llamacpp:n_tokens_max"] == "99"
    assert found["llamacpp:requests_processing"] == "1"
    assert found["llamacpp:requests_deferred"] == "3"
    assert found["llamacpp:n_busy_slots_per_decode"] == "1.5"
    assert found["llamacpp:prompt_tokens_seconds"] == "40"
    assert found["llamacpp:predicted_tokens_seconds"] == "80"
    assert found["mlxcel_live_tokens"] == "30"
    assert found["mlxcel_kv_plan_bytes"] == "20480"
    assert found["mlxcel_requests_failed_total"] == "2"


def test_rates_are_those_since_the_last_scrape() -> None:
    metrics = Metrics()
    metrics.render(snapshot(Totals(predicted_tokens=10, predicted_ms=1000)), PLAN)
    again = snapshot(Totals(predicted_tokens=30, predicted_ms=1500))
    name = "llamacpp:predicted_tokens_seconds"
    assert values(metrics.render(again, PLAN))[name] == "40"
    assert values(metrics.render(again, PLAN))[name] == "0"


def test_rates_survive_an_engine_that_was_started_again() -> None:
    metrics = Metrics()
    metrics.render(
        snapshot(Totals(requests=9, predicted_tokens=500, predicted_ms=9000)), PLAN
    )
    fresh = snapshot(Totals(requests=1, predicted_tokens=5, predicted_ms=100))
    found = values(metrics.render(fresh, PLAN))
    assert found["llamacpp:predicted_tokens_seconds"] == "50"


def test_the_text_is_what_prometheus_reads() -> None:
    """Read by the parser of Prometheus's own client library."""
    metrics = Metrics()
    metrics.count(200)
    metrics.count(503)
    metrics.timings.first_token.observe(0.3)
    text = metrics.render(snapshot(Totals(requests=7, evicted=2)), PLAN, restarts=4)
    families = list(text_string_to_metric_families(text))
    names = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
    # That parser takes `_total` off the names of counters.
    assert [family.name for family in families] == [
        name.removesuffix("_total") for name in names
    ]
    found = {
        (sample.name, *sample.labels.values()): sample.value
        for family in families
        for sample in family.samples
    }
    assert found["mlxcel_info", __version__, "llama-compat"] == 1
    assert found[("mlxcel_engine_restarts_total",)] == 4
    assert found[("mlxcel_prefixes_evicted_total",)] == 2
    assert found["mlxcel_http_replies_total", "200"] == 1
    assert found["mlxcel_http_replies_total", "503"] == 1
    assert found["mlxcel_time_to_first_token_seconds_bucket", "0.25"] == 0
    assert found["mlxcel_time_to_first_token_seconds_bucket", "0.5"] == 1
    assert found[("mlxcel_time_to_first_token_seconds_count",)] == 1


@pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is not installed"
)
def test_prometheus_objects_to_nothing_but_the_names_of_llama_server() -> None:
    metrics = Metrics()
    metrics.count(200)
    text = metrics.render(snapshot(Totals()), PLAN)
    found = subprocess.run(
        ["promtool", "check", "metrics"],
        input=text,
        capture_output=True,
        text=True,
        timeout=60,
    )
    said = (found.stdout + found.stderr).splitlines()
    assert [line for line in said if not line.startswith("llamacpp:")] == []


def test_buckets_hold_what_is_up_to_their_bound_and_add_up() -> None:
    histogram = Histogram("h", "help", (0.5, 1, 2.5))
    for seconds in (0.5, 0.6, 1.0, 2.0, 9.0):
        histogram.observe(seconds)
    histogram.observe(0.25, 3)
    assert list(histogram.lines()) == [
        "# HELP h help",
        "# TYPE h histogram",
        'h_bucket{le="0.5"} 4',
        'h_bucket{le="1"} 6',
        'h_bucket{le="2.5"} 7',
        'h_bucket{le="+Inf"} 8',
        "h_sum 13.85",
        "h_count 8",
    ]


def count(histogram: Histogram) -> tuple[int, float]:
    *_, total, number = histogram.lines()
    return int(number.split()[1]), float(total.split()[1])


DONE = m.Done(1, 2, "", [], "eos", "", False, 9, 4, 6, 14, m.Timings())


def test_a_generation_is_watched_from_the_queue_to_its_last_token() -> None:
    """Sent at 10, seated at 12, tokens at 15, 16 (two of them) and 18 (three)."""
    record, timings = Record(began=9.0), Timings()
    watcher = Watcher(record, timings, now=10.0)
    watcher.take(m.Started(1, slot=2, n_prompt=9, n_cached=4), 12.0)
    watcher.take(m.Progress(1, 9, 9, 4), 13.0)
    watcher.take(m.Delta(1, "a", [5], 1), 15.0)
    watcher.take(m.Delta(1, "", [], 3), 16.0)
    watcher.take(DONE, 18.0)
    assert count(timings.queue) == (1, 2.0)
    assert count(timings.first_token) == (1, 6.0)
    assert count(timings.between) == (5, 3.0)
    assert (record.slots, record.queue_ms, record.ttft_ms) == ([2], 2000.0, 6000.0)
    assert (record.prompt_tokens, record.cached_tokens) == (9, 4)
    assert record.completion_tokens == 6


def test_a_request_that_was_put_back_is_counted_once() -> None:
    record, timings = Record(began=0.0), Timings()
    watcher = Watcher(record, timings, now=0.0)
    watcher.take(m.Started(1, 0, 9, 4), 1.0)
    watcher.take(m.Delta(1, "a", [5], 1), 2.0)
    watcher.take(m.Started(1, 3, 10, 0), 7.0)
    watcher.take(m.Delta(1, "b", [6], 2), 8.0)
    assert count(timings.queue) == (1, 1.0)
    assert count(timings.between) == (1, 6.0)
    assert (record.prompt_tokens, record.cached_tokens) == (9, 4)
    assert record.completion_tokens == 2


def test_the_first_of_several_answers_sets_the_time_of_the_first_token() -> None:
    record, timings = Record(began=0.0), Timings()
    one, two = (Watcher(record, timings, now=0.0) for _ in range(2))
    one.take(m.Started(1, 0, 5, 0), 1.0)
    two.take(m.Started(2, 1, 7, 0), 3.0)
    two.take(m.Delta(2, "b", [6], 1), 4.0)
    one.take(m.Delta(1, "a", [5], 1), 5.0)
    assert count(timings.first_token) == (1, 4.0)
    assert record.ttft_ms == pytest.approx(4000.0)
    assert record.queue_ms == pytest.approx(3000.0)
    assert (record.slots, record.prompt_tokens) == ([0, 1], 12)


def test_the_route_serves_the_histograms(served: Served) -> None:
    before = values(served.get("/metrics").text)
    served.post("/completion", {"prompt": "fox"})
    after = values(served.get("/metrics").text)

    def grown(name: str) -> int:
        return int(after[name]) - int(before.get(name, "0"))

    assert grown("mlxcel_time_to_first_token_seconds_count") == 1
    assert grown("mlxcel_queue_seconds_count") == 1
    assert grown("mlxcel_inter_token_seconds_count") >= 4
    assert grown('mlxcel_http_replies_total{status="200"}') >= 1


def test_looking_changes_no_number(served: Served) -> None:
    """Whoever polls would otherwise count himself, also while the model sleeps."""
    served.get("/health")
    first = served.get("/metrics").text
    served.get("/slots")
    assert served.get("/metrics").text == first
