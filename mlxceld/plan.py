"""The plan: what `--ctx-size` and `--parallel` mean, in tokens and in bytes.

This is the only arithmetic of the modes. The start-up log, `--check-config`, /props,
/slots, /v1/models, admission in the engine and the migration report all read one
`Plan`, so they cannot disagree. Everything here is a pure function of its arguments.

| mode                                  | N unset | slot context | pool  |
| legacy                                | 1       | C            | C x N |
| llama-compat, N given                 | -       | floor(C / N) | C     |
| llama-compat, N unset, or kv_unified  | 4       | C            | C     |
| per-seq                               | 1       | P            | P x N |
| per-seq with kv_unified and C         | 4       | min(P, C)    | C     |
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from mlxceld.problems import Problem, Refused
from mlxceld.working import parts

Mode = Literal["legacy", "llama-compat", "per-seq"]

AUTO_SLOTS = 4
"""Slots that `parallel = -1` stands for, as in llama-server."""

CACHE_RAM = 8192 << 20
"""Bytes for prompts kept in RAM where nothing else is said, as in llama-server."""

_STEP = 256
"""A context that the daemon chooses itself is a multiple of this many tokens."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What the user asked for. None means "not said", which is no number.

    `parallel` has three special values that never collapse into each other: None
    (not said), -1 (auto) and 1. `ctx_size` 0 means the same as None.
    """

    mode: Mode = "legacy"
    ctx_size: int | None = None
    parallel: int | None = None
    ctx_size_per_seq: int | None = None
    kv_unified: bool | None = None
    min_slot_ctx: int = 512
    memory_check: bool = True
    cache_ram: int | None = None
    """Bytes for prompts kept in RAM; -1 for all that memory leaves, 0 for none."""


@dataclass(frozen=True, slots=True)
class Geometry:
    """What the plan has to know of a model; all sizes in bytes.

    Before the model is loaded the sizes are estimates from its config; afterwards
    they are measured from its caches.
    """

    n_ctx_train: int | None = None
    kv_bytes_per_token: int = 0
    fixed_bytes_per_slot: int = 0
    weight_bytes: int = 0
    work_bytes: int = 0
    """Working memory of the largest prompt chunk, attention scores aside."""
    work_bytes_per_cell: int = 0
    """What each token of a slot's context adds to it, where scores are held whole."""
    work_bytes_per_slot: int = 0
    """What each slot adds: its row of a decode step."""
    work_bytes_per_part: int = 0
    """What each part of the attention of such a row adds."""
    measured: bool = False

    def step_bytes(self, slots: int, slot_ctx: int) -> int:
        """Working memory of a step that reads a chunk and decodes all slots."""
        row = self.work_bytes_per_slot
        row += parts(slots, slot_ctx) * self.work_bytes_per_part
        rows = slots * row
        return self.work_bytes + slot_ctx * self.work_bytes_per_cell + rows


@dataclass(frozen=True, slots=True)
class Plan:
    """What every slot gets and what that costs.

    `slot_ctx` is what the API calls `n_ctx`: the most tokens one request can use,
    prompt and answer together. `pool` is the most live tokens of all slots.
    """

    mode: Mode
    slots: int
    slot_ctx: int
    pool: int
    shared: bool
    """Whether the slots draw on one pool (llama-server's `kv_unified`)."""
    kv_bytes_per_token: int = 0
    fixed_bytes_per_slot: int = 0
    weight_bytes: int = 0
    work_bytes: int = 0
    memory_limit: int | None = None
    cache_ram_bytes: int = 0
    """The most bytes that prompts kept in RAM may take, beside all of the above."""
    measured: bool = False
    notes: tuple[str, ...] = ()
    """Sentences for the log: what differs from what was asked, and why."""

    @property
    def cells(self) -> int:
        """Cells to allocate: the pool, or a fixed partition for each slot."""
        return self.pool if self.shared else self.slots * self.slot_ctx

    @property
    def kv_bytes(self) -> int:
        """The most bytes that keys, values and fixed state may take."""
        return (
            self.pool * self.kv_bytes_per_token + self.slots * self.fixed_bytes_per_slot
        )

    @property
    def total_bytes(self) -> int:
        """Weights, caches and the working memory of one step."""
        return self.weight_bytes + self.kv_bytes + self.work_bytes

    def lines(self) -> Iterator[str]:
        """The plan in words, one sentence a line."""
        one = self.slots == 1
        if one:
            yield f"1 slot of {self.slot_ctx} tokens (mode {self.mode})"
        elif self.shared:
            yield (
                f"{self.slots} slots share {self.pool} tokens; one request may use up "
                f"to {self.slot_ctx} (mode {self.mode}, kv_unified)"
            )
        else:
            yield (
                f"{self.slots} slots of {self.slot_ctx} tokens each, {self.pool} in "
                f"all (mode {self.mode})"
            )
        if self.kv_bytes_per_token:
            kind = "measured" if self.measured else "estimated"
            yield (
                f"KV memory at most {size(self.kv_bytes)} "
                f"({self.kv_bytes_per_token} bytes per token, {kind})"
            )
        if self.weight_bytes:
            limit = (
                "" if self.memory_limit is None else f" of {size(self.memory_limit)}"
            )
            yield (
                f"memory {size(self.total_bytes)}{limit}: weights "
                f"{size(self.weight_bytes)}, KV {size(self.kv_bytes)}, one step "
                f"{size(self.work_bytes)}"
            )
        if self.memory_limit is not None and self.cache_ram_bytes:
            yield (
                f"prompts kept in RAM: at most {size(self.cache_ram_bytes)} beside "
                "that (cache_ram)"
            )


