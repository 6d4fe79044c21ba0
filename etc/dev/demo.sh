#!/usr/bin/env bash
# Serve the demo: $1 is the folder of the environment's programs, the rest are flags for
# the daemon. The daemon takes the place of this script, so that Ctrl-C and its exit
# status are its own.
set -euo pipefail
bin=$1
shift

serve=("$bin/mlxcel-server" --config etc/demo.toml "$@")
"$bin/python" etc/dev/ready.py "${serve[@]}" &
exec "${serve[@]}"
