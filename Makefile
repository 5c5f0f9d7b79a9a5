SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

MODULE := github.com/slidingwindow/caddy-sliding-window

# How long make fuzz spends on each target, and in which packages it looks. By
# default Go may spend a minute on making each new input smaller: nearly all of it.
FUZZTIME ?= 5m
FUZZPKGS ?= ./...

# What make test-valkey runs is where servers differ: what scripts answer and may do, how they are
# loaded, ACL, Cluster.
VALKEY_WALKS := ^Test(Conformance|AgreesWithMemory.*|AgreeOnBans)$$
VALKEY_TESTS := ^Test(Bans.*|Cluster|Connect|GiveBack|Lease.*|Permissions|ReplyLost|ScriptFlush|TLS|Together.*)$$

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# Vet has -race too, so that the test run finds everything compiled.
.PHONY: test
test: ## Vet, check the format, run the tests, with the race detector where goroutines meet; a skipped test fails
	scripts/install-redis.sh
	go vet -race ./...
	@unformatted=$$(gofmt -l .); test -z "$$unformatted" || { echo "run gofmt -w on:"; echo "$$unformatted"; exit 1; } >&2
	scripts/test.sh

.PHONY: test-engine
test-engine: ## Run the tests of the engine and its scripts only; they do not compile Caddy
	scripts/install-redis.sh
	PACKAGES='./window/... ./lua/...' scripts/test.sh

.PHONY: test-faults
test-faults: ## Run what watches the clock: Redis, the network and clocks fail under traffic; whole Caddys settle (11 minutes)
	scripts/install-redis.sh
	scripts/test.sh $$(sed 's|^|./|' scripts/alone)
	for dir in internal/tests/faults internal/tests/soak; do go -C $$dir vet -race ./...; DIR=$$dir scripts/test.sh ./...; done

# The percent of the walks.
PART ?= 100

# A walk is one goroutine's: the race detector would find nothing, and take three times as long. Most
# of the time here is that of the scripts: a walk is decided in memory, and played to Redis at once.
.PHONY: test-long
test-long: ## Run all random walks of both stores, also on bans, 100,000 schedules of concurrent, and 10,000 traces of replay, with seeds that are printed; make test runs some
	scripts/install-redis.sh
	RACE= scripts/test.sh -run '^Test(Conformance|Agree)' ./window/memory ./window/redis -windowtest.seed 0 -windowtest.part $(PART)
	RACE= scripts/test.sh -run '^TestAgree(OnBans)?$$' ./internal/bans ./window/redis -bans.seed 0 -bans.writes 1000000
	RACE= scripts/test.sh -run '^TestSchedules$$' ./window/redis/internal/totals -totals.seed 0 -totals.schedules 100000
	RACE= scripts/test.sh -run '^TestAsLive$$' ./internal/replay -replay.seed 0 -replay.traces 10000

.PHONY: test-versions
test-versions: ## Test the newest Caddy, the oldest Go, 32 bits, three platforms (PLATFORMS=all: ten), and other plugins beside
	scripts/install-redis.sh
	PLATFORMS='$(PLATFORMS)' scripts/test-versions.sh

.PHONY: test-valkey
test-valkey: ## Run the tests of the Redis store on Valkey, which is brought beside the system
	@server=$$(scripts/install-valkey.sh); \
	export REDIS_SERVER=$$server; \
	RACE= scripts/test.sh -run '$(VALKEY_WALKS)' ./window/redis -windowtest.part 20; \
	scripts/test.sh -run '$(VALKEY_TESTS)' ./window/redis

.PHONY: test-prometheus
test-prometheus: ## Have a Prometheus, which is brought beside the system, evaluate docs/grafana.json and docs/alerts.yml
	scripts/install-redis.sh
	@prometheus=$$(scripts/install-prometheus.sh); \
	go vet -tags prometheus ./internal/tests/seeing; \
	PROMETHEUS=$$prometheus scripts/test.sh -tags prometheus ./internal/tests/seeing

.PHONY: test-flood
test-flood: ## Flood a full memory store with 5,000,000 keys, as make test does, and show its memory
	go test -v -count 1 -run '^TestFloodOfKeys$$' ./window/memory

.PHONY: test-size
test-size: ## Suggest limits by a log of 100,000,000 lines with 10,000,000 keys, in 2 GiB (20 minutes on two cores)
	go test -v -count 1 -timeout 2h -run '^TestSize$$' ./internal/replay -replay.lines 100000000 -replay.keys 10000000

.PHONY: soak
soak: ## Ten minutes of load and faults at random for one server and for a Cluster, reported in internal/tests/soak/REPORT.md; make test-faults takes 15 seconds
	scripts/install-redis.sh
	go -C internal/tests/soak test -race -v -count 1 -timeout 40m -run '^TestSoak(Cluster)?$$' . -soak.length 10m -soak.report REPORT.md

