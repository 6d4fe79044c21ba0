"""Tells people, and programs, what a set-up means and what becomes of it.

The same facts in two forms: sentences and a table for a terminal, and JSON whose keys
stay as they are. Nothing is worked out here.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from mlxceld.flips import Flip, happened
from mlxceld.plan import Plan, size
from mlxceld.problems import Problem

from .files import Written
from .migration import Line, Migration, Outcome
from .render import one_line, spot
from .status import Status
from .work import Change, Work

FORMAT = 1
"""Version of the JSON report; it changes when a key changes its meaning."""

NOTHING = "nothing to do"


@dataclass(frozen=True, slots=True)
class Done:
    """A set-up with what was done for it."""

    work: Work
    status: Status
    written: tuple[Written, ...] = ()


def text(done: Sequence[Done], *, as_of: str = "", piped: bool = False) -> str:
    """The report for people, one part for each set-up.

    `piped` says that the new configuration is shown elsewhere already.
    """
    parts = []
    for one in done:
        rows = [*_facts(one, as_of), "", *_deeds(one, piped)]
        parts.append("\n".join(rows).rstrip() + "\n")
    return "\n".join(parts)


def short(done: Sequence[Done]) -> str:
    """One line for each set-up that is not as it should be."""
    lines = []
    for one in done:
        name = one_line(one.work.migration.found.name)
        if one.status is Status.REVIEW:
            lines.append(f"{name}: needs review")
        elif one.status is Status.CHANGES:
            lines.append(f"{name}: changes needed")
    return "".join(f"{line}\n" for line in lines)


def as_json(done: Sequence[Done], status: int, *, as_of: str = "") -> str:
    """The report for programs."""
    report = {
        "format": FORMAT,
        "status": status,
        "as_of": as_of or None,
        "setups": [_setup(one, as_of) for one in done],
        "problems": [],
    }
    return json.dumps(report, indent=2, ensure_ascii=False) + "\n"


def problems_json(problems: Sequence[Problem], status: int) -> str:
    """The report for programs when nothing could be read."""
    listed = [{"where": p.where, "what": p.what, "hint": p.hint} for p in problems]
    report = {"format": FORMAT, "status": status, "setups": [], "problems": listed}
    return json.dumps(report, indent=2, ensure_ascii=False) + "\n"


def diff(change: Change) -> str:
    """What changes in a file, as a unified diff; secrets are masked in it."""
    rows = difflib.unified_diff(
        change.old_text.splitlines(keepends=True),
        change.new_text.splitlines(keepends=True),
        "/dev/null" if change.old is None else str(change.path),
        str(change.path),
    )
    return "".join(row if row.endswith("\n") else f"{row}\n" for row in rows)


# ---- for people ----


def _facts(one: Done, as_of: str) -> Iterator[str]:
    work = one.work
    migration = work.migration
    yield _title(migration)
    yield ""
    yield from _table(migration, as_of)
    for flip in _flips(migration, as_of):
        yield (
            f"  the flip: where {flip.option} is not set, {flip.before}; from version "
            f"{flip.version} on {flip.after}"
        )
    yield from _listed("what changes:", migration.changes)
    yield from _listed("what was said, and what became of it:", _fates(migration))
    review = [
        _at(line, f"`{line.said}`: {line.why}" if line.said else line.why)
        for line in migration.review
    ]
    yield from _listed("needs review:", review)
    remarks = [
        f"{remark.place}: {remark.text}" if str(remark.place) else remark.text
        for remark in migration.found.remarks
        if not remark.review
    ]
    yield from _listed("also noticed:", remarks)
    yield from _listed("comments that had to go:", work.lost)
    yield from _listed("by hand:", work.advice)


def _deeds(one: Done, piped: bool) -> Iterator[str]:
    """What was written, or would be."""
    work = one.work
    if one.written:
        yield from (_written(done) for done in one.written)
    else:
        for change in work.changes:
            yield from diff(change).splitlines()
    if work.refused:
        yield f"nothing is written in place, because {work.refused}"
        if not work.changes and not piped:
            yield "what is certain goes to a file of its own with `--to FILE`"
    elif piped or one.written:
        return
    elif work.changes:
        yield "nothing is written yet: run it again with `--write`"
    elif work.config is None and work.text:
        yield "the configuration, which goes to the file that `--to` names:"
        yield ""
        yield from (f"  {row}".rstrip() for row in work.shown.splitlines())
    else:
        yield NOTHING


def _title(migration: Migration) -> str:
    found = migration.found
    program = f", {found.program}" if found.program else ""
    return f"{one_line(found.name)} ({found.kind}{program})"


def _table(migration: Migration, as_of: str) -> Iterator[str]:
    rows: list[tuple[str, ...]] = [
        ("", "slots", "per slot", "all slots", "KV memory", "mode")
    ]
    refused: list[str] = []
    for label, outcome in _outcomes(migration, as_of):
        if outcome.plan is None:
            refused.append(f"  {label}: {outcome.refusal or 'cannot be known'}")
        else:
            rows.append((label, *_numbers(outcome.plan)))
    if len(rows) > 1:
        widths = [max(len(row[i]) for row in rows) for i in range(5)]
        for row in rows:
            left = f"  {row[0]:{widths[0]}}"
            cells = "".join(f"  {row[i]:>{widths[i]}}" for i in range(1, 5))
            yield f"{left}{cells}  {row[5]}".rstrip()
    yield from refused


def _flips(migration: Migration, as_of: str) -> tuple[Flip, ...]:
    """The flips that this set-up would notice."""
    return happened(as_of) if migration.today != migration.flipped else ()


def _outcomes(migration: Migration, as_of: str) -> Iterator[tuple[str, Outcome]]:
    yield "today", migration.today
    yield (f"in version {as_of}" if as_of else "after the flip"), migration.flipped
    yield "after migration", migration.migrated


def _numbers(plan: Plan) -> tuple[str, ...]:
    memory = size(plan.kv_bytes) if plan.kv_bytes_per_token else "unknown"
    mode = f"{plan.mode}, shared" if plan.shared else plan.mode
    return str(plan.slots), str(plan.slot_ctx), str(plan.pool), memory, mode


def _fates(migration: Migration) -> Iterator[str]:
    for line in migration.lines:
        if not line.said:
            continue
        is_new = line.became and line.became != line.said
        became = f" -> {line.became}" if is_new else ""
        why = f": {line.why}" if line.why else ""
        yield _at(line, f"`{one_line(line.said)}`{became} ({line.fate}{why})")
    for line in migration.lines:
        if line.fate == "pinned" and not line.said:
            why = f": {line.why}" if line.why else ""
            yield f"{line.became} ({line.fate}{why})"


def _at(line: Line, words: str) -> str:
    where = spot(line)
    return f"{where}: {words}" if where else words


def _listed(heading: str, lines: Sequence[str] | Iterator[str]) -> Iterator[str]:
    listed = list(lines)
    if listed:
        yield ""
        yield heading
        yield from (f"  {one_line(line)}" for line in listed)


def _written(written: Written) -> str:
    if written.backup is None:
        return f"written: {written.path}"
    return f"written: {written.path}; the old one is {written.backup}"


# ---- for programs ----


def _setup(one: Done, as_of: str) -> dict[str, Any]:
    work = one.work
    migration = work.migration
    found = migration.found
    return {
        "name": found.name,
        "kind": found.kind,
        "program": found.program,
        "files": list(found.files),
        "status": one.status,
        "adopt": migration.adopt,
        "today": _outcome(migration.today),
        "after_flip": _outcome(migration.flipped),
        "after_migration": _outcome(migration.migrated),
        "flips": [flip.id for flip in _flips(migration, as_of)],
        "changes": list(migration.changes),
        "lines": [_line(line) for line in migration.lines],
        "remarks": [
            {"text": r.text, "review": r.review, **_place(r.place)}
            for r in found.remarks
        ],
        "needs_review": bool(migration.review),
        "lost_comments": list(work.lost),
        "by_hand": list(work.advice),
        "config": None if work.config is None else str(work.config),
        "writes": [
            {
                "path": str(change.path),
                "new": change.old is None,
                "diff": diff(change),
            }
            for change in work.changes
        ],
        "written": [
            {"path": str(w.path), "backup": None if w.backup is None else str(w.backup)}
            for w in one.written
        ],
    }


def _line(line: Line) -> dict[str, Any]:
    return {
        "said": line.said,
        **_place(line.place),
        "fate": line.fate,
        "became": line.became,
        "why": line.why,
    }


def _place(place: Any) -> dict[str, Any]:
    return {"file": place.file, "line": place.line, "in": place.name}


def _outcome(outcome: Outcome) -> dict[str, Any]:
    plan = outcome.plan
    if plan is None:
        return {"no_plan": outcome.refusal}
    return {
        "mode": plan.mode,
        "slots": plan.slots,
        "per_slot": plan.slot_ctx,
        "all_slots": plan.pool,
        "shared": plan.shared,
        "kv_bytes": plan.kv_bytes if plan.kv_bytes_per_token else None,
        "kv_bytes_per_token": plan.kv_bytes_per_token or None,
        "notes": list(plan.notes),
    }
