"""The option table: every option of the daemon, once.

Flags, environment variables, TOML keys, the typed settings, help texts, man pages and
all other generated files are read from `OPTIONS`; nothing about an option is written
anywhere else but its Korean texts (`documents/korean`).

To add an option:
1. Add one `Option(...)` below, beside its neighbours: the order of the table is the
   order of every document. Give it a `short` line without a full stop and a `long`
   text that says what it does, not what its name says.
2. Add its Korean texts and run `make generate` (it says where they belong, and writes
   `settings.py` and the documents).
3. Use it: `settings.<table>.<name>`. Add a line to the changelog.
Names of flags and variables that llama-server has too must mean the same here.
To rename an option, put the old key into `renamed_from`; never reuse an old key.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from mlxceld import samplers
from mlxceld.filemode import FileMode
from mlxceld.kinds import (
    Boolean,
    Choice,
    FilePath,
    Integer,
    JsonObject,
    Kind,
    Number,
    Text,
    TextList,
    UrlPrefix,
    Value,
)
from mlxceld.memory import Memory, RamSize, Size
from mlxceld.samplingkinds import Biases, Samplers, Texts

Place: TypeAlias = Literal["flag", "env", "file"]

CATEGORIES: dict[str, str] = {
    "model": "Model",
    "slots": "Slots and context",
    "memory": "Device and memory",
    "engine": "Engine process",
    "sampling": "Defaults of requests",
    "server": "HTTP server",
    "logging": "Logging",
}
"""Category to heading, in the order of the documents."""

TABLES = ("model", "engine", "sampling", "server", "logging")
"""The tables of a TOML file, in the order of a written file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option under all its names.

    A `default` of None means that "not said" is a value of its own, different from
    every value that can be said.
    """

    key: str
    """Table and name in TOML: `engine.ctx_size`."""
    flags: tuple[str, ...]
    """Spellings on the command line; at least one begins with two dashes."""
    kind: Kind
    category: str
    short: str
    """One line without a full stop."""
    long: str
    """Paragraphs, separated by empty lines."""
    default: Value | None = None
    default_text: str = ""
    """What an unset option amounts to, where `default` is None."""
    negated: tuple[str, ...] = ()
    """Spellings that turn a boolean off."""
    constants: tuple[tuple[str, str], ...] = ()
    """Flags without a value that stand for one: pairs of flag and text."""
    env: tuple[str, ...] = ()
    """Names of llama-server's variables; our own name is `own_env`."""
    negated_env: tuple[str, ...] = ()
    """Variables whose presence turns a boolean off."""
    env_name: str = ""
    """Our own variable without `MLXCELD_`, where it is not the name of the key."""
    since: str = "0.1.0"
    deprecated: str = ""
    """What to use instead; empty while the option is current."""
    renamed_from: tuple[str, ...] = ()
    """Names that older files used for this option, with or without a table."""
    reload: Literal["live", "restart"] = "restart"
    where: frozenset[Place] = frozenset({"flag", "env", "file"})
    secret: bool = False
    """Never shown in logs, overrides and printed configurations."""

    @property
    def table(self) -> str:
        """The TOML table."""
        return self.key.partition(".")[0]

    @property
    def name(self) -> str:
        """The key inside its table."""
        return self.key.partition(".")[2]

    @property
    def own_env(self) -> str:
        """Our own environment variable."""
        return f"MLXCELD_{self.env_name or self.name.upper()}"

    @property
    def flag(self) -> str:
        """The spelling that messages use: the first long one."""
        return next(flag for flag in self.flags if flag.startswith("--"))

    @property
    def is_switch(self) -> bool:
        """Whether the flag stands alone, without a value after it."""
        return isinstance(self.kind, Boolean)

    @property
    def metavar(self) -> str:
        """The placeholder of the value in help texts."""
        if isinstance(self.kind, Choice):
            return "|".join(self.kind.words)
        return self.kind.metavar

    @property
    def optional(self) -> bool:
        """Whether the setting may be None."""
        return self.default is None


_MODES = (
    ("legacy", "every slot gets the whole context C; memory grows as C x N"),
    ("llama-compat", "the slots divide C, or share it; memory stays that of C"),
    ("per-seq", "every slot gets ctx_size_per_seq tokens; memory grows with N"),
)

_CACHE_TYPES = (
    ("auto", "the precision that the model computes with"),
    ("f16", "2 bytes a value"),
    ("bf16", "2 bytes a value"),
    ("f32", "4 bytes a value"),
    ("q8_0", "8 bits a value, and a scale and an offset for 32 of them"),
    ("q4_0", "4 bits a value, and a scale and an offset for 32 of them"),
)

_REASONING_FORMATS = (
    ("none", "left in the text as the model writes it"),
    ("deepseek", "in a field of its own, `reasoning_content`"),
    ("deepseek-legacy", "in that field, and in the text as well"),
    ("auto", "another word for `deepseek`"),
)

_REASONING = (
    ("on", "templates are told to let the model reason"),
    ("off", "they are told not to; reasoning that a template opens is closed"),
    ("auto", "as on, except where `--reasoning-budget` is 0"),
)

_SWITCH = Boolean()

