"""Finds the server in `docker run` and its kind: by the image, or by its arguments."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from ..found import Program, Remark, Variable, Word
from . import env
from .words import (
    Files,
    Start,
    base_name,
    find_program,
    looks_like_arguments,
    unknown_program,
    unwrap,
)

CONTAINERS = frozenset({"docker", "podman", "nerdctl"})

_RUN_SWITCHES = frozenset(
    (
        *("-d", "-i", "-t", "-q", "-P", "--detach", "--interactive", "--tty", "--rm"),
        *("--init", "--privileged", "--quiet", "--publish-all", "--read-only"),
        *("--no-healthcheck", "--oom-kill-disable", "--sig-proxy", "--replace"),
        *("--rmi", "--no-hosts", "--no-hostname", "--env-host", "--http-proxy"),
        *("--disable-content-trust",),
    )
)
"""Options of `docker run` and `podman run` without a value."""


_HANDED_ON = "it comes from around the container"


@dataclass(frozen=True, slots=True)
class Container:
    """What `docker run` or a unit says about the container around the server."""

    image: Word
    entrypoint: Word | None = None
    ports: tuple[Word, ...] = ()
    env_files: tuple[Word, ...] = ()
    folder: str = ""


Run: TypeAlias = tuple[Container, tuple[Variable, ...], tuple[Word, ...]]
"""A container, its variables, and the words after the image."""


def image_program(image: str) -> Program | None:
    """The server that an image starts by itself, by the image's name."""
    path = image.partition("@")[0]
    name, _, tag = path.rpartition("/")[2].partition(":")
    if name in ("llama.cpp", "llama-cpp", "llamacpp") and not tag.startswith("light"):
        return "llama-server" if tag.startswith(("server", "full")) else None
    if re.search(r"llama[-_.]?(cpp[-_.]?)?server", name):
        return "llama-server"
    if name.startswith("mlxcel"):
        return "mlxcel-server"
    return None


def container_run(words: Sequence[Word]) -> Run | None:
    """Take `docker run` apart; None when the words run no container.

    `words` begins with `docker`. An option that is not known to stand alone has a
    value, as all others of `docker run` do.
    """
    if base_name(words[0].text) not in CONTAINERS:
        return None
    at = next((i for i, w in enumerate(words[:4]) if w.text in ("run", "create")), 0)
    if not at:
        return None
    options: list[tuple[str, Word]] = []
    at += 1
    while at < len(words) and words[at].text.startswith("-"):
        word = words[at]
        flag, joined, value = word.text.partition("=")
        at += 1
        if joined:
            options.append((flag, Word(value, word.place, word.doubt)))
        elif flag in _RUN_SWITCHES or re.fullmatch(r"-[ditq]{2,}", flag):
            continue
        elif re.fullmatch(r"-[evpuw].+", flag):
            options.append((flag[:2], Word(word.text[2:], word.place, word.doubt)))
        elif at < len(words):
            options.append((flag, words[at]))
            at += 1
    if at >= len(words):
        return None
    return run_options(options, words[at], words[at + 1 :])


def run_options(
    options: Sequence[tuple[str, Word]], image: Word, rest: Sequence[Word]
) -> Run:
    """A container from the options of `docker run`, in order."""
    environment: list[Variable] = []
    files: list[Word] = []
    ports: list[Word] = []
    entrypoint: Word | None = None
    folder = ""
    for flag, word in options:
        if flag in ("-e", "--env"):
            name, said, value = word.text.partition("=")
            doubt = word.doubt if said else _HANDED_ON
            environment.append(Variable(name, value, word.place, doubt))
        elif flag == "--env-file":
            files.append(word)
        elif flag in ("-p", "--publish"):
            ports.append(word)
        elif flag == "--entrypoint":
            entrypoint = word
        elif flag in ("-w", "--workdir"):
            folder = "" if word.doubt else word.text
    container = Container(image, entrypoint, tuple(ports), tuple(files), folder)
    return container, tuple(environment), tuple(rest)


def in_container(run: Run, before: Sequence[str] = ()) -> Start | None:
    """The server that a container starts, or None where it is another program.

    An image that is not known, with arguments that look like a server's, gives a
    start whose program is None.
    """
    container, environment, rest = run
    words = list(rest)
    if container.entrypoint is not None and container.entrypoint.text:
        words.insert(0, container.entrypoint)
    inner = unwrap(words)
    start = find_program(inner.words)
    remarks: list[Remark] = []
    command = (*before, container.image.text)
    if start is None:
        program = image_program(container.image.text)
        # The `full` images have one entry for all their tools.
        if program and words and words[0].text in ("--server", "-s"):
            words = words[1:]
        named = bool(words) and not words[0].text.startswith("-")
        if container.entrypoint is not None or named:
            program = None
        if program is None and (named or not looks_like_arguments(words)):
            return None
        start = Start(program, command, tuple(words))
        if program is None:
            remarks.append(unknown_program(container.image))
    place = container.image.place
    if start.program == "llama-server" and "/llama.cpp:" in container.image.text:
        remarks.append(
            Remark("the image itself sets `LLAMA_ARG_HOST=0.0.0.0`", place),
        )
    remarks += port_remarks(container.ports)
    return Start(
        start.program,
        command if start.command == command else (*command, *start.command),
        start.words,
        (*environment, *inner.environment),
        tuple(remarks),
        is_container=True,
        folder=container.folder,
    )


def port_remarks(ports: Sequence[Word]) -> list[Remark]:
    """A line for each port that is published under another address."""
    text = "`{}` is published: clients use that address, not the server's own"
    return [Remark(text.format(word.text), word.place) for word in ports]


def handed_on(start: Start, outside: Sequence[Variable]) -> Start:
    """A start with the variables that `-e NAME` hands on from around the container."""
    known = {variable.name: variable for variable in outside}
    environment: list[Variable] = []
    remarks = list(start.remarks)
    for variable in start.environment:
        if variable.doubt != _HANDED_ON:
            environment.append(variable)
        elif variable.name in known:
            environment.append(known[variable.name])
        else:
            what = f"`{variable.name}` has no value here: unset"
            remarks.append(Remark(what, variable.place))
    return replace(start, environment=tuple(environment), remarks=tuple(remarks))


def started_container(
    words: Sequence[Word],
    before: Sequence[str],
    files: Files,
    outside: Sequence[Variable] = (),
) -> list[Start]:
    """The server of a `docker run`, with the environment inside the container."""
    run = container_run(words)
    if run is None:
        return []
    start = in_container(run, (*before, words[0].text, "run"))
    if start is None:
        return []
    start = handed_on(start, outside)
    environment: list[Variable] = []
    remarks = list(start.remarks)
    read: list[str] = []
    for word in run[0].env_files:
        text = None if word.doubt else files(word.text)
        if text is None:
            what = f"`{word.text}` was not read, and may set options"
            remarks.append(Remark(what, word.place, review=True))
        else:
            read.append(word.text)
            environment += env.docker(text, word.text).variables
    environment += start.environment
    return [
        replace(
            start,
            environment=tuple(environment),
            remarks=tuple(remarks),
            files=tuple(read),
        )
    ]
