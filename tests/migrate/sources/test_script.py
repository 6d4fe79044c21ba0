"""Start scripts: read and never run, followed one level."""

from __future__ import annotations

import pytest

from mlxceld.migrate.found import Found
from mlxceld.migrate.sources import script
from mlxceld.problems import Refused

from .reading import doubts, remarks, reviews, texts, variables


def read(text: str, **files: str) -> list[Found]:
    """Files are named without their `.sh`."""
    named = {f"{name}.sh": content for name, content in files.items()}
    return script.read(
        text, "run.sh", files=lambda name: named.get(name.removeprefix("./"))
    )


def only(text: str, **files: str) -> Found:
    (found,) = read(text, **files)
    return found


def test_a_start_line_with_arithmetic_a_key_and_an_ampersand() -> None:
    found = only(
        "export LLAMA_ARG_N_PARALLEL=1\n"
        "export LLAMA_ARG_N_PARALLEL=2\n"
        'llama-server --ctx-size "$(( 8*1024 ))" --api-key "$KEY" --n_ctx 4096 '
        "-fa -ub 512 &\n"
    )
    assert found.program == "llama-server"
    assert " ".join(texts(found)) == (
        "--ctx-size 8192 --api-key $KEY --n_ctx 4096 -fa -ub 512"
    )
    assert doubts(found.words) == {"$KEY": "`$KEY` is not set here"}
    assert variables(found) == {"LLAMA_ARG_N_PARALLEL": "2"}
    assert remarks(found) == [
        "`LLAMA_ARG_N_PARALLEL` is set again in line 2, and the last one counts",
        "runs in the background (`&`)",
    ]
    assert str(found.remarks[0].place) == "run.sh:1: LLAMA_ARG_N_PARALLEL"
    assert {word.place.line for word in found.words} == {3}


def test_each_word_of_a_continued_line_has_its_own_line() -> None:
    found = only("exec llama-server \\\n  -c 8192 \\\n  -np 2\n")
    assert [word.place.line for word in found.words] == [2, 2, 3, 3]
    assert found.command == ("exec", "llama-server")


def test_variables_and_arrays_are_followed() -> None:
    found = only(
        "BIN=/opt/llama/llama-server\nCTX=8192\nARGS=(-c $CTX)\nARGS+=(-np 3)\n"
        'EXTRA="--host 0.0.0.0"\n"$BIN" "${ARGS[@]}" $EXTRA --alias "$CTX tokens"\n'
    )
    assert found.command == ("/opt/llama/llama-server",)
    assert texts(found) == [
        *("-c", "8192", "-np", "3", "--host", "0.0.0.0"),
        *("--alias", "8192 tokens"),
    ]


def test_only_exported_variables_reach_the_server() -> None:
    found = only(
        "LLAMA_ARG_CTX_SIZE=1\nLLAMA_ARG_PORT=2\nexport LLAMA_ARG_PORT\n"
        "set -a\nLLAMA_ARG_HOST=::\nset +a\ndeclare -x LLAMA_ARG_ALIAS=a\n"
        "LLAMA_ARG_TOP_K=5 llama-server\n"
    )
    assert variables(found) == {
        "LLAMA_ARG_PORT": "2",
        "LLAMA_ARG_HOST": "::",
        "LLAMA_ARG_ALIAS": "a",
        "LLAMA_ARG_TOP_K": "5",
    }
    assert remarks(found) == [
        "`LLAMA_ARG_CTX_SIZE` is not exported: the server does not see it"
    ]


def test_unset_takes_a_variable_away() -> None:
    found = only("export LLAMA_ARG_PORT=2\nunset LLAMA_ARG_PORT\nllama-server -c 1$X")
    assert variables(found) == {}


@pytest.mark.parametrize(
    "line",
    [
        "if [ -n $GPU ]; then NP=4; fi",
        '[ -z "$X" ] && NP=4',
        "[[ -z $X ]] && NP=4",
        "true || NP=4",
        "while read x; do NP=4; done",
        "case $1 in a) NP=4;; esac",
    ],
)
def test_what_is_set_under_a_condition_is_in_doubt(line: str) -> None:
    found = only(f"NP=2\n{line}\nllama-server -np $NP\n")
    assert texts(found) == ["-np", "4"]
    assert doubts(found.words) == {"4": "`NP` is set under a condition (line 2)"}


def test_what_is_set_and_used_in_one_branch_is_certain() -> None:
    first, second = read(
        "if [ -e /dev/gpu ]; then\n  NP=4\n  ARGS=(-c 8192)\n"
        '  llama-server -np $NP "${ARGS[@]}"\n'
        'else\n  NP=2\n  llama-server -np $NP "${ARGS[@]}"\nfi\n'
    )
    assert (texts(first), doubts(first.words)) == (["-np", "4", "-c", "8192"], {})
    assert texts(second) == ["-np", "2", "-c", "8192"]
    assert doubts(second.words) == {
        "-c": "`ARGS` is set under a condition (line 3)",
        "8192": "`ARGS` is set under a condition (line 3)",
    }


