# These targets install what they need. Only a Rust toolchain and a C compiler are required.
SHELL := /bin/bash
CARGO ?= cargo

.PHONY: help run test test-slow test-k8s test-chaos bench bench-ratio bench-append bench-tree bench-verify bench-instructions book dashboards load load-overload lint format release dist clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: ## Build and start everything with the hospital demo, and print URLs, tokens and an example call
	$(CARGO) run --locked --bin wardgate -- up $(ARGS)

test: ## Install the test dependencies and run all tests
	tests/run

test-slow: ## Run all tests on a simulated slow machine, TIMES times in a row (default 1)
	tests/slow $(or $(TIMES),1)

test-k8s: ## Install and upgrade the chart in a real API server (the first run builds it, which takes half an hour)
	tests/k8s/run

test-chaos: ## Run the long tests of disk faults, power loss, forgery, kills, identifiers and cluster failures (root, three hours)
	$(CARGO) build --locked --workspace --bin wardgate --example disk_faults --example witness_disk_faults
	tests/faults/run target/debug/examples
	tests/power/run target/debug/examples
	FORGERY_STEP=1 $(CARGO) test --locked --workspace --test promises a10_ -- --nocapture
	tests/kills $(CARGO)
	tests/identifiers $(CARGO)
	tests/cluster/run target/debug/wardgate $(JOURNEYS)
	FAMILY=ipv6 tests/cluster/run target/debug/wardgate install rotation
	FAMILY=dual tests/cluster/run target/debug/wardgate install partitions
	ROTATION_MINUTES=60 tests/cluster/run target/debug/wardgate rotation

bench: ## Measure the cost of a policy decision and of a call, by stage and by route
	$(CARGO) bench --locked --package wardgate-policy --bench decision
	$(CARGO) bench --locked --package wardgate-tool-runner --bench call
	$(CARGO) test --locked --release --package wardgate --test journeys cost:: policy_replay:: -- --include-ignored --nocapture

bench-ratio: ## Compare governed calls with direct calls of the same MCP server, and print the ratios
	deploy/load/ratio $(ARGS)

bench-append: ## Compare appends to the audit log with plain flushes and plain INSERTs, and print the ratios (needs Go)
	deploy/load/append $(ARGS)

bench-tree: ## Measure the CPU time that the transparency log adds per record
	deploy/load/tree

bench-verify: ## Verify an export of RECORDS records (default 1,000,000) on one CPU, and check time and memory against their limits
	deploy/load/verify $(or $(RECORDS),1000000)

bench-instructions: ## Count the instructions of a call, and compare them with the budget (ARGS=--write-budget updates it)
	deploy/load/instructions $(ARGS)

book: ## Build the documentation as HTML in target/book
	tests/book/run

dashboards: ## Regenerate the chart's dashboards, the alert rules and the reference of metrics
	WARDGATE_WRITE_DASHBOARDS=yes $(CARGO) test --locked --package wardgate-telemetry --test shipped

load: ## Load-test every service separately with ghz, and all together (QUICK=1 only checks that the scenarios work)
	deploy/load/run $(if $(QUICK),--quick)

load-overload: ## Send a release build ten times the load that it can serve, and check that it degrades as promised
	deploy/release
	deploy/load/overload target/release/wardgate

lint: ## Check formatting and lints as the tests do
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets -- --deny warnings

format: ## Format the sources
	$(CARGO) fmt --all

release: ## Build the release binary target/release/wardgate, optimised with a profile of its calls (two builds, PostgreSQL, valgrind)
	deploy/release

dist: ## Build binary, image, chart, SBOM and checksums in target/dist, and sign them if KEY names an Ed25519 key
	deploy/dist $(if $(KEY),--key $(KEY))

clean: ## Remove the build output and the data of the demo
	$(CARGO) clean
	rm -rf data
