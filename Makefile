.DEFAULT_GOAL := help
.PHONY: help setup run test test-fast test-races check lint types imports migrations docs \
        proof-clone local-model db-reset lock

PY := .venv/bin/python
APPS := hermes sessions_app compression_app processes_app
# Checks need settings, not the data of the installation beside them.
AWAY := HERMES_VAR=build/var
CHROMIUM := $(or $(HERMES_TEST_CHROMIUM),$(shell command -v chromium || command -v chromium-browser))
MARKS := $(if $(CHROMIUM),,-m "not browser")
ARGS ?=
# Two at a time: one works off what starts processes, the other what only computes.
BESIDE ?= -n 2
HIDDEN := ^
# Every process would compile the project anew.
unexport PYTHONDONTWRITEBYTECODE

help: ## Show these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' Makefile \
	  | grep -vE '^  make ($(HIDDEN))'

setup: ## Make .venv and install everything for working on Hermes
	@requirements/install dev

run: ## Start everything; prints the address and the login
	@requirements/install runtime
	@exec $(PY) manage.py up

test: setup ## The whole suite that needs no system package (ARGS="…" for pytest)
	@$(if $(CHROMIUM),,echo "No chromium on this machine: the browser tests are left out.")
	@$(PY) -m pytest $(BESIDE) $(MARKS) $(ARGS)
	@$(if $(CHROMIUM),,echo "No chromium on this machine: the browser tests were left out.")

test-fast: setup ## Only tests without browser, whole processes, races and faults
	@$(PY) -m pytest -m "not browser and not process and not race and not fault" $(ARGS)

test-races: setup ## Only the races and faults
	@$(PY) -m pytest -m "race or fault" $(ARGS)

check: lint types imports migrations docs test ## All that must be green before a merge

lint: setup ## ruff: rules and format
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .

types: setup ## mypy, strict
	@$(AWAY) $(PY) -m mypy $(APPS)

imports: setup ## Who may import whom
	@$(AWAY) .venv/bin/lint-imports

migrations: setup ## No model without its migration
	@$(AWAY) DATABASE_URL= REDIS_URL= $(PY) manage.py makemigrations --check --dry-run

docs: setup ## Documentation against code
	@$(PY) -m pytest -q tests/contracts

proof-clone: ## Clone afresh, run twice, test: as root (if we are) and as an ordinary user
	@python3 .ci/proof-clone

local-model: ## Install the optional small model, start it and register it (Ctrl-C stops it)
	@requirements/install runtime
	@requirements/install local-model
	@exec $(PY) manage.py local_model

db-reset: ## Delete the embedded database and broker (asks first)
	@requirements/install runtime
	@$(PY) manage.py reset_data

lock: ## Resolve the lock files anew from the *.in files
	@requirements/resolve

ifneq ($(wildcard tests/benchmarks/__main__.py),)
.PHONY: bench
bench: setup ## Ratios against a bare model stream and across sizes
	@$(PY) -m tests.benchmarks $(ARGS)
else
HIDDEN := $(HIDDEN)|bench
endif
ifneq ($(wildcard tests/prove.py),)
.PHONY: prove
prove: setup ## The full sizes; prints one table
	@$(PY) -m tests.prove $(ARGS)
else
HIDDEN := $(HIDDEN)|prove
endif
ifneq ($(wildcard static/vendor/fetch),)
.PHONY: vendor
vendor: ## Fetch the pinned browser libraries again
	@static/vendor/fetch
else
HIDDEN := $(HIDDEN)|vendor
endif
ifneq ($(wildcard hermes/management/commands/demo.py),)
.PHONY: demo
demo: ## Add sample data to the running installation
	@HERMES_LOG_LEVEL=$${HERMES_LOG_LEVEL:-WARNING} $(PY) manage.py demo
else
HIDDEN := $(HIDDEN)|demo
endif
