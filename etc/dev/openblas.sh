#!/usr/bin/env bash
# On the CPU of a Linux machine mlx is some thirty times slower without OpenBLAS, which
# its wheel does not bring.
set -euo pipefail

[[ $(uname -s) == Linux ]] || exit 0
# ldconfig is not on the path of ordinary users.
if PATH=$PATH:/sbin:/usr/sbin ldconfig -p 2>/dev/null | grep -q libopenblas; then
  exit 0
fi
exec "$(dirname "$0")/debian.sh" "the model will answer slowly" libopenblas0-pthread
