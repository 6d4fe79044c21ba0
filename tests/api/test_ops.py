"""Routes about the daemon: one meaning of `n_ctx`, and nothing that users wrote."""

from __future__ import annotations

import threading
from typing import Any

import httpx
import pytest

from mlxceld.plan import Wish
from mlxceld.settings import ModelSettings, ServerSettings, Settings
from tests import fake
from tests.api.serving import SETTINGS, Served, serve

# Keys of llama-server's replies, written down from captures.
PROPS_KEYS = [
    "default_generation_settings",
    "total_slots",
    "model_alias",
    "model_ftype",
    "model_path",
    "modalities",
    "media_marker",
    "endpoint_slots",
    "endpoint_props",
    "endpoint_metrics",
    "ui",
    "ui_settings",
    "chat_template",
    "chat_template_caps",
    "bos_token",
    "eos_token",
    "build_info",
    "is_sleeping",
    "cors_proxy_enabled",
]
OUR_PROPS = [
    "mode",
    "kv_unified",
    "n_pool",
    "n_live_tokens",
    "kv_bytes",
    "kv_bytes_plan",
    "cache_ram_bytes",
    "decode",
]
NEVER_USED_KEYS = ["id", "n_ctx", "speculative", "is_processing"]
USED_KEYS = [
    *NEVER_USED_KEYS,
    "id_task",
    "n_prompt_tokens",
    "n_prompt_tokens_processed",
    "n_prompt_tokens_cache",
    "params",
    "next_token",
]
OUR_SLOT = ["n_live_tokens", "kv_unified", "n_pool"]


def test_health_is_ok(served: Served) -> None:
    for path in ("/health", "/v1/health"):
        reply = served.get(path)
        assert reply.status_code == 200
        assert reply.text == '{"status":"ok"}'
        assert reply.headers["content-type"] == "application/json; charset=utf-8"


def test_props_have_llama_servers_keys_and_then_ours(served: Served) -> None:
    body = served.get("/props").json()
    assert list(body) == PROPS_KEYS + OUR_PROPS
    assert list(body["default_generation_settings"]) == ["params", "n_ctx"]
    params = body["default_generation_settings"]["params"]
    assert len(params) == 42
    assert params["seed"] == 4294967295
    assert (params["temperature"], params["top_k"], params["n_predict"]) == (
        0.8,
        40,
        -1,
    )
    assert (body["model_alias"], body["model_path"]) == ("toy", "/models/toy")
    assert body["decode"] == "batched"
    # Four slots of 1024 tokens at 1024 bytes.
    assert body["kv_bytes_plan"] == 4194304


@pytest.mark.parametrize(
    ("wish", "n_ctx", "pool", "shared"),
    [
        (Wish(mode="llama-compat", ctx_size=4096, parallel=4), 1024, 4096, False),
        (
            Wish(mode="llama-compat", ctx_size=4096, parallel=4, kv_unified=True),
            4096,
            4096,
            True,
        ),
        (Wish(mode="per-seq", ctx_size_per_seq=1024, parallel=4), 1024, 4096, False),
    ],
)
def test_n_ctx_is_the_most_one_request_can_use_everywhere(
    wish: Wish, n_ctx: int, pool: int, shared: bool
) -> None:
    with serve(wish=wish) as running:
        props = running.get("/props").json()
        slots = running.slots()
        models = running.get("/v1/models").json()
        shortest_refused = running.post("/completion", {"prompt": [1] * n_ctx})
        longest = running.post("/completion", {"prompt": [1] * (n_ctx - 1)})
    assert props["default_generation_settings"]["n_ctx"] == n_ctx
    assert [slot["n_ctx"] for slot in slots] == [n_ctx] * 4
    assert models["data"][0]["meta"]["n_ctx"] == n_ctx
    assert shortest_refused.json()["error"]["n_ctx"] == n_ctx
    assert longest.status_code == 200
    assert (props["n_pool"], props["kv_unified"]) == (pool, shared)
    assert props["mode"] == wish.mode
    assert {(slot["n_pool"], slot["kv_unified"]) for slot in slots} == {(pool, shared)}


