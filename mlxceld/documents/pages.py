"""The parts that more than one man page has: entries of flags, tables of numbers."""

from __future__ import annotations

from collections.abc import Iterator

from mlxceld import __date__, __version__
from mlxceld.documents import roff
from mlxceld.documents.facts import MODES as MODE_ROWS
from mlxceld.documents.facts import (
    VARIABLES,
    C,
    N,
    P,
    Rounding,
    exit_statuses,
    files,
    roundings,
)
from mlxceld.documents.flags import Flag, Group, variables
from mlxceld.flips import FLIPS
from mlxceld.options import OPTIONS

SOURCE = f"mlxceld {__version__}"


def title(name: str, section: int) -> str:
    """The first line of the page of `name`."""
    return roff.title(name, section, __date__, SOURCE)


def groups(all_groups: Iterator[Group]) -> Iterator[str]:
    """Every group as a subsection."""
    for group in all_groups:
        yield roff.subheading(group.heading)
        for flag in group.flags:
            yield from entry(flag)


def entry(flag: Flag) -> Iterator[str]:
    """One option: spellings, what it does, its words, and the facts about it."""
    # argparse's help texts are phrases, ours are sentences.
    stop = "." if flag.short[:1].isupper() else ""
    texts = [f"{flag.short}{stop}"] if flag.short else []
    yield from roff.item(tag(flag), [*texts, *flag.long])
    if any(meaning for _, meaning in flag.words):
        yield from roff.choices(flag.words)
    if flag.facts:
        yield ".IP"
        yield from roff.body(flag.facts)


def tag(flag: Flag) -> str:
    """The spellings of a flag on one line."""
    value = _value(flag)
    if not flag.names:
        return roff.italic(flag.metavar) + (" ..." if flag.repeats else "")
    parts = [roff.bold(name) + value for name in flag.names]
    parts += [roff.bold(name) for name in flag.off]
    parts += [f"{roff.bold(name)} ({roff.bold(word)})" for name, word in flag.constants]
    return ", ".join(parts)


def _value(flag: Flag) -> str:
    if flag.takes == "nothing":
        return ""
    if flag.words:
        words = "|".join(roff.bold(word) for word, _ in flag.words)
        return rf"[={words}]" if flag.takes == "maybe" else f" {words}"
    value = roff.italic(flag.metavar)
    return f" {value} ..." if flag.repeats else f" {value}"


def modes() -> Iterator[str]:
    """The table of modes: formulas, and the plan's own numbers for an example."""
    yield from roff.paragraphs(
        [
            "A mode says how the context size C (`--ctx-size`), the number of slots N "
            "(`--parallel`) and, in mode per-seq, P (`--ctx-size-per-seq`) become the "
            "most tokens that one request may use, the slot context, and the most that "
            "all requests together may hold, the pool. Memory for keys and values is "
            "that of the pool.",
        ]
    )
    for row in MODE_ROWS:
        plan = row.plan
        texts = [
            f"One request: {row.slot}. All together: {row.pool}. With C = {C}, N = "
            f"{N}" + (f" and P = {P}" if row.wish.ctx_size_per_seq else "") + f": "
            f"{plan.slot_ctx} tokens for one request, {plan.pool} for all. With N "
            f"doubled memory {'doubles' if row.grows else 'stays'}.",
        ]
        yield from roff.item(roff.inline(row.label), texts)
    yield ".PP"
    yield from roff.paragraphs(
        [
            "N left out is one slot in modes legacy and per-seq, and four slots that "
            "share the pool in mode llama-compat; -1, auto, is four slots in all of "
            "them. C left out, or 0, is the training length of the model for every "
            "slot, lowered to what memory allows.",
            "A share is floor(C / N), to the token, and what is reported is enforced. "
            "llama-server rounds the context and the share up to multiples of 256, so "
            "that it may serve more tokens than were asked for; and a share below "
            "`--min-slot-ctx` is refused here. The context of one request:",
        ]
    )
    yield ".PP"
    yield from roff.example(_rounding_table())


def _rounding_table() -> Iterator[str]:
    yield f"{'C':>6} {'N':>3} {'llama-compat':>14} {'llama-server':>14}"
    for row in roundings():
        yield (
            f"{row.ctx_size:>6} {row.parallel:>3} {rounded(row):>14} "
            f"{row.llama_server:>14}"
        )


def rounded(row: Rounding) -> str:
    """What we serve, or that it is refused."""
    return "refused" if row.here is None else str(row.here)


def exit_status() -> Iterator[str]:
    """A list of statuses."""
    for member in exit_statuses():
        yield from roff.item(roff.bold(str(member.value)), [member.text])


def environment() -> Iterator[str]:
    """Every variable: those of options with their flag, then the others."""
    yield from roff.paragraphs(
        [
            "Every option has a variable of its own; those that llama-server has too "
            "are read under its name as well. A variable that is empty counts as not "
            "set. Of two names for one option, the one that begins with `MLXCELD_` "
            "wins.",
        ]
    )
    for option in OPTIONS:
        if "env" in option.where:
            tag = roff.inline(variables(option))
            yield from roff.item(tag, [f"{option.short} (`{option.flag}`)."])
    for name, text in VARIABLES:
        yield from roff.item(roff.bold(name), [text])


def places() -> Iterator[str]:
    """Where the configuration file is looked for, and its drop-ins."""
    yield from roff.paragraphs(
        [
            "The first of these that exists is read, unless `--config` or "
            "`$MLXCELD_CONFIG` names a file:",
        ]
    )
    for path in files():
        yield ".TP"
        yield roff.italic(path)
    yield ".PP"
    yield from roff.paragraphs(
        [
            "Beside the file that is read, the files `mlxcel.toml.d/*.toml` are read "
            "after it in the order of their names; what they set wins.",
        ]
    )


def notes() -> Iterator[str]:
    """The defaults that will change."""
    for number, flip in enumerate(FLIPS):
        if number:
            yield ".PP"
        yield from roff.paragraphs(
            [
                f"{flip.id}: where `{flip.option}` is not set, {flip.text} in version "
                f"{flip.version}. Write `{flip.option} = {flip.old}` to keep today's "
                f"meaning, or `{flip.option} = {flip.new}` to adopt the new one now. "
                "The daemon warns at the start where the change would matter to its "
                "configuration; `mlxcel-server --check-config` shows both plans in "
                "numbers.",
            ]
        )
