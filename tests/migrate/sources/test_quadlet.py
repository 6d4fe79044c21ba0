"""Podman's container units: two environments with two effects."""

from __future__ import annotations

import pytest

from mlxceld.migrate.found import Found
from mlxceld.migrate.sources import quadlet
from mlxceld.problems import Refused

from .reading import doubts, remarks, reviews, texts, variables

IMAGE = "Image=ghcr.io/ggml-org/llama.cpp:server-vulkan\n"


def only(container: str, service: str = "", **files: str) -> Found:
    named = {f"{name}.env": text for name, text in files.items()}
    text = f"[Container]\n{container}[Service]\n{service}"
    (found,) = quadlet.read(text, "llm.container", files=named.get)
    return found


UNIT = (
    IMAGE + "EnvironmentFile=inner.env\n"
    "Exec=--port 8080 --parallel ${SLOTS} --ctx-size 8192\n"
    "PublishPort=127.0.0.1:9090:8080\n"
)


def test_words_are_filled_from_the_service_and_not_from_the_container() -> None:
    found = only(
        UNIT,
        "EnvironmentFile=outer.env\n",
        inner="SLOTS=7\nLLAMA_ARG_TOP_K=5\n",
        outer="SLOTS=3\nLLAMA_ARG_TOP_K=9\n",
    )
    assert found.program == "llama-server"
    assert texts(found) == ["--port", "8080", "--parallel", "3", "--ctx-size", "8192"]
    assert variables(found) == {"SLOTS": "7", "LLAMA_ARG_TOP_K": "5"}
    assert doubts(found.words) == {}
    assert remarks(found) == [
        "the image itself sets `LLAMA_ARG_HOST=0.0.0.0`",
        "`127.0.0.1:9090:8080` is published: clients use that address, "
        "not the server's own",
    ]
    assert found.files == ("llm.container", "outer.env", "inner.env")
    assert str(found.words[0].place) == "llm.container:4: Exec"


def test_a_number_of_slots_that_is_not_known_is_in_doubt() -> None:
    found = only(UNIT, "EnvironmentFile=outer.env\n", inner="SLOTS=7\n")
    assert doubts(found.words) == {
        "${SLOTS}": "`SLOTS` is not set here: `outer.env` may set it"
    }
    assert reviews(found) == ["`outer.env` was not read, and may set options"]


def test_environment_of_the_container_wins_over_its_files() -> None:
    found = only(
        IMAGE + "Environment=LLAMA_ARG_PORT=1 'LLAMA_ARG_ALIAS=a b'\n"
        "EnvironmentFile=inner.env\n",
        inner='LLAMA_ARG_PORT=2\nLLAMA_ARG_TOP_K="5"\n',
    )
    assert variables(found) == {
        "LLAMA_ARG_PORT": "1",
        "LLAMA_ARG_ALIAS": "a b",
        "LLAMA_ARG_TOP_K": '"5"',
    }
    assert texts(found) == []


def test_the_last_exec_counts_and_the_entrypoint_names_the_program() -> None:
    found = only(
        "Image=example.org/ml\nExec=-np 1\nExec=--port 1 -np 2\n"
        "Entrypoint=/app/llama-server\nPodmanArgs=--gpus all -e A=1\n"
        "WorkingDir=/models\n"
    )
    assert (found.program, texts(found)) == (
        "llama-server",
        ["--port", "1", "-np", "2"],
    )
    assert variables(found) == {"A": "1"}
    assert found.folder == "/models"


def test_an_image_that_is_not_known_leaves_the_program_open() -> None:
    found = only("Image=example.org/llm\nExec=--port 1 --parallel 2\n")
    assert found.program is None
    assert "it is not known which server `example.org/llm` starts" in remarks(found)


def test_another_container_is_no_server() -> None:
    text = "[Container]\nImage=docker.io/nginx\n"
    assert quadlet.read(text, "web.container") == []


def test_a_unit_without_an_image_is_refused() -> None:
    with pytest.raises(Refused) as error:
        quadlet.read("[Container]\nExec=-np 2\n", "llm.container")
    (problem,) = error.value.problems
    assert problem.render() == "llm.container: there is no `Image=` in `[Container]`"
