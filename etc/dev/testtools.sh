#!/usr/bin/env bash
# Programs that the tests run: readers of man pages, systemd's tools, curl, and Chromium
# for the monitor page. Without one its tests are skipped, except in continuous
# integration.
set -euo pipefail

[[ $(uname -s) == Linux ]] || exit 0
packages=()
need() {
  command -v "$1" >/dev/null || packages+=("$2")
}
need curl curl
need mandoc mandoc
need lexgrog man-db
need systemd-socket-activate systemd
need chromium chromium
need chromedriver chromium-driver
groff -man -Tutf8 /dev/null >/dev/null 2>&1 || packages+=(groff groff-base)
[[ ${#packages[@]} -gt 0 ]] || exit 0
exec "$(dirname "$0")/debian.sh" "some tests are skipped" "${packages[@]}"
