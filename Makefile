# cronstream: every command of the checkout. `make` alone prints this list.

PYTHON ?= python3.11
# The environment's own python: what `make install` makes.
VENV := .venv/bin/python
# More for pytest: make test PYTEST="-k wheel -x"
PYTEST ?=
# Of make faults: how long, and what makes the same run again.
MINUTES ?=
SEED ?=

.DEFAULT_GOAL := help
.PHONY: help install demo test test-long check lint format up down status bench bench-full faults

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: ## install what is missing on this machine, nothing twice
	@$(PYTHON) -m stack install

demo: install ## set everything up, run the main job for a minute and audit it (5 minutes the first time, then 2)
	@$(VENV) -m demo

test: install ## set everything up and run the whole test suite (more for pytest: PYTEST="-k name -x")
	@$(VENV) -m pytest tests $(PYTEST)

test-long: install ## the exhaustive runs that the usual suite samples (minutes)
	@$(VENV) -m pytest tests -m long $(PYTEST)

faults: install ## a workload under faults, every promise judged: a short set, or MINUTES=60 SEED=7 for a long one
	@$(VENV) -m tests.faults $(if $(MINUTES),--minutes $(MINUTES)) $(if $(SEED),--seed $(SEED))

check: install lint ## the fast part: lint, types, import contracts, unit and property tests
	@$(VENV) -m pytest tests/unit tests/properties -n auto --dist worksteal $(PYTEST)

lint: install ## ruff, mypy --strict, import contracts
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check .
	@.venv/bin/mypy
	@.venv/bin/lint-imports

format: install ## let ruff rewrite what it can
	@.venv/bin/ruff check --fix .
	@.venv/bin/ruff format .

up: install ## start servers and processes, with .local/settings; prints where they are and writes it to .local/env
	@$(PYTHON) -m stack up --all

down: ## stop them; leaves nothing running (the data stays: python3.11 -m stack down --wipe)
	@$(PYTHON) -m stack down

status: ## what runs, where, and how large it is; fails unless all of it runs
	@$(PYTHON) -m stack status

bench: install ## measure every claim in under 15 minutes; .local/bench/report.json
	@$(VENV) -m benchmarks --fresh --within 880

bench-full: install ## ten million jobs, ten minutes of steady state, every peer and size; an hour and more
	@$(VENV) -m benchmarks --full
