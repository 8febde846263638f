# Everything that is done with this repository. 'make' alone prints the help.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

BIN := $(CURDIR)/bin
# The Kubernetes that the end-to-end tests and the demo run against: one of test/controlplane/1.*.
KUBERNETES_VERSION ?= $(shell cat test/controlplane/VERSION)
export KUBERNETES_VERSION
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)

GOLANGCI_LINT_VERSION := v2.15.0
CONTROLLER_GEN_VERSION := v0.23.0
GOLANGCI_LINT := $(BIN)/golangci-lint-$(GOLANGCI_LINT_VERSION)
CONTROLLER_GEN := $(BIN)/controller-gen-$(CONTROLLER_GEN_VERSION)

# With cgo, the linker keeps everything for the Go plugins of kustomize's library, which do not run: 20 MiB.
GO_FLAGS := -trimpath
GO_BUILD := CGO_ENABLED=0 go build $(GO_FLAGS) -ldflags '-s -w -X github.com/gatehouse-dev/gatehouse/internal/build.released=$(VERSION)'

# What is released, and where. Times are those of the commit, so that the same files give the same release.
PLATFORMS ?= linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64
RELEASE ?= bin/release
SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null || echo 0)
SOURCE_DATE_EPOCH := $(SOURCE_DATE_EPOCH)
DIST := bin/dist
BINARIES := $(addprefix $(DIST)/gatehouse-,$(subst /,-,$(PLATFORMS)))
PACKER := $(BIN)/packer
CRANE := $(BIN)/crane
CYCLONEDX := $(BIN)/cyclonedx-gomod
CHART := manifests/chart/gatehouse
# The newest version of the changelog: test/release installs a pre-release of it, and upgrades to it.
CHANGELOG_VERSION := v$(shell sed -n 's/^## \([0-9][0-9.]*\) .*/\1/p' CHANGELOG.md | head -n 1)

.PHONY: help
help: ## Print this help.
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build bin/gatehouse.
	@mkdir -p $(BIN)
	$(GO_BUILD) -o $(BIN)/gatehouse ./cmd/gatehouse

# 'go vet' is a part of 'make lint'; without it here, nothing that is only imported is analysed.
PACKAGE_TEST := go test -vet=off -timeout 20m
# Packages in which goroutines meet: they run with the race detector, which makes tests several times as slow.
INTERNAL := ./cmd/gatehouse/internal
RACE := ./certs/... ./webhooks ./webhooks/authn ./webhooks/config ./webhooks/policy ./webhooks/review ./webhooks/sidecar \
	./internal/clients ./internal/problemlog \
	$(addprefix $(INTERNAL)/,app cli/console/... cli/record cluster/... history/... login/... server/...)
# Suites that test the program as a process. The race detector would see their own code alone and slow down the load that they
# make, so that they go without, and so do the scripts of cmd/gatehouse, which start the program 500 times. With the flags of 'make build' they share its compiled packages. PROGRAM_TEST='go test -race'
# checks the suites themselves.
PROGRAM_SUITES := ./cmd/gatehouse $(addprefix ./test/,audit bench cabundle console demo e2e install monitoring outage recording support/...)
PROGRAM_GO := CGO_ENABLED=0 go
PROGRAM_TEST ?= $(PROGRAM_GO) test $(GO_FLAGS) -vet=off
PACKAGES = $$(go list ./... | grep -vE '/(cmd/gatehouse|test/(attack|audit|bench|cabundle|certificates|console|demo|e2e|growth|incluster|install|monitoring|outage|recording|release|support/.*))$$')

.PHONY: quick
quick: ## Run the tests of decisions, configuration and commands, without what must be built or downloaded first.
	$(PACKAGE_TEST) ./webhooks/... $(addprefix $(INTERNAL)/,cli/... cluster/configuration cluster/install/... offline/... history/replay)

.PHONY: test
test: build controlplane peers ## Run the tests of all packages, and each capability end-to-end on a real API server.
	@# Packages need the processors, and the suites mostly wait.
	@$(MAKE) --no-print-directory -j 2 test-packages test-program

