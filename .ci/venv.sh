#!/bin/sh
# Make the virtual environment $1 with a fitting Python, and bring uv into it by pip: the version
# and the hashes are those of requirements.lock. PYTHON=/path/to/python chooses another one.
set -eu

venv=$1
fits='import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))'

python=
for candidate in ${PYTHON:-python3.11 python3.12 python3.13 python3 python}; do
    # pyenv's shims exist and fail: ask, do not look.
    if "$candidate" -c "$fits" 2>/dev/null; then python=$candidate; break; fi
done
if [ -z "$python" ]; then
    echo "setup: no Python 3.11 to 3.13 found. Install one, or name it: make setup PYTHON=/path/to/python3.11" >&2
    exit 1
fi

echo "setup: environment in $venv with $("$python" --version)"
pinned=$(mktemp)
trap 'rm -f "$pinned"' EXIT
awk '/^[^ #]/ {ours = /^uv==/} ours' requirements.lock > "$pinned"
if ! "$python" -m venv --clear "$venv" 2>/dev/null; then
    # Debian splits ensurepip off; a pip of the system's can serve instead.
    "$python" -m venv --clear --without-pip "$venv"
    if ! "$python" -m pip --version >/dev/null 2>&1; then
        rm -rf "$venv"
        echo "setup: this Python has neither ensurepip nor pip. On Debian: apt-get install python3-venv" >&2
        exit 1
    fi
    exec "$python" -m pip --quiet --disable-pip-version-check --python "$venv/bin/python" \
        install --require-hashes -r "$pinned"
fi
"$venv/bin/python" -m pip --quiet --disable-pip-version-check install --require-hashes -r "$pinned"
