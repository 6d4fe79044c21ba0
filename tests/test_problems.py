"""One problem is one line, with a hint below it where there is one."""

from __future__ import annotations

import pytest

from mlxceld.problems import Problem, Refused


def test_a_problem_says_where_and_what() -> None:
    problem = Problem("parallel is 0", where="mlxcel.toml:12")
    assert problem.render() == "mlxcel.toml:12: parallel is 0"


def test_a_problem_that_belongs_to_no_place_starts_with_what_is_wrong() -> None:
    assert Problem("parallel is 0").render() == "parallel is 0"


def test_a_hint_has_a_line_of_its_own() -> None:
    problem = Problem("parallel is 0", "--parallel", "give the number of slots")
    assert problem.render() == (
        "--parallel: parallel is 0\n  hint: give the number of slots"
    )


def test_a_refusal_holds_every_problem_in_its_order() -> None:
    first, second = Problem("one", "a:1"), Problem("two", "a:2", "mend it")
    refused = Refused(problem for problem in (first, second))
    assert refused.problems == (first, second)
    assert str(refused) == "a:1: one\na:2: two\n  hint: mend it"


def test_a_problem_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        Problem("one").what = "two"  # type: ignore[misc]
