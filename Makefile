# carico: make help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
TOOLS := $(or $(CARICO_CACHE),$(HOME)/.cache/carico)/tools
FRAMEWORKS := $(or $(CARICO_CACHE),$(HOME)/.cache/carico)/frameworks
NPM := $(or $(CARICO_CACHE),$(HOME)/.cache/carico)/npm
export PATH := $(CURDIR)/$(BIN):$(PATH):$(TOOLS)/usr/bin:$(TOOLS)/usr/sbin:$(TOOLS)/bin:$(TOOLS)/sbin
export PIP_DISABLE_PIP_VERSION_CHECK = 1

.PHONY: help run demo kube test test-all test-kube test-kube-sample test-burst test-plane test-node test-plugins test-service test-cluster test-daemonset test-distros test-frameworks test-frameworks-small cluster cluster-down qemu browser screenshots soak fuzz mutations check bench accuracy lab lab-quick lab-overhead lab-node lab-resize lab-crowded lab-full proto tools lock dist release test-release site clean

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1	\2/' | expand -t 22

run: $(VENV)/.run ## install into .venv and start the agent here, in the foreground
	@$(BIN)/carico agent

demo: $(VENV)/.run ## the number beside the truth, on this machine, in a minute
	@$(BIN)/carico demo

NOT_HERE := not kube and not cluster
SIDE_BY_SIDE := -n 2 --dist loadfile --no-loadscope-reorder
test: $(VENV)/.dev tools ## set up what the tests need, and run those that take little time (under five minutes); it ends with what it left out
	@$(BIN)/python -m pytest -p tests.left_out -m "$(NOT_HERE) and not alone and not long" --ignore tests/frameworks $(SIDE_BY_SIDE)

test-all: $(VENV)/.dev tools browser ## what `make test` leaves out: long tests two files at a time, then tests that must run alone (nine minutes)
	@failed=0; began=$$(date +%s); \
	$(BIN)/python -m pytest -m "$(NOT_HERE) and not alone and long" --ignore tests/frameworks -rs $(SIDE_BY_SIDE) || failed=1; \
	$(BIN)/python -m pytest -m "$(NOT_HERE) and alone" -rs $$(grep -rl --include='*.py' 'mark\.alone' tests plugins) || failed=1; \
	echo "make test-all took $$(( $$(date +%s) - began )) s"; \
	exit $$failed

kube: $(VENV)/.dev ## build Kubernetes 1.36 and etcd from their Go modules into the cache, once (KUBE=1.33: another; needs Go)
	@$(BIN)/python -m lab.support.kube_build

test-kube: kube ## the tests on a real Kubernetes control plane and kubelet
	@$(BIN)/python -m lab.support.kube_build kwok kueue descheduler
	@$(BIN)/python -m pytest -m kube -rs

test-kube-sample: kube ## of that, without the stories that take minutes each (in CI)
	@$(BIN)/python -m lab.support.kube_build kwok kueue descheduler
	@$(BIN)/python -m pytest -m "kube and not long" -rs

test-burst: kube ## Jobs between two real control planes: the whole crash matrix with 90 Jobs (a quarter of an hour)
	@CARICO_EXAMPLES=2000 CARICO_BURST_WHOLE=1 $(BIN)/python -m pytest tests/burst -rs

test-plane: kube ## carico plane on a real control plane, killed at fifty moments (six minutes)
	@CARICO_KILL_MOMENTS=50 $(BIN)/python -m pytest tests/plane -rs

test-node: $(VENV)/.dev qemu ## a new user, the service and the plugins on a real cgroup v2 + systemd node in QEMU (image built once)
	@$(BIN)/python -m tests.vm

test-plugins: $(VENV)/.dev qemu ## of that, only the plugins
	@$(BIN)/python -m tests.vm tests/vm/guest.py

test-service: $(VENV)/.dev qemu ## of that, only a new user's first minutes and the hardened service
	@$(BIN)/python -m tests.vm tests/vm/service/guest.py

test-cluster: kube qemu tools ## virtual machines with kubelet 1.36 and containerd 2, kwok nodes, and `make cluster` itself (root for the machines)
	@$(BIN)/python -m lab.support.kube_build kwok
	@$(BIN)/python -m pytest -m cluster -rs tests/cluster

test-daemonset: kube qemu tools ## of that, only the DaemonSet on one virtual machine, and a cluster of kwok nodes
	@$(BIN)/python -m lab.support.kube_build kwok
	@$(BIN)/python -m pytest -m cluster -rs tests/cluster -k "daemon_set or (kwok and not real)"

