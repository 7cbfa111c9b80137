# `make demo` and `make test` are all a newcomer needs: on a fresh Debian 12 they install what is missing
# (as root, else they say what to install), make .venv and run. A second run finds everything done.

PYTHON ?= python3
BIN := .venv/bin
export PYTHON

.PHONY: demo test check bench fuzz faults soak clean

demo: .venv/ready-to-run
	$(BIN)/python -m tests.demo.demo $(ARGS)

test: .venv/ready-to-test
	$(BIN)/python -m pytest -n auto --maxprocesses 4 --dist loadfile $(ARGS)

check: .venv/ready-to-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict
	$(BIN)/lint-imports

# For example: make bench ARGS="--only save,latency --runs 3"; with ARGS=--docs the tables and the plot in docs/ are replaced.
bench: .venv/ready-to-test
	$(BIN)/python -m tests.bench.bench $(ARGS)

fuzz: .venv/ready-to-test
	$(BIN)/python -m tests.property.fuzz $(ARGS)

# For example: make faults ARGS="save gc --every 5"
faults: .venv/ready-to-test
	$(BIN)/python -m tests.faults.sweep $(ARGS)

# For example: make soak ARGS="--minutes 25"
soak: .venv/ready-to-test
	$(BIN)/python -m tests.longrun $(ARGS)

# What is installed: the program alone, or all that the tests need too.
.venv/ready-to-run: pyproject.toml .ci/setup
	.ci/setup .
	@touch $@

.venv/ready-to-test: pyproject.toml .ci/setup
	.ci/setup '.[dev,e2e]'
	@touch $@ .venv/ready-to-run

clean:
	rm -rf .venv build dist bench-results .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