.PHONY: fuzz
fuzz: ## Run every fuzz target for FUZZTIME (5m); FUZZPKGS narrows it: make fuzz FUZZPKGS=./window
	@status=0; found=0; \
	for pkg in $$(go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' $(FUZZPKGS)); do \
		list=$$(go test -list '^Fuzz' "$$pkg"); \
		for target in $$(grep '^Fuzz' <<<"$$list" || true); do \
			found=1; echo "$$pkg $$target"; \
			go test -run '^$$' -fuzz "^$$target\$$" -fuzzminimizetime 100x -fuzztime $(FUZZTIME) "$$pkg" || status=1; \
		done; \
	done; \
	test $$found = 1 || { echo "no fuzz targets in $(FUZZPKGS)" >&2; exit 1; }; \
	exit $$status

# How long make mutants goes on; 0: until all mutants are tried, which takes hours.
MUTANTSTIME ?= 20m

.PHONY: mutants
mutants: ## Change the Lua scripts a little, and print the changes that no test sees: internal/tests/README.md
	scripts/install-redis.sh
	go run ./internal/tests/mutants -for $(MUTANTSTIME)

.PHONY: bench
bench: ## Measure speed and memory beside other limiters, and write bench/RESULTS.md (half an hour)
	scripts/install-redis.sh
	go -C bench run ./speed -document RESULTS.md -plots ../docs

.PHONY: bench-beside
bench-beside: ## Compare Go benchmarks with those of a commit: make bench-beside BASE=v0.1.0
	scripts/bench-beside.sh

.PHONY: plots
plots: ## Draw the plots of the documents again, from their tables, without measuring
	go -C bench run ./speed -redraw -document RESULTS.md -plots ../docs
	go -C bench run ./course -document RESULTS.md -plots ../docs
	go -C bench run ./accuracy -redraw RESULTS.md -plots ../docs >/dev/null

.PHONY: test-bench
test-bench: ## Vet and test what make bench consists of; it is a module of its own
	scripts/install-redis.sh
	go -C bench vet ./...
	go -C bench test ./...

.PHONY: test-page
test-page: ## Test the page of caddy sliding-window page and the reports of logs in Chromium; a module of its own
	scripts/install-chromium.sh
	go -C internal/tests/pagetest vet ./...
	go -C internal/tests/pagetest test -count 1 -timeout 15m ./...

.PHONY: test-upgrading
test-upgrading: ## Replace Caddys of former commits, which are built from the history, by this one under traffic, and back
	scripts/install-redis.sh
	go vet -tags upgrading ./internal/tests/upgrading
	scripts/test.sh -tags upgrading ./internal/tests/upgrading

.PHONY: test-kubernetes
test-kubernetes: ## Decode docs/kubernetes.yaml as Kubernetes does; it is a module of its own
	go -C internal/tests/kubetest vet ./...
	go -C internal/tests/kubetest test -count 1 ./...

.PHONY: release-snapshot
release-snapshot: ## Build what a release of this commit consists of into dist: docs/releasing.md; needs no network
	go -C internal/release run . -source $(CURDIR) -out $(CURDIR)/dist

.PHONY: test-release
test-release: ## Test releases: digests, packages, SBOM, workflows, and the routes to the first 429; it is a module of its own
	go -C internal/release vet ./...
	go -C internal/release test -v -count 1 -timeout 30m ./...

.PHONY: test-clients
test-clients: ## Have the clients of OpenAI and Anthropic, which npm brings beside the system, meet limits of tokens
	@clients=$$(scripts/install-llm-clients.sh); \
	go vet -tags llmclients ./internal/tests/llmclients; \
	LLM_CLIENTS=$$clients RACE= scripts/test.sh -tags llmclients ./internal/tests/llmclients

.PHONY: page-pictures
page-pictures: ## Write the pictures of the page in docs
	scripts/install-chromium.sh
	go -C internal/tests/pagetest test -count 1 -run '^TestScreenshots$$' . -screenshots

.PHONY: run
run: ## Run Caddy with this plugin and Caddyfile.example
	go run -modfile=newest.mod ./cmd/caddy run --config Caddyfile.example

# xcaddy takes the newest Caddy unless it is told which. With a version of this very
# module, it does not ask a proxy for one.
.PHONY: build
build: ## Build ./caddy with xcaddy, on the Caddy version of newest.mod
	CADDY_VERSION=$$(go list -modfile=newest.mod -m -f '{{.Version}}' github.com/caddyserver/caddy/v2) \
	go tool -modfile=tools/go.mod xcaddy build --with $(MODULE)@v0.0.0=.

.PHONY: lint
lint: ## Run golangci-lint
	@command -v golangci-lint >/dev/null || { echo "golangci-lint (v2) is not on PATH; see its documentation for how to install it" >&2; exit 1; }
	golangci-lint run
	for dir in bench internal/release internal/tests/{faults,kubetest,neighbours,pagetest,soak}; do (cd $$dir && golangci-lint run); done
