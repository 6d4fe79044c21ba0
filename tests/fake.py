"""A scripted engine: the real scheduler, messages and process around a toy model.

One token is one word of the prompt. What a request answers is chosen by the first word
of its prompt; every answer, delay and fault is written down in a `Script`, so that a
test knows by hand what must come out.
"""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from mlxceld.engine import messages as m
from mlxceld.engine.engine import Engine
from mlxceld.engine.main import serve
from mlxceld.engine.runner import Part, Probability, Row, Saved, Unusable
from mlxceld.engine.spans import Move
from mlxceld.engine.text import Text
from mlxceld.plan import Geometry, make_plan

EOS, FILLER = 0, 1
BOS_TEXT, EOS_TEXT = "<s>", "</s>"


@dataclass(frozen=True)
class Script:
    """What the toy model does.

    `answers` maps the first word of a prompt to the pieces of the answer (latin-1 text
    stands for bytes), after which comes the end; a prompt with no script gets filler
    (`x ` for each token) without an end.
    """

    answers: dict[str, list[str]] = field(default_factory=dict)
    step_seconds: float = 0.0
    prefill_seconds: float = 0.0
    """For each token of a prompt."""
    kv_bytes_per_token: int = 1024
    n_train: int = 4096
    load_seconds: float = 0.0
    fail_load: str = ""
    """What the loader raises, if anything."""
    fail_prefill: str = ""
    """First word of the prompts whose prefill raises."""
    fail_step: str = ""
    """First word of the prompts whose decode step raises after three tokens."""
    crash: str = ""
    """First word of the prompts that end the engine's process."""
    chat_template: str = "{% for m in messages %}{{ m.content }} {% endfor %}"


class Words(Text):
    """One token for each word, ids handed out as words turn up."""

    def __init__(self, script: Script) -> None:
        pieces = [EOS_TEXT.encode(), b"x "]
        self._ids: dict[str, int] = {EOS_TEXT: EOS}
        self._grow = threading.Lock()
        super().__init__(
            pieces,
            self._encode,
            special=[EOS],
            eos_ids=[EOS],
            chat_template=script.chat_template,
        )
        self.script_ids = {
            first: [self.add(piece.encode("latin-1")) for piece in answer]
            for first, answer in script.answers.items()
        }

    n_vocab = 1_000_000

    def add(self, piece: bytes) -> int:
        self._pieces.append(piece)
        return len(self._pieces) - 1

    def _encode(self, text: str, _special: bool) -> list[int]:
        with self._grow:
            for word in text.split():
                if word not in self._ids:
                    self._ids[word] = self.add(word.encode() + b" ")
            return [self._ids[word] for word in text.split()]

    def first(self, prompt: Sequence[int]) -> str:
        return self.piece(prompt[0], special=True).decode("latin-1").strip()


@dataclass
class Step:
    tokens: list[int]
    ready: float
    error: Exception | None = None

    def read(self) -> list[int]:
        time.sleep(max(0.0, self.ready - time.monotonic()))
        if self.error is not None:
            raise self.error
        return self.tokens

    def probabilities(self) -> dict[int, Probability]:
        """Every token was certain to come: log probability 0, and nothing beside."""
        return {
            row: Probability(0.0, [(token, 0.0)])
            for row, token in enumerate(self.tokens)
        }


@dataclass(frozen=True)
class Exported:
    """An exported text: nothing but its size."""

    n: int
    nbytes: int


