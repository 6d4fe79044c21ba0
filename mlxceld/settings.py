"""The settings of a daemon, typed: what is left when all layers are merged.

Generated from the option table by `python -m mlxceld.generate`: edit `options.py`
instead. None stands for an option that nobody set.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    """Table `[model]`."""

    path: str | None = None
    """The model: an MLX folder or a GGUF file."""
    hf_repo: str | None = None
    """A model repository on Hugging Face."""
    hf_token: str | None = None
    """Access token for Hugging Face."""
    offline: bool = False
    """Never use the network to find the model."""
    alias: tuple[str, ...] = ()
    """Names of the model in the API."""
    tags: tuple[str, ...] = ()
    """Tags of the model in the API."""
    jinja: bool = True
    """Render chats with the model's Jinja template."""
    chat_template: str | None = None
    """Chat template: Jinja text, or a name such as `chatml` or `llama3`."""
    chat_template_file: str | None = None
    """File with a Jinja chat template."""
    chat_template_kwargs: str = "{}"
    """Variables for the chat template, a JSON object."""
    reasoning_format: str = "deepseek"
    """Where the reasoning of a model goes in chat answers."""
    reasoning: str = "auto"
    """Whether models that can reason do so in chats."""
    reasoning_effort: str | None = None
    """How much models that know degrees of it reason in chats."""
    reasoning_budget: int = -1
    """Tokens of reasoning in chats: -1 has no bound, 0 is none."""
    reasoning_budget_message: str | None = None
    """Text put before the end of reasoning that has used its budget."""
    reasoning_preserve: bool = True
    """Show the reasoning of earlier answers to the template."""
    skip_chat_parsing: bool = False
    """Leave chat answers as the model writes them."""
    prefill_assistant: bool = True
    """Go on with an assistant message at the end of a chat."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """Table `[engine]`."""

    mode: str | None = None
    """How the context size and the number of slots make one window."""
    ctx_size: int | None = None
    """The context size C in tokens; 0 is what the model was trained for."""
    ctx_size_per_seq: int | None = None
    """The context of one request in mode per-seq, a cap in llama-compat."""
    parallel: int | None = None
    """The number of slots N: requests that run at the same time."""
    kv_unified: bool | None = None
    """Whether the slots share one pool."""
    min_slot_ctx: int = 512
    """The smallest slot context that a division may leave."""
    batch_size: int | None = None
    """The most prompt tokens that are read in one step."""
    token_gap: float | None = None
    """How long a running answer may wait for a token while prompts are read."""
    cache_prompt: bool = True
    """Reuse what a slot remembers of an earlier prompt."""
    context_shift: bool = False
    """Go on when the slot context is full, without the oldest text."""
    n_keep: int = 0
    """Tokens at the beginning that a context shift leaves; -1 is the prompt."""
    slot_prompt_similarity: float = 0.1
    """How alike a prompt must be to get the slot that remembers it."""
    overflow: str = "preempt"
    """What happens when the shared pool is too small for all who run."""
    queue_timeout: float = 0.0
    """Seconds that a request may wait for a slot; 0 is as long as it takes."""
    device: str = "auto"
    """The device that computes."""
    dequantize: str = "auto"
    """Whether quantised weights are unpacked at load."""
    cache_type_k: str = "auto"
    """How keys are stored."""
    cache_type_v: str = "auto"
    """How values are stored."""
    memory_limit: int | str = "auto"
    """Memory that weights, caches and one step may take together."""
    memory_check: bool = True
    """Refuse to start when the plan does not fit into the memory limit."""
    watchdog_timeout: float = 60.0
    """Silence after which the engine counts as hung; 0 waits for ever."""
    max_restarts: int = 5
    """How often within ten minutes a crashed engine is started again."""
    sleep_idle_seconds: int = -1
    """Idle seconds after which the model is unloaded; -1 and 0 are never."""
    cache_ram: int | None = None
    """Memory for prompts whose slot has gone to others; 0 is off."""
    n_predict: int = -1
    """The most tokens of an answer; -1 is up to the slot context."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingSettings:
    """Table `[sampling]`."""

    seed: int = -1
    """Seed of the random numbers; -1 is a new one for each request."""
    temperature: float = 0.8
    """Temperature; 0 always takes the most likely token."""
    top_k: int = 40
    """Keep the k most likely tokens; 0 and -1 keep all."""
    top_p: float = 0.95
    """Keep the most likely tokens that together have this probability."""
    min_p: float = 0.05
    """Drop tokens below this share of the most likely one."""
    typical_p: float = 1.0
    """Locally typical sampling."""
    repeat_last_n: int = 64
    """Window of the penalties; 0 is off, -1 the whole context."""
    repeat_penalty: float = 1.0
    """Penalty for tokens that occurred; 1 is off."""
    presence_penalty: float = 0.0
    """Taken from the logit of every token that occurred; 0 is off."""
    frequency_penalty: float = 0.0
    """Taken from a logit for each time the token occurred; 0 is off."""
    ignore_eos: bool = False
    """Never end an answer at an end-of-text token."""
    logit_bias: tuple[str, ...] = ()
    """Numbers added to the logits of tokens."""
    samplers: tuple[str, ...] = (
        "penalties",
        "dry",
        "top_n_sigma",
        "top_k",
        "typ_p",
        "top_p",
        "min_p",
        "xtc",
        "temperature",
    )
    """The samplers and their order."""
    top_n_sigma: float = -1.0
    """Keep tokens within n standard deviations of the best logit."""
    xtc_probability: float = 0.0
    """How often XTC drops the likeliest tokens; 0 is never."""
    xtc_threshold: float = 0.1
    """Probability above which XTC drops tokens."""
    dry_multiplier: float = 0.0
    """Strength of the penalty for repetitions (DRY); 0 is off."""
    dry_base: float = 1.75
    """Base of the DRY penalty."""
    dry_allowed_length: int = 2
    """Length of repetitions that DRY lets pass."""
    dry_penalty_last_n: int = 64
    """Window of DRY; 0 is off, -1 the whole context."""
    dry_sequence_breakers: tuple[str, ...] = ("\n", ":", '"', "*")
    """Texts that end a repetition for DRY."""
    dynatemp_range: float = 0.0
    """Range of the dynamic temperature; 0 is off."""
    dynatemp_exponent: float = 1.0
    """Exponent of the dynamic temperature."""
    mirostat: int = 0
    """Mirostat 1 or 2 in place of the other samplers; 0 is off."""
    mirostat_tau: float = 5.0
    """Surprise that Mirostat aims at, in bits."""
    mirostat_eta: float = 0.1
    """Learning rate of Mirostat."""
    adaptive_target: float = -1.0
    """Probability that adaptive-p aims at; below 0 it is off."""
    adaptive_decay: float = 0.9
    """Memory of adaptive-p."""
    stop: tuple[str, ...] = ()
    """Texts at which answers end."""
    grammar: str | None = None
    """Grammar in GBNF that answers match."""
    grammar_file: str | None = None
    """File with a grammar in GBNF that answers match."""
    json_schema: str | None = None
    """JSON schema that answers match."""
    json_schema_file: str | None = None
    """File with a JSON schema that answers match."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """Table `[server]`."""

    host: tuple[str, ...] = ("127.0.0.1",)
    """Addresses to listen on."""
    port: int = 8080
    """TCP port; 0 lets the system choose one."""
    socket_mode: str | None = None
    """Who may use the UNIX sockets, as an octal mode."""
    api_key: tuple[str, ...] = ()
    """Keys that clients must show."""
    api_key_file: str | None = None
    """File with keys, one a line."""
    ssl_key_file: str | None = None
    """File with the private key for HTTPS."""
    ssl_cert_file: str | None = None
    """File with the certificate for HTTPS."""
    allowed_hosts: tuple[str, ...] = ()
    """Further names under which clients may reach a loopback address."""
    api_prefix: str = ""
    """Path before every route."""
    ui: bool = True
    """Serve the monitor page at `/`."""
    slots: bool = True
    """Serve GET /slots."""
    slot_save_path: str | None = None
    """Folder for slots that are saved; turns slot actions on."""
    props: bool = False
    """Serve POST /props."""
    metrics: bool = False
    """Serve GET /metrics for Prometheus."""
    cors_origins: tuple[str, ...] = ("*",)
    """Web pages that may call the API."""
    queue_size: int = 128
    """Requests that may wait for a slot."""
    max_body_size: int = 67108864
    """Bytes of the largest request body."""
    timeout: int = 3600
    """Seconds that a client may stall before it is disconnected; 0 is never."""
    sse_ping_interval: int = 30
    """Seconds between comment lines in a silent stream; -1 is off."""
    drain_timeout: float = 15.0
    """Seconds that running requests get to end when the daemon stops."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggingSettings:
    """Table `[logging]`."""

    level: str = "info"
    """How much is logged."""
    format: str = "auto"
    """The form of log lines."""
    file: str | None = None
    """File that log lines are added to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All tables."""

    model: ModelSettings = field(default_factory=ModelSettings)
    engine: EngineSettings = field(default_factory=EngineSettings)
    sampling: SamplingSettings = field(default_factory=SamplingSettings)
    server: ServerSettings = field(default_factory=ServerSettings)
    logging: LoggingSettings = field(default_factory=LoggingSettings)