def test_slots_show_more_once_they_were_used() -> None:
    with serve(fake.Script(step_seconds=0.001)) as running:
        assert [list(slot) for slot in running.slots()] == [
            NEVER_USED_KEYS + OUR_SLOT
        ] * 4
        asked = {"prompt": "a b c", "n_predict": 5, "id_slot": 2, "seed": 7}
        running.post("/completion", asked)
        running.until(running.idle)
        slots = running.slots()
        assert [slot["id"] for slot in slots] == [0, 1, 2, 3]
        used = slots[2]
        assert list(used) == USED_KEYS + OUR_SLOT
        assert len(used["params"]) == 42
        assert (used["params"]["seed"], used["params"]["n_predict"]) == (7, 5)
        assert used["next_token"] == [
            {
                "has_next_token": False,
                "has_new_line": False,
                "n_remain": -1,
                "n_decoded": 0,
            }
        ]
        # Remembered, not live: three of the prompt and four of the answer.
        assert (used["n_prompt_tokens"], used["n_live_tokens"]) == (7, 0)
        assert used["is_processing"] is False


def test_slots_fail_on_demand_when_none_is_free() -> None:
    wish = Wish(mode="llama-compat", ctx_size=2048, parallel=1)
    with serve(fake.Script(step_seconds=0.01), wish=wish) as running:
        assert running.get("/slots?fail_on_no_slot=1").status_code == 200
        with httpx.stream(
            "POST",
            running.url + "/completion",
            json={"prompt": "a b", "stream": True},
            timeout=10,
        ) as reply:
            # Kept alive: a collected iterator would close the connection.
            lines = reply.iter_lines()
            next(lines)
            running.until(lambda: running.slots()[0]["n_live_tokens"] > 0)
            busy = running.get("/slots?fail_on_no_slot=1")
            (slot,) = running.slots()
            props = running.get("/props").json()
            assert next(lines) == ""
        assert busy.status_code == 503
        assert busy.json()["error"]["message"] == "no slot available"
        assert slot["is_processing"] is True
        assert slot["n_live_tokens"] > 0
        assert props["n_live_tokens"] > 0


@pytest.mark.parametrize("keys", [(), ("k-1",)])
def test_nothing_shows_what_users_wrote(
    keys: tuple[str, ...], capfd: pytest.CaptureFixture[str]
) -> None:
    settings = Settings(
        model=SETTINGS.model, server=ServerSettings(metrics=True, api_key=keys)
    )
    headers = {"authorization": "Bearer k-1"}
    body = {
        "prompt": "P-123 rest",
        "stop": ["S-123"],
        "n_predict": 200,
        "logit_bias": [["B-123", 1]],
    }
    with serve(fake.Script(step_seconds=0.005), settings=settings) as running:
        running.http.headers.update(headers)
        worker = threading.Thread(
            target=httpx.post,
            args=(running.url + "/completion",),
            kwargs={"json": body, "headers": headers},
        )
        worker.start()
        running.until(lambda: not running.idle())
        texts = [running.get(path).text for path in ("/slots", "/props", "/metrics")]
        worker.join()
        running.post("/completion", {"prompt": "P-123", "top_k": "S-123"})
        texts += [running.get(path).text for path in ("/slots", "/props", "/metrics")]
    output = capfd.readouterr()
    texts += [output.out, output.err]
    for marker in ("P-123", "S-123", "B-123", "k-1"):
        assert not any(marker in text for text in texts)


def test_switched_off_routes_say_how_to_switch_them_on() -> None:
    settings = Settings(server=ServerSettings(slots=False, metrics=False))
    with serve(settings=settings) as running:
        for path, word in (("/slots", "--slots"), ("/metrics", "--metrics")):
            reply = running.get(path)
            assert reply.status_code == 501
            error = reply.json()["error"]
            assert error["type"] == "not_supported_error"
            assert f"Start it with `{word}`" in error["message"]
        reply = running.post("/props", {"a": 1})
        assert reply.status_code == 501
        assert reply.json()["error"]["message"] == (
            "This server does not support changing global properties. "
            "Start it with `--props`"
        )


