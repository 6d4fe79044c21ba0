"""What the documents say beside the options: modes in numbers, signals, files, flips.

The numbers are the plan's own; only what llama-server does is worked out here, because
nothing else in this project has a use for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from mlxceld.documents.docstrings import Member, members
from mlxceld.paths import candidates
from mlxceld.plan import Plan, Wish, make_plan
from mlxceld.problems import Refused

PACKAGE = Path(__file__).resolve().parent.parent

C, N, P = 8192, 4, 4096
"""Context size, slots and tokens per request of the examples."""


@dataclass(frozen=True, slots=True)
class ModeRow:
    """One row of the table of modes: a wish, and its plan as formulas and numbers."""

    name: str
    """Key of its texts in other languages."""
    label: str
    slot: str
    """The slot context as a formula."""
    pool: str
    wish: Wish

    @property
    def plan(self) -> Plan:
        """The plan of the example."""
        return make_plan(self.wish)

    @property
    def grows(self) -> bool:
        """Whether twice the slots take more memory."""
        return make_plan(_twice(self.wish)).pool > self.plan.pool


def _twice(wish: Wish) -> Wish:
    return replace(wish, parallel=2 * N)


MODES: tuple[ModeRow, ...] = (
    ModeRow(
        "legacy",
        "`legacy` (the default)",
        "C",
        "C x N",
        Wish(mode="legacy", ctx_size=C, parallel=N),
    ),
    ModeRow(
        "llama-compat",
        "`llama-compat`",
        "floor(C / N)",
        "C",
        Wish(mode="llama-compat", ctx_size=C, parallel=N),
    ),
    ModeRow(
        "llama-compat-shared",
        "`llama-compat` with `kv_unified = true`, or N left out",
        "C",
        "C, shared",
        Wish(mode="llama-compat", ctx_size=C, parallel=N, kv_unified=True),
    ),
    ModeRow(
        "per-seq",
        "`per-seq`",
        "P",
        "P x N",
        Wish(mode="per-seq", ctx_size_per_seq=P, parallel=N),
    ),
    ModeRow(
        "per-seq-shared",
        "`per-seq` with `kv_unified = true`",
        "min(P, C)",
        "C, shared",
        Wish(
            mode="per-seq", ctx_size=C, ctx_size_per_seq=P, parallel=N, kv_unified=True
        ),
    ),
)


@dataclass(frozen=True, slots=True)
class Rounding:
    """What `-c C -np N` gives one request, here and in llama-server."""

    ctx_size: int
    parallel: int
    here: int | None
    """None where the share is refused."""
    llama_server: int


def roundings() -> Iterator[Rounding]:
    """Pairs of C and N where a multiple of 256 makes a difference, and two without."""
    for ctx_size, parallel in (
        (8192, 4),
        (32768, 3),
        (8192, 3),
        (4096, 7),
        (1000, 1),
        (1000, 2),
        (2048, 5),
    ):
        wish = Wish(mode="llama-compat", ctx_size=ctx_size, parallel=parallel)
        try:
            here: int | None = make_plan(wish).slot_ctx
        except Refused:
            here = None
        yield Rounding(ctx_size, parallel, here, llama_server(ctx_size, parallel))


def llama_server(ctx_size: int, parallel: int) -> int:
    """The context of one slot in llama-server, which rounds up to 256 twice."""
    return _up(_up(ctx_size) // parallel)


def _up(tokens: int) -> int:
    return -(-tokens // 256) * 256


@dataclass(frozen=True, slots=True)
class Signal:
    """A signal and what the daemon does."""

    names: tuple[str, ...]
    text: str

    @property
    def name(self) -> str:
        """Key of its texts in other languages."""
        return self.names[0]


SIGNALS: tuple[Signal, ...] = (
    Signal(
        ("SIGTERM", "SIGINT"),
        "Stop: new requests are refused with 503, running ones get "
        "`server.drain_timeout` seconds to end, and the status is 0. A second signal "
        "ends the daemon at once with status 1.",
    ),
    Signal(
        ("SIGHUP",),
        "Read the configuration again. A configuration with mistakes changes nothing. "
        "Options that can change while the daemon runs do so for the next request; "
        "those that need a restart are named in the log.",
    ),
)

VARIABLES: tuple[tuple[str, str], ...] = (
    ("MLXCELD_CONFIG", "The configuration file, where `--config` names none."),
    (
        "CONFIGURATION_DIRECTORY",
        "Folders, separated by colons, where `mlxcel.toml` is looked for first; "
        "systemd sets it.",
    ),
    (
        "XDG_CONFIG_HOME",
        "The folder of a user's configurations, `~/.config` by default.",
    ),
    ("HOMEBREW_PREFIX", "Where Homebrew is; its `etc/mlxcel/mlxcel.toml` is read."),
    (
        "CREDENTIALS_DIRECTORY",
        "The folder with the credentials of a service manager; keys are read from "
        "`api-key` in it.",
    ),
    (
        "LISTEN_FDS",
        "How many sockets a service manager hands over, with `LISTEN_PID` and "
        "`LISTEN_FDNAMES`; they take the place of `--host` and `--port`.",
    ),
    (
        "NOTIFY_SOCKET",
        "Where the service manager is told that the daemon is ready, reloads or stops, "
        "and, with `WATCHDOG_USEC`, that it is alive.",
    ),
    (
        "JOURNAL_STREAM",
        "Where it names standard error, log lines begin with the priority that the "
        "journal reads.",
    ),
    ("HF_HOME", "Where the Hugging Face cache is."),
    (
        "CACHE_DIRECTORY",
        "Folders, separated by colons, for what a service may lose; systemd sets it. "
        "`kernels` in the first one keeps what MLX compiles on CUDA.",
    ),
    (
        "XDG_CACHE_HOME",
        "The folder of a user's caches, `~/.cache` by default; without "
        "`CACHE_DIRECTORY`, `mlxcel/kernels` in it keeps what MLX compiles on CUDA.",
    ),
    (
        "MLX_PTX_CACHE_DIR",
        "The folder that keeps what MLX compiles on CUDA, in place of those two.",
    ),
)
"""Variables that belong to no option."""


def exit_statuses() -> tuple[Member, ...]:
    """The exit statuses of `mlxcel-server`."""
    return members(PACKAGE / "exits.py", "Exit")


def events() -> tuple[Member, ...]:
    """The events of the log."""
    return members(PACKAGE / "logs.py", "Event")


def files() -> tuple[str, ...]:
    """Where the configuration file is looked for, best first."""
    places = {"CONFIGURATION_DIRECTORY": "$CONFIGURATION_DIRECTORY", "HOME": "~"}
    return tuple(str(path) for path in candidates(places))
