"""Reads llama-server's INI files: model presets and config.ini.

A key is a flag without its dashes or the name of a variable, so each becomes the flag
it stands for. In a file of presets `[*]` goes before every section, which wins over
it. Keys before the first section belong to `default`, and a section that comes twice
begins anew, as in llama-server.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from mlxceld.argv import KNOWN
from mlxceld.foreign import CACHE_REUSE, IGNORED, Foreign
from mlxceld.near import did_you_mean
from mlxceld.options import OPTIONS, Option
from mlxceld.problems import Problem, Refused

from ..found import Found, Place, Remark, Word

_KEY = re.compile(r"([A-Za-z_][A-Za-z0-9_.-]*)[ \t]*=[ \t]*(.*)")
_HEADER = re.compile(r"\[[ \t]*([^\]]+?)[ \t]*\][ \t]*([;#].*)?")
# llama-server compares these letter by letter: no other case, no `yes`.
_ON = ("on", "enabled", "true", "1")
_OFF = ("off", "disabled", "false", "0")
_MODEL = ("-m", "--model", "-hf", "-hfr", "--hf-repo")
_ROUTER = ("load-on-startup", "stop-timeout", "dedup-cache-models")


@dataclass(frozen=True, slots=True)
class _Pair:
    key: str
    value: str
    place: Place


@dataclass(slots=True)
class _Section:
    name: str
    line: int
    pairs: list[_Pair] = field(default_factory=list)


def _flags() -> dict[str, str]:
    """Every key that llama-server reads, with the flag it stands for."""
    keys = {flag.lstrip("-"): flag for flag in KNOWN}
    names: dict[str, str] = {}
    for option in OPTIONS:
        if not option.flags:
            continue
        for name in option.env:
            names[name] = option.flag if "flag" in option.where else ""
        for name in option.negated_env:
            negated = option.negated[-1] if option.negated else ""
            names[name] = negated
    for foreign in (*IGNORED, CACHE_REUSE):
        for name in foreign.env:
            opposites = [flag for flag in foreign.flags if flag.startswith("--no-")]
            is_off = name.startswith("LLAMA_ARG_NO_") and bool(opposites)
            names[name] = opposites[0] if is_off else foreign.flags[0]
    return {**{name: flag for name, flag in names.items() if flag}, **keys}


def _sections(text: str, file: str) -> tuple[list[_Section], list[Remark]]:
    sections: dict[str, _Section] = {}
    current = sections["default"] = _Section("default", 0)
    remarks: list[Remark] = []
    problems: list[Problem] = []
    for line, row in enumerate(re.split(r"\r\n|\n|\r", text), 1):
        if not row.strip(" \t") or row.lstrip(" \t").startswith((";", "#")):
            continue
        if header := _HEADER.fullmatch(row):
            name = header[1]
            if (old := sections.get(name)) and old.pairs:
                what = f"`[{name}]` begins anew: the keys before it are dropped"
                remarks.append(Remark(what, Place(file, line, f"[{name}]")))
            sections.pop(name, None)
            current = sections[name] = _Section(name, line)
        elif pair := _KEY.fullmatch(row):
            value = re.split(r"[ \t]*[;#]", pair[2], maxsplit=1)[0].rstrip(" \t")
            place = Place(file, line, f"[{current.name}] {pair[1]}")
            current.pairs.append(_Pair(pair[1], value, place))
        else:
            what = "found neither `[section]` nor `key = value`"
            problems.append(Problem(what, f"{file}:{line}"))
    if problems:
        raise Refused(problems)
    return list(sections.values()), remarks


def read(text: str, file: str) -> list[Found]:
    """One result for each section, `[*]` merged in. Raises Refused.

    A file without other sections is a config.ini, whose `default` is the server's.
    """
    sections, remarks = _sections(text, file)
    shared = next((s for s in sections if s.name == "*"), _Section("*", 0))
    models = [s for s in sections if s.name not in ("*", "default")]
    default = next(s for s in sections if s.name == "default")
    presets = bool(models)
    if not models:
        models = [default]
    elif pairs := [pair for pair in default.pairs if pair.key != "version"]:
        place = Place(file, pairs[0].place.line, "[default]")
        what = "the keys of `default` are for a server with one model"
        remarks.append(Remark(what, place))
    return [_found(shared, section, file, remarks, presets) for section in models]


def _found(
    shared: _Section,
    section: _Section,
    file: str,
    remarks: list[Remark],
    presets: bool,
) -> Found:
    flags = _flags()
    words: list[Word] = []
    own: list[Remark] = []
    for pair in (*_winners(shared, flags, own), *_winners(section, flags, own)):
        if pair.key == "version":
            continue
        flag = flags.get(pair.key)
        if pair.key in _ROUTER:
            own.append(Remark("is for llama-server's router only", pair.place))
        elif flag is None:
            hint = did_you_mean(pair.key, flags)
            what = "is no option of llama-server" + (f"; {hint}" if hint else "")
            own.append(Remark(what, pair.place, review=True))
        else:
            words += _words(flag, pair, own, presets)
    if presets:
        what = "a preset of the router: one server for each model is needed here"
        place = Place(file, section.line, f"[{section.name}]")
        own.insert(0, Remark(what, place))
        if not any(word.text in _MODEL for word in words):
            what = "no model is named: the router takes it from the section's name"
            own.insert(1, Remark(what, place))
    return Found(
        kind="ini",
        name=section.name,
        program="llama-server",
        command=(),
        words=tuple(words),
        remarks=(*remarks, *own),
        files=(file,),
    )


def _winners(
    section: _Section, flags: dict[str, str], remarks: list[Remark]
) -> list[_Pair]:
    """The pairs of a section that count.

    Of a key that comes twice it is the last one. Of two names for one option it is
    the name that comes later in the alphabet: llama-server goes by that order.
    """
    by_key: dict[str, _Pair] = {}
    for pair in section.pairs:
        if old := by_key.pop(pair.key, None):
            what = f"is said again in line {pair.place.line}, which counts"
            remarks.append(Remark(what, old.place))
        by_key[pair.key] = pair
    by_option: dict[int, _Pair] = {}
    for key in sorted(by_key):
        if key in flags:
            by_option[id(KNOWN[flags[key]].what)] = by_key[key]
    kept: list[_Pair] = []
    for key, pair in by_key.items():
        winner = by_option[id(KNOWN[flags[key]].what)] if key in flags else pair
        if winner is pair:
            kept.append(pair)
        else:
            what = f"`{winner.key}` in line {winner.place.line} says the same option"
            remarks.append(Remark(f"{what}, and counts", pair.place))
    return kept


def _words(flag: str, pair: _Pair, remarks: list[Remark], presets: bool) -> list[Word]:
    """The words that a pair stands for; none for a flag that is off."""
    entry = KNOWN[flag]
    if entry.arity != "none":
        if entry.arity == "maybe" and pair.value not in entry.words:
            return [Word(f"{flag}={pair.value}", pair.place)]
        return [Word(flag, pair.place), Word(pair.value, pair.place)]
    is_true, is_false = pair.value in _ON, pair.value in _OFF
    off = _opposite(flag)
    if off is None:
        if presets and is_false:
            remarks.append(Remark("is off, as it is without the key", pair.place))
            return []
        if is_false:
            what = "is on, whatever its value: llama-server looks for the key only"
            remarks.append(Remark(what, pair.place))
        return [Word(flag, pair.place)]
    negated = flag.startswith(("--no-", "-no-"))
    # In a preset only the words for "off" turn off, in a config.ini all but those
    # for "on" do; a negated key turns round what is on, in both.
    doubt = "" if is_true or is_false else f"`{pair.value}` is no word for on or off"
    on = is_true if negated or not presets else not is_false
    return [Word(flag if on else off, pair.place, doubt)]


def _opposite(flag: str) -> str | None:
    """The flag that says the contrary, of those known."""
    what = KNOWN[flag].what
    if isinstance(what, Option):
        # `metrics` has a negation here only: llama-server takes it for a bare flag.
        paired = bool(what.negated_env) or not what.env
        off: tuple[str, ...] = what.negated if paired else ()
        on = tuple(name for name in what.flags if what.is_switch)
    elif isinstance(what, Foreign):
        off = tuple(f for f in what.flags if f.startswith("--no-"))
        off += tuple(f for f in what.flags if re.match(r"-n(o-)?[a-z]+$", f) and off)
        on = tuple(f for f in what.flags if f not in off)
    else:
        return None
    long = [name for name in (on if flag in off else off) if name.startswith("--")]
    return long[-1] if long and on and off else None
