# make test   everything CI runs: lint, import direction, types, tests, doctests and examples;
#             it ends with the tests that were skipped, and why
# make demo   the main job on data made on the spot
# make docs   the documentation site, in site/
# make test-gpu    the same tests on a machine with a GPU, in 14 processes
# make notebooks   runs the tutorials and stores their outputs
# They create .venv first, from PyPI alone.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

.PHONY: test test-gpu lint types unit docs notebooks demo format clean

test: lint types docs unit

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	touch $@

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo

types: $(READY)
	$(BIN)/mypy

unit: $(READY)
	$(BIN)/python -m pytest -n 2 -rs tests src --doctest-modules

test-gpu: $(READY)
	$(BIN)/python -m pytest -n 14 -rs tests src --doctest-modules

docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

notebooks: $(READY)
	$(BIN)/python docs/run_notebooks.py

demo: $(READY)
	$(BIN)/halftruth demo --overwrite

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) build dist site .pytest_cache .mypy_cache .ruff_cache
