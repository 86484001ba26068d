# Forebay. `make help` lists the targets; meson and ninja do the work, each kind of build in a directory of its own.

SHELL := /bin/bash
# Debian's meson first: an older or newer one from elsewhere on PATH works too.
MESON ?= $(firstword $(wildcard /usr/bin/meson) meson)
CLANG ?= $(firstword $(shell command -v clang clang-16 clang-15 clang-14 2>/dev/null) clang)
PREFIX ?= /usr/local
WERROR ?= false
STEPS ?= 1000000
SEED ?= 1
FUZZ_SECONDS ?= 30
TESTS ?=
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: build demo test live gpu python engines engine-demo engine-exact vllm-exact sglang sglang-exact sglang-demo sglang-compare lmcache asan tsan ubsan sim bench model fuzz clang lint docs install help clean setup-build setup-docs setup-lint setup-test

build: setup-build build/.configured-$(WERROR) ## Build the library and the command (build/forebay), optimised
	@$(MESON) compile -C build

demo: build ## Show what Forebay does: every policy and stop mode on real bytes (ARGS=--json)
	@build/forebay demo $(ARGS)

test: setup-test build-debug/.configured-$(WERROR) ## Build with invariants on and run the whole suite, C and Python (TESTS=test names)
	@$(MESON) compile -C build-debug
	@MESON=$(MESON) scripts/test-all build-debug $(TESTS)

live: setup-test build-debug/.configured-$(WERROR) ## Faults against real stores: a Mooncake and a Redis are started, broken and mended
	$(call run_tests,build-debug,1,--suite live)

asan: setup-test build-asan/.configured-$(WERROR) ## The suite under AddressSanitizer, LeakSanitizer and UBSan
	$(call run_tests,build-asan,4)

tsan: setup-test build-tsan/.configured-$(WERROR) ## The suite under ThreadSanitizer
	$(call run_tests,build-tsan,10)

ubsan: setup-test build-ubsan/.configured-$(WERROR) ## The suite under UBSan alone
	$(call run_tests,build-ubsan,3)

sim: setup-build build-sim/.configured-$(WERROR) ## Run the simulator: make sim STEPS=10000000 SEED=7
	@$(MESON) compile -C build-sim
	@build-sim/forebay-sim --steps $(STEPS) --seed $(SEED) $(ARGS)

bench: setup-build build-bench/.configured-$(WERROR) ## Run the micro-benchmarks of core, index and rank copies (ratios and costs, not tests)
	@$(MESON) compile -C build-bench
	@build-bench/bench/bench_core && build-bench/bench/bench_index && \
	build-bench/forebay bench copy --layouts

gpu: setup-test build-debug/.configured-$(WERROR) ## Rank copies on a real GPU ($$FOREBAY_GPU: which), where there is one
	@$(MESON) compile -C build-debug test_rank_gpu
	@build-debug/tests/test_rank_gpu || [ $$? -eq 77 ]

python: setup-test ## Build the Python package, install it into a fresh environment, test it there
	@scripts/test-python

engines: setup-test ## vLLM with Forebay on tiny models: restored requests give the tokens of cold ones (ARGS="--only TEXT")
	@scripts/test-engines vllm $(ARGS)

engine-exact: vllm-exact sglang-exact ## vLLM and SGLang with Gemma-3 270M and SmolLM2 on every store, before a release (ARGS=--json)

vllm-exact: setup-test ## Only vLLM
	@scripts/with-engine vllm python engines/vllm_exact.py --real $(ARGS)

engine-demo: setup-test ## vLLM's API server on Gemma-3 270M: cold, restored, cut by a deadline (ARGS=--json)
	@scripts/with-engine vllm python engines/vllm_demo.py $(ARGS)

sglang: setup-test ## SGLang with Forebay on tiny models, as radix cache and behind HiCache (ARGS="--only TEXT")
	@scripts/test-engines sglang $(ARGS)

sglang-exact: setup-test ## Only SGLang
	@scripts/with-engine sglang python engines/sglang_exact.py --real $(ARGS)

sglang-demo: setup-test ## SGLang's server on SmolLM2: cold, restored, cut by a deadline (ARGS=--json)
	@scripts/with-engine sglang python engines/sglang_demo.py $(ARGS)

sglang-compare: setup-test ## SGLang's HiCache backends and Forebay side by side (ARGS=--quick, ARGS=--json)
	@scripts/with-engine sglang python engines/sglang_compare.py $(ARGS)

