# hitline: `make` lists the targets.
.DEFAULT_GOAL := help
SHELL := /bin/bash

# What `make fuzz` gives each target: a time, or executions (see scripts/fuzz).
FUZZTIME ?= 1m
# How long `make soak` takes.
SOAKTIME ?= 10m
# How many pools `make torture` asks.
POOLS ?= 1000000

# The releases that `make reference` runs (all if both are empty), its fresh cases of each kind,
# and the one kind that it compares (all if empty).
VLLM ?=
SGLANG ?=
N ?= 2000
KIND ?=

# The rows that `make e2e` and `make attack` run: names with commas between them, by default those of
# one release (scripts/e2e --list), or what names begin with, by default all (internal/attack/rows_test.go).
# For `make e2e` a release of Mooncake to compare with the newest row of one, in place of all rows; a file for
# what was measured, whether logs are kept if it is not empty, and the Python that it is run with and installs.
ONLY ?=
MOONCAKE ?=
JSON ?=
KEEP ?=
PYTHON ?= python3

# The home directory in which `make tutorial` makes its folder.
TUTORIAL ?= $(HOME)/.cache/hitline/tutorial

# Makes `make attack` attack a server over TLS, if it is not empty.
TLS ?=

# How long `make attack` goes on with an attack that has no end of its own, and how often it
# makes each.
SECONDS ?= 5
ROUNDS ?= 3
comma := ,

# Without cgo, as in what is released: what make compiles is the same with a C compiler and without one.
export CGO_ENABLED ?= 0

# Whether the programs know their commit, which the reports of hitbench hold: Go stamps it
# unless there is no repository here, or one that git refuses to read.
VCS = $(shell git status --porcelain >/dev/null 2>&1 && echo auto || echo false)

# The steps of scripts/test (--list) that `make test` runs (by default its short form, with
# CI=true all).
STEPS ?=

# Modules of their own, whose dependencies hitline's users are not to get.
MODULES = $(shell scripts/test --modules)

# The scripts that bash runs: each begins with its name.
SHELL_SCRIPTS = $(shell grep -lE '^\#!.*\b(bash|sh)$$' -r .ci scripts deploy)

# Where `make publish-chart` pushes to, after scripts/tool helm registry login.
CHARTS ?= oci://ghcr.io/hitline/charts

# Whether `make rivals` builds Dynamo's index: where cargo is, which takes minutes the first time.
DYNAMO ?= $(shell command -v cargo)

.PHONY: help
help: ## List the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sort | awk -F ':.*## ' '{printf "  %-15s %s\n", $$1, $$2}'
	@echo 'The first time all is compiled. On two cores build, demo and wheels then take a'
	@echo 'minute or two, and test about four.'

.PHONY: build
build: ## Build bin/hitline and bin/hitbench
	scripts/compile -o bin/ -buildvcs=$(VCS) ./cmd/...

.PHONY: rivals
rivals: build ## Build the programs with llm-d's index, and with Dynamo's (DYNAMO), for hitbench compare --holders
	cd bench/rivals/llmd && ../../../scripts/compile -o ../../../bin/hitbench-llmd .
	$(if $(DYNAMO),cargo build --release --locked --quiet --manifest-path bench/rivals/dynamo/Cargo.toml)
	$(if $(DYNAMO),cp bench/rivals/dynamo/target/release/hitbench-dynamo bin/)

.PHONY: demo
demo: build ## Show a hit, a miss and why, a router's answer; replay a trace
	@scripts/demo

.PHONY: test
test: ## Run the short tests; with CI=true all; or only STEPS
	@scripts/test $(STEPS)

.PHONY: fuzz
fuzz: ## Fuzz each target for FUZZTIME (1m)
	@scripts/fuzz $(FUZZTIME)

.PHONY: soak
soak: ## Check every answer of a server under faults for SOAKTIME (10m)
	HITLINE_TEST_SOAK=$(SOAKTIME) go test -count=1 -timeout 0 -v -run '^TestSoak(Stores)?$$' ./lookup/server ./cmd/hitline

.PHONY: torture
torture: ## Ask POOLS random pools in every way
	HITLINE_TEST_POOLS=$(POOLS) go test -count=1 -timeout 0 -v -run '^TestEveryWayAgainstTheOracle$$' ./lookup

.PHONY: reference
reference: ## Compare with vLLM VLLM and SGLang SGLANG on N fresh cases
	@python3 -B scripts/reference --vllm '$(VLLM)' --sglang '$(SGLANG)' --kind '$(KIND)' --cases '$(N)' $(if $(SEED),--seed '$(SEED)')

.PHONY: e2e
e2e: build ## Run real vLLM engines and masters, rows ONLY (or all); downloads 3.3 GB
	@$(PYTHON) -B scripts/e2e $(if $(ONLY),--only '$(ONLY)') $(if $(MOONCAKE),--mooncake '$(MOONCAKE)') $(if $(JSON),--json '$(JSON)') $(if $(KEEP),--keep)

