# Everything that is done with this repository. 'make' alone prints the help.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

BIN := $(CURDIR)/bin
# The Kubernetes that the end-to-end tests and the demo run against. 1.36.3 works too.
KUBERNETES_VERSION ?= $(shell cat test/controlplane/VERSION)
export KUBERNETES_VERSION
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)

GOLANGCI_LINT_VERSION := v2.15.0
CONTROLLER_GEN_VERSION := v0.23.0
GOLANGCI_LINT := $(BIN)/golangci-lint-$(GOLANGCI_LINT_VERSION)
CONTROLLER_GEN := $(BIN)/controller-gen-$(CONTROLLER_GEN_VERSION)

GO_BUILD := CGO_ENABLED=0 go build -trimpath -ldflags '-s -w -X main.released=$(VERSION)'

.PHONY: help
help: ## Print this help.
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build bin/gatehouse.
	@mkdir -p $(BIN)
	$(GO_BUILD) -o $(BIN)/gatehouse ./cmd/gatehouse

.PHONY: test
test: build controlplane peers ## Run all tests, end-to-end on a real API server included.
	go test -race -timeout 20m $$(go list ./... | grep -v '/test/certificates$$')
	@# It puts the machine under load, which would keep what else runs from its deadlines.
	go test -race -timeout 20m ./test/certificates

.PHONY: fuzz
fuzz: ## Run every fuzz target for FUZZTIME (default 20s) each.
	@set -e; grep -rlE '^func Fuzz' --include='*_test.go' . | xargs -n1 dirname | sort -u | while read -r dir; do \
		for target in $$(grep -hoE '^func Fuzz[A-Za-z0-9_]+' $$dir/*_test.go | cut -c6-); do \
			echo "fuzz: $$dir $$target" >&2; \
			go test -run '^$$' -fuzz "^$$target$$" -fuzztime $${FUZZTIME:-20s} -fuzzminimizetime 10x $$dir; \
		done; \
	done

.PHONY: lint
lint: $(GOLANGCI_LINT) ## Run the linters and check that generated files and formatting are up to date.
	$(GOLANGCI_LINT) run ./...
	$(GOLANGCI_LINT) fmt --diff ./...
	$(MAKE) --no-print-directory verify

.PHONY: fmt
fmt: $(GOLANGCI_LINT) ## Format all Go files.
	$(GOLANGCI_LINT) fmt ./...

.PHONY: generate
generate: $(CONTROLLER_GEN) ## Write generated code and the example registration anew.
	$(CONTROLLER_GEN) object paths=./webhooks/api/...
	$(MAKE) --no-print-directory manifests

.PHONY: verify
verify: $(CONTROLLER_GEN) ## Check in a copy that 'make generate' and 'go mod tidy' would change nothing.
	@./test/verify.sh

.PHONY: manifests
manifests: build ## Write manifests/registration: what 'gatehouse manifests' prints for the usual ways to install.
	@mkdir -p manifests/registration
	$(BIN)/gatehouse manifests --service gatehouse-system/gatehouse --certificates cert-manager --exclude-namespace cert-manager > manifests/registration/cert-manager.yaml
	$(BIN)/gatehouse manifests --service gatehouse-system/gatehouse --certificates self-signed > manifests/registration/self-signed.yaml

.PHONY: controlplane
controlplane: ## Build kube-apiserver, kube-controller-manager, kubectl, etcd and podvalidate (once, about 5 minutes).
	@sh test/controlplane/build.sh

.PHONY: peers
peers: slapd dex certmanager ## Get what the tests work with: slapd, dex, cert-manager.

.PHONY: slapd
slapd: ## Get OpenLDAP's slapd, from Debian packages if it is not installed (once).
	@sh test/slapd/build.sh

.PHONY: dex
dex: ## Build dex, an OpenID Connect provider (once, about a minute).
	@sh test/dex/build.sh

.PHONY: certmanager
certmanager: ## Build cert-manager's controllers (once, about two minutes).
	@sh test/certmanager/build.sh

.PHONY: demo
demo: build controlplane ## Show all three endpoints on a real API server; KEEP=1 leaves it running.
	@go run ./test/demo $(if $(KEEP),--keep)

.PHONY: bench
bench: build ## Measure against a null webhook and the usual pattern; ARGS='--quick' and others: see ARGS=--help.
	@go run ./test/bench $(ARGS)

.PHONY: clean
clean: ## Remove what was built, but for the control plane, slapd, dex and cert-manager.
	find $(BIN) -mindepth 1 -maxdepth 1 ! -name controlplane ! -name slapd ! -name dex ! -name certmanager -exec rm -rf {} +

# Tools are built from the module proxy, each in its own version, outside go.mod.
$(GOLANGCI_LINT):
	@echo "building golangci-lint $(GOLANGCI_LINT_VERSION) (once, some minutes)…" >&2
	@GOBIN=$(BIN) go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_LINT_VERSION)
	@mv $(BIN)/golangci-lint $@

$(CONTROLLER_GEN):
	@echo "building controller-gen $(CONTROLLER_GEN_VERSION) (once)…" >&2
	@GOBIN=$(BIN) go install sigs.k8s.io/controller-tools/cmd/controller-gen@$(CONTROLLER_GEN_VERSION)
	@mv $(BIN)/controller-gen $@
