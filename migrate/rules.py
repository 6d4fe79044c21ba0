"""Flags and variables of other programs, and what becomes of them here.

llama-server's are the daemon's own and need no table. The older mlxcel server, Ollama
and mlx_lm.server have names of their own: those that carry over become an option, the
others are named with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal

from mlxceld.foreign import Arity

from .found import Program
from .migration import Fate


@dataclass(frozen=True, slots=True)
class Rule:
    """A flag or a variable of another program, and what becomes of it."""

    names: tuple[str, ...]
    key: str = ""
    """The option; empty for what has none."""
    arity: Arity = "one"
    turn: Callable[[str], str | None] | None = None
    """Makes the text that the option reads; None where nothing is said by it."""
    rank: int = 0
    """Among words of one layer the higher rank wins, then the later word."""
    fate: Fate = "changed"
    """Without a key: ignored or review."""
    why: str = ""

    def outcome(self, text: str) -> tuple[str | None, Fate]:
        """The text for the option, or None and what becomes of the word."""
        turned = self.turn(text) if self.turn else text
        if self.key and turned is not None:
            return turned, self.fate
        return None, self.fate if not self.key and turned is not None else "ignored"


# ---- turns ----


def bytes_as_size(text: str) -> str:
    """A number of bytes as the daemon writes sizes.

    mlx_lm.server takes decimal units (`2GB` is 2 x 10^9). Not a size: the text itself,
    for the option to refuse.
    """
    size = r"([0-9]{1,24}(?:\.[0-9]{1,24})?) *([MG]?)B?"
    found = re.fullmatch(size, text.strip(), re.I)
    if found is None:
        return text
    count = Decimal(found[1]) * {"": 1, "M": 10**6, "G": 10**9}[found[2].upper()]
    return f"{int(count) // 1024}K"


def _one(_: str) -> str:
    return "1"


def _off(_: str) -> str:
    return "false"


def _unless(*inert: str) -> Callable[[str], str | None]:
    """Says nothing when the value is one of these."""

    def turn(text: str) -> str | None:
        return None if text.strip().lower() in inert else text

    return turn


def _auto_or(text: str) -> str:
    return "-1" if text.strip() in ("", "0") else text


def _level(text: str) -> str:
    return "error" if text.strip().lower() == "critical" else text


# ---- the older mlxcel server ----

_WIDTH = "requests that run at the same time are slots here"
_NONE = "there is nothing like it here"
_SPEC = "speculation changes the speed and no answer; it is not done here"


def _ignored(names: str, why: str = _NONE, *, arity: Arity = "one") -> list[Rule]:
    return [Rule((n,), arity=arity, fate="ignored", why=why) for n in names.split()]


MLXCEL_FLAGS: tuple[Rule, ...] = (
    Rule(("--max-batch-size",), "engine.parallel", rank=1, why=_WIDTH),
    Rule(("--no-batch",), "engine.parallel", "none", _one, rank=2, why=_WIDTH),
    Rule(("--max-queue-depth",), "server.queue_size"),
    Rule(("--prefill-chunk-size",), "engine.batch_size"),
    Rule(("--no-prompt-cache",), "engine.cache_prompt", "none", _off),
    Rule(("--prompt-cache-enabled",), "engine.cache_prompt"),
    Rule(("--prompt-cache-capacity-bytes",), "engine.cache_ram", turn=bytes_as_size),
    Rule(("--allowed-origins",), "server.cors_origins"),
    Rule(
        ("--max-kv-size",),
        turn=_unless("0", "", "none"),
        fate="review",
        why="it cuts the context of one request; say that with `ctx_size`, or with "
        '`ctx_size_per_seq` in mode "llama-compat"',
    ),
    Rule(
        ("-nocb", "--no-cont-batching"),
        arity="none",
        fate="review",
        why="it lets one request run at a time and still divides the context; say "
        "`parallel` as you mean it",
    ),
    Rule(
        ("--revision",),
        turn=_unless("main"),
        fate="review",
        why="other revisions than the newest are not loaded here",
    ),
    Rule(
        ("--kv-cache-budget",),
        turn=_unless("auto", "none", "0"),
        fate="review",
        why="the pool has the size that `ctx_size` and `parallel` say; "
        "`memory_limit` bounds everything",
    ),
    Rule(
        ("--kv-cache-mode",),
        turn=_unless("fp16"),
        fate="review",
        why="say how keys and values are stored with `cache_type_k` and `cache_type_v`",
    ),
    Rule(
        ("--kv-bits",),
        turn=_unless("0"),
        fate="review",
        why="say how keys and values are stored with `cache_type_k` and `cache_type_v`",
    ),
    *_ignored(
        "--draft --draft-max --draft-model --draft-kind --draft-block-size", _SPEC
    ),
    *_ignored("--adapter", "adapters are not applied"),
    *_ignored("--embedding-model --reranker-model", "embeddings are not served"),
    *_ignored("--enable-preemption --settings --estimate-memory --force", arity="none"),
    *_ignored("--apc-enabled --enable-vlm-prefix-cache", arity="maybe"),
    *_ignored(
        "--model-store-root --decode-timeout --prefill-grant-interval "
        "--max-batch-prefill --max-batch-prefill-tokens --kv-admission-watermark "
        "--decode-storage-backend --preemption-policy --turbo-boundary-v "
        "--kv-group-size --kv-quant-scheme --kv-skip-last-layer "
        "--prompt-cache-max-entries --prompt-cache-ttl --prompt-cache-min-prefix "
        "--apc-block-size --apc-num-blocks --apc-hash --metrics-port "
        "--embedding-batch-size --embedding-max-length --embedding-queue-depth "
        "--embedding-request-timeout-secs --rerank-batch-size --reasoning-alias-field "
        "--lang-bias --surgery --vision-cache-size --max-image-payload-size "
        "--max-images --max-image-width --max-image-height "
        "--max-image-decode-alloc-bytes --audio-queue-depth "
        "--audio-request-timeout-secs --responses-store-max-entries "
        "--responses-store-ttl-secs --responses-store-max-bytes "
        "--conversation-store-max-entries --conversation-store-ttl-secs"
    ),
)
"""Flags that the daemon does not have, or that mean something else there."""

MLXCEL_VARIABLES: tuple[Rule, ...] = (
    Rule(
        ("MLXCEL_MEMORY_LIMIT",),
        fate="review",
        why="it bounds memory there; say that with `memory_limit` in [engine]",
    ),
    Rule(
        ("LLAMA_ARG_MAX_KV_SIZE",),
        turn=_unless("0", "", "none"),
        fate="review",
        why="it cuts the context of one request; say that with `ctx_size`",
    ),
    Rule(
        ("MLXCEL_KV_CACHE_BUDGET",),
        turn=_unless("auto", "none", "0"),
        fate="review",
        why="the pool has the size that `ctx_size` and `parallel` say",
    ),
    Rule(
        ("MLXCEL_PROMPT_CACHE_CAPACITY_BYTES",), "engine.cache_ram", turn=bytes_as_size
    ),
    Rule(("MLXCEL_PROMPT_CACHE_ENABLED",), "engine.cache_prompt"),
    Rule(("MLXCEL_ALLOWED_ORIGINS",), "server.cors_origins"),
)

# ---- mlx_lm.server ----

MLX_LM_FLAGS: tuple[Rule, ...] = (
    Rule(("--model",), "model.path", fate="kept"),
    Rule(("--host",), "server.host", fate="kept"),
    Rule(("--port",), "server.port", fate="kept"),
    Rule(("--temp",), "sampling.temperature", fate="kept"),
    Rule(("--top-p",), "sampling.top_p", fate="kept"),
    Rule(("--top-k",), "sampling.top_k", fate="kept"),
    Rule(("--min-p",), "sampling.min_p", fate="kept"),
    Rule(("--log-level",), "logging.level", turn=_level, fate="kept"),
    Rule(("--chat-template",), "model.chat_template", turn=_unless(""), fate="kept"),
    Rule(("--allowed-origins",), "server.cors_origins"),
    Rule(("--max-tokens",), "engine.n_predict"),
    Rule(("--chat-template-args",), "model.chat_template_kwargs"),
    Rule(("--decode-concurrency",), "engine.parallel", why=_WIDTH),
    Rule(("--prefill-step-size",), "engine.batch_size"),
    Rule(("--prompt-cache-bytes",), "engine.cache_ram", turn=bytes_as_size),
    Rule(
        ("--kv-bits",),
        fate="review",
        why="say how keys and values are stored with `cache_type_k` and `cache_type_v`",
    ),
    Rule(
        ("--adapter-path",),
        fate="review",
        why="adapters are not applied; fuse the adapter into the model",
    ),
    *_ignored("--draft-model --num-draft-tokens", _SPEC),
    *_ignored("--trust-remote-code --use-default-chat-template", arity="none"),
    *_ignored("--pipeline", arity="none"),
    *_ignored("--prompt-concurrency --prompt-cache-size --kv-group-size"),
    *_ignored("--quantized-kv-start"),
)

# ---- Ollama, whose variables are often all that is known ----

OLLAMA_VARIABLES: tuple[Rule, ...] = (
    Rule(("OLLAMA_CONTEXT_LENGTH",), "engine.ctx_size_per_seq"),
    Rule(
        ("OLLAMA_NUM_PARALLEL",),
        "engine.parallel",
        turn=_auto_or,
        why="0 is auto there: the number follows the memory",
    ),
)

_ROUTER = "one daemon serves one model; give each of them a set-up of its own"

SERIOUS: dict[str, str] = {
    "--models-dir": _ROUTER,
    "--models-preset": _ROUTER,
    "--embedding": "",
    "--rerank": "",
    "--lora": "",
    "--lora-scaled": "",
    "--control-vector": "",
    "--control-vector-scaled": "",
}
"""Flags of llama-server that the daemon ignores and whose loss changes answers, with
the reason where the daemon's own table has none."""


def rules_of(program: Program | None) -> dict[str, Rule]:
    """The flags of a program that the daemon's table does not explain, by name."""
    if program == "mlx_lm.server":
        return _by_name(MLX_LM_FLAGS)
    if program == "mlxcel-server":
        return _by_name(MLXCEL_FLAGS)
    return {}


def _by_name(rules: tuple[Rule, ...]) -> dict[str, Rule]:
    return {name: rule for rule in rules for name in rule.names}
