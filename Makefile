# All commands of a contributor. Each target installs or builds what it needs first.

PYTHON      ?= python3
WORKERS     ?= 2
PROFILE     ?= ci
WEEKS       ?= 1000
VENV        := .venv
BIN         := $(VENV)/bin
STAMP       := $(VENV)/.installed
LOCK_VENV   := .venv-lock
IMAGE_LOCK  := deploy/image/requirements.lock
UV_VERSION  := 0.13.7

LIVE        := tests/live
SITE        := tests/site
PYTEST      := $(BIN)/python -m pytest --hypothesis-profile=$(PROFILE)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help venv demo test lint format unit suite soak site live soak-live hunt cluster docs bench bench-live replay crds manifests image chart scenarios-rewrite lock clean python-is-usable

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

venv: $(STAMP) ## Create .venv with the locked dependencies and Jobtree

$(STAMP): pyproject.toml requirements.lock | python-is-usable
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	@touch $@

python-is-usable:
	@command -v $(PYTHON) >/dev/null || { \
	  echo "$(PYTHON) was not found. Install Python 3.11 or later, or name one: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "$(PYTHON) is $$($(PYTHON) --version 2>&1), but Jobtree needs Python 3.11 or later." >&2; \
	  echo "Name a newer one: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "$(PYTHON) cannot create virtual environments: its venv or ensurepip module is missing." >&2; \
	  echo "On Debian and Ubuntu: apt-get install python3-venv. Elsewhere install the full Python distribution." >&2; \
	  exit 1; }

demo: venv ## Show a narrated day on a simulated fleet
	$(BIN)/python -m jobtree.cli.demo

test: venv ## Run lint, then all tests, the live tests last
	@$(MAKE) --no-print-directory lint
	@$(MAKE) --no-print-directory suite
	@$(MAKE) --no-print-directory site
	@$(MAKE) --no-print-directory live

lint: venv ## Check the style, the types and the direction of imports
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m mypy
	$(BIN)/lint-imports --no-logo

format: venv ## Format the code and apply safe fixes
	$(BIN)/python -m ruff format .
	$(BIN)/python -m ruff check --fix .
	$(BIN)/python -m ruff format .

unit: venv ## Run only the fast tests: unit tests and scenarios
	$(PYTEST) -n $(WORKERS) --dist loadfile tests/unit tests/scenarios

suite: venv ## Run all tests that need no control plane and no browser (PROFILE=explore: new random examples)
	$(PYTEST) -n $(WORKERS) --ignore=$(LIVE) --ignore=$(SITE) tests

site: venv ## Build the documentation and test it in a browser
	$(PYTEST) $(SITE)

soak: venv ## Simulate weeks and check all invariants (WEEKS=5000: another number of weeks)
	$(BIN)/python -m tests.soak --weeks $(WEEKS)

live: venv ## Run the tests that need a Kubernetes control plane, one at a time
	@if find $(LIVE) -name 'test_*.py' 2>/dev/null | grep -q .; then \
	  set -x; $(PYTEST) $(LIVE); \
	else \
	  echo "$(LIVE) has no tests: no live test was run."; \
	fi

soak-live: venv ## Kill the manager after each write, and make requests fail (KILLS=37- SEEDS=5,8: only these)
	$(BIN)/python -m tests.live.faults.soak $(if $(KILLS),--kills $(KILLS)) $(if $(SEEDS),--seeds $(SEEDS))

hunt: venv ## Create hostile objects beside a tenant who must not wait (SEEDS=1-3, SECONDS=300)
	$(BIN)/python -m tests.live.faults.hunt $(if $(SEEDS),--seeds $(SEEDS)) $(if $(SECONDS),--seconds $(SECONDS))

cluster: venv ## Start a cluster with Jobtree on it, until Ctrl-C (REAL=1, as root: with two real nodes)
	$(BIN)/python -m tests.live.cluster.make_cluster $(if $(REAL),--real)

docs: venv ## Build the documentation site into build/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet
	@echo "To read it with search: run $(BIN)/python -m http.server --directory build/site, open http://localhost:8000"

bench: venv ## Measure, and compare with the recorded bounds (GROUPS=day,replay: only these; JOBTREE_TRACES: folder)
	$(BIN)/python -m benchmarks $(if $(GROUPS),--groups $(GROUPS))

bench-live: venv ## Measure the manager and its API server on a fake fleet (ROWS=gangs,idle: only these)
	$(BIN)/python -m benchmarks.live --write $(if $(ROWS),--rows $(ROWS))

replay: venv ## Compare with other schedulers on the traces in JOBTREE_TRACES; write docs/comparison/schedulers.md
	$(BIN)/python -m benchmarks.replay --write

crds: venv ## Generate config/crd from the structs of jobtree.api
	$(BIN)/python -m jobtree.api.kinds.crd config/crd

manifests: crds ## Generate the chart's templates from config/crd and deploy/kustomize/base
	$(BIN)/python deploy/helm/generate.py

image: venv ## Build the manager's image into build/image, as root (TAG=1.2.3; FRESH=1: build its base again)
	$(BIN)/python deploy/image/build.py $(if $(TAG),--tag $(TAG)) $(if $(FRESH),--fresh)

chart: manifests ## Pack the Helm chart and its index into build/charts (run deploy/addresses.py first)
	$(BIN)/python deploy/addresses.py
	mkdir -p build/charts
	helm=$$($(BIN)/python -m tests.live.programs.program_finder helm) && \
	  $$helm package deploy/helm/gpu-fleet --destination build/charts && $$helm repo index build/charts

scenarios-rewrite: venv ## Rewrite the expected output of the scenarios; review the difference before you commit
	$(PYTEST) tests/scenarios --rewrite

lock: | python-is-usable ## Lock the dependencies again (UPGRADE=1: use newer versions)
	@$(LOCK_VENV)/bin/uv --version 2>/dev/null | grep -qF ' $(UV_VERSION) ' || { \
	  $(PYTHON) -m venv $(LOCK_VENV) && $(LOCK_VENV)/bin/python -m pip install --quiet uv==$(UV_VERSION); }
	$(LOCK_VENV)/bin/uv pip compile --quiet --generate-hashes --universal --python-version 3.11 \
	  --extra dev --no-emit-index-url --no-emit-find-links --custom-compile-command 'make lock' \
	  $(if $(UPGRADE),--upgrade) --output-file requirements.lock pyproject.toml
	$(LOCK_VENV)/bin/uv pip compile --quiet --generate-hashes --universal --python-version 3.11 \
	  --extra manager --constraint requirements.lock --no-emit-index-url --no-emit-find-links --custom-compile-command 'make lock' \
	  --output-file $(IMAGE_LOCK) pyproject.toml
	@! grep -nE '://|--(extra-)?index-url|--find-links' requirements.lock $(IMAGE_LOCK) || { \
	  echo "The lock names a package index; it must not." >&2; exit 1; }

clean: ## Remove environments, caches and build output
	rm -rf $(VENV) $(LOCK_VENV) .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
