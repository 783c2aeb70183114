# unbloat: two commands do everything, set-up included: `make demo` and `make test`.
SHELL   := /bin/bash
GO      ?= go
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
# The same flags for builds, checks and tests: with other flags Go compiles every
# package again. Without debugging information compilers and linkers take a tenth less of a
# processor.
export CGO_ENABLED := 0
export GOFLAGS     := -trimpath -gcflags=all=-dwarf=false $(filter-out -trimpath -gcflags=all=-dwarf=false,$(GOFLAGS))
# Compilers, vet and staticcheck take a sixth to a third less of a processor when they
# collect garbage less often; before the tests only when they would hold more than 1.5 GB.
export GOGC := 400
build lint programs: export GOGC := off
build lint programs: export GOMEMLIMIT := 1500MiB
COMMIT  ?= $(shell git rev-parse HEAD 2>/dev/null)
# Functions begin at multiples of 16 bytes, as they do but on amd64: a program is 0.1 MB smaller.
BUILD   := $(GO) build -ldflags '-s -w -funcalign=16 -X main.version=$(VERSION) -X main.commit=$(COMMIT)'
TARGETS  := linux/amd64 linux/arm64 linux/arm linux/mips linux/mipsle linux/riscv64 \
            freebsd/amd64 openbsd/amd64 darwin/arm64 windows/amd64
GOTESTSUM   := $(GO) run gotest.tools/gotestsum@v1.13.0
STATICCHECK := $(GO) run honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOVULNCHECK := $(GO) run golang.org/x/vuln/cmd/govulncheck@v1.9.0

# A test whose name ends in Alone measures in real time, and runs alone. The others
# run in parallel: many wait for deadlines, not for a processor, so three packages
# run at once, and the slowest packages start first. The lab runs one guest on each
# processor. Tests are not vetted again, since `make lint` does that. What ran is
# kept in bin/ran, for the check that every promise was held by a test.
FIRST   := ./lab ./cmd/unbloat ./internal/cure/remote ./internal/cure/platform/linux ./internal/keep/daemon ./internal/cure/apply ./internal/measure/protocol ./internal/measure/phases
BESIDE  := -vet=off -p 3 -skip 'Alone$$'
ALONE   := -vet=off -p 1 -run 'Alone$$'
RUN     := $(GOTESTSUM) --hide-summary=skipped --format pkgname-and-test-fails

.PHONY: help
help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 16

.PHONY: demo
demo: setup-demo build ## the whole story on an emulated home: measure, fix, measure again
	bin/unbloat demo

.PHONY: test
test: ## every test, those on the real kernel too, and last the list of those that were skipped
	@scripts/setup test --say
	@$(MAKE) --no-print-directory -j2 ready
	@rm -rf bin/ran && mkdir -p bin/ran
	@export UNBLOAT_PROGRAMS=$(CURDIR)/$(PROGRAMS); \
	$(RUN) --jsonfile bin/ran/beside.json -- -timeout 80m $(BESIDE) $(FIRST) ./... && \
	$(RUN) --jsonfile bin/ran/alone.json -- -timeout 40m -count=1 $(ALONE) $$(grep -rlE '^func Test\w+Alone\(' --include='*_test.go' cmd internal lab testkit | xargs dirname | sort -u | sed 's,^,./,')
	@UNBLOAT_RAN=$(CURDIR)/bin/ran $(GO) test -vet=off -count=1 -run '^TestSpecification$$'

# What tests share, made once before any of them starts: two at a time, since packages are fetched while Go compiles.
.PHONY: ready
ready: lint kernel modules programs debian-kernel
ifneq ($(filter ready,$(MAKECMDGOALS)),)
kernel modules debian-kernel: | setup-test
programs: | build
lint: | build
endif

# What the tests' guests run. A file stays as it is while the program is the same: Go has the
# results of tests that looked at nothing that has changed since.
PROGRAMS := bin/labtest
.PHONY: programs
programs:
	@mkdir -p $(PROGRAMS)/next
	@$(GO) build -buildvcs=false -o $(PROGRAMS)/next/ ./cmd/unbloat ./cmd/unbloat-lab ./cmd/unbloat/testdata/actor
	@$(GO) build -tags $$(scripts/router tags) -o /dev/null ./cmd/unbloat # for three tests, which build it again
	@cd $(PROGRAMS) && for p in unbloat unbloat-lab actor; do cmp -s next/$$p $$p || cp next/$$p $$p; done

.PHONY: modules
modules: ## npm's modules for the web pages and for other projects' browser clients
	@scripts/modules web
	@scripts/modules internal/measure/protocol/testdata/browser

