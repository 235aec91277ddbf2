# Project commands; `make` without a target lists them. Each command prints its steps and stops at
# the first failure.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# rustup installs cargo here, which may not yet be in this shell's PATH.
export PATH := $(PATH):$(HOME)/.cargo/bin
CARGO ?= cargo
# Cargo's target directory; the environment may override it.
TARGET := $(or $(CARGO_TARGET_DIR),target)
# Tests are compiled by clippy's driver, which is the compiler with lints. `cargo clippy` would
# compile every crate, including dependencies, a second time.
LINTED = RUSTC_WORKSPACE_WRAPPER="$$(rustc --print sysroot)/bin/clippy-driver" CLIPPY_ARGS=-Dwarnings
# Prints the name of a step and records its start time, from which `make test` prints the duration
# of each step at the end.
STEPS := $(TARGET)/steps
step = @printf '\033[1m== %s\033[0m\n' "$(1)"; mkdir -p $(TARGET); echo "$$(date +%s) $(1)" >>$(STEPS)

# Installs exactly the packages in the lock file, and only if the lock file is newer than the
# installation. `npm ci` is not used, because npm 11 rejects a lock file that was written on another
# platform and lacks this platform's optional packages.
INSTALL_MODULES := npm install --no-save --no-audit --no-fund --loglevel=error
CONSOLE_MODULES := console/node_modules/.package-lock.json
BROWSER_MODULES := tests/browser/node_modules/.package-lock.json
CONSOLE_SOURCES := $(shell find console/src console/index.html console/public -type f 2>/dev/null) \
	console/package.json console/vite.config.ts console/tsconfig.json

.PHONY: help
help: ## this list
	@printf 'make demo           %s\n' 'build and run origin, live source, edge, agent, controller, console and (as root) an audience; Ctrl-C stops'
	@printf 'make test           %s\n' 'all tests: format, lints, unit, scenario, model check, browser'
	@printf 'make test-long      %s\n' 'simulated days of control, and all published results (as root): nine hours'
	@printf 'make build          %s\n' 'the console and target/release/thalweg'
	@printf 'make lab            %s\n' 'target/release/thalweg-lab: emulated networks, audience, load, reproductions of published results'
	@printf 'make bench-relay    %s\n' 'delay of a chunk through the edge, for 1, 50 and 200 clients'
	@printf 'make bench-load     %s\n' 'the load generator and wrk: cost per request'
	@printf 'make bench-eviction %s\n' "hit ratios of the cache's eviction, LRU, CLOCK and SIEVE"
	@printf 'make bench-sockets  %s\n' 'a dump of all sockets, ss -tin, and the agent: CPU, time, memory'
	@printf 'make bench-intake   %s\n' "records per second into the controller's windows: CPU and memory"
	@printf 'make bench-telemetry %s\n' 'records per second into each sink and through Kafka; CASES="files kafka clickhouse" selects'
	@printf 'make setup-services %s\n' "Kafka and ClickHouse's engine for the tests, under target/services"
	@printf 'make services       %s\n' 'Kafka on 127.0.0.1:9092 and ClickHouse on 127.0.0.1:8123, to try out telemetry; Ctrl-C stops'
	@printf 'make fuzz           %s\n' 'one parser under libFuzzer: PARSER=ranges FOR_S=600'
	@printf 'make bench-edge     %s\n' 'the edge, nginx, Varnish and Traffic Server; CASES="hits idle" selects, QUICK=1 is short'
	@printf 'make bench-origin   %s\n' 'the origin, from files and S3, and nginx with plain files: CPU per segment; QUICK=1 is short'
	@printf 'make figures        %s\n' 'reports and charts of the published results, into docs/figures (as root): nine hours; CASES="varnish lumen" selects, QUICK=1 is short'
	@printf 'make sample         %s\n' 'regenerate assets/sample with ffmpeg'
	@printf 'make clean          %s\n' 'remove all build results'

