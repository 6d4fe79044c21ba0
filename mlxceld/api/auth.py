"""API keys: which requests may pass.

Rules are llama-server's: `Authorization: Bearer KEY` (or the bare key there) or
`X-Api-Key: KEY`; only health and the root are open. /v1/models needs the key.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Mapping

from mlxceld.service.secrets import read_keys
from mlxceld.settings import ServerSettings

PUBLIC = frozenset({"/", "/health", "/v1/health"})
"""Paths that need no key."""

_BEARER = b"Bearer "


class Keys:
    """The accepted keys. Without any, every request passes."""

    def __init__(self, keys: Iterable[str]) -> None:
        self._keys = tuple(key.encode() for key in keys)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Keys) and set(self._keys) == set(other._keys)

    __hash__ = None  # type: ignore[assignment]

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


def keys_of(server: ServerSettings, environ: Mapping[str, str]) -> Keys:
    """The keys of a configuration. Raises `Refused` for a file that is no good."""
    return Keys(read_keys(server, environ))