.PHONY: tutorial
tutorial: ## Run the commands of docs/tutorial.md; downloads 3.3 GB
	@scripts/tutorial '$(TUTORIAL)'

# HITLINE_BENCH_ENTRIES is for those of index.
.PHONY: bench
bench: ## Run the Go benchmarks
	go test -run '^$$' -bench . -benchmem ./...

.PHONY: bench-check
bench-check: ## Compare the speed of this tree with that of BASE (main~1)
	@scripts/bench-check $(BASE)

.PHONY: attack
attack: ## Measure memory, and what a client waits, while others attack; ONLY, TLS
	go test -tags hitline_attack -count=1 -timeout 0 -v -run '^Test(Attack|Memory)$$/^($(subst $(comma),|,$(ONLY)))' \
		./internal/attack -args -seconds '$(SECONDS)' -rounds '$(ROUNDS)' $(if $(TLS),-tls)

.PHONY: lint
lint: ## Run staticcheck, golangci-lint and shellcheck
	scripts/tool staticcheck ./...
	@for module in $(MODULES); do echo "$$module"; (cd $$module && '$(CURDIR)/scripts/tool' staticcheck ./...) || exit; done
	scripts/tool golangci-lint run
	shellcheck $(SHELL_SCRIPTS)

.PHONY: lines
lines: ## Count the lines of Go, of its tests and of Python, in all modules, and the words of documents
	@count() { git ls-files -z -- "$${@:2}" | xargs -0 cat | wc $$1; }; \
		echo "Go without tests: $$(count -l '*.go' ':!*_test.go'), tests: $$(count -l '*_test.go'), Python: $$(count -l '*.py') lines;" \
			"documents: $$(count -w '*.md') words"

.PHONY: generate
generate: ## Generate the assembly anew
	go generate ./simd

# --- What a release publishes; dist has what was built. -----------------------

.PHONY: wheels
wheels: ## Build the wheels of this machine (ALL=1: every platform) into dist/wheels
	@scripts/wheels $(if $(ALL),--all)

.PHONY: chart
chart: ## Package the Helm chart into dist/chart
	@scripts/chart-package

.PHONY: image
image: ## Build the image for amd64 and arm64 into dist/image
	@scripts/image

.PHONY: packages
packages: ## Build archives, deb, rpm, SBOMs and checksums into dist
	@scripts/packages

.PHONY: snapshot
snapshot: ## Build everything of a release into dist; publish nothing
	@for part in wheels chart image packages; do echo "== $$part"; $(MAKE) -s $$part ALL=1 || exit; done

.PHONY: check-workflows check-readme check-api check-alerts check-chart check-image check-wheels check-packages check-snapshot
check-workflows: ## Check the workflows, and that what they call exists
	@scripts/check-workflows

check-readme: ## Run make demo and make test in a Debian with Go alone; needs root
	@scripts/check-readme

check-api: ## Compare the Go API with the last release; go install a tag
	@scripts/check-api
	HITLINE_TEST_GO_INSTALL=1 go test -count=1 -run '^TestGoInstall$$' ./scripts

check-alerts: ## Check the alerts, their tests and the dashboard by promtool
	@scripts/check-alerts

check-chart: ## Render the Helm chart for many values and validate it
	@scripts/check-chart

check-image: needs-root image ## Test the image, started from its root file system; needs root
	@scripts/check-image

check-wheels: ALL = 1
check-wheels: needs-root wheels ## Install the wheels in a Debian with Python alone; needs root
	@scripts/check-wheels

check-packages: needs-root packages ## Install, start, upgrade, remove deb and rpm; needs root
	@scripts/check-packages

.PHONY: needs-root
needs-root: # before minutes of compiling
	@[ "$$(id -u)" = 0 ] || { echo "make $(firstword $(MAKECMDGOALS)): needs root for its own root file system: run it by sudo" >&2; exit 1; }

check-snapshot: ## Build a release twice and compare the bytes
	@scripts/check-snapshot

.PHONY: check-release
check-release: needs-root ## All checks of what a release publishes; minutes, needs root
	@for check in workflows readme api alerts chart image wheels packages snapshot; do echo "== check-$$check"; $(MAKE) -s check-$$check || exit; done

.PHONY: publish-image
publish-image: ## Push dist/image of a release to ghcr.io; needs docker login
	@scripts/publish-image

.PHONY: publish-chart
publish-chart: ## Push the chart in dist/chart to CHARTS; needs a login
	@scripts/version --is-release || { echo "make publish-chart: $$(scripts/version) is no release: tag the commit" >&2; exit 1; }
	touch -d "@$$(scripts/version --time)" "dist/chart/hitline-$$(scripts/version).tgz" # helm writes it into the manifest
	scripts/tool helm push "dist/chart/hitline-$$(scripts/version).tgz" $(CHARTS)

.PHONY: clean
clean: ## Remove what was built
	rm -rf bin dist
