"""What words, variables and keys say, one by one."""

from __future__ import annotations

import pytest

from mlxceld.migrate.found import Found, Place, Program, Remark, Variable
from mlxceld.migrate.meaning import read
from mlxceld.migrate.saying import Meaning, Saying
from tests.migrate.setups import LLAMA, MLX_LM, OURS, nowhere, variables, words


def meaning(found: Found, *, older: bool = False) -> Meaning:
    return read(found, nowhere, older=older)


def facts(found: Found) -> list[tuple[str, str, object]]:
    """For each saying: what was said, the option, the value."""
    return [
        (one.said, one.option.key if one.option else one.fate, one.value)
        for one in meaning(found).sayings
    ]


def only(found: Found) -> Saying:
    (one,) = meaning(found).sayings
    return one


# ---- words ----


def test_every_flag_becomes_one_saying_with_its_value() -> None:
    found = words("-c 8192 -np4 --temp=0.5 --no-kv-unified -fa -ub 512 -v")
    assert facts(found) == [
        ("-c 8192", "engine.ctx_size", 8192),
        ("-np4", "engine.parallel", 4),
        ("--temp=0.5", "sampling.temperature", 0.5),
        ("--no-kv-unified", "engine.kv_unified", False),
        ("-fa", "ignored", None),
        ("-ub 512", "ignored", None),
        ("-v", "logging.level", "debug"),
    ]


def test_underscores_in_long_flags_are_dashes() -> None:
    assert facts(words("--ctx_size 4096")) == [
        ("--ctx_size 4096", "engine.ctx_size", 4096)
    ]


def test_a_bare_flash_attention_flag_takes_no_other_flag_along() -> None:
    assert facts(words("-fa -c 512"))[1] == ("-c 512", "engine.ctx_size", 512)
    assert facts(words("-fa on -c 512"))[0] == ("-fa on", "ignored", None)


def test_another_tools_spelling_is_named_with_ours() -> None:
    one = only(words("--n_ctx 4096"))
    assert (one.fate, one.option) == ("review", None)
    assert one.why == "unknown flag; another program's spelling of `--ctx-size`"


def test_an_unknown_flag_is_never_lost() -> None:
    one = only(words("--ctx-sise 4096"))
    assert one.said == "--ctx-sise 4096"
    assert one.why == "unknown flag; did you mean `--ctx-size`?"


def test_an_unknown_key_of_a_preset_is_skipped_as_llama_server_does() -> None:
    one = only(words("--stop-timeout 10", kind="ini"))
    assert one.fate == "ignored"
    assert one.why.startswith("unknown, skipped by llama-server too")


def test_a_flag_without_meaning_here_says_what_is_lost() -> None:
    one = only(words("-hff m.gguf"))
    assert (one.fate, one.why) == ("ignored", "the whole repository is used")


def test_what_changes_answers_when_it_is_lost_asks_for_a_person() -> None:
    """But for the daemon itself, which ignores it today already."""
    one = only(words("--lora a.gguf"))
    assert (one.fate, one.why) == ("review", "adapters are not applied")
    assert only(words("--lora a.gguf", OURS)).fate == "ignored"
    router = only(variables(LLAMA, LLAMA_ARG_MODELS_DIR="/srv"))
    assert router.fate == "review"
    assert router.why.startswith("one daemon serves one model")
    assert only(variables(LLAMA, LLAMA_ARG_EMBEDDINGS="1")).fate == "review"
    assert only(variables(LLAMA, LLAMA_ARG_EMBEDDINGS="off")).fate == "ignored"


def test_a_width_beyond_our_slots_is_left_for_review() -> None:
    found = meaning(words("--decode-concurrency 512", MLX_LM))
    assert found.problems == []
    assert found.sayings[0].doubt.startswith("found `512`, wanted an integer from 1")


def test_flags_that_show_something_are_no_settings() -> None:
    assert (
        only(words("--version")).why == "it is no setting: it shows something and ends"
    )


def test_a_value_that_is_not_known_is_in_doubt() -> None:
    one = only(words("--parallel $SLOTS"))
    assert one.option is not None
    assert one.option.key == "engine.parallel"
    assert (one.value, one.doubt) == (None, "`$SLOTS` is not known")


def test_a_word_that_may_be_any_flag_leaves_everything_open() -> None:
    found = meaning(words("-c 4096 $EXTRA"))
    assert found.open == "`$EXTRA` may hold any flag"
    assert [one.fate for one in found.sayings] == ["kept", "review"]


def test_a_key_on_the_command_line_is_masked() -> None:
    one = only(words("--api-key topsecret"))
    assert one.said == "--api-key ***"
    assert "topsecret" not in one.why
    assert "server.api_key_file" in one.why
    assert one.value == ("topsecret",)


