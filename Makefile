# Everything that people do with this repository. `make help` lists it.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

DEFINITION ?= stacks/inference.yaml
OUT ?= build/rendered
STACK ?=
CLUSTER ?=
BASE ?=
ENGINE ?=
ENV ?=
BENCH ?=
FROM ?=
FUZZ ?=
DRY_RUN ?=
RESUME ?=
BACK ?=
MANIFESTS ?= -
TRACE ?=
PROMETHEUS ?=
LOGS ?=
HOURS ?=
MATCH ?=
REQUIRE_ALL ?=
ALLOW_NOT_RUN ?=
DIR ?=
GPU ?=
IMPORT ?=
POLICY ?=

# A misspelt setting would be a command for all that there is.
SETTINGS := ADOPT ALLOW_NOT_RUN BACK BASE BENCH CLUSTER COUNT DEFINITION DIR DRY_RUN ENGINE ENV FROM FUZZ GPU HOURS IMPORT \
  INSECURE JSON KEEP_GOING LOGS MANIFESTS MATCH MUTATION OUT POLICY PRICES PROMETHEUS PYTEST PYTHON REGISTRY_PLANE REQUIRE_ALL \
  RESUME ROOMS RUN SAMPLES STACK TARGET TIDEGATE TIDEGATE_CACHE TIDEGATE_REPOSITORY TRACE WORKERS YES
SAID := $(foreach name,$(.VARIABLES),$(if $(filter command,$(firstword $(origin $(name)))),$(name)))
$(if $(filter-out $(SETTINGS),$(SAID)),$(error no setting is called $(filter-out $(SETTINGS),$(SAID)): there are $(SETTINGS)))
# So would an empty one, such as a variable that CI did not set: a preview of nothing new, every stack taken down.
NAMES := BASE CLUSTER DEFINITION DIR ENGINE ENV FROM HOURS IMPORT LOGS MANIFESTS MATCH OUT POLICY PRICES PROMETHEUS REGISTRY_PLANE \
  SAMPLES STACK TARGET TRACE
$(foreach name,$(filter $(NAMES),$(SAID)),$(if $(value $(name)),,$(error $(name)= is empty: say what it is, or leave it out)))

# Where the program is: here, or where a platform of one's own has it, whose Makefile includes this one (`make init`).
ROOT := $(if $(TIDEGATE),$(abspath $(TIDEGATE)),$(CURDIR))
OF_THE_PROGRAM := attack bench bench-eviction bench-iac bench-lifecycle bench-proxy docs site format fuzz lock mutation test test-all
ifneq ($(TIDEGATE),)
$(if $(wildcard $(ROOT)/requirements/install.py),,$(error TIDEGATE=$(TIDEGATE) is no checkout of Tidegate))
$(foreach goal,$(filter $(OF_THE_PROGRAM),$(MAKECMDGOALS)),$(error make $(goal) is about Tidegate itself: run it in a checkout of it))
# No folder of the platform is taken for one of the program's packages.
export PYTHONSAFEPATH := 1
# A Pulumi that this make starts runs this program; a plain `pulumi up` runs the one that .tidegate links to.
export TIDEGATE_PROGRAM := $(ROOT)
# The link is to the pinned program: another one that TIDEGATE=<folder> names for one command leaves it as it is.
NO_LINK = $(if $(filter file,$(origin TIDEGATE)),false,[ -e .tidegate ])
endif

PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3.14 python3; do command -v $$p && break; done)
TIDEGATE_CACHE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/tidegate
export TIDEGATE_CACHE
export PYTHONPATH := $(ROOT):$(ROOT)/contracts:$(ROOT)/service:$(ROOT)/proxy:$(ROOT)/policies/eviction:$(ROOT)/client
# Bytecode goes to the cache folder, that of tests too, so that each process of a run finds it and the tree stays clean.
export PYTHONPYCACHEPREFIX ?= $(TIDEGATE_CACHE)/bytecode
unexport PYTHONDONTWRITEBYTECODE
export MYPY_CACHE_DIR ?= $(TIDEGATE_CACHE)/mypy
export RUFF_CACHE_DIR ?= $(TIDEGATE_CACHE)/ruff

# Virtual environments, one for each set of locked requirements, in the cache folder.
RUN = "$(shell '$(PYTHON)' '$(ROOT)/requirements/install.py' --where run)/bin/python"
TEST = "$(shell '$(PYTHON)' '$(ROOT)/requirements/install.py' --where test)/bin/python"