cluster: kube qemu tools ## a whole cluster on this machine: control plane, kwok nodes, a virtual machine as a real node, carico, its page
	@$(BIN)/python -m lab.support.kube_build kwok
	@$(BIN)/python -m lab.cluster up

cluster-down: $(VENV)/.dev ## end it; nothing stays
	@$(BIN)/python -m lab.cluster down

test-distros: $(VENV)/.dev qemu ## pip install, start and ask in fresh Debian 12 and 13, Ubuntu 22.04 and 24.04 (root; four minutes)
	@PYTHON=$(BIN)/python ./tests/distros.sh

test-frameworks: $(VENV)/.dev $(FRAMEWORKS)/all/.done ## progress with the real frameworks: tqdm, scikit-learn, XGBoost, LightGBM, Keras, Ray, PyTorch, Lightning, Hugging Face (7 GB in the cache, once)
	@CARICO_FRAMEWORKS=$(FRAMEWORKS)/all CARICO_FRAMEWORKS_WANTED="tqdm sklearn xgboost lightgbm keras ray torch lightning transformers" \
		$(BIN)/python -m pytest -v -rs tests/frameworks

test-frameworks-small: $(VENV)/.dev $(FRAMEWORKS)/small/.done ## of those, what is small: tqdm, scikit-learn, XGBoost, LightGBM (330 MB)
	@CARICO_FRAMEWORKS=$(FRAMEWORKS)/small CARICO_FRAMEWORKS_WANTED="tqdm sklearn xgboost lightgbm" $(BIN)/python -m pytest -rs tests/frameworks

$(FRAMEWORKS)/small/.done: setup.cfg
	@$(PYTHON) -m venv $(FRAMEWORKS)/small
	@$(FRAMEWORKS)/small/bin/pip install -q $$($(BIN)/python -m tests.frameworks.names frameworks)
	@touch $@

$(FRAMEWORKS)/all/.done: setup.cfg
	@$(PYTHON) -m venv $(FRAMEWORKS)/all
	@$(FRAMEWORKS)/all/bin/pip install -q $$($(BIN)/python -m tests.frameworks.names frameworks frameworks-large)
	@touch $@

qemu:
	@command -v qemu-system-x86_64 qemu-img mmdebstrap >/dev/null || [ "$$(id -u)" -ne 0 ] || \
		{ apt-get update -qq; DEBIAN_FRONTEND=noninteractive apt-get install -y -qq qemu-system-x86 qemu-utils mmdebstrap e2fsprogs; } >/dev/null

browser: ## a real Chromium for the tests of the page, and axe-core for its accessibility (Debian packages, npm)
	@command -v chromium chromedriver >/dev/null || [ "$$(id -u)" -ne 0 ] || \
		{ apt-get update -qq; DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
		chromium chromium-driver fonts-dejavu-core; } >/dev/null || echo "chromium cannot be installed; its tests will skip"
	@[ -e "$(NPM)/node_modules/axe-core/axe.min.js" ] || ! command -v npm >/dev/null || \
		npm install --silent --no-audit --no-fund --prefix "$(NPM)" axe-core || echo "axe-core cannot be had; its tests will skip"

screenshots: $(VENV)/.dev browser ## docs/page.png and docs/cluster.png from the real pages, in front of the tests' invented nodes
	@$(BIN)/python -m tests.lib.page.screenshots docs

soak: $(VENV)/.dev ## a day of telemetry, as fast as it goes: memory and descriptors stay flat (a few minutes)
	@CARICO_SOAK_H=24 $(BIN)/python -m pytest -s tests/faults/test_soak.py

SEED ?= $(shell date +%Y%m%d)
fuzz: $(VENV)/.dev ## at night: millions of damaged files, messages and requests, 10,000 lives of an agent with plugins (SEED=1: others)
	@echo "seed $(SEED)"
	@CARICO_CASES=100000 CARICO_LIVES=10000 CARICO_SCENES=100 CARICO_SEED=$(SEED) $(BIN)/python -m pytest -vv -s -rs tests/faults/test_plugin_crashes.py \
		tests/node/plugin_host/test_plugin_machine.py tests/faults/test_fuzz_messages.py tests/faults/test_fuzz_texts.py \
		tests/faults/test_fuzz_api.py tests/faults/test_fuzz_parsers.py tests/kube/test_placement_lease.py

SAMPLES ?= 5
mutations: $(VENV)/.dev ## changes lines that matter, one at a time in a copy of the tree: each must break its test; then lines at random, whose rate it reports (SAMPLES=5 per package)
	@failed=0; \
	$(BIN)/python -m tests.mutations || failed=1; \
	$(BIN)/python -m tests.random_mutations --samples $(SAMPLES) --seed $(SEED) || failed=1; \
	exit $$failed

