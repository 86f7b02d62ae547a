# Two commands matter: `make demo` (a whole ramp, no server needed) and `make test` (lint, types, tests).
PYTHON ?= python3
VENV   ?= .venv
# One more than cores: tests on real sockets wait a good part of their time.
JOBS   ?= $(shell echo $$(($$($(PYTHON) -c "import os; print(os.cpu_count())") + 1)))
# A file's tests share its runs; the order of files is that of tests/conftest.py.
SPREAD  = -n $(JOBS) --dist loadfile --no-loadscope-reorder
BIN     = $(VENV)/bin
BUILT_FROM = pyproject.toml requirements-dev.txt hatch_build.py loadramp/client/http/c_reader.c loadramp/client/http/event_bytes.h

# Of `make fuzz`: how many replies, and which.
N    ?= 1000000
SEED ?= 1

.PHONY: demo demo-tune test lint types unit docs long slow browser real ray fuzz lowest lock bench clean

demo: $(VENV)/.runtime
	$(BIN)/loadramp demo

# Finds the best flags of a simulated server: under ten minutes.
demo-tune: $(VENV)/.runtime
	$(BIN)/loadramp tune tune --server "$(BIN)/loadramp simulate --port {port} {flags}" --yes

# mypy takes one core for half a minute: beside the tests rather than before them.
test: lint
	$(MAKE) -j2 types unit

lint: $(VENV)/.dev
	$(BIN)/ruff check .

types: $(VENV)/.dev
	$(BIN)/mypy

unit: $(VENV)/.dev $(VENV)/.compiled
	$(BIN)/python -m pytest $(SPREAD)

# The documents as a site: `python3 -m http.server -d build/site` shows it.
docs: $(VENV)/.dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

# Whole runs: as many seconds as all other tests together.
long: $(VENV)/.dev
	$(BIN)/python -m pytest $(SPREAD) -m long

slow: $(VENV)/.dev
	$(BIN)/python -m pytest -m slow --timeout 1200

browser: $(VENV)/.dev
	$(BIN)/python -m pytest -m browser

real: $(VENV)/.dev
	$(BIN)/python -m pytest -m real --timeout 3600 -s

# Ray is large and starts many processes: it is installed for these tests only.
ray: $(VENV)/.dev
	$(BIN)/python -m pip install -q --disable-pip-version-check -c requirements-dev.txt -e '.[dev,ray]'
	$(BIN)/python -m pytest -m ray --timeout 600

fuzz: $(VENV)/.dev
	PYTHONPATH=tests:. $(BIN)/python tests/fuzz.py --replies $(N) --seed $(SEED)

# The lowest versions that pyproject.toml admits of what the package needs, in an environment of their own.
lowest:
	$(PYTHON) -m venv $(VENV)-lowest
	$(PYTHON) tests/lowest_versions.py > $(VENV)-lowest/lowest.txt
	$(VENV)-lowest/bin/python -m pip install -q --disable-pip-version-check -c $(VENV)-lowest/lowest.txt -e '.[test]'
	$(VENV)-lowest/bin/python -m pytest $(SPREAD)

# The newest versions of everything, written down: what `make test` installs from then on.
lock:
	$(PYTHON) -m venv --clear $(VENV)-lock
	$(VENV)-lock/bin/python -m pip install -q --disable-pip-version-check -e '.[dev]'
	echo "# The versions that the tests run with; made by \`make lock\`, used as constraints by \`make .venv/.dev\`." > requirements-dev.txt
	$(VENV)-lock/bin/python -m pip list --format=freeze --disable-pip-version-check | grep -viE '^(loadramp|pip|setuptools)=' >> requirements-dev.txt

clean:
	rm -rf $(VENV) $(VENV)-lowest $(VENV)-lock build dist

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.runtime: $(BUILT_FROM) | $(VENV)/bin/python
	$(BIN)/python -m pip install -q --disable-pip-version-check -e .
	touch $@

# Once after a clone: else each worker would compile every module and test for itself, all of them at the same time.
$(VENV)/.compiled: | $(VENV)/.dev
	-$(BIN)/python -m pytest --collect-only -q > /dev/null
	touch $@

$(VENV)/.dev: $(BUILT_FROM) | $(VENV)/bin/python
	$(BIN)/python -m pip install -q --disable-pip-version-check -c requirements-dev.txt -e '.[dev]'
	touch $@ $(VENV)/.runtime