.PHONY: test-all
test-all: test ## Run all tests, those under load, of releases and with many random cases too: before a release.
	@$(MAKE) --no-print-directory test-environment
	@# With the browser that 'make test' has not used, if there is one.
	@set -e; for name in chromium chromium-headless-shell; do \
		program=$$(command -v $$name) && ! grep -qF "\"$$program\"" $(BIN)/chromium/run || continue; \
		echo "test/console with $$program" >&2; \
		CHROMIUM=$$program $(PROGRAM_TEST) -timeout 15m ./test/console; \
	done
	$(PACKAGE_TEST) ./test/growth
	$(PACKAGE_TEST) -race ./test/certificates
	$(PROGRAM_TEST) -parallel 3 -timeout 30m ./test/incluster
	$(PROGRAM_TEST) -timeout 15m ./test/attack
	$(PROGRAM_TEST) -tags registration -run '^TestRegistration' -timeout 15m ./test/e2e
	@$(MAKE) --no-print-directory test-release
	@$(MAKE) --no-print-directory differential N=5000
	@$(MAKE) --no-print-directory test-kyverno

.PHONY: test-kyverno
test-kyverno: build ## Compare converted policies with Kyverno's own engine (a large download), by SEED and POLICIES of generated ones.
	cd test/kyverno && go test -p 1 -count 1 -timeout 30m . -args $(if $(SEED),-seed $(SEED)) $(if $(POLICIES),-policies $(POLICIES))

.PHONY: test-versions
test-versions: ## Run all tests on each API server of test/controlplane but the default one.
	@set -e; for version in $(filter-out $(shell cat test/controlplane/VERSION),$(notdir $(wildcard test/controlplane/1.*))); do \
		echo "test-versions: Kubernetes $$version" >&2; \
		$(MAKE) --no-print-directory KUBERNETES_VERSION=$$version test; \
	done

.PHONY: test-packages
test-packages: ## Run the tests of packages, with the race detector where goroutines meet.
	$(PACKAGE_TEST) -race $(RACE)
	$(PACKAGE_TEST) $$(comm -23 <(printf '%s\n' $(PACKAGES) | sort) <(go list $(RACE) | sort))

.PHONY: test-environment
test-environment: ## Run the tests that read the environment in a hostile one: proxy, umask, language, kubeconfig, keyring.
	go test -vet=off -exec $(CURDIR)/test/hostile.sh ./cmd/gatehouse ./certs/... $(addprefix $(INTERNAL)/,app cli/... cluster/... login/... offline/...) ./webhooks/config

.PHONY: test-program
test-program: ## Run the suites that test bin/gatehouse and need no machine of their own.
	$(PROGRAM_TEST) -parallel 4 -timeout 20m $(PROGRAM_SUITES)

.PHONY: test-release
test-release: controlplane installers $(CRANE) ## Make two releases for this machine, and install, upgrade and remove Gatehouse from them alone.
	@set -e; for version in $(CHANGELOG_VERSION)-rc.1 $(CHANGELOG_VERSION); do \
		$(MAKE) --no-print-directory release VERSION=$$version PLATFORMS=linux/$$(go env GOARCH) RELEASE=bin/test-release/$$version; \
	done
	$(PROGRAM_TEST) -timeout 15m ./test/release

.PHONY: attack
attack: build apiserver ## Attack the program as tests do, and print how much longer reviews take meanwhile: compare with another build on the same machine.
	$(PROGRAM_TEST) -count 1 -timeout 15m -v ./test/attack

