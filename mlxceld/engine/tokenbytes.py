"""The exact bytes of every token, from the way in which its tokenizer writes them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def byte_alphabet() -> dict[str, int]:
    """The characters that stand for bytes in byte-level BPE, as GPT-2 defined them:
    printable Latin-1 stands for itself, the other bytes for U+0100 onwards."""
    plain = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    rest = [byte for byte in range(256) if byte not in plain]
    table = {chr(byte): byte for byte in plain}
    return table | {chr(256 + i): byte for i, byte in enumerate(rest)}


_ALPHABET = byte_alphabet()


def byte_level_piece(token: str) -> bytes:
    """Bytes of a token of byte-level BPE; text outside the alphabet is itself."""
    try:
        return bytes(_ALPHABET[c] for c in token)
    except KeyError:
        return token.encode("utf-8", "surrogateescape")


def spm_piece(token: str) -> bytes:
    """Bytes of a SentencePiece token: `<0x0A>` is a byte, U+2581 a space."""
    if match := _BYTE_TOKEN.fullmatch(token):
        return bytes([int(match[1], 16)])
    return token.replace("\u2581", " ").encode("utf-8", "surrogateescape")


def token_pieces(tokenizer: Any) -> list[bytes]:
    """Bytes of every token of a `tokenizers.Tokenizer`, by id; holes are empty."""
    vocabulary: dict[str, int] = tokenizer.get_vocab(with_added_tokens=True)
    scheme = _scheme(tokenizer)
    pieces = [b""] * (max(vocabulary.values(), default=-1) + 1)
    for token, index in vocabulary.items():
        if scheme is None:
            text = tokenizer.decode([index], skip_special_tokens=False)
            pieces[index] = text.encode()
        else:
            pieces[index] = scheme(token)
    for index, token in tokenizer.get_added_tokens_decoder().items():
        pieces[index] = token.content.encode()
    return pieces


def _scheme(tokenizer: Any) -> Callable[[str], bytes] | None:
    """How this tokenizer writes bytes as text; None when only it can tell."""
    if tokenizer.decoder is None:
        return None
    state = json.loads(tokenizer.decoder.__getstate__())
    decoders = [state, *state.get("decoders", [])]
    kinds = {decoder.get("type") for decoder in decoders}
    if "ByteLevel" in kinds:
        return byte_level_piece
    replaces_space = any(
        decoder.get("type") == "Replace" and decoder.get("content") == " "
        for decoder in decoders
    )
    if replaces_space or kinds & {"ByteFallback", "Metaspace"}:
        return spm_piece
    return None
