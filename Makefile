# Every target has a line of help behind its name; `make` alone prints them.
include versions.env
export GOTOOLCHAIN ?= local
CACHE ?= $(or $(NODELVM_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/nodelvm)
TOOLS := $(CACHE)/tools
ARCH ?= $(shell go env GOARCH)
# The same flags as the parts that are built for the lab: what both need is compiled once.
GO_RUN := CGO_ENABLED=0 go run -trimpath
# Not with go run, which ends without its program when it is terminated.
SUITE := cd test && CGO_ENABLED=0 go build -trimpath -o ../bin/suite ./cmd/suite && exec ../bin/suite

.PHONY: help
help: ## Print this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

##- For everybody

.PHONY: demo
demo: ## Raise a three-node Kubernetes, install nodelvm, show what it does (KEEP=1 leaves it up)
	cd test && $(GO_RUN) ./cmd/demo

.PHONY: test
test: ## Run what a change most often breaks: linters, unit tests, real LVM in nodes, the demo's and other scenarios on a real cluster
	$(SUITE) cluster vet unit race deploy pages api nodes

.PHONY: test-full
test-full: ## Run all of that whole, with the race detector everywhere, and power cuts; before a tag
	$(SUITE) e2e vet full-unit full-pages lvm apiserver lab power

.PHONY: build
build: ## Compile the driver and nodelvm-controller to bin/
	CGO_ENABLED=0 go build -trimpath -tags=grpcnotrace -o bin/ ./cmd/nodelvm ./cmd/nodelvm-controller

.PHONY: image
image: ## Write the driver's image to dist/ as an archive for docker load, ctr import or crane push
	cd deploy/image && $(GO_RUN) ./cmd/image --arch $(ARCH) --out $(CURDIR)/dist/nodelvm-$(ARCH).tar

.PHONY: release
release: ## Write a release to dist/release: images, lists of their contents, chart, manifests, plugin, provenance, checksums (RELEASE_KEY=FILE signs, or RELEASE_UNSIGNED=1)
	deploy/release.sh

.PHONY: release-check
release-check: ## Build the release twice and compare: half an hour
	deploy/release-check.sh

##- For developers

.PHONY: lint
lint: ## Check formatting, run the linters of test/vet, hold prose to the vocabulary, render the diagrams, open the dashboard
	$(SUITE) vet full-pages

.PHONY: prose
prose: ## Count what the prose linter finds, by rule and folder; PROSE=PATH lists each place below a path
	test/part.sh prose

.PHONY: house
house: ## Measure the last commit: lines and functions of each package, words of each page; OLD=COMMIT beside those of an older one
	cd test && $(GO_RUN) ./cmd/house $(OLD)

.PHONY: test-unit
test-unit: ## Run the unit tests of all modules; those of code with goroutines again with the race detector, which needs gcc
	$(SUITE) unit race deploy

.PHONY: test-lvm
test-lvm: ## Run the conformance suite, csi-sanity and the driver's tests over real LVM in a lab node
	$(SUITE) lvm lab power

.PHONY: test-hardware
test-hardware: ## Run tests on real LVM in a node that qemu emulates: two processors, Debian's kernels, NVMe, SCSI and SATA disks that are pulled or fail
	$(SUITE) hardware

.PHONY: test-e2e
test-e2e: ## Hold the driver's part in the API to a real API server; play the demo's scenario and a volume's life on a real cluster
	$(SUITE) e2e apiserver

.PHONY: test-long
test-long: ## Run the tests that take hours: every crash point, 1000 random groups, fuzzers, 200 power cuts, bursts, and 50 power cuts in a cluster
	test/part.sh long

.PHONY: mutants
mutants: ## Plant faults in the driver's code, one at a time, and show that a test of make test or make test-full fails for each
	test/part.sh mutants

.PHONY: conformance
conformance: ## Run upstream's storage suite in the lab, with four jobs instead of two with ARGS="--jobs 4"; an interrupted run continues (FRESH=1 starts over, KEEP=1 leaves the lab up)
	test/part.sh helm
	cd test && $(GO_RUN) ./cmd/conformance --dir $(CURDIR)/dist/conformance $(ARGS)

.PHONY: matrix
matrix: ## Run the API server's tests and two scenarios on each supported Kubernetes, for hours; what has passed is not run again (FRESH=1 does); writes docs/compatibility.md
	cd test && $(GO_RUN) ./cmd/matrix $(ARGS)

.PHONY: bench
bench: image ## Measure the driver beside bare LVM commands in a lab node, which writes the tables of test/bench/results.md; then I/O in pods beside bare logical volumes, and moves beside raw copies
	cd test && $(GO_RUN) ./cmd/bench --image $(CURDIR)/dist/nodelvm-$(ARCH).tar $(ARGS)
	test/part.sh datapath

.PHONY: manifest
manifest: ## Render deploy/nodelvm.yaml and controller.yaml from the Helm chart
	cd deploy/render && $(GO_RUN) .

.PHONY: lab
lab: ## Steer the lab: make lab ARGS="up", "status", "kubectl get pods -A", "exec node-1 lvs", "power-cut node-1", "down"
	@cd test && $(GO_RUN) ./cmd/lab $(ARGS)

.PHONY: fmt
fmt: ## Format all Go code
	gofmt -w api cmd controller deploy docs internal kube lvm node pending report test
