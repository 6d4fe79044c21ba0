"""The shapes of a prompt: text, tokens, a mix of both, and lists of those.

llama-server tells one prompt from several by the elements: a list with a number in it
is one prompt, a list without is a list of prompts.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from mlxceld.api.errors import ApiError, bad_field, invalid, not_supported
from mlxceld.api.http import Exchange, parse_object
from mlxceld.api.state import State

Pieces: TypeAlias = list[str | int]

_SHAPES = (
    '"prompt" elements must be a string, a list of tokens, an object with '
    '"prompt_string", or a list of strings and tokens'
)
_EMPTY = '"prompt" must not be empty'


def read_prompts(body: dict[str, Any], n_vocab: int, add_bos: bool) -> list[Pieces]:
    """The prompts of a request, at least one. Raises ApiError.

    An empty text is a prompt only where the model puts its BOS before it: without a
    single token there is nothing to continue.
    """
    value = body.get("prompt")
    if value is None:
        raise bad_field("prompt", "a prompt is required")
    prompts = [_one(item, n_vocab) for item in _split(value)]
    if not prompts:
        raise invalid(_EMPTY)
    for pieces in prompts:
        empty = not any(isinstance(piece, int) or piece for piece in pieces)
        if empty and not (add_bos and pieces):
            raise invalid(_EMPTY)
    return prompts


async def read_request(
    state: State, exchange: Exchange
) -> tuple[dict[str, Any], list[Pieces]]:
    """The body of an exchange and its prompts. Raises ApiError."""

    def work(data: bytes) -> tuple[dict[str, Any], list[Pieces]]:
        body = parse_object(data)
        model = state.ready().model
        return body, read_prompts(body, model.n_vocab, model.add_bos)

    return await exchange.digest(work)


def read_content(body: dict[str, Any], name: str, n_vocab: int) -> Pieces:
    """Text, or a list of texts and tokens; an absent field is an empty list."""
    value = body.get(name)
    if value is None:
        return []
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list):
        raise bad_field(name, "Value must be a string or an array")
    return _mixed(
        value, n_vocab, bad_field(name, "elements must be strings and tokens")
    )


def read_tokens(body: dict[str, Any], name: str, n_vocab: int) -> list[int]:
    """A list of tokens; an absent field is an empty list."""
    value = body.get(name)
    if value is None:
        return []
    if not isinstance(value, list):
        raise bad_field(name, "Value must be an array")
    wrong = bad_field(name, "elements must be tokens")
    if any(isinstance(item, str) for item in value):
        raise wrong
    return [piece for piece in _mixed(value, n_vocab, wrong) if isinstance(piece, int)]


def _split(value: Any) -> list[Any]:
    """One prompt or several, not yet looked into."""
    if not isinstance(value, list) or any(_is_number(item) for item in value):
        return [value]
    return value


def _one(value: Any, n_vocab: int) -> Pieces:
    if isinstance(value, dict):
        if value.get("multimodal_data"):
            raise not_supported(
                "Field 'multimodal_data': images and audio are not supported"
            )
        value = value.get("prompt_string")
        if not isinstance(value, str):
            raise invalid(_SHAPES)
    if isinstance(value, str):
        return [value]
    if isinstance(value, list):
        return _mixed(value, n_vocab, invalid(_SHAPES))
    raise invalid(_SHAPES)


def _mixed(items: list[Any], n_vocab: int, wrong: ApiError) -> Pieces:
    for item in items:
        if isinstance(item, str):
            continue
        if isinstance(item, bool) or not isinstance(item, int):
            raise wrong
        if not 0 <= item < n_vocab:
            raise invalid("Prompt contains invalid tokens")
    return items


def _is_number(item: Any) -> bool:
    return isinstance(item, int | float) and not isinstance(item, bool)
