"""Reads the environment of a set-up, as the program that gets it would."""

from __future__ import annotations

from dataclasses import dataclass, replace

from mlxceld.foreign import CACHE_REUSE, IGNORED, Foreign
from mlxceld.kinds import FALSE_WORDS
from mlxceld.layers import Layer
from mlxceld.near import did_you_mean
from mlxceld.options import OPTIONS, Option
from mlxceld.paths import CONFIG_VARIABLE

from . import rules
from .found import Variable
from .reader import Reader
from .rules import Rule
from .saying import SECRET, Saying, short
from .secrets import values_of

_PREFIXES = ("LLAMA_", "MLXCEL", "OLLAMA_")


def _variable_names() -> dict[str, tuple[Option, int, bool]]:
    """Variables, the option, their rank, and whether their presence turns it off."""
    names: dict[str, tuple[Option, int, bool]] = {}
    for option in OPTIONS:
        if "env" in option.where:
            names |= dict.fromkeys(option.env, (option, 0, False))
            names |= dict.fromkeys(option.negated_env, (option, 1, True))
            names[option.own_env] = (option, 2, False)
    return names


@dataclass(slots=True)
class Variables(Reader):
    def read(self) -> None:
        names = _variable_names()
        foreign = {n: one for one in (*IGNORED, CACHE_REUSE) for n in one.env}
        last = {variable.name: variable for variable in self.found.environment}
        for variable in self.found.environment:
            saying = _of_variable(variable, names)
            if last[variable.name] is not variable:
                why = "the variable is set again later"
                self.add(replace(saying, fate="ignored", why=why))
            elif not variable.value.strip() and not variable.doubt:
                why = "an empty variable counts as unset"
                self.add(replace(saying, fate="ignored", why=why))
            else:
                self.one(variable, saying, names, foreign)

    def one(
        self,
        variable: Variable,
        saying: Saying,
        names: dict[str, tuple[Option, int, bool]],
        foreign: dict[str, Foreign],
    ) -> None:
        name, text = variable.name, variable.value
        program = self.meaning.program
        rule = self.rules().get(name)
        if rule is not None:
            self.follow(rule, text, saying)
            return
        ours = name.startswith("MLXCELD_")
        deaf = program == "mlx_lm.server" and name not in ("HF_TOKEN",)
        if deaf or (ours and program not in (None, "mlxcel-server")):
            known = name in names or name in foreign
            why = f"{program} does not read it" if known else "sets no option itself"
            self.add(replace(saying, fate="ignored", why=why))
        elif name == CONFIG_VARIABLE:
            self.config(saying)
        elif name in names:
            option, rank, negated = names[name]
            saying = replace(saying, rank=rank)
            if option.secret:
                self.secret(option, saying)
            elif negated:
                self.negated(option, text, saying)
            else:
                self.value(option, text, saying, loose=not ours)
        elif name in CACHE_REUSE.env:
            self.cache_reuse(text, saying)
        elif name in foreign:
            one = foreign[name]
            inert = one.value == "none" and text.strip().lower() in FALSE_WORDS
            self.foreign(None if inert else one, one.note, saying)
        elif name.startswith(("LLAMA_ARG_", "MLXCELD_")):
            near = did_you_mean(name, [*names, *foreign])
            why = f"unknown, has no effect{'; ' if near else ''}{near}"
            self.add(replace(saying, fate="ignored", why=why))
        else:
            self.add(replace(saying, fate="ignored", why="sets no option itself"))

    def secret(self, option: Option, saying: Saying) -> None:
        """Add a secret: where no flag hides it, it stays where it is."""
        if values_of(self.found, option.flags):
            why = f"`{option.flags[0]} ***` counts instead"
            self.add(replace(saying, fate="ignored", why=why))
        else:
            why = "it stays in the environment, where the daemon reads it"
            self.add(replace(saying, why=why))

    def rules(self) -> dict[str, Rule]:
        """The variables that mean something to this program alone."""
        if self.meaning.ollama:
            table = rules.OLLAMA_VARIABLES
        elif self.meaning.program == "mlxcel-server":
            table = rules.MLXCEL_VARIABLES
        else:
            return {}
        return {name: rule for rule in table for name in rule.names}

    def negated(self, option: Option, text: str, saying: Saying) -> None:
        if text.strip().lower() in FALSE_WORDS:
            why = "its presence alone turns it off, as in llama-server"
            saying = replace(saying, why=why)
        value = None if saying.doubt else False
        self.add(replace(saying, option=option, value=value))


def _of_variable(
    variable: Variable, names: dict[str, tuple[Option, int, bool]]
) -> Saying:
    """The variable as it is shown: of what is no option, only the name."""
    named = names.get(variable.name)
    known = named is not None or variable.name.startswith(_PREFIXES)
    secret = named[0].secret if named else bool(SECRET.search(variable.name))
    text = "***" if secret and variable.value else short(variable.value)
    said = f"{variable.name}={text}" if known else variable.name
    return Saying(said, variable.place, Layer.ENVIRONMENT, doubt=variable.doubt)
