# Everything a contributor runs. `make` alone prints this help.
SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON := python3
VENV := .venv
PY := $(VENV)/bin/python
TESTBED := $(PYTHON) -m tests.testbed
RING := test
TIMED := $(PYTHON) -m tests.testbed.timed
# Bytecode is kept, outside the work tree, also where the environment says that Python writes none: pytest would rewrite every assertion in
# each process of each run.
unexport PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX := $(or $(KUBEVIRT_CACHE),$(HOME)/.cache/kubevirt-python)/bytecode

# `eval "$(make env)"` names the cluster that is used without KUBECONFIG, too.
ifeq ($(KUBECONFIG),$(or $(KUBEVIRT_STATE),$(HOME)/.local/state/kubevirt-python)/kubeconfig)
unexport KUBECONFIG
endif

.PHONY: help python setup fmt fields lint lint-fast lint-slow check check-untimed checklist mutants test test-untimed bytecode prepare test-all test-drain test-faults demo down env cluster-up cluster-down images pins sbom dev krew bench-start bench-devices bench-disks bench-network bench-import bench-migrate bench-losses bench-relays bench-api bench-api-aggregator bench-api-scale bench-attacks bench-scale

help:  ## this text
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 16

python:
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Python 3.11 or later is needed, and $(PYTHON) is %d.%d; name another one: make PYTHON=python3.12 …" % sys.version_info[:2])'

setup: $(VENV)/.done  ## a virtual environment with everything that development needs

$(VENV)/.done: pyproject.toml requirements.txt | python
	@$(TESTBED) setup
	@touch $@

fmt: setup  ## format the code
	$(VENV)/bin/ruff format .
	$(VENV)/bin/ruff check --fix --quiet .

fields: setup  ## what follows from the models: apiserver/apis/virt/structure.json, and docs/fields.md, the table of fields
	$(PY) -m tests.fields

lint: lint-fast lint-slow  ## format, lint, types, import contracts

lint-fast: setup
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .

lint-slow: setup
	$(PY) -m tests.testbed.typecheck
	$(VENV)/bin/lint-imports

check: python  ## the same, and the tests of the ring check: structure, units, contracts (three minutes)
	@$(TIMED) "make check" $(MAKE) --no-print-directory check-untimed

check-untimed: lint-fast
	@$(PY) -m tests.testbed.build etcd helm >/dev/null  # before any test has to wait for it
	@$(PY) -m tests.testbed.together "$(MAKE) --no-print-directory lint-slow" \
	  "$(PY) -m pytest -q --ring check --part 2/2 tests" "$(PY) -m pytest -q --ring check --part 1/2 tests"

checklist: setup  ## the rows of docs/apiserver-checklist.md without a passing test (ROWS="STO SSA-03", CHECKLIST_FLAGS=--all)
	@$(PY) -m tests.testbed.build etcd helm >/dev/null
	$(PY) -m tests.checklist $(CHECKLIST_FLAGS) $(ROWS)

mutants: setup  ## what the tests of plans and guards do not notice, and why that may be (hours; MODULES="power phases", MUTANTS_FLAGS=…)
	$(PY) -m tests.mutants $(MUTANTS_FLAGS) $(MODULES)

test: python  ## the same, and tests on a real cluster with real guests, a slice of the ring all among them (half an hour; TESTS_SEED=…)
	@$(TIMED) "make test" $(MAKE) --no-print-directory test-untimed RING=$(RING)

# The ring check runs while programs and images are built and the cluster starts; then the rest.
test-untimed: setup
	@$(PY) -m tests.testbed.ahead "$(MAKE) prepare" $(MAKE) --no-print-directory check-untimed bytecode RING=$(RING)
	$(PY) -m pytest -q -n 5 --dist loadscope --once-more --ring $(RING) --after-check tests

bytecode:  # once, before five processes would each compile the same tests
	@found=$$($(PY) -m pytest -q --collect-only --ring $(RING) --after-check tests) || { tail -40 <<<"$$found"; exit 1; }

