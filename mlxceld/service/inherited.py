"""What the daemon gets from whoever started it, besides its command line.

It is read once, and what is nobody else's business is taken out of the environment
before the engine is started: it would inherit the manager's socket, and the keys.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass

from mlxceld.service.activation import Given, given
from mlxceld.service.notify import Notifier, from_environment
from mlxceld.service.secrets import withhold


@dataclass(frozen=True, slots=True)
class Inherited:
    """The environment as it was, and what the manager put into it."""

    environ: Mapping[str, str]
    notifier: Notifier
    sockets: tuple[Given, ...]


def take(environ: MutableMapping[str, str]) -> Inherited:
    """Take it out of `environ`, usually that of the process.

    Raises `Refused` when it makes no sense.
    """
    whole = dict(environ)
    sockets = tuple(given(environ))
    notifier = from_environment(environ)
    withhold(environ)
    return Inherited(whole, notifier, sockets)