.PHONY: fuzz
fuzz: ## Run every fuzz target for FUZZTIME (default 20s) each.
	@set -e; grep -rlE '^func Fuzz' --include='*_test.go' . | xargs -n1 dirname | sort -u | while read -r dir; do \
		for target in $$(grep -hoE '^func Fuzz[A-Za-z0-9_]+' $$dir/*_test.go | cut -c6-); do \
			echo "fuzz: $$dir $$target" >&2; \
			go test -run '^$$' -fuzz "^$$target$$" -fuzztime $${FUZZTIME:-20s} -fuzzminimizetime 10x $$dir; \
		done; \
	done

.PHONY: differential
differential: ## Hold N (default 20000) random sets of policies, from SEED on, against the API server's own dispatcher: validating, mutating and compiled.
	go test ./webhooks/policy/differential ./webhooks/mutation $(INTERNAL)/offline/compile -run '^TestRandomSameAsUpstream$$' -v -timeout 24h -args -differential.n=$${N:-20000} -differential.seed=$${SEED:-1}

.PHONY: lint
lint: $(GOLANGCI_LINT) ## Run the linters and check that generated files and formatting are up to date.
	$(GOLANGCI_LINT) run ./...
	$(GOLANGCI_LINT) fmt --diff ./...
	$(MAKE) --no-print-directory verify

.PHONY: fmt
fmt: $(GOLANGCI_LINT) ## Format all Go files.
	$(GOLANGCI_LINT) fmt ./...

.PHONY: generate
generate: $(CONTROLLER_GEN) ## Write generated code, the rules of Kubernetes' fields, the definitions of custom resources, the files of the chart and docs/reference anew.
	go run ./test/kindrules -o webhooks/kinds/rules/zz_generated.rules.txt
	$(CONTROLLER_GEN) object crd paths=./webhooks/api/... output:crd:dir=manifests/crds
	$(MAKE) --no-print-directory manifests
	UPDATE_GOLDEN=1 go test -vet=off -run '^TestReference$$' ./cmd/gatehouse

.PHONY: verify
verify: $(CONTROLLER_GEN) ## Check in a copy that 'make generate' and 'go mod tidy' would change nothing.
	@./test/verify.sh

.PHONY: manifests
manifests: build ## Write what the Helm chart takes from elsewhere: rights, registrations, their guard, definitions, alerts and the dashboard.
	@rm -rf $(CHART)/files
	@mkdir -p $(CHART)/files/crds $(CHART)/files/monitoring
	@set -e; for source in self-signed cert-manager; do \
		$(BIN)/gatehouse manifests --service gatehouse-system/gatehouse --certificates $$source --custom-resources --manage-registration \
			--back-channel-logout --exclude-namespace cert-manager > $(CHART)/files/$$source.yaml; \
	done
	cp manifests/crds/gatehouse.dev_*.yaml $(CHART)/files/crds/
	cp manifests/monitoring/{prometheusrule.yaml,dashboard.json} $(CHART)/files/monitoring/

.PHONY: controlplane
controlplane: ## Build kube-apiserver, kube-controller-manager, kubectl and etcd (once, about 5 minutes).
	@sh test/controlplane/build.sh

.PHONY: apiserver
apiserver: ## Build the part of the control plane that the demo starts: etcd, kube-apiserver and kubectl.
	@sh test/controlplane/build.sh etcd kubectl kube-apiserver

.PHONY: peers
peers: slapd dex certmanager installers chromium ## Get what the tests work with: slapd, dex, cert-manager, helm, kustomize and Chromium.

.PHONY: chromium
chromium: ## Get Chromium, from Debian packages if it is not installed (once).
	@sh test/support/chromium/build.sh

.PHONY: slapd
slapd: ## Get OpenLDAP's slapd, from Debian packages if it is not installed (once).
	@sh test/support/slapd/build.sh

.PHONY: dex
dex: ## Build dex, an OpenID Connect provider (once, about a minute).
	@sh test/support/dex/build.sh

.PHONY: certmanager
certmanager: ## Build cert-manager's controllers (once, about two minutes).
	@sh test/support/certmanager/build.sh

.PHONY: installers
installers: ## Build helm, kustomize and krew (once, about three minutes).
	@sh test/support/installers/build.sh

.PHONY: demo
demo: build apiserver ## Show all three endpoints on a real API server; KEEP=1 leaves it running.
	@$(PROGRAM_GO) run $(GO_FLAGS) ./test/demo $(if $(KEEP),--keep)

.PHONY: bench
bench: build ## Measure against a null webhook and the API server's own policies, in 4 minutes; ARGS='--quick' and others: see ARGS=--help.
	@$(PROGRAM_GO) run $(GO_FLAGS) ./test/bench $(ARGS)

.PHONY: release
release: release-version installers $(BINARIES) $(addsuffix .cdx.json,$(BINARIES)) ## Make the release VERSION=vX.Y.Z in bin/release: archives, image, chart, install.yaml, krew manifest, SBOMs, notes, checksums.
	$(PACKER) -version '$(VERSION)' -source-date-epoch $(SOURCE_DATE_EPOCH) -binaries $(DIST) -helm $(BIN)/installers/helm \
		-zoneinfo "$$(go env GOROOT)/lib/time/zoneinfo.zip" -output $(RELEASE) $(PLATFORMS)

.PHONY: release-version
release-version: $(PACKER)
	@$(PACKER) -version '$(VERSION)'

.PHONY: publish
publish: $(CRANE) installers ## Push image and chart of bin/release to a registry: make publish VERSION=vX.Y.Z REGISTRY=registry.example.
	@: $${REGISTRY:?is needed, such as registry.example}
	$(CRANE) push $(RELEASE)/image "$$REGISTRY/gatehouse:$(VERSION:v%=%)"
	$(BIN)/installers/helm push $(RELEASE)/gatehouse-$(VERSION:v%=%).tgz "oci://$$REGISTRY/charts"

# bin/dist/gatehouse-OS-ARCHITECTURE, always anew: the Go toolchain knows what has changed. What it would note of the repository
# is left out, because VERSION says it, and where there is no repository it would be missing.
$(DIST)/gatehouse-%: FORCE
	@mkdir -p $(DIST)
	GOOS=$(word 1,$(subst -, ,$*)) GOARCH=$(word 2,$(subst -, ,$*)) $(GO_BUILD) -buildvcs=false -o $@ ./cmd/gatehouse

# The modules that are in the binary.
$(DIST)/gatehouse-%.cdx.json: $(DIST)/gatehouse-% $(CYCLONEDX)
	$(CYCLONEDX) bin -json -licenses -std -noserial -notimestamp -version '$(VERSION)' -output $@ $<

.PHONY: FORCE
FORCE:

.PHONY: reproducible
reproducible: release ## Check that bin/release comes out the same when it is made elsewhere from nothing (some minutes for each of PLATFORMS).
	@./test/reproducible.sh '$(RELEASE)' '$(VERSION)' '$(SOURCE_DATE_EPOCH)' '$(PLATFORMS)'

.PHONY: clean
clean: ## Remove what was built, but for the control plane, slapd, dex, cert-manager, helm, kustomize and Chromium.
	find $(BIN) -mindepth 1 -maxdepth 1 ! -name controlplane ! -name slapd ! -name dex ! -name certmanager ! -name installers ! -name chromium -exec rm -rf {} +

# Tools are built from the module proxy, each in its own version, outside go.mod.
TOOL_BUILD := GOWORK=off CGO_ENABLED=0 go build -mod=readonly -trimpath -buildvcs=false

$(GOLANGCI_LINT):
	@echo "building golangci-lint $(GOLANGCI_LINT_VERSION) (once, some minutes)…" >&2
	@GOBIN=$(BIN) go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_LINT_VERSION)
	@mv $(BIN)/golangci-lint $@

$(CONTROLLER_GEN):
	@echo "building controller-gen $(CONTROLLER_GEN_VERSION) (once)…" >&2
	@GOBIN=$(BIN) go install sigs.k8s.io/controller-tools/cmd/controller-gen@$(CONTROLLER_GEN_VERSION)
	@mv $(BIN)/controller-gen $@

$(CYCLONEDX): build/sbom/go.mod build/sbom/go.sum
	@echo "building cyclonedx-gomod (once)…" >&2
	@cd build/sbom && $(TOOL_BUILD) -o $@ github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod

$(PACKER): $(wildcard build/release/*)
	@cd build/release && $(TOOL_BUILD) -o $@ .

$(CRANE): build/release/go.mod build/release/go.sum
	@cd build/release && $(TOOL_BUILD) -o $@ github.com/google/go-containerregistry/cmd/crane
