# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
export NATGRAD_DATA ?= ../shared/data

.PHONY: demo test test-all attack wheel lint format clean
.DEFAULT_GOAL := help

help: ## say what can be made
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*##/ —/'

$(STAMP): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	PIP_CONSTRAINT=constraints.txt $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

demo: $(STAMP) ## train a Helmholtz machine on embedded digits (no network)
	$(BIN)/natgrad train

test: $(STAMP) ## the fast tests: a case or two of every contract
	$(BIN)/python -m pytest -n 2 --dist loadfile

test-all: $(STAMP) ## every test: long trainings and whole grids of cases too
	$(BIN)/python -m pytest -n 2 --dist loadfile -m ''

attack: $(STAMP) ## hostile settings, arguments, files and streams, kills: what was tried, and what it broke
	$(BIN)/python -m pytest tests/test_fuzz.py tests/test_memory.py tests/hostile -m '' -k 'not other_solvers' \
	  --record benchmarks/results/attack.json
	$(BIN)/python -m benchmarks.attack

wheel: ## build a wheel, install it into an empty environment, run the README there
	rm -rf .wheel && $(PYTHON) -m venv .wheel/env
	.wheel/env/bin/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir .wheel .
	PIP_CONSTRAINT=constraints.txt .wheel/env/bin/python -m pip install --quiet --disable-pip-version-check \
	  "$$(echo .wheel/natgrad-*.whl)[tb,sweep]" pytest pytest-timeout
	.wheel/env/bin/python -m pytest --override-ini pythonpath=tests -m '' tests/test_documentation.py -k README

lint: $(STAMP) ## ruff, mypy and the import contract
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(STAMP) ## let ruff rewrite what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## remove the environment and every cache
	rm -rf $(VENV) .wheel .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
