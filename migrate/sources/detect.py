"""Tells what kind of source a file is, by its name and else by its content."""

from __future__ import annotations

import re
import tomllib

from ..found import Kind

_NAMES: tuple[tuple[str, Kind], ...] = (
    (r"\.toml$", "toml"),
    (r"\.(service|socket|timer)$", "systemd"),
    (r"\.(service|container)\.d/[^/]+\.conf$", "systemd"),
    (r"\.container$", "quadlet"),
    (r"\.plist$", "launchd"),
    (r"(^|/)(docker-|podman-)?compose[^/]*\.ya?ml$", "compose"),
    (r"\.ya?ml$", "compose"),
    (r"\.ini$", "ini"),
    (r"\.(sh|bash|zsh|ksh|command)$", "script"),
    (r"(^|/)\.env(\.[^/]*)?$|\.env$|(^|/)env$", "env"),
    (r"^/etc/(default|sysconfig|conf\.d)/", "env"),
)
_INI_KEY = re.compile(r"([a-z]+-[a-z-]+|LLAMA_ARG_[A-Z_]+)[ \t]*=")
_VARIABLE = re.compile(r"(export\s+)?[A-Za-z_][A-Za-z0-9_]*=")


def detect(name: str, data: bytes) -> Kind | None:
    """The kind of a file, or None where nothing tells."""
    for pattern, kind in _NAMES:
        if re.search(pattern, name):
            return kind
    if data.startswith(b"bplist"):
        return "launchd"
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return None
    return _by_content(text)


def _by_content(text: str) -> Kind | None:
    begin = text.lstrip()
    if begin.startswith("#!"):
        return "script"
    if begin.startswith(("<?xml", "<!DOCTYPE plist", "<plist")):
        return "launchd"
    headers = set(re.findall(r"^\s*\[([^\]\n]+)\]\s*$", text, re.MULTILINE))
    if "Container" in headers:
        return "quadlet"
    if headers & {"Unit", "Service", "Install"}:
        return "systemd"
    if re.search(r"^services:\s*(#.*)?$", text, re.MULTILINE):
        return "compose"
    rows = [
        row.strip()
        for row in text.splitlines()
        if row.strip() and not row.lstrip().startswith(("#", ";"))
    ]
    if rows and all(_VARIABLE.match(row) for row in rows):
        return "env"
    if "*" in headers or any(_INI_KEY.match(row) for row in rows):
        return "ini"
    if _is_toml(text):
        return "toml"
    if headers and all("=" in r or r[0] == "[" for r in rows):
        return "ini"
    if rows:
        return "command" if len(_joined(rows)) == 1 else "script"
    return None


def _is_toml(text: str) -> bool:
    try:
        return bool(tomllib.loads(text))
    except ValueError:
        return False


def _joined(rows: list[str]) -> list[str]:
    """Rows with those that a backslash continues put together."""
    joined: list[str] = []
    goes_on = False
    for row in rows:
        if not goes_on:
            joined.append("")
        joined[-1] += row
        goes_on = row.endswith("\\")
    return joined
