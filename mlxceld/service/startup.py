"""What the daemon says and checks before it serves.

All of it is worked out in the front, without MLX: a plan that cannot be is refused
within a moment, not after a model was loaded. The engine makes the plan again from
what it measures, and that one counts.
"""

from __future__ import annotations

import sys

from mlxceld import __version__, config, flips, logs
from mlxceld.check import ANY_MODEL, memory_limit
from mlxceld.engine import messages
from mlxceld.engine.care import Care, LoadError
from mlxceld.exits import Exit
from mlxceld.logs import Event
from mlxceld.options import OPTIONS
from mlxceld.plan import Geometry, Plan, make_plan
from mlxceld.problems import Problem, Refused
from mlxceld.settings import Settings

_log = logs.get("mlxceld.service")


def tell(resolved: config.Resolved) -> None:
    """Log the version, the files read, overrides, ignored names and warnings."""
    files = ", ".join(str(file) for file in resolved.files) or "no file"
    _log.info(
        Event.STARTING,
        message=f"mlxceld {__version__}, configured by {files}",
        version=__version__,
        files=[str(file) for file in resolved.files],
    )
    for override in resolved.overrides:
        _log.info(Event.CONFIG_NOTE, message=override.render())
    if resolved.ignored_line:
        _log.info(Event.CONFIG_NOTE, message=resolved.ignored_line)
    for problem in resolved.warnings:
        _log.warning(Event.CONFIG_WARNING, message=problem.render())


def check_plan(settings: Settings, geometry: Geometry | None) -> Plan | None:
    """The plan as estimated; None when nothing is known of the model.

    Raises `Refused` for contradictions, for a share below the floor and for a plan
    above the memory limit.
    """
    wish = config.wish(settings)
    if geometry is None:
        make_plan(wish, ANY_MODEL)
        return None
    return make_plan(wish, geometry, memory_limit(settings))


def tell_flips(
    resolved: config.Resolved, geometry: Geometry | None
) -> tuple[flips.Announcement, ...]:
    """Warn of defaults that will change what this configuration gets; returns those."""
    is_set = {option.key: resolved.is_set(option.key) for option in OPTIONS}
    wish = config.wish(resolved.settings)
    coming = tuple(
        announcement
        for announcement in flips.announcements(wish, is_set, geometry)
        if announcement.weight == "warning"
    )
    for announcement in coming:
        _log.warning(
            Event.DEFAULT_FLIP,
            message="\n  ".join(announcement.lines),
            flip=announcement.flip.id,
        )
    return coming


def tell_plan(plan: Plan | None, said: frozenset[str] = frozenset()) -> frozenset[str]:
    """Log a plan, except for the lines in `said`; returns all that is said by now."""
    if plan is None:
        return said
    for note in plan.notes:
        if note not in said:
            _log.warning(Event.PLAN, message=note)
    lines = tuple(plan.lines())
    for line in lines:
        if line not in said:
            _log.info(Event.PLAN, message=line)
    return said | set(plan.notes) | set(lines)


def load_message(settings: Settings) -> messages.Load:
    """What the engine is told to load."""
    model, engine = settings.model, settings.engine
    limit, watchdog = engine.memory_limit, engine.watchdog_timeout
    return messages.Load(
        source=messages.ModelSource(
            model.path or "", model.hf_repo or "", model.offline
        ),
        wish=config.wish(settings),
        memory_limit=limit if isinstance(limit, int) else None,
        memory_share=limit if isinstance(limit, str) else "",
        device=engine.device,
        dequantize=engine.dequantize,
        cache_type_k=engine.cache_type_k,
        cache_type_v=engine.cache_type_v,
        prefill_chunk=engine.batch_size or 0,
        token_gap=engine.token_gap,
        queue_size=settings.server.queue_size,
        slot_prompt_similarity=engine.slot_prompt_similarity,
        chunk_seconds=min(10.0, watchdog / 4) if watchdog else 10.0,
        overflow=engine.overflow,
        queue_timeout=engine.queue_timeout,
    )


def care(settings: Settings) -> Care:
    """How the engine is looked after."""
    engine = settings.engine
    return Care(
        watchdog=engine.watchdog_timeout,
        max_restarts=engine.max_restarts,
        sleep_after=engine.sleep_idle_seconds,
    )


def load_failed(error: LoadError) -> Exit:
    """Log why there is no model; returns the status to leave with."""
    problem = Problem(error.what, hint=error.hint)
    _log.error(Event.LOAD_FAILED, message=problem.render())
    return Exit.CONFIG if error.config else Exit.FAILURE


def log_fault(fault: messages.Fault) -> None:
    """Log a fault of the engine that it survived."""
    _log.error(
        Event.ENGINE_FAULT,
        message=f"{fault.error} while {fault.where}",
        trace=fault.trace,
    )


def refuse(refused: Refused, status: Exit) -> int:
    """Say why the daemon does not start, in the words of the command line."""
    for problem in refused.problems:
        sys.stderr.write(problem.render() + "\n")
    return status