# The audience's network namespaces need root. `make demo AUDIENCE=` runs the demo without an
# audience. So does a machine that lacks the lab's requirements, and the demo reports the reason.
AUDIENCE := $(if $(filter 0,$(shell id -u)),lab)

.PHONY: demo
demo: setup-demo console
	$(call step,build thalweg)
	@$(CARGO) build --profile demo -p thalweg
	$(call step,run: Ctrl-C stops)
	@exec tools/foreground tools/demo $(TARGET)/demo $(if $(AUDIENCE),"$(CARGO)")

.PHONY: build
build: setup-demo console
	$(call step,build thalweg)
	@$(CARGO) build --release -p thalweg
	@tools/split-symbols $(TARGET)/release/thalweg

.PHONY: lab
lab: setup-lab
	$(call step,build thalweg-lab)
	@$(CARGO) build --release -p thalweg-lab
	@tools/split-symbols $(TARGET)/release/thalweg-lab

.PHONY: services
services: setup-services
	$(call step,build the starter)
	@$(CARGO) build -p thalweg-tests --bin services
	$(call step,run: Ctrl-C stops)
	@exec tools/foreground $(TARGET)/debug/services

.PHONY: test
test: forget-steps setup-test setup-services console check-console check-rust check-model check-browser
	$(call step,all tests passed)
	@awk 'NR > 1 { printf "%5d s  %s\n", $$1 - began, name } { began = $$1; name = substr($$0, length($$1) + 2) }' $(STEPS)

.PHONY: test-long
test-long: setup-test setup-lab console
	$(call step,control: simulated days)
	@$(LINTED) $(CARGO) test -p thalweg-control --lib -- --ignored --nocapture long_
	@$(LINTED) $(CARGO) test -p thalweg-controller --test service -- --ignored --nocapture long_
	$(call step,published results: reports in $(TARGET)/reproduced)
	@$(LINTED) $(CARGO) build --workspace --all-targets
	@$(TARGET)/debug/thalweg-lab reproduce all --cache $(TARGET)/unified --out $(TARGET)/reproduced

.PHONY: forget-steps
forget-steps:
	@rm -f $(STEPS)

.PHONY: bench-relay
bench-relay: setup-bench build
	$(call step,relay delay through the edge)
	@$(CARGO) bench -p thalweg-tests --bench relay

.PHONY: bench-edge
bench-edge: setup-bench build
	$(call step,the edge beside its peers)
	@$(CARGO) bench -p thalweg-tests --bench edge -- $(CASES) $(if $(QUICK),--quick)

.PHONY: bench-origin
bench-origin: setup-bench build
	$(call step,the origin beside nginx with plain files)
	@$(CARGO) bench -p thalweg-tests --bench origin $(if $(QUICK),-- --quick)

.PHONY: bench-load
bench-load: setup-bench build lab
	$(call step,the load generator beside wrk)
	@$(CARGO) bench -p thalweg-tests --bench generator

.PHONY: bench-eviction
bench-eviction:
	$(call step,hit ratios beside LRU, CLOCK and SIEVE)
	@$(CARGO) bench -p thalweg-tests --bench eviction

.PHONY: bench-sockets
bench-sockets: setup-bench build
	$(call step,a dump of all sockets beside ss)
	@$(CARGO) bench -p thalweg-tests --bench sockets

