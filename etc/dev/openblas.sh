#!/usr/bin/env bash
# On the CPU of a Linux machine mlx is some thirty times slower without OpenBLAS, which
# its wheel does not bring. Install it where that is ours to do, else say how.
set -euo pipefail

[[ $(uname -s) == Linux ]] || exit 0
# ldconfig is not on the path of ordinary users.
if PATH=$PATH:/sbin:/usr/sbin ldconfig -p 2>/dev/null | grep -q libopenblas; then
  exit 0
fi
slow() {
  echo "OpenBLAS was not found: the model will answer slowly" >&2
  echo "  hint: $1" >&2
  exit 0
}

if ! command -v apt-get >/dev/null; then
  slow "install the OpenBLAS package of your system"
fi
by_hand="sudo apt-get install libopenblas0-pthread"
if [[ $(id -u) == 0 ]]; then
  sudo=()
elif [[ ${CI:-} == true ]] && command -v sudo >/dev/null; then
  sudo=(sudo -n)
else
  slow "$by_hand"
fi

echo "Installing libopenblas0-pthread"
"${sudo[@]}" apt-get update -qq || slow "$by_hand"
"${sudo[@]}" env DEBIAN_FRONTEND=noninteractive \
  apt-get install -y -qq --no-install-recommends libopenblas0-pthread >/dev/null ||
  slow "$by_hand"
