"""The one error shape of the API and the exceptions that become it.

`{"error": {"code", "message", "type"}}`, as llama-server sends it, on every route and
for every status. Handlers raise `ApiError`; nobody else builds an error body.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlxceld.engine import messages as m


class ApiError(Exception):
    """A reply other than success: an HTTP status and the words for it.

    `extra` holds further fields of the error object (the token counts of
    `exceed_context_size_error`); `retry_after` is in seconds.
    """

    def __init__(
        self,
        code: int,
        kind: str,
        message: str,
        extra: Mapping[str, Any] | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.kind = kind
        self.message = message
        self.extra = dict(extra or {})
        self.retry_after = retry_after
        self.status = ""
        """A word beside the error that says what the server does."""

    def body(self) -> dict[str, Any]:
        """The JSON body, also the payload of an error event within a stream."""
        error = {
            "code": self.code,
            "message": self.message,
            "type": self.kind,
            **self.extra,
        }
        status = {"status": self.status} if self.status else {}
        return {**status, "error": error}

    def headers(self) -> list[tuple[str, str]]:
        if self.retry_after is None:
            return []
        return [("retry-after", str(self.retry_after))]


class ClientGone(Exception):
    """The client closed the connection; there is nobody left to answer."""


def invalid(message: str) -> ApiError:
    """The client's mistake."""
    return ApiError(400, "invalid_request_error", message)


def bad_field(name: str, message: str) -> ApiError:
    """A mistake in one field of the request, in llama-server's form."""
    return invalid(f"Field '{name}': {message}")


def not_supported(message: str) -> ApiError:
    return ApiError(501, "not_supported_error", message)


def not_found() -> ApiError:
    """An unknown path or a wrong method: llama-server answers both alike."""
    return ApiError(404, "not_found_error", "File Not Found")


def unauthorized() -> ApiError:
    return ApiError(401, "authentication_error", "Invalid API Key")


def forbidden(message: str) -> ApiError:
    return ApiError(403, "permission_error", message)


def head_too_large(limit: int) -> ApiError:
    """`limit` is in bytes."""
    return ApiError(
        431,
        "invalid_request_error",
        f"the headers of the request are larger than {limit} bytes",
    )


def too_slow() -> ApiError:
    return ApiError(408, "invalid_request_error", "the answer was read too slowly")


def unavailable(message: str, retry_after: int | None = None) -> ApiError:
    return ApiError(503, "unavailable_error", message, retry_after=retry_after)


def draining(retry_after: int) -> ApiError:
    """The daemon was told to stop; `status` is what health checks look for."""
    error = unavailable("The server is shutting down", retry_after)
    error.status = "draining"
    return error


def internal() -> ApiError:
    """A fault of ours. What went wrong is in the log, not in the reply."""
    return ApiError(500, "server_error", "internal error, see the log of the server")


def from_engine(failed: m.Failed) -> ApiError:
    """The engine's refusal, or its failure half-way, as an error of the API."""
    extra = {
        name: value
        for name, value in (
            ("n_prompt_tokens", failed.n_prompt_tokens),
            ("n_ctx", failed.n_ctx),
        )
        if value is not None
    }
    return ApiError(failed.code, failed.type, failed.message, extra, failed.retry_after)