def test_what_looks_like_a_secret_is_masked_even_if_nobody_knows_the_flag() -> None:
    assert only(words("--my-token abc")).said == "--my-token ***"
    assert only(words("--my-api-key=abc")).said == "--my-api-key=***"
    assert only(words("--max-tokens 5")).said == "--max-tokens 5"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "-np 0",
            "run:1: -np: engine.parallel: found `0`, wanted an integer from 1 to 256, "
            "or -1 for auto",
        ),
        (
            "-c 8k",
            "run:1: -c: engine.ctx_size: found `8k`, wanted an integer of at least 0, "
            "in tokens",
        ),
        ("--temp warm", "run:1: --temp: sampling.temperature: found `warm`, wanted a"),
        ("-c", "run:1: -c: needs a value: found the end, wanted"),
        ("--mlock=yes", "run:1: --mlock: takes no value"),
    ],
)
def test_what_no_server_takes_is_a_problem(text: str, problem: str) -> None:
    (found,) = meaning(words(text)).problems
    assert found.render().startswith(problem)


@pytest.mark.parametrize("text", ["-n -2", "--cache-type-k q5_1", "-dev CUDA1"])
def test_what_only_this_server_does_not_take_is_left_for_review(text: str) -> None:
    found = meaning(words(text))
    assert found.problems == []
    assert found.sayings[0].value is None
    assert ", wanted " in found.sayings[0].doubt


def test_a_repository_of_gguf_files_is_left_for_review() -> None:
    for name in ("acme/tiny-GGUF", "acme/tiny:Q4_K_M"):
        assert only(words(f"-hf {name}")).doubt.endswith("with MLX weights")
    assert only(words("-hf acme/tiny-mlx")).value == "acme/tiny-mlx"


def test_a_configuration_file_is_named_and_not_read() -> None:
    found = meaning(words("--config /etc/llm.toml", OURS))
    assert (found.config, found.open) == ("--config /etc/llm.toml", "")


def test_remarks_that_ask_for_review_become_sayings() -> None:
    remark = Remark("the image is not known", Place("c.yml", 3, "image"), review=True)
    note = Remark("ports are published", Place("c.yml", 5))
    one = only(words("", remarks=(remark, note)))
    assert (one.said, one.fate, one.why) == ("", "review", "the image is not known")


def test_the_second_half_of_a_key_is_masked_too() -> None:
    first, second, third = meaning(words("--api-key top secret -v")).sayings
    assert (first.said, second.said, third.said) == ("--api-key ***", "***", "-v")


# ---- other dialects ----


def test_mlx_lm_flags_become_options_of_other_names() -> None:
    found = words(
        "--model /srv/m --decode-concurrency 8 --max-tokens 100 --log-level CRITICAL "
        "--prompt-cache-bytes 2GB --chat-template ''",
        MLX_LM,
    )
    assert facts(found) == [
        ("--model /srv/m", "model.path", "/srv/m"),
        ("--decode-concurrency 8", "engine.parallel", 8),
        ("--max-tokens 100", "engine.n_predict", 100),
        ("--log-level CRITICAL", "logging.level", "error"),
        # 2 x 10^9 bytes, in whole KiB.
        ("--prompt-cache-bytes 2GB", "engine.cache_ram", 1953125 * 1024),
        ("--chat-template ", "ignored", None),
    ]


def test_json_for_the_template_is_kept_byte_for_byte() -> None:
    found = words("--chat-template-args '{\"enable_thinking\": false}'", MLX_LM)
    assert only(found).value == '{"enable_thinking": false}'


def test_llama_server_flags_mean_nothing_to_mlx_lm() -> None:
    one = only(words("-c 4096", MLX_LM))
    assert (one.fate, one.why) == ("review", "mlx_lm.server has no such flag")


def test_variables_of_llama_server_mean_nothing_to_mlx_lm() -> None:
    found = words("", MLX_LM, env={"LLAMA_ARG_CTX_SIZE": "4096"})
    assert only(found).why == "mlx_lm.server does not read it"


def test_owner_and_name_is_a_repository_where_no_such_folder_is() -> None:
    found = words("--model acme/tiny-mlx", MLX_LM, folder="/srv")
    one = only(found)
    assert one.option is not None
    assert one.option.key == "model.hf_repo"
    there = read(found, lambda name: name == "/srv/acme/tiny-mlx").sayings[0]
    assert there.option is not None
    assert there.option.key == "model.path"


def test_the_daemon_itself_takes_owner_and_name_for_a_path() -> None:
    found = words("--model acme/tiny-mlx", OURS)
    assert facts(found)[0][1] == "model.path"
    older = meaning(found, older=True).sayings[0]
    assert older.option is not None
    assert older.option.key == "model.hf_repo"


def test_the_width_of_a_batch_is_the_number_of_slots() -> None:
    found = words("--max-batch-size 2 --no-batch --max-queue-depth=9", OURS)
    assert facts(found) == [
        ("--max-batch-size 2", "engine.parallel", 2),
        ("--no-batch", "engine.parallel", 1),
        ("--max-queue-depth=9", "server.queue_size", 9),
    ]