# Whether a switch is on; a word that is neither yes nor no must not be taken for one of them.
YES_WORDS := 1 y yes on true
NO_WORDS := 0 n no off false
SWITCHES := ADOPT BACK DRY_RUN INSECURE JSON KEEP_GOING REQUIRE_ALL RESUME YES
lower = $(shell printf %s '$(subst ','"'"',$(value $(1)))' | tr A-Z a-z)
on = $(if $(value $(1)),$(filter $(YES_WORDS),$(call lower,$(1))))
$(foreach name,$(SWITCHES),$(if $(value $(name)),$(if $(filter $(YES_WORDS) $(NO_WORDS),$(call lower,$(name))),,$(error $(name) is a switch: say $(name)=1 or $(name)=0))))

# Settings go to recipes as environment variables, so that no name of a file or stack is read as shell or make.
override export DEFINITION := $(value DEFINITION)
override export OUT := $(value OUT)
override export STACK := $(value STACK)
override export CLUSTER := $(value CLUSTER)
override export BASE := $(value BASE)
override export ENGINE := $(value ENGINE)
override export ENV := $(value ENV)
override export FROM := $(value FROM)
override export FUZZ := $(value FUZZ)
override export MANIFESTS := $(value MANIFESTS)
override export POLICY := $(value POLICY)
override export TRACE := $(value TRACE)
override export PROMETHEUS := $(value PROMETHEUS)
override export LOGS := $(value LOGS)
override export HOURS := $(value HOURS)
override export SAMPLES := $(value SAMPLES)
override export TARGET := $(value TARGET)
override export MATCH := $(value MATCH)
override export PRICES := $(value PRICES)
override export ALLOW_NOT_RUN := $(value ALLOW_NOT_RUN)
override export REGISTRY_PLANE := $(value REGISTRY_PLANE)
override export DIR := $(value DIR)
override export GPU := $(value GPU)
override export IMPORT := $(value IMPORT)
override export TIDEGATE_REPOSITORY := $(value TIDEGATE_REPOSITORY)

.PHONY: help
help: ## List what there is
	@printf 'Tidegate: many models, few GPUs, one definition.\n\n'
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) $(if $(TIDEGATE),| grep -v $(OF_THE_PROGRAM:%=-e '^%:')) | \
	  awk -F ':.*## ' '{name[NR] = $$1; said[NR] = $$2; if (length($$1) > wide) wide = length($$1)} \
	  END {for (i = 1; i <= NR; i++) {row = sprintf("  make %-" wide "s ", name[i]); words = split(said[i], word, " "); \
	    for (j = 1; j <= words; j++) {if (length(row) + length(word[j]) >= 120) {print row; row = sprintf("%" wide + 8 "s", "")} \
	      row = row " " word[j]}; print row}}'
	@printf '\nSettings: DEFINITION=%s OUT=%s STACK=<name> CLUSTER=<kubeconfig context>\n%10sBASE=<git revision> ENGINE=<pulumi or helm>\n' "$$DEFINITION" "$$OUT" ""

# Files with fuzzers of the proxy: its parsers, its paths, and the fast path against the slow one.
FUZZERS = tests/proxy/http/test_http_agree.py tests/proxy/http/test_http_attacks.py \
  tests/proxy/http/test_http_documented.py tests/proxy/test_paths.py tests/proxy/http/test_http_sequences.py \
  tests/proxy/grpc/test_grpc_http2.py tests/policies/eviction/core/test_core_invariants.py \
  tests/proxy/residency/test_residency_placement.py tests/proxy/residency/test_residency_simulated.py

# Processes of pytest. Many tests wait for servers, so that there may be more of them than processors.
WORKERS ?= 3

# What `make test` says of tests whose parts this machine cannot have: by default they are listed, and it is green.
NOT_RUN = $(if $(call on,REQUIRE_ALL),--require-all) $(if $(ALLOW_NOT_RUN),--allow-not-run "$$ALLOW_NOT_RUN")

# What the commands that touch clusters have in common.
ON_CLUSTER = $(if $(STACK),--stack "$$STACK") $(if $(CLUSTER),--cluster "$$CLUSTER") $(if $(ENGINE),--engine "$$ENGINE")

# What pods need is missing in a cluster, or the digest of an image: the rest is done.
KEEPING_GOING = $(if $(call on,KEEP_GOING),--keep-going)

