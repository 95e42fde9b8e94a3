# Packaging: included by the Makefile.

# DISTRO (bookworm, trixie) and ARCH (amd64, arm64) choose what a package is for and where it is tried; what is not given is
# this machine's.
export DISTRO ARCH
foreign := $(filter-out $(shell dpkg --print-architecture 2>/dev/null),$(ARCH))

.PHONY: deb
deb: build third_party/tools/nfpm $(if $(foreign),$(ORT_DIR)-$(foreign)/libonnxruntime.so.1) ## build the Debian package into bin/; DISTRO=trixie ARCH=arm64: for others
	$(call install-debs,dpkg-dev $(if $(DISTRO)$(ARCH),debootstrap))
	@bash systemd/deb/build

third_party/tools/nfpm: tools.mod
	@mkdir -p $(@D) && go build -modfile=tools.mod -o $@ github.com/goreleaser/nfpm/v2/cmd/nfpm && touch $@

.PHONY: test-deb
test-deb: deb ## install, run, upgrade, remove and purge the package in a clean Debian
	$(call install-debs,debootstrap)
	@bash systemd/deb/test

.PHONY: test-boot
test-boot: deb ## boot a Debian in a virtual machine: install, kill, set the clock, reboot, cut the power
	$(call install-debs,debootstrap qemu-system-x86 qemu-utils e2fsprogs)
	@bash systemd/boot/test

.PHONY: chaos test-long
chaos: deps-test ## for TIME (default 10m) kill, fill, unplug, reload and call at once, and check that nothing was lost
	@go test -count=1 -v -timeout 0 -run 'TestChaos$$' ./cmd/vedette -args -chaos $(or $(TIME),10m) | grep -E '(ok|over)$$|^ +[a-z_]+_test\.go|^(---|ok|FAIL)'

# The short forms of these are in make test.
test-long: ## every long rig: crashes, faults, damage, requests, chaos, the package, the virtual machine (hours)
	@for rig in crash faults damaged soak-ingest soak-infer chaos test-deb test-boot; do \
	  echo "=== $$rig"; $(MAKE) --no-print-directory $$rig || exit 1; done

.PHONY: image
image: build ## build an OCI image of the three programs into bin/vedette-image, without Docker
	@go run ./systemd/image -to bin/vedette-image bin/vedette bin/vedette-ingest bin/vedette-infer \
	  models=/usr/share/vedette/models $(ORT_LIB)=/usr/lib/vedette/libonnxruntime.so.1

.PHONY: docs-site
docs-site: build ## make the documentation's static site in bin/docs, and docs/configuration.md anew
	@bin/vedette config reference >docs/configuration.md
	@go run ./docs/site -out bin/docs
