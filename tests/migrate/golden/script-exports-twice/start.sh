#!/bin/sh
# The server of the team.
export LLAMA_ARG_N_PARALLEL=1
export LLAMA_ARG_N_PARALLEL=2
llama-server -m /srv/alder.gguf --ctx-size "$(( 8*1024 ))" --api-key "$KEY" --n_ctx 4096 -fa -ub 512 &
