"""Files of variables, as systemd, Docker and Compose read them."""

from __future__ import annotations

import pytest

from mlxceld.migrate.sources import env
from mlxceld.migrate.sources.env import EnvFile
from mlxceld.migrate.sources.interpolate import interpolate

from .reading import doubts, variables


def pairs(content: EnvFile) -> dict[str, str]:
    return {variable.name: variable.value for variable in content.variables}


# What load_env_file() of systemd 252 makes of the same text.
def test_systemd_reads_quotes_backslashes_and_comments_of_whole_lines() -> None:
    text = (
        "# c\n;d\n  A = 1 # x  \n"
        'B="two \\$x \\q" tail\n'
        "C='a'\"b\"\n"
        "E=a\\\nb\n"
        'F=a"b"  \n'
        "H=$A\n"
        "I=a\\ b\n"
        'J="multi\nline"\n'
        "K=\n"
        "nonsense\n"
    )
    content = env.systemd(text, "llama.env")
    assert pairs(content) == {
        "A": "1 # x",
        "B": "two $x \\qtail",
        "C": "ab",
        "E": "ab",
        "F": 'a"b"',
        "H": "$A",
        "I": "a b",
        "J": "multi\nline",
        "K": "",
    }
    assert [v.place.line for v in content.variables] == [3, 4, 5, 6, 8, 9, 10, 11, 13]


def test_systemd_leaves_out_what_is_no_name() -> None:
    content = env.systemd("export LLAMA_ARG_CTX_SIZE=4096\nA=1\n", "llama.env")
    assert pairs(content) == {"A": "1"}
    (remark,) = content.remarks
    assert remark.review
    assert str(remark.place) == "llama.env:1: export LLAMA_ARG_CTX_SIZE"


def test_docker_takes_lines_as_they_are() -> None:
    content = env.docker('# c\nA="1"\n B=x # y\nC\nD=\n', "inner.env")
    assert pairs(content) == {"A": '"1"', "B": "x # y", "D": ""}
    assert [remark.text for remark in content.remarks] == [
        "the quotes around the value of `A` are part of it here",
        "`C` has no value here: unset",
    ]


def test_compose_reads_quotes_comments_and_variables() -> None:
    text = (
        "A=8192 # tokens\nexport B='$A # b'\nC=\"${A}k\\n\"\nD=${NO:-4}\n"
        "E=a#b\nF=${OUT}\nG=$NO\n"
    )
    content = env.dotenv(text, ".env", {"OUT": "o"}.get)
    assert pairs(content) == {
        "A": "8192",
        "B": "$A # b",
        "C": "8192k\n",
        "D": "4",
        "E": "a#b",
        "F": "o",
        "G": "$NO",
    }
    assert {v.name for v in content.variables if v.doubt} == {"G"}


def test_a_file_alone_is_in_doubt_where_its_readers_differ() -> None:
    (found,) = env.read(
        'LLAMA_ARG_CTX_SIZE=8192 # big\nLLAMA_ARG_ALIAS="a b"\nLLAMA_ARG_PORT=80\n',
        "llama.env",
    )
    assert found.program is None
    assert variables(found) == {
        "LLAMA_ARG_CTX_SIZE": "8192",
        "LLAMA_ARG_ALIAS": "a b",
        "LLAMA_ARG_PORT": "80",
    }
    assert [v.doubt for v in found.environment] == [
        *("systemd would read another value than Compose", "", ""),
    ]
    assert len(found.remarks) == 1
    assert str(found.remarks[0].place) == "llama.env:2: LLAMA_ARG_ALIAS"


def test_exports_in_a_file_alone_are_read_as_compose_does() -> None:
    (found,) = env.read("export LLAMA_ARG_N_PARALLEL=3\n", ".env")
    assert variables(found) == {"LLAMA_ARG_N_PARALLEL": "3"}


@pytest.mark.parametrize("text", ["", " ", "\n\n", "# only a comment"])
def test_an_empty_file_sets_nothing(text: str) -> None:
    for reader in (env.systemd, env.docker, env.dotenv, env.alone):
        assert reader(text, "x").variables == ()


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("${N}-$N-$$N", "4-4-$N"),
        ("${NO:-8192}", "8192"),
        ("${EMPTY:-1}${EMPTY-2}", "1"),
        ("${N:+yes}${NO:+no}", "yes"),
        ("${NO:-${N}}", "4"),
        ("100$ $1", "100$ $1"),
    ],
)
def test_variables_are_filled_in(text: str, result: str) -> None:
    filled = interpolate(text, {"N": "4", "EMPTY": ""}.get)
    assert (filled.text, filled.doubt) == (result, "")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a$NO", "`NO` is not given"),
        ("${NO:?say it}", "`NO` is not given, and has to be"),
        ("${N%x}", "what follows `${N` is nothing that Compose reads"),
        ("${N", "a `${` without its `}` is nothing that Compose reads"),
    ],
)
def test_what_is_not_given_stays_as_written(text: str, reason: str) -> None:
    filled = interpolate(text, {"N": "4"}.get)
    assert (filled.text, filled.doubt) == (text, reason)


def test_nothing_is_certain_by_accident() -> None:
    (found,) = env.read("A=${B}\n", "x.env")
    assert doubts(found.words) == {}
    assert found.environment[0].doubt == "`B` is not given"
