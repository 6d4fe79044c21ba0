"""llama-server's INI files, by the rules of its own reader."""

from __future__ import annotations

import pytest

from mlxceld.migrate.found import Found
from mlxceld.migrate.sources import ini
from mlxceld.problems import Refused

from .reading import doubts, remarks, reviews, texts


def read(text: str) -> dict[str, Found]:
    return {found.name: found for found in ini.read(text, "models.ini")}


PRESETS = """version = 1
[*]
np = 1
c = 8192   ; for all
no-mmap = 1
LLAMA_ARG_KV_UNIFIED = true

[m1]
ctx-size = 4096
parallel = 2
[m2]
no-kv-unified = 0
[name:tag]
"""


def test_sections_come_after_what_is_for_all() -> None:
    found = read(PRESETS)
    shared = ["-np", "1", "-c", "8192", "--no-mmap", "--kv-unified"]
    assert list(found) == ["m1", "m2", "name:tag"]
    assert texts(found["m1"]) == [*shared, "--ctx-size", "4096", "--parallel", "2"]
    assert texts(found["m2"]) == [*shared, "--kv-unified"]
    assert texts(found["name:tag"]) == shared
    assert {one.program for one in found.values()} == {"llama-server"}
    assert str(found["m1"].words[0].place) == "models.ini:3: [*] np"
    assert str(found["m1"].words[6].place) == "models.ini:9: [m1] ctx-size"
    assert [reviews(one) for one in found.values()] == [[], [], []]


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("kv-unified = 1", ["--kv-unified"]),
        ("kv-unified = off", ["--no-kv-unified"]),
        ("no-kv-unified = 1", ["--no-kv-unified"]),
        ("no-kv-unified = 0", ["--kv-unified"]),
        ("kvu = true", ["-kvu"]),
        ("no-kvu = true", ["-no-kvu"]),
        ("LLAMA_ARG_KV_UNIFIED = false", ["--no-kv-unified"]),
        ("mmap = disabled", ["--no-mmap"]),
        ("no-mmap = false", ["--mmap"]),
        ("nocb = 1", ["-nocb"]),
        ("cont-batching = 0", ["--no-cont-batching"]),
        ("flash-attn = auto", ["--flash-attn", "auto"]),
        ("fa = on", ["-fa", "on"]),
        ("metrics = 1", ["--metrics"]),
        ("metrics = 0", []),
        ("mlock = true", ["--mlock"]),
        ("slots = 0", ["--no-slots"]),
        ("np = -1", ["-np", "-1"]),
        ("m = /m/a b.gguf", ["-m", "/m/a b.gguf"]),
        ("alias = a # b", ["--alias", "a"]),
        ("LLAMA_ARG_CTX_SIZE = 4096", ["--ctx-size", "4096"]),
        ("LLAMA_ARG_THREADS = 4", ["-t", "4"]),
    ],
)
def test_keys_become_the_flags_they_stand_for(row: str, words: list[str]) -> None:
    found = read(f"[m]\n{row}\n")["m"]
    assert (texts(found), doubts(found.words)) == (words, {})


def test_a_config_without_sections_is_the_one_of_the_server() -> None:
    found = read("[*]\nnp = 4\n[default]\nmetrics = 0\nc = 8192\n")
    assert list(found) == ["default"]
    assert texts(found["default"]) == ["-np", "4", "--metrics", "-c", "8192"]
    assert remarks(found["default"]) == [
        "is on, whatever its value: llama-server looks for the key only"
    ]


def test_a_section_that_comes_again_begins_anew() -> None:
    found = read("np = 4\n[default]\nc = 8192\n")["default"]
    assert texts(found) == ["-c", "8192"]
    assert remarks(found) == ["`[default]` begins anew: the keys before it are dropped"]


def test_of_two_names_for_one_option_the_later_in_the_alphabet_counts() -> None:
    found = read("[m]\nctx-size = 1\nc = 2\nLLAMA_ARG_CTX_SIZE = 3\nnp = 1\nnp = 2\n")
    assert texts(found["m"]) == ["--ctx-size", "1", "-np", "2"]
    assert remarks(found["m"])[1] == (
        "no model is named: the router takes it from the section's name"
    )
    assert remarks(found["m"])[2:] == [
        "is said again in line 6, which counts",
        "`ctx-size` in line 2 says the same option, and counts",
        "`ctx-size` in line 2 says the same option, and counts",
    ]


def test_keys_that_are_no_options_are_named() -> None:
    found = read("[m]\nctx-sise = 1\nstop-timeout = 10\n")["m"]
    assert texts(found) == []
    assert reviews(found) == ["is no option of llama-server; did you mean `ctx-size`?"]
    assert "is for llama-server's router only" in remarks(found)


def test_words_that_are_neither_on_nor_off_are_in_doubt() -> None:
    found = read("[m]\nkv-unified = YES\n")["m"]
    assert doubts(found.words) == {
        "--kv-unified": "`YES` is no word for on or off",
    }


def test_lines_that_are_nothing_are_problems_each() -> None:
    with pytest.raises(Refused) as error:
        read("[m]\nnp 4\n= 3\n")
    assert [problem.where for problem in error.value.problems] == [
        *("models.ini:2", "models.ini:3"),
    ]
