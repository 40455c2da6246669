# make install   .venv with everything that the runners need
# make test      formatting, lint, the whole test suite
# make demo      text -> vocabulary -> records -> pre-training -> words, in minutes
# make clean     removes .venv and the demo's output

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WORKERS ?= 2
DEMO_DIR ?= demo_output

.PHONY: install install-dev test lint format demo clean

install: $(VENV)/.installed
install-dev: $(VENV)/.installed-dev

# Each mark file is written last: an interrupted installation is taken up again.
$(VENV)/.installed: requirements.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(None if (3, 10) <= v <= (3, 13) else "Python 3.10-3.13 is needed and this is %d.%d: make PYTHON=python3.12 ..." % v)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed requirements-dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -r requirements-dev.txt
	@touch $@

lint: install-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: install-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

test: lint
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder tests

demo: install
	$(BIN)/python demo.py --output_dir=$(DEMO_DIR)

clean:
	rm -rf $(VENV) $(DEMO_DIR)
