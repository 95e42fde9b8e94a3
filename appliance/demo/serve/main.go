// Command serve is the demonstration's camera alone: the rendered street over RTSP, for rigs and for trying things out.
//
//	go run ./appliance/demo/serve -address 127.0.0.1:8554      # rtsp://127.0.0.1:8554/street
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/vedette/vedette/appliance/demo"
)

func main() {
	address := flag.String("address", "127.0.0.1:8554", "where to listen")
	rate := flag.Float64("rate", 0, "frames a second; 0: as drawn")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	camera, err := demo.New(demo.Config{Address: *address, FrameRate: *rate})
	if err == nil {
		err = camera.Run(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "serve:", err)
		os.Exit(1)
	}
}
