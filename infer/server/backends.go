package server

import (
	"log/slog"
	"os"
	"path/filepath"

	"github.com/vedette/vedette/infer/backend"
	"github.com/vedette/vedette/infer/backend/addsub"
	"github.com/vedette/vedette/infer/backend/boxes"
	"github.com/vedette/vedette/infer/backend/bytetrack"
	"github.com/vedette/vedette/infer/backend/dynasequence"
	"github.com/vedette/vedette/infer/backend/identity"
	"github.com/vedette/vedette/infer/backend/image"
	"github.com/vedette/vedette/infer/backend/implicitstate"
	"github.com/vedette/vedette/infer/backend/iterative"
	"github.com/vedette/vedette/infer/backend/onnxruntime"
	"github.com/vedette/vedette/infer/backend/prepare"
	"github.com/vedette/vedette/infer/backend/query"
	"github.com/vedette/vedette/infer/backend/remote"
	"github.com/vedette/vedette/infer/backend/repeat"
	"github.com/vedette/vedette/infer/backend/script"
	"github.com/vedette/vedette/infer/backend/sequence"
	"github.com/vedette/vedette/infer/backend/square"
	"github.com/vedette/vedette/infer/backend/stream"
	"github.com/vedette/vedette/infer/metrics"
	"github.com/vedette/vedette/infer/tensor"
)

// gpus are the devices that instances of KIND_GPU can have: those of the machine, if the library is a build that comes
// with the provider for them. Models that do not say where they run then run there.
func gpus(library string) []int32 {
	if _, err := os.Stat(filepath.Join(filepath.Dir(library), "libonnxruntime_providers_cuda.so")); err != nil {
		return nil
	}
	return metrics.GPUs()
}

// backends are what models can be run by, under the names configurations use.
func backends(library string, pool *tensor.Pool, streams *stream.Backend, logger *slog.Logger) map[string]backend.Backend {
	return map[string]backend.Backend{
		"onnxruntime": onnxruntime.New(onnxruntime.Config{Library: library, Pool: pool, Logger: logger}),
		"prepare":     prepare.New(),
		"boxes":       boxes.New(),
		"bytetrack":   bytetrack.New(),
		"image":       image.New(),
		"script":      script.New(),
		"remote":      remote.New(),
		"stream":      streams,

		// What client examples and test suites expect.
		"identity":           identity.New(),
		"repeat":             repeat.Backend{},
		"square":             square.Backend{},
		"sequence":           sequence.Backend{},
		"dyna_sequence":      dynasequence.Backend{},
		"implicit_state":     implicitstate.Backend{},
		"iterative_sequence": iterative.Backend{},
		"distributed_addsub": new(addsub.Backend),
		"query":              query.Backend{},
	}
}
