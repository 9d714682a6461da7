# make demo    set up, and run a whole campaign on bundled examples
# make test    set up, and run the tests that need nothing but Python
# make real    the tests with a real Slurm, vLLM, torch and browser (installs them; Debian or Ubuntu, root or sudo)
# make soak    a hundred kills over a campaign of three real checkpoints on a real Slurm (half an hour)
# make lint    ruff, mypy --strict, shellcheck, import rules
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test real soak lint clean

$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@

demo: $(READY)
	$(BIN)/flock-hpc demo

test: $(READY)
	$(BIN)/python -m pytest -q -n 4 --dist worksteal

real: $(READY)
	scripts/setup-test-slurm.sh
	scripts/setup-test-vllm.sh
	scripts/setup-test-browser.sh
	scripts/setup-test-validation.sh
	FLOCK_HPC_REQUIRE_REAL=1 .venv-validation/bin/python -m pytest -q tests/validation
	FLOCK_HPC_REQUIRE_REAL=1 $(BIN)/python -m pytest -q tests/e2e/test_report_browser.py tests/e2e/test_pool_browser.py tests/cluster tests/serving

soak: $(READY)
	scripts/setup-test-slurm.sh
	$(BIN)/python benchmarks/soak.py --kills 100

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/shellcheck scripts/*.sh .ci/run

clean:
	rm -rf $(VENV) .venv-vllm .venv-validation demo-campaign