class ScriptedRunner:
    """Runs a `Script`; remembers what it was asked, for tests in the same process."""

    pipelined = True
    reads_together = False
    takes_along = False

    def __init__(self, script: Script, words: Words, cells: int = 0) -> None:
        self.script = script
        self.words = words
        self.kv_bytes = cells * script.kv_bytes_per_token
        self.chunks: list[tuple[int, int, int, list[int]]] = []
        self.steps: list[list[Row]] = []
        self.moves: list[Move] = []
        self.copies: list[tuple[int, int, int]] = []
        """Source slot, target slot and number of tokens."""
        self.restored: list[tuple[int, int]] = []
        self._free_at = 0.0

    def prefill(
        self, slot: int, start: int, position: int, tokens: Sequence[int]
    ) -> None:
        first = self.words.piece(tokens[0], special=True).decode("latin-1").strip()
        if position == 0 and first and first == self.script.crash:
            sys.exit(3)
        if position == 0 and first and first == self.script.fail_prefill:
            raise RuntimeError("scripted fault in prefill")
        self.chunks.append((slot, start, position, list(tokens)))
        time.sleep(self.script.prefill_seconds * len(tokens))

    def prefill_together(self, parts: Sequence[Part]) -> None:
        """One after the other, as its script tells of single prompts."""
        for part in parts:
            self.prefill(part.slot, part.start, part.position, part.tokens)

    def step(self, rows: Sequence[Row], part: Part | None = None) -> Step:
        self.steps.append(list(rows))
        began = max(self._free_at, time.monotonic())
        self._free_at = began + self.script.step_seconds
        error = None
        for row in rows:
            first = self.words.first(row.request.prompt)
            if first and first == self.script.fail_step and row.request.issued >= 3:
                error = RuntimeError("scripted fault in a step")
        return Step([self._token(row) for row in rows], self._free_at, error)

    def _token(self, row: Row) -> int:
        answer = self.words.script_ids.get(self.words.first(row.request.prompt))
        index = row.request.issued
        token = FILLER
        if answer is not None:
            token = answer[index] if index < len(answer) else EOS
        if row.allowed is None or row.allowed[token]:
            return token
        # As a model does under a grammar that forbids what it likes best.
        return int(row.allowed.argmax())

    def move(self, moves: Sequence[Move]) -> None:
        self.moves.extend(moves)

    def reusable(self, slot: int, n: int) -> int:
        return n

    def rewind(self, slot: int, n: int) -> None:
        pass

    def mark(self, slot: int, n: int) -> None:
        pass

    def copy(
        self, source: int, target: int, source_start: int, target_start: int, n: int
    ) -> None:
        self.copies.append((source, target, n))

    def export(self, slot: int, start: int, n: int) -> Exported:
        return Exported(n, n * self.script.kv_bytes_per_token)

    def forget(self, slot: int) -> None:
        """The cells of a script hold nothing."""

    def restore(self, slot: int, start: int, saved: Saved) -> None:
        self.restored.append((slot, saved.n))


class JsonFiles:
    """Texts in JSON files: the `TextFiles` of the toy model."""

    def write(
        self, folder: str, name: str, tokens: Sequence[int], saved: Saved | None
    ) -> int:
        nbytes = saved.nbytes if saved else 0
        return (Path(folder) / name).write_text(json.dumps([list(tokens), nbytes]))

    def read(
        self, folder: str, name: str, most: int
    ) -> tuple[list[int], Saved | None, int]:
        try:
            text = (Path(folder) / name).read_text()
            tokens, nbytes = json.loads(text)
        except (OSError, ValueError):
            raise Unusable("there is no such file") from None
        if len(tokens) > most:
            raise Unusable("Restored prompt does not fit in the slot context")
        return tokens, Exported(len(tokens), nbytes) if tokens else None, len(text)


def loader(script: Script) -> Callable[..., Engine]:
    """A `main.Loader` for the script."""

    def load(order: m.Load, tell: Callable[[m.Loading], None]) -> Engine:
        tell(m.Loading("loading weights", 0, 100))
        time.sleep(script.load_seconds)
        if script.fail_load:
            raise RuntimeError(script.fail_load)
        words = Words(script)
        geometry = Geometry(script.n_train, script.kv_bytes_per_token, measured=True)
        plan = make_plan(order.wish, geometry, order.memory_limit)
        info = m.ModelInfo(
            n_vocab=words.n_vocab,
            n_ctx_train=script.n_train,
            n_embd=64,
            n_params=1000,
            size=4000,
            ftype="F32",
            architecture="fake",
            chat_template=script.chat_template,
            eos_token=EOS_TEXT,
            eos_ids=(EOS,),
            device="cpu",
        )
        runner = ScriptedRunner(script, words, plan.cells)
        return Engine(words, runner, info, plan, files=JsonFiles())

    return load


def command(script: Script | None = None) -> list[str]:
    """The command line of an engine process that runs `script`.

    Run it with the repository's root as working directory.
    """
    text = json.dumps(asdict(script or Script()))
    return [sys.executable, "-m", "tests.fake", text]


def main() -> None:
    script = Script(**json.loads(sys.argv[1]))
    serve(socket.socket(fileno=int(sys.argv[3])), loader(script))


if __name__ == "__main__":
    main()
