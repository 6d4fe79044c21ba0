# Everything a developer does here, from a fresh clone: `make help`.
#
# Each step leaves a stamp, so that a second run starts in seconds. Nothing is installed
# outside this folder, except OpenBLAS and programs that the tests run on Debian (see
# openblas.sh and testtools.sh in etc/dev).

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
.PHONY: help demo test lint format generate wheel clean

OS := $(shell uname -s)

# The backend of mlx: cpu or cuda on Linux; on macOS mlx brings Metal by itself. The two
# may never meet in one environment, so each has its own.
BACKEND ?= cpu
ifeq ($(OS),Darwin)
  override BACKEND := metal
  EXTRA :=
else
  EXTRA := $(BACKEND)
endif
comma := ,
VENV ?= .venv$(if $(filter cuda,$(BACKEND)),-cuda)
BIN := $(VENV)/bin
MODEL := .demo/SmolLM2-135M-Instruct.Q4_1.gguf

# Flags for the daemon, and for pytest: `make demo ARGS="-c 8192 --parallel 4"`,
# `make test ARGS="tests/test_plan.py -x"`.
ARGS ?=

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "make %-10s %s\n", $$1, $$2}' Makefile

demo: $(VENV)/ready-$(BACKEND) $(MODEL) ## Serve a real model on 127.0.0.1:8080 (ARGS="...": flags)
	@$(if $(filter cpu,$(BACKEND)),etc/dev/openblas.sh)
	@exec etc/dev/demo.sh $(BIN) $(ARGS)

test: lint $(MODEL) ## Run the linters and all tests (ARGS="...": for pytest)
	@$(if $(filter cpu,$(BACKEND)),etc/dev/openblas.sh)
	@etc/dev/testtools.sh
	$(BIN)/python -m pytest $(ARGS)

lint: $(VENV)/ready-test-$(BACKEND) ## Check style, types and generated files
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m mlxceld.generate --check

format: $(VENV)/ready-test-$(BACKEND) ## Format the code and order the imports
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

generate: $(VENV)/ready-test-$(BACKEND) ## Write the files that come from the option table
	$(BIN)/python -m mlxceld.generate

wheel: $(VENV)/python ## Build the wheel into dist/
	$(BIN)/python -m pip wheel --no-deps --wheel-dir dist .

clean: ## Remove everything that make made
	rm -rf .venv .venv-cuda .demo build dist *.egg-info
	rm -rf .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/python:
	@etc/dev/venv.sh $(VENV)
	@touch $@

$(VENV)/ready-$(BACKEND): pyproject.toml $(VENV)/python
	@echo "Installing mlxceld and what it needs (a few minutes the first time)"
	$(BIN)/python -m pip install --editable '.$(if $(EXTRA),[$(EXTRA)])'
	@touch $@

$(VENV)/ready-test-$(BACKEND): pyproject.toml $(VENV)/python
	@echo "Installing mlxceld and what its tests need (a few minutes the first time)"
	$(BIN)/python -m pip install --quiet --editable '.[$(if $(EXTRA),$(EXTRA)$(comma))test]'
	@touch $@ $(VENV)/ready-$(BACKEND)

$(MODEL): | $(VENV)/python
	@echo "Fetching the demo model, SmolLM2-135M-Instruct (93 MB)"
	@$(BIN)/python etc/dev/weights.py $@
