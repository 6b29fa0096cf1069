# Everything needed is installed by these targets: a Rust toolchain and a C compiler are enough to begin.
SHELL := /bin/bash
CARGO ?= cargo

.PHONY: help run test bench lint format release clean
.PHONY: dashboards

help: ## Show what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: ## Build, start everything with the hospital demo, print URLs, tokens and a first call
	$(CARGO) run --locked --bin wardgate -- up $(ARGS)

test: ## Install what the tests need, then run them all
	tests/run

bench: ## Measure what a call costs: the tool-runner itself by stage, then direct, by an upstream's route and on /mcp
	$(CARGO) bench --locked --package wardgate-tool-runner --bench call
	$(CARGO) test --locked --release --package wardgate --test journeys cost:: -- --ignored --nocapture

dashboards: ## Make the chart's dashboards and alert rules anew, from the names of the metrics
	WARDGATE_WRITE_DASHBOARDS=yes $(CARGO) test --locked --package wardgate-telemetry --test shipped

lint: ## Formatting and lints, as the tests check them
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets -- --deny warnings

format: ## Format the sources
	$(CARGO) fmt --all

release: ## Build the binary that ships: target/release/wardgate
	$(CARGO) build --locked --release --bin wardgate

clean: ## Remove build output and the demo's data
	$(CARGO) clean
	rm -rf data
