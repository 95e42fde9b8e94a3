package archtest

// imports is a statement of policy, not a description: do not change a row to make a build pass, change it
// when the design changes. A key is a package path below the module, or a prefix ending in "/..."; the most
// specific key wins. A value lists what of ours that package may import, in the same notation; "" is nothing.
// A package that no key covers fails the test: it has to claim its row first.
var imports = map[string][]string{
	// Leaves.
	"api/...":              {"api/..."},
	"tracker":              {"tracker/internal/..."},
	"tracker/internal/...": {"tracker", "tracker/..."},
	"tracker/rows":         {"tracker"},
	"tracker/eval/...":     {"tracker", "tracker/..."},
	"store/...":            {"store", "store/..."},
	"infer/tensor":         {},
	"internal/...":         {},
	"internal/rtsptest":    {"internal/av"},
	"internal/archtest":    {},

	// Ingest: cameras in, frames and notices out.
	"ingest": {"api/frame", "api/ingest/v1", "internal/address"},
	// The sidecar starts the processes of isolated cameras, and is their client.
	"ingest/sidecar": {"ingest", "ingest/...", "api/frame", "api/ingest/v1", "internal/av", "internal/unixmsg", "internal/child", "internal/address", "internal/pause"},
	// The only one that knows devices of the kernel.
	"ingest/device": {"ingest", "ingest/bitstream", "internal/address", "internal/av", "internal/v4l2"},
	"ingest/...":    {"ingest", "ingest/...", "internal/pause", "api/frame", "api/ingest/v1", "internal/av", "internal/mmap", "internal/unixmsg", "internal/sdnotify", "internal/address"},

	// Inference: the vocabulary, then its mechanisms. Frontends see an infer.Inferer, never the repository;
	// schedulers never see a backend.
	"infer":                     {"infer/tensor", "api/inference"},
	"infer/modelconfig":         {"infer", "infer/tensor", "api/inference"},
	"infer/schedule/...":        {"infer", "infer/tensor", "infer/modelconfig", "api/inference", "infer/schedule/..."},
	"infer/ensemble":            {"infer", "infer/tensor", "infer/modelconfig", "api/inference"},
	"infer/stats":               {"infer", "infer/tensor", "api/inference"},
	"infer/conformance":         {},
	"infer/trace":               {"infer", "infer/tensor", "api/inference"},
	"infer/metrics":             {"infer", "infer/stats", "api/inference"},
	"infer/shm":                 {"infer", "infer/tensor", "api/frame", "internal/mmap"},
	"infer/backend":             {"infer", "infer/tensor", "infer/modelconfig", "api/inference"},
	"infer/backend/...":         {"infer", "internal/pause", "infer/tensor", "infer/modelconfig", "infer/backend", "infer/backend/backendtest", "api/inference"},
	"infer/backend/prepare":     {"infer", "infer/tensor", "infer/modelconfig", "infer/backend", "api/inference", "api/frame", "internal/pixels"},
	"infer/backend/image":       {"infer", "infer/tensor", "infer/modelconfig", "infer/backend", "api/inference"},
	"infer/backend/boxes":       {"infer", "infer/tensor", "infer/modelconfig", "infer/backend", "api/inference", "tracker", "tracker/rows"},
	"infer/backend/bytetrack":   {"infer", "infer/tensor", "infer/modelconfig", "infer/backend", "api/inference", "tracker", "tracker/rows"},
	"infer/backend/remote":      {"infer", "infer/tensor", "infer/modelconfig", "infer/backend", "api/inference", "infer/v2client"},
	"infer/backend/stream":      {"infer", "infer/tensor", "infer/modelconfig", "infer/backend", "api/inference", "api/ingest/v1", "api/frame", "internal/mmap", "internal/unixmsg"},
	"infer/backend/backendtest": {"infer", "infer/tensor", "infer/backend", "api/inference"},
	"infer/modelstore":          {},
	"infer/repository":          {"infer", "infer/modelstore", "infer/tensor", "infer/modelconfig", "infer/backend", "infer/schedule", "infer/ensemble", "infer/stats", "api/inference"},
	"infer/v2http":              {"infer", "internal/intern", "internal/underway", "infer/tensor", "infer/shm", "infer/stats", "infer/trace", "infer/modelconfig", "api/inference"},
	"infer/v2grpc":              {"infer", "internal/grpcpool", "internal/intern", "internal/underway", "infer/tensor", "infer/shm", "infer/stats", "infer/trace", "infer/modelconfig", "api/inference", "api/frame"},
	"infer/v2client":            {"infer/tensor", "api/inference", "internal/grpcpool", "internal/mmap"},
	"infer/launch/...":          {"infer/v2client", "api/inference", "internal/sdnotify"},
	"infer/detect":              {"infer/tensor", "infer/v2client", "infer/launch", "api/inference", "api/frame"},
	"infer/perf/...":            {"infer/tensor", "infer/v2client", "api/inference"},
	"infer/adopt":               {"infer/tensor", "infer/v2client", "infer/modelconfig", "infer/backend/boxes", "infer/detect", "infer/launch", "api/inference"},
	"infer/analyze/...":         {"infer/tensor", "infer/v2client", "infer/perf", "infer/launch", "infer/modelconfig", "api/inference"},
	"infer/server/...":          {"infer", "infer/...", "api/inference", "api/frame", "internal/mmap", "internal/sdnotify"},

	// The appliance: only its pipeline sees frames, tensors, tracks and history together.
	"appliance/demo/...": {"appliance/demo/..."},
	"appliance/pipeline": {"appliance/pipeline/...", "internal/pause", "api/frame", "api/ingest/v1", "api/inference", "ingest/ingestclient", "infer/tensor", "infer/v2client", "tracker", "tracker/rows", "store", "internal/mmap", "internal/fmp4"},
	"appliance/cli":      {"appliance", "appliance/...", "api/...", "infer/adopt", "internal/repeats", "internal/sdnotify", "store", "store/..."},
	"appliance/...":      {"appliance", "appliance/...", "api/...", "ingest/ingestclient", "infer/v2client", "store", "web", "internal/child", "internal/sdnotify", "internal/fmp4", "internal/address"},
	// internal/fmp4 packs what it is given and reaches nothing.
	"web/...": {"api/vedette/v1", "web/...", "internal/fmp4"},

	// The pipeline's policies are pure.
	"appliance/pipeline/...": {},

	// The mains.
	"cmd/vedette":        {"appliance", "appliance/...", "internal/sdnotify", "infer/perf", "infer/analyze", "infer/detect", "store", "store/transfer", "tracker", "tracker/eval", "tracker/eval/..."},
	"cmd/vedette-ingest": {"ingest", "ingest/...", "internal/sdnotify"},
	"cmd/vedette-infer":  {"infer", "infer/...", "internal/sdnotify"},

	"systemd":       {},
	"systemd/bill":  {},
	"systemd/image": {},

	"docs/site":         {},
	"docs/examples/...": {"api/...", "infer", "infer/..."},
}