.PHONY: build
build: ## bin/unbloat, and the laboratory, bin/unbloat-lab
	$(BUILD) -o bin/ ./cmd/unbloat ./cmd/unbloat-lab

.PHONY: kernel
kernel: build ## the lab's kernel, built once into your cache
	bin/unbloat lab kernel

.PHONY: setup-demo setup-test setup-test-long setup-bench setup-router
setup-demo setup-test:
	@scripts/setup $(@:setup-%=%)
setup-test-long: # without them some of the night's tests say SKIPPED
	@scripts/setup test-long || true
setup-router: # without them the sizes are estimates
	@scripts/setup router || true
setup-bench: # without ns-3 the comparison with it says SKIPPED
	@scripts/setup bench || echo "setup: ns-3 is missing; the comparison with it will be SKIPPED"

.PHONY: debian-kernel
debian-kernel: # not every system's apt has Debian's packages
	@scripts/debian-kernels 6.1 || echo "setup: Debian's kernel is missing; what a packet costs a router will be SKIPPED"

.PHONY: check short
check: ## for every edit: format, vet, staticcheck, and beside them the tests that take no seconds, no kernel and no other program
	@$(MAKE) --no-print-directory -j2 lint short
short:
	$(GO) test -short -vet=off -p 4 $(FIRST) ./...

.PHONY: lint
lint:
	@files=$$(gofmt -l $$(git ls-files '*.go')); if [ -n "$$files" ]; then echo "not gofmt'ed: $$files"; exit 1; fi
	$(GO) vet ./...
	$(STATICCHECK) ./...

.PHONY: test-long
test-long: setup-test setup-test-long build kernel promises check-deploy cross binaries release ansible race vuln laws bpf following wide chromium-call page prove-100 soak attacks fuzz ## for the night: every promise over five seeds, contrib/deploy's files, every binary linked, packages of whole programs, the BPF program on four kernels, every flow on the router's page, data races, known holes, all random cases, a hundred proofs, a hundred runs, a call in a browser, an hour of all attacks at once, every fuzz target

.PHONY: promises
promises: kernel ## every promise of the lab over five seeds, on whole lines, beside others' shapers (hours)
	UNBLOAT_LONG=1 $(GO) test -count=1 -timeout 600m -skip 'Alone$$|^TestFollow.*InLab$$|^TestClassRows$$|^Test(WeakRouter|CakeMQInLab)$$' ./lab/...

.PHONY: laws
laws: kernel ## the contract of every platform's driver, with all of its random cases; the long forms of the tests on the router
	UNBLOAT_LONG=1 $(GO) test -count=1 -timeout 40m -run '^TestContract$$|Matrix|^TestProveLaws$$' ./internal/cure/platform/... ./testkit/... ./internal/measure/verdict
	UNBLOAT_LONG=1 $(GO) test -count=1 -timeout 40m -run '^TestReplacedRuleInLab$$' ./internal/cure/platform/linux
	UNBLOAT_LONG=1 $(GO) test -count=1 -timeout 90m -run '^Test(Conformance|Soak|QuietDayWritesNothing|.*InLab)$$' ./internal/keep/daemon
	UNBLOAT_LONG=1 $(GO) test -count=1 -timeout 120m -skip '^TestUnchangedInLab100$$' ./internal/cure/apply ./internal/cure/prove ./internal/cure/lang/nft ./internal/measure/path ./internal/cure/platform
	UNBLOAT_LONG=1 $(GO) test -count=1 -timeout 40m -v -run '^Test(Grid|LabFraming)$$' ./internal/measure/framing ./internal/measure/phases
	UNBLOAT_LONG=1 $(GO) test -count=1 -timeout 20m -run '^Test(DaemonOverSSH|EveryPlatformOverSSH|Accuracy|FirstUse|PlatformsDrift|HundredPagesOfAMillion)$$' ./internal/show/store ./internal/cure/remote ./internal/measure/protocol ./cmd/unbloat

.PHONY: bpf
bpf: kernel ## the classes as a BPF program: a million packets through it and the table, its rows in the lab over five seeds, and on four of Debian's kernels, which it downloads (docs/classes.md)
	@scripts/debian-kernels || echo "bpf: not all of Debian's kernels are here; those that are missing are SKIPPED"
	UNBLOAT_LONG=1 $(GO) test -count=1 -timeout 60m -v ./internal/cure/platform/linux/bpf
	UNBLOAT_LONG=1 $(GO) test -count=1 -timeout 20m -v -run '^(TestClassifierByBPFInLab|TestKilledAfterEachCommandBPF|TestKilledAfterEachCommandBPFLong)$$' ./internal/cure/platform/linux ./internal/cure/apply
	UNBLOAT_LONG=1 $(GO) test -count=1 -timeout 90m -v -run '^TestClassRows$$' ./lab

