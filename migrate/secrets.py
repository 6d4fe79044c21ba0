"""Keeps API keys and tokens out of configurations, reports and diffs.

A key of the command line goes into a file that only its owner may read; one in the
environment of a service stays there. Nothing that is shown has any of them in it.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mlxceld.kinds import Value, toml_text
from mlxceld.options import BY_KEY, OPTIONS

from .found import Found
from .migration import Migration
from .plists import escape

KEY_FILE = ".keys"
"""What is put behind the name of a configuration to name its file of API keys."""


@dataclass(frozen=True, slots=True)
class KeyFile:
    """The file of API keys that belongs beside a configuration."""

    path: Path
    data: bytes


def without(
    migration: Migration, values: Mapping[str, Value], config: Path | None
) -> tuple[dict[str, Value], KeyFile | None, list[str]]:
    """Values without secrets, the file for the API keys, and what is left to do.

    What the configuration file of the set-up says itself is no secret in it.
    """
    found = migration.found
    values = dict(values)
    in_file = {entry.key for entry in found.entries}
    file: KeyFile | None = None
    advice: list[str] = []
    for key in [key for key in values if BY_KEY[key].secret and key not in in_file]:
        option = BY_KEY[key]
        texts = _texts(values.pop(key))
        if not texts:
            continue
        if key == "server.api_key" and "server.api_key_file" not in values:
            if config is None:
                advice.append(
                    "the API key is not copied: put it into a file that only the "
                    "daemon may read, and name that with server.api_key_file"
                )
                continue
            path = config.absolute().with_name(config.name + KEY_FILE)
            values["server.api_key_file"] = str(path)
            file = KeyFile(path, "".join(f"{key}\n" for key in texts).encode())
            if found.user:
                advice.append(
                    f"{found.user} runs the server and has to read the keys: "
                    f"{shlex.join(['chown', found.user, str(path)])}"
                )
        else:
            variable = option.own_env if key == "server.api_key" else option.env[0]
            advice.append(f"{key} is not copied: give it to the daemon in {variable}")
    order = [option.key for option in OPTIONS]
    ordered = {key: values[key] for key in sorted(values, key=order.index)}
    return ordered, file, advice


def _texts(value: object) -> list[str]:
    """The texts of a secret: its items where it is a list."""
    items = value if isinstance(value, list | tuple) else [value]
    return [str(item) for item in items if str(item).strip()]


def texts(migration: Migration) -> list[str]:
    """Every secret text of a set-up, longest first."""
    found = migration.found
    hidden = [option for option in OPTIONS if option.secret]
    texts: set[str] = set()
    for option in hidden:
        texts.update(_texts(migration.values.get(option.key, "")))
    names = {name for o in hidden for name in (*o.env, o.own_env)}
    texts |= {v.value for v in found.environment if v.name in names}
    keys = {key for o in hidden for key in (o.key, o.name, *o.renamed_from)}
    for entry in found.entries:
        if entry.key in keys:
            texts.update(_texts(entry.value))
    texts.update(values_of(found, [flag for o in hidden for flag in o.flags]))
    texts |= {part.strip() for text in texts for part in text.split(",")}
    return sorted((text for text in texts if text.strip()), key=len, reverse=True)


def values_of(found: Found, flags: Sequence[str]) -> list[str]:
    """What the command line says behind any of these flags."""
    words = [word.text for word in found.words]
    values = []
    for at, word in enumerate(words):
        flag, equals, value = word.partition("=")
        if flag.startswith("--"):
            flag = flag.replace("_", "-")
        if flag in flags:
            values += [value] if equals else words[at + 1 : at + 2]
    return values


def moved(migration: Migration) -> list[str]:
    """The variables that would win over the configuration and must not be there.

    Those that mlx_lm.server did not read would begin to count. One that holds a secret
    stays where it is, unless it did not count.
    """
    found = migration.found
    deaf = found.program == "mlx_lm.server"
    gone: set[str] = set()
    for option in OPTIONS:
        if not option.secret or deaf or values_of(found, option.flags):
            gone.update((*option.env, *option.negated_env, option.own_env))
    if deaf:
        gone.discard("HF_TOKEN")
    return list(dict.fromkeys(v.name for v in found.environment if v.name in gone))


def mask(text: str, hidden: Iterable[str]) -> str:
    """`text` without secrets, be they written plainly or as TOML or XML writes them."""
    for secret in hidden:
        for form in {secret, toml_text(secret)[1:-1], escape(secret)}:
            text = text.replace(form, "(not shown)")
    return text
