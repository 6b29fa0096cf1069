# Everything needed is installed by these targets: a Rust toolchain and a C compiler are enough to begin.
SHELL := /bin/bash
CARGO ?= cargo

.PHONY: help run test test-slow test-k8s test-chaos bench bench-ratio bench-append bench-tree bench-verify bench-instructions book dashboards load load-overload lint format release dist clean

help: ## Show what can be made
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: ## Build, start everything with the hospital demo, print URLs, tokens and a first call
	$(CARGO) run --locked --bin wardgate -- up $(ARGS)

test: ## Install what the tests need, then run them all
	tests/run

test-slow: ## Run them on a slow machine: four busy processes beside them, each flush up to 300 ms longer; TIMES=10 in a row
	tests/slow $(or $(TIMES),1)

test-k8s: ## Install and upgrade the chart in a real API server, which is built once (half an hour)
	tests/k8s/run

test-chaos: ## Let each system call on the record fail; lose power at each flush; forge each byte and entry of a log; kill the audit service 1,000 times, all 100 times and its PostgreSQL 20 times; look for identifiers after 100,000 calls; run the chart's pods under load, restart, kill, part and upgrade them (root, two hours)
	$(CARGO) build --locked --workspace --bin wardgate --example disk_faults --example witness_disk_faults
	tests/faults/run target/debug/examples
	tests/power/run target/debug/examples
	FORGERY_STEP=1 $(CARGO) test --locked --workspace --test promises a10_ -- --nocapture
	tests/kills $(CARGO)
	tests/identifiers $(CARGO)
	tests/cluster/run target/debug/wardgate $(JOURNEYS)

bench: ## Measure what a call costs: the tool-runner itself by stage, then direct, by an upstream's route and on /mcp
	$(CARGO) bench --locked --package wardgate-policy --bench decision
	$(CARGO) bench --locked --package wardgate-tool-runner --bench call
	$(CARGO) test --locked --release --package wardgate --test journeys cost:: policy_replay:: -- --include-ignored --nocapture

bench-ratio: ## Measure a governed call beside the same call made at the MCP server itself, and print the ratios
	deploy/load/ratio $(ARGS)

bench-append: ## Measure appends to the record beside a bare loop of flushes and a bare INSERT, and print the ratios (needs Go)
	deploy/load/append $(ARGS)

bench-tree: ## Measure the processor time that the transparency log adds to each record
	deploy/load/tree

bench-verify: ## Verify an export of RECORDS records (1,000,000) on one processor, and hold time and memory against their limits
	deploy/load/verify $(or $(RECORDS),1000000)

bench-instructions: ## Count the instructions of a governed call by stage, and compare them with the budget (valgrind); ARGS=--write-budget
	deploy/load/instructions $(ARGS)

book: ## Build the documentation as HTML, below target/book
	tests/book/run

dashboards: ## Make the chart's dashboards, the alert rules and the page of the metrics anew, from the names of the metrics
	WARDGATE_WRITE_DASHBOARDS=yes $(CARGO) test --locked --package wardgate-telemetry --test shipped

load: ## Put every service under load, alone by ghz and together; QUICK=1 only tries that it works
	deploy/load/run $(if $(QUICK),--quick)

load-overload: ## Ask a release build for ten times what it can do, and see what becomes of it
	$(CARGO) build --locked --release --package wardgate
	deploy/load/overload target/release/wardgate

lint: ## Formatting and lints, as the tests check them
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets -- --deny warnings

format: ## Format the sources
	$(CARGO) fmt --all

# Of this package alone: what tests want of a library is not built into what ships.
release: ## Build the binary that ships: target/release/wardgate
	$(CARGO) build --locked --release --package wardgate

dist: ## What a release consists of, in target/dist: binary, image, chart, SBOM, checksums, signed where KEY names an Ed25519 key
	deploy/dist $(if $(KEY),--key $(KEY))

clean: ## Remove build output and the demo's data
	$(CARGO) clean
	rm -rf data
