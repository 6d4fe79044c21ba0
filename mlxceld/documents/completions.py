"""Completions for bash, zsh and fish, from the flags of a command.

They are written out flag by flag and call nothing when they run, so that a Tab costs
no start of Python. bash's works with the bash 3.2 of macOS.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from mlxceld.documents.flags import Flag, Group

COMMENT = "# Written by `python -m mlxceld.generate` from the option table."


def _flags(groups: Iterable[Group]) -> list[Flag]:
    return [flag for group in groups for flag in group.flags]


def _words(flag: Flag) -> str:
    return " ".join(word for word, _ in flag.words)


def bash(program: str, groups: Iterable[Group]) -> str:
    """The file for bash."""
    return "\n".join(_bash(program, _flags(groups))) + "\n"


def _bash(program: str, flags: Sequence[Flag]) -> Iterator[str]:
    function = "_" + program.replace("-", "_")
    everything = [name for flag in flags for name in _names(flag)]
    files = [n for flag in flags if flag.takes == "file" for n in flag.names]
    texts = [n for flag in flags if flag.takes == "text" for n in flag.names]
    yield f"# bash completion for {program}"
    yield COMMENT
    yield ""
    yield f"{function}() {{"
    yield '    local cur=${COMP_WORDS[COMP_CWORD]} prev="" value=""'
    yield "    ((COMP_CWORD > 0)) && prev=${COMP_WORDS[COMP_CWORD - 1]}"
    yield "    # bash splits `--flag=word` into three words."
    yield "    if [[ $cur == = ]]; then"
    yield '        cur="" value=yes'
    yield "    elif [[ $prev == = ]] && ((COMP_CWORD > 1)); then"
    yield "        prev=${COMP_WORDS[COMP_CWORD - 2]} value=yes"
    yield "    fi"
    yield '    local words=""'
    yield "    COMPREPLY=()"
    yield '    case "$prev" in'
    for flag in flags:
        if flag.takes == "words" and flag.names:
            yield f"    {' | '.join(flag.names)})"
            yield f'        words="{_words(flag)}" value=yes'
            yield "        ;;"
        if flag.takes == "maybe":
            yield f"    {' | '.join(flag.names)})"
            yield f'        words="{_words(flag)}"'
            yield "        ;;"
    if files:
        yield from _case(files, ["# Nothing to offer means names of files."])
    if texts:
        yield from _case(texts, ["compopt +o default 2>/dev/null"])
    yield "    esac"
    if all(flag.names for flag in flags):
        yield "    [[ -n $value || $cur == -* || -z $cur ]] || return 0"
    else:
        yield "    [[ -n $value || $cur == -* ]] || return 0"
    yield "    if [[ -z $value ]]; then"
    yield '        words="$words'
    yield from (f"            {row}" for row in _rows(everything))
    yield '        "'
    yield "    fi"
    yield "    # shellcheck disable=SC2207"
    yield '    COMPREPLY=($(compgen -W "$words" -- "$cur"))'
    yield "}"
    yield ""
    yield f"complete -o default -F {function} {program}"


def _case(names: Sequence[str], body: Sequence[str]) -> Iterator[str]:
    rows = _rows(names, " | ", 76)
    for number, row in enumerate(rows):
        last = number == len(rows) - 1
        yield f"    {row})" if last else f"    {row} | \\"
    yield from (f"        {line}" for line in body)
    yield "        return 0"
    yield "        ;;"


def _rows(names: Sequence[str], separator: str = " ", width: int = 72) -> list[str]:
    rows: list[str] = []
    for name in names:
        if rows and len(rows[-1]) + len(separator) + len(name) <= width:
            rows[-1] += separator + name
        else:
            rows.append(name)
    return rows


def _names(flag: Flag) -> tuple[str, ...]:
    return (*flag.names, *flag.off, *(name for name, _ in flag.constants))


def zsh(program: str, groups: Iterable[Group]) -> str:
    """The file for zsh, to be called `_PROGRAM`."""
    lines = [f"#compdef {program}", COMMENT, "", "_arguments \\"]
    for flag in _flags(groups):
        lines += [f"    {spec} \\" for spec in _zsh(flag)]
    lines[-1] = lines[-1].removesuffix(" \\")
    return "\n".join(lines) + "\n"


def _zsh(flag: Flag) -> Iterator[str]:
    names = _names(flag)
    action = {
        "nothing": "",
        "file": f":{_zsh_text(flag.metavar)}:_files",
        "text": f":{_zsh_text(flag.metavar)}: ",
        "words": f":word:({_words(flag)})",
        "maybe": f"::word:({_words(flag)})",
    }[flag.takes]
    text = _zsh_text(flag.short)
    if not names:
        yield _quote(("*" if flag.repeats else "") + (action or ":word: "))
        return
    others = "" if flag.repeats else f"({' '.join(names)})"
    repeat = "*" if flag.repeats else ""
    for name in names:
        takes = action if name in flag.names else ""
        equals = ""
        if takes and name.startswith("--"):
            equals = "=-" if flag.takes == "maybe" else "="
        yield _quote(f"{others}{repeat}{name}{equals}[{text}]{takes}")


def _zsh_text(text: str) -> str:
    return re.sub(r"([\\\[\]:])", r"\\\1", text)


def fish(program: str, groups: Iterable[Group]) -> str:
    """The file for fish."""
    flags = _flags(groups)
    lines = [f"# fish completion for {program}", COMMENT, ""]
    if all(flag.names for flag in flags):
        lines.append(f"complete -c {program} -f")
    for flag in flags:
        if not flag.names:
            continue
        takes = {
            "nothing": "",
            "file": " -r -F",
            "text": " -x",
            "words": f" -x -a {_quote(_words(flag))}",
            "maybe": f" -f -a {_quote(_words(flag))}",
        }[flag.takes]
        text = _fish_quote(flag.short)
        names = "".join(_fish_name(name) for name in flag.names)
        lines.append(f"complete -c {program}{names}{takes} -d {text}")
        others = [*flag.off, *(name for name, _ in flag.constants)]
        for name in others:
            lines.append(f"complete -c {program}{_fish_name(name)} -d {text}")
    return "\n".join(lines) + "\n"


def _fish_name(name: str) -> str:
    if name.startswith("--"):
        return f" -l {name[2:]}"
    return f" -s {name[1:]}" if len(name) == 2 else f" -o {name[1:]}"


def _quote(text: str) -> str:
    """A word for the shell, which must not take any of it for its own."""
    return "'" + text.replace("'", "'\\''") + "'"


def _fish_quote(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
