"""Routes of llama-server that this server does not serve, and says so.

A client that asks for embeddings gets 501 in the shape of all errors and can tell
that from a wrong address. The words are llama-server's as far as they are true here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from mlxceld.api.errors import invalid, not_supported
from mlxceld.api.http import Exchange
from mlxceld.api.state import State

Handler = Callable[[State, Exchange], Awaitable[None]]


def _absent(words: str) -> Mapping[str, Handler]:
    async def refuse(state: State, exchange: Exchange) -> None:
        # A reply before the end of the request would cost the connection.
        await exchange.body()
        raise not_supported(words)

    return {"POST": refuse}


async def adapters(state: State, exchange: Exchange) -> None:
    """GET /lora-adapters: there are none."""
    await exchange.send_json([])


async def set_adapters(state: State, exchange: Exchange) -> None:
    """POST /lora-adapters: scales for adapters; only an empty list can be met."""
    wanted = await exchange.json()
    if not isinstance(wanted, list):
        raise invalid("Request body must be an array")
    if wanted:
        raise not_supported("This server does not support LoRA adapters")
    await exchange.send_json({"success": True})


_EMBEDDINGS = _absent("This server does not support embeddings")
_RERANKING = _absent("This server does not support reranking")
_AUDIO = _absent("The current model does not support audio input.")

ROUTES: Mapping[str, Mapping[str, Handler]] = {
    "/infill": _absent("Infill is not supported by this server"),
    "/embedding": _EMBEDDINGS,
    "/embeddings": _EMBEDDINGS,
    "/v1/embeddings": _EMBEDDINGS,
    "/rerank": _RERANKING,
    "/reranking": _RERANKING,
    "/v1/rerank": _RERANKING,
    "/v1/reranking": _RERANKING,
    "/audio/transcriptions": _AUDIO,
    "/v1/audio/transcriptions": _AUDIO,
    "/v1/systemone": _absent("This model is not a decision model"),
    "/lora-adapters": {"GET": adapters, "POST": set_adapters},
}
