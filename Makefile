# The two commands of the README, `demo` and `test`, set up all that they need: Python 3.11+ with venv, and make.
PYTHON ?= python3
VENV   := .venv
PY     := $(VENV)/bin/python
STAMP  := $(VENV)/.installed
PIP    := $(PY) -m pip --disable-pip-version-check install --quiet

.DEFAULT_GOAL := help

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

$(STAMP): requirements-dev.txt requirements-source.txt pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(v < (3, 11) and f"idem needs Python 3.11 or newer, this is {v[0]}.{v[1]}: try make PYTHON=python3.12")'
	@echo "setting up $(VENV) (once) ..." >&2
	@rm -rf $(VENV)
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "this Python cannot make virtual environments; on Debian or Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	@$(PIP) --require-hashes --only-binary :all: -r requirements-dev.txt
	@$(PIP) --require-hashes --no-deps --no-build-isolation -r requirements-source.txt
	@$(PIP) --no-deps --no-build-isolation --editable .
	@touch $(STAMP)

setup: $(STAMP) ## make .venv from the hashed requirements

demo: $(STAMP) ## the main job, on an embedded PostgreSQL, with a proof at its end
	@exec $(VENV)/bin/idem demo $(ARGS)

test: $(STAMP) ## the whole test suite; ARGS="-k accept" for a part
	@exec $(PY) -m pytest -n 2 --dist loadfile --no-loadscope-reorder $(ARGS)

check: $(STAMP) ## ruff, mypy strict, import-linter, docs and help up to date
	@$(PY) .ci/check.py

lock: ## write requirements-dev.txt anew (needs uv)
	uv pip compile --universal --generate-hashes --no-emit-index-url --no-header --no-annotate \
	    --python-version 3.11 --upgrade requirements-dev.in -o requirements-dev.txt
	@! grep -n '://' requirements-dev.txt

.PHONY: help setup demo test check lock