def size(n: int) -> str:
    """`n` bytes for people: binary units, one decimal."""
    value = float(n)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def make_plan(
    wish: Wish, geometry: Geometry | None = None, memory_limit: int | None = None
) -> Plan:
    """Turn a wish into a plan.

    Raises `Refused` when the wish contradicts itself, when dividing an explicit
    context leaves less than the floor, or when the result does not fit into
    `memory_limit` bytes.
    """
    model = geometry or Geometry()
    _refuse_contradictions(wish)
    slots, shared = _slots(wish)
    asked = wish.ctx_size or None
    per_seq = wish.ctx_size_per_seq
    notes: list[str] = []
    if wish.mode == "llama-compat" and asked is None and per_seq is not None:
        asked = slots * per_seq
    explicit = asked is not None or wish.mode == "per-seq"
    trained = model.n_ctx_train
    if asked is None and wish.mode != "per-seq":
        if trained is None:
            raise Refused(
                [
                    Problem(
                        "ctx_size is not set and the model does not say its training "
                        "length",
                        hint="set engine.ctx_size (`--ctx-size`)",
                    )
                ]
            )
        window, lowered = _what_fits(trained, slots, shared, model, wish, memory_limit)
        if lowered:
            notes.append(
                f"ctx_size is not set: {window} instead of the training length "
                f"{trained}, which does not fit into {size(memory_limit or 0)}"
            )
        slot_ctx, pool = window, window if shared else window * slots
    else:
        slot_ctx, pool = _windows(wish, asked, slots, shared)
    if per_seq is not None and wish.mode == "llama-compat":
        slot_ctx = min(slot_ctx, per_seq)
        if not shared:
            pool = min(pool, slots * per_seq)
    if trained is not None and slot_ctx > trained:
        notes.append(
            f"a slot context of {slot_ctx} is above the training length {trained} of "
            f"the model: {trained} is served"
        )
        slot_ctx = trained
    if trained is not None:
        pool = min(pool, slots * trained)
    if wish.mode == "per-seq" and not shared and wish.ctx_size:
        notes.append(
            f"ctx_size {wish.ctx_size} has no effect in mode per-seq without kv_unified"
        )
    plan = Plan(
        mode=wish.mode,
        slots=slots,
        slot_ctx=slot_ctx,
        pool=pool,
        shared=shared,
        kv_bytes_per_token=model.kv_bytes_per_token,
        fixed_bytes_per_slot=model.fixed_bytes_per_slot,
        weight_bytes=model.weight_bytes,
        work_bytes=model.step_bytes(slots, slot_ctx),
        memory_limit=memory_limit,
        measured=model.measured,
        notes=tuple(notes),
    )
    if (
        wish.memory_check
        and memory_limit is not None
        and plan.total_bytes > memory_limit
    ):
        raise Refused([_too_large(plan, explicit)])
    return _with_cache_ram(plan, wish.cache_ram)


def _with_cache_ram(plan: Plan, wanted: int | None) -> Plan:
    """The plan with as much memory for saved prompts as is wanted and left.

    Nothing is refused for their sake. Where no limit is known, -1 is the default.
    """
    most = CACHE_RAM if wanted is None else wanted
    if plan.memory_limit is None:
        return replace(plan, cache_ram_bytes=CACHE_RAM if most < 0 else most)
    left = max(0, plan.memory_limit - plan.total_bytes)
    granted = left if most < 0 else min(most, left)
    notes = plan.notes
    if wanted is not None and granted < wanted:
        notes += (
            f"cache_ram {size(wanted)} is more than the memory limit leaves: "
            f"{size(granted)} is used",
        )
    return replace(plan, cache_ram_bytes=granted, notes=notes)


