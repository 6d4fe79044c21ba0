from __future__ import annotations

from mlxceld.service.starting import Stopwatch, words


def test_the_phases_of_a_start_add_up_to_the_whole() -> None:
    times = iter([1.5, 6.0, 6.25])
    watch = Stopwatch(lambda: next(times), began=1.0)
    watch.engine_starts()
    watch.engine_ready()
    # The engine's process took 4.5 seconds, of which it counted four.
    seconds = watch.ends({"imports": 1.0, "weights": 3.0})
    assert seconds == {
        "front": 0.5,
        "engine": 0.5,
        "imports": 1.0,
        "weights": 3.0,
        "serving": 0.25,
        "total": 5.25,
    }


def test_a_later_start_begins_with_the_engine() -> None:
    times = iter([2.0, 3.0, 3.0, 100.0, 104.0, 104.0])
    watch = Stopwatch(lambda: next(times), began=1.0)
    watch.engine_starts()
    watch.engine_ready()
    watch.ends({})
    watch.engine_starts()
    watch.engine_ready()
    assert watch.ends({"imports": 3.0}) == {
        "engine": 1.0,
        "imports": 3.0,
        "serving": 0.0,
        "total": 4.0,
    }


def test_clocks_that_disagree_give_no_negative_time() -> None:
    times = iter([1.0, 2.0, 2.0])
    watch = Stopwatch(lambda: next(times), began=0.0)
    watch.engine_starts()
    watch.engine_ready()
    assert watch.ends({"imports": 1.5})["engine"] == 0.0


def test_the_words_name_every_phase() -> None:
    said = words({"front": 0.5, "imports": 1.25, "total": 1.75})
    assert said == "ready after 1.75 s: front 0.50, imports 1.25"
