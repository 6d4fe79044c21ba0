"""The window of a request is one number, wherever it is told and when it is used."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.houses import Facts, House, examine_all
from tests.e2e.server import run

KV_BYTES = 128
"""For each token of the model: a key and a value of 16 numbers of 4 bytes."""

COMPAT = "--mode llama-compat"
PER_SEQ = "--mode per-seq --ctx-size-per-seq"


def variables(**values: str) -> tuple[tuple[str, str], ...]:
    return tuple((f"LLAMA_ARG_{name}", value) for name, value in values.items())


# Slots, slot context and pool are worked out by hand. T is 8192.
FAR = House(f"{COMPAT} -c 40000 -np 4", 4, 8192, 32768)
FAR_SHARED = House(
    COMPAT,
    2,
    8192,
    16384,
    shared=True,
    env=variables(N_PARALLEL="2", CTX_SIZE="20000", KV_UNIFIED=" true "),
)
HOUSES = [
    House("--mode legacy -c 4096 -np 1", 1, 4096, 4096),
    House("--mode legacy -c 4096 -np 4", 4, 4096, 16384),
    House("--mode legacy -c 8192 -np 3", 3, 8192, 24576),
    House("--mode legacy -c 2048 -np 3", 3, 2048, 6144),
    House("--mode legacy -c 1000 -np 1", 1, 1000, 1000),
    House(f"{COMPAT} -c 4096 -np 4", 4, 1024, 4096),
    House(f"{COMPAT} -c 8192 -np 3", 3, 2730, 8192),
    House(f"{COMPAT} -c 2048 -np 3", 3, 682, 2048),
    House(f"{PER_SEQ} 4096 -np 1", 1, 4096, 4096),
    House(f"{PER_SEQ} 4096 -np 4", 4, 4096, 16384),
    House(f"{PER_SEQ} 1000 -c 8192 -np 3", 3, 1000, 3000),
    House(f"{PER_SEQ} 1024 -c 3000 -kvu", 4, 1024, 3000, shared=True),
    # One slot is a number of slots, whoever says it; llama-compat has four otherwise.
    House(f"{COMPAT} -c 4096", 1, 4096, 4096, env=variables(N_PARALLEL="1")),
    House(COMPAT, 1, 1000, 1000, toml="[engine]\nparallel = 1\nctx_size = 1_000\n"),
    # The number of slots: unset, blank and auto.
    House("-c 4096", 1, 4096, 4096),
    House("--mode legacy -c 2048 -np -1", 4, 2048, 8192),
    House(
        COMPAT,
        4,
        4096,
        4096,
        shared=True,
        env=variables(N_PARALLEL=" ", CTX_SIZE="4096 ", KV_UNIFIED=""),
    ),
    House(
        f"{COMPAT} -c 4096",
        4,
        1024,
        4096,
        env=variables(N_PARALLEL="-1", KV_UNIFIED="off"),
    ),
    # The context: unset, 0, and above what the model was trained for.
    House("-np 2", 2, 8192, 16384),
    House(f"{COMPAT} -np 3", 3, 8192, 24576, env=variables(CTX_SIZE="0")),
    FAR,
    FAR_SHARED,
    # For the memory.
    House(f"{COMPAT} -c 8192 -np 1", 1, 8192, 8192),
    House(f"{COMPAT} -c 8192 -np 2", 2, 4096, 8192),
    House(f"{COMPAT} -c 8192 -np 4", 4, 2048, 8192),
    House(f"{COMPAT} -c 8192 -np 8", 8, 1024, 8192),
]
BY_FLAGS = {str(house): house for house in HOUSES}

# The first test waits for all the daemons.
pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def facts(
    long_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[House, Facts]:
    return examine_all(HOUSES, long_model, tmp_path_factory.mktemp("houses"))


every_house = pytest.mark.parametrize("house", HOUSES, ids=str)


@every_house
def test_every_place_tells_the_same_window_and_the_engine_keeps_to_it(
    facts: dict[House, Facts], house: House
) -> None:
    found = facts[house]
    assert found.slots == house.slots
    # The log, /props, /v1/models, a refusal, and every slot.
    assert len(found.windows) == 4 + house.slots
    assert set(found.windows.values()) == {house.n_ctx}, found.windows
    assert found.pools == {house.pool}
    assert found.shared == {house.shared}
    # One place is kept for the first token of the answer.
    assert found.longest == house.n_ctx - 1
    assert found.refusal["type"] == "exceed_context_size_error"
    assert found.refusal["n_prompt_tokens"] == house.n_ctx


@every_house
def test_the_plan_is_told_in_the_log(facts: dict[House, Facts], house: House) -> None:
    if house.slots == 1:
        words = f"1 slot of {house.n_ctx} tokens (mode "
    elif house.shared:
        words = (
            f"{house.slots} slots share {house.pool} tokens; one request may use up "
            f"to {house.n_ctx} (mode "
        )
    else:
        words = (
            f"{house.slots} slots of {house.n_ctx} tokens each, {house.pool} in all "
            "(mode "
        )
    assert facts[house].log.startswith(words)


@pytest.mark.parametrize(
    ("house", "above"), [(FAR, 10000), (FAR_SHARED, 20000)], ids=str
)
def test_a_window_above_the_training_length_is_lowered_with_a_warning(
    facts: dict[House, Facts], house: House, above: int
) -> None:
    (warning,) = facts[house].warnings
    assert f"{above} is above the training length 8192" in warning


def test_a_window_that_is_served_as_asked_warns_of_nothing(
    facts: dict[House, Facts],
) -> None:
    assert facts[BY_FLAGS[f"{COMPAT} -c 8192 -np 3"]].warnings == ()


@every_house
def test_full_slots_take_no_more_memory_than_planned(
    facts: dict[House, Facts], house: House
) -> None:
    found = facts[house]
    assert found.kv_bytes_plan == house.pool * KV_BYTES
    assert 0 < found.kv_bytes <= found.kv_bytes_plan


def test_llama_compat_takes_the_same_memory_for_1_2_4_and_8_slots(
    facts: dict[House, Facts],
) -> None:
    for slots in (1, 2, 4, 8):
        found = facts[BY_FLAGS[f"{COMPAT} -c 8192 -np {slots}"]]
        assert abs(found.kv_bytes - 8192 * KV_BYTES) <= 0.02 * 8192 * KV_BYTES


@pytest.mark.parametrize("flags", ["--mode legacy -c 4096", f"{PER_SEQ} 4096"])
def test_legacy_and_per_seq_take_four_times_the_memory_for_four_slots(
    facts: dict[House, Facts], flags: str
) -> None:
    one, four = (facts[BY_FLAGS[f"{flags} -np {n}"]].kv_bytes for n in (1, 4))
    assert one == 4096 * KV_BYTES
    assert four == 4 * one


@pytest.mark.parametrize(
    ("ctx_size", "parallel", "share", "enough", "fewer"),
    [
        # Five slots of at least 512 tokens need 2560; 2048 do for four of them.
        (2048, 5, 409, 2560, 4),
        (1536, 6, 256, 3072, 3),
    ],
)
def test_a_share_below_the_floor_is_refused_with_both_ways_out(
    long_model: Path, ctx_size: int, parallel: int, share: int, enough: int, fewer: int
) -> None:
    flags = f"--port 0 {COMPAT} -c {ctx_size} -np {parallel}"
    status, _, said = run("-m", str(long_model), *flags.split())
    assert status == 78
    for words in (
        f"ctx_size {ctx_size}",
        f"parallel {parallel}",
        f"{share} tokens",
        "min_slot_ctx 512",
        f"raise ctx_size to at least {enough}",
        f"lower parallel to {fewer} or less",
    ):
        assert words in said
