"""What is not served says so, in the shape of all errors."""

from __future__ import annotations

import pytest

from tests.api.serving import Served


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/infill", "Infill is not supported by this server"),
        ("/embedding", "This server does not support embeddings"),
        ("/embeddings", "This server does not support embeddings"),
        ("/v1/embeddings", "This server does not support embeddings"),
        ("/rerank", "This server does not support reranking"),
        ("/reranking", "This server does not support reranking"),
        ("/v1/rerank", "This server does not support reranking"),
        ("/v1/reranking", "This server does not support reranking"),
        ("/audio/transcriptions", "The current model does not support audio input."),
        ("/v1/audio/transcriptions", "The current model does not support audio input."),
        ("/v1/systemone", "This model is not a decision model"),
    ],
)
def test_what_is_not_served_is_501(served: Served, path: str, words: str) -> None:
    reply = served.post(path, {"input": "hi"})
    assert reply.status_code == 501
    assert reply.json() == {
        "error": {"code": 501, "message": words, "type": "not_supported_error"}
    }
    assert served.get(path).status_code == 404


def test_a_form_with_a_sound_file_is_501_too(served: Served) -> None:
    sound = {"file": ("a.wav", b"RIFF" * 1000, "audio/wav")}
    reply = served.http.post("/v1/audio/transcriptions", files=sound)
    assert reply.status_code == 501
    assert served.get("/health").status_code == 200


def test_there_are_no_adapters_and_none_can_be_set(served: Served) -> None:
    path = "/lora-adapters"
    assert served.get(path).json() == []
    assert served.post(path, []).json() == {"success": True}
    assert served.post(path, [{"id": 0, "scale": 1}]).status_code == 501
    reply = served.post(path, {"id": 0})
    assert reply.status_code == 400
    assert reply.json()["error"]["message"] == "Request body must be an array"
    assert served.http.post(path, content=b"[").status_code == 400
