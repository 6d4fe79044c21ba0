"""Everything that front and engine say to each other, as typed structs.

Frames are msgpack over a socketpair, each behind its length (4 bytes, big-endian). A
request is named by the id that the front gave it; the engine never makes one up.
Times are milliseconds, text is str, tokens are ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import msgspec

from mlxceld.engine.params import SAMPLERS as SAMPLERS
from mlxceld.engine.params import GrammarSpec as GrammarSpec
from mlxceld.engine.params import Sampling as Sampling
from mlxceld.engine.params import Shift as Shift
from mlxceld.engine.params import ThinkingBudget as ThinkingBudget
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
    """The first message: what to load. A later one only bounds the queue anew."""

    source: ModelSource
    wish: Wish
    memory_limit: int | None = None
    """Bytes, None for no limit of this kind."""
    memory_share: str = ""
    """`auto`, or a share of the device's memory like `75%`: where no bytes are said."""
    device: str = "auto"
    dequantize: str = "auto"
    cache_type_k: str = "auto"
    """How the pool stores keys: one of `cachetypes.TYPES`; `cache_type_v` alike."""
    cache_type_v: str = "auto"
    prefill_chunk: int = 0
    token_gap: float | None = None
    """Seconds between tokens while prompts are read. None, or a 0 chunk: by device."""
    queue_size: int = 128
    slot_prompt_similarity: float = 0.1
    chunk_seconds: float = 10.0
    """The longest that one prompt chunk should take, and an idle engine be silent."""
    overflow: str = "preempt"
    """preempt or error: what happens when the pool is short for who runs."""
    queue_timeout: float = 0.0
    """Seconds that a request may wait for its start, 0 for no bound."""


class Generate(Message):
    """Generate from a prompt of text, tokens, or pieces of both."""

    id: int
    prompt: list[str | int]
    sampling: Sampling
    add_special: bool = True
    """Whether the model's BOS goes before a prompt that begins with text."""
    n_predict: int = -1
    stop: list[str] = []
    t_max_predict_ms: int = -1
    """Time after the first token, once there is a line break; -1 for no bound."""
    n_indent: int = 0
    """Least indentation of each new line; a smaller one ends the answer."""
    grammar: GrammarSpec | None = None
    id_slot: int = -1
    cache_prompt: bool = True
    preserved: list[str] = []
    """Texts of special tokens that are written out in the answer."""
    shift: Shift | None = None
    """What happens when the slot context is full; None: the answer ends there."""
    budget: ThinkingBudget | None = None


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


class SlotAction(Message):
    """Save a slot's text to a file, restore it from there, or erase it.

    It waits while the slot is busy. Answered by `SlotDone` or `Failed`.
    """

    id: int
    slot: int
    action: Literal["save", "restore", "erase"]
    folder: str = ""
    name: str = ""
    """Of the file in `folder`; without any path."""


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
    eos_ids: tuple[int, ...] = ()
    add_bos: bool = False
    device: str = ""
    batched: bool = True
    """Whether rows are decoded together; False when the load probe forbade it."""
    decode_note: str = ""
    """Why `batched` is False."""


class Ready(Message):
    model: ModelInfo
    plan: Plan
    seconds: dict[str, float] = {}
    """Of the start, by phase and in order."""


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


class TokenProbability(msgspec.Struct, frozen=True):
    """One token as it was sampled, and the likeliest candidates beside it.

    Values are log probabilities of what the model gave, or probabilities of what the
    token was drawn from when `post_sampling_probs` asked for that.
    """

    id: int
    piece: bytes
    value: float
    top: list[tuple[int, bytes, float]]


class Delta(Message):
    """New text of a request. `text` may be empty while a stop string is undecided."""

    id: int
    text: str
    tokens: list[int]
    n_decoded: int
    probabilities: list[TokenProbability] = []


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
    probabilities: list[TokenProbability] = []


class Failed(Message):
    """The request ends without an answer; the fields are those of the error body."""

    id: int
    code: int
    type: str
    message: str
    n_prompt_tokens: int | None = None
    n_ctx: int | None = None
    retry_after: int | None = None


class Fault(Message):
    """Something that should not have happened, for the log; never a user's words."""

    where: str
    error: str
    trace: list[str]


class Tokenized(Message):
    id: int
    tokens: list[int]
    pieces: list[bytes]


class Detokenized(Message):
    id: int
    content: str


class SlotDone(Message):
    """A slot action is done."""

    id: int
    n_tokens: int
    """Tokens saved, restored or erased."""
    n_bytes: int = 0
    """Of the file."""
    ms: float = 0.0


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
    evicted: int = 0
    """Idle slots whose remembered text was dropped to make room."""


class MemoryUse(msgspec.Struct, frozen=True):
    """Bytes of MLX's arrays: now in use, kept for reuse, and the most in use so far."""

    active: int = 0
    cache: int = 0
    peak: int = 0


class Snapshot(Message):
    """The state after a step; the front answers status routes from the last one.

    It comes from the thread that owns MLX, at least once a second while that thread is
    not in the middle of a step: it is the engine's sign of life.
    """

    slots: list[SlotState]
    waiting: int
    n_live: int
    """Live tokens: those held for running requests."""
    kv_bytes: int
    totals: Totals
    memory: MemoryUse = MemoryUse()
    saved_bytes: int = 0
    """Bytes of prompts kept in RAM outside the slots."""
    saved_prompts: int = 0


Down: TypeAlias = (
    Load | Generate | Cancel | Tokenize | Detokenize | SlotAction | Shutdown
)
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
    | SlotDone
    | Fault
    | Snapshot
)

_encoder = msgspec.msgpack.Encoder()
_down = msgspec.msgpack.Decoder(list[Down])
_up = msgspec.msgpack.Decoder(list[Up])

HEADER = 4
"""Bytes of the length before each frame."""

MAX_FRAME = 1 << 30
"""Bytes; a longer frame is noise, far above the largest request and its tokens."""


def frame(messages: Sequence[Down] | Sequence[Up]) -> bytes:
    """One frame that carries the messages in order."""
    body = _encoder.encode(messages)
    return len(body).to_bytes(HEADER, "big") + body


def length(header: bytes | memoryview) -> int:
    """Bytes of the body behind a header. Raises msgspec.DecodeError for noise."""
    n = int.from_bytes(header, "big")
    if n > MAX_FRAME:
        raise msgspec.DecodeError(f"a frame of {n} bytes")
    return n


def read_down(body: bytes) -> list[Down]:
    """The messages of a frame that the front sent. Raises msgspec.DecodeError."""
    return _down.decode(body)


def read_up(body: bytes | memoryview) -> list[Up]:
    """The messages of a frame that the engine sent. Raises msgspec.DecodeError."""
    return _up.decode(body)
