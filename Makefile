# Vedette. `make` or `make help` lists what there is to do.

SHELL := /bin/bash
.DEFAULT_GOAL := help

# gocv builds against Debian's OpenCV when single modules are chosen; --as-needed keeps
# the other OpenCV libraries out of the binary.
export GOFLAGS += -tags=gocv_specific_modules
export CGO_LDFLAGS += -Wl,--as-needed

BIN          := bin
DATA         ?= data
ORT_DIR      := third_party/onnxruntime
ORT_LIB      := $(ORT_DIR)/libonnxruntime.so.1
ORT_LOCK     := infer/backend/onnxruntime/library
BROWSER_LOCK := web/browser
WEB_LOCK     := web/src
BINARIES     := vedette vedette-ingest vedette-infer
TOOL         := go tool -modfile=tools.mod
PKG          ?= ./...

BUILD_DEBS := g++ pkg-config libavcodec-dev libavformat-dev libavutil-dev libswscale-dev \
	libopencv-dev
TEST_DEBS  := ffmpeg chromium libvulkan1 protobuf-compiler libprotobuf-dev python3-grpcio python3-numpy python3-protobuf python3-gi \
	gir1.2-gst-rtsp-server-1.0 gstreamer1.0-rtsp gstreamer1.0-plugins-base gstreamer1.0-plugins-good \
	gstreamer1.0-plugins-bad gstreamer1.0-plugins-ugly glib-networking sqlite3 systemd mosquitto prometheus

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z][a-z-]*:.*## ' $(MAKEFILE_LIST) | sort | awk -F':.*## ' '{printf "  make %-16s %s\n", $$1, $$2}'

# --- what is missing -----------------------------------------------------------------

# install-debs PACKAGES...: installs those Debian packages that are not there yet, and says so.
define install-debs
	@missing=""; for p in $(1); do \
	  dpkg-query -W -f='$${Status}' $$p 2>/dev/null | grep -q 'ok installed' || missing="$$missing $$p"; done; \
	if [ -n "$$missing" ]; then \
	  echo "installing Debian packages:$$missing"; \
	  as_root=""; [ "$$(id -u)" = 0 ] || as_root="sudo"; \
	  log=$$(mktemp); \
	  { $$as_root apt-get update -qq && DEBIAN_FRONTEND=noninteractive $$as_root apt-get install -y -qq --no-install-recommends $$missing; } >$$log 2>&1 \
	  || { cat $$log; echo "could not install:$$missing (apt-get said the above; install them by hand and run make again)"; exit 1; }; \
	fi
endef

.PHONY: deps
deps: $(ORT_LIB) ## install what a build needs and is missing
	$(call install-debs,$(BUILD_DEBS))

.PHONY: deps-test
deps-test: deps $(BROWSER_LOCK)/node_modules/.installed ## install what the tests need and is missing
	$(call install-debs,$(TEST_DEBS))

# fetch-ort ARCHITECTURE: puts ONNX Runtime's library for it where the target says.
define fetch-ort
	@echo "fetching ONNX Runtime for $(1) (pinned by $<)"
	@rm -rf third_party/.fetch && mkdir -p third_party/.fetch $(@D)
	@cp $(ORT_LOCK)/package.json $(ORT_LOCK)/package-lock.json $(ORT_LOCK)/.npmrc third_party/.fetch/
	@cd third_party/.fetch && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
	@case $(1) in x86_64|amd64) a=x64;; aarch64|arm64) a=arm64;; \
	  *) echo "ONNX Runtime: no library for $(1) in this package; give one with --onnxruntime"; exit 1;; esac; \
	p=third_party/.fetch/node_modules/onnxruntime-node; \
	cp $$p/bin/napi-v6/linux/$$a/libonnxruntime.so.1 $@.new && mv $@.new $@
	@rm -rf third_party/.fetch
endef

$(ORT_LIB): $(ORT_LOCK)/package-lock.json
	$(call fetch-ort,$(shell uname -m))

$(ORT_DIR)-%/libonnxruntime.so.1: $(ORT_LOCK)/package-lock.json
	$(call fetch-ort,$*)

AZURITE := infer/modelstore/azurite

.PHONY: test-azure
test-azure: ## test model repositories in Azure Blob Storage against Azurite (fetches 365 MB)
	@cd $(AZURITE) && [ -e node_modules/.installed ] || { npm ci --ignore-scripts --no-audit --no-fund --loglevel=error && touch node_modules/.installed; }
	@go test -count=1 -v -run '/azblob' ./infer/modelstore

$(BROWSER_LOCK)/node_modules/.installed: $(BROWSER_LOCK)/package-lock.json
	@echo "fetching the browser test driver (pinned by $<)"
	@cd $(BROWSER_LOCK) && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error && touch node_modules/.installed

$(WEB_LOCK)/node_modules/.installed: $(WEB_LOCK)/package-lock.json
	@echo "fetching what the dashboard is bundled with (pinned by $<)"
	@cd $(WEB_LOCK) && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error && touch node_modules/.installed

# --- build and run -------------------------------------------------------------------

