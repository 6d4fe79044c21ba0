docker run -d --rm --name spruce --gpus all -p 8081:8080 -v /srv/models:/models \
  -e LLAMA_ARG_CTX_SIZE=12288 \
  ghcr.io/ggml-org/llama.cpp:server-cuda -m /models/spruce.gguf -np 3
