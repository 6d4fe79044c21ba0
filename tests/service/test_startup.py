"""What is said and checked before serving; no process is started here."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mlxceld import logs
from mlxceld.check import estimate
from mlxceld.config import resolve
from mlxceld.plan import Geometry
from mlxceld.problems import Refused
from mlxceld.service import startup
from mlxceld.settings import EngineSettings, ModelSettings, ServerSettings, Settings

SMALL = Geometry(n_ctx_train=8192, kv_bytes_per_token=1024, weight_bytes=1 << 20)


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    """What is logged, as JSON lines."""
    root = logging.getLogger()
    before = list(root.handlers)
    stream = io.StringIO()
    logs.set_up("debug", "json", stream=stream)
    yield stream
    for handler in [h for h in root.handlers if h not in before]:
        root.removeHandler(handler)
    logging.captureWarnings(False)


def messages_of(stream: io.StringIO, event: str) -> list[str]:
    lines: list[dict[str, Any]] = [
        json.loads(x) for x in stream.getvalue().splitlines()
    ]
    return [line["message"] for line in lines if line["event"] == event]


def test_ignored_names_are_told_in_one_line(log: io.StringIO) -> None:
    startup.tell(resolve(["-m", "x", "-ngl", "99", "--mlock"], {}))
    (line,) = messages_of(log, "config_note")
    assert line.startswith("ignored here: ")
    assert "-ngl" in line
    assert "--mlock" in line


def test_an_override_is_told_once_with_both_places(log: io.StringIO) -> None:
    startup.tell(resolve(["-m", "x", "-c", "4096"], {"LLAMA_ARG_CTX_SIZE": "2048"}))
    (line,) = messages_of(log, "config_note")
    for word in ("engine.ctx_size", "4096", "LLAMA_ARG_CTX_SIZE", "2048"):
        assert word in line


def test_a_key_is_never_logged(log: io.StringIO) -> None:
    environ = {"LLAMA_API_KEY": "from-the-environment"}
    startup.tell(resolve(["-m", "x", "--api-key", "from-the-flag"], environ))
    assert "from-the" not in log.getvalue()


def test_a_flip_that_changes_what_requests_get_is_told_with_both_numbers(
    log: io.StringIO,
) -> None:
    resolved = resolve(["-m", "x", "-c", "4096", "-np", "4"], {})
    startup.tell_flips(resolved, SMALL)
    (text,) = messages_of(log, "default_flip")
    for word in ("4096", "1024", 'engine.mode = "legacy"', '"llama-compat"'):
        assert word in text


@pytest.mark.parametrize(
    "argv",
    [
        ["-c", "4096", "-np", "4", "--mode", "legacy"],
        ["-c", "4096", "-np", "1"],
        ["-c", "4096"],
        ["-np", "4"],
    ],
)
def test_no_flip_is_told_where_it_changes_little_or_was_decided(
    argv: list[str], log: io.StringIO
) -> None:
    startup.tell_flips(resolve(["-m", "x", *argv], {}), SMALL)
    assert messages_of(log, "default_flip") == []


def test_the_lines_of_a_plan_are_told_once(log: io.StringIO) -> None:
    settings = Settings(engine=EngineSettings(ctx_size=1000))
    plan = startup.check_plan(settings, SMALL)
    said = startup.tell_plan(plan)
    assert startup.tell_plan(plan, said) == said
    told = messages_of(log, "plan")
    assert told[0] == "1 slot of 1000 tokens (mode legacy)"
    assert len(told) == len(set(told))


def test_contradictions_are_refused_even_when_the_model_is_not_on_this_disk() -> None:
    engine = EngineSettings(mode="legacy", kv_unified=True)
    settings = Settings(model=ModelSettings(hf_repo="some/model"), engine=engine)
    assert estimate(settings) is None
    with pytest.raises(Refused, match="kv_unified"):
        startup.check_plan(settings, None)


def test_a_context_left_to_the_model_is_no_problem_before_it_is_here() -> None:
    settings = Settings(model=ModelSettings(hf_repo="some/model"))
    assert startup.check_plan(settings, None) is None


def test_a_model_that_is_not_there_is_refused_with_its_path(tmp_path: Path) -> None:
    path = tmp_path / "nothing.gguf"
    with pytest.raises(Refused, match=r"nothing\.gguf"):
        estimate(Settings(model=ModelSettings(path=str(path))))


def test_a_plan_above_the_memory_limit_is_refused() -> None:
    """8192 tokens of 1 KiB and weights of 1 MiB need 9 MiB."""
    engine = EngineSettings(ctx_size=8192, memory_limit=9 * 2**20 - 1)
    with pytest.raises(Refused, match="memory limit"):
        startup.check_plan(Settings(engine=engine), SMALL)
    enough = EngineSettings(ctx_size=8192, memory_limit=9 * 2**20)
    assert startup.check_plan(Settings(engine=enough), SMALL) is not None


def test_the_engine_is_told_what_the_settings_say() -> None:
    settings = Settings(
        model=ModelSettings(path="/m", offline=True),
        engine=EngineSettings(
            mode="llama-compat",
            ctx_size=8192,
            parallel=4,
            batch_size=64,
            cache_type_k="q8_0",
            cache_type_v="f16",
            memory_limit=123,
            slot_prompt_similarity=0.5,
            overflow="error",
            queue_timeout=2.5,
            token_gap=0.05,
        ),
        server=ServerSettings(queue_size=7),
    )
    load = startup.load_message(settings)
    assert (load.source.path, load.source.hf_repo, load.source.offline) == (
        "/m",
        "",
        True,
    )
    assert (load.wish.mode, load.wish.ctx_size, load.wish.parallel) == (
        "llama-compat",
        8192,
        4,
    )
    assert (load.prefill_chunk, load.queue_size, load.memory_limit) == (64, 7, 123)
    assert load.memory_share == ""
    assert (load.cache_type_k, load.cache_type_v) == ("q8_0", "f16")
    assert load.slot_prompt_similarity == 0.5
    assert (load.overflow, load.queue_timeout) == ("error", 2.5)
    assert load.token_gap == 0.05


def test_what_depends_on_the_device_is_left_to_the_engine() -> None:
    load = startup.load_message(Settings())
    assert (load.prefill_chunk, load.token_gap) == (0, None)


@pytest.mark.parametrize("share", ["auto", "60%"])
def test_a_share_of_memory_is_the_engines_to_work_out(share: str) -> None:
    load = startup.load_message(Settings(engine=EngineSettings(memory_limit=share)))
    assert (load.memory_limit, load.memory_share) == (None, share)


@pytest.mark.parametrize(
    ("watchdog", "seconds"), [(0.0, 10.0), (60.0, 10.0), (20.0, 5.0)]
)
def test_a_prompt_chunk_is_to_take_a_quarter_of_the_watchdogs_time(
    watchdog: float, seconds: float
) -> None:
    engine = EngineSettings(watchdog_timeout=watchdog)
    assert startup.load_message(Settings(engine=engine)).chunk_seconds == seconds
