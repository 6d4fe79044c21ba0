"""Finding the server behind `env`, `sudo`, `python -m` and `docker run`."""

from __future__ import annotations

import pytest

from mlxceld.migrate.found import Found
from mlxceld.migrate.sources import commandline
from mlxceld.migrate.sources.containers import image_program

from .reading import remarks, texts, variables


def only(text: str) -> Found:
    (found,) = commandline.read(text)
    return found


@pytest.mark.parametrize(
    ("line", "program"),
    [
        ("llama-server", "llama-server"),
        ("./build/bin/llama-server", "llama-server"),
        ("'C:\\llama\\llama-server.exe'", "llama-server"),
        ("mlxcel-server", "mlxcel-server"),
        ("mlxcel serve", "mlxcel-server"),
        ("python3 -m mlxceld.cli", "mlxcel-server"),
        ("mlx_lm.server", "mlx_lm.server"),
        ("/opt/venv/bin/python3.12 -u -m mlx_lm.server", "mlx_lm.server"),
        ("python -X dev -m mlx_lm server", "mlx_lm.server"),
        ("python -mmlx_lm.server", "mlx_lm.server"),
        ("mlx_lm server", "mlx_lm.server"),
        ("python /opt/venv/bin/mlx_lm.server", "mlx_lm.server"),
        ("uv run --with mlx-lm mlx_lm.server", "mlx_lm.server"),
        ("conda run -n mlx python -m mlx_lm.server", "mlx_lm.server"),
        ("exec nice -n 10 llama-server", "llama-server"),
        ("numactl --cpunodebind=0 -m 0 llama-server", "llama-server"),
        ("sudo -u llama -E env A=1 -- llama-server", "llama-server"),
        ("nohup taskset -c 0-3 llama-server", "llama-server"),
        ("timeout -k 5 1h llama-server", "llama-server"),
        ("ollama runner", "llama-server"),
    ],
)
def test_the_program_is_found_behind_what_starts_it(line: str, program: str) -> None:
    found = only(f"{line} --port 9000 -c 8192")
    assert found.program == program
    assert texts(found) == ["--port", "9000", "-c", "8192"]


def test_assignments_before_the_program_are_its_environment() -> None:
    found = only("A=1 sudo -u x B=2 env -u C D=3 llama-server A=4")
    assert variables(found) == {"A": "1", "B": "2", "D": "3"}
    assert texts(found) == ["A=4"]


def test_options_of_docker_run_are_not_those_of_the_server() -> None:
    found = only(
        "docker run -d --rm -it --name llm -p 127.0.0.1:9090:8080 -v /m:/m "
        "-e LLAMA_ARG_CTX_SIZE=4096 --env=LLAMA_ARG_PORT=1 -e BARE --gpus all "
        "ghcr.io/ggml-org/llama.cpp:server-cuda -m /m/x.gguf -np 4"
    )
    assert found.program == "llama-server"
    assert texts(found) == ["-m", "/m/x.gguf", "-np", "4"]
    assert variables(found) == {"LLAMA_ARG_CTX_SIZE": "4096", "LLAMA_ARG_PORT": "1"}
    assert remarks(found) == [
        "the image itself sets `LLAMA_ARG_HOST=0.0.0.0`",
        "`127.0.0.1:9090:8080` is published: clients use that address, "
        "not the server's own",
        "`BARE` has no value here: unset",
    ]


def test_the_environment_outside_a_container_does_not_reach_inside() -> None:
    found = only("LLAMA_ARG_PORT=1 docker run ghcr.io/ggml-org/llama.cpp:server -np 2")
    assert variables(found) == {}


def test_a_bare_name_hands_on_the_variable_from_outside() -> None:
    found = only(
        "A=1 B=2 docker run -e A -e C=3 -e D ghcr.io/ggml-org/llama.cpp:server -np 2"
    )
    assert variables(found) == {"A": "1", "C": "3"}
    assert "`D` has no value here: unset" in remarks(found)


def test_a_named_program_in_a_container_counts_more_than_the_image() -> None:
    found = only("podman run example.org/ml python3 -m mlx_lm.server --port 1")
    assert (found.program, texts(found)) == ("mlx_lm.server", ["--port", "1"])
    found = only("podman run --entrypoint /app/llama-server example.org/ml -np 2")
    assert (found.program, texts(found)) == ("llama-server", ["-np", "2"])
    assert commandline.read("docker run ghcr.io/ggml-org/llama.cpp:server bash") == []


def test_an_image_that_is_not_known_leaves_the_program_open() -> None:
    found = only("docker run example.org/llm --model /m/x.gguf --parallel 2")
    assert found.program is None
    assert texts(found) == ["--model", "/m/x.gguf", "--parallel", "2"]
    assert commandline.read("docker run example.org/web --port 80") == []


@pytest.mark.parametrize(
    ("image", "program"),
    [
        ("ghcr.io/ggml-org/llama.cpp:server", "llama-server"),
        ("ghcr.io/ggml-org/llama.cpp:server-vulkan-b9000", "llama-server"),
        ("ghcr.io/ggml-org/llama.cpp:full-cuda", "llama-server"),
        ("ghcr.io/ggml-org/llama.cpp:light", None),
        ("registry.example:5000/team/llama-server@sha256:00ff", "llama-server"),
        ("example.org/llama-cpp-server:1", "llama-server"),
        ("example.org/mlxcel:0.9", "mlxcel-server"),
        ("docker.io/library/nginx:latest", None),
    ],
)
def test_images_tell_their_server(image: str, program: str | None) -> None:
    assert image_program(image) == program


def test_words_alone_are_arguments_of_an_unnamed_program() -> None:
    found = only("-c 8192 -np 2")
    assert (found.program, texts(found)) == (None, ["-c", "8192", "-np", "2"])


def test_words_that_a_shell_has_cut_are_taken_as_they_are() -> None:
    found = commandline.read_words(["env", "A=1", "llama-server", "--alias", "a $b"])
    assert found.program == "llama-server"
    assert texts(found) == ["--alias", "a $b"]
    assert variables(found) == {"A": "1"}
    found = commandline.read_words(["my-server", "-np", "2"])
    assert (found.program, found.command) == (None, ("my-server",))
    assert texts(found) == ["-np", "2"]
