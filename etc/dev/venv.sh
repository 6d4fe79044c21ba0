#!/usr/bin/env bash
# Make the virtual environment $1 with the first Python that is new enough.
set -euo pipefail
venv=$1

enough='import sys; sys.exit(sys.version_info < (3, 11))'
for name in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11}; do
  if command -v "$name" >/dev/null && "$name" -c "$enough" 2>/dev/null; then
    python=$name
    break
  fi
done
if [[ -z ${python:-} ]]; then
  found=$("${PYTHON:-python3}" --version 2>/dev/null || true)
  echo "No Python 3.11 or newer was found: \`${PYTHON:-python3}\` is" \
    "${found:-not there}" >&2
  echo "  hint: install one and name it: \`make PYTHON=/path/to/python3.12 ...\`" >&2
  exit 1
fi

echo "Making $venv with $("$python" --version)"
if ! "$python" -c 'import ensurepip' 2>/dev/null; then
  # Debian keeps the module in a package of its own.
  if command -v apt-get >/dev/null && [[ $(id -u) == 0 ]]; then
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    apt-get update -qq
    apt-get install -y -qq --no-install-recommends "python$version-venv"
  else
    echo "$python cannot make virtual environments" >&2
    echo "  hint: install its venv module (Debian: \`apt install python3-venv\`)" >&2
    exit 1
  fi
fi
"$python" -m venv "$venv"
