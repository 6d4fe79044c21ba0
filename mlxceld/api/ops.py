"""Routes about the daemon itself: health, /props, /slots, /metrics, models, tokens.

All status answers come from the plan and from the engine's last snapshot, so they come
at once whatever the engine is busy with. `n_ctx` is the most tokens one request can
use, everywhere; pool, mode and sharing are fields of their own. Nothing here shows
what users wrote.
"""

from __future__ import annotations

import time
from typing import Any

from mlxceld import __version__
from mlxceld.api import metrics, shapes
from mlxceld.api.errors import not_supported, unavailable
from mlxceld.api.flow import ask_engine
from mlxceld.api.http import Exchange, parse_object
from mlxceld.api.prompt import read_content, read_tokens
from mlxceld.api.readers import flag
from mlxceld.api.state import State
from mlxceld.chat.template import TemplateBroken
from mlxceld.engine.messages import SlotState, Snapshot, Totals


async def root(state: State, exchange: Exchange) -> None:
    text = f"mlxcel-server {__version__}: see /health, /props and /v1/models\n"
    await exchange.send_bytes(text.encode(), "text/plain; charset=utf-8")


async def health(state: State, exchange: Exchange) -> None:
    state.ready()
    await exchange.send_json({"status": "ok"})


async def props(state: State, exchange: Exchange) -> None:
    """GET /props: llama-server's keys, then ours: mode, pool, live tokens, bytes."""
    ready = state.ready()
    model, plan, snapshot = ready.model, ready.plan, _snapshot(state)
    settings, server = state.settings, state.settings.server
    text, caps = _template(state)
    await exchange.send_json(
        {
            "default_generation_settings": {
                "params": state.defaults,
                "n_ctx": plan.slot_ctx,
            },
            "total_slots": plan.slots,
            "model_alias": state.model_name,
            "model_ftype": model.ftype,
            "model_path": settings.model.path or settings.model.hf_repo or "",
            "modalities": {"vision": False, "video": False, "audio": False},
            "media_marker": "<__media__>",
            "endpoint_slots": server.slots,
            "endpoint_props": server.props,
            "endpoint_metrics": server.metrics,
            "ui": server.ui,
            "ui_settings": {},
            "chat_template": text,
            "chat_template_caps": caps,
            "bos_token": model.bos_token,
            "eos_token": model.eos_token,
            "build_info": shapes.BUILD,
            "is_sleeping": state.client.asleep,
            "cors_proxy_enabled": False,
            "mode": plan.mode,
            "kv_unified": plan.shared,
            "n_pool": plan.pool,
            "n_live_tokens": snapshot.n_live,
            "kv_bytes": snapshot.kv_bytes,
            "kv_bytes_plan": plan.kv_bytes,
            "cache_ram_bytes": plan.cache_ram_bytes,
            "decode": "batched" if model.batched else "single",
        }
    )


def _template(state: State) -> tuple[str, dict[str, bool]]:
    try:
        template = state.template()
    except TemplateBroken:
        return state.ready().model.chat_template, {}
    return template.text, template.caps


async def change_props(state: State, exchange: Exchange) -> None:
    """POST /props: there is nothing to change; llama-server says so the same way."""
    if not state.settings.server.props:
        raise not_supported(
            "This server does not support changing global properties. "
            "Start it with `--props`"
        )
    await exchange.json_object()
    await exchange.send_json({"success": True})


async def slots(state: State, exchange: Exchange) -> None:
    """GET /slots; with `?fail_on_no_slot=1` 503 when every slot is busy."""
    if not state.settings.server.slots:
        raise not_supported(
            "This server does not support slots endpoint. Start it with `--slots`"
        )
    state.ready()
    seats = _snapshot(state).slots
    if "fail_on_no_slot" in exchange.query and all(slot.processing for slot in seats):
        raise unavailable("no slot available")
    await exchange.send_json([_slot(state, slot) for slot in seats])


