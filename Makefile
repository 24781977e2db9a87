# Everything a contributor runs. `make` alone prints this help.
SHELL := /bin/bash
.DEFAULT_GOAL := help
VENV := .venv
PY := $(VENV)/bin/python
TESTS_INNER := tests/architecture tests/unit tests/contracts tests/component

.PHONY: help setup fmt check test demo down env cluster-up cluster-down images dev

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
	@python3 -m tests.testbed packages
	@test -n "$$KUBECONFIG" || $(MAKE) --no-print-directory cluster-up
	$(PY) -m pytest -q -m "slow or host or cluster" tests

demo:  ## a real two-node Kubernetes on this machine, our chart, a virtual machine with a console (KUBECONFIG=… uses that cluster)
	@python3 -m tests.testbed demo

down:  ## take away everything that demo made
	@python3 -m tests.testbed demo-down

env:  ## shell commands for KUBECONFIG and PATH: eval "$$(make env)"
	@python3 -m tests.testbed env

cluster-up:  ## the test cluster alone, with our images on its nodes
	@python3 -m tests.testbed up
	@python3 -m tests.testbed load-images

cluster-down:  ## remove the test cluster
	@python3 -m tests.testbed down

images:  ## build our container images and, where the test cluster runs, give them to its nodes
	@if python3 -m tests.testbed status 2>/dev/null; then python3 -m tests.testbed load-images; else python3 -m tests.testbed images; fi

dev: setup  ## virt-api alone on loopback with an etcd of its own, and a kubeconfig for it (DEV_FLAGS="--storage=memory" needs no etcd)
	@etcd=; case "$(DEV_FLAGS)" in *memory*) ;; *) etcd="--etcd-binary=$$(python3 -m tests.testbed.build etcd)" || exit 1;; esac; \
	exec $(PY) -m apiserver.server.dev $$etcd $(DEV_FLAGS)
