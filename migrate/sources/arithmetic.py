"""Works out `$(( ... ))` without a shell, where it is made of whole numbers.

Context sizes are written `$((8 * 1024))` in start scripts. Everything beyond plain
integer arithmetic, assignments among it, is left to the shell: the answer is then
that it is not known.
"""

from __future__ import annotations

import re
from collections.abc import Callable

_TOKEN = re.compile(
    r"\s*(?:(0[xX][0-9a-fA-F]+|\d+)|\$?\{?([A-Za-z_]\w*)\}?|(\*\*|<<|>>|[-+*/%()~]))"
)
_LEVELS = (("<<", ">>"), ("+", "-"), ("*", "/", "%"))


class NotPlain(ValueError):
    """An expression that is more than integers and known variables."""


def evaluate(text: str, value: Callable[[str], str]) -> int:
    """The result, in the 64 bits that shells count with.

    `value` gives the text of a variable and raises NotPlain where there is none. A
    leading 0 means octal, as in every shell. Raises NotPlain.
    """
    tokens: list[str | int] = []
    at, text = 0, text.strip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise NotPlain(text)
        number, name, sign = match.groups()
        if name:
            number = value(name).strip()
            if not re.fullmatch(r"-?\d+|0[xX][0-9a-fA-F]+", number):
                raise NotPlain(name)
        tokens.append(_integer(number) if number else sign)
        at = match.end()
    result = _Parser(tokens).whole()
    if not -(2**63) <= result < 2**63:
        raise NotPlain(text)
    return result


def _integer(text: str) -> int:
    digits = text.removeprefix("-")
    try:
        base = 16 if digits[:2] in ("0x", "0X") else 8 if digits[0] == "0" else 10
        return int(text, base)
    except ValueError:
        raise NotPlain(text) from None


class _Parser:
    def __init__(self, tokens: list[str | int]) -> None:
        self.tokens = tokens
        self.at = 0

    def whole(self) -> int:
        result = self.binary(0)
        if self.at < len(self.tokens):
            raise NotPlain("more than one expression")
        return result

    def peek(self) -> str | int | None:
        return self.tokens[self.at] if self.at < len(self.tokens) else None

    def binary(self, level: int) -> int:
        if level == len(_LEVELS):
            return self.power()
        left = self.binary(level + 1)
        while (sign := self.peek()) in _LEVELS[level]:
            self.at += 1
            left = _apply(str(sign), left, self.binary(level + 1))
        return left

    def power(self) -> int:
        base = self.unary()
        if self.peek() != "**":
            return base
        self.at += 1
        exponent = self.power()
        if not 0 <= exponent <= 64:
            raise NotPlain("**")
        return int(base**exponent)

    def unary(self) -> int:
        token = self.peek()
        self.at += 1
        if isinstance(token, int):
            return token
        if token == "-":
            return -self.unary()
        if token == "+":
            return self.unary()
        if token == "(":
            result = self.binary(0)
            if self.peek() != ")":
                raise NotPlain("(")
            self.at += 1
            return result
        raise NotPlain(str(token))


def _apply(sign: str, left: int, right: int) -> int:
    if sign in ("<<", ">>"):
        if not 0 <= right < 64:
            raise NotPlain(sign)
        return left << right if sign == "<<" else left >> right
    if sign in "+-*":
        return {"+": left + right, "-": left - right, "*": left * right}[sign]
    if right == 0:
        raise NotPlain("division by zero")
    quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
    return quotient if sign == "/" else left - quotient * right
