"""Who hears of a default that will change, and what."""

from __future__ import annotations

import pytest

from mlxceld.flips import FLIPS, after, announcements, happened, version_key
from mlxceld.options import BY_KEY
from mlxceld.plan import Geometry, Wish

UNSET: dict[str, bool] = {}
MODEL = Geometry(n_ctx_train=8192)


def test_a_divided_context_is_announced_with_both_plans_and_what_to_write() -> None:
    (found,) = announcements(Wish(ctx_size=4096, parallel=4), UNSET, MODEL)
    assert found.weight == "warning"
    assert found.lines == (
        "engine.mode is not set: its default changes from legacy to llama-compat in "
        "version 1.0",
        "now: 4 slots of 4096 tokens each, 16384 in all (mode legacy); then: 4 slots "
        "of 1024 tokens each, 4096 in all (mode llama-compat)",
        'write `engine.mode = "legacy"` to keep today\'s meaning, or `engine.mode = '
        '"llama-compat"` to adopt the new one now',
    )


def test_a_share_below_the_floor_is_announced_as_refused() -> None:
    (found,) = announcements(Wish(ctx_size=2048, parallel=5), UNSET, MODEL)
    assert found.weight == "warning"
    assert found.then.startswith("refused, because ctx_size 2048 divided by parallel 5")


@pytest.mark.parametrize(
    "wish",
    [
        Wish(ctx_size=4096, parallel=1),
        Wish(parallel=4),
        Wish(ctx_size=0, parallel=4),
        # Both modes end at the training length of the model.
        Wish(ctx_size=32768, parallel=2),
    ],
)
def test_nobody_is_told_of_a_flip_that_changes_nothing(wish: Wish) -> None:
    assert announcements(wish, UNSET, MODEL) == []


def test_who_sets_the_mode_is_not_told() -> None:
    wish = Wish(ctx_size=4096, parallel=4)
    assert announcements(wish, {"engine.mode": True}, MODEL) == []


@pytest.mark.parametrize("wish", [Wish(ctx_size=4096), Wish()])
def test_one_slot_that_becomes_four_sharing_the_same_is_only_a_note(wish: Wish) -> None:
    (found,) = announcements(wish, UNSET, MODEL)
    assert found.weight == "note"
    assert "4 slots share" in found.then


def test_auto_slots_of_a_whole_context_each_are_worth_a_warning() -> None:
    (found,) = announcements(Wish(ctx_size=4096, parallel=-1), UNSET, MODEL)
    assert found.weight == "warning"
    assert found.then.startswith("4 slots share 4096 tokens")


def test_a_wish_that_is_refused_today_announces_nothing() -> None:
    wish = Wish(ctx_size=4096, parallel=4, kv_unified=True)
    assert announcements(wish, UNSET, MODEL) == []
    assert announcements(Wish(), UNSET, None) == []


def test_flips_are_about_options_and_their_values() -> None:
    assert len({flip.id for flip in FLIPS}) == len(FLIPS)
    for flip in FLIPS:
        kind = BY_KEY[flip.option].kind
        for sentence in (flip.text, flip.before, flip.after):
            assert sentence[:1].islower()
            assert not sentence.endswith(".")
        for value in (flip.old, flip.new):
            assert kind.render(kind.parse(value.strip('"'))) == value


@pytest.mark.parametrize(
    ("version", "count"),
    [("", 1), ("0.9.9", 0), ("1.0", 1), ("v1", 1), ("1.0.0", 1), ("1.1", 1), ("2", 1)],
)
def test_a_flip_has_happened_from_its_version_on(version: str, count: int) -> None:
    assert len(happened(version)) == count


def test_versions_are_compared_as_numbers() -> None:
    assert version_key("0.10") > version_key("0.9.5")
    assert version_key("v1.0") == version_key("1") == (1,)
    assert version_key("0.0.30") == (0, 0, 30)


@pytest.mark.parametrize(
    "text", ["", "one", "1.x", "1..0", "-1", "1.0-rc1", "1.2.3.4.5"]
)
def test_a_text_that_is_no_version_is_named(text: str) -> None:
    with pytest.raises(ValueError, match="wanted a version such as `1.0`"):
        version_key(text)


def test_only_what_nobody_says_flips() -> None:
    wish = Wish(ctx_size=4096, parallel=4)
    assert after(wish, UNSET).mode == "llama-compat"
    assert after(wish, UNSET, "0.9").mode == "legacy"
    assert after(wish, {"engine.mode": True}).mode == "legacy"
