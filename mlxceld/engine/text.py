"""Text in, tokens out, and back again without a broken character.

The engine alone tokenises. One `Text` serves all requests and is only read after it
is built, so the thread that reads messages and the thread that owns MLX share it;
what a request needs to remember lives in its `Detokenizer` and `StopScanner`.
"""

from __future__ import annotations

import codecs
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from mlxceld.engine.tokenbytes import token_pieces

Encoder = Callable[[str, bool], list[int]]
"""Tokens of a text; the flag says whether special tokens are recognised in it."""

END_OF_GENERATION = frozenset(
    {
        "<|eot_id|>",
        "<|im_end|>",
        "<|end|>",
        "<|return|>",
        "<|call|>",
        "<|calls|>",
        "<|flush|>",
        "<end_of_turn>",
        "<|endoftext|>",
        "</s>",
        "<|eom_id|>",
        "<EOT>",
        "_<EOT>",
        "[EOT]",
        "[EOS]",
        "<|end_of_text|>",
        "<end_of_utterance>",
        "<eos>",
        "<｜end▁of▁sentence｜>",
        "<|fim_pad|>",
        "<fim-pad>",
        "<fim_pad>",
        "<PAD>",
        "<|fim_repo|>",
        "<|repo_name|>",
        "<fim-repo>",
        "<REPO>",
        "<reponame>",
        "<|file_sep|>",
    }
)
"""Token texts that end a generation wherever a vocabulary has them, as llama-server
decides it: ends of turns and texts, and the padding and file borders of code models."""


