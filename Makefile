# The tasks of tools/setup.py, which sets up what they need on first use: only Python (>= 3.11) and make are needed.
PYTHON ?= python3
FLAGS ?=
SETUP := $(PYTHON) -m tools.setup
TASKS := $(shell $(SETUP) names)

.PHONY: help $(TASKS)
.NOTPARALLEL:

help $(TASKS):
	@$(SETUP) $@ $(FLAGS)
