"""POST /slots/{id}?action=save|restore|erase, as llama-server has it.

Two things differ: a slot that does not exist is refused, not wrapped round, and an
error says what was wrong with the file.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any

from mlxceld.api.errors import ClientGone, bad_field, invalid, not_supported
from mlxceld.api.flow import ask_engine
from mlxceld.api.http import Exchange
from mlxceld.api.state import State
from mlxceld.engine.client import SlotWork
from mlxceld.engine.messages import SlotDone

_FORBIDDEN = re.compile(r'[/\\:*?"<>|\x00-\x1f\x7f-\x9f\ud800-\udfff\ufffd]')

_LONGEST_NAME = 255
"""Bytes."""


def valid_name(name: str) -> bool:
    """Whether a file may have this name: no path, nothing any system chokes on.

    llama-server's rules: no separators, none of `: * ? " < > |`, no control characters,
    no space at either end, no dot at the end, at most 255 bytes.
    """
    if not name or _FORBIDDEN.search(name):
        return False
    if name != name.strip(" ") or name.endswith("."):
        return False
    return len(name.encode()) <= _LONGEST_NAME


async def act(state: State, exchange: Exchange) -> None:
    """Do what `action` says; an action on a busy slot waits for its request."""
    folder = state.settings.server.slot_save_path
    if folder is None:
        raise not_supported(
            "This server does not support slots action. "
            "Start it with `--slot-save-path`"
        )
    slot = _slot(exchange.path.rstrip("/").rpartition("/")[2], state.ready().plan.slots)
    action = exchange.query.get("action", "")
    if action == "erase":
        await exchange.body()
        done = await _ask(state, exchange, slot, "erase")
        await exchange.send_json({"id_slot": slot, "n_erased": done.n_tokens})
        return
    if action not in ("save", "restore"):
        raise invalid("Invalid action")
    name = _name(await exchange.json_object())
    if action == "save":
        done = await _ask(state, exchange, slot, "save", folder, name)
        tokens, size = "n_saved", "n_written"
    else:
        done = await _ask(state, exchange, slot, "restore", folder, name)
        tokens, size = "n_restored", "n_read"
    await exchange.send_json(
        {
            "id_slot": slot,
            "filename": name,
            tokens: done.n_tokens,
            size: done.n_bytes,
            "timings": {f"{action}_ms": done.ms},
        }
    )


def _slot(text: str, slots: int) -> int:
    if not re.fullmatch(r"-?[0-9]{1,9}", text):
        raise invalid("Invalid slot ID")
    if not 0 <= int(text) < slots:
        raise invalid(
            f"Invalid slot ID: {int(text)} is not one of the slots 0 to {slots - 1}"
        )
    return int(text)


def _name(body: dict[str, Any]) -> str:
    name = body.get("filename")
    if not isinstance(name, str):
        wrong = "it is missing" if name is None else "Value must be a string"
        raise bad_field("filename", wrong)
    if not valid_name(name):
        raise invalid("Invalid filename")
    return name


async def _ask(
    state: State, exchange: Exchange, slot: int, action: SlotWork, *where: str
) -> SlotDone:
    """Have the engine do it. Raises ApiError, and ClientGone when nobody waits."""
    work = asyncio.ensure_future(
        ask_engine(state.client.slot_action(slot, action, *where))
    )
    gone = asyncio.ensure_future(exchange.gone())
    try:
        await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            raise ClientGone
        done: SlotDone = work.result()
        return done
    finally:
        work.cancel()
        gone.cancel()
