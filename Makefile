# Two commands do all the set-up: `make run` and `make test`.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
NODE_MODULES := tests/clients/node/node_modules
SOURCES := $(shell find src -name '*.py' -o -name '*.pyx' -o -name '*.pxd')

# Tests are compiled once and not in every run, whatever the caller's environment says.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup equip run cluster test quick lint bench wheel clean

setup: $(VENV)/built equip

run: $(VENV)/built
	$(BIN)/warren serve

# Three brokers and an etcd on this machine, which can be killed and started again
cluster: $(VENV)/built
	$(BIN)/warren cluster demo

test: lint $(NODE_MODULES)/.ready
	@./scripts/need peers
	@./scripts/test $(BIN)/python

# Tests that need no Spark, no Node, no long load, and no broker with its HTTP API for each of them
quick: equip
	$(BIN)/python -m pytest -q -m "not slow" --numprocesses 2 --dist worksteal tests/unit tests/semantics tests/property \
		--ignore=tests/unit/management --ignore=tests/unit/moving --ignore=tests/unit/relay

lint: equip
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: equip
	$(BIN)/python benchmarks/compare.py

# A wheel in dist/, with the compiled modules in it
wheel: $(VENV)/built
	$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .

equip: $(VENV)/built
	@./scripts/equip $(VENV)

$(VENV)/built: pyproject.toml setup.py $(SOURCES)
	@PYTHON="$(PYTHON)" ./scripts/build $(VENV)

$(NODE_MODULES)/.ready: tests/clients/node/package.json
	@./scripts/need node
	npm install --no-audit --no-fund --loglevel=error --prefix tests/clients/node
	@touch $@

clean:
	rm -rf $(VENV) build dist $(NODE_MODULES)
	find src -name '*.so' -delete
	find src -name '*.c' -delete
