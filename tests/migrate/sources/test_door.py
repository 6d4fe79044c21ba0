"""The door of the readers: what a file is, and what belongs to it."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlxceld.migrate import sources
from mlxceld.migrate.found import Entry, Kind, Place
from mlxceld.migrate.sources.detect import detect
from mlxceld.problems import Refused

from .reading import texts, variables


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        ("mlxcel.toml", "", "toml"),
        ("/etc/systemd/system/llama@.service", "", "systemd"),
        ("llama.service.d/10-np.conf", "", "systemd"),
        ("llm.container", "", "quadlet"),
        ("org.example.llm.plist", "", "launchd"),
        ("compose.yaml", "", "compose"),
        ("docker-compose.gpu.yml", "", "compose"),
        ("presets.ini", "", "ini"),
        ("run.sh", "", "script"),
        ("deploy/.env", "", "env"),
        (".env.production", "", "env"),
        ("/etc/default/llama", "", "env"),
        ("start", "#!/bin/bash\nllama-server\n", "script"),
        ("job", "<?xml version='1.0'?>\n<plist/>", "launchd"),
        ("job", "bplist00", "launchd"),
        ("a", "[Unit]\nDescription=x\n[Service]\nExecStart=/x\n", "systemd"),
        ("a", "[Unit]\nA=1\n[Container]\nImage=x\n", "quadlet"),
        ("a", "version: '3'\nservices:\n  a: {}\n", "compose"),
        ("a", "# c\nLLAMA_ARG_PORT=1\nexport B=2\n", "env"),
        ("a", "[m1]\nctx-size = 4096\n", "ini"),
        ("a", "[*]\nnp = 1\n", "ini"),
        ("a", 'ctx_size = 4096\nmodel = "/m"\n', "toml"),
        ("a", "llama-server -c 8192 -np 2\n", "command"),
        ("", "llama-server \\\n  -c 8192 \\\n  -np 2\n", "command"),
        ("", "cd /srv\nllama-server -c 8192\n", "script"),
        ("a", "", None),
    ],
)
def test_a_file_is_known_by_its_name_or_its_content(
    name: str, text: str, kind: Kind | None
) -> None:
    assert detect(name, text.encode()) == kind


def test_toml_keys_have_their_lines(tmp_path: Path) -> None:
    file = tmp_path / "old.toml"
    file.write_text('ctx_size = 8192\n\n[server]\nport = 1\ntags = ["a"]\n')
    (found,) = sources.read(str(file))
    assert found.program == "mlxcel-server"
    assert found.entries == (
        Entry("ctx_size", 8192, Place(str(file), 1, "ctx_size")),
        Entry("server.port", 1, Place(str(file), 4, "server.port")),
        Entry("server.tags", ["a"], Place(str(file), 5, "server.tags")),
    )


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"a = 08192\n", "{}:1: no valid TOML"),
        (b"a = 1\na = 2\n", "{}:2: no valid TOML: Cannot overwrite a value"),
        (b"\xef\xbb\xbfa = 1\n", "{}:1: no valid TOML: the file begins with a byte"),
        (b"a = 1\nb = '\xff'\n", "{}:2: not in UTF-8"),
        (b"a = " + b"[" * 20000, "{}: nested too deeply"),
    ],
)
def test_a_file_that_is_no_toml_has_one_problem(
    tmp_path: Path, data: bytes, message: str
) -> None:
    file = tmp_path / "old.toml"
    file.write_bytes(data)
    with pytest.raises(Refused) as error:
        sources.read(str(file))
    (problem,) = error.value.problems
    assert problem.render().startswith(message.format(file))


def test_a_file_that_is_not_there_is_a_problem(tmp_path: Path) -> None:
    with pytest.raises(Refused) as error:
        sources.read(str(tmp_path / "no.toml"))
    assert error.value.problems[0].what == "cannot be read: no such file or directory"


@pytest.mark.parametrize(
    ("name", "text", "language"),
    [
        ("run.fish", "set -x LLAMA_ARG_CTX_SIZE 8192\nllama-server -np 2\n", "fish"),
        ("run", "#!/usr/bin/env -S fish -N\nllama-server -np 2\n", "fish"),
        ("run.bat", "llama-server.exe -m C:\\m.gguf\n", "cmd.exe"),
        ("run.sh", "#!/usr/bin/python3\nllama-server -np 2\n", "python3"),
    ],
)
def test_what_another_shell_would_read_otherwise_is_not_read(
    tmp_path: Path, name: str, text: str, language: str
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(Refused) as refused:
        sources.read(str(tmp_path / name))
    assert f"written for {language};" in refused.value.problems[0].what


@pytest.mark.parametrize(
    "first", ["#!/bin/sh -e", "#!/usr/bin/env bash", "#! /bin/zsh"]
)
def test_shells_like_sh_are_read(tmp_path: Path, first: str) -> None:
    (tmp_path / "run").write_text(f"{first}\nllama-server -np 2\n")
    (found,) = sources.read(str(tmp_path / "run"))
    assert texts(found) == ["-np", "2"]


def test_a_file_of_no_known_kind_asks_for_one(tmp_path: Path) -> None:
    with pytest.raises(Refused) as error:
        sources.read_data(b"", "")
    assert error.value.problems[0].render() == (
        "standard input: it is not known what this is\n"
        "  hint: name the kind with `--kind`"
    )


def test_drop_ins_beside_a_unit_belong_to_it(tmp_path: Path) -> None:
    unit = tmp_path / "llm@a.service"
    unit.write_text("[Service]\nExecStart=/usr/bin/llama-server -np 1\n")
    for folder, name, count in (
        ("llm@.service.d", "20", 2),
        ("llm@a.service.d", "10", 3),
    ):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"{name}.conf").write_text(
            f"[Service]\nExecStart=\nExecStart=/usr/bin/llama-server -np {count}\n"
        )
    (found,) = sources.read(str(unit))
    assert texts(found) == ["-np", "2"]
    assert [Path(name).name for name in found.files] == [
        *("llm@a.service", "10.conf", "20.conf"),
    ]


def test_files_are_seen_from_the_folder_of_the_source(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text("./start.sh -c 4096\n")
    (tmp_path / "start.sh").write_text("exec llama-server $@\n")
    (found,) = sources.read(str(tmp_path / "run.sh"))
    assert texts(found) == ["-c", "4096"]


def test_pipes_that_a_source_names_are_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "run.sh")
    (tmp_path / "start.sh").write_text(". ./run.sh\nllama-server -np 2\n")
    (found,) = sources.read(str(tmp_path / "start.sh"))
    assert [remark.text for remark in found.remarks] == [
        "`./run.sh` is sourced, but was not read"
    ]


def test_a_dotenv_beside_a_compose_file_counts_only_when_given(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("NP=2\n")
    file = tmp_path / "compose.yaml"
    file.write_text(
        "services:\n  a:\n    image: ghcr.io/ggml-org/llama.cpp:server\n"
        "    command: -np ${NP:-8}\n"
    )
    (found,) = sources.read(str(file))
    assert texts(found) == ["-np", "8"]
    (found,) = sources.read(str(file), env_files=[str(tmp_path / ".env")])
    assert texts(found) == ["-np", "2"]


def test_given_env_files_are_the_environment_of_other_kinds(tmp_path: Path) -> None:
    env = tmp_path / "llama.env"
    env.write_text("NP=2\nLLAMA_ARG_PORT=1\n")
    (found,) = sources.read_data(
        b"llama-server -np $NP\n", "", env_files=[str(env)], kind="command"
    )
    assert texts(found) == ["-np", "2"]
    assert variables(found)["LLAMA_ARG_PORT"] == "1"


def test_a_command_of_words_is_seen_from_the_folder_given() -> None:
    for _ in range(2):
        found = sources.command(["llama-server", "-np", "2"], folder="/srv")
        assert (found.folder, texts(found)) == ("/srv", ["-np", "2"])


PIECES = st.sampled_from(
    [
        *("llama-server", "-c", "8192", " ", "\n", "\t", "\\", "'", '"', "$", "{", "}"),
        *(
            "(",
            ")",
            "((",
            "[",
            "]",
            "=",
            "A=",
            "${A:-",
            "$((",
            "$(",
            "`",
            "#",
            ";",
            "&",
        ),
        *("|", "<", ">", "<<E", "%", "%i", "[Service]\n", "[Container]\n", "\nImage=x"),
        *(
            "\nExecStart=/bin/sh -c '",
            "\nExec=",
            "\nEnvironment=",
            "services:\n a:\n  ",
        ),
        *(
            "image: x\n  ",
            "command: ",
            "environment:",
            "- ",
            "&a ",
            "*a",
            "<<: *a",
            ": ",
        ),
        *("<plist>", "<dict>", "<key>", "</key>", "<string>", "</plist>", "é", "\r\n"),
    ]
)


@given(st.sampled_from(get_args(Kind)), st.lists(PIECES, max_size=24))
@settings(max_examples=150, deadline=None)
def test_any_text_is_read_or_refused(kind: Kind, pieces: list[str]) -> None:
    with suppress(Refused):
        found = sources.read_data("".join(pieces).encode(), "", kind=kind)
        assert all(one.kind == kind for one in found)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("script", "llama-server --api-key ${KEY:-sk-hidden} --x ${A[0]:-sk-hidden}\n"),
        ("script", "llama-server --api-key $(printf sk-hidden) -c ${#sk-hidden}\n"),
        (
            "script",
            "export K=sk-hidden\nexport K=$X\n[ a ] && K=sk-hidden\nllama-server",
        ),
        ("env", "LLAMA_API_KEY=sk-hidden # mine\nA='sk-hidden\nsk-hidden\nB=${C\n"),
        ("env", "A=${B:-sk-hidden}\nC=${D:?sk-hidden}\nE=${F%sk-hidden}\n"),
        ("ini", "[m]\napi-key = sk-hidden\napi-kee = sk-hidden\nnp=1\nnp=2\n"),
        (
            "compose",
            "services:\n  a:\n    image: example.org/llama-server\n    environment:\n"
            "    - A=${K:-sk-hidden}\n    - B=sk-hidden${\n"
            "    - LLAMA_API_KEY=sk-hidden\n",
        ),
        (
            "systemd",
            "[Service]\nEnvironment=LLAMA_API_KEY=sk-hidden 'A=sk-hidden\n"
            "ExecStart=/usr/bin/llama-server --api-key sk-hidden${X} ${Y:-sk-hidden}\n",
        ),
    ],
)
def test_no_reason_shows_what_may_be_a_secret(kind: Kind, text: str) -> None:
    for found in sources.read_data(text.encode(), "", kind=kind):
        said = [remark.text for remark in found.remarks]
        said += [word.doubt for word in (*found.words, *found.environment)]
        assert said
        assert "sk-hidden" not in " ".join(said)


def test_a_pipe_with_a_name_is_not_read_because_it_can_be_read_only_once(
    tmp_path: Path,
) -> None:
    os.mkfifo(tmp_path / "llm.toml")
    with pytest.raises(Refused) as refused:
        sources.read(str(tmp_path / "llm.toml"))
    (problem,) = refused.value.problems
    assert problem.what == "is not a regular file"
    assert "`-`" in problem.hint
