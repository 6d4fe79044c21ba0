#!/usr/bin/env bash
# Programs that the tests run: readers of man pages, systemd's tools, curl, a compiler for
# the CUDA kernels, which run on the host there, and Chromium for the monitor page. Without
# one its tests are skipped, except in continuous integration.
set -euo pipefail

[[ $(uname -s) == Linux ]] || exit 0
packages=()
need() {
  command -v "$1" >/dev/null || packages+=("$2")
}
install() {
  [[ ${#packages[@]} -eq 0 ]] ||
    "$(dirname "$0")/debian.sh" "some tests are skipped" "${packages[@]}"
  packages=()
}
need curl curl
need g++ g++
need mandoc mandoc
need lexgrog man-db
need systemd-socket-activate systemd
groff -man -Tutf8 /dev/null >/dev/null 2>&1 || packages+=(groff groff-base)
install
# Not every system that has apt has these, and one that is missing fails all beside it.
need chromium chromium
need chromedriver chromium-driver
install
