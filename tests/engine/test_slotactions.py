"""Save, restore and erase: when the slot is idle, and never half."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from mlxceld.engine import messages as m
from mlxceld.engine.room import Scattered
from mlxceld.engine.runner import Saved, Unusable
from mlxceld.engine.scheduler import Limits, Scheduler
from mlxceld.engine.spans import Move
from mlxceld.plan import Plan
from tests.engine.driving import Bench, CellRunner, shared, solo, split

GREEDY = m.Sampling(ignore_eos=True)
FIRST, OTHER = [5, 9, 13, 4, 8, 2, 7, 3] * 5, [11, 12] * 20


class Shelf:
    """Files in a dictionary."""

    def __init__(self) -> None:
        self.files: dict[str, tuple[list[int], Saved | None]] = {}
        self.broken: Exception | None = None

    def write(
        self, folder: str, name: str, tokens: Sequence[int], saved: Saved | None
    ) -> int:
        if self.broken:
            raise self.broken
        self.files[folder + name] = list(tokens), saved
        return 100 + len(tokens)

    def read(
        self, folder: str, name: str, most: int
    ) -> tuple[list[int], Saved | None, int]:
        if self.broken:
            raise self.broken
        if folder + name not in self.files:
            raise Unusable("there is no such file")
        tokens, saved = self.files[folder + name]
        return tokens, saved, 100 + len(tokens)


class Desk(Bench):
    """A bench whose slots can be saved."""

    def __init__(
        self, plan: Plan, *, trimmable: bool = True, files: bool = True
    ) -> None:
        self.runner = CellRunner(plan.cells, pipelined=True, trimmable=trimmable)
        super().__init__(plan, runner=self.runner)
        self.files = Shelf()
        self.scheduler = Scheduler(
            plan,
            self.words,
            self.runner,
            self.said.append,
            limits=Limits(prefill_chunk=16),
            clock=self.clock,
            files=self.files if files else None,
        )

    def act(self, slot: int, action: Any, name: str = "a") -> int:
        """Send an action; its id."""
        self._ids += 1
        self.scheduler.act(m.SlotAction(self._ids, slot, action, "/x/", name))
        return self._ids

    def did(self, slot: int, action: Any, name: str = "a") -> Any:
        """What an action is answered with."""
        id_ = self.act(slot, action, name)
        self.run()
        [answer] = self.of(id_)
        return answer

    def held(self, slot: int) -> int:
        return self.scheduler.snapshot().slots[slot].n_held

    def ask_it(self, prompt: list[int], **fields: Any) -> m.Done:
        """An answer of five tokens, which must be the one that it gets alone."""
        done = self.answer(prompt, n_predict=5, sampling=GREEDY, **fields)
        assert self.tokens(done.id) == solo(prompt, 5, ignore_eos=True)
        return done


def words_of(failed: Any) -> tuple[int, str]:
    assert isinstance(failed, m.Failed)
    return failed.code, failed.message


@pytest.mark.parametrize("plan", [split(2, 128), shared(2, 200)], ids=["own", "shared"])
@pytest.mark.parametrize("trimmable", [True, False])
def test_a_saved_text_goes_on_in_another_slot(plan: Plan, trimmable: bool) -> None:
    """40 tokens and an answer of 5, the last not read: 44; state only after 39."""
    desk = Desk(plan, trimmable=trimmable)
    kept = 44 if trimmable else 39
    desk.ask_it(FIRST, id_slot=0)
    saved = desk.did(0, "save")
    assert (saved.n_tokens, saved.n_bytes) == (kept, 100 + kept)
    assert desk.did(0, "erase").n_tokens == 44
    assert desk.held(0) == 0
    assert desk.did(0, "erase").n_tokens == 0
    desk.ask_it(OTHER, id_slot=1)
    restored = desk.did(1, "restore")
    assert (restored.n_tokens, restored.n_bytes) == (kept, 100 + kept)
    assert desk.held(1) == kept
    done = desk.ask_it([*FIRST, 6])
    assert (done.slot, done.n_cached) == (1, 40 if trimmable else 39)


def test_an_action_waits_for_a_busy_slot_and_comes_before_the_next_request() -> None:
    desk = Desk(split(1, 128))
    first = desk.ask(FIRST, n_predict=20, sampling=GREEDY)
    second = desk.ask(FIRST, n_predict=5, sampling=GREEDY)
    desk.turn(5)
    action = desk.act(0, "erase")
    desk.turn(3)
    assert desk.scheduler.busy
    assert not desk.of(action)
    desk.run()
    ends = [e.id for e in desk.said if isinstance(e, m.Done | m.SlotDone)]
    assert ends == [first, action, second]
    assert desk.done(second).n_cached == 0


def test_other_slots_need_not_wait() -> None:
    desk = Desk(split(2, 128))
    busy = desk.ask(FIRST, n_predict=60, sampling=GREEDY, id_slot=0)
    desk.turn(5)
    waiting = desk.act(0, "save")
    idle = desk.act(1, "save", "b")
    desk.turn()
    assert desk.of(idle)
    assert not desk.of(waiting)
    assert not desk.ended(busy)


def test_an_action_that_nobody_waits_for_is_forgotten() -> None:
    desk = Desk(split(1, 128))
    desk.ask(FIRST, n_predict=20, sampling=GREEDY)
    desk.turn(3)
    action = desk.act(0, "erase")
    desk.scheduler.cancel(action)
    desk.run()
    assert not desk.of(action)
    assert desk.held(0) == 59


@pytest.mark.parametrize("slot", [-1, 2, 99])
def test_a_slot_that_is_none_is_refused(slot: int) -> None:
    code, text = words_of(Desk(split(2, 128)).did(slot, "erase"))
    assert code == 400
    assert text == f"Invalid slot ID: {slot} is not one of the slots 0 to 1"


def test_a_restore_that_fails_leaves_the_slot_empty_and_usable() -> None:
    desk = Desk(split(1, 128))
    desk.ask_it(FIRST)
    failed = desk.did(0, "restore", "nothing")
    assert words_of(failed) == (400, "Unable to restore slot: there is no such file")
    assert desk.held(0) == 0
    desk.ask_it(FIRST)


def test_tokens_that_the_model_does_not_know_are_refused() -> None:
    desk = Desk(split(1, 128))
    desk.ask_it(FIRST)
    desk.did(0, "save")
    tokens, saved = desk.files.files["/x/a"]
    desk.files.files["/x/a"] = [*tokens[:-1], 10_000_000], saved
    code, text = words_of(desk.did(0, "restore"))
    assert (code, text) == (
        400,
        "Unable to restore slot: Invalid tokens in slot save file",
    )
    assert desk.held(0) == 0


def test_a_restore_takes_no_cells_from_running_requests() -> None:
    """44 saved tokens do not fit beside 40 and their answer in 80 cells."""
    desk = Desk(shared(2, 80))
    desk.ask_it(FIRST, id_slot=0)
    desk.did(0, "save")
    desk.did(0, "erase")
    running = desk.ask(OTHER, n_predict=10, sampling=GREEDY, id_slot=1)
    desk.turn(4)
    action = desk.act(0, "restore")
    desk.run()
    [failed] = desk.of(action)
    assert words_of(failed) == (
        400,
        "Unable to restore slot: No available space in KV cache",
    )
    assert desk.held(0) == 0
    assert desk.tokens(running) == solo(OTHER, 10, ignore_eos=True)
    assert desk.did(0, "restore").n_tokens == 44


def test_cells_that_were_half_moved_end_the_engine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whose they are is told by a map that is wrong now: nobody may go on with it."""
    desk = Desk(shared(2, 120))
    desk.ask_it(FIRST, id_slot=0)
    desk.did(0, "save")
    desk.did(0, "erase")
    desk.ask(OTHER, n_predict=20, sampling=GREEDY, id_slot=1)
    desk.turn(5)
    desk.act(0, "restore")

    def short(_moves: Sequence[Move]) -> None:
        raise MemoryError

    monkeypatch.setattr(desk.runner, "move", short)
    with pytest.raises(Scattered):
        desk.run()


def test_a_full_disk_is_an_error_of_the_server_and_the_slot_stays() -> None:
    desk = Desk(split(1, 128))
    desk.ask_it(FIRST)
    desk.files.broken = OSError(28, "No space left on device")
    failed = desk.did(0, "save")
    assert words_of(failed) == (500, "Unable to save slot: No space left on device")
    assert desk.held(0) == 44
    desk.ask_it([*FIRST, 3])


def test_an_error_never_repeats_what_might_be_a_prompt() -> None:
    desk = Desk(split(1, 128))
    desk.files.broken = RuntimeError("something with the prompt in it")
    assert words_of(desk.did(0, "save")) == (500, "Unable to save slot: RuntimeError")


def test_without_files_a_save_is_refused() -> None:
    desk = Desk(split(1, 128), files=False)
    code, _ = words_of(desk.did(0, "save"))
    assert code == 400
    assert desk.did(0, "erase").n_tokens == 0


def test_an_empty_slot_can_be_saved_and_restored() -> None:
    desk = Desk(split(2, 128))
    assert desk.did(0, "save").n_tokens == 0
    desk.ask_it(FIRST, id_slot=1)
    assert desk.did(1, "restore").n_tokens == 0
    assert desk.held(1) == 0


def test_what_a_restore_displaces_is_kept_in_ram() -> None:
    plan = replace(split(1, 128), cache_ram_bytes=1000, kv_bytes_per_token=1)
    desk = Desk(plan)
    desk.ask_it(FIRST)
    desk.did(0, "save")
    desk.did(0, "erase")
    desk.ask_it(OTHER)
    desk.did(0, "restore")
    assert desk.ask_it([*OTHER, 3]).n_cached == 40
    assert desk.ask_it([*FIRST, 3]).n_cached == 40


def test_a_restored_slot_is_not_the_first_to_be_taken() -> None:
    desk = Desk(split(3, 128))
    for slot in range(3):
        desk.ask_it([30 + slot] * 40, id_slot=slot)
    desk.ask_it(FIRST, id_slot=0)
    desk.did(0, "save")
    desk.ask_it([33] * 40, id_slot=1)
    desk.ask_it([34] * 40, id_slot=2)
    desk.did(0, "restore")
    assert desk.ask_it(OTHER).slot == 1
