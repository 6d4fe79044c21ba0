"""The option table keeps its own rules."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from dataclasses import fields

import pytest

from mlxceld import settings
from mlxceld.argv import ACTIONS, KNOWN
from mlxceld.foreign import CACHE_REUSE, IGNORED, REFUSED
from mlxceld.kinds import Choice
from mlxceld.options import CATEGORIES, EXCLUSIVE, OLD_KEYS, OPTIONS, TABLES, Option

every_option = pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.key)


def repeated(names: list[str]) -> list[str]:
    return [name for name, count in Counter(names).items() if count > 1]


def test_keys_flags_and_variables_are_unique() -> None:
    assert repeated([option.key for option in OPTIONS]) == []
    flags = [
        flag
        for o in OPTIONS
        for flag in (*o.flags, *o.negated, *(flag for flag, _ in o.constants))
    ]
    flags += [flag for action in ACTIONS for flag in action.flags]
    flags += [flag for foreign in (*IGNORED, CACHE_REUSE) for flag in foreign.flags]
    assert repeated([*flags, *REFUSED]) == []
    env = [n for o in OPTIONS for n in (*o.env, *o.negated_env, o.own_env)]
    env += [name for foreign in (*IGNORED, CACHE_REUSE) for name in foreign.env]
    assert repeated([*env, "MLXCELD_CONFIG"]) == []


def test_no_old_name_is_a_current_one_of_its_table() -> None:
    names = [(option.table, option.name) for option in OPTIONS]
    for option in OPTIONS:
        for old in option.renamed_from:
            assert (option.table, old) not in names
            assert old not in OLD_KEYS


@every_option
def test_an_option_says_what_it_is(option: Option) -> None:
    assert option.table in TABLES
    assert option.category in CATEGORIES
    assert re.fullmatch(r"[a-z]+\.[a-z_]+", option.key)
    assert option.short
    assert option.short[0].isupper()
    assert not option.short.endswith(".")
    assert len(option.short) <= 75
    assert option.long.rstrip().endswith((".", "`75%`."))
    assert re.fullmatch(r"\d+\.\d+\.\d+", option.since)
    assert (option.default is None) == bool(option.default_text)


@every_option
def test_an_option_has_a_long_flag_and_a_variable_of_its_own(option: Option) -> None:
    assert option.flag.startswith("--")
    assert all(re.fullmatch(r"--?[a-z0-9-]+", flag) for flag in option.flags)
    assert re.fullmatch(r"MLXCELD_[A-Z_]+", option.own_env)
    assert bool(option.negated) <= option.is_switch


@every_option
def test_a_default_is_a_value_of_its_kind(option: Option) -> None:
    if option.default is None:
        return
    text = option.kind.render(option.default)
    value = tomllib.loads(f"x = {text}")["x"]
    assert option.kind.check(value) == option.default


@every_option
def test_choices_have_a_line_each(option: Option) -> None:
    if isinstance(option.kind, Choice):
        assert all(text and not text.endswith(".") for _, text in option.kind.choices)
        spellings = dict(option.kind.spellings)
        assert set(spellings.values()) <= set(option.kind.words)


def test_the_typed_settings_have_every_option_and_no_other() -> None:
    made = [
        f"{table.name}.{field.name}"
        for table in fields(settings.Settings)
        for field in fields(getattr(settings.Settings(), table.name))
    ]
    assert sorted(made) == sorted(option.key for option in OPTIONS)


def test_exclusive_options_exist() -> None:
    keys = {option.key for option in OPTIONS}
    assert {key for pair in EXCLUSIVE for key in pair} <= keys


def test_options_that_only_we_have_got_their_names() -> None:
    own = {option.key: option.own_env for option in OPTIONS}
    assert own["engine.mode"] == "MLXCELD_MODE"
    assert own["engine.min_slot_ctx"] == "MLXCELD_MIN_SLOT_CTX"
    assert own["model.path"] == "MLXCELD_MODEL"
    assert own["logging.file"] == "MLXCELD_LOG_FILE"


LLAMA_SERVER = """
-c --ctx-size -np --parallel -kvu --kv-unified -no-kvu --no-kv-unified
--kv-unified-per-slot -m --model -a --alias -n --predict --n-predict -b --batch-size
--host --port --api-key --api-key-file --api-prefix --slots --no-slots --props --metrics
--cors-origins -hf --hf-repo -hft --offline --jinja --no-jinja --chat-template
--chat-template-file --chat-template-kwargs -s --seed --temp --temperature --top-k
--top-p --min-p --typical --repeat-last-n --repeat-penalty --presence-penalty
--frequency-penalty --ignore-eos -dev --device --cache-prompt --no-cache-prompt
-sps --slot-prompt-similarity --sse-ping-interval -lv --verbosity -v --verbose
--log-file -ngl --gpu-layers --n-gpu-layers -fa --flash-attn -t --threads -tb -ub
--ubatch-size --mlock --mmap --no-mmap --cont-batching -nocb --no-webui --timeout
--cache-reuse --spec-type -md --model-draft --threads-http --reasoning-format
"""


def test_the_flags_of_llama_server_are_known() -> None:
    assert [flag for flag in LLAMA_SERVER.split() if flag not in KNOWN] == []
