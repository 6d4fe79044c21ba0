"""API keys: which requests may pass.

Rules are llama-server's: `Authorization: Bearer KEY` (or the bare key there) or
`X-Api-Key: KEY`; only health and the root are open. /v1/models needs the key.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from pathlib import Path

from mlxceld.problems import Problem, Refused

PUBLIC = frozenset({"/", "/health", "/v1/health"})
"""Paths that need no key."""

_BEARER = b"Bearer "


class Keys:
    """The accepted keys. Without any, every request passes."""

    def __init__(self, keys: Iterable[str]) -> None:
        self._keys = tuple(key.encode() for key in keys)

    def __bool__(self) -> bool:
        return bool(self._keys)

    def admits(self, headers: Iterable[tuple[bytes, bytes]]) -> bool:
        """Whether the headers of a request (names in lower case) carry a key."""
        if not self._keys:
            return True
        found = dict(headers)
        offered = found.get(b"authorization", b"")
        offered = offered.removeprefix(_BEARER) or found.get(b"x-api-key", b"")
        # Every key is compared, in constant time: neither which one matches nor how
        # much of it may show in the time the answer takes.
        matches = [hmac.compare_digest(offered, key) for key in self._keys]
        return any(matches)


def read_keys(api_key: Iterable[str], key_file: str | None) -> Keys:
    """Keys of the option and of the file: one a line, blank lines and # skipped.

    Raises `Refused` when the file cannot be read, or holds no key: a daemon that was
    meant to be closed must not start open.
    """
    keys = [key.strip() for key in api_key if key.strip()]
    if key_file:
        try:
            text = Path(key_file).read_text(encoding="utf-8")
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or "not UTF-8 text"
            raise Refused(
                [Problem(f"cannot read server.api_key_file: {reason}", where=key_file)]
            ) from None
        lines = (line.strip() for line in text.splitlines())
        found = [line for line in lines if line and not line.startswith("#")]
        if not found:
            raise Refused(
                [
                    Problem(
                        "server.api_key_file holds no key",
                        where=key_file,
                        hint="write one key a line",
                    )
                ]
            )
        keys += found
    return Keys(keys)
