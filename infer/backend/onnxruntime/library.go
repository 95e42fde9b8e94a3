package onnxruntime

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"sync"

	ort "github.com/yalue/onnxruntime_go"

	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/backend"
)

// environment serialises the binding's one process-wide environment, which
// several backends (in tests) share. It is never taken down: sessions may live
// on in C code until the process ends.
//
//nolint:gochecknoglobals // the binding has one environment per process
var environment sync.Mutex

// load brings the library in, or says how to get it. It is tried again for
// every model, so an operator can put the library in place without a restart.
func (b *Backend) load(m *backend.Model) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.loaded {
		return nil
	}
	path := b.cfg.Library
	if v := m.Settings["library"]; v != "" {
		path = v
	}
	if path == "" {
		return infer.Errorf(infer.Unavailable, "ONNX Runtime: no library is named: give the path of libonnxruntime.so.1 with --onnxruntime")
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return infer.Errorf(infer.Unavailable, "ONNX Runtime: %s is not there: `make deps` fetches it, --onnxruntime names another", path)
	}
	environment.Lock()
	defer environment.Unlock()
	if ort.IsInitialized() {
		b.loaded = true
		return nil
	}
	ort.SetSharedLibraryPath(path)
	if err := ort.InitializeEnvironment(ort.WithLogLevelFatal()); err != nil {
		return infer.Errorf(infer.Unavailable, "ONNX Runtime: %s does not load: %v", path, err)
	}
	if err := ort.DisableTelemetry(); err != nil {
		b.cfg.Logger.Debug("telemetry of ONNX Runtime not disabled", slog.Any("err", err))
	}
	b.loaded = true
	b.cfg.Logger.Info("onnx runtime loaded", slog.String("path", path), slog.String("version", ort.GetVersion()))
	return nil
}
