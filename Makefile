# The everyday commands; CMake does the building.
#
# `make check` and its kin take ONLY= BACKEND= KERNELS= SAN= FAST= SEED= FAULTS= JOBS= BASE=  (see scripts/check).
PREFIX ?= /usr/local
DEMO = build/demo
DEMO_STEPS = 1600
export ONLY BACKEND KERNELS SAN FAST OVERLAP SEED FAULTS JOBS BASE GOLDEN DESTDIR

.PHONY: all check check-full check-all check-big check-list demo golden mutants bench format format-check layers header size install clean help

all: ## build library, command and examples
	@scripts/setup build
	@scripts/build build

check: ## test, in a minute and a half once it is built: static checks, units, golden vectors, a sample of all cases
	@scripts/setup check
	@scripts/check check

check-full: ## test what check leaves out: other backends and worlds, clang, sanitizers, products, mutants
	@scripts/setup check-full
	@scripts/check full

check-all: ## test everything in every build, long products of modes and all mutants included: for releases
	@scripts/setup check-full
	@scripts/check all

check-big: ## test what needs most of the machine's memory
	@scripts/setup check
	@scripts/check big

check-list: ## print the names of all that check and check-full run
	@scripts/setup check
	@scripts/check list

demo: ## see it work: train a GPT on two ranks, let it write, draw a picture of the training: about a minute
	@scripts/setup demo
	@scripts/build build
	@rm -rf $(DEMO)
	build/bin/zro train --ranks 2 --model micro --batch 4 --steps $(DEMO_STEPS) --lr 4e-3 --warmup 60 --schedule cosine \
		--min-lr 1e-4 --eval-batches 8 --out $(DEMO) --sample 400 --prompt 'static zro_status '
	@echo
	@build/bin/zro report $(DEMO)

golden: ## compare with PyTorch's vectors in GOLDEN=DIR (default tests/golden), ONLY=clip.json,optim.json: some of them
	@scripts/setup check
	@scripts/golden

mutants: ## all one-line faults that the tests must notice
	@scripts/setup check-full
	@scripts/mutants

bench: all ## time the collective calls, the optimizers and the training step; ARGS= is handed on to the first
	build/bin/zro bench group $(ARGS)
	build/bin/zro bench optim
	build/bin/zro bench step

format: ## format all C files
	@scripts/setup check
	@scripts/format

format-check: ## say which C files are not formatted
	@scripts/setup check
	@scripts/format --check

layers: ## check that each folder uses only those below it
	@scripts/layers

header: all ## check the public headers and the exported symbols
	@scripts/setup check
	@scripts/header build

size: ## exported calls and lines per room
	@scripts/size

install: ## install under PREFIX=, inside DESTDIR= if given
	@scripts/setup build
	@scripts/build build -DCMAKE_INSTALL_PREFIX=$(PREFIX)
	@cmake --install build --prefix $(PREFIX)

clean: ## remove build/
	rm -rf build

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-13s %s\n", $$1, $$2 }' Makefile
	@echo "check takes ONLY= BACKEND= KERNELS= SAN=address|thread FAST=off SEED= FAULTS= JOBS="
