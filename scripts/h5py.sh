#!/usr/bin/env bash
# Builds h5py with MPI, and mpi4py, against Debian's MPICH and its parallel HDF5, into .venv/h5py. PyPI's h5py is
# serial. Takes 3 minutes once, and no time when it is there.
#
# Both must load one MPI library. mpi4py's wheel asks for libmpi.so.12, Debian's HDF5 for libmpich.so.12; so mpi4py
# is built here, too, and finds Debian's library under Debian's name.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=.venv/h5py
wanted="requirements-h5py.txt"
cmp -s "$wanted" "$venv/.requirements" && exit 0

printf 'h5py: building mpi4py and h5py for MPICH in %s\n' "$venv"
rm -rf "$venv"
python3 -m venv "$venv"
pip=("$venv/bin/pip" install --quiet --disable-pip-version-check)
"${pip[@]}" -r <(grep -v -e mpi4py -e h5py "$wanted")
# Not optimised: the time goes into compiling, not into the calls.
export CC=mpicc.mpich MPICC=mpicc.mpich CFLAGS="-O0 -g0"
HDF5_DIR=/usr/lib/$(cc -print-multiarch)/hdf5/mpich
export HDF5_MPI=ON HDF5_DIR
for package in mpi4py h5py; do
    "${pip[@]}" --no-deps --no-build-isolation --no-cache-dir --no-binary=mpi4py,h5py "$(grep "^$package==" "$wanted")"
done
"$venv/bin/python" -c '
from mpi4py import MPI
import h5py
assert h5py.get_config().mpi and MPI.get_vendor()[0] == "MPICH", (h5py.version.info, MPI.get_vendor())'
cp "$wanted" "$venv/.requirements"
