"""Which web origins get which CORS headers."""

from __future__ import annotations

import pytest

from mlxceld.api.cors import Cors

HEADER = "access-control-allow-origin"


@pytest.mark.parametrize(
    ("origins", "origin", "allowed"),
    [
        (["*"], "https://a.example", "https://a.example"),
        (["*"], None, None),
        (["https://a.example"], "https://b.example", "https://a.example"),
        (["https://a.example"], None, "https://a.example"),
        (["localhost"], "http://localhost:5173", "http://localhost:5173"),
        (["localhost"], "http://127.0.0.1", "http://127.0.0.1"),
        (["localhost"], "http://[::1]:80", "http://[::1]:80"),
        (["localhost"], "http://localhost.evil.example", None),
        (["localhost"], "http://[broken", None),
        (["localhost"], "null", None),
        (["https://a.example", "localhost"], "https://a.example", "https://a.example"),
        (["https://a.example", "localhost"], "http://localhost", "http://localhost"),
        (["https://a.example", "localhost"], "https://b.example", None),
        ([], "https://a.example", None),
    ],
)
def test_allowed_origins(
    origins: list[str], origin: str | None, allowed: str | None
) -> None:
    assert dict(Cors(origins).headers(origin)).get(HEADER) == allowed


def test_caches_are_told_when_the_answer_depends_on_the_origin() -> None:
    assert ("vary", "Origin") in Cors(["localhost"]).headers("https://b.example")
    assert ("vary", "Origin") not in Cors(["https://a.example"]).headers(None)
