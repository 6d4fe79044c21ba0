"""llama-server's options that have no meaning here, so that its command lines work.

Front ends start the daemon with the very flags they give llama-server. What is listed
here is accepted and named once in one "ignored here" line; what would make a daemon
do something else than its user asked for is refused instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Arity: TypeAlias = Literal["none", "one", "two", "maybe"]
"""How many words follow a flag; "maybe" takes the next one only if it is in `words`."""


@dataclass(frozen=True, slots=True)
class Foreign:
    """One option of llama-server that is accepted and ignored.

    `note` says what its user has to know; without one the name in the list is enough.
    """

    flags: tuple[str, ...]
    env: tuple[str, ...]
    value: Arity = "one"
    words: tuple[str, ...] = ()
    note: str = ""


def _of(flags: str, env: str = "", *, value: Arity = "one", note: str = "") -> Foreign:
    """An entry from names that are separated by blanks.

    llama-server gives every pair of `--x` and `--no-x` a second variable with `NO_`
    in its name.
    """
    spellings = tuple(flags.split())
    names = tuple(env.split())
    if any(flag.startswith("--no-") for flag in spellings[1:]):
        names += tuple(name.replace("LLAMA_ARG_", "LLAMA_ARG_NO_", 1) for name in names)
    words = ("on", "off", "auto", "true", "false", "1", "0") if value == "maybe" else ()
    return Foreign(spellings, names, value, words, note)


CACHE_REUSE = Foreign(("--cache-reuse",), ("LLAMA_ARG_CACHE_REUSE",))
"""The smallest chunk to reuse, 0 for off: off is all that there is here."""

_ELSEWHERE = "models come from `--model` and `--hf-repo` only"

IGNORED: tuple[Foreign, ...] = (
    _of("-t --threads", "LLAMA_ARG_THREADS"),
    _of("-tb --threads-batch"),
    _of("-C --cpu-mask"),
    _of("-Cr --cpu-range"),
    _of("--cpu-strict"),
    _of("--prio"),
    _of("--poll"),
    _of("-Cb --cpu-mask-batch"),
    _of("-Crb --cpu-range-batch"),
    _of("--cpu-strict-batch"),
    _of("--prio-batch"),
    _of("--poll-batch"),
    _of("-ub --ubatch-size", "LLAMA_ARG_UBATCH"),
    _of("--swa-full", "LLAMA_ARG_SWA_FULL", value="none"),
    _of("-fa --flash-attn", "LLAMA_ARG_FLASH_ATTN", value="maybe"),
    _of("--perf --no-perf", "LLAMA_ARG_PERF", value="none"),
    _of("-e --escape --no-escape", value="none"),
    _of("--rope-scaling", "LLAMA_ARG_ROPE_SCALING_TYPE"),
    _of("--rope-scale", "LLAMA_ARG_ROPE_SCALE"),
    _of("--rope-freq-base", "LLAMA_ARG_ROPE_FREQ_BASE"),
    _of("--rope-freq-scale", "LLAMA_ARG_ROPE_FREQ_SCALE"),
    _of("--yarn-orig-ctx", "LLAMA_ARG_YARN_ORIG_CTX"),
    _of("--yarn-ext-factor", "LLAMA_ARG_YARN_EXT_FACTOR"),
    _of("--yarn-attn-factor", "LLAMA_ARG_YARN_ATTN_FACTOR"),
    _of("--yarn-beta-slow", "LLAMA_ARG_YARN_BETA_SLOW"),
    _of("--yarn-beta-fast", "LLAMA_ARG_YARN_BETA_FAST"),
    _of(
        "-kvo --kv-offload -nkvo --no-kv-offload", "LLAMA_ARG_KV_OFFLOAD", value="none"
    ),
    _of("--repack -nr --no-repack", "LLAMA_ARG_REPACK", value="none"),
    _of("--no-host", "LLAMA_ARG_NO_HOST", value="none"),
    _of("-dt --defrag-thold", "LLAMA_ARG_DEFRAG_THOLD"),
    _of("--rpc", "LLAMA_ARG_RPC"),
    _of("-lm --load-mode", "LLAMA_ARG_LOAD_MODE"),
    _of("-lzm --lazy-mode", "LLAMA_ARG_LAZY_MODE"),
    _of("--numa", "LLAMA_ARG_NUMA"),
    _of("-ot --override-tensor", "LLAMA_ARG_OVERRIDE_TENSOR"),
    _of("-cmoe --cpu-moe", "LLAMA_ARG_CPU_MOE", value="none"),
    _of("-ncmoe --n-cpu-moe", "LLAMA_ARG_N_CPU_MOE"),
    _of("-ncffn --n-cpu-ffn", "LLAMA_ARG_N_CPU_FFN"),
    _of("-ngl --gpu-layers --n-gpu-layers", "LLAMA_ARG_N_GPU_LAYERS"),
    _of("-sm --split-mode", "LLAMA_ARG_SPLIT_MODE"),
    _of("-ts --tensor-split", "LLAMA_ARG_TENSOR_SPLIT"),
    _of("-mg --main-gpu", "LLAMA_ARG_MAIN_GPU"),
    _of("-fit --fit", "LLAMA_ARG_FIT"),
    _of("-fitt --fit-target", "LLAMA_ARG_FIT_TARGET"),
    _of("-fitc --fit-ctx", "LLAMA_ARG_FIT_CTX"),
    _of("--check-tensors", value="none"),
    _of("--override-kv"),
    _of("--op-offload --no-op-offload", value="none"),
    _of("--lora", note="adapters are not applied"),
    _of("--lora-scaled", note="adapters are not applied"),
    _of("--control-vector", note="control vectors are not applied"),
    _of("--control-vector-scaled", note="control vectors are not applied"),
    _of("--control-vector-layer-range", value="two"),
    _of("-mu --model-url", "LLAMA_ARG_MODEL_URL", note=_ELSEWHERE),
    _of("-dr --docker-repo", "LLAMA_ARG_DOCKER_REPO", note=_ELSEWHERE),
    _of("-hff --hf-file", "LLAMA_ARG_HF_FILE", note="the whole repository is used"),
    _of("--log-disable", value="none"),
    _of("--log-jsonl --no-log-jsonl", "LLAMA_ARG_LOG_JSONL", value="none"),
    _of("--log-colors", "LLAMA_ARG_LOG_COLORS", value="maybe"),
    _of("--log-prefix --no-log-prefix", "LLAMA_ARG_LOG_PREFIX", value="none"),
    _of(
        "--log-timestamps --no-log-timestamps", "LLAMA_ARG_LOG_TIMESTAMPS", value="none"
    ),
    _of(
        "--spec-draft-type-k -ctkd --cache-type-k-draft",
        "LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_K",
    ),
    _of(
        "--spec-draft-type-v -ctvd --cache-type-v-draft",
        "LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_V",
    ),
    _of("-bs --backend-sampling", "LLAMA_ARG_BACKEND_SAMPLING", value="none"),
    _of("-lcs --lookup-cache-static"),
    _of("-lcd --lookup-cache-dynamic"),
    _of("-ctxcp --ctx-checkpoints --swa-checkpoints", "LLAMA_ARG_CTX_CHECKPOINTS"),
    _of("-cms --checkpoint-min-step", "LLAMA_ARG_CHECKPOINT_MIN_SPACING_NT"),
    _of(
        "--cache-idle-slots --no-cache-idle-slots",
        "LLAMA_ARG_CACHE_IDLE_SLOTS",
        value="none",
        note="idle slots keep what they remember until its room is needed",
    ),
    _of("-sp --special", value="none"),
    _of("--warmup --no-warmup", value="none"),
    _of("--spm-infill", value="none"),
    _of("--pooling", "LLAMA_ARG_POOLING"),
    _of(
        "-cb --cont-batching -nocb --no-cont-batching",
        "LLAMA_ARG_CONT_BATCHING",
        value="none",
    ),
    _of("-mm --mmproj", "LLAMA_ARG_MMPROJ", note="images and audio are not supported"),
    _of("-mmu --mmproj-url", "LLAMA_ARG_MMPROJ_URL"),
    _of(
        "--mmproj-auto --no-mmproj --no-mmproj-auto",
        "LLAMA_ARG_MMPROJ_AUTO",
        value="none",
    ),
    _of(
        "--mmproj-offload --no-mmproj-offload", "LLAMA_ARG_MMPROJ_OFFLOAD", value="none"
    ),
    _of("-mmdev --mmproj-device", "MTMD_BACKEND_DEVICE"),
    _of("--image-min-tokens", "LLAMA_ARG_IMAGE_MIN_TOKENS"),
    _of("--image-max-tokens", "LLAMA_ARG_IMAGE_MAX_TOKENS"),
    _of("--mtmd-batch-max-tokens", "LLAMA_ARG_MTMD_BATCH_MAX_TOKENS"),
    _of("--video-fps", "LLAMA_ARG_VIDEO_FPS"),
    _of("--video-timestamp-interval", "LLAMA_ARG_VIDEO_TIMESTAMP_INTERVAL"),
    _of("--video-ffmpeg-dir", "LLAMA_ARG_VIDEO_FFMPEG_DIR"),
    _of("--embd-normalize"),
    _of("--reuse-port", "LLAMA_ARG_REUSE_PORT", value="none"),
    _of("--path", "LLAMA_ARG_STATIC_PATH"),
    _of("--cors-methods", "LLAMA_ARG_CORS_METHODS"),
    _of("--cors-headers", "LLAMA_ARG_CORS_HEADERS"),
    _of(
        "--cors-credentials --no-cors-credentials",
        "LLAMA_ARG_CORS_CREDENTIALS",
        value="none",
    ),
    _of("--ui-config --webui-config", "LLAMA_ARG_UI_CONFIG"),
    _of("--ui-config-file --webui-config-file", "LLAMA_ARG_UI_CONFIG_FILE"),
    _of(
        "--ui-mcp-proxy --webui-mcp-proxy --no-ui-mcp-proxy --no-webui-mcp-proxy",
        "LLAMA_ARG_UI_MCP_PROXY",
        value="none",
    ),
    _of("--tools", "LLAMA_ARG_TOOLS"),
    _of("--tools-runtime", "LLAMA_ARG_TOOLS_RUNTIME"),
    _of("--mcp-servers-config", "LLAMA_ARG_MCP_SERVERS_CONFIG"),
    _of("--mcp-servers-json", "LLAMA_ARG_MCP_SERVERS_JSON"),
    _of("-ag --agent -no-ag --no-agent", "LLAMA_ARG_AGENT", value="none"),
    _of(
        "--embedding --embeddings",
        "LLAMA_ARG_EMBEDDINGS",
        value="none",
        note="embeddings are not served",
    ),
    _of(
        "--rerank --reranking",
        "LLAMA_ARG_RERANKING",
        value="none",
        note="reranking is not served",
    ),
    _of("--threads-http", "LLAMA_ARG_THREADS_HTTP"),
    _of("--media-path"),
    _of("--models-dir", "LLAMA_ARG_MODELS_DIR"),
    _of("--models-preset", "LLAMA_ARG_MODELS_PRESET"),
    _of("--models-max", "LLAMA_ARG_MODELS_MAX"),
    _of(
        "--models-autoload --no-models-autoload",
        "LLAMA_ARG_MODELS_AUTOLOAD",
        value="none",
    ),
    _of("--lora-init-without-apply", value="none"),
    _of("--log-prompts-dir"),
    _of("--spec-draft-hf -hfd -hfrd --hf-repo-draft", "LLAMA_ARG_SPEC_DRAFT_HF_REPO"),
    _of("--spec-draft-threads -td --threads-draft"),
    _of("--spec-draft-threads-batch -tbd --threads-batch-draft"),
    _of("--spec-draft-cpu-mask -Cd --cpu-mask-draft"),
    _of("--spec-draft-cpu-range -Crd --cpu-range-draft"),
    _of("--spec-draft-cpu-strict --cpu-strict-draft"),
    _of("--spec-draft-prio --prio-draft"),
    _of("--spec-draft-poll --poll-draft"),
    _of("--spec-draft-cpu-mask-batch -Cbd --cpu-mask-batch-draft"),
    _of("--spec-draft-cpu-strict-batch --cpu-strict-batch-draft"),
    _of("--spec-draft-prio-batch --prio-batch-draft"),
    _of("--spec-draft-poll-batch --poll-batch-draft"),
    _of("--spec-draft-override-tensor -otd --override-tensor-draft"),
    _of(
        "--spec-draft-cpu-moe -cmoed --cpu-moe-draft",
        "LLAMA_ARG_SPEC_DRAFT_CPU_MOE",
        value="none",
    ),
    _of(
        "--spec-draft-n-cpu-moe --spec-draft-ncmoe -ncmoed --n-cpu-moe-draft",
        "LLAMA_ARG_SPEC_DRAFT_N_CPU_MOE",
    ),
    _of("--spec-draft-n-max", "LLAMA_ARG_SPEC_DRAFT_N_MAX"),
    _of("--spec-draft-n-min", "LLAMA_ARG_SPEC_DRAFT_N_MIN"),
    _of("--spec-synth-len", "LLAMA_ARG_SPEC_SYNTH_LEN"),
    _of("--spec-synth-rates", "LLAMA_ARG_SPEC_SYNTH_RATES"),
    _of("--spec-draft-p-split --draft-p-split", "LLAMA_ARG_SPEC_DRAFT_P_SPLIT"),
    _of("--spec-draft-p-min --draft-p-min", "LLAMA_ARG_SPEC_DRAFT_P_MIN"),
    _of(
        "--spec-draft-backend-sampling --no-spec-draft-backend-sampling",
        "LLAMA_ARG_SPEC_DRAFT_BACKEND_SAMPLING",
        value="none",
    ),
    _of("--spec-draft-sampling", "LLAMA_ARG_SPEC_DRAFT_SAMPLING"),
    _of("--spec-draft-device -devd --device-draft"),
    _of(
        "--spec-draft-ngl -ngld --gpu-layers-draft --n-gpu-layers-draft",
        "LLAMA_ARG_N_GPU_LAYERS_DRAFT",
    ),
    _of("--spec-draft-model -md --model-draft", "LLAMA_ARG_SPEC_DRAFT_MODEL"),
    _of("--spec-default", value="none"),
    _of("--spec-type", "LLAMA_ARG_SPEC_TYPE"),
    _of("--spec-ngram-mod-n-min"),
    _of("--spec-ngram-mod-n-max"),
    _of("--spec-ngram-mod-n-match"),
    _of("--spec-ngram-simple-size-n"),
    _of("--spec-ngram-simple-size-m"),
    _of("--spec-ngram-simple-min-hits"),
    _of("--spec-ngram-map-k-size-n"),
    _of("--spec-ngram-map-k-size-m"),
    _of("--spec-ngram-map-k-min-hits"),
    _of("--spec-ngram-map-k4v-size-n"),
    _of("--spec-ngram-map-k4v-size-m"),
    _of("--spec-ngram-map-k4v-min-hits"),
    # Spellings of older releases that are still in many scripts.
    _of("--mlock", "LLAMA_ARG_MLOCK", value="none"),
    _of("--mmap --no-mmap", "LLAMA_ARG_MMAP", value="none"),
    _of("-dio --direct-io -ndio --no-direct-io", "LLAMA_ARG_DIO", value="none"),
)

_GONE = "llama-server has removed it"
_GGUF = "it downloads a GGUF model for llama-server; name a model with `--hf-repo`"

REFUSED: dict[str, str] = {
    **dict.fromkeys(
        (
            "--draft",
            "--draft-n",
            "--draft-max",
            "--draft-min",
            "--draft-n-min",
            "--spec-ngram-size-n",
            "--spec-ngram-size-m",
            "--spec-ngram-min-hits",
        ),
        _GONE,
    ),
    **dict.fromkeys(
        (
            "--embd-gemma-default",
            "--fim-qwen-1.5b-default",
            "--fim-qwen-3b-default",
            "--fim-qwen-7b-default",
            "--fim-qwen-7b-spec",
            "--fim-qwen-14b-spec",
            "--fim-qwen-30b-default",
            "--gpt-oss-20b-default",
            "--gpt-oss-120b-default",
            "--vision-gemma-4b-default",
            "--vision-gemma-12b-default",
        ),
        _GGUF,
    ),
    **dict.fromkeys(
        ("-cl", "--cache-list", "--completion-bash", "--list-devices"),
        "it prints something about llama-server; there is nothing like it here",
    ),
}
"""Flags that are known and refused, with the reason."""
