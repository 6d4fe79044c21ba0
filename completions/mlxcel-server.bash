# bash completion for mlxcel-server
# Written by `python -m mlxceld.generate` from the option table.

_mlxcel_server() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev="" value=""
    ((COMP_CWORD > 0)) && prev=${COMP_WORDS[COMP_CWORD - 1]}
    # bash splits `--flag=word` into three words.
    if [[ $cur == = ]]; then
        cur="" value=yes
    elif [[ $prev == = ]] && ((COMP_CWORD > 1)); then
        prev=${COMP_WORDS[COMP_CWORD - 2]} value=yes
    fi
    local words=""
    COMPREPLY=()
    case "$prev" in
    --print-config)
        words="changed all json"
        ;;
    --install-service)
        words="user system"
        ;;
    --reasoning-format)
        words="none deepseek deepseek-legacy auto" value=yes
        ;;
    -rea | --reasoning)
        words="on off auto" value=yes
        ;;
    --mode)
        words="legacy llama-compat per-seq" value=yes
        ;;
    --overflow)
        words="preempt error" value=yes
        ;;
    -dev | --device)
        words="auto cpu gpu" value=yes
        ;;
    --dequantize)
        words="auto on off" value=yes
        ;;
    -ctk | --cache-type-k)
        words="auto f16 bf16 f32 q8_0 q4_0" value=yes
        ;;
    -ctv | --cache-type-v)
        words="auto f16 bf16 f32 q8_0 q4_0" value=yes
        ;;
    -lv | --verbosity | --log-verbosity | --log-level)
        words="debug info warning error" value=yes
        ;;
    --log-format)
        words="auto console json" value=yes
        ;;
    --config | -m | --model | --chat-template-file | --grammar-file | -jf | \
    --json-schema-file | --api-key-file | --ssl-key-file | --ssl-cert-file | \
    --slot-save-path | --log-file)
        # Nothing to offer means names of files.
        return 0
        ;;
    -hf | -hfr | --hf-repo | -hft | --hf-token | -a | --alias | --tags | \
    --chat-template | --chat-template-kwargs | --reasoning-effort | \
    --reasoning-budget | --reasoning-budget-message | -c | --ctx-size | \
    --ctx-size-per-seq | --kv-unified-per-slot | -np | --parallel | --n-parallel | \
    --min-slot-ctx | -b | --batch-size | --token-gap | --keep | -sps | \
    --slot-prompt-similarity | --queue-timeout | --memory-limit | -cram | \
    --cache-ram | --watchdog-timeout | --max-restarts | --sleep-idle-seconds | \
    -n | --predict | --n-predict | -s | --seed | --temp | --temperature | \
    --top-k | --top-p | --min-p | --typical | --typical-p | --repeat-last-n | \
    --repeat-penalty | --presence-penalty | --frequency-penalty | -l | \
    --logit-bias | --samplers | --sampler-seq | --sampling-seq | --top-nsigma | \
    --top-n-sigma | --xtc-probability | --xtc-threshold | --dry-multiplier | \
    --dry-base | --dry-allowed-length | --dry-penalty-last-n | \
    --dry-sequence-breaker | --dynatemp-range | --dynatemp-exp | --mirostat | \
    --mirostat-ent | --mirostat-lr | --adaptive-target | --adaptive-decay | -r | \
    --reverse-prompt | --grammar | -j | --json-schema | --host | --port | \
    --socket-mode | --api-key | --allowed-hosts | --api-prefix | --cors-origins | \
    --queue-size | --max-body-size | -to | --timeout | --sse-ping-interval | \
    --drain-timeout)
        compopt +o default 2>/dev/null
        return 0
        ;;
    esac
    [[ -n $value || $cur == -* || -z $cur ]] || return 0
    if [[ -z $value ]]; then
        words="$words
            -h --usage --help --version --config --check-config --print-config
            --install-service --write -m --model -hf -hfr --hf-repo -hft --hf-token
            --offline -a --alias --tags --jinja --no-jinja --chat-template
            --chat-template-file --chat-template-kwargs --reasoning-format -rea
            --reasoning --reasoning-effort --reasoning-budget
            --reasoning-budget-message --reasoning-preserve --no-reasoning-preserve
            --skip-chat-parsing --no-skip-chat-parsing --prefill-assistant
            --no-prefill-assistant --mode --llama-server-compat -c --ctx-size
            --ctx-size-per-seq --kv-unified-per-slot -np --parallel --n-parallel
            -kvu --kv-unified -no-kvu --no-kv-unified --min-slot-ctx -b --batch-size
            --token-gap --cache-prompt --no-cache-prompt --context-shift
            --no-context-shift --keep -sps --slot-prompt-similarity --overflow
            --queue-timeout -dev --device --dequantize -ctk --cache-type-k -ctv
            --cache-type-v --memory-limit --memory-check --no-memory-check -cram
            --cache-ram --watchdog-timeout --max-restarts --sleep-idle-seconds -n
            --predict --n-predict -s --seed --temp --temperature --top-k --top-p
            --min-p --typical --typical-p --repeat-last-n --repeat-penalty
            --presence-penalty --frequency-penalty --ignore-eos -l --logit-bias
            --samplers --sampler-seq --sampling-seq --top-nsigma --top-n-sigma
            --xtc-probability --xtc-threshold --dry-multiplier --dry-base
            --dry-allowed-length --dry-penalty-last-n --dry-sequence-breaker
            --dynatemp-range --dynatemp-exp --mirostat --mirostat-ent --mirostat-lr
            --adaptive-target --adaptive-decay -r --reverse-prompt --grammar
            --grammar-file -j --json-schema -jf --json-schema-file --host --port
            --socket-mode --api-key --api-key-file --ssl-key-file --ssl-cert-file
            --allowed-hosts --api-prefix --ui --webui --no-ui --no-webui --slots
            --no-slots --slot-save-path --props --no-props --metrics --no-metrics
            --cors-origins --queue-size --max-body-size -to --timeout
            --sse-ping-interval --drain-timeout -lv --verbosity --log-verbosity
            --log-level -v --verbose --log-verbose --log-format --log-file
        "
    fi
    # shellcheck disable=SC2207
    COMPREPLY=($(compgen -W "$words" -- "$cur"))
}

complete -o default -F _mlxcel_server mlxcel-server
