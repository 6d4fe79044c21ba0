"""Builds the tokenizer of a GGUF file from its metadata.

GGUF names its splitting of text into words (`tokenizer.ggml.pre`) and leaves the rule
to the reader. The rules here are those of llama.cpp, so that a prompt has the same
tokens in both; an unknown name is refused, because a wrong rule would only make the
model's answers a little worse, and nobody would know why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, models, pre_tokenizers

from mlxceld.engine import spm
from mlxceld.engine.text import Text, end_ids, tokenizers_encoder
from mlxceld.engine.tokenbytes import byte_level_piece, spm_piece
from mlxceld.problems import Problem, Refused

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2 = _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
_SINGLE_DIGITS = (r"\p{N}", _GPT2)
_DEFAULT = (r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]")

RULES: Mapping[str, tuple[str, ...]] = {
    "default": _DEFAULT,
    "gpt-2": (_GPT2,),
    "gpt2": (_GPT2,),
    "phi-2": (_GPT2,),
    "olmo": (_GPT2,),
    "llama-bpe": (_LLAMA3,),
    "llama3": (_LLAMA3,),
    "llama-v3": (_LLAMA3,),
    "falcon3": (_LLAMA3,),
    "smaug-bpe": (_LLAMA3,),
    "dbrx": (_LLAMA3,),
    "qwen2": (_QWEN2,),
    "deepseek-r1-qwen": (_QWEN2,),
    "smollm": _SINGLE_DIGITS,
    "starcoder": _SINGLE_DIGITS,
    "refact": _SINGLE_DIGITS,
    "command-r": _SINGLE_DIGITS,
    "codeshell": _SINGLE_DIGITS,
}
"""Patterns by the value of `tokenizer.ggml.pre`, each applied to what the ones before
it left whole, as in llama.cpp."""

_WHOLE_WORDS = frozenset({"llama-bpe", "llama3", "llama-v3", "falcon3"})
"""Rules under which a word that is a token is never split, and BOS is the default."""


def read_text(path: Path, metadata: Mapping[str, Any]) -> Text:
    """The vocabulary of the GGUF file at `path`, from its whole metadata.

    Raises `Refused` when the tokenizer is missing, damaged or of an unknown kind.
    """
    model = metadata.get("tokenizer.ggml.model")
    tokens = metadata.get("tokenizer.ggml.tokens")
    if not isinstance(tokens, list) or not tokens:
        raise _refused(path, "has no tokenizer")
    types = metadata.get("tokenizer.ggml.token_type") or [spm.NORMAL] * len(tokens)
    if len(types) != len(tokens):
        raise _refused(path, f"has {len(tokens)} tokens but {len(types)} token types")
    if model == "gpt2":
        return _byte_level(path, metadata, tokens, types)
    if model == "llama":
        return _sentencepiece(path, metadata, tokens, types)
    raise _refused(path, f"tokenizer `{model}` is not supported (`gpt2`, `llama` are)")


def _byte_level(
    path: Path, metadata: Mapping[str, Any], tokens: Sequence[str], types: Sequence[int]
) -> Text:
    pre = metadata.get("tokenizer.ggml.pre", "default")
    if pre not in RULES:
        raise _refused(
            path,
            f"tokenizer rule `{pre}` is not supported (known: "
            + ", ".join(f"`{name}`" for name in RULES)
            + ")",
        )
    merges = []
    for merge in metadata.get("tokenizer.ggml.merges") or ():
        # The first character may itself be a space in broken files, never later ones.
        left, _, right = merge[1:].partition(" ")
        merges.append((merge[:1] + left, right))
    try:
        tokenizer = Tokenizer(
            models.BPE(
                vocab={token: i for i, token in enumerate(tokens)},
                merges=merges,
                ignore_merges=pre in _WHOLE_WORDS,
            )
        )
    except Exception as error:  # the library raises bare Exception
        raise _refused(path, f"has a broken tokenizer: {error}") from None
    splits = [pre_tokenizers.Split(Regex(rule), "isolated") for rule in RULES[pre]]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    marked = [
        AddedToken(token, special=kind != spm.USER_DEFINED, normalized=False)
        for token, kind in zip(tokens, types, strict=True)
        if kind in (spm.UNKNOWN, spm.CONTROL, spm.USER_DEFINED) and token
    ]
    tokenizer.add_tokens(marked)
    pieces = [
        byte_level_piece(token) if kind == spm.NORMAL else _literal(token)
        for token, kind in zip(tokens, types, strict=True)
    ]
    return _text(
        metadata,
        tokens,
        types,
        pieces,
        tokenizers_encoder(tokenizer),
        bos=None,
        eos=None,
        add_bos=pre in _WHOLE_WORDS,
    )


def _sentencepiece(
    path: Path, metadata: Mapping[str, Any], tokens: Sequence[str], types: Sequence[int]
) -> Text:
    scores = metadata.get("tokenizer.ggml.scores") or []
    if len(scores) != len(tokens):
        raise _refused(path, f"has {len(tokens)} tokens but {len(scores)} scores")
    encoder = spm.SpmEncoder(
        tokens,
        scores,
        types,
        space_prefix=bool(metadata.get("tokenizer.ggml.add_space_prefix", True)),
        unknown=metadata.get("tokenizer.ggml.unknown_token_id", 0),
    )
    pieces = [
        spm_piece(token) if kind in (spm.NORMAL, spm.BYTE) else _literal(token)
        for token, kind in zip(tokens, types, strict=True)
    ]
    return _text(metadata, tokens, types, pieces, encoder, bos=1, eos=2, add_bos=True)


def _text(
    metadata: Mapping[str, Any],
    tokens: Sequence[str],
    types: Sequence[int],
    pieces: Sequence[bytes],
    encoder: Any,
    *,
    bos: int | None,
    eos: int | None,
    add_bos: bool,
) -> Text:
    """The defaults `bos`, `eos` and `add_bos` are llama.cpp's for this kind."""

    def token_id(name: str, default: int | None = None) -> int | None:
        value = metadata.get(f"tokenizer.ggml.{name}_token_id", default)
        return value if isinstance(value, int) and value < len(tokens) else None

    template = metadata.get("tokenizer.chat_template")
    if not isinstance(template, str):
        template = ""
    eos_id = token_id("eos", eos)
    named = [i for i in (eos_id, token_id("eot"), token_id("eom")) if i is not None]
    ends = end_ids({token: i for i, token in enumerate(tokens)}, named)
    hidden = (spm.UNKNOWN, spm.CONTROL, spm.UNUSED)
    special = {i for i, kind in enumerate(types) if kind in hidden}
    return Text(
        pieces,
        encoder,
        special=special | ends,
        bos_id=token_id("bos", bos),
        eos_ids=ends,
        eos_id=eos_id,
        add_bos=bool(metadata.get("tokenizer.ggml.add_bos_token", add_bos)),
        chat_template=_literal(template).decode("utf-8", "replace"),
    )


def _literal(token: str) -> bytes:
    return token.encode("utf-8", "surrogateescape")


def _refused(path: Path, what: str) -> Refused:
    return Refused(
        [Problem(what, where=str(path), hint="use the same model in MLX's format")]
    )
