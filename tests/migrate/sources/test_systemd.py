"""systemd units, by the rules of its manual pages and of its own parser."""

from __future__ import annotations

import pytest

from mlxceld.migrate.found import Found, Place, Word
from mlxceld.migrate.sources import systemd
from mlxceld.migrate.sources.units import (
    Expansion,
    Setting,
    Unquotable,
    parse,
    specified,
    split,
)
from mlxceld.problems import Refused

from .reading import doubts, remarks, reviews, texts, variables

FILE = "/etc/systemd/system/llama.service"


def read(
    service: str,
    *drop_ins: tuple[str, str],
    file: str = FILE,
    **files: str,
) -> list[Found]:
    """Files are named by their stem, below /etc/default."""
    named = {f"/etc/default/{name}": text for name, text in files.items()}
    text = f"[Unit]\nDescription=x\n[Service]\n{service}"
    return systemd.read(text, file, drop_ins=drop_ins, files=named.get)


def only(service: str, *drop_ins: tuple[str, str], **files: str) -> Found:
    (found,) = read(service, *drop_ins, **files)
    return found


# What extract_first_word() of systemd 252 makes of the same text, with the flags that
# systemd uses for ExecStart=.
@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("a  b\tc", ["a", "b", "c"]),
        ("'a b' \"c d\" e'f g'h", ["a b", "c d", "ef gh"]),
        (
            "ONE='one' \"TWO='two two' too\" THREE=",
            ["ONE=one", "TWO='two two' too", "THREE="],
        ),
        ("'a\\x20b' \\s \\101 \\n", ["a b", " ", "A", "\n"]),
        ('--x=\\"q\\"', ['--x="q"']),
        ("a\\qb", ["a\\qb"]),
        ('--a={"x": 1}', ["--a={x:", "1}"]),
        ("'{\"x\": 1}'", ['{"x": 1}']),
        ('"" b', ["", "b"]),
    ],
)
def test_quotes_and_escapes_are_those_of_systemd(value: str, words: list[str]) -> None:
    found = split(Setting("Service", "ExecStart", value, Place(FILE, 1)))
    assert [word.text for word in found] == words


def test_an_open_quote_is_not_readable() -> None:
    with pytest.raises(Unquotable):
        split(Setting("Service", "ExecStart", "a 'b", Place(FILE, 1)))


# What replace_env_argv() of systemd 252 makes of the same words.
def test_variables_alone_are_split_and_in_braces_are_not() -> None:
    known = {"A": Word("1 '2 3'", Place())}
    words = ["x", "$A", "${A}", "a$A", "a${A}b", "$$A", "a$$b", "${A"]
    found = Expansion(known.get).words([Word(word, Place()) for word in words])
    assert [word.text for word in found] == [
        *("x", "1", "2 3", "1 '2 3'", "a$A", "a1 '2 3'b", "$A", "a$b", "${A"),
    ]
    assert doubts(found) == {}


def test_defaults_of_shells_are_unknown_to_systemd() -> None:
    found = Expansion({}.get).words([Word("x", Place()), Word("${A:-4}", Place())])
    assert doubts(found) == {"${A:-4}": "systemd fills in no `${A:-`"}


def test_lines_go_on_after_a_backslash_and_keep_their_numbers() -> None:
    found = only(
        "ExecStart=/usr/bin/llama-server \\\n"
        "  -c 8192 \\\n"
        "  # a comment in between\n"
        "  --parallel 2\n"
        "Restart=always\n"
    )
    assert texts(found) == ["-c", "8192", "--parallel", "2"]
    assert [word.place.line for word in found.words] == [5, 5, 7, 7]
    assert str(found.words[0].place) == f"{FILE}:5: ExecStart"


