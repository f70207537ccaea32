# nodeagent: the commands of README.md. Everything is put into .venv; the only other change to the machine is that
# missing Debian packages of packages/ are installed.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Every package by its hash, and nothing that is not locked.
LOCKS := locks/build.txt locks/agent.txt locks/dev.txt
PIP = $(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-compile
# Tests mostly wait for programs, so four at a time are faster on two cores. WORKERS=0 runs them one by one.
WORKERS ?= 4
# Each worker starts with a part of the folders, in their order, and takes over half of what another has left.
IN_PARALLEL = -n $(WORKERS) --dist worksteal
# Tests that need no root run without it: for root, as an ordinary user of a user namespace, who owns what root owns.
# If root may not make one (in a container without privileges), it may make none of the others either.
AS_USER := unshare --user --map-user=65534 --map-group=65534 --
ORDINARY_USER = $(if $(filter 0,$(shell id -u)),$(shell $(AS_USER) true 2>/dev/null && echo '$(AS_USER)'))
# A few thousand starts of Python, which would compile all of the agent and its libraries each time.
unexport PYTHONDONTWRITEBYTECODE

# What Debian's own Python and the locked packages are most likely to break.
FRESH := tests/install tests/cli/test_options.py tests/cli/test_report.py tests/config tests/sources/kubernetes/test_connection.py

SHELL_FILES := .ci/run $(wildcard scripts/* tests/*/*.sh tests/testbed/*/*.sh) $(addprefix tests/testbed/kernels/,fill inside machine on-host)

.DEFAULT_GOAL := help
.PHONY: help venv packages test-packages demo world test test-unit test-root test-soak test-matrix test-fresh test-kernels test-power vagrant-box vagrant-test lint bench deploy schema chart docs pictures workflows release-check release-assets release-notes lock clean

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-15s %s\n", $$1, $$2}'

venv: $(VENV)/.installed ## .venv with the nodeagent command, and the Debian packages that the agent needs
	@scripts/install-packages packages/agent.txt
	$(if $(filter venv,$(MAKECMDGOALS)),@echo "next: $(BIN)/nodeagent doctor; make demo; make test")

# With the locked pip already: the gate's bare Debian asks it for its settings while packages are installed.
$(VENV)/bin/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed: make PYTHON=/path/to/python3.11 venv"; exit 1; }
	@{ $(PYTHON) -c 'import venv, ensurepip' && command -v gcc && test -e "$$($(PYTHON) -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h"; } >/dev/null 2>&1 || scripts/install-packages packages/venv.txt
	@echo "making $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) --require-hashes --requirement locks/build.txt

$(VENV)/.installed: pyproject.toml $(LOCKS) | $(VENV)/bin/pip
	@$(PIP) --require-hashes --requirement locks/build.txt
	@$(PIP) --require-hashes --no-build-isolation $(LOCKS:%=--requirement %)
	@$(PIP) --no-build-isolation --editable .
	@$(BIN)/pip check --quiet
	@touch $@

$(VENV)/.chart: $(VENV)/.installed locks/chart.txt
	@$(PIP) --require-hashes --requirement locks/chart.txt
	@touch $@

lock: ## write locks/ again from pyproject.toml; UPGRADE=--upgrade takes the newest versions
	@scripts/lock $(UPGRADE)

packages: venv
	@scripts/install-packages packages/testbed.txt

test-packages: packages
	@scripts/install-packages packages/tests.txt

demo: packages ## the main job, step by step, in a testbed of network namespaces (as root)
	@$(BIN)/python -m tests.testbed.demo

world: packages ## the same testbed, kept so that you can look around in it and break it (as root): docs/development.md
	@$(BIN)/python -m tests.testbed.visit

test: test-packages $(VENV)/.release ## all tests but the long forms of test-soak and test-matrix (as root)
	@echo "make test-unit and make test-root at the same time; each is shown when it has ended, the latter after four minutes on two cores"
	@$(MAKE) --no-print-directory --jobs=2 --keep-going --output-sync UNIT_WORKERS=$$((($(WORKERS) + 1) / 2)) test-unit test-root

# In `make test`, test-unit has half of the workers. With a lower priority it would hardly run next to busy programs.
UNIT_WORKERS ?= $(WORKERS)
test-unit: WORKERS := $(UNIT_WORKERS)
test-unit: test-packages $(VENV)/.release ## the tests that need no root: docs/development.md
	@$(call run-tests,$(ORDINARY_USER) $(BIN)/python,not root and not matrix)

test-root: test-packages ## the tests that need root: they make network namespaces
	@$(call run-tests,$(BIN)/python,root and not matrix)

# $(1) is the Python, $(2) the markers. In CI, what failed (pytest's 1, and nothing but that) is tried once more, alone:
# on a machine that others use, too, one of thousands of tests can be late. Its failure is shown all the same.
run-tests = run() { $(1) -m pytest -o cache_dir=.pytest_cache/$@ -m '$(2)' "$$@"; }; run $(IN_PARALLEL)$(if $(CI), || { test $$? = 1 && echo "what failed once more and alone:" && run --last-failed; })

test-soak: test-packages ## random campaigns, kills and properties at full length (as root, 15 minutes)
	@$(BIN)/python -m pytest $(IN_PARALLEL) --soak --timeout 900 -m 'soak or hypothesis'

vagrant-box: ## a Vagrant box for libvirt of Debian's packages, in place of the pinned one: docs/development.md (as root)
	@scripts/install-packages packages/vagrant-box.txt
	@tests/testbed/vagrant/box.sh

vagrant-test: venv ## the acceptance steps on the virtual machines that `vagrant up` made: docs/development.md
	@tests/testbed/vagrant/acceptance.sh $(BIN)/python

test-matrix: test-packages ## the tests over backend x families x kube-proxy, all combinations (as root, 15 minutes)
	@$(BIN)/python -m pytest $(IN_PARALLEL) -m 'root or matrix' tests/endtoend tests/testbed

test-fresh: | $(VENV)/bin/pip ## the demo and a few tests on a minimal Debian 12, or SUITE=trixie, made for it (as root)
	@scripts/install-packages packages/tests.txt
	@scripts/fresh-debian sh -c 'make demo && .venv/bin/python -m pytest $(IN_PARALLEL) -q $(FRESH)'

RELEASES ?= 12
test-kernels: ## the demo and a list of tests on the kernel of Debian 12, or RELEASES="11 12 13", or ARCHITECTURE=arm64, emulated: docs/development.md (as root)
	@scripts/install-packages packages/machines.txt $(wildcard packages/machines-$(ARCHITECTURE).txt)
	@tests/testbed/kernels/machine $(RELEASES)

CUTS ?= 50
test-power: ## cut the power of an emulated machine with a busy agent, 50 times: docs/development.md (as root)
	@scripts/install-packages packages/machines.txt
	@tests/testbed/kernels/machine cuts $(CUTS) 12

bench: packages ## measure latency, memory and CPU time in the testbed: docs/performance.md (as root, an hour)
	@$(BIN)/python -m benchmarks

lint: venv ## ruff, mypy --strict, shellcheck, the direction of imports and the words of texts for users
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/shellcheck --external-sources $(SHELL_FILES)
	@$(BIN)/lint-imports
	@$(BIN)/python -m release.wording

deploy: venv ## write daemonset/deploy.yaml again from the base
	@$(BIN)/python -m tests.daemonset.kustomize daemonset > daemonset/deploy.yaml

schema: venv ## write docs/schema/ and the chart's values.schema.json again from the code
	@$(BIN)/python -m release.schemas

$(VENV)/.release: $(VENV)/.chart locks/release.txt
	@$(PIP) --require-hashes --requirement locks/release.txt
	@touch $@

docs: venv ## write the tables of options, codes, metrics and alerts in docs/ again from the code
	@$(BIN)/python -m release.docs_tables

pictures: ## draw docs/pictures/*.svg again from their text
	@scripts/install-packages packages/pictures.txt
	@for text in docs/pictures/*.dot; do dot -Tsvg "$$text" | sed '/ xmlns="/r docs/pictures/dark-mode.xml' > "$${text%.dot}.svg"; done

workflows: $(VENV)/.release ## check .github/workflows: their schema, and how an attacker could abuse them
	@$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	@$(BIN)/check-jsonschema --builtin-schema vendor.dependabot .github/dependabot.yml
	@$(BIN)/zizmor --offline --quiet .github

release-check: $(VENV)/.release test-packages ## all of a release that needs no registry (as root): make release-check VERSION=1.2.3
	@$(BIN)/python -m release.check $(VERSION) dist

release-assets: $(VENV)/.release ## dist/: chart, deploy.yaml, wheel, bill of materials; with IMAGE= as REPOSITORY@DIGEST
	@$(BIN)/python -m release.assets dist $(if $(IMAGE),--image $(IMAGE))

release-notes: $(VENV)/.release ## the changelog's section of VERSION
	@$(BIN)/python -m release.check $(VERSION) --notes

chart: $(VENV)/.chart ## check the Helm chart in charts/nodeagent: lint, render, schema, package
	@$(BIN)/python -m pytest tests/charts

clean: ## remove .venv and caches
	rm -rf $(VENV) .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
