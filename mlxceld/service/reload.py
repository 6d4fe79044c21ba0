"""SIGHUP: the configuration is read again, checked as a whole, and taken or left.

What `reload="live"` says in the option table is in force for the next request; the
rest is named and waits for a restart. Whatever is wrong, the daemon goes on with what
it has: a mistake in a file must not cost anybody an answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mlxceld import config, logs
from mlxceld.api.live import Live, Rules
from mlxceld.check import check_folders, estimate
from mlxceld.config import Resolved
from mlxceld.logs import Event
from mlxceld.options import OPTIONS, TABLES, Option, in_table
from mlxceld.problems import Problem, Refused
from mlxceld.service.startup import check_plan
from mlxceld.service.tls import renew
from mlxceld.settings import Settings

if TYPE_CHECKING:
    from ssl import SSLContext

_BOUNDS = frozenset(
    {
        "engine.overflow",
        "engine.queue_timeout",
        "engine.slot_prompt_similarity",
        "engine.token_gap",
        "server.queue_size",
    }
)
"""The live options that the engine keeps to itself and has to be told."""

_log = logs.get("mlxceld.service")

Read = Callable[[], Resolved]
"""Reads all layers again. Raises `Refused`."""


@dataclass(frozen=True, slots=True)
class Change:
    """An option that differs, in words that hide secrets."""

    option: Option
    words: str

    @property
    def live(self) -> bool:
        return self.option.reload == "live"


def changes(old: Settings, new: Settings) -> tuple[Change, ...]:
    """What differs, in the order of the table."""
    found = []
    for option in OPTIONS:
        before = getattr(getattr(old, option.table), option.name)
        after = getattr(getattr(new, option.table), option.name)
        if before != after:
            was, is_now = (
                "unset" if value is None else config.shown(option, value)
                for value in (before, after)
            )
            words = f"{was} becomes {is_now}"
            if option.secret:
                words = "another value, which is not shown"
            found.append(Change(option, f"{option.key}: {words}"))
    return tuple(found)


def merged(old: Settings, new: Settings) -> Settings:
    """The new values of live options, the old ones of those that take a restart."""
    tables = {}
    for table in TABLES:
        after = getattr(new, table)
        live = {
            option.name: getattr(after, option.name)
            for option in in_table(table)
            if option.reload == "live"
        }
        tables[table] = replace(getattr(old, table), **live)
    return Settings(**tables)


class Reloader:
    """Reads and applies configurations, one at a time.

    `settings` are those in force.
    """

    def __init__(
        self,
        read: Read,
        settings: Settings,
        live: Live,
        environ: Mapping[str, str],
        tls: SSLContext | None = None,
    ) -> None:
        self._read = read
        self._live = live
        self._environ = environ
        self._tls = tls
        self._warned: frozenset[str] = frozenset()
        self.settings = settings

    async def reload(self) -> str:
        """Reload once; returns what keeps the old configuration, or nothing.

        The work with files is done in a thread: streams flow on meanwhile.
        """
        try:
            wanted, rules = await asyncio.to_thread(self._look)
        except Refused as refused:
            return _tell_refusal(refused)
        except Exception as error:
            # A fault of ours. Requests are served, and that must go on.
            return _tell_refusal(Refused([Problem(type(error).__name__, "reload")]))
        found = changes(self.settings, wanted.settings)
        # A file of keys may hold others while its name is the same.
        keys = rules.keys != self._live.rules.keys
        self.settings = rules.state.settings
        self._live.swap(rules)
        logs.set_level(self.settings.logging.level)
        if any(change.option.key in _BOUNDS for change in found):
            self._bound_the_queue()
        self._tell_warnings(wanted)
        _tell_changes(found, keys=keys)
        return ""

    def _look(self) -> tuple[Resolved, Rules]:
        """Check all of it, live or not. Raises `Refused`, and changes nothing."""
        resolved = self._read()
        wanted = resolved.settings
        if wanted.model.path is None and wanted.model.hf_repo is None:
            raise Refused([config.NO_MODEL])
        check_folders(wanted, self._environ)
        check_plan(wanted, estimate(wanted))
        rules = self._live.prepare(merged(self.settings, wanted))
        if self._tls is not None:
            renew(self._tls, self.settings.server)
        return resolved, rules

    def _bound_the_queue(self) -> None:
        engine = self.settings.engine
        self._live.state.client.bound(
            queue_size=self.settings.server.queue_size,
            queue_timeout=engine.queue_timeout,
            slot_prompt_similarity=engine.slot_prompt_similarity,
            overflow=engine.overflow,
            token_gap=engine.token_gap,
        )

    def _tell_warnings(self, resolved: Resolved) -> None:
        lines = [problem.render() for problem in resolved.warnings]
        for line in lines:
            if line not in self._warned:
                _log.warning(Event.CONFIG_WARNING, message=line)
        self._warned = frozenset(lines)


def _tell_refusal(refused: Refused) -> str:
    _log.error(
        Event.RELOAD,
        message="the configuration is wrong, a restart would fail; the old one stays "
        f"in force\n{refused}",
        problems=[problem.render() for problem in refused.problems],
    )
    first = refused.problems[0]
    return f"reload refused: {first.where or first.what}"


def _tell_changes(found: tuple[Change, ...], *, keys: bool) -> None:
    for change in found:
        if change.live:
            _log.info(Event.RELOAD, message=change.words)
        else:
            _log.warning(Event.RELOAD, message=f"{change.words} (takes a restart)")
    applied = [change.option.key for change in found if change.live]
    waiting = [change.option.key for change in found if not change.live]
    if keys and not any(key.startswith("server.api_key") for key in applied):
        _log.info(Event.RELOAD, message="server.api_key_file: it holds other keys now")
        applied.append("server.api_key_file")
    words = [
        f"in force now: {', '.join(applied)}" if applied else "",
        f"after a restart: {', '.join(waiting)}" if waiting else "",
    ]
    _log.info(
        Event.RELOAD,
        message="; ".join(filter(None, words)) or "the configuration has not changed",
        applied=applied,
        waiting=waiting,
    )
