# Two commands do all the set-up: `make run` and `make test`.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
NODE_MODULES := tests/clients/node/node_modules
SOURCES := $(shell find src -name '*.py' -o -name '*.pyx' -o -name '*.pxd')

.PHONY: setup run test lint bench clean

setup: $(VENV)/built

run: $(VENV)/built
	$(BIN)/warren serve

test: lint $(NODE_MODULES)/.ready
	$(BIN)/python -m pytest

lint: $(VENV)/built
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/built
	$(BIN)/python benchmarks/compare.py

# The virtual environment with everything from PyPI, then the compiled parts, again when a source changes.
$(VENV)/installed: pyproject.toml
	@PYTHON="$(PYTHON)" ./scripts/need python
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@ && touch $(VENV)/built

$(VENV)/built: $(VENV)/installed setup.py $(SOURCES)
	$(BIN)/python setup.py --quiet build_ext --inplace
	@touch $@

$(NODE_MODULES)/.ready: tests/clients/node/package.json
	@./scripts/need node
	npm install --no-audit --no-fund --loglevel=error --prefix tests/clients/node
	@touch $@

clean:
	rm -rf $(VENV) build $(NODE_MODULES)
	find src -name '*.so' -delete
	find src -name '*.c' -delete