.PHONY: following
following: kernel ## lines that vary on the real kernel; CAKE_AUTORATE=DIR puts that program beside, UNBLOAT_TRACES=DIR has recorded lines (docs/lab.md)
	UNBLOAT_LONG=1 $(GO) test -count=1 -timeout 120m -v -run '^TestFollow.*InLab$$' ./lab

.PHONY: wide
wide: kernel ## weak routers and several queues in the lab (docs/evidence/notes.md)
	UNBLOAT_LONG=1 $(GO) test -count=1 -timeout 40m -v -run '^(TestWeakRouter|TestCakeMQInLab)$$' ./lab

.PHONY: chromium-call
chromium-call: ## a call between two browsers beside the lab's, on a quiet machine (docs/evidence/notes.md)
	UNBLOAT_LONG=1 $(GO) test -count=1 -v -run '^TestChromiumCallAlone$$' ./lab

.PHONY: page
page: ## the router's page in a real browser: every flow, on phone and desktop, dark and light
	UNBLOAT_LONG=1 $(GO) test -count=1 -timeout 40m ./web/ui
	UNBLOAT_LONG=1 $(GO) test -count=1 -timeout 40m -run '^Test(PageOfDaemon.*|LuCI)$$' ./cmd/unbloat
	UNBLOAT_LONG=1 $(GO) test -count=1 -run '^TestBrowser(Hidden|Alone|HTTP2Alone)$$' ./internal/serve

.PHONY: release
release: setup-test-long ## packages of whole programs for several systems, made twice and compared; the server's image, unpacked and run; a Debian of its own for the package to live in
	UNBLOAT_LONG=1 $(GO) test -count=1 -timeout 60m -run '^Test(Packages|ImageOnly|ReleaseLong|DebianLong|OpenWrtLong)$$' ./contrib/package

.PHONY: ansible
ansible: kernel ## the Ansible collection with a real ansible-core, installed into your cache, against every platform's stand-in over SSH, and against routers on the lab's kernel
	UNBLOAT_LONG=1 $(GO) test -count=1 -timeout 60m -run '^TestAnsible(Long|InLabLong|OnRouterInLabLong)$$' ./internal/cure/remote

.PHONY: race
race: ## the tests that need no kernel, under the race detector
	CGO_ENABLED=1 $(GO) test -short -race -timeout 60m ./...

.PHONY: vuln
vuln: ## known holes in what we import; VULNDB=file:///DIR where the network has none
	@$(GOVULNCHECK) $${VULNDB:+-db $$VULNDB} ./... || { c=$$?; if [ $$c = 3 ]; then exit 3; fi; echo "vuln: SKIPPED: the database of known holes can't be reached; give VULNDB=file:///DIR"; }

.PHONY: cross
cross: ## every package compiled for other systems; nothing is linked (`make test` checks their types for three)
	@for t in $(TARGETS); do echo "cross: $$t"; GOOS=$${t%/*} GOARCH=$${t#*/} $(GO) list -export -f '{{""}}' ./... || exit 1; done

.PHONY: binaries
binaries: ## the binary for every system it is made for, in bin/SYSTEM-PROCESSOR
	@for t in $(TARGETS); do echo "binaries: $$t"; GOOS=$${t%/*} GOARCH=$${t#*/} $(BUILD) -o bin/$${t%/*}-$${t#*/}/ ./cmd/unbloat || exit 1; done

.PHONY: router
router: setup-router ## the program for routers, and its size on each processor; ROUTERS=linux/mipsle makes one
	@GO='$(GO)' VERSION='$(VERSION)' scripts/router $(ROUTERS)

.PHONY: router-image
router-image: ## a small Linux router as a disk image, for `unbloat lab run --router-image` (docs/real-routers.md)
	@scripts/router-image bin/router-image

# The date of all that is in a package is the commit's.
PACKAGE = $(GO) run ./contrib/package -version '$(VERSION)' -commit '$(COMMIT)' -epoch '$(or $(SOURCE_DATE_EPOCH),$(shell git log -1 --format=%ct 2>/dev/null))'

.PHONY: packages
packages: ## tarballs, Debian, RPM and OpenWrt packages, the server's, bills of materials and checksums, in bin/packages; KEY=FILE signs them (docs/install.md)
	rm -rf bin/packages
	$(PACKAGE) $(if $(KEY),-key '$(KEY)') $(TARGETS)

