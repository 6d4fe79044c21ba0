#!/bin/sh
exec llama-server -m /srv/hazel.gguf -np 3 "$@"
