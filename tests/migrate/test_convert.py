"""A set-up is carried over: what it gets today, then, and after the migration."""

from __future__ import annotations

import os

import pytest

from mlxceld.migrate.convert import needs_change
from mlxceld.plan import Geometry
from mlxceld.problems import Refused
from tests.migrate.setups import (
    LLAMA,
    MLX_LM,
    OURS,
    carried,
    line,
    numbers,
    toml,
    variables,
    words,
)

FLIPPED = (
    "engine.mode: every slot gets the whole context before; the slots divide the "
    "context, or share it where nobody counts them after"
)

# ---- llama-server ----


def test_llama_servers_numbers_keep_their_meaning() -> None:
    result = carried(words("-m /m.gguf -c 8192 -np 3 --port 9000"))
    assert result.values == {
        "model.path": "/m.gguf",
        "engine.mode": "llama-compat",
        "engine.ctx_size": 8192,
        "engine.parallel": 3,
        "server.port": 9000,
    }
    assert list(result.values) == [
        "model.path",
        "engine.mode",
        "engine.ctx_size",
        "engine.parallel",
        "server.port",
    ]
    for outcome in (result.today, result.flipped, result.migrated):
        assert numbers(outcome) == (3, 2730, 8192, False)
    assert result.pinned == {"engine.mode"}
    assert result.review == ()


def test_it_is_said_where_llama_server_rounds_up() -> None:
    # 8192 / 3 is 2730; llama-server makes it 2816, a multiple of 256.
    assert carried(words("-c 8192 -np 3")).changes == (
        "llama-server rounds up to a multiple of 256: one request may use 2816 tokens "
        "there, 2730 here",
    )
    assert carried(words("-c 8192 -np 4")).changes == ()
    assert "1024 tokens there, 1000 here" in carried(words("-c 1000")).changes[0]
    model = Geometry(n_ctx_train=512)
    assert carried(words("-c 1000"), geometry=model).changes == ()


def test_slots_that_nobody_counted_are_four_that_share() -> None:
    for text in ("-c 8192", "-c 8192 -np -1"):
        assert numbers(carried(words(text)).migrated) == (4, 8192, 8192, True)


def test_one_slot_that_was_asked_for_stays_one() -> None:
    flag = words("-c 8192 -np 1")
    variable = words("-c 8192", env={"LLAMA_ARG_N_PARALLEL": "1"})
    for found in (flag, variable):
        result = carried(found)
        assert result.values["engine.parallel"] == 1
        assert numbers(result.migrated) == (1, 8192, 8192, False)


def test_llama_server_shares_auto_slots_even_when_told_not_to() -> None:
    result = carried(words("-c 8192 --no-kv-unified"))
    assert "engine.kv_unified" not in result.values
    assert line(result, "--no-kv-unified").fate == "ignored"
    assert numbers(result.migrated) == (4, 8192, 8192, True)
    twice = carried(words("-c 8192 --no-kv-unified --no-kv-unified"))
    assert [one.fate for one in twice.lines] == ["kept", "ignored", "ignored", "pinned"]
    split = carried(words("-c 8192 -np 2 --no-kv-unified"))
    assert split.values["engine.kv_unified"] is False


def test_a_share_that_is_refused_here_asks_for_a_person() -> None:
    result = carried(words("-c 600 -np 4"))
    (review,) = result.review
    assert review.why == (
        "refused: ctx_size 600 divided by parallel 4 leaves 150 tokens for a slot, "
        "less than min_slot_ctx 512; llama-server gives every slot 256 tokens, as "
        "ctx_size = 1024 and min_slot_ctx = 256 does here"
    )


def test_a_cap_for_one_request_is_carried_over() -> None:
    env = {
        "LLAMA_ARG_CTX_SIZE": "131072",
        "LLAMA_ARG_N_PARALLEL": "4",
        "LLAMA_ARG_KV_UNIFIED_PER_SLOT": "32768",
    }
    result = carried(words("--ctx-size 65536", kind="compose", env=env))
    assert result.values["engine.ctx_size"] == 65536
    assert result.values["engine.ctx_size_per_seq"] == 32768
    lost = line(result, "LLAMA_ARG_CTX_SIZE=131072")
    assert (lost.fate, lost.why) == ("ignored", "`--ctx-size 65536` counts instead")
    assert lost.place.line == 1
    assert numbers(result.migrated) == (4, 16384, 65536, False)


