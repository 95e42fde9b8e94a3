// Command vedette-infer serves models over the v2 inference protocol.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/vedette/vedette/infer/server"
	"github.com/vedette/vedette/infer/server/flags"
	"github.com/vedette/vedette/internal/sdnotify"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "vedette-infer:", err)
		os.Exit(1)
	}
}

func run() error {
	cfg, logFile, ignored, err := flags.Parse(os.Args[1:], os.Getenv)
	if usage := (*flags.UsageError)(nil); errors.As(err, &usage) {
		fmt.Fprint(os.Stderr, usage.Usage)
		if errors.Is(err, flags.ErrHelp) {
			return nil
		}
		return err
	}
	if cfg.ONNXRuntime == "" {
		if exe, err := os.Executable(); err == nil {
			cfg.ONNXRuntime = shippedLibrary(filepath.Dir(exe))
		}
	}
	cfg.Log.Output = os.Stderr
	if logFile != "" {
		f, err := os.OpenFile(logFile, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o640)
		if err != nil {
			return fmt.Errorf("--log-file: %w", err)
		}
		cfg.Log.Output, cfg.Log.CloseOutput = f, true
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel, err := sdnotify.WithSupervisor(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	// A second signal ends the process at once.
	context.AfterFunc(ctx, stop)
	cfg.Sockets = sdnotify.InheritedSockets()
	cfg.Ready, cfg.Watchdog = sdnotify.Ready, sdnotify.Watchdog
	s, err := server.New(cfg)
	if err != nil {
		return err
	}
	for _, flag := range ignored {
		s.Logger().Warn("flag has no effect in this server", slog.String("flag", flag))
	}
	return s.Run(ctx)
}

// shippedLibrary is where ONNX Runtime is when the programs lie in dir: in a checkout, or in a package.
func shippedLibrary(dir string) string {
	checkout := filepath.Join(dir, "..", "third_party", "onnxruntime", "libonnxruntime.so.1")
	packaged := filepath.Join(dir, "..", "lib", "vedette", "libonnxruntime.so.1")
	if _, err := os.Stat(packaged); err == nil {
		return packaged
	}
	return checkout
}