# Commands whose result is for programs too; any other would write on standard output what is no JSON.
WITH_JSON := check preflight preview rollout environments
$(if $(call on,JSON),$(if $(filter-out $(WITH_JSON),$(or $(MAKECMDGOALS),help))$(word 2,$(MAKECMDGOALS)),$(error JSON=1 is for $(WITH_JSON), one at a time)))
AS_JSON = $(if $(call on,JSON),--json)

.PHONY: up
up: .run ## Render every stack of the definition to YAML; with CLUSTER=<context> (or local) bring stacks up there (KEEP_GOING=1 whatever is missing)
	@$(RUN) -m rollout up "$$DEFINITION" --out "$$OUT" $(ON_CLUSTER) $(if $(call on,ADOPT),--adopt) $(KEEPING_GOING)

.PHONY: down
down: .run ## Take the stacks of CLUSTER=<context> down, datasets stay; local goes with all that is in it
	@$(RUN) -m rollout down "$$DEFINITION" $(ON_CLUSTER) $(if $(call on,YES),--yes)

.PHONY: init
init: .run ## Write a platform of your own to DIR=<folder>: definition, Makefile, CI (GPU=<product> IMPORT=<blueprint's values.yaml>)
	@$(RUN) -m rollout init "$$DIR" $(if $(GPU),--gpu "$$GPU") $(if $(IMPORT),--import "$$IMPORT") \
	  $(if $(TIDEGATE_REPOSITORY),--repository "$$TIDEGATE_REPOSITORY")

.PHONY: check
check: .run ## Check the definition: its form, its rules, and the guardrails; writes nothing (JSON=1)
	@$(RUN) -m rollout check "$$DEFINITION" $(AS_JSON)

.PHONY: preflight
preflight: .run ## Say what the stacks of CLUSTER=<context> need and it lacks, and how to see it; changes nothing (JSON=1)
	@$(RUN) -m rollout preflight "$$DEFINITION" $(if $(STACK),--stack "$$STACK") --cluster "$$CLUSTER" $(AS_JSON)

.PHONY: environments
environments: .run ## Print what clients are told of the environments: make environments > environments.json
	@$(RUN) -m rollout environments "$$DEFINITION"

.PHONY: preview
preview: .run ## Show what would change, against the last rendering, BASE=<git revision> or CLUSTER=<context> (JSON=1)
	@$(RUN) -m rollout preview "$$DEFINITION" --out "$$OUT" $(ON_CLUSTER) $(if $(BASE),--base "$$BASE") $(AS_JSON)

.PHONY: rollout
rollout: .run ## Bring ENV=<environment> up plane after plane (FROM=<plane> DRY_RUN=1 JSON=1 RESUME=1 BACK=1 KEEP_GOING=1)
	$(if $(STACK)$(CLUSTER),$(error make rollout brings every plane of ENV up, whatever STACK and CLUSTER say: begin with FROM=<plane>, or use make up))
	@$(RUN) -m rollout rollout "$$DEFINITION" --environment "$$ENV" $(if $(FROM),--from "$$FROM") $(if $(ENGINE),--engine "$$ENGINE") \
	  $(if $(call on,DRY_RUN),--dry-run) $(if $(call on,RESUME),--resume) $(if $(call on,BACK),--back) $(KEEPING_GOING) $(AS_JSON)

.PHONY: chart
chart: .run ## Write the Helm chart from the components
	@$(RUN) -m charts generate $(if $(TIDEGATE),--out charts/tidegate)

.PHONY: values
values: .run ## Print the chart's values of STACK=<stack>
	@$(RUN) -m charts values "$$DEFINITION" --stack "$$STACK"

.PHONY: guardrails
guardrails: .run ## Hold the Kubernetes objects of MANIFESTS=<file>, or of standard input, to the guardrails
	@$(RUN) -m rollout guardrails "$$MANIFESTS"

.PHONY: package
package: .run ## Package the chart for an OCI registry, byte for byte the same each time
	@$(RUN) -m charts package

.PHONY: pin
pin: .run ## Ask the registries for the digests of the definition's images, and write images.lock
	@$(RUN) -m rollout pin "$$DEFINITION" $(KEEPING_GOING) $(if $(call on,INSECURE),--insecure) \
	  $(if $(REGISTRY_PLANE),--registry-plane "$$REGISTRY_PLANE")

# Where recorded traffic goes, and plans begin.
RECORDED = "$${TRACE:-build/trace.csv.gz}"

