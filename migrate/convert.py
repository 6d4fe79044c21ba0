"""Carries one set-up over: its meaning today, after the flips, and in a new file.

Pure: a `Found` goes in, a `Migration` comes out. The old meaning is never guessed.
What is not certain is not written, and where the plan hangs on it there is no plan.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from mlxceld.flips import FLIPS, happened
from mlxceld.kinds import Value
from mlxceld.layers import Layer
from mlxceld.options import BY_KEY, OPTIONS, Option
from mlxceld.plan import Geometry
from mlxceld.problems import Problem, Refused

from . import dialects, differences
from .choice import Choice, choose
from .dialects import Silence
from .found import Found, Place
from .meaning import read
from .migration import Line, Migration, Outcome
from .plans import REFUSED, flipped, plan_of, same_plan, wish_of
from .saying import PLAN_KEYS, Meaning

_MODE = next(flip for flip in FLIPS if flip.option == "engine.mode")
KEEPS = f"the meaning from before version {_MODE.version}: {_MODE.before}"
ADOPTS = f"the meaning from version {_MODE.version} on: {_MODE.after}"
"""What stands beside the mode, for those who read the file in a year as well."""


def convert(
    found: Found,
    *,
    adopt: bool = False,
    as_of: str = "",
    since: str = "",
    geometry: Geometry | None = None,
    exists: Callable[[str], bool] = os.path.exists,
) -> Migration:
    """What becomes of a set-up.

    `adopt` takes the new meaning where a default flips; otherwise today's is written
    down. `as_of` is the version whose flips count, by default all that are known.
    `since` is the version whose words they are (`dialects.silence`). `geometry` gives
    the plans their sizes and a training length. Raises `Refused` for words that
    their own program would not take.
    """
    meaning = read(found, exists, older=dialects.is_older(since))
    silent = dialects.silence(meaning.program, since)
    if meaning.ollama:
        silent = dialects.OLLAMA
    choice = choose(meaning, found)
    _check_version(as_of, meaning.problems)
    if meaning.problems:
        raise Refused(meaning.problems)
    return _Conversion(found, meaning, silent, choice, adopt, as_of, geometry).run()


def needs_change(migration: Migration) -> bool:
    """Whether anything has to be written for a set-up to keep (or adopt) a meaning.

    A set-up of the daemon itself that no flip touches is fine as it is; one of another
    program is always carried over.
    """
    if migration.found.program == "mlxcel-server":
        changed = any(line.fate == "changed" for line in migration.lines)
        return bool(migration.pinned or migration.removed or changed)
    return True


def _check_version(as_of: str, problems: list[Problem]) -> None:
    try:
        happened(as_of)
    except ValueError as error:
        problems.append(Problem(str(error), "--as-of"))


@dataclass(slots=True)
class _Conversion:
    found: Found
    meaning: Meaning
    silent: Silence
    choice: Choice
    adopt: bool
    as_of: str
    geometry: Geometry | None
    pins: dict[str, tuple[Value, str]] = field(default_factory=dict)
    reviews: list[str] = field(default_factory=list)
    """Why a person has to look at the whole, whatever the single words are."""

    def run(self) -> Migration:
        self.own_rules()
        old = {key: saying.value for key, saying in self.choice.winners.items()}
        certain = {key: value for key, value in old.items() if value is not None}
        values = dict(certain)
        for pin in self.silent.pins:
            if not self.is_said(pin.key):
                self.pins[pin.key] = (pin.value, pin.why)
                values[pin.key] = pin.value
        self.unknown_program(values)
        today = self.outcome(values, self.silent.mode)
        then = today
        if self.silent.flips and self.says_mode() != "other":
            then = self.outcome(values, self.silent.mode, flip=True)
        values |= self.mode_pin(values, today, then)
        migrated = self.outcome(values, "legacy", of_today=True)
        self.refusals(values, today, migrated)
        ordered = {o.key: values[o.key] for o in OPTIONS if o.key in values}
        return Migration(
            found=replace(self.found, program=self.meaning.program),
            adopt=self.adopt,
            values=ordered,
            pinned=frozenset(self.pins),
            removed=self.meaning.removed,
            lines=tuple(self.lines(values)),
            today=today,
            flipped=then,
            migrated=migrated,
            changes=tuple(self.changes(values, today, migrated)),
        )

    def is_said(self, key: str) -> bool:
        """Whether the source says an option, be it without certainty."""
        return key in self.choice.winners or key in self.choice.doubts

    def own_rules(self) -> None:
        """llama-server shares the context of slots that nobody counted, whatever."""
        winners = self.choice.winners
        unified = winners.get("engine.kv_unified")
        number = winners.get("engine.parallel")
        auto = not self.is_said("engine.parallel") or (
            number is not None and isinstance(number.value, int) and number.value < 0
        )
        if (
            self.meaning.program == "llama-server"
            and unified is not None
            and unified.value is False
            and auto
        ):
            why = "llama-server shares the context when the number of slots is auto"
            self.choice.fates[self.choice.at["engine.kv_unified"]] = ("ignored", why)
            del winners["engine.kv_unified"]
        if self.silent.doubt and not self.is_said("engine.parallel"):
            self.choice.doubts["engine.parallel"] = self.silent.doubt
            self.reviews.append(self.silent.doubt)

    @property
    def elsewhere(self) -> bool:
        """Whether a configuration file that was not read says more."""
        return bool(self.meaning.config) and not self.found.entries

    # ---- plans ----

    def outcome(
        self,
        values: Mapping[str, Value],
        mode: str,
        *,
        flip: bool = False,
        of_today: bool = False,
    ) -> Outcome:
        """The plan of the values; `of_today` is for what the daemon would make."""
        if self.meaning.open:
            return Outcome(None, self.meaning.open)
        if self.elsewhere:
            why = f"the file that `{self.meaning.config}` names decides it"
            return Outcome(None, why)
        for key in PLAN_KEYS:
            if key in self.choice.doubts and key not in values:
                return Outcome(None, f"{key} is not certain")
        if not self.silent.bounded and not of_today:
            return Outcome(None, f"{self.meaning.program} has no limit on the context")
        wish = wish_of(values, mode)
        if flip:
            wish = flipped(wish, values, self.as_of)
        return plan_of(wish, self.geometry)

    def says_mode(self) -> str:
        """The mode that is said, `other` where that is not certain, else nothing."""
        if "engine.mode" in self.choice.doubts:
            return "other"
        saying = self.choice.winners.get("engine.mode")
        return str(saying.value) if saying else ""

    # ---- the mode ----

    def mode_pin(
        self, values: Mapping[str, Value], today: Outcome, then: Outcome
    ) -> dict[str, Value]:
        """The mode to write, if any, and the line for it."""
        said = self.says_mode()
        if self.elsewhere or said == "other":
            return {}
        new = self.adopted(said) if self.adopt else ""
        if new and said:
            self.choice.fates[self.choice.at["engine.mode"]] = ("changed", ADOPTS)
            return {"engine.mode": new}
        if said:
            return {}
        mode, why = self.silent.mode, KEEPS
        if self.meaning.program is None and not self.meaning.ollama:
            return {}
        if self.silent.flips:
            if same_plan(today, then):
                return {}
            if self.as_of and not happened(self.as_of):
                return {}
            if new:
                return self.pin(new, ADOPTS)
            if today.refusal.startswith(REFUSED):
                # What does not start today has no meaning to keep.
                return {}
        elif self.meaning.program is not None:
            why = f"what {self.meaning.program} means by these numbers"
        else:
            why = "what Ollama means by these numbers"
        return self.pin(mode, why)

    def pin(self, mode: str, why: str) -> dict[str, Value]:
        self.pins["engine.mode"] = (mode, why)
        return {"engine.mode": mode}

    def adopted(self, said: str) -> str:
        """The mode after the flips; nothing where they do not touch this set-up."""
        if said and said != "legacy":
            return ""
        if not self.silent.flips:
            return ""
        return _MODE.new.strip('"') if _MODE in happened(self.as_of) else ""

    def unknown_program(self, values: Mapping[str, Value]) -> None:
        """Whose words they are is not told: fine, unless it makes a difference."""
        told = self.meaning.program is not None or self.meaning.ollama
        if told or self.says_mode():
            return
        plans = [
            self.outcome(values, mode, of_today=True)
            for mode in ("legacy", "llama-compat")
        ]
        if not same_plan(*plans):
            why = (
                "whose words these are is not told, and it makes a difference; say "
                "`--from mlxcel-server` or `--from llama-server`"
            )
            self.choice.doubts["engine.mode"] = why
            self.reviews.append(why)

    def refusals(
        self, values: Mapping[str, Value], today: Outcome, migrated: Outcome
    ) -> None:
        """A plan that the daemon refuses is for a person to mend."""
        if migrated.plan is not None or not migrated.refusal:
            return
        for outcome in (migrated, today):
            if outcome.refusal.startswith(REFUSED):
                why = outcome.refusal
                if self.meaning.program == "llama-server":
                    wish = wish_of(values, self.silent.mode)
                    why += differences.way_out_of_llama_server(wish)
                self.reviews.append(why)
                return

    # ---- the report ----

    def lines(self, values: Mapping[str, Value]) -> Iterator[Line]:
        for at, saying in enumerate(self.meaning.sayings):
            fate, why = self.choice.fates.get(at, (saying.fate, saying.why))
            key = saying.option.key if saying.option else ""
            became = ""
            secret = saying.option is not None and saying.option.secret
            copied = not secret or saying.layer is Layer.FILE
            if fate in ("kept", "changed") and key in values and copied:
                became = assignment(BY_KEY[key], values[key])
            yield Line(saying.said, saying.place, fate, became, why)
        spot = Place(self.found.files[0]) if self.found.files else Place()
        for why in self.reviews:
            yield Line("", spot, "review", "", why)
        for option in OPTIONS:
            if option.key in self.pins:
                value, why = self.pins[option.key]
                yield Line("", Place(), "pinned", assignment(option, value), why)

    def changes(
        self, values: Mapping[str, Value], today: Outcome, migrated: Outcome
    ) -> Iterator[str]:
        yield from self.silent.notes
        different = list(differences.between(today, migrated))
        if different and self.adopt:
            for flip in happened(self.as_of):
                yield f"{flip.option}: {flip.before} before; {flip.after} after"
        yield from different
        if self.meaning.program == "llama-server" and today.plan is not None:
            wish = wish_of(values, self.silent.mode)
            yield from differences.from_llama_server(wish, today.plan, self.geometry)
        if not self.silent.bounded and not self.is_said("engine.parallel"):
            yield differences.MLX_LM_WIDTH


def assignment(option: Option, value: Value) -> str:
    """`key = value` as TOML; secrets are masked."""
    text = "***" if option.secret and value else option.kind.render(value)
    return f"{option.key} = {text}"
