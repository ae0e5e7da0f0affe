# The front door: `make demo` and `make test` do all the set-up themselves.
.DEFAULT_GOAL := help
.PHONY: help packages configured build demo test test-long bench install clean

JOBS ?= $(shell nproc)
PREFIX ?= /usr/local

help: ## Show the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

packages:
	@tools/install_packages build

configured: packages
	@[ -f build/build.ninja ] || cmake --preset release

build: configured ## Build; the command is build/bin/starling
	@cmake --build --preset release -j $(JOBS)

demo: configured ## Train a CNN on Fashion-MNIST on all cores
	@cmake --build --preset release -j $(JOBS) --target starling_command
	@build/bin/starling train examples/fashion_cnn.toml --run-dir runs/demo --overwrite

test: build ## Build and run every test
	@ctest --preset release -j $(JOBS)

test-long: build ## The longer tests: sanitizers, many seeds, fuzzing
	@tools/install_packages long
	@tools/test_long

bench: build ## Measure against LibTorch, PyTorch DDP, Gloo and Open MPI (installs them)
	@tools/install_packages bench
	@bench/run

install: build ## Install under PREFIX
	@cmake --install build --prefix $(PREFIX)

clean: ## Remove what was built
	@rm -rf build build-*
