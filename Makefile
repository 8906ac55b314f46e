# Every target works in a fresh clone, without another one run before it.
# `make help` lists them.

.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-print-directory

# uv keeps the environment. Where it is missing, or is a shim that fails here, the
# project gets a private one in .uv, and that one keeps its Pythons in there too.
UV := $(shell uv --version >/dev/null 2>&1 && echo uv || echo "$(CURDIR)/.uv/bin/uv")
ifneq ($(UV),uv)
export UV_PYTHON_INSTALL_DIR := $(CURDIR)/.uv/python
endif
LAB := "$(UV)" run --frozen --quiet python -m dask_cluster_lab
# Strict: every warning is an error, and a name that leads nowhere is a warning.
DOCS := "$(UV)" run --frozen --quiet --group docs sphinx-build -q -E -W -n \
	--keep-going -d docs/_build/doctrees docs docs/_build/html

PYTEST := "$(UV)" run --frozen --group docs --group monitoring pytest

# `make up PROFILE=storage` is Compose's own variable under a shorter name.
ifdef PROFILE
export COMPOSE_PROFILES := $(PROFILE)
endif

.PHONY: help list run run-all up wait ps logs scale restart down dashboard capture \
	readme dashboards docs docs-serve docs-offline lint format test test-compose soak \
	bench ci clean uv python-path

help: ## Show the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1|\2/' \
		| while IFS='|' read -r target text; do printf '%-22s %s\n' "$$target" "$$text"; done
	@echo "Lessons: make list. Everything else: README.md."

uv:
ifneq ($(UV),uv)
	@test -x "$(UV)" || { \
		echo "uv is missing; putting one into .uv (once)" >&2; \
		(cd / && python3 -m venv "$(CURDIR)/.uv") >/dev/null 2>&1 \
			&& "$(CURDIR)/.uv/bin/python" -m pip install --quiet --disable-pip-version-check uv \
			|| { rm -rf .uv; echo "error: cannot install uv; install python3 with its venv module (Debian: python3-venv), or uv itself." >&2; exit 2; }; }
endif

list: uv ## List the lessons
	@$(LAB) list

run: uv ## Run one lesson: make run EXAMPLE=0101_connect
	@$(LAB) run -- "$${EXAMPLE-}"

run-all: uv ## Run all lessons in order (KEEP_GOING=1: past failures)
	@$(LAB) run-all

up: uv ## Start the cluster: a scheduler and three workers
	@$(LAB) up

wait: uv ## Wait until all workers are registered and reachable
	@$(LAB) wait

ps: uv ## Show the containers
	@$(LAB) ps

logs: uv ## Show what scheduler and workers wrote
	@$(LAB) logs

scale: uv ## Change the number of workers: make scale N=5
	@$(LAB) scale -- "$${N-}"

restart: uv ## Restart all containers
	@$(LAB) restart

down: uv ## Stop the cluster and remove its containers and its volume
	@$(LAB) down

dashboard: uv ## Print the dashboard's address and open it
	@$(LAB) dashboard

capture: uv ## Run lessons in both kinds of session, write transcripts
	@"$(UV)" sync --frozen --quiet --project monitoring/dagster
	@COMPOSE_PROFILES=storage,monitoring,orchestrator $(LAB) up
	@$(LAB) capture

readme: uv ## Write the README's table of lessons from their docstrings
	@$(LAB) readme

dashboards: uv ## Write Grafana's dashboards from their code
	@"$(UV)" run --frozen --quiet --group monitoring \
		python monitoring/grafana/dashboards.py

docs: uv ## Build the documentation site, into docs/_build/html
	@$(DOCS)
	@echo "docs/_build/html/index.html"

docs-serve: docs ## Build the site and serve it at http://127.0.0.1:8000
	@"$(UV)" run --frozen --quiet python -m http.server 8000 --bind 127.0.0.1 \
		--directory docs/_build/html

docs-offline: docs ## Build the site and zip it for reading without a network
	@cd docs/_build && rm -f dask-cluster-lab-docs.zip && \
		"$(UV)" run --frozen --quiet python -m zipfile -c dask-cluster-lab-docs.zip html
	@echo "docs/_build/dask-cluster-lab-docs.zip"

lint: uv ## Check format, style, types and the lockfiles
	"$(UV)" lock --check
	"$(UV)" lock --check --project monitoring/dagster
	"$(UV)" run --frozen ruff format --check
	"$(UV)" run --frozen ruff check
	"$(UV)" run --frozen --group docs --group monitoring mypy

format: uv ## Put the code into its standard form
	"$(UV)" run --frozen ruff format
	"$(UV)" run --frozen ruff check --fix

# What uses containers in turn, and the rest beside it, shown when that has ended.
test: uv ## Run all tests that this machine allows
	@status=0; rest=$$(mktemp); \
	$(PYTEST) -m "not compose" >"$$rest" 2>&1 & \
	trap "kill $$! 2>/dev/null || true; rm -f $$rest" EXIT; \
	$(PYTEST) -m compose || status=$$?; \
	wait $$! || status=$$?; \
	cat "$$rest"; exit $$status

test-compose: uv ## Run only the tests on a Compose cluster
	@$(PYTEST) -m compose

soak: uv ## Run a lesson 20 times on busy cores: make soak EXAMPLE=0202
	@$(LAB) soak -- "$${EXAMPLE-}"

bench: uv ## Measure the project's own costs, into reports/
	@$(LAB) bench

ci: lint ## The whole gate: lint, types, all tests, none left out
	@LAB_REQUIRE_ALL=1 $(MAKE) test

python-path: uv
	@"$(UV)" run --frozen --quiet python -c 'import sys; print(sys.executable)'

clean: ## Remove what was installed or generated in this folder
	rm -rf .venv .uv .mypy_cache .pytest_cache .ruff_cache dist docs/_build monitoring/dagster/.venv
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
	find reports -mindepth 1 ! -name README.md -delete
