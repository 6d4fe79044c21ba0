"""Reads the services of a Compose file, with the line of every word."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from mlxceld.problems import Problem, Refused

from ..found import Found, Place, Remark, Variable, Word
from . import env
from .containers import Container, image_program, in_container, port_remarks
from .interpolate import interpolate
from .script import found
from .shell import Unreadable
from .walk import started
from .words import Files, Start, is_shell, no_files, unknown_program

Node: TypeAlias = Any
"""A node of PyYAML, which ships no types."""

_COUNTS = ("LLAMA_ARG_", "LLAMA_API_KEY", "MLXCEL")


@dataclass(slots=True)
class _Reader:
    """Reads one Compose file."""

    file: str
    given: Mapping[str, str]
    """Variables for `${NAME}`: those of the env files that the user named."""
    files: Files
    remarks: list[Remark] = field(default_factory=list)
    merged: dict[int, dict[str, tuple[Node, Node]]] = field(default_factory=dict)
    """Mappings with `<<` done, by the identity of their node."""

    def place(self, node: Node, name: str = "") -> Place:
        return Place(self.file, node.start_mark.line + 1, name)

    def problem(self, node: Node, what: str) -> Refused:
        return Refused([Problem(what, str(self.place(node)))])

    def word(self, node: Node, name: str = "") -> Word:
        """A scalar with its variables filled in; numbers as they are written."""
        if not hasattr(node, "value") or not isinstance(node.value, str):
            raise self.problem(node, "found a list or a mapping, wanted a text")
        place = self.place(node, name)
        filled = interpolate(node.value, self.given.get)
        self.remarks += [Remark(note, place) for note in filled.notes]
        return Word(filled.text, place, filled.doubt)

    def pairs(self, node: Node) -> Iterator[tuple[str, Node, Node]]:
        """The keys of a mapping with those that `<<` merges in."""
        if node is None or not isinstance(node.value, list) or _is_sequence(node):
            return
        if id(node) not in self.merged:
            self.merged[id(node)] = self._merged(node)
        for name, (key, value) in self.merged[id(node)].items():
            yield name, key, value

    def _merged(self, node: Node) -> dict[str, tuple[Node, Node]]:
        merged: dict[str, tuple[Node, Node]] = {}
        own: dict[str, tuple[Node, Node]] = {}
        for key, value in node.value:
            if str(key.tag).endswith(":merge"):
                for one in reversed(value.value if _is_sequence(value) else [value]):
                    merged |= {name: (k, v) for name, k, v in self.pairs(one)}
            elif isinstance(key.value, str):
                own[key.value] = (key, value)
        return merged | own

    def words(self, node: Node, name: str) -> list[Word] | None:
        """A command: a list, or a text that is cut as a shell would; None if absent."""
        if node is None or _is_null(node):
            return None
        if _is_sequence(node):
            return [self.word(item, name) for item in node.value]
        word = self.word(node, name)
        try:
            texts = shlex.split(word.text)
        except ValueError:
            raise self.problem(node, f"quotes are not closed in `{name}`") from None
        return [
            Word(text, word.place, word.doubt if "$" in text else "") for text in texts
        ]

    def environment(self, node: Node) -> list[Variable]:
        """`environment:` as a list or a mapping; a bare name is unset."""
        variables: list[Variable] = []
        if node is None or _is_null(node):
            return variables
        if _is_sequence(node):
            entries = []
            for item in node.value:
                word = self.word(item)
                name, equals, value = word.text.partition("=")
                entries.append(
                    (name, Word(value, word.place, word.doubt), bool(equals))
                )
        else:
            entries = [
                (name, self.word(value), not _is_null(value))
                for name, _, value in self.pairs(node)
            ]
        for name, word, said in entries:
            place = Place(self.file, word.place.line, name)
            if said:
                variables.append(Variable(name, word.text, place, word.doubt))
            elif name in self.given:
                variables.append(Variable(name, self.given[name], place))
            else:
                self.remarks.append(Remark(f"`{name}` has no value here: unset", place))
        return variables

    def env_files(self, node: Node) -> tuple[list[Variable], list[str]]:
        """`env_file:`, before `environment:` in its effect."""
        variables: list[Variable] = []
        read: list[str] = []
        if node is None or _is_null(node):
            return variables, read
        for item in node.value if _is_sequence(node) else [node]:
            required = True
            path = item
            if isinstance(item.value, list):
                parts = {name: value for name, _, value in self.pairs(item)}
                path = parts.get("path", item)
                if "required" in parts:
                    required = parts["required"].value.lower() != "false"
            word = self.word(path, "env_file")
            text = None if word.doubt else self.files(word.text)
            if text is None:
                what = f"`{word.text}` was not read, and may set options"
                self.remarks.append(Remark(what, word.place, review=required))
                continue
            content = env.dotenv(text, word.text, self.given.get)
            variables += content.variables
            self.remarks += content.remarks
            read.append(word.text)
        return variables, read

    def service(self, name: str, node: Node) -> Found | None:
        """What one service starts, or None where it is no server."""
        self.remarks = []
        parts = {key: value for key, _, value in self.pairs(node)}
        inside, read = self.env_files(parts.get("env_file"))
        inside += self.environment(parts.get("environment"))
        start = self._start(name, node, parts, inside)
        if start is None:
            return None
        self._other(parts)
        return found(
            "compose",
            name,
            Start(
                start.program,
                start.command,
                start.words,
                start.environment,
                start.remarks,
                files=tuple(read),
                folder=start.folder,
            ),
            self.file,
            self.remarks,
        )

    def _start(
        self,
        name: str,
        node: Node,
        parts: Mapping[str, Node],
        inside: Sequence[Variable],
    ) -> Start | None:
        image = self.place(node)
        word = Word(name, image)
        if "image" in parts:
            word = self.word(parts["image"], "image")
        command = self.words(parts.get("command"), "command")
        entry = self.words(parts.get("entrypoint"), "entrypoint")
        ports = [self._port(item) for item in _items(parts.get("ports"))]
        words = [*(entry or []), *(command or [])]
        if words and is_shell(words[0].text):
            try:
                starts = started(words, inside, file=self.file)
            except Unreadable as error:
                where = f"{self.file}:{error.line}"
                raise Refused([Problem(error.what, where)]) from None
            return starts[0] if starts else None
        folder = self.word(parts["working_dir"]).text if "working_dir" in parts else ""
        container = Container(word, None, tuple(ports), folder=folder)
        if entry and not words[0].text:
            words = words[1:]
        start = in_container((container, (), tuple(words)), ())
        if start is not None and (entry is None or start.command != (word.text,)):
            return replace(start, environment=(*inside, *start.environment))
        if entry or command:
            return None
        if image_program(word.text) is None and any(
            variable.name.startswith(_COUNTS) for variable in inside
        ):
            remarks = (unknown_program(word), *port_remarks(ports))
            return Start(None, (word.text,), (), tuple(inside), remarks)
        return None

    def _port(self, node: Node) -> Word:
        if isinstance(node.value, str):
            return self.word(node, "ports")
        parts = {key: self.word(value).text for key, _, value in self.pairs(node)}
        text = f"{parts.get('published', '')}:{parts.get('target', '')}"
        return Word(text, self.place(node, "ports"))

    def _other(self, parts: Mapping[str, Node]) -> None:
        if "extends" in parts:
            what = "`extends` was not followed: the other service may set options"
            place = self.place(parts["extends"], "extends")
            self.remarks.append(Remark(what, place, review=True))
        profiles = [self.word(item).text for item in _items(parts.get("profiles"))]
        if profiles:
            what = f"starts only with the profile {' or '.join(profiles)}"
            place = self.place(parts["profiles"], "profiles")
            self.remarks.append(Remark(what, place))
        deploy = {key: value for key, _, value in self.pairs(parts.get("deploy"))}
        scale = deploy.get("replicas", parts.get("scale"))
        if scale is not None and (word := self.word(scale)).text != "1":
            what = f"runs {word.text} times: each of them needs this memory"
            self.remarks.append(Remark(what, word.place))


def _is_sequence(node: Node) -> bool:
    return str(node.id) == "sequence"


def _is_null(node: Node) -> bool:
    return str(node.tag).endswith(":null")


def _items(node: Node) -> list[Node]:
    return list(node.value) if node is not None and _is_sequence(node) else []


def read(
    text: str,
    file: str,
    *,
    given: Mapping[str, str] | None = None,
    files: Files = no_files,
) -> list[Found]:
    """One result for each service that starts a server. Raises Refused.

    `given` fills `${NAME}`; a `.env` beside the file counts only when it is given.
    """
    import yaml

    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"{file}:{mark.line + 1}" if mark else file
        raise Refused([Problem(f"no valid YAML: {error.problem}", where)]) from None
    except yaml.YAMLError:
        raise Refused([Problem("no valid YAML", file)]) from None
    reader = _Reader(file, given or {}, files)
    top = {key: value for key, _, value in reader.pairs(root)} if root else {}
    if "services" not in top:
        raise Refused([Problem("there are no `services`", file)])
    result: list[Found] = []
    for name, _, node in reader.pairs(top["services"]):
        if (one := reader.service(name, node)) is not None:
            result.append(one)
    if "include" in top and result:
        what = "`include` was not followed"
        place = reader.place(top["include"], "include")
        first = result[0]
        remarks = (*first.remarks, Remark(what, place, review=True))
        result[0] = replace(first, remarks=remarks)
    return result
