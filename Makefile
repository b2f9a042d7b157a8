# Two commands do everything on a machine with Python 3.11+ and make: `make demo` and `make test`.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
# `make test DATABASE=postgresql://…` runs the store's tests against a server instead of the embedded one.
DATABASE ?=
TESTS    ?= tests
WORKERS  ?= 3
PYTEST    = $(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder

# The tests start hundreds of processes, and each starts sooner from compiled modules.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-fast check format soak bench clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## /  make \1|/' | column -t -s '|' 2>/dev/null \
	  || grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST)

setup: $(READY) ## Make .venv with everything Crossdock needs

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; ok = (3, 11) <= sys.version_info[:2] <= (3, 13); sys.exit(None if ok else "Crossdock needs Python 3.11 to 3.13, and $(PYTHON) is " + sys.version.split()[0] + ". Try: make setup PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $(READY)

demo: $(READY) ## Route a few thousand orders, look after them, and show what went where
	@$(BIN)/crossdock demo

# What fails beside others is run once more, alone. If it passes then, it is named above, and is to be mended all the same.
test: $(READY) ## Run the whole test suite
	CROSSDOCK_TEST_DATABASE='$(DATABASE)' $(PYTEST) $(TESTS) || { test $$? -eq 1 && \
	  echo 'Once more, alone, what has failed:' && \
	  CROSSDOCK_TEST_DATABASE='$(DATABASE)' $(BIN)/python -m pytest --last-failed --last-failed-no-failures none $(TESTS); }

test-fast: $(READY) ## Run what starts no processes and takes no long time, with fewer drawn examples: two minutes
	CROSSDOCK_FAST=1 $(PYTEST) -m 'not process and not slow' --ignore tests/process $(TESTS)

check: $(READY) ## Lint, check types and check the import contract
	$(BIN)/ruff check src tests examples
	$(BIN)/ruff format --check src tests examples
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY) ## Let ruff format the code
	$(BIN)/ruff check --fix src tests examples
	$(BIN)/ruff format src tests examples

soak: $(READY) ## Run the same scenarios at full size (by hand; takes long)
	CROSSDOCK_SOAK=1 CROSSDOCK_TEST_DATABASE='$(DATABASE)' $(BIN)/python -m pytest $(TESTS) --timeout 3600

bench: $(READY) ## Measure matching at 10,000, 100,000 and 1,000,000 subscriptions
	for subscriptions in 10000 100000 1000000; do $(BIN)/crossdock bench matching --subscriptions $$subscriptions -o json; done

clean: ## Remove .venv and everything the demo made
	rm -rf $(VENV) .demo .crossdock
