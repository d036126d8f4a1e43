# Every command a person needs. `make` alone lists them.
PYTHON ?= python3.11
VENV   ?= .venv
BIN    := $(VENV)/bin
export HF_HUB_OFFLINE = 1

.DEFAULT_GOAL := help
.PHONY: help install demo demo-check up test check format bench migrate docs clean

help: ## list the commands
	@grep -hE '^[a-z-]+:.*?## ' $(MAKEFILE_LIST) | sed -E 's/:.*?## /\t/' | expand -t 14

install: $(VENV)/.installed ## make a virtual environment with everything in it

$(VENV)/.installed: pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) was not found; install Python 3.11 or newer, or say PYTHON=/path/to/python"; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$(PYTHON) is $$($(PYTHON) -V); rlvitals needs Python 3.11 or newer"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@$(BIN)/python -m dashboards.bundle
	@touch $@

demo: install ## train a policy into a collapse and watch it: collector, worker, dashboards, trainer
	$(BIN)/vitals demo

demo-check: install ## the demo without a person: exits 0 with a one-line JSON summary
	$(BIN)/vitals demo --check

up: install ## collector, worker and dashboards on an embedded Postgres
	$(BIN)/vitals up

test: check ## everything: checks, unit, Postgres, processes, Chromium
	$(BIN)/python -m pytest tests/integration tests/slim tests/frameworks -n 2
	$(BIN)/python -m pytest tests/browser
	$(BIN)/python -m pytest tests/e2e

check: install ## format, lint, types, imports, unit tests; needs no Postgres
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest tests/unit -q -n 2

format: install ## rewrite the sources in the house format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: install ## the speed and judgement figures, one after the other, on a quiet machine (about ten minutes)
	for bench in slim sdk_log sdk_faults instruments ingest detect_speed trainer_overhead; do $(BIN)/python -m bench.$$bench || exit 1; done

migrate: install ## bring the database named by VITALS_DATABASE_URL (or the embedded one) up to date
	$(BIN)/vitals migrate

clean: ## remove the virtual environment and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache build *.egg-info

docs: install ## write the generated references again
	$(BIN)/python -m docs.generate