def test_an_element_that_is_added_under_a_condition_is_in_doubt() -> None:
    found = only(
        'A=(-np 2)\n[ $X ] && A+=(--mlock)\nA+=(--port 1)\nllama-server "${A[@]}"\n'
    )
    assert texts(found) == ["-np", "2", "--mlock", "--port", "1"]
    assert doubts(found.words) == {
        "--mlock": "`A` is set under a condition (line 2)",
    }


def test_conditions_of_two_files_are_not_the_same() -> None:
    found = only(
        ". env.sh\nif b; then llama-server -np $NP; fi\n",
        env="if a; then NP=4; fi\n",
    )
    assert doubts(found.words) == {"4": "`NP` is set under a condition (line 1)"}


def test_what_follows_cd_is_certain() -> None:
    found = only("cd /srv/llama && NP=3 && llama-server -np $NP")
    assert (texts(found), doubts(found.words)) == (["-np", "3"], {})
    assert found.folder == "/srv/llama"


def test_a_loop_variable_has_several_values() -> None:
    found = only("for port in 8081 8082; do\n  llama-server --port $port &\ndone\n")
    assert doubts(found.words) == {"$port": "`$port` takes several values (line 1)"}
    assert "starts under a condition or in a loop" in remarks(found)


def test_two_servers_of_one_script_are_two_set_ups() -> None:
    first, second = read("llama-server -np 1 &\nllama-server -np 2\nwait\n")
    assert (first.name, second.name) == ("run.sh (1)", "run.sh (2)")
    assert (texts(first), texts(second)) == (["-np", "1"], ["-np", "2"])


def test_a_script_is_followed_one_level() -> None:
    start = 'exec llama-server -np 2 "$@"\n'
    found = only("export A=1\n./start.sh -c 4096\n", start=start)
    assert texts(found) == ["-np", "2", "-c", "4096"]
    assert [word.place.file for word in found.words] == [
        *("./start.sh", "./start.sh", "run.sh", "run.sh"),
    ]
    assert found.files == ("run.sh", "./start.sh")
    assert variables(found) == {"A": "1"}
    assert read("sh a.sh\n", a="sh b.sh\n", b="llama-server\n") == []


def test_a_sourced_file_sets_variables_of_the_script() -> None:
    found = only(". env.sh\nllama-server -np $NP\n", env="NP=6\n")
    assert texts(found) == ["-np", "6"]
    assert str(found.words[1].place) == "run.sh:2"
    assert found.files == ("run.sh", "env.sh")


def test_a_sourced_file_that_is_not_there_needs_a_look() -> None:
    found = only("source /opt/env\nllama-server -np $NP\n")
    assert reviews(found) == ["`/opt/env` is sourced, but was not read"]
    assert doubts(found.words) == {"$NP": "`$NP` is not set here"}


def test_the_folder_of_the_script_is_known_without_running_dirname() -> None:
    text = (
        'DIR="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"\n'
        'cd "$(dirname "$0")"\nllama-server -m "$DIR/m.gguf"\n'
    )
    (found,) = script.read(text, "/srv/run.sh")
    assert texts(found) == ["-m", "/srv/m.gguf"]
    assert found.folder == "/srv"


def test_a_script_may_give_itself_arguments() -> None:
    found = only('set -- -c 8192 -np 2\nset -- "$@" --port 1\nllama-server "$@"\n')
    assert texts(found) == ["-c", "8192", "-np", "2", "--port", "1"]
    assert [word.place.line for word in found.words] == [1, 1, 1, 1, 2, 2]
    found = only(
        "set -- x y a b\nshift 2\nshift\nllama-server --alias $1 --port ${2:-80}\n"
    )
    assert texts(found) == ["--alias", "b", "--port", "80"]


def test_an_uncertain_shift_leaves_every_argument_in_doubt() -> None:
    found = only("set -- -np 2\nshift $N\nllama-server $@\n")
    reason = "it is not certain how many arguments `shift` takes away"
    assert doubts(found.words) == {"-np": reason, "2": reason}


def test_a_line_that_is_evaluated_is_read() -> None:
    found = only('A=\'-c 8192\'\nLINE="llama-server $A -np 2"\neval "$LINE"\n')
    assert texts(found) == ["-c", "8192", "-np", "2"]
    found = only('eval "llama-server -np 2 $(cat flags)"\n')
    assert doubts(found.words) == {"$(cat flags)": "`$(cat ...)` is not run here"}
    assert reviews(found) == ["`eval`: `$(cat ...)` is not run here"]


def test_a_sourced_file_knows_its_own_folder_and_that_of_the_script() -> None:
    env = 'A="$(dirname "$0")"\nB="$(dirname "${BASH_SOURCE[0]}")"\n'
    files = {"/etc/llm/env.sh": env}
    text = '. /etc/llm/env.sh\nllama-server -m "$A/m" --alias "$B"\n'
    (found,) = script.read(text, "/srv/run.sh", files=files.get)
    assert texts(found) == ["-m", "/srv/m", "--alias", "/etc/llm"]


