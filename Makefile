# Every command sets up what it needs: on a fresh machine `make demo` or `make test` is all there is to type.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
TORCH  := $(VENV)/.torch
PYTEST := $(BIN)/python -m pytest
SOURCES := src tests scripts benchmarks examples

# Images of containers often set this. Then every process compiles everything that it imports, and runs here are of many
# processes.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help setup demo demo-kill test test-ci test-lowest check format bench figures clean

help: ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "make %-12s %s\n", $$1, $$2}'

setup: $(STAMP) ## create .venv and install SCAR in it (the other commands do this by themselves)

# Done once, and again when pyproject.toml changes. Without --no-compile it takes twice as long: Python compiles what it
# imports, and that is a small part of what is installed.
$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "SCAR needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) -V 2>&1). Try: make PYTHON=python3.11 $(MAKECMDGOALS)" >&2; exit 1; }
	@echo "Installing SCAR and its dependencies into $(VENV) (about a minute, once) ..." >&2
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -qq --no-compile --disable-pip-version-check --no-input -e '.[test,check]'
	@touch $@

demo: setup ## train on real data, lose half of the servers, go on
	@$(BIN)/scarml demo

demo-kill: setup ## the same with real processes, two of which get kill -9; you may kill one too (needs Ray, installed here)
	@$(BIN)/python -c 'import ray' 2>/dev/null || \
	    { echo "Installing Ray into $(VENV) (once) ..." >&2; \
	      $(BIN)/python -m pip install -qq --no-compile --disable-pip-version-check --no-input -e '.[ray]'; }
	@$(BIN)/scarml demo-kill $(ARGS)

test: setup ## the fast tests (a minute or two)
	$(PYTEST) -q -n 2 $(ARGS)

# The build without GPUs: 190 MB to load instead of gigabytes. Where its page cannot be reached, pip takes what it finds.
$(TORCH): $(STAMP)
	@echo "Installing PyTorch into $(VENV) (190 MB to load, 750 MB on disk, once) ..." >&2
	@$(BIN)/python -m pip install -qq --no-compile --disable-pip-version-check --no-input --retries 1 --no-deps \
	    --find-links https://download.pytorch.org/whl/cpu/torch/ 'torch==2.13.0'
	@$(BIN)/python -m pip install -qq --no-compile --disable-pip-version-check --no-input -e '.[test-ci]'
	@touch $@

# The second line: the fast tests that `make test` skips where there is no PyTorch.
TORCH_TESTS := tests/unit/models/test_cnn.py tests/unit/models/test_tiny_transformer_example.py

test-ci: setup $(TORCH) ## the tests that are too long for every change (minutes); installs PyTorch and more
	$(PYTEST) -q -m "ci and not soak" -n 2 --dist loadgroup --timeout 900 -o faulthandler_timeout=850 $(ARGS)
	$(if $(ARGS),,$(PYTEST) -q $(TORCH_TESTS))

test-lowest: ## the fast tests on the lowest versions that pyproject.toml allows
	@rm -rf $(VENV)-lowest && $(PYTHON) -m venv $(VENV)-lowest
	@$(PYTHON) scripts/lowest_versions.py > $(VENV)-lowest/constraints.txt
	@$(VENV)-lowest/bin/python -m pip install -qq --disable-pip-version-check -c $(VENV)-lowest/constraints.txt -e '.[test]'
	$(VENV)-lowest/bin/python -m pytest $(ARGS)

check: setup ## style, format, types, import rules, docs
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python scripts/check_docs.py

format: setup ## format, and fix what can be fixed without thinking
	$(BIN)/ruff format $(SOURCES)
	$(BIN)/ruff check --fix $(SOURCES)

bench: setup ## the benchmarks, each a ratio against a named reference
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --no-input -e '.[bench]'
	@$(BIN)/python benchmarks/run_all.py $(ARGS)

figures: setup ## run the trials that the figures of docs/ lack (days: ARGS="--panel mlr-mnist" runs a part), and draw them
	$(BIN)/scarml figure all --out docs/results --pictures docs/img $(ARGS)

clean: ## remove what the commands above have made
	rm -rf $(VENV) $(VENV)-lowest build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
