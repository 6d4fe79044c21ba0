"""Compose files: both styles of everything, and only what was given."""

from __future__ import annotations

import pytest

from mlxceld.migrate.found import Found
from mlxceld.migrate.sources import compose
from mlxceld.problems import Refused

from .reading import doubts, remarks, reviews, texts, variables

IMAGE = "ghcr.io/ggml-org/llama.cpp:server"


def read(text: str, given: dict[str, str] | None = None, **files: str) -> list[Found]:
    named = {f"{name}.env": content for name, content in files.items()}
    return compose.read(text, "compose.yaml", given=given, files=named.get)


def only(text: str, given: dict[str, str] | None = None, **files: str) -> Found:
    (found,) = read(text, given, **files)
    return found


LIST = f"""services:
  llm:
    image: {IMAGE}
    environment:
      - LLAMA_ARG_CTX_SIZE=${{CTX:-131072}}
      - LLAMA_ARG_N_PARALLEL=${{NP:-4}}
      - LLAMA_ARG_KV_UNIFIED_PER_SLOT=32768
      - LLAMA_ARG_THREADS
    command: ["--ctx-size", "65536"]
"""


def test_defaults_are_used_where_nothing_is_given() -> None:
    found = only(LIST)
    assert found.program == "llama-server"
    assert texts(found) == ["--ctx-size", "65536"]
    assert variables(found) == {
        "LLAMA_ARG_CTX_SIZE": "131072",
        "LLAMA_ARG_N_PARALLEL": "4",
        "LLAMA_ARG_KV_UNIFIED_PER_SLOT": "32768",
    }
    assert [str(v.place) for v in found.environment][:2] == [
        "compose.yaml:5: LLAMA_ARG_CTX_SIZE",
        "compose.yaml:6: LLAMA_ARG_N_PARALLEL",
    ]
    assert remarks(found)[:3] == [
        "`CTX` is not given, its default is used",
        "`NP` is not given, its default is used",
        "`LLAMA_ARG_THREADS` has no value here: unset",
    ]


def test_what_is_given_counts_more_than_a_default() -> None:
    found = only(LIST, {"CTX": "8192", "LLAMA_ARG_THREADS": "6"})
    assert variables(found)["LLAMA_ARG_CTX_SIZE"] == "8192"
    assert variables(found)["LLAMA_ARG_THREADS"] == "6"


def test_maps_are_read_as_they_are_written() -> None:
    found = only(
        f"services:\n  llm:\n    image: {IMAGE}\n    environment:\n"
        "      LLAMA_ARG_FLASH_ATTN: 1\n      LLAMA_ARG_CTX_SIZE: 0x2000\n"
        "      LLAMA_ARG_KV_UNIFIED: true\n      LLAMA_ARG_PORT:\n"
        "      LLAMA_ARG_ALIAS: ''\n      PRICE: $$5\n"
    )
    assert variables(found) == {
        "LLAMA_ARG_FLASH_ATTN": "1",
        "LLAMA_ARG_CTX_SIZE": "0x2000",
        "LLAMA_ARG_KV_UNIFIED": "true",
        "LLAMA_ARG_ALIAS": "",
        "PRICE": "$5",
    }


def test_a_command_as_text_is_cut_like_a_shell_would() -> None:
    found = only(
        f"services:\n  llm:\n    image: {IMAGE}\n    command: >\n"
        '      -m /m/a.gguf\n      --alias "a b" -np ${N}\n'
    )
    assert texts(found) == ["-m", "/m/a.gguf", "--alias", "a b", "-np", "${N}"]
    assert doubts(found.words) == {"${N}": "`N` is not given"}


def test_env_files_come_before_environment() -> None:
    found = only(
        f"services:\n  llm:\n    image: {IMAGE}\n    env_file:\n      - a.env\n"
        "      - path: b.env\n        required: false\n      - c.env\n"
        "    environment: [LLAMA_ARG_PORT=3]\n",
        a="LLAMA_ARG_PORT=1\nLLAMA_ARG_TOP_K='7'\n",
    )
    assert variables(found) == {"LLAMA_ARG_PORT": "3", "LLAMA_ARG_TOP_K": "7"}
    assert reviews(found) == ["`c.env` was not read, and may set options"]
    assert "`b.env` was not read, and may set options" in remarks(found)
    assert found.files == ("compose.yaml", "a.env")


def test_anchors_and_merges_are_followed_with_the_place_they_stand_at() -> None:
    found = only(
        f"x-llm: &llm\n  image: {IMAGE}\n  command: [-np, '2']\n"
        "services:\n  big:\n    <<: *llm\n    environment:\n      A: 1\n"
    )
    assert (found.name, texts(found)) == ("big", ["-np", "2"])
    assert str(found.words[1].place) == "compose.yaml:3: command"


def test_each_server_is_a_set_up_and_other_services_are_not() -> None:
    found = read(
        f"services:\n  web:\n    image: nginx\n  a:\n    image: {IMAGE}\n"
        "  b:\n    build: .\n    command: llama-server -np 2\n"
        "  c:\n    image: example.org/llm\n    environment: [LLAMA_ARG_PORT=1]\n"
    )
    assert [(one.name, one.program) for one in found] == [
        ("a", "llama-server"),
        ("b", "llama-server"),
        ("c", None),
    ]


def test_a_shell_inside_a_service_is_read() -> None:
    found = only(
        "services:\n  llm:\n    image: example.org/x\n"
        "    environment: [NP=3]\n    entrypoint: [sh, -c]\n"
        "    command: ['exec llama-server -np $$NP -c $$((2*4096))']\n"
    )
    assert texts(found) == ["-np", "3", "-c", "8192"]
    assert variables(found) == {"NP": "3"}


def test_what_surrounds_a_service_is_remarked() -> None:
    found = only(
        f"services:\n  llm:\n    image: {IMAGE}\n    profiles: [gpu]\n"
        "    ports: ['127.0.0.1:9090:8080', {published: 1, target: 2}]\n"
        "    deploy: {replicas: 2}\n    extends: {service: base}\n"
        "    working_dir: /models\n"
    )
    said = remarks(found)
    assert "starts only with the profile gpu" in said
    assert "runs 2 times: each of them needs this memory" in said
    assert sum("is published" in text for text in said) == 2
    assert reviews(found) == [
        "`extends` was not followed: the other service may set options"
    ]
    assert found.folder == "/models"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("services:\n  a: [\n", "compose.yaml:3: no valid YAML"),
        ("a: 1\n", "compose.yaml: there are no `services`"),
        ("", "compose.yaml: there are no `services`"),
        (
            f'services:\n  a:\n    image: {IMAGE}\n    command: "-a \'x"\n',
            "compose.yaml:4: quotes are not closed in `command`",
        ),
        (
            f"services:\n  a:\n    image: {IMAGE}\n    command:\n      - [x]\n",
            "compose.yaml:5: found a list or a mapping, wanted a text",
        ),
    ],
)
def test_a_broken_file_has_a_problem_with_a_place(text: str, message: str) -> None:
    with pytest.raises(Refused) as error:
        read(text)
    (problem,) = error.value.problems
    assert problem.render().startswith(message)
