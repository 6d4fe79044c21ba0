"""Saved slots outlive the daemon, and a damaged file does it no harm."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.server import Server, command, run

PROMPT = [20 + i % 90 for i in range(120)]


def ask(server: Server, slot: int = -1) -> tuple[str, int]:
    """The answer to the prompt and a little more, and how much of it was cached."""
    body = {
        "prompt": [*PROMPT, 33, 34],
        "n_predict": 8,
        "temperature": 0,
        "id_slot": slot,
        "ignore_eos": True,
    }
    reply = server.answer("/completion", body)
    return reply["content"], reply["timings"]["cache_n"]


def act(server: Server, slot: int, action: str, name: str = "one") -> tuple[int, str]:
    """Status and body of a slot action."""
    reply = server.post(f"/slots/{slot}?action={action}", {"filename": name})
    return reply.status_code, reply.text


def test_a_saved_slot_outlives_the_daemon(model: str, tmp_path: Path) -> None:
    flags = ("-m", model, "-c", "1024", "-np", "2", "--mode", "llama-compat")
    saving = (*flags, "--slot-save-path", str(tmp_path))
    with command(*saving) as one:
        one.ready()
        wanted, cached = ask(one, 0)
        assert cached == 0
        assert act(one, 0, "save")[0] == 200
    assert (tmp_path / "one").stat().st_mode & 0o777 == 0o600
    whole = (tmp_path / "one").read_bytes()
    with command(*saving, "--cache-ram", "0") as one:
        one.ready()
        assert act(one, 1, "restore")[0] == 200
        assert ask(one) == (wanted, 121)
        for damaged in (whole[: len(whole) // 2], b"", b"\xff" * 1000):
            (tmp_path / "bad").write_bytes(damaged)
            status, text = act(one, 1, "restore", "bad")
            assert status == 400
            assert "Unable to restore slot" in text
        assert ask(one, 1) == (wanted, 0)


def test_a_folder_that_is_none_is_found_at_the_start(
    model: str, tmp_path: Path
) -> None:
    status, _, err = run("-m", model, "--slot-save-path", str(tmp_path / "none"))
    assert status == 78
    assert "slot_save_path is not a directory" in err
