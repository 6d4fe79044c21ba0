#!/bin/sh
docker run --rm -p 8080:8080 -v /srv:/models \
  -e LLAMA_ARG_N_PARALLEL=2 ghcr.io/ggml-org/llama.cpp:server \
  -m /models/maple.gguf -c 8192
