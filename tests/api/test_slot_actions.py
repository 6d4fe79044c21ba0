"""POST /slots/{id}?action=...: bodies and errors as llama-server has them."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from mlxceld.api.slot_actions import valid_name
from tests import fake
from tests.api.serving import SETTINGS, Served, serve

PROMPT = "a b c d e f"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("slots")


@pytest.fixture(scope="module")
def saving(folder: Path) -> Iterator[Served]:
    """Four slots of 1024 tokens; a step takes 5 ms."""
    server = dataclasses.replace(SETTINGS.server, slot_save_path=str(folder))
    settings = dataclasses.replace(SETTINGS, server=server)
    with serve(fake.Script(step_seconds=0.005), settings=settings) as running:
        yield running


def ask(server: Served, slot: int, prompt: str = PROMPT, n: int = 4) -> httpx.Response:
    body = {"prompt": prompt, "n_predict": n, "id_slot": slot}
    reply = server.post("/completion", body)
    assert reply.status_code == 200, reply.text
    return reply


def act(
    server: Served, slot: object, action: str, body: object = None
) -> httpx.Response:
    path = f"/slots/{slot}?action={action}"
    if body is None:
        return server.http.post(path)
    return server.post(path, body)


def error(reply: httpx.Response, code: int = 400) -> str:
    """The message of an error in the one shape that errors have."""
    assert reply.status_code == code, reply.text
    found = reply.json()["error"]
    kinds = {400: "invalid_request_error", 500: "server_error"}
    assert (found["code"], found["type"]) == (
        code,
        kinds.get(code, "not_supported_error"),
    )
    message: str = found["message"]
    return message


def test_save_erase_restore_and_go_on(saving: Served, folder: Path) -> None:
    """6 prompt tokens and an answer of 4, whose last one the slot has not read."""
    ask(saving, 0)
    reply = act(saving, 0, "save", {"filename": "one.bin"})
    assert reply.status_code == 200
    body = reply.json()
    assert body["timings"].pop("save_ms") >= 0
    size = (folder / "one.bin").stat().st_size
    assert body == {
        "id_slot": 0,
        "filename": "one.bin",
        "n_saved": 9,
        "n_written": size,
        "timings": {},
    }
    assert act(saving, 0, "erase").json() == {"id_slot": 0, "n_erased": 9}
    assert act(saving, 0, "erase", {}).json() == {"id_slot": 0, "n_erased": 0}
    body = act(saving, 2, "restore", {"filename": "one.bin"}).json()
    assert body["timings"].pop("restore_ms") >= 0
    assert body == {
        "id_slot": 2,
        "filename": "one.bin",
        "n_restored": 9,
        "n_read": size,
        "timings": {},
    }
    assert ask(saving, 2, f"{PROMPT} g").json()["timings"]["cache_n"] == 6


def test_an_empty_slot_can_be_saved(saving: Served) -> None:
    act(saving, 3, "erase")
    assert act(saving, 3, "save", {"filename": "none"}).json()["n_saved"] == 0


def test_without_a_folder_nothing_is_served(served: Served) -> None:
    wanted = (
        "This server does not support slots action. Start it with `--slot-save-path`"
    )
    for action in ("save", "restore", "erase"):
        assert error(act(served, 0, action, {"filename": "a"}), 501) == wanted


@pytest.mark.parametrize("slot", ["abc", "1.5", "%20", "0x1", "1e1"])
def test_what_is_no_number_is_no_slot(slot: str, saving: Served) -> None:
    assert error(act(saving, slot, "erase")) == "Invalid slot ID"


@pytest.mark.parametrize("slot", [-1, 4, 99])
def test_a_slot_that_is_not_there_is_refused(slot: int, saving: Served) -> None:
    assert error(act(saving, slot, "erase")) == (
        f"Invalid slot ID: {slot} is not one of the slots 0 to 3"
    )


def test_an_unknown_action_or_none_is_refused(saving: Served) -> None:
    assert error(act(saving, 0, "zzz", {})) == "Invalid action"
    assert error(saving.post("/slots/0", {})) == "Invalid action"
    assert saving.get("/slots/0").status_code == 404


def test_a_body_without_a_usable_name_is_refused(saving: Served) -> None:
    assert error(act(saving, 0, "save", {})) == "Field 'filename': it is missing"
    assert "must be a string" in error(act(saving, 0, "save", {"filename": 3}))
    assert "parse error" in error(act(saving, 0, "restore"))
    assert "JSON object" in error(act(saving, 0, "save", []))


@pytest.mark.parametrize(
    "name",
    [
        *("", ".", "..", "../x.bin", "a/b", "a\\b", "/etc/passwd", "a:b", "a*", "a?"),
        *('"', "a<", ">a", "a|b", "a\x00b", "a\nb", "a\x7f", "a\x85", " a", "a ", "a."),
        *("x" * 256, "한" * 86),
    ],
)
def test_a_name_that_could_lead_anywhere_else_is_refused(
    name: str, saving: Served, folder: Path
) -> None:
    before = sorted(folder.iterdir())
    assert error(act(saving, 0, "save", {"filename": name})) == "Invalid filename"
    assert error(act(saving, 0, "restore", {"filename": name})) == "Invalid filename"
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize("name", ["a", ".hidden", "a b", "x" * 255, "한" * 85, "a..b"])
def test_other_names_are_names(name: str) -> None:
    assert valid_name(name)


def test_a_failed_restore_says_why_and_leaves_the_slot_empty(saving: Served) -> None:
    ask(saving, 1)
    message = error(act(saving, 1, "restore", {"filename": "nothing"}))
    assert message == "Unable to restore slot: there is no such file"
    assert act(saving, 1, "erase").json()["n_erased"] == 0
    ask(saving, 1)


def test_a_failed_save_is_an_error_of_the_server(saving: Served, folder: Path) -> None:
    (folder / "taken").mkdir()
    message = error(act(saving, 1, "save", {"filename": "taken"}), 500)
    assert message == "Unable to save slot: Is a directory"


def test_an_action_waits_for_a_busy_slot_while_others_go_on(saving: Served) -> None:
    """200 tokens of 5 ms: a second in which the slot is busy."""
    thread = threading.Thread(target=ask, args=(saving, 0, "long", 200))
    thread.start()
    saving.until(lambda: saving.slots()[0]["is_processing"])
    assert act(saving, 1, "erase").status_code == 200
    assert saving.slots()[0]["is_processing"]
    assert act(saving, 0, "erase").json()["n_erased"] == 200
    thread.join()


def test_a_client_that_leaves_takes_its_action_back(saving: Served) -> None:
    thread = threading.Thread(target=ask, args=(saving, 0, "longer", 120))
    thread.start()
    saving.until(lambda: saving.slots()[0]["is_processing"])
    with pytest.raises(httpx.ReadTimeout):
        saving.http.post("/slots/0?action=erase", timeout=0.1)
    thread.join()
    assert act(saving, 0, "save", {"filename": "left"}).json()["n_saved"] == 120
