# Everything that people do with this repository. `make help` lists it.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

DEFINITION ?= stacks/inference.yaml
OUT ?= build/rendered
STACK ?=
CLUSTER ?=
BASE ?=

PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3.14 python3; do command -v $$p && break; done)
TIDEGATE_CACHE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/tidegate
export TIDEGATE_CACHE
export PYTHONPATH := $(CURDIR):$(CURDIR)/contracts
export PYTHONDONTWRITEBYTECODE ?= 1

# Virtual environments, one for each set of locked requirements, in the cache folder.
RUN = "$(shell '$(PYTHON)' requirements/install.py --where run)/bin/python"
TEST = "$(shell '$(PYTHON)' requirements/install.py --where test)/bin/python"

# Settings go to recipes as environment variables, so that no name of a file or stack is read as shell or make.
override export DEFINITION := $(value DEFINITION)
override export OUT := $(value OUT)
override export STACK := $(value STACK)
override export CLUSTER := $(value CLUSTER)
override export BASE := $(value BASE)
override export REGISTRY_PLANE := $(value REGISTRY_PLANE)

.PHONY: help
help: ## List what there is
	@printf 'Tidegate: many models, few GPUs, one definition.\n\n'
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'
	@printf '\nSettings: DEFINITION=%s OUT=%s STACK=<name> CLUSTER=<kubeconfig context> BASE=<git revision>\n' "$$DEFINITION" "$$OUT"

.PHONY: up
up: .run ## Render every stack of the definition to YAML; with CLUSTER=<context> bring stacks up there
	@$(RUN) -m rollout up "$$DEFINITION" --out "$$OUT" $(if $(STACK),--stack "$$STACK") $(if $(CLUSTER),--cluster "$$CLUSTER")

.PHONY: check
check: .run ## Check the definition, and nothing else
	@$(RUN) -m rollout check "$$DEFINITION"

.PHONY: preview
preview: .run ## Show what would change, against the last rendering or BASE=<git revision>
	@$(RUN) -m rollout preview "$$DEFINITION" --out "$$OUT" $(if $(STACK),--stack "$$STACK") $(if $(BASE),--base "$$BASE")

.PHONY: pin
pin: .run ## Ask the registries for the digests of the definition's images, and write images.lock
	@$(RUN) -m rollout pin "$$DEFINITION" $(if $(KEEP_GOING),--keep-going) $(if $(INSECURE),--insecure) \
	  $(if $(REGISTRY_PLANE),--registry-plane "$$REGISTRY_PLANE")

.PHONY: test
test: .test ## Run every check and every test
	@$(TEST) -m ruff check . && $(TEST) -m ruff format --check .
	@$(TEST) -m mypy
	@$(TEST) -m tools helm kubeconform crane
	@$(TEST) -m pytest -n 2 --dist worksteal $(PYTEST)

.PHONY: bench
bench: .test ## Measure how loading, resolving, evaluating and writing grow with the definition
	@$(TEST) -m bench.definition

.PHONY: docs
docs: .run ## Write what is generated from the model: docs/definition.md and the editors' JSON schema
	@$(RUN) -m stacks.reference

.PHONY: format
format: .test ## Put the code into its form
	@$(TEST) -m ruff check --fix . && $(TEST) -m ruff format .

.PHONY: lock
lock: .test ## Resolve the dependencies of pyproject.toml anew
	@for set in run test; do $(TEST) -m uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	  --no-header pyproject.toml $$([ $$set = run ] || echo --extra $$set) --output-file requirements/$$set.txt; done

.PHONY: clean
clean: ## Take away what was built here; the cache folder stays
	@rm -rf build .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: .run .test
.run .test:
	@$(if $(PYTHON),,echo 'Tidegate needs Python 3.11 or later, and there is none: make PYTHON=<path> …' >&2; exit 1)
	@$(PYTHON) requirements/install.py $(subst .,,$@)