def test_post_props_changes_nothing_and_says_success() -> None:
    settings = Settings(server=ServerSettings(props=True, api_prefix="/llm"))
    with serve(settings=settings) as running:
        reply = running.post("/props", {"a": 1})
        assert (reply.status_code, reply.json()) == (200, {"success": True})
        # Every route is also there under the prefix.
        assert running.get("/llm/health").json() == {"status": "ok"}
        assert running.get("/llm").status_code == 200
        body = {"prompt": "a", "n_predict": 1}
        assert running.post("/llm/v1/completions", body).status_code == 200
        assert running.get("/other/health").status_code == 404


def test_models_carry_aliases_sorted_and_the_first_is_the_id() -> None:
    model = ModelSettings(path="/models/toy", alias=("zeta", "smol"), tags=("t2", "t1"))
    with serve(settings=Settings(model=model)) as running:
        body = running.get("/v1/models").json()
        assert list(body) == ["models", "object", "data"]
        (entry,) = body["data"]
        assert list(entry) == [
            "id",
            "aliases",
            "tags",
            "object",
            "architecture",
            "created",
            "owned_by",
            "meta",
        ]
        assert (entry["id"], entry["aliases"]) == ("smol", ["smol", "zeta"])
        assert entry["tags"] == ["t1", "t2"]
        assert list(entry["meta"]) == [
            "vocab_type",
            "n_vocab",
            "n_ctx",
            "n_ctx_train",
            "n_embd",
            "n_params",
            "size",
            "ftype",
        ]
        answer = running.post("/completion", {"prompt": "a", "n_predict": 1})
        assert answer.json()["model"] == "smol"


def test_tokens_and_back(served: Served) -> None:
    tokens = served.post("/tokenize", {"content": "alpha beta"}).json()["tokens"]
    assert len(tokens) == 2
    assert served.post("/tokenize", {}).json() == {"tokens": []}
    mixed = {"content": [tokens[1], "alpha", 1]}
    assert served.post("/tokenize", mixed).json()["tokens"] == [tokens[1], tokens[0], 1]
    pieces = {"content": "alpha", "with_pieces": True}
    assert served.post("/tokenize", pieces).json() == {
        "tokens": [{"id": tokens[0], "piece": "alpha "}]
    }
    back = served.post("/detokenize", {"tokens": tokens})
    assert back.json() == {"content": "alpha beta "}
    assert served.post("/detokenize", {}).json() == {"content": ""}


def test_a_piece_of_a_character_is_told_in_bytes(served: Served) -> None:
    asked = {"prompt": "bytes", "n_predict": 2, "return_tokens": True}
    first, *_ = served.post("/completion", asked).json()["tokens"]
    reply = served.post("/tokenize", {"content": [first], "with_pieces": True})
    assert reply.json()["tokens"] == [{"id": first, "piece": [0xEA]}]


@pytest.mark.parametrize(
    ("path", "body", "name"),
    [
        ("/tokenize", {"content": 5}, "content"),
        ("/tokenize", {"content": [True]}, "content"),
        ("/tokenize", {"content": "a", "add_special": 1}, "add_special"),
        ("/tokenize", {"content": "a", "with_pieces": "yes"}, "with_pieces"),
        ("/detokenize", {"tokens": "x"}, "tokens"),
        ("/detokenize", {"tokens": ["x"]}, "tokens"),
        ("/detokenize", {"tokens": [1.5]}, "tokens"),
        ("/detokenize", {"tokens": [-1]}, "tokens"),
        ("/detokenize", {"tokens": [10**9]}, "tokens"),
    ],
)
def test_wrong_types_are_refused_by_name(
    served: Served, path: str, body: dict[str, Any], name: str
) -> None:
    reply = served.post(path, body)
    assert reply.status_code == 400
    assert name in reply.json()["error"]["message"]


def test_metrics_count_what_was_done(served: Served) -> None:
    def value(name: str) -> float:
        for line in served.get("/metrics").text.splitlines():
            if line.startswith(f"{name} "):
                return float(line.split()[1])
        raise AssertionError(name)

    served.until(served.idle)
    before = value("llamacpp:tokens_predicted_total")
    served.post("/completion", {"prompt": "count me", "n_predict": 4})
    served.until(lambda: value("llamacpp:tokens_predicted_total") == before + 4)
    served.until(lambda: value("mlxcel_live_tokens") == 0)
    assert value("mlxcel_pool_tokens") == 4096
    assert served.get("/metrics").headers["content-type"] == "text/plain; version=0.0.4"