.PHONY: bench-intake
bench-intake: setup-bench build
	$(call step,records into the controller's windows)
	@$(CARGO) bench -p thalweg-tests --bench intake

.PHONY: bench-telemetry
bench-telemetry: setup-services
	$(call step,records through the spool and into each sink)
	@$(CARGO) bench -p thalweg-tests --bench telemetry -- $(CASES)

# Coverage instrumentation with options of the stable compiler. With `--target`, they do not apply
# to build scripts.
FUZZ_FLAGS := --cfg fuzzing -Cdebug-assertions -Cpasses=sancov-module $(addprefix -Cllvm-args=-sanitizer-coverage-,\
	level=4 inline-8bit-counters pc-table trace-compares)
FUZZ_HOST = $(shell rustc -vV | sed -n 's/host: //p')
FUZZ_OUT := $(TARGET)/fuzz
PARSER ?= ranges
FOR_S ?= 60

.PHONY: fuzz
fuzz:
	$(call step,fuzz $(PARSER) for $(FOR_S) s)
	@RUSTFLAGS="$(FUZZ_FLAGS)" CARGO_TARGET_DIR=$(FUZZ_OUT) $(CARGO) build --release -p thalweg-fuzz \
		--features guided --target $(FUZZ_HOST)
	@mkdir -p $(FUZZ_OUT)/$(PARSER)
	@PARSER=$(PARSER) $(FUZZ_OUT)/$(FUZZ_HOST)/release/guided -max_total_time=$(FOR_S) -max_len=2048 \
		-artifact_prefix=$(FUZZ_OUT)/$(PARSER)- $(FUZZ_OUT)/$(PARSER) fuzz/corpus/$(PARSER)

# The published results that are reproduced, unless CASES selects some.
RESULTS = $(or $(CASES),varnish lumen unified edgio outcomes)

# Measures in release builds. Like a list of names, a single one gets a directory of its own.
.PHONY: figures
figures: setup-bench setup-lab build lab
	$(call step,published results: reports and charts in docs/figures)
	@$(TARGET)/release/thalweg-lab reproduce $(RESULTS) $(if $(QUICK),--quick) \
		--cache $(TARGET)/unified --out docs/figures$(if $(filter 1,$(words $(RESULTS))),/$(strip $(RESULTS)))

.PHONY: sample
sample:
	$(call step,make assets/sample)
	@tools/setup sample
	@assets/make-sample

.PHONY: clean
clean:
	rm -rf target console/dist console/node_modules tests/browser/node_modules tests/out

# Steps of the commands above.

.PHONY: setup-demo setup-test setup-lab setup-bench setup-services
setup-demo setup-test setup-lab setup-bench setup-services: setup-%:
	$(call step,set up for $*)
	@tools/setup $*

$(CONSOLE_MODULES): console/package-lock.json
	$(call step,install the console's packages)
	@cd console && $(INSTALL_MODULES)
	@touch $@

$(BROWSER_MODULES): tests/browser/package-lock.json
	$(call step,install the browser test's packages)
	@cd tests/browser && $(INSTALL_MODULES)
	@touch $@

.PHONY: console
console: console/dist/index.html

console/dist/index.html: $(CONSOLE_MODULES) $(CONSOLE_SOURCES)
	$(call step,build the console)
	@cd console && npm run --silent build

.PHONY: check-console
check-console: $(CONSOLE_MODULES) $(BROWSER_MODULES)
	$(call step,console: types and unit tests)
	@cd console && npm run --silent typecheck && npm run --silent test

.PHONY: check-rust
check-rust: console
	$(call step,format)
	@$(CARGO) fmt --all --check
	$(call step,build with lints)
	@$(LINTED) $(CARGO) build --workspace --all-targets
	$(call step,unit and scenario tests)
	@$(LINTED) CARGO="$(CARGO)" $(TARGET)/debug/suite

.PHONY: check-model
check-model:
	$(call step,FillBuffer under the model checker)
	@RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=$(TARGET)/loom $(CARGO) test --release -p thalweg-cache --test loom

.PHONY: check-browser
check-browser: console $(BROWSER_MODULES)
	$(call step,browser)
	@$(LINTED) $(CARGO) build --workspace --all-targets
	@cd tests/browser && THALWEG="$(if $(filter /%,$(TARGET)),$(TARGET),$(CURDIR)/$(TARGET))/debug/thalweg" npm run --silent test

# Run one step after another, even with -j: cargo and the browser each need the whole machine.
.NOTPARALLEL:
