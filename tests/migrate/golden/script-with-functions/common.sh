MODELS=/srv/models

serve() {
  local name=$1 port=$2
  shift 2
  exec llama-server -m "$MODELS/$name.gguf" --port "$port" -c "${CTX:-16384}" "$@"
}
