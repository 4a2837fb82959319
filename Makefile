# A fresh machine needs Python 3.11+, make and a package index:
#   make up      install, then start the built-in fleet
#   make test    everything that must be green before a change lands

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check --no-input -q

.PHONY: up test lint types units lock bars bench bench-routing soak docs clean help

help:
	@sed -n 's/^#   //p' Makefile

$(VENV)/run.stamp: requirements/run.txt pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --require-hashes --only-binary :all: -r requirements/run.txt
	$(PIP) install --no-deps --editable .
	@touch $@

$(VENV)/dev.stamp: requirements/dev.txt $(VENV)/run.stamp
	$(PIP) install --require-hashes --only-binary :all: -r requirements/dev.txt
	@touch $@

up: $(VENV)/run.stamp
	@$(BIN)/pilothouse up $(ARGS)

test: lint types units

lint: $(VENV)/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: $(VENV)/dev.stamp
	$(BIN)/mypy

units: $(VENV)/dev.stamp
	$(BIN)/pytest

#   make bars ISSUE=foundation    measure an issue's bars
bars: $(VENV)/dev.stamp
	$(BIN)/python -m benchmarks.bars $(ISSUE)

#   make bench                    measure beside the peers, and write docs/benchmarks.md
bench: $(VENV)/dev.stamp
	$(BIN)/python -m benchmarks.side_by_side

#   make soak MINUTES=120         mixed load with random kills, and what is left at the end
MINUTES := 120
soak: $(VENV)/dev.stamp
	$(BIN)/python -m benchmarks.soak $(MINUTES)

#   make bench-routing    replay the public conversation trace (in $PILOTHOUSE_TRACES) through every routing policy
bench-routing: $(VENV)/dev.stamp
	$(BIN)/python -m benchmarks.routing_replay $(TRACE)

#   make docs    generate the reference pages again
docs: $(VENV)/dev.stamp
	for generator in tools/generate_*.py; do $(BIN)/python $$generator || exit 1; done

#   make lock    pin the requirements again, with hashes
LOCK := $(BIN)/pip-compile -q --generate-hashes --no-emit-index-url --no-emit-find-links --no-emit-trusted-host \
	--no-header --strip-extras --allow-unsafe
lock: $(VENV)/dev.stamp
	$(LOCK) --extra llamacpp -o requirements/run.txt pyproject.toml
	$(LOCK) -o requirements/dev.txt requirements/dev.in

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