class Text:
    """A vocabulary: the exact bytes of every token, and how text becomes tokens."""

    def __init__(
        self,
        pieces: Sequence[bytes],
        encoder: Encoder,
        *,
        special: Iterable[int] = (),
        bos_id: int | None = None,
        eos_ids: Iterable[int] = (),
        eos_id: int | None = None,
        add_bos: bool = False,
        chat_template: str = "",
    ) -> None:
        """`pieces[i]` are the bytes of token i, its literal text when it is special.

        `eos_ids` are all tokens that end a generation, `eos_id` the one whose text is
        told as the model's EOS (the least of them when it is not given).
        """
        self._pieces = list(pieces)
        self._encoder = encoder
        self._special = frozenset(special)
        self.bos_id = bos_id
        self.eos_ids = frozenset(eos_ids)
        self.add_bos = add_bos and bos_id is not None
        self.chat_template = chat_template
        if eos_id is None:
            eos_id = min(self.eos_ids, default=None)
        self.bos_token = "" if bos_id is None else self.decode([bos_id])
        self.eos_token = "" if eos_id is None else self.decode([eos_id])

    @classmethod
    def from_tokenizers(
        cls,
        tokenizer: Any,
        *,
        special: Iterable[int] | None = None,
        bos_id: int | None = None,
        eos_ids: Iterable[int] = (),
        eos_id: int | None = None,
        add_bos: bool = False,
        chat_template: str = "",
    ) -> Text:
        """From a `tokenizers.Tokenizer`.

        `special` defaults to its added tokens that are marked special; `eos_ids` are
        completed with the known ends of generation among its added tokens, and none
        of them gives text.
        """
        added = tokenizer.get_added_tokens_decoder()
        if special is None:
            special = [i for i, token in added.items() if token.special]
        ends = end_ids({token.content: i for i, token in added.items()}, eos_ids)
        return cls(
            token_pieces(tokenizer),
            tokenizers_encoder(tokenizer),
            special={*special, *ends},
            bos_id=bos_id,
            eos_ids=ends,
            eos_id=eos_id,
            add_bos=add_bos,
            chat_template=chat_template,
        )

    @classmethod
    def from_hf(cls, tokenizer: Any, eos_ids: Iterable[int] = ()) -> Text:
        """From a fast tokenizer of transformers, or mlx-lm's wrapper around one.

        `eos_ids` are further ends, such as those of generation_config.json. Raises
        ValueError for a tokenizer that has no `tokenizers` backend: the exact bytes
        of its tokens cannot be known.
        """
        inner = getattr(tokenizer, "_tokenizer", tokenizer)
        backend = getattr(inner, "backend_tokenizer", None)
        if backend is None or not hasattr(backend, "get_added_tokens_decoder"):
            backend = inner if hasattr(inner, "get_added_tokens_decoder") else None
        if backend is None:
            raise ValueError(
                f"tokenizer {type(inner).__name__} has no tokenizer.json form"
            )
        bos_id, add_bos = _bos(backend, getattr(inner, "bos_token_id", None))
        eos_id = getattr(inner, "eos_token_id", None)
        ends = {int(i) for i in eos_ids}
        ends |= set(getattr(tokenizer, "eos_token_ids", None) or ())
        if isinstance(eos_id, int):
            ends.add(eos_id)
        return cls.from_tokenizers(
            backend,
            bos_id=bos_id,
            eos_ids=ends,
            eos_id=eos_id if isinstance(eos_id, int) else None,
            add_bos=add_bos,
            chat_template=_template(getattr(inner, "chat_template", None)),
        )

    @property
    def n_vocab(self) -> int:
        """Tokens of the tokenizer; the model's logits may be wider, by padding."""
        return len(self._pieces)

    def encode(
        self,
        content: Sequence[str | int],
        *,
        add_special: bool,
        parse_special: bool = True,
    ) -> list[int]:
        """Tokens of pieces of text and token ids, in order.

        With `add_special` a BOS goes before content that begins with text, if the
        model asks for one and the text does not bring it along. Without
        `parse_special` the text of a special token is text like any other.
        """
        parts = [content] if isinstance(content, str) else content
        tokens: list[int] = []
        for index, part in enumerate(parts):
            if isinstance(part, int):
                tokens.append(part)
                continue
            ids = self._encoder(part, parse_special)
            bos = self.bos_id if index == 0 and add_special and self.add_bos else None
            if bos is not None and ids[:1] != [bos]:
                tokens.append(bos)
            tokens += ids
        return tokens

    def exceeds(self, content: Sequence[str | int], most: int) -> int:
        """More than `most` where a long content has more tokens, else 0; a bound.

        Read in parts and no further than it takes: what could never be used is not
        worth the gigabytes of having it whole. A cut moves the count by a few tokens,
        so that what is near to `most` counts as less.
        """
        least = 0
        for part in content:
            if isinstance(part, int):
                least += 1
                continue
            for begin in range(0, len(part), _AT_ONCE):
                text = part[begin : begin + _AT_ONCE]
                least += max(0, len(self._encoder(text, True)) - _CUT)
                if least > most:
                    return least
        return 0

    def piece(self, token: int, special: bool = False) -> bytes:
        """The bytes of one token.

        Special tokens have none unless `special` asks for their literal text; ids
        outside the vocabulary have none at all.
        """
        if not 0 <= token < len(self._pieces):
            return b""
        if not special and token in self._special:
            return b""
        return self._pieces[token]

    def special_ids(self, texts: Iterable[str]) -> frozenset[int]:
        """The special tokens whose literal texts these are, but no end of an answer."""
        wanted = {text.encode() for text in texts}
        if not wanted:
            return frozenset()
        shown = self._special - self.eos_ids
        return frozenset(
            i for i in shown if i < len(self._pieces) and self._pieces[i] in wanted
        )

    def decode(self, tokens: Iterable[int]) -> str:
        """Text of tokens, special ones written out, as llama-server's /detokenize."""
        raw = b"".join(self.piece(token, special=True) for token in tokens)
        return raw.decode("utf-8", "replace")


class Detokenizer:
    """Turns the tokens of one request into text, never splitting a character.

    Bytes that may still become a character are held back; bytes that cannot are
    U+FFFD. Special tokens give no text, except those whose texts are `preserved`. The
    first token keeps its leading space: the text continues a prompt, as in
    llama-server.
    """

    __slots__ = ("_decoder", "_held", "_shown", "_text")

    def __init__(self, text: Text, preserved: Iterable[str] = ()) -> None:
        self._text = text
        self._shown = text.special_ids(preserved)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = False
        """Whether bytes of an unfinished character are held back."""

    def add(self, token: int) -> str:
        """The text that is certain now."""
        piece = self.piece(token)
        if not self._held and piece.isascii():
            return piece.decode("ascii")
        text = self._decoder.decode(piece)
        self._held = bool(self._decoder.getstate()[0])
        return text

    def piece(self, token: int) -> bytes:
        """The bytes that a token gives here."""
        return self._text.piece(token, token in self._shown)

    def flush(self) -> str:
        """The rest at the end of the request.

        The beginning of a character whose other bytes were never generated is
        dropped: it is cut off, not invalid.
        """
        self._decoder.reset()
        self._held = False
        return ""