prepare: setup
	@nice -n 10 $(TESTBED) packages
	@if test -n "$$KUBECONFIG"; then nice -n 10 $(PY) -m tests.testbed.build kubernetes helm; else nice -n 10 $(TESTBED) prepare; fi
	@test -n "$$KUBECONFIG" || { $(MAKE) --no-print-directory cluster-up && $(TESTBED) install; }

test-all:  ## every test, whole families of cases and all matrices included (70 minutes and more)
	@$(MAKE) --no-print-directory test RING=all

test-drain: setup  ## drain a node of twenty guests, stop in the middle, go on; 5 GiB and ten minutes (DRAIN_GUESTS=6)
	@test -n "$$KUBECONFIG" || $(MAKE) --no-print-directory cluster-up
	$(PY) -m pytest -q -s tests/cluster/large_drain.py

test-faults: setup  ## cut processes and links at each step of migrations, drains and upgrades; writes docs/faults.md (FAULTS="handler-source drain", FAULTS_FLAGS=--fresh)
	@test -n "$$KUBECONFIG" || $(MAKE) --no-print-directory cluster-up
	@$(TESTBED) install
	@eval "$$($(TESTBED) env)" && exec $(PY) -m tests.cuts $(FAULTS_FLAGS) $(FAULTS)

demo: python  ## a real two-node Kubernetes on this machine, our chart, a virtual machine with a console (DEMO=cloud: and a cloud image; KUBECONFIG=… uses that cluster)
	@$(TIMED) "make demo" $(TESTBED) demo

down: python  ## take away everything that demo made
	@$(TESTBED) demo-down

env:  ## shell commands for KUBECONFIG and PATH: eval "$$(make env)"
	@$(TESTBED) env

cluster-up: setup  ## the test cluster alone, with our images on its nodes
	@$(TESTBED) packages
	@$(TESTBED) up
	@$(TESTBED) load-images

cluster-down: python  ## remove the test cluster
	@$(TESTBED) down

images: setup  ## build our container images and, where the test cluster runs, give them to its nodes
	@if $(TESTBED) status >/dev/null 2>&1; then $(TESTBED) load-images; else $(TESTBED) images; fi

pins: setup  ## write the versions and hashes of requirements.txt and images/*/ anew (PINS_FLAGS="--upgrade", "--python-only")
	@$(TESTBED) packages
	@$(PY) -m tests.testbed.pins $(PINS_FLAGS)

sbom: setup  ## build the images and copy their bills of materials (CycloneDX) to build/sbom
	@$(TESTBED) packages
	@$(TESTBED) bills build/sbom

krew: setup  ## the kubectl plugin as an archive and a manifest for krew in build/krew (KREW_URI=https://… of the archive)
	@$(PY) -m tests.testbed.krew "$(KREW_URI)"

dev: setup  ## virt-api alone on loopback with an etcd of its own, and a kubeconfig for it (DEV_FLAGS="--storage=memory" needs no etcd)
	@etcd=; case "$(DEV_FLAGS)" in *memory*) ;; *) etcd="--etcd-binary=$$($(TESTBED).build etcd)" || exit 1;; esac; \
	exec $(PY) -m apiserver.server.dev $$etcd $(DEV_FLAGS)

bench-start: setup  ## how long a machine takes to start, where the time goes, what it costs; writes build/bench/start.json (BENCH_FLAGS=…)
	@test -n "$$KUBECONFIG" || $(MAKE) --no-print-directory cluster-up
	@$(TESTBED) install
	@eval "$$($(TESTBED) env)" && exec $(PY) -m benchmarks.start --kubeconfig="$$KUBECONFIG" $(BENCH_FLAGS)

bench-devices: setup  ## what each device of a machine costs in memory and time, a cloud image until it is set up, the speed of verbs and streams, and of edits of a running machine (BENCH_FLAGS="--changes-only")
	@test -n "$$KUBECONFIG" || $(MAKE) --no-print-directory cluster-up
	@test -n "$$KUBECONFIG" || $(TESTBED) load-images debian
	@$(TESTBED) install
	@eval "$$($(TESTBED) env)" && exec $(PY) -m benchmarks.devices --kubeconfig="$$KUBECONFIG" $(BENCH_FLAGS)