def test_inert_values_of_old_flags_need_no_review() -> None:
    assert only(words("--max-kv-size 0", OURS)).fate == "ignored"
    assert only(words("--max-kv-size 4096", OURS)).fate == "review"
    doubtful = only(words("--kv-cache-mode $MODE", OURS))
    assert (doubtful.fate, doubtful.why) == ("review", "`$MODE` is not known")


# ---- variables ----


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("LLAMA_ARG_KV_UNIFIED", " true ", True),
        ("LLAMA_ARG_KV_UNIFIED", "OFF", False),
        ("LLAMA_ARG_NO_KV_UNIFIED", "anything", False),
        ("LLAMA_ARG_CTX_SIZE", "8192 ", 8192),
        ("LLAMA_ARG_N_PARALLEL", "-1", -1),
        ("MLXCELD_PARALLEL", "2", 2),
    ],
)
def test_variables_are_read_as_the_daemon_reads_them(
    name: str, text: str, value: object
) -> None:
    assert only(variables(OURS, **{name: text})).value == value


@pytest.mark.parametrize("text", ["", "  "])
def test_an_empty_variable_counts_as_unset(text: str) -> None:
    one = only(variables(LLAMA, LLAMA_ARG_N_PARALLEL=text))
    assert (one.option, one.why) == (None, "an empty variable counts as unset")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("LLAMA_ARG_KV_UNIFIED", "maybe"),
        ("LLAMA_ARG_CTX_SIZE", "8k"),
        ("LLAMA_ARG_CTX_SIZE", "4096abc"),
        ("LLAMA_ARG_CTX_SIZE", "1_000"),
        ("LLAMA_ARG_CTX_SIZE", "\u0664"),
        ("LLAMA_ARG_N_PARALLEL", "auto"),
    ],
)
def test_a_word_that_is_no_value_names_variable_and_place(name: str, text: str) -> None:
    (problem,) = meaning(variables(LLAMA, **{name: text})).problems
    assert problem.where == f"llm.env:1: {name}"
    assert f"found `{text}`" in problem.what


def test_the_last_setting_of_a_variable_counts() -> None:
    place = Place("run", 1, "A")
    found = Found(
        "script",
        "run",
        LLAMA,
        environment=(
            Variable("LLAMA_ARG_N_PARALLEL", "1", place),
            Variable("LLAMA_ARG_N_PARALLEL", "2", place),
        ),
    )
    first, second = meaning(found).sayings
    assert (first.fate, first.why) == ("ignored", "the variable is set again later")
    assert second.value == 2


def test_an_unknown_variable_is_listed_with_a_near_one() -> None:
    one = only(variables(LLAMA, LLAMA_ARG_BATCH_SIZE="512"))
    assert one.fate == "ignored"
    assert one.why == "unknown, has no effect; did you mean `LLAMA_ARG_BATCH`?"


def test_known_variables_without_meaning_here_are_listed() -> None:
    one = only(variables(LLAMA, LLAMA_ARG_THREADS="8"))
    assert (one.fate, one.said) == ("ignored", "LLAMA_ARG_THREADS=8")


def test_reuse_of_chunks_is_a_number_of_tokens_and_off_here() -> None:
    chunk = "only the common beginning of two prompts is reused here"
    for value, why in (("0", "off is all that there is here"), ("256", chunk)):
        assert only(variables(LLAMA, LLAMA_ARG_CACHE_REUSE=value)).why == why
        assert only(words(f"--cache-reuse {value}")).why == why


def test_of_what_is_no_option_only_the_name_is_shown() -> None:
    assert only(variables(LLAMA, DATABASE_URL="pg://u:pw@h")).said == "DATABASE_URL"


def test_a_key_in_a_variable_stays_there() -> None:
    one = only(variables(LLAMA, LLAMA_API_KEY="topsecret"))
    assert (one.said, one.fate, one.value) == ("LLAMA_API_KEY=***", "kept", None)


@pytest.mark.parametrize(
    ("env", "program", "ollama"),
    [
        ({"MLXCELD_PORT": "1"}, OURS, False),
        ({"MLXCEL_MEMORY_LIMIT": "1G", "LLAMA_ARG_PORT": "1"}, OURS, False),
        ({"LLAMA_ARG_PORT": "1"}, None, False),
        ({"OLLAMA_CONTEXT_LENGTH": "4096"}, None, True),
        ({"OLLAMA_CONTEXT_LENGTH": "4096", "LLAMA_ARG_PORT": "1"}, None, False),
        ({"MLXCELD_PORT": ""}, None, False),
    ],
)
def test_names_of_variables_tell_whose_they_are(
    env: dict[str, str], program: Program | None, ollama: bool
) -> None:
    found = meaning(variables(**env))
    assert (found.program, found.ollama) == (program, ollama)


def test_our_own_variables_mean_nothing_to_llama_server() -> None:
    one = only(variables(LLAMA, MLXCELD_PARALLEL="4"))
    assert (one.fate, one.why) == ("ignored", "llama-server does not read it")
