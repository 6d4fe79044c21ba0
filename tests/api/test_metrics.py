"""The Prometheus text, from snapshots made by hand."""

from __future__ import annotations

from mlxceld.api.metrics import Metrics
from mlxceld.engine.messages import MemoryUse, SlotState, Snapshot, Totals
from mlxceld.plan import Plan

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
            assert lines[number + 2].split()[0].partition("{")[0] == name
        elif not line.startswith("# TYPE "):
            assert line.split()[0].partition("{")[0] == name
    names = [line.split()[2] for line in lines if line.startswith("# TYPE ")]
    assert len(set(names)) == len(names)


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