def _refuse_contradictions(wish: Wish) -> None:
    problems = []
    if wish.parallel == 0:
        problems.append(
            Problem("parallel is 0", hint="give the number of slots, or -1 for auto")
        )
    if wish.mode == "legacy" and wish.kv_unified:
        problems.append(
            Problem(
                "mode legacy gives every slot a context of its own and kv_unified "
                "shares one: they contradict each other",
                hint='set engine.mode = "llama-compat", or leave kv_unified out',
            )
        )
    if wish.mode == "legacy" and wish.ctx_size_per_seq is not None:
        problems.append(
            Problem(
                f"ctx_size_per_seq is {wish.ctx_size_per_seq} and mode legacy does not "
                "know it",
                hint='set engine.mode = "per-seq", or "llama-compat" for a cap',
            )
        )
    if wish.mode == "per-seq" and wish.ctx_size_per_seq is None:
        problems.append(
            Problem(
                "mode per-seq needs ctx_size_per_seq, the tokens of one request",
                hint="set engine.ctx_size_per_seq (`--ctx-size-per-seq`)",
            )
        )
    if problems:
        raise Refused(problems)


def _slots(wish: Wish) -> tuple[int, bool]:
    """Number of slots, and whether they share one pool.

    An explicit `kv_unified = false` is honoured even when the number is auto;
    llama-server overrides it there.
    """
    auto = wish.parallel is None or wish.parallel < 0
    if wish.mode == "llama-compat":
        shared = auto if wish.kv_unified is None else wish.kv_unified
        return (AUTO_SLOTS if auto else _given(wish)), shared
    shared = wish.mode == "per-seq" and bool(wish.kv_unified)
    if wish.parallel is None:
        return (AUTO_SLOTS if shared else 1), shared
    return (AUTO_SLOTS if auto else _given(wish)), shared


def _given(wish: Wish) -> int:
    assert wish.parallel is not None
    return wish.parallel


def _windows(
    wish: Wish, asked: int | None, slots: int, shared: bool
) -> tuple[int, int]:
    """Slot context and pool of an explicit wish, before the training length."""
    if wish.mode == "per-seq":
        per_seq = wish.ctx_size_per_seq or 1
        if not shared:
            return per_seq, per_seq * slots
        pool = asked or per_seq * slots
        return min(per_seq, pool), pool
    assert asked is not None
    if wish.mode == "legacy":
        return asked, asked * slots
    if shared:
        return asked, asked
    share = max(1, asked // slots)
    # A share that `ctx_size_per_seq` asked for by itself is no accident of division.
    if wish.ctx_size and slots > 1 and share < wish.min_slot_ctx:
        raise Refused([_too_small(asked, slots, share, wish.min_slot_ctx)])
    return share, max(asked, slots)


def _what_fits(
    trained: int,
    slots: int,
    shared: bool,
    model: Geometry,
    wish: Wish,
    memory_limit: int | None,
) -> tuple[int, bool]:
    """A window that memory allows, and whether that is less than was `trained`."""
    if memory_limit is None or not model.kv_bytes_per_token or not wish.memory_check:
        return trained, False
    spans = 1 if shared else slots
    token = spans * model.kv_bytes_per_token + model.work_bytes_per_cell
    # What does not grow by the token is as for the whole length: never too little.
    step = model.step_bytes(slots, trained) - trained * model.work_bytes_per_cell
    fixed = model.weight_bytes + step + slots * model.fixed_bytes_per_slot
    room = memory_limit - fixed
    window = max(0, room) // token
    if window >= trained:
        return trained, False
    # Below the floor the plan stays at the floor and the memory check refuses it,
    # with the numbers: a daemon with a useless window is worse than none.
    return max(window // _STEP * _STEP, min(wish.min_slot_ctx, trained)), True


def _too_small(asked: int, slots: int, share: int, floor: int) -> Problem:
    fewer = asked // floor
    ways = [f"raise ctx_size to at least {slots * floor}"]
    if fewer >= 1:
        ways.append(f"lower parallel to {fewer} or less")
    return Problem(
        f"ctx_size {asked} divided by parallel {slots} leaves {share} tokens for a "
        f"slot, less than min_slot_ctx {floor}",
        hint=", or ".join(ways) + " (or share the context: kv_unified = true)",
    )


def _too_large(plan: Plan, explicit: bool) -> Problem:
    slots = "1 slot" if plan.slots == 1 else f"{plan.slots} slots"
    what = (
        f"mode {plan.mode} with {slots} of {plan.slot_ctx} tokens needs "
        f"{size(plan.total_bytes)} (weights {size(plan.weight_bytes)}, KV "
        f"{size(plan.kv_bytes)}, one step {size(plan.work_bytes)}), more than the "
        f"memory limit {size(plan.memory_limit or 0)}"
    )
    ways = "lower ctx_size or parallel" if explicit else "use a smaller model"
    return Problem(
        what,
        hint=f"{ways}, or raise engine.memory_limit, "
        "or set engine.memory_check = false",
    )
