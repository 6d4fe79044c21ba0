"""CORS: which web pages may read the answers, in the words of `--cors-origins`."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import urlsplit

_LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})


class Cors:
    """Which web pages may read the answers; `origins` as in `--cors-origins`."""

    def __init__(self, origins: Iterable[str]) -> None:
        self._origins = tuple(origins)

    def headers(self, origin: str | None) -> list[tuple[str, str]]:
        """Headers for a request from `origin` (None when it says none).

        `*` echoes the origin, `localhost` echoes local ones, one literal is always
        sent as it is, of several the one that matches.
        """
        allowed = self._allowed(origin)
        if allowed is None:
            return [("vary", "Origin")] if self._varies else []
        headers = [("access-control-allow-origin", allowed)]
        return [*headers, ("vary", "Origin")] if self._varies else headers

    @property
    def _varies(self) -> bool:
        only = self._origins[0] if len(self._origins) == 1 else None
        return bool(self._origins) and (only is None or only in ("*", "localhost"))

    def _allowed(self, origin: str | None) -> str | None:
        if not self._varies:
            return self._origins[0] if self._origins else None
        if origin is None:
            return None
        if "*" in self._origins or origin in self._origins:
            return origin
        return origin if "localhost" in self._origins and _is_local(origin) else None


def _is_local(origin: str) -> bool:
    try:
        return urlsplit(origin).hostname in _LOCAL
    except ValueError:
        return False