.PHONY: package-serve
package-serve: ## of these, the test server as a Debian package and as a container image (OCI layout); SERVERS='linux/amd64 linux/arm64' for two processors
	$(PACKAGE) -make server $(SERVERS)

.PHONY: check-deploy
check-deploy: ## contrib/deploy's files against the formats' own types; a module of its own
	cd contrib/deploy/validate && CGO_ENABLED=0 $(GO) test ./...

.PHONY: bench
bench: setup-test setup-bench debian-kernel build kernel ## benchmarks; the lab's speed among them
	$(GO) test -run '^$$' -bench . -benchtime 1x ./lab
	$(GO) test -run '^$$' -bench . -benchmem $$($(GO) list ./... | grep -v unbloat/lab)

.PHONY: compare
compare: build kernel ## docs/evidence: ours beside what others do, on the real kernel, three seeds each (twenty minutes a seed on two cores); goes on where it was stopped
	@bin/unbloat lab compare --seeds 3 --markdown docs/evidence -o bin/compare.html --resume bin/compare-$(VERSION).jsonl
	@bin/unbloat lab compare --subject calls --seeds 1 --markdown docs/evidence --resume bin/compare-$(VERSION).jsonl
	@bin/unbloat lab compare --subject framing --seeds 1 --markdown docs/evidence --resume bin/compare-$(VERSION).jsonl
	@UNBLOAT_LONG=1 $(GO) test -v -count 1 -timeout 60m -run '^Test(Grid|LabFraming)$$' ./internal/measure/framing ./internal/measure/phases > bin/framing.txt || { cat bin/framing.txt; exit 1; }
	@sed -n 's/^ *[a-z_]*\.go:[0-9]*: \(##.*\)/\n\1\n/p; s/^ *[a-z_]*\.go:[0-9]*: \(|.*\)/\1/p' bin/framing.txt >> docs/evidence/framing.md
	@bin/unbloat lab compare --subject following --seeds 1 --markdown docs/evidence --resume bin/compare-$(VERSION).jsonl
	@echo "the figures are in docs/evidence, the same as a page in bin/compare.html"

.PHONY: compare-sim
compare-sim: build kernel ## how the simulator agrees with the real kernel
	bin/unbloat sim compare scenarios/*.toml lab/simlab/testdata/*.toml

.PHONY: prove-100
prove-100: kernel ## 100 proofs on an unchanged line in the lab; at most 5 may claim an improvement (15 minutes)
	UNBLOAT_LONG=1 $(GO) test ./internal/cure/prove -run '^TestUnchangedInLab100$$' -v -count 1 -timeout 70m

.PHONY: verify-platforms
verify-platforms: ## what we render, given to the routers' own programs where you have them: UNBLOAT_OPNSENSE_CORE=DIR UNBLOAT_PFSENSE=DIR UNBLOAT_PFCTL=FILE UNBLOAT_DNCTL=FILE UNBLOAT_SQM=DIR UNBLOAT_CLEAROS=DIR UNBLOAT_NFT=FILE:FILE
	UNBLOAT_LONG=1 $(GO) test ./testkit/conform -run . -v -count=1 -timeout 60m
	$(GO) test ./internal/cure/lang/nft -run '^(TestListed|TestChangedByHand)' -v -count=1 -timeout 60m

.PHONY: fuzz
fuzz: ## every fuzz target for FUZZTIME (1m) each
	@scripts/fuzz $${FUZZTIME:-1m}

.PHONY: soak
soak: ## the loopback measured a hundred times, idle and busy (15 minutes): never below A, or invalid
	UNBLOAT_SOAK=100 $(GO) test -timeout 60m -count=1 -v -run '^TestLoopback$$' ./internal/measure/phases

.PHONY: attacks
attacks: ## all attacks together on a daemon and a test server for ATTACKTIME (1h), in namespaces of its own, on a quiet machine
	UNBLOAT_ATTACK=$${ATTACKTIME:-1h} $(GO) test -timeout 0 -count=1 -v -run '^TestAttackedAlone$$' ./cmd/unbloat

.PHONY: house
house: build setup-router ## how large the house is: packages, lines of each, programs
	@$(GO) test -vet=off -count=1 -v -run '^Test(House|FewTaggedFiles|ProgramIsSmall)$$' . | sed -n 's/^ *tidy_test.go:[0-9]*: //p'
	@ls -l bin/unbloat bin/unbloat-lab | awk '{ printf "%.1f MB %s\n", $$5 / 1e6, $$9 }'
	@GO='$(GO)' VERSION='$(VERSION)' scripts/router

.PHONY: clean
clean: ## what was built here; the lab's kernel in your cache stays
	rm -rf bin
