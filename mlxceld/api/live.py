"""What a reload may change under a running app, in one holder.

Everything that is made from settings and read for each request is in one frozen
`Rules`; a reload makes new ones beside those in use and then swaps them in a single
assignment. A request takes the rules once and keeps them to its end: no request sees
half of one configuration and half of another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from mlxceld.api.auth import Keys, keys_of
from mlxceld.api.cors import Cors
from mlxceld.api.state import State
from mlxceld.hosts import HostCheck
from mlxceld.settings import Settings


@dataclass(frozen=True, slots=True)
class Rules:
    """What new requests get, and what they must show."""

    state: State
    keys: Keys
    hosts: HostCheck
    cors: Cors


class Live:
    """The rules in force."""

    def __init__(
        self,
        state: State,
        environ: Mapping[str, str],
        hosts: Sequence[str] | None = None,
    ) -> None:
        """`hosts` are the addresses that are really listened on, where they are not
        those of the settings. Raises `Refused` for a key file that cannot be used."""
        self._environ = environ
        self._hosts = hosts
        self.rules = self._made(state)

    @property
    def state(self) -> State:
        return self.rules.state

    def prepare(self, settings: Settings) -> Rules:
        """Rules for other settings, not in force yet. Raises `Refused`."""
        return self._made(self.rules.state.with_settings(settings))

    def swap(self, rules: Rules) -> None:
        """Put rules in force; running requests keep theirs. Cannot fail."""
        self.rules = rules

    def _made(self, state: State) -> Rules:
        server = state.settings.server
        keys = keys_of(server, self._environ)
        if self._hosts is not None:
            server = replace(server, host=tuple(self._hosts))
        return Rules(
            state, keys, HostCheck(server, keyed=bool(keys)), Cors(server.cors_origins)
        )
