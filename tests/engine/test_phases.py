from __future__ import annotations

from mlxceld.engine.messages import Loading
from mlxceld.engine.phases import Phases


def test_each_phase_lasts_until_the_next_is_told() -> None:
    told: list[Loading] = []
    times = iter([3.0, 3.5, 5.5, 6.0])
    phases = Phases(told.append, lambda: next(times), began=1.0)
    phases(Loading("reading the model"))
    phases(Loading("loading weights", 0, 10))
    phases(Loading("loading weights", 10, 10))
    phases(Loading("measuring the caches"))
    assert phases.end() == {
        "imports": 2.0,
        "reading": 0.5,
        "weights": 2.0,
        "measuring": 0.5,
    }
    assert [loading.done for loading in told] == [0, 0, 10, 0]


def test_what_is_no_phase_belongs_to_the_one_that_runs() -> None:
    times = iter([2.0, 7.0, 8.0])
    phases = Phases(lambda _: None, lambda: next(times), began=0.0)
    phases(Loading("no OpenBLAS found"))
    phases(Loading("fetching owner/name"))
    phases(Loading("reading the model"))
    assert phases.end() == {"imports": 2.0, "fetching": 5.0, "reading": 1.0}


def test_a_phase_that_comes_back_is_one() -> None:
    times = iter([1.0, 2.0, 4.0, 8.0])
    phases = Phases(lambda _: None, lambda: next(times), began=0.0)
    phases(Loading("reading the model"))
    phases(Loading("loading weights"))
    phases(Loading("reading the model"))
    assert phases.end() == {"imports": 1.0, "reading": 5.0, "weights": 2.0}
