# make demo     set up, build, run the four examples under every method, print the table     (5 minutes)
# make build    release build: target/release/penstock, target/release/libpenstock.so
# make test     all tests
# make bench    measure against peers; `make bench ONLY=regex` for a part
# make lint     formatting and lints of everything
# make soak     crash tests for a long time; `make soak TIME=3600`
# make fuzz     fuzz the decoders; `make fuzz TIME=600`
# make clean    remove what was built

SHELL := /bin/bash
PYTHON := .venv/bin/python
RELEASE := target/release
EXAMPLES := $(patsubst examples/%.c,target/examples/%,$(wildcard examples/*.c))
CFLAGS := -std=c11 -O2 -Wall -Wextra -Werror

.PHONY: demo setup build shim examples test bench soak fuzz lint clean

demo: build
	$(PYTHON) scripts/demo.py $(DEMO)

setup:
	@scripts/setup.sh

build: setup examples shim
	cargo build --release --bin penstock

# The library that programs preload, for all MPI ABIs.
shim: setup
	$(MAKE) -C mpi

# Plain mpicc of the MPI in .venv; nothing of Penstock is compiled or linked in.
examples: setup $(EXAMPLES)

target/examples/%: examples/%.c examples/common.h
	@mkdir -p $(@D)
	.venv/bin/mpicc $(CFLAGS) -o $@ $<

test: build
	cargo test --workspace
	$(PYTHON) -m pytest -q tests

bench: build
	cargo build --release -p penstock-meta --example rates
	cargo build --release -p penstock-datatype --example pack
	$(PYTHON) bench/bench.py $(if $(ONLY),--only '$(ONLY)')

soak: build
	$(PYTHON) -m pytest -q tests/test_crash.py --soak $(or $(TIME),600) --seed $$RANDOM

fuzz:
	fuzz/run $(or $(TIME),60)

lint: setup
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	shellcheck scripts/*.sh .ci/run fuzz/run

clean:
	cargo clean
