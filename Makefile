# `make demo` and `make test` need git, make and Python 3.11 or newer; nothing else.

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PYTHON ?= $(firstword $(foreach python,python3 python3.13 python3.12 python3.11,$(shell \
	$(python) -c 'import sys; sys.version_info >= (3, 11) and print("$(python)")' 2>/dev/null)))

# Tests start hundreds of processes, each of which would compile again what it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo dist test test-all test-nightly test-every-point durations lint verify fuzz docs site truth truth-shaped claims mutate test-torch test-faults test-gpu test-privileged clean

help:
	@echo 'make dist             build wheel and source archive, and try both in empty environments'
	@echo 'make demo             prove, train, predict, show: results/demo'
	@echo 'make test             every promise, each at a few points: four minutes on two cores'
	@echo 'make test-all         costly tests, too: what .ci/run runs, ten minutes'
	@echo 'make test-nightly     every point, the long proofs, every block of the documents, torch'"'"'s own suite: an hour'
	@echo 'make durations        write the processor time of each file of tests to tests/durations.toml'
	@echo 'make lint             ruff, mypy --strict, the layers'
	@echo 'make verify           prove every shipped algorithm for 2 to 64 ranks, and for some up to 1024'
	@echo 'make fuzz             a million runs of programs, a thousand of scripts, from seeds: an hour on two cores'
	@echo 'make docs             prove what the site says is proved, and write docs/architecture.svg and schemas'
	@echo 'make site             write the documents as a site, with search: site/index.html; half a minute'
	@echo 'make truth            measure what predictions are held against, and write docs/truth.md: 20 minutes; MEASURED=FILE… too'
	@echo 'make truth-shaped     the same of networks that are shaped on this machine (root): an hour'
	@echo 'make claims           put claims of introductory texts to the test, and write docs/claims.md'
	@echo 'make test-torch       the tests that torch has of torch.distributed, on our ranks: twenty minutes on two cores'
	@echo 'make mutate           feed a hundred thousand mutated inputs to every loader and parser: INPUTS=… SEED=…'
	@echo 'make test-faults      kill processes over Gloo and cut their cables (root) at random moments: 15 minutes'
	@echo 'make test-gpu         the tests that need a CUDA device'
	@echo 'make test-privileged  the tests that shape real networks (root, iproute2)'
	@echo 'make clean            remove what make has made'

demo: $(STAMP)
	$(BIN)/python examples/demo.py

ALONE := $(BIN)/python -m pytest --timeout 120
PYTEST := $(ALONE) -n auto --maxprocesses 8 --dist worksteal -m 'not privileged'

test: $(STAMP)
	@$(PYTEST) --points few

test-all: $(STAMP)
	@$(PYTEST) --points more

# Each part, whatever became of those before it.
POINTS := more
NIGHTLY := lint site test-every-point test-privileged verify test-torch
test-nightly: $(STAMP)
	@$(MAKE) --no-print-directory --keep-going POINTS=all $(NIGHTLY)

test-every-point: $(STAMP)
	@$(PYTEST) --points all

durations: $(STAMP)
	@$(PYTEST) --points few --write-durations && $(PYTEST) --points more --write-durations

# A wheel and a source archive, each installed into an empty environment without torch, and tried there.
dist: $(STAMP)
	rm -rf dist
	$(BIN)/python -m build --outdir dist .
	$(BIN)/python -m tools.distribution dist

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

verify: $(STAMP)
	$(BIN)/testbed verify --ranks 2-64,127,256,509,1000,1024 --budget 250000

fuzz: $(STAMP)
	$(BIN)/testbed fuzz all --seeds 1000000
	$(BIN)/python -m benchmarks.fuzzing --runs 1000

docs: $(STAMP)
	$(BIN)/python -m docs.tools.algorithm_docs
	$(BIN)/python -m docs.tools.architecture
	$(BIN)/python -m docs.tools.schemas

# What the documents say, and what the code says of options, fields and names; needs no server to be read.
site: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	@echo site/index.html

# Each program renews its own sections of the page; those of shaped networks need root.
TRUTH := --document docs/truth.md
truth: $(STAMP)
	mkdir -p results
	$(BIN)/python -m benchmarks.lab.truth $(TRUTH)
	$(BIN)/python -m benchmarks.lab.truth --training $(TRUTH)
	$(BIN)/testbed calibrate --device --output results/processor.toml
	$(BIN)/python -m benchmarks.lab.truth --device results/processor.toml --predictions results/steps.json $(TRUTH)
	$(BIN)/python -m benchmarks.lab.truth --scripts $(TRUTH)
ifdef MEASURED
	$(BIN)/python -m benchmarks.lab.truth $(MEASURED) --sample 20000 --predictions results/rows.json $(TRUTH)
endif

# Networks that are shaped on this machine: as root, and an hour of waiting.
truth-shaped: $(STAMP)
	$(BIN)/python -m benchmarks.lab.shaped examples/networks/shaped/*.toml $(TRUTH)
	$(BIN)/python -m benchmarks.lab.shaped --incast $(TRUTH)

claims: $(STAMP)
	$(BIN)/python -m benchmarks.lab.claims --document docs/claims.md

test-torch: $(STAMP)
	$(BIN)/python -m tools.torch_suite

INPUTS ?= 100000
SEED ?= 0
mutate: $(STAMP)
	MUTATED_INPUTS=$(INPUTS) MUTATED_SEED=$(SEED) $(PYTEST) --timeout 0 tests/inputs

test-faults: $(STAMP)
	$(BIN)/python -m tools.process_faults

test-gpu: $(STAMP)
	$(ALONE) -m gpu

test-privileged: $(STAMP)
	$(ALONE) -m privileged --points $(POINTS)

clean:
	rm -rf $(VENV) results build dist site *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache

# Made once, and again when the requirements change.
$(STAMP): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo 'Python 3.11 or newer is needed; none found (or set PYTHON=/path/to/python).' >&2; exit 1; }
	@echo 'Installing the pinned versions into $(VENV) (torch is large; this takes a few minutes once) ...'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@rm -rf *.egg-info  # of an earlier install, whose entry points Python would find first
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[demo,dev,site]'
	@touch $@
