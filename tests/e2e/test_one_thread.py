"""MLX belongs to one thread of one process, whoever asks for what."""

from __future__ import annotations

import sys
from pathlib import Path

import httpx

from tests.service.running import PATIENCE, daemon

WATCHED = ["eval", "async_eval", "zeros", "concatenate", "argmax", "where", "load"]

ENGINE = f"""
import sys, threading
import mlx.core as mx

seen = set()
file = open(sys.argv[1], "a", buffering=1)

def watch(name):
    real = getattr(mx, name)
    def call(*given, **named):
        line = f"{{threading.get_ident()}} {{name}}"
        if line not in seen:
            seen.add(line)
            file.write(line + "\\n")
        return real(*given, **named)
    setattr(mx, name, call)

for name in {WATCHED!r}:
    watch(name)
from mlxceld.engine.main import main
main(sys.argv[2:])
"""
"""The real engine, which writes down the threads that call MLX."""


def test_all_of_mlx_is_called_by_one_thread(model: str, tmp_path: Path) -> None:
    calls, slots = tmp_path / "calls", tmp_path / "slots"
    slots.mkdir()
    argv = ["-m", model, "-c", "1024", "-np", "2", "--mode", "llama-compat"]
    argv += ["--port", "0", "--slot-save-path", str(slots)]
    program = [sys.executable, "-c", ENGINE, str(calls)]
    with daemon(argv=argv, command=program) as one:
        http = httpx.Client(base_url=one.ready(), timeout=PATIENCE)
        prompt = list(range(20, 80))
        asked = {"prompt": prompt, "n_predict": 8, "id_slot": 0}
        schema = {"type": "object", "properties": {"a": {"type": "boolean"}}}
        for path, body in (
            ("/completion", asked),
            ("/completion", {**asked, "stream": True, "id_slot": 1}),
            ("/slots/0?action=save", {"filename": "one"}),
            ("/slots/0?action=erase", {}),
            ("/slots/0?action=restore", {"filename": "one"}),
            ("/completion", {**asked, "n_probs": 2, "grammar": 'root ::= "a"+'}),
            ("/completion", {**asked, "json_schema": schema}),
            ("/tokenize", {"content": "some words"}),
            ("/detokenize", {"tokens": [30, 31]}),
        ):
            reply = http.post(path, json=body)
            assert reply.status_code == 200, reply.text
        maps = Path(f"/proc/{one.process.pid}/maps")
        if maps.exists():
            assert "libmlx" not in maps.read_text()
        http.close()
    lines = [line.split() for line in calls.read_text().splitlines()]
    assert {"eval", "async_eval"} <= {name for _, name in lines}
    assert len({thread for thread, _ in lines}) == 1