def test_adopting_changes_nothing_for_llama_server() -> None:
    kept, adopted = (carried(words("-c 8192 -np 4"), adopt=a) for a in (False, True))
    assert kept.values == adopted.values


# ---- the daemon itself and its predecessor ----


def test_todays_meaning_is_written_down_where_a_flip_would_change_it() -> None:
    result = carried(words("-c 4096 -np 4", OURS))
    assert result.values["engine.mode"] == "legacy"
    assert result.pinned == {"engine.mode"}
    assert numbers(result.today) == (4, 4096, 16384, False)
    assert numbers(result.flipped) == (4, 1024, 4096, False)
    assert numbers(result.migrated) == (4, 4096, 16384, False)
    assert result.changes == ()
    assert needs_change(result)


def test_adopting_takes_the_new_meaning_and_says_what_changes() -> None:
    model = Geometry(n_ctx_train=8192, kv_bytes_per_token=1000)
    result = carried(words("-c 4096 -np 4", OURS), adopt=True, geometry=model)
    assert result.values["engine.mode"] == "llama-compat"
    assert numbers(result.migrated) == (4, 1024, 4096, False)
    assert result.changes == (
        FLIPPED,
        "tokens of one request: 4096 before, 1024 after",
        "tokens of all requests: 16384 before, 4096 after",
        "KV bytes: 16384000 before, 4096000 after",
    )


def test_one_slot_that_would_become_four_is_pinned_too() -> None:
    result = carried(words("-c 4096", OURS))
    assert result.pinned == {"engine.mode"}
    adopted = carried(words("-c 4096", OURS), adopt=True)
    assert adopted.changes == (
        FLIPPED,
        "slots: 1 before, 4 after",
        "the slots share one pool after",
    )


def test_what_no_flip_touches_needs_nothing() -> None:
    per_seq = "-c 4096 -np 4 --mode per-seq --ctx-size-per-seq 512"
    for text in ("-c 4096 -np 1", per_seq):
        result = carried(words(text, OURS))
        assert result.pinned == frozenset()
        assert not needs_change(result)
    assert not needs_change(carried(toml("[engine]\nctx_size = 4096\nparallel = 1\n")))


def test_what_is_not_known_without_a_model_is_compared_all_the_same() -> None:
    """Four slots of the training length each, whatever it is, in both modes."""
    result = carried(words("-np 4", OURS))
    assert result.pinned == frozenset()
    assert result.today.plan is None
    assert result.today.refusal == (
        "it depends on the training length of the model: 4 slots of that length each"
    )
    known = carried(words("-np 4", OURS), geometry=Geometry(n_ctx_train=2048))
    assert numbers(known.today) == (4, 2048, 8192, False)
    assert carried(words("", OURS)).pinned == {"engine.mode"}


def test_a_flip_counts_from_its_version_on() -> None:
    found = words("-c 4096 -np 4", OURS)
    before, after = carried(found, as_of="0.9"), carried(found, as_of="1.0")
    assert not needs_change(before)
    assert numbers(before.flipped) == (4, 4096, 16384, False)
    assert needs_change(after)
    with pytest.raises(Refused, match="--as-of: found `soon`"):
        carried(found, as_of="soon")


def test_a_mode_that_is_said_is_left_alone_unless_the_new_one_is_asked_for() -> None:
    text = 'version = 2\n[engine]\nctx_size = 4096\nparallel = 4\nmode = "legacy"\n'
    kept = carried(toml(text))
    assert (kept.pinned, needs_change(kept)) == (frozenset(), False)
    adopted = carried(toml(text), adopt=True)
    changed = line(adopted, 'engine.mode = "legacy"')
    assert (changed.fate, changed.became) == ("changed", 'engine.mode = "llama-compat"')
    assert needs_change(adopted)
    assert numbers(adopted.migrated) == (4, 1024, 4096, False)


def test_adopting_what_would_be_refused_asks_for_a_person() -> None:
    result = carried(words("-c 2048 -np 5", OURS), adopt=True)
    assert result.review[0].why.startswith("refused: ctx_size 2048 divided by")


