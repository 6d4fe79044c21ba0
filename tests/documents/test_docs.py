"""Every example of the English pages is tried: commands, files, requests, answers.

The Korean pages have the same blocks, which another test holds. What only looks
at files is run as on a Mac with 16 GiB and well-known models, whose weights exist on
paper; what serves gets a tiny model under the same name.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from mlxceld import argv
from mlxceld.api.metrics import Metrics
from mlxceld.engine.messages import SlotState, Snapshot, Totals
from mlxceld.plan import Wish, make_plan
from tests.documents import papers
from tests.documents.examples import BEFORE, Block, Command, blocks, commands, differs
from tests.documents.machine import PROGRAMS
from tests.e2e.server import Server, command, environment
from tests.tiny import tiny_model_dir

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs/en").rglob("*.md"))]
ADDRESS = "http://127.0.0.1:8080"
HOME = "/Users/you"
"""The home folder that pages show."""

ENDS = frozenset(
    {"--check-config", "--print-config", "--help", "-h", "--version"}
    | {"--install-service"}
)
"""Flags that print something and stop."""

STARTS = r"(?:^\$ (?:sudo )?|ExecStart=\S*/|\bexec )mlxcel-server (.*)"
"""A line that starts the daemon, and what follows its name."""

LANGUAGES = {"console", "toml", "json", "python", "sh", "ini", "ruby", "text"}


@dataclass
class Reader:
    """Somebody who tries what a page shows, from its first line to its last."""

    folder: Path
    homes: Path
    server: Server | None = None
    running: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    @property
    def home(self) -> Path:
        return self.folder / "home"

    def prepare(self) -> None:
        """A home folder with models on paper, another with models that run."""
        for name in ("paper", "tiny"):
            home = self.folder / ("home" if name == "paper" else "tiny")
            home.mkdir(parents=True)
            (home / "models").symlink_to(self.homes / name)
        (self.home / ".config").mkdir()
        (self.folder / "tiny/.config").symlink_to(self.home / ".config")
        (self.folder / "work").mkdir()
        programs = self.folder / "bin"
        programs.mkdir()
        for name in (*PROGRAMS, "python3"):
            words = [sys.executable]
            if name in PROGRAMS:
                words += ["-m", "tests.documents.machine", name]
            (programs / name).write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
            (programs / name).chmod(0o755)

    def read(self, block: Block) -> None:
        if block.language == "toml":
            self.write(block)
        elif block.path and block.language in ("ini", "sh", "text", "json"):
            self.place(block.path).write_text(self.address(block.text))
        elif block.language == "json":
            json.loads(block.text)
        elif block.language == "console":
            for one in commands(block):
                self.type(one)
        elif block.language == "python":
            program = self.address(block.text)
            self.see(self.run([sys.executable, "-c", program]), "", block.line)

    def place(self, path: str) -> Path:
        """Where a file of the page is written."""
        if path.startswith("~/"):
            found = self.home / path.removeprefix("~/")
        else:
            found = self.folder / "work" / path
        found.parent.mkdir(parents=True, exist_ok=True)
        return found

    def write(self, block: Block) -> None:
        """Write a TOML file, and have it checked."""
        path = self.place(block.path or "example.toml")
        path.write_text(block.text)
        assert tomllib.loads(block.text)
        if path.parent.name != "mlxcel.toml.d" and BEFORE not in block.words:
            check = ["mlxcel-server", "--check-config", "--config", str(path)]
            done = self.run(check)
            assert done.returncode == 0, f"line {block.line}: {done.stderr}"

    def type(self, one: Command) -> None:
        text = self.address(one.text)
        words = shlex.split(text.replace("\\\n", " "), comments=True)
        serves = "mlxcel-server" in words[:2] and not any(
            word.split("=")[0] in ENDS for word in words
        )
        if serves and not text.rstrip().endswith(";"):
            self.serve(words, one)
            return
        self.see(self.run(["bash", "-c", text]), one.shown, one.line)

    def serve(self, words: list[str], one: Command) -> None:
        """Start the daemon of a page; the last one ends."""
        self.running.close()
        env = {"HOME": str(self.folder / "tiny"), "MLXCELD_CONFIG": ""}
        while "=" in words[0]:
            name, _, value = words.pop(0).partition("=")
            env[name] = value
        flags = [self.word(word) for word in words[1:]]
        server = self.running.enter_context(command(*flags, env=env))
        self.server = server.ready()
        said = [str(event.get("message", "")) for event in server.events]
        for line in one.shown.splitlines():
            message = re.sub(r"^[0-9:]+ \[\w+ *\] ", "", line).strip()
            assert any(not differs(message, m) for m in said), (message, said)

    def word(self, word: str) -> str:
        """A word of a command line as the shell of the page would hand it on."""
        if word.startswith("~/"):
            return str(self.folder / "tiny" / word.removeprefix("~/"))
        here = self.folder / "work" / word
        named = Path(word).suffix in (".log", ".sock", ".toml")
        return str(here) if named or here.exists() else word

    def address(self, text: str) -> str:
        return text if self.server is None else text.replace(ADDRESS, self.server.url)

    def run(self, words: list[str]) -> subprocess.CompletedProcess[str]:
        programs = f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
        return subprocess.run(
            words,
            cwd=self.folder / "work",
            env=environment(
                {
                    "PATH": programs,
                    "HOME": str(self.home),
                    "PYTHONPATH": str(ROOT),
                    "MLXCELD_CONFIG": "",
                    "PWD": str(self.folder / "work"),
                }
            ),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def see(
        self, done: subprocess.CompletedProcess[str], shown: str, line: int
    ) -> None:
        """Compare an output with what the page shows; nothing shown is not compared."""
        assert "Traceback" not in done.stderr, f"line {line}: {done.stderr}"
        real = done.stdout + ("" if "curl" in done.args[-1] else done.stderr)
        real = real.replace(str(self.folder / "work"), f"{HOME}/work")
        real = real.replace(str(self.home), HOME)
        if self.server is not None:
            real = real.replace(self.server.url, ADDRESS)
        if shown:
            reason = differs(shown, real)
            assert not reason, f"line {line}: {reason} {done.stderr}"
        else:
            assert done.returncode == 0, f"line {line}: {done.stdout} {done.stderr}"


@pytest.fixture(scope="module")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders of models: on paper, and tiny ones under the same names."""
    if shutil.which("curl") is None:
        if os.environ.get("CI") == "true":
            pytest.fail("the examples of the pages need curl")
        pytest.skip("curl is not installed")
    folder = tmp_path_factory.mktemp("homes")
    small: dict[str, Any] = {
        "num_hidden_layers": 1,
        "num_attention_heads": 1,
        "head_dim": 16,
    }
    small |= {"num_key_value_heads": 1, "hidden_size": 32, "intermediate_size": 32}
    for paper in papers.PAPERS:
        papers.write(paper, folder / "paper")
        tiny_model_dir(
            folder / "tiny" / paper.name,
            max_position_embeddings=paper.trained,
            **small,
        )
    return folder


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_example_of_the_page_works(
    page: Path, homes: Path, tmp_path: Path
) -> None:
    reader = Reader(tmp_path, homes)
    reader.prepare()
    with reader.running:
        for block in blocks(page):
            if block.runs:
                reader.read(block)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_what_cannot_be_run_here_uses_flags_that_exist(page: Path) -> None:
    for block in blocks(page):
        assert block.language in LANGUAGES, block
        if not block.runs:
            for line in block.text.replace("\\\n", " ").splitlines():
                for words in command_lines(line):
                    line_read = argv.parse(words)
                    assert not line_read.problems, (block.line, line_read.problems)