OPTIONS: tuple[Option, ...] = (
    # ---- model ----
    Option(
        key="model.path",
        flags=("-m", "--model"),
        env=("LLAMA_ARG_MODEL",),
        env_name="MODEL",
        kind=FilePath(),
        category="model",
        short="The model: an MLX folder or a GGUF file",
        long="A folder with `config.json` and safetensors weights, or a GGUF file of "
        "the llama architecture (F16, Q4_0, Q4_1, Q8_0). A name in a TOML file is seen "
        "from the folder of that file, a name in a flag or a variable from the current "
        "folder.",
        default_text="none; a model must be named here or with `--hf-repo`",
        renamed_from=("model", "model_path"),
    ),
    Option(
        key="model.hf_repo",
        flags=("-hf", "-hfr", "--hf-repo"),
        env=("LLAMA_ARG_HF_REPO",),
        kind=Text(),
        category="model",
        short="A model repository on Hugging Face",
        long="`owner/name` of a repository with MLX weights. It is downloaded into the "
        "Hugging Face cache unless it is there already.",
        default_text="none",
    ),
    Option(
        key="model.hf_token",
        flags=("-hft", "--hf-token"),
        env=("HF_TOKEN",),
        kind=Text(),
        category="model",
        short="Access token for Hugging Face",
        long="For repositories that need one. Prefer the variable or a file: flags are "
        "visible in the list of processes.",
        default_text="none",
        secret=True,
    ),
    Option(
        key="model.offline",
        flags=("--offline",),
        env=("LLAMA_ARG_OFFLINE",),
        kind=_SWITCH,
        default=False,
        category="model",
        short="Never use the network to find the model",
        long="With `--hf-repo`, only what the Hugging Face cache already holds is "
        "used.",
    ),
    Option(
        key="model.alias",
        flags=("-a", "--alias"),
        env=("LLAMA_ARG_ALIAS",),
        kind=TextList(unique=True),
        default=(),
        category="model",
        short="Names of the model in the API",
        long="A sorted set, as in llama-server: the first name in the alphabet is the "
        "id that answers carry, the others are listed as aliases. Without an alias the "
        "id is the model's path or repository as it was given.",
        reload="live",
        renamed_from=("model_alias",),
    ),
    Option(
        key="model.tags",
        flags=("--tags",),
        env=("LLAMA_ARG_TAGS",),
        kind=TextList(unique=True),
        default=(),
        category="model",
        short="Tags of the model in the API",
        long="For information only; `/v1/models` lists them.",
        reload="live",
    ),
    Option(
        key="model.jinja",
        flags=("--jinja",),
        negated=("--no-jinja",),
        env=("LLAMA_ARG_JINJA",),
        negated_env=("LLAMA_ARG_NO_JINJA",),
        kind=_SWITCH,
        default=True,
        category="model",
        short="Render chats with the model's Jinja template",
        long="Off, chats are rendered in the ChatML form whatever the model brings; a "
        "template that is given with `--chat-template` is used all the same.",
        reload="live",
    ),
    Option(
        key="model.chat_template",
        flags=("--chat-template",),
        env=("LLAMA_ARG_CHAT_TEMPLATE",),
        kind=Text(),
        category="model",
        short="Chat template: Jinja text, or a name such as `chatml` or `llama3`",
        long="Used instead of the template that the model brings. The names are "
        "llama-server's, for models that bring none; an unknown one is refused at the "
        "start with the names there are.",
        default_text="the model's own",
    ),
    Option(
        key="model.chat_template_file",
        flags=("--chat-template-file",),
        env=("LLAMA_ARG_CHAT_TEMPLATE_FILE",),
        kind=FilePath(),
        category="model",
        short="File with a Jinja chat template",
        long="Used instead of the template that the model brings. A name in a TOML "
        "file is seen from the folder of that file.",
        default_text="the model's own",
    ),
    Option(
        key="model.chat_template_kwargs",
        flags=("--chat-template-kwargs",),
        env=("LLAMA_ARG_CHAT_TEMPLATE_KWARGS",),
        kind=JsonObject(),
        default="{}",
        category="model",
        short="Variables for the chat template, a JSON object",
        long='For example `{"enable_thinking": false}`. A request may add to them and '
        "override them. In TOML a table is accepted too.",
        reload="live",
    ),
    Option(
        key="model.reasoning_format",
        flags=("--reasoning-format",),
        env=("LLAMA_ARG_THINK",),
        kind=Choice(_REASONING_FORMATS),
        default="deepseek",
        category="model",
        short="Where the reasoning of a model goes in chat answers",
        long="The markers of reasoning are those that the chat template names. A "
        "request may say otherwise.",
        reload="live",
    ),
    Option(
        key="model.reasoning",
        flags=("-rea", "--reasoning"),
        env=("LLAMA_ARG_REASONING",),
        kind=Choice(
            _REASONING,
            spellings=(
                ("true", "on"),
                ("yes", "on"),
                ("enabled", "on"),
                ("1", "on"),
                ("false", "off"),
                ("no", "off"),
                ("disabled", "off"),
                ("0", "off"),
                ("-1", "auto"),
            ),
        ),
        default="auto",
        category="model",
        short="Whether models that can reason do so in chats",
        long="It is the template's variable `enable_thinking`; templates that do not "
        "know it decide for themselves. A request may say otherwise with "
        "`chat_template_kwargs`.",
        reload="live",
    ),
    Option(
        key="model.reasoning_effort",
        flags=("--reasoning-effort",),
        env=("LLAMA_ARG_REASONING_EFFORT",),
        kind=Text(),
        category="model",
        short="How much models that know degrees of it reason in chats",
        long="It is the template's variable `reasoning_effort`, for example `low` or "
        "`high`. A request may say otherwise.",
        default_text="the template's own",
        reload="live",
    ),
    Option(
        key="model.reasoning_budget",
        flags=("--reasoning-budget",),
        env=("LLAMA_ARG_THINK_BUDGET",),
        kind=Integer(low=-1, unit="tokens"),
        default=-1,
        category="model",
        short="Tokens of reasoning in chats: -1 has no bound, 0 is none",
        long="Reasoning that comes to so many tokens is ended: the marker that ends it "
        "is put in, and the model goes on with its answer. 0 is the same as "
        "`--reasoning off`. A request may say otherwise with `reasoning_budget_tokens` "
        "or `thinking_budget_tokens`.",
        reload="live",
    ),
    Option(
        key="model.reasoning_budget_message",
        flags=("--reasoning-budget-message",),
        env=("LLAMA_ARG_THINK_BUDGET_MESSAGE",),
        kind=Text(),
        category="model",
        short="Text put before the end of reasoning that has used its budget",
        long="The model reads it as its own last thought, for example `I have to "
        "answer now.` A request may say otherwise with `reasoning_budget_message`.",
        default_text="nothing",
        reload="live",
    ),
    Option(
        key="model.reasoning_preserve",
        flags=("--reasoning-preserve",),
        negated=("--no-reasoning-preserve",),
        env=("LLAMA_ARG_REASONING_PRESERVE",),
        negated_env=("LLAMA_ARG_NO_REASONING_PRESERVE",),
        kind=_SWITCH,
        default=True,
        category="model",
        short="Show the reasoning of earlier answers to the template",
        long="It is the template's variables `preserve_thinking`, `clear_thinking` "
        "and `truncate_history_thinking`; templates that know none of them decide for "
        "themselves. Off, the reasoning of earlier answers is left out whatever the "
        "template does.",
        reload="live",
    ),
    Option(
        key="model.skip_chat_parsing",
        flags=("--skip-chat-parsing",),
        negated=("--no-skip-chat-parsing",),
        env=("LLAMA_ARG_SKIP_CHAT_PARSING",),
        negated_env=("LLAMA_ARG_NO_SKIP_CHAT_PARSING",),
        kind=_SWITCH,
        default=False,
        category="model",
        short="Leave chat answers as the model writes them",
        long="Neither reasoning nor calls of tools are taken out of the text: all of "
        "it is content.",
        reload="live",
    ),
    Option(
        key="model.prefill_assistant",
        flags=("--prefill-assistant",),
        negated=("--no-prefill-assistant",),
        env=("LLAMA_ARG_PREFILL_ASSISTANT",),
        negated_env=("LLAMA_ARG_NO_PREFILL_ASSISTANT",),
        kind=_SWITCH,
        default=True,
        category="model",
        short="Go on with an assistant message at the end of a chat",
        long="Off, such a message is an answer that was given, and the model writes "
        "another one. A request that says `continue_final_message` is served either "
        "way.",
        reload="live",
    ),
    # ---- slots and context ----
    Option(
        key="engine.mode",
        flags=("--mode",),
        constants=(("--llama-server-compat", "llama-compat"),),
        kind=Choice(
            _MODES, spellings=(("llama", "llama-compat"), ("per_seq", "per-seq"))
        ),
        category="slots",
        short="How the context size and the number of slots make one window",
        long="What one request may use is the slot context; what all requests together "
        "may hold is the pool. C is `--ctx-size`, N is `--parallel`.\n\n"
        "`--llama-server-compat` is a spelling of `--mode llama-compat`.",
        default_text="legacy",
    ),
    Option(
        key="engine.ctx_size",
        flags=("-c", "--ctx-size"),
        env=("LLAMA_ARG_CTX_SIZE",),
        kind=Integer(unit="tokens"),
        category="slots",
        short="The context size C in tokens; 0 is what the model was trained for",
        long="Division rule of each mode. legacy: every slot gets C, the pool is C x "
        "N. llama-compat: with N given, every slot gets floor(C / N) and the pool is "
        "C; with N unset, auto or kv_unified, one request may use up to C and all "
        "slots share a pool of C. per-seq: C is only the size of a shared pool "
        "(kv_unified); the slot context is ctx_size_per_seq.\n\nUnset or 0, every "
        "slot gets the model's training length, lowered to what memory allows. A C "
        "that was given is never changed silently; a slot context above the training "
        "length is served and reported as the training length.",
        default_text="the training length of the model",
        renamed_from=("n_ctx",),
    ),
    Option(
        key="engine.ctx_size_per_seq",
        flags=("--ctx-size-per-seq", "--kv-unified-per-slot"),
        env=("LLAMA_ARG_KV_UNIFIED_PER_SLOT",),
        kind=Integer(unit="tokens"),
        category="slots",
        short="The context of one request in mode per-seq, a cap in llama-compat",
        long="Mode per-seq needs it: every slot gets this many tokens. In mode "
        "llama-compat it caps the slot context, and without `--ctx-size` it sizes the "
        "pool: N times this many tokens. 0 is the same as leaving it out.",
        default_text="unset",
        renamed_from=("kv_unified_per_slot",),
    ),
    Option(
        key="engine.parallel",
        flags=("-np", "--parallel", "--n-parallel"),
        env=("LLAMA_ARG_N_PARALLEL",),
        kind=Integer(low=1, high=256, unit="slots", negative_is_auto=True),
        category="slots",
        short="The number of slots N: requests that run at the same time",
        long="Division rule of each mode. legacy: every slot gets the whole "
        "`--ctx-size` C and memory grows as C x N. llama-compat: every slot gets "
        "floor(C / N) and memory stays that of C; with `--kv-unified` one request may "
        "use up to C and all slots share C. per-seq: every slot gets ctx_size_per_seq "
        "and memory grows with N.\n\n-1 is auto: 4 slots, which in mode llama-compat "
        "share C. Unset is auto in mode llama-compat and one slot in the others. 0 is "
        "refused. A division that leaves less than min_slot_ctx for a slot is refused "
        "at start.",
        default_text="unset (legacy and per-seq: 1 slot; llama-compat: auto)",
        renamed_from=("n_parallel",),
    ),
    Option(
        key="engine.kv_unified",
        flags=("-kvu", "--kv-unified"),
        negated=("-no-kvu", "--no-kv-unified"),
        env=("LLAMA_ARG_KV_UNIFIED",),
        negated_env=("LLAMA_ARG_NO_KV_UNIFIED",),
        kind=_SWITCH,
        category="slots",
        short="Whether the slots share one pool",
        long="On, one request may use the whole pool while the others are short. Off, "
        "every slot keeps its own part, also when the number of slots is auto. Mode "
        "legacy has nothing to share and refuses it.",
        default_text="off; on in mode llama-compat when the number of slots is auto",
    ),
    Option(
        key="engine.min_slot_ctx",
        flags=("--min-slot-ctx",),
        kind=Integer(low=1, unit="tokens"),
        default=512,
        category="slots",
        short="The smallest slot context that a division may leave",
        long="A `--ctx-size` whose division by `--parallel` leaves less is refused at "
        "start, with the numbers and the ways out.",
    ),
    Option(
        key="engine.batch_size",
        flags=("-b", "--batch-size"),
        env=("LLAMA_ARG_BATCH",),
        kind=Integer(low=1, high=65536, unit="tokens"),
        category="slots",
        short="The most prompt tokens that are read in one step",
        long="Long prompts are read in chunks of this size, and running answers go on "
        "between the chunks, which are smaller meanwhile (`--token-gap`). Larger "
        "chunks read prompts faster and need more working memory. What is left of a "
        "chunk at the end of a prompt may be filled with other requests' prompts.",
        default_text="256 on the CPU, 512 on a GPU",
        renamed_from=("prefill_chunk", "prefill_chunk_size", "prefill_step_size"),
    ),
    Option(
        key="engine.token_gap",
        flags=("--token-gap",),
        kind=Number(low=0.0, high=60.0, unit="seconds"),
        category="slots",
        short="How long a running answer may wait for a token while prompts are read",
        long="A target, in seconds. Between two tokens of running answers lie one "
        "decode step and one chunk of a prompt; the chunk gets what the step leaves of "
        "this time, by how fast the last ones were read. A smaller number makes "
        "answers flow more evenly and prompts take longer. A chunk never has fewer "
        "than 64 tokens, on CUDA 256, however short the time. 0 sets no bound: chunks "
        "always have the size of `--batch-size`.",
        default_text="0.25 on the CPU, 0.1 on a GPU",
        reload="live",
    ),
    Option(
        key="engine.cache_prompt",
        flags=("--cache-prompt",),
        negated=("--no-cache-prompt",),
        env=("LLAMA_ARG_CACHE_PROMPT",),
        negated_env=("LLAMA_ARG_NO_CACHE_PROMPT",),
        kind=_SWITCH,
        default=True,
        category="slots",
        short="Reuse what a slot remembers of an earlier prompt",
        long="The longest common beginning of the new prompt and the tokens in the "
        "slot is not computed again. A request can say otherwise with `cache_prompt`.",
        reload="live",
    ),
    Option(
        key="engine.context_shift",
        flags=("--context-shift",),
        negated=("--no-context-shift",),
        env=("LLAMA_ARG_CONTEXT_SHIFT",),
        negated_env=("LLAMA_ARG_NO_CONTEXT_SHIFT",),
        kind=_SWITCH,
        default=False,
        category="slots",
        short="Go on when the slot context is full, without the oldest text",
        long="Off, an answer ends where its slot context is full. On, the tokens "
        "after the first `n_keep` are dropped, half of them or `n_discard` of a "
        "request, and the answer goes on; it says `truncated`. llama-server turns the "
        "keys that it holds to their new places; here what is left is read again, so "
        "that the model sees exactly the shortened text. That takes as long as a "
        "prompt of that length, once for every half of a context. A prompt that is "
        "too long is refused all the same. An answer without any limit ends with as "
        "many tokens as the model was trained for.",
        reload="live",
    ),
    Option(
        key="engine.n_keep",
        flags=("--keep",),
        kind=Integer(low=-1, unit="tokens"),
        default=0,
        category="slots",
        short="Tokens at the beginning that a context shift leaves; -1 is the prompt",
        long="The token with which the model begins every text is left in any case. "
        "For requests that set no `n_keep` of their own.",
        reload="live",
    ),
    Option(
        key="engine.slot_prompt_similarity",
        flags=("-sps", "--slot-prompt-similarity"),
        kind=Number(low=0.0, high=1.0),
        default=0.1,
        category="slots",
        short="How alike a prompt must be to get the slot that remembers it",
        long="The share of the prompt that an idle slot already holds. Below it the "
        "least recently used idle slot is taken. 0 turns the comparison off.",
        reload="live",
    ),
    Option(
        key="engine.overflow",
        flags=("--overflow",),
        kind=Choice(
            (
                ("preempt", "the youngest request steps back and goes on later"),
                ("error", "all running requests end with an error"),
            ),
        ),
        default="preempt",
        category="slots",
        short="What happens when the shared pool is too small for all who run",
        long="First the idle slots give up what they remember, least recently used "
        "first. If that is not enough: preempt puts the youngest running request "
        "back at the head of the queue, with its answer so far; its client stays "
        "connected and in the end gets the answer that it would have got. error does "
        "what llama-server does: all running requests end with status 500, or an "
        "error event in a stream, and `Context size has been exceeded.`; those that "
        "wait go on.\n\nWhere the slots do not share a pool it makes no difference.",
        reload="live",
    ),
    Option(
        key="engine.queue_timeout",
        flags=("--queue-timeout",),
        kind=Number(low=0.0, high=86400.0, unit="seconds"),
        default=0.0,
        category="slots",
        short="Seconds that a request may wait for a slot; 0 is as long as it takes",
        long="A request that has waited longer without being started is refused with "
        "503 and a `Retry-After` header. One that was started and had to step back "
        "for others is never refused.",
        reload="live",
    ),
    # ---- device and memory ----
    Option(
        key="engine.device",
        flags=("-dev", "--device"),
        env=("LLAMA_ARG_DEVICE",),
        kind=Choice(
            (
                ("auto", "the GPU where there is one, else the CPU"),
                ("cpu", "the CPU"),
                ("gpu", "the GPU (Metal or CUDA)"),
            ),
            spellings=(
                ("none", "cpu"),
                ("metal", "gpu"),
                ("mtl0", "gpu"),
                ("cuda", "gpu"),
                ("cuda0", "gpu"),
            ),
        ),
        default="auto",
        category="memory",
        short="The device that computes",
        long="llama-server's `none` is accepted and means cpu.",
    ),
    Option(
        key="engine.dequantize",
        flags=("--dequantize",),
        kind=Choice(
            (
                ("auto", "on the CPU yes, on a GPU no"),
                ("on", "weights become plain floating point numbers at load"),
                ("off", "weights stay as they are in the file"),
            ),
            spellings=(
                ("true", "on"),
                ("yes", "on"),
                ("false", "off"),
                ("no", "off"),
            ),
        ),
        default="auto",
        category="memory",
        short="Whether quantised weights are unpacked at load",
        long="On the CPU, products with quantised and with 16-bit weights are many "
        "times slower than float32; unpacking costs memory and buys that speed.",
    ),
    Option(
        key="engine.cache_type_k",
        flags=("-ctk", "--cache-type-k"),
        env=("LLAMA_ARG_CACHE_TYPE_K",),
        kind=Choice(_CACHE_TYPES),
        default="auto",
        category="memory",
        short="How keys are stored",
        long="A smaller type makes room for more tokens and costs some accuracy. The "
        "plan counts the real bytes: of 16-bit models q8_0 takes 9/16 and q4_0 5/16, "
        "for their scale and offset are 16-bit too. On the CPU a model computes in "
        "float32, and those two are 5/16 and 3/16 of that.\n\nSliding windows and "
        "recurrent state do not grow with the text and always keep the model's "
        "precision. Heads must be a multiple of 32 for q8_0 and q4_0.",
    ),
    Option(
        key="engine.cache_type_v",
        flags=("-ctv", "--cache-type-v"),
        env=("LLAMA_ARG_CACHE_TYPE_V",),
        kind=Choice(_CACHE_TYPES),
        default="auto",
        category="memory",
        short="How values are stored",
        long="As `--cache-type-k`, for the values. The two may differ.",
    ),
    Option(
        key="engine.memory_limit",
        flags=("--memory-limit",),
        kind=Memory(),
        default="auto",
        category="memory",
        short="Memory that weights, caches and one step may take together",
        long="Bytes with an optional unit (K, M, G, T or KiB, MiB, GiB, TiB, all "
        "powers of 1024), a share of the memory of the device that computes, such as "
        "`75%`, or auto. On the CPU and with Metal that memory is the physical one, or "
        "what a container or a service manager leaves of it, and auto is `75%` of it, "
        "with Metal no more than Metal recommends. With CUDA it is the memory of the "
        "graphics card, and auto is `90%` of it.",
    ),
    Option(
        key="engine.memory_check",
        flags=("--memory-check",),
        negated=("--no-memory-check",),
        kind=_SWITCH,
        default=True,
        category="memory",
        short="Refuse to start when the plan does not fit into the memory limit",
        long="Off, the limit is not looked at, neither to refuse nor to lower a "
        "context size that was left open.",
    ),
    # ---- the engine process ----
    Option(
        key="engine.watchdog_timeout",
        flags=("--watchdog-timeout",),
        kind=Number(low=0.0, unit="seconds"),
        default=60.0,
        category="engine",
        short="Silence after which the engine counts as hung; 0 waits for ever",
        long="The engine gives a sign of life at least once a second, except while it "
        "is in the middle of one step. One that is silent for this long is killed and "
        "started again, and its requests end with an error. Prompts are read in chunks "
        "that should take a quarter of this time, at most ten seconds; it must be more "
        "than one decode step can take. Loading a model is not timed.",
    ),
    Option(
        key="engine.max_restarts",
        flags=("--max-restarts",),
        kind=Integer(low=0, unit="starts"),
        default=5,
        category="engine",
        short="How often within ten minutes a crashed engine is started again",
        long="With growing pauses between. One crash more and the daemon ends with "
        "status 70, for its service manager to decide. 0 never starts it again.",
    ),
    Option(
        key="engine.sleep_idle_seconds",
        flags=("--sleep-idle-seconds",),
        kind=Integer(low=-1, unit="seconds"),
        default=-1,
        category="engine",
        short="Idle seconds after which the model is unloaded; -1 and 0 are never",
        long="The engine process is ended, so that all of its memory is free. The next "
        "request that needs it starts it again and waits until the model is loaded. "
        "Status routes do not: health, properties, slots, metrics and the list of "
        "models are answered as before.",
    ),
    Option(
        key="engine.cache_ram",
        flags=("-cram", "--cache-ram"),
        env=("LLAMA_ARG_CACHE_RAM",),
        kind=RamSize(),
        category="memory",
        short="Memory for prompts whose slot has gone to others; 0 is off",
        long="What a slot remembers is kept in RAM when another prompt takes the slot "
        "or its cells are needed, and comes back when a prompt begins with a quarter "
        "of it or more. Texts of fewer than 32 tokens are not kept, nor those of "
        "requests with `cache_prompt` false. The least recently used goes first; the "
        "bound holds at every moment.\n\nA bare number is MiB; K, M, G, T and KiB, "
        "MiB, GiB, TiB may be given (all powers of 1024). -1 is whatever the memory "
        "limit leaves after weights, slots and one step, and nothing is ever taken "
        "beyond that: a larger number is lowered, with a note. Idle slots are not "
        "emptied into it as llama-server's `--cache-idle-slots` does: they keep what "
        "they remember until their room is needed.",
        default_text="8192 MiB, or less where the memory limit leaves less",
    ),
    # ---- defaults of requests ----
    Option(
        key="engine.n_predict",
        flags=("-n", "--predict", "--n-predict"),
        env=("LLAMA_ARG_N_PREDICT",),
        kind=Integer(low=-1, unit="tokens"),
        default=-1,
        category="sampling",
        short="The most tokens of an answer; -1 is up to the slot context",
        long="For requests that set no limit of their own.",
        reload="live",
        renamed_from=("max_tokens",),
    ),
    Option(
        key="sampling.seed",
        flags=("-s", "--seed"),
        kind=Integer(low=-1, high=2**32 - 1),
        default=-1,
        category="sampling",
        short="Seed of the random numbers; -1 is a new one for each request",
        long="The same seed and the same request give the same answer, whatever runs "
        "beside it.",
        reload="live",
    ),
    Option(
        key="sampling.temperature",
        flags=("--temp", "--temperature"),
        env=("LLAMA_ARG_TEMPERATURE",),
        kind=Number(low=0.0),
        default=0.8,
        category="sampling",
        short="Temperature; 0 always takes the most likely token",
        long="Divides the logits before a token is drawn.",
        reload="live",
        renamed_from=("temp",),
    ),
    Option(
        key="sampling.top_k",
        flags=("--top-k",),
        env=("LLAMA_ARG_TOP_K",),
        kind=Integer(low=-1, unit="tokens"),
        default=40,
        category="sampling",
        short="Keep the k most likely tokens; 0 and -1 keep all",
        long="The first of the filters.",
        reload="live",
    ),
    Option(
        key="sampling.top_p",
        flags=("--top-p",),
        env=("LLAMA_ARG_TOP_P",),
        kind=Number(low=0.0, high=1.0),
        default=0.95,
        category="sampling",
        short="Keep the most likely tokens that together have this probability",
        long="1 keeps all.",
        reload="live",
    ),
    Option(
        key="sampling.min_p",
        flags=("--min-p",),
        env=("LLAMA_ARG_MIN_P",),
        kind=Number(low=0.0, high=1.0),
        default=0.05,
        category="sampling",
        short="Drop tokens below this share of the most likely one",
        long="0 keeps all.",
        reload="live",
    ),
    Option(
        key="sampling.typical_p",
        flags=("--typical", "--typical-p"),
        kind=Number(low=0.0, high=1.0),
        default=1.0,
        category="sampling",
        short="Locally typical sampling",
        long="Keeps the tokens whose surprise is nearest to the expected one until "
        "they have this probability together. 1 keeps all.",
        reload="live",
    ),
    Option(
        key="sampling.repeat_last_n",
        flags=("--repeat-last-n",),
        kind=Integer(low=-1, unit="tokens"),
        default=64,
        category="sampling",
        short="Window of the penalties; 0 is off, -1 the whole context",
        long="How many of the latest tokens the three penalties look at.",
        reload="live",
    ),
    Option(
        key="sampling.repeat_penalty",
        flags=("--repeat-penalty",),
        env=("LLAMA_ARG_REPEAT_PENALTY",),
        kind=Number(low=0.0),
        default=1.0,
        category="sampling",
        short="Penalty for tokens that occurred; 1 is off",
        long="Positive logits of tokens in the window are divided by it, negative ones "
        "multiplied.",
        reload="live",
        renamed_from=("repetition_penalty",),
    ),
    Option(
        key="sampling.presence_penalty",
        flags=("--presence-penalty",),
        env=("LLAMA_ARG_PRESENCE_PENALTY",),
        kind=Number(),
        default=0.0,
        category="sampling",
        short="Taken from the logit of every token that occurred; 0 is off",
        long="Once for each token in the window, however often it is there.",
        reload="live",
    ),
    Option(
        key="sampling.frequency_penalty",
        flags=("--frequency-penalty",),
        env=("LLAMA_ARG_FREQUENCY_PENALTY",),
        kind=Number(),
        default=0.0,
        category="sampling",
        short="Taken from a logit for each time the token occurred; 0 is off",
        long="Counts the occurrences in the window.",
        reload="live",
    ),
    Option(
        key="sampling.ignore_eos",
        flags=("--ignore-eos",),
        kind=_SWITCH,
        default=False,
        category="sampling",
        short="Never end an answer at an end-of-text token",
        long="Answers then run to their limit; for measurements.",
        reload="live",
    ),
    Option(
        key="sampling.logit_bias",
        flags=("-l", "--logit-bias"),
        kind=Biases(),
        default=(),
        category="sampling",
        short="Numbers added to the logits of tokens",
        long="`15043+1` makes token 15043 likelier, `15043-inf` impossible. The flag "
        "may be given several times. For requests that say no `logit_bias` of their "
        "own.",
        reload="live",
    ),
    Option(
        key="sampling.samplers",
        flags=("--samplers", "--sampler-seq", "--sampling-seq"),
        kind=Samplers(),
        default=samplers.DEFAULT,
        category="sampling",
        short="The samplers and their order",
        long="Names separated by semicolons, or their letters: penalties (e), dry "
        "(d), top_n_sigma (s), top_k (k), typ_p (y), top_p (p), min_p (m), xtc (x), "
        "temperature (t), adaptive_p (a). One that is not named does nothing.",
        reload="live",
    ),
    Option(
        key="sampling.top_n_sigma",
        flags=("--top-nsigma", "--top-n-sigma"),
        kind=Number(),
        default=-1.0,
        category="sampling",
        short="Keep tokens within n standard deviations of the best logit",
        long="0 and less keep all.",
        reload="live",
    ),
    Option(
        key="sampling.xtc_probability",
        flags=("--xtc-probability",),
        kind=Number(low=0.0, high=1.0),
        default=0.0,
        category="sampling",
        short="How often XTC drops the likeliest tokens; 0 is never",
        long="When it works, all tokens above `xtc_threshold` but the least likely of "
        "them are dropped.",
        reload="live",
    ),
    Option(
        key="sampling.xtc_threshold",
        flags=("--xtc-threshold",),
        kind=Number(low=0.0, high=1.0),
        default=0.1,
        category="sampling",
        short="Probability above which XTC drops tokens",
        long="Above 0.5 it drops none.",
        reload="live",
    ),
    Option(
        key="sampling.dry_multiplier",
        flags=("--dry-multiplier",),
        kind=Number(),
        default=0.0,
        category="sampling",
        short="Strength of the penalty for repetitions (DRY); 0 is off",
        long="A token that would go on with a repetition of n tokens loses multiplier "
        "x base ^ (n - allowed length).",
        reload="live",
    ),
    Option(
        key="sampling.dry_base",
        flags=("--dry-base",),
        kind=Number(low=1.0),
        default=1.75,
        category="sampling",
        short="Base of the DRY penalty",
        long="How fast the penalty grows with the length of a repetition.",
        reload="live",
    ),
    Option(
        key="sampling.dry_allowed_length",
        flags=("--dry-allowed-length",),
        kind=Integer(low=0, unit="tokens"),
        default=2,
        category="sampling",
        short="Length of repetitions that DRY lets pass",
        long="Longer ones are penalised.",
        reload="live",
    ),
    Option(
        key="sampling.dry_penalty_last_n",
        flags=("--dry-penalty-last-n",),
        kind=Integer(low=-1, unit="tokens"),
        default=64,
        category="sampling",
        short="Window of DRY; 0 is off, -1 the whole context",
        long="How many of the latest tokens are searched for repetitions.",
        reload="live",
    ),
    Option(
        key="sampling.dry_sequence_breakers",
        flags=("--dry-sequence-breaker",),
        kind=Texts(nothing="none"),
        default=("\n", ":", '"', "*"),
        category="sampling",
        short="Texts that end a repetition for DRY",
        long="The flag may be given several times; the first takes the place of the "
        "defaults. `\\n` is a line break there. `none` is an empty list.",
        reload="live",
    ),
    Option(
        key="sampling.dynatemp_range",
        flags=("--dynatemp-range",),
        kind=Number(low=0.0),
        default=0.0,
        category="sampling",
        short="Range of the dynamic temperature; 0 is off",
        long="The temperature is then between `temperature` less and plus the range: "
        "low where the model is sure, high where it is not.",
        reload="live",
    ),
    Option(
        key="sampling.dynatemp_exponent",
        flags=("--dynatemp-exp",),
        kind=Number(),
        default=1.0,
        category="sampling",
        short="Exponent of the dynamic temperature",
        long="How the entropy of the candidates becomes a temperature.",
        reload="live",
    ),
    Option(
        key="sampling.mirostat",
        flags=("--mirostat",),
        kind=Integer(low=0, high=2),
        default=0,
        category="sampling",
        short="Mirostat 1 or 2 in place of the other samplers; 0 is off",
        long="It holds the surprise of the text near `mirostat_tau`.",
        reload="live",
    ),
    Option(
        key="sampling.mirostat_tau",
        flags=("--mirostat-ent",),
        kind=Number(),
        default=5.0,
        category="sampling",
        short="Surprise that Mirostat aims at, in bits",
        long="Lower is more focused.",
        reload="live",
    ),
    Option(
        key="sampling.mirostat_eta",
        flags=("--mirostat-lr",),
        kind=Number(),
        default=0.1,
        category="sampling",
        short="Learning rate of Mirostat",
        long="How fast it corrects itself.",
        reload="live",
    ),
    Option(
        key="sampling.adaptive_target",
        flags=("--adaptive-target",),
        kind=Number(low=-1.0, high=1.0),
        default=-1.0,
        category="sampling",
        short="Probability that adaptive-p aims at; below 0 it is off",
        long="Tokens are chosen so that their probabilities are near it on the "
        "average. It works where `samplers` name `adaptive_p`.",
        reload="live",
    ),
    Option(
        key="sampling.adaptive_decay",
        flags=("--adaptive-decay",),
        kind=Number(low=0.0, high=0.99),
        default=0.9,
        category="sampling",
        short="Memory of adaptive-p",
        long="The share of the average that each token leaves as it was.",
        reload="live",
    ),
    Option(
        key="sampling.stop",
        flags=("-r", "--reverse-prompt"),
        kind=Texts(),
        default=(),
        category="sampling",
        short="Texts at which answers end",
        long="The flag may be given several times; `\\n` is a line break there. For "
        "requests that say no `stop` of their own.",
        reload="live",
    ),
    Option(
        key="sampling.grammar",
        flags=("--grammar",),
        kind=Text(),
        category="sampling",
        short="Grammar in GBNF that answers match",
        long="For requests that say neither `grammar` nor `json_schema` nor "
        "`response_format`, and bring no tools. Chats then have no reasoning. A "
        "request with an empty `grammar` is free.",
        default_text="none",
    ),
    Option(
        key="sampling.grammar_file",
        flags=("--grammar-file",),
        kind=FilePath(),
        category="sampling",
        short="File with a grammar in GBNF that answers match",
        long="Like `--grammar`. A name in a TOML file is seen from the folder of that "
        "file.",
        default_text="none",
    ),
    Option(
        key="sampling.json_schema",
        flags=("-j", "--json-schema"),
        kind=JsonObject(),
        category="sampling",
        short="JSON schema that answers match",
        long="`{}` is any JSON object. For the same requests as `--grammar`. In TOML "
        "a table is accepted too.",
        default_text="none",
    ),
    Option(
        key="sampling.json_schema_file",
        flags=("-jf", "--json-schema-file"),
        kind=FilePath(),
        category="sampling",
        short="File with a JSON schema that answers match",
        long="Like `--json-schema`. A name in a TOML file is seen from the folder of "
        "that file.",
        default_text="none",
    ),
    # ---- HTTP server ----
    Option(
        key="server.host",
        flags=("--host",),
        env=("LLAMA_ARG_HOST",),
        kind=TextList(at_least=1),
        default=("127.0.0.1",),
        category="server",
        short="Addresses to listen on",
        long="IPv4 and IPv6 addresses, names, or `*.sock` files for UNIX sockets. "
        "They and `--port` have no effect where a service manager hands over sockets "
        "(`LISTEN_FDS`).",
        renamed_from=("hosts", "bind"),
    ),
    Option(
        key="server.port",
        flags=("--port",),
        env=("LLAMA_ARG_PORT",),
        kind=Integer(low=0, high=65535),
        default=8080,
        category="server",
        short="TCP port; 0 lets the system choose one",
        long="The port that is really used is in the log line `listening on`.",
    ),
    Option(
        key="server.socket_mode",
        flags=("--socket-mode",),
        kind=FileMode(),
        category="server",
        short="Who may use the UNIX sockets, as an octal mode",
        long="For the `*.sock` files of `--host`: `0600` is their owner alone, `0660` "
        "the group as well. It is set before the first connection is taken. Sockets "
        "that a service manager hands over keep the mode that it gave them.",
        default_text="what the umask leaves",
    ),
    Option(
        key="server.api_key",
        flags=("--api-key",),
        env=("LLAMA_API_KEY",),
        kind=TextList(),
        default=(),
        category="server",
        short="Keys that clients must show",
        long="Without a key everybody who reaches the port may use it. Prefer "
        "`--api-key-file`: flags are visible in the list of processes.",
        reload="live",
        secret=True,
    ),
    Option(
        key="server.api_key_file",
        flags=("--api-key-file",),
        env=("LLAMA_ARG_API_KEY_FILE",),
        kind=FilePath(),
        category="server",
        short="File with keys, one a line",
        long="Blank lines and lines that begin with `#` are skipped. Adds to "
        "`--api-key`. A file that others than its owner can read or write is refused. "
        "A name in a TOML file is seen from the folder of that file.\n\nThe credential "
        "`api-key` of a service manager (`$CREDENTIALS_DIRECTORY/api-key`, from "
        "`LoadCredential=` of systemd) is such a file too, and needs no option.",
        default_text="none",
        reload="live",
    ),
    Option(
        key="server.ssl_key_file",
        flags=("--ssl-key-file",),
        env=("LLAMA_ARG_SSL_KEY_FILE",),
        kind=FilePath(),
        category="server",
        short="File with the private key for HTTPS",
        long="In PEM format and without a password. Needs `--ssl-cert-file` too; all "
        "addresses then speak HTTPS, UNIX sockets as well. A reload reads both files "
        "again.",
        default_text="none: plain HTTP",
    ),
    Option(
        key="server.ssl_cert_file",
        flags=("--ssl-cert-file",),
        env=("LLAMA_ARG_SSL_CERT_FILE",),
        kind=FilePath(),
        category="server",
        short="File with the certificate for HTTPS",
        long="In PEM format: the certificate of this host, then those that it rests "
        "on. Needs `--ssl-key-file` too.",
        default_text="none: plain HTTP",
    ),
    Option(
        key="server.allowed_hosts",
        flags=("--allowed-hosts",),
        kind=TextList(),
        default=(),
        category="server",
        short="Further names under which clients may reach a loopback address",
        long="A web page can give its own name the address of this machine and then "
        "ask a server that only listens here. So without a key, and while all "
        "addresses of `--host` are loopback ones, requests must name `localhost`, a "
        "loopback address or one of these hosts, with any port; others get 403. `*` "
        "allows every name. Name the host here that a reverse proxy passes on.",
        reload="live",
    ),
    Option(
        key="server.api_prefix",
        flags=("--api-prefix",),
        env=("LLAMA_ARG_API_PREFIX",),
        kind=UrlPrefix(),
        default="",
        category="server",
        short="Path before every route",
        long="With `/llm` the health check is at `/llm/health`.",
    ),
    Option(
        key="server.ui",
        flags=("--ui", "--webui"),
        negated=("--no-ui", "--no-webui"),
        env=("LLAMA_ARG_UI",),
        negated_env=("LLAMA_ARG_NO_UI",),
        kind=_SWITCH,
        default=True,
        category="server",
        short="Serve the monitor page at `/`",
        long="A page that shows the slots, the pool, memory and the state of the "
        "engine while they change, and sends prompts side by side. It shows no "
        "prompts and answers of others, and loads nothing from elsewhere. Where keys "
        "are set it asks for one and keeps it in memory only.",
        reload="live",
    ),
    Option(
        key="server.slots",
        flags=("--slots",),
        negated=("--no-slots",),
        env=("LLAMA_ARG_ENDPOINT_SLOTS",),
        negated_env=("LLAMA_ARG_NO_ENDPOINT_SLOTS",),
        kind=_SWITCH,
        default=True,
        category="server",
        short="Serve GET /slots",
        long="What every slot does; never prompts or answers.",
        reload="live",
    ),
    Option(
        key="server.slot_save_path",
        flags=("--slot-save-path",),
        kind=FilePath(),
        category="server",
        short="Folder for slots that are saved; turns slot actions on",
        long="`POST /slots/{id}?action=save` writes what a slot remembers into a file "
        "of this folder, `restore` reads it back, `erase` forgets it. The folder has "
        "to exist. The files are safetensors as mlx-lm keeps prompt caches, readable "
        "for their owner only; they hold the tokens of the prompt. A name in a TOML "
        "file is seen from the folder of that file.",
        default_text="none; slot actions answer 501",
    ),
    Option(
        key="server.props",
        flags=("--props",),
        negated=("--no-props",),
        env=("LLAMA_ARG_ENDPOINT_PROPS",),
        kind=_SWITCH,
        default=False,
        category="server",
        short="Serve POST /props",
        long="GET /props is always served.",
        reload="live",
    ),
    Option(
        key="server.metrics",
        flags=("--metrics",),
        negated=("--no-metrics",),
        env=("LLAMA_ARG_ENDPOINT_METRICS",),
        kind=_SWITCH,
        default=False,
        category="server",
        short="Serve GET /metrics for Prometheus",
        long="llama-server's names, and our own for the pool and the queue.",
        reload="live",
    ),
    Option(
        key="server.cors_origins",
        flags=("--cors-origins",),
        env=("LLAMA_ARG_CORS_ORIGINS",),
        kind=TextList(),
        default=("*",),
        category="server",
        short="Web pages that may call the API",
        long="`*` answers with the origin that asks, `localhost` only for pages of "
        "this machine; anything else is sent as it is, as llama-server does.",
        reload="live",
    ),
    Option(
        key="server.queue_size",
        flags=("--queue-size",),
        kind=Integer(low=0, high=1_000_000, unit="requests"),
        default=128,
        category="server",
        short="Requests that may wait for a slot",
        long="When the queue is full the next request is refused with 503 and a "
        "`Retry-After` header.",
        reload="live",
    ),
    Option(
        key="server.max_body_size",
        flags=("--max-body-size",),
        kind=Size(),
        default=64 << 20,
        category="server",
        short="Bytes of the largest request body",
        long="With an optional unit: `512K`, `64MiB`. A larger request is refused with "
        "413 as soon as its size is known. Large bodies of all requests together may "
        "take twice that, or 512 MiB where that is more; those beyond get 503.",
        reload="live",
    ),
    Option(
        key="server.timeout",
        flags=("-to", "--timeout"),
        env=("LLAMA_ARG_TIMEOUT",),
        kind=Integer(low=0, high=86400 * 365, unit="seconds"),
        default=3600,
        category="server",
        short="Seconds that a client may stall before it is disconnected; 0 is never",
        long="Counts while a client sends nothing of a request that it has begun, and "
        "while it takes nothing of an answer that waits for it. Answers that take "
        "long are not meant, and no request waits for the stalled one.",
    ),
    Option(
        key="server.sse_ping_interval",
        flags=("--sse-ping-interval",),
        env=("LLAMA_ARG_SSE_PING_INTERVAL",),
        kind=Integer(low=-1, high=86400, unit="seconds"),
        default=30,
        category="server",
        short="Seconds between comment lines in a silent stream; -1 is off",
        long="Keeps proxies from closing a stream that pauses. Nothing is sent before "
        "the first event, so that a failure can still have its status. 0 is off too.",
        reload="live",
    ),
    Option(
        key="server.drain_timeout",
        flags=("--drain-timeout",),
        kind=Number(low=0.0, high=86400.0, unit="seconds"),
        default=15.0,
        category="server",
        short="Seconds that running requests get to end when the daemon stops",
        long="What still runs then is ended with an error event. Keep it below the "
        "patience of the service manager: launchd waits 20 seconds.",
        reload="live",
    ),
    # ---- logging ----
    Option(
        key="logging.level",
        flags=("-lv", "--verbosity", "--log-verbosity", "--log-level"),
        constants=(("-v", "debug"), ("--verbose", "debug"), ("--log-verbose", "debug")),
        env=("LLAMA_ARG_LOG_VERBOSITY",),
        env_name="LOG_LEVEL",
        kind=Choice(
            (
                ("debug", "also a line for each request that only asks for state"),
                ("info", "starts, stops, what the engine is doing, and requests"),
                ("warning", "what somebody should look at"),
                ("error", "only failures"),
            ),
            spellings=(("warn", "warning"), ("trace", "debug")),
            numbers=("error", "error", "warning", "info", "debug"),
        ),
        default="info",
        category="logging",
        short="How much is logged",
        long="llama-server's verbosity numbers are accepted: 0 and 1 are error, 2 is "
        "warning, 3 is info, 4 and more are debug. Prompts and answers are never "
        "logged.",
        reload="live",
    ),
    Option(
        key="logging.format",
        flags=("--log-format",),
        env_name="LOG_FORMAT",
        kind=Choice(
            (
                ("auto", "console in a terminal, else json"),
                ("console", "lines for people"),
                ("json", "one JSON object a line"),
            )
        ),
        default="auto",
        category="logging",
        short="The form of log lines",
        long="Log lines go to standard error; a log file gets JSON unless console is "
        "asked for.",
    ),
    Option(
        key="logging.file",
        flags=("--log-file",),
        env=("LLAMA_ARG_LOG_FILE",),
        env_name="LOG_FILE",
        kind=FilePath(),
        category="logging",
        short="File that log lines are added to",
        long="As well as to standard error. A name in a TOML file is seen from the "
        "folder of that file.",
        default_text="none",
        renamed_from=("log_file",),
    ),
)

BY_KEY: dict[str, Option] = {option.key: option for option in OPTIONS}

EXCLUSIVE: tuple[tuple[str, str], ...] = (
    ("model.path", "model.hf_repo"),
    ("model.chat_template", "model.chat_template_file"),
    ("sampling.grammar", "sampling.grammar_file"),
    ("sampling.grammar", "sampling.json_schema"),
    ("sampling.grammar", "sampling.json_schema_file"),
    ("sampling.grammar_file", "sampling.json_schema"),
    ("sampling.grammar_file", "sampling.json_schema_file"),
    ("sampling.json_schema", "sampling.json_schema_file"),
)
"""Pairs that say the same thing: the higher layer wins, in one layer both is wrong."""

OLD_KEYS: dict[str, str] = {
    "no_batch": "write `parallel = 1` in [engine] instead",
    "max_batch_size": "write `parallel` in [engine] instead, the number of slots",
    "config_version": "write `version = 2` instead",
    "llama_server_compat": 'write `mode = "llama-compat"` in [engine] instead',
}
"""Keys of the old flat file that need more than a new name."""


def in_table(table: str) -> Iterator[Option]:
    """The options of one TOML table, in the order of the table of options."""
    return (option for option in OPTIONS if option.table == table)
