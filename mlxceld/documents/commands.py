"""The commands that are installed: their completions, and the pages made from parsers.

To add a command: give it a module with `build_parser()` and name it here.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from mlxceld.documents import completions, manpages
from mlxceld.documents.flags import Group, parser_groups, server_groups


@dataclass(frozen=True, slots=True)
class Command:
    """A command beside the daemon."""

    name: str
    module: str
    summary: str
    """What it is for, as the page's NAME says it."""
    also: tuple[str, ...]
    """References to other pages."""

    def parser(self) -> argparse.ArgumentParser:
        """Its argparse parser."""
        made = importlib.import_module(self.module).build_parser()
        assert isinstance(made, argparse.ArgumentParser)
        return made

    def groups(self) -> Iterator[Group]:
        """Its flags."""
        return parser_groups(self.parser())

    def page(self) -> str:
        """Its man page."""
        more = [("See also", [manpages.see_also(*self.also)])]
        return manpages.parser_page(self.parser(), self.summary, more)


COMMANDS: tuple[Command, ...] = (
    Command(
        "mlxcel-migrate",
        "mlxceld.migrate.cli",
        "carry an old server's configuration over to mlxcel-server",
        ("mlxcel-server(1)", "mlxcel.toml(5)"),
    ),
    Command(
        "mlxcel-verify",
        "mlxceld.verify.cli",
        "look whether the slots of a running server are what it says",
        ("mlxcel-server(1)",),
    ),
)


def files() -> Iterator[tuple[str, Callable[[], str]]]:
    """Name, from the top of the source tree, and maker of every file of a command."""
    yield from _completions("mlxcel-server", server_groups)
    for command in COMMANDS:
        yield f"man/{command.name}.1", command.page
        yield from _completions(command.name, command.groups)


def _completions(
    name: str, groups: Callable[[], Iterable[Group]]
) -> Iterator[tuple[str, Callable[[], str]]]:
    for file, make in (
        (f"{name}.bash", completions.bash),
        (f"_{name}", completions.zsh),
        (f"{name}.fish", completions.fish),
    ):
        yield f"completions/{file}", partial(_complete, make, name, groups)


def _complete(
    make: Callable[[str, Iterable[Group]], str],
    name: str,
    groups: Callable[[], Iterable[Group]],
) -> str:
    return make(name, groups())