@pytest.mark.parametrize(
    ("since", "text", "expected"),
    [
        ("", "-c 20480", (1, 20480, 20480, False)),
        ("mlxcel@0.3.0", "-c 20480", (1, 20480, 20480, False)),
        ("mlxcel@0.7.0", "-c 20480", (4, 5120, 20480, False)),
        ("mlxcel@0.9.0", "-c 20480", (4, 20480, 20480, True)),
        ("mlxcel@0.7.0", "-c 20480 --parallel 4", (4, 5120, 20480, False)),
        ("mlxcel@0.9.0", "-c 20480 --parallel 4 -kvu", (4, 20480, 20480, True)),
        ("mlxcel@0.9.0", "-c 20480 --max-batch-size 4", (4, 5120, 20480, False)),
        ("mlxcel@0.9.0", "-c 20480 --no-kv-unified", (4, 5120, 20480, False)),
        ("mlxcel@0.7.0", "-c 20480 --parallel 4 --no-batch", (1, 20480, 20480, False)),
        ("mlxcel@0.0.20", "-c 20480 --parallel 4", (4, 20480, 81920, False)),
    ],
)
def test_the_older_server_divided_from_a_version_on(
    since: str, text: str, expected: tuple[int, int, int, bool]
) -> None:
    result = carried(words(text, OURS), since=since)
    assert numbers(result.today) == expected
    assert numbers(result.migrated) == expected


def test_what_a_version_means_and_nobody_knows_is_left_for_review() -> None:
    result = carried(words("-c 20480", OURS), since="mlxcel@0.7.1")
    assert "engine.parallel" not in result.values
    assert result.today.plan is None
    assert "0.7.1" in result.review[0].why


# ---- others ----


def test_mlx_lm_has_no_context_and_the_report_says_what_that_means() -> None:
    result = carried(words("--model acme/tiny --port 8000 --temp 0.7", MLX_LM))
    assert result.values == {
        "model.hf_repo": "acme/tiny",
        "engine.mode": "llama-compat",
        "engine.kv_unified": True,
        "engine.n_predict": 512,
        "sampling.temperature": 0.7,
        "sampling.top_k": 0,
        "sampling.top_p": 1.0,
        "sampling.min_p": 0.0,
        "server.port": 8000,
    }
    assert "sampling.temperature" not in result.pinned
    assert result.today.refusal == "mlx_lm.server has no limit on the context"
    assert result.changes[0].startswith("mlx_lm.server has no context option")
    assert "up to 32 requests" in result.changes[1]
    model = Geometry(n_ctx_train=4096)
    known = carried(words("--decode-concurrency 8", MLX_LM), geometry=model)
    assert numbers(known.migrated) == (8, 4096, 4096, True)
    assert len(known.changes) == 1


@pytest.mark.parametrize(
    ("number", "expected"),
    [("6", (6, 4096, 24576, False)), ("0", (4, 4096, 16384, False))],
)
def test_ollama_multiplies_its_context(
    number: str, expected: tuple[int, int, int, bool]
) -> None:
    result = carried(
        variables(OLLAMA_CONTEXT_LENGTH="4096", OLLAMA_NUM_PARALLEL=number)
    )
    assert result.values["engine.mode"] == "per-seq"
    assert numbers(result.today) == numbers(result.migrated) == expected
    assert result.changes[0].startswith("Ollama gives every request the whole context")


def test_the_product_on_ollamas_runner_line_gives_a_request_the_same() -> None:
    assert numbers(carried(words("--ctx-size 24576 --parallel 6")).today)[1] == 4096


def test_a_number_that_ollama_chooses_is_auto() -> None:
    result = carried(variables(OLLAMA_CONTEXT_LENGTH="4096"))
    assert result.values["engine.parallel"] == -1
    assert "engine.parallel" in result.pinned


def test_variables_of_nobody_are_only_a_question_where_it_matters() -> None:
    asked = carried(variables(LLAMA_ARG_CTX_SIZE="8192", LLAMA_ARG_N_PARALLEL="4"))
    (review,) = asked.review
    assert "`--from llama-server`" in review.why
    assert "engine.mode" not in asked.values
    assert asked.today.plan is None
    alone = carried(variables(LLAMA_ARG_CTX_SIZE="8192", LLAMA_ARG_N_PARALLEL="1"))
    assert alone.review == ()
    assert numbers(alone.today) == numbers(alone.migrated) == (1, 8192, 8192, False)


# ---- certainty ----


def test_a_number_that_is_not_known_is_not_written_and_gives_no_plan() -> None:
    result = carried(words("-c 8192 --parallel $SLOTS", kind="quadlet"))
    assert "engine.parallel" not in result.values
    assert result.today.refusal == "engine.parallel is not certain"
    assert line(result, "--parallel $SLOTS").fate == "review"


