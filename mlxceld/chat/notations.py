"""Notations of tool calls that are neither JSON nor tags: Python's and Gemma's."""

from __future__ import annotations

import ast
import re
from typing import Any

from mlxceld.chat.bodies import Calls

_JSON_WORDS = {"true": True, "false": False, "null": None}


def read_python(text: str) -> Calls | None:
    """`[name(key="value", ...), ...]` or a single call; None for anything else."""
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    nodes = tree.elts if isinstance(tree, ast.List) else [tree]
    calls = []
    for node in nodes:
        if not isinstance(node, ast.Call) or node.args:
            return None
        name = _dotted(node.func)
        if name is None or any(word.arg is None for word in node.keywords):
            return None
        try:
            arguments = {str(word.arg): _literal(word.value) for word in node.keywords}
        except (ValueError, RecursionError):
            return None
        calls.append((name, arguments))
    return calls or None


def _dotted(node: ast.expr) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        base = _dotted(node.value)
        return None if base is None else f"{base}.{node.attr}"
    return None


def _literal(node: ast.expr) -> Any:
    """A value of Python or JSON. Raises ValueError for what is none."""
    match node:
        case ast.Name() if node.id in _JSON_WORDS:
            return _JSON_WORDS[node.id]
        case ast.List() | ast.Tuple():
            return [_literal(item) for item in node.elts]
        case ast.Dict():
            pairs = zip(node.keys, node.values, strict=True)
            return {str(_literal(key)): _literal(value) for key, value in pairs if key}
        case ast.Constant() if isinstance(node.value, str | int | float | None):
            return node.value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float())):
            return ast.literal_eval(node)
    raise ValueError("not a literal")


_GEMMA_CALL = re.compile(r"\s*call:([\w.-]+)\s*(?=\{)")
_GEMMA_KEY = re.compile(r"\s*([\w.$-]+)\s*:")
_GEMMA_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?")
_GEMMA_WORD = re.compile(r"[^,{}\[\]]+")


class _Gemma:
    """Reads `{key:value,...}` with texts between two quotes of several characters."""

    def __init__(self, text: str, at: int, quote: str) -> None:
        self.text, self.at, self.quote = text, at, quote

    def value(self) -> Any:
        self._blanks()
        if self.text.startswith("{", self.at):
            return self._items("}", self._pair)
        if self.text.startswith("[", self.at):
            return self._items("]", self.value)
        if self.text.startswith(self.quote, self.at):
            begin = self.at + len(self.quote)
            end = self.text.index(self.quote, begin)
            self.at = end + len(self.quote)
            return self.text[begin:end]
        match = _GEMMA_WORD.match(self.text, self.at)
        if match is None:
            raise ValueError("a value is missing")
        self.at = match.end()
        word = match[0].strip()
        if word in _JSON_WORDS:
            return _JSON_WORDS[word]
        if _GEMMA_NUMBER.fullmatch(word):
            return int(word) if word.lstrip("-").isdigit() else float(word)
        return word

    def _pair(self) -> tuple[str, Any]:
        self._blanks()
        if self.text.startswith(self.quote, self.at):
            key = self.value()
            self._blanks()
            self._expect(":")
        else:
            match = _GEMMA_KEY.match(self.text, self.at)
            if match is None:
                raise ValueError("a key is missing")
            key, self.at = match[1], match.end()
        return key, self.value()

    def _items(self, end: str, read: Any) -> Any:
        self.at += 1
        found = []
        self._blanks()
        while not self.text.startswith(end, self.at):
            found.append(read())
            self._blanks()
            if not self.text.startswith(end, self.at):
                self._expect(",")
                self._blanks()
        self.at += 1
        return dict(found) if end == "}" else found

    def _expect(self, mark: str) -> None:
        if not self.text.startswith(mark, self.at):
            raise ValueError(f"{mark} is missing")
        self.at += 1

    def _blanks(self) -> None:
        while self.at < len(self.text) and self.text[self.at].isspace():
            self.at += 1


def read_gemma(text: str, quote: str) -> Calls | None:
    """`call:name{key:value,...}`, once or several times; None for anything else."""
    calls = []
    at = 0
    while match := _GEMMA_CALL.match(text, at):
        reader = _Gemma(text, match.end(), quote)
        try:
            calls.append((match[1], reader.value()))
        except (ValueError, RecursionError):
            return None
        at = reader.at
    return calls if calls and not text[at:].strip() else None
