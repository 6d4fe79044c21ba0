#!/usr/bin/env bash
# The tests look at the man pages with mandoc, groff and lexgrog. Install them where
# that is ours to do, else say how; the tests that need one are skipped without it,
# except in continuous integration.
set -euo pipefail

[[ $(uname -s) == Linux ]] || exit 0
packages=()
command -v mandoc >/dev/null || packages+=(mandoc)
groff -man -Tutf8 /dev/null >/dev/null 2>&1 || packages+=(groff groff-base)
command -v lexgrog >/dev/null || packages+=(man-db)
[[ ${#packages[@]} -gt 0 ]] || exit 0

missing() {
  echo "${packages[*]} not found: some tests of the man pages are skipped" >&2
  echo "  hint: $1" >&2
  exit 0
}

command -v apt-get >/dev/null || missing "install them with your package manager"
by_hand="sudo apt-get install ${packages[*]}"
if [[ $(id -u) == 0 ]]; then
  sudo=()
elif [[ ${CI:-} == true ]] && command -v sudo >/dev/null; then
  sudo=(sudo -n)
else
  missing "$by_hand"
fi

echo "Installing ${packages[*]}"
"${sudo[@]}" apt-get update -qq || missing "$by_hand"
# Small container images leave out the macros of groff unless they are asked for.
"${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --reinstall \
  --no-install-recommends -o 'DPkg::Options::=--path-include=/usr/share/groff/*' \
  "${packages[@]}" >/dev/null ||
  missing "$by_hand"
