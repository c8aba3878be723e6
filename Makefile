# hitline: `make` lists the targets.
.DEFAULT_GOAL := help
SHELL := /bin/bash

# What `make fuzz` and `make test` give each target: a time, or executions (see scripts/fuzz).
FUZZTIME ?= 1m
SMOKEFUZZ ?= 8000x
# How long `make soak` takes, and the soak test in `make test`.
SOAKTIME ?= 10m
SMOKESOAK ?= 25s
# How many lookups `make torture` asks by anchors and by all hashes, and how many pools
# it asks in every way.
TORTURE ?= 10000000
POOLS ?= 1000000

# The releases that `make reference` runs (all if both are empty), its fresh cases of each kind,
# and the one kind that it compares (all if empty).
VLLM ?=
SGLANG ?=
N ?= 2000
KIND ?=

# The rows that `make e2e` and `make attack` run (all if empty; scripts/e2e --list, go run
# ./scripts/attack --list), and the Python that `make e2e` is run with and installs.
ONLY ?=
PYTHON ?= python3

# Makes `make attack` attack a server over TLS, if it is not empty.
TLS ?=

# How long `make attack` goes on with an attack that has no end of its own.
SECONDS ?= 5

# Whether the programs know their commit, which the reports of hitbench hold: Go stamps it
# unless there is no repository here, or one that git refuses to read.
VCS = $(shell git status --porcelain >/dev/null 2>&1 && echo auto || echo false)

# Makes `make agree` stop the server while hitbench measures, if it is not empty.
STALLS ?=

# Makes `make agree` measure hitline beside a bare server on gnet, if it is not empty.
BARE ?=

# Pinned tools, run from the module proxy.
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOLANGCI    := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.5.0

.PHONY: help
help: ## List the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sort | awk -F ':.*## ' '{printf "  %-12s %s\n", $$1, $$2}'

.PHONY: build
build: ## Build bin/hitline and bin/hitbench
	go build -buildvcs=$(VCS) -o bin/ ./cmd/...

.PHONY: rivals
rivals: build ## Build bin/hitbench-gomap and bin/hitbench-llmd, which hitbench compare measures beside hitline
	go -C bench/rivals/gomap build -o ../../../bin/hitbench-gomap .
	go -C bench/rivals/llmd build -o ../../../bin/hitbench-llmd .

.PHONY: demo
demo: build ## Start a server, replay real requests over TCP, check every answer
	@scripts/demo

.PHONY: test
test: ## All that CI runs; skips, and says so, what an ordinary machine lacks
	@SMOKEFUZZ=$(SMOKEFUZZ) SMOKESOAK=$(SMOKESOAK) STATICCHECK=$(STATICCHECK) GOLANGCI=$(GOLANGCI) scripts/test

.PHONY: fuzz
fuzz: ## Fuzz each target for FUZZTIME (1m)
	@scripts/fuzz $(FUZZTIME)

.PHONY: soak
soak: ## Check every answer of a server under faults for SOAKTIME (10m)
	HITLINE_TEST_SOAK=$(SOAKTIME) go test -count=1 -timeout 0 -v -run '^TestSoak$$' ./lookup/server

.PHONY: torture
torture: ## Ask TORTURE (10,000,000) lookups by anchors and in full, and POOLS (1,000,000) pools in every way; all must agree
	HITLINE_TEST_TORTURE=$(TORTURE) go test -count=1 -timeout 0 -v -run '^TestTorture$$' ./lookup
	HITLINE_TEST_POOLS=$(POOLS) go test -count=1 -timeout 0 -v -run '^TestEveryWayAgainstTheOracle$$' ./lookup

.PHONY: reference
reference: ## Compare with the Python of vLLM VLLM, SGLang SGLANG (all) on N (2000) fresh cases a kind; needs PyPI
	@python3 -B scripts/reference --vllm '$(VLLM)' --sglang '$(SGLANG)' --kind '$(KIND)' --cases '$(N)' $(if $(SEED),--seed '$(SEED)')

.PHONY: e2e
e2e: build ## Run real vLLM engines on CPU over a real Mooncake store, rows ONLY (all); downloads GB from PyPI
	@$(PYTHON) -B scripts/e2e $(if $(ONLY),--only '$(ONLY)')

.PHONY: bench
bench: ## Run the Go benchmarks, those of index with HITLINE_BENCH_ENTRIES and HITLINE_BENCH_TRACE
	go test -run '^$$' -bench . -benchmem ./...
	go test -run '^$$' -bench Holds -tags hitline_holds ./index

.PHONY: bench-check
bench-check: ## Compare the speed of this tree with that of BASE (main~1), in one run
	@scripts/bench-check $(BASE)

.PHONY: attack
attack: build ## Attack a server, rows ONLY (all), for SECONDS (5) each, with TLS=1 over TLS; print what another client waits meanwhile
	@go run ./scripts/attack --seconds '$(SECONDS)' $(if $(TLS),--tls) $(if $(ONLY),--only '$(ONLY)')

.PHONY: agree
agree: build ## Compare hitbench run with a load generator in C; with STALLS=1 stop the server meanwhile, with BARE=1 measure hitline beside a bare gnet server; minutes, on a quiet machine
	@go run ./scripts/agree $(if $(STALLS),--stalls) $(if $(BARE),--bare)

.PHONY: pictures
pictures: ## Measure this machine and draw the charts of docs/pictures; minutes, on a quiet machine
	@scripts/pictures

.PHONY: screenshots
screenshots: ## Draw the pictures of the status page in docs/pictures; needs chromium
	HITLINE_TEST_PICTURES=$(CURDIR)/docs/pictures go -C lookup/statuspage/browsertest test -count=1 -run '^TestPictures$$' .

.PHONY: lint
lint: ## Run staticcheck and golangci-lint
	go run $(STATICCHECK) ./...
	go run $(GOLANGCI) run

.PHONY: generate
generate: ## Generate the assembly anew
	go generate ./simd

.PHONY: clean
clean: ## Remove what was built
	rm -rf bin
