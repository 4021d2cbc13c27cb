PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/installed
export OMP_NUM_THREADS ?= 1

.PHONY: help setup demo test check format compile clean

help: ## what the targets do
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(STAMP) ## makes .venv with everything in it (once)

# torch first and pinned: PyPI's default torch is a CUDA build of several GB, which no laptop demo needs.
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -qq --upgrade 'pip>=25'
	$(BIN)/python -m pip install -qq -c constraints.txt -e '.[train,pipelines,dev]'
	@touch $@

demo: $(STAMP) ## the whole pipeline on the nano model, in a few minutes
	$(BIN)/microcoder pipeline run --local --preset nano --out build/demo $(if $(RESUME),--resume)

test: $(STAMP) ## the default tests
	$(BIN)/python -m pytest -n 2

check: $(STAMP) ## format, lint, types, import directions, compiled pipelines
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/microcoder pipeline compile --check

format: $(STAMP) ## ruff format and fix
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

compile: $(STAMP) ## writes pipelines/compiled
	$(BIN)/microcoder pipeline compile

clean: ## removes build outputs (not .venv)
	rm -rf build
