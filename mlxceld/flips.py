"""Defaults that will change, as data, and the question whether it matters to you.

A flip is announced only to those whose requests or memory it would change: the option
is not said, and the plans before and after differ. Whoever reads about a flip gets
both plans in numbers and the line to write, to keep the old meaning or to adopt the
new one before its time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from mlxceld.plan import Geometry, Mode, Plan, Wish, make_plan
from mlxceld.problems import Refused

_VERSION = re.compile(r"v?[0-9]{1,6}(\.[0-9]{1,6}){0,3}")

Weight: TypeAlias = Literal["none", "note", "warning"]
"""Nothing changes; worth a word when somebody asks; worth a warning at every start."""


@dataclass(frozen=True, slots=True)
class Flip:
    """One default that changes in a later version."""

    id: str
    option: str
    """Key of the option."""
    old: str
    new: str
    """The values, as TOML."""
    version: str
    """The version in which the default changes."""
    text: str
    """What changes, in one sentence without a full stop."""
    before: str
    after: str
    """What the old and the new value give, as sentences without a full stop."""
    with_old: Callable[[Wish], Wish]
    with_new: Callable[[Wish], Wish]
    weigh: Callable[[Wish, Plan, Plan | None], Weight]
    """Weighs the plan of today against the one to come; None when it is refused."""


@dataclass(frozen=True, slots=True)
class Announcement:
    """A flip that matters to one configuration."""

    flip: Flip
    weight: Weight
    now: str
    then: str
    coming: Plan | None = None
    """The plan to come; None when it is refused."""

    @property
    def lines(self) -> tuple[str, str, str]:
        """What changes, both plans in numbers, and what to write."""
        flip = self.flip
        return (
            f"{flip.option} is not set: {flip.text} in version {flip.version}",
            f"now: {self.now}; then: {self.then}",
            f"write `{flip.option} = {flip.old}` to keep today's meaning, or "
            f"`{flip.option} = {flip.new}` to adopt the new one now",
        )


def _mode(mode: Mode) -> Callable[[Wish], Wish]:
    def change(wish: Wish) -> Wish:
        return replace(wish, mode=mode)

    return change


def _weigh_mode(wish: Wish, now: Plan, then: Plan | None) -> Weight:
    if then is not None and _same(now, then):
        return "none"
    # With the number of slots left open, one slot becomes four that share the same
    # context: a request may use as much as before, and so may all together.
    return "warning" if wish.ctx_size and now.slots > 1 else "note"


def _same(now: Plan, then: Plan) -> bool:
    return (now.slots, now.slot_ctx, now.pool, now.shared) == (
        then.slots,
        then.slot_ctx,
        then.pool,
        then.shared,
    )


FLIPS: tuple[Flip, ...] = (
    Flip(
        id="MLX-F001",
        option="engine.mode",
        old='"legacy"',
        new='"llama-compat"',
        version="1.0",
        text="its default changes from legacy to llama-compat",
        before="every slot gets the whole context",
        after="the slots divide the context, or share it where nobody counts them",
        with_old=_mode("legacy"),
        with_new=_mode("llama-compat"),
        weigh=_weigh_mode,
    ),
)


def version_key(text: str) -> tuple[int, ...]:
    """A version for comparisons: `1.0`, `v1.0` and `1.0.0` are the same one.

    Raises ValueError for anything but numbers with dots between them.
    """
    if not _VERSION.fullmatch(text.strip()):
        raise ValueError(f"found `{text}`, wanted a version such as `1.0`")
    numbers = [int(part) for part in text.strip().removeprefix("v").split(".")]
    while len(numbers) > 1 and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def happened(as_of: str = "") -> tuple[Flip, ...]:
    """The flips that have happened in a version; all that are known without one.

    Raises ValueError for a text that is no version.
    """
    if not as_of:
        return FLIPS
    at = version_key(as_of)
    return tuple(flip for flip in FLIPS if version_key(flip.version) <= at)


def after(wish: Wish, is_set: Mapping[str, bool], as_of: str = "") -> Wish:
    """What the same words ask for after the flips that have happened by a version."""
    for flip in happened(as_of):
        if not is_set.get(flip.option, False):
            wish = flip.with_new(wish)
    return wish


def announcements(
    wish: Wish, is_set: Mapping[str, bool], geometry: Geometry | None = None
) -> list[Announcement]:
    """The flips that would change what this wish gives.

    `is_set` tells for each option by key whether anybody said it. Memory is left out
    of the comparison: a plan that does not fit is refused by itself.
    """
    found = []
    for flip in FLIPS:
        if is_set.get(flip.option, False):
            continue
        free = replace(wish, memory_check=False)
        now, _ = _plan(flip.with_old(free), geometry)
        if now is None:
            continue
        then, refusal = _plan(flip.with_new(free), geometry)
        weight = flip.weigh(wish, now, then)
        if weight != "none":
            words = refusal if then is None else _words(then)
            found.append(Announcement(flip, weight, _words(now), words, then))
    return found


def _plan(wish: Wish, geometry: Geometry | None) -> tuple[Plan | None, str]:
    """The plan, or None and why it is refused."""
    try:
        return make_plan(wish, geometry), ""
    except Refused as refused:
        return None, f"refused, because {refused.problems[0].what}"


def _words(plan: Plan) -> str:
    return next(plan.lines())
