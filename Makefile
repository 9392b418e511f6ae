# make demo     set up, build, run the four examples under every method and beside ROMIO (1 minute; DEMO=--full 5 minutes)
# make build    release build in target/release: penstock, libpenstock.so, libpenstock_trace.so
# make install  into PREFIX [~/.local], with DESTDIR before it; `make uninstall` takes it away (docs/use/install.md)
# make dist     a tarball that runs from any directory, for glibc 2.28 and newer: target/dist
# make wheel    the Python package for the same systems: target/dist
# make deb      Debian packages: target/dist
# make dist-src the sources with all crates, to build without a network; recipes for Spack, EasyBuild, RPM: target/dist
# make h5py     parallel h5py for Debian's MPICH, in .venv/h5py
# make test     the tests of each change: the crates', seeds of the fault simulator, programs, the Python package
# make test-all all tests: also those marked `long`, which cross every method with every MPI library
# make python   the Python package `penstock`, as a wheel installed in .venv; part of `make test`
# make bench    measure against peers; `make bench ONLY=regex` for a part, `make bench PEERS=1` a mount beside GlusterFS
# make lint     formatting and lints of everything
# make reproduce  simulate the sources' experiments, write docs/understand/reproduction*.md  (5 minutes)
# make makespan  simulated makespans beside those of real servers on the same modelled devices  (2 minutes)
# make mutants  does anything notice when the code breaks a promise? `make mutants ONLY=regex SEEDS=200`; hours
# make soak     5,000 fault seeds and 200 mixed crashes, within the hour; `make soak TIME=3600 CYCLES=500`
# make fuzz     fuzz what parses bytes from outside; `make fuzz TIME=600`, `make fuzz SEED=1`
# make clean    remove what was built

