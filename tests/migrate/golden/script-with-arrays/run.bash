#!/usr/bin/env bash
set -euo pipefail
cd "$(dirname "$0")"
MODEL=${MODEL:-models/linden.gguf}
CTX=$((16 * 1024))
ARGS=(--host 0.0.0.0 --port 9000)
if [[ "$(uname)" == Darwin ]]; then
  ARGS+=(--mlock)
  SLOTS=2
else
  SLOTS=4
fi
exec ./build/bin/llama-server -m "$MODEL" -c "$CTX" "${ARGS[@]}" -np "$SLOTS" 2>>server.log