def _slot(state: State, slot: SlotState) -> dict[str, Any]:
    plan = state.ready().plan
    shown: dict[str, Any] = {
        "id": slot.id,
        "n_ctx": plan.slot_ctx,
        "speculative": False,
        "is_processing": slot.processing,
    }
    if slot.task >= 0:
        parameters = state.running.parameters(slot.task, slot.id)
        shown |= {
            "id_task": slot.task,
            "n_prompt_tokens": slot.n_prompt if slot.processing else slot.n_held,
            "n_prompt_tokens_processed": slot.n_processed,
            "n_prompt_tokens_cache": slot.n_cached,
            "params": state.defaults if parameters is None else parameters,
            "next_token": [
                {
                    "has_next_token": slot.has_next_token,
                    "has_new_line": slot.has_new_line,
                    "n_remain": slot.n_remain,
                    "n_decoded": slot.n_decoded,
                }
            ],
        }
    return shown | {
        "n_live_tokens": slot.n_held if slot.processing else 0,
        "kv_unified": plan.shared,
        "n_pool": plan.pool,
    }


async def show_metrics(state: State, exchange: Exchange) -> None:
    if not state.settings.server.metrics:
        raise not_supported(
            "This server does not support metrics endpoint. Start it with `--metrics`"
        )
    client = state.client
    # As in llama-server, the numbers of a model that sleeps are those it went to sleep
    # with: a scrape shows no step where nobody asked for anything. /props tells.
    snapshot = client.dozed or _snapshot(state)
    text = state.metrics.render(snapshot, state.ready().plan, client.restarts)
    await exchange.send_bytes(
        text.encode(),
        metrics.CONTENT_TYPE,
        headers=[("process-start-time-unix", str(int(state.started)))],
    )


async def models(state: State, exchange: Exchange) -> None:
    """GET /models and /v1/models: the one model, in Ollama's and OpenAI's words."""
    ready = state.ready()
    model, settings = ready.model, state.settings.model
    name, path = state.model_name, settings.path or settings.hf_repo or ""
    await exchange.send_json(
        {
            "models": [
                {
                    "name": name,
                    "model": name,
                    "modified_at": "",
                    "size": "",
                    "digest": "",
                    "type": "model",
                    "description": "",
                    "tags": [""],
                    "capabilities": ["completion"],
                    "parameters": "",
                    "details": {
                        "parent_model": "",
                        "format": "gguf" if path.endswith(".gguf") else "mlx",
                        "family": "",
                        "families": [""],
                        "parameter_size": "",
                        "quantization_level": "",
                    },
                }
            ],
            "object": "list",
            "data": [
                {
                    "id": name,
                    "aliases": sorted(set(settings.alias)),
                    "tags": sorted(set(settings.tags)),
                    "object": "model",
                    "architecture": {
                        "input_modalities": ["text"],
                        "output_modalities": ["text"],
                    },
                    "created": int(time.time()),
                    # Clients tell a llama-server by this word.
                    "owned_by": "llamacpp",
                    "meta": {
                        "vocab_type": 2,
                        "n_vocab": model.n_vocab,
                        "n_ctx": ready.plan.slot_ctx,
                        "n_ctx_train": model.n_ctx_train,
                        "n_embd": model.n_embd,
                        "n_params": model.n_params,
                        "size": model.size,
                        "ftype": model.ftype,
                    },
                }
            ],
        }
    )


async def tokenize(state: State, exchange: Exchange) -> None:
    body = await exchange.json_object()
    limits = state.limits()
    content = read_content(body, "content", limits.n_vocab)
    answer = await ask_engine(
        state.client.tokenize(
            content,
            add_special=flag(body, "add_special", False, limits),
            parse_special=flag(body, "parse_special", True, limits),
        )
    )
    if flag(body, "with_pieces", False, limits):
        pairs = zip(answer.tokens, answer.pieces, strict=True)
        tokens = [{"id": token, "piece": _piece(piece)} for token, piece in pairs]
        await exchange.send_json({"tokens": tokens})
        return
    await exchange.send_json({"tokens": answer.tokens})


def _piece(piece: bytes) -> str | list[int]:
    """Text, or the bytes of a piece that is only part of a character."""
    try:
        return piece.decode("utf-8")
    except UnicodeDecodeError:
        return list(piece)


async def detokenize(state: State, exchange: Exchange) -> None:
    n_vocab = state.limits().n_vocab
    tokens = await exchange.digest(
        lambda data: read_tokens(parse_object(data), "tokens", n_vocab)
    )
    text = await ask_engine(state.client.detokenize(tokens)) if tokens else ""
    await exchange.send_json({"content": text})


def _snapshot(state: State) -> Snapshot:
    """The engine's last word, or an idle one before its first."""
    snapshot = state.client.snapshot
    if snapshot is not None:
        return snapshot
    idle = [SlotState(index) for index in range(state.ready().plan.slots)]
    return Snapshot(idle, 0, 0, 0, Totals())
