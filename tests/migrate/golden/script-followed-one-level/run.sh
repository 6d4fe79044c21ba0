#!/bin/sh
. ./settings.sh
export LLAMA_ARG_CTX_SIZE="$CTX"
./serve.sh --port 8085
