// Command vedette is the appliance: it runs the box, and it is the command line of a running one.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/vedette/vedette/appliance/cli"
	"github.com/vedette/vedette/internal/sdnotify"
)

func main() {
	// The first signal asks everything to stop, the second ends the process at once.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)

	executable, err := os.Executable()
	if err == nil {
		err = cli.Run(ctx, cli.Env{Args: os.Args[1:], Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Version: version(), Executable: executable, Reload: hangups, Sockets: sdnotify.InheritedSockets(), Commands: tools(executable)})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "vedette:", err)
		os.Exit(1)
	}
}

// hangups are the SIGHUPs from now on: they ask for the settings to be read again ("systemctl reload vedette"). Commands
// that do not ask for them end by one, as any does whose terminal goes.
func hangups() <-chan os.Signal {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGHUP)
	return c
}

func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "devel"
}