// bindings names the only packages (below the module) that may import a third-party binding of a C library.
var bindings = map[string][]string{
	"github.com/yalue/onnxruntime_go":         {"infer/backend/onnxruntime"},
	"gocv.io/x/gocv":                          {"infer/backend/prepare", "infer/backend/image"},
	"github.com/mattn/go-sqlite3":             {"store", "docs/examples/hub"},
	"github.com/NVIDIA/go-nvml/pkg/nvml":      {"infer/metrics"},
	"github.com/prometheus/client_golang/...": {"infer/metrics", "infer/server", "infer/backend/identity", "appliance/...", "ingest/...", "infer/v2http"},
	"github.com/bluenviron/gortsplib/v5/...":  {"ingest/rtsp", "internal/rtsptest", "appliance/demo", "ingest/probe"},
	"github.com/bluenviron/gortsplib/v5":      {"ingest/rtsp", "internal/rtsptest", "appliance/demo", "ingest/probe"},
}

// ownC lists the only packages with import "C" in them.
var ownC = map[string]bool{"internal/av": true, "internal/mmap": true, "internal/pixels": true}

// ownUnsafe lists the only packages that may import unsafe, each with its reason.
var ownUnsafe = map[string]string{
	"internal/av":               "pointers into libavcodec's pictures",
	"internal/mmap":             "mapped regions",
	"internal/v4l2":             "structures of the kernel's",
	"internal/pixels":           "pointers handed to the pixel kernel",
	"infer/tensor":              "typed views of a tensor's bytes",
	"infer/backend/onnxruntime": "tensors over a request's bytes",
}

// bannedNames are package names that say nothing.
var bannedNames = []string{"util", "utils", "common", "helpers", "types", "defs", "shared", "misc", "base", "core", "model", "manager"}

// topLevel is what may stand in the root of the repository, hidden files aside.
var topLevel = map[string]bool{
	"appliance": true, "ingest": true, "infer": true, "tracker": true, "store": true, "web": true, "systemd": true,
	"models": true, "cmd": true, "api": true, "internal": true, "docs": true,
	"go.mod": true, "go.sum": true, "tools.mod": true, "tools.sum": true, "Makefile": true,
	"README.md": true, "CHANGELOG.md": true, "CONTRIBUTING.md": true, "LICENSE": true, "NOTICE": true,
}
