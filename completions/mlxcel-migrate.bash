# bash completion for mlxcel-migrate
# Written by `python -m mlxceld.generate` from the option table.

_mlxcel_migrate() {
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
    --kind)
        words="toml command script env systemd launchd quadlet compose ini" value=yes
        ;;
    --report)
        words="text json" value=yes
        ;;
    --env-file | --model | --to | --server)
        # Nothing to offer means names of files.
        return 0
        ;;
    --from | --name | --as-of | --kv-bytes)
        compopt +o default 2>/dev/null
        return 0
        ;;
    esac
    [[ -n $value || $cur == -* ]] || return 0
    if [[ -z $value ]]; then
        words="$words
            -h --help --kind --from --env-file --name --keep --adopt --as-of --model
            --kv-bytes --to --server --write --check --report --version
        "
    fi
    # shellcheck disable=SC2207
    COMPREPLY=($(compgen -W "$words" -- "$cur"))
}

complete -o default -F _mlxcel_migrate mlxcel-migrate
