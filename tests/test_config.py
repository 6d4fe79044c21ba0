"""Layers, precedence, and what is said about mistakes."""

from __future__ import annotations

import itertools
import tomllib
from pathlib import Path

import pytest

from mlxceld.argv import Form, parse
from mlxceld.config import BadConfig, Resolved, resolve, wish
from mlxceld.exits import Exit
from mlxceld.memory import memory_limit_bytes
from mlxceld.plan import Wish
from mlxceld.settings import Settings
from mlxceld.show import print_config


class Setup:
    """A folder with a configuration file that `resolve` finds and nothing else."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "mlxcel.toml"

    def file(self, text: str | bytes) -> None:
        data = text.encode() if isinstance(text, str) else text
        self.path.write_bytes(data)

    def drop_in(self, name: str, text: str) -> None:
        folder = self.folder / "mlxcel.toml.d"
        folder.mkdir(exist_ok=True)
        (folder / name).write_text(text)

    def resolve(self, *argv: str, **environ: str) -> Resolved:
        where = {"CONFIGURATION_DIRECTORY": str(self.folder)}
        return resolve(argv, where | environ)

    def refused(self, *argv: str, **environ: str) -> BadConfig:
        with pytest.raises(BadConfig) as caught:
            self.resolve(*argv, **environ)
        return caught.value


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    return Setup(tmp_path)


# ---- the command line ----


@pytest.mark.parametrize(
    "words",
    [
        "-np 2",
        "-np2",
        "-np=2",
        "--parallel 2",
        "--parallel=2",
        "--n-parallel 2",
        "--n_parallel=2",
        "-np 7 --parallel 2",
    ],
)
def test_every_spelling_of_two_slots_is_two_slots(setup: Setup, words: str) -> None:
    assert setup.resolve(*words.split()).settings.engine.parallel == 2


@pytest.mark.parametrize(
    ("words", "value"),
    [("", None), ("-np -1", -1), ("-np=-1", -1), ("-np-1", -1), ("-np -3", -1)],
)
def test_unset_and_auto_stay_apart(setup: Setup, words: str, value: int | None) -> None:
    assert setup.resolve(*words.split()).settings.engine.parallel == value


@pytest.mark.parametrize(
    ("argv", "environ", "text"),
    [
        (["-np", "1"], {}, ""),
        ([], {"LLAMA_ARG_N_PARALLEL": "1"}, ""),
        ([], {}, "[engine]\nparallel = 1\n"),
    ],
)
def test_an_explicit_single_slot_is_one_whoever_says_it(
    setup: Setup, argv: list[str], environ: dict[str, str], text: str
) -> None:
    setup.file(text)
    resolved = setup.resolve(*argv, **environ)
    assert resolved.settings.engine.parallel == 1
    assert wish(resolved.settings).parallel == 1
    assert resolved.is_set("engine.parallel")


def test_no_slots_at_all_is_a_usage_error(setup: Setup) -> None:
    bad = setup.refused("-np", "0")
    assert bad.exit == Exit.USAGE
    assert "engine.parallel: found `0`" in str(bad)


def test_a_context_may_stand_right_behind_its_flag(setup: Setup) -> None:
    engine = setup.resolve("-c8192", "-n", "5", "--ctx_size=4096").settings.engine
    assert (engine.ctx_size, engine.n_predict) == (4096, 5)


def test_of_a_switch_and_its_negation_the_last_one_counts(setup: Setup) -> None:
    def unified(*argv: str) -> bool | None:
        return setup.resolve(*argv).settings.engine.kv_unified

    assert unified("-kvu", "--no-kv-unified") is False
    assert unified("-no-kvu", "--kv-unified") is True
    assert unified("--kv-unified=off") is False
    assert unified() is None


@pytest.mark.parametrize(
    ("flag", "meant"),
    [("-k", "-kvu"), ("--paralel", "--parallel"), ("--ctx-sise=3", "--ctx-size")],
)
def test_an_unknown_flag_is_refused_with_the_nearest_known_one(
    setup: Setup, flag: str, meant: str
) -> None:
    bad = setup.refused(flag)
    assert bad.exit == Exit.USAGE
    assert bad.problems[0].hint == f"did you mean `{meant}`?"
    assert bad.problems[0].where == flag.partition("=")[0]


def test_a_prefix_of_a_flag_is_not_that_flag(setup: Setup) -> None:
    for prefix in ("--paral", "-kv", "--kv", "--hos"):
        assert setup.refused(prefix, "1").exit == Exit.USAGE


@pytest.mark.parametrize("words", ["--port", "--port --host x", "--port --host=x"])
def test_a_flag_without_its_value_says_what_it_wants(setup: Setup, words: str) -> None:
    bad = setup.refused(*words.split())
    assert [p.where for p in bad.problems] == ["--port"]
    assert "wanted an integer from 0 to 65535" in bad.problems[0].what


def test_all_mistakes_of_a_command_line_are_reported_together(setup: Setup) -> None:
    bad = setup.refused("-np", "x", "--port=70000", "--nonsense", "stray", "word")
    assert [p.where for p in bad.problems] == ["-np", "--port", "--nonsense", ""]
    assert bad.exit == Exit.USAGE


def test_flags_without_meaning_here_are_named_once(setup: Setup) -> None:
    words = "-ngl 99 -fa -ub 512 -t8 --mlock --no-mmap -ngl=1 -fa on -ts 3,1 -np 2"
    resolved = setup.resolve(*words.split(), LLAMA_ARG_THREADS="4")
    assert resolved.settings.engine.parallel == 2
    assert resolved.ignored_line == (
        "ignored here: `LLAMA_ARG_THREADS`, `-ngl`, `-fa`, `-ub`, `-t`, `--mlock`, "
        "`--no-mmap`, `-ts`"
    )


def test_flags_that_llama_server_removed_are_errors(setup: Setup) -> None:
    bad = setup.refused("--draft-max", "16")
    assert bad.problems[0].what == "llama-server has removed it"
    assert len(bad.problems) == 1


def test_an_ignored_flag_that_promises_something_warns(setup: Setup) -> None:
    resolved = setup.resolve("--lora", "adapter.gguf")
    assert [w.what for w in resolved.warnings] == [
        "has no effect: adapters are not applied"
    ]


def test_a_value_may_begin_with_a_dash(setup: Setup) -> None:
    text = "-{{ a }} = b"
    assert setup.resolve("--chat-template", text).settings.model.chat_template == text


def test_the_mode_has_a_flag_of_its_own(setup: Setup) -> None:
    mode = setup.resolve("--llama-server-compat").settings.engine.mode
    assert mode == "llama-compat"
    assert setup.resolve("--mode", "per-seq").settings.engine.mode == "per-seq"


@pytest.mark.parametrize(
    ("words", "level"), [("-v", "debug"), ("-lv 2", "warning"), ("-lv 1", "error")]
)
def test_verbosity_becomes_a_level(setup: Setup, words: str, level: str) -> None:
    assert setup.resolve(*words.split()).settings.logging.level == level


def test_print_config_takes_a_form_and_nothing_else() -> None:
    assert parse(["--print-config"]).print_config == "changed"
    line = parse(["--print-config", "all", "-c", "4"])
    assert (line.print_config, line.given[0].text) == ("all", "4")
    assert parse(["--print-config", "-c", "4"]).print_config == "changed"
    assert parse(["--print-config=some"]).problems


# ---- the environment ----


@pytest.mark.parametrize("text", ["", " ", "\t"])
@pytest.mark.parametrize(
    "name",
    [
        "LLAMA_ARG_N_PARALLEL",
        "LLAMA_ARG_CTX_SIZE",
        "LLAMA_ARG_KV_UNIFIED",
        "LLAMA_ARG_NO_KV_UNIFIED",
        "LLAMA_API_KEY",
        "LLAMA_ARG_HOST",
        "LLAMA_ARG_CACHE_REUSE",
        "MLXCELD_MODE",
        "MLXCELD_CONFIG",
        "MLXCELD_NO_SUCH_THING",
    ],
)
def test_an_empty_variable_is_unset(setup: Setup, name: str, text: str) -> None:
    resolved = setup.resolve(**{name: text})
    assert resolved.settings == Settings()
    assert resolved.warnings == ()


@pytest.mark.parametrize(
    ("name", "good"),
    [
        ("N_PARALLEL", {"1": 1, "-1": -1, " 1 ": 1}),
        ("CTX_SIZE", {"0": 0, "1": 1, "8192 ": 8192}),
        (
            "KV_UNIFIED",
            {
                "0": False,
                "1": True,
                "true": True,
                "TRUE": True,
                "on": True,
                "off": False,
                "no": False,
                " true ": True,
            },
        ),
    ],
)
def test_odd_values_of_variables_are_read_or_refused_by_name(
    setup: Setup, name: str, good: dict[str, object]
) -> None:
    attribute = {"N_PARALLEL": "parallel"}.get(name, name.lower())
    odd = ("0", "1", "true", "TRUE", "on", "off", "no", " true ", "auto", "-1", "maybe")
    for text in (*odd, *good):
        variable = {f"LLAMA_ARG_{name}": text}
        if text in good:
            engine = setup.resolve(**variable).settings.engine
            assert getattr(engine, attribute) == good[text]
            continue
        bad = setup.refused(**variable)
        assert bad.exit == Exit.CONFIG
        assert bad.problems[0].where == f"environment variable LLAMA_ARG_{name}"
        assert f"found `{text.strip()}`" in bad.problems[0].what


@pytest.mark.parametrize("text", ["8k", "4096abc", "1_000", "٤", "1e4", "+4", "4.0"])
def test_numbers_with_tails_are_start_errors(setup: Setup, text: str) -> None:
    bad = setup.refused(LLAMA_ARG_CTX_SIZE=text)
    assert bad.problems[0].what == (
        f"engine.ctx_size: found `{text}`, wanted an integer of at least 0, in tokens"
    )


def test_the_presence_of_a_negated_variable_turns_off(setup: Setup) -> None:
    resolved = setup.resolve(LLAMA_ARG_NO_KV_UNIFIED="1", LLAMA_ARG_KV_UNIFIED="1")
    assert resolved.settings.engine.kv_unified is False
    assert resolved.warnings == ()


@pytest.mark.parametrize("text", ["0", "no", "OFF", "false"])
def test_a_negated_variable_that_reads_like_no_gets_a_warning(
    setup: Setup, text: str
) -> None:
    resolved = setup.resolve(LLAMA_ARG_NO_KV_UNIFIED=text)
    assert resolved.settings.engine.kv_unified is False
    assert "its presence alone" in resolved.warnings[0].what


def test_our_own_variable_wins_over_llama_servers(setup: Setup) -> None:
    resolved = setup.resolve(LLAMA_ARG_N_PARALLEL="3", MLXCELD_PARALLEL="2")
    assert resolved.settings.engine.parallel == 2
    assert [o.render() for o in resolved.overrides] == [
        "engine.parallel: environment MLXCELD_PARALLEL (2) overrides environment "
        "LLAMA_ARG_N_PARALLEL (3)"
    ]


def test_our_own_options_have_variables_too(setup: Setup) -> None:
    engine = setup.resolve(
        MLXCELD_MODE="llama-compat", MLXCELD_MIN_SLOT_CTX="64"
    ).settings.engine
    assert (engine.mode, engine.min_slot_ctx) == ("llama-compat", 64)


def test_cache_reuse_is_a_smallest_chunk_and_zero_is_off(setup: Setup) -> None:
    assert setup.resolve(LLAMA_ARG_CACHE_REUSE="0").warnings == ()
    (warning,) = setup.resolve(LLAMA_ARG_CACHE_REUSE="256").warnings
    assert "256 tokens" in warning.what
    assert warning.where == "environment variable LLAMA_ARG_CACHE_REUSE"
    assert setup.resolve("--cache-reuse", "0", LLAMA_ARG_CACHE_REUSE="9").warnings == ()
    assert setup.refused(LLAMA_ARG_CACHE_REUSE="yes").exit == Exit.CONFIG
    assert setup.refused("--cache-reuse", "yes").exit == Exit.USAGE


def test_unknown_variables_of_both_families_are_named_with_a_near_one(
    setup: Setup,
) -> None:
    resolved = setup.resolve(
        LLAMA_ARG_BATCH_SIZE="64", LLAMA_ARG_BATCH="32", MLXCELD_MDOE="x", OTHER="y"
    )
    assert resolved.settings.engine.batch_size == 32
    assert [(w.where, w.hint) for w in resolved.warnings] == [
        (
            "environment variable LLAMA_ARG_BATCH_SIZE",
            "did you mean `LLAMA_ARG_BATCH`?",
        ),
        ("environment variable MLXCELD_MDOE", "did you mean `MLXCELD_MODE`?"),
    ]


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        # Options that llama-server has not: their own names, not the next best.
        ("LLAMA_ARG_MODE", "did you mean `MLXCELD_MODE`?"),
        ("LLAMA_ARG_TOKEN_GAP", "did you mean `MLXCELD_TOKEN_GAP`?"),
        ("LLAMA_ARG_MEMORY_LIMIT", "did you mean `MLXCELD_MEMORY_LIMIT`?"),
        ("LLAMA_ARG_PARALLEL", "did you mean `LLAMA_ARG_N_PARALLEL`?"),
        ("LLAMA_ARG_CTX_SIZ", "did you mean `LLAMA_ARG_CTX_SIZE`?"),
        ("MLXCELD_CTX_SIZ", "did you mean `MLXCELD_CTX_SIZE`?"),
        # Alike in nothing but what all of them begin with.
        ("LLAMA_ARG_FROG", ""),
        ("MLXCELD_FROG", ""),
    ],
)
def test_the_hint_for_an_unknown_variable_is_the_one_that_was_meant(
    setup: Setup, name: str, hint: str
) -> None:
    resolved = setup.resolve(**{name: "1"})
    (problem,) = resolved.warnings
    assert problem.where == f"environment variable {name}"
    assert problem.hint == hint


# ---- files ----


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("parallel = true", "the boolean `true`"),
        ("parallel = 2.0", "the float `2.0`"),
        ('parallel = "4"', 'the text "4"'),
        ("ctx_size = inf", "the float `inf`"),
        ("ctx_size = [1]", "an array"),
        ("kv_unified = 1", "the integer `1`"),
        ("ctx_size = -1", "the integer `-1`"),
        ("mode = 1979-05-27", "the date or time `1979-05-27`"),
    ],
)
def test_a_value_of_the_wrong_type_is_named_with_its_line(
    setup: Setup, line: str, found: str
) -> None:
    setup.file(f"[engine]\n{line}\n")
    bad = setup.refused()
    (problem,) = bad.problems
    assert bad.exit == Exit.CONFIG
    assert problem.where == f"{setup.path}:2"
    assert problem.what.startswith(f"engine.{line.split()[0]}: found {found}, wanted ")


def test_underscores_in_toml_numbers_are_fine(setup: Setup) -> None:
    setup.file("[engine]\nctx_size = 32_768\n")
    assert setup.resolve().settings.engine.ctx_size == 32768


@pytest.mark.parametrize(
    ("data", "line", "words"),
    [
        (b"\xef\xbb\xbf[engine]\n", 1, "byte order mark"),
        (b"[engine]\nctx_size = 08192\n", 2, "in `ctx_size = 08192`"),
        (b"[engine]\nparallel = 1\nparallel = 2\n", 3, "in `parallel = 2`"),
        (b"[engine]\nparallel =\n", 2, "not valid TOML"),
        (b"[engine]\nctx_size = " + b"9" * 5000, 2, "an endless number"),
        (b"[engine]\nctx_size = 0x" + b"f" * 5000, 2, "an endless integer"),
        (b"[engine]\n[engine]\n", 2, "not valid TOML"),
        (b"# a\n# \xff\n", 2, "not UTF-8"),
    ],
)
def test_a_broken_file_is_one_line_with_its_place(
    setup: Setup, data: bytes, line: int, words: str
) -> None:
    setup.file(data)
    (problem,) = setup.refused().problems
    assert problem.where == f"{setup.path}:{line}"
    assert words in problem.what


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("mode = llama-compat", "texts stand in quotes"),
        ("mode = llama-compat  # as llama-server", "texts stand in quotes"),
        ("nonsense = ~/models/a", "texts stand in quotes"),
        ("temperature = .8", "numbers have a digit before the point"),
        ("port = high", "wanted an integer from 0 to 65535"),
        ("kv_unified = yes", "write `true` or `false`"),
        ("kv_unified = True", "write `true` or `false`"),
        ("parallel =", ""),
    ],
)
def test_a_word_without_quotes_is_told_what_to_be(
    setup: Setup, line: str, hint: str
) -> None:
    setup.file(f"[engine]\n{line}\n")
    (problem,) = setup.refused().problems
    assert problem.what.startswith("not valid TOML: ")
    assert problem.hint == hint


def test_a_key_in_a_broken_line_is_not_shown(setup: Setup) -> None:
    setup.file('[server]\napi_key = "s3cret\n')
    assert "s3cret" not in str(setup.refused())
    setup.file("[server]\napi_key = s3cret\n")
    assert "s3cret" not in str(setup.refused())
    setup.file("[server]\napi_key = { a = 's3cret' }\n")
    assert "s3cret" not in str(setup.refused())


def test_every_mistake_of_a_file_is_reported_with_its_way_out(setup: Setup) -> None:
    setup.file(
        "version = 1\nctx_size = 4\nn_parallel = 3\nno_batch = true\n"
        "[engin]\nx = 1\n"
        "[engine]\nctx_siz = 5\nport = 3\nkv-unified = true\nmax_tokens = 3\n"
        "[server]\nzzz = 1\nn_gpu_layers = 9\nllama_server_compat = true\n"
    )
    bad = setup.refused()
    assert [(p.where.rpartition(":")[2], p.hint) for p in bad.problems] == [
        ("1", "version 1 is the old flat format; `mlxcel-migrate` carries it over"),
        ("2", "`ctx_size` belongs in [engine]"),
        ("3", "write `parallel` in [engine]"),
        ("4", "write `parallel = 1` in [engine] instead"),
        ("5", "did you mean `engine`?"),
        ("8", "did you mean `ctx_size`?"),
        ("9", "`port` belongs in [server]"),
        ("10", "did you mean `kv_unified`?"),
        ("11", "write `n_predict` in [engine]"),
        ("13", ""),
        ("14", "it has no meaning here; leave it out"),
        ("15", 'write `mode = "llama-compat"` in [engine] instead'),
    ]


def test_the_version_of_the_format_is_optional(setup: Setup) -> None:
    setup.file("version = 2\n[engine]\nparallel = 3\n")
    assert setup.resolve().settings.engine.parallel == 3
    setup.file("version = true\n")
    assert setup.refused().exit == Exit.CONFIG


def test_drop_ins_win_over_the_file_and_lists_replace(setup: Setup) -> None:
    setup.file('[engine]\nparallel = 2\n[server]\nhost = ["a", "b"]\n')
    setup.drop_in("10-a.toml", '[engine]\nparallel = 3\n[server]\nhost = ["c"]\n')
    setup.drop_in("20-b.toml", "[engine]\nparallel = 4\n")
    resolved = setup.resolve()
    assert resolved.settings.engine.parallel == 4
    assert resolved.settings.server.host == ("c",)
    assert [path.name for path in resolved.files] == [
        "mlxcel.toml",
        "10-a.toml",
        "20-b.toml",
    ]
    assert resolved.overrides[0].render() == (
        "engine.parallel: mlxcel.toml.d/20-b.toml:2 (4) overrides "
        "mlxcel.toml.d/10-a.toml:2 (3), mlxcel.toml:2 (2)"
    )


def test_names_in_a_file_are_seen_from_its_folder(setup: Setup) -> None:
    setup.file('[model]\npath = "m"\n[server]\napi_key_file = "/k"\n')
    resolved = setup.resolve("--log-file", "x.log")
    assert resolved.settings.model.path == str(setup.folder / "m")
    assert resolved.settings.server.api_key_file == "/k"
    assert resolved.settings.logging.file == "x.log"


def test_a_file_that_was_named_must_exist(setup: Setup) -> None:
    missing = str(setup.folder / "none.toml")
    bad = setup.refused("--config", missing)
    assert bad.exit == Exit.CONFIG
    assert bad.problems[0].where == f"--config {missing}"
    assert setup.refused(MLXCELD_CONFIG=missing).exit == Exit.CONFIG
    assert "directory" in str(setup.refused("--config", str(setup.folder)))


def test_a_named_file_is_read_instead_of_the_one_that_is_found(setup: Setup) -> None:
    setup.file("[engine]\nparallel = 2\n")
    other = setup.folder / "other.toml"
    other.write_text("[engine]\nctx_size = 9\n")
    engine = setup.resolve("--config", str(other)).settings.engine
    assert (engine.parallel, engine.ctx_size) == (None, 9)


# ---- who wins ----


@pytest.mark.parametrize(
    "subset", [s for n in (1, 2, 3) for s in itertools.combinations(range(3), n)]
)
@pytest.mark.parametrize(
    ("key", "toml", "variable", "flag", "values"),
    [
        ("engine.parallel", "{}", "LLAMA_ARG_N_PARALLEL", "-np", (2, 3, 4)),
        ("server.host", '"{}"', "LLAMA_ARG_HOST", "--host", ("f", "e", "c")),
        ("server.api_key", '"{}"', "LLAMA_API_KEY", "--api-key", ("q1z", "q2z", "q3z")),
    ],
)
def test_flag_beats_environment_beats_file(
    setup: Setup,
    subset: tuple[int, ...],
    key: str,
    toml: str,
    variable: str,
    flag: str,
    values: tuple[object, ...],
) -> None:
    table, _, name = key.partition(".")
    if 0 in subset:
        setup.file(f"[{table}]\n{name} = {toml.format(values[0])}\n")
    environ = {variable: str(values[1])} if 1 in subset else {}
    argv = [flag, str(values[2])] if 2 in subset else []
    resolved = setup.resolve(*argv, **environ)
    wanted = values[max(subset)]
    value = getattr(getattr(resolved.settings, table), name)
    assert value == (wanted if isinstance(wanted, int) else (wanted,))
    origins = ("mlxcel.toml:2", f"environment {variable}", f"flag {flag}")
    assert resolved.origins[key].text == origins[max(subset)]
    assert len(resolved.overrides) == (len(subset) > 1)
    for override in resolved.overrides:
        line = override.render()
        assert all(origins[layer] in line for layer in subset)
        if key == "server.api_key":
            assert not any(str(secret) in line for secret in values)


def test_a_switch_and_its_negation_obey_the_layers(setup: Setup) -> None:
    setup.file("[engine]\nkv_unified = true\n")
    assert setup.resolve().settings.engine.kv_unified is True
    off = {"LLAMA_ARG_NO_KV_UNIFIED": "1"}
    assert setup.resolve(**off).settings.engine.kv_unified is False
    assert setup.resolve("--kv-unified", **off).settings.engine.kv_unified is True
    on = {"LLAMA_ARG_KV_UNIFIED": "1"}
    assert setup.resolve("-no-kvu", **on).settings.engine.kv_unified is False


def test_saying_the_same_twice_overrides_nothing(setup: Setup) -> None:
    assert setup.resolve("-np", "2", LLAMA_ARG_N_PARALLEL="2").overrides == ()


def test_two_models_in_one_layer_clash_and_in_two_the_higher_wins(setup: Setup) -> None:
    bad = setup.refused("-m", "a", "-hf", "b/c")
    assert bad.exit == Exit.USAGE
    assert "say the same thing" in str(bad)
    setup.file('[model]\npath = "/a"\n')
    resolved = setup.resolve("-hf", "b/c")
    assert resolved.settings.model.path is None
    assert resolved.settings.model.hf_repo == "b/c"
    assert len(resolved.overrides) == 1


def test_a_wrong_file_and_a_wrong_flag_together_are_a_wrong_configuration(
    setup: Setup,
) -> None:
    setup.file("[engine]\nparallel = true\n")
    bad = setup.refused("-np", "x", LLAMA_ARG_CTX_SIZE="y")
    assert bad.exit == Exit.CONFIG
    assert len(bad.problems) == 3


def test_a_key_on_the_command_line_gets_a_warning_without_the_key(setup: Setup) -> None:
    (warning,) = setup.resolve("--api-key", "s3cret").warnings
    assert "list of processes" in warning.what
    assert "s3cret" not in warning.render()


def test_an_open_address_without_a_key_gets_a_warning(setup: Setup) -> None:
    (warning,) = setup.resolve("--host", "0.0.0.0").warnings
    assert (warning.where, warning.what.split(" can ")[0]) == (
        "server.host",
        "`0.0.0.0`",
    )
    keyed = setup.resolve("--host", "0.0.0.0", LLAMA_API_KEY="k")
    assert keyed.warnings == ()


# ---- what it becomes ----


def test_a_mode_that_nobody_set_is_legacy_in_the_wish(setup: Setup) -> None:
    assert wish(Settings()) == Wish()
    resolved = setup.resolve("-c", "0", "-np", "-1", "--ctx-size-per-seq", "0")
    assert wish(resolved.settings) == Wish("legacy", ctx_size=0, parallel=-1)


def test_the_memory_limit_is_bytes_or_a_share() -> None:
    assert memory_limit_bytes(5, 100) == 5
    assert memory_limit_bytes("auto", 1000) == 750
    assert memory_limit_bytes("12.5%", 1000) == 125
    assert (memory_limit_bytes("auto") or 0) > 1 << 20


def test_the_printed_configuration_can_be_fed_back(setup: Setup) -> None:
    setup.file('[model]\npath = "m"\nchat_template = "a\\n\\"b\\" # c"\n')
    first = setup.resolve(
        "-np", "-1", "--temp", "0.5", LLAMA_ARG_ALIAS="b,a", MLXCELD_MEMORY_LIMIT="50%"
    )
    forms: tuple[Form, ...] = ("changed", "all")
    for form in forms:
        text = print_config(first, form)
        copy = setup.folder / "copy" / "mlxcel.toml"
        copy.parent.mkdir(exist_ok=True)
        copy.write_text(text)
        assert setup.resolve("--config", str(copy)).settings == first.settings


def test_printed_values_carry_their_origin(setup: Setup) -> None:
    setup.file("[engine]\nctx_size = 4096\n")
    text = print_config(setup.resolve("-np", "2", LLAMA_ARG_PORT="1"), "changed")
    assert [" ".join(line.split()) for line in text.splitlines()] == [
        "version = 2",
        "",
        "[engine]",
        "ctx_size = 4096 # mlxcel.toml:2",
        "parallel = 2 # flag -np",
        "",
        "[server]",
        "port = 1 # environment LLAMA_ARG_PORT",
    ]
    everything = print_config(setup.resolve(), "all")
    assert "min_slot_ctx = 512" in everything
    assert everything.count("# default") == everything.count("  # ") - 1


def test_a_secret_is_neither_printed_nor_replaced_by_its_mask(setup: Setup) -> None:
    resolved = setup.resolve(LLAMA_API_KEY="s3cret", HF_TOKEN="t0ken")
    forms: tuple[Form, ...] = ("changed", "all", "json")
    for form in forms:
        text = print_config(resolved, form)
        assert "s3cret" not in text
        assert "t0ken" not in text
        if form != "json":
            assert "api_key" not in tomllib.loads(text).get("server", {})