check: $(VENV)/.dev ## style, types, layers
	@$(BIN)/ruff format --check -q .
	@$(BIN)/ruff check -q .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache

bench: $(VENV)/.dev tools ## what the agent costs, measured here, beside node_exporter and a C loop
	@$(BIN)/python -m lab.bench
	@$(BIN)/python -m lab.bench.federation

accuracy: $(VENV)/.dev ## Pod-Capacity against known truth, all estimators side by side
	@$(BIN)/python -m lab.sim.accuracy
	@$(BIN)/python -m lab.sim.nodes --seeds 1

lab: $(VENV)/.dev ## the paper's evaluation in simulation, and beyond it: writes lab/REPORT.md (a quarter of an hour on two idle cores)
	@$(BIN)/python -m lab.report

lab-overhead: $(VENV)/.dev ## only what the agent costs real jobs (table 5.5), on this machine, which should be quiet; renews the report
	@$(BIN)/python -m lab.report --only overhead

lab-quick: $(VENV)/.dev ## the headline claims only, two minutes; fails if one no longer holds
	@$(BIN)/python -m lab.report --quick

lab-node: $(VENV)/.dev tools ## real containers on this machine: Pod-Capacity against the truth (needs root)
	@$(BIN)/python -m lab.node
	@$(BIN)/python -m lab.node.mixed --out lab/results/node

lab-resize: kube ## real containers, measured by the agent and resized by `carico recommend apply`: reserved and used before and after (root, 4 minutes)
	@CARICO_LOOP_REPORT=lab/results/recommend_loop.md $(BIN)/python -m pytest -q -rs tests/kube/test_closed_loop.py

lab-crowded: $(VENV)/.dev tools ## what Pods cost beside busy neighbours, against what they use alone (root, a quiet machine; 25 minutes)
	@$(BIN)/python -m lab.crowded

lab-full: $(VENV)/.dev ## what *full* does to the latency of a service (root, a quiet machine; seven minutes)
	@$(BIN)/python -m lab.full

proto: $(VENV)/.dev ## regenerate the gRPC code from its .proto files
	@PYTHON=$(BIN)/python carico_agent/generate_proto.sh

tools: ## unpack Debian packages the tests use (containerd, promtool, …) into a cache, without installing services
	@./tests/tools.sh "$(TOOLS)"

lock: $(VENV)/.dev ## pin what the agent and its image need, with hashes: deploy/requirements.txt, deploy/image-packages.txt
	@$(BIN)/pip-compile -q --upgrade --generate-hashes --strip-extras --no-header --no-emit-index-url --no-emit-find-links \
		--no-emit-trusted-host -o deploy/requirements.txt setup.cfg
	@$(BIN)/python -m lab.release --lock

dist: $(VENV)/.dev ## wheel and sdist (the same bytes every time), Helm chart, list of materials (CycloneDX) and checksums, in dist/; pinned hashes are tried out
	@$(BIN)/pip install -q --dry-run --ignore-installed --require-hashes -r deploy/requirements.txt
	@$(BIN)/python -m lab.release --only chart

release: $(VENV)/.dev ## dist/ with all of a release: as `make dist`, and .deb packages and the container image (two minutes; apt and dpkg-deb)
	@$(BIN)/pip install -q --dry-run --ignore-installed --require-hashes -r deploy/requirements.txt
	@$(BIN)/python -m lab.release

test-release: release qemu ## make it, and install and purge the packages in fresh Debian 12 and 13 (UBUNTU_MIRROR=…: Ubuntu 24.04, too; root)
	@./tests/release.sh dist

site: $(VENV)/.docs ## the documentation as a site, in build/site; a broken link ends it
	@$(BIN)/python -m lab.site

clean: ## remove .venv and caches
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "carico needs Python 3.11 or newer; try: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "python venv is missing; try: apt-get install python3-venv"; exit 1; }

$(VENV)/.run: setup.cfg pyproject.toml | $(VENV)/bin/python
	@echo "installing carico into $(VENV) (once)"
	@$(BIN)/pip install -q -e .
	@touch $@

$(VENV)/.docs: $(VENV)/.dev
	@$(BIN)/pip install -q -e '.[docs]'
	@touch $@

$(VENV)/.dev: setup.cfg pyproject.toml | $(VENV)/bin/python
	@echo "installing carico and its test tools into $(VENV) (once)"
	@$(BIN)/pip install -q -e '.[test,dev,lab]'
	@touch $@ $(VENV)/.run
