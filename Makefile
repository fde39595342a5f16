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
	@echo "setting up $(VENV) (once; this takes some minutes) ..." >&2
	@rm -rf $(VENV)
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "this Python cannot make virtual environments; on Debian or Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	@$(PIP) --require-hashes --only-binary :all: -r requirements-dev.txt
	@$(PIP) --require-hashes --no-deps --no-build-isolation -r requirements-source.txt
	@$(PIP) --no-deps --no-build-isolation --editable .
	@touch $(STAMP)

setup: $(STAMP) ## make .venv from the hashed requirements

demo: $(STAMP) ## the main job, on an embedded PostgreSQL, with a proof at its end
	@exec $(VENV)/bin/idem demo $(ARGS)

# Files go to the workers whole, those that wait among those that compute, so that no core idles (tests/layers.py).
# Compiled modules are kept between runs, whatever the environment says: without them each start takes twice as long.
WORKERS ?= auto
PYTEST = env PYTHONDONTWRITEBYTECODE= $(PY) -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

test: $(STAMP) ## all but what is long: every promise in a few minutes; ARGS="-k accept" or ARGS="-m unit" for a part
	@exec $(PYTEST) --suite quick $(ARGS)

# What is long computes more than it waits.
prove: WORKERS = 2
prove: $(STAMP) ## what is long: processes, whole matrices, full budgets; SLICE=1/4 SEED=text for a part drawn by the seed
	@exec $(PYTEST) --suite prove $(if $(SLICE),--slice $(SLICE)) $(if $(SEED),--seed $(SEED)) $(ARGS)

# The same with the lowest versions that pyproject.toml allows, in an environment of its own (Python 3.11 to 3.13:
# newer ones have no wheels of those versions). The core of the suite alone, in two or three minutes.
LOWEST       := .venv-lowest
LOWEST_STAMP := $(LOWEST)/.installed
LOWEST_PIP   := $(LOWEST)/bin/python -m pip --disable-pip-version-check install --quiet
CORE         := tests/core tests/api/test_silent_lines.py::test_the_query_is_read_whatever_the_host_says \
                tests/cli/test_help.py::test_help_has_an_example_that_begins_with_the_command

$(LOWEST_STAMP): requirements-lowest.txt pyproject.toml
	@echo "setting up $(LOWEST) (once) ..." >&2
	@rm -rf $(LOWEST)
	@$(PYTHON) -m venv $(LOWEST)
	@$(LOWEST_PIP) --require-hashes --only-binary :all: -r requirements-lowest.txt
	@$(LOWEST_PIP) --no-deps --no-build-isolation --editable .
	@touch $(LOWEST_STAMP)

test-lowest: $(LOWEST_STAMP) ## the core of the suite with the lowest versions that pyproject.toml allows
	@exec $(LOWEST)/bin/python -m pytest -q -k "plain or not core" $(CORE) $(ARGS)

# The same with the newest versions that pyproject.toml allows, without a lock: each run takes what has come out since.
NEWEST     := .venv-newest
NEWEST_PIP := $(NEWEST)/bin/python -m pip --disable-pip-version-check install --quiet --upgrade --upgrade-strategy eager

$(NEWEST)/.made:
	@rm -rf $(NEWEST)
	@$(PYTHON) -m venv $(NEWEST)
	@touch $(NEWEST)/.made

test-newest: $(NEWEST)/.made ## the core of the suite with the newest versions that pyproject.toml allows
	@$(NEWEST_PIP) --only-binary :all: -r requirements-lowest.in
	@$(NEWEST_PIP) --only-binary :all: --no-build-isolation --editable '.[daemon,fastapi,embedded]'
	@$(NEWEST)/bin/python .ci/newest.py
	@exec $(NEWEST)/bin/python -m pytest -q -k "plain or not core" $(CORE) $(ARGS)

# The peers are installed into .bench, from the registries that pip and npm are configured for.
bench: $(STAMP) ## idem beside its peers on one PostgreSQL; writes docs/benchmarks.md; ARGS="--peers pgqueuer --scale 0.2"
	@exec $(PY) tests/bench_peers $(ARGS)

check: $(STAMP) ## ruff, mypy strict, import-linter, docs and help up to date
	@$(PY) .ci/check.py

# The site needs its own tools, and nothing of idem: it is built from the pages as they are.
SITE_VENV := .venv-docs

$(SITE_VENV)/.installed: requirements-docs.txt
	@rm -rf $(SITE_VENV)
	@$(PYTHON) -m venv $(SITE_VENV)
	@$(SITE_VENV)/bin/python -m pip --disable-pip-version-check install --quiet --require-hashes --only-binary :all: -r requirements-docs.txt
	@touch $(SITE_VENV)/.installed

docs: $(SITE_VENV)/.installed ## the documentation as a site with search, in build/site; every link is checked
	@exec $(SITE_VENV)/bin/python .ci/build_site.py

lock-docs: ## write requirements-docs.txt anew (needs uv)
	uv pip compile --universal --generate-hashes --no-emit-index-url --no-header --no-annotate \
	    --python-version 3.11 --upgrade requirements-docs.in -o requirements-docs.txt
	@! grep -n '://' requirements-docs.txt

lock: ## write requirements-dev.txt anew, and deploy/requirements.txt with the same versions (needs uv)
	uv pip compile --universal --generate-hashes --no-emit-index-url --no-header --no-annotate \
	    --python-version 3.11 --upgrade requirements-dev.in -o requirements-dev.txt
	uv pip compile --universal --generate-hashes --no-emit-index-url --no-header --no-annotate --python-version 3.11 \
	    --constraint requirements-dev.txt --extra daemon pyproject.toml deploy/requirements.in -o deploy/requirements.txt
	@! grep -n '://' requirements-dev.txt deploy/requirements.txt

lock-lowest: ## write requirements-lowest.txt anew, after a change of a lower bound (needs uv)
	uv pip compile --universal --generate-hashes --no-emit-index-url --no-header --no-annotate --python-version 3.11 \
	    --resolution lowest-direct --extra daemon --extra fastapi --extra embedded pyproject.toml requirements-lowest.in -o requirements-lowest.txt
	@! grep -n '://' requirements-lowest.txt

.PHONY: help setup demo test prove test-lowest test-newest bench check docs lock lock-docs lock-lowest