class StopScanner:
    """Finds stop strings in a growing text, wherever tokens were cut.

    The stop that is complete first wins; of those that end on the same character the
    one that began first. So the result depends on the text alone, not on its tokens.
    """

    __slots__ = ("_held", "_hit", "_stops")

    def __init__(self, stops: Sequence[str]) -> None:
        """Empty strings among `stops` mean nothing."""
        self._stops = tuple(stop for stop in stops if stop)
        self._held = ""
        self._hit: str | None = None

    def feed(self, text: str) -> tuple[str, str | None]:
        """The text that may be sent now, and the stop string that was found.

        Only what could still become a stop string is held back. With a hit, the text
        ends just before it, and everything later is swallowed.
        """
        if self._hit is not None:
            return "", self._hit
        if not self._stops:
            return text, None
        held = self._held + text
        found = [
            (at + len(stop), at, stop)
            for stop in self._stops
            if (at := held.find(stop)) >= 0
        ]
        if found:
            _, at, self._hit = min(found)
            self._held = ""
            return held[:at], self._hit
        keep = self._undecided(held)
        self._held = held[len(held) - keep :]
        return held[: len(held) - keep], None

    def flush(self) -> str:
        """What is held back, at the end of a request that met no stop string."""
        held, self._held = self._held, ""
        return held

    def _undecided(self, text: str) -> int:
        """Length of the longest end of `text` with which some stop begins."""
        longest = max(len(stop) for stop in self._stops) - 1
        for n in range(min(longest, len(text)), 0, -1):
            end = text[-n:]
            if any(stop.startswith(end) for stop in self._stops):
                return n
        return 0


def end_ids(known: Mapping[str, int], named: Iterable[int]) -> frozenset[int]:
    """All tokens that end a generation: the model's own and the well-known ones.

    `known` maps the texts of the candidates to their ids. Where a vocabulary tells
    the end of a message from the end of the answer (`<|return|>` and `<|call|>`, or
    `<|flush|>` and `<|calls|>`), `<|end|>` ends only a message, as in llama-server.
    """
    ends = set(named) | {known[text] for text in END_OF_GENERATION & known.keys()}
    if known.keys() >= {"<|return|>", "<|call|>"} or known.keys() >= {
        "<|flush|>",
        "<|calls|>",
    }:
        ends.discard(known.get("<|end|>", -1))
    return frozenset(ends)


_AT_ONCE = 250_000
"""Characters of a very long text that are counted at once."""

_CUT = 16
"""Tokens by which a cut through a text may change their number."""

_LONG = 1000
"""Characters from which on a batch of one is faster: it leaves out where each token
lies, and lets other threads run meanwhile, however long the text is."""


def tokenizers_encoder(tokenizer: Any) -> Encoder:
    """An encoder over a `tokenizers.Tokenizer`; it may be used from any thread.

    Whether special tokens are recognised is a switch of the whole tokenizer, so the
    unusual setting has a copy of its own, made at its first use.
    """
    lock = threading.Lock()
    literal: list[Any] = []
    tokenizer.no_truncation()
    tokenizer.no_padding()

    def encode(text: str, parse_special: bool) -> list[int]:
        chosen = tokenizer
        if not parse_special:
            with lock:
                if not literal:
                    copy = type(tokenizer).from_str(tokenizer.to_str())
                    copy.encode_special_tokens = True
                    literal.append(copy)
            chosen = literal[0]
        if len(text) > _LONG:
            (found,) = chosen.encode_batch_fast([text], add_special_tokens=False)
        else:
            found = chosen.encode(text, add_special_tokens=False)
        return list(found.ids)

    return encode


def _bos(backend: Any, named: Any) -> tuple[int | None, bool]:
    """The BOS token, and whether the tokenizer puts one before a text."""
    plain = backend.encode("a", add_special_tokens=False).ids
    whole = backend.encode("a", add_special_tokens=True).ids
    added = backend.get_added_tokens_decoder()
    if len(whole) > len(plain) and whole[:1] != plain[:1] and whole[0] in added:
        return whole[0], True
    return (named if isinstance(named, int) else None), False


def _template(template: Any) -> str:
    """The default chat template of a tokenizer that may have several, or none."""
    if isinstance(template, list):
        template = {entry["name"]: entry["template"] for entry in template}
    if isinstance(template, Mapping):
        template = template.get("default") or next(iter(template.values()), "")
    return template if isinstance(template, str) else ""
