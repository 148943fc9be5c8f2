# Holdfast: one command per habit. `make help` lists them.
# Needs Python 3.11 to 3.13, make and the network; everything else is set up in .venv.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.SUFFIXES:

VENV := .venv
BIN := $(VENV)/bin
UV := $(BIN)/uv --quiet
STAMPS := $(VENV)/.stamps
has_python = $(if $(shell find $(1) -name '*.py' 2>/dev/null | head -n 1),$(1))
CODE = $(foreach folder,state_lib plugins jobs dags benchmarks docker docs tests,$(call has_python,$(folder)))
# An activated environment of somebody else must not leak into ours.
unexport VIRTUAL_ENV PYTHONHOME PYTHONPATH
# Without its caches every process would compile all that it imports: 3 s of CPU a host, 12 s Airflow.
unexport PYTHONDONTWRITEBYTECODE
export PATH := $(CURDIR)/$(BIN):$(PATH)

.PHONY: help
help: ## List these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  \033[1m%-16s\033[0m %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: setup
setup: $(STAMPS)/runtime ## Everything that the others need: environment, JVM artifacts, Java
	@:

# A Python that fits, a fresh environment, and uv in it at the version and hash of the lock.
$(STAMPS)/venv: .ci/venv.sh
	@.ci/venv.sh $(VENV)
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/packages: requirements.lock $(STAMPS)/venv
	@echo "setup: Python packages"
	@UV_LINK_MODE=$$($(BIN)/python .ci/link_mode.py $(BIN)/uv $(VENV)) \
	  $(UV) pip sync --python $(BIN)/python --require-hashes requirements.lock
	@touch $@

# --no-build-isolation: hatchling comes from the lock, so that nothing unhashed is downloaded.
# The project itself is not in the lock: `uv pip sync` removes it and this brings it back.
$(STAMPS)/project: pyproject.toml $(STAMPS)/packages
	@$(UV) pip install --python $(BIN)/python --no-deps --no-build-isolation --editable .
	@touch $@

$(STAMPS)/runtime: jars.lock $(STAMPS)/project
	@$(BIN)/python -m state_lib.stack
	@$(BIN)/python -m state_lib.stack registry
	@touch $@

.PHONY: lock
lock: $(STAMPS)/venv ## Resolve requirements.lock anew from pyproject.toml
	$(UV) pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	  --custom-compile-command "make lock" --extra dev pyproject.toml --output-file requirements.lock

.PHONY: lint
lint: setup ## Style and layers: ruff, import-linter
	@ruff check .ci $(CODE)
	@ruff format --check --quiet .ci $(CODE) || { echo "run 'make format'"; exit 1; }
	@PYTHONPATH=plugins lint-imports --no-logo 2>/dev/null || PYTHONPATH=plugins lint-imports

.PHONY: format
format: setup ## Let ruff format and fix what it can
	@ruff check --fix --quiet .ci $(CODE) || true
	@ruff format .ci $(CODE)

.PHONY: types
types: setup ## mypy, strict
	@mypy $(CODE)

# Each stage is a process of its own, in a place of its own: .ci/stages.toml and .ci/gate.py.
STAGES := $(shell sed -n 's/^\[\(.*\)\]$$/\1/p' .ci/stages.toml)

.PHONY: test
test: lint types ## Lint, types and the tests of a quarter of an hour
	@python .ci/gate.py --quick

.PHONY: test-full
test-full: setup ## The others, and the slow proofs: kills, full disks, real Airflow; at most 45 minutes
	@python .ci/gate.py --full

# What those two have no time for. CI runs IN_CI of them: it has a little more.
IN_CI := values
.PHONY: test-longest
test-longest: setup ## What is left: values, whole streams, long outages, the demo, ten minutes of soak
	@python .ci/gate.py $(IN_CI) streams airflow-long chaos-long tutorial soak

.PHONY: $(STAGES:%=test-%)
$(STAGES:%=test-%): test-%: setup ## (test-unit, test-kafka, …) One stage of the three above
	@python .ci/gate.py $*

.PHONY: ci
ci: setup ## What CI runs: all but the longest, and what failed last of all
	@$(MAKE) --no-print-directory lint types; red=$$?; \
	  python .ci/gate.py --quick --full $(IN_CI) && exit $$red

.PHONY: test-long
test-long: setup ## Benchmarks at a small scale, what needs a quiet machine
	@pytest -q -m "long and not quarantine" tests

.PHONY: test-quarantine
test-quarantine: setup ## The unstable tests that CI leaves out
	@pytest -q -m quarantine tests || [ $$? = 5 ]  # 5: there are none

MINUTES ?= 10
SEED ?= $(shell date +%s)
.PHONY: soak
soak: setup ## All DAGs on short schedules, everything killed at random: MINUTES=10 SEED=…
	@HOLDFAST_SOAK_S=$$((60 * $(MINUTES))) HOLDFAST_SOAK_SEED=$(SEED) \
	  pytest -q -s -m full tests/chaos/test_airflow_soak.py

.PHONY: chaos
chaos: setup ## Kills at random instants, audited: MINUTES=10 SEED=…
	@echo "chaos: MINUTES=$(MINUTES) SEED=$(SEED)"
	@CHAOS_SECONDS=$$((60 * $(MINUTES))) CHAOS_SEED=$(SEED) \
	  pytest -q -m full tests/chaos/test_outages.py -k random

.PHONY: bench
bench: setup ## Beside Kafka Streams, two hours; ARGS="--only count-zipf --write" (--help: all)
	@python -m benchmarks $(ARGS)

.PHONY: docs
docs: setup ## The documentation as a site, in build/docs/site
	@python -m docs.generate build/docs/pages
	@zensical build --strict --clean

.PHONY: demo
demo: setup ## Airflow runs real flights through Spark into exactly-once state
	@holdfast demo

.PHONY: up
up: setup ## Start the local stack: Kafka, two state hosts, Airflow
	@holdfast up

.PHONY: down
down: setup ## End the local stack; its data stays
	@holdfast down

.PHONY: status
status: setup ## What runs, and how it is
	@holdfast status

.PHONY: logs
logs: setup ## The last lines of every log of the stack
	@holdfast logs

.PHONY: clean
clean: ## End the stack; remove the environment, caches and all local state
	@if [ -x $(BIN)/holdfast ]; then $(BIN)/holdfast down --wipe; fi
	rm -rf $(VENV) .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist build
	find . -name __pycache__ -not -path './.git/*' -prune -exec rm -rf {} +