def test_env_files_win_over_environment_and_the_last_one_over_the_others() -> None:
    found = only(
        "Environment=NP=1 'OPTS=-c 4096 --alias \"my model\"' LLAMA_ARG_PORT=1\n"
        "EnvironmentFile=/etc/default/a\n"
        "EnvironmentFile=-/etc/default/b\n"
        "EnvironmentFile=-/etc/default/none\n"
        "ExecStart=/usr/bin/llama-server -np ${NP} $OPTS\n",
        a="NP=2\nLLAMA_ARG_PORT=2\n",
        b="NP=3\n",
    )
    assert texts(found) == ["-np", "3", "-c", "4096", "--alias", "my model"]
    assert variables(found)["LLAMA_ARG_PORT"] == "2"
    assert remarks(found) == [
        "`/etc/default/none` is not here; systemd would go on without it"
    ]
    assert found.files == (FILE, "/etc/default/a", "/etc/default/b")


def test_a_variable_of_a_file_that_was_not_read_is_in_doubt() -> None:
    found = only(
        "EnvironmentFile=/etc/default/llama\n"
        "ExecStart=/usr/bin/llama-server -np ${NP} $MORE\n"
    )
    why = "`/etc/default/llama` may set it"
    assert doubts(found.words) == {
        "${NP}": f"`NP` is not set here: {why}",
        "$MORE": f"`MORE` is not set here: {why}",
    }
    assert reviews(found) == ["`/etc/default/llama` was not read, and may set options"]


def test_drop_ins_reset_and_set_anew() -> None:
    found = only(
        "Environment=A=1\nExecStart=/usr/bin/llama-server -np 1\n",
        ("/etc/x.d/10.conf", "[Service]\nExecStart=\nEnvironment=\nEnvironment=B=2\n"),
        ("/etc/x.d/20.conf", "[Service]\nExecStart=/usr/bin/llama-server -np 2\n"),
    )
    assert texts(found) == ["-np", "2"]
    assert variables(found) == {"B": "2"}
    assert str(found.words[1].place) == "/etc/x.d/20.conf:2: ExecStart"
    assert found.files == (FILE, "/etc/x.d/10.conf", "/etc/x.d/20.conf")


@pytest.mark.parametrize(
    ("unit", "text", "result"),
    [
        ("llama.service", "%p %n %N %% %t %S %h", "llama llama.service llama % /run"),
        ("llama@8081.service", "%i %p %j", "8081 llama llama"),
        ("gpu-llama@a\\x2db-c.service", "%I %j", "a-b/c llama"),
    ],
)
def test_specifiers_that_are_certain_are_filled_in(
    unit: str, text: str, result: str
) -> None:
    loaded = systemd.load("", f"/etc/systemd/system/{unit}")
    word = specified(Word(text, Place()), loaded)
    if "%h" in text:
        result += " /var/lib /root"
    assert (word.text, word.doubt) == (result, "")


def test_specifiers_of_the_machine_are_in_doubt() -> None:
    loaded = systemd.load("", "/home/a/.config/systemd/user/llama@.service")
    assert specified(Word("%h/m", Place()), loaded).text == "~/m"
    word = specified(Word("%i", Place()), loaded)
    assert word.doubt == "`%i` depends on the machine or the instance"
    assert specified(Word("%H", Place()), loaded).doubt


def test_prefixes_of_the_command_are_no_part_of_it() -> None:
    found = only("ExecStart=-@/usr/bin/llama-server shown -np 2\n")
    assert texts(found) == ["-np", "2"]
    found = only("ExecStart=:/usr/bin/llama-server --alias $A ${A}\n")
    assert (texts(found)[1:], doubts(found.words)) == (["$A", "${A}"], {})


def test_a_shell_inside_a_unit_sees_the_environment_of_the_unit() -> None:
    found = only(
        "Environment=NP=4\n"
        "ExecStart=/bin/sh -c 'exec llama-server -np $$NP -c $$((1024*8))'\n"
    )
    assert texts(found) == ["-np", "4", "-c", "8192"]


