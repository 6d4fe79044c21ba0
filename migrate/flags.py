"""Reads the words of a command line, cut by the daemon's own table of flags.

Rules of another dialect come first; what neither knows is left for review.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from mlxceld import argv
from mlxceld.foreign import Foreign
from mlxceld.layers import Layer
from mlxceld.options import OPTIONS
from mlxceld.problems import Problem

from .found import Word
from .reader import Reader, where_of
from .rules import Rule, rules_of
from .saying import SECRET, Saying, short


@dataclass(slots=True)
class Words(Reader):
    after_secret: bool = False
    """Whether a word without a flag may be the second half of a key."""

    def read(self) -> None:
        words = self.found.words
        texts = [word.text for word in words]
        known = rules_of(self.meaning.program)
        at = 0
        while at < len(words):
            name, _, _ = texts[at].partition("=")
            if name.startswith("--"):
                name = name.replace("_", "-")
            rule = known.get(name)
            if rule is not None:
                self.after_secret = False
                end = _end(rule, texts, at)
                self.ruled(rule, words[at:end])
            else:
                end = argv.span(texts, at)
                self.plain(words[at:end])
            at = end

    def ruled(self, rule: Rule, words: Sequence[Word]) -> None:
        flag, equals, text = words[0].text.partition("=")
        if not equals and len(words) > 1:
            text = words[1].text
        elif not equals and rule.arity == "one":
            what = "needs a value, found the end"
            self.meaning.problems.append(Problem(what, f"{words[0].place}: {flag}"))
            return
        self.follow(rule, text, _of_words(words))

    def plain(self, words: Sequence[Word]) -> None:
        saying = _of_words(words)
        line = argv.parse([word.text for word in words])
        lost = not words[0].text.startswith("-") or words[0].text == "-"
        if lost and self.after_secret:
            saying = replace(saying, said="***")
        elif not lost:
            self.after_secret = bool(line.given) and line.given[-1].option.secret
        if words[0].doubt and (lost or line.problems):
            self.meaning.open = f"`{saying.said}` may hold any flag"
            self.add(replace(saying, fate="review", why=words[0].doubt))
        elif self.meaning.program == "mlx_lm.server":
            why = "mlx_lm.server has no such flag"
            self.add(replace(saying, fate="review", why=why))
        elif line.given:
            self.given(line.given[-1], saying)
        elif line.config is not None and self.meaning.program != "llama-server":
            self.config(saying)
        elif line.problems:
            self.wrong(line.problems[0], saying)
        elif line.ignored:
            one = argv.KNOWN[line.ignored[0]].what
            assert isinstance(one, Foreign)
            self.foreign(one, one.note, saying)
        elif line.cache_reuse is not None:
            self.cache_reuse(line.cache_reuse, saying)
        else:
            why = "it is no setting: it shows something and ends"
            self.add(replace(saying, fate="ignored", why=why))

    def given(self, given: argv.Given, saying: Saying) -> None:
        option = given.option
        if option.secret:
            name = "a file of its own that server.api_key_file names"
            if option.key != "server.api_key":
                name = f"the variable {option.env[0]}"
            why = f"secrets are not written into a configuration but into {name}"
            doubt = f"{saying.doubt}; {why}" if saying.doubt else ""
            said = f"{given.flag} ***"
            saying = replace(saying, said=said, why=why, doubt=doubt)
        self.value(option, given.text, saying, loose=True)

    def wrong(self, problem: Problem, saying: Saying) -> None:
        if problem.what.startswith(("needs a value", "takes no value")):
            self.meaning.problems.append(replace(problem, where=where_of(saying)))
            return
        if problem.what == "unknown flag" and self.found.kind == "ini":
            why = "unknown, skipped by llama-server too"
            self.add(replace(saying, fate="ignored", why=_join(why, problem.hint)))
            return
        hint = _elsewhere(saying.said.partition(" ")[0]) or problem.hint
        why = _join(problem.what, hint)
        if problem.what.endswith("belongs to no flag"):
            why = "it belongs to no flag"
        self.add(replace(saying, fate="review", why=why))


def _elsewhere(flag: str) -> str:
    """The flag that other programs spell like this."""
    name = flag.partition("=")[0].lstrip("-").replace("-", "_")
    for option in OPTIONS:
        if name in option.renamed_from:
            return f"another program's spelling of `{option.flag}`"
    return ""


def _join(what: str, hint: str) -> str:
    return f"{what}; {hint}" if hint else what


def _end(rule: Rule, texts: Sequence[str], at: int) -> int:
    """The index behind a flag of another dialect and its value."""
    if "=" in texts[at] or rule.arity == "none":
        return at + 1
    following = texts[at + 1 : at + 2]
    if rule.arity == "maybe" and following:
        takes = following[0].lower() in ("true", "false", "on", "off", "1", "0")
        return at + 1 + takes
    return min(at + 2, len(texts))


def _of_words(words: Sequence[Word]) -> Saying:
    doubt = "; ".join(word.doubt for word in words if word.doubt)
    said = " ".join(_shown(words))
    return Saying(said, words[0].place, Layer.FLAG, doubt=doubt)


def _shown(words: Sequence[Word]) -> Iterator[str]:
    """The words for people: what looks like a secret is masked."""
    flag, equals, text = words[0].text.partition("=")
    hidden = bool(SECRET.search(flag))
    if equals:
        yield f"{short(flag)}={'***' if hidden else short(text)}"
    else:
        yield short(flag)
    for word in words[1:]:
        yield "***" if hidden else short(word.text)
