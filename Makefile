# Each target sets up what it needs (tools/setup): a .venv in the tree, and as root on Debian the
# packages that building takes. ARGS is passed on: make demo ARGS="--steps 50".
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help setup demo test check long races frameworks bench soak wheels matrix docs lint format clean

help:
	@echo "make demo    train one model across two unlike clusters, then compare with Gloo"
	@echo "make test    build and test the whole, sanitizers included (about 15 minutes on 2 cores, once it is built)"
	@echo "make long    the tests of Python that make test leaves out because they are long; CI runs them, too"
	@echo "make races   the core under ThreadSanitizer; CI runs it, too"
	@echo "make frameworks   train with DeepSpeed, Accelerate, Trainer, Lightning over hetccl; CI runs it, too"
	@echo "make check   linters, the core and a smoke of Python: 2 minutes after the first build"
	@echo "make bench   measure hetccl beside Gloo, MPIs and plain sockets, on one host and over emulated links"
	@echo "make soak    every case of every test, then half an hour each of random collectives and of serving, with kills: does anything grow?"
	@echo "make matrix  test the wheel beside the oldest, the pinned and the newest torch (11 GB)"
	@echo "make wheels  one wheel for every supported torch, and an sdist, into dist"
	@echo "make docs    build the documentation into build/docs"
	@echo "make lint    formatters, linters and the house rules;   make format   applies the formatters"
	@echo "make setup   only set up .venv and install hetccl into it;   make clean   removes what was built"

setup:
	@tools/setup

demo: setup
	@unset PYTHONDONTWRITEBYTECODE; .venv/bin/hetccl demo --report build/demo.html $(ARGS)

test:
	@tools/test $(ARGS)

check:
	@tools/test check $(ARGS)

long:
	@tools/test long $(ARGS)

races:
	@tools/test races

frameworks: setup
	@tests/frameworks/run $(ARGS)

bench: setup
	@tools/setup --mpi
	@.venv/bin/python bench/run.py $(ARGS)

soak:
	@HETCCL_TEST_SCALE=10 tools/test
	@.venv/bin/python tests/soak/soak.py $(ARGS)
	@.venv/bin/python tests/soak/serving.py $(SERVING_ARGS)

wheels:
	@tools/setup --tools
	@tools/wheel $(ARGS)

matrix:
	@tools/setup --tools
	@tools/torch-matrix $(ARGS)

docs: setup
	@tools/docs $(ARGS)

lint:
	@tools/lint $(ARGS)

format:
	@tools/setup --tools
	@git ls-files -co --exclude-standard '*.cc' '*.h' | xargs .venv/bin/clang-format -i
	@.venv/bin/ruff format -q python tools bench tests docs
	@.venv/bin/ruff check -q --fix --exit-zero python tools bench tests docs

clean:
	rm -rf build build-asan build-tsan .venv/.stamps dist
