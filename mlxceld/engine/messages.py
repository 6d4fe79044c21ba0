"""Everything that front and engine say to each other, as typed structs.

Frames are msgpack over a socketpair, each behind its length (4 bytes, big-endian). A
request is named by the id that the front gave it; the engine never makes one up.
Times are milliseconds, text is str, tokens are ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from mlxceld.plan import Plan, Wish


class Message(
    msgspec.Struct, frozen=True, tag=True, tag_field="is", omit_defaults=True
):
    """Base of all messages: tagged with the class name, defaults left out."""


# ---- front to engine ----


class ModelSource(msgspec.Struct, frozen=True):
    """Where the weights are: a directory, a GGUF file, or a Hugging Face repository."""

    path: str = ""
    hf_repo: str = ""
    offline: bool = False


class Load(Message):
    """The first message: load the model and make the plan from what it measures."""

    source: ModelSource
    wish: Wish
    memory_limit: int | None = None
    """Bytes, None for no limit."""
    device: str = "auto"
    dequantize: str = "auto"
    prefill_chunk: int = 512
    queue_size: int = 128
    slot_prompt_similarity: float = 0.1


class Sampling(msgspec.Struct, frozen=True, omit_defaults=True):
    """How the next token is chosen; names and meaning are llama-server's.

    The filters work on the untempered distribution, in the order penalties, top_k,
    typical_p, top_p, min_p, temperature.
    """

    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    typical_p: float = 1.0
    repeat_last_n: int = 64
    """Window of the penalties in tokens; 0 is off, -1 the whole context."""
    repeat_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int = 0
    logit_bias: tuple[tuple[int, float], ...] = ()
    """Pairs of token and bias; -inf forbids the token."""
    ignore_eos: bool = False


class Generate(Message):
    """Generate from a prompt of text, tokens, or pieces of both."""

    id: int
    prompt: list[str | int]
    sampling: Sampling
    add_special: bool = True
    """Whether the model's BOS goes before a prompt that begins with text."""
    n_predict: int = -1
    stop: list[str] = []
    id_slot: int = -1
    cache_prompt: bool = True


class Cancel(Message):
    """Nobody wants the answer any more. Unknown ids are ignored."""

    id: int


class Tokenize(Message):
    id: int
    content: list[str | int]
    add_special: bool = False
    parse_special: bool = True


class Detokenize(Message):
    id: int
    tokens: list[int]


class Shutdown(Message):
    """Leave; running requests are dropped."""


# ---- engine to front ----


class Loading(Message):
    """What the engine is busy with before it is ready."""

    doing: str
    done: int = 0
    total: int = 0
    """Bytes of weights, where they are known."""


class ModelInfo(msgspec.Struct, frozen=True):
    """What the API tells about the loaded model."""

    n_vocab: int
    n_ctx_train: int
    n_embd: int = 0
    n_params: int = 0
    size: int = 0
    """Bytes of weights as loaded."""
    ftype: str = ""
    architecture: str = ""
    chat_template: str = ""
    bos_token: str = ""
    eos_token: str = ""
    add_bos: bool = False
    device: str = ""
    batched: bool = True
    """Whether rows are decoded together; False when the load probe forbade it."""
    decode_note: str = ""
    """Why `batched` is False."""


class Ready(Message):
    model: ModelInfo
    plan: Plan


class LoadFailed(Message):
    """The engine gives up; `config` says whether the user's settings are at fault."""

    what: str
    hint: str = ""
    config: bool = False


class Started(Message):
    """The request has a slot and its prompt is being read."""

    id: int
    slot: int
    n_prompt: int
    n_cached: int


class Delta(Message):
    """New text of a request. `text` may be empty while a stop string is undecided."""

    id: int
    text: str
    tokens: list[int]
    n_decoded: int


class Progress(Message):
    """So much of the prompt has been read."""

    id: int
    processed: int
    total: int
    cached: int


class Timings(msgspec.Struct, frozen=True):
    queue_ms: float = 0.0
    prompt_ms: float = 0.0
    predicted_ms: float = 0.0


class Done(Message):
    """The end of a request, with the text that was still held back."""

    id: int
    slot: int
    text: str
    tokens: list[int]
    stop_type: str
    """eos, limit or word."""
    stopping_word: str
    truncated: bool
    n_prompt: int
    n_cached: int
    n_decoded: int
    n_held: int
    """Tokens the slot remembers."""
    timings: Timings


class Failed(Message):
    """The request ends without an answer; the fields are those of the error body."""

    id: int
    code: int
    type: str
    message: str
    n_prompt_tokens: int | None = None
    n_ctx: int | None = None
    retry_after: int | None = None


class Tokenized(Message):
    id: int
    tokens: list[int]
    pieces: list[bytes]


class Detokenized(Message):
    id: int
    content: str


class SlotState(msgspec.Struct, frozen=True):
    """One slot as /slots shows it; counts are tokens."""

    id: int
    task: int = -1
    """Id of the running request, or of the last one; -1 when never used."""
    processing: bool = False
    n_prompt: int = 0
    n_processed: int = 0
    n_cached: int = 0
    n_decoded: int = 0
    n_remain: int = -1
    n_held: int = 0
    """Tokens whose keys and values are in the slot, running or remembered."""
    has_next_token: bool = False
    has_new_line: bool = False


class Totals(msgspec.Struct, frozen=True):
    """Counters since the engine started, for /metrics."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    prompt_ms: float = 0.0
    predicted_tokens: int = 0
    predicted_ms: float = 0.0
    decode_steps: int = 0
    decoded_rows: int = 0
    """Rows summed over all decode steps."""
    max_tokens: int = 0
    """The most tokens any slot ever held."""
    requests: int = 0
    failed: int = 0
    cancelled: int = 0
    preempted: int = 0


class Snapshot(Message):
    """The state after a step; the front answers status routes from the last one."""

    slots: list[SlotState]
    waiting: int
    n_live: int
    """Live tokens: those held for running requests."""
    kv_bytes: int
    totals: Totals


Down: TypeAlias = Load | Generate | Cancel | Tokenize | Detokenize | Shutdown
Up: TypeAlias = (
    Loading
    | Ready
    | LoadFailed
    | Started
    | Delta
    | Progress
    | Done
    | Failed
    | Tokenized
    | Detokenized
    | Snapshot
)

_encoder = msgspec.msgpack.Encoder()
_down = msgspec.msgpack.Decoder(list[Down])
_up = msgspec.msgpack.Decoder(list[Up])

HEADER = 4
"""Bytes of the length before each frame."""


def frame(messages: Sequence[Down] | Sequence[Up]) -> bytes:
    """One frame that carries the messages in order."""
    body = _encoder.encode(messages)
    return len(body).to_bytes(HEADER, "big") + body


def read_down(body: bytes) -> list[Down]:
    """The messages of a frame that the front sent. Raises msgspec.DecodeError."""
    return _down.decode(body)


def read_up(body: bytes) -> list[Up]:
    """The messages of a frame that the engine sent. Raises msgspec.DecodeError."""
    return _up.decode(body)