def command_lines(line: str) -> Iterator[list[str]]:
    """What follows `mlxcel-server` on a line that shows how it is started."""
    if found := re.search(STARTS, line):
        with contextlib.suppress(ValueError):
            yield shlex.split(found[1].split(" | ")[0], comments=True)
    if found := re.search(r'^\$ make demo ARGS="(.*)"', line):
        yield shlex.split(found[1])


def test_metrics_that_are_named_exist() -> None:
    metrics = Metrics()
    metrics.count(200)
    metrics.start = {"total": 2.5}
    text = metrics.render(
        Snapshot([SlotState(0)], 0, 0, 0, Totals()), make_plan(Wish(ctx_size=1024))
    )
    for page in PAGES:
        for name in re.findall(r"`((?:llamacpp:|mlxcel_)[a-z_]+)`", page.read_text()):
            assert f"# TYPE {name} " in text, f"{page}: {name}"


def test_commands_of_make_exist() -> None:
    targets = re.findall(r"(?m)^([a-z]+):", (ROOT / "Makefile").read_text())
    for page in PAGES:
        for target in re.findall(r"(?:`|\$ )make ([a-z]+)", page.read_text()):
            assert target in targets, f"{page}: make {target}"


def test_the_picture_in_the_readme_is_the_plan() -> None:
    """One square for 1024 tokens, one group for each part of the pool."""
    text = (ROOT / "README.md").read_text()
    rows = re.findall(r"(?m)^(legacy|llama-compat|per-seq)(.*?)  +((?:■+ ?)+)", text)
    assert len(rows) == 4
    for mode, more, squares in rows:
        wish = Wish(mode=mode, ctx_size=8192, parallel=4)
        if mode == "per-seq":
            wish = replace(wish, ctx_size=None, ctx_size_per_seq=4096)
        plan = make_plan(replace(wish, kv_unified="kv_unified" in more or None))
        groups = [1024 * len(group) for group in squares.split()]
        assert groups == [plan.slot_ctx] * (1 if plan.shared else plan.slots), mode
        assert sum(groups) == plan.pool


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
            if not target.startswith(("http://", "https://")):
                assert (page.parent / target).exists(), f"{page}: {target}"


def test_links_to_headings_lead_to_headings() -> None:
    for page in PAGES:
        for target, anchor in re.findall(r"\]\(([^)#]*)#([^)]+)\)", page.read_text()):
            if not target.startswith("http"):
                other = page if not target else page.parent / target
                assert anchor in anchors(other), f"{page}: {target}#{anchor}"


def anchors(page: Path) -> set[str]:
    """The names that GitHub gives to the headings of a page."""
    text = re.sub(r"(?ms)^ *```.*?^ *```$", "", page.read_text())
    headings = re.findall(r"(?m)^#+ (.+)$", text)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}
