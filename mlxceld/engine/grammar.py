"""Structured output: what a request's answer has to look like, token by token.

llguidance does the work: it compiles a grammar and tells which tokens may come next.
Everything a client can send becomes one of its grammars here, and nothing a client
sends may bring the engine down: grammars are compiled with much stack and within
limits, and the errors say where.
"""

from __future__ import annotations

import json
import re
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, TypeAlias

import llguidance
import numpy as np

from mlxceld.engine import aside, gbnf, lexemes, schemas
from mlxceld.engine.gbnf import GrammarError
from mlxceld.engine.lexemes import HEADER
from mlxceld.engine.messages import GrammarSpec
from mlxceld.engine.text import Text

__all__ = ["GrammarError", "Grammars", "Matcher"]

Mask: TypeAlias = np.ndarray[Any, np.dtype[np.bool_]]

KEPT = 64
"""Compiled grammars that are kept, the latest used."""

MOST_TEXT = 128 * 1024
"""Characters of a grammar or schema."""

_STACK = 256 * 1024 * 1024
"""Bytes of stack to compile with: rules that call rules go deep, and llguidance ends
the process when it runs out. The system hands out only what is used."""

_WHITESPACE = r" |\n{1,2}[ \t]{0,20}"
"""Between the parts of JSON, as llama-server allows it: none, a blank or a new line.
Any amount, and a weak model never stops."""

_OPTIONS = {
    "whitespace_pattern": _WHITESPACE,
    "coerce_one_of": True,
    "lenient": True,
    "json_allow_general_unicode_escapes": True,
}
"""As in llama-server, `oneOf` is `anyOf`, and unknown keywords say nothing."""


class Matcher:
    """The state of one answer; used by one thread at a time."""

    __slots__ = ("_bits", "_grammars", "_matcher")

    def __init__(self, grammars: Grammars, matcher: Any) -> None:
        self._grammars = grammars
        self._matcher = matcher
        self._bits = np.zeros(grammars.n_words, np.uint32)

    def mask(self) -> Mask:
        """Which tokens may come next, `[n_vocab]`; the caller may keep the array.

        Ends of generation are among them exactly when the answer may stop here. Raises
        GrammarError when the grammar has become too complex to go on with.
        """
        bits = self._bits
        self._matcher.unsafe_compute_mask_ptr(bits.ctypes.data, bits.nbytes)
        if self._matcher.is_error():
            raise GrammarError(f"the grammar fails: {_words(self._matcher)}")
        return self._grammars.unpack(bits, self._matcher.is_accepting())

    def accept(self, token: int) -> bool:
        """Go on with a token; False, and nothing happens, when it is not allowed."""
        if token in self._grammars.ends:
            return bool(self._matcher.is_accepting())
        if not self._grammars.has_text(token):
            return False
        return bool(self._matcher.try_consume_tokens([token]) == 1)

    @property
    def ended(self) -> bool:
        """Whether nothing more may follow but an end of generation."""
        return bool(self._matcher.is_stopped())

    def copy(self) -> Matcher:
        """Another one in the same state."""
        return Matcher(self._grammars, self._matcher.deep_copy())


