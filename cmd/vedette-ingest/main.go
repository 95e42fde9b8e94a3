// Command vedette-ingest connects to cameras, decodes them and serves their frames on a Unix socket.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/vedette/vedette/ingest/crash"
	"github.com/vedette/vedette/ingest/reckon"
	"github.com/vedette/vedette/ingest/sidecar"
	"github.com/vedette/vedette/internal/sdnotify"
)

type flags struct {
	Socket   string
	LogLevel slog.Level
	Decodes  int
	Dials    int
	Measure  bool
	Version  bool
	// FirstLease is given to the process of an isolated camera by the one that started it.
	FirstLease uint64
}

// parse reads the command line; settings of the environment are what it starts from. The standard library does it: the
// parser of the appliance's commands looks methods up by name, which keeps the linker from leaving out what is not used.
func parse(args []string, getenv func(string) string, usage io.Writer) (flags, error) {
	f := flags{Socket: cmp.Or(getenv("VEDETTE_INGEST_SOCKET"), "/run/vedette/ingest.sock")}
	if text := getenv("VEDETTE_LOG_LEVEL"); text != "" {
		if err := f.LogLevel.UnmarshalText([]byte(text)); err != nil {
			return f, fmt.Errorf("VEDETTE_LOG_LEVEL=%s: %w; give debug, info, warn or error", text, err)
		}
	}
	set := flag.NewFlagSet("vedette-ingest", flag.ContinueOnError)
	set.SetOutput(usage)
	set.StringVar(&f.Socket, "socket", f.Socket, "Unix `socket` to serve; $VEDETTE_INGEST_SOCKET")
	set.TextVar(&f.LogLevel, "log-level", f.LogLevel, "debug, info, warn or error; $VEDETTE_LOG_LEVEL")
	set.IntVar(&f.Decodes, "decodes", 0, "pictures decoded at once; 0: the cores of this machine")
	set.IntVar(&f.Dials, "dials", 0, "cameras being connected at once; 0: 8")
	set.BoolVar(&f.Measure, "measure-decode", false, "print as JSON what decoding costs on this machine, and exit")
	set.BoolVar(&f.Version, "version", false, "print the version and exit")
	set.Uint64Var(&f.FirstLease, "first-lease", 0, "number of the first lease; given to the process of an isolated camera")
	set.Usage = func() {
		_, _ = fmt.Fprint(usage, "Usage: vedette-ingest [flags]\n\nConnects to cameras, decodes them and serves their frames on a Unix socket.\n\n")
		set.PrintDefaults()
	}
	if err := set.Parse(args); err != nil {
		return f, err
	}
	if set.NArg() > 0 {
		return f, fmt.Errorf("unexpected argument %q; --help lists the flags", set.Arg(0))
	}
	return f, nil
}

func main() {
	version := "devel"
	if info, ok := debug.ReadBuildInfo(); ok {
		version = info.Main.Version
	}
	f, err := parse(os.Args[1:], os.Getenv, os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return
	case err == nil && f.Version:
		fmt.Println(version)
		return
	case err == nil:
		err = run(f, version)
	}
	if err != nil {
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
