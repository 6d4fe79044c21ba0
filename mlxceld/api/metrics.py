"""GET /metrics: the text format of Prometheus, with llama-server's names.

Written by hand rather than with a client library, because the library puts `_total`
behind every counter and `llamacpp:n_tokens_max` has none. Everything comes from the
engine's last snapshot.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from mlxceld import __version__
from mlxceld.api.histograms import Timings
from mlxceld.engine.messages import Snapshot, Totals
from mlxceld.plan import Plan

CONTENT_TYPE = "text/plain; version=0.0.4"


@dataclass(frozen=True, slots=True)
class Metric:
    name: str
    kind: str
    """counter or gauge."""
    help: str
    value: float
    label: str = ""
    """`slot="0"`, where several values share a name."""


class Metrics:
    """Renders snapshots; remembers the last scrape, since the rates are since then.

    Also counts what only the front sees: replies, and how long things took.
    """

    def __init__(self) -> None:
        self._last = Totals()
        self.timings = Timings()
        self.start: Mapping[str, float] = {}
        """Seconds that the last start took, by phase."""
        self._replies: Counter[int] = Counter()

    def count(self, status: int) -> None:
        """Count a reply of this HTTP status."""
        self._replies[status] += 1

    def render(self, snapshot: Snapshot, plan: Plan, restarts: int = 0) -> str:
        """The exposition text. Times are seconds, sizes tokens or bytes.

        `restarts` is how often the engine was started again.
        """
        totals, before = snapshot.totals, self._last
        if totals.requests < before.requests:
            before = Totals()  # The engine was started again: its counters are new.
        self._last = totals
        metrics = _llama(snapshot, totals, before) + _own(snapshot, plan)
        metrics += self._front(plan, restarts)
        lines = []
        last = ""
        for metric in metrics:
            if metric.name != last:
                lines.append(f"# HELP {metric.name} {metric.help}")
                lines.append(f"# TYPE {metric.name} {metric.kind}")
            last = metric.name
            label = f"{{{metric.label}}}" if metric.label else ""
            lines.append(f"{metric.name}{label} {_number(metric.value)}")
        lines.extend(self.timings.lines())
        return "\n".join(lines) + "\n"

    def _front(self, plan: Plan, restarts: int) -> list[Metric]:
        """What the engine does not know, or forgets when it is started again."""
        return [
            Metric(
                "mlxcel_info",
                "gauge",
                "Version and mode, always 1",
                1,
                f'version="{__version__}",mode="{plan.mode}"',
            ),
            Metric(
                "mlxcel_engine_restarts_total",
                "counter",
                "Engines that were lost and started again",
                restarts,
            ),
            *(
                Metric(
                    "mlxcel_start_seconds",
                    "gauge",
                    "Seconds that the last start took, by phase and in all",
                    seconds,
                    f'phase="{phase}"',
                )
                for phase, seconds in self.start.items()
            ),
            *(
                Metric(
                    "mlxcel_http_replies_total",
                    "counter",
                    "Replies by HTTP status, those to polls left out; 499 stands for "
                    "clients that left before",
                    count,
                    f'status="{status}"',
                )
                for status, count in sorted(self._replies.items())
            ),
        ]


def _rate(tokens: int, ms: float) -> float:
    return tokens * 1e3 / ms if ms > 0 and tokens > 0 else 0.0


def _llama(snapshot: Snapshot, now: Totals, before: Totals) -> list[Metric]:
    def counter(name: str, words: str, value: float) -> Metric:
        return Metric(f"llamacpp:{name}", "counter", words, value)

    def gauge(name: str, words: str, value: float) -> Metric:
        return Metric(f"llamacpp:{name}", "gauge", words, value)

    processing = sum(slot.processing for slot in snapshot.slots)
    busy = now.decoded_rows / now.decode_steps if now.decode_steps else 0.0
    return [
        counter(
            "prompt_tokens_total",
            "Number of prompt tokens processed, excluding cached tokens",
            now.prompt_tokens,
        ),
        counter(
            "prompt_tokens_cached_total",
            "Number of prompt tokens reused from the cache",
            now.cached_tokens,
        ),
        counter(
            "prompt_seconds_total",
            "Total time spent processing prompts",
            now.prompt_ms / 1e3,
        ),
        counter(
            "tokens_predicted_total",
            "Number of generation tokens processed",
            now.predicted_tokens,
        ),
        counter(
            "tokens_predicted_seconds_total",
            "Total time spent generating tokens",
            now.predicted_ms / 1e3,
        ),
        counter("n_decode_total", "Total number of decode steps", now.decode_steps),
        counter(
            "n_tokens_max",
            "Largest observed sequence length (prompt + generation)",
            now.max_tokens,
        ),
        counter(
            "spec_decode_num_draft_tokens_total",
            "Speculative: Total draft tokens generated",
            0,
        ),
        counter(
            "spec_decode_num_accepted_tokens_total",
            "Speculative: Total draft tokens accepted by the target model",
            0,
        ),
        counter(
            "spec_decode_num_drafts_total",
            "Speculative: Total speculative decoding verification steps",
            0,
        ),
        gauge(
            "prompt_tokens_seconds",
            "Average prompt throughput in tokens/s",
            _rate(
                now.prompt_tokens - before.prompt_tokens,
                now.prompt_ms - before.prompt_ms,
            ),
        ),
        gauge(
            "predicted_tokens_seconds",
            "Average generation throughput in tokens/s",
            _rate(
                now.predicted_tokens - before.predicted_tokens,
                now.predicted_ms - before.predicted_ms,
            ),
        ),
        gauge("requests_processing", "Number of requests processing", processing),
        gauge("requests_deferred", "Number of requests deferred", snapshot.waiting),
        gauge(
            "n_busy_slots_per_decode",
            "Average number of busy slots per decode step",
            busy,
        ),
    ]


def _own(snapshot: Snapshot, plan: Plan) -> list[Metric]:
    def gauge(name: str, words: str, value: float) -> Metric:
        return Metric(f"mlxcel_{name}", "gauge", words, value)

    def counter(name: str, words: str, value: float) -> Metric:
        return Metric(f"mlxcel_{name}_total", "counter", words, value)

    totals, memory = snapshot.totals, snapshot.memory
    return [
        gauge("slots", "Requests that may run at the same time", plan.slots),
        gauge("slot_ctx_tokens", "Most tokens of one request", plan.slot_ctx),
        gauge("pool_tokens", "Most live tokens of all slots", plan.pool),
        gauge("live_tokens", "Tokens held for running requests", snapshot.n_live),
        gauge(
            "held_tokens",
            "Tokens whose keys and values are in slots, remembered ones included",
            sum(slot.n_held for slot in snapshot.slots),
        ),
        gauge("kv_bytes", "Bytes of keys and values in memory", snapshot.kv_bytes),
        gauge("kv_plan_bytes", "Bytes of keys and values at most", plan.kv_bytes),
        gauge("cache_ram_bytes", "Bytes of prompts kept in RAM", snapshot.saved_bytes),
        gauge(
            "cache_ram_limit_bytes",
            "Bytes of prompts kept in RAM at most",
            plan.cache_ram_bytes,
        ),
        gauge("cache_ram_prompts", "Prompts kept in RAM", snapshot.saved_prompts),
        *(
            Metric(
                "mlxcel_slot_held_tokens",
                "gauge",
                "Tokens whose keys and values are in the slot, running or remembered",
                slot.n_held,
                f'slot="{slot.id}"',
            )
            for slot in snapshot.slots
        ),
        gauge(
            "plan_bytes",
            "Bytes of weights, keys and values and one step at most",
            plan.total_bytes,
        ),
        gauge(
            "memory_limit_bytes", "The memory limit, 0 for none", plan.memory_limit or 0
        ),
        gauge("mlx_active_bytes", "Bytes of MLX's arrays", memory.active),
        gauge("mlx_cache_bytes", "Bytes that MLX keeps for reuse", memory.cache),
        gauge("mlx_peak_bytes", "The most bytes of MLX's arrays so far", memory.peak),
        gauge("requests_waiting", "Requests that wait for a slot", snapshot.waiting),
        counter("requests", "Requests, refused ones included", totals.requests),
        counter("requests_failed", "Requests that failed", totals.failed),
        counter("requests_cancelled", "Requests whose client left", totals.cancelled),
        counter("requests_preempted", "Requests put back for room", totals.preempted),
        counter(
            "prefixes_evicted",
            "Idle slots that gave up what they remembered to make room",
            totals.evicted,
        ),
    ]


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else f"{value:.9g}"
