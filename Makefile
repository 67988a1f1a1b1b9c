# Every target does all its own set-up in .venv: a fresh clone needs Python 3.11+, make and a package index.
.PHONY: demo test check docs clean

# the first of these that is new enough; name another with make PYTHON=...
NEW_ENOUGH := -c 'import sys; sys.exit(sys.version_info < (3, 11))'
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p $(NEW_ENOUGH) 2>/dev/null && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
JOBS ?= auto
RUNTIME := $(VENV)/.runtime
ALL := $(VENV)/.all

demo: $(RUNTIME)
	$(BIN)/ioweave derive attention --machine h100 --figure attention.svg
	@echo "The figure is attention.svg."

test: $(ALL)
	$(BIN)/python -m pytest -n $(JOBS)

check: $(ALL)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict ioweave

docs: $(ALL)
	$(BIN)/mkdocs build --strict

clean:
	rm -rf $(VENV) site build dist attention.svg .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(BIN)/python:
	@test -n "$(PYTHON)" && $(PYTHON) $(NEW_ENOUGH) \
		|| { echo "Python 3.11 or newer is needed; name one: make PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(RUNTIME): pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable .
	$(BIN)/python -m compileall -q ioweave  # compiled once here, where the environment may keep Python from doing so
	@touch $@

$(ALL): pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[dev,docs]'
	$(BIN)/python -m compileall -q ioweave
	@touch $@ $(RUNTIME)