SHELL := /bin/bash
PYTHON := .venv/bin/python
RELEASE := target/release
EXAMPLES := $(patsubst examples/%.c,target/examples/%,$(wildcard examples/*.c))
CFLAGS := -std=c11 -O2 -Wall -Wextra -Werror
# Examples of libraries, each with Debian's compiler and library of one MPI.
LIBRARY_EXAMPLES := $(addprefix target/examples/libraries/,hdf5-mpich hdf5-openmpi hdf5_fortran-mpich hdf5_fortran-openmpi \
	pnetcdf-openmpi netcdf-openmpi s3d-openmpi)
# Looked up when used: setup may have to install cc first.
LIBS = /usr/lib/$(shell cc -print-multiarch)

# What is shipped, apart from the Python package.
PRODUCT := -p penstock-capi -p penstock-cli

# Of the pages reproduction.md and reproduction-scheduling.md.
EXPERIMENTS := noncontiguous-tile noncontiguous-block noncontiguous-flash resonance
RESONANT_EXPERIMENTS := resonant-demo resonant-mpi-io-test resonant-noncontig
RESONANT_MORE_EXPERIMENTS := resonant-coll-perf resonant-ior resonant-hpio
ORCHESTRATOR_EXPERIMENTS := orchestrator-like orchestrator-unlike orchestrator-window orchestrator-distance
SCHEDULING_EXPERIMENTS := lost-locality queue-depth schedulers

.PHONY: reproduce demo setup setup-build setup-web web build shim examples h5py python test test-all test-crates test-faults test-programs test-package bench soak fuzz lint clean

demo: build $(EXAMPLES)
	python3 scripts/demo.py $(DEMO)

setup:
	@scripts/setup.sh

# What making the product takes, and no more.
setup-build:
	@scripts/setup.sh build

setup-web:
	@scripts/setup.sh web

# The page of `penstock report`, into web/dist: commit it.
web: setup-web
	cd web && npm ci --no-audit --no-fund && npm run check && npm run build

build: setup-build shim
	cargo build --release $(PRODUCT)

# The libraries that programs preload: for all MPI ABIs, and that of traced programs.
shim: setup-build
	$(MAKE) -C interpose
	$(MAKE) -C mpi

# What installing takes, in addition to what runs from this tree.
.PHONY: packages install uninstall dist
packages:
	@packaging/build

PREFIX := ~/.local
install: packages
	@PREFIX='$(PREFIX)' DESTDIR='$(DESTDIR)' packaging/install $(RELEASE)
uninstall:
	@PREFIX='$(PREFIX)' DESTDIR='$(DESTDIR)' packaging/install --uninstall

# TARGET=aarch64-unknown-linux-gnu for another machine.
TARGET := $(shell uname -m)-unknown-linux-gnu
dist:
	@packaging/build $(TARGET)
	@packaging/dist target/cross/$(TARGET)/release
.PHONY: wheel dist-src deb
wheel:
	@packaging/wheel $(TARGET)
dist-src:
	@packaging/dist-src

# Debian packages for this release and newer ones. OUT=DIR puts them elsewhere than target/dist.
deb: packages python
	@packaging/deb $(RELEASE) target/wheels/*.whl $(OUT)

# Plain mpicc of the MPI in .venv; nothing of Penstock is compiled or linked in.
examples: setup $(EXAMPLES) $(LIBRARY_EXAMPLES)

target/examples/%: examples/%.c examples/common.h | setup-build
	@mkdir -p $(@D)
	.venv/bin/mpicc $(CFLAGS) -o $@ $<

target/examples/libraries/hdf5-%: examples/libraries/hdf5.c examples/libraries/check.h
	@mkdir -p $(@D)
	mpicc.$* $(CFLAGS) -I/usr/include/hdf5/$* -o $@ $< -L$(LIBS)/hdf5/$* -lhdf5
target/examples/libraries/hdf5_fortran-%: examples/libraries/hdf5_fortran.f90
	@mkdir -p $(@D)
	mpifort.$* -O2 -Wall -I/usr/include/hdf5/$* -o $@ $< -L$(LIBS)/hdf5/$* -lhdf5_fortran -lhdf5
target/examples/libraries/pnetcdf-openmpi: examples/libraries/pnetcdf.c examples/libraries/check.h
	@mkdir -p $(@D)
	mpicc.openmpi $(CFLAGS) -o $@ $< -lpnetcdf
# With debug information: traces name its lines.
target/examples/libraries/s3d-openmpi: examples/libraries/s3d.c examples/libraries/check.h
	@mkdir -p $(@D)
	mpicc.openmpi $(CFLAGS) -g -o $@ $< -lpnetcdf
target/examples/libraries/netcdf-openmpi: examples/libraries/netcdf.c examples/libraries/check.h
	@mkdir -p $(@D)
	mpicc.openmpi $(CFLAGS) -I$(LIBS)/netcdf/pnetcdf/include -o $@ $< -L$(LIBS)/netcdf/pnetcdf -lnetcdf

# Parallel h5py for Debian's MPICH, in .venv/h5py (3 minutes, once).
h5py: setup
	@scripts/h5py.sh

python: setup
	@scripts/python.sh

# In this order; `make -k test` goes on after a part that failed, and PYTEST=--lf takes those that failed last time.
test: test-crates test-faults test-programs test-package

# All crates, or those that CRATES names by options of cargo; all tests, or those that TESTS names. What is shipped is
# tested: other settings would compile everything once more. `make test-all` does that, with assertions and checks of overflow.
# Crates without examples in their documents say `doctest = false`: rustdoc would read each of them to find none.
# Programs of examples/ are compiled where they are used, and by `make lint`; the Python extension has its tests in Python.
CRATES := --workspace --exclude penstock-pyapi --lib --bins --tests
# Most tests wait, for a lease or a broken connection: four at once keep two cores busy.
test-crates: export RUST_TEST_THREADS := 4
test-crates: setup
	cargo test --release --no-fail-fast $(CRATES) $(if $(TESTS),-- --exact $(TESTS))
	cargo test --release --workspace --exclude penstock-pyapi --doc

test-faults: build
	$(RELEASE)/penstock faults --seeds 200

# Most tests wait for processes, so three workers keep two cores busy. A file's tests share its mounts and deployments.
# Those that run alone run also where others failed: a second run repeats failed tests only.
WORKERS := -n 3 --dist loadfile
# Which marks, followed by another condition; `make test-all` leaves it empty.
MARKED := not long and
# With --lf one of two runs may have nothing to repeat, which pytest calls an error.
NOTHING := { code=$$?; [ "$(PYTEST)" = --lf ] && [ $$code -eq 5 ]; }

test-programs: packages examples python
	cargo build --release $(PRODUCT) -p penstock-client -p penstock-meta --bins --example hostile --example stranger --example reader --example newcomer --example thief --example names
	cargo build --release -p penstock-collect --example records
	$(PYTHON) -m pytest -q -rfEs --durations=12 -m "$(MARKED) not alone" $(WORKERS) $(PYTEST) tests || $(NOTHING)
	$(PYTHON) -m pytest -q -rfEs -m "$(MARKED) alone" $(PYTEST) tests || $(NOTHING)

test-all: h5py setup-web
	cargo test --workspace --no-fail-fast
	$(MAKE) test MARKED=

test-package: build python
	$(PYTHON) -m pytest -q -rfEs -m "$(MARKED) not alone" $(PYTEST) python/tests

bench: build examples
	cargo build --release -p penstock-meta --example rates
	cargo build --release -p penstock-fuse --example passthrough
	cargo build --release -p penstock-client --example hostile --example stranger --example reader
	cargo build --release -p penstock-datatype --example pack
	cargo build --release -p penstock-sched --example decisions
	$(if $(PEERS),scripts/setup.sh peers && $(PYTHON) bench/peers.py $(if $(RUNS),--runs $(RUNS)),$(PYTHON) bench/bench.py $(if $(ONLY),--only '$(ONLY)'))

# Published results beside ours.
reproduce:
	cargo build --release --bin penstock
	$(RELEASE)/penstock sim --markdown docs/understand/reproduction.md $(EXPERIMENTS:%=experiments/%.toml)
	$(RELEASE)/penstock sim --markdown docs/understand/reproduction-resonant.md $(RESONANT_EXPERIMENTS:%=experiments/%.toml)
	$(RELEASE)/penstock sim --markdown docs/understand/reproduction-resonant-more.md $(RESONANT_MORE_EXPERIMENTS:%=experiments/%.toml)
	$(RELEASE)/penstock sim --markdown docs/understand/reproduction-orchestrator.md $(ORCHESTRATOR_EXPERIMENTS:%=experiments/%.toml)
	$(RELEASE)/penstock sim --markdown docs/understand/reproduction-scheduling.md $(SCHEDULING_EXPERIMENTS:%=experiments/%.toml)
	timeout 60 $(RELEASE)/penstock sim experiments/scale.toml
	$(RELEASE)/penstock sim experiments/cohorts.toml

.PHONY: makespan
makespan: build examples
	$(PYTHON) bench/makespan.py --runs $(or $(RUNS),3)

soak: build examples
	for bug in lost-sync lost-name stale-read trusted-clock any-store twice-delivered lost-wakeup no-fence same-bytes kept-incarnation no-lease \
		dropped-part swallowed-error; do \
		$(RELEASE)/penstock faults --plant $$bug --seeds 1000 || exit 1; done
	$(RELEASE)/penstock faults $(if $(TIME),--time $(TIME),--seeds 5000) --seed $$((RANDOM * 1000000))
	$(PYTHON) -m pytest -q -s tests/test_crash_cycles.py --cycles $(or $(CYCLES),200) --seed $$RANDOM

# Each mutant of scripts/mutants.toml against the fault simulator and the tests of its crate.
.PHONY: mutants
mutants: setup
	$(PYTHON) scripts/mutants.py --seeds $(or $(SEEDS),1000) $(if $(ONLY),--only '$(ONLY)')

fuzz:
	fuzz/run $(or $(TIME),60)

# Those of packaging/.
SCRIPTS := $(addprefix packaging/,build cross deb dist dist-src install link-client stage version wheel zig-cc)
lint: setup
	cargo fmt --all --check
	scripts/features.sh
	cargo clippy --release --workspace --all-targets -- -D warnings
	@for file in crates/*/tests/*.rs; do all=$${file%/*}/all.rs; name=$${file##*/}; name=$${name%.rs}; \
		[ "$$name" = all ] || [ ! -e "$$all" ] || grep -qx "mod $$name;" "$$all" || { echo "$$all does not have $$file"; exit 1; }; done
	@for crate in $$(grep -lx 'doctest = false' crates/*/Cargo.toml); do \
		awk '/^ *\/\/[\/!] ```/ { if (!open && !/```text$$/) bad = FILENAME ":" FNR; open = !open } \
			END { if (bad) { print bad ": an example that no test runs: take doctest = false out of Cargo.toml"; exit 1 } }' \
			$$(find $${crate%/*}/src -name '*.rs') || exit 1; done
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	shellcheck -x scripts/*.sh .ci/run fuzz/run contrib/slurm/prolog contrib/slurm/epilog contrib/slurm/authority contrib/slurm/job $(SCRIPTS)

clean:
	cargo clean

# Scheduling algorithms, trees and the online selector over the source's situations, on virtual time.
# The same on a real server in real time, 15 minutes per device: make reproduce-scheduling-real DEVICE=graphene JOBS=4
.PHONY: reproduce-scheduling reproduce-scheduling-real
reproduce-scheduling:
	cargo build --release --bin penstock
	@mkdir -p target/scheduling
	$(PYTHON) experiments/scheduling/virtual.py --setup source --out target/scheduling/source.csv
	$(PYTHON) experiments/scheduling/real.py table --cases --setup source target/scheduling/source.csv
	@echo "in real time, 15 minutes: make reproduce-scheduling-real DEVICE=graphene"
DEVICE := graphene
JOBS := 4
reproduce-scheduling-real: build
	@mkdir -p target/scheduling
	$(PYTHON) experiments/scheduling/real.py measure --device $(DEVICE) --jobs $(JOBS) --small $(JOBS) --out target/scheduling/$(DEVICE).csv
	$(PYTHON) experiments/scheduling/real.py table --cases target/scheduling/$(DEVICE).csv