def test_zsh_does_not_split_what_it_expands() -> None:
    body = 'A="-np 2"\nllama-server $A\n'
    assert texts(only("#!/bin/zsh\n" + body)) == ["-np 2"]
    assert texts(only("#!/bin/bash\n" + body)) == ["-np", "2"]


def test_shells_in_shells_are_read() -> None:
    found = only("NP=3 bash -lc 'exec llama-server -np $NP --port $1' x 9000\n")
    assert texts(found) == ["-np", "3", "--port", "9000"]


@pytest.mark.parametrize(
    "line",
    [
        "echo llama-server -np 2",
        "# llama-server -np 2",
        "pkill -f llama-server",
        "sudo systemctl restart llama-server",
        "docker compose up llama-server",
        "cat <<EOF\nllama-server -np 2\nEOF",
        "curl localhost:8080/health",
    ],
)
def test_mentioning_a_server_is_not_starting_one(line: str) -> None:
    assert read(line + "\n") == []


def test_a_program_that_is_not_known_is_left_open() -> None:
    found = only('"$SERVER" -m a.gguf -c 8192 -np 2\n')
    assert found.program is None
    assert texts(found)[-2:] == ["-np", "2"]
    assert remarks(found) == ["it is not known which server `$SERVER` starts"]


def test_a_function_that_is_called_like_a_server_is_left_open() -> None:
    found = only("run_llama_server --model a.gguf -c 8192\n")
    assert (found.program, found.command) == (None, ("run_llama_server",))
    assert read("llama-cli --model a.gguf -c 8192\n") == []


def test_a_script_alone_is_taken_as_called_without_arguments() -> None:
    found = only('llama-server --port "${1:-80}" -np 2 "$@" $*\n')
    assert texts(found) == ["--port", "80", "-np", "2"]
    assert remarks(found) == [
        "`$1` is not set here, its default is used",
        "taken as called without arguments: `$@` gives none",
        "taken as called without arguments: `$*` gives none",
    ]
    (found,) = script.read('llama-server -np "$1"\n', "run.sh")
    assert doubts(found.words) == {"$1": "`$1` is what the script is called with"}


def test_functions_are_followed_where_they_are_called() -> None:
    first, second = read(
        "serve() {\n  local np=$2\n  llama-server --port $1 -np $np &\n}\n"
        "function unused { llama-server; }\n"
        "serve 8081 2\nserve 8082 4\nwait\n"
    )
    assert texts(first) == ["--port", "8081", "-np", "2"]
    assert texts(second) == ["--port", "8082", "-np", "4"]
    assert doubts([*first.words, *second.words]) == {}


def test_a_function_of_a_sourced_file_starts_the_server() -> None:
    found = only(
        ". env.sh\nrun_llama_server -c 8192 -np 3\n",
        env='run_llama_server() {\n  exec "/opt/llama/llama-server" "$@"\n}\n',
    )
    assert found.program == "llama-server"
    assert texts(found) == ["-c", "8192", "-np", "3"]
    assert str(found.words[0].place) == "run.sh:2"


def test_a_file_of_functions_is_read_as_if_they_were_called() -> None:
    found = only('# aliases\nllm() {\n  llama-server -c 8192 -np "$1" "$@"\n}\n')
    assert texts(found) == ["-c", "8192", "-np", "$1"]
    assert remarks(found)[-1] == (
        "stands in the function `llm`, which is not called here"
    )


def test_a_main_function_has_the_arguments_of_the_script() -> None:
    found = only('main() { llama-server "$@"; }\nmain -np 2 "$@"\n')
    assert texts(found) == ["-np", "2"]


def test_a_function_that_calls_itself_comes_to_an_end() -> None:
    assert read("f() { f; f; f; f; f; f; f; f; f; f; }\nf\n") == []


def test_commands_of_an_init_script_stand_under_its_case() -> None:
    found = only(
        "start() {\n  NP=4\n  llama-server -np $NP &\n}\n"
        'case "$1" in\n  start|run) start ;;\n  stop) pkill llama-server ;;\nesac\n'
    )
    assert (texts(found), doubts(found.words)) == (["-np", "4"], {})
    assert "starts under a condition or in a loop" in remarks(found)


def test_an_open_quote_is_a_problem_with_a_line() -> None:
    with pytest.raises(Refused) as error:
        read("llama-server\necho 'oops\n")
    (problem,) = error.value.problems
    assert (problem.where, problem.what) == ("run.sh:2", "`'` is not closed")


def test_variables_that_only_a_run_of_the_script_knows_want_a_look() -> None:
    found = only("export $(grep -v '^#' .env | xargs)\nllama-server -np 2\n")
    assert reviews(found) == [
        "`export` may set options here: `$(grep ...)` is not run here"
    ]
    found = only('eval "$(cat .env)"\nllama-server -np 2\n')
    assert reviews(found) == ["`eval`: `$(cat ...)` is not run here"]


def test_what_sets_up_a_shell_sets_no_option() -> None:
    found = only(
        'eval "$(/opt/homebrew/bin/brew shellenv)"\nexport PATH\nllama-server -np 2\n'
    )
    assert reviews(found) == []
