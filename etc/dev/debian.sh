#!/usr/bin/env bash
# Installs Debian packages where that is ours to do: for root, and in continuous
# integration. Elsewhere it says what is the worse for their lack, and how to get them.
#
# usage: debian.sh "what happens without them" PACKAGE...
set -euo pipefail

without=$1
shift
by_hand() {
  echo "$* not found: $without" >&2
  if command -v apt-get >/dev/null; then
    echo "  hint: sudo apt-get install $*" >&2
  else
    echo "  hint: install them with your package manager" >&2
  fi
  exit 0
}

command -v apt-get >/dev/null || by_hand "$@"
if [[ $(id -u) == 0 ]]; then
  sudo=()
elif [[ ${CI:-} == true ]] && command -v sudo >/dev/null; then
  sudo=(sudo -n)
else
  by_hand "$@"
fi

echo "Installing $*"
"${sudo[@]}" apt-get update -qq || by_hand "$@"
# Small container images leave out the macros of groff unless they are asked for.
"${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --reinstall \
  --no-install-recommends -o 'DPkg::Options::=--path-include=/usr/share/groff/*' \
  "$@" >/dev/null || by_hand "$@"
