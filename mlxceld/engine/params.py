"""How the next token of a request is chosen, and what bounds an answer."""

from __future__ import annotations

from typing import Literal

import msgspec

from mlxceld import samplers

SAMPLERS = samplers.DEFAULT
"""llama-server's samplers, in the order in which they work unless a request says so."""


class Sampling(msgspec.Struct, frozen=True, omit_defaults=True):
    """How the next token is chosen; names and meaning are llama-server's.

    The filters work on the untempered distribution, the temperature comes last.
    """

    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    typical_p: float = 1.0
    repeat_last_n: int = 64
    """Window of the penalties in tokens; 0 is off, -1 the whole context."""
    repeat_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int = 0
    logit_bias: tuple[tuple[int, float], ...] = ()
    """Pairs of token and bias; -inf forbids the token."""
    ignore_eos: bool = False
    samplers: tuple[str, ...] = SAMPLERS
    min_keep: int = 0
    top_n_sigma: float = -1.0
    dynatemp_range: float = 0.0
    dynatemp_exponent: float = 1.0
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_penalty_last_n: int = 64
    """Tokens that DRY looks at; 0 is off, -1 the whole context."""
    dry_sequence_breakers: tuple[str, ...] = ("\n", ":", '"', "*")
    mirostat: int = 0
    mirostat_tau: float = 5.0
    mirostat_eta: float = 0.1
    adaptive_target: float = -1.0
    """The probability that adaptive-p aims at; below 0 it does nothing."""
    adaptive_decay: float = 0.9
    n_probs: int = 0
    """How many candidates' probabilities to tell with each token."""
    post_sampling_probs: bool = False
    """Whether those are what the token was drawn from, not what the model gave."""

    @property
    def usual(self) -> bool:
        """Whether penalties, top_k, typical_p, top_p, min_p and temperature say all."""
        return (
            self.samplers == SAMPLERS
            and self.min_keep == 0
            and self.top_n_sigma <= 0
            and self.dynatemp_range == 0
            and self.xtc_probability == 0
            and self.mirostat == 0
            and not self.dry
        )

    @property
    def adaptive(self) -> bool:
        """Whether adaptive-p has anything to do."""
        return (
            "adaptive_p" in self.samplers
            and self.adaptive_target >= 0
            and self.mirostat == 0
        )

    @property
    def dry(self) -> bool:
        """Whether DRY has anything to do; it has to see every token before the next."""
        return (
            self.dry_multiplier != 0
            and self.dry_penalty_last_n != 0
            and "dry" in self.samplers
            and self.mirostat == 0
        )


class Shift(msgspec.Struct, frozen=True):
    """What a full context gives up so that an answer can go on."""

    keep: int = 0
    """Tokens that stay at the beginning, the model's BOS not counted; -1 is the whole
    prompt."""
    discard: int = 0
    """Tokens that go after them; 0 is half of what is not kept."""


class ThinkingBudget(msgspec.Struct, frozen=True):
    """A bound on the reasoning of an answer."""

    tokens: int
    start: str
    """The text with which reasoning begins, at the beginning of an answer."""
    end: str
    opened: bool = False
    """Whether the prompt ends within reasoning."""
    message: str = ""
    """Put in before `end` where the bound ends the reasoning."""


class GrammarSpec(msgspec.Struct, frozen=True):
    """What an answer has to match, as the request said it."""

    kind: Literal["json_schema", "json_object", "gbnf", "regex"]
    text: str = ""
    """The schema as JSON, the grammar, the regular expression; none for any object."""
