package server_test

import (
	"context"
	"io"
	"path/filepath"
	"testing"

	"github.com/vedette/vedette/infer/server"
	"github.com/vedette/vedette/infer/server/flags"
)

func TestTheWatchdogAsksTheFrontendItself(t *testing.T) {
	for name, args := range map[string][]string{
		"by its private socket": {"--private-socket", filepath.Join(t.TempDir(), "p.sock")},
		"by its repository":     nil,
	} {
		t.Run(name, func(t *testing.T) {
			cfg, _, _, err := flags.Parse(append([]string{
				"--model-repository", t.TempDir(), "--allow-http=false", "--grpc-address=127.0.0.1", "--grpc-port=0", "--allow-metrics=false", "--exit-timeout-secs=1",
			}, args...), func(string) string { return "" })
			if err != nil {
				t.Fatal(err)
			}
			cfg.Log.Output = io.Discard
			ready := make(chan struct{})
			cfg.Ready = func() error { close(ready); return nil }
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			alive := false
			cfg.Watchdog = func(ctx context.Context, ask func() bool) error {
				select {
				case <-ready:
					alive = ask()
				case <-ctx.Done():
				}
				cancel()
				return nil
			}
			s, err := server.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Run(ctx); err != nil {
				t.Fatal(err)
			}
			if !alive {
				t.Error("a server that works is taken for dead")
			}
		})
	}
}