.PHONY: trace
trace: .run ## Record traffic from PROMETHEUS=<url> (HOURS=168 MATCH=<matchers>) or LOGS=<files>, as a trace: TRACE=<file>
	@$(RUN) -m capacity trace $(RECORDED) $(if $(PROMETHEUS),--prometheus "$$PROMETHEUS") $(if $(HOURS),--hours "$$HOURS") \
	  $(if $(MATCH),--match "$$MATCH") $(if $(LOGS),--logs "$$LOGS")

.PHONY: advise
advise: .run ## Say what presses on each pool of STACK=<stack>, and what to do: PROMETHEUS=<url> (HOURS=24 MATCH= TARGET=99%), or SAMPLES=<folder>
	@$(RUN) -m capacity advise "$$DEFINITION" $(if $(STACK),--stack "$$STACK") $(if $(PROMETHEUS),--prometheus "$$PROMETHEUS") \
	  $(if $(SAMPLES),--samples "$$SAMPLES") $(if $(HOURS),--hours "$$HOURS") $(if $(MATCH),--match "$$MATCH") \
	  $(if $(TARGET),--target "$$TARGET")

.PHONY: plan
plan: .test ## Find the cheapest slices for the requests of TRACE=<file>, recorded ones by default (TARGET=99% GPU=a100-80gb PRICES=<file> STACK=<today's>)
	@$(TEST) -m capacity plan $(RECORDED) --definition "$$DEFINITION" $(if $(TARGET),--target "$$TARGET") \
	  $(if $(GPU),--gpu "$$GPU") $(if $(PRICES),--prices "$$PRICES") $(if $(STACK),--stack "$$STACK")

.PHONY: demo
demo: .test ## Show the whole data plane at work on this machine: real Tritons, the eviction policy, proxies (two minutes)
	@$(TEST) -m lab.demo walk

.PHONY: demo-up
demo-up: .test ## The same, left running, with lines to try, until Ctrl-C; POLICY=<folder>: by a policy of your own
	@$(TEST) -m lab.demo up $(if $(value POLICY),--policy "$$POLICY")

.PHONY: demo-lifecycle
demo-lifecycle: .test ## Show the life of a model, from a notebook to production and back, with MLflow, S3, Tritons, proxies
	@$(TEST) -m lab.demo lifecycle

.PHONY: demo-lifecycle-up
demo-lifecycle-up: .test ## Leave MLflow, S3, dev and prod running, for the commands of docs/models.md
	@$(TEST) -m lab.demo lifecycle-up

.PHONY: demo-llm
demo-llm: .test ## Show language models: NVIDIA Dynamo without a GPU, OpenAI's client, shares, kills, updates, and what the proxy costs
	@$(TEST) -m lab.demo llm

.PHONY: demo-llm-up
demo-llm-up: .test ## The same models, left running, with lines to try with OpenAI's clients, until Ctrl-C
	@$(TEST) -m lab.demo llm-up

.PHONY: demo-scaling
demo-scaling: .test ## Show pools and a proxy scale under waves of load: real KEDA, metrics-server, Triton, Dynamo (twenty minutes; builds them first)
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

.PHONY: mutation
mutation: .test ## Break COUNT=<lines> of ROOMS=<folders> at random, each alone, and tell which the tests notice (MUTATION=--whole)
	@$(TEST) -m tests.mutation $(ROOMS) --count $(or $(COUNT),60) $(MUTATION)

.PHONY: bench
bench: .test ## Measure how loading, resolving, evaluating and writing grow with the definition
	@$(TEST) -m lab.bench.definition

.PHONY: bench-iac
bench-iac: .test ## Measure engines on a real control plane against kubectl, and a rollout's planes side by side
	@$(TEST) -m lab.bench.iac

.PHONY: bench-proxy
bench-proxy: .test ## Measure the proxy against nginx, HAProxy, Envoy and a plain FastAPI one (BENCH="--runs 3 --only v2 grpc")
	@$(TEST) -m lab.bench.proxy $(BENCH)

.PHONY: bench-eviction
bench-eviction: .test ## Measure how well the eviction policy chooses, how fast, and live what it costs (TRACE=<requests> BENCH="--only cold")
	@$(TEST) -m lab.bench.eviction $(if $(TRACE),--trace "$$TRACE") $(BENCH)

