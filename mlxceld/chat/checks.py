"""Checks of single JSON values in a conversation: what they must be, and where."""

from __future__ import annotations

from typing import Any

from mlxceld.chat.conversation import ConversationError


def an_object(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ConversationError(f"{where}: must be an object")
    return value


def a_text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise ConversationError(f"{where}: must be a string")
    return value


def objects(value: Any, where: str) -> list[tuple[dict[str, Any], str]]:
    """The objects of an array, each with its place."""
    if not isinstance(value, list):
        raise ConversationError(f"{where}: must be an array")
    places = [f"{where}[{i}]" for i in range(len(value))]
    return [(an_object(*found), found[1]) for found in zip(value, places, strict=True)]