.PHONY: build
build: deps ## build bin/vedette, bin/vedette-ingest and bin/vedette-infer
	@mkdir -p $(BIN)
	@for b in $(BINARIES); do echo "building $(BIN)/$$b"; go build -trimpath -o $(BIN)/$$b ./cmd/$$b || exit 1; done

.PHONY: run
run: build ## build and start everything on a demo camera; Ctrl-C stops it
	@exec $(BIN)/vedette run --demo --data-dir $(DATA)

.PHONY: clean
clean: ## remove what was built (not the data folder)
	rm -rf $(BIN) third_party test-artifacts $(BROWSER_LOCK)/node_modules $(WEB_LOCK)/node_modules

# --- checks --------------------------------------------------------------------------

.PHONY: test
test: deps-test ## vet, lint, generated code, all tests with the race detector, end to end, the browser
	@bash .ci/test

.PHONY: check
check: ## quick look before a commit: format, vet, lint of PKG
	$(TOOL) gofumpt -l $$(git ls-files '*.go' | grep -v -e '\.pb\.go$$' -e '\.pb\.gw\.go$$')
	go vet $(PKG)
	$(TOOL) golangci-lint run $(PKG)

.PHONY: lint
lint: ## golangci-lint and buf lint
	$(TOOL) golangci-lint run $(PKG)
	cd api && go tool -modfile=../tools.mod buf lint