def test_a_doubt_that_another_word_settles_is_none() -> None:
    result = carried(words("--parallel $SLOTS -c 8192 -np 2"))
    assert result.review == ()
    assert line(result, "--parallel $SLOTS").why == "`-np 2` counts instead"


def test_a_doubt_hides_what_a_lower_layer_says() -> None:
    result = carried(words("-c 8192 -np $N", env={"LLAMA_ARG_N_PARALLEL": "2"}))
    assert "engine.parallel" not in result.values
    assert line(result, "LLAMA_ARG_N_PARALLEL=2").fate == "ignored"


def test_a_doubt_about_another_option_leaves_the_plan() -> None:
    result = carried(words("-c 8192 -np 2 --port $PORT"))
    assert numbers(result.today) == (2, 4096, 8192, False)
    assert [review.said for review in result.review] == ["--port $PORT"]


def test_todays_mode_is_pinned_when_the_numbers_are_not_known() -> None:
    result = carried(words("-c 8192 -np $N", OURS))
    assert result.values["engine.mode"] == "legacy"


def test_a_mode_that_is_not_known_is_not_pinned() -> None:
    result = carried(words("-c 8192 -np 2 --mode $MODE", OURS))
    assert "engine.mode" not in result.values


def test_relative_names_are_made_whole_where_the_folder_is_known() -> None:
    result = carried(words("-m models/m.gguf", kind="systemd", folder="/srv/llm"))
    assert result.values["model.path"] == "/srv/llm/models/m.gguf"
    assert result.review == ()
    typed = carried(words("-m m.gguf"))
    assert typed.values["model.path"] == os.path.join(os.getcwd(), "m.gguf")
    lost = carried(words("-m m.gguf", kind="script"))
    assert "model.path" not in lost.values
    assert "write the whole name" in lost.review[0].why
    kept = carried(toml('[model]\npath = "m.gguf"\n'))
    assert kept.values["model.path"] == "m.gguf"


def test_two_models_in_one_place_are_left_to_a_person() -> None:
    result = carried(words("-m /m.gguf -hf acme/tiny"))
    assert not {"model.path", "model.hf_repo"} & set(result.values)
    assert len(result.review) == 2
    with pytest.raises(Refused, match="say the same thing"):
        carried(words("-m /m.gguf -hf acme/tiny", OURS))
    flag = carried(words("-m /m.gguf", env={"LLAMA_ARG_HF_REPO": "acme/tiny"}))
    assert "model.hf_repo" not in flag.values
    assert flag.values["model.path"] == "/m.gguf"


# ---- layers and writers ----


def test_a_flag_wins_over_a_variable_and_that_over_a_key() -> None:
    found = words("-np 4 --port 1", OURS, env={"LLAMA_ARG_N_PARALLEL": "3"})
    assert carried(found).values["engine.parallel"] == 4
    negated = {"LLAMA_ARG_KV_UNIFIED": "1", "LLAMA_ARG_NO_KV_UNIFIED": "1"}
    result = carried(words("-c 4096 -np 2", env=negated))
    assert result.values["engine.kv_unified"] is False
    own = {"MLXCELD_PARALLEL": "2", "LLAMA_ARG_N_PARALLEL": "3"}
    assert carried(words("", OURS, env=own)).values["engine.parallel"] == 2


def test_a_file_that_a_command_names_decides_the_rest() -> None:
    result = carried(words("--config /etc/llm.toml", OURS))
    assert (result.values, result.pinned) == ({}, frozenset())
    assert not needs_change(result)
    more = carried(words("--config /etc/llm.toml -c 4096 -np 4", OURS))
    assert more.pinned == frozenset()
    assert more.today.refusal == (
        "the file that `--config /etc/llm.toml` names decides it"
    )
    assert more.review == ()


def test_secrets_are_never_in_a_line() -> None:
    result = carried(
        words("--api-key topsecret", OURS, env={"HF_TOKEN": "hf_topsecret"})
    )
    assert "topsecret" not in repr(result.lines)
    assert result.values["server.api_key"] == ("topsecret",)
    assert line(result, "--api-key ***").became == ""


def test_every_word_has_a_line() -> None:
    text = "-c 4096 -np 2 -fa -t 4 --nonsense 3 stray"
    lines = carried(words(text)).lines
    said = " ".join(one.said for one in lines if one.said)
    assert said == text


def test_the_program_that_was_recognised_is_in_the_result() -> None:
    assert carried(variables(MLXCELD_PORT="80")).found.program == OURS
    assert carried(words("", LLAMA)).found.program == LLAMA
