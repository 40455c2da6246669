# make install   creates .venv with all requirements of the commands and `import bert`
# make install-tpu  the same with TensorFlow for Cloud TPUs
# make install-dev  the same with the requirements of the tests
# make test      runs formatting checks, lint, types and the tests
# make test-all  runs the same and the slow proofs
# make proofs DATA=... compares results on public data with the official ones
# make docs-test runs the commands of the README and of docs/, and the notebook
# make matrix FOLDER=... runs fast tests with other versions of Python, TensorFlow and Keras
# make demo      runs the complete path on a small corpus, in minutes
# make clean     removes .venv and the output of the demo

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WORKERS ?= 2
DEMO_DIR ?= demo_output
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

.PHONY: install install-tpu install-dev test test-all proofs docs-test matrix lint format demo clean

install: $(VENV)/.installed
install-dev: $(VENV)/.installed-dev

# Puts python/bert.py on the path of .venv; setuptools is there, so without network.
IMPORTABLE := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .

# The marker file is written last, so that make repeats an interrupted installation.
$(VENV)/.installed: requirements.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(None if (3, 10) <= v <= (3, 13) else "Python 3.10 to 3.13 is required, this is %d.%d: make PYTHON=python3.11 ..." % v)'
	$(PYTHON) -m venv $(VENV)
	@echo 'Installing TensorFlow and the other requirements, which takes some minutes ...'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	$(IMPORTABLE)
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed requirements-dev.txt requirements-onnx.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -r requirements-dev.txt
	@touch $@

# TensorFlow for TPUs replaces TensorFlow; pip would install both.
install-tpu: requirements.txt requirements-tpu.txt
	$(PYTHON) -m venv $(VENV)
	grep -v '^tensor' requirements.txt > $(VENV)/requirements-without-tensorflow.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -r $(VENV)/requirements-without-tensorflow.txt -r requirements-tpu.txt
	$(IMPORTABLE)
	@touch $(VENV)/.installed

lint: install-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: install-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

test: lint
	$(PYTEST) -m "not all and not docs and not proofs" tests

test-all: lint
	CRASHES=12 $(PYTEST) -m "not docs and not proofs" tests

proofs: install-dev
	@test -d "$(DATA)" || { echo 'make proofs DATA=folder; docs/results.md lists its files'; exit 2; }
	$(PYTEST) -m proofs --data="$(DATA)" tests/proofs_test.py

docs-test: install-dev
	$(PYTEST) -m docs --dist load tests/docs_commands_test.py

matrix: install
	$(BIN)/python benchmarks/matrix.py $(FOLDER)

demo: install
	$(BIN)/python examples/demo.py --output_dir=$(DEMO_DIR)

clean:
	rm -rf $(VENV) $(DEMO_DIR)
