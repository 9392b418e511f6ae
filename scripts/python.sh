#!/usr/bin/env bash
# Builds the Python package (a wheel, by maturin) and installs it in .venv together with what its tests need. Takes no
# time when neither the sources nor .venv have changed.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'python: %s\n' "$*"; }

requirements=python/requirements.txt
stamp=.venv/.python-requirements
if ! cmp -s "$requirements" "$stamp"; then
    say "installing $(grep -v '^#' "$requirements" | tr '\n' ' ')into .venv"
    .venv/bin/pip install --quiet --disable-pip-version-check --only-binary :all: -r "$requirements"
    cp "$requirements" "$stamp"
fi

wheels=target/wheels
# What the wheel may be made of: the package, and all crates. Which of them, cargo knows, and is quick where none has
# changed.
sources=$(find python/penstock python/pyproject.toml Cargo.lock Cargo.toml crates -type f \
    \( -name '*.rs' -o -name '*.toml' -o -name '*.lock' -o -name '*.py' -o -name '*.pyi' -o -name 'py.typed' \) \
    -not -path '*/tests/*' -print0 | sort -z | xargs -0 sha256sum | sha256sum | cut -d' ' -f1)
if [ "$(cat "$wheels/.sources" 2>/dev/null)" != "$sources" ]; then
    say "building the wheel"
    mkdir -p "$wheels"
    rm -f "$wheels"/*.whl "$wheels/.sources"
    (cd python && ../.venv/bin/maturin build --release --quiet --out "../$wheels") 2>"$wheels.log" ||
        {
            cat "$wheels.log" >&2
            exit 1
        }
    echo "$sources" >"$wheels/.sources"
fi

installed=.venv/.python-package
if [ "$(cat "$installed" 2>/dev/null)" != "$sources" ]; then
    .venv/bin/pip install --quiet --disable-pip-version-check --no-deps --force-reinstall "$wheels"/*.whl
    echo "$sources" >"$installed"
fi