class Grammars:
    """Compiles what requests ask for, and keeps it. Any thread may call it."""

    def __init__(self, text: Text, n_vocab: int) -> None:
        """`n_vocab` is the width of the model's logits, padding included."""
        self.n_vocab = n_vocab
        self.ends = frozenset(token for token in text.eos_ids if token < n_vocab)
        self._text = text
        self._lock = threading.Lock()
        self._tokenizer: Any = None
        self._usable: Mask = np.zeros(0, np.bool_)
        self._known: OrderedDict[GrammarSpec, Any] = OrderedDict()

    @property
    def n_words(self) -> int:
        """Words of 32 bits in llguidance's masks."""
        return (len(self._usable) + 1 + 31) // 32

    def prepare(self) -> None:
        """Read the vocabulary: once, up to seconds in which no other thread runs.

        Done at the first grammar unless somebody did it before.
        """
        with self._lock:
            self._prepare()

    def compile(self, spec: GrammarSpec) -> Matcher:
        """A matcher at the beginning of an answer.

        Raises GrammarError that says where the mistake is.
        """
        with self._lock:
            self._prepare()
            known = self._known.get(spec)
            if known is None:
                known = _with_stack(lambda: self._compile(spec))
                self._known[spec] = known
                if len(self._known) > KEPT:
                    self._known.popitem(last=False)
            self._known.move_to_end(spec)
            return Matcher(self, known.deep_copy())

    def has_text(self, token: int) -> bool:
        return 0 <= token < len(self._usable) and bool(self._usable[token])

    def unpack(self, bits: np.ndarray[Any, np.dtype[np.uint32]], stops: bool) -> Mask:
        """A mask as llguidance fills it, a bit for each token, as booleans."""
        n = len(self._usable)
        # The bits are in the order of bytes only where the low byte comes first.
        flags = np.unpackbits(
            bits.astype("<u4", copy=False).view(np.uint8), count=n, bitorder="little"
        )
        mask = np.zeros(self.n_vocab, np.bool_)
        np.logical_and(flags, self._usable, out=mask[:n])
        for token in self.ends:
            mask[token] = stops
        return mask

    def _prepare(self) -> None:
        if self._tokenizer is not None:
            return
        vocabulary = _Vocabulary(self._text, self.n_vocab, self.ends)
        self._usable = np.array(vocabulary.usable, np.bool_)
        self._tokenizer = llguidance.LLTokenizer(vocabulary)  # type: ignore[arg-type]

    def _compile(self, spec: GrammarSpec) -> Any:
        if len(spec.text) > MOST_TEXT:
            raise GrammarError(f"longer than {MOST_TEXT} characters")
        if spec.kind == "gbnf":
            return self._of_gbnf(spec.text)
        if spec.kind == "regex":
            return self._of_regex(spec.text)
        return self._of_schema(spec.text if spec.kind == "json_schema" else "{}")

    def _of_gbnf(self, text: str) -> Any:
        try:
            matcher = self._matcher(lexemes.to_lark(gbnf.parse(text)))
            words = _trouble(matcher)
        except GrammarError as error:
            words = str(error)
        except RecursionError:
            words = "nested too deeply"
        if words:
            raise GrammarError(f"Failed to parse grammar: {words}")
        return matcher

    def _of_regex(self, text: str) -> Any:
        matcher = self._matcher(f"{HEADER}start: /{_in_slashes(text)}/")
        if words := _trouble(matcher):
            raise GrammarError(words)
        return matcher

    def _of_schema(self, text: str) -> Any:
        try:
            schema = schemas.prepare(json.loads(text))
            matcher = self._matcher(_schema_grammar(schema))
        except RecursionError:
            raise GrammarError("JSON schema: nested too deeply") from None
        if not _trouble(matcher):
            return matcher
        where, words = schemas.locate(
            schema, lambda part: _trouble(self._matcher(_schema_grammar(part)))
        )
        raise GrammarError(f"JSON schema, at `{where}`: {words}")

    def _matcher(self, grammar: str) -> Any:
        limits = llguidance.LLParserLimits(verbose_errors=False)
        return llguidance.LLMatcher(
            self._tokenizer, grammar, log_level=0, limits=limits
        )


class _Vocabulary:
    """The tokens as llguidance wants them, with one more that stands for the end.

    The model's own ends are told apart by `Grammars`: there may be none, and any
    number.
    """

    is_tokenizer_wrapper = True
    bos_token_id = None

    def __init__(self, text: Text, n_vocab: int, ends: frozenset[int]) -> None:
        tokens = [
            text.piece(token, special=True)
            for token in range(min(n_vocab, text.n_vocab))
        ]
        while tokens and not tokens[-1]:
            tokens.pop()
        self.usable = [
            bool(text.piece(token)) and token not in ends
            for token in range(len(tokens))
        ]
        self.eos_token_id = len(tokens)
        self.tokens = [*tokens, b"<end>"]
        self.special_token_ids = [
            *(token for token, usable in enumerate(self.usable) if not usable),
            self.eos_token_id,
        ]
        self._text = text

    def __call__(self, content: str) -> list[int]:
        """Tokens of a text; only asked for where a grammar leaves no choice."""
        return self._text.encode([content], add_special=False, parse_special=False)


def _schema_grammar(schema: Any) -> str:
    """llguidance's grammar for a prepared schema."""
    if isinstance(schema, bool):
        schema = {} if schema else {"not": {}, "enum": []}
    options = {"x-guidance": _OPTIONS}
    return f"{HEADER}start: %json {json.dumps({**schema, **options})}"


def _in_slashes(regex: str) -> str:
    """A regular expression between the slashes of Lark."""
    return re.sub(
        r"\\.|[/\n]",
        lambda found: {"/": "\\/", "\n": "\\n"}.get(found[0], found[0]),
        regex,
        flags=re.DOTALL,
    )


def _trouble(matcher: Any) -> str:
    """What is wrong with a fresh matcher, or nothing."""
    if matcher.is_error():
        return _words(matcher)
    # The first mask belongs to the start of every answer; copies bring it along.
    matcher.compute_bitmask()
    return _words(matcher) if matcher.is_error() else ""


def _words(matcher: Any) -> str:
    """llguidance's complaint in one line, without the grammar that it saw."""
    if matcher.get_error().startswith("NoExtension"):
        return "it allows no text at all"
    complaint = re.split(r"\n +1 \| ", matcher.get_error())[0]
    complaint = re.sub(r"^at \d+\(\d+\): ", "", complaint)
    complaint = complaint.removeprefix("failed to compile JSON schema: ")
    broken = re.search(r"\n    (.*)\n    ( *)\^+\s*\nerror: (.*)", complaint)
    if broken:
        return f"regular expression, character {len(broken[2]) + 1}: {broken[3]}"
    return " ".join(complaint.split("<non-verbose/>")[0].split())[:300]


def _with_stack(work: Callable[[], Any]) -> Any:
    """Do something in a thread that has much stack, and wait for it."""
    before = threading.stack_size(_STACK)
    try:
        done = aside.start(work, "grammar")
    finally:
        threading.stack_size(before)
    return done.result()
