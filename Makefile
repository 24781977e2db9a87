# Everything a contributor runs. `make` alone prints this help.
SHELL := /bin/bash
.DEFAULT_GOAL := help
VENV := .venv
PY := $(VENV)/bin/python
TESTS_INNER := tests/architecture tests/unit tests/contracts tests/component

.PHONY: help setup fmt check test

help:  ## this text
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 16

setup: $(VENV)/.done  ## a virtual environment with everything that development needs

$(VENV)/.done: pyproject.toml requirements.txt
	test -x $(PY) || python3 -m venv $(VENV)
	$(PY) -m pip install --quiet --disable-pip-version-check -r requirements.txt
	$(PY) -m pip install --quiet --disable-pip-version-check --no-deps -e .
	touch $@

fmt: setup  ## format the code
	$(VENV)/bin/ruff format .
	$(VENV)/bin/ruff check --fix --quiet .

check: setup  ## format, lint, types, import contracts, and the tests that need no cluster (under two minutes)
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports
	$(PY) -m pytest -q -m "not slow and not cluster and not host" $(TESTS_INNER)

test: check  ## every test, those on the real cluster with real guests included