bench-disks: setup  ## a disk in the guest beside the same file outside: throughput and operations; writes build/bench/disks.json (BENCH_FLAGS="--rounds 5")
	@test -n "$$KUBECONFIG" || $(MAKE) --no-print-directory cluster-up
	@$(TESTBED) install
	@eval "$$($(TESTBED) env)" && exec $(PY) -m benchmarks.disks --kubeconfig="$$KUBECONFIG" $(BENCH_FLAGS)

bench-network: setup  ## a guest in the pod's network beside a container: throughput and connections; writes build/bench/network.json (BENCH_FLAGS="--ways bridge,passt")
	@test -n "$$KUBECONFIG" || $(MAKE) --no-print-directory cluster-up
	@$(TESTBED) install
	@eval "$$($(TESTBED) env)" && exec $(PY) -m benchmarks.network --kubeconfig="$$KUBECONFIG" $(BENCH_FLAGS)

bench-migrate: setup  ## live migrations of a guest that a client reaches through a Service: seconds, downtime, bytes, rate, processor time (relays apart), failed connections; writes build/bench/migrate.json (BENCH_FLAGS="--count 5")
	@test -n "$$KUBECONFIG" || $(MAKE) --no-print-directory cluster-up
	@$(TESTBED) install
	@eval "$$($(TESTBED) env)" && exec $(PY) -m benchmarks.migrate --kubeconfig="$$KUBECONFIG" $(BENCH_FLAGS)

bench-losses: setup  ## seconds from the loss of a node to its machine's restart elsewhere; writes build/bench/losses.json (BENCH_FLAGS="--evidence guardian --count 5")
	@test -n "$$KUBECONFIG" || $(MAKE) --no-print-directory cluster-up
	@$(TESTBED) install
	@eval "$$($(TESTBED) env)" && exec $(PY) -m benchmarks.losses --kubeconfig="$$KUBECONFIG" $(BENCH_FLAGS)

bench-import: setup  ## the import of an image of 1 GiB beside a plain download: seconds and memory; writes build/bench/import.json (BENCH_FLAGS="--rounds 1")
	@test -n "$$KUBECONFIG" || $(MAKE) --no-print-directory cluster-up
	@$(TESTBED) install
	@eval "$$($(TESTBED) env)" && exec $(PY) -m benchmarks.imports --kubeconfig="$$KUBECONFIG" $(BENCH_FLAGS)

bench-relays: setup  ## the bytes of live migrations from pod to pod: rate, processor time, and who waits meanwhile; writes build/bench/relays.json (BENCH_FLAGS="--mib 512")
	@exec $(PY) -m benchmarks.relays $(BENCH_FLAGS)

bench-api: setup  ## what an operation costs our API server and k8s.io/sample-apiserver, side by side (QUICK=1, OPS=get,create, BENCH_FLAGS=…)
	@exec $(PY) -m benchmarks.api.bench $(if $(QUICK),--quick) $(if $(OPS),--ops=$(OPS)) $(BENCH_FLAGS)

bench-api-aggregator: setup  ## the same through a real kube-apiserver's aggregation: what users see
	@exec $(PY) -m benchmarks.api.bench --through-aggregator $(if $(QUICK),--quick) $(if $(OPS),--ops=$(OPS)) $(BENCH_FLAGS)

bench-api-scale: setup  ## 100,000 objects, 2,000 watchers, and what growth costs (BENCH_FLAGS="--objects 10000 --watchers 500")
	@exec $(PY) -m benchmarks.api.scale $(BENCH_FLAGS)

bench-attacks: setup  ## what peers can take of virt-api before they have shown who they are; writes build/bench/attacks.json (BENCH_FLAGS="--only silent")
	@exec $(PY) -m benchmarks.attacks $(BENCH_FLAGS)

bench-scale: setup  ## the control plane with 1,000, 5,000 and 20,000 machines on simulated nodes; writes build/bench/scale.json (SIZES="1000 5000", BENCH_FLAGS=…)
	@exec $(PY) -m benchmarks.scale $(if $(SIZES),--sizes="$(SIZES)") $(BENCH_FLAGS)
