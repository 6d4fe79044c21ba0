"""Merges the layers of the configuration into one `Settings` and says who won.

A flag wins over the environment, the environment over a drop-in, a drop-in over the
main file, and that over the default. All problems of all layers are reported
together, so that nobody mends a configuration one mistake at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from mlxceld import layers, paths, settings
from mlxceld.argv import CommandLine, parse
from mlxceld.exits import Exit
from mlxceld.files import read_file
from mlxceld.hosts import open_to_all
from mlxceld.kinds import Value
from mlxceld.layers import DEFAULT, Found, Layer, Origin, Said
from mlxceld.options import EXCLUSIVE, OPTIONS, TABLES, Option, in_table
from mlxceld.plan import Mode, Wish
from mlxceld.problems import Problem, Refused
from mlxceld.service.secrets import credential
from mlxceld.settings import Settings

NO_MODEL = Problem(
    "no model is named",
    hint="`--model PATH` with an MLX folder or a GGUF file, `--hf-repo OWNER/NAME`, "
    "or `path` in [model] of a configuration file",
)
"""What a start refuses; a configuration without a model may still be checked."""


class BadConfig(Refused):
    """The configuration is wrong; `exit` is the status to leave with."""

    def __init__(self, problems: Iterable[Problem], exit: Exit) -> None:
        super().__init__(problems)
        self.exit = exit


@dataclass(frozen=True, slots=True)
class Override:
    """An option that more than one place set, to different values."""

    winner: Said
    losers: tuple[Said, ...]
    """From the highest layer down."""

    def render(self) -> str:
        """One line; secrets are masked."""
        lost = ", ".join(_said(said) for said in self.losers)
        return f"{self.winner.option.key}: {_said(self.winner)} overrides {lost}"


@dataclass(frozen=True, slots=True)
class Resolved:
    """Settings, and everything a start wants to say about them."""

    settings: Settings
    origins: Mapping[str, Origin]
    """Where each option comes from, by key."""
    overrides: tuple[Override, ...] = ()
    warnings: tuple[Problem, ...] = ()
    ignored: tuple[str, ...] = ()
    """Names of llama-server that have no meaning here."""
    files: tuple[Path, ...] = ()
    """The files that were read, in the order they were applied."""

    @property
    def ignored_line(self) -> str:
        """The one line that names what is ignored, or nothing."""
        names = ", ".join(f"`{name}`" for name in self.ignored)
        return f"ignored here: {names}" if names else ""

    def value(self, option: Option) -> Value | None:
        """The value of an option; None when nobody set it and it has no default."""
        table = getattr(self.settings, option.table)
        return cast("Value | None", getattr(table, option.name))

    def is_set(self, key: str) -> bool:
        """Whether anybody said the option, be it what the default says."""
        return self.origins[key].layer is not Layer.DEFAULT


def wish(settings: Settings) -> Wish:
    """What the plan is made from. A mode that nobody set is legacy."""
    engine = settings.engine
    return Wish(
        mode=cast("Mode", engine.mode or "legacy"),
        ctx_size=engine.ctx_size,
        parallel=engine.parallel,
        # As with ctx_size, 0 is what llama-server's variable holds when it is not used.
        ctx_size_per_seq=engine.ctx_size_per_seq or None,
        kv_unified=engine.kv_unified,
        min_slot_ctx=engine.min_slot_ctx,
        memory_check=engine.memory_check,
        cache_ram=engine.cache_ram,
    )


def resolve(
    argv: Sequence[str] | CommandLine,
    environ: Mapping[str, str],
) -> Resolved:
    """Read all layers and merge them.

    `argv` is without the name of the program. Reads the files that `paths` finds.
    Raises `BadConfig` with every problem: status 2 when only the command line is
    wrong, else 78.
    """
    line = argv if isinstance(argv, CommandLine) else parse(argv)
    found = Found()
    files = _read_files(line, environ, found)
    layers.read_environment(environ, found)
    usage = Found()
    layers.read_command_line(line, usage)
    layers.read_cache_reuse(line, environ, usage, found)
    winners, overrides, clashes = _merge([*found.said, *usage.said])
    for clash in clashes:
        target = usage if clash[0] is Layer.FLAG else found
        target.problems.append(clash[1])
    problems = [*found.problems, *usage.problems]
    if problems:
        raise BadConfig(problems, Exit.CONFIG if found.problems else Exit.USAGE)
    settings_made = _settings(winners)
    keyed = credential(environ) is not None
    warning = None if keyed else open_to_all(settings_made.server)
    return Resolved(
        settings=settings_made,
        origins={
            option.key: winners[option.key].origin if option.key in winners else DEFAULT
            for option in OPTIONS
        },
        overrides=tuple(overrides),
        warnings=(*found.warnings, *usage.warnings, *([warning] if warning else [])),
        ignored=tuple(found.ignored | usage.ignored),
        files=tuple(files),
    )


def _read_files(
    line: CommandLine, environ: Mapping[str, str], found: Found
) -> list[Path]:
    if line.config is not None and not line.config.strip():
        return []
    named = paths.named(line.config, environ)
    if named is None:
        standard = paths.find(environ)
        if standard is None:
            return []
        main, by = standard, ""
    else:
        main, by = named
    try:
        drop_ins = paths.drop_ins(main)
    except OSError as error:
        what = f"the drop-ins cannot be listed: {(error.strerror or '').lower()}"
        found.problems.append(Problem(what, f"{main}.d"))
        drop_ins = []
    read_file(main, Layer.FILE, found, by)
    for path in drop_ins:
        read_file(path, Layer.DROP_IN, found)
    return [main, *drop_ins]


def _merge(
    said: Sequence[Said],
) -> tuple[dict[str, Said], list[Override], list[tuple[Layer, Problem]]]:
    """Winners by key, overrides, and pairs that clash in one layer.

    `said` runs from the lowest layer to the highest; inside a layer the later wins.
    """
    by_key: dict[str, list[Said]] = {}
    for one in said:
        by_key.setdefault(one.option.key, []).append(one)
    winners = {key: several[-1] for key, several in by_key.items()}
    overrides = []
    for option in OPTIONS:
        several = by_key.get(option.key, [])
        losers = tuple(
            one for one in reversed(several[:-1]) if one.value != several[-1].value
        )
        if losers:
            overrides.append(Override(several[-1], losers))
    clashes = []
    for first, second in EXCLUSIVE:
        if first not in winners or second not in winners:
            continue
        one, other = winners[first], winners[second]
        if one.origin.layer == other.origin.layer:
            what = f"{first} and {second} ({one.where}) say the same thing"
            hint = "leave one of them out"
            clashes.append((one.origin.layer, Problem(what, other.where, hint)))
            continue
        winner = max(one, other, key=lambda said: said.origin.layer)
        loser = other if winner is one else one
        del winners[loser.option.key]
        overrides.append(Override(winner, (loser,)))
    return winners, overrides, clashes


def _settings(winners: Mapping[str, Said]) -> Settings:
    tables: dict[str, Any] = {}
    for table in TABLES:
        values = {
            option.name: winners[option.key].value
            for option in in_table(table)
            if option.key in winners
        }
        tables[table] = getattr(settings, f"{table.capitalize()}Settings")(**values)
    return Settings(**tables)


def shown(option: Option, value: Value) -> str:
    """A value for people: as TOML, secrets masked, long texts cut."""
    if option.secret and value:
        return "not shown"
    text = option.kind.render(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _said(said: Said) -> str:
    return f"{said.origin.text} ({shown(said.option, said.value)})"
