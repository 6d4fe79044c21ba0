#!/bin/sh
# the one in the attic
export LLAMA_ARG_N_PARALLEL=2
CTX=$((8 * 1024))
exec llama-server -m /srv/m --ctx-size "$CTX" -fa -ub 512
