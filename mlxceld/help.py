"""Help in two lengths, from the option table.

`-h` has one line for each option, `--help` says everything. Texts are wrapped to a
width that the caller gives, by the rules here and not by argparse's, so that they are
the same on every Python.
"""

from __future__ import annotations

from collections.abc import Iterator

from mlxceld.argv import ACTIONS, Action
from mlxceld.flips import FLIPS
from mlxceld.kinds import Choice, Value
from mlxceld.options import CATEGORIES, OPTIONS, Option

USAGE = "usage: mlxcel-server --model PATH [options]"

ABOUT = (
    "Serves one MLX language model over llama-server's HTTP API. Options come from "
    "flags, environment variables and a TOML file; a flag wins over the environment, "
    "the environment over drop-ins, drop-ins over the file. The file is `--config`, "
    "`$MLXCELD_CONFIG`, or the first of `$CONFIGURATION_DIRECTORY/mlxcel.toml`, "
    "`~/.config/mlxcel/mlxcel.toml`, Homebrew's `etc/mlxcel/mlxcel.toml` and "
    "`/etc/mlxcel/mlxcel.toml`; its drop-ins are `mlxcel.toml.d/*.toml` beside it.",
    "Flags of llama-server that have no meaning here are accepted and named once at "
    "start.",
)
"""What the daemon is, in paragraphs."""

_FLAGS_WIDTH = 34


def short_help(width: int = 100) -> str:
    """One line for each option, grouped; lines that are too long are wrapped."""
    lines = [USAGE, ""]
    lines += _short_group(
        "General", [(_action_flags(a), a.short) for a in ACTIONS], width
    )
    for category, heading in CATEGORIES.items():
        rows = [(_flags(o), o.short) for o in OPTIONS if o.category == category]
        lines += _short_group(heading, rows, width)
    lines.append("`--help` says everything about each option.")
    return "\n".join(lines) + "\n"


def long_help(width: int = 100) -> str:
    """Everything about each option: names, meaning, choices, default."""
    lines = [USAGE, ""]
    for paragraph in ABOUT:
        lines += [*_wrap(paragraph, "", width), ""]
    lines += ["General:"]
    for action in ACTIONS:
        lines += [
            f"  {_action_flags(action)}",
            *_wrap(f"{action.short}.", "      ", width),
        ]
    for category, heading in CATEGORIES.items():
        lines += ["", f"{heading}:"]
        for option in OPTIONS:
            if option.category == category:
                lines += _long_entry(option, width)
    return "\n".join(lines) + "\n"


def _short_group(heading: str, rows: list[tuple[str, str]], width: int) -> list[str]:
    lines = [f"{heading}:"]
    for flags, text in rows:
        left = f"  {flags}"
        indent = " " * _FLAGS_WIDTH
        wrapped = _wrap(text, indent, width)
        if len(left) + 2 <= _FLAGS_WIDTH:
            wrapped[0] = left.ljust(_FLAGS_WIDTH) + wrapped[0].strip()
            lines += wrapped
        else:
            lines += [left, *wrapped]
    return [*lines, ""]


def _long_entry(option: Option, width: int) -> Iterator[str]:
    indent = "      "
    yield from _wrap(_all_flags(option), indent, width, first="  ")
    yield from _wrap(f"{option.short}.", indent, width)
    for paragraph in option.long.split("\n\n"):
        yield from _wrap(paragraph, indent, width)
    if isinstance(option.kind, Choice):
        for word, text in option.kind.choices:
            yield from _wrap(f"{word}: {text}", f"{indent}  ", width)
    for flip in FLIPS:
        if flip.option == option.key:
            text = f"The default becomes {flip.new} in version {flip.version}."
            yield from _wrap(text, indent, width)
    if option.deprecated:
        yield from _wrap(f"Deprecated: {option.deprecated}.", indent, width)
    names = (option.own_env, *option.env, *option.negated_env)
    facts = (
        f"[default: {default_text(option)}; file: {option.key}; "
        f"environment: {', '.join(names)}]"
    )
    yield from _wrap(facts, indent, width)


def default_text(option: Option) -> str:
    """The default in words."""
    if option.default is None:
        return option.default_text
    return _plain(option.default)


def _plain(value: Value) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, tuple):
        # A text may be a line break, which would break a row of a table.
        return ", ".join(value).replace("\n", "\\n") or "none"
    return str(value) or "none"


def _action_flags(action: Action) -> str:
    flags = ", ".join(action.flags)
    if action.words:
        return f"{flags}[={action.metavar}]"
    return f"{flags} {action.metavar}" if action.metavar else flags


def _flags(option: Option) -> str:
    """The first short and the first long spelling, and how to turn it off."""
    shorts = [flag for flag in option.flags if not flag.startswith("--")][:1]
    text = ", ".join([*shorts, option.flag])
    if option.is_switch:
        off = next((f for f in option.negated if f.startswith("--")), "")
        return f"{text}, {off}" if off else text
    return f"{text} {option.metavar}"


def _all_flags(option: Option) -> str:
    text = ", ".join((*option.flags, *option.negated))
    if not option.is_switch:
        text += f" {option.metavar}"
    constants = ", ".join(f"{flag} ({word})" for flag, word in option.constants)
    return f"{text}; {constants}" if constants else text


def _wrap(text: str, indent: str, width: int, first: str | None = None) -> list[str]:
    """Words in lines; a word that is too long is not broken.

    As `textwrap.wrap`, which takes an eighth of what a whole `--help` may take.
    """
    lines = []
    line = indent if first is None else first
    empty = True
    for word in text.split():
        if empty:
            line += word
        elif len(line) + 1 + len(word) <= width:
            line += f" {word}"
        else:
            lines.append(line)
            line = indent + word
        empty = False
    return [*lines, line] if not empty else lines
