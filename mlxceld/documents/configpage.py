"""The man page of the configuration file, `man 5 mlxcel.toml`."""

from __future__ import annotations

from collections.abc import Iterator

from mlxceld.documents import pages, roff
from mlxceld.documents.facts import MODES, C, N
from mlxceld.documents.flags import changes, variables
from mlxceld.documents.manpages import COMMENT, see_also
from mlxceld.documents.schema import describe
from mlxceld.files import VERSION
from mlxceld.kinds import Choice
from mlxceld.options import EXCLUSIVE, TABLES, Option, in_table

SYNTAX = (
    "The configuration of `mlxcel-server` is a TOML file in UTF-8. It has the tables "
    + ", ".join(f"`[{table}]`" for table in TABLES)
    + f", and may say `version = {VERSION}`, the version of the format, at the top. "
    "All of it is optional. Unknown tables and keys, and values of the wrong type, are "
    "mistakes: all of them are named with their lines, and the daemon does not start.",
    "A flag wins over an environment variable, a variable over a drop-in, a drop-in "
    "over this file. Lists are replaced as a whole, not joined. "
    "`mlxcel-server --print-config` shows where every value comes from.",
    "A name of a file or folder is seen from the folder of the file that it is written "
    "in, and `~` at its beginning is the home folder.",
    "`mlxcel-server --check-config` checks the configuration, shows the plan, and ends "
    "with status 0 or 78.",
)


def config_page() -> str:
    """`man 5 mlxcel.toml`."""
    return "\n".join([COMMENT, *_lines()]) + "\n"


def _lines() -> Iterator[str]:
    yield pages.title("mlxcel.toml", 5)
    yield roff.heading("Name")
    yield rf"mlxcel.toml \- {roff.escape('configuration file of mlxcel-server')}"
    yield roff.heading("Synopsis")
    yield roff.italic("~/.config/mlxcel/mlxcel.toml")
    yield ".br"
    yield roff.italic("/etc/mlxcel/mlxcel.toml")
    yield roff.heading("Description")
    yield from roff.paragraphs(SYNTAX)
    yield roff.heading("Options")
    for table in TABLES:
        yield roff.subheading(f"[{table}]")
        for option in in_table(table):
            if "file" in option.where:
                yield from _entry(option)
    yield roff.subheading("What excludes each other")
    yield from roff.paragraphs(
        f"`{one}` and `{other}` say the same thing: in one file they are a mistake, "
        "and of two layers the higher one counts."
        for one, other in EXCLUSIVE
    )
    yield roff.heading("Environment")
    yield from pages.environment()
    yield roff.heading("Files")
    yield from pages.places()
    yield roff.heading("Notes")
    yield from pages.notes()
    yield roff.heading("Examples")
    yield from _examples()
    yield roff.heading("See also")
    yield see_also("mlxcel-server(1)", "mlxcel-migrate(1)")


def _entry(option: Option) -> Iterator[str]:
    texts = [f"{option.short}.", *option.long.split("\n\n")]
    value = f"{describe(option.kind)}; default: {_default(option)}"
    tag = f"{roff.bold(option.name)} ({roff.inline(value)})"
    yield from roff.item(tag, texts)
    if isinstance(option.kind, Choice):
        yield from roff.choices(option.kind.choices)
    flags = ", ".join(f"`{flag}`" for flag in (*option.flags, *option.negated))
    reload = "reload" if option.reload == "live" else "restart"
    facts = (
        f"Flag: {flags}. Environment: {variables(option)}. Since {option.since}. "
        f"Changes with a {reload}."
    )
    yield ".IP"
    yield from roff.body([*changes(option), facts])


def _default(option: Option) -> str:
    if option.default is None:
        return option.default_text
    return f"`{option.kind.render(option.default)}`"


def _examples() -> Iterator[str]:
    yield from roff.prose(
        f"The modes in numbers, for a context size of {C} and {N} slots."
    )
    for row in MODES:
        wish, plan = row.wish, row.plan
        yield ".PP"
        yield from roff.prose(
            f"{plan.slot_ctx} tokens for one request, {plan.pool} for all:"
        )
        yield ".PP"
        yield ".RS 4"
        said = [f'mode = "{wish.mode}"']
        if wish.ctx_size:
            said.append(f"ctx_size = {wish.ctx_size}")
        if wish.ctx_size_per_seq:
            said.append(f"ctx_size_per_seq = {wish.ctx_size_per_seq}")
        said.append(f"parallel = {wish.parallel}")
        if wish.kv_unified:
            said.append("kv_unified = true")
        yield from roff.example(["[engine]", *said])
        yield ".RE"
