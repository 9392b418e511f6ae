#!/usr/bin/env bash
# Each crate is compiled once, whichever packages are built together: fails where a build that the project uses asks for
# other features than the workspace does as a whole. What to do: name them in crates/base/Cargo.toml.
set -euo pipefail
cd "$(dirname "$0")/.."

# Each crate with its features, of the kinds of dependencies $1, for the packages that the other arguments select.
features() {
    cargo tree --locked --edges "$1" --prefix none --no-dedupe --format '{p} [{f}]' "${@:2}" | sort -u
}

all=$(mktemp)
trap 'rm -f "$all"' EXIT
features normal,build,dev --workspace >"$all"
failed=0
for packages in 'capi cli' 'capi cli sched-capi' pyapi; do
    options=()
    for package in $packages; do options+=(-p "penstock-$package"); done
    others=$(features normal,build "${options[@]}" | comm -23 - "$all")
    [ -z "$others" ] || {
        printf 'features: cargo build %s compiles these anew, with features other than those of --workspace:\n%s\n' "${options[*]}" "$others" >&2
        failed=1
    }
done
exit $failed
