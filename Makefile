# SPDX-License-Identifier: Apache-2.0
.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help apply test check export bench codegen eval eval-smoke report bundle pr clean

# Only what stands on make's own command line counts: PYTHON or VLLM in the environment
# may mean something else. make exports those, so "$$NAME" keeps any character.
given = $(filter command,$(origin $(1)))
option = $(if $(call given,$(1)),$(2) "$$$(1)")

OP := dot
python := .venv/bin/python
environment = @command -v python3 >/dev/null \
	|| { echo 'python3 is not on the PATH: install Python 3.11 or newer.' >&2; exit 1; }; \
	python3 requirements/environment.py

help: ## print this
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 12
	@echo 'VLLM=clone  PYTHON=interpreter  SWITCH=1  OUT=folder  OP=dot|gdn  NAME=change-set  ONTO=release  MODEL=model  TASKS=tasks  N=questions  DATA=folder  ARGS="more arguments"'

apply: ## put the series on the pinned tree in build/vllm, or on the clone VLLM= names
	$(environment) apply
	@$(python) apply.py apply $(call option,VLLM,--vllm) \
		$(if $(and $(call given,SWITCH),$(filter 1,$(SWITCH))),--switch) $(ARGS)

test: ## test this repository, then the patched tree; PYTHON= has a torch of its own
	$(environment) $(if $(call given,PYTHON),own,test)
	@$(python) tests/run.py $(call option,VLLM,--vllm) \
		$(call option,PYTHON,--python) $(ARGS)

check: ## try every patch on other releases, and on a clone's main; changes nothing
	$(environment) apply
	@$(python) apply.py check $(call option,VLLM,--vllm) \
		$(call option,PYTHON,--python) $(ARGS)

export: ## write the branch back to patches/
	$(environment) apply
	@$(python) apply.py export $(call option,VLLM,--vllm) $(ARGS)

bench: ## time a kernel on the GPU: OP=dot or OP=gdn
	$(environment) $(if $(call given,PYTHON),apply,test)
	@$(python) evals/bench.py $(OP) $(call option,VLLM,--vllm) \
		$(call option,PYTHON,--python) $(ARGS)

codegen: ## cross-compile the kernels for AMD GPUs: registers, spills, LDS; needs no GPU
	$(environment) test
	@$(python) evals/codegen.py $(ARGS)

eval: ## did the patches change a model's answers? MODEL= and PYTHON= name what is served
	$(environment) eval
	@$(python) evals/eval.py $(call option,MODEL,--model) $(call option,TASKS,--tasks) \
		$(call option,N,--questions) $(call option,DATA,--data) \
		$(call option,VLLM,--vllm) $(call option,PYTHON,--python) $(ARGS)

eval-smoke: ## serve both arms on a CPU with two small models: do they answer alike?
	$(environment) eval
	@python3 requirements/environment.py cpu
	@$(python) evals/smoke.py $(call option,VLLM,--vllm) \
		$(call option,DATA,--data) $(ARGS)

report: ## write the page of all records, build/report/index.html; needs no GPU
	$(environment) evals
	@$(python) evals/report.py $(ARGS)

bundle: ## pack the patched tree for a GPU machine without vLLM or network
	$(environment) apply
	@$(python) evals/bundle.py $(call option,VLLM,--vllm) $(call option,OUT,--out) $(ARGS)

pr: ## make the change set NAME= ready for upstream (branch, patches, body); pushes nothing
	$(environment) apply
	@$(python) apply.py pr $(if $(call given,NAME),"$$NAME") $(call option,VLLM,--vllm) \
		$(call option,ONTO,--onto) $(ARGS)

clean: ## remove caches and bundles; build/vllm, your branches and environments stay
	@rm -rf build/test build/bundle build/wheels .pytest_cache .mypy_cache .ruff_cache
	@find . -name __pycache__ -not -path './.venv*/*' -not -path './build/*' \
		-prune -exec rm -rf {} +
	@echo 'To remove the rest too: rm -rf build .venv .venv-cpu'
