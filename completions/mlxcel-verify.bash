# bash completion for mlxcel-verify
# Written by `python -m mlxceld.generate` from the option table.

_mlxcel_verify() {
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
    --fill)
        words="one all together none" value=yes
        ;;
    --ca-file | --api-key-file | --plot)
        # Nothing to offer means names of files.
        return 0
        ;;
    --streams | --tokens | --timeout | --api-key)
        compopt +o default 2>/dev/null
        return 0
        ;;
    esac
    [[ -n $value || $cur == -* ]] || return 0
    if [[ -z $value ]]; then
        words="$words
            -h --help --streams --tokens --fill --timeout --ca-file --api-key
            --api-key-file --json --plot --quiet --version
        "
    fi
    # shellcheck disable=SC2207
    COMPREPLY=($(compgen -W "$words" -- "$cur"))
}

complete -o default -F _mlxcel_verify mlxcel-verify