def test_a_script_inside_a_unit_is_followed() -> None:
    found = only(
        "Environment=NP=4\nExecStart=/etc/default/run.sh --port 9000\n",
        **{"run.sh": "#!/bin/sh\nexec llama-server -np $NP $@\n"},
    )
    assert texts(found) == ["-np", "4", "--port", "9000"]
    assert found.kind == "systemd"
    assert found.files == (FILE, "/etc/default/run.sh")


def test_a_container_that_a_unit_starts_has_its_own_environment() -> None:
    found = only(
        "Environment=CTX=4096 LLAMA_ARG_PORT=1 LLAMA_ARG_TOP_K=5\n"
        "ExecStart=/usr/bin/podman run --rm -e LLAMA_ARG_CTX_SIZE=${CTX} "
        "-e LLAMA_ARG_TOP_K ghcr.io/ggml-org/llama.cpp:server -np 2\n"
    )
    assert variables(found) == {"LLAMA_ARG_CTX_SIZE": "4096", "LLAMA_ARG_TOP_K": "5"}
    assert (texts(found), found.folder) == (["-np", "2"], "")


def test_relative_names_are_seen_from_the_working_directory() -> None:
    found = only("WorkingDirectory=/srv/%p\nExecStart=/usr/bin/llama-server\n")
    assert found.folder == "/srv/llama"
    assert only("ExecStart=/usr/bin/llama-server\n").folder == "/"


def test_unset_variables_do_not_reach_the_server() -> None:
    found = only(
        "Environment=A=1 B=2\nUnsetEnvironment=A\nPassEnvironment=LLAMA_ARG_PORT\n"
        "ExecStart=/usr/bin/llama-server\n"
    )
    assert variables(found) == {"B": "2"}
    assert reviews(found) == ["`LLAMA_ARG_PORT` comes from the manager's environment"]


def test_a_broken_environment_line_is_left_out_and_said() -> None:
    found = only("Environment='A=1\nExecStart=/usr/bin/llama-server\n")
    assert variables(found) == {}
    assert reviews(found) == [
        "quotes are not closed: systemd leaves this `Environment=` out"
    ]


def test_a_broken_command_line_is_a_problem_with_a_place() -> None:
    with pytest.raises(Refused) as error:
        read("ExecStart=/usr/bin/llama-server --alias 'a\n")
    assert error.value.problems[0].where == f"{FILE}:4: ExecStart"


@pytest.mark.parametrize("escape", ["\\UFFFFFFFF", "\\ud800", "\\x00"])
def test_an_escape_that_is_no_character_stays_as_it_is(escape: str) -> None:
    (found,) = read(f"ExecStart=/usr/bin/llama-server --alias {escape}\n")
    assert texts(found) == ["--alias", escape]


def test_a_unit_without_a_server_gives_nothing() -> None:
    assert read("ExecStart=/usr/bin/nginx -g x\n") == []


def test_settings_keep_their_section() -> None:
    settings = parse("[A]\nx = 1\n; c\n[B]\nx=2\\\n 3\n", "u")
    assert [(s.section, s.key, s.value, s.place.line) for s in settings] == [
        ("A", "x", "1", 2),
        ("B", "x", "2 3", 5),
    ]


def test_a_script_that_is_not_here_is_asked_for() -> None:
    with pytest.raises(Refused) as error:
        read("ExecStart=/bin/bash -e /opt/llm/start.sh --port 1\n")
    (problem,) = error.value.problems
    assert problem.render() == (
        f"{FILE}:4: ExecStart: it starts the script `/opt/llm/start.sh`, "
        "which cannot be read here\n  hint: give the script itself"
    )


@pytest.mark.parametrize(
    ("setting", "user"), [("User=llm\n", "llm"), ("User=root\n", ""), ("", "")]
)
def test_who_runs_the_service_is_known(setting: str, user: str) -> None:
    (found,) = read(f"{setting}ExecStart=/usr/bin/llama-server -m /m\n")
    assert found.user == user