lmcache: setup-test ## LMCache's own benchmark, checker and storage manager with Forebay as its L2 (ARGS="--only TEXT")
	@scripts/test-engines lmcache $(ARGS)

model: setup-lint ## Check the models in model/ exhaustively (spin)
	@scripts/check-models build-model

fuzz: setup-lint build-fuzz/.configured-$(WERROR) ## Fuzz every target with libFuzzer for FUZZ_SECONDS each
	@$(MESON) compile -C build-fuzz
	@scripts/fuzz build-fuzz $(FUZZ_SECONDS)

clang: setup-test build-clang/.configured-true ## Build everything with clang, warnings as errors
	@$(MESON) compile -C build-clang

lint: setup-lint build-clang/.configured-true ## clang-format, clang-tidy and shellcheck over all files (ARGS=--changed)
	@scripts/lint build-clang $(ARGS)

docs: setup-docs build ## Check the documents (links, marked commands) and build the C and Python reference (build/docs/index.html)
	@scripts/check-docs
	@scripts/build-reference build

install: build ## Install library, headers, command and pkg-config file under PREFIX (DESTDIR is respected)
	@[ "$$(cat build/.prefix 2>/dev/null)" = "$(PREFIX)" ] || { $(MESON) configure build --prefix=$(PREFIX) && \
	$(MESON) compile -C build && echo "$(PREFIX)" >build/.prefix; }
	@$(MESON) install -C build --no-rebuild

help: ## Show this
	@echo "Targets:"
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{printf "%-13s %s\n", $$1, $$2}'

clean: ## Remove every build directory
	rm -rf build build-asan build-bench build-ci build-clang build-debug build-engines build-fuzz build-model build-python build-sim build-tsan build-ubsan

setup-build:
	@scripts/setup build
setup-docs:
	@scripts/setup docs
setup-test:
	@scripts/setup test
setup-lint:
	@scripts/setup all

# $(call run_tests,directory,timeout multiplier,which): runs them, then counts single tests; fails as the suite does.
define run_tests
	@$(MESON) compile -C $(1)
	@rm -f $(1)/meson-logs/testlog.json
	@$(MESON) test -C $(1) --no-rebuild --print-errorlogs --timeout-multiplier $(2) $(3) $(TESTS); code=$$?; \
	scripts/count-tests $(1) || code=1; exit $$code
endef

# $(call directory,name,environment,options,warnings are errors). The directory fuzz is a prerequisite since its list of targets is read when
# the build is configured. A directory that another version of meson made is made again.
define directory
$(1)/.configured-$(4): Makefile meson.build meson_options.txt fuzz/.
	@mkdir -p $(1)
	@rm -f $(1)/.configured-* $(1)/.prefix
	@if [ -f $(1)/build.ninja ]; then $(2) $$(MESON) setup --reconfigure $(1) $(3) || $(2) $$(MESON) setup --wipe $(1) $(3); \
	else $(2) $$(MESON) setup $(1) $(3); fi
	@touch $$@
endef
, := ,

$(eval $(call directory,build,,--buildtype=release -Dinvariants=false -Dtests=false --prefix=$(PREFIX) -Dwerror=$(WERROR),$(WERROR)))
$(eval $(call directory,build-debug,,--buildtype=debugoptimized -Dwerror=$(WERROR),$(WERROR)))
$(eval $(call directory,build-asan,,--buildtype=debugoptimized -Db_sanitize=address$(,)undefined -Db_lundef=false -Dwerror=$(WERROR),$(WERROR)))
$(eval $(call directory,build-tsan,,--buildtype=debugoptimized -Db_sanitize=thread -Db_lundef=false -Dwerror=$(WERROR),$(WERROR)))
$(eval $(call directory,build-ubsan,,--buildtype=debugoptimized -Db_sanitize=undefined -Db_lundef=false -Dwerror=$(WERROR),$(WERROR)))
$(eval $(call directory,build-bench,,--buildtype=release -Dinvariants=false -Dtests=false -Dwerror=$(WERROR),$(WERROR)))
$(eval $(call directory,build-sim,,--buildtype=release -Dinvariants=true -Dtests=false -Dwerror=$(WERROR),$(WERROR)))
$(eval $(call directory,build-fuzz,CC=$(CLANG),--buildtype=debugoptimized -Dfuzzer=true -Dtests=false \
  -Db_sanitize=address$(,)undefined -Db_lundef=false -Dwerror=$(WERROR),$(WERROR)))
$(eval $(call directory,build-clang,CC=$(CLANG),--buildtype=debugoptimized -Dwerror=true,true))