.PHONY: bench-lifecycle
bench-lifecycle: .test ## Measure publishing against cp, sha256sum and rsync, registering's memory, and a model endpoint's calls
	@$(TEST) -m lab.bench.lifecycle $(BENCH)

.PHONY: dashboards
dashboards: .run ## Write Grafana's dashboards as JSON files to build/dashboards (DIR=<folder>)
	@$(RUN) -m components.dashboards "$${DIR:-build/dashboards}"

# The commands of `tidegate`, as typer, which runs them, describes them.
CLI_PAGE = { printf '\# Commands of tidegate\n\n`make docs` writes this page. The words are explained in [concepts.md](concepts.md).\n' \
  && $(RUN) -m typer tidegate.cli.app utils docs --name tidegate | tail -n +2; }

SITE = "$(shell '$(PYTHON)' '$(ROOT)/requirements/install.py' --where site)/bin/python"

.PHONY: site
site: ## Build the site of the documentation, which is read without a network, in build/site (DIR=<folder>)
	@$(PYTHON) requirements/install.py site
	@$(PYTHON) -m lab.site "$${DIR:-build/site}" --sphinx $(SITE)

.PHONY: docs
docs: .run ## Write what is generated: docs/definition.md, guardrails.md, metrics.md, cli.md, the schemas of the definition and of JSON=1
	@$(RUN) -m stacks.reference
	@$(RUN) -m rollout.json_document > docs/json.schema.json
	@$(CLI_PAGE) > docs/cli.md

.PHONY: format
format: .test ## Put the code into its form
	@$(TEST) -m ruff check --fix . && $(TEST) -m ruff format .

LOCK = $(TEST) -m uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header

# Extras of packages that the tests have. What `tidegate export` needs has an environment of its own (export.in).
EXTRAS = $(foreach extra,pandas plot s3 signing,--extra $(extra))

.PHONY: lock
lock: .test ## Resolve all dependencies anew
	@$(LOCK) pyproject.toml --output-file requirements/run.txt
	@$(LOCK) proxy/pyproject.toml --output-file requirements/proxy.txt
	@$(LOCK) policies/eviction/pyproject.toml --output-file requirements/eviction.txt
	@$(LOCK) client/pyproject.toml $(EXTRAS) --output-file requirements/client.txt
	@$(LOCK) pyproject.toml proxy/pyproject.toml policies/eviction/pyproject.toml client/pyproject.toml \
	  --extra test --extra simulate $(EXTRAS) --output-file requirements/test.txt
	@$(LOCK) requirements/export.in --constraint requirements/test.txt --output-file requirements/export.txt
	@for set in mlflow site dynamo; do $(LOCK) requirements/$$set.in --output-file requirements/$$set.txt; done
	@for set in triton envoy; do $(LOCK) --no-deps requirements/$$set.in --output-file requirements/$$set.txt; done

.PHONY: clean
clean: ## Take away what was built here; the journals of rollouts and the cache folder stay
	@[ ! -d build ] || find build -mindepth 1 -maxdepth 1 ! -name rollout -exec rm -rf {} +
	@rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis
	@$(if $(TIDEGATE),rm -f .tidegate,rm -rf */build policies/eviction/build; \
	  find . \( -name __pycache__ -o -name '*.egg-info' \) -type d -prune -exec rm -rf {} +)

NEEDS_PYTHON = $(if $(shell command -v '$(PYTHON)'),,echo 'Tidegate needs Python 3.11 or later, and there is none: make PYTHON=<path> …' >&2; exit 1)

.PHONY: .run .test .parts
.run .test:
	@$(NEEDS_PYTHON)
	@$(PYTHON) '$(ROOT)/requirements/install.py' $(subst .,,$@)
	@$(if $(TIDEGATE),$(NO_LINK) || ln -sfn '$(ROOT)' .tidegate)

# What a preview compares a platform with: its base, rendered by the program that the base pins.
.PHONY: .rendering
.rendering: .run
	@$(RUN) -m rollout render "$$DEFINITION" --out "$$OUT"

# What takes long the first time is made beside each other. A server that cannot be installed is told of by its tests.
.parts:
	@$(NEEDS_PYTHON)
	@$(PYTHON) requirements/install.py test & test=$$!; $(PYTHON) -m lab.tools & tools=$$!; trap 'kill $$tools' EXIT; \
	  wait $$test; for server in mlflow triton dynamo export; do $(PYTHON) requirements/install.py $$server || true; done; \
	  trap - EXIT; wait $$tools