.PHONY: generate
generate: ## generate code from api/**/*.proto
	@cd api && PATH="$(CURDIR)/third_party/tools:$$PATH" && mkdir -p ../third_party/tools && \
	for t in protoc-gen-go=google.golang.org/protobuf/cmd/protoc-gen-go \
	  protoc-gen-go-grpc=google.golang.org/grpc/cmd/protoc-gen-go-grpc \
	  protoc-gen-grpc-gateway=github.com/grpc-ecosystem/grpc-gateway/v2/protoc-gen-grpc-gateway \
	  protoc-gen-openapiv2=github.com/grpc-ecosystem/grpc-gateway/v2/protoc-gen-openapiv2; do \
	  go build -o ../third_party/tools/$${t%%=*} $${t#*=} || exit 1; done && \
	go build -modfile=../tools.mod -o ../third_party/tools/buf github.com/bufbuild/buf/cmd/buf && \
	buf lint && buf generate

api-image: ## note the API as it is now as what later ones must not break
	@cd api && ../third_party/tools/buf build . --path vedette --exclude-source-info -o released.binpb

.PHONY: web api-image
web: $(WEB_LOCK)/node_modules/.installed ## build the dashboard's assets from web/src
	@$(TOOL) esbuild web/src/main.ts --bundle --minify --format=esm --target=es2022 --log-level=warning --outfile=web/dist/app.js
	@$(TOOL) esbuild web/src/app.css --bundle --minify --log-level=warning --outfile=web/dist/app.css
	@cp web/src/index.html web/src/icon.svg web/dist/
	@cp $(WEB_LOCK)/node_modules/uplot/LICENSE web/dist/uplot-license.txt

.PHONY: test-web
test-web: build deps-test $(WEB_LOCK)/node_modules/.installed ## the dashboard in Chromium against the real appliance with the demo camera
	@$(BROWSER_LOCK)/node_modules/.bin/tsc -p web/src
	@node $(BROWSER_LOCK)/run.mjs

# --- measures ------------------------------------------------------------------------

# measure PACKAGES: what their TestMeasure prints: a line each, MEASURE VALUE UNIT BUDGET ok|over.
define measure
	@go test -count=1 -p 1 -v -timeout 60m -run 'TestMeasure' $(1) -args -measure $(2) 2>&1 | \
	  sed -nE 's/^ *([a-z_]+\.go:[0-9]+: )?([a-z].* (ok|over))$$/\2/p; /^#/p; /^ *--- (FAIL|SKIP)/p; /^FAIL/p; /^ +[a-z_]+_test\.go/p'
endef

.PHONY: bench bench-vision bench-store bench-infer bench-ingest
bench-detectors: build deps-test ## accuracy of the detector that ships beside others, with the test data on real streets; CANDIDATE=model.onnx: of that one
	$(call measure,./cmd/vedette,-test.run TestCompareDetectors $(if $(CANDIDATE),-candidate $(abspath $(CANDIDATE))))

bench: build deps-test ## processor time of the whole pipeline against its unavoidable parts
	$(call measure,./cmd/vedette)

bench-vision: deps-test ## tracker, prepare, boxes and sessions
	$(call measure,./tracker ./infer/backend/prepare ./infer/backend/boxes ./infer/backend/onnxruntime)

bench-store: ## commits, pages and subscribers; ROWS=100000000 writes that many detections first (10 bytes each)
	$(call measure,./store,-measure-rows $(or $(ROWS),6000000))
	$(call measure,./appliance/api)

bench-infer: build deps-test ## the inference server against bare echoes, throughput and p99; ONLY=pattern picks measures
	$(call measure,./infer/server,$(if $(ONLY),-only '$(ONLY)'))

bench-ingest: deps-test ## decoding against ffmpeg, latency and memory
	$(call measure,./ingest/sidecar)

.PHONY: many
many: ## register CAMERAS (default 10000) and list them
	@go test -count=1 -v -timeout 0 -run TestManyCameras ./appliance/api -args -many $(or $(CAMERAS),10000) | grep -E '^(---|ok|FAIL)'
.PHONY: bench-cameras churn
bench-cameras: build deps-test ## what CAMERAS=1,2,4,8,16,32 cost; SIZES, CODECS, GATES, DETECTORS, WINDOW, LIMIT=30m narrow it down (all: two hours)
	@go test -count=1 -v -timeout 0 -run 'TestBench(Cameras|Neighbours)' ./cmd/vedette -args -cameras $(or $(CAMERAS),1,2,4,8,16,32) \
	  -sizes $(or $(SIZES),640x360,1920x1080) -codecs $(or $(CODECS),h264,h265) -gates $(or $(GATES),open,gated,still,paused) \
	  -detectors $(or $(DETECTORS),demo,shipped,nano) -window $(or $(WINDOW),12s) -limit $(or $(LIMIT),0s) 2>&1 | \
	  sed -nE 's/^([a-z].* (ok|over))$$/\1/p; /^#/p; /^ *--- (FAIL|SKIP)/p; /^FAIL/p; /^ +[a-z_]+_test\.go/p'

churn: deps-test ## change cameras from 8 clients for TIME (default 10m; SEED=2: otherwise) while cameras flap and sidecars are killed
	@go test -count=1 -v -timeout 0 -run 'TestChurn' ./cmd/vedette -args -churn $(or $(TIME),10m) -churn-seed $(or $(SEED),1) | grep -E '^#|(ok|over)$$|^ +[a-z_]+_test\.go|^(---|ok|FAIL)'

.PHONY: overload
overload: deps-test ## give the box more than it can do until cameras are shed, and let it recover (minutes)
	@go test -count=1 -v -timeout 0 -run 'TestOverload$$' ./cmd/vedette -args -overload | grep -E '^#|(ok|over)$$|^ +[a-z_]+_test\.go|^(---|ok|FAIL)'

.PHONY: crash
crash: ## kill the store's writer KILLS times (default 500) and check what is left
	@go test -count=1 -v -timeout 0 -run Killed ./store -args -kills $(or $(KILLS),500) | grep -E '(ok|over)$$|^(---|ok|FAIL)'

.PHONY: faults damaged
faults: deps-test ## let FAULTS (default 1000) scripted cameras fail and recover, 64 at once, deadlines at 1/50
	@go test -count=1 -v -timeout 0 -run FaultyCamerasRecover ./ingest/sidecar -args -faults $(or $(FAULTS),1000) | grep -E '(ok|over)$$|^ +[a-z_]+_test\.go|^(---|ok|FAIL)'

# What holds their memory is told as it is set by whoever starts vedette-ingest.
soak-ingest bench-ingest: export GLIBC_TUNABLES := glibc.malloc.tcache_count=0
.PHONY: soak-ingest
soak-ingest: deps-test ## 16 cameras lose their connections for SOAK (default 1h); prints what grows by the hour
	@go test -count=1 -v -timeout 0 -run FlappingCameras ./ingest/sidecar -args -soak $(or $(SOAK),1h) | grep -E '(ok|over)$$|^ +[a-z_]+_test\.go|^(---|ok|FAIL)'

damaged: deps-test ## decode VARIANTS (default 10000) damaged streams
	@go test -count=1 -v -timeout 0 -run Damaged ./internal/av -args -variants $(or $(VARIANTS),10000) | grep -E '(ok|over)$$|^ +[a-z_]+_test\.go|^(---|ok|FAIL)'

.PHONY: soak-infer
soak-infer: deps-test ## ask the inference server REQUESTS (default 1000000) times in every way and look at what it holds
	@go test -count=1 -v -timeout 0 -run 'TestSoak$$' ./infer/server -args -requests $(or $(REQUESTS),1000000) | grep -E '(ok|over)$$|^ +[a-z_]+_test\.go|^(---|ok|FAIL)'

.PHONY: check-ffmpeg7
check-ffmpeg7: ## build and test what links FFmpeg against FFmpeg 7, in a debootstrapped Debian 13 (as root)
	$(call install-debs,debootstrap)
	@internal/av/debian13

.PHONY: screenshot
screenshot: build deps-test ## take the README's picture of the dashboard again
	@node $(BROWSER_LOCK)/screenshot.mjs docs/dashboard.jpg

.PHONY: fuzz
fuzz: ## run every fuzz target for T (default 30s) each
	@for p in $$(git grep -l '^func Fuzz' -- '*_test.go' | xargs -n1 dirname | sort -u); do \
	  for f in $$(grep -ho '^func Fuzz[A-Za-z0-9_]*' $$p/*_test.go | sed 's/^func //'); do \
	    echo "$$p $$f"; go test -run '^$$' -fuzz "^$$f$$" -fuzztime $(or $(T),30s) ./$$p || exit 1; done; done

include systemd/package.mk
