// Command vedette-ingest connects to cameras, decodes them and serves their frames on a Unix socket.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/vedette/vedette/ingest/crash"
	"github.com/vedette/vedette/ingest/reckon"
	"github.com/vedette/vedette/ingest/sidecar"
	"github.com/vedette/vedette/internal/sdnotify"
)

type flags struct {
	Socket   string     `default:"/run/vedette/ingest.sock" env:"VEDETTE_INGEST_SOCKET" help:"Unix socket to serve."`
	LogLevel slog.Level `default:"info" env:"VEDETTE_LOG_LEVEL" help:"debug, info, warn or error."`
	Decodes  int        `help:"Pictures decoded at once; 0: the cores of this machine."`
	Dials    int        `help:"Cameras being connected at once; 0: 8."`
	Measure  bool       `name:"measure-decode" help:"Print as JSON what decoding costs on this machine, and exit."`
	// FirstLease is given to the process of an isolated camera by the one that started it.
	FirstLease uint64           `hidden:""`
	Version    kong.VersionFlag `help:"Print the version and exit."`
}

func main() {
	version := "devel"
	if info, ok := debug.ReadBuildInfo(); ok {
		version = info.Main.Version
	}
	var f flags
	kong.Parse(&f, kong.Name("vedette-ingest"), kong.Vars{"version": version},
		kong.Description("Connects to cameras, decodes them and serves their frames on a Unix socket."))
	if err := run(f, version); err != nil {
		fmt.Fprintln(os.Stderr, "vedette-ingest:", err)
		os.Exit(1)
	}
}

// measureEach is how long each codec and size is decoded.
const measureEach = 300 * time.Millisecond

func run(f flags, version string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel, err := sdnotify.WithSupervisor(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	// A second signal ends the process at once.
	context.AfterFunc(ctx, stop)
	if f.Measure {
		costs, err := reckon.Decode(ctx, measureEach)
		if err != nil {
			return err
		}
		return json.NewEncoder(os.Stdout).Encode(costs)
	}
	// The runtime reads it again at once.
	if err := os.Setenv("GODEBUG", strings.TrimPrefix(os.Getenv("GODEBUG")+","+crash.Setting, ",")); err != nil {
		return err
	}
	cfg := sidecar.Config{
		Socket: f.Socket, Decodes: f.Decodes, Dials: f.Dials, Program: "vedette-ingest " + version, FirstLease: f.FirstLease, RememberCrashes: true,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: f.LogLevel})),
		Ready:  sdnotify.Ready, Watchdog: sdnotify.Watchdog,
	}
	if f.FirstLease == 0 {
		cfg.Worker, cfg.WorkerOutput = f.worker, os.Stderr
	}
	return sidecar.New(cfg).Run(ctx)
}

// worker starts this program again, the very same file even if another version has replaced it, for one camera.
func (f flags) worker(socket string, firstLease uint64) (string, []string) {
	return "/proc/self/exe", []string{
		"--socket", socket, "--first-lease", strconv.FormatUint(firstLease, 10), "--decodes", "1", "--dials", "1", "--log-level", f.LogLevel.String(),
	}
}
